-- Reading IDs. The server has the default layout, 41/10/12 from 2024-01-01.
SET timezone = 'UTC';

-- 2024-01-02 00:00:00.123 of worker 5, sequence 7
SELECT * FROM snowflake_decode(362388381519879);
SELECT (snowflake_decode(id)).*
FROM (VALUES (0), (362388381519879), (9223372036854775807), (NULL)) AS ids (id);
SELECT snowflake_timestamp(362388381519879), snowflake_worker(362388381519879),
    snowflake_sequence(362388381519879), snowflake_datacenter(362388381519879);

-- home worker and lane: 256 home workers of 4 lanes
SELECT worker, (snowflake_owner(worker << 12)).*
FROM unnest('{0,1,255,256,261,1023}'::bigint[]) AS worker;

-- nulls stay nulls
SELECT snowflake_decode(NULL) IS NULL AS decode, snowflake_timestamp(NULL) IS NULL AS timestamp,
    snowflake_worker(NULL) IS NULL AS worker, snowflake_sequence(NULL) IS NULL AS sequence,
    snowflake_owner(NULL) IS NULL AS owner;

-- numbers that are not IDs
SELECT snowflake_worker(-1);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_timestamp((-9223372036854775808)::bigint);

-- the planner inlines decode: it computes each field once, and unused ones not at all
CREATE TABLE t (id bigint);
EXPLAIN (VERBOSE, COSTS OFF) SELECT (snowflake_decode(id)).* FROM t;
EXPLAIN (VERBOSE, COSTS OFF) SELECT (snowflake_decode(id)).created_at FROM t;

-- an index on the time of an ID
CREATE INDEX ON t (snowflake_timestamp(id));
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE snowflake_timestamp(id) >= '2024-01-02 00:00+00';
DROP TABLE t;

-- from a time to IDs, and back
SELECT snowflake_encode('2024-01-02 00:00:00.123+00', 5, 7), snowflake_min('2024-01-02 00:00:00.123+00'),
    snowflake_max('2024-01-02 00:00:00.123+00');
SELECT snowflake_encode('2024-01-02 00:00:00.123+00', 1024, 7);
SELECT snowflake_encode('2024-01-02 00:00:00.123+00', 5, -1);
SELECT snowflake_encode('2023-12-31 23:59:59.999+00', 5, 7);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_max('infinity');

-- spans of time
SELECT id, snowflake_between(id, '2024-01-02 00:00:00.123+00', '2024-01-02 00:00:00.124+00') AS its_tick,
    snowflake_between(id, '2024-01-02 00:00:00.1231+00', 'infinity') AS after,
    snowflake_between(id, '-infinity', '2024-01-02 00:00:00.123+00') AS before,
    snowflake_between(id, '-infinity', 'infinity') AS ever
FROM (VALUES (362388381519879), (0), (9223372036854775807), (-1), (NULL)) AS ids (id);

-- the planner sees two comparisons, so it uses the primary key, and prunes partitions
CREATE TABLE t (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE t_2025 PARTITION OF t
    FOR VALUES FROM (snowflake_min('2025-01-01 00:00+00')) TO (snowflake_min('2026-01-01 00:00+00'));
CREATE TABLE t_2026 PARTITION OF t
    FOR VALUES FROM (snowflake_min('2026-01-01 00:00+00')) TO (snowflake_min('2027-01-01 00:00+00'));
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE snowflake_between(id, '2025-01-01 00:00+00', '2026-01-01 00:00+00');
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE snowflake_between(id, '2025-12-31 23:59:59.999+00', 'infinity');
DROP TABLE t;

-- texts that sort as the IDs do
SELECT id, snowflake_to_base62(id), snowflake_from_base62(snowflake_to_base62(id)) = id AS same
FROM (VALUES (0), (61), (62), (362388381519879), (9223372036854775807), (NULL)) AS ids (id)
ORDER BY snowflake_to_base62(id);
SELECT pg_typeof(snowflake_to_base62(1)), pg_collation_for(snowflake_to_base62(1));
SELECT snowflake_to_base62(-1);
SELECT snowflake_from_base62('1');
SELECT snowflake_from_base62('0000000000-');
SELECT snowflake_from_base62('AzL8n0Y58m8');
SELECT 'AzL8n0Y58m8'::snowflake_base62;

-- IDs of other systems
\d snowflake_layouts
SELECT name, layout, expires_at FROM snowflake_layouts;
SELECT system, (snowflake_decode(id, system)).*
FROM (VALUES ('twitter', 1541815603606036480), ('Discord', 175928847299117063),
             ('instagram', 11637205501278089), ('mastodon', 103254962155278888), ('pgedge', 136169504773242881),
             ('29/21/13 1s 2016-09-20T00:00:00+08:00', 180363646902239241), (NULL, 1), ('leaf', NULL)
     ) AS known (system, id);
SELECT snowflake_timestamp(175928847299117063, 'discord'), snowflake_datacenter(175928847299117063, 'discord'),
    snowflake_worker(175928847299117063, 'discord'), snowflake_sequence(175928847299117063, 'discord');
SELECT snowflake_timestamp(-1, 'discord');
SELECT snowflake_timestamp(9007199254740992, '41/5/7 1ms 2024-01-01');
SELECT snowflake_timestamp(1, 'myspace');
SELECT snowflake_timestamp(1, '41/12/12 1ms 2024-01-01');
SELECT snowflake_timestamp(1, '41/10/12 1ms 2024-01-01 00:00');
