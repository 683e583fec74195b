-- The views of a conversion. PostgreSQL changes no column that a view reads, so these are dropped, and created again with
-- all that they had: definition, options, owner, rights, comments, defaults, triggers and rules.

-- The views that read a column that is widened, and the views on these; with the number of relations below each, by which
-- a view comes after those that it reads. Not temporary views, which may be another session's. With `stored`, the relations
-- that are obstacles: materialized views and what reads them, or reads a column that is generated from a widened one.
CREATE FUNCTION snowflake_internal.snowflake_convert_views(keys snowflake_internal.snowflake_key[], stored boolean)
    RETURNS TABLE (relid regclass, depth bigint)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE columns (relid, attnum, is_generated) AS (
        SELECT k.relid::oid, k.attnum, false FROM snowflake_internal.snowflake_convert_columns(keys) k WHERE k.is_small
        UNION
        SELECT g.adrelid, g.adnum, true
        FROM snowflake_internal.snowflake_convert_columns(keys) k
        JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
            AND d.refobjid = k.relid AND d.refobjsubid = k.attnum
        JOIN pg_attrdef g ON g.oid = d.objid AND g.adnum <> k.attnum
        WHERE k.is_small AND stored
    ), readers (relid, is_stored, read, attnum) AS MATERIALIZED (
        SELECT c.oid, c.relkind = 'm', d.refobjid, d.refobjsubid
        FROM pg_rewrite r
        JOIN pg_class c ON c.oid = r.ev_class AND (c.relkind = 'v' OR c.relkind = 'm' AND stored) AND c.relpersistence <> 't'
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
        WHERE r.ev_type = '1' AND d.refobjid <> c.oid AND c.oid >= 16384
    ), found (relid, is_stored) AS (
        SELECT v.relid, v.is_stored OR k.is_generated
        FROM columns k JOIN readers v ON v.read = k.relid AND v.attnum = k.attnum
        UNION
        SELECT v.relid, v.is_stored OR f.is_stored FROM found f JOIN readers v ON v.read = f.relid
    ), chosen AS (
        SELECT DISTINCT f.relid FROM found f WHERE f.is_stored = stored
    ), below (relid, used) AS (
        SELECT v.relid, v.relid FROM chosen v
        UNION
        SELECT b.relid, d.refobjid
        FROM below b
        JOIN pg_rewrite r ON r.ev_class = b.used AND r.ev_type = '1'
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
    )
    SELECT b.relid::regclass, count(*) FROM below b GROUP BY b.relid;
END
$$;

-- Looks for views that cannot be created again as they are.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_views(keys snowflake_internal.snowflake_key[])
    RETURNS SETOF snowflake_internal.snowflake_refusal
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    views constant oid[] := ARRAY(SELECT v.relid FROM snowflake_internal.snowflake_convert_views(keys, false) v);
BEGIN
    RETURN QUERY SELECT DISTINCT b.what, '2BP01', format('cannot drop view %s and create it again', c.oid::regclass),
        format('The %s depends on it.', b.what),
        'In one transaction, drop the object, convert, and create it again.', NULL::oid
    FROM pg_class c
    JOIN pg_type t ON t.oid = c.reltype
    JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
        OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray),
    LATERAL replace(pg_describe_object(d.classid, d.objid, d.objsubid), 'rule _RETURN on ', '') AS b (what)
    WHERE c.oid = ANY (views) AND d.deptype <> 'i'
        AND NOT EXISTS (SELECT FROM pg_rewrite r WHERE d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
                            AND r.ev_class = ANY (views))
        AND NOT EXISTS (SELECT FROM pg_trigger g WHERE d.classid = 'pg_trigger'::regclass AND g.oid = d.objid
                            AND g.tgrelid = ANY (views))
        AND NOT EXISTS (SELECT FROM pg_attrdef a WHERE d.classid = 'pg_attrdef'::regclass AND a.oid = d.objid
                            AND a.adrelid = ANY (views));

    RETURN QUERY SELECT format('view %s', c.oid::regclass), r.code, r.message, r.detail, r.hint, NULL::oid
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace,
    LATERAL format('cannot drop view %s and create it again', c.oid::regclass) AS refusal,
    LATERAL (
        SELECT string_agg(DISTINCT quote_ident(s.nspname), ', ') AS missing
        FROM (
            SELECT 'pg_rewrite'::regclass, r.oid FROM pg_rewrite r WHERE r.ev_class = c.oid
            UNION ALL
            SELECT 'pg_attrdef'::regclass, a.oid FROM pg_attrdef a WHERE a.adrelid = c.oid
            UNION ALL
            SELECT 'pg_trigger'::regclass, g.oid FROM pg_trigger g WHERE g.tgrelid = c.oid
        ) AS part (class, id)
        JOIN pg_depend u ON u.classid = part.class AND u.objid = part.id AND u.refobjid <> c.oid,
        LATERAL pg_identify_object(u.refclassid, u.refobjid, 0) AS i
        JOIN pg_namespace s ON quote_ident(s.nspname) = i.schema
        WHERE NOT has_schema_privilege(s.oid, 'USAGE')
    ) AS used,
    LATERAL (VALUES
        (EXISTS (SELECT FROM pg_depend d WHERE d.deptype IN ('e', 'x') AND (
                     d.classid = 'pg_class'::regclass AND d.objid = c.oid OR d.classid = 'pg_trigger'::regclass
                         AND d.objid IN (SELECT g.oid FROM pg_trigger g WHERE g.tgrelid = c.oid))), '0A000', refusal,
            'It or a trigger of it belongs to an extension or depends on one.',
            'In one transaction, drop it, convert, and create it again.'),
        (EXISTS (SELECT FROM pg_seclabel s WHERE s.classoid = 'pg_class'::regclass AND s.objoid = c.oid), '0A000', refusal,
            'It has a security label.', 'In one transaction, drop it, convert, and create it again.'),
        (EXISTS (SELECT FROM pg_type t WHERE t.oid = c.reltype
                     AND (t.typacl IS NOT NULL OR obj_description(t.oid, 'pg_type') IS NOT NULL)), '0A000', refusal,
            'Its row type has rights or a comment of its own.',
            'In one transaction, drop it, convert, and create it again.'),
        (NOT has_schema_privilege(n.oid, 'CREATE'), '42501', refusal,
            format('%s may not create objects in the schema %I.', current_user, n.nspname),
            format('First run GRANT CREATE ON SCHEMA %I TO %I.', n.nspname, current_user)),
        (used.missing IS NOT NULL, '42501', refusal,
            format('%s has no right on schemas whose objects it uses: %s.', current_user, used.missing),
            format('First run GRANT USAGE ON SCHEMA %s TO %I.', used.missing, current_user)),
        (EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid AND NOT has_function_privilege(g.tgfoid, 'EXECUTE')),
            '42501', refusal, format('%s may not execute the function of one of its triggers.', current_user),
            format('First grant EXECUTE on that function to %I, or drop the trigger.', current_user)),
        (EXISTS (
            SELECT FROM (SELECT c.relacl UNION ALL SELECT t.attacl FROM pg_attribute t WHERE t.attrelid = c.oid) AS r (acl),
            LATERAL aclexplode(r.acl) AS a WHERE a.grantor <> c.relowner), '42501', refusal,
            'Another role granted rights on it, and only that role can grant them again.',
            'In one transaction, drop it, convert, and create it again with these rights; or revoke them first.')
    ) AS r (is_so, code, message, detail, hint)
    WHERE c.oid = ANY (views) AND r.is_so;
END
$$;

-- The statements that drop the caller's views, or those that create them again.
CREATE FUNCTION snowflake_internal.snowflake_convert_plan_views(
    keys snowflake_internal.snowflake_key[], stored boolean, drops boolean
) RETURNS SETOF snowflake_internal.snowflake_step
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    WITH views AS MATERIALIZED (
        SELECT v.relid, v.depth, v.relid::text AS name, c.reloptions, c.relowner, c.relnamespace, c.relacl,
            CASE c.relkind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'VIEW' END AS kind, concat(
                (SELECT ' USING ' || quote_ident(m.amname) FROM pg_am m WHERE m.oid = c.relam),
                (SELECT format(' WITH (%s)', string_agg(format('%I = %L', o.option_name, o.option_value), ', '))
                 FROM pg_options_to_table(c.reloptions) AS o HAVING count(*) > 0),
                (SELECT ' TABLESPACE ' || quote_ident(t.spcname) FROM pg_tablespace t WHERE t.oid = c.reltablespace)
            ) AS options, CASE WHEN NOT c.relispopulated THEN ' WITH NO DATA' END AS ending
        FROM snowflake_internal.snowflake_convert_views(keys, stored) v JOIN pg_class c ON c.oid = v.relid
        JOIN pg_roles o ON o.oid = c.relowner AND o.rolname = current_user
        -- The conversion does not find a view that had to be dropped before.
        WHERE stored OR v.relid NOT IN (SELECT o.relid FROM snowflake_internal.snowflake_convert_views(keys, true) o)
    ), rights AS MATERIALIZED (
        -- What the owner has granted, and what the view would have right after its creation: the default privileges.
        SELECT v.relid, a.is_wanted, a.attname, e.privilege_type AS privilege, e.is_grantable, e.n,
            snowflake_internal.snowflake_grantee(e.grantee) AS label
        FROM views v, LATERAL (
            SELECT true, NULL::name, coalesce(v.relacl, acldefault('r', v.relowner))
            UNION ALL
            SELECT true, t.attname, t.attacl FROM pg_attribute t WHERE t.attrelid = v.relid
            UNION ALL
            SELECT false, NULL, coalesce((
                SELECT d.defaclacl FROM pg_default_acl d
                WHERE d.defaclrole = v.relowner AND d.defaclobjtype = 'r' AND d.defaclnamespace = 0
            ), acldefault('r', v.relowner))
            UNION ALL
            SELECT false, NULL, d.defaclacl FROM pg_default_acl d
            WHERE d.defaclrole = v.relowner AND d.defaclobjtype = 'r' AND d.defaclnamespace = v.relnamespace
        ) AS a (is_wanted, attname, acl),
        LATERAL aclexplode(a.acl) WITH ORDINALITY AS e (grantor, grantee, privilege_type, is_grantable, n)
    ), parts (part, depth, relid, n, statement) AS (
        -- A rule may name a view on its own view.
        SELECT -1, v.depth, v.relid, 0, format('DROP RULE %I ON %s', r.rulename, v.name)
        FROM views v JOIN pg_rewrite r ON r.ev_class = v.relid AND r.ev_type <> '1' AND EXISTS (
            SELECT FROM pg_depend d JOIN views o ON o.relid = d.refobjid AND o.relid <> v.relid
            WHERE d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass)
        UNION ALL
        SELECT 0, -v.depth, v.relid, 0, format('DROP %s %s', v.kind, v.name)
        FROM views v
        UNION ALL
        SELECT 1, v.depth, v.relid, 0, format('CREATE %s %s%s AS %s%s', v.kind, v.name, v.options,
                                              btrim(pg_get_viewdef(v.relid), E'; \n'), v.ending)
        FROM views v
        UNION ALL
        SELECT 1, v.depth, v.relid, i.n, i.statement
        FROM views v
        JOIN pg_index x ON x.indrelid = v.relid
        LEFT JOIN pg_description d ON d.classoid = 'pg_class'::regclass AND d.objoid = x.indexrelid AND d.objsubid = 0,
        LATERAL (VALUES
            (true, 1, pg_get_indexdef(x.indexrelid)),
            (d.objoid IS NOT NULL, 2, format('COMMENT ON INDEX %s IS %L', x.indexrelid::regclass, d.description)),
            (x.indisclustered, 2, format('ALTER MATERIALIZED VIEW %s CLUSTER ON %I', v.name, (
                SELECT c.relname FROM pg_class c WHERE c.oid = x.indexrelid)))
        ) AS i (is_so, n, statement)
        WHERE i.is_so
        UNION ALL
        SELECT 1, v.depth, v.relid, 2, pg_get_statisticsobjdef(s.oid)
        FROM views v JOIN pg_statistic_ext s ON s.stxrelid = v.relid
        UNION ALL
        SELECT 1, v.depth, v.relid, 2, format('ALTER VIEW %s ALTER COLUMN %I SET DEFAULT %s', v.name, a.attname,
                                              pg_get_expr(d.adbin, d.adrelid))
        FROM views v JOIN pg_attrdef d ON d.adrelid = v.relid
        JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
        UNION ALL
        SELECT 1, v.depth, v.relid, 3, format('COMMENT ON %s %s IS %L', v.kind, v.name, d.description)
        FROM views v JOIN pg_description d ON d.classoid = 'pg_class'::regclass AND d.objoid = v.relid AND d.objsubid = 0
        UNION ALL
        SELECT 1, v.depth, v.relid, 4, format('COMMENT ON COLUMN %s.%I IS %L', v.name, a.attname, d.description)
        FROM views v JOIN pg_description d ON d.classoid = 'pg_class'::regclass AND d.objoid = v.relid
        JOIN pg_attribute a ON a.attrelid = v.relid AND a.attnum = d.objsubid AND d.objsubid > 0
        UNION ALL
        -- What the default privileges of the owner give, and the view did not have.
        SELECT 1, v.depth, v.relid, 5, format('REVOKE %s ON %s FROM %s', string_agg(r.privilege, ', ' ORDER BY r.n),
                                              v.name, r.label)
        FROM views v JOIN rights r ON r.relid = v.relid AND NOT r.is_wanted
        WHERE NOT EXISTS (
            SELECT FROM rights w
            WHERE w.is_wanted AND w.attname IS NULL
                AND (w.relid, w.label, w.privilege, w.is_grantable) = (r.relid, r.label, r.privilege, r.is_grantable))
        GROUP BY v.depth, v.relid, v.name, r.label
        UNION ALL
        SELECT 1, v.depth, v.relid, 6, format('GRANT %s ON %s TO %s%s', string_agg(
                r.privilege || CASE WHEN r.attname IS NULL THEN '' ELSE format(' (%I)', r.attname) END, ', ' ORDER BY r.n),
            v.name, r.label, CASE WHEN r.is_grantable THEN ' WITH GRANT OPTION' END)
        FROM views v JOIN rights r ON r.relid = v.relid AND r.is_wanted
        WHERE r.attname IS NOT NULL OR NOT EXISTS (
            SELECT FROM rights w
            WHERE NOT w.is_wanted
                AND (w.relid, w.label, w.privilege, w.is_grantable) = (r.relid, r.label, r.privilege, r.is_grantable))
        GROUP BY v.depth, v.relid, v.name, r.label, r.is_grantable, r.attname
        UNION ALL
        -- Before the rights, because the owner may have given up the one to create triggers.
        SELECT 1, v.depth, v.relid, s.n, s.statement
        FROM views v
        JOIN pg_trigger g ON g.tgrelid = v.relid AND NOT g.tgisinternal
        LEFT JOIN pg_description d ON d.classoid = 'pg_trigger'::regclass AND d.objoid = g.oid,
        LATERAL (VALUES
            (true, 3, pg_get_triggerdef(g.oid)),
            (d.objoid IS NOT NULL, 4, format('COMMENT ON TRIGGER %I ON %s IS %L', g.tgname, v.name, d.description))
        ) AS s (is_so, n, statement)
        WHERE s.is_so
        UNION ALL
        SELECT 2, v.depth, v.relid, s.n, s.statement
        FROM views v
        JOIN pg_rewrite r ON r.ev_class = v.relid
        LEFT JOIN pg_description d ON d.classoid = 'pg_rewrite'::regclass AND d.objoid = r.oid,
        LATERAL (VALUES
            (r.ev_type <> '1', 1, rtrim(pg_get_ruledef(r.oid), ';')),
            (d.objoid IS NOT NULL, 2, format('COMMENT ON RULE %I ON %s IS %L', r.rulename, v.name, d.description))
        ) AS s (is_so, n, statement)
        WHERE s.is_so
    )
    SELECT p.statement, format('ACCESS EXCLUSIVE on %s', p.relid), false, NULL,
        CASE WHEN drops THEN 'it is created again below' END
    FROM parts p
    WHERE (p.part <= 0) = drops
    ORDER BY p.part, p.depth, p.relid::text COLLATE "C", p.n, p.statement COLLATE "C";
END
$$;
