-- The rest of the report of a conversion: code and columns to check, statements that drop obstacles and create them again,
-- and statements that restore the keys.

-- Code that may not work with bigint, or that names what is dropped. It runs nothing, and proves nothing: PL/pgSQL and most
-- SQL functions are texts to PostgreSQL.
CREATE FUNCTION snowflake_internal.snowflake_convert_code(
    keys snowflake_internal.snowflake_key[], keep_sequence boolean
) RETURNS SETOF snowflake_internal.snowflake_row
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
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
    ), lines (n, object, statement, note, remedy) AS (
        SELECT r.n, o.object, NULL, r.why, CASE r.class WHEN 'pg_proc'::regclass
            THEN 'Look for variables, parameters, casts and arrays of the old type, and for currval, lastval and nextval.'
            ELSE 'Replace it.' END
        FROM found r, pg_describe_object(r.class, r.id, 0) AS o (object)
        UNION ALL
        SELECT 4, 'extension plpgsql_check',
            format('SELECT f.oid::regprocedure AS function, c.* FROM unnest(%L::regprocedure[]) AS f (oid) '
                   'LEFT JOIN pg_trigger t ON t.tgfoid = f.oid AND NOT t.tgisinternal, '
                   'LATERAL %I.plpgsql_check_function(f.oid, coalesce(t.tgrelid, 0)) AS c', array_agg(
                       f.oid::regprocedure ORDER BY f.oid::regprocedure::text COLLATE "C"), coalesce(n.nspname, 'public')),
            CASE WHEN x.oid IS NULL THEN 'it is not installed, and would find errors in functions'
                ELSE 'it is installed' END, 'Execute the statement before and after the conversion.'
        FROM found r JOIN functions f ON r.class = 'pg_proc'::regclass AND f.oid = r.id AND f.lanname = 'plpgsql'
        -- The planner executes immutable functions that a checked one calls.
        JOIN pg_roles o ON o.oid = f.proowner AND (o.rolsuper OR current_setting('is_superuser') = 'off')
        LEFT JOIN pg_extension x ON x.extname = 'plpgsql_check'
        LEFT JOIN pg_namespace n ON n.oid = x.extnamespace
        WHERE f.prorettype <> 'event_trigger'::regtype AND (f.prorettype <> 'trigger'::regtype OR EXISTS (
            SELECT FROM pg_trigger t WHERE t.tgfoid = f.oid AND NOT t.tgisinternal))
        GROUP BY x.oid, n.nspname
        UNION ALL
        SELECT 5, 'applications', NULL,
            'they may use lastval() or currval(), hold a key in 32 bits, or pair inserted rows with sorted keys',
            'Use RETURNING, widen variables, and declare the default in the models of an ORM. Reconnect pools afterwards.'
        WHERE keys <> '{}'
    )
    SELECT 'check', l.object, l.statement, NULL, NULL::boolean, NULL, l.note, l.remedy
    FROM lines l ORDER BY l.n, l.object COLLATE "C"
$$;

-- The columns of tables that the call does not change, although they may be keys or hold IDs.
CREATE FUNCTION snowflake_internal.snowflake_convert_left_out(keys snowflake_internal.snowflake_key[], tables oid[])
    RETURNS SETOF snowflake_internal.snowflake_row
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
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
        CASE c.rolname WHEN current_user THEN r.statement END, NULL, NULL::boolean, NULL, r.note,
        CASE WHEN c.rolname <> current_user THEN format('The table belongs to %I.', c.rolname) END
    FROM candidates c,
    LATERAL format('SELECT * FROM %s.snowflake_convert(%L, %L)', '@extschema@', c.relid, c.attname) AS convert,
    LATERAL (VALUES
        (1, c.has_sequence AND c.attnum = ANY (c.primary_key), 'the call leaves the table out', convert),
        (2, c.has_sequence AND (c.attnum = ANY (c.primary_key)) IS NOT TRUE,
            'it has a sequence, but is not in the primary key', convert),
        (3, ARRAY[c.attnum] = c.primary_key AND NOT (c.has_sequence OR c.has_default), 'the key has no sequence', convert),
        (4, NOT c.has_sequence AND c.atttypid <> 'bigint'::regtype AND (c.is_array OR c.attname ~ '(_ids?|I[dD]s?)$'),
            CASE WHEN c.is_array THEN 'its numbers may be IDs: these need bigint'
                ELSE 'it has no foreign key, and a name as if it held IDs: these need bigint' END,
            format('ALTER TABLE %s ALTER COLUMN %I TYPE bigint%s', c.relid, c.attname,
                   CASE WHEN c.is_array THEN '[]' ELSE '' END))
    ) AS r (n, is_so, note, statement)
    WHERE r.is_so ORDER BY c.relid::text COLLATE "C", c.attnum, r.n
$$;

-- The statements that bring the keys back as they are now, in the order of their execution. The columns become narrow again
-- only while no value exceeds their type, and between the statements that drop obstacles and create them again.
CREATE FUNCTION snowflake_internal.snowflake_convert_back(
    keys snowflake_internal.snowflake_key[], keep_sequence boolean, script snowflake_internal.snowflake_row[]
) RETURNS SETOF snowflake_internal.snowflake_row
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH narrow AS MATERIALIZED (
        SELECT DISTINCT k.relid, k.attnum, k.attname, k.type
        FROM snowflake_internal.snowflake_convert_columns(keys) k
        JOIN pg_attribute a ON a.attrelid = k.relid AND a.attnum = k.attnum AND a.attinhcount = 0
        WHERE k.is_small
    ), sequences AS MATERIALIZED (
        -- snowflake_revert() takes a sequence that the column owns, and gives that of an identity this name.
        SELECT s.relid, s.attname, s.is_identity, s.seqrelid::text AS name, format('sequence %s', s.seqrelid) AS label,
            c.relpersistence, q.*, n.relid IS NOT NULL AS is_narrow
        FROM snowflake_internal.snowflake_convert_sequences(keys) s
        JOIN pg_sequence q ON q.seqrelid = s.seqrelid
        JOIN pg_class c ON c.oid = s.seqrelid
        JOIN pg_class t ON t.oid = s.relid AND t.relnamespace = c.relnamespace
            AND (NOT s.is_identity OR c.relname = concat_ws('_', t.relname, s.attname, 'seq'))
        LEFT JOIN narrow n ON n.relid = s.relid AND n.attname = s.attname
        WHERE NOT s.stays AND s.users IS NULL
    ), statements (part, n, object, statement, narrows) AS (
        SELECT 0, 0, s.label, format(CASE WHEN keep_sequence THEN 'ALTER SEQUENCE %s OWNED BY %s.%I'
            WHEN s.relpersistence = 'u' THEN 'CREATE UNLOGGED SEQUENCE %s OWNED BY %s.%I'
            ELSE 'CREATE SEQUENCE %s OWNED BY %s.%I' END, s.name, s.relid, s.attname), false
        FROM sequences s WHERE NOT s.is_identity
        UNION ALL
        SELECT 1, 0, format('column %I of table %s', k.attname, k.relid), CASE
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
        SELECT CASE r.kind WHEN 'before' THEN 2 ELSE 8 END, r.ordinality, r.object, r.statement, true
        FROM unnest(script) WITH ORDINALITY AS r
        UNION ALL
        SELECT CASE WHEN p.drops THEN 3 ELSE 7 END, v.ordinality, 'views', v.statement, true
        FROM (VALUES (true), (false)) AS p (drops),
        LATERAL snowflake_internal.snowflake_convert_plan_readers(keys, false, p.drops) WITH ORDINALITY AS v
        UNION ALL
        SELECT 4, 0, format('table %s', n.relid), format('ALTER TABLE %s %s', n.relid, string_agg(
            format('ALTER COLUMN %I TYPE %s', n.attname, n.type), ', ' ORDER BY n.attnum)), true
        FROM narrow n GROUP BY n.relid
        UNION ALL
        SELECT 5, 0, s.label, format('ALTER SEQUENCE %s%s INCREMENT BY %s MINVALUE %s MAXVALUE %s START WITH %s CACHE %s%s',
                s.name, CASE WHEN s.is_narrow THEN ' AS ' || s.seqtypid::regtype END, s.seqincrement, least(s.seqmin, 1),
                s.seqmax, s.seqstart, s.seqcache, CASE WHEN s.seqcycle THEN ' CYCLE' END),
            s.is_narrow OR s.seqmax < 9223372036854775807
        FROM sequences s WHERE s.seqincrement > 0
        UNION ALL
        SELECT 6, c.n, s.label, c.statement, false
        FROM sequences s, LATERAL snowflake_internal.snowflake_convert_create('pg_class'::regclass, s.seqrelid, 0) c
        WHERE c.n > 0
    )
    SELECT 'revert', s.object, s.statement, NULL, NULL::boolean, NULL,
        CASE WHEN s.narrows THEN 'leave it out once a value exceeds the old type or sequence' END, NULL
    FROM statements s ORDER BY s.part, s.n, s.object COLLATE "C", s.statement COLLATE "C"
$$;

-- The statements that drop what keeps PostgreSQL from widening the columns, and those that create it again as it is now:
-- rules, triggers, policies, SQL functions, materialized views with what reads them, and generated columns, which come last
-- in their tables afterwards. The last created is the first dropped.
--
-- Only the caller's own objects: a definition of another role would be executed with the caller's rights, and a function
-- that is created again would belong to the caller, even as SECURITY DEFINER. And no generated column that other tables
-- inherit: these may have indexes, constraints and comments of their own on it.
CREATE FUNCTION snowflake_internal.snowflake_convert_script(keys snowflake_internal.snowflake_key[])
    RETURNS SETOF snowflake_internal.snowflake_row
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH own AS MATERIALIZED (
        SELECT c.oid FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner AND r.rolname = current_user
    ), narrow AS MATERIALIZED (
        SELECT DISTINCT 'pg_class'::regclass::oid AS class, k.relid::oid AS id, k.attnum::integer
        FROM snowflake_internal.snowflake_convert_columns(keys) k WHERE k.is_small
    ), readers AS MATERIALIZED (
        SELECT r.class, r.id
        FROM (VALUES (true), (false)) AS s (stored), snowflake_internal.snowflake_convert_readers(keys, s.stored) r
    ), generated AS MATERIALIZED (
        SELECT DISTINCT n.class, g.adrelid AS id, g.adnum::integer AS attnum
        FROM narrow n
        JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.refclassid = n.class
            AND d.refobjid = n.id AND d.refobjsubid = n.attnum
        JOIN pg_attrdef g ON g.oid = d.objid AND (g.adrelid, g.adnum) <> (n.id, n.attnum)
        WHERE g.adrelid IN (SELECT o.oid FROM own o) AND NOT EXISTS (
            SELECT FROM pg_inherits i WHERE g.adrelid IN (i.inhrelid, i.inhparent))
    ), parts (part, class, id, attnum, drop_it) AS (
        SELECT DISTINCT 1, d.classid, d.objid, 0, (
            SELECT format('DROP %s %s', upper(i.type), i.identity) FROM pg_identify_object(d.classid, d.objid, 0) AS i)
        FROM pg_depend d
        LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
        LEFT JOIN pg_trigger t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid
            AND NOT t.tgisinternal AND t.tgparentid = 0
        LEFT JOIN pg_policy p ON d.classid = 'pg_policy'::regclass AND p.oid = d.objid,
        LATERAL coalesce(r.ev_class, t.tgrelid, p.polrelid) AS c (relid)
        WHERE c.relid IN (SELECT o.oid FROM own o) AND c.relid NOT IN (SELECT s.id FROM readers s) AND (
            (d.refclassid, d.refobjid, d.refobjsubid) IN (TABLE narrow UNION TABLE generated)
            OR (d.refclassid, d.refobjid) IN (TABLE readers))
        UNION ALL
        SELECT 3, g.class, g.id, g.attnum, format('ALTER TABLE %s DROP COLUMN %I', g.id::regclass, a.attname)
        FROM generated g JOIN pg_attribute a ON a.attrelid = g.id AND a.attnum = g.attnum
        UNION ALL
        -- Dropped with such a column: constraints, foreign keys after others, and their indexes.
        SELECT DISTINCT CASE WHEN c.class <> 'pg_constraint'::regclass THEN 2.6 WHEN n.contype = 'f' THEN 2.7 ELSE 2.8 END,
            c.class, c.id, 0, NULL
        FROM generated g
        JOIN pg_depend d ON d.refclassid = g.class AND d.refobjid = g.id AND d.refobjsubid = g.attnum AND d.deptype = 'a'
            AND d.classid IN ('pg_class'::regclass, 'pg_constraint'::regclass, 'pg_statistic_ext'::regclass)
        LEFT JOIN pg_constraint n ON d.classid = 'pg_constraint'::regclass AND n.oid = d.objid,
        LATERAL (VALUES (d.classid, d.objid), ('pg_class'::regclass, n.conindid)) AS c (class, id)
        WHERE c.id <> 0 AND n.contype IS DISTINCT FROM 'n' AND (c.class = d.classid OR n.contype <> 'f')
    ), lines (part, object, n, statement) AS (
        SELECT s.part, CASE WHEN p.attnum > 0 THEN 'generated ' ELSE '' END || pg_describe_object(p.class, p.id, p.attnum),
            s.n, s.statement
        FROM parts p, LATERAL (
            SELECT p.part - 10, 0, p.drop_it
            UNION ALL
            SELECT 10 - p.part, c.n, c.statement FROM snowflake_internal.snowflake_convert_create(p.class, p.id, p.attnum) c
        ) AS s (part, n, statement)
        UNION ALL
        SELECT s.part, 'views and functions', v.ordinality, v.statement
        FROM (VALUES (true, -8), (false, 8)) AS s (drops, part),
        LATERAL snowflake_internal.snowflake_convert_plan_readers(keys, true, s.drops) WITH ORDINALITY AS v
    )
    SELECT CASE WHEN l.part < 0 THEN 'before' ELSE 'after' END, l.object, l.statement, NULL, NULL::boolean, NULL, NULL, NULL
    FROM lines l WHERE l.statement IS NOT NULL
    ORDER BY l.part, l.object COLLATE "C", l.n
$$;
