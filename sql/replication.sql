-- The trigger for rows that logical replication applies.

CREATE FUNCTION snowflake_refuse_own_worker() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_refuse_own_worker';

COMMENT ON FUNCTION snowflake_refuse_own_worker() IS
    'for a BEFORE INSERT trigger: refuses replicated rows whose ID has a worker of this server';
