-- Conversion of a key to snowflake IDs. What the functions call and what they execute is found in pg_catalog or named
-- with its schema: no search_path, and no function or operator of the same name, can come between. Nothing is executed
-- against a name that is not locked and looked at. Only snowflake_convert() is there to be called.

-- The columns that hold values of the key: itself, the columns that inherit it, all that reference one of these, and
-- those that share an inheritance with one of those.
CREATE FUNCTION snowflake_convert_columns(key_table oid, key_column name)
    RETURNS TABLE (
        relid oid, attnum smallint, attname name, atttypid oid, label text,
        is_small boolean, -- to be widened
        is_key   boolean  -- the key's own, not a column that references it
    )
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE holders (relid, attnum, is_key) AS (
        SELECT a.attrelid, a.attnum, true
        FROM pg_attribute a WHERE a.attrelid = key_table AND a.attname = key_column AND NOT a.attisdropped
        UNION
        SELECT next.relid, next.attnum, next.is_key
        FROM holders h
        JOIN pg_attribute a ON a.attrelid = h.relid AND a.attnum = h.attnum,
        LATERAL (
            SELECT o.attrelid, o.attnum, h.is_key
            FROM pg_inherits i
            JOIN pg_attribute o ON o.attname = a.attname AND NOT o.attisdropped
            WHERE i.inhparent = h.relid AND o.attrelid = i.inhrelid
               OR i.inhrelid = h.relid AND o.attrelid = i.inhparent
            UNION ALL
            SELECT f.conrelid, pair.referencing, false
            FROM pg_constraint f, unnest(f.conkey, f.confkey) AS pair (referencing, referenced)
            WHERE f.contype = 'f' AND f.confrelid = h.relid AND pair.referenced = h.attnum
        ) AS next (relid, attnum, is_key)
    )
    SELECT h.relid, h.attnum, a.attname, a.atttypid, format('%I.%I', n.nspname, c.relname),
        a.atttypid IN ('smallint'::regtype, 'integer'::regtype), h.is_key
    FROM (SELECT relid, attnum, bool_or(is_key) FROM holders GROUP BY 1, 2) AS h (relid, attnum, is_key)
    JOIN pg_attribute a ON a.attrelid = h.relid AND a.attnum = h.attnum
    JOIN pg_class c ON c.oid = h.relid
    JOIN pg_namespace n ON n.oid = c.relnamespace;
END
$$;

-- The sequences that the key's values come from, and who else uses them.
CREATE FUNCTION snowflake_convert_sequences(key_table oid, key_column name)
    RETURNS TABLE (
        seqrelid oid, label text, relowner oid,
        is_owned boolean,    -- by the column, as a serial's is
        is_identity boolean, -- the column's identity's
        is_stray boolean,    -- an identity's that is none any more: pgEdge's conversion leaves these
        users text           -- what else depends on it
    )
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH keys AS MATERIALIZED (
        SELECT k.relid, k.attnum, a.attidentity
        FROM @extschema@.snowflake_convert_columns(key_table, key_column) k
        JOIN pg_attribute a ON a.attrelid = k.relid AND a.attnum = k.attnum
        WHERE k.is_key
    ), sequences AS (
        SELECT s.seqrelid, bool_or(s.deptype = 'a') AS is_owned, bool_or(s.deptype = 'i') AS is_identity,
            bool_or(s.deptype = 'i' AND s.attidentity = '') AS is_stray
        FROM (
            SELECT d.objid, d.deptype, k.attidentity
            FROM keys k
            JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid
                AND d.refobjsubid = k.attnum AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
            UNION ALL
            -- called by the default
            SELECT d.refobjid, 'n', k.attidentity
            FROM keys k
            JOIN pg_attrdef e ON e.adrelid = k.relid AND e.adnum = k.attnum
            JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid
                AND d.refclassid = 'pg_class'::regclass
        ) AS s (seqrelid, deptype, attidentity)
        WHERE EXISTS (SELECT FROM pg_sequence q WHERE q.seqrelid = s.seqrelid)
        GROUP BY 1
    )
    SELECT s.seqrelid, format('%I.%I', n.nspname, c.relname), c.relowner,
        s.is_owned, s.is_identity, s.is_stray, (
            SELECT string_agg(DISTINCT u.what, ', ' ORDER BY u.what)
            FROM (
                -- A view is known by its rule.
                SELECT replace(pg_describe_object(d.classid, d.objid, d.objsubid), 'rule _RETURN on ', '')
                FROM pg_depend d
                LEFT JOIN pg_attrdef e ON d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid
                WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = s.seqrelid
                    AND NOT EXISTS (SELECT FROM keys k WHERE k.relid = e.adrelid AND k.attnum = e.adnum)
                UNION ALL
                SELECT pg_describe_object('pg_class'::regclass, d.refobjid, d.refobjsubid)
                FROM pg_depend d
                WHERE d.classid = 'pg_class'::regclass AND d.objid = s.seqrelid AND d.deptype = 'a'
                    AND d.refclassid = 'pg_class'::regclass
                    AND NOT EXISTS (SELECT FROM keys k WHERE k.relid = d.refobjid)
            ) AS u (what)
        )
    FROM sequences s
    JOIN pg_class c ON c.oid = s.seqrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace;
END
$$;

-- Locks what the conversion concerns: a dry run as SELECT and nextval() do, which stands in nobody's way. What is read
-- afterwards stays as it is until the transaction ends.
CREATE FUNCTION snowflake_convert_lock(key_table oid, key_column name, dry_run boolean) RETURNS oid[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    locked  oid[] := '{}';
    missing oid[] := ARRAY[key_table];
    names   text[];
    tables  text;
    hit     record;
BEGIN
    -- A lock is taken by name, and so is all that is executed. The name may have come to mean something else, a view
    -- that calls what its owner likes for instance, so it is looked at once the lock is there. The lock does not hold
    -- the name of the schema; who may, locks that row.
    WHILE missing IS NOT NULL LOOP
        SELECT pg_describe_object('pg_class'::regclass, c.oid, 0) AS what, pg_get_userbyid(c.relowner) AS owner INTO hit
        FROM pg_class c WHERE c.oid = ANY (missing) AND NOT pg_has_role(c.relowner, 'USAGE')
        ORDER BY c.oid LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
                MESSAGE = format('must be owner of %s', hit.what),
                DETAIL = format('It belongs to %s, and is changed, or locked, together with the key.', hit.owner),
                HINT = 'Run it as the owner of all of these tables, or as a superuser.';
        END IF;
        IF has_table_privilege('pg_namespace', 'UPDATE') THEN
            PERFORM FROM pg_namespace
            WHERE oid IN (SELECT relnamespace FROM pg_class WHERE oid = ANY (missing)) FOR KEY SHARE;
        END IF;
        SELECT array_agg(r.oid), array_agg(r.label), string_agg(r.label, ', ONLY ') FILTER (WHERE relkind <> 'S')
        INTO missing, names, tables
        FROM (SELECT c.oid, c.relkind, format('%I.%I', n.nspname, c.relname) AS label
              FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
              WHERE c.oid = ANY (missing) ORDER BY label) AS r;
        IF tables IS NOT NULL THEN
            EXECUTE format('LOCK TABLE ONLY %s IN %s MODE', tables,
                           CASE WHEN dry_run THEN 'ACCESS SHARE' ELSE 'ACCESS EXCLUSIVE' END);
        END IF;
        -- Nothing else locks a sequence by its OID.
        PERFORM pg_sequence_last_value(c.oid) FROM pg_class c WHERE c.oid = ANY (missing) AND c.relkind = 'S';
        SELECT m.label INTO hit FROM unnest(missing, names) AS m (relid, label)
        WHERE to_regclass(m.label) IS DISTINCT FROM m.relid LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'object_in_use',
                MESSAGE = format('%s has become another table or sequence', hit.label),
                DETAIL = 'It was renamed or moved while its lock was waited for.',
                HINT = 'Check the names and run it again.';
        END IF;
        locked := locked || missing;

        SELECT array_agg(DISTINCT t.relid) INTO missing
        FROM (
            SELECT relid FROM @extschema@.snowflake_convert_columns(key_table, key_column)
            WHERE is_key OR is_small
            UNION ALL
            -- PostgreSQL rebuilds the foreign keys of a widened column, and locks the table at their other end.
            SELECT unnest(ARRAY[f.conrelid, f.confrelid])
            FROM @extschema@.snowflake_convert_columns(key_table, key_column) k
            JOIN pg_constraint f ON f.contype = 'f'
                AND (f.conrelid = k.relid AND k.attnum = ANY (f.conkey)
                    OR f.confrelid = k.relid AND k.attnum = ANY (f.confkey))
            WHERE k.is_small
            UNION ALL
            -- Somebody else's sequence is in the way, or stays as it is.
            SELECT s.seqrelid FROM @extschema@.snowflake_convert_sequences(key_table, key_column) s
            WHERE pg_has_role(s.relowner, 'USAGE')
        ) AS t (relid)
        JOIN pg_class c ON c.oid = t.relid AND c.relkind <> 'f' -- refused later, and no lock is for them
        WHERE t.relid <> ALL (locked);
    END LOOP;
    RETURN locked;
END
$$;

-- Why the key cannot be converted; the first row counts. Everything here is read from the catalogs.
CREATE FUNCTION snowflake_convert_obstacles(
    key_table oid, key_column name, keep_sequence boolean, locked oid[], new_default text
) RETURNS TABLE (code text, message text, detail text, hint text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    label     constant text := (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c
                                JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = key_table);
    described constant text := format('column "%s" of table %s', key_column, label);
    key       record;
BEGIN
    SELECT a.attnum, a.atttypid, a.attgenerated, a.attinhcount,
        a.atttypid IN ('smallint'::regtype, 'integer'::regtype) AS is_small
    INTO key FROM pg_attribute a
    WHERE a.attrelid = key_table AND a.attname = key_column AND NOT a.attisdropped;

    -- ---- the column ----

    RETURN QUERY SELECT '42703', format('%s does not exist', described), 'No column of the table has that name.',
        'Names are taken as they are written: mind upper and lower case.'
    WHERE key.attnum IS NULL;

    RETURN QUERY SELECT '42809',
        format('%s is a %s column', described, CASE WHEN key.attnum < 0 THEN 'system' ELSE 'generated' END),
        'PostgreSQL computes its values.',
        'Give the column that holds the key.'
    WHERE key.attnum < 0 OR key.attgenerated <> '';

    RETURN QUERY SELECT '42P16', format('%s is inherited', described),
        format('It comes from %s.', string_agg(pg_describe_object('pg_class'::regclass, inhparent, 0), ', '
                                               ORDER BY inhseqno)),
        'Convert that table: its partitions, and the tables that inherit from it, are converted along.'
    FROM pg_inherits WHERE inhrelid = key_table AND key.attinhcount > 0 HAVING count(*) > 0;

    RETURN QUERY SELECT '42804', format('%s is of type %s', described, format_type(key.atttypid, NULL)),
        'A bigint, integer or smallint column can be converted.',
        'Change the column to bigint first, or add a bigint column that takes its place.'
    WHERE NOT key.is_small AND key.atttypid <> 'bigint'::regtype;

    -- ---- tables and columns that cannot be taken along ----

    RETURN QUERY SELECT '0A000', format('cannot convert %s together with %s', described, o.what), o.why, o.hint
    FROM (
        SELECT DISTINCT pg_describe_object('pg_class'::regclass, c.oid, 0), why, hint, c.oid
        FROM @extschema@.snowflake_convert_columns(key_table, key_column) k
        JOIN pg_class c ON c.oid = k.relid,
        LATERAL (
            SELECT 'Its rows lie on another server, which is not changed from here.',
                'Detach it first, and convert it where its rows lie.'
            WHERE c.relkind = 'f'
            UNION ALL
            SELECT 'It inherits from more than one table.',
                'Take it out of the inheritance first, with ALTER TABLE ... NO INHERIT.'
            WHERE (SELECT count(*) FROM pg_inherits WHERE inhrelid = c.oid) > 1
            UNION ALL
            SELECT 'It belongs to an extension, and a dump would restore it as the extension has it.',
                'Use a table that is not an extension''s.'
            FROM pg_depend e WHERE e.classid = 'pg_class'::regclass AND e.objid = c.oid AND e.deptype = 'e'
        ) AS r (why, hint)
        WHERE k.is_key OR k.is_small
    ) AS o (what, why, hint, relid)
    ORDER BY o.relid;

    RETURN QUERY SELECT '0A000',
        format('cannot convert %s together with column "%s" of table %s', described, k.attname, k.label),
        format('It references the key, and is of the domain %s over %s.', k.atttypid::regtype, t.typbasetype::regtype),
        'Change that column to bigint, or to a domain over bigint, first.'
    FROM @extschema@.snowflake_convert_columns(key_table, key_column) k
    JOIN pg_type t ON t.oid = k.atttypid AND t.typtype = 'd' AND t.typbasetype <> 'bigint'::regtype
    ORDER BY k.label, k.attnum;

    -- Citus keeps its table of distributed tables in pg_catalog, where nobody else creates one.
    IF to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL THEN
        RETURN QUERY SELECT '0A000',
            format('cannot convert %s together with column "%s" of table %s', described, k.attname, k.label),
            'Citus distributes the table by it, and changes neither its type nor its default.',
            format('Call undistribute_table(%L), convert, and call create_distributed_table(%L, %L), '
                   'for tables that are colocated with it, too.', k.label, k.label, k.attname)
        FROM @extschema@.snowflake_convert_columns(key_table, key_column) k
        JOIN pg_catalog.pg_dist_partition d ON d.logicalrelid = k.relid
            AND substring(d.partkey::text FROM ':varattno (\d+)')::integer = k.attnum
        WHERE k.is_key OR k.is_small
        ORDER BY k.label, k.attnum;
    END IF;

    -- ---- is it a key? ----

    RETURN QUERY SELECT '42P10', format('%s is not a key', described),
        'It is in no primary key, unique constraint or unique index.',
        format('If its values are unique, say so first: ALTER TABLE %s ADD UNIQUE (%I).', label, key_column)
    WHERE NOT EXISTS (
        SELECT FROM pg_index i
        WHERE i.indrelid = key_table AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
            AND key.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]));

    RETURN QUERY SELECT '42809', format('%s is a foreign key', described),
        format('Its values come from %s.',
               string_agg(DISTINCT pg_describe_object('pg_class'::regclass, f.confrelid, 0), ', ')),
        'Convert the column that it references: this one is widened along with it.'
    FROM pg_constraint f
    WHERE f.contype = 'f' AND f.conrelid = key_table AND key.attnum = ANY (f.conkey) AND f.conparentid = 0
    HAVING count(*) > 0;

    -- ---- defaults, and the sequences behind them ----

    RETURN QUERY SELECT '42611', format('column "%s" of table %s has a default that is no sequence', key_column, k.label),
        format('It is %s.', d.expression),
        format('If it may go, drop it first: ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT.', k.label, key_column)
    FROM @extschema@.snowflake_convert_columns(key_table, key_column) k,
    LATERAL (
        SELECT oid, pg_get_expr(adbin, adrelid) AS expression
        FROM pg_attrdef WHERE adrelid = k.relid AND adnum = k.attnum
    ) d
    WHERE k.is_key AND d.expression <> new_default AND NOT EXISTS (
        -- nextval of a sequence, as serial columns have it, or that of pgEdge's extension
        SELECT FROM pg_depend s
        WHERE s.classid = 'pg_attrdef'::regclass AND s.objid = d.oid AND s.refclassid = 'pg_class'::regclass
            AND d.expression IN (
                format('nextval(''%s''::regclass)', replace(s.refobjid::regclass::text, '''', '''''')),
                format('snowflake.nextval(''%s''::regclass)', replace(s.refobjid::regclass::text, '''', ''''''))))
    ORDER BY k.relid <> key_table, k.relid;

    RETURN QUERY SELECT '55000',
        format('sequence %s is that of an identity, and %s has none', s.label, described),
        'The extension of pgEdge leaves an identity like this. It breaks dumps as well.',
        format('As a superuser, make it a sequence that the column owns: UPDATE pg_depend SET deptype = ''a'' '
               'WHERE classid = ''pg_class''::regclass AND objid = %s AND deptype = ''i''.', s.seqrelid)
    FROM @extschema@.snowflake_convert_sequences(key_table, key_column) s WHERE s.is_stray;

    RETURN QUERY SELECT '2BP01', format('sequence %s is used by others than %s', s.label, described),
        format('These need it: %s.', s.users),
        CASE WHEN s.is_identity THEN 'Drop them first.'
             ELSE 'Keep it with keep_sequence => true, or convert or drop these first.' END
    FROM @extschema@.snowflake_convert_sequences(key_table, key_column) s
    WHERE s.users IS NOT NULL AND (s.is_identity OR NOT keep_sequence)
    ORDER BY s.label;

    RETURN QUERY SELECT '42501', format('must be owner of sequence %s', s.label),
        format('It belongs to %s.', pg_get_userbyid(s.relowner)),
        CASE WHEN s.is_owned THEN 'Run it as a superuser.'
             ELSE 'Keep it with keep_sequence => true, or run it as a superuser.' END
    FROM @extschema@.snowflake_convert_sequences(key_table, key_column) s
    WHERE NOT pg_has_role(s.relowner, 'USAGE') AND (s.is_owned OR NOT keep_sequence)
    ORDER BY s.label;

    RETURN QUERY SELECT '0A000', format('cannot create sequence %s again as it is', s.label),
        'It goes with the identity. It has a security label, grants of others than its owner or no right of its owner, or '
        'ALTER DEFAULT PRIVILEGES would grant more on a new one.',
        'Convert without keep_sequence, and create a sequence yourself, if you need one.'
    FROM @extschema@.snowflake_convert_sequences(key_table, key_column) s JOIN pg_class c ON c.oid = s.seqrelid
    WHERE keep_sequence AND s.is_identity AND (
        NOT c.relacl @> (acldefault('s', c.relowner))[1]
        OR EXISTS (SELECT FROM aclexplode(c.relacl) WHERE grantor <> c.relowner)
        OR EXISTS (SELECT FROM pg_seclabel WHERE classoid = 'pg_class'::regclass AND objoid = c.oid)
        OR EXISTS (SELECT FROM pg_default_acl WHERE defaclobjtype = 'S' AND pg_get_userbyid(defaclrole) = current_user));

    -- ---- what PostgreSQL does not let a wider type through ----

    -- It stops at the first of them, and names no way out; here is the whole list, before anything is done.
    RETURN QUERY SELECT '2BP01', format('%s cannot be widened to bigint', described),
        format('These depend on a column that becomes bigint: %s.', string_agg(DISTINCT b.what, ', ' ORDER BY b.what)),
        'Drop them, convert, and create them again, in one transaction.'
    FROM @extschema@.snowflake_convert_columns(key_table, key_column) w
    JOIN pg_class c ON c.oid = w.relid
    JOIN pg_type t ON t.oid = c.reltype,
    LATERAL (
        SELECT CASE
            WHEN d.classid IN ('pg_rewrite'::regclass, 'pg_trigger'::regclass, 'pg_policy'::regclass,
                               'pg_proc'::regclass, 'pg_publication_rel'::regclass)
            THEN replace(pg_describe_object(d.classid, d.objid, 0), 'rule _RETURN on ', '')
            WHEN d.classid = 'pg_attrdef'::regclass AND g.adnum <> w.attnum
            THEN format('generated %s', pg_describe_object('pg_class'::regclass, g.adrelid, g.adnum))
            -- A check, an index or statistics that calls a function which may be for the narrow type alone.
            WHEN d.classid IN ('pg_constraint'::regclass, 'pg_class'::regclass, 'pg_statistic_ext'::regclass)
                AND d.objid <> w.relid
            THEN (SELECT format('%s with %s', pg_describe_object(d.classid, d.objid, d.objsubid),
                                string_agg(pg_describe_object(f.refclassid, f.refobjid, 0), ', '))
                  FROM pg_depend f
                  WHERE f.classid = d.classid AND f.objid = d.objid
                      AND f.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass) HAVING count(*) > 0)
        END
        FROM pg_depend d
        LEFT JOIN pg_attrdef g ON d.classid = 'pg_attrdef'::regclass AND g.oid = d.objid
        WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = w.relid AND d.refobjsubid = w.attnum
        UNION ALL
        -- The column is in the partition key: it depends on its own table.
        SELECT format('partition key of %s', pg_describe_object('pg_class'::regclass, w.relid, 0))
        FROM pg_depend p
        WHERE p.classid = 'pg_class'::regclass AND p.objid = w.relid AND p.objsubid = w.attnum
            AND p.refclassid = 'pg_class'::regclass AND p.refobjid = w.relid AND p.refobjsubid = 0
        UNION ALL
        -- The table's rows as values of another column or type, if it stores them, and the type that the table is of.
        SELECT pg_describe_object(d.classid, d.objid, d.objsubid)
        FROM pg_depend d
        LEFT JOIN pg_class v ON d.classid = 'pg_class'::regclass AND v.oid = d.objid
        WHERE v.relkind IS DISTINCT FROM 'v' AND d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray)
            AND d.classid IN ('pg_class'::regclass, 'pg_type'::regclass) AND d.deptype <> 'i'
        UNION ALL
        SELECT pg_describe_object('pg_type'::regclass, c.reloftype, 0) WHERE c.reloftype <> 0
    ) AS b (what)
    WHERE w.is_small AND b.what IS NOT NULL HAVING count(*) > 0;

    RETURN QUERY SELECT '55000', format('%s has triggers that are disabled',
                                        pg_describe_object('pg_constraint'::regclass, f.oid, 0)),
        'The foreign key is built again: its triggers would be enabled, and its rows may not pass.',
        'Enable them and mend the rows, or drop the foreign key, first.'
    FROM @extschema@.snowflake_convert_columns(key_table, key_column) k
    JOIN pg_constraint f ON f.contype = 'f'
        AND (f.conrelid = k.relid AND k.attnum = ANY (f.conkey)
            OR f.confrelid = k.relid AND k.attnum = ANY (f.confkey))
    JOIN pg_trigger t ON t.tgconstraint = f.oid AND t.tgenabled <> 'O'
    WHERE k.is_small;

    RETURN QUERY SELECT '42501', format('row-level security hides rows of table %I.%I', n.nspname, c.relname),
        'Whether its values lie below the new IDs, and are in the tables that they reference, cannot be seen.',
        'Run it as a role with BYPASSRLS or as a superuser, or take FORCE ROW LEVEL SECURITY off meanwhile.'
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = ANY (locked) AND row_security_active(c.oid)
    ORDER BY c.oid <> key_table, c.oid;
END
$$;

-- The statements of a conversion that nothing stands in the way of, in their order.
CREATE FUNCTION snowflake_convert_plan(
    key_table oid, key_column name, keep_sequence boolean, locked oid[], new_default text, highest bigint
) RETURNS TABLE (statement text, locks text, rewrites boolean, note text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    key_label constant text := (SELECT k.label FROM @extschema@.snowflake_convert_columns(key_table, key_column) k
                                WHERE k.relid = key_table AND k.attname = key_column);
BEGIN
    RETURN QUERY SELECT
        format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE',
               string_agg(format('%I.%I', n.nspname, c.relname), ', ' ORDER BY c.oid <> key_table, n.nspname, c.relname)),
        'ACCESS EXCLUSIVE on these tables', false,
        'held to the end of the transaction: until then nobody else reads or writes them'
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    -- The lock of a table is also that of its partitions and of what inherits from it.
    WHERE c.oid = ANY (locked) AND c.relkind <> 'S' AND NOT EXISTS (
        SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid AND i.inhparent = ANY (locked));

    -- An identity's sequence goes with it. One that is kept is a copy; the new name keeps nextval() out while it is made.
    RETURN QUERY SELECT v.statement, v.locks, false, v.note
    FROM @extschema@.snowflake_convert_sequences(key_table, key_column) s
    JOIN pg_sequence q ON q.seqrelid = s.seqrelid
    JOIN pg_class c ON c.oid = s.seqrelid,
    LATERAL (
        VALUES
            (1, format('ALTER SEQUENCE %s RENAME TO snowflake_convert_%s', s.label, c.oid),
             'ACCESS EXCLUSIVE on ' || s.label, NULL),
            (2, format('CREATE %sSEQUENCE %s AS %s START WITH %s INCREMENT BY %s MINVALUE %s MAXVALUE %s CACHE %s %s',
                       CASE c.relpersistence WHEN 'u' THEN 'UNLOGGED ' END, s.label, format_type(q.seqtypid, NULL),
                       q.seqstart, q.seqincrement, q.seqmin, q.seqmax, q.seqcache,
                       CASE WHEN q.seqcycle THEN 'CYCLE' ELSE 'NO CYCLE' END),
             NULL, 'takes the place of the one that goes with the identity'),
            (3, format('SELECT pg_catalog.setval(%L, last_value, is_called) FROM %s.snowflake_convert_%s',
                       s.label, c.relnamespace::regnamespace, c.oid), NULL, NULL),
            (4, format('ALTER SEQUENCE %s OWNER TO %I', s.label, pg_get_userbyid(c.relowner)), NULL, NULL),
            (5, 'COMMENT ON SEQUENCE ' || s.label || ' IS ' || quote_literal(obj_description(c.oid, 'pg_class')),
             NULL, NULL)
        UNION ALL
        SELECT 6, format('GRANT %s ON SEQUENCE %s TO %s%s', a.privilege_type, s.label,
                         CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
                         CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END), NULL, NULL
        FROM aclexplode(c.relacl) a WHERE a.grantee <> c.relowner
    ) AS v (place, statement, locks, note)
    WHERE keep_sequence AND s.is_identity AND v.statement IS NOT NULL
    ORDER BY s.label, v.place, v.statement;

    RETURN QUERY SELECT format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', k.label, key_column),
        format('ACCESS EXCLUSIVE on %s', k.label), false, 'its sequence goes with it'
    FROM @extschema@.snowflake_convert_columns(key_table, key_column) k
    -- From PostgreSQL 17 on, partitions share the identity of their parent, and lose it with the parent's.
    WHERE k.is_key AND EXISTS (
        SELECT FROM pg_depend d
        WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
            AND d.refobjid = k.relid AND d.refobjsubid = k.attnum AND d.deptype = 'i')
    ORDER BY k.relid <> key_table, k.label;

    -- One statement a table, so that a table with two such columns is rewritten once. Those that inherit are reached
    -- by PostgreSQL.
    RETURN QUERY SELECT format('ALTER TABLE %s %s', w.label, w.changes), format('ACCESS EXCLUSIVE on %s', w.label), true, (
            WITH RECURSIVE members (relid) AS (
                SELECT w.relid
                UNION
                SELECT i.inhrelid FROM members m JOIN pg_inherits i ON i.inhparent = m.relid
            )
            SELECT format('%s of rows and indexes are written anew, foreign keys are checked again',
                          pg_size_pretty((SELECT sum(pg_total_relation_size(relid)) FROM members)))
                || coalesce('; published by ' || string_agg(DISTINCT quote_ident(p.pubname), ', ')
                    || ': subscribers need the wider columns first', '')
            FROM members m
            JOIN pg_class c ON c.oid = m.relid
            JOIN pg_namespace n ON n.oid = c.relnamespace
            JOIN pg_publication_tables p ON p.schemaname = n.nspname AND p.tablename = c.relname
        )
    FROM (
        SELECT k.relid, k.label,
            string_agg(format('ALTER COLUMN %I TYPE bigint', k.attname), ', ' ORDER BY k.attnum) AS changes
        FROM @extschema@.snowflake_convert_columns(key_table, key_column) k
        JOIN pg_attribute a ON a.attrelid = k.relid AND a.attnum = k.attnum AND a.attinhcount = 0
        WHERE k.is_small
        GROUP BY 1, 2
    ) AS w
    ORDER BY w.relid <> key_table, w.label;

    RETURN QUERY SELECT format('ANALYZE %s', string_agg(k.label, ', ' ORDER BY k.relid <> key_table, k.label)),
        'SHARE UPDATE EXCLUSIVE on these tables', false,
        'the statistics of a column go with its type, and autovacuum does not bring them back'
    FROM (SELECT DISTINCT relid, label FROM @extschema@.snowflake_convert_columns(key_table, key_column)
          WHERE is_small) AS k
    HAVING count(*) > 0;

    RETURN QUERY SELECT format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', key_label, key_column, new_default),
        format('ACCESS EXCLUSIVE on %s', key_label), false,
        coalesce('the highest value, ' || highest || ', lies below every new ID', 'there is no value yet')
        || coalesce('; new IDs must meet ' || string_agg(
            pg_get_constraintdef(c.oid) || CASE WHEN c.conrelid = key_table THEN '' ELSE ' of ' || k.label END,
            ', ' ORDER BY c.conrelid <> key_table, k.label, c.conname), '')
    FROM (SELECT relid, label, array_agg(attnum) AS attnums
          FROM @extschema@.snowflake_convert_columns(key_table, key_column) GROUP BY 1, 2) AS k
    JOIN pg_constraint c ON c.contype = 'c' AND c.conrelid = k.relid AND c.conkey && k.attnums AND c.coninhcount = 0;

    RETURN QUERY SELECT format('%s SEQUENCE %s%s', CASE WHEN keep_sequence THEN 'ALTER' ELSE 'DROP' END, s.label,
                               CASE WHEN keep_sequence THEN ' OWNED BY NONE' ELSE '' END),
        format('ACCESS EXCLUSIVE on %s', s.label), false, NULL
    FROM @extschema@.snowflake_convert_sequences(key_table, key_column) s
    WHERE NOT s.is_identity AND (s.is_owned OR NOT keep_sequence)
    ORDER BY s.label;
END
$$;

CREATE FUNCTION snowflake_convert(
    table_name    regclass,
    column_name   name,
    dry_run       boolean DEFAULT true,
    keep_sequence boolean DEFAULT false
) RETURNS TABLE (step integer, statement text, locks text, rewrites boolean, note text)
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    -- A query that row-level security would filter fails: the highest value must be that of all rows.
    SET row_security = off
    -- So that pg_get_expr() writes names and literals in one way, whatever the session says.
    SET quote_all_identifiers = off
    SET standard_conforming_strings = on
    -- The queries here are long and their tables are small: to compile them takes seconds, under the lock.
    SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
    new_default text;
    label       text;     -- the table, qualified and quoted
    described   text;     -- the column, for messages
    target      record;
    hit         record;
    locked      oid[];
    highest     bigint;
    new_id      bigint;
BEGIN
    -- ---- what is in the way ----

    -- The owner of a schema can rename it and put another in its place. The name in these bodies must still be that of
    -- the extension's schema, and stay so; only a superuser can lock it.
    IF has_table_privilege('pg_namespace', 'UPDATE') AND NOT current_setting('transaction_read_only')::boolean THEN
        PERFORM FROM pg_namespace
        WHERE oid = (SELECT extnamespace FROM pg_extension WHERE extname = 'snowflake_id') FOR KEY SHARE;
    END IF;
    SELECT c.oid, c.relkind, c.relpersistence, n.nspname, quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS label
    INTO target FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = table_name;
    SELECT o.* INTO hit
    FROM (VALUES
        (table_name IS NULL OR column_name IS NULL OR dry_run IS NULL OR keep_sequence IS NULL, '22004',
            'no argument of snowflake_convert may be null', 'Each argument decides what is changed.',
            'Name a table and a column: snowflake_convert(''orders'', ''id'').'),
        -- An older snapshot would not show what others have committed before the lock was granted.
        (current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted'), '25001',
            'snowflake_convert must run in a READ COMMITTED transaction',
            format('This one is %s: it may not see the newest rows of the table.',
                   upper(current_setting('transaction_isolation'))),
            'Start the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.'),
        (current_setting('transaction_read_only')::boolean, '25006',
            'cannot convert a key in a read-only transaction', 'A dry run, too, locks what it looks at.',
            'Convert it on the primary, in a transaction that is READ WRITE.'),
        (NOT EXISTS (SELECT FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
                     WHERE e.extname = 'snowflake_id' AND n.nspname = (parse_ident('@extschema@'))[1]), '55000',
            'the schema of the extension snowflake_id was renamed',
            'It was @extschema@ when the extension was created.', 'Give the schema that name again.'),
        (target.oid IS NULL, '42P01', format('there is no table with the OID %s', table_name::oid),
            'No relation of this database has that OID.', 'Give the name of a table.'),
        (target.relkind NOT IN ('r', 'p'), '42809', format('%s is not a table of this database', target.label),
            format('It is the %s.', pg_describe_object('pg_class'::regclass, table_name, 0)),
            'Give the table that holds the rows; a foreign table is converted where it lies.'),
        (target.oid < 16384 OR target.nspname IN ('pg_catalog', 'information_schema', 'pg_toast'), '42809',
            format('%s is a system catalog', target.label), 'It belongs to PostgreSQL itself.',
            'Give a table of your own.'),
        (target.relpersistence = 't', '42809', format('%s is a temporary table', target.label),
            'It goes with its session.',
            'Create it with the default: ' || quote_ident(column_name) || ' bigint DEFAULT @extschema@.snowflake_nextval().')
    ) AS o (is_so, code, message, detail, hint) WHERE o.is_so LIMIT 1;
    IF NOT FOUND THEN
        new_default := '@extschema@.snowflake_nextval()'::regprocedure;
        locked := @extschema@.snowflake_convert_lock(table_name::oid, column_name, dry_run);
        SELECT o.* INTO hit
        FROM @extschema@.snowflake_convert_obstacles(table_name::oid, column_name, keep_sequence, locked, new_default) o
        LIMIT 1;
    END IF;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = hit.code, MESSAGE = hit.message, DETAIL = hit.detail, HINT = hit.hint;
    END IF;
    -- The name that is locked: the table may have had another before.
    SELECT k.label INTO label FROM @extschema@.snowflake_convert_columns(table_name::oid, column_name) k
    WHERE k.relid = table_name;
    described := format('column "%s" of table %s', column_name, label);

    IF NOT EXISTS (
        SELECT FROM @extschema@.snowflake_convert_columns(table_name::oid, column_name) k
        LEFT JOIN pg_attrdef d ON d.adrelid = k.relid AND d.adnum = k.attnum
        WHERE k.is_small OR k.is_key AND pg_get_expr(d.adbin, d.adrelid) IS DISTINCT FROM new_default
    ) THEN
        RAISE NOTICE USING
            MESSAGE = format('%s is a snowflake column already, there is nothing to do', described);
        RETURN;
    END IF;

    -- ---- the values: all that exist lie below all that will come ----

    -- Also the proof that this server makes IDs: if not, its error says why, and what to do.
    new_id := @extschema@.snowflake_nextval();
    EXECUTE format('SELECT max(%I) FROM %s', column_name, label) INTO highest;
    -- Another worker of this server may be at an earlier time than this ID, but not before the clock.
    IF highest >= new_id OR highest >= 0 AND @extschema@.snowflake_timestamp(highest)
        + current_setting('snowflake_id.tick')::interval > clock_timestamp()
    THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('%s has values that are not below the new IDs', described),
            DETAIL = format('The highest is %s; an ID made now is %s.', highest, new_id),
            HINT = 'If they are IDs of another system, give this server its layout, tick and epoch and restart it, '
                'or choose an earlier epoch. If they are IDs of this layout from a clock that was ahead, wait '
                'until that time has passed.';
    END IF;
    -- Partitions by ranges or lists of the key end where the old values ended. A new ID may come to any partition, where
    -- the key does not decide; else to those that take all that is left, and to those of a range that it lies in.
    WITH RECURSIVE routes (relid) AS (
        SELECT table_name::oid
        UNION
        SELECT i.inhrelid
        FROM routes r
        JOIN pg_partitioned_table p ON p.partrelid = r.relid
        JOIN pg_inherits i ON i.inhparent = r.relid
        JOIN pg_class c ON c.oid = i.inhrelid,
        LATERAL pg_get_expr(c.relpartbound, c.oid) AS bound,
        LATERAL (SELECT substring(bound FROM '^FOR VALUES FROM \(''?([-0-9]+)'),
                        substring(bound FROM 'TO \(''?([-0-9]+)''?\)$')) AS range (low, high)
        WHERE NOT EXISTS (SELECT FROM decided d WHERE d.relid = r.relid) OR bound = 'DEFAULT'
            OR p.partstrat = 'r' AND p.partnatts = 1 AND p.partattrs[0] <> 0
                AND coalesce(low::bigint <= new_id, true) AND coalesce(new_id < high::bigint, true)
    ), decided (relid) AS (
        SELECT p.partrelid
        FROM pg_partitioned_table p
        JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attname = column_name
        WHERE p.partstrat <> 'h' AND EXISTS (
            SELECT FROM pg_depend d
            WHERE d.classid = 'pg_class'::regclass AND d.objid = p.partrelid AND d.objsubid = a.attnum
                AND d.refclassid = 'pg_class'::regclass AND d.refobjid = p.partrelid AND d.refobjsubid = 0)
    )
    SELECT format('%I.%I', n.nspname, c.relname) AS label INTO hit
    FROM routes r JOIN decided USING (relid) JOIN pg_class c ON c.oid = relid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE NOT EXISTS (SELECT FROM pg_inherits i JOIN routes o ON o.relid = i.inhrelid WHERE i.inhparent = c.oid)
    ORDER BY c.oid <> table_name, c.oid LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('no partition of table %s takes the new IDs', hit.label),
            DETAIL = format('%I decides on the partition; an ID made now is %s.', column_name, new_id),
            HINT = 'Create a default partition, or one for a range of this column alone, for the IDs to come, first.';
    END IF;

    -- ---- do it, or only say it ----

    step := 0;
    FOR hit IN
        SELECT p.* FROM @extschema@.snowflake_convert_plan(
            table_name::oid, column_name, keep_sequence, locked, new_default, highest) p
    LOOP
        step := step + 1;
        statement := hit.statement;
        locks := hit.locks;
        rewrites := hit.rewrites;
        note := hit.note;
        IF NOT dry_run THEN
            EXECUTE statement;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Who may call it calls the others, which do nothing that their caller could not do.
REVOKE ALL ON FUNCTION snowflake_convert(regclass, name, boolean, boolean) FROM PUBLIC;

COMMENT ON FUNCTION snowflake_convert_columns(oid, name) IS 'part of snowflake_convert: the columns with values of a key';
COMMENT ON FUNCTION snowflake_convert_sequences(oid, name) IS 'part of snowflake_convert: the sequences of a key';
COMMENT ON FUNCTION snowflake_convert_lock(oid, name, boolean) IS 'part of snowflake_convert: locks what it concerns';
COMMENT ON FUNCTION snowflake_convert_obstacles(oid, name, boolean, oid[], text) IS 'part of snowflake_convert: obstacles';
COMMENT ON FUNCTION snowflake_convert_plan(oid, name, boolean, oid[], text, bigint) IS 'part of snowflake_convert: statements';
COMMENT ON FUNCTION snowflake_convert(regclass, name, boolean, boolean) IS
    'turns a serial, identity or plain integer key into a snowflake default, or, in a dry run, shows how';
