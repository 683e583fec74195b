-- The steps that remain in a database after the server's layout has changed.

-- The function executes nothing. Its statements evaluate what the owners of tables and domains have defined, with the
-- rights of these owners: PostgreSQL's REINDEX, REFRESH and ANALYZE do so themselves, and snowflake_execute_as_owner()
-- does it for the others, whose rows tell what they change and as whom. The extension's functions are not looked up by
-- name, because a name may be somebody else's by now.
-- With a name, it returns those that change what has that name.
CREATE FUNCTION snowflake_internal.snowflake_layout_rows(of_name text DEFAULT NULL)
    RETURNS TABLE (statement text, note text, changes text, runs_as oid)
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
        -- Not on from an index, or from a table with a partition key that reads IDs, to everything that depends on it.
        WHERE c.relkind IS NULL OR c.relkind IN ('v', 'm')
    ),
    -- With the table that holds the rows, or the name of a domain.
    affected AS (
        SELECT r.*, c.oid AS relid, c.relkind, c.relowner, l.label
        FROM reading r
        LEFT JOIN pg_index i ON r.classid = 'pg_class'::regclass AND i.indexrelid = r.objid
        LEFT JOIN pg_constraint n ON r.classid = 'pg_constraint'::regclass AND n.oid = r.objid
        LEFT JOIN pg_statistic_ext x ON r.classid = 'pg_statistic_ext'::regclass AND x.oid = r.objid
        LEFT JOIN pg_class c ON c.oid = coalesce(i.indrelid, n.conrelid, x.stxrelid, r.objid)
            AND r.classid IN ('pg_class'::regclass, 'pg_constraint'::regclass, 'pg_statistic_ext'::regclass),
        LATERAL coalesce(c.oid::regclass::text, n.contypid::regtype::text) AS l (label)
        WHERE (c.oid IS NULL OR NOT pg_is_other_temp_schema(c.relnamespace)) AND (of_name IS NULL OR l.label = of_name)
    )
    SELECT s.statement, s.note, s.changes, s.runs_as FROM (
        SELECT 1, 0::oid,
            'MERGE INTO snowflake_internal.snowflake_config '
            'USING snowflake_internal.server_layout() AS own ON true '
            'WHEN MATCHED THEN UPDATE SET layout = own.layout, tick_ms = own.tick_ms, epoch = own.epoch '
            'WHEN NOT MATCHED THEN INSERT (layout, tick_ms, epoch) VALUES (own.layout, own.tick_ms, own.epoch)',
            'Gives this database the server''s layout.', NULL, NULL::oid
        UNION
        -- Setting a column to any value recomputes what depends on it. Its triggers are off meanwhile; those of the whole
        -- session would be off by a setting, also for what the owner's functions do elsewhere.
        SELECT 2, t.relid, CASE WHEN NOT k.is_blocked AND named.others IS NULL AND NOT (k.setting IS NULL)
                THEN concat_ws('; ', w.off,
                    'UPDATE ONLY ' || t.label || ' SET ' || string_agg(DISTINCT k.setting, ', '), w.back) END,
            format(CASE WHEN k.is_blocked
                        THEN 'Recompute %s of %s by hand, because of its rules or constraints.'
                        WHEN named.others IS NOT NULL
                        THEN 'Recompute %s of %s by hand, because it uses what others own: %s.'
                        WHEN k.setting IS NULL
                        THEN 'Drop and add %s of %s by hand: no other column can be set to recompute it.'
                        ELSE 'Recomputes %s of %s.' END, string_agg(g.attname, ', ' ORDER BY g.attnum), t.label,
                named.others), t.label, t.relowner
        FROM affected t
        JOIN pg_attribute g ON g.attrelid = t.relid AND g.attnum = t.objsubid
        JOIN pg_attrdef a ON a.adrelid = t.relid AND a.adnum = t.objsubid,
        LATERAL (
            SELECT min(quote_ident(u.attname) || ' = ' || quote_ident(u.attname)),
                EXISTS (SELECT FROM pg_rewrite w
                        WHERE w.ev_class = t.relid AND w.ev_type = '2' AND w.ev_enabled IN ('O', 'A'))
                -- Their checks could be deferred, or change other tables.
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
        ) AS w (off, back),
        LATERAL (
            SELECT snowflake_internal.snowflake_convert_others(
                t.relowner, array_agg(u.refclassid), array_agg(u.refobjid), NULL)
            FROM snowflake_internal.snowflake_convert_expressions(t.relid) e
            JOIN pg_depend u ON u.classid = e.classid AND u.objid = e.objid
        ) AS named (others)
        WHERE t.relkind = 'r'
        GROUP BY t.relid, t.label, t.relowner, k.is_blocked, k.setting IS NULL, w.off, w.back, named.others
        UNION
        SELECT 3, t.objid, format('REINDEX INDEX %s', t.objid::regclass), format('On %s.', t.label), NULL, NULL
        FROM affected t JOIN pg_class i ON i.oid = t.objid
        WHERE t.classid = 'pg_class'::regclass AND i.relkind = 'i'
        UNION
        SELECT 4, t.relid, format('REFRESH MATERIALIZED VIEW %s', t.label),
            'If it reads another materialized view, refresh that one first.', NULL, NULL
        FROM affected t JOIN pg_class v ON v.oid = t.objid
        WHERE t.classid = 'pg_class'::regclass AND v.relkind = 'm' AND v.relispopulated
        UNION
        -- The expression is written for the search_path of snowflake_execute_as(), which would evaluate it and read its
        -- literals of types.
        SELECT 5, n.oid, CASE WHEN named.others IS NULL THEN format(
                'ALTER %1$s %2$s ADD CONSTRAINT snowflake_layout_%3$s %4$s; '
                'ALTER %1$s %2$s DROP CONSTRAINT snowflake_layout_%3$s',
                CASE n.contypid WHEN 0 THEN 'TABLE' ELSE 'DOMAIN' END, t.label, n.oid, pg_get_constraintdef(n.oid)) END,
            format(CASE WHEN named.others IS NULL THEN 'Fails if a row violates %s.'
                        ELSE 'Check the rows against %s by hand, because it uses what others own: %s.' END,
                   pg_describe_object('pg_constraint'::regclass, n.oid, 0), named.others),
            t.label, coalesce(t.relowner, y.typowner)
        FROM affected t
        JOIN pg_constraint n ON t.classid = 'pg_constraint'::regclass AND n.oid = t.objid
        LEFT JOIN pg_type y ON y.oid = n.contypid,
        LATERAL (
            SELECT snowflake_internal.snowflake_convert_others(
                coalesce(t.relowner, y.typowner), array_agg(u.refclassid), array_agg(u.refobjid),
                array_agg(u.refobjsubid))
            FROM pg_depend u WHERE u.classid = 'pg_constraint'::regclass AND u.objid = n.oid
        ) AS named (others)
        WHERE n.contype = 'c' AND n.convalidated AND n.coninhcount = 0
        UNION
        SELECT 6, t.relid, NULL, format('Move the rows of %s by hand, because its partition key reads IDs.', t.label),
            NULL, NULL
        FROM affected t WHERE t.relid = t.objid AND t.objsubid = 0 AND t.relkind = 'p'
        UNION
        SELECT 7, t.relid, format('ANALYZE %s', t.label), NULL, NULL, NULL
        FROM affected t WHERE t.classid <> 'pg_constraint'::regclass AND t.relkind = 'r'
    ) AS s (step, oid, statement, note, changes, runs_as)
    ORDER BY s.step, s.oid, s.statement;
END
$$;

CREATE FUNCTION snowflake_layout_steps() RETURNS TABLE (statement text, note text)
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT CASE WHEN r.statement IS NULL OR r.runs_as IS NULL THEN r.statement
        ELSE format('SELECT snowflake_internal.snowflake_execute_as_owner(%L, %L)', r.changes, r.statement) END, r.note
    FROM snowflake_internal.snowflake_layout_rows() r;
END
$$;

-- Executes one of these statements, with the rights of the owner of what it changes. What its names mean may have changed
-- since: the owner of a schema can put another in its place. So names are locked, and it is executed only if it would be
-- returned again.
CREATE FUNCTION snowflake_internal.snowflake_execute_as_owner(changes text, statement text) RETURNS text
    STRICT LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    owner oid;
BEGIN
    -- Only a superuser can lock the rows of catalogs.
    IF has_table_privilege('pg_namespace', 'UPDATE') THEN
        PERFORM FROM pg_namespace FOR KEY SHARE;
        -- Of a domain, which a schema's owner can drop.
        PERFORM FROM pg_type WHERE oid = to_regtype(changes) FOR KEY SHARE;
    END IF;
    IF EXISTS (SELECT FROM pg_class c WHERE c.oid = to_regclass(changes) AND c.relkind IN ('r', 'p')) THEN
        EXECUTE format('LOCK TABLE ONLY %s IN ACCESS SHARE MODE', changes);
    END IF;
    SELECT r.runs_as INTO owner FROM snowflake_internal.snowflake_layout_rows(changes) r
    WHERE (r.changes, r.statement) = (changes, statement) LIMIT 1;
    IF owner IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'the statement is not a step of a new layout',
            DETAIL = 'What it names has changed since snowflake_layout_steps() returned it.',
            HINT = 'Execute the statements that snowflake_layout_steps() returns now.';
    END IF;
    RETURN snowflake_internal.snowflake_execute_as(owner, statement);
END
$$;

REVOKE ALL ON FUNCTION snowflake_layout_steps() FROM PUBLIC;
COMMENT ON FUNCTION snowflake_layout_steps() IS
    'returns the statements that give this database the server''s layout, for psql''s \gexec; executes none of them';
