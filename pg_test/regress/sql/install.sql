-- The extension's objects.
CREATE EXTENSION snowflake_id;
\pset footer off
\a
-- As \dx+ of PostgreSQL 16 and earlier lists them. Later versions also list the types of rows and arrays.
-- A function's labels: volatility, STRICT, parallel safety, and whether every role may execute it. Not STRICT is, for one,
-- what the planner is to inline; for pruning, snowflake_between and its helpers are immutable. \df+ and \dd show the rest.
SELECT pg_describe_object(classid, objid, 0) AS "Object description", provolatile AS volatile, proisstrict AS strict,
    proparallel AS parallel, has_function_privilege('public', pg_proc.oid, 'EXECUTE') AS public,
    pg_get_function_arguments(pg_proc.oid) AS arguments, pg_get_function_result(pg_proc.oid) AS result,
    prosecdef AS definer, array_to_string(proconfig, ' ') AS settings, prorows AS rows,
    obj_description(objid, classid::regclass::name) AS comment
FROM pg_depend LEFT JOIN pg_type ON classid = 'pg_type'::regclass AND pg_type.oid = objid
    LEFT JOIN pg_proc ON classid = 'pg_proc'::regclass AND pg_proc.oid = objid
WHERE deptype = 'e' AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_id')
    AND (typtype IS NULL OR typtype = 'd'
        OR typtype = 'c' AND (SELECT relkind FROM pg_class WHERE pg_class.oid = typrelid) = 'c')
ORDER BY 1;
SELECT name, short_desc, extra_desc, unit, vartype, min_val, max_val, boot_val, context, enumvals
FROM pg_settings WHERE name LIKE 'snowflake\_id.%' ORDER BY 1;
SELECT attrelid::regclass AS columns_of, string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod),
    quote_literal(col_description(attrelid, attnum))), ', ' ORDER BY attnum)
FROM pg_attribute WHERE attrelid IN ('snowflake_status'::regclass, 'snowflake_workers'::regclass, 'snowflake_parts'::regclass,
    'snowflake_layouts'::regclass, 'snowflake_fleet'::regclass, 'snowflake_fleet_capacity'::regclass) AND attnum > 0 GROUP BY 1 ORDER BY 1;
