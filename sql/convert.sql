-- Conversion of a key to snowflake IDs. What the function calls and what it executes is found in pg_catalog
-- or named with its schema: no search_path, and no function or operator of the same name, can come between.
-- A row is a statement; the dry run returns what the real run would execute.

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
    -- So that pg_get_expr() writes a literal in one way, whatever the session says.
    SET standard_conforming_strings = on
    -- The queries here are long and their tables are small: to compile them takes seconds, under the lock.
    SET jit = off
AS $convert$
#variable_conflict use_variable
DECLARE
    new_default text;
    small_types constant oid[] := ARRAY['smallint'::regtype, 'integer'::regtype];
    label       text;     -- the table, qualified and quoted
    described   text;     -- the column, for messages
    target      record;
    key         record;
    hit         record;
    family      oid[];    -- the table and all that inherit from it
    widened     oid[];    -- tables with a column that becomes bigint, its partitions and parents included
    positions   int2[];   -- of those columns; a table with two of them stands twice in both arrays
    locked      oid[];
    missing     oid[];    -- tables that are to be locked next, and their names
    names       text[];
    sequence    record;
    blockers    text;
    highest     bigint;
    new_id      bigint;
    too_high    boolean;
    bounds      text;
    has_partition boolean;
    last_value  bigint;
    is_called   boolean;
    plan        text[] := '{}';   -- a row of statement, locks, rewrites and note for each step
    row_of_plan text[];
    remark      text;
    privilege   record;
BEGIN
    -- ---- the arguments ----

    IF table_name IS NULL OR column_name IS NULL OR dry_run IS NULL OR keep_sequence IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'null_value_not_allowed',
            MESSAGE = 'no argument of snowflake_convert may be null',
            HINT = 'Name a table and a column: snowflake_convert(''orders'', ''id'').';
    END IF;
    -- An older snapshot would not show what others have committed before the lock was granted.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION USING ERRCODE = 'active_sql_transaction',
            MESSAGE = 'snowflake_convert must run in a READ COMMITTED transaction',
            DETAIL = format('This one is %s: it may not see the newest rows of the table.',
                            upper(current_setting('transaction_isolation'))),
            HINT = 'Start the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.';
    END IF;
    IF current_setting('transaction_read_only')::boolean THEN
        RAISE EXCEPTION USING ERRCODE = 'read_only_sql_transaction',
            MESSAGE = 'cannot convert a key in a read-only transaction',
            HINT = 'Convert it on the primary, in a transaction that is READ WRITE.';
    END IF;
    -- The owner of a schema can rename it and put another in its place. The name in these bodies must still be that of
    -- the extension's schema, and stay so; only a superuser can lock it.
    IF has_table_privilege('pg_namespace', 'UPDATE') THEN
        PERFORM FROM pg_namespace
        WHERE oid = (SELECT extnamespace FROM pg_extension WHERE extname = 'snowflake_id') FOR KEY SHARE;
    END IF;
    IF NOT EXISTS (
        SELECT FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
        WHERE e.extname = 'snowflake_id' AND n.nspname = (parse_ident('@extschema@'))[1]
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'the schema of the extension snowflake_id was renamed',
            DETAIL = 'It was @extschema@ when the extension was created.',
            HINT = 'Give the schema that name again.';
    END IF;

    new_default := '@extschema@.snowflake_nextval()'::regprocedure::text;

    -- ---- the table: what can be said before it is locked ----

    SELECT c.oid, c.relkind, c.relpersistence, n.nspname, c.relname INTO target
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = table_name;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_table',
            MESSAGE = format('there is no table with the OID %s', table_name::oid),
            HINT = 'Give the name of a table.';
    END IF;
    label := format('%I.%I', target.nspname, target.relname);
    described := format('column "%s" of table %s', column_name, label);
    IF target.relkind NOT IN ('r', 'p') THEN
        RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
            MESSAGE = format('%s is not a table of this database', label),
            DETAIL = format('It is the %s.', pg_describe_object('pg_class'::regclass, table_name, 0)),
            HINT = 'Give the table that holds the rows; a foreign table is converted where it lies.';
    END IF;
    IF target.oid < 16384 OR target.nspname IN ('pg_catalog', 'information_schema', 'pg_toast') THEN
        RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
            MESSAGE = format('%s is a system catalog', label),
            HINT = 'Give a table of your own.';
    END IF;
    IF target.relpersistence = 't' THEN
        RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
            MESSAGE = format('%s is a temporary table', label),
            HINT = format('Create it with the default: %I bigint DEFAULT %s.', column_name, new_default);
    END IF;
    IF NOT pg_has_role((SELECT relowner FROM pg_class WHERE oid = table_name), 'USAGE') THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('must be owner of table %s', label),
            HINT = 'Run it as the owner or as a superuser.';
    END IF;

    -- ---- locks, and what else is concerned ----

    -- What is read after the locks stays as it is until the transaction ends; a dry run, too, holds the weakest lock,
    -- which stands in nobody's way. A lock is taken by name, and so is all that is executed: the name may have come to
    -- mean something else, a view that calls what its owner likes for instance, so it is looked at once the lock is
    -- there. Locks of tables do not hold the names of schemas; who may, locks these rows.
    missing := ARRAY[table_name::oid];
    locked := '{}';
    LOOP
        SELECT pg_describe_object('pg_class'::regclass, c.oid, 0) AS what INTO hit
        FROM pg_class c
        WHERE c.oid = ANY (missing) AND NOT pg_has_role(c.relowner, 'USAGE')
        ORDER BY c.oid LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
                MESSAGE = format('must be owner of %s', hit.what),
                DETAIL = format('It is changed, or locked, together with %s.', described),
                HINT = 'Run it as a role that owns both, or as a superuser.';
        END IF;
        IF has_table_privilege('pg_namespace', 'UPDATE') THEN
            PERFORM FROM pg_namespace
            WHERE oid IN (SELECT relnamespace FROM pg_class WHERE oid = ANY (missing)) FOR KEY SHARE;
        END IF;
        SELECT array_agg(c.oid), array_agg(format('%I.%I', n.nspname, c.relname)) INTO missing, names
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY (missing);
        EXECUTE format('LOCK TABLE ONLY %s IN %s MODE', array_to_string(names, ', ONLY '),
                       CASE WHEN dry_run THEN 'ACCESS SHARE' ELSE 'ACCESS EXCLUSIVE' END);
        locked := locked || missing;
        SELECT name INTO hit FROM unnest(table_name::oid || missing, label || names) AS m (relid, name)
        WHERE to_regclass(name) IS DISTINCT FROM relid LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'object_in_use',
                MESSAGE = format('%s has become another table', hit.name),
                DETAIL = 'The table was renamed or moved while its lock was waited for.',
                HINT = 'Check the names and run it again.';
        END IF;

        SELECT a.attnum, a.atttypid, a.atttypid = ANY (small_types) AS is_small, a.attgenerated, a.attinhcount
        INTO key FROM pg_attribute a
        WHERE a.attrelid = table_name AND a.attname = column_name AND NOT a.attisdropped;
        IF NOT FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'undefined_column',
                MESSAGE = format('%s does not exist', described),
                HINT = 'Names are taken as they are written: mind upper and lower case.';
        END IF;

        WITH RECURSIVE members (relid) AS (
            SELECT table_name::oid
            UNION
            SELECT i.inhrelid FROM members m JOIN pg_inherits i ON i.inhparent = m.relid
        )
        SELECT array_agg(relid ORDER BY relid) INTO family FROM members;

        -- From a column that becomes bigint: the same one in the tables that inherit it and in those that it
        -- is inherited from, and each narrower column that references it.
        WITH RECURSIVE columns (relid, attnum) AS (
            SELECT table_name::oid, key.attnum WHERE key.is_small
            UNION
            SELECT next.relid, next.attnum
            FROM columns c
            JOIN pg_attribute a ON a.attrelid = c.relid AND a.attnum = c.attnum,
            LATERAL (
                SELECT o.attrelid, o.attnum
                FROM pg_inherits i
                JOIN pg_attribute o ON o.attname = a.attname AND NOT o.attisdropped
                WHERE i.inhparent = c.relid AND o.attrelid = i.inhrelid
                   OR i.inhrelid = c.relid AND o.attrelid = i.inhparent
                UNION ALL
                SELECT o.attrelid, o.attnum
                FROM pg_constraint f,
                    unnest(f.conkey, f.confkey) AS pair (referencing, referenced),
                    pg_attribute o
                WHERE f.contype = 'f' AND f.confrelid = c.relid AND pair.referenced = c.attnum
                    AND o.attrelid = f.conrelid AND o.attnum = pair.referencing
                    AND o.atttypid = ANY (small_types)
            ) AS next (relid, attnum)
        )
        SELECT array_agg(relid), array_agg(attnum) INTO widened, positions FROM columns;

        -- PostgreSQL rebuilds the foreign keys of such a column, and locks the table at their other end.
        SELECT array_agg(DISTINCT t.relid) INTO missing
        FROM (
            SELECT unnest(family)
            UNION ALL
            SELECT unnest(widened)
            UNION ALL
            SELECT unnest(ARRAY[f.conrelid, f.confrelid])
            FROM unnest(widened, positions) AS w (relid, attnum)
            JOIN pg_constraint f ON f.contype = 'f'
                AND (f.conrelid = w.relid AND w.attnum = ANY (f.conkey)
                    OR f.confrelid = w.relid AND w.attnum = ANY (f.confkey))
        ) AS t (relid)
        JOIN pg_class c ON c.oid = t.relid AND c.relkind <> 'f' -- refused below, and no lock is for them
        WHERE t.relid <> ALL (locked);
        EXIT WHEN missing IS NULL;
    END LOOP;

    -- ---- the column ----

    IF key.attnum < 0 OR key.attgenerated <> '' THEN
        RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
            MESSAGE = format('%s is a %s column', described,
                             CASE WHEN key.attnum < 0 THEN 'system' ELSE 'generated' END),
            HINT = 'Give the column that holds the key.';
    END IF;
    IF key.attinhcount > 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_table_definition',
            MESSAGE = format('%s is inherited', described),
            DETAIL = (SELECT format('It comes from %s.',
                                    string_agg(pg_describe_object('pg_class'::regclass, inhparent, 0), ', '
                                               ORDER BY inhseqno))
                      FROM pg_inherits WHERE inhrelid = table_name),
            HINT = 'Convert that table: its partitions, and the tables that inherit from it, are converted along.';
    END IF;
    IF NOT key.is_small AND key.atttypid <> 'bigint'::regtype THEN
        RAISE EXCEPTION USING ERRCODE = 'datatype_mismatch',
            MESSAGE = format('%s is of type %s', described, format_type(key.atttypid, NULL)),
            DETAIL = 'A bigint, integer or smallint column can be converted.',
            HINT = 'Change the column to bigint first, or add a bigint column that takes its place.';
    END IF;
    SELECT pg_describe_object('pg_class'::regclass, c.oid, 0) AS what, c.relkind = 'f' AS is_foreign,
        i.inhrelid IS NOT NULL AS has_parents, e.objid IS NOT NULL AS is_of_extension
    INTO hit
    FROM unnest(family || widened) AS f (relid)
    JOIN pg_class c ON c.oid = f.relid
    LEFT JOIN (SELECT inhrelid FROM pg_inherits GROUP BY 1 HAVING count(*) > 1) i ON i.inhrelid = c.oid
    LEFT JOIN pg_depend e ON e.classid = 'pg_class'::regclass AND e.objid = c.oid AND e.deptype = 'e'
    WHERE c.relkind = 'f' OR i.inhrelid IS NOT NULL OR e.objid IS NOT NULL
    ORDER BY c.oid LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = format('cannot convert %s together with %s', described, hit.what),
            DETAIL = CASE
                WHEN hit.is_foreign THEN 'Its rows lie on another server, which is not changed from here.'
                WHEN hit.has_parents THEN 'It inherits from more than one table.'
                ELSE 'It belongs to an extension, and a dump would restore it as the extension has it.'
            END,
            HINT = CASE
                WHEN hit.is_foreign THEN 'Detach it first, and convert it where its rows lie.'
                WHEN hit.has_parents THEN 'Take it out of the inheritance first, with ALTER TABLE ... NO INHERIT.'
                ELSE 'Use a table that is not an extension''s.'
            END;
    END IF;

    -- ---- nothing to do? ----

    IF NOT key.is_small AND NOT EXISTS (
        SELECT FROM unnest(family) AS f (relid)
        JOIN pg_attribute a ON a.attrelid = f.relid AND a.attname = column_name
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE pg_get_expr(d.adbin, d.adrelid) IS DISTINCT FROM new_default
    ) THEN
        RAISE NOTICE USING
            MESSAGE = format('%s is a snowflake column already, there is nothing to do', described);
        RETURN;
    END IF;

    -- ---- is it a key? ----

    IF NOT EXISTS (
        SELECT FROM pg_index i
        WHERE i.indrelid = table_name AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
            AND key.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_column_reference',
            MESSAGE = format('%s is not a key', described),
            DETAIL = 'It is in no primary key, unique constraint or unique index.',
            HINT = format('If its values are unique, say so first: ALTER TABLE %s ADD UNIQUE (%I).',
                          label, column_name);
    END IF;
    SELECT string_agg(DISTINCT pg_describe_object('pg_class'::regclass, f.confrelid, 0), ', ') AS what
    INTO hit
    FROM pg_constraint f
    WHERE f.contype = 'f' AND f.conrelid = table_name AND key.attnum = ANY (f.conkey)
        AND f.conparentid = 0;
    IF hit.what IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'wrong_object_type',
            MESSAGE = format('%s is a foreign key', described),
            DETAIL = format('Its values come from %s.', hit.what),
            HINT = 'Convert the column that it references: this one is widened along with it.';
    END IF;

    -- ---- defaults, and the sequences behind them ----

    -- Each member of the family may have a default of its own.
    SELECT format('%I.%I', n.nspname, c.relname) AS label, d.expression INTO hit
    FROM unnest(family) AS f (relid)
    JOIN pg_class c ON c.oid = f.relid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = column_name,
    LATERAL (
        SELECT oid, pg_get_expr(adbin, adrelid) AS expression
        FROM pg_attrdef WHERE adrelid = a.attrelid AND adnum = a.attnum
    ) d
    WHERE d.expression <> new_default AND NOT EXISTS (
        -- nextval of a sequence, as serial columns have it, or that of pgEdge's extension
        SELECT FROM pg_depend s
        WHERE s.classid = 'pg_attrdef'::regclass AND s.objid = d.oid AND s.refclassid = 'pg_class'::regclass
            AND d.expression IN (
                format('nextval(''%s''::regclass)', replace(s.refobjid::regclass::text, '''', '''''')),
                format('snowflake.nextval(''%s''::regclass)', replace(s.refobjid::regclass::text, '''', ''''''))))
    ORDER BY f.relid <> table_name, c.oid LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_column_definition',
            MESSAGE = format('column "%s" of table %s has a default that is no sequence', column_name, hit.label),
            DETAIL = format('It is %s.', hit.expression),
            HINT = format('If it may go, drop it first: ALTER TABLE %s ALTER COLUMN %I DROP DEFAULT.',
                          hit.label, column_name);
    END IF;

    -- ---- what PostgreSQL does not let a wider type through ----

    -- It stops at the first of them, and names no way out; here is the whole list, before anything is done.
    SELECT string_agg(DISTINCT b.what, ', ' ORDER BY b.what) INTO blockers
    FROM unnest(widened, positions) AS w (relid, attnum)
    JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = w.relid AND d.refobjsubid = w.attnum,
    LATERAL (
        -- A view is known by its rule.
        SELECT CASE r.rulename
                   WHEN '_RETURN' THEN pg_describe_object('pg_class'::regclass, r.ev_class, 0)
                   ELSE pg_describe_object(d.classid, d.objid, 0)
               END
        FROM pg_rewrite r WHERE d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
        UNION ALL
        SELECT format('generated %s', pg_describe_object('pg_class'::regclass, g.adrelid, g.adnum))
        FROM pg_attrdef g
        WHERE d.classid = 'pg_attrdef'::regclass AND g.oid = d.objid
            AND (g.adrelid, g.adnum) <> (w.relid, w.attnum)
        UNION ALL
        SELECT pg_describe_object(d.classid, d.objid, d.objsubid)
        WHERE d.classid IN ('pg_trigger'::regclass, 'pg_policy'::regclass, 'pg_proc'::regclass,
                            'pg_publication_rel'::regclass)
        UNION ALL
        -- The column is in the partition key: it depends on its own table.
        SELECT format('partition key of %s', pg_describe_object('pg_class'::regclass, w.relid, 0))
        FROM pg_depend p
        WHERE p.classid = 'pg_class'::regclass AND p.objid = w.relid AND p.objsubid = w.attnum
            AND p.refclassid = 'pg_class'::regclass AND p.refobjid = w.relid AND p.refobjsubid = 0
    ) AS b (what);
    IF blockers IS NULL THEN
        -- A table's rows as values of another table's column, and tables of a composite type.
        WITH RECURSIVE types (oid) AS (
            SELECT c.reltype FROM pg_class c WHERE c.oid = ANY (widened)
            UNION
            SELECT t.oid
            FROM types k
            JOIN pg_type t ON t.typelem = k.oid OR t.typbasetype = k.oid OR EXISTS (
                SELECT FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
                WHERE c.oid = t.typrelid AND c.relkind = 'c' AND a.atttypid = k.oid)
        )
        SELECT string_agg(DISTINCT u.what, ', ' ORDER BY u.what) INTO blockers
        FROM (
            SELECT pg_describe_object('pg_class'::regclass, a.attrelid, a.attnum)
            FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
            WHERE a.atttypid IN (SELECT oid FROM types) AND c.relkind IN ('r', 'p', 'm') AND NOT a.attisdropped
            UNION ALL
            SELECT pg_describe_object('pg_type'::regclass, c.reloftype, 0)
            FROM pg_class c WHERE c.oid = ANY (widened) AND c.reloftype <> 0
        ) AS u (what);
    END IF;
    IF blockers IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'dependent_objects_still_exist',
            MESSAGE = format('%s cannot be widened to bigint', described),
            DETAIL = format('PostgreSQL changes no column on which these depend: %s.', blockers),
            HINT = 'Drop them, convert, and create them again, in one transaction.';
    END IF;

    -- ---- the values: all that exist lie below all that will come ----

    IF row_security_active(table_name) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('row-level security hides rows of table %s', label),
            DETAIL = 'Whether all values of the column lie below the new IDs cannot be seen.',
            HINT = 'Run it as a role with BYPASSRLS or as a superuser, or take FORCE ROW LEVEL SECURITY off meanwhile.';
    END IF;
    -- Also the proof that this server makes IDs: if not, its error says why, and what to do.
    new_id := @extschema@.snowflake_nextval();
    EXECUTE format('SELECT max(%I) FROM %s', column_name, label) INTO highest;
    too_high := highest >= new_id;
    IF highest BETWEEN 0 AND new_id - 1 THEN
        -- Another worker of this server may be at an earlier time than this ID, but not before the clock.
        too_high := @extschema@.snowflake_timestamp(highest) + current_setting('snowflake_id.tick')::interval
            > clock_timestamp();
    END IF;
    IF too_high THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('%s has values that are not below the new IDs', described),
            DETAIL = format('The highest is %s; an ID made now is %s.', highest, new_id),
            HINT = 'If they are IDs of another system, give this server its layout, tick and epoch and restart it, '
                'or choose an earlier epoch. If they are IDs of this layout from a clock that was ahead, wait '
                'until that time has passed.';
    END IF;
    -- Partitions by ranges or lists of the key itself end where the old values ended.
    IF EXISTS (
        SELECT FROM pg_partitioned_table p
        WHERE p.partrelid = table_name AND p.partstrat IN ('r', 'l') AND p.partdefid = 0
            AND p.partnatts = 1 AND p.partattrs[0] = key.attnum
    ) THEN
        SELECT string_agg(pg_get_partition_constraintdef(inhrelid), ' OR ') INTO bounds
        FROM pg_inherits WHERE inhparent = table_name;
        EXECUTE format('SELECT %s FROM (SELECT %s::bigint) AS new (%I)',
                       coalesce(bounds, 'false'), new_id, column_name) INTO has_partition;
        IF NOT has_partition THEN
            RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
                MESSAGE = format('no partition of table %s takes the new IDs', label),
                DETAIL = format('The partitions are by %I; an ID made now is %s.', column_name, new_id),
                HINT = 'Create a partition for the IDs to come, or a default partition, first.';
        END IF;
    END IF;

    -- ---- locks and statements: first the identity, then the type, then the default ----

    plan := plan || ARRAY[[
        (SELECT format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE',
                       string_agg(format('%I.%I', n.nspname, c.relname), ', '
                                  ORDER BY c.oid <> table_name, n.nspname, c.relname))
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         -- The lock of a table is also that of its partitions and of what inherits from it.
         WHERE c.oid = ANY (locked) AND NOT EXISTS (
             SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid AND i.inhparent = ANY (locked))),
        'ACCESS EXCLUSIVE on these tables', 'false',
        'held to the end of the transaction: until then nobody else reads or writes them']];

    FOR hit IN
        SELECT format('%I.%I', n.nspname, c.relname) AS label
        FROM unnest(family) AS f (relid)
        JOIN pg_class c ON c.oid = f.relid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = column_name AND a.attidentity <> ''
        -- From PostgreSQL 17 on, partitions share the identity of their parent, and lose it with the parent's.
        WHERE EXISTS (SELECT FROM pg_depend d
                      WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
                          AND d.refobjid = c.oid AND d.refobjsubid = a.attnum AND d.deptype = 'i')
        ORDER BY c.oid <> table_name, n.nspname, c.relname
    LOOP
        plan := plan || ARRAY[[
            format('ALTER TABLE %s ALTER COLUMN %I DROP IDENTITY', hit.label, column_name),
            format('ACCESS EXCLUSIVE on %s', hit.label), 'false', 'its sequence goes with it']];
    END LOOP;

    -- One statement a table, so that a table with two such columns is rewritten once. Those that inherit are
    -- reached by PostgreSQL.
    FOR hit IN
        SELECT format('%I.%I', n.nspname, c.relname) AS label, c.oid,
            string_agg(format('ALTER COLUMN %I TYPE bigint', a.attname), ', ' ORDER BY a.attnum) AS changes
        FROM unnest(widened, positions) AS w (relid, attnum)
        JOIN pg_class c ON c.oid = w.relid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = w.attnum
        WHERE a.attinhcount = 0
        GROUP BY n.nspname, c.relname, c.oid
        ORDER BY c.oid <> table_name, n.nspname, c.relname
    LOOP
        WITH RECURSIVE members (relid) AS (
            SELECT hit.oid
            UNION
            SELECT i.inhrelid FROM members m JOIN pg_inherits i ON i.inhparent = m.relid
        )
        SELECT format('%s of rows and indexes are written anew, foreign keys are checked again',
                      pg_size_pretty(sum(pg_total_relation_size(m.relid))))
            || coalesce('; published by ' || string_agg(DISTINCT p.names, ', ')
                || ': subscribers need the wider columns first', '')
        INTO remark
        FROM members m
        LEFT JOIN LATERAL (
            SELECT string_agg(quote_ident(p.pubname), ', ' ORDER BY p.pubname)
            FROM pg_publication_tables p, pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.oid = m.relid AND (p.schemaname, p.tablename) = (n.nspname, c.relname)
        ) AS p (names) ON true;
        plan := plan || ARRAY[[
            format('ALTER TABLE %s %s', hit.label, hit.changes),
            format('ACCESS EXCLUSIVE on %s', hit.label), 'true', remark]];
    END LOOP;

    SELECT coalesce('the highest value, ' || highest || ', lies below every new ID', 'there is no value yet')
        || coalesce('; new IDs must meet ' || string_agg(pg_get_constraintdef(oid), ', ' ORDER BY conname), '')
    INTO remark
    FROM pg_constraint WHERE contype = 'c' AND conrelid = table_name AND conkey = ARRAY[key.attnum];
    plan := plan || ARRAY[[
        format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s', label, column_name, new_default),
        format('ACCESS EXCLUSIVE on %s', label), 'false', remark]];

    -- ---- the old sequences ----

    FOR sequence IN
        SELECT format('%I.%I', n.nspname, c.relname) AS label, c.oid, c.relowner, c.relacl, s.*,
            bool_or(o.owned) AS owned, bool_or(o.identity) AS identity, bool_or(o.stray) AS stray
        FROM (
            -- owned by the column, as a serial's, or its identity's; of pgEdge's conversion an identity's
            -- sequence is left, with no identity
            SELECT d.objid, d.deptype = 'a', d.deptype = 'i', d.deptype = 'i' AND a.attidentity = ''
            FROM unnest(family) AS f (relid)
            JOIN pg_attribute a ON a.attrelid = f.relid AND a.attname = column_name
            JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid
                AND d.refobjsubid = a.attnum AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
            UNION ALL
            -- called by the default
            SELECT d.refobjid, false, false, false
            FROM unnest(family) AS f (relid)
            JOIN pg_attribute a ON a.attrelid = f.relid AND a.attname = column_name
            JOIN pg_attrdef e ON e.adrelid = a.attrelid AND e.adnum = a.attnum
            JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid
                AND d.refclassid = 'pg_class'::regclass
        ) AS o (seqrelid, owned, identity, stray)
        JOIN pg_sequence s ON s.seqrelid = o.seqrelid
        JOIN pg_class c ON c.oid = o.seqrelid
        JOIN pg_namespace n ON n.oid = c.relnamespace
        GROUP BY n.nspname, c.relname, c.oid, c.relowner, c.relacl, s.seqrelid
        ORDER BY n.nspname, c.relname
    LOOP
        IF sequence.stray THEN
            RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
                MESSAGE = format('sequence %s is that of an identity, and %s has none', sequence.label, described),
                DETAIL = 'The extension of pgEdge leaves an identity like this. It breaks dumps as well.',
                HINT = format('As a superuser, make it a sequence that the column owns: '
                              'UPDATE pg_depend SET deptype = ''a'' WHERE classid = ''pg_class''::regclass '
                              'AND objid = %s AND deptype = ''i''.', sequence.oid);
        END IF;
        -- Who else needs it. An identity's cannot outlive the identity: it is made again if it is to be kept.
        IF sequence.identity OR NOT keep_sequence THEN
            SELECT string_agg(DISTINCT u.what, ', ' ORDER BY u.what) INTO blockers
            FROM (
                SELECT CASE r.rulename
                           WHEN '_RETURN' THEN pg_describe_object('pg_class'::regclass, r.ev_class, 0)
                           ELSE pg_describe_object(d.classid, d.objid, d.objsubid)
                       END
                FROM pg_depend d
                LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
                LEFT JOIN pg_attrdef e ON d.classid = 'pg_attrdef'::regclass AND e.oid = d.objid
                LEFT JOIN pg_attribute a ON a.attrelid = e.adrelid AND a.attnum = e.adnum
                WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = sequence.oid
                    AND NOT coalesce(a.attrelid = ANY (family) AND a.attname = column_name, false)
                UNION ALL
                SELECT pg_describe_object('pg_class'::regclass, d.refobjid, d.refobjsubid)
                FROM pg_depend d
                WHERE d.classid = 'pg_class'::regclass AND d.objid = sequence.oid AND d.deptype = 'a'
                    AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> ALL (family)
            ) AS u (what);
            IF blockers IS NOT NULL THEN
                RAISE EXCEPTION USING ERRCODE = 'dependent_objects_still_exist',
                    MESSAGE = format('sequence %s is used by others than %s', sequence.label, described),
                    DETAIL = format('These need it: %s.', blockers),
                    HINT = CASE WHEN sequence.identity THEN 'Drop them first.'
                                ELSE 'Keep it with keep_sequence => true, or convert or drop these first.' END;
            END IF;
        END IF;
        IF NOT pg_has_role(sequence.relowner, 'USAGE') AND (sequence.owned OR NOT keep_sequence) THEN
            RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
                MESSAGE = format('must be owner of sequence %s', sequence.label),
                HINT = 'Keep it with keep_sequence => true, or run it as a superuser.';
        END IF;
        -- As for the tables. This function alone locks a sequence by its OID; nextval() takes the same lock.
        IF sequence.owned OR sequence.identity OR NOT keep_sequence THEN
            IF has_table_privilege('pg_namespace', 'UPDATE') THEN
                PERFORM FROM pg_namespace
                WHERE oid = (SELECT relnamespace FROM pg_class WHERE oid = sequence.oid) FOR KEY SHARE;
            END IF;
            PERFORM pg_sequence_last_value(sequence.oid);
            IF to_regclass(sequence.label) IS DISTINCT FROM sequence.oid THEN
                RAISE EXCEPTION USING ERRCODE = 'object_in_use',
                    MESSAGE = format('%s has become another sequence', sequence.label),
                    DETAIL = 'The sequence was renamed or moved meanwhile.',
                    HINT = 'Check the names and run it again.';
            END IF;
        END IF;

        IF NOT keep_sequence AND NOT sequence.identity THEN
            plan := plan || ARRAY[[
                format('DROP SEQUENCE %s', sequence.label),
                format('ACCESS EXCLUSIVE on %s', sequence.label), 'false', NULL]];
        ELSIF keep_sequence AND sequence.identity THEN
            EXECUTE format('SELECT last_value, is_called FROM %s', sequence.label) INTO last_value, is_called;
            plan := plan || ARRAY[
                [format('CREATE SEQUENCE %s AS %s START WITH %s INCREMENT BY %s MINVALUE %s MAXVALUE %s CACHE %s %s',
                        sequence.label, format_type(sequence.seqtypid, NULL), sequence.seqstart,
                        sequence.seqincrement, sequence.seqmin, sequence.seqmax, sequence.seqcache,
                        CASE WHEN sequence.seqcycle THEN 'CYCLE' ELSE 'NO CYCLE' END),
                 NULL, 'false', 'takes the place of the one that went with the identity'],
                [format('SELECT pg_catalog.setval(%L, %s, %s)', sequence.label, last_value, is_called::text),
                 NULL, 'false', NULL],
                [format('ALTER SEQUENCE %s OWNER TO %I', sequence.label, pg_get_userbyid(sequence.relowner)),
                 NULL, 'false', NULL]];
            FOR privilege IN
                SELECT a.privilege_type AS name,
                    CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee
                FROM aclexplode(sequence.relacl) a WHERE a.grantee <> sequence.relowner
                ORDER BY 2, 1
            LOOP
                plan := plan || ARRAY[[
                    format('GRANT %s ON SEQUENCE %s TO %s', privilege.name, sequence.label, privilege.grantee),
                    NULL, 'false', NULL]];
            END LOOP;
        ELSIF sequence.owned THEN
            plan := plan || ARRAY[[
                format('ALTER SEQUENCE %s OWNED BY NONE', sequence.label),
                format('ACCESS EXCLUSIVE on %s', sequence.label), 'false', NULL]];
        END IF;
    END LOOP;

    -- ---- do it, or only say it ----

    step := 0;
    FOREACH row_of_plan SLICE 1 IN ARRAY plan LOOP
        step := step + 1;
        statement := row_of_plan[1];
        locks := row_of_plan[2];
        rewrites := row_of_plan[3];
        note := row_of_plan[4];
        IF NOT dry_run THEN
            EXECUTE statement;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$convert$;

REVOKE ALL ON FUNCTION snowflake_convert(regclass, name, boolean, boolean) FROM PUBLIC;

COMMENT ON FUNCTION snowflake_convert(regclass, name, boolean, boolean) IS
    'turns a serial, identity or plain integer key into a snowflake default, or, in a dry run, shows how';
