-- snowflake_convert() makes snowflake_nextval() the default of an existing key, snowflake_convert_tables() and
-- snowflake_convert_schema() those of a set. All three execute one plan, which rewrites each table once.

-- The statements of a conversion that passed the checks, in the order of their execution.
CREATE FUNCTION snowflake_internal.snowflake_convert_plan(
    keys snowflake_internal.snowflake_key[], keep_sequence boolean, locked oid[], new_default regprocedure
) RETURNS SETOF snowflake_internal.snowflake_step
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM snowflake_internal.snowflake_convert_plan_readers(keys, false, true);

    RETURN QUERY SELECT format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', s.relid, s.attname),
        format('ACCESS EXCLUSIVE on %s', s.relid), false, NULL,
        'drops its sequence, too; OVERRIDING USER VALUE then has no effect on the column' || CASE a.attidentity
        WHEN 'a' THEN '; an INSERT that gives a value is no longer refused: GRANT INSERT on the other columns alone'
        ELSE '' END
    FROM snowflake_internal.snowflake_convert_sequences(keys) s
    JOIN pg_attribute a ON a.attrelid = s.relid AND a.attname = s.attname
    WHERE s.is_identity
    ORDER BY array_position(locked, s.relid::oid), s.attname;

    -- One statement per table rewrites it once. It also reaches what inherits from the table.
    RETURN QUERY SELECT format('ALTER TABLE %s %s', w.relid, string_agg(
            format('ALTER COLUMN %I TYPE bigint', w.attname), ', ' ORDER BY w.attnum)),
        format('ACCESS EXCLUSIVE on %s', w.relid), true, snowflake_internal.snowflake_convert_size(w.relid), (
            WITH RECURSIVE members (relid) AS (
                SELECT w.relid::oid
                UNION
                SELECT i.inhrelid FROM members m JOIN pg_inherits i ON i.inhparent = m.relid
            )
            SELECT 'writes rows and indexes again, and checks foreign keys'
                || coalesce('; published by ' || string_agg(DISTINCT quote_ident(p.pubname), ', ')
                    || ': subscribers need the wider columns first', '')
            FROM members m
            JOIN pg_class c ON c.oid = m.relid
            JOIN pg_namespace n ON n.oid = c.relnamespace
            JOIN pg_publication_tables p ON p.schemaname = n.nspname AND p.tablename = c.relname
        )
    FROM (
        SELECT DISTINCT k.relid, k.attnum, k.attname
        FROM snowflake_internal.snowflake_convert_columns(keys) k
        JOIN pg_attribute a ON a.attrelid = k.relid AND a.attnum = k.attnum AND a.attinhcount = 0
        WHERE k.is_small
    ) AS w
    GROUP BY w.relid
    ORDER BY array_position(locked, w.relid::oid);

    -- PostgreSQL rebuilds these without their settings.
    RETURN QUERY
    WITH rebuilt AS MATERIALIZED (
        SELECT DISTINCT d.classid, d.objid
        FROM snowflake_internal.snowflake_convert_columns(keys) k
        JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid AND d.refobjsubid = k.attnum
        LEFT JOIN pg_class i ON d.classid = 'pg_class'::regclass AND i.oid = d.objid
        WHERE k.is_small AND (d.classid = 'pg_statistic_ext'::regclass OR i.relkind IN ('i', 'I') AND NOT i.relispartition)
    )
    SELECT c.statement, format('%s on %s', CASE WHEN c.statement LIKE '% DEPENDS ON EXTENSION %' THEN 'ACCESS EXCLUSIVE'
            ELSE 'SHARE UPDATE EXCLUSIVE' END, pg_describe_object(r.classid, r.objid, 0)), false, NULL,
        'the change of type resets it'
    FROM rebuilt r, LATERAL snowflake_internal.snowflake_convert_create(r.classid, r.objid, 0) c
    WHERE c.n = 1 ORDER BY r.classid <> 'pg_statistic_ext'::regclass, c.statement COLLATE "C";

    RETURN QUERY SELECT format('ANALYZE %s', string_agg(DISTINCT k.relid::text COLLATE "C", ', ')),
        'SHARE UPDATE EXCLUSIVE on these tables', false, NULL,
        'the change of type drops the statistics of a column, and autovacuum does not restore them'
    FROM snowflake_internal.snowflake_convert_columns(keys) k WHERE k.is_small HAVING count(*) > 0;

    RETURN QUERY
    WITH checks AS MATERIALIZED (
        SELECT m.key_relid, m.key_attname, string_agg(
            c.definition, ', ' ORDER BY m.relid <> m.key_relid, m.relid::text, c.conname) AS definitions
        FROM (SELECT key_relid, key_attname, relid, array_agg(attnum) AS attnums
              FROM snowflake_internal.snowflake_convert_columns(keys) GROUP BY 1, 2, 3) AS m,
        LATERAL (
            SELECT n.conname, pg_get_constraintdef(n.oid)
                || CASE WHEN m.relid = m.key_relid THEN '' ELSE ' of ' || m.relid::text END
            FROM pg_constraint n
            WHERE n.contype = 'c' AND n.conrelid = m.relid AND n.conkey && m.attnums AND n.coninhcount = 0
            UNION
            SELECT NULL, pg_describe_object(d.classid, d.objid, 0) FROM pg_depend d
            WHERE d.classid = 'pg_policy'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = m.relid
                AND d.refobjsubid = ANY (m.attnums)
        ) AS c (conname, definition)
        GROUP BY m.key_relid, m.key_attname
    )
    SELECT format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', k.relid, k.attname, new_default),
        format('ACCESS EXCLUSIVE on %s', k.relid), false, snowflake_internal.snowflake_convert_size(k.relid),
        coalesce('the highest value is ' || k.highest, 'there is no value yet')
        || coalesce('; new IDs must satisfy ' || c.definitions, '')
        || coalesce('; sequence ' || s.seqrelid || ' stays, because it belongs to ' || s.relowner::regrole, '')
    FROM unnest(keys) AS k
    LEFT JOIN checks c ON c.key_relid = k.relid AND c.key_attname = k.attname
    LEFT JOIN snowflake_internal.snowflake_convert_sequences(keys) s
        ON s.relid = k.relid AND s.attname = k.attname AND s.stays
    ORDER BY array_position(locked, k.relid::oid), k.attname;

    RETURN QUERY SELECT
        format(CASE WHEN keep_sequence THEN 'ALTER SEQUENCE %s OWNED BY NONE' ELSE 'DROP SEQUENCE %s' END, s.seqrelid),
        format('ACCESS EXCLUSIVE on %s', s.seqrelid), false, NULL,
        'lastval() and currval() no longer return the key: use RETURNING'
    FROM snowflake_internal.snowflake_convert_sequences(keys) s
    WHERE NOT s.is_identity AND NOT s.stays AND (s.is_owned OR NOT keep_sequence);

    RETURN QUERY SELECT * FROM snowflake_internal.snowflake_convert_plan_readers(keys, false, false);
END
$$;

-- The size of a table with its indexes and the tables that inherit from it.
CREATE FUNCTION snowflake_internal.snowflake_convert_size(relid regclass) RETURNS text
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE members (member) AS (
        SELECT relid::oid
        UNION
        SELECT i.inhrelid FROM members m JOIN pg_inherits i ON i.inhparent = m.member
    )
    SELECT pg_size_pretty(sum(pg_total_relation_size(member))) FROM members
$$;

-- A conversion, or its dry run. The report also names columns of the given tables that it does not change.
CREATE FUNCTION snowflake_internal.snowflake_convert_keys(
    caller text, keys snowflake_internal.snowflake_key[], dry_run boolean, keep_sequence boolean, tables oid[]
) RETURNS TABLE (
    step integer, kind text, object text, statement text, locks text, rewrites boolean, size text, note text, remedy text
)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    -- Row-level security raises an error instead of hiding rows: the highest value must be that of all rows.
    SET row_security = off
    -- Names and literals are written and parsed in one way, regardless of the session's settings.
    SET quote_all_identifiers = off
    SET standard_conforming_strings = on
    SET datestyle = 'ISO'
    SET intervalstyle = 'postgres'
    SET extra_float_digits = 3
    SET array_nulls = on
    SET transform_null_equals = off
    SET xmloption = content
    -- The queries are long and their tables small: compiling them would take seconds while the locks are held.
    SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
    new_default regprocedure;
    locked      oid[];
    new_id      bigint;
    lowest      bigint;
    obstacles   snowflake_internal.snowflake_refusal[];
    plan        snowflake_internal.snowflake_step[] := '{}';
    left_out    snowflake_internal.snowflake_row[];
    report      snowflake_internal.snowflake_row[];
BEGIN
    PERFORM snowflake_internal.snowflake_refuse(ARRAY(
        SELECT r FROM snowflake_internal.snowflake_convert_check_call(
            caller, CASE WHEN num_nulls(dry_run, keep_sequence) = 0 THEN keys END) r));
    new_default := '@extschema@.snowflake_nextval()'::regprocedure;
    locked := snowflake_internal.snowflake_convert_lock(keys, dry_run, true);
    obstacles := ARRAY(
        SELECT r FROM snowflake_internal.snowflake_convert_check_columns(keys) r
        UNION ALL
        SELECT r FROM snowflake_internal.snowflake_convert_check_plans(keys) r);
    -- The columns of the call must exist, with a type that can be read.
    PERFORM snowflake_internal.snowflake_refuse(ARRAY(
        SELECT r FROM unnest(obstacles) r WHERE r.code = ANY ('{42703,42809,42P16}')));
    left_out := ARRAY(
        SELECT r FROM snowflake_internal.snowflake_convert_left_out(
            keys, ARRAY(SELECT unnest(tables) UNION SELECT unnest(locked))) r);
    keys := ARRAY(
        SELECT k FROM unnest(keys) k
        WHERE NOT EXISTS (SELECT FROM unnest(obstacles) o WHERE o.unread = k.relid));
    obstacles := obstacles || ARRAY(
        SELECT r FROM snowflake_internal.snowflake_convert_check_keys(keys, keep_sequence, new_default) r
        UNION ALL
        SELECT r FROM snowflake_internal.snowflake_convert_check_widening(keys) r
        UNION ALL
        SELECT r FROM snowflake_internal.snowflake_convert_check_views(keys) r);
    PERFORM snowflake_internal.snowflake_refuse(ARRAY(
        SELECT o FROM unnest(obstacles) o WHERE o.code = ANY ('{42501,42P10}') ORDER BY o.code <> '42501'));
    keys := snowflake_internal.snowflake_convert_left(keys, false, locked, new_default);
    IF keys <> '{}' THEN
        -- On a server that generates no IDs, this call raises its error.
        new_id := @extschema@.snowflake_nextval();
        lowest := @extschema@.snowflake_min(clock_timestamp());
        obstacles := obstacles || ARRAY(
            SELECT r FROM snowflake_internal.snowflake_convert_check_values(keys, new_id, lowest) r
            UNION ALL
            SELECT r FROM snowflake_internal.snowflake_convert_check_expressions(keys, new_id) r);
        plan := ARRAY(SELECT p FROM snowflake_internal.snowflake_convert_plan(keys, keep_sequence, locked, new_default) p);
    END IF;
    IF NOT dry_run THEN
        PERFORM snowflake_internal.snowflake_refuse(ARRAY(SELECT o FROM unnest(obstacles) o WHERE o.code <> '01000'));
    END IF;

    -- Before the plan is executed, which changes what these look at.
    report := ARRAY(SELECT r FROM snowflake_internal.snowflake_convert_script(keys) r);
    report := ARRAY(
        SELECT (CASE o.code WHEN '01000' THEN 'check' ELSE 'obstacle' END, o.object, NULL, NULL, NULL, NULL,
            o.message || ': ' || o.detail, o.hint)::snowflake_internal.snowflake_row
        FROM unnest(obstacles) o
    ) || report || left_out || ARRAY(
        SELECT r FROM snowflake_internal.snowflake_convert_code(keys, keep_sequence) r
        UNION ALL
        SELECT r FROM snowflake_internal.snowflake_convert_back(keys, keep_sequence, report) r);
    RETURN QUERY SELECT (row_number() OVER (ORDER BY p.part, r.ordinality))::integer,
        r.kind, r.object, r.statement, r.locks, r.rewrites, r.size, r.note, r.remedy
    FROM unnest(report || ARRAY(SELECT e FROM snowflake_internal.snowflake_convert_execute(plan, locked, dry_run, keys) e))
        WITH ORDINALITY AS r,
    LATERAL array_position('{obstacle,before,statement,after,check,left out,revert}', r.kind) AS p (part)
    ORDER BY 1;
END
$$;

CREATE FUNCTION snowflake_convert(
    table_name regclass, column_name name, dry_run boolean DEFAULT true, keep_sequence boolean DEFAULT false
) RETURNS TABLE (
    step integer, kind text, object text, statement text, locks text, rewrites boolean, size text, note text, remedy text
)
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM snowflake_internal.snowflake_convert_keys(
        'snowflake_convert', ARRAY[(table_name, column_name, NULL)::snowflake_internal.snowflake_key], dry_run, keep_sequence,
        ARRAY[table_name]::oid[])
$$;

-- A table without a serial or identity key may have been named by mistake: nothing shows that its key, if it has one, may
-- hold IDs.
CREATE FUNCTION snowflake_convert_tables(
    tables regclass[], dry_run boolean DEFAULT true, keep_sequence boolean DEFAULT false
) RETURNS TABLE (
    step integer, kind text, object text, statement text, locks text, rewrites boolean, size text, note text, remedy text
)
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    keys constant snowflake_internal.snowflake_key[] := CASE
        WHEN NOT EXISTS (SELECT FROM unnest(tables) AS t WHERE t IS NULL)
        THEN snowflake_internal.snowflake_convert_find(tables) END;
BEGIN
    PERFORM snowflake_internal.snowflake_raise(
        '42P16', format('table %s has no serial or identity key', t),
        'In a set, the keys are the serial and identity columns of primary keys; of unique indexes where there is no '
        'primary key.', format('Leave it out, or convert it by the name of its key: snowflake_convert(%L, ...).', t))
    FROM unnest(tables) AS t
    WHERE keys IS NOT NULL AND NOT EXISTS (SELECT FROM unnest(keys) AS k WHERE k.relid = t);
    RETURN QUERY SELECT * FROM snowflake_internal.snowflake_convert_keys(
        'snowflake_convert_tables', keys, dry_run, keep_sequence, tables::oid[]);
END
$$;

-- Each element of `exclude` is a LIKE pattern for names of tables.
CREATE FUNCTION snowflake_convert_schema(
    schema_name regnamespace, dry_run boolean DEFAULT true, keep_sequence boolean DEFAULT false, exclude text[] DEFAULT '{}'
) RETURNS TABLE (
    step integer, kind text, object text, statement text, locks text, rewrites boolean, size text, note text, remedy text
)
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    tables constant regclass[] := snowflake_internal.snowflake_convert_relations(schema_name);
BEGIN
    PERFORM snowflake_internal.snowflake_raise(
        '22023', format('pattern "%s" of exclude must not end with a backslash', left(e.pattern, 64)),
        'As in a pattern of LIKE, a backslash stands before the character that it escapes.',
        'Remove the backslash, or write it twice if the names end with one.')
    FROM unnest(exclude) AS e (pattern) WHERE e.pattern ~ '(^|[^\\])(\\\\)*\\$';
    PERFORM snowflake_internal.snowflake_raise(
        '42P01', format('schema %s has no table like "%s"', schema_name, left(e.pattern, 64)),
        'Each element of exclude is the name of a table of the schema, or a pattern of LIKE.',
        'Correct the name, or remove it from exclude.')
    FROM unnest(exclude) AS e (pattern)
    WHERE num_nulls(schema_name, e.pattern) = 0 AND NOT EXISTS (
        SELECT FROM pg_class c WHERE c.oid = ANY (tables) AND c.relkind IN ('r', 'p') AND c.relname LIKE e.pattern);
    RETURN QUERY SELECT * FROM snowflake_internal.snowflake_convert_keys(
        'snowflake_convert_schema', CASE WHEN num_nulls(schema_name, exclude) = 0
            AND NOT EXISTS (SELECT FROM unnest(exclude) AS e (pattern) WHERE e.pattern IS NULL) THEN
            snowflake_internal.snowflake_convert_find(ARRAY(
                SELECT c.oid::regclass FROM pg_class c
                WHERE c.oid = ANY (tables) AND NOT c.relname LIKE ANY (exclude))) END,
        dry_run, keep_sequence, tables::oid[]);
END
$$;

REVOKE ALL ON FUNCTION snowflake_convert(regclass, name, boolean, boolean),
    snowflake_convert_tables(regclass[], boolean, boolean), snowflake_convert_schema(regnamespace, boolean, boolean, text[])
    FROM PUBLIC;

COMMENT ON FUNCTION snowflake_convert(regclass, name, boolean, boolean) IS
    'gives a serial, identity or plain integer key a snowflake default, or in a dry run reports what that takes';
COMMENT ON FUNCTION snowflake_convert_tables(regclass[], boolean, boolean) IS
    'gives the serial and identity keys of tables snowflake defaults, or in a dry run reports what that takes';
COMMENT ON FUNCTION snowflake_convert_schema(regnamespace, boolean, boolean, text[]) IS
    'gives the serial and identity keys of a schema snowflake defaults, or in a dry run reports what that takes';
