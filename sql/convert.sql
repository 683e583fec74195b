-- snowflake_convert() makes snowflake_nextval() the default of an existing key. The other functions here are internal:
-- the columns that hold values of the key, the sequences that these come from, the locks, the checks, the plan.
--
-- A superuser may convert the table of somebody else, who must not get anything executed with a superuser's rights. So
-- each function pins its search_path and names objects by OID or schema, and a statement uses a name only after the
-- object was locked and seen to still have that name. Every statement that plans, reads or changes a table evaluates
-- expressions of its definition, so snowflake_execute_as() executes it with the rights of the owner, in a dry run too.
--
-- The internal functions run with their caller's rights, read what everybody may read, and lock only what the caller
-- owns. PUBLIC may execute them, so that GRANT EXECUTE ON FUNCTION snowflake_convert is all that a role needs.

-- The family of the key: all columns that hold its values. These are the key, the columns that inherit it, those that
-- reference one of these, and those that share an inheritance with a referencing column.
CREATE FUNCTION snowflake_internal.snowflake_convert_columns(key_table regclass, key_column name)
    RETURNS TABLE (
        relid regclass, attnum smallint, attname name, type regtype, default_id oid,
        is_key       boolean, -- the key or a column that inherits it, not one that references it
        is_small     boolean, -- has to become bigint; is a smallint, an integer, or a domain, which is refused
        is_identity  boolean,
        is_partition boolean  -- in the partition key of its table
    )
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE family (relid, attnum, is_key) AS (
        SELECT attrelid, attnum, true FROM pg_attribute
        WHERE attrelid = key_table AND attname = key_column AND NOT attisdropped
        UNION
        SELECT next.*
        FROM family m JOIN pg_attribute a ON a.attrelid = m.relid AND a.attnum = m.attnum,
        LATERAL (
            SELECT o.attrelid, o.attnum, m.is_key
            FROM pg_inherits i
            JOIN pg_attribute o ON o.attname = a.attname AND NOT o.attisdropped
            WHERE i.inhparent = m.relid AND o.attrelid = i.inhrelid
               OR i.inhrelid = m.relid AND o.attrelid = i.inhparent
            UNION ALL
            SELECT f.conrelid, pair.referencing, false
            FROM pg_constraint f, unnest(f.conkey, f.confkey) AS pair (referencing, referenced)
            WHERE f.contype = 'f' AND f.confrelid = m.relid AND pair.referenced = m.attnum
        ) AS next
    )
    SELECT a.attrelid::regclass, a.attnum, a.attname, a.atttypid::regtype, d.oid, m.is_key,
        t.oid IN ('smallint'::regtype, 'integer'::regtype) OR t.typtype = 'd' AND t.typbasetype <> 'bigint'::regtype,
        a.attidentity <> '', EXISTS (
            -- A column of the partition key depends on its own table.
            SELECT FROM pg_depend p
            WHERE p.classid = 'pg_class'::regclass AND p.objid = a.attrelid AND p.objsubid = a.attnum
                AND p.refclassid = 'pg_class'::regclass AND p.refobjid = a.attrelid AND p.refobjsubid = 0)
    FROM (SELECT relid, attnum, bool_or(is_key) AS is_key FROM family GROUP BY 1, 2) AS m
    JOIN pg_attribute a ON a.attrelid = m.relid AND a.attnum = m.attnum
    JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_attrdef d ON d.adrelid = m.relid AND d.adnum = m.attnum;
END
$$;

-- The sequences that the values of the key come from: those that its columns own, and those that their defaults call.
CREATE FUNCTION snowflake_internal.snowflake_convert_sequences(key_table regclass, key_column name)
    RETURNS TABLE (
        seqrelid regclass, relowner oid,
        is_owned    boolean,  -- by the column, as a serial column owns its sequence
        identity_of regclass, -- the table whose identity it belongs to
        is_stray    boolean,  -- belongs to an identity that the column has lost: pgEdge's conversion leaves these
        users       text      -- what else depends on it
    )
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH keys AS MATERIALIZED (
        SELECT * FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) WHERE is_key
    ), links (seqrelid, deptype, relid, is_identity) AS (
        SELECT d.objid, d.deptype, k.relid, k.is_identity
        FROM keys k JOIN pg_depend d ON (d.classid, d.refclassid, d.refobjid, d.refobjsubid)
            = ('pg_class'::regclass, 'pg_class'::regclass, k.relid, k.attnum)
        UNION ALL
        SELECT d.refobjid, 'n', k.relid, false
        FROM keys k JOIN pg_depend d ON (d.classid, d.objid, d.refclassid)
            = ('pg_attrdef'::regclass, k.default_id, 'pg_class'::regclass)
    )
    SELECT c.oid::regclass, c.relowner, bool_or(l.deptype = 'a'),
        (array_agg(l.relid) FILTER (WHERE l.deptype = 'i' AND l.is_identity))[1],
        bool_or(l.deptype = 'i' AND NOT l.is_identity), (
            SELECT string_agg(DISTINCT u.what, ', ' ORDER BY u.what)
            FROM (
                -- What depends on the sequence is not the view, but the rule of the view.
                SELECT replace(pg_describe_object(d.classid, d.objid, d.objsubid), 'rule _RETURN on ', '')
                FROM pg_depend d
                WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid AND NOT EXISTS (
                    SELECT FROM keys k WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = k.default_id)
                UNION ALL
                SELECT pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
                FROM pg_depend d
                WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'a'
                    AND d.refclassid = 'pg_class'::regclass AND d.refobjid NOT IN (SELECT k.relid FROM keys k)
            ) AS u (what)
        )
    FROM links l JOIN pg_class c ON c.oid = l.seqrelid AND c.relkind = 'S'
    GROUP BY c.oid, c.relowner
    ORDER BY c.oid::regclass::text;
END
$$;

-- Locks the tables and sequences of a conversion until the transaction ends, and returns them. A dry run locks them as
-- SELECT and nextval() do, which keeps nobody from reading or writing.
CREATE FUNCTION snowflake_internal.snowflake_convert_lock(key_table regclass, key_column name, dry_run boolean) RETURNS oid[]
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    locked oid[] := '{}';
    hit    record;
BEGIN
    -- The family may grow during the wait for a lock, so this reads it again until all of it is locked.
    LOOP
        FOR hit IN
            SELECT c.oid, c.relkind, c.relowner, c.relnamespace, format('%I.%I', n.nspname, c.relname) AS label
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.oid <> ALL (locked) AND c.relkind <> 'f' AND c.oid IN (
                SELECT key_table
                UNION ALL
                -- PostgreSQL rebuilds the foreign keys of a widened column, and locks the tables at both ends.
                SELECT unnest(ARRAY[k.relid, f.conrelid, f.confrelid])
                FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) k
                LEFT JOIN pg_constraint f ON k.is_small AND f.contype = 'f'
                    AND (f.conrelid = k.relid AND k.attnum = ANY (f.conkey)
                        OR f.confrelid = k.relid AND k.attnum = ANY (f.confkey))
                WHERE k.is_key OR k.is_small
                UNION ALL
                -- A sequence of somebody else stays, or the conversion is refused.
                SELECT s.seqrelid FROM snowflake_internal.snowflake_convert_sequences(key_table, key_column) s
                WHERE pg_has_role(s.relowner, 'USAGE'))
            ORDER BY c.oid <> key_table, c.relkind = 'S', label
        LOOP
            IF NOT pg_has_role(hit.relowner, 'USAGE') THEN
                RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
                    MESSAGE = format('must be owner of %s', pg_describe_object('pg_class'::regclass, hit.oid, 0)),
                    DETAIL = format('It belongs to %s, and the conversion changes or locks it together with the key.',
                                    pg_get_userbyid(hit.relowner)),
                    HINT = CASE WHEN hit.relkind = 'S' OR hit.relowner = (SELECT relowner FROM pg_class WHERE oid = key_table)
                        THEN 'Run snowflake_convert as its owner, or as a superuser.'
                        ELSE 'Drop its foreign key, or detach it: tables of different owners are not converted together.'
                        END;
            END IF;
            -- The lock of a table does not protect the name of its schema. A superuser can lock the schema's row.
            IF has_table_privilege('pg_namespace', 'UPDATE') THEN
                PERFORM FROM pg_namespace WHERE oid = hit.relnamespace FOR KEY SHARE;
            END IF;
            IF hit.relkind = 'S' THEN
                PERFORM pg_sequence_last_value(hit.oid); -- LOCK TABLE takes no sequence
            ELSE
                EXECUTE format('LOCK TABLE ONLY %s IN %s MODE', hit.label,
                               CASE WHEN dry_run THEN 'ACCESS SHARE' ELSE 'ACCESS EXCLUSIVE' END);
            END IF;
            -- The name may now belong to another object, for instance to a view that calls its owner's functions.
            IF to_regclass(hit.label) IS DISTINCT FROM hit.oid THEN
                RAISE EXCEPTION USING ERRCODE = 'object_in_use',
                    MESSAGE = format('could not lock %s: it was renamed or moved', hit.label),
                    DETAIL = 'The name changed while the conversion waited for the lock.',
                    HINT = 'Check the names and run snowflake_convert again.';
            END IF;
            locked := locked || hit.oid;
        END LOOP;
        EXIT WHEN NOT FOUND;
    END LOOP;
    RETURN locked;
END
$$;

-- The check functions return the reasons to refuse a conversion; the user sees the first. This one looks at the key and
-- the tables of its family.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_columns(key_table regclass, key_column name)
    RETURNS TABLE (code text, message text, detail text, hint text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    described constant text := format('column "%s" of table %s', key_column, key_table);
    key       record;
BEGIN
    SELECT * INTO key FROM pg_attribute WHERE attrelid = key_table AND attname = key_column AND NOT attisdropped;
    RETURN QUERY SELECT r.code, r.message, r.detail, r.hint FROM (VALUES
        (key.attnum IS NULL, '42703', format('%s does not exist', described), 'The table has no column of that name.',
            'Check the spelling: upper and lower case differ.'),
        (key.attnum < 0 OR key.attgenerated <> '', '42809',
            format('%s is a %s column', described, CASE WHEN key.attnum < 0 THEN 'system' ELSE 'generated' END),
            'PostgreSQL computes its values.', 'Name the column that holds the key.'),
        (key.attinhcount > 0, '42P16', format('%s is inherited', described),
            format('It comes from %s.', (SELECT string_agg(pg_describe_object('pg_class'::regclass, inhparent, 0), ', ')
                                         FROM pg_inherits WHERE inhrelid = key_table)),
            'Convert that table: this includes its partitions and the tables that inherit from it.'),
        (key.atttypid NOT IN ('bigint'::regtype, 'integer'::regtype, 'smallint'::regtype), '42804',
            format('%s is of type %s', described, key.atttypid::regtype),
            'Only bigint, integer and smallint columns can be converted.',
            'Change the column to bigint first, or add a bigint column to replace it.')
    ) AS r (is_so, code, message, detail, hint) WHERE r.is_so;

    RETURN QUERY SELECT '0A000', format('cannot convert %s together with %s', described,
                                        pg_describe_object('pg_class'::regclass, k.relid, 0)), r.why, r.hint
    FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) k
    JOIN pg_class c ON c.oid = k.relid
    JOIN pg_type t ON t.oid = k.type,
    LATERAL (VALUES
        (c.relkind = 'f', 'It is a foreign table: its rows are on another server.',
            'Detach it first, and convert it on that server.'),
        ((SELECT count(*) FROM pg_inherits WHERE inhrelid = k.relid) > 1, 'It inherits from more than one table.',
            'First remove it from the inheritance, with ALTER TABLE ... NO INHERIT.'),
        (EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = k.relid AND deptype = 'e'),
            'It belongs to an extension, and a restored dump would have the extension''s definition again.',
            'Convert a table that belongs to no extension.'),
        (t.typtype = 'd', format('Its column %I references the key and has the domain %s over %s.',
                                 k.attname, k.type, t.typbasetype::regtype),
            'First change that column to bigint, or to a domain over bigint.')
    ) AS r (is_so, why, hint)
    WHERE r.is_so AND (k.is_key OR k.is_small);

    -- Citus keeps its table of distributed tables in pg_catalog, where nobody else creates one.
    IF to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL THEN
        RETURN QUERY SELECT '0A000',
            format('cannot convert %s together with column "%s" of table %s', described, k.attname, k.relid),
            'Citus distributes the table by this column, and changes neither its type nor its default.',
            format('Call undistribute_table(%L), convert, and call create_distributed_table(%1$L, %L), '
                   'also for tables that are colocated with it.', k.relid, k.attname)
        FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) k
        JOIN pg_catalog.pg_dist_partition d ON d.logicalrelid = k.relid
            AND substring(d.partkey::text FROM ':varattno (\d+)')::integer = k.attnum
        WHERE k.is_key OR k.is_small;
    END IF;
END
$$;

-- Looks at the index, the default and the sequences of the key.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_key(
    key_table regclass, key_column name, keep_sequence boolean, new_default text
) RETURNS TABLE (code text, message text, detail text, hint text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    described constant text := format('column "%s" of table %s', key_column, key_table);
    key       constant smallint := (SELECT attnum FROM pg_attribute
                                    WHERE attrelid = key_table AND attname = key_column);
BEGIN
    RETURN QUERY SELECT '42P10', format('%s is not a key', described),
        'It is in no primary key, unique constraint or unique index.',
        format(CASE c.relkind WHEN 'p' THEN 'If its values are unique, declare it first, together with the columns of '
                'the partition key: ALTER TABLE %s ADD UNIQUE (%I, ...).'
            ELSE 'If its values are unique, declare it first: ALTER TABLE %s ADD UNIQUE (%I).' END, key_table, key_column)
    FROM pg_class c
    WHERE c.oid = key_table AND NOT EXISTS (
        SELECT FROM pg_index i
        WHERE i.indrelid = key_table AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
            AND key = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1]));

    RETURN QUERY SELECT '42809', format('%s is a foreign key', described),
        format('It references %s.',
               string_agg(DISTINCT pg_describe_object('pg_class'::regclass, f.confrelid, 0), ', ')),
        'Convert the referenced column: this also widens the foreign key.'
    FROM pg_constraint f
    WHERE f.contype = 'f' AND f.conrelid = key_table AND key = ANY (f.conkey) AND f.conparentid = 0 HAVING count(*) > 0;

    RETURN QUERY SELECT '42611',
        format('column "%s" of table %s has a default that is not a sequence', key_column, k.relid),
        format('The default is %s.', expression),
        format('If nothing needs the default, drop it first: ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT.',
               k.relid, key_column)
    FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) k
    JOIN pg_attrdef d ON d.oid = k.default_id,
    LATERAL pg_get_expr(d.adbin, d.adrelid) AS expression
    WHERE k.is_key AND expression <> new_default AND NOT EXISTS (
        -- A serial column calls nextval(), a column of pgEdge's extension snowflake.nextval().
        SELECT FROM snowflake_internal.snowflake_convert_sequences(key_table, key_column) s
        WHERE regexp_replace(expression, '^snowflake\.', '')
            = format('nextval(''%s''::regclass)', replace(s.seqrelid::text, '''', '''''')));

    RETURN QUERY SELECT r.code, r.message, r.detail, r.hint
    FROM snowflake_internal.snowflake_convert_sequences(key_table, key_column) s,
    LATERAL (VALUES
        (s.is_stray, '55000', format('sequence %s belongs to an identity that %s does not have', s.seqrelid, described),
            'The extension of pgEdge leaves such sequences. They break dumps, too.',
            format('As a superuser, make it a sequence that the column owns: UPDATE pg_depend SET deptype = ''a'' '
                   'WHERE classid = ''pg_class''::regclass AND objid = %s AND deptype = ''i''.', s.seqrelid::oid)),
        (keep_sequence AND s.identity_of IS NOT NULL, '0A000',
            format('cannot keep sequence %s of an identity column', s.seqrelid),
            'PostgreSQL drops the sequence of an identity together with the identity.',
            'Convert without keep_sequence. If something else needs a sequence, create another one first.'),
        (NOT keep_sequence AND s.users IS NOT NULL, '2BP01',
            format('cannot drop sequence %s because other objects depend on it', s.seqrelid),
            format('These objects depend on it: %s.', s.users),
            CASE WHEN s.identity_of IS NULL
                 THEN 'Keep it with keep_sequence => true, or convert or drop these objects first.'
                 ELSE 'Convert or drop these objects first.' END),
        (NOT pg_has_role(s.relowner, 'USAGE') AND (s.is_owned OR NOT keep_sequence), '42501',
            format('must be owner of sequence %s', s.seqrelid),
            format('It belongs to %s.', pg_get_userbyid(s.relowner)),
            CASE WHEN s.is_owned THEN 'Run snowflake_convert as a superuser.'
                 ELSE 'Keep it with keep_sequence => true, or run snowflake_convert as a superuser.' END)
    ) AS r (is_so, code, message, detail, hint) WHERE r.is_so;
END
$$;

-- Looks whether one owner's rights suffice for all tables. With several, PostgreSQL evaluates expressions of one owner's
-- table with the rights of another: it validates a foreign key by a query over both tables, and reads and alters a parent
-- together with its children. Superusers gain nothing from each other.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_owners(key_table regclass, locked oid[])
    RETURNS TABLE (code text, message text, detail text, hint text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT '42501', 'cannot convert tables of different owners together',
        format('Each owner could have functions executed with the rights of another: %s.', string_agg(
            l.label, ', ' ORDER BY c.oid <> key_table, c.oid::regclass::text)),
        'Drop the foreign keys between tables of different owners, change each table as its owner, and create the '
        'foreign keys again. A table that inherits needs the owner of its parent.'
    FROM pg_class c
    JOIN pg_roles o ON o.oid = c.relowner,
    LATERAL format('table %s belongs to %s', c.oid::regclass, o.rolname) AS l (label)
    WHERE c.oid = ANY (locked) AND c.relkind <> 'S'
    HAVING count(DISTINCT c.relowner) > 1 AND NOT bool_and(o.rolsuper);
END
$$;

-- Looks for what keeps PostgreSQL from widening a column, and for rows that the caller cannot see.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_widening(key_table regclass, key_column name, locked oid[])
    RETURNS TABLE (code text, message text, detail text, hint text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- PostgreSQL would stop at the first of them, in the middle of the conversion. This names all of them before.
    RETURN QUERY SELECT '2BP01',
        format('cannot widen column "%s" of table %s to bigint', key_column, key_table),
        format('These objects depend on a column that becomes bigint: %s.',
               string_agg(DISTINCT b.what, ', ' ORDER BY b.what)),
        'In one transaction, drop them, convert, and create them again.'
    FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) w
    JOIN pg_class c ON c.oid = w.relid
    JOIN pg_type t ON t.oid = c.reltype,
    LATERAL (
        SELECT CASE
            WHEN d.classid = 'pg_attrdef'::regclass
            THEN (SELECT 'generated ' || pg_describe_object('pg_class'::regclass, g.adrelid, g.adnum)
                  FROM pg_attrdef g WHERE g.oid = d.objid AND g.adnum <> w.attnum)
            -- A check, an index or statistics may call a function that exists for the narrow type only.
            WHEN d.classid IN ('pg_constraint'::regclass, 'pg_class'::regclass, 'pg_statistic_ext'::regclass)
            THEN (SELECT format('%s with %s', pg_describe_object(d.classid, d.objid, d.objsubid),
                                string_agg(pg_describe_object(f.refclassid, f.refobjid, 0), ', '))
                  FROM pg_depend f
                  WHERE f.classid = d.classid AND f.objid = d.objid AND f.objid <> w.relid
                      AND f.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass) HAVING count(*) > 0)
            ELSE replace(pg_describe_object(d.classid, d.objid, d.objsubid), 'rule _RETURN on ', '')
        END
        FROM pg_depend d
        WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = w.relid AND d.refobjsubid = w.attnum
        UNION ALL
        SELECT format('partition key of table %s', w.relid) WHERE w.is_partition
        UNION ALL
        -- Columns that store whole rows of the table, and the type that defines a typed table.
        SELECT pg_describe_object(d.classid, d.objid, d.objsubid)
        FROM pg_depend d
        LEFT JOIN pg_class v ON d.classid = 'pg_class'::regclass AND v.oid = d.objid
        WHERE d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray) AND d.deptype <> 'i'
            AND d.classid IN ('pg_class'::regclass, 'pg_type'::regclass) AND v.relkind IS DISTINCT FROM 'v'
        UNION ALL
        SELECT pg_describe_object('pg_type'::regclass, c.reloftype, 0) WHERE c.reloftype <> 0
    ) AS b (what)
    WHERE w.is_small AND b.what IS NOT NULL HAVING count(*) > 0;

    -- A rebuilt index keeps the operator class that its definition names, and else gets the default of the type.
    RETURN QUERY SELECT '42804', format('cannot widen column "%s" of table %s to bigint', key_column, key_table),
        format('These indexes have operator classes that do not accept bigint: %s.', string_agg(DISTINCT l.label, ', ')),
        'In one transaction, drop them, convert, and create them again.'
    FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) w
    JOIN pg_index i ON i.indrelid = w.relid AND (w.attnum = ANY (i.indkey) OR EXISTS (
        SELECT FROM pg_depend d
        WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refclassid = 'pg_class'::regclass
            AND d.refobjid = w.relid AND d.refobjsubid = w.attnum)),
    LATERAL unnest((i.indkey::int2[])[0:i.indnkeyatts - 1], i.indclass::oid[]) AS part (attnum, opclass)
    JOIN pg_opclass o ON o.oid = part.opclass,
    LATERAL format('%s with %s', pg_describe_object('pg_class'::regclass, i.indexrelid, 0), o.opcname) AS l (label)
    WHERE w.is_small AND part.attnum IN (w.attnum, 0) AND o.opcintype IN ('smallint'::regtype, 'integer'::regtype)
        AND NOT (o.opcdefault AND EXISTS (
            SELECT FROM pg_opclass b
            WHERE b.opcmethod = o.opcmethod AND b.opcintype = 'bigint'::regtype AND b.opcdefault))
    HAVING count(*) > 0;

    RETURN QUERY SELECT '0A000', format('cannot rewrite table %s', w.relid), 'Its option user_catalog_table is on.',
        format('First turn it off: ALTER TABLE %s SET (user_catalog_table = off).', w.relid)
    FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) w
    JOIN pg_class c ON c.oid = w.relid
    JOIN pg_options_to_table(c.reloptions) AS o ON o.option_name = 'user_catalog_table' AND o.option_value::boolean
    WHERE w.is_small;

    RETURN QUERY SELECT '42501', format('owner of table %s may not reference table %s', f.conrelid::regclass,
                                        f.confrelid::regclass),
        format('PostgreSQL rebuilds %s.', pg_describe_object('pg_constraint'::regclass, f.oid, 0)),
        format('First run GRANT REFERENCES ON %s TO %s.', f.confrelid::regclass, c.relowner::regrole)
    FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) k
    JOIN pg_constraint f ON f.contype = 'f'
        AND (f.conrelid = k.relid AND k.attnum = ANY (f.conkey) OR f.confrelid = k.relid AND k.attnum = ANY (f.confkey))
    JOIN pg_class c ON c.oid = f.conrelid
    WHERE k.is_small AND NOT has_table_privilege(c.relowner, f.confrelid, 'REFERENCES') AND EXISTS (
        SELECT FROM unnest(f.confkey) AS u (attnum)
        WHERE NOT has_column_privilege(c.relowner, f.confrelid, u.attnum, 'REFERENCES'));

    RETURN QUERY SELECT '42501', format('must be superuser to convert together with %s',
                                        pg_describe_object('pg_statistic_ext'::regclass, s.oid, 0)),
        format('It belongs to %s, and PostgreSQL builds it again without its target.', s.stxowner::regrole),
        'Run snowflake_convert as a superuser, or drop the statistics object and create it again afterwards.'
    FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) k
    JOIN pg_class c ON c.oid = k.relid
    JOIN pg_statistic_ext s ON s.stxrelid = k.relid AND s.stxowner <> c.relowner
    WHERE k.is_small AND NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user);

    RETURN QUERY SELECT '55000', format('%s has disabled triggers',
                                        pg_describe_object('pg_constraint'::regclass, f.oid, 0)),
        'The conversion rebuilds the foreign key: this enables its triggers, and fails if a row violates it.',
        'First enable the triggers and correct the rows, or drop the foreign key.'
    FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) k
    JOIN pg_constraint f ON f.contype = 'f'
        AND (f.conrelid = k.relid AND k.attnum = ANY (f.conkey) OR f.confrelid = k.relid AND k.attnum = ANY (f.confkey))
    JOIN pg_trigger t ON t.tgconstraint = f.oid AND t.tgenabled <> 'O'
    WHERE k.is_small;

    RETURN QUERY SELECT '42501', format('row-level security hides rows of table %s', relid::regclass),
        'The conversion compares all values with the new IDs, and checks all rows against their foreign keys.',
        'Run snowflake_convert as a superuser or a role with BYPASSRLS, or remove FORCE ROW LEVEL SECURITY meanwhile.'
    FROM unnest(locked) AS relid WHERE row_security_active(relid);
END
$$;

-- Looks whether those who may insert rows may also execute the new default, which PUBLIC may unless that was revoked.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_rights(key_table regclass, key_column name, new_default text)
    RETURNS TABLE (code text, message text, detail text, hint text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT '42501', format('owner of table %s has no right on schema %I', key_table, n.nspname),
        format('%s executes ALTER TABLE, which looks up %s.', c.relowner::regrole, new_default),
        format('First run GRANT USAGE ON SCHEMA %I TO %s.', n.nspname, c.relowner::regrole)
    FROM pg_class c, pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
    WHERE c.oid = key_table AND p.oid = new_default::regprocedure
        AND NOT has_schema_privilege(c.relowner, n.oid, 'USAGE');

    RETURN QUERY SELECT '42501', format('roles that may insert into table %s may not execute %s', key_table, new_default),
        format('Their inserts would fail: %s.', string_agg(DISTINCT r.label, ', ')),
        format('First run GRANT EXECUTE ON FUNCTION %s TO %s.', new_default, string_agg(DISTINCT r.label, ', '))
    FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) k
    JOIN pg_class c ON c.oid = k.relid,
    LATERAL (
        SELECT a.grantee FROM aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
        WHERE a.privilege_type = 'INSERT'
        UNION
        SELECT a.grantee FROM pg_attribute t, aclexplode(t.attacl) a
        WHERE t.attrelid = c.oid AND a.privilege_type = 'INSERT'
    ) AS g,
    LATERAL (SELECT CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE g.grantee::regrole::text END) AS r (label)
    WHERE k.is_key AND NOT has_function_privilege(g.grantee, new_default::regprocedure, 'EXECUTE')
    HAVING count(*) > 0;
END
$$;

-- Looks whether new IDs are above all values of the key, and whether a partition takes them.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_values(key_table regclass, key_column name, highest bigint, new_id bigint)
    RETURNS TABLE (code text, message text, detail text, hint text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Another worker of this server may generate an ID below new_id, but none below the clock.
    RETURN QUERY SELECT '55000',
        format('column "%s" of table %s has values that are not lower than new IDs', key_column, key_table),
        format('The highest value is %s; an ID generated now is %s.', highest, new_id),
        'If the values are IDs of another system, give this server its layout, tick and epoch and restart it, or '
        'choose an earlier epoch. If they are IDs of this layout from a clock that was ahead, wait until that time has '
        'passed.'
    WHERE highest >= new_id OR highest >= 0 AND @extschema@.snowflake_timestamp(highest)
        + current_setting('snowflake_id.tick')::interval > clock_timestamp();

    -- Ranges or lists of the column may end where the old values end. This follows a new ID down the partitions: to the
    -- one that takes it, else to the default partition; to all of them if other columns decide as well.
    RETURN QUERY WITH RECURSIVE partition AS MATERIALIZED (
        SELECT i.inhparent, i.inhrelid, b.bound = 'DEFAULT' AS is_default, CASE
            WHEN NOT k.is_partition OR p.partstrat = 'h' THEN 'may'
            WHEN p.partnatts > 1 OR p.partattrs[0] = 0 THEN CASE b.bound WHEN 'DEFAULT' THEN 'takes' ELSE 'may' END
            WHEN b.bound = 'DEFAULT' THEN 'takes'
            WHEN p.partstrat = 'r'
                AND coalesce(substring(b.bound FROM '^FOR VALUES FROM \(''?(-?\d+)''?\)')::numeric <= new_id, true)
                AND coalesce(new_id < substring(b.bound FROM 'TO \(''?(-?\d+)''?\)$')::numeric, true) THEN 'takes'
            ELSE 'not' END AS fate
        FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) k
        JOIN pg_partitioned_table p ON p.partrelid = k.relid
        JOIN pg_inherits i ON i.inhparent = k.relid
        JOIN pg_class c ON c.oid = i.inhrelid,
        LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid)) AS b (bound)
    ), reached (relid) AS (
        SELECT k.relid::oid
        FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) k JOIN pg_class c ON c.oid = k.relid
        WHERE NOT c.relispartition
        UNION
        SELECT p.inhrelid FROM reached r JOIN partition p ON p.inhparent = r.relid
        WHERE p.fate <> 'not' AND NOT (p.is_default AND EXISTS (
            SELECT FROM partition o WHERE o.inhparent = r.relid AND o.fate = 'takes' AND NOT o.is_default))
    )
    SELECT '55000', format('no partition of table %s accepts new IDs', k.relid),
        format('Column %I is in the partition key; an ID generated now is %s.', k.attname, new_id),
        'First create a default partition, or one for a range of this column alone that holds future IDs.'
    FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) k
    JOIN reached r ON r.relid = k.relid
    JOIN pg_partitioned_table p ON p.partrelid = k.relid AND p.partstrat <> 'h'
    WHERE k.is_partition AND NOT EXISTS (SELECT FROM partition o WHERE o.inhparent = k.relid AND o.fate = 'takes');
END
$$;

-- Looks whether what depends on the columns works with a new ID: an expression may cast it to integer, or call a function
-- that has no variant for bigint. PostgreSQL evaluates these at each INSERT or ANALYZE. Of a check, only an error is a
-- reason to refuse: whether a row satisfies it can depend on other columns, so a violation is a warning.
--
-- The owner evaluates each expression over a row of its table with new IDs in place of the old value: the given one, and
-- one whose low bits are set, because a condition on these may hide the rest. A failure counts only if the expression
-- works with the old value, because nulls in other columns may make it fail in an empty table.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_expressions(key_table regclass, key_column name, new_id bigint)
    RETURNS TABLE (code text, message text, detail text, hint text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owner      constant oid := (SELECT relowner FROM pg_class WHERE oid = key_table);
    hit        record;
    new_result text;
    old_result text;
BEGIN
    FOR hit IN
        WITH columns AS MATERIALIZED (
            SELECT k.relid, k.attnum, k.attname, k.type, k.is_small, t.typtype = 'd' AS is_domain
            FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) k JOIN pg_type t ON t.oid = k.type
        ), dependents AS (
            SELECT DISTINCT k.relid, d.classid, d.objid, d.objsubid
            FROM columns k
            JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid
                AND d.refobjsubid = k.attnum
        ), expressions (relid, what, is_check, evaluation) AS (
            SELECT d.relid, pg_describe_object(d.classid, d.objid, 0), false,
                format('CASE WHEN %s THEN num_nonnulls(%s) END', coalesce(pg_get_expr(i.indpred, i.indrelid), 'true'),
                       coalesce(pg_get_expr(i.indexprs, i.indrelid), 'NULL'))
            FROM dependents d
            JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid AND NOT c.relispartition
            JOIN pg_index i ON i.indexrelid = c.oid AND coalesce(i.indpred, i.indexprs) IS NOT NULL
            UNION ALL
            -- A value that the column's length does not hold is an error, where a cast would cut it.
            SELECT d.relid, 'generated ' || pg_describe_object('pg_class'::regclass, g.attrelid, g.attnum), false,
                format(CASE g.atttypmod WHEN -1 THEN '(%1$s)::%2$s' ELSE
                           '(jsonb_populate_record(NULL::%3$s, jsonb_build_object(%4$L, (%1$s)::%2$s))).%4$I' END,
                       pg_get_expr(a.adbin, a.adrelid), format_type(g.atttypid, -1), d.relid, g.attname)
            FROM dependents d
            JOIN pg_attrdef a ON d.classid = 'pg_attrdef'::regclass AND a.oid = d.objid
            JOIN pg_attribute g ON g.attrelid = a.adrelid AND g.attnum = a.adnum AND g.attgenerated <> ''
            UNION ALL
            SELECT d.relid, pg_describe_object(d.classid, d.objid, 0),
                -- From PostgreSQL 18 on, a check may be not enforced.
                (to_jsonb(n) ->> 'conenforced') IS DISTINCT FROM 'false',
                format('bool_and(%s)', pg_get_expr(n.conbin, n.conrelid))
            FROM dependents d
            JOIN pg_constraint n ON d.classid = 'pg_constraint'::regclass AND n.oid = d.objid AND n.contype = 'c'
                AND n.coninhcount = 0
            UNION ALL
            SELECT d.relid, pg_describe_object(d.classid, d.objid, 0), false,
                format('num_nonnulls(%s)', pg_get_expr(s.stxexprs, s.stxrelid))
            FROM dependents d
            JOIN pg_statistic_ext s ON d.classid = 'pg_statistic_ext'::regclass AND s.oid = d.objid
            WHERE s.stxexprs IS NOT NULL
            UNION ALL
            SELECT d.relid, pg_describe_object(d.classid, d.objid, 0), false,
                format('num_nonnulls(%s, %s)', coalesce(pg_get_expr(p.polqual, p.polrelid), 'NULL'),
                       coalesce(pg_get_expr(p.polwithcheck, p.polrelid), 'NULL'))
            FROM dependents d JOIN pg_policy p ON d.classid = 'pg_policy'::regclass AND p.oid = d.objid
            UNION ALL
            SELECT d.relid, format('partition key of table %s', d.relid), false,
                format('num_nonnulls(%s)', pg_get_expr(p.partexprs, p.partrelid))
            FROM (SELECT DISTINCT relid FROM dependents) d
            JOIN pg_partitioned_table p ON p.partrelid = d.relid AND p.partexprs IS NOT NULL
            UNION ALL
            SELECT k.relid, format('type %s of column %I of table %s', k.type, k.attname, k.relid), false,
                format('%I::%s', k.attname, k.type)
            FROM columns k WHERE k.is_domain AND NOT k.is_small
        )
        SELECT e.what, e.is_check, format('SELECT %s FROM (SELECT ', e.evaluation) AS head, s.*
        FROM expressions e, LATERAL (
            SELECT string_agg(v.new_value, ', ' ORDER BY a.attnum) AS new_values,
                string_agg(v.old_value, ', ' ORDER BY a.attnum) AS old_values,
                -- With OFFSET, because otherwise the planner could evaluate what a CASE leaves out.
                format(' FROM unnest(ARRAY[%s, %s]) AS own (id) LEFT JOIN (SELECT * FROM %s %s LIMIT 1) AS r ON true '
                       'OFFSET 0) AS %I', new_id, new_id | 4095, CASE c.relkind WHEN 'p' THEN '' ELSE 'ONLY' END,
                       e.relid, c.relname) AS tail
            FROM pg_class c
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            LEFT JOIN columns k ON k.relid = c.oid AND k.attnum = a.attnum,
            LATERAL (SELECT
                format(CASE WHEN k.attnum IS NULL THEN 'r.%I' ELSE 'own.id AS %1$I' END, a.attname),
                format(CASE WHEN k.attnum IS NULL THEN 'r.%I' ELSE 'coalesce(r.%1$I, 1)::%2$s AS %1$I' END, a.attname,
                       CASE WHEN k.is_domain THEN 'bigint'::regtype ELSE k.type END)
            ) AS v (new_value, old_value)
            WHERE c.oid = e.relid GROUP BY c.oid, c.relkind, c.relname
        ) AS s
        ORDER BY e.relid <> key_table, e.what
    LOOP
        BEGIN
            new_result := snowflake_internal.snowflake_execute_as(owner, hit.head || hit.new_values || hit.tail);
        EXCEPTION WHEN OTHERS THEN
            -- A lock, a lack of memory and the like say nothing about the expression.
            IF left(SQLSTATE, 2) IN ('40', '53', '54', '55', '57', '58', 'XX') THEN
                RAISE;
            END IF;
            code := SQLSTATE;
            detail := format('With IDs such as %s it raises the error: %s.', new_id, SQLERRM);
        END;
        CONTINUE WHEN code IS NULL AND (NOT hit.is_check OR new_result IS DISTINCT FROM 'f');
        BEGIN
            old_result := snowflake_internal.snowflake_execute_as(owner, hit.head || hit.old_values || hit.tail);
            IF code IS NOT NULL THEN
                message := format('%s does not accept new IDs', hit.what);
                hint := 'In one transaction, drop it, convert, and create it again for any bigint.';
                RETURN NEXT;
                RETURN;
            ELSIF old_result IS DISTINCT FROM 'f' THEN
                RAISE WARNING '% does not accept new IDs', hit.what;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            code := NULL;
        END;
    END LOOP;
END
$$;

-- The statements of a conversion that passed the checks, in the order of their execution.
CREATE FUNCTION snowflake_internal.snowflake_convert_plan(
    key_table regclass, key_column name, keep_sequence boolean, locked oid[], new_default text, highest bigint
) RETURNS TABLE (statement text, locks text, rewrites boolean, note text, runs_as oid)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    owner constant oid := (SELECT relowner FROM pg_class WHERE oid = key_table);
BEGIN
    RETURN QUERY SELECT format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', string_agg(
            c.oid::regclass::text, ', ' ORDER BY c.oid <> key_table, c.oid::regclass::text)),
        'ACCESS EXCLUSIVE on these tables', false,
        'held until the transaction ends: nobody else can read or write these tables until then', owner
    FROM pg_class c
    -- LOCK TABLE reaches the partitions of a table, and the tables that inherit from it.
    WHERE c.oid = ANY (locked) AND c.relkind <> 'S' AND NOT EXISTS (
        SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid AND i.inhparent = ANY (locked));

    RETURN QUERY SELECT format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', s.identity_of, key_column),
        format('ACCESS EXCLUSIVE on %s', s.identity_of), false, 'drops its sequence, too; OVERRIDING USER VALUE then has no effect on the column', owner
    FROM snowflake_internal.snowflake_convert_sequences(key_table, key_column) s
    WHERE s.identity_of IS NOT NULL;

    -- One statement per table rewrites it once. It also reaches what inherits from the table.
    RETURN QUERY SELECT format('ALTER TABLE %s %s', w.relid, string_agg(
            format('ALTER COLUMN %I TYPE bigint', w.attname), ', ' ORDER BY w.attnum)),
        format('ACCESS EXCLUSIVE on %s', w.relid), true, (
            WITH RECURSIVE members (relid) AS (
                SELECT w.relid::oid
                UNION
                SELECT i.inhrelid FROM members m JOIN pg_inherits i ON i.inhparent = m.relid
            )
            SELECT format('rewrites %s of rows and indexes, and checks foreign keys again',
                          pg_size_pretty((SELECT sum(pg_total_relation_size(relid)) FROM members)))
                || coalesce('; published by ' || string_agg(DISTINCT quote_ident(p.pubname), ', ')
                    || ': subscribers need the wider columns first', '')
            FROM members m
            JOIN pg_class c ON c.oid = m.relid
            JOIN pg_namespace n ON n.oid = c.relnamespace
            JOIN pg_publication_tables p ON p.schemaname = n.nspname AND p.tablename = c.relname
        ), owner
    FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) w
    JOIN pg_attribute a ON a.attrelid = w.relid AND a.attnum = w.attnum AND a.attinhcount = 0
    WHERE w.is_small
    GROUP BY w.relid
    ORDER BY w.relid <> key_table, w.relid::text;

    -- PostgreSQL builds these again without their targets, and older minor versions with another owner.
    RETURN QUERY SELECT format('ALTER STATISTICS %I.%I %s', n.nspname, s.stxname, a.action),
        format('SHARE UPDATE EXCLUSIVE on table %s', s.stxrelid::regclass), false, 'the change of type resets it',
        CASE s.stxowner WHEN owner THEN owner ELSE current_user::regrole::oid END
    FROM pg_statistic_ext s
    JOIN pg_namespace n ON n.oid = s.stxnamespace,
    LATERAL (VALUES
        (s.stxstattarget >= 0, format('SET STATISTICS %s', s.stxstattarget)),
        (s.stxowner <> owner, format('OWNER TO %s', s.stxowner::regrole))
    ) AS a (is_so, action)
    WHERE a.is_so AND EXISTS (
        SELECT FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) k
        JOIN pg_depend d ON d.classid = 'pg_statistic_ext'::regclass AND d.objid = s.oid
            AND d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid AND d.refobjsubid = k.attnum
        WHERE k.is_small)
    ORDER BY n.nspname, s.stxname, a.action;
    RETURN QUERY SELECT format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', c.oid::regclass, a.attnum,
                               a.attstattarget),
        format('SHARE UPDATE EXCLUSIVE on %s', c.oid::regclass), false, 'the change of type resets it', owner
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attstattarget >= 0
    WHERE c.relkind IN ('i', 'I') AND NOT c.relispartition AND EXISTS (
        SELECT FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) k
        JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = c.oid
            AND d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid AND d.refobjsubid = k.attnum
        WHERE k.is_small)
    ORDER BY c.oid::regclass::text, a.attnum;

    RETURN QUERY SELECT format('ANALYZE %s', string_agg(DISTINCT k.relid::text COLLATE "C", ', ')),
        'SHARE UPDATE EXCLUSIVE on these tables', false,
        'the change of type drops the statistics of a column, and autovacuum does not restore them', owner
    FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) k WHERE k.is_small HAVING count(*) > 0;

    RETURN QUERY SELECT format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', key_table, key_column, new_default),
        format('ACCESS EXCLUSIVE on %s', key_table), false,
        coalesce('the highest value, ' || highest || ', is lower than every new ID', 'there is no value yet')
        || coalesce('; new IDs must satisfy ' || string_agg(
            pg_get_constraintdef(c.oid) || CASE WHEN k.relid = key_table THEN '' ELSE ' of ' || k.relid::text END,
            ', ' ORDER BY k.relid <> key_table, k.relid::text, c.conname), ''), owner
    FROM (SELECT relid, array_agg(attnum) AS attnums
          FROM snowflake_internal.snowflake_convert_columns(key_table, key_column) GROUP BY relid) AS k
    JOIN pg_constraint c ON c.contype = 'c' AND c.conrelid = k.relid AND c.conkey && k.attnums AND c.coninhcount = 0;

    RETURN QUERY SELECT
        format(CASE WHEN keep_sequence THEN 'ALTER SEQUENCE %s OWNED BY NONE' ELSE 'DROP SEQUENCE %s' END, s.seqrelid),
        format('ACCESS EXCLUSIVE on %s', s.seqrelid), false, NULL, s.relowner
    FROM snowflake_internal.snowflake_convert_sequences(key_table, key_column) s
    WHERE s.identity_of IS NULL AND (s.is_owned OR NOT keep_sequence);
END
$$;

-- The owner of a schema can rename it and put another in its place. Before this function knows that the schema named in
-- these bodies is the extension's, it calls nothing in it: so it checks its call itself, and is that long.
CREATE FUNCTION snowflake_convert(
    table_name regclass, column_name name, dry_run boolean DEFAULT true, keep_sequence boolean DEFAULT false
) RETURNS TABLE (step integer, statement text, locks text, rewrites boolean, note text)
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    -- Row-level security raises an error instead of hiding rows: the highest value must be that of all rows.
    SET row_security = off
    -- pg_get_expr() and regclass write names and literals in one way, whatever the session has set.
    SET quote_all_identifiers = off
    SET standard_conforming_strings = on
    -- The queries are long and their tables small: compiling them would take seconds while the locks are held.
    SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
    new_default text;
    runs_as     oid;
    locked      oid[];
    highest     bigint;
    new_id      bigint;
    target      record;
    refusal     record;
BEGIN
    -- Only a superuser can lock the schema's row, which keeps its name.
    IF has_table_privilege('pg_namespace', 'UPDATE') AND NOT current_setting('transaction_read_only')::boolean THEN
        PERFORM FROM pg_namespace
        WHERE oid = (SELECT extnamespace FROM pg_extension WHERE extname = 'snowflake_id') FOR KEY SHARE;
    END IF;
    SELECT c.oid, c.relkind, c.relpersistence, n.nspname, format('%I.%I', n.nspname, c.relname) AS label
    INTO target FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = table_name;
    SELECT r.* INTO refusal FROM (VALUES
        (table_name IS NULL OR column_name IS NULL OR dry_run IS NULL OR keep_sequence IS NULL, '22004',
            'arguments of snowflake_convert must not be null', 'Each argument decides what changes.',
            'Name a table and a column: snowflake_convert(''orders'', ''id'').'),
        -- An older snapshot would not show what others have committed before the lock was granted.
        (current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted'), '25001',
            'snowflake_convert must run in a READ COMMITTED transaction',
            format('This transaction is %s and may not see the newest rows.',
                   upper(current_setting('transaction_isolation'))),
            'Start the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.'),
        (current_setting('transaction_read_only')::boolean, '25006',
            'cannot execute snowflake_convert in a read-only transaction', 'A dry run locks tables, too.',
            'Run it on the primary, in a READ WRITE transaction.'),
        (NOT EXISTS (SELECT FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
                     WHERE e.extname = 'snowflake_id' AND n.nspname = (parse_ident('@extschema@'))[1]), '55000',
            'the schema of the extension snowflake_id was renamed',
            'The extension was created in schema @extschema@.', 'Rename the schema back to that name.'),
        (target.oid IS NULL, '42P01', format('table with OID %s does not exist', table_name::oid),
            'No relation of this database has that OID.', 'Pass the name of a table.'),
        (target.relkind NOT IN ('r', 'p'), '42809', format('%s is not a table', target.label),
            format('It is the %s.', pg_describe_object('pg_class'::regclass, table_name, 0)),
            'Name the table that holds the rows. Convert a foreign table on its own server.'),
        (target.oid < 16384 OR target.nspname IN ('pg_catalog', 'information_schema', 'pg_toast'), '42809',
            format('%s is a system catalog', target.label), 'It belongs to PostgreSQL.', 'Name a table of your own.'),
        (target.relpersistence = 't', '42809', format('%s is a temporary table', target.label),
            'It is dropped when its session ends.',
            format('Create it with the default: %I bigint DEFAULT @extschema@.snowflake_nextval().', column_name))
    ) AS r (is_so, code, message, detail, hint) WHERE r.is_so LIMIT 1;
    IF NOT FOUND THEN
        new_default := '@extschema@.snowflake_nextval()'::regprocedure;
        locked := snowflake_internal.snowflake_convert_lock(table_name, column_name, dry_run);
        SELECT r.* INTO refusal FROM (
            SELECT * FROM snowflake_internal.snowflake_convert_check_owners(table_name, locked)
            UNION ALL
            SELECT * FROM snowflake_internal.snowflake_convert_check_columns(table_name, column_name)
            UNION ALL
            SELECT * FROM snowflake_internal.snowflake_convert_check_key(table_name, column_name, keep_sequence, new_default)
            UNION ALL
            SELECT * FROM snowflake_internal.snowflake_convert_check_rights(table_name, column_name, new_default)
            UNION ALL
            SELECT * FROM snowflake_internal.snowflake_convert_check_widening(table_name, column_name, locked)
        ) AS r LIMIT 1;
    END IF;
    IF NOT FOUND THEN
        IF NOT EXISTS (
            SELECT FROM snowflake_internal.snowflake_convert_columns(table_name, column_name) k
            LEFT JOIN pg_attrdef d ON d.oid = k.default_id
            WHERE k.is_small OR k.is_key AND pg_get_expr(d.adbin, d.adrelid) IS DISTINCT FROM new_default
        ) THEN
            RAISE NOTICE 'column "%" of table % already generates snowflake IDs, skipping',
                column_name, table_name;
            RETURN;
        END IF;
        -- On a server that makes no IDs, the error of this call says why and what to do.
        new_id := @extschema@.snowflake_nextval();
        runs_as := (SELECT relowner FROM pg_class WHERE oid = table_name);
        highest := snowflake_internal.snowflake_execute_as(
            runs_as, format('SELECT max(%I) FROM %s', column_name, table_name));
        SELECT r.* INTO refusal
        FROM snowflake_internal.snowflake_convert_check_values(table_name, column_name, highest, new_id) r LIMIT 1;
    END IF;
    IF NOT FOUND THEN
        SELECT r.* INTO refusal
        FROM snowflake_internal.snowflake_convert_check_expressions(table_name, column_name, new_id) r LIMIT 1;
    END IF;
    IF FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = refusal.code, MESSAGE = refusal.message, DETAIL = refusal.detail, HINT = refusal.hint;
    END IF;

    step := 0;
    FOR statement, locks, rewrites, note, runs_as IN
        SELECT p.* FROM snowflake_internal.snowflake_convert_plan(
            table_name, column_name, keep_sequence, locked, new_default, highest) p
    LOOP
        step := step + 1;
        IF NOT dry_run THEN
            PERFORM snowflake_internal.snowflake_execute_as(runs_as, statement);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

REVOKE ALL ON FUNCTION snowflake_convert(regclass, name, boolean, boolean) FROM PUBLIC;

COMMENT ON FUNCTION snowflake_internal.snowflake_convert_columns(regclass, name) IS
    'internal: returns the columns that hold values of a key';
COMMENT ON FUNCTION snowflake_internal.snowflake_convert_sequences(regclass, name) IS
    'internal: returns the sequences of a key';
COMMENT ON FUNCTION snowflake_internal.snowflake_convert_lock(regclass, name, boolean) IS
    'internal: locks the tables and sequences of a conversion';
COMMENT ON FUNCTION snowflake_internal.snowflake_convert_check_columns(regclass, name) IS
    'internal: checks the columns of a conversion and their tables';
COMMENT ON FUNCTION snowflake_internal.snowflake_convert_check_key(regclass, name, boolean, text) IS
    'internal: checks index, default and sequences of a key';
COMMENT ON FUNCTION snowflake_internal.snowflake_convert_check_owners(regclass, oid[]) IS
    'internal: checks that one owner has all tables of a conversion';
COMMENT ON FUNCTION snowflake_internal.snowflake_convert_check_widening(regclass, name, oid[]) IS
    'internal: checks what becomes bigint';
COMMENT ON FUNCTION snowflake_internal.snowflake_convert_check_rights(regclass, name, text) IS
    'internal: checks that those who insert rows may execute the default';
COMMENT ON FUNCTION snowflake_internal.snowflake_convert_check_expressions(regclass, name, bigint) IS
    'internal: evaluates what depends on the columns with a new ID';
COMMENT ON FUNCTION snowflake_internal.snowflake_convert_check_values(regclass, name, bigint, bigint) IS
    'internal: compares the values of a key with new IDs';
COMMENT ON FUNCTION snowflake_internal.snowflake_convert_plan(regclass, name, boolean, oid[], text, bigint) IS
    'internal: returns the statements of a conversion';
COMMENT ON FUNCTION snowflake_convert(regclass, name, boolean, boolean) IS
    'gives a serial, identity or plain integer key a snowflake default, or in a dry run returns the steps';
