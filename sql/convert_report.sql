-- The comment lines of a script, which a person must read before a conversion.

-- The obstacles: they keep a script from working, or the script would lose something. PostgreSQL refuses the rest itself.
CREATE FUNCTION snowflake_internal.snowflake_convert_obstacles(keys snowflake_internal.snowflake_key[]) RETURNS SETOF text
    STABLE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE family AS MATERIALIZED (
        SELECT k.*, pg_get_expr(d.adbin, d.adrelid) AS expression
        FROM snowflake_internal.snowflake_convert_columns(keys) k
        LEFT JOIN pg_attrdef d ON d.oid = k.default_id AND k.is_own
    ), rebuilt AS MATERIALIZED (
        SELECT DISTINCT b.class, b.id FROM snowflake_internal.snowflake_convert_dependents(keys, false) b
    ), readers AS MATERIALIZED (
        SELECT r.class, r.id FROM snowflake_internal.snowflake_convert_readers(keys) r
    ), partitions (parent, child, takes_new) AS MATERIALIZED (
        -- Whether a new ID can belong to a partition. One whose key begins with another column or an expression may take it.
        SELECT i.inhparent, i.inhrelid, bool_and(NOT f.is_partition OR p.partstrat = 'h' OR p.partattrs[0] <> f.attnum
            OR b.bound = 'DEFAULT' OR p.partstrat = 'r'
                AND coalesce(substring(b.bound FROM '^FOR VALUES FROM \(''?(\d+)''?[,)]')::numeric <= n.id, true)
                AND coalesce(substring(b.bound FROM ' TO \(''?(-?\d+)''?[,)]')::numeric > n.id, true))
        FROM family f
        JOIN pg_partitioned_table p ON p.partrelid = f.relid
        JOIN pg_inherits i ON i.inhparent = f.relid
        JOIN pg_class c ON c.oid = i.inhrelid,
        LATERAL pg_get_expr(c.relpartbound, c.oid) AS b (bound), snowflake_internal.snowflake_convert_now() AS n (id)
        GROUP BY i.inhparent, i.inhrelid
    ), reached (relid) AS (
        SELECT f.relid::oid FROM family f JOIN pg_class c ON c.oid = f.relid WHERE NOT c.relispartition
        UNION
        SELECT p.child FROM reached r JOIN partitions p ON p.parent = r.relid AND p.takes_new
    ), found (class, id, attnum, why) AS (
        SELECT 'pg_class'::regclass, c.oid, 0, r.why
        FROM snowflake_internal.snowflake_convert_locked(keys) l
        JOIN pg_class c ON c.oid = l
        JOIN pg_roles u ON u.oid = c.relowner
        JOIN pg_class o ON o.oid = keys[1].relid,
        LATERAL (VALUES
            (c.relowner <> o.relowner, format('belongs to %s, and table %s to %s: convert tables of one owner',
                                              c.relowner::regrole, o.oid::regclass, o.relowner::regrole)),
            (c.relkind = 'f', 'is a foreign table: detach it, and convert it on its own server'),
            (EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'),
                'belongs to an extension, which would create it as it was'),
            (c.relrowsecurity AND c.relforcerowsecurity AND NOT (u.rolsuper OR u.rolbypassrls),
                format('hides rows from its owner: first ALTER TABLE %s NO FORCE ROW LEVEL SECURITY, and FORCE it again '
                       'afterwards', l))
        ) AS r (is_so, why) WHERE r.is_so
        UNION ALL
        SELECT 'pg_class'::regclass, f.relid, f.attnum, r.why
        FROM family f
        JOIN pg_type t ON t.oid = f.type
        LEFT JOIN family k ON k.relid = f.key_relid AND k.attname = f.key_attname AND k.is_key,
        LATERAL (VALUES
            (f.is_small AND f.is_partition, 'is in a partition key, and cannot become bigint: copy the rows into a new table'),
            (f.is_small AND t.typtype = 'd', format('has the domain %s: first change it to bigint', f.type)),
            (f.is_key AND f.expression <> coalesce(k.expression, ''),
                format('has a default of its own, which the new one would replace: first ALTER TABLE ONLY %s ALTER COLUMN %I '
                       'DROP DEFAULT', f.relid, f.attname))
        ) AS r (is_so, why) WHERE r.is_so
        UNION ALL
        SELECT 'pg_class'::regclass, p.partrelid, 0, format('has no partition for new IDs: first create a default partition, '
            'or one for a range of %I that holds future IDs', f.attname)
        FROM reached r
        JOIN pg_partitioned_table p ON p.partrelid = r.relid AND p.partstrat <> 'h'
        JOIN family f ON f.relid = p.partrelid AND f.is_partition
        WHERE NOT EXISTS (SELECT FROM partitions x WHERE x.parent = r.relid AND x.takes_new)
        UNION ALL
        SELECT 'pg_class'::regclass, f.relid, 0, format('takes rows from roles that may not execute the new default: first '
            'GRANT EXECUTE ON FUNCTION %s TO %s', n, string_agg(DISTINCT g, ', '))
        FROM family f
        JOIN pg_class c ON c.oid = f.relid,
        LATERAL (SELECT coalesce(c.relacl, acldefault('r', c.relowner))
                 UNION ALL SELECT a.attacl FROM pg_attribute a WHERE a.attrelid = c.oid) AS r (acl), aclexplode(r.acl) AS e,
        snowflake_internal.snowflake_grantee(e.grantee) AS g, snowflake_internal.snowflake_convert_default() AS n
        WHERE f.is_key AND e.privilege_type = 'INSERT' AND NOT has_function_privilege(e.grantee, n, 'EXECUTE')
        GROUP BY f.relid, n
        UNION ALL
        SELECT d.class, d.id, d.attnum, 'depends on a column that becomes bigint, and the script does not create it again: '
            'drop it before, and create it again afterwards'
        FROM (
            SELECT r.class, r.id, 0 FROM readers r
            UNION
            SELECT CASE WHEN g.oid IS NULL THEN d.classid ELSE 'pg_class'::regclass END, coalesce(g.adrelid, d.objid),
                coalesce(g.adnum, 0)
            FROM family f
            JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = f.relid AND d.refobjsubid = f.attnum
            LEFT JOIN pg_attrdef g ON d.classid = 'pg_attrdef'::regclass AND g.oid = d.objid AND g.adnum <> f.attnum
            LEFT JOIN pg_rewrite w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
                AND w.ev_class NOT IN (SELECT r.id FROM readers r)
            LEFT JOIN pg_trigger t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid AND t.tgparentid = 0
            WHERE f.is_small AND (num_nonnulls(g.oid, w.oid, t.oid) > 0
                OR d.classid IN ('pg_policy'::regclass, 'pg_publication_rel'::regclass))
        ) AS d (class, id, attnum) WHERE (d.class, d.id) NOT IN (TABLE rebuilt)
        UNION ALL
        SELECT b.class, b.id, 0, 'is created again, and would lose ' || l.what
        FROM rebuilt b
        LEFT JOIN pg_class c ON b.class = 'pg_class'::regclass AND c.oid = b.id AND c.relkind IN ('v', 'm')
        LEFT JOIN pg_proc p ON b.class = 'pg_proc'::regclass AND p.oid = b.id
        LEFT JOIN pg_type t ON t.oid = c.reltype,
        LATERAL (VALUES
            (EXISTS (SELECT FROM pg_depend d WHERE (d.classid, d.objid, d.deptype) = (b.class, b.id, 'e')), 'its extension'),
            (EXISTS (SELECT FROM pg_seclabel s WHERE (s.classoid, s.objoid) = (b.class, b.id)), 'its security label'),
            (t.typacl IS NOT NULL OR obj_description(t.oid, 'pg_type') IS NOT NULL, 'rights or a comment of its row type'),
            (EXISTS (
                SELECT FROM (SELECT coalesce(c.relacl, p.proacl)
                             UNION ALL SELECT a.attacl FROM pg_attribute a WHERE a.attrelid = c.oid) AS r (acl),
                aclexplode(r.acl) AS e WHERE e.grantor <> coalesce(c.relowner, p.proowner)), 'rights that another role granted')
        ) AS l (is_so, what) WHERE l.is_so
        UNION ALL
        SELECT 'pg_class'::regclass, x.oid, 0, format('is the replica identity of partition %s, and would no longer be: first '
            'ALTER TABLE %1$s REPLICA IDENTITY FULL, and set it again afterwards', f.relid)
        FROM family f
        JOIN pg_index i ON i.indrelid = f.relid AND i.indisreplident AND f.attnum = ANY (i.indkey)
        JOIN pg_class x ON x.oid = i.indexrelid AND x.relispartition WHERE f.is_small
        UNION ALL
        SELECT 'pg_constraint'::regclass, n.oid, 0, 'has disabled triggers, which would be enabled: enable them before, and '
            'disable them again afterwards'
        FROM pg_constraint n
        JOIN family f ON f.is_small AND (n.conrelid = f.relid AND f.attnum = ANY (n.conkey)
            OR n.confrelid = f.relid AND f.attnum = ANY (n.confkey))
        WHERE n.contype = 'f' AND EXISTS (SELECT FROM pg_trigger t WHERE t.tgconstraint = n.oid AND t.tgenabled <> 'O')
        UNION ALL
        -- From PostgreSQL 18 on, NOT NULL has a name, and that of a parent is given to its children again.
        SELECT 'pg_constraint'::regclass, o.oid, 0, format('has another name than that of its parent: first ALTER TABLE %1$s '
            'NO INHERIT %2$s, ALTER TABLE %1$s RENAME CONSTRAINT %3$I TO %4$I, and ALTER TABLE %1$s INHERIT %2$s',
            f.relid, i.inhparent::regclass, o.conname, p.conname)
        FROM family f
        JOIN pg_class c ON c.oid = f.relid AND NOT c.relispartition
        JOIN pg_inherits i ON i.inhrelid = f.relid
        JOIN pg_attribute a ON a.attrelid = i.inhparent AND a.attname = f.attname
        JOIN pg_constraint o ON o.contype = 'n' AND o.conrelid = f.relid AND o.conkey = ARRAY[f.attnum]
        JOIN pg_constraint p ON p.contype = 'n' AND p.conrelid = i.inhparent AND p.conkey = ARRAY[a.attnum]
            AND NOT p.connoinherit AND p.conname <> o.conname
        WHERE f.is_small
    )
    SELECT DISTINCT pg_describe_object(f.class, f.id, f.attnum) || ' ' || f.why FROM found f ORDER BY 1
$$;

-- The notes. If a new ID violates one that warns, each INSERT fails: the script raises a warning, too.
CREATE FUNCTION snowflake_internal.snowflake_convert_notes(keys snowflake_internal.snowflake_key[], tables regclass[])
    RETURNS TABLE (warns boolean, note text)
    STABLE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH family AS MATERIALIZED (
        SELECT DISTINCT k.relid, k.attnum, k.attname, k.type, k.default_id, k.is_key, k.is_small, k.is_partition, k.is_local
        FROM snowflake_internal.snowflake_convert_columns(keys) k WHERE k.is_own
    ), functions AS MATERIALIZED (
        SELECT p.oid, lower(p.proname) AS name, p.prosrc, p.prorettype || p.proargtypes::oid[] || p.proallargtypes
            && '{smallint, integer, smallint[], integer[]}'::regtype[]::oid[] AS is_narrow
        FROM pg_proc p
        WHERE p.oid >= 16384 AND p.proowner = (SELECT c.relowner FROM pg_class c WHERE c.oid = keys[1].relid)
            AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e')
    ), words AS MATERIALIZED (
        SELECT DISTINCT f.oid, w.word FROM functions f, regexp_split_to_table(lower(left(f.prosrc, 100000)), '\W+') AS w (word)
    ), notes (n, warns, note) AS (
        SELECT 1, true, 'new IDs must fit ' || coalesce(
            pg_get_constraintdef(n.oid) || ' of table ' || f.relid, pg_get_indexdef(i.indexrelid),
            pg_get_statisticsobjdef(s.oid), 'generated ' || pg_describe_object('pg_class'::regclass, g.adrelid, g.adnum),
            pg_describe_object(d.classid, d.objid, 0))
        FROM family f
        JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = f.relid AND d.refobjsubid = f.attnum
        LEFT JOIN pg_constraint n ON d.classid = 'pg_constraint'::regclass AND n.oid = d.objid AND n.contype = 'c'
            AND n.coninhcount = 0
        -- Not where it is a plain column of an index or of statistics.
        LEFT JOIN pg_class x ON d.classid = 'pg_class'::regclass AND x.oid = d.objid AND NOT x.relispartition
        LEFT JOIN pg_index i ON i.indexrelid = x.oid
            AND concat(i.indexprs::text, i.indpred::text) ~ format(':varattno %s ', f.attnum)
        LEFT JOIN pg_statistic_ext s ON d.classid = 'pg_statistic_ext'::regclass AND s.oid = d.objid
            AND s.stxexprs::text ~ format(':varattno %s ', f.attnum)
        LEFT JOIN pg_attrdef g ON d.classid = 'pg_attrdef'::regclass AND g.oid = d.objid AND g.adnum <> f.attnum AND f.is_local
        LEFT JOIN pg_trigger t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid AND t.tgqual IS NOT NULL AND t.tgparentid = 0
        LEFT JOIN pg_policy p ON d.classid = 'pg_policy'::regclass AND p.oid = d.objid
        WHERE num_nonnulls(n.oid, i.indexrelid, s.oid, g.oid, t.oid, p.oid) > 0
        UNION ALL
        SELECT 1, true, format('new IDs must fit the partition key %s of table %s', pg_get_partkeydef(f.relid), f.relid)
        FROM family f JOIN pg_partitioned_table p ON p.partrelid = f.relid AND (p.partstrat <> 'h' OR p.partexprs IS NOT NULL)
        WHERE f.is_partition
        UNION ALL
        SELECT 1, true, format('new IDs must fit domain %s of column %I of table %s', f.type, f.attname, f.relid)
        FROM family f JOIN pg_constraint n ON n.contypid = f.type AND n.contype = 'c'
        UNION ALL
        SELECT 2, false, format('published by %s: widen the columns on the subscribers first', string_agg(
            DISTINCT quote_ident(p.pubname), ', '))
        FROM family f JOIN pg_class c ON c.oid = f.relid
        JOIN pg_publication p ON p.puballtables
            OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid)
            OR EXISTS (SELECT FROM pg_publication_namespace n WHERE n.pnpubid = p.oid AND n.pnnspid = c.relnamespace)
        WHERE f.is_small HAVING count(*) > 0
        UNION ALL
        SELECT 3, false, format('%s may not accept a bigint, or needs a sequence', pg_describe_object('pg_proc'::regclass, f.oid, 0))
        FROM functions f LEFT JOIN words w ON w.oid = f.oid AND (
            w.word IN ('int', 'integer', 'int4', 'int2', 'smallint', 'serial', 'nextval', 'currval', 'lastval', 'setval')
            OR w.word IN (SELECT n.name FROM functions n WHERE n.is_narrow))
        WHERE f.is_narrow OR w.oid IS NOT NULL
        UNION ALL
        SELECT 4, false, format('%s stays as it is', pg_describe_object('pg_class'::regclass, c.oid, a.attnum)) || CASE
            WHEN a.atttypid = 'bigint'::regtype THEN ', with its sequence'
            ELSE format('; to change it: ALTER TABLE %s ALTER COLUMN %I TYPE bigint%s', c.oid::regclass, a.attname,
                        CASE WHEN a.atttypid IN ('integer'::regtype, 'smallint'::regtype) THEN '' ELSE '[]' END) END
        FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attinhcount = 0
            AND a.attgenerated = '' AND a.atttypid = ANY ('{bigint, integer, smallint, integer[], smallint[]}'::regtype[]::oid[])
        LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
        WHERE c.relkind IN ('r', 'p') AND c.oid IN (SELECT f.relid FROM family f UNION SELECT unnest(tables))
            AND (c.oid, a.attnum) NOT IN (SELECT f.relid, f.attnum FROM family f)
            AND (a.attidentity <> '' OR snowflake_internal.snowflake_convert_calls_nextval(d.adbin)
                OR a.atttypid <> 'bigint'::regtype AND (a.attname ~* 'ids?$' OR format_type(a.atttypid, NULL) LIKE '%[]'))
            AND NOT EXISTS (SELECT FROM pg_constraint f WHERE f.contype = 'f' AND f.conrelid = c.oid AND a.attnum = ANY (f.conkey))
        UNION ALL
        SELECT 5, false, format('sequence %s stays; once nothing calls it: DROP SEQUENCE %1$s', s.id::regclass)
        FROM family f
        JOIN pg_depend d ON (d.classid, d.objid) = ('pg_attrdef'::regclass, f.default_id) AND d.refclassid = 'pg_class'::regclass
            OR (d.refclassid, d.refobjid, d.refobjsubid) = ('pg_class'::regclass, f.relid, f.attnum) AND d.deptype = 'a',
        LATERAL (VALUES (d.objid), (d.refobjid)) AS s (id)
        JOIN pg_class c ON c.oid = s.id AND c.relkind = 'S' WHERE f.is_key
    )
    SELECT n.warns, n.note FROM notes n GROUP BY n.n, n.warns, n.note ORDER BY n.n, n.note COLLATE "C"
$$;
