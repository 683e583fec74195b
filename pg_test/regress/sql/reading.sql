-- Reading IDs. The server has the default layout, 41/10/12 from 2024-01-01.
SET timezone = 'UTC';

-- 2024-01-02 00:00:00.123 of worker 5, sequence 7
SELECT * FROM snowflake_decode(362388381519879);
SELECT (snowflake_decode(id)).*
FROM (VALUES (0), (362388381519879), (9223372036854775807), (NULL)) AS ids (id);
SELECT snowflake_timestamp(362388381519879), snowflake_worker(362388381519879),
    snowflake_sequence(362388381519879), snowflake_datacenter(362388381519879);

-- home worker and lane: 128 home workers of 8 lanes
SELECT worker, (snowflake_owner(worker << 12)).*
FROM unnest('{0,1,127,128,133,1023}'::bigint[]) AS worker;

-- nulls stay nulls
SELECT snowflake_decode(NULL) IS NULL AS decode, snowflake_timestamp(NULL) IS NULL AS timestamp,
    snowflake_worker(NULL) IS NULL AS worker, snowflake_sequence(NULL) IS NULL AS sequence,
    snowflake_owner(NULL) IS NULL AS owner;

-- what is not an ID
SELECT snowflake_worker(-1);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_timestamp((-9223372036854775808)::bigint);

-- the planner sees through decode: each field once, unused ones not at all
CREATE TABLE t (id bigint);
EXPLAIN (VERBOSE, COSTS OFF) SELECT (snowflake_decode(id)).* FROM t;
EXPLAIN (VERBOSE, COSTS OFF) SELECT (snowflake_decode(id)).created_at FROM t;

-- an index on the time of an ID
CREATE INDEX ON t (snowflake_timestamp(id));
SET enable_seqscan = off;
SET enable_bitmapscan = off;
EXPLAIN (COSTS OFF) SELECT * FROM t WHERE snowflake_timestamp(id) >= '2024-01-02 00:00+00';
DROP TABLE t;
