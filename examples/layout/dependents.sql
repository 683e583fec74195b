-- What keeps values that were computed from snowflake IDs by this server's layout, as far as the caller owns it: the
-- statements that compute them anew after a change of the layout. docs/fleet.md says when to run them.

WITH RECURSIVE readers AS (
    SELECT d.classid, d.objid, 0 AS objsubid
    FROM pg_extension AS e
    JOIN pg_depend AS d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
    JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
    WHERE e.extname = 'snowflake_id' AND p.proname !~ 'nextval|base62' AND 'text'::regtype <> ALL (p.proargtypes::oid[])
    UNION
    SELECT CASE WHEN coalesce(w.oid, a.oid) IS NULL THEN d.classid ELSE 'pg_class'::regclass END,
        coalesce(w.ev_class, a.adrelid, d.objid), coalesce(a.adnum, 0)::integer
    FROM readers AS r
    JOIN pg_depend AS d ON d.refclassid = r.classid AND d.refobjid = r.objid AND r.objsubid IN (0, d.refobjsubid)
    LEFT JOIN pg_class AS c ON r.classid = 'pg_class'::regclass AND c.oid = r.objid AND r.objsubid = 0
    LEFT JOIN pg_rewrite AS w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid AND w.ev_type = '1'
    LEFT JOIN pg_attrdef AS a ON d.classid = 'pg_attrdef'::regclass AND a.oid = d.objid AND EXISTS (
        SELECT FROM pg_attribute WHERE attrelid = a.adrelid AND attnum = a.adnum AND attgenerated <> '')
    -- Whatever depends on an index or on a table as a whole need not read IDs.
    WHERE coalesce(c.relkind IN ('v', 'm'), true) AND (coalesce(w.oid, a.oid) IS NOT NULL OR d.classid IN (
        'pg_proc'::regclass, 'pg_operator'::regclass, 'pg_constraint'::regclass, 'pg_class'::regclass))
)
SELECT DISTINCT CASE
    WHEN r.objsubid > 0 AND u.name IS NOT NULL THEN format('UPDATE ONLY %s SET %2$I = %2$I;', r.objid::regclass, u.name)
    WHEN c.relkind = 'i' THEN format('REINDEX INDEX %s;', r.objid::regclass)
    WHEN c.relkind = 'm' THEN format('REFRESH MATERIALIZED VIEW %s;', r.objid::regclass)
    ELSE '-- by hand: ' || pg_describe_object(r.classid, r.objid, r.objsubid) END AS statement
FROM readers AS r
LEFT JOIN pg_constraint AS n ON r.classid = 'pg_constraint'::regclass AND n.oid = r.objid
LEFT JOIN pg_type AS t ON t.oid = n.contypid
LEFT JOIN pg_class AS c ON c.oid = CASE WHEN r.classid = 'pg_class'::regclass THEN r.objid ELSE n.conrelid END
-- Setting this column computes the generated one.
LEFT JOIN LATERAL (
    SELECT min(g.attname) FROM pg_attrdef AS a
    JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = a.oid AND d.refclassid = 'pg_class'::regclass
    JOIN pg_attribute AS g ON g.attrelid = d.refobjid AND g.attnum = d.refobjsubid
    WHERE a.adrelid = r.objid AND a.adnum = r.objsubid AND g.attrelid = r.objid
        AND g.attgenerated = '' AND g.attidentity <> 'a'
) AS u (name) ON true
WHERE coalesce(c.relowner, t.typowner) = current_user::regrole AND c.relpersistence IS DISTINCT FROM 't' AND CASE
    WHEN r.objsubid > 0 THEN c.relkind = 'r' AND EXISTS (
        SELECT FROM pg_attribute WHERE attrelid = r.objid AND attnum = r.objsubid AND attgenerated = 's')
    WHEN r.classid = 'pg_constraint'::regclass THEN n.contype = 'c' AND n.coninhcount = 0
    ELSE c.relkind IN ('i', 'p') OR c.relkind = 'm' AND c.relispopulated END
-- Columns, then indexes, then materialized views.
ORDER BY 1 DESC;
