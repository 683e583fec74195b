-- The steps that remain in a database after the server's layout has changed.

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

-- The function executes nothing, and returns only statements that change the caller's own objects. The caller executes
-- them, in one transaction each. The function looks up no function of the extension by name, because one of another role
-- may have that name by now.
CREATE FUNCTION snowflake_layout_steps() RETURNS TABLE (statement text, note text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    -- The functions that read IDs by this server's layout, and everything that depends on them, directly or not; of
    -- tables only the generated columns.
    WITH RECURSIVE reading (classid, objid, objsubid) AS (
        SELECT d.classid, d.objid, 0
        FROM pg_extension e
        JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
        JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
        WHERE e.extname = 'snowflake_id' AND 'text'::regtype <> ALL (p.proargtypes::oid[]) AND p.proname IN (
            'snowflake_timestamp', 'snowflake_datacenter', 'snowflake_worker', 'snowflake_sequence', 'snowflake_owner',
            'snowflake_encode', 'snowflake_min', 'snowflake_max', 'snowflake_between_from', 'snowflake_between_until')
        UNION
        SELECT o.classid, o.objid, o.objsubid
        FROM reading r
        JOIN pg_depend d ON d.refclassid = r.classid AND d.refobjid = r.objid AND r.objsubid IN (0, d.refobjsubid)
        LEFT JOIN pg_class c ON r.classid = 'pg_class'::regclass AND c.oid = r.objid AND r.objsubid = 0,
        LATERAL (
            SELECT d.classid, d.objid, 0
            WHERE d.classid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_constraint'::regclass,
                                'pg_statistic_ext'::regclass, 'pg_class'::regclass)
            UNION ALL
            SELECT 'pg_class'::regclass, v.oid, 0 FROM pg_rewrite w JOIN pg_class v ON v.oid = w.ev_class
            WHERE d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid AND v.relkind IN ('v', 'm')
            UNION ALL
            SELECT 'pg_class'::regclass, a.adrelid, a.adnum
            FROM pg_attrdef a JOIN pg_attribute g ON g.attrelid = a.adrelid AND g.attnum = a.adnum
            WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = a.oid AND g.attgenerated = 's'
        ) AS o (classid, objid, objsubid)
        -- An index, or a table whose partition key reads IDs, ends the search: its dependents need not read IDs.
        WHERE c.relkind IS NULL OR c.relkind IN ('v', 'm')
    ),
    -- Adds the table with the rows, or the domain; and in `other`, another role that owns it or one of its children.
    affected AS MATERIALIZED (
        SELECT r.*, c.oid AS relid, c.relkind, n.contypid, coalesce(c.relowner, y.typowner) AS owner,
            coalesce(c.oid::regclass::text, y.oid::regtype::text) AS label, o.other
        FROM reading r
        LEFT JOIN pg_index i ON r.classid = 'pg_class'::regclass AND i.indexrelid = r.objid
        LEFT JOIN pg_constraint n ON r.classid = 'pg_constraint'::regclass AND n.oid = r.objid
        LEFT JOIN pg_statistic_ext x ON r.classid = 'pg_statistic_ext'::regclass AND x.oid = r.objid
        LEFT JOIN pg_class c ON c.oid = coalesce(i.indrelid, n.conrelid, x.stxrelid, r.objid)
            AND r.classid IN ('pg_class'::regclass, 'pg_constraint'::regclass, 'pg_statistic_ext'::regclass)
        LEFT JOIN pg_type y ON y.oid = n.contypid
        LEFT JOIN LATERAL (
            WITH RECURSIVE members (relid) AS (
                SELECT c.oid
                UNION
                SELECT h.inhrelid FROM members m JOIN pg_inherits h ON h.inhparent = m.relid
            )
            SELECT p.other
            FROM (
                SELECT k.relowner, k.relnamespace FROM members m JOIN pg_class k ON k.oid = m.relid
                UNION
                SELECT y.typowner, y.typnamespace
            ) AS q (owner, of_schema), LATERAL (
                SELECT snowflake_internal.snowflake_other_owner(q.owner, q.of_schema)
            ) AS p (other)
            WHERE p.other IS NOT NULL ORDER BY p.other <> coalesce(c.relowner, y.typowner) LIMIT 1
        ) AS o ON true
        WHERE coalesce(n.coninhcount, 0) = 0 AND (
            c.relkind IN ('r', 'p', 'm') AND c.relpersistence <> 't' OR y.oid IS NOT NULL)
    ), own AS (
        SELECT * FROM affected a WHERE a.other IS NULL
    )
    SELECT s.statement, s.note FROM (
        SELECT 1, 0::oid, CASE WHEN r.may THEN
            'MERGE INTO snowflake_internal.snowflake_config '
            'USING snowflake_internal.server_layout() AS own ON true '
            'WHEN MATCHED THEN UPDATE SET layout = own.layout, tick_ms = own.tick_ms, epoch = own.epoch '
            'WHEN NOT MATCHED THEN INSERT (layout, tick_ms, epoch) VALUES (own.layout, own.tick_ms, own.epoch)' END,
            CASE WHEN r.may THEN 'Gives this database the server''s layout.'
                ELSE format('First %s must give this database the server''s layout.', c.relowner::regrole) END
        FROM pg_class c, LATERAL pg_has_role(c.relowner, 'USAGE') AS r (may)
        WHERE c.oid = 'snowflake_internal.snowflake_config'::regclass
        UNION
        -- Setting a column recomputes its dependents. The table's triggers are disabled meanwhile; session_replication_role
        -- would also disable those of other tables that the owner's functions change.
        SELECT 2, t.relid, CASE WHEN NOT k.is_blocked AND NOT (k.setting IS NULL)
                THEN concat_ws('; ', 'SET LOCAL row_security = off', w.off,
                    'UPDATE ONLY ' || t.label || ' SET ' || string_agg(DISTINCT k.setting, ', '), w.back) END,
            format(CASE WHEN k.is_blocked
                        THEN 'Recompute %s of %s by hand, because of its rules or constraints.'
                        WHEN k.setting IS NULL
                        THEN 'Drop and add %s of %s by hand: no other column can be set to recompute it.'
                        ELSE 'Recomputes %s of %s.' END, string_agg(g.attname, ', ' ORDER BY g.attnum), t.label)
        FROM own t
        JOIN pg_attribute g ON g.attrelid = t.relid AND g.attnum = t.objsubid
        JOIN pg_attrdef a ON a.adrelid = t.relid AND a.adnum = t.objsubid,
        LATERAL (
            SELECT min(quote_ident(u.attname) || ' = ' || quote_ident(u.attname)),
                EXISTS (SELECT FROM pg_rewrite w
                        WHERE w.ev_class = t.relid AND w.ev_type = '2' AND w.ev_enabled IN ('O', 'A'))
                -- These checks could be deferred, or change other tables.
                OR EXISTS (SELECT FROM pg_constraint n
                           WHERE n.conrelid = t.relid AND g.attnum = ANY (n.conkey)
                                  AND (n.contype = 'f' OR n.condeferrable)
                              OR n.confrelid = t.relid AND g.attnum = ANY (n.confkey))
            FROM pg_depend d JOIN pg_attribute u ON u.attrelid = d.refobjid AND u.attnum = d.refobjsubid
            WHERE d.classid = 'pg_attrdef'::regclass AND d.objid = a.oid AND d.refclassid = 'pg_class'::regclass
                AND d.refobjid = t.relid AND u.attgenerated = '' AND u.attidentity <> 'a'
        ) AS k (setting, is_blocked),
        LATERAL (
            SELECT 'ALTER TABLE ONLY ' || t.label || ' ' || string_agg(format('DISABLE TRIGGER %I', tgname), ', '),
                'ALTER TABLE ONLY ' || t.label || ' ' || string_agg(format(
                    CASE tgenabled WHEN 'A' THEN 'ENABLE ALWAYS TRIGGER %I' ELSE 'ENABLE TRIGGER %I' END, tgname), ', ')
            FROM pg_trigger WHERE tgrelid = t.relid AND NOT tgisinternal AND tgenabled IN ('O', 'A')
        ) AS w (off, back)
        WHERE t.relkind = 'r'
        GROUP BY t.relid, t.label, k.is_blocked, k.setting IS NULL, w.off, w.back
        UNION
        SELECT 3, t.objid, format('REINDEX INDEX %s', t.objid::regclass), format('On %s.', t.label)
        FROM own t JOIN pg_class i ON i.oid = t.objid
        WHERE t.classid = 'pg_class'::regclass AND i.relkind = 'i'
        UNION
        SELECT 4, t.relid, format('REFRESH MATERIALIZED VIEW %s', t.label),
            'If it reads another materialized view, refresh that one first.'
        FROM own t JOIN pg_class v ON v.oid = t.objid
        WHERE t.classid = 'pg_class'::regclass AND v.relkind = 'm' AND v.relispopulated
        UNION
        -- pg_get_constraintdef wrote the expression for this search_path.
        SELECT 5, n.oid, format(
                'SET LOCAL search_path = pg_catalog, pg_temp; '
                'ALTER %1$s %2$s ADD CONSTRAINT snowflake_layout_%3$s %4$s; '
                'ALTER %1$s %2$s DROP CONSTRAINT snowflake_layout_%3$s',
                CASE n.contypid WHEN 0 THEN 'TABLE' ELSE 'DOMAIN' END, t.label, n.oid, pg_get_constraintdef(n.oid)),
            format('Fails if a row violates %s.', pg_describe_object('pg_constraint'::regclass, n.oid, 0))
        FROM own t
        JOIN pg_constraint n ON t.classid = 'pg_constraint'::regclass AND n.oid = t.objid
        WHERE n.contype = 'c' AND n.convalidated
        UNION
        SELECT 6, t.relid, NULL, format('Move the rows of %s by hand, because its partition key reads IDs.', t.label)
        FROM own t WHERE t.relid = t.objid AND t.objsubid = 0 AND t.relkind = 'p'
        UNION
        SELECT 7, t.relid, format('ANALYZE %s', t.label), NULL
        FROM own t WHERE t.classid <> 'pg_constraint'::regclass AND t.relkind = 'r'
        UNION
        SELECT 8, a.other, NULL, format(CASE WHEN a.other = a.owner
                THEN '%s has steps for %s tables, materialized views or domains: connect as that role, or as a member of it '
                    'that is no superuser and SET ROLE to it.'
                ELSE '%s owns the schema or a child of %s tables, materialized views or domains: first give it to their '
                    'owner.' END,
            a.other::regrole, count(DISTINCT coalesce(a.relid, a.contypid)))
        FROM affected a WHERE a.other IS NOT NULL GROUP BY a.other, a.other = a.owner
    ) AS s (step, oid, statement, note)
    ORDER BY s.step, s.oid, s.statement;
END
$$;

REVOKE ALL ON FUNCTION snowflake_layout_steps() FROM PUBLIC;
COMMENT ON FUNCTION snowflake_layout_steps() IS
    'returns the statements that give this database the server''s layout, for psql''s \gexec; executes none of them';
