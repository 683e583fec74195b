-- Keys, for snowflake_convert(): the columns with their values, and the tables that a conversion locks.
--
-- Definitions:
--   key     an identity, a column whose default calls nextval(), or a plain integer, that is in a primary key; in a unique
--           index of a table without a primary key
--   family  the columns that hold values of a key: snowflake_convert_columns
--
-- Nothing here changes the database: the functions read catalogs, and return a script. They deparse expressions of the
-- tables' owner alone, because PostgreSQL locks the relations that an expression names.

CREATE TYPE snowflake_internal.snowflake_key AS (relid regclass, attname name);

COMMENT ON TYPE snowflake_internal.snowflake_key IS 'internal: a key of a conversion';

-- The role of an entry of an access control list, as GRANT names it.
CREATE FUNCTION snowflake_internal.snowflake_grantee(role oid) RETURNS text
    STABLE STRICT LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE role WHEN 0 THEN 'PUBLIC' ELSE role::regrole::text END
$$;

-- The new default, as the function is named now: another role may own the extension's schema, and rename it.
CREATE FUNCTION snowflake_internal.snowflake_convert_default() RETURNS regprocedure
    STABLE LANGUAGE sql RETURN '@extschema@.snowflake_nextval()'::regprocedure;

-- No new ID is lower. Fails unless this server generates IDs. Another worker of this server may generate lower IDs than
-- this call, but none below the lowest of the clock's tick.
CREATE FUNCTION snowflake_internal.snowflake_convert_lowest() RETURNS bigint
    VOLATILE LANGUAGE sql RETURN least(@extschema@.snowflake_nextval(), @extschema@.snowflake_min(clock_timestamp()));

-- The lowest ID of this moment, without generating one.
CREATE FUNCTION snowflake_internal.snowflake_convert_now() RETURNS bigint
    STABLE LANGUAGE sql RETURN @extschema@.snowflake_min(now());

-- The keys of tables, first those of the caller. A plain integer is a key only if the call names its table, and it alone is
-- the primary key.
CREATE FUNCTION snowflake_internal.snowflake_convert_find(tables regclass[], named boolean)
    RETURNS snowflake_internal.snowflake_key[]
    LANGUAGE sql SET search_path = pg_catalog, pg_temp SET quote_all_identifiers = off AS $$
    SELECT ARRAY(
        SELECT (c.oid::regclass, a.attname)::snowflake_internal.snowflake_key
        FROM pg_class c
        JOIN pg_index i ON i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
            AND (i.indisprimary OR NOT EXISTS (SELECT FROM pg_index p WHERE p.indrelid = c.oid AND p.indisprimary))
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
            AND a.attinhcount = 0 AND a.atttypid IN ('bigint'::regtype, 'integer'::regtype, 'smallint'::regtype)
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.oid = ANY (tables) AND c.relpersistence <> 't'
            AND (a.attidentity <> '' OR snowflake_internal.snowflake_convert_calls_nextval(d.adbin)
                OR d.oid IS NULL AND named AND i.indisprimary AND i.indnkeyatts = 1)
            AND NOT EXISTS (
                SELECT FROM pg_constraint f WHERE f.contype = 'f' AND f.conrelid = c.oid AND a.attnum = ANY (f.conkey))
        GROUP BY c.oid, a.attname
        ORDER BY c.relowner = (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user) DESC,
            c.oid::regclass::text COLLATE "C", a.attname)
$$;

-- Whether an expression is a call of nextval(), or of pgEdge's function of that name, in a column of any integer type. Reads
-- the parsed expression: to deparse it would lock its table.
CREATE FUNCTION snowflake_internal.snowflake_convert_calls_nextval(expression pg_node_tree) RETURNS boolean
    STABLE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (
        SELECT FROM pg_proc p
        WHERE p.proname = 'nextval' AND expression::text ~ concat(
            '^\{FUNCEXPR :funcid (', 'int2(bigint)'::regprocedure::oid, ' [^{]*\{FUNCEXPR :funcid |',
            'int4(bigint)'::regprocedure::oid, ' [^{]*\{FUNCEXPR :funcid )?', p.oid, ' '))
$$;

-- The families of the keys: the key, the columns that inherit it, those that reference one of these, and those that share
-- an inheritance with a referencing column. A column that references two keys is in both families.
CREATE FUNCTION snowflake_internal.snowflake_convert_columns(keys snowflake_internal.snowflake_key[])
    RETURNS TABLE (
        key_relid regclass, key_attname name, -- the key of the family
        relid regclass, attnum smallint, attname name, type regtype, default_id oid,
        is_key       boolean, -- the key or a column that inherits it, not one that references it
        is_small     boolean, -- has to become bigint; is a smallint, an integer, or a domain, which is an obstacle
        is_partition boolean, -- in the partition key of its table
        is_local     boolean, -- not inherited
        is_own       boolean  -- in a table of the owner of the first key
    )
    STABLE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE referencing (relid, attnum, relids, attnums) AS MATERIALIZED (
        SELECT f.confrelid, pair.referenced, array_agg(f.conrelid), array_agg(pair.referencing)
        FROM pg_constraint f, unnest(f.conkey, f.confkey) AS pair (referencing, referenced)
        WHERE f.contype = 'f' GROUP BY f.confrelid, pair.referenced
    ), family (key_relid, key_attname, relid, attnum, is_key) AS (
        SELECT k.relid, k.attname, a.attrelid, a.attnum, true
        FROM unnest(keys) AS k
        JOIN pg_attribute a ON a.attrelid = k.relid AND a.attname = k.attname
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
                WHERE c.attrelid = r.relid AND c.attname = a.attname OFFSET 0
            ) AS o
            UNION ALL
            SELECT r.*, false FROM unnest(f.relids, f.attnums) AS r
        ) AS next
    )
    SELECT m.key_relid, m.key_attname, a.attrelid::regclass, a.attnum, a.attname, a.atttypid::regtype, d.oid, m.is_key,
        t.oid IN ('smallint'::regtype, 'integer'::regtype) OR t.typtype = 'd' AND t.typbasetype <> 'bigint'::regtype,
        EXISTS (
            -- A column of the partition key depends on its own table.
            SELECT FROM pg_depend p
            WHERE p.classid = 'pg_class'::regclass AND p.objid = a.attrelid AND p.objsubid = a.attnum
                AND p.refclassid = 'pg_class'::regclass AND p.refobjid = a.attrelid),
        a.attinhcount = 0, c.relowner = (SELECT o.relowner FROM pg_class o WHERE o.oid = keys[1].relid)
    FROM (
        SELECT key_relid, key_attname, relid, attnum, bool_or(is_key) AS is_key FROM family GROUP BY 1, 2, 3, 4
    ) AS m
    JOIN pg_class c ON c.oid = m.relid
    JOIN pg_attribute a ON a.attrelid = m.relid AND a.attnum = m.attnum
    JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_attrdef d ON d.adrelid = m.relid AND d.adnum = m.attnum
$$;

-- The tables that a conversion locks: those that it changes, and those at the other ends of foreign keys that PostgreSQL
-- builds again.
CREATE FUNCTION snowflake_internal.snowflake_convert_locked(keys snowflake_internal.snowflake_key[]) RETURNS SETOF regclass
    STABLE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    SELECT DISTINCT r.id::regclass
    FROM snowflake_internal.snowflake_convert_columns(keys) k
    LEFT JOIN pg_constraint f ON k.is_small AND f.contype = 'f' AND (
        f.conrelid = k.relid AND k.attnum = ANY (f.conkey) OR f.confrelid = k.relid AND k.attnum = ANY (f.confkey)),
    LATERAL unnest(ARRAY[k.relid, f.conrelid, f.confrelid]) AS r (id)
    WHERE (k.is_key OR k.is_small) AND r.id IS NOT NULL
$$;
