-- What scripts/demo --fleet shows at the end, for psql in the registry's database. The table generated has every ID
-- with the server that a client got it from.

\echo
\echo == The leases, in the registry: snowflake_fleet
SELECT worker_id, node_name, to_char(granted_until - now(), 'MI "min"') AS "granted for", clock_offset_ms
FROM snowflake_fleet ORDER BY worker_id;

\echo
\echo == Which server generated an ID? snowflake_origin(id) knows it from the ID alone
SELECT server AS "clients got it from", worker_id AS "worker in the ID", o.node_name AS "origin",
       o.home_worker_id AS "home worker", ids
FROM (SELECT server, id >> 12 & 1023 AS worker_id, min(id) AS id, count(*) AS ids FROM generated GROUP BY 1, 2) AS g
LEFT JOIN snowflake_origin(g.id) AS o ON true ORDER BY worker_id, server;

\echo
\echo == Does any ID repeat?
SELECT count(*) AS ids, count(DISTINCT id) AS different, count(*) - count(DISTINCT id) AS repeated FROM generated;
DO $$
BEGIN
    ASSERT (SELECT count(*) > 0 AND count(*) = count(DISTINCT id) FROM generated), 'IDs repeat: this must never happen';
END
$$;
\echo No.
