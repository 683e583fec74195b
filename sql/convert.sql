-- snowflake_convert() and snowflake_convert_schema() return a script that gives existing keys snowflake IDs from now on, and
-- one that brings the old keys back. Each script is comments and one DO, which is atomic in every tool.

-- The statements that a script executes, in this order, after it has locked the tables; in part 0, other facts that must not
-- have changed since.
-- The way back has the old types, defaults and identities as they are now, so it is made before the conversion.
CREATE FUNCTION snowflake_internal.snowflake_convert_statements(keys snowflake_internal.snowflake_key[], back boolean)
    RETURNS TABLE (part integer, line bigint, statement text)
    STABLE LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    -- Names and literals are written in one way, regardless of the session's settings.
    SET quote_all_identifiers = off
    SET datestyle = 'ISO'
    SET timezone = 'UTC'
    SET bytea_output = hex
    SET intervalstyle = 'postgres'
    SET extra_float_digits = 3
    -- The queries are long and their tables small: compiling them would take seconds while the locks are held.
    SET jit = off
AS $$
    WITH family AS MATERIALIZED (
        SELECT k.*, a.attidentity, pg_get_expr(d.adbin, d.adrelid) AS expression
        FROM snowflake_internal.snowflake_convert_columns(keys) k
        JOIN pg_attribute a ON a.attrelid = k.relid AND a.attnum = k.attnum
        LEFT JOIN pg_attrdef d ON d.oid = k.default_id AND k.is_own
    ), small AS MATERIALIZED (
        SELECT DISTINCT f.relid, f.attnum, f.attname, f.type, f.is_local FROM family f WHERE f.is_small
    ), dependents AS MATERIALIZED (
        SELECT r.class, r.id, r.part, r.statement, row_number() OVER (
            ORDER BY r.part, r.depth, r.name COLLATE "C", r.n, r.statement COLLATE "C") AS line
        FROM snowflake_internal.snowflake_convert_dependents(keys, back) r
    ), sequences AS MATERIALIZED (
        SELECT f.relid, f.attname, f.attidentity, q.seqrelid::regclass AS seq, q.*, q.seqincrement > 0 AS ascends, CASE
            WHEN has_sequence_privilege(q.seqrelid, 'USAGE') OR has_sequence_privilege(q.seqrelid, 'SELECT')
            THEN pg_sequence_last_value(q.seqrelid) END AS last_value
        FROM family f
        JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = f.relid
            AND d.refobjsubid = f.attnum
        JOIN pg_sequence q ON q.seqrelid = d.objid
        WHERE f.is_key AND f.is_own AND d.deptype = CASE f.attidentity WHEN '' THEN 'a' ELSE 'i' END
    ), lines (part, key, statement) AS (
        SELECT 0, '', concat_ws(' ', f.relid, f.attname, f.type, f.attidentity, f.expression)
        FROM family f
        UNION ALL
        SELECT 1, to_char(r.line, '0000000000'), r.statement FROM dependents r WHERE r.part < 0
        UNION ALL
        -- It also drops the sequence.
        SELECT 2, f.relid::text, format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', f.relid, f.attname)
        FROM family f WHERE f.is_key AND f.attidentity <> '' AND NOT back AND f.is_local
        UNION ALL
        -- One statement rewrites a table once, and what inherits from it.
        SELECT 3, w.relid::text, format('ALTER TABLE %s %s', w.relid, string_agg(format('ALTER COLUMN %I TYPE %s', w.attname,
            CASE WHEN back THEN w.type ELSE 'bigint'::regtype END), ', ' ORDER BY w.attnum))
        FROM small w WHERE w.is_local GROUP BY w.relid
        UNION ALL
        -- PostgreSQL rebuilds these without their settings.
        SELECT 4, '', c.statement
        FROM (SELECT DISTINCT d.classid, d.objid FROM small w
              JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = w.relid AND d.refobjsubid = w.attnum
              LEFT JOIN pg_class i ON d.classid = 'pg_class'::regclass AND i.oid = d.objid
              WHERE d.classid = 'pg_statistic_ext'::regclass OR i.relkind IN ('i', 'I') AND NOT i.relispartition) AS r,
        LATERAL snowflake_internal.snowflake_convert_create(r.classid, r.objid, 0) c
        WHERE c.n = 1 AND NOT EXISTS (SELECT FROM dependents d WHERE (d.class, d.id) = (r.classid, r.objid))
        UNION ALL
        SELECT 5, to_char(r.line, '0000000000'), r.statement FROM dependents r WHERE r.part > 0
        UNION ALL
        -- Children of a table with a key have its default, too; on the way back, each its own again.
        SELECT 7, (f.relid <> f.key_relid)::text || f.relid, format('ALTER TABLE %s%s ALTER COLUMN %I %s',
            CASE WHEN f.relid = f.key_relid THEN '' ELSE 'ONLY ' END, f.relid, f.attname,
            CASE WHEN NOT back THEN format('SET DEFAULT %s', snowflake_internal.snowflake_convert_default())
                 ELSE coalesce('SET DEFAULT ' || f.expression, 'DROP DEFAULT') END)
        FROM family f WHERE f.is_key AND (f.relid = f.key_relid OR back)
        UNION ALL
        SELECT 8, s.seq::text, CASE WHEN s.attidentity = '' THEN format('ALTER SEQUENCE %s OWNED BY %s', s.seq,
                CASE WHEN back THEN format('%s.%I', s.relid, s.attname) ELSE 'NONE' END)
            ELSE format('ALTER TABLE %s ALTER COLUMN %I ADD GENERATED %s AS IDENTITY (%s)', s.relid, s.attname,
                CASE s.attidentity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END, concat_ws(' ', 'SEQUENCE NAME', s.seq,
                'INCREMENT BY', s.seqincrement,
                -- The bounds of the type are left out: it is bigint if a value exceeds the old type.
                'MINVALUE ' || nullif(s.seqmin, b.lowest), 'MAXVALUE ' || nullif(s.seqmax, b.highest),
                'START WITH', s.seqstart, 'CACHE', s.seqcache, CASE WHEN s.seqcycle THEN 'CYCLE' END)) END
        FROM sequences s JOIN (VALUES
            ('smallint'::regtype, -32768::bigint, 32767::bigint), ('integer', -2147483648, 2147483647),
            ('bigint', -9223372036854775808, 9223372036854775807)) AS b (type, lowest, highest) ON b.type = s.seqtypid
        WHERE s.attidentity = '' OR back
        UNION ALL
        SELECT 9, s.seq::text || ' ' || c.n, c.statement
        FROM sequences s, LATERAL snowflake_internal.snowflake_convert_create('pg_class'::regclass, s.seqrelid, 0) c
        WHERE s.attidentity <> '' AND back AND c.n > 0
        UNION ALL
        -- A sequence that stays goes on where it was. That of an identity is a new one: beyond all keys that are no IDs.
        SELECT 9, s.seq::text, format('PERFORM setval(%L, least(greatest(v.last, %s), %s)) FROM (SELECT %s(%s, %s(%I)) AS last '
            'FROM %s WHERE %7$I < %9$s) AS v WHERE v.last %s %s', s.seq, s.seqmin, s.seqmax,
            CASE WHEN s.ascends THEN 'greatest' ELSE 'least' END, coalesce(s.last_value::text, 'NULL'),
            CASE WHEN s.ascends THEN 'max' ELSE 'min' END, s.attname, s.relid, snowflake_internal.snowflake_convert_now(),
            CASE WHEN s.ascends THEN '>=' ELSE '<=' END, coalesce(s.last_value, s.seqstart))
        FROM sequences s WHERE s.attidentity <> '' AND back
        UNION ALL
        -- The change of a type drops the statistics of the column, and autovacuum does not restore them.
        SELECT 6, '', format('ANALYZE %s', string_agg(DISTINCT a.relid::text COLLATE "C", ', '))
        FROM (SELECT w.relid FROM small w UNION SELECT d.id::regclass FROM dependents d JOIN pg_class c ON c.oid = d.id AND c.relkind = 'm')
            AS a (relid) HAVING count(*) > 0
    )
    SELECT l.part, row_number() OVER (ORDER BY l.part, l.key COLLATE "C", l.statement COLLATE "C"), l.statement
    FROM lines l ORDER BY 1, 2
$$;

CREATE FUNCTION snowflake_internal.snowflake_convert_hash(keys snowflake_internal.snowflake_key[]) RETURNS text
    STABLE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT md5(string_agg(s.statement, E'\n' ORDER BY s.line))
    FROM snowflake_internal.snowflake_convert_statements(keys, false) s
$$;

-- A script calls it once it has locked the tables: what it was made from may have changed since, or have become an obstacle.
CREATE FUNCTION snowflake_internal.snowflake_convert_check(tables regclass[], columns name[], hash text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    keys constant snowflake_internal.snowflake_key[] := ARRAY(
        SELECT (k.relid, k.attname)::snowflake_internal.snowflake_key FROM unnest(tables, columns) AS k (relid, attname));
    highest bigint;
BEGIN
    PERFORM snowflake_internal.snowflake_raise('25001', 'the script must run in a READ COMMITTED transaction',
        format('This transaction is %s and may not see the newest rows.', upper(current_setting('transaction_isolation'))),
        'Start the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.')
    WHERE current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted');
    PERFORM snowflake_internal.snowflake_raise('55006', 'the tables changed since the script was made',
        'The columns, defaults or dependent objects of the tables are no longer those that the script was made for.',
        'Make the script again.')
    WHERE hash IS DISTINCT FROM snowflake_internal.snowflake_convert_hash(keys)
        OR EXISTS (SELECT FROM snowflake_internal.snowflake_convert_obstacles(keys));
    FOR i IN 1..cardinality(tables) LOOP
        EXECUTE format('SELECT max(%I) FROM %s', columns[i], tables[i]) INTO highest;
        PERFORM snowflake_internal.snowflake_raise(
            '55000', format('column "%s" of table %s has values that are not lower than new IDs', columns[i], tables[i]),
            format('The highest value is %s.', highest),
            'If the values are IDs of another system, give this server its layout, tick and epoch and restart it, or choose '
            'an earlier epoch. If they are IDs of this layout from a clock that was ahead, wait until that time has passed.')
        WHERE highest >= snowflake_internal.snowflake_convert_lowest();
    END LOOP;
END
$$;

CREATE FUNCTION snowflake_internal.snowflake_convert_script(
    keys snowflake_internal.snowflake_key[], tables regclass[], back boolean
) RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off SET jit = off AS $$
#variable_conflict use_variable
DECLARE
    obstacles constant text[] := ARRAY(SELECT o FROM snowflake_internal.snowflake_convert_obstacles(keys) o WHERE NOT back);
    locked    constant text := (
        -- LOCK TABLE also locks what inherits from a table.
        SELECT string_agg(l::text, ', ' ORDER BY l::text COLLATE "C") FROM snowflake_internal.snowflake_convert_locked(keys) l
        WHERE NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = l));
    fits      constant text := (
        SELECT string_agg(format('NOT EXISTS (SELECT FROM %s WHERE %I NOT BETWEEN %s)', k.relid, k.attname, CASE k.type
            WHEN 'smallint'::regtype THEN '-32768 AND 32767' ELSE '-2147483648 AND 2147483647' END), E'\n        AND '
            ORDER BY k.relid::text COLLATE "C", k.attname)
        FROM (SELECT DISTINCT c.relid, c.attname, c.type FROM snowflake_internal.snowflake_convert_columns(keys) c
              WHERE back AND c.is_small AND c.is_local) AS k);
BEGIN
    RETURN (
        WITH lines AS MATERIALIZED (
            -- PL/pgSQL splits the body by the caller's standard_conforming_strings: no backslash may be in a plain literal.
            SELECT s.part, s.line, CASE WHEN s.statement ~ '^CREATE OR REPLACE |^(?!PERFORM).*\\'
                THEN concat('EXECUTE ', q.quote, s.statement, q.quote) ELSE s.statement END || ';' AS text
            FROM snowflake_internal.snowflake_convert_statements(keys, back) s,
            -- A dollar quote that the text does not have.
            LATERAL (SELECT CASE strpos(s.statement, '$snowflake$') WHEN 0 THEN '$snowflake$'
                     ELSE concat('$snowflake_', md5(s.statement), '$') END) AS q (quote) WHERE s.part > 0
        ), notes AS MATERIALIZED (
            SELECT n.* FROM snowflake_internal.snowflake_convert_notes(keys, tables) WITH ORDINALITY AS n (warns, note, n)
            WHERE NOT back
        ), comments (n, line, text) AS (
            SELECT 1, 0, CASE WHEN back THEN 'old keys again: ' ELSE 'snowflake IDs from now on: ' END
                || string_agg(format('%s.%I', k.relid, k.attname), ', ' ORDER BY k.n)
            FROM unnest(keys) WITH ORDINALITY AS k (relid, attname, n)
            UNION ALL
            SELECT 2, 0, 'locks until the transaction ends, also against readers: ' || locked
            UNION ALL
            SELECT 3, 0, 'rewrites: ' || string_agg(format('%s (%s)', r.relid, (
                SELECT pg_size_pretty(sum(pg_total_relation_size(m.id)))
                FROM (SELECT r.relid UNION SELECT t.relid FROM pg_partition_tree(r.relid) t) AS m (id))),
                ', ' ORDER BY r.relid::text COLLATE "C")
            FROM (SELECT DISTINCT k.relid FROM snowflake_internal.snowflake_convert_columns(keys) k
                  WHERE k.is_small AND k.is_local AND k.is_own) AS r
            UNION ALL
            SELECT 4, o.n, 'OBSTACLE: ' || o.obstacle FROM unnest(obstacles) WITH ORDINALITY AS o (obstacle, n)
            UNION ALL
            SELECT 5, n.n, 'LOOK AT: ' || n.note FROM notes n
        ), blocks (n, text) AS (
            SELECT 1, format($block$#variable_conflict use_column
DECLARE
    setting_names  constant pg_catalog.text[] := '{search_path, role, row_security, check_function_bodies,
        standard_conforming_strings, transform_null_equals, array_nulls, intervalstyle, xmloption, default_tablespace, lock_timeout}';
    setting_values constant pg_catalog.text[] := ARRAY(
        SELECT pg_catalog.current_setting(n) FROM pg_catalog.unnest(setting_names) AS n);
BEGIN
    SET LOCAL search_path = pg_catalog, pg_temp;
    SET LOCAL ROLE %s;
    SET LOCAL row_security = off;
    SET LOCAL check_function_bodies = off;
    SET LOCAL standard_conforming_strings = on;
    SET LOCAL transform_null_equals = off;
    SET LOCAL array_nulls = on;
    SET LOCAL intervalstyle = 'postgres';
    SET LOCAL xmloption = content;
    SET LOCAL default_tablespace = '';$block$, c.relowner::regrole) FROM pg_class c WHERE c.oid = keys[1].relid
            UNION ALL
            SELECT 2, format(E'    RAISE EXCEPTION USING ERRCODE = ''55000'', MESSAGE = %L,\n        DETAIL = %L,\n        HINT = %L;',
                'cannot convert the keys because of obstacles', format('In the way: %s.', array_to_string(obstacles, '; ')),
                'Remove the obstacles, and make the script again.')
            WHERE obstacles <> '{}'
            UNION ALL
            SELECT 3, format(E'    PERFORM set_config(''lock_timeout'', ''5s'', true) WHERE current_setting(''lock_timeout'') = ''0'';\n'
                             '    LOCK TABLE %s IN ACCESS EXCLUSIVE MODE;', locked)
            UNION ALL
            SELECT 4, format('    PERFORM snowflake_internal.snowflake_convert_check(%L, %L, %L);', array_agg(k.relid::text ORDER BY k.n),
                array_agg(k.attname ORDER BY k.n), snowflake_internal.snowflake_convert_hash(keys))
            FROM unnest(keys) WITH ORDINALITY AS k (relid, attname, n) HAVING NOT back
            UNION ALL
            SELECT 5, E'    -- Only while no value exceeds the old types.\n    IF ' || fits || ' THEN'
            UNION ALL
            SELECT 6, string_agg(CASE WHEN fits IS NULL THEN '    ' ELSE '        ' END || l.text, E'\n' ORDER BY l.line)
            FROM lines l WHERE l.part <= 6
            UNION ALL
            SELECT 7, '    END IF;' WHERE fits IS NOT NULL
            UNION ALL
            SELECT 8, string_agg('    ' || l.text, E'\n' ORDER BY l.line) FROM lines l WHERE l.part > 6
            UNION ALL
            SELECT 9, string_agg(format('    RAISE WARNING USING MESSAGE = %L;', n.note), E'\n' ORDER BY n.n) FROM notes n WHERE n.warns
            UNION ALL
            SELECT 10, E'    PERFORM set_config(s.name, s.value, true) FROM unnest(setting_names, setting_values) AS s (name, value);\nEND'
        )
        SELECT concat(
            (SELECT string_agg('-- ' || regexp_replace(c.text, '[\n\r]+', ' ', 'g') || E'\n', '' ORDER BY c.n, c.line)
             FROM comments c WHERE c.text IS NOT NULL),
            'DO ', q.quote, d.body, q.quote, E';\n')
        FROM (SELECT E'\n' || string_agg(b.text, E'\n' ORDER BY b.n) || E'\n' FROM blocks b) AS d (body),
        LATERAL (SELECT CASE strpos(d.body, '$snowflake$') WHEN 0 THEN '$snowflake$'
                 ELSE concat('$snowflake_', md5(d.body), '$') END) AS q (quote));
END
$$;

CREATE FUNCTION snowflake_convert(VARIADIC tables regclass[]) RETURNS TABLE (script text, back text)
    STABLE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET standard_conforming_strings = on AS $$
DECLARE
    keys constant snowflake_internal.snowflake_key[] := snowflake_internal.snowflake_convert_find(tables, true);
BEGIN
    PERFORM snowflake_internal.snowflake_raise('22004', 'arguments of snowflake_convert must not be null',
        'Each argument is a table.', 'Name tables that exist.')
    WHERE tables IS NULL OR array_position(tables, NULL) > 0;
    PERFORM snowflake_internal.snowflake_raise('42P16', format('table %s has no key to convert', t),
        'A key is an identity, a column whose default calls nextval(), or a plain integer that alone is the primary key.',
        format('Leave it out, or change a bigint column yourself: ALTER TABLE %s ALTER COLUMN ... SET DEFAULT %s.', t,
               snowflake_internal.snowflake_convert_default()))
    FROM unnest(tables) AS t WHERE NOT EXISTS (SELECT FROM unnest(keys) AS k WHERE k.relid = t);
    RETURN QUERY SELECT snowflake_internal.snowflake_convert_script(keys, tables, false),
        snowflake_internal.snowflake_convert_script(keys, tables, true) WHERE keys <> '{}';
END
$$;

-- Each element of `exclude` is a LIKE pattern for names of tables.
CREATE FUNCTION snowflake_convert_schema(schema regnamespace, exclude text[] DEFAULT '{}') RETURNS TABLE (script text, back text)
    STABLE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    SET standard_conforming_strings = on AS $$
#variable_conflict use_variable
DECLARE
    tables regclass[] := ARRAY(
        SELECT c.oid::regclass FROM pg_class c
        WHERE c.relnamespace = schema AND c.relkind IN ('r', 'p') AND NOT EXISTS (
            SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'));
    keys   snowflake_internal.snowflake_key[];
BEGIN
    PERFORM snowflake_internal.snowflake_raise('22004', 'arguments of snowflake_convert_schema must not be null',
        'They are a schema, and patterns of the tables that stay as they are.', 'Name a schema that exists.')
    WHERE num_nulls(schema, exclude) > 0 OR array_position(exclude, NULL) > 0;
    PERFORM snowflake_internal.snowflake_raise('42P01', format('schema %s has no table like "%s"', schema, left(e.pattern, 64)),
        'Each element of exclude is the name of a table of the schema, or a pattern of LIKE.',
        'Correct the name, or remove it from exclude.')
    FROM unnest(exclude) AS e (pattern)
    WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = ANY (tables) AND c.relname LIKE e.pattern);
    tables := ARRAY(SELECT c.oid FROM pg_class c WHERE c.oid = ANY (tables) AND NOT c.relname LIKE ANY (exclude));
    keys := snowflake_internal.snowflake_convert_find(tables, false);
    PERFORM snowflake_internal.snowflake_raise('42P16', format('schema %s has no key to convert', schema),
        'A key is an identity, or a column whose default calls nextval(), in the primary key.',
        'Name tables with other keys, as in snowflake_convert(''customers'').') WHERE keys = '{}';
    RETURN QUERY SELECT snowflake_internal.snowflake_convert_script(keys, tables, false),
        snowflake_internal.snowflake_convert_script(keys, tables, true);
END
$$;

COMMENT ON FUNCTION snowflake_convert(regclass[]) IS
    'returns a script that gives the keys of tables snowflake IDs from now on, and one that brings the old keys back';
COMMENT ON FUNCTION snowflake_convert_schema(regnamespace, text[]) IS
    'returns a script that gives the keys of a schema snowflake IDs from now on, and one that brings the old keys back';
