-- The extension's objects.
CREATE EXTENSION snowflake_id;
\pset format unaligned
-- As \dx+ of PostgreSQL 16 and earlier lists them. Later versions also list the types of rows and arrays.
CREATE TEMPORARY VIEW members AS
SELECT m.classid, m.objid, coalesce(c.oid, nullif(t.typrelid, 0)) AS relid FROM pg_depend m
JOIN pg_extension e ON m.refclassid = 'pg_extension'::regclass AND e.oid = m.refobjid AND e.extname = 'snowflake_id'
LEFT JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
LEFT JOIN pg_type t ON m.classid = 'pg_type'::regclass AND t.oid = m.objid LEFT JOIN pg_class r ON r.oid = t.typrelid
WHERE m.deptype = 'e' AND (t.oid IS NULL OR t.typtype = 'd' OR r.relkind = 'c');
-- A function's labels: volatility, STRICT, parallel safety, SECURITY DEFINER, rows and support function. Not STRICT
-- is, for one, what the planner is to inline; for pruning, snowflake_between and its helpers are immutable.
CREATE TEMPORARY VIEW objects AS
SELECT pg_describe_object(m.classid, m.objid, 0) AS object,
    pg_get_function_arguments(p.oid) AS arguments, pg_get_function_result(p.oid) AS result,
    concat_ws(' ', p.provolatile, CASE WHEN p.proisstrict THEN 'strict' END, p.proparallel,
        CASE WHEN p.prosecdef THEN 'definer' END, nullif(p.prorows, 0), nullif(p.prosupport::oid, 0)::regproc) AS labels,
    array_to_string(p.proconfig, '; ') AS settings, (
        SELECT string_agg(DISTINCT a.privilege_type || coalesce(' ' || nullif(a.grantee, 0)::regrole, ' PUBLIC'), ', ')
        FROM aclexplode(coalesce(c.relacl, n.nspacl, p.proacl, acldefault('f', p.proowner))) AS a
        WHERE a.grantee <> coalesce(c.relowner, n.nspowner, p.proowner)) AS rights,
    obj_description(m.objid, m.classid::regclass::name) AS comment
FROM members m LEFT JOIN pg_class c ON m.classid = 'pg_class'::regclass AND c.oid = m.objid
LEFT JOIN pg_proc p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
LEFT JOIN pg_namespace n ON m.classid = 'pg_namespace'::regclass AND n.oid = m.objid;
SELECT * FROM objects ORDER BY 1;
-- Without a comment, or with one of another form than PostgreSQL's; that on an internal one says so in its first word.
SELECT object FROM objects
WHERE coalesce(comment, '') !~ '^[^\n]*[^\n.]$' AND (comment IS NOT NULL OR object !~ '^function snowflake_internal')
    OR comment LIKE 'internal: %' <> (object ~ '^(schema|function|type) snowflake_internal');
SELECT relid::regclass AS relation, string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod),
    CASE WHEN a.attnotnull THEN 'NOT NULL' END, 'DEFAULT ' || pg_get_expr(d.adbin, relid),
    '(' || col_description(relid, a.attnum) || ')'), ', ' ORDER BY a.attnum) AS columns
FROM members JOIN pg_attribute a ON a.attrelid = relid AND a.attnum > 0
LEFT JOIN pg_attrdef d ON d.adrelid = relid AND d.adnum = a.attnum GROUP BY relid ORDER BY relid::regclass::text;
SELECT pg_describe_object(classid, objid, 0) AS object, o.definition FROM members, LATERAL (
    SELECT pg_get_constraintdef(n.oid) FROM pg_constraint n WHERE objid IN (n.conrelid, n.contypid) AND n.contype <> 'n'
    UNION ALL SELECT pg_get_indexdef(i.indexrelid) FROM pg_index i WHERE i.indrelid = relid AND NOT i.indisunique
    UNION ALL SELECT format('%s (%s)', pg_get_triggerdef(t.oid), t.tgenabled) FROM pg_trigger t WHERE t.tgrelid = relid
    UNION ALL SELECT format('WITH (%s)', c.reloptions) FROM pg_class c WHERE c.oid = relid AND c.reloptions IS NOT NULL
) AS o (definition) ORDER BY 1, 2;
-- The settings.
SELECT name, short_desc, extra_desc, unit, vartype, min_val, max_val, boot_val, context, enumvals
FROM pg_settings WHERE name LIKE 'snowflake\_id.%' ORDER BY 1;
