-- snowflake_convert() makes snowflake_nextval() the default of an existing key, snowflake_convert_tables() and
-- snowflake_convert_schema() those of a set. All three execute one plan, which rewrites each table once.

-- The statements of a conversion that passed the checks, in the order of their execution.
CREATE FUNCTION snowflake_internal.snowflake_convert_plan(
    keys snowflake_internal.snowflake_key[], keep_sequence boolean, locked oid[], new_default regprocedure, highest bigint[]
) RETURNS TABLE (statement text, locks text, rewrites boolean, size text, note text, runs_as oid)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    owner constant oid := (SELECT c.relowner FROM pg_class c WHERE c.oid = (keys[1]).relid);
BEGIN
    RETURN QUERY SELECT t.statement, t.locks, false, NULL::text, t.note, owner
    FROM snowflake_internal.snowflake_convert_plan_lock(locked) t;

    RETURN QUERY SELECT v.statement, v.locks, false, NULL::text, v.note, v.runs_as
    FROM snowflake_internal.snowflake_convert_plan_views(keys) v WHERE v.is_drop;

    RETURN QUERY SELECT format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', s.relid, s.attname),
        format('ACCESS EXCLUSIVE on %s', s.relid), false, NULL::text,
        'drops its sequence, too; OVERRIDING USER VALUE then has no effect on the column', owner
    FROM snowflake_internal.snowflake_convert_sequences(keys) s
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
        ), owner
    FROM (
        SELECT DISTINCT k.relid, k.attnum, k.attname
        FROM snowflake_internal.snowflake_convert_columns(keys) k
        JOIN pg_attribute a ON a.attrelid = k.relid AND a.attnum = k.attnum AND a.attinhcount = 0
        WHERE k.is_small
    ) AS w
    GROUP BY w.relid
    ORDER BY array_position(locked, w.relid::oid);

    -- PostgreSQL builds these again without their targets, and older minor versions with another owner.
    RETURN QUERY SELECT format('ALTER STATISTICS %I.%I %s', n.nspname, s.stxname, a.action),
        format('SHARE UPDATE EXCLUSIVE on table %s', s.stxrelid::regclass), false, NULL::text,
        'the change of type resets it',
        CASE s.stxowner WHEN owner THEN owner ELSE (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user) END
    FROM pg_statistic_ext s
    JOIN pg_namespace n ON n.oid = s.stxnamespace,
    LATERAL (VALUES
        (s.stxstattarget >= 0, format('SET STATISTICS %s', s.stxstattarget)),
        (s.stxowner <> owner, format('OWNER TO %s', s.stxowner::regrole))
    ) AS a (is_so, action)
    WHERE a.is_so AND EXISTS (
        SELECT FROM snowflake_internal.snowflake_convert_columns(keys) k
        JOIN pg_depend d ON d.classid = 'pg_statistic_ext'::regclass AND d.objid = s.oid
            AND d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid AND d.refobjsubid = k.attnum
        WHERE k.is_small)
    ORDER BY n.nspname, s.stxname, a.action;
    RETURN QUERY SELECT format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', c.oid::regclass, a.attnum,
                               a.attstattarget),
        format('SHARE UPDATE EXCLUSIVE on %s', c.oid::regclass), false, NULL::text, 'the change of type resets it', owner
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attstattarget >= 0
    WHERE c.relkind IN ('i', 'I') AND NOT c.relispartition AND EXISTS (
        SELECT FROM snowflake_internal.snowflake_convert_columns(keys) k
        JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
            AND d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid AND d.refobjsubid = k.attnum
        WHERE k.is_small)
    ORDER BY c.oid::regclass::text, a.attnum;
    RETURN QUERY SELECT format('ALTER INDEX %s DEPENDS ON EXTENSION %I', c.oid::regclass, e.extname),
        format('ACCESS EXCLUSIVE on %s', c.oid::regclass), false, NULL::text, 'the change of type resets it', owner
    FROM pg_class c
    JOIN pg_depend x ON x.classid = 'pg_class'::regclass AND x.objid = c.oid AND x.deptype = 'x'
        AND x.refclassid = 'pg_extension'::regclass
    JOIN pg_extension e ON e.oid = x.refobjid
    WHERE c.relkind IN ('i', 'I') AND NOT c.relispartition AND EXISTS (
        SELECT FROM snowflake_internal.snowflake_convert_columns(keys) k
        JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
            AND d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid AND d.refobjsubid = k.attnum
        WHERE k.is_small)
    ORDER BY c.oid::regclass::text, e.extname;

    RETURN QUERY SELECT format('ANALYZE %s', string_agg(DISTINCT k.relid::text COLLATE "C", ', ')),
        'SHARE UPDATE EXCLUSIVE on these tables', false, NULL::text,
        'the change of type drops the statistics of a column, and autovacuum does not restore them', owner
    FROM snowflake_internal.snowflake_convert_columns(keys) k WHERE k.is_small HAVING count(*) > 0;

    RETURN QUERY
    WITH checks AS MATERIALIZED (
        SELECT m.key_relid, m.key_attname, string_agg(
            pg_get_constraintdef(c.oid) || CASE WHEN m.relid = m.key_relid THEN '' ELSE ' of ' || m.relid::text END,
            ', ' ORDER BY m.relid <> m.key_relid, m.relid::text, c.conname) AS definitions
        FROM (SELECT key_relid, key_attname, relid, array_agg(attnum) AS attnums
              FROM snowflake_internal.snowflake_convert_columns(keys) GROUP BY 1, 2, 3) AS m
        JOIN pg_constraint c ON c.contype = 'c' AND c.conrelid = m.relid AND c.conkey && m.attnums AND c.coninhcount = 0
        GROUP BY m.key_relid, m.key_attname
    )
    SELECT format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', k.relid, k.attname, new_default),
        format('ACCESS EXCLUSIVE on %s', k.relid), false, snowflake_internal.snowflake_convert_size(k.relid),
        coalesce('the highest value, ' || k.value || ', is lower than every new ID', 'there is no value yet')
        || coalesce('; new IDs must satisfy ' || c.definitions, ''), owner
    FROM ROWS FROM (unnest(keys), unnest(highest)) AS k (relid, attname, value)
    LEFT JOIN checks c ON c.key_relid = k.relid AND c.key_attname = k.attname
    ORDER BY array_position(locked, k.relid::oid), k.attname;

    RETURN QUERY SELECT
        format(CASE WHEN keep_sequence THEN 'ALTER SEQUENCE %s OWNED BY NONE' ELSE 'DROP SEQUENCE %s' END, s.seqrelid),
        format('ACCESS EXCLUSIVE on %s', s.seqrelid), false, NULL::text, NULL::text, s.relowner
    FROM snowflake_internal.snowflake_convert_sequences(keys) s
    WHERE NOT s.is_identity AND (s.is_owned OR NOT keep_sequence);

    RETURN QUERY SELECT v.statement, v.locks, false, NULL::text, v.note, v.runs_as
    FROM snowflake_internal.snowflake_convert_plan_views(keys) v WHERE NOT v.is_drop;
END
$$;

-- The first statement of a plan, in the order in which the call has locked the tables.
CREATE FUNCTION snowflake_internal.snowflake_convert_plan_lock(locked oid[])
    RETURNS TABLE (statement text, locks text, note text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', string_agg(
            c.oid::regclass::text, ', ' ORDER BY array_position(locked, c.oid))),
        'ACCESS EXCLUSIVE on these tables',
        'held until the transaction ends: nobody else can read or write these tables until then'
    FROM pg_class c
    -- LOCK TABLE reaches the partitions of a table, and the tables that inherit from it.
    WHERE c.oid = ANY (locked) AND c.relkind NOT IN ('S', 'v') AND NOT EXISTS (
        SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid AND i.inhparent = ANY (locked));
END
$$;

-- The size of a table with its indexes, and with what inherits from it.
CREATE FUNCTION snowflake_internal.snowflake_convert_size(relid regclass) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        WITH RECURSIVE members (member) AS (
            SELECT relid::oid
            UNION
            SELECT i.inhrelid FROM members m JOIN pg_inherits i ON i.inhparent = m.member
        )
        SELECT pg_size_pretty(sum(pg_total_relation_size(member))) FROM members);
END
$$;

-- A conversion, or its dry run.
CREATE FUNCTION snowflake_internal.snowflake_convert_keys(
    caller text, keys snowflake_internal.snowflake_key[], dry_run boolean, keep_sequence boolean
) RETURNS TABLE (step integer, statement text, locks text, rewrites boolean, size text, note text)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    -- Row-level security raises an error instead of hiding rows: the highest value must be that of all rows.
    SET row_security = off
    -- Names and literals are written, and read, in one way, whatever the session has set.
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
    runs_as     oid;
    locked      oid[];
    highest     bigint[] := '{}';
    new_id      bigint;
    asked       snowflake_internal.snowflake_key[];
    key         snowflake_internal.snowflake_key;
    refusal     record;
    views       text[];
    calls       jsonb;
    planted     record;
BEGIN
    SELECT r.* INTO refusal FROM (
        SELECT * FROM snowflake_internal.snowflake_convert_check_call(
            caller, CASE WHEN num_nulls(dry_run, keep_sequence) = 0 THEN keys END)
    ) AS r LIMIT 1;
    IF NOT FOUND THEN
        new_default := '@extschema@.snowflake_nextval()'::regprocedure;
        locked := snowflake_internal.snowflake_convert_lock(keys, dry_run, true);
        SELECT r.* INTO refusal FROM (
            SELECT * FROM snowflake_internal.snowflake_convert_check_owners(locked)
            UNION ALL
            SELECT * FROM snowflake_internal.snowflake_convert_check_columns(keys)
            UNION ALL
            SELECT * FROM snowflake_internal.snowflake_convert_check_keys(keys, keep_sequence, new_default)
            UNION ALL
            SELECT * FROM snowflake_internal.snowflake_convert_check_rights(keys, new_default)
            UNION ALL
            SELECT * FROM snowflake_internal.snowflake_convert_check_types(keys)
            UNION ALL
            SELECT * FROM snowflake_internal.snowflake_convert_check_widening(keys)
            UNION ALL
            SELECT * FROM snowflake_internal.snowflake_convert_check_views(keys)
        ) AS r LIMIT 1;
    END IF;
    IF NOT FOUND THEN
        asked := keys;
        -- The keys that are left to convert, in the order of the locks.
        keys := ARRAY(
            SELECT (k.key_relid, k.key_attname)::snowflake_internal.snowflake_key
            FROM snowflake_internal.snowflake_convert_columns(keys) k
            LEFT JOIN pg_attrdef d ON d.oid = k.default_id
            WHERE k.is_small OR k.is_key AND pg_get_expr(d.adbin, d.adrelid) IS DISTINCT FROM new_default::text
            GROUP BY k.key_relid, k.key_attname
            ORDER BY array_position(locked, k.key_relid::oid), k.key_attname);
        IF keys = '{}' THEN
            FOREACH key IN ARRAY asked LOOP
                RAISE NOTICE 'column "%" of table % already generates snowflake IDs, skipping', key.attname, key.relid;
            END LOOP;
            RETURN;
        END IF;
        -- On a server that makes no IDs, the error of this call says why and what to do.
        new_id := @extschema@.snowflake_nextval();
        FOREACH key IN ARRAY keys LOOP
            highest := highest || snowflake_internal.snowflake_execute_as(
                (SELECT relowner FROM pg_class WHERE oid = key.relid),
                format('SELECT max(%I) FROM %s', key.attname, key.relid))::bigint;
        END LOOP;
        SELECT r.* INTO refusal
        FROM snowflake_internal.snowflake_convert_check_values(keys, highest, new_id) r LIMIT 1;
    END IF;
    IF NOT FOUND THEN
        SELECT r.* INTO refusal FROM snowflake_internal.snowflake_convert_check_expressions(keys, new_id) r LIMIT 1;
    END IF;
    IF FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = refusal.code, MESSAGE = refusal.message, DETAIL = refusal.detail, HINT = refusal.hint;
    END IF;

    views := ARRAY(SELECT v.relid FROM snowflake_internal.snowflake_convert_views(keys) v);
    calls := (SELECT jsonb_agg(c) FROM snowflake_internal.snowflake_convert_view_calls(views::regclass[]) c);
    step := 0;
    FOR statement, locks, rewrites, size, note, runs_as IN
        SELECT p.* FROM snowflake_internal.snowflake_convert_plan(keys, keep_sequence, locked, new_default, highest) p
    LOOP
        step := step + 1;
        IF NOT dry_run THEN
            PERFORM snowflake_internal.snowflake_execute_as(runs_as, statement);
        END IF;
        RETURN NEXT;
    END LOOP;

    -- With a bigint, a name finds another function or operator of its schema. Whoever reads the view executes it: it must
    -- belong to a superuser, to the view's owner, or to somebody whose functions the view has called before.
    SELECT n.view, pg_describe_object(n.classid, n.objid, 0) AS what, n.owner INTO planted
    FROM snowflake_internal.snowflake_convert_view_calls(views::regclass[]) n
    JOIN pg_roles o ON o.oid = n.owner
    JOIN pg_class c ON c.oid = n.view::regclass
    WHERE NOT dry_run AND NOT o.rolsuper AND n.owner <> c.relowner AND NOT EXISTS (
        SELECT FROM jsonb_to_recordset(calls) AS b (view text, owner oid) WHERE (b.view, b.owner) = (n.view, n.owner))
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('view %s would call %s', planted.view, planted.what),
            DETAIL = format('That belongs to %s, and the view called no function of that role for the narrower type.',
                            planted.owner::regrole),
            HINT = 'In one transaction, drop the view, convert, and create it again.';
    END IF;
END
$$;

CREATE FUNCTION snowflake_convert(
    table_name regclass, column_name name, dry_run boolean DEFAULT true, keep_sequence boolean DEFAULT false
) RETURNS TABLE (step integer, statement text, locks text, rewrites boolean, size text, note text)
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM snowflake_internal.snowflake_convert_keys(
        'snowflake_convert', ARRAY[(table_name, column_name)::snowflake_internal.snowflake_key], dry_run, keep_sequence);
END
$$;

-- A table without a serial or identity key may have been named by mistake; its key, if it has one, does not say that its
-- values may be IDs.
CREATE FUNCTION snowflake_convert_tables(
    tables regclass[], dry_run boolean DEFAULT true, keep_sequence boolean DEFAULT false
) RETURNS TABLE (step integer, statement text, locks text, rewrites boolean, size text, note text)
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    missing regclass;
BEGIN
    FOR missing IN
        SELECT t FROM unnest(tables) AS t
        WHERE t NOT IN (SELECT f.relid FROM snowflake_internal.snowflake_convert_find(tables) f) LIMIT 1
    LOOP
        RAISE EXCEPTION USING ERRCODE = 'invalid_table_definition',
            MESSAGE = format('table %s has no serial or identity key', missing),
            DETAIL = 'In a set, the keys are the serial and identity columns of primary keys; of unique indexes where there '
                'is no primary key.',
            HINT = format('Leave it out, or convert it by the name of its key: snowflake_convert(%L, ...).', missing);
    END LOOP;
    RETURN QUERY SELECT * FROM snowflake_internal.snowflake_convert_keys(
        'snowflake_convert_tables', CASE WHEN array_position(tables, NULL) IS NULL AND tables IS NOT NULL THEN ARRAY(
            SELECT (f.relid, f.attname)::snowflake_internal.snowflake_key
            FROM snowflake_internal.snowflake_convert_find(tables) f) END, dry_run, keep_sequence);
END
$$;

CREATE FUNCTION snowflake_convert_schema(
    schema_name regnamespace, dry_run boolean DEFAULT true, keep_sequence boolean DEFAULT false
) RETURNS TABLE (step integer, statement text, locks text, rewrites boolean, size text, note text)
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM snowflake_internal.snowflake_convert_keys(
        'snowflake_convert_schema', CASE WHEN schema_name IS NOT NULL THEN ARRAY(
            SELECT (f.relid, f.attname)::snowflake_internal.snowflake_key
            FROM snowflake_internal.snowflake_convert_find(
                -- The tables of other extensions are not the user's.
                ARRAY(SELECT c.oid::regclass FROM pg_class c WHERE c.relnamespace = schema_name AND NOT EXISTS (
                    SELECT FROM pg_depend d
                    WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'))) f) END,
        dry_run, keep_sequence);
END
$$;

REVOKE ALL ON FUNCTION snowflake_convert(regclass, name, boolean, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION snowflake_convert_tables(regclass[], boolean, boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION snowflake_convert_schema(regnamespace, boolean, boolean) FROM PUBLIC;

COMMENT ON FUNCTION snowflake_internal.snowflake_convert_plan(
    snowflake_internal.snowflake_key[], boolean, oid[], regprocedure, bigint[]
) IS 'internal: returns the statements of a conversion';
COMMENT ON FUNCTION snowflake_internal.snowflake_convert_plan_lock(oid[]) IS
    'internal: returns the statement that locks the tables';
COMMENT ON FUNCTION snowflake_internal.snowflake_convert_size(regclass) IS
    'internal: returns the size of a table with its indexes and children';
COMMENT ON FUNCTION snowflake_internal.snowflake_convert_keys(text, snowflake_internal.snowflake_key[], boolean, boolean) IS
    'internal: converts keys';
COMMENT ON FUNCTION snowflake_convert(regclass, name, boolean, boolean) IS
    'gives a serial, identity or plain integer key a snowflake default, or in a dry run returns the steps';
COMMENT ON FUNCTION snowflake_convert_tables(regclass[], boolean, boolean) IS
    'gives the serial and identity keys of tables snowflake defaults, or in a dry run returns the steps';
COMMENT ON FUNCTION snowflake_convert_schema(regnamespace, boolean, boolean) IS
    'gives the serial and identity keys of a schema snowflake defaults, or in a dry run returns the steps';
