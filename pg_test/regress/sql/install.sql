-- The extension's objects.
CREATE EXTENSION snowflake_id;
\pset footer off
-- As \dx+ of PostgreSQL 16 and earlier lists them. Later versions also list the types of rows and arrays.
-- A function's labels: volatility, STRICT, parallel safety, whether every role may execute it, SECURITY DEFINER, how many rows
-- it is thought to return, and its settings. Not STRICT is, for one, what the planner is to inline; for pruning,
-- snowflake_between and its helpers are immutable. Each object has a comment in one line, which begins with "internal: " if
-- users do not call it; internal functions need none.
SELECT pg_describe_object(classid, objid, 0) AS "Object description", provolatile AS volatile, proisstrict AS strict,
    proparallel AS parallel, has_function_privilege('public', pg_proc.oid, 'EXECUTE') AS public,
    prosecdef AS definer, prorows AS rows, array_to_string(proconfig, '; ') AS settings,
    obj_description(objid, classid::regclass::name) AS comment
FROM pg_depend LEFT JOIN pg_type ON classid = 'pg_type'::regclass AND pg_type.oid = objid
    LEFT JOIN pg_proc ON classid = 'pg_proc'::regclass AND pg_proc.oid = objid
WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_id')
    AND (typtype IS NULL OR typtype = 'd'
        OR typtype = 'c' AND (SELECT relkind FROM pg_class WHERE pg_class.oid = typrelid) = 'c')
ORDER BY 1;
SELECT name, context, short_desc FROM pg_settings WHERE name LIKE 'snowflake\_id.%' ORDER BY name;
SELECT attrelid::regclass AS columns_of, string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod),
    col_description(attrelid, attnum)), ', ' ORDER BY attnum)
FROM pg_attribute WHERE attrelid IN ('snowflake_status'::regclass, 'snowflake_workers'::regclass, 'snowflake_parts'::regclass,
    'snowflake_layouts'::regclass) AND attnum > 0 GROUP BY 1 ORDER BY 1;
