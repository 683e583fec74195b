-- The check functions of snowflake_convert() and snowflake_revert() return the obstacles to a call. This one checks the
-- call and its tables before anything is locked. Nothing in the extension's schema is called before it has passed, because
-- the schema's owner can rename it and create another one with its name.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_call(caller text, keys snowflake_internal.snowflake_key[])
    RETURNS SETOF snowflake_internal.snowflake_refusal
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT NULL, r.code, r.message, r.detail, r.hint, NULL::oid FROM (VALUES
        (keys IS NULL OR EXISTS (SELECT FROM unnest(keys) AS k WHERE k.relid IS NULL OR k.attname IS NULL), '22004',
            format('arguments of %s must not be null', caller), 'Each argument decides what changes.',
            'Name a table and a column, tables, or a schema.'),
        -- An older snapshot would not show rows that were committed during a wait for a lock.
        (current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted'), '25001',
            format('%s must run in a READ COMMITTED transaction', caller),
            format('This transaction is %s and may not see the newest rows.',
                   upper(current_setting('transaction_isolation'))),
            'Start the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.'),
        (current_setting('transaction_read_only')::boolean, '25006',
            format('cannot execute %s in a read-only transaction', caller), 'A dry run locks tables, too.',
            'Run it on the primary, in a READ WRITE transaction.'),
        (NOT EXISTS (SELECT FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
                     WHERE e.extname = 'snowflake_id' AND n.nspname = (parse_ident('@extschema@'))[1]), '55000',
            'the schema of the extension snowflake_id was renamed',
            'The extension was created in schema @extschema@.', 'Rename the schema back to that name.')
    ) AS r (is_so, code, message, detail, hint) WHERE r.is_so
    UNION ALL
    SELECT label, r.code, r.message, r.detail, r.hint, k.relid::oid
    FROM unnest(keys) AS k
    LEFT JOIN pg_class c ON c.oid = k.relid
    LEFT JOIN pg_namespace n ON n.oid = c.relnamespace,
    LATERAL concat_ws('.', quote_ident(n.nspname), quote_ident(c.relname)) AS label,
    LATERAL (VALUES
        (c.oid IS NULL, '42P01', format('table with OID %s does not exist', k.relid::oid),
            'No relation of this database has that OID.', 'Pass the name of a table.'),
        (c.relkind NOT IN ('r', 'p'), '42809', format('%s is not a table', label),
            format('It is the %s.', pg_describe_object('pg_class'::regclass, k.relid, 0)),
            'Name the table that holds the rows. Convert a foreign table on its own server.'),
        (c.oid < 16384 OR n.nspname IN ('pg_catalog', 'information_schema', 'pg_toast'), '42809',
            format('%s is a system catalog', label), 'It belongs to PostgreSQL.', 'Name a table of your own.'),
        (c.relpersistence = 't', '42809', format('%s is a temporary table', label),
            'It is dropped when its session ends.',
            format('Create it with the default: %s bigint DEFAULT %s.', quote_ident(k.attname),
                   '@extschema@.snowflake_nextval()'))
    ) AS r (is_so, code, message, detail, hint) WHERE r.is_so
$$;

-- The role that keeps the caller from changing an object, or null. It is the object's owner if that is not the current
-- user. For a superuser's call, the owners of the object and of its schema must be superusers, because another role could
-- rename the schema, and code that the call evaluates could RESET ROLE or SESSION AUTHORIZATION. So a call is a superuser's
-- if the current, the session's or the authenticated user is one.
CREATE FUNCTION snowflake_internal.snowflake_other_owner(owner oid, of_schema oid) RETURNS oid
    STABLE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN owner <> (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user) THEN owner ELSE (
        SELECT r.oid
        FROM pg_namespace n
        JOIN pg_database d ON d.datname = current_database(),
        LATERAL unnest(ARRAY[owner, CASE n.nspowner WHEN 'pg_database_owner'::regrole THEN d.datdba ELSE n.nspowner END])
            WITH ORDINALITY AS o (owner, n)
        JOIN pg_roles r ON r.oid = o.owner AND NOT r.rolsuper
        WHERE n.oid = of_schema AND EXISTS (
            SELECT FROM pg_roles s WHERE s.rolsuper AND (s.rolname IN (current_user, session_user)
                OR s.oid = (SELECT a.usesysid FROM pg_stat_get_activity(pg_backend_pid()) a)))
        ORDER BY o.n LIMIT 1) END
$$;

-- Checks that the caller owns all tables, sequences, views and statistics of a call, and sees all rows. For a superuser it
-- also checks the extension's schema, because the call executes functions there.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_owners(touched oid[])
    RETURNS SETOF snowflake_internal.snowflake_refusal
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH objects AS MATERIALIZED (
        SELECT o.owner, count(*) AS n, array_agg(o.name ORDER BY o.name) AS names,
            snowflake_internal.snowflake_other_owner(o.owner, o.of_schema) AS other
        FROM (
            SELECT c.relowner, c.relnamespace, c.oid::regclass::text COLLATE "C" FROM pg_class c WHERE c.oid = ANY (touched)
            UNION ALL
            SELECT s.stxowner, s.stxnamespace, pg_describe_object('pg_statistic_ext'::regclass, s.oid, 0)
            FROM pg_statistic_ext s WHERE s.stxrelid = ANY (touched)
            UNION ALL
            SELECT NULL, x.extnamespace, pg_describe_object('pg_extension'::regclass, x.oid, 0)
            FROM pg_extension x WHERE x.extname = 'snowflake_id'
        ) AS o (owner, of_schema, name)
        GROUP BY o.owner, o.of_schema
    ), others AS (
        SELECT o.other, sum(o.n) AS n, string_agg(array_to_string(o.names[1:50], ', '), ', ' ORDER BY o.names) AS names,
            bool_and(o.other IS DISTINCT FROM o.owner) AS has_schema
        FROM objects o WHERE o.other IS NOT NULL GROUP BY o.other
    )
    SELECT NULL, '42501', 'must be owner of all tables, sequences and views of the call',
        format(CASE WHEN bool_and(o.has_schema) THEN 'Owners of their schemas, with the number of objects: %s.'
                    ELSE 'Other owners, with the number of objects: %s.' END,
               string_agg(concat_ws(' ', o.other::regrole, o.n, '(' || o.names || ')'), ', ' ORDER BY o.other)),
        CASE WHEN bool_and(o.has_schema)
            THEN 'A superuser''s call needs schemas of superusers: give them to one, or the objects to a role that is none.'
            WHEN (SELECT count(DISTINCT s.owner) FROM objects s) > 1
            THEN 'Pass tables of one owner, or exclude those of others. Where foreign keys, inheritance, views or statistics '
                'connect what different owners have, give it one owner, or drop the connection first.'
            ELSE format('Connect as %s, which needs EXECUTE on the function, or as a member of it that is no superuser and '
                        'SET ROLE to it.', min(o.other)::regrole) END, NULL::oid
    FROM others o WHERE o.has_schema = (SELECT bool_and(a.has_schema) FROM others a) HAVING count(*) > 0
    UNION ALL
    SELECT NULL, '42501', format('permission denied for schema %I', n.nspname),
        format('The call locks and changes %s.', min(c.oid::regclass::text COLLATE "C")),
        format('First run GRANT USAGE ON SCHEMA %I TO %I.', n.nspname, current_user), NULL::oid
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = ANY (touched) AND NOT has_schema_privilege(n.oid, 'USAGE') GROUP BY n.nspname
    UNION ALL
    SELECT NULL, '42501', format('row-level security hides rows of table %s', relid::regclass),
        'The call needs the highest of all values, and evaluates expressions and foreign keys over the rows.',
        format('First run ALTER TABLE %s NO FORCE ROW LEVEL SECURITY, and FORCE it again afterwards.', relid::regclass),
        NULL::oid
    FROM unnest(touched) AS relid WHERE row_security_active(relid)
$$;

-- Checks the key columns and the tables of their families.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_columns(keys snowflake_internal.snowflake_key[])
    RETURNS SETOF snowflake_internal.snowflake_refusal
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT described, r.code, r.message, r.detail, r.hint, k.relid::oid
    FROM unnest(keys) AS k
    LEFT JOIN pg_attribute a ON a.attrelid = k.relid AND a.attname = k.attname AND NOT a.attisdropped,
    LATERAL format('column "%s" of table %s', k.attname, k.relid) AS described,
    LATERAL (VALUES
        (a.attnum IS NULL, '42703', format('%s does not exist', described), 'The table has no column of that name.',
            'Check the spelling: upper and lower case differ.'),
        (a.attnum < 0 OR a.attgenerated <> '', '42809',
            format('%s is a %s column', described, CASE WHEN a.attnum < 0 THEN 'system' ELSE 'generated' END),
            'PostgreSQL computes its values.', 'Name the column that holds the key.'),
        (a.attinhcount > 0, '42P16', format('%s is inherited', described),
            format('It comes from %s.', (SELECT string_agg(pg_describe_object('pg_class'::regclass, inhparent, 0), ', ')
                                         FROM pg_inherits WHERE inhrelid = k.relid)),
            'Name that table: this includes its partitions and the tables that inherit from it.'),
        (a.atttypid NOT IN ('bigint'::regtype, 'integer'::regtype, 'smallint'::regtype), '42804',
            format('%s is of type %s', described, a.atttypid::regtype),
            'Only bigint, integer and smallint columns can be converted.',
            'Change the column to bigint first, or add a bigint column to replace it.')
    ) AS r (is_so, code, message, detail, hint) WHERE r.is_so;

    RETURN QUERY SELECT label, '0A000',
        format('cannot convert column "%s" of table %s together with %s', k.key_attname, k.key_relid, label), r.why, r.hint,
        k.key_relid::oid
    FROM snowflake_internal.snowflake_convert_columns(keys) k
    JOIN pg_class c ON c.oid = k.relid
    JOIN pg_type t ON t.oid = k.type,
    LATERAL pg_describe_object('pg_class'::regclass, k.relid, 0) AS label,
    LATERAL (VALUES
        (c.relkind = 'f', 'It is a foreign table: its rows are on another server.',
            'Detach it first, and convert it on that server.'),
        ((SELECT count(*) FROM pg_inherits WHERE inhrelid = k.relid) > 1, 'It inherits from more than one table.',
            'First remove it from the inheritance, with ALTER TABLE ... NO INHERIT.'),
        (EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = k.relid AND deptype = 'e'),
            'It belongs to an extension, and a restored dump would have the extension''s definition again.',
            'Convert a table that belongs to no extension.'),
        (t.typtype = 'd' AND k.is_small, format('Its column %I references the key and has the domain %s over %s.',
                                 k.attname, k.type, t.typbasetype::regtype),
            'First change that column to bigint, or to a domain over bigint.')
    ) AS r (is_so, why, hint)
    WHERE r.is_so AND (k.is_key OR k.is_small);

    -- The catalog of distributed tables that Citus creates.
    IF to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL THEN
        RETURN QUERY SELECT format('column "%s" of table %s', k.attname, k.relid), '0A000',
            format('cannot convert column "%s" of table %s together with column "%s" of table %s',
                   k.key_attname, k.key_relid, k.attname, k.relid),
            'Citus distributes the table by this column, and changes neither its type nor its default.',
            format('Call undistribute_table(%L), convert, and call create_distributed_table(%1$L, %L), '
                   'also for tables that are colocated with it.', k.relid, k.attname), k.key_relid::oid
        FROM snowflake_internal.snowflake_convert_columns(keys) k
        JOIN pg_catalog.pg_dist_partition d ON d.logicalrelid = k.relid
            AND substring(d.partkey::text FROM ':varattno (\d+)')::integer = k.attnum
        WHERE k.is_key OR k.is_small;
    END IF;
END
$$;

-- Checks the indexes, defaults and sequences of the keys, and that the roles that may insert rows may also execute the new
-- default, as PUBLIC may unless that was revoked.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_keys(
    keys snowflake_internal.snowflake_key[], keep_sequence boolean, new_default regprocedure
) RETURNS SETOF snowflake_internal.snowflake_refusal
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT described, r.code, r.message, r.detail, r.hint, NULL::oid
    FROM unnest(keys) AS k
    JOIN pg_class c ON c.oid = k.relid
    JOIN pg_attribute a ON a.attrelid = k.relid AND a.attname = k.attname,
    LATERAL format('column "%s" of table %s', k.attname, k.relid) AS described,
    LATERAL (
        SELECT string_agg(DISTINCT pg_describe_object('pg_class'::regclass, f.confrelid, 0), ', ') FROM pg_constraint f
        WHERE f.contype = 'f' AND f.conrelid = k.relid AND a.attnum = ANY (f.conkey) AND f.conparentid = 0
    ) AS f (referenced),
    LATERAL (VALUES
        (NOT EXISTS (
                SELECT FROM pg_index i
                WHERE i.indrelid = k.relid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
                    AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])), '42P10',
            format('%s is not a key', described), 'It is in no primary key, unique constraint or unique index.',
            format(CASE c.relkind WHEN 'p' THEN 'If its values are unique, declare it first, together with the columns of '
                    'the partition key: ALTER TABLE %s ADD UNIQUE (%I, ...).'
                ELSE 'If its values are unique, declare it first: ALTER TABLE %s ADD UNIQUE (%I).' END, k.relid, k.attname)),
        (f.referenced IS NOT NULL, '42809', format('%s is a foreign key', described),
            format('It references %s.', f.referenced),
            'Convert the referenced column, which also widens the foreign key, and exclude this one''s table from a set.')
    ) AS r (is_so, code, message, detail, hint) WHERE r.is_so
    UNION ALL
    SELECT described, '42611', format('%s has a default that is not a sequence', described),
        format('The default is %s.', expression),
        format('If nothing needs the default, drop it first: ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT.',
               k.relid, k.attname), NULL::oid
    FROM snowflake_internal.snowflake_convert_columns(keys) k
    JOIN pg_attrdef d ON d.oid = k.default_id,
    LATERAL format('column "%s" of table %s', k.attname, k.relid) AS described,
    LATERAL pg_get_expr(d.adbin, d.adrelid) AS expression
    WHERE k.is_key AND expression <> new_default::text AND NOT EXISTS (
        -- A serial column calls nextval(), a column of pgEdge's extension snowflake.nextval().
        SELECT FROM snowflake_internal.snowflake_convert_sequences(keys) s
        WHERE regexp_replace(expression, '^snowflake\.', '')
            = format('nextval(''%s''::regclass)', replace(s.seqrelid::text, '''', '''''')))
    UNION ALL
    SELECT format('sequence %s', s.seqrelid), r.code, r.message, r.detail, r.hint, NULL::oid
    FROM snowflake_internal.snowflake_convert_sequences(keys) s,
    LATERAL (VALUES
        (s.is_stray, '55000', format('sequence %s belongs to an identity that column "%s" of table %s does not have',
                                     s.seqrelid, s.attname, s.relid),
            'The extension of pgEdge leaves such sequences. They break dumps, too.',
            format('As a superuser, make it a sequence that the column owns: UPDATE pg_depend SET deptype = ''a'' '
                   'WHERE classid = ''pg_class''::regclass AND objid = %s AND deptype = ''i''.', s.seqrelid::oid)),
        (keep_sequence AND s.is_identity, '0A000',
            format('cannot keep sequence %s of an identity column', s.seqrelid),
            'PostgreSQL drops the sequence of an identity together with the identity.',
            'Convert without keep_sequence. If something else needs a sequence, create another one first.'),
        (NOT keep_sequence AND NOT s.stays AND s.users IS NOT NULL, '2BP01',
            format('cannot drop sequence %s because other objects depend on it', s.seqrelid),
            format('These objects depend on it: %s.', s.users),
            CASE WHEN s.is_identity THEN 'Convert or drop these objects first.'
                 ELSE 'Keep it with keep_sequence => true, or convert or drop these objects first.' END)
    ) AS r (is_so, code, message, detail, hint) WHERE r.is_so
    UNION ALL
    SELECT NULL, '42501',
        format('roles that may insert into table %s may not execute %s', k.key_relid, new_default),
        format('Their inserts would fail: %s.', string_agg(DISTINCT r.label, ', ')),
        format('First run GRANT EXECUTE ON FUNCTION %s TO %s.', new_default, string_agg(DISTINCT r.label, ', ')), NULL::oid
    FROM snowflake_internal.snowflake_convert_columns(keys) k,
    LATERAL snowflake_internal.snowflake_convert_inserters(k.relid) AS r
    WHERE k.is_key AND NOT has_function_privilege(r.role, new_default, 'EXECUTE')
    GROUP BY k.key_relid
$$;

-- The roles that may insert rows into a table, or into some of its columns; 0 for PUBLIC.
CREATE FUNCTION snowflake_internal.snowflake_convert_inserters(relid regclass) RETURNS TABLE (role oid, label text)
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT DISTINCT a.grantee, snowflake_internal.snowflake_grantee(a.grantee)
    FROM (
        SELECT coalesce(c.relacl, acldefault('r', c.relowner)) FROM pg_class c WHERE c.oid = relid
        UNION ALL
        SELECT t.attacl FROM pg_attribute t WHERE t.attrelid = relid
    ) AS o (acl), aclexplode(o.acl) AS a
    WHERE a.privilege_type = 'INSERT'
$$;

-- Finds the objects that keep PostgreSQL from widening a column, which would stop at the first, in the middle of the
-- conversion.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_widening(keys snowflake_internal.snowflake_key[])
    RETURNS SETOF snowflake_internal.snowflake_refusal
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    (SELECT b.what, '2BP01',
        format('cannot widen %s to bigint', min(format('column "%s" of table %s', w.attname, w.relid) COLLATE "C")),
        format('The %s depends on it.', b.what),
        CASE WHEN starts_with(b.what, 'partition')
            THEN 'A partition key keeps its type: copy the rows into a new table whose column is bigint.'
            ELSE 'In one transaction, drop the object, convert, and create it again.' END, NULL::oid
    FROM snowflake_internal.snowflake_convert_columns(keys) w
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
                      AND f.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
                      AND snowflake_internal.snowflake_convert_has(d.classid, d.objid, w.attnum) HAVING count(*) > 0)
            ELSE replace(pg_describe_object(d.classid, d.objid, d.objsubid), 'rule _RETURN on ', '')
        END
        FROM pg_depend d
        WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = w.relid AND d.refobjsubid = w.attnum
            AND NOT EXISTS (
                -- These are created again.
                SELECT FROM pg_rewrite r JOIN snowflake_internal.snowflake_convert_readers(keys, false) v ON v.id = r.ev_class
                WHERE d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid)
        UNION ALL
        SELECT format('partition key of table %s', w.relid) WHERE w.is_partition
        UNION ALL
        -- Columns that store whole rows of the table, or of a view with such a column; and the type that defines a typed
        -- table.
        SELECT pg_describe_object(d.classid, d.objid, d.objsubid)
        FROM (
            WITH RECURSIVE holding (oid, typarray) AS (
                SELECT t.oid, t.typarray
                UNION
                SELECT y.oid, y.typarray
                FROM holding h
                JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_type'::regclass
                    AND d.refobjid IN (h.oid, h.typarray)
                JOIN pg_class v ON v.oid = d.objid AND v.relkind = 'v'
                JOIN pg_type y ON y.oid = v.reltype
            )
            SELECT h.oid, h.typarray FROM holding h
        ) AS h
        JOIN pg_depend d ON d.refobjid IN (h.oid, h.typarray)
        LEFT JOIN pg_class v ON d.classid = 'pg_class'::regclass AND v.oid = d.objid
        WHERE d.refclassid = 'pg_type'::regclass AND d.deptype <> 'i'
            AND d.classid IN ('pg_class'::regclass, 'pg_type'::regclass) AND v.relkind IS DISTINCT FROM 'v'
        UNION ALL
        SELECT pg_describe_object('pg_type'::regclass, c.reloftype, 0) WHERE c.reloftype <> 0
    ) AS b (what)
    WHERE w.is_small AND b.what IS NOT NULL
    GROUP BY b.what ORDER BY b.what COLLATE "C")
    UNION ALL
    SELECT DISTINCT r.object, r.code,
        coalesce(r.message, format('cannot widen column "%s" of table %s to bigint', w.attname, w.relid)), r.detail, r.hint,
        NULL::oid
    FROM (
        SELECT DISTINCT k.relid, k.attnum, k.attname
        FROM snowflake_internal.snowflake_convert_columns(keys) k WHERE k.is_small
    ) AS w
    JOIN pg_class c ON c.oid = w.relid,
    LATERAL (
        -- A rebuilt index keeps the operator class that its definition names, and else gets the default of the type.
        SELECT l.label, '42804', NULL, format('The operator class does not accept bigint: %s.', l.label),
            'In one transaction, drop the index, convert, and create it again.'
        FROM pg_index i,
        LATERAL unnest((i.indkey::int2[])[0:i.indnkeyatts - 1], i.indclass::oid[]) AS part (attnum, opclass)
        JOIN pg_opclass o ON o.oid = part.opclass,
        LATERAL format('%s with %s', pg_describe_object('pg_class'::regclass, i.indexrelid, 0), o.opcname) AS l (label)
        WHERE i.indrelid = w.relid AND (w.attnum = ANY (i.indkey) OR EXISTS (
                SELECT FROM pg_depend d
                WHERE d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refclassid = 'pg_class'::regclass
                    AND d.refobjid = w.relid AND d.refobjsubid = w.attnum))
            AND part.attnum IN (w.attnum, 0) AND o.opcintype IN ('smallint'::regtype, 'integer'::regtype)
            AND NOT (o.opcdefault AND EXISTS (
                SELECT FROM pg_opclass b
                WHERE b.opcmethod = o.opcmethod AND b.opcintype = 'bigint'::regtype AND b.opcdefault))
        UNION ALL
        SELECT format('table %s', w.relid), '0A000', format('cannot rewrite table %s', w.relid),
            'Its option user_catalog_table is on.',
            format('First turn it off: ALTER TABLE %s SET (user_catalog_table = off).', w.relid)
        FROM pg_options_to_table(c.reloptions) AS o WHERE o.option_name = 'user_catalog_table' AND o.option_value::boolean
        UNION ALL
        -- PostgreSQL builds the index of a partition again under another name, and forgets that it was the replica
        -- identity: UPDATE and DELETE of a published table would fail.
        SELECT label, '0A000', NULL,
            format('Partition %s has the replica identity %s, which its parent''s index builds again.', w.relid, label),
            format('First run ALTER TABLE %s REPLICA IDENTITY FULL, and set the index again afterwards.', w.relid)
        FROM pg_index i
        JOIN pg_class x ON x.oid = i.indexrelid AND x.relispartition,
        LATERAL pg_describe_object('pg_class'::regclass, i.indexrelid, 0) AS label
        WHERE i.indrelid = w.relid AND i.indisreplident AND w.attnum = ANY (i.indkey)
        UNION ALL
        -- From PostgreSQL 18 on, NOT NULL has a name, and that of a parent is given to its children again.
        SELECT pg_describe_object('pg_constraint'::regclass, o.oid, 0), '55000', NULL,
            format('Table %s names its NOT NULL constraint %I, and its parent %I.', w.relid, o.conname, p.conname),
            format('First run ALTER TABLE %1$s NO INHERIT %2$s, ALTER TABLE %1$s RENAME CONSTRAINT %3$I TO %4$I, and '
                   'ALTER TABLE %1$s INHERIT %2$s.', w.relid, i.inhparent::regclass, o.conname, p.conname)
        FROM pg_inherits i
        JOIN pg_attribute a ON a.attrelid = i.inhparent AND a.attname = w.attname
        JOIN pg_constraint o ON o.contype = 'n' AND o.conrelid = w.relid AND o.conkey = ARRAY[w.attnum]
        JOIN pg_constraint p ON p.contype = 'n' AND p.conrelid = i.inhparent AND p.conkey = ARRAY[a.attnum]
            AND NOT p.connoinherit AND p.conname <> o.conname
        WHERE i.inhrelid = w.relid AND NOT c.relispartition
        UNION ALL
        SELECT r.object, r.code, r.message, r.detail, r.hint
        FROM pg_constraint f,
        LATERAL pg_describe_object('pg_constraint'::regclass, f.oid, 0) AS label,
        LATERAL (VALUES
            -- Its two columns have one type, also between the changes of its two tables.
            (f.conrelid = w.relid AND f.confrelid <> f.conrelid AND to_jsonb(f) ->> 'conperiod' = 'true' AND EXISTS (
                    SELECT FROM snowflake_internal.snowflake_convert_columns(keys) r
                    WHERE r.relid = f.confrelid AND r.is_small AND r.attnum = ANY (f.confkey)), label, '0A000', NULL,
                format('The %s is temporal.', label),
                'In one transaction, drop it, convert, change its column to bigint, and create it again.'),
            (NOT has_table_privilege(f.confrelid, 'REFERENCES') AND EXISTS (
                    SELECT FROM unnest(f.confkey) AS u (attnum)
                    WHERE NOT has_column_privilege(f.confrelid, u.attnum, 'REFERENCES')), NULL, '42501',
                format('cannot reference table %s', f.confrelid::regclass), format('PostgreSQL rebuilds %s.', label),
                format('First run GRANT REFERENCES ON %s TO %I.', f.confrelid::regclass, current_user)),
            (EXISTS (SELECT FROM pg_trigger t WHERE t.tgconstraint = f.oid AND t.tgenabled <> 'O'), label, '55000',
                format('%s has disabled triggers', label),
                'The conversion rebuilds the foreign key: this enables its triggers, and fails if a row violates it.',
                'First enable the triggers and correct the rows, or drop the foreign key.')
        ) AS r (is_so, object, code, message, detail, hint)
        WHERE f.contype = 'f' AND r.is_so
            AND (f.conrelid = w.relid AND w.attnum = ANY (f.conkey) OR f.confrelid = w.relid AND w.attnum = ANY (f.confkey))
    ) AS r (object, code, message, detail, hint)
$$;

-- Whether an index has the column, or the whole row, in its expressions or its predicate. An index of the plain column is
-- rebuilt, and its functions of other columns do not matter. True for an object of any other kind.
CREATE FUNCTION snowflake_internal.snowflake_convert_has(class oid, object oid, attnum smallint) RETURNS boolean
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT class <> 'pg_class'::regclass OR EXISTS (
        SELECT FROM pg_index i
        WHERE i.indexrelid = object
            AND concat(i.indexprs::text, i.indpred::text) ~ format(':varattno (%s|0) ', attnum))
$$;

-- Checks that PostgreSQL can plan a query of each table. The planner inlines the SQL functions that an index calls, with
-- the conversion's search_path, as ANALYZE does, and from PostgreSQL 17 on CREATE INDEX.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_plans(keys snowflake_internal.snowflake_key[])
    RETURNS SETOF snowflake_internal.snowflake_refusal
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    hit record;
BEGIN
    FOR hit IN
        SELECT k.relid, min(k.key_relid::oid) FILTER (WHERE k.is_key) AS unread,
            string_agg(DISTINCT i.indexrelid::regclass::text, ', ') AS indexes,
            string_agg(DISTINCT format('ALTER FUNCTION %s SET search_path = %s, pg_temp', p.oid::regprocedure,
                                       p.pronamespace::regnamespace), '; ') AS remedy
        FROM snowflake_internal.snowflake_convert_columns(keys) k
        JOIN pg_index i ON i.indrelid = k.relid
        JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = i.indexrelid AND d.refclassid = 'pg_proc'::regclass
        JOIN pg_proc p ON p.oid = d.refobjid AND p.proconfig IS NULL
        JOIN pg_language l ON l.oid = p.prolang AND l.lanname = 'sql'
        WHERE k.is_key OR k.is_small
        GROUP BY k.relid ORDER BY k.relid::text COLLATE "C"
    LOOP
        BEGIN
            EXECUTE format('SELECT FROM ONLY %s LIMIT 0', hit.relid);
        EXCEPTION WHEN undefined_function OR undefined_table OR undefined_object OR undefined_column THEN
            RETURN NEXT (format('index %s', hit.indexes), SQLSTATE,
                format('cannot read table %s by search_path = pg_catalog, pg_temp', hit.relid),
                format('A function in index %s raises the error: %s.', hit.indexes, SQLERRM),
                format('First run %s; with all schemas whose objects the function names without them.', hit.remedy),
                hit.unread)::snowflake_internal.snowflake_refusal;
        END;
    END LOOP;
END
$$;

-- Checks that new IDs are above all values of the keys, and that a partition accepts them. Another worker of this server
-- may generate an ID below new_id, but none below `lowest`, the lowest of the clock's tick.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_values(
    keys snowflake_internal.snowflake_key[], new_id bigint, lowest bigint
) RETURNS SETOF snowflake_internal.snowflake_refusal
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT described, '55000', format('%s has values that are not lower than new IDs', described),
        format('The highest value is %s; an ID generated now is %s.', k.highest, new_id),
        'If the values are IDs of another system, give this server its layout, tick and epoch and restart it, or '
        'choose an earlier epoch. If they are IDs of this layout from a clock that was ahead, wait until that time has '
        'passed.', NULL::oid
    FROM unnest(keys) AS k, LATERAL format('column "%s" of table %s', k.attname, k.relid) AS described
    WHERE k.highest >= least(new_id, lowest)
    UNION ALL
    -- Ranges or lists of the column may end where the old values end. This follows a new ID down the partitions: to the
    -- one that takes it, else to the default partition; to all of them if other columns decide as well.
    (WITH RECURSIVE family AS MATERIALIZED (
        SELECT DISTINCT k.relid, k.attname, k.attnum, k.is_partition
        FROM snowflake_internal.snowflake_convert_columns(keys) k
    ), partition AS MATERIALIZED (
        SELECT i.inhparent, i.inhrelid, b.bound = 'DEFAULT' AS is_default, CASE
            WHEN NOT k.is_partition OR p.partstrat = 'h' THEN 'may'
            WHEN p.partnatts > 1 OR p.partattrs[0] = 0 THEN CASE b.bound WHEN 'DEFAULT' THEN 'takes' ELSE 'may' END
            WHEN b.bound = 'DEFAULT' THEN 'takes'
            WHEN p.partstrat = 'r'
                AND coalesce(substring(b.bound FROM '^FOR VALUES FROM \(''?(-?\d+)''?\)')::numeric <= new_id, true)
                AND coalesce(new_id < substring(b.bound FROM 'TO \(''?(-?\d+)''?\)$')::numeric, true) THEN 'takes'
            ELSE 'not' END AS fate
        FROM family k
        JOIN pg_partitioned_table p ON p.partrelid = k.relid
        JOIN pg_inherits i ON i.inhparent = k.relid
        JOIN pg_class c ON c.oid = i.inhrelid,
        LATERAL (SELECT pg_get_expr(c.relpartbound, c.oid)) AS b (bound)
        -- Ignore this column if another one of the family is in the table's partition key.
        WHERE k.is_partition OR NOT EXISTS (SELECT FROM family o WHERE o.relid = k.relid AND o.is_partition)
    ), reached (relid) AS (
        SELECT k.relid::oid FROM family k JOIN pg_class c ON c.oid = k.relid WHERE NOT c.relispartition
        UNION
        SELECT p.inhrelid FROM reached r JOIN partition p ON p.inhparent = r.relid
        WHERE p.fate <> 'not' AND NOT (p.is_default AND EXISTS (
            SELECT FROM partition o WHERE o.inhparent = r.relid AND o.fate = 'takes' AND NOT o.is_default))
    )
    SELECT format('table %s', k.relid), '55000', format('no partition of table %s accepts new IDs', k.relid),
        format('Column %I is in the partition key; an ID generated now is %s.', k.attname, new_id),
        'First create a default partition, or one for a range of this column alone that holds future IDs.', NULL::oid
    FROM family k
    JOIN reached r ON r.relid = k.relid
    JOIN pg_partitioned_table p ON p.partrelid = k.relid AND p.partstrat <> 'h'
    WHERE k.is_partition AND NOT EXISTS (SELECT FROM partition o WHERE o.inhparent = k.relid AND o.fate = 'takes'))
$$;

-- Checks that expressions that depend on the columns work with a new ID: one may cast it to integer, or call a function
-- without a variant for bigint. PostgreSQL evaluates them at each INSERT or ANALYZE. If a CHECK constraint raises an error,
-- that is an obstacle; a violation can be due to other columns, so it is a warning.
--
-- Each expression is evaluated over a row of its table with new IDs in place of the old values: the given one, and
-- one whose low bits are set, because a condition on these may hide the rest. Each column has IDs of another millisecond,
-- later ones first if a check does not accept earlier ones first. A failure counts only if the expression works with the
-- old values, because nulls in other columns may make it fail in an empty table.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_expressions(
    keys snowflake_internal.snowflake_key[], new_id bigint
) RETURNS SETOF snowflake_internal.snowflake_refusal
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    hit        record;
    new_result text;
    old_result text;
    error      text;
    detail     text;
BEGIN
    FOR hit IN
        WITH columns AS MATERIALIZED (
            SELECT k.relid, k.attnum, k.attname, k.type, bool_or(k.is_key OR k.is_small) AS is_changed, k.is_small,
                t.typtype = 'd' AS is_domain,
                (row_number() OVER (PARTITION BY k.relid ORDER BY k.attnum) - 1) * 4194304 AS later
            FROM snowflake_internal.snowflake_convert_columns(keys) k JOIN pg_type t ON t.oid = k.type
            WHERE k.is_key OR k.is_small OR k.is_own
            GROUP BY k.relid, k.attnum, k.attname, k.type, k.is_small, t.typtype
        ), dependents AS (
            SELECT DISTINCT k.relid, d.classid, d.objid, d.objsubid
            FROM columns k
            JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = k.relid
                AND d.refobjsubid = k.attnum
            WHERE snowflake_internal.snowflake_convert_has(d.classid, d.objid, k.attnum)
                -- Skips the obstacles to widening.
                AND NOT (k.is_small AND (d.classid = 'pg_attrdef'::regclass OR EXISTS (
                    SELECT FROM pg_depend f
                    WHERE f.classid = d.classid AND f.objid = d.objid
                        AND f.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass))))
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
                           '(SELECT g FROM jsonb_to_record(jsonb_build_object(''g'', (%1$s)::%2$s)) AS g (g %3$s))' END,
                       pg_get_expr(a.adbin, a.adrelid), format_type(g.atttypid, -1), format_type(g.atttypid, g.atttypmod))
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
                -- With OFFSET, because otherwise the planner could evaluate a branch that a CASE skips.
                format(' FROM unnest(ARRAY[%s, %s]) AS own (id) LEFT JOIN (SELECT * FROM %s %s LIMIT 1) AS r ON true '
                       'OFFSET 0) AS %I', new_id, new_id | 4095,
                       -- Partitions of a table that is not changed may belong to another role.
                       CASE WHEN c.relkind = 'p' AND bool_or(k.is_changed) THEN '' ELSE 'ONLY' END, e.relid, c.relname
                ) AS tail
            FROM pg_class c
            JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            LEFT JOIN columns k ON k.relid = c.oid AND k.attnum = a.attnum,
            LATERAL (SELECT
                format(CASE WHEN k.attnum IS NULL THEN 'r.%I' ELSE 'own.id + $1 * %2$s AS %1$I' END, a.attname, k.later),
                format(CASE WHEN k.attnum IS NULL THEN 'r.%I' ELSE 'coalesce(r.%1$I, 1)::%2$s AS %1$I' END, a.attname,
                       CASE WHEN k.is_domain THEN 'bigint'::regtype ELSE k.type END)
            ) AS v (new_value, old_value)
            WHERE c.oid = e.relid GROUP BY c.oid, c.relkind, c.relname
        ) AS s
        ORDER BY e.relid NOT IN (SELECT k.relid FROM unnest(keys) AS k), e.what
    LOOP
        error := NULL;
        BEGIN
            EXECUTE hit.head || hit.new_values || hit.tail INTO new_result USING 1::bigint;
            IF hit.is_check AND new_result = 'false' THEN
                EXECUTE hit.head || hit.new_values || hit.tail INTO new_result USING -1::bigint;
            END IF;
        EXCEPTION WHEN OTHERS THEN
            -- A lock, a lack of memory and the like are no faults of the expression.
            IF left(SQLSTATE, 2) IN ('40', '53', '54', '55', '57', '58', 'XX') THEN
                RAISE;
            END IF;
            error := SQLSTATE;
            detail := format('With IDs such as %s it raises the error: %s.', new_id, SQLERRM);
        END;
        CONTINUE WHEN error IS NULL AND (NOT hit.is_check OR new_result IS DISTINCT FROM 'false');
        BEGIN
            EXECUTE hit.head || hit.old_values || hit.tail INTO old_result;
            CONTINUE WHEN error IS NULL AND old_result = 'false';
            RETURN NEXT (hit.what, coalesce(error, '01000'), format('%s does not accept new IDs', hit.what),
                CASE WHEN error IS NULL THEN format('An ID such as %s violates it.', new_id) ELSE detail END,
                CASE WHEN error IS NULL THEN 'If it rejects every new ID, drop it, or replace it by one that accepts them.'
                    ELSE 'In one transaction, drop it, convert, and create it again for any bigint.' END,
                NULL)::snowflake_internal.snowflake_refusal;
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
    END LOOP;
END
$$;
