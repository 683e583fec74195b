-- The views of a conversion. PostgreSQL changes no column that a view reads, so these are dropped, and created again with
-- all that they had: definition, options, owner, rights, comments, defaults, triggers and rules.
--
-- Each statement runs with the rights of the view's owner, or of the role that granted a right, and never with those of the
-- tables' owner: a view of somebody else gets nobody's rights.

-- The views that read a column that is widened, and the views on these; with the number of relations below each, by which
-- a view comes after those that it reads. Not temporary views, which may be another session's.
CREATE FUNCTION snowflake_internal.snowflake_convert_views(keys snowflake_internal.snowflake_key[])
    RETURNS TABLE (relid regclass, depth bigint)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE found (relid) AS (
        SELECT r.ev_class
        FROM snowflake_internal.snowflake_convert_columns(keys) k
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
            AND d.refobjid = k.relid AND d.refobjsubid = k.attnum
        JOIN pg_rewrite r ON r.oid = d.objid AND r.ev_type = '1'
        JOIN pg_class c ON c.oid = r.ev_class AND c.relkind = 'v' AND c.relpersistence <> 't'
        WHERE k.is_small
        UNION
        SELECT r.ev_class
        FROM found v
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
            AND d.refobjid = v.relid
        JOIN pg_rewrite r ON r.oid = d.objid AND r.ev_type = '1'
        JOIN pg_class c ON c.oid = r.ev_class AND c.relkind = 'v' AND c.relpersistence <> 't'
    ), below (relid, used) AS (
        SELECT v.relid, v.relid FROM found v
        UNION
        SELECT b.relid, d.refobjid
        FROM below b
        JOIN pg_rewrite r ON r.ev_class = b.used AND r.ev_type = '1'
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
    )
    SELECT b.relid::regclass, count(*) FROM below b GROUP BY b.relid;
END
$$;

-- What the query, the rules, the defaults and the triggers of a view name.
CREATE FUNCTION snowflake_internal.snowflake_convert_view_uses(view regclass) RETURNS TABLE (classid oid, objid oid)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT DISTINCT d.refclassid, d.refobjid
    FROM (
        SELECT 'pg_rewrite'::regclass, r.oid FROM pg_rewrite r WHERE r.ev_class = view
        UNION ALL
        SELECT 'pg_attrdef'::regclass, a.oid FROM pg_attrdef a WHERE a.adrelid = view
        UNION ALL
        SELECT 'pg_trigger'::regclass, g.oid FROM pg_trigger g WHERE g.tgrelid = view
    ) AS part (class, id)
    JOIN pg_depend d ON d.classid = part.class AND d.objid = part.id
    WHERE d.refobjid <> view;
END
$$;

-- What each view names, and its schema. These views themselves, and their row types, have no OID: they get new ones.
CREATE FUNCTION snowflake_internal.snowflake_convert_views_name(views regclass[])
    RETURNS TABLE (view text, classid oid, objid oid, name text, owner oid, is_called boolean)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT v::text, u.classid, CASE WHEN coalesce(c.oid, t.typrelid) = ANY (views) THEN 0 ELSE u.objid END,
        concat_ws(' ', i.type, i.identity), coalesce(p.proowner, c.relowner, t.typowner, s.nspowner, 0), p.oid IS NOT NULL
    FROM unnest(views) AS v, LATERAL (
        SELECT n.classid, n.objid FROM snowflake_internal.snowflake_convert_view_uses(v) n
        UNION ALL
        SELECT 'pg_namespace'::regclass, n.relnamespace FROM pg_class n WHERE n.oid = v
    ) AS u
    LEFT JOIN pg_operator o ON u.classid = 'pg_operator'::regclass AND o.oid = u.objid
    LEFT JOIN pg_proc p ON p.oid = CASE u.classid WHEN 'pg_proc'::regclass THEN u.objid ELSE o.oprcode END
    LEFT JOIN pg_class c ON u.classid = 'pg_class'::regclass AND c.oid = u.objid
    LEFT JOIN pg_type t ON u.classid = 'pg_type'::regclass AND t.oid = u.objid
    LEFT JOIN pg_namespace s ON u.classid = 'pg_namespace'::regclass AND s.oid = u.objid,
    LATERAL pg_identify_object(u.classid, u.objid, 0) AS i
    -- A widened key has a new constraint, on which a GROUP BY may depend.
    WHERE u.classid <> 'pg_constraint'::regclass;
END
$$;

-- The rights that a view has and those that it would have right after its creation, which the default privileges of its
-- owner decide; each with its distance from the owner, in whose order one may depend on another.
CREATE FUNCTION snowflake_internal.snowflake_convert_view_rights(view regclass)
    RETURNS TABLE (
        is_wanted boolean, attname name, grantor oid, grantee oid, privilege text, is_grantable boolean, n bigint,
        distance integer
    )
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH RECURSIVE rights AS MATERIALIZED (
    SELECT a.is_wanted, a.attname, e.grantor, e.grantee, e.privilege_type, e.is_grantable, e.n
    FROM (
        SELECT true, NULL, coalesce(c.relacl, acldefault('r', c.relowner)) FROM pg_class c WHERE c.oid = view
        UNION ALL
        SELECT true, t.attname, t.attacl FROM pg_attribute t WHERE t.attrelid = view AND t.attacl IS NOT NULL
        UNION ALL
        SELECT false, NULL, coalesce((
            SELECT d.defaclacl FROM pg_default_acl d
            WHERE d.defaclrole = c.relowner AND d.defaclobjtype = 'r' AND d.defaclnamespace = 0
        ), acldefault('r', c.relowner))
        FROM pg_class c WHERE c.oid = view
        UNION ALL
        SELECT false, NULL, d.defaclacl
        FROM pg_class c JOIN pg_default_acl d ON d.defaclrole = c.relowner AND d.defaclobjtype = 'r'
            AND d.defaclnamespace = c.relnamespace
        WHERE c.oid = view
    ) AS a (is_wanted, attname, acl),
    LATERAL aclexplode(a.acl) WITH ORDINALITY AS e (grantor, grantee, privilege_type, is_grantable, n)
    ), chain (attname, grantor, grantee, privilege_type, is_grantable, distance) AS (
        SELECT r.attname, r.grantor, r.grantee, r.privilege_type, r.is_grantable, 1
        FROM rights r JOIN pg_class c ON c.oid = view AND c.relowner = r.grantor
        WHERE r.is_wanted
        UNION
        -- The order of the rights in a list says nothing: an entry keeps its place when it gets another right.
        SELECT r.attname, r.grantor, r.grantee, r.privilege_type, r.is_grantable, h.distance + 1
        FROM chain h JOIN rights r ON r.is_wanted AND r.grantor = h.grantee AND r.privilege_type = h.privilege_type
            AND (h.attname IS NULL OR h.attname = r.attname)
        WHERE h.is_grantable
    )
    SELECT r.*, coalesce((
        SELECT min(h.distance) FROM chain h
        WHERE r.is_wanted AND h.attname IS NOT DISTINCT FROM r.attname
            AND (h.grantor, h.grantee, h.privilege_type, h.is_grantable)
                = (r.grantor, r.grantee, r.privilege_type, r.is_grantable)), 1)
    FROM rights r;
END
$$;

-- Looks for views that cannot be created again as they are.
CREATE FUNCTION snowflake_internal.snowflake_convert_check_views(keys snowflake_internal.snowflake_key[])
    RETURNS TABLE (code text, message text, detail text, hint text)
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    views constant oid[] := ARRAY(SELECT v.relid FROM snowflake_internal.snowflake_convert_views(keys) v);
BEGIN
    RETURN QUERY SELECT '2BP01', format('cannot drop view %s and create it again', c.oid::regclass),
        format('These objects depend on it: %s.', string_agg(DISTINCT b.what, ', ' ORDER BY b.what)),
        'In one transaction, drop them, convert, and create them again.'
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
                            AND a.adrelid = ANY (views))
    GROUP BY c.oid;

    RETURN QUERY SELECT r.code, r.message, r.detail, r.hint
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace,
    LATERAL format('cannot drop view %s and create it again', c.oid::regclass) AS refusal,
    LATERAL (
        SELECT string_agg(DISTINCT quote_ident(s.nspname), ', ') AS missing
        FROM snowflake_internal.snowflake_convert_view_uses(c.oid) u,
        LATERAL pg_identify_object(u.classid, u.objid, 0) AS i
        JOIN pg_namespace s ON quote_ident(s.nspname) = i.schema
        WHERE NOT has_schema_privilege(c.relowner, s.oid, 'USAGE')
    ) AS used,
    LATERAL (
        SELECT snowflake_internal.snowflake_convert_others(
            c.relowner, array_agg(u.classid), array_agg(u.objid), NULL) AS others
        FROM snowflake_internal.snowflake_convert_view_uses(c.oid) u WHERE u.classid = 'pg_type'::regclass
    ) AS types,
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
        (NOT (has_schema_privilege(c.relowner, n.oid, 'USAGE') AND has_schema_privilege(c.relowner, n.oid, 'CREATE')),
            '42501', refusal,
            format('Its owner %s may not create objects in the schema %I.', c.relowner::regrole, n.nspname),
            format('First run GRANT USAGE, CREATE ON SCHEMA %I TO %s.', n.nspname, c.relowner::regrole)),
        (used.missing IS NOT NULL, '42501', refusal,
            format('Its owner %s has no right on schemas whose objects it uses: %s.', c.relowner::regrole, used.missing),
            format('First run GRANT USAGE ON SCHEMA %s TO %s.', used.missing, c.relowner::regrole)),
        (types.others IS NOT NULL, '42501', refusal,
            format('Its owner %s would call functions that another role chooses: %s.', c.relowner::regrole, types.others),
            'Make its owner or a superuser the owner of these. Otherwise, in one transaction, drop it, convert, and create '
            'it again.'),
        (EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = c.oid
                     AND NOT has_function_privilege(c.relowner, g.tgfoid, 'EXECUTE')), '42501', refusal,
            format('Its owner %s may not execute the function of one of its triggers.', c.relowner::regrole),
            format('First grant EXECUTE on that function to %s, or drop the trigger.', c.relowner::regrole)),
        (EXISTS (SELECT FROM snowflake_internal.snowflake_convert_view_rights(c.oid) a
                 WHERE a.is_wanted AND NOT pg_has_role(a.grantor, 'USAGE')), '42501', refusal,
            'Another role granted rights on it, and only that role can grant them again.',
            'Run snowflake_convert as a superuser, or revoke these rights first.')
    ) AS r (is_so, code, message, detail, hint)
    WHERE c.oid = ANY (views) AND r.is_so;
END
$$;

-- The statements that drop the views, or those that create them again.
CREATE FUNCTION snowflake_internal.snowflake_convert_plan_views(keys snowflake_internal.snowflake_key[], drops boolean)
    RETURNS SETOF snowflake_internal.snowflake_step
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tables_owner constant oid := (SELECT c.relowner FROM pg_class c WHERE c.oid = (keys[1]).relid);
BEGIN
    RETURN QUERY
    WITH views AS MATERIALIZED (
        SELECT v.relid, v.depth, v.relid::text AS name, c.relowner, c.reloptions
        FROM snowflake_internal.snowflake_convert_views(keys) v JOIN pg_class c ON c.oid = v.relid
    ), rights AS MATERIALIZED (
        SELECT v.relid, a.*, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS label
        FROM views v, LATERAL snowflake_internal.snowflake_convert_view_rights(v.relid) a
    ), parts (part, depth, relid, n, statement, note, runs_as) AS (
        -- A rule may name a view on its own view.
        SELECT -1, v.depth, v.relid, 0, format('DROP RULE %I ON %s', r.rulename, v.name), 'it is created again below',
            v.relowner
        FROM views v JOIN pg_rewrite r ON r.ev_class = v.relid AND r.ev_type <> '1' AND EXISTS (
            SELECT FROM pg_depend d JOIN views o ON o.relid = d.refobjid AND o.relid <> v.relid
            WHERE d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass)
        UNION ALL
        SELECT 0, -v.depth, v.relid, 0, format('DROP VIEW %s', v.name), 'it is created again below', v.relowner
        FROM views v
        UNION ALL
        SELECT 1, v.depth, v.relid, 0, format('CREATE VIEW %s%s AS %s', v.name, (
                SELECT format(' WITH (%s)', string_agg(format('%I = %L', o.option_name, o.option_value), ', '))
                FROM pg_options_to_table(v.reloptions) AS o HAVING count(*) > 0
            ), btrim(pg_get_viewdef(v.relid), E'; \n')), NULL, v.relowner
        FROM views v
        UNION ALL
        SELECT 1, v.depth, v.relid, 1, format('ALTER VIEW %s OWNER TO %s', v.name, v.relowner::regrole),
            'matters to those who execute these statements as another role', v.relowner
        FROM views v WHERE v.relowner <> tables_owner
        UNION ALL
        SELECT 1, v.depth, v.relid, 2, format('ALTER VIEW %s ALTER COLUMN %I SET DEFAULT %s', v.name, a.attname,
                                              pg_get_expr(d.adbin, d.adrelid)), NULL, v.relowner
        FROM views v JOIN pg_attrdef d ON d.adrelid = v.relid
        JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
        UNION ALL
        SELECT 1, v.depth, v.relid, 3, format('COMMENT ON VIEW %s IS %L', v.name, d.description), NULL, v.relowner
        FROM views v JOIN pg_description d ON d.classoid = 'pg_class'::regclass AND d.objoid = v.relid AND d.objsubid = 0
        UNION ALL
        SELECT 1, v.depth, v.relid, 4, format('COMMENT ON COLUMN %s.%I IS %L', v.name, a.attname, d.description), NULL,
            v.relowner
        FROM views v JOIN pg_description d ON d.classoid = 'pg_class'::regclass AND d.objoid = v.relid
        JOIN pg_attribute a ON a.attrelid = v.relid AND a.attnum = d.objsubid AND d.objsubid > 0
        UNION ALL
        -- What the default privileges of the owner give, and the view did not have.
        SELECT 1, v.depth, v.relid, 5, format('REVOKE %s ON %s FROM %s', string_agg(r.privilege, ', ' ORDER BY r.n),
                                              v.name, r.label), NULL, v.relowner
        FROM views v JOIN rights r ON r.relid = v.relid AND NOT r.is_wanted
        WHERE NOT EXISTS (
            SELECT FROM rights w
            WHERE w.is_wanted AND w.attname IS NULL AND (w.relid, w.grantor, w.grantee, w.privilege, w.is_grantable)
                = (r.relid, r.grantor, r.grantee, r.privilege, r.is_grantable))
        GROUP BY v.depth, v.relid, v.name, v.relowner, r.label
        UNION ALL
        SELECT 1, v.depth, v.relid, 5 + r.distance, format('GRANT %s ON %s TO %s%s', string_agg(
                r.privilege || CASE WHEN r.attname IS NULL THEN '' ELSE format(' (%I)', r.attname) END, ', ' ORDER BY r.n), v.name, r.label,
                CASE WHEN r.is_grantable THEN ' WITH GRANT OPTION' END),
            CASE WHEN r.grantor <> v.relowner THEN format('by %s', r.grantor::regrole) END, r.grantor
        FROM views v JOIN rights r ON r.relid = v.relid AND r.is_wanted
        WHERE r.attname IS NOT NULL OR NOT EXISTS (
            SELECT FROM rights w
            WHERE NOT w.is_wanted AND (w.relid, w.grantor, w.grantee, w.privilege, w.is_grantable)
                = (r.relid, r.grantor, r.grantee, r.privilege, r.is_grantable))
        GROUP BY v.depth, v.relid, v.name, v.relowner, r.grantor, r.label, r.is_grantable, r.attname, r.distance
        UNION ALL
        -- Before the rights, because the owner may have given up the one to create triggers.
        SELECT 1, v.depth, v.relid, s.n, s.statement, NULL, v.relowner
        FROM views v
        JOIN pg_trigger g ON g.tgrelid = v.relid AND NOT g.tgisinternal
        LEFT JOIN pg_description d ON d.classoid = 'pg_trigger'::regclass AND d.objoid = g.oid,
        LATERAL (VALUES
            (true, 3, pg_get_triggerdef(g.oid)),
            (d.objoid IS NOT NULL, 4, format('COMMENT ON TRIGGER %I ON %s IS %L', g.tgname, v.name, d.description))
        ) AS s (is_so, n, statement)
        WHERE s.is_so
        UNION ALL
        SELECT 2, v.depth, v.relid, s.n, s.statement, NULL, v.relowner
        FROM views v
        JOIN pg_rewrite r ON r.ev_class = v.relid
        LEFT JOIN pg_description d ON d.classoid = 'pg_rewrite'::regclass AND d.objoid = r.oid,
        LATERAL (VALUES
            (r.ev_type <> '1', 1, rtrim(pg_get_ruledef(r.oid), ';')),
            (d.objoid IS NOT NULL, 2, format('COMMENT ON RULE %I ON %s IS %L', r.rulename, v.name, d.description))
        ) AS s (is_so, n, statement)
        WHERE s.is_so
    )
    SELECT p.statement, format('ACCESS EXCLUSIVE on %s', p.relid), false, NULL, p.note, p.runs_as
    FROM parts p
    WHERE (p.part <= 0) = drops
    ORDER BY p.part, p.depth, p.relid::text COLLATE "C", p.n, p.statement COLLATE "C";
END
$$;
