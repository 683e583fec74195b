-- Objects that depend on columns that become bigint. PostgreSQL changes no column that a view, a rule, a trigger, a policy or a
-- generated column reads, so a script drops these, and creates them again with all that they had.

-- The statements that create an object as it is now, in the order of n: its definition (0), settings that a change of type
-- resets (1), other settings (2), its comment (3), and in place of the rights that the default privileges give it (4), those
-- that it has (5). A constraint defines its index, and a view its columns.
CREATE FUNCTION snowflake_internal.snowflake_convert_create(class oid, object oid, attnum integer)
    RETURNS TABLE (n integer, statement text)
    LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE named AS MATERIALIZED (
        SELECT i.identity AS name, CASE WHEN attnum > 0 THEN 'COLUMN' WHEN i.type = 'table constraint' THEN 'CONSTRAINT'
            WHEN i.type = 'statistics object' THEN 'STATISTICS' ELSE upper(i.type) END AS kind
        FROM pg_identify_object(class, object, attnum) AS i
    ), triggers AS (
        SELECT t.oid, t.tgname, t.tgrelid, t.tgenabled FROM pg_trigger t
        WHERE class = 'pg_trigger'::regclass AND t.oid = object
        UNION
        SELECT t.oid, t.tgname, t.tgrelid, t.tgenabled FROM triggers p JOIN pg_trigger t ON t.tgparentid = p.oid
    ), states (relid, state, name) AS (
        SELECT t.tgrelid, t.tgenabled, format('TRIGGER %I', t.tgname) FROM triggers t
        UNION ALL
        SELECT r.ev_class, r.ev_enabled, format('RULE %I', r.rulename) FROM pg_rewrite r
        WHERE class = 'pg_rewrite'::regclass AND r.oid = object
    ), owned (owner, schema, kind, acl, of_what) AS (
        SELECT c.relowner, c.relnamespace, CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relacl, o.name
        FROM named o, pg_class c
        WHERE class = 'pg_class'::regclass AND c.oid = object AND attnum = 0 AND c.relkind IN ('v', 'm', 'S')
        UNION ALL
        SELECT p.proowner, p.pronamespace, 'f', p.proacl, o.kind || ' ' || o.name
        FROM named o, pg_proc p WHERE class = 'pg_proc'::regclass AND p.oid = object
    ), rights (is_wanted, attname, of_what, privilege, is_grantable, label, n) AS MATERIALIZED (
        SELECT a.is_wanted, a.attname, a.of_what, e.privilege_type, e.is_grantable,
            snowflake_internal.snowflake_grantee(e.grantee), e.n
        FROM (
            SELECT true, NULL::name, o.of_what, coalesce(o.acl, acldefault(o.kind, o.owner)) FROM owned o
            UNION ALL
            SELECT true, a.attname, a.attrelid::regclass::text, a.attacl FROM pg_attribute a
            WHERE class = 'pg_class'::regclass AND a.attrelid = object AND a.attnum = $3
            UNION ALL
            SELECT false, NULL, o.of_what, coalesce(d.defaclacl, CASE s.schema WHEN 0 THEN acldefault(o.kind, o.owner) END)
            FROM owned o CROSS JOIN LATERAL (VALUES (0::oid), (o.schema)) AS s (schema)
            LEFT JOIN pg_default_acl d ON d.defaclrole = o.owner AND d.defaclnamespace = s.schema
                AND upper(d.defaclobjtype::text) = upper(o.kind::text)
        ) AS a (is_wanted, attname, of_what, acl),
        LATERAL aclexplode(a.acl) WITH ORDINALITY AS e (grantor, grantee, privilege_type, is_grantable, n)
    ), changes AS (
        SELECT r.* FROM rights r
        WHERE NOT EXISTS (
            SELECT FROM rights o WHERE o.is_wanted <> r.is_wanted
                AND (o.label, o.privilege, o.is_grantable) = (r.label, r.privilege, r.is_grantable))
    )
    SELECT 0, CASE class
        WHEN 'pg_proc'::regclass THEN rtrim(pg_get_functiondef(object), E'\n')
        WHEN 'pg_trigger'::regclass THEN pg_get_triggerdef(object)
        WHEN 'pg_statistic_ext'::regclass THEN pg_get_statisticsobjdef(object)
        WHEN 'pg_rewrite'::regclass THEN (
            SELECT rtrim(pg_get_ruledef(r.oid), ';') FROM pg_rewrite r WHERE r.oid = object)
        WHEN 'pg_constraint'::regclass THEN (
            SELECT format('ALTER TABLE %s ADD CONSTRAINT %I %s', n.conrelid::regclass, n.conname, pg_get_constraintdef(n.oid))
            FROM pg_constraint n WHERE n.oid = object)
        WHEN 'pg_policy'::regclass THEN (
            SELECT format('CREATE POLICY %I ON %s AS %s FOR %s TO %s', p.polname, p.polrelid::regclass,
                CASE WHEN p.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
                CASE p.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE'
                    ELSE 'ALL' END,
                (SELECT string_agg(snowflake_internal.snowflake_grantee(r), ', ') FROM unnest(p.polroles) AS r))
                || coalesce(' USING (' || pg_get_expr(p.polqual, p.polrelid) || ')', '')
                || coalesce(' WITH CHECK (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')', '')
            FROM pg_policy p WHERE p.oid = object)
        ELSE coalesce((
            -- That of a partitioned table has ONLY, with which its partitions would get no index.
            SELECT replace(pg_get_indexdef(i.indexrelid), format(' ON ONLY %s USING ', i.indrelid::regclass),
                           format(' ON %s USING ', i.indrelid::regclass))
            FROM pg_index i
            WHERE i.indexrelid = object
                AND NOT EXISTS (SELECT FROM pg_constraint n WHERE n.conindid = i.indexrelid AND n.contype IN ('p', 'u', 'x'))
        ), (
            SELECT CASE a.attgenerated
                WHEN '' THEN format('ALTER VIEW %s ALTER COLUMN %I SET DEFAULT %s', a.attrelid::regclass, a.attname,
                                    e.expression)
                ELSE concat_ws(' ', format('ALTER TABLE %s ADD COLUMN %I', a.attrelid::regclass, a.attname),
                    format_type(a.atttypid, a.atttypmod),
                    (SELECT 'COLLATE ' || a.attcollation::regcollation
                     FROM pg_type t WHERE t.oid = a.atttypid AND t.typcollation <> a.attcollation),
                    format('GENERATED ALWAYS AS (%s) %s', e.expression,
                           CASE a.attgenerated WHEN 's' THEN 'STORED' ELSE 'VIRTUAL' END),
                    -- From PostgreSQL 18 on, it has a name.
                    (SELECT format('CONSTRAINT %I', n.conname) FROM pg_constraint n
                     WHERE n.contype = 'n' AND n.conrelid = d.adrelid AND n.conkey = ARRAY[d.adnum]),
                    CASE WHEN a.attnotnull THEN 'NOT NULL' END) END
            FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum,
            LATERAL pg_get_expr(d.adbin, d.adrelid) AS e (expression)
            WHERE d.adrelid = object AND d.adnum = $3
        ), (
            SELECT format('CREATE %s %s%s AS %s%s', o.kind, o.name, concat(
                (SELECT ' USING ' || quote_ident(m.amname) FROM pg_am m WHERE m.oid = c.relam),
                (SELECT format(' WITH (%s)', string_agg(format('%s%s = %L', s.prefix, p.option_name, p.option_value), ', '))
                 FROM (VALUES ('', c.reloptions),
                              ('toast.', (SELECT t.reloptions FROM pg_class t WHERE t.oid = c.reltoastrelid))
                     ) AS s (prefix, options), pg_options_to_table(s.options) AS p HAVING count(*) > 0),
                (SELECT ' TABLESPACE ' || quote_ident(t.spcname) FROM pg_tablespace t WHERE t.oid = c.reltablespace)
            ), btrim(pg_get_viewdef(c.oid), E'; \n'), CASE WHEN NOT c.relispopulated THEN ' WITH NO DATA' END)
            FROM named o, pg_class c WHERE c.oid = object AND c.relkind IN ('v', 'm') AND $3 = 0
        )) END
    UNION ALL
    SELECT 1, format('ALTER STATISTICS %s SET STATISTICS %s', o.name, x.stxstattarget)
    FROM named o, pg_statistic_ext x
    WHERE class = 'pg_statistic_ext'::regclass AND x.oid = object AND x.stxstattarget >= 0
    UNION ALL
    SELECT 1, format('ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s', o.name, a.attnum, a.attstattarget)
    FROM named o, pg_attribute a
    WHERE o.kind = 'INDEX' AND a.attrelid = object AND a.attstattarget >= 0
    UNION ALL
    SELECT 1, format('ALTER %s %s DEPENDS ON EXTENSION %I', o.kind, o.name, e.extname)
    FROM named o, pg_depend x JOIN pg_extension e ON e.oid = x.refobjid
    WHERE x.classid = class AND x.objid = object AND x.deptype = 'x' AND $3 = 0
    UNION ALL
    SELECT 2, format('ALTER INDEX %s SET TABLESPACE %I', o.name, t.spcname)
    FROM named o, pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace WHERE o.kind = 'INDEX' AND c.oid = object
    UNION ALL
    SELECT 2, format('ALTER TABLE %s %s %I', x.indrelid::regclass, s.setting, c.relname)
    FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid,
    LATERAL (VALUES (x.indisclustered, 'CLUSTER ON'), (x.indisreplident, 'REPLICA IDENTITY USING INDEX')) AS s (is_so, setting)
    WHERE class = 'pg_class'::regclass AND x.indexrelid = object AND s.is_so
    UNION ALL
    SELECT 2, format('ALTER TABLE %s ALTER COLUMN %I SET %s', a.attrelid::regclass, a.attname, s.setting)
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid,
    LATERAL (VALUES
        ('STATISTICS ' || CASE WHEN a.attstattarget >= 0 THEN a.attstattarget END),
        ('STORAGE ' || CASE WHEN a.attstorage <> t.typstorage THEN CASE a.attstorage WHEN 'p' THEN 'PLAIN'
            WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END END),
        ('COMPRESSION ' || CASE a.attcompression WHEN 'p' THEN 'pglz' WHEN 'l' THEN 'lz4' END),
        -- PostgreSQL keeps options of its own there: 17.12 has pg_attver, for every column.
        ((SELECT format('(%s)', string_agg(format('%s = %L', p.option_name, p.option_value), ', '))
          FROM pg_options_to_table(a.attoptions) AS p WHERE NOT starts_with(p.option_name, 'pg_') HAVING count(*) > 0))
    ) AS s (setting)
    WHERE class = 'pg_class'::regclass AND a.attrelid = object AND a.attnum = $3 AND s.setting IS NOT NULL
    UNION ALL
    SELECT 2, format('ALTER TABLE ONLY %s %s %s', s.relid::regclass,
                     CASE s.state WHEN 'D' THEN 'DISABLE' WHEN 'A' THEN 'ENABLE ALWAYS' ELSE 'ENABLE REPLICA' END, s.name)
    FROM states s WHERE s.state <> 'O'
    UNION ALL
    SELECT 3, format('COMMENT ON %s %s IS %L', o.kind, o.name, d.description)
    FROM named o, pg_description d WHERE d.classoid = class AND d.objoid = object AND d.objsubid = attnum
    UNION ALL
    SELECT 4 + c.is_wanted::integer, format(
        CASE WHEN c.is_wanted THEN 'GRANT %s ON %s TO %s%s' ELSE 'REVOKE %s ON %s FROM %s%s' END, string_agg(
            c.privilege || CASE WHEN c.attname IS NULL THEN '' ELSE format(' (%I)', c.attname) END, ', ' ORDER BY c.n),
        c.of_what, c.label, CASE WHEN c.is_wanted AND c.is_grantable THEN ' WITH GRANT OPTION' END)
    FROM changes c GROUP BY c.is_wanted, c.of_what, c.label, c.attname, c.is_grantable
$$;

-- The objects that read a column that becomes bigint, or that read another of these: views, materialized views, and functions
-- that PostgreSQL has parsed. `depth`: the number of objects below each, which orders a view after those that it reads.
-- Temporary views are left out, because they may be another session's.
CREATE FUNCTION snowflake_internal.snowflake_convert_readers(keys snowflake_internal.snowflake_key[])
    RETURNS TABLE (class oid, id oid, depth bigint)
    STABLE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE columns (relid, attnum) AS MATERIALIZED (
        SELECT k.relid::oid, k.attnum FROM snowflake_internal.snowflake_convert_columns(keys) k WHERE k.is_small
    ), changed (relid, attnum) AS (
        SELECT c.* FROM columns c
        UNION
        SELECT g.adrelid, g.adnum
        FROM columns c
        JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
            AND d.refobjid = c.relid AND d.refobjsubid = c.attnum
        JOIN pg_attrdef g ON g.oid = d.objid
        UNION
        -- PostgreSQL builds these indexes again.
        SELECT i.indexrelid, 0 FROM columns c JOIN pg_index i ON i.indrelid = c.relid AND c.attnum = ANY (i.indkey)
    ), parsed (part_class, part, class, id) AS (
        SELECT 'pg_rewrite'::regclass::oid, r.oid, 'pg_class'::regclass::oid, c.oid
        FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class AND c.relkind IN ('v', 'm') AND c.relpersistence <> 't'
        WHERE r.ev_type = '1' AND c.oid >= 16384
        UNION ALL
        SELECT 'pg_proc'::regclass, p.oid, 'pg_proc'::regclass, p.oid FROM pg_proc p WHERE p.oid >= 16384
    ), readers (class, id, read_class, read, attnum) AS MATERIALIZED (
        -- The type of a row, or of an array of rows, stands for its view.
        SELECT p.class, p.id, CASE WHEN r.relid IS NULL THEN d.refclassid ELSE 'pg_class'::regclass END,
            coalesce(r.relid, d.refobjid), d.refobjsubid
        FROM parsed p
        JOIN pg_depend d ON d.classid = p.part_class AND d.objid = p.part
        LEFT JOIN pg_type t ON d.refclassid = 'pg_type'::regclass AND t.oid = d.refobjid
        LEFT JOIN pg_type e ON e.typarray = t.oid,
        LATERAL coalesce(nullif(t.typrelid, 0), e.typrelid) AS r (relid)
    ), found (class, id) AS (
        SELECT r.class, r.id
        FROM changed k JOIN readers r ON r.read_class = 'pg_class'::regclass AND r.read = k.relid AND r.attnum = k.attnum
        UNION
        SELECT r.class, r.id FROM found f JOIN readers r ON r.read_class = f.class AND r.read = f.id
    ), below (class, id, used_class, used) AS (
        SELECT f.class, f.id, f.class, f.id FROM found f
        UNION
        SELECT b.class, b.id, r.read_class, r.read
        FROM below b JOIN readers r ON r.class = b.used_class AND r.id = b.used
    )
    SELECT b.class, b.id, count(*) FROM below b GROUP BY b.class, b.id
$$;

-- The statements that drop what keeps PostgreSQL from changing a type (part < 0), and those that create it again as it is
-- now (part > 0). Generated columns then come last in their tables.
--
-- Only objects of the tables' owner: a definition of another role would be executed with the owner's rights. And no generated
-- column that other tables inherit: these may have indexes, constraints and comments of their own on it. On the way back, also
-- expressions of checks, indexes and statistics: PostgreSQL would add casts to them that the old ones do not have.
CREATE FUNCTION snowflake_internal.snowflake_convert_dependents(keys snowflake_internal.snowflake_key[], back boolean)
    RETURNS TABLE (class oid, id oid, part numeric, depth bigint, name text, n integer, statement text)
    STABLE LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$
    WITH narrow AS MATERIALIZED (
        SELECT DISTINCT 'pg_class'::regclass::oid AS class, k.relid::oid AS id, k.attnum::integer
        FROM snowflake_internal.snowflake_convert_columns(keys) k WHERE k.is_small
    ), own AS MATERIALIZED (
        SELECT c.relowner FROM pg_class c WHERE c.oid = keys[1].relid
    ), readers AS MATERIALIZED (
        SELECT r.class, r.id, r.depth, i.identity AS name, upper(i.type) AS kind
        FROM snowflake_internal.snowflake_convert_readers(keys) r
        LEFT JOIN pg_class c ON r.class = 'pg_class'::regclass AND c.oid = r.id
        LEFT JOIN pg_proc p ON r.class = 'pg_proc'::regclass AND p.oid = r.id,
        LATERAL pg_identify_object(r.class, r.id, 0) AS i
        WHERE coalesce(c.relowner, p.proowner) = (TABLE own) AND p.prokind IS DISTINCT FROM 'a'
    ), generated AS MATERIALIZED (
        SELECT DISTINCT n.class, g.adrelid AS id, g.adnum::integer AS attnum
        FROM narrow n
        JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.refclassid = n.class
            AND d.refobjid = n.id AND d.refobjsubid = n.attnum
        JOIN pg_attrdef g ON g.oid = d.objid AND (g.adrelid, g.adnum) <> (n.id, n.attnum)
        JOIN pg_class c ON c.oid = g.adrelid AND c.relowner = (TABLE own)
        WHERE NOT EXISTS (SELECT FROM pg_inherits i WHERE g.adrelid IN (i.inhrelid, i.inhparent))
    ), candidates (part, class, id, attnum, drop_it) AS (
        SELECT 9, d.classid, d.objid, 0, (
            SELECT format('DROP %s %s', upper(i.type), i.identity) FROM pg_identify_object(d.classid, d.objid, 0) AS i)
        FROM pg_depend d
        LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid AND r.ev_type <> '1'
        LEFT JOIN pg_trigger t ON d.classid = 'pg_trigger'::regclass AND t.oid = d.objid AND t.tgparentid = 0
        LEFT JOIN pg_policy p ON d.classid = 'pg_policy'::regclass AND p.oid = d.objid
        JOIN pg_class c ON c.oid = coalesce(r.ev_class, t.tgrelid, p.polrelid) AND c.relowner = (TABLE own)
        WHERE c.oid NOT IN (SELECT s.id FROM readers s) AND (
            (d.refclassid, d.refobjid, d.refobjsubid) IN (TABLE narrow UNION TABLE generated)
            OR (d.refclassid, d.refobjid) IN (SELECT s.class, s.id FROM readers s))
        UNION ALL
        SELECT 7, g.class, g.id, g.attnum, format('ALTER TABLE %s DROP COLUMN %I', g.id::regclass, a.attname)
        FROM generated g JOIN pg_attribute a ON a.attrelid = g.id AND a.attnum = g.attnum
        UNION ALL
        -- Dropped with such a column: constraints, indexes, and last foreign keys, because they need an index.
        SELECT CASE WHEN c.class <> 'pg_constraint'::regclass THEN 7.3 WHEN n.contype = 'f' THEN 7.4 ELSE 7.2 END,
            c.class, c.id, 0, NULL
        FROM generated g
        JOIN pg_depend d ON d.refclassid = g.class AND d.refobjid = g.id AND d.refobjsubid = g.attnum
            AND d.classid IN ('pg_class'::regclass, 'pg_constraint'::regclass, 'pg_statistic_ext'::regclass)
        LEFT JOIN pg_constraint n ON d.classid = 'pg_constraint'::regclass AND n.oid = d.objid,
        LATERAL (VALUES (d.classid, d.objid), ('pg_class'::regclass, n.conindid)) AS c (class, id)
        WHERE c.id <> 0 AND n.contype IS DISTINCT FROM 'n' AND (c.class = d.classid OR n.contype <> 'f')
        UNION ALL
        SELECT CASE WHEN n.oid IS NULL THEN 7.3 ELSE 7.2 END, d.classid, d.objid, 0, CASE WHEN n.oid IS NULL
            THEN format('DROP %s %s', CASE WHEN s.oid IS NULL THEN 'INDEX' ELSE 'STATISTICS' END, o.identity)
            ELSE format('ALTER TABLE %s DROP CONSTRAINT %I', c.oid::regclass, n.conname) END
        FROM narrow w
        JOIN pg_class c ON c.oid = w.id AND c.relowner = (TABLE own)
        JOIN pg_depend d ON d.refclassid = w.class AND d.refobjid = w.id AND d.refobjsubid = w.attnum
        LEFT JOIN pg_constraint n ON d.classid = 'pg_constraint'::regclass AND n.oid = d.objid AND n.contype = 'c'
            AND n.coninhcount = 0
        LEFT JOIN pg_class x ON d.classid = w.class AND x.oid = d.objid AND x.relkind IN ('i', 'I')
            AND NOT x.relispartition
        LEFT JOIN pg_index i ON i.indexrelid = x.oid AND concat(i.indexprs, i.indpred) <> ''
            AND NOT EXISTS (SELECT FROM pg_constraint u WHERE u.conindid = x.oid)
        LEFT JOIN pg_statistic_ext s ON d.classid = 'pg_statistic_ext'::regclass AND s.oid = d.objid AND s.stxexprs IS NOT NULL,
        LATERAL pg_identify_object(d.classid, d.objid, 0) AS o
        WHERE back AND num_nonnulls(n.oid, i.indexrelid, s.oid) > 0
    ), parts AS (
        SELECT c.part, c.class, c.id, c.attnum, max(c.drop_it) AS drop_it FROM candidates c GROUP BY 1, 2, 3, 4
    ), members (part, n, reader, class, id, attnum) AS (
        SELECT 8, 0, r.id, r.class, r.id, 0 FROM readers r
        UNION ALL
        SELECT 8, 1, a.attrelid, 'pg_class'::regclass, a.attrelid, a.attnum FROM pg_attribute a WHERE a.attnum > 0
        UNION
        -- Rules come after all views, because a rule may name a view on its own view.
        SELECT CASE d.classid WHEN 'pg_rewrite'::regclass THEN 8.5 ELSE 8 END, 1, d.refobjid, d.classid, d.objid, 0
        FROM pg_depend d WHERE d.refclassid = 'pg_class'::regclass AND d.deptype = 'a' AND d.classid = ANY (
            '{pg_class, pg_rewrite, pg_statistic_ext, pg_trigger}'::regclass[]::oid[])
    ), lines (class, id, part, depth, name, n, statement) AS (
        SELECT p.class, p.id, s.part, p.attnum, pg_describe_object(p.class, p.id, p.attnum), s.n, s.statement
        FROM parts p, LATERAL (
            SELECT -p.part, 0, p.drop_it
            UNION ALL
            SELECT p.part, c.n, c.statement FROM snowflake_internal.snowflake_convert_create(p.class, p.id, p.attnum) c
        ) AS s (part, n, statement)
        UNION ALL
        SELECT r.class, r.id, -8.5, r.depth, r.name, 0, format('DROP RULE %I ON %s', w.rulename, r.name)
        FROM readers r JOIN pg_rewrite w ON w.ev_class = r.id AND w.ev_type <> '1'
        UNION ALL
        SELECT r.class, r.id, -8, -r.depth, r.name, 0, format('DROP %s %s', r.kind, r.name) FROM readers r
        UNION ALL
        -- Rights come last, because the owner may have given up the one to create triggers.
        SELECT r.class, r.id, m.part, r.depth, r.name, CASE WHEN s.n > 3 THEN 100 ELSE 10 * m.n END + s.n, s.statement
        FROM readers r JOIN members m ON m.reader = r.id AND r.class IN (m.class, 'pg_class'::regclass),
        LATERAL snowflake_internal.snowflake_convert_create(m.class, m.id, m.attnum) AS s
    )
    SELECT l.* FROM lines l WHERE l.statement IS NOT NULL
$$;
