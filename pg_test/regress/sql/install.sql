-- The extension's objects.
CREATE EXTENSION snowflake_id;
-- As \dx+ of PostgreSQL 16 and earlier lists them. Later versions also list the types of rows and arrays.
SELECT pg_describe_object(classid, objid, 0) AS "Object description"
FROM pg_depend LEFT JOIN pg_type ON classid = 'pg_type'::regclass AND pg_type.oid = objid
WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_id')
    AND (typtype IS NULL OR typtype = 'd'
        OR typtype = 'c' AND (SELECT relkind FROM pg_class WHERE pg_class.oid = typrelid) = 'c')
ORDER BY 1;
\d snowflake_status
\d snowflake_workers
\d snowflake_parts
