-- snowflake_revert() replaces a key's snowflake default by a sequence or an identity; snowflake_revert_tables() and
-- snowflake_revert_schema() do so for a set. IDs and their references stay.

-- The keys of tables that have a snowflake default; for an inherited column, the column of the topmost parent.
CREATE FUNCTION snowflake_internal.snowflake_revert_find(tables regclass[]) RETURNS snowflake_internal.snowflake_key[]
    STRICT LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(
        WITH RECURSIVE up (relid, attname, attnum) AS (
            SELECT a.attrelid, a.attname, a.attnum
            FROM pg_attrdef d
            JOIN pg_class c ON c.oid = d.adrelid AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
            JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum AND a.attgenerated = ''
            WHERE c.oid = ANY (tables) AND pg_get_expr(d.adbin, d.adrelid) = '@extschema@.snowflake_nextval()'
            UNION
            SELECT a.attrelid, a.attname, a.attnum
            FROM up JOIN pg_inherits i ON i.inhrelid = up.relid
            JOIN pg_attribute a ON a.attrelid = i.inhparent AND a.attname = up.attname AND NOT a.attisdropped
        )
        SELECT (up.relid, up.attname, NULL)::snowflake_internal.snowflake_key
        FROM up JOIN pg_attribute a ON a.attrelid = up.relid AND a.attnum = up.attnum AND a.attinhcount = 0
        ORDER BY 1)
$$;

-- The sequence for each key. A sequence that the column still owns, or one that snowflake_convert() has kept under
-- PostgreSQL's default name, is used again if nothing else uses it. Otherwise, if a relation has that name, a number is
-- appended to it, as by CREATE TABLE.
CREATE FUNCTION snowflake_internal.snowflake_revert_sequences(keys snowflake_internal.snowflake_key[])
    RETURNS TABLE (relid regclass, attname name, name text, is_there boolean, is_owned boolean, first bigint)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    key   record;
    taken text[] := '{}';
BEGIN
    FOR key IN
        SELECT k.relid AS table_id, k.attname AS column_name, k.highest, c.relname, c.relowner AS owner, n.nspname, (
                SELECT s.seqrelid FROM snowflake_internal.snowflake_convert_sequences(keys) s
                WHERE s.is_owned AND s.users IS NULL AND s.relid = k.relid AND s.attname = k.attname
                    AND s.relowner = c.relowner LIMIT 1
            ) AS owned
        FROM unnest(keys) AS k
        JOIN pg_class c ON c.oid = k.relid
        JOIN pg_namespace n ON n.oid = c.relnamespace
    LOOP
        relid := key.table_id;
        attname := key.column_name;
        first := greatest(key.highest, 0) + 1;
        is_owned := key.owned IS NOT NULL;
        FOR suffix IN 0..10000 LOOP
            -- PostgreSQL shortens the longer of the two names, byte by byte, and then to whole characters.
            name := coalesce(key.owned::text, (
                SELECT format('%I.%I', key.nspname, string_agg((
                    SELECT left(p.part, length(p.part) - n) FROM generate_series(0, 63) AS n
                    WHERE octet_length(left(p.part, length(p.part) - n)) <= p.room ORDER BY n LIMIT 1), '_' ORDER BY p.n))
                FROM concat('seq', nullif(suffix, 0)) AS ending, octet_length(key.relname::text) AS relname_length,
                LATERAL least(octet_length(key.column_name::text), greatest(
                    (61 - octet_length(ending)) / 2, 61 - octet_length(ending) - relname_length)) AS column_room,
                LATERAL (VALUES (1, key.relname::text, 61 - octet_length(ending) - column_room),
                    (2, key.column_name::text, column_room), (3, ending, 63)) AS p (n, part, room)));
            -- Two keys may have the same such name, and each needs a sequence of its own.
            is_there := is_owned OR suffix = 0 AND name <> ALL (taken) AND EXISTS (
                SELECT FROM pg_class c
                WHERE c.oid = to_regclass(name) AND c.relkind = 'S' AND c.relowner = key.owner AND NOT EXISTS (
                    SELECT FROM pg_depend d
                    WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
                        OR d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i', 'e')));
            EXIT WHEN is_there OR to_regclass(name) IS NULL AND name <> ALL (taken);
        END LOOP;
        IF is_there THEN
            -- Others may have had its values: it never goes back.
            first := greatest(first, (
                SELECT s.position + 1 FROM pg_sequence_last_value(name::regclass) AS s (position)
                WHERE s.position < 9223372036854775807));
        END IF;
        taken := taken || name;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Returns the obstacles.
CREATE FUNCTION snowflake_internal.snowflake_revert_check(
    keys snowflake_internal.snowflake_key[], becomes text, new_default regprocedure
) RETURNS SETOF snowflake_internal.snowflake_refusal
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT described, r.code, r.message, r.detail, r.hint, NULL::oid
    FROM unnest(keys) AS k
    JOIN pg_class c ON c.oid = k.relid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = k.relid AND a.attname = k.attname
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    -- From PostgreSQL 18 on.
    LEFT JOIN pg_constraint v ON v.contype = 'n' AND v.conrelid = k.relid AND v.conkey = ARRAY[a.attnum],
    LATERAL format('column "%s" of table %s', k.attname, k.relid) AS described,
    LATERAL (VALUES
        (NOT has_schema_privilege(n.oid, 'CREATE'), '42501', format('permission denied for schema %I', n.nspname),
            format('It gets the sequence of %s.', described),
            format('First run GRANT CREATE ON SCHEMA %I TO %I.', n.nspname, current_user)),
        (becomes <> 'bigserial' AND a.atttypid <> 'bigint'::regtype, '42804',
            format('%s is of type %s', described, a.atttypid::regtype), 'Only a bigint column can be such an identity.',
            'Revert it with becomes => ''bigserial''.'),
        (becomes <> 'bigserial' AND NOT a.attnotnull, '55000', format('%s accepts nulls', described),
            'An identity needs NOT NULL.', format('First run ALTER TABLE %s ALTER COLUMN %I SET NOT NULL, or revert it with '
                'becomes => ''bigserial''.', k.relid, k.attname)),
        (becomes <> 'bigserial' AND NOT v.convalidated, '55000',
            format('%s has a NOT NULL constraint that is not valid', described), 'Rows from before it may have nulls.',
            format('First run ALTER TABLE %s VALIDATE CONSTRAINT %s, or revert it with becomes => ''bigserial''.', k.relid,
                   quote_ident(v.conname))),
        (becomes <> 'bigserial' AND (a.attidentity <> ''
                OR pg_get_expr(d.adbin, d.adrelid) <> new_default::text), '55000',
            format('%s has a default of its own', described),
            'Only what inherits from the table has the snowflake default, and the parent would get the identity.',
            'Revert it with becomes => ''bigserial'', or drop that default or identity first.'),
        (k.highest = 9223372036854775807, '55000', format('%s has the highest value of its type', described),
            'No value is left for a sequence.', 'Remove that row first.')
    ) AS r (is_so, code, message, detail, hint) WHERE r.is_so
$$;

-- The statements that revert keys.
CREATE FUNCTION snowflake_internal.snowflake_revert_plan(
    keys snowflake_internal.snowflake_key[], becomes text, locked oid[], new_default regprocedure
) RETURNS SETOF snowflake_internal.snowflake_step
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH family AS MATERIALIZED (
        SELECT k.key_relid, k.key_attname, k.relid, s.is_snowflake,
            bool_and(s.is_snowflake) OVER (PARTITION BY k.key_relid, k.key_attname) AS are_all_snowflake
        FROM snowflake_internal.snowflake_convert_columns(keys) k LEFT JOIN pg_attrdef d ON d.oid = k.default_id,
        LATERAL (SELECT pg_get_expr(d.adbin, d.adrelid) IS NOT DISTINCT FROM new_default::text) AS s (is_snowflake)
        WHERE k.is_key
    )
    SELECT p.statement, format('ACCESS EXCLUSIVE on %s', p.object), false, p.size, p.note
    FROM snowflake_internal.snowflake_revert_sequences(keys) s,
    LATERAL (
        SELECT 1, CASE WHEN s.is_there
            THEN format('ALTER SEQUENCE %s AS bigint%s NO MINVALUE NO MAXVALUE NO CYCLE START WITH %s RESTART OWNED BY %s.%I',
                        s.name, CASE WHEN q.seqincrement < 0 THEN ' INCREMENT BY 1' ELSE '' END, s.first, s.relid, s.attname)
            ELSE format('CREATE SEQUENCE %s AS bigint START WITH %s OWNED BY %s.%I', s.name, s.first, s.relid, s.attname)
            END, s.name, NULL, 'continues above the highest value of the column'
        FROM (SELECT) AS one LEFT JOIN pg_sequence q ON s.is_there AND q.seqrelid = to_regclass(s.name)
        WHERE becomes = 'bigserial'
        UNION ALL
        -- One statement for a table and all that inherits from it, unless some of these have another default.
        SELECT 2, format('ALTER TABLE %s%s ALTER COLUMN %I %s', CASE WHEN t.are_all_snowflake THEN '' ELSE 'ONLY ' END,
                t.relid, s.attname, CASE becomes
                WHEN 'bigserial' THEN format('SET DEFAULT nextval(%L::regclass)', s.name) ELSE 'DROP DEFAULT' END),
            t.relid::text, snowflake_internal.snowflake_convert_size(t.relid), (
                SELECT 'a partition key has the column: the partition of the last ID gets all further rows'
                FROM snowflake_internal.snowflake_convert_columns(keys) k
                JOIN pg_partitioned_table p ON p.partrelid = k.relid AND p.partstrat <> 'h'
                WHERE k.is_key AND k.is_partition AND k.key_relid = s.relid AND k.key_attname = s.attname LIMIT 1)
        FROM family t WHERE t.key_relid = s.relid AND t.key_attname = s.attname AND t.is_snowflake
            AND (t.relid = s.relid OR NOT t.are_all_snowflake)
        UNION ALL
        SELECT 3, format('ALTER TABLE %s ALTER COLUMN %I ADD GENERATED %s AS IDENTITY (START WITH %s)', s.relid, s.attname,
                         CASE becomes WHEN 'identity always' THEN 'ALWAYS' ELSE 'BY DEFAULT' END, s.first),
            s.relid::text, NULL, 'continues above the highest value of the column'
            || CASE WHEN EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = s.relid)
               THEN '; before PostgreSQL 17, an INSERT into a child of the table itself must have a value' ELSE '' END
        WHERE becomes <> 'bigserial'
        UNION ALL
        SELECT 4, format('DROP SEQUENCE %s', s.name), s.name, NULL, 'the identity has a sequence of its own'
        WHERE becomes <> 'bigserial' AND s.is_owned
        UNION ALL
        -- nextval() is called with the rights of the inserting role.
        SELECT 5, format('GRANT USAGE ON SEQUENCE %s TO %s', s.name, string_agg(DISTINCT i.label, ', ')), s.name, NULL,
            'these roles may insert rows'
        FROM family f, snowflake_internal.snowflake_convert_inserters(f.relid) i
        WHERE becomes = 'bigserial' AND f.key_relid = s.relid AND f.key_attname = s.attname AND i.role <> (
            SELECT c.relowner FROM pg_class c WHERE c.oid = s.relid)
        HAVING count(*) > 0
    ) AS p (n, statement, object, size, note)
    ORDER BY array_position(locked, s.relid::oid), s.attname, p.n, p.statement COLLATE "C"
$$;

CREATE FUNCTION snowflake_internal.snowflake_revert_keys(
    caller text, keys snowflake_internal.snowflake_key[], dry_run boolean, becomes text
) RETURNS TABLE (step integer, statement text, locks text, size text, note text)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET row_security = off
    SET quote_all_identifiers = off
    SET standard_conforming_strings = on
    SET jit = off
AS $$
DECLARE
    new_default regprocedure;
    locked      oid[];
BEGIN
    PERFORM snowflake_internal.snowflake_refuse(ARRAY(
        SELECT r FROM snowflake_internal.snowflake_convert_check_call(
            caller, CASE WHEN num_nulls(dry_run, becomes) = 0 THEN keys END) r));
    PERFORM snowflake_internal.snowflake_raise(
        '22023', format('becomes must not be "%s"', left(becomes, 64)), 'It says which kind of key a column becomes.',
        'Use ''bigserial'', ''identity by default'' or ''identity always''.')
    WHERE becomes NOT IN ('bigserial', 'identity by default', 'identity always');
    new_default := '@extschema@.snowflake_nextval()'::regprocedure;
    locked := snowflake_internal.snowflake_convert_lock(keys, dry_run, false);
    -- A column of any type can have the default.
    PERFORM snowflake_internal.snowflake_refuse(ARRAY(
        SELECT r FROM snowflake_internal.snowflake_convert_check_columns(keys) r WHERE r.code <> '42804'
        UNION ALL
        SELECT r FROM snowflake_internal.snowflake_convert_check_plans(keys) r WHERE r.unread IS NOT NULL));
    keys := snowflake_internal.snowflake_convert_left(keys, true, locked, new_default);
    IF keys = '{}' THEN
        RETURN;
    END IF;
    PERFORM snowflake_internal.snowflake_refuse(ARRAY(
        SELECT r FROM snowflake_internal.snowflake_revert_check(keys, becomes, new_default) r));
    RETURN QUERY SELECT e.ordinality::integer, e.statement, e.locks, e.size, e.note
    FROM snowflake_internal.snowflake_convert_execute(ARRAY(
        SELECT p FROM snowflake_internal.snowflake_revert_plan(keys, becomes, locked, new_default) p), locked, dry_run, NULL)
        WITH ORDINALITY AS e;
END
$$;

CREATE FUNCTION snowflake_revert(
    table_name regclass, column_name name, dry_run boolean DEFAULT true, becomes text DEFAULT 'bigserial'
) RETURNS TABLE (step integer, statement text, locks text, size text, note text)
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM snowflake_internal.snowflake_revert_keys(
        'snowflake_revert', ARRAY[(table_name, column_name, NULL)::snowflake_internal.snowflake_key], dry_run, becomes)
$$;

CREATE FUNCTION snowflake_revert_tables(
    tables regclass[], dry_run boolean DEFAULT true, becomes text DEFAULT 'bigserial'
) RETURNS TABLE (step integer, statement text, locks text, size text, note text)
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM snowflake_internal.snowflake_revert_keys(
        'snowflake_revert_tables', CASE WHEN NOT EXISTS (SELECT FROM unnest(tables) AS t WHERE t IS NULL)
            THEN snowflake_internal.snowflake_revert_find(tables) END, dry_run, becomes)
$$;

CREATE FUNCTION snowflake_revert_schema(
    schema_name regnamespace, dry_run boolean DEFAULT true, becomes text DEFAULT 'bigserial'
) RETURNS TABLE (step integer, statement text, locks text, size text, note text)
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT * FROM snowflake_internal.snowflake_revert_keys(
        'snowflake_revert_schema', snowflake_internal.snowflake_revert_find(
            snowflake_internal.snowflake_convert_relations(schema_name)), dry_run, becomes)
$$;

REVOKE ALL ON FUNCTION snowflake_revert(regclass, name, boolean, text),
    snowflake_revert_tables(regclass[], boolean, text), snowflake_revert_schema(regnamespace, boolean, text) FROM PUBLIC;

COMMENT ON FUNCTION snowflake_revert(regclass, name, boolean, text) IS
    'makes a snowflake key a bigserial or identity again, or in a dry run returns the steps';
COMMENT ON FUNCTION snowflake_revert_tables(regclass[], boolean, text) IS
    'makes the snowflake keys of tables bigserials or identities again, or in a dry run returns the steps';
COMMENT ON FUNCTION snowflake_revert_schema(regnamespace, boolean, text) IS
    'makes the snowflake keys of a schema bigserials or identities again, or in a dry run returns the steps';
