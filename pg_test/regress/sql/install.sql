-- What the extension consists of.
CREATE EXTENSION snowflake_id;
\dx+ snowflake_id
\d snowflake_status
\d snowflake_workers
\d snowflake_parts
