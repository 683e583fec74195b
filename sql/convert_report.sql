-- The rest of the report of a conversion: code and columns to check, statements that drop obstacles and create them again,
-- and statements that restore the keys.

-- A row of the report.
CREATE TYPE snowflake_internal.snowflake_row AS (kind text, object text, statement text, note text, remedy text);

-- Code that may not work with bigint, or that names what is dropped. It runs nothing, and proves nothing: PL/pgSQL and most
-- SQL functions are texts to PostgreSQL.
CREATE FUNCTION snowflake_internal.snowflake_convert_code(
    keys snowflake_internal.snowflake_key[], keep_sequence boolean
) RETURNS SETOF snowflake_internal.snowflake_row
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    WITH columns AS MATERIALIZED (
        SELECT DISTINCT k.relid, k.attname, k.is_key
        FROM snowflake_internal.snowflake_convert_columns(keys) k WHERE k.is_small
    ), names (name, what) AS MATERIALIZED (
        SELECT lower(c.relname), format('table %s', c.oid::regclass)
        FROM pg_class c WHERE c.oid IN (SELECT k.relid FROM columns k)
        UNION
        -- Many functions have a column with the name of a key.
        SELECT lower(k.attname), format('column %I of table %s', k.attname, k.relid) FROM columns k WHERE NOT k.is_key
        UNION
        SELECT lower(c.relname), format('sequence %s', s.seqrelid)
        FROM snowflake_internal.snowflake_convert_sequences(keys) s
        JOIN pg_class c ON c.oid = s.seqrelid WHERE NOT s.stays AND (s.is_identity OR NOT keep_sequence)
    ), functions AS MATERIALIZED (
        SELECT p.oid, p.proname, p.pronamespace, p.prorettype, p.proowner, l.lanname,
            -- A role that is no owner could fill the memory, or keep the locks for long, with the text of a function.
            lower(left(coalesce(pg_get_function_sqlbody(p.oid), p.prosrc), 100000)) AS body,
            p.prorettype || p.proargtypes::oid[] || p.proallargtypes AS types
        FROM pg_proc p
        JOIN pg_language l ON l.oid = p.prolang AND l.lanname NOT IN ('internal', 'c')
        JOIN pg_namespace n ON n.oid = p.pronamespace AND n.nspname NOT IN ('pg_catalog', 'information_schema')
        WHERE NOT EXISTS (
            SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
    ), texts (class, id, body) AS (
        SELECT 'pg_proc'::regclass::oid, f.oid, f.body FROM functions f
        UNION ALL
        SELECT 'pg_attrdef'::regclass, d.oid, lower(left(pg_get_expr(d.adbin, d.adrelid), 100000))
        FROM pg_attrdef d
        JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum AND a.attgenerated = ''
        -- The others have a recorded dependency on their sequence.
        WHERE NOT EXISTS (
            SELECT FROM pg_depend u JOIN pg_class q ON q.oid = u.refobjid AND q.relkind = 'S'
            WHERE u.classid = 'pg_attrdef'::regclass AND u.objid = d.oid AND u.refclassid = 'pg_class'::regclass)
    ), words AS MATERIALIZED (
        SELECT DISTINCT t.class, t.id, w.word FROM texts t, regexp_split_to_table(t.body, '\W+') AS w (word)
    ), reasons (class, id, n, reason) AS (
        SELECT 'pg_proc'::regclass::oid, f.oid, 1,
            format('trigger %s calls it', string_agg(DISTINCT format('%I of table %s', t.tgname, t.tgrelid::regclass), ', '))
        FROM functions f JOIN pg_trigger t ON t.tgfoid = f.oid AND NOT t.tgisinternal AND t.tgparentid = 0
        WHERE t.tgrelid IN (SELECT k.relid FROM columns k)
        GROUP BY f.oid
        UNION ALL
        SELECT w.class, w.id, 2, format('it names %s', string_agg(DISTINCT n.what, ', '))
        FROM words w JOIN names n ON n.name = w.word
        GROUP BY w.class, w.id
    ), found AS MATERIALIZED (
        SELECT r.class, r.id, min(r.n) AS n, string_agg(r.reason, '; ' ORDER BY r.n) AS why
        FROM (
            SELECT * FROM reasons
            UNION ALL
            SELECT 'pg_proc'::regclass, f.oid, 3, 'it has a parameter or result of the old type'
            FROM functions f
            WHERE f.types && '{smallint, integer, smallint[], integer[]}'::regtype[]::oid[] AND (
                f.pronamespace IN (SELECT c.relnamespace FROM pg_class c JOIN columns k ON k.relid = c.oid)
                OR lower(f.proname) IN (SELECT w.word FROM words w JOIN reasons r ON r.class = w.class AND r.id = w.id))
        ) AS r
        GROUP BY r.class, r.id
    ), checked (functions) AS (
        SELECT array_agg(f.oid::regprocedure ORDER BY f.oid::regprocedure::text COLLATE "C")
        FROM found r JOIN functions f ON r.class = 'pg_proc'::regclass AND f.oid = r.id AND f.lanname = 'plpgsql'
        -- The planner executes immutable functions that a checked one calls.
        JOIN pg_roles o ON o.oid = f.proowner AND (o.rolsuper OR current_setting('is_superuser') = 'off')
        WHERE f.prorettype <> 'event_trigger'::regtype AND (f.prorettype <> 'trigger'::regtype OR EXISTS (
            SELECT FROM pg_trigger t WHERE t.tgfoid = f.oid AND NOT t.tgisinternal))
    ), lines (n, row) AS (
        SELECT r.n, ('check', o.object, NULL, r.why, CASE r.class WHEN 'pg_proc'::regclass
            THEN 'Look for variables, parameters, casts and arrays of the old type, and for currval, lastval and nextval.'
            ELSE 'Replace it.' END)::snowflake_internal.snowflake_row
        FROM found r, pg_describe_object(r.class, r.id, 0) AS o (object)
        UNION ALL
        SELECT 4, ('check', 'extension plpgsql_check',
            format('SELECT f.oid::regprocedure AS function, c.* FROM unnest(%L::regprocedure[]) AS f (oid) '
                   'LEFT JOIN pg_trigger t ON t.tgfoid = f.oid AND NOT t.tgisinternal, '
                   'LATERAL %I.plpgsql_check_function(f.oid, coalesce(t.tgrelid, 0)) AS c',
                   c.functions, coalesce(n.nspname, 'public')),
            CASE WHEN x.oid IS NULL THEN 'it is not installed, and would find errors in functions'
                ELSE 'it is installed' END, 'Execute the statement before and after the conversion.'
            )::snowflake_internal.snowflake_row
        FROM checked c LEFT JOIN pg_extension x ON x.extname = 'plpgsql_check'
        LEFT JOIN pg_namespace n ON n.oid = x.extnamespace
        WHERE c.functions IS NOT NULL
    )
    SELECT (l.row).* FROM lines l ORDER BY l.n, (l.row).object COLLATE "C";

    RETURN QUERY SELECT 'check', 'applications', NULL::text,
        'they may use lastval() or currval(), hold a key in 32 bits, or pair inserted rows with sorted keys',
        'Use RETURNING, widen variables, and declare the default in the models of an ORM. Reconnect pools afterwards.'
    WHERE keys <> '{}';
END
$$;

-- The columns of tables that the call does not change, although they may be keys or hold IDs.
CREATE FUNCTION snowflake_internal.snowflake_convert_left_out(keys snowflake_internal.snowflake_key[], tables oid[])
    RETURNS SETOF snowflake_internal.snowflake_row
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    WITH columns AS MATERIALIZED (
        SELECT k.relid, k.attnum FROM snowflake_internal.snowflake_convert_columns(keys) k
    ), candidates AS (
        SELECT c.oid::regclass AS relid, a.attname, a.atttypid, a.attidentity <> '' OR EXISTS (
                SELECT FROM pg_depend s JOIN pg_class q ON q.oid = s.refobjid AND q.relkind = 'S'
                WHERE s.classid = 'pg_attrdef'::regclass AND s.objid = d.oid AND s.refclassid = 'pg_class'::regclass
            ) AS has_sequence, d.oid IS NOT NULL AS has_default,
            (i.indkey::int2[])[0:i.indnkeyatts - 1] AS primary_key, a.attnum,
            format_type(a.atttypid, NULL) LIKE '%[]' AS is_array, o.rolname
        FROM pg_class c
        JOIN pg_roles o ON o.oid = c.relowner
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attinhcount = 0
            AND a.attgenerated = ''
            AND a.atttypid = ANY ('{bigint, integer, smallint, integer[], smallint[]}'::regtype[]::oid[])
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
        WHERE c.oid = ANY (tables) AND c.oid >= 16384 AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
            AND (c.oid, a.attnum) NOT IN (SELECT k.relid, k.attnum FROM columns k)
            AND NOT EXISTS (
                SELECT FROM pg_constraint f WHERE f.contype = 'f' AND f.conrelid = c.oid AND a.attnum = ANY (f.conkey))
    )
    -- With the rights of another role, a statement would execute what the table's owner has defined.
    SELECT 'left out', format('column %I of table %s', c.attname, c.relid),
        CASE c.rolname WHEN current_user THEN r.statement END, r.note,
        CASE WHEN c.rolname <> current_user THEN format('The table belongs to %I.', c.rolname) END
    FROM candidates c,
    LATERAL format('SELECT * FROM %s.snowflake_convert(%L, %L)', '@extschema@', c.relid, c.attname) AS convert,
    LATERAL (VALUES
        (1, c.has_sequence AND c.attnum = ANY (c.primary_key), 'the call leaves the table out', convert),
        (2, c.has_sequence, 'it has a sequence, but is not in the primary key', convert),
        (3, ARRAY[c.attnum] = c.primary_key AND NOT (c.has_sequence OR c.has_default), 'the key has no sequence', convert),
        (4, NOT c.has_sequence AND c.atttypid <> 'bigint'::regtype AND (c.is_array OR c.attname ~ '(_ids?|I[dD]s?)$'),
            CASE WHEN c.is_array THEN 'its numbers may be IDs: these need bigint'
                ELSE 'it has no foreign key, and a name as if it held IDs: these need bigint' END,
            format('ALTER TABLE %s ALTER COLUMN %I TYPE bigint%s', c.relid, c.attname,
                   CASE WHEN c.is_array THEN '[]' ELSE '' END))
    ) AS r (n, is_so, note, statement)
    WHERE r.is_so AND (r.n <> 2 OR (c.attnum = ANY (c.primary_key)) IS NOT TRUE)
    ORDER BY c.relid::text COLLATE "C", c.attnum, r.n;
END
$$;

-- The statements that bring the keys back as they are now, in the order of their execution. The columns become narrow again
-- only while no value exceeds their type, and between the statements that drop obstacles and create them again.
CREATE FUNCTION snowflake_internal.snowflake_convert_back(
    keys snowflake_internal.snowflake_key[],
    drops snowflake_internal.snowflake_row[], creates snowflake_internal.snowflake_row[]
) RETURNS SETOF snowflake_internal.snowflake_row
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    WITH sequences AS MATERIALIZED (
        -- snowflake_revert() gives a new sequence this name.
        SELECT s.relid, s.attname, s.seqrelid, format('sequence %s', s.seqrelid) AS label, q.seqtypid, q.seqincrement,
            q.seqstart, q.seqcache, c.relowner, c.relacl
        FROM snowflake_internal.snowflake_convert_sequences(keys) s
        JOIN pg_sequence q ON q.seqrelid = s.seqrelid
        JOIN pg_class c ON c.oid = s.seqrelid
        JOIN pg_class t ON t.oid = s.relid AND c.relname = concat_ws('_', t.relname, s.attname, 'seq')
        WHERE NOT s.stays
    ), narrow AS MATERIALIZED (
        SELECT DISTINCT k.relid, k.attnum, k.attname, k.type
        FROM snowflake_internal.snowflake_convert_columns(keys) k
        JOIN pg_attribute a ON a.attrelid = k.relid AND a.attnum = k.attnum AND a.attinhcount = 0
        WHERE k.is_small
    ), statements (part, n, object, statement, narrows) AS (
        SELECT 1, row_number() OVER (ORDER BY k.relid::text COLLATE "C", k.attname),
            format('column %I of table %s', k.attname, k.relid), CASE
            WHEN a.attidentity = '' AND d.oid IS NULL
            THEN format('ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT', k.relid, k.attname)
            ELSE format('SELECT * FROM %s.snowflake_revert(%L, %L, dry_run => false, becomes => %L)', '@extschema@', k.relid,
                k.attname, CASE a.attidentity WHEN 'a' THEN 'identity always' WHEN 'd' THEN 'identity by default'
                           ELSE 'bigserial' END)
            END, false
        FROM unnest(keys) AS k
        JOIN pg_attribute a ON a.attrelid = k.relid AND a.attname = k.attname
        LEFT JOIN pg_attrdef d ON d.adrelid = k.relid AND d.adnum = a.attnum
        UNION ALL
        SELECT 2, r.ordinality, r.object, r.statement, true FROM unnest(drops) WITH ORDINALITY AS r
        UNION ALL
        SELECT 3, v.ordinality, 'views', v.statement, true
        FROM snowflake_internal.snowflake_convert_plan_views(keys, false, true) WITH ORDINALITY AS v
        UNION ALL
        SELECT 4, row_number() OVER (ORDER BY n.relid::text COLLATE "C"), format('table %s', n.relid),
            format('ALTER TABLE %s %s', n.relid, string_agg(format('ALTER COLUMN %I TYPE %s', n.attname, n.type), ', '
                                                            ORDER BY n.attnum)), true
        FROM narrow n GROUP BY n.relid
        UNION ALL
        SELECT 5, row_number() OVER (ORDER BY s.seqrelid::text COLLATE "C"), s.label,
            format('ALTER SEQUENCE %s%s INCREMENT BY %s START WITH %s CACHE %s', s.seqrelid,
                   CASE WHEN n.relid IS NULL THEN '' ELSE ' AS ' || s.seqtypid::regtype END, s.seqincrement, s.seqstart,
                   s.seqcache), n.relid IS NOT NULL
        FROM sequences s LEFT JOIN narrow n ON n.relid = s.relid AND n.attname = s.attname
        WHERE s.seqincrement > 0 AND s.seqstart > 0
        UNION ALL
        SELECT 6, row_number() OVER (ORDER BY g.statement COLLATE "C"), g.label, g.statement, false
        FROM (
            SELECT s.label, format('GRANT %s ON SEQUENCE %s TO %s%s',
                string_agg(a.privilege_type, ', ' ORDER BY a.n), s.seqrelid,
                snowflake_internal.snowflake_grantee(a.grantee),
                CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END) AS statement
            FROM sequences s,
            LATERAL aclexplode(s.relacl) WITH ORDINALITY AS a (grantor, grantee, privilege_type, is_grantable, n)
            WHERE a.grantee <> s.relowner
            GROUP BY s.label, s.seqrelid, a.grantee, a.is_grantable
        ) AS g
        UNION ALL
        SELECT 7, v.ordinality, 'views', v.statement, true
        FROM snowflake_internal.snowflake_convert_plan_views(keys, false, false) WITH ORDINALITY AS v
        UNION ALL
        SELECT 8, r.ordinality, r.object, r.statement, true FROM unnest(creates) WITH ORDINALITY AS r
    )
    SELECT 'revert', s.object, s.statement,
        CASE WHEN s.narrows THEN 'leave it out once a value exceeds the old type' END, NULL::text
    FROM statements s ORDER BY s.part, s.n;
END
$$;

-- The statements that drop what keeps PostgreSQL from widening the columns, and those that create it again as it is now,
-- with comments and rights: rules, triggers, policies, SQL functions, materialized views with what reads them, and generated
-- columns, which come last in their tables afterwards. The last created is the first dropped.
--
-- Only the caller's own objects: a definition of another role would be executed with the caller's rights, and a function
-- that is created again would belong to the caller, even as SECURITY DEFINER.
CREATE FUNCTION snowflake_internal.snowflake_convert_script(keys snowflake_internal.snowflake_key[], drops boolean)
    RETURNS SETOF snowflake_internal.snowflake_row
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    WITH self AS MATERIALIZED (
        SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user
    ), own AS MATERIALIZED (
        SELECT c.oid FROM pg_class c JOIN self s ON s.oid = c.relowner
    ), narrow AS MATERIALIZED (
        SELECT DISTINCT k.relid::oid, k.attnum
        FROM snowflake_internal.snowflake_convert_columns(keys) k WHERE k.is_small
    ), views AS MATERIALIZED (
        SELECT v.relid::oid FROM snowflake_internal.snowflake_convert_views(keys, false) v
        UNION
        SELECT v.relid FROM snowflake_internal.snowflake_convert_views(keys, true) v
    ), generated AS MATERIALIZED (
        SELECT DISTINCT a.attrelid AS relid, a.attnum, a.attname, quote_ident(a.attname) AS name, a.attacl,
            concat_ws(' ', format_type(a.atttypid, a.atttypmod), (
                SELECT 'COLLATE ' || a.attcollation::regcollation
                FROM pg_type t WHERE t.oid = a.atttypid AND t.typcollation <> a.attcollation),
                format('GENERATED ALWAYS AS (%s) %s', pg_get_expr(g.adbin, g.adrelid),
                       CASE a.attgenerated WHEN 's' THEN 'STORED' ELSE 'VIRTUAL' END),
                CASE WHEN a.attnotnull THEN 'NOT NULL' END) AS definition
        FROM narrow n
        JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
            AND d.refobjid = n.relid AND d.refobjsubid = n.attnum
        JOIN pg_attrdef g ON g.oid = d.objid
        JOIN pg_attribute a ON a.attrelid = g.adrelid AND a.attnum = g.adnum AND a.attgenerated <> '' AND a.attinhcount = 0
    ), dependents AS MATERIALIZED (
        SELECT DISTINCT d.classid, d.objid
        FROM pg_depend d
        LEFT JOIN pg_type t ON d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid
        LEFT JOIN pg_type e ON e.typarray = t.oid
        WHERE (d.refclassid = 'pg_class'::regclass AND ((d.refobjid, d.refobjsubid) IN (
                SELECT n.relid, n.attnum FROM narrow n UNION SELECT g.relid, g.attnum FROM generated g)
                OR d.refobjid IN (SELECT v.relid FROM views v))
            OR coalesce(nullif(t.typrelid, 0), e.typrelid) IN (SELECT v.relid FROM views v))
            AND d.deptype <> 'i'
    ), parts (part, object, drop_it, create_it) AS (
        SELECT 1, pg_describe_object(d.classid, d.objid, 0), format('DROP RULE %I ON %s', r.rulename, r.ev_class::regclass),
            ARRAY[rtrim(pg_get_ruledef(r.oid), ';'), format('ALTER TABLE %s ', r.ev_class::regclass)
                || CASE r.ev_enabled WHEN 'D' THEN 'DISABLE' WHEN 'A' THEN 'ENABLE ALWAYS' WHEN 'R' THEN 'ENABLE REPLICA' END
                || format(' RULE %I', r.rulename),
                format('COMMENT ON RULE %I ON %s IS ', r.rulename, r.ev_class::regclass)
                || quote_literal(obj_description(r.oid, 'pg_rewrite'))]
        FROM dependents d JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
            AND r.rulename <> '_RETURN'
        WHERE r.ev_class IN (SELECT o.oid FROM own o) AND r.ev_class NOT IN (SELECT v.relid FROM views v)
        UNION ALL
        SELECT 1, pg_describe_object(d.classid, d.objid, 0), format('DROP TRIGGER %I ON %s', t.tgname, t.tgrelid::regclass),
            ARRAY[pg_get_triggerdef(t.oid), format('ALTER TABLE %s ', t.tgrelid::regclass)
                || CASE t.tgenabled WHEN 'D' THEN 'DISABLE' WHEN 'A' THEN 'ENABLE ALWAYS' WHEN 'R' THEN 'ENABLE REPLICA' END
                || format(' TRIGGER %I', t.tgname),
                format('COMMENT ON TRIGGER %I ON %s IS ', t.tgname, t.tgrelid::regclass)
                || quote_literal(obj_description(t.oid, 'pg_trigger'))]
        FROM dependents d JOIN pg_trigger t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid
            AND NOT t.tgisinternal AND t.tgparentid = 0
        WHERE t.tgrelid IN (SELECT o.oid FROM own o) AND t.tgrelid NOT IN (SELECT v.relid FROM views v)
        UNION ALL
        SELECT 1, pg_describe_object(d.classid, d.objid, 0), format('DROP POLICY %I ON %s', p.polname, p.polrelid::regclass),
            ARRAY[format('CREATE POLICY %I ON %s AS %s FOR %s TO %s', p.polname, p.polrelid::regclass,
                    CASE WHEN p.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
                    CASE p.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE'
                        ELSE 'ALL' END,
                    (SELECT string_agg(snowflake_internal.snowflake_grantee(r), ', ')
                     FROM unnest(p.polroles) AS r))
                || coalesce(' USING (' || pg_get_expr(p.polqual, p.polrelid) || ')', '')
                || coalesce(' WITH CHECK (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')', ''),
                format('COMMENT ON POLICY %I ON %s IS ', p.polname, p.polrelid::regclass)
                || quote_literal(obj_description(p.oid, 'pg_policy'))]
        FROM dependents d JOIN pg_policy p ON d.classid = 'pg_policy'::regclass AND p.oid = d.objid
        WHERE p.polrelid IN (SELECT o.oid FROM own o)
        UNION ALL
        SELECT 2, pg_describe_object(d.classid, d.objid, 0), format('DROP ROUTINE %s', p.oid::regprocedure),
            ARRAY[rtrim(pg_get_functiondef(p.oid), E'\n'),
                CASE WHEN p.proacl IS NOT NULL THEN format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', p.oid::regprocedure) END,
                format('COMMENT ON ROUTINE %s IS ', p.oid::regprocedure) || quote_literal(obj_description(p.oid, 'pg_proc'))]
            || ARRAY(SELECT format('GRANT EXECUTE ON ROUTINE %s TO %s%s', p.oid::regprocedure,
                         snowflake_internal.snowflake_grantee(a.grantee),
                         CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END)
                     FROM aclexplode(p.proacl) AS a WHERE a.grantee <> p.proowner)
        FROM dependents d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid AND p.prokind <> 'a'
        JOIN self s ON s.oid = p.proowner
        UNION ALL
        SELECT 4, format('generated column %s of table %s', g.name, g.relid::regclass),
            format('ALTER TABLE %s DROP COLUMN %s', g.relid::regclass, g.name),
            ARRAY[format('ALTER TABLE %s ADD COLUMN %s %s', g.relid::regclass, g.name, g.definition),
                format('COMMENT ON COLUMN %s.%s IS ', g.relid::regclass, g.name)
                || quote_literal(col_description(g.relid, g.attnum))]
            || ARRAY(SELECT format('ALTER TABLE %s ADD CONSTRAINT %I %s', g.relid::regclass, n.conname,
                                   pg_get_constraintdef(n.oid))
                     FROM pg_constraint n
                     WHERE n.conrelid = g.relid AND g.attnum = ANY (n.conkey) AND n.contype <> 'n' AND n.coninhcount = 0
                     ORDER BY n.contype = 'f', n.conname)
            || ARRAY(SELECT DISTINCT pg_get_indexdef(i.indexrelid)
                     FROM pg_index i JOIN pg_depend x ON x.classid = 'pg_class'::regclass AND x.objid = i.indexrelid
                         AND x.refclassid = 'pg_class'::regclass AND x.refobjid = g.relid AND x.refobjsubid = g.attnum
                     WHERE i.indrelid = g.relid AND NOT EXISTS (SELECT FROM pg_constraint n WHERE n.conindid = i.indexrelid))
            || ARRAY(SELECT format('GRANT %s (%s) ON %s TO %s%s', a.privilege_type, g.name, g.relid::regclass,
                         snowflake_internal.snowflake_grantee(a.grantee),
                         CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END)
                     FROM aclexplode(g.attacl) AS a)
        FROM generated g WHERE g.relid IN (SELECT o.oid FROM own o)
    ), lines (part, object, n, statement) AS (
        SELECT p.part, p.object, 0, p.drop_it FROM parts p WHERE drops
        UNION ALL
        SELECT -p.part, p.object, c.n, c.statement
        FROM parts p, unnest(p.create_it) WITH ORDINALITY AS c (statement, n) WHERE NOT drops AND c.statement IS NOT NULL
        UNION ALL
        SELECT CASE WHEN drops THEN 3 ELSE -3 END, 'materialized views',
            v.ordinality, v.statement
        FROM snowflake_internal.snowflake_convert_plan_views(keys, true, drops) WITH ORDINALITY AS v
    )
    SELECT CASE WHEN drops THEN 'before' ELSE 'after' END, l.object, l.statement, NULL::text, NULL::text
    FROM lines l ORDER BY l.part, l.object COLLATE "C", l.n;
END
$$;

COMMENT ON TYPE snowflake_internal.snowflake_row IS 'internal: a row of a report';
