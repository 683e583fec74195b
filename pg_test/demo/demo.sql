-- What scripts/demo shows, for psql in the repository's folder, on a server that can be thrown away.

\echo
\echo == The tables
CREATE EXTENSION snowflake_id;
\! pgbench --quiet -i -s 10 2>/dev/null
ALTER TABLE pgbench_history ADD COLUMN id bigint PRIMARY KEY DEFAULT snowflake_nextval();
CREATE TABLE orders (
    id     bigint PRIMARY KEY DEFAULT snowflake_nextval(),
    aid    integer NOT NULL,
    amount integer NOT NULL
);
-- Every ID that the demo makes, read back with snowflake_decode.
CREATE VIEW made AS
    SELECT source, id, snowflake_server(id) AS server, (snowflake_decode(id)).*
    FROM (SELECT 'pgbench_history' AS source, id FROM pgbench_history
          UNION ALL
          SELECT 'orders', id FROM orders) AS ids;
\d orders

\echo
\echo == 8 clients work for 10 seconds: TPC-B, and an order in each transaction
-- Fewer clients than branches, because otherwise they would wait for each other's rows.
\! pgbench -n -c 8 -j 2 -T 10 -P 2 -s 10 -f pg_test/demo/transaction.sql | grep -E 'actually|failed|latency average|^tps'

\echo
\echo == What the IDs tell by themselves, through snowflake_decode(id) and snowflake_server(id)
\echo IDs per second and server (UTC):
SELECT to_char(date_trunc('second', created_at), 'HH24:MI:SS') AS second, server,
       count(*) AS ids,
       count(*) FILTER (WHERE source = 'pgbench_history') AS "in pgbench_history",
       count(*) FILTER (WHERE source = 'orders') AS "in orders"
FROM made GROUP BY 1, 2 ORDER BY 1, 2;
\echo The busiest millisecond:
SELECT to_char(created_at, 'HH24:MI:SS.MS') AS millisecond, server, count(*) AS ids,
       min(sequence) AS "first sequence", max(sequence) AS "last sequence"
FROM made GROUP BY created_at, server ORDER BY ids DESC, created_at LIMIT 1;
\echo The first and the last:
(SELECT 'first' AS "which", made.* FROM made ORDER BY id LIMIT 1)
UNION ALL
(SELECT 'last', made.* FROM made ORDER BY id DESC LIMIT 1);

\echo
\echo == Does any ID repeat?
SELECT coalesce(source, 'both tables together') AS "where", count(*) AS ids, count(DISTINCT id) AS different,
       count(*) - count(DISTINCT id) AS repeated
FROM made GROUP BY ROLLUP (source) ORDER BY grouping(source), source;
DO $$
BEGIN
    ASSERT (SELECT count(*) > 0 AND count(*) = count(DISTINCT id) FROM made), 'IDs repeat: this must never happen';
END
$$;
\echo No.

\echo
\echo == The state of the generator: snowflake_status
\x on
SELECT * FROM snowflake_status;
\x off
\echo
\echo == The workers that this server owns: snowflake_workers
SELECT * FROM snowflake_workers ORDER BY lane;
