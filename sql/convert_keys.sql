-- Keys, for snowflake_convert() and snowflake_revert(): the columns with their values, the sequences of these, and the
-- locks. One call changes a set of keys; a single key is a set of one.
--
-- Definitions:
--   family  the columns that hold values of a key: snowflake_convert_columns
--   stray   a sequence of an identity that its column has lost: snowflake_convert_sequences
--
-- Everything is executed as the caller, who must own what it changes, and could execute the same statements by hand. PUBLIC
-- may execute the internal functions, so that GRANT EXECUTE ON FUNCTION snowflake_convert is all that a role needs.

-- A key. Its highest value is null until snowflake_convert_left has read it.
CREATE TYPE snowflake_internal.snowflake_key AS (relid regclass, attname name, highest bigint);

-- An obstacle. A dry run returns it, and a real run raises it; with the SQLSTATE of a warning, both return it.
CREATE TYPE snowflake_internal.snowflake_refusal AS (
    object text, code text, message text, detail text, hint text,
    unread oid -- the table of a key whose values the call cannot read, so that it looks at the key no further
);

-- The role of an entry of an access control list, as GRANT names it.
CREATE FUNCTION snowflake_internal.snowflake_grantee(role oid) RETURNS text
    STABLE STRICT LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE role WHEN 0 THEN 'PUBLIC' ELSE role::regrole::text END
$$;

-- Raises the first obstacle, and says how many there are.
CREATE FUNCTION snowflake_internal.snowflake_refuse(refusals snowflake_internal.snowflake_refusal[]) RETURNS void
    STRICT LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM snowflake_internal.snowflake_raise(r.code, r.message,
        concat_ws(' ', r.detail, CASE WHEN n.all_of > 1 THEN format('This is the first of %s obstacles.', n.all_of) END),
        -- A dry run raises a lack of rights, too.
        CASE r.code WHEN '42501' THEN (
                SELECT string_agg(DISTINCT a.hint, ' ') FROM unnest(refusals) AS a WHERE a.code = r.code)
            ELSE concat_ws(' ', r.hint, CASE WHEN n.all_of > 1 THEN 'A dry run returns all.' END) END)
    FROM unnest(refusals[1:1]) AS r, cardinality(refusals) AS n (all_of);
END
$$;

-- The relations of a schema, except those of extensions.
CREATE FUNCTION snowflake_internal.snowflake_convert_relations(of_schema regnamespace) RETURNS regclass[]
    STRICT LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(
        SELECT c.oid::regclass FROM pg_class c
        WHERE c.relnamespace = of_schema AND NOT EXISTS (
            SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'))
$$;

-- The serial, identity and snowflake columns in the primary key of each table, or in unique indexes if it has none.
CREATE FUNCTION snowflake_internal.snowflake_convert_find(tables regclass[]) RETURNS snowflake_internal.snowflake_key[]
    STRICT LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY(
        SELECT DISTINCT (c.oid::regclass, a.attname, NULL)::snowflake_internal.snowflake_key
        FROM pg_class c
        JOIN pg_index i ON i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
            AND (i.indisprimary OR NOT EXISTS (SELECT FROM pg_index p WHERE p.indrelid = c.oid AND p.indisprimary))
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
            AND a.attinhcount = 0 AND a.attgenerated = ''
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.oid = ANY (tables) AND c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND (
            a.attidentity <> '' OR pg_get_expr(d.adbin, d.adrelid) = '@extschema@.snowflake_nextval()' OR EXISTS (
                SELECT FROM pg_depend s JOIN pg_class q ON q.oid = s.refobjid AND q.relkind = 'S'
                WHERE s.classid = 'pg_attrdef'::regclass AND s.objid = d.oid AND s.refclassid = 'pg_class'::regclass))
        ORDER BY 1)
$$;

-- The families of the keys: all columns that hold their values. These are the key, the columns that inherit it, those
-- that reference one of these, and those that share an inheritance with a referencing column. A column that references
-- two keys is in both families.
CREATE FUNCTION snowflake_internal.snowflake_convert_columns(keys snowflake_internal.snowflake_key[])
    RETURNS TABLE (
        key_relid regclass, key_attname name, -- the key of the family
        relid regclass, attnum smallint, attname name, type regtype, default_id oid,
        is_key       boolean, -- the key or a column that inherits it, not one that references it
        is_small     boolean, -- has to become bigint; is a smallint, an integer, or a domain, which is refused
        is_identity  boolean,
        is_partition boolean, -- in the partition key of its table
        is_own       boolean  -- in a table of the key's owner
    )
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE referencing (relid, attnum, relids, attnums) AS MATERIALIZED (
        SELECT f.confrelid, pair.referenced, array_agg(f.conrelid), array_agg(pair.referencing)
        FROM pg_constraint f, unnest(f.conkey, f.confkey) AS pair (referencing, referenced)
        WHERE f.contype = 'f' GROUP BY f.confrelid, pair.referenced
    ), family (key_relid, key_attname, relid, attnum, is_key) AS (
        SELECT k.relid, k.attname, a.attrelid, a.attnum, true
        FROM unnest(keys) AS k
        JOIN pg_attribute a ON a.attrelid = k.relid AND a.attname = k.attname AND NOT a.attisdropped
        UNION
        SELECT m.key_relid, m.key_attname, next.*
        FROM family m JOIN pg_attribute a ON a.attrelid = m.relid AND a.attnum = m.attnum
        LEFT JOIN referencing f ON f.relid = m.relid AND f.attnum = m.attnum,
        LATERAL (
            SELECT o.attrelid, o.attnum, m.is_key
            FROM (
                SELECT i.inhrelid FROM pg_inherits i WHERE i.inhparent = m.relid
                UNION ALL
                SELECT i.inhparent FROM pg_inherits i WHERE i.inhrelid = m.relid
            ) AS r (relid),
            -- With OFFSET, because otherwise the planner could read all columns of that name for each partition.
            LATERAL (
                SELECT * FROM pg_attribute c
                WHERE c.attrelid = r.relid AND c.attname = a.attname AND NOT c.attisdropped OFFSET 0
            ) AS o
            UNION ALL
            SELECT r.*, false FROM unnest(f.relids, f.attnums) AS r
        ) AS next
    )
    SELECT m.key_relid, m.key_attname, a.attrelid::regclass, a.attnum, a.attname, a.atttypid::regtype, d.oid, m.is_key,
        t.oid IN ('smallint'::regtype, 'integer'::regtype) OR t.typtype = 'd' AND t.typbasetype <> 'bigint'::regtype,
        a.attidentity <> '', EXISTS (
            -- A column of the partition key depends on its own table.
            SELECT FROM pg_depend p
            WHERE p.classid = 'pg_class'::regclass AND p.objid = a.attrelid AND p.objsubid = a.attnum
                AND p.refclassid = 'pg_class'::regclass AND p.refobjid = a.attrelid AND p.refobjsubid = 0),
        c.relkind IN ('r', 'p') AND c.relowner = (SELECT o.relowner FROM pg_class o WHERE o.oid = m.key_relid)
    FROM (
        SELECT key_relid, key_attname, relid, attnum, bool_or(is_key) AS is_key FROM family GROUP BY 1, 2, 3, 4
    ) AS m
    JOIN pg_class c ON c.oid = m.relid
    JOIN pg_attribute a ON a.attrelid = m.relid AND a.attnum = m.attnum
    JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_attrdef d ON d.adrelid = m.relid AND d.adnum = m.attnum
$$;

-- The sequences that the values of the keys come from: those that their columns own, and those that their defaults call.
CREATE FUNCTION snowflake_internal.snowflake_convert_sequences(keys snowflake_internal.snowflake_key[])
    RETURNS TABLE (
        seqrelid regclass, relowner oid,
        relid regclass, attname name, -- the first of these columns; of an identity, the column that has it
        is_owned    boolean, -- by the column, as a serial column owns its sequence
        is_identity boolean,
        is_stray    boolean, -- belongs to an identity that the column has lost: pgEdge's conversion leaves these
        stays       boolean, -- belongs to another role than the table: every role may name it in a default
        users       text     -- the other objects that depend on it
    )
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH own AS MATERIALIZED (
        SELECT DISTINCT k.relid, k.attnum, k.attname, k.default_id, k.is_identity
        FROM snowflake_internal.snowflake_convert_columns(keys) k WHERE k.is_key
    ), links (seqrelid, deptype, relid, attname, is_identity) AS (
        SELECT d.objid, d.deptype, k.relid, k.attname, k.is_identity
        FROM own k JOIN pg_depend d ON (d.classid, d.refclassid, d.refobjid, d.refobjsubid)
            = ('pg_class'::regclass, 'pg_class'::regclass, k.relid, k.attnum)
        UNION ALL
        SELECT d.refobjid, 'n', k.relid, k.attname, false
        FROM own k JOIN pg_depend d ON (d.classid, d.objid, d.refclassid)
            = ('pg_attrdef'::regclass, k.default_id, 'pg_class'::regclass)
    ), sequences AS (
        SELECT DISTINCT ON (c.oid) c.oid, c.relowner, l.relid, l.attname,
            bool_or(l.deptype = 'a') OVER of_one AS is_owned,
            bool_or(l.deptype = 'i' AND l.is_identity) OVER of_one AS is_identity,
            bool_or(l.deptype = 'i' AND NOT l.is_identity) OVER of_one AS is_stray
        FROM links l JOIN pg_class c ON c.oid = l.seqrelid AND c.relkind = 'S'
        WINDOW of_one AS (PARTITION BY c.oid)
        ORDER BY c.oid, l.deptype = 'i' AND l.is_identity DESC, l.relid::oid, l.attname
    )
    SELECT s.oid::regclass, s.relowner, s.relid, s.attname, s.is_owned, s.is_identity, s.is_stray,
        s.relowner <> t.relowner, (
        SELECT string_agg(DISTINCT u.what, ', ' ORDER BY u.what)
        FROM (
            -- For a view, the dependent object is its rule.
            SELECT replace(pg_describe_object(d.classid, d.objid, d.objsubid), 'rule _RETURN on ', '')
            FROM pg_depend d
            WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = s.oid AND NOT EXISTS (
                SELECT FROM own k WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = k.default_id)
            UNION ALL
            SELECT pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
            FROM pg_depend d
            WHERE d.classid = 'pg_class'::regclass AND d.objid = s.oid AND (d.deptype = 'e' OR d.deptype = 'a'
                AND d.refclassid = 'pg_class'::regclass AND d.refobjid NOT IN (SELECT k.relid FROM own k))
        ) AS u (what))
    FROM sequences s JOIN pg_class t ON t.oid = s.relid
    ORDER BY s.oid::regclass::text COLLATE "C"
$$;

-- Locks the views, tables and sequences of a call until the transaction ends, and returns those that it changes, in the
-- order of the locks. Locks the owner's other tables of the families as SELECT does, because their expressions are
-- evaluated. A dry run locks tables and sequences as SELECT and nextval() do, which blocks no reader or writer, and no
-- views.
--
-- Every call locks in one order, so that two calls do not deadlock: views before the relations that they read and parents
-- before their children, as queries do, and then by name.
CREATE FUNCTION snowflake_internal.snowflake_convert_lock(
    keys snowflake_internal.snowflake_key[], dry_run boolean, widens boolean
) RETURNS oid[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    locked  oid[] := '{}';
    changed oid[];
    touched oid[];
    hit     record;
BEGIN
    -- The families may grow during a wait for a lock, so this reads them again until all are locked.
    LOOP
        changed := ARRAY(
            SELECT w.id FROM snowflake_internal.snowflake_convert_readers(keys, false) w WHERE widens
            UNION
            SELECT unnest(ARRAY[k.relid, f.conrelid, f.confrelid])
            FROM snowflake_internal.snowflake_convert_columns(keys) k
            -- PostgreSQL rebuilds the foreign keys of a widened column, and locks the tables at both ends.
            LEFT JOIN pg_constraint f ON k.is_small AND widens AND f.contype = 'f'
                AND (f.conrelid = k.relid AND k.attnum = ANY (f.conkey)
                    OR f.confrelid = k.relid AND k.attnum = ANY (f.confkey))
            WHERE k.is_key OR k.is_small AND widens
            UNION
            -- The table of a column that does not exist, too.
            SELECT k.relid FROM unnest(keys) AS k
            UNION
            SELECT s.seqrelid FROM snowflake_internal.snowflake_convert_sequences(keys) s WHERE NOT s.stays
            EXCEPT
            SELECT NULL);
        touched := ARRAY(
            SELECT unnest(changed)
            UNION
            SELECT k.relid::oid FROM snowflake_internal.snowflake_convert_columns(keys) k WHERE k.is_own AND widens);
        PERFORM snowflake_internal.snowflake_refuse(ARRAY(
            SELECT r FROM snowflake_internal.snowflake_convert_check_owners(touched) r));
        FOR hit IN
            SELECT c.oid, c.relkind, c.relowner, c.xmin, label
            FROM pg_class c
            JOIN pg_namespace n ON n.oid = c.relnamespace
            LEFT JOIN snowflake_internal.snowflake_convert_readers(keys, false) w ON w.id = c.oid,
            LATERAL format('%I.%I', n.nspname, c.relname) AS label,
            LATERAL (
                WITH RECURSIVE ancestors (relid) AS (
                    SELECT c.oid
                    UNION
                    SELECT i.inhparent FROM ancestors a JOIN pg_inherits i ON i.inhrelid = a.relid
                )
                SELECT count(*) AS depth FROM ancestors
            ) AS a
            WHERE c.oid = ANY (touched) AND c.oid <> ALL (locked) AND c.relkind <> 'f'
            ORDER BY c.relkind = 'S', c.relkind <> 'v', w.depth DESC, a.depth, label COLLATE "C"
        LOOP
            IF hit.relkind = 'S' THEN
                PERFORM pg_sequence_last_value(hit.oid); -- LOCK TABLE takes no sequence
            ELSIF hit.relkind <> 'v' THEN
                EXECUTE format('LOCK TABLE ONLY %s IN %s MODE', hit.label, CASE
                    WHEN dry_run OR hit.oid <> ALL (changed) THEN 'ACCESS SHARE' ELSE 'ACCESS EXCLUSIVE' END);
            ELSIF NOT dry_run THEN
                -- LOCK TABLE would also lock the relations below. This changes nothing, and locks the view alone.
                EXECUTE format('ALTER VIEW %s OWNER TO %s', hit.label, hit.relowner::regrole);
                -- Error if the owner changed during the wait, because this statement would undo that.
                IF (SELECT c.xmin FROM pg_class c WHERE c.oid = hit.oid) IS DISTINCT FROM hit.xmin THEN
                    RAISE EXCEPTION USING ERRCODE = 'object_in_use',
                        MESSAGE = format('could not lock %s: it was changed', hit.label),
                        DETAIL = 'Its owner or its rights may have changed while the call waited for the lock.',
                        HINT = 'Run the call again.';
                END IF;
                -- GRANT and REVOKE lock no view, and a right that is revoked meanwhile must not come back. Only superusers
                -- can.
                IF has_table_privilege('pg_class', 'UPDATE') THEN
                    PERFORM FROM pg_class WHERE oid = hit.oid FOR UPDATE;
                    PERFORM FROM pg_attribute WHERE attrelid = hit.oid FOR UPDATE;
                END IF;
            END IF;
            -- The name may now belong to another object.
            IF to_regclass(hit.label) IS DISTINCT FROM hit.oid THEN
                RAISE EXCEPTION USING ERRCODE = 'object_in_use',
                    MESSAGE = format('could not lock %s: it was renamed or moved', hit.label),
                    DETAIL = 'The name changed while the call waited for the lock.',
                    HINT = 'Check the names and run the call again.';
            END IF;
            locked := locked || hit.oid;
        END LOOP;
        EXIT WHEN NOT FOUND;
    END LOOP;
    RETURN ARRAY(
        SELECT l.relid FROM unnest(locked) WITH ORDINALITY AS l (relid, n) WHERE l.relid = ANY (changed) ORDER BY l.n);
END
$$;

-- The keys that are still to be changed, in the order of the locks, with their highest values. If there are none, a notice
-- names each key.
CREATE FUNCTION snowflake_internal.snowflake_convert_left(
    keys snowflake_internal.snowflake_key[], goes_back boolean, locked oid[], new_default regprocedure
) RETURNS snowflake_internal.snowflake_key[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    key     snowflake_internal.snowflake_key;
    highest bigint;
    rest    snowflake_internal.snowflake_key[] := ARRAY(
        SELECT (k.key_relid, k.key_attname, NULL)::snowflake_internal.snowflake_key
        FROM snowflake_internal.snowflake_convert_columns(keys) k
        LEFT JOIN pg_attrdef d ON d.oid = k.default_id,
        LATERAL (SELECT pg_get_expr(d.adbin, d.adrelid) IS NOT DISTINCT FROM new_default::text) AS s (is_snowflake)
        WHERE CASE WHEN goes_back THEN k.is_key AND s.is_snowflake ELSE k.is_small OR k.is_key AND NOT s.is_snowflake END
        GROUP BY k.key_relid, k.key_attname
        ORDER BY array_position(locked, k.key_relid::oid), k.key_attname);
BEGIN
    FOREACH key IN ARRAY CASE rest WHEN '{}' THEN keys ELSE '{}' END LOOP
        RAISE NOTICE 'column "%" of table % % snowflake IDs, skipping', key.attname, key.relid,
            CASE WHEN goes_back THEN 'does not generate' ELSE 'already generates' END;
    END LOOP;
    FOR i IN 1..cardinality(rest) LOOP
        -- A text, whose column can have the default too, would not be compared as a number. An index of narrower numbers
        -- finds their maximum only without the cast.
        EXECUTE format(CASE WHEN goes_back THEN 'SELECT max(%I::bigint) FROM %s' ELSE 'SELECT max(%I) FROM %s' END,
                       rest[i].attname, rest[i].relid) INTO highest;
        rest[i].highest := highest;
    END LOOP;
    RETURN rest;
END
$$;

-- A statement of a plan.
CREATE TYPE snowflake_internal.snowflake_step AS (statement text, locks text, rewrites boolean, size text, note text);

-- A row of a report.
CREATE TYPE snowflake_internal.snowflake_row AS (
    kind text, object text, statement text, locks text, rewrites boolean, size text, note text, remedy text
);

-- Executes a plan, unless it is a dry run, and returns it, after the statement that locks the tables in the order in which
-- the call has locked them. If it widens keys, with about as many locks as it takes: PostgreSQL locks the objects that it
-- drops, which are four triggers of each foreign key that it rebuilds, for each of its ends.
CREATE FUNCTION snowflake_internal.snowflake_convert_execute(
    plan snowflake_internal.snowflake_step[], locked oid[], dry_run boolean, widened snowflake_internal.snowflake_key[]
) RETURNS SETOF snowflake_internal.snowflake_row
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    all_locks  constant bigint := current_setting('max_locks_per_transaction')::bigint
        * (current_setting('max_connections')::integer + current_setting('max_prepared_transactions')::integer);
    lock_count constant bigint := (
        WITH wide AS MATERIALIZED (
            SELECT DISTINCT k.relid, k.attnum FROM snowflake_internal.snowflake_convert_columns(widened) k WHERE k.is_small
        )
        SELECT cardinality(locked) + 5 * cardinality(widened) + (SELECT 9 * count(DISTINCT w.relid) FROM wide w)
            + (SELECT 3 * count(*) FROM pg_index i WHERE i.indrelid IN (SELECT w.relid FROM wide w))
            + (SELECT 5 * count(*) FROM wide w JOIN pg_constraint f ON f.contype = 'f'
               AND (f.conrelid = w.relid AND w.attnum = ANY (f.conkey)
                   OR f.confrelid = w.relid AND w.attnum = ANY (f.confkey))));
    lock       constant snowflake_internal.snowflake_step := (
        SELECT (format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', string_agg(
                c.oid::regclass::text, ', ' ORDER BY array_position(locked, c.oid))),
            'ACCESS EXCLUSIVE on these tables', false, NULL,
            'held until the transaction ends: nobody else can read or write these tables until then'
            || coalesce('; takes about ' || lock_count || ' locks, and max_locks_per_transaction allows all sessions '
                            || all_locks, ''))::snowflake_internal.snowflake_step
        FROM pg_class c
        -- LOCK TABLE reaches the partitions of a table, and the tables that inherit from it.
        WHERE c.oid = ANY (locked) AND c.relkind NOT IN ('S', 'v') AND NOT EXISTS (
            SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid AND i.inhparent = ANY (locked)));
    step       snowflake_internal.snowflake_step;
BEGIN
    FOREACH step IN ARRAY CASE plan WHEN '{}' THEN plan ELSE lock || plan END LOOP
        IF NOT dry_run THEN
            EXECUTE step.statement;
        END IF;
        RETURN NEXT ('statement', NULL, step.statement, step.locks, step.rewrites, step.size, step.note,
            CASE WHEN step = lock AND lock_count > all_locks / 2
                THEN 'Convert fewer tables at a time, or raise max_locks_per_transaction and restart the server.' END
        )::snowflake_internal.snowflake_row;
    END LOOP;
END
$$;

COMMENT ON TYPE snowflake_internal.snowflake_key IS 'internal: a key of a conversion';
COMMENT ON TYPE snowflake_internal.snowflake_refusal IS 'internal: a reason to refuse a call';
COMMENT ON TYPE snowflake_internal.snowflake_step IS 'internal: a statement of a plan';
COMMENT ON TYPE snowflake_internal.snowflake_row IS 'internal: a row of a report';
