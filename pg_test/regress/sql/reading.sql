-- Reading IDs. The server has the default layout, 41/10/12 from 2024-01-01.
SET timezone = 'UTC';
-- IDs of any kind, and those at the ends of fields
CREATE TABLE ids AS
SELECT (random() * 9223372036854775000::float8)::bigint AS id FROM generate_series(1, 2000)
UNION ALL SELECT * FROM unnest('{0,1,4095,4096,4194303,4194304,362388381519879,9223372036854775807}'::bigint[]);
CREATE FUNCTION error_of(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
BEGIN
    EXECUTE 'SELECT ' || call;
    RETURN 'none';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RETURN concat_ws(' ', SQLSTATE, SQLERRM, '| ' || nullif(detail, ''));
END $$;

-- 2024-01-02 00:00:00.123 of worker 5, sequence 7
SELECT * FROM snowflake_decode(362388381519879);
SELECT (snowflake_decode(id)).*
FROM (VALUES (0), (362388381519879), (9223372036854775807), (NULL)) AS ids (id);
SELECT snowflake_timestamp(362388381519879), snowflake_worker(362388381519879),
    snowflake_sequence(362388381519879), snowflake_datacenter(362388381519879);
SELECT count(*), bool_and(parts = (snowflake_timestamp(id), snowflake_datacenter(id), snowflake_worker(id),
                                    snowflake_sequence(id))::snowflake_parts) AS same
FROM (SELECT id, snowflake_decode(id) AS parts FROM ids) decoded;

-- 256 servers of 4 workers
SELECT worker, snowflake_server(worker << 12)
FROM unnest('{0,1,255,256,261,773,1023}'::bigint[]) AS worker;

-- nulls stay nulls
SELECT snowflake_decode(NULL) IS NULL AS decode, snowflake_timestamp(NULL) IS NULL AS timestamp,
    snowflake_worker(NULL) IS NULL AS worker, snowflake_sequence(NULL) IS NULL AS sequence,
    snowflake_server(NULL) IS NULL AS server, snowflake_datacenter(NULL) IS NULL AS datacenter;

-- numbers that are not IDs
SELECT count(*), error_of(call) FROM unnest('{decode,timestamp,datacenter,worker,sequence,server,to_base62}'::text[]) AS name,
    format('snowflake_%s(-1)', name) AS call GROUP BY 2 ORDER BY 1;

-- the planner inlines decode: it computes each field once, and unused ones not at all
CREATE TABLE t (id bigint);
EXPLAIN (VERBOSE, COSTS OFF) SELECT (snowflake_decode(id)).* FROM t;
EXPLAIN (VERBOSE, COSTS OFF) SELECT (snowflake_decode(id)).created_at FROM t;
DROP TABLE t;

-- from a time to IDs, and back
SELECT snowflake_encode('2024-01-02 00:00:00.123+00', 5, 7), snowflake_min('2024-01-02 00:00:00.123+00'),
    snowflake_max('2024-01-02 00:00:00.123+00');
SELECT count(*), error_of(call)
FROM unnest('{-infinity,2023-12-31 23:59:59.999+00,2093-09-06 15:47:35.552+00,infinity}'::text[]) AS time,
    unnest('{"snowflake_encode(%L, 0, 0)",snowflake_min(%L),snowflake_max(%L)}'::text[]) AS form, format(form, time) AS call
GROUP BY 2 ORDER BY error_of(call) COLLATE "C";
SELECT call, error_of(call) FROM unnest('{"-1, 0","1024, 0","0, -1","0, 4096"}'::text[]) AS fields,
    format('snowflake_encode(''2024-01-01'', %s)', fields) AS call;
-- any time within a tick is the tick's
SELECT snowflake_encode('2024-01-02 00:00:00.123999+00', 5, 7) = 362388381519879 AS same,
    snowflake_encode('2024-01-02 00:00:00.124+00', 5, 7) = 362388381519879 + 4194304 AS next;
SELECT count(*), bool_and(snowflake_encode(created_at, worker_id, sequence) = id) AS encode,
    bool_and(snowflake_min(created_at) = id & ~4194303::bigint) AS min, bool_and(snowflake_max(created_at) = id | 4194303) AS max,
    bool_and(snowflake_min(created_at + interval '0.999 ms') = snowflake_min(created_at)) AS within
FROM (SELECT id, (snowflake_decode(id)).* FROM ids) decoded;

-- spans of time
SELECT id, snowflake_between(id, '2024-01-02 00:00:00.123+00', '2024-01-02 00:00:00.124+00') AS its_tick,
    snowflake_between(id, '2024-01-02 00:00:00.1231+00', 'infinity') AS after,
    snowflake_between(id, '-infinity', '2024-01-02 00:00:00.123+00') AS before,
    snowflake_between(id, '-infinity', 'infinity') AS ever
FROM (VALUES (362388381519879), (0), (9223372036854775807), (-1), (NULL)) AS ids (id);
-- as timestamps are compared, with whole and broken ticks around each ID for ends. Above the last ID of 63 bits there is no
-- number to compare with.
CREATE VIEW ends AS SELECT id, snowflake_timestamp(id) AS created_at, at
FROM (SELECT id FROM ids OFFSET 1508) AS few,
LATERAL (SELECT snowflake_timestamp(id) + d * interval '0.4 ms' AS at FROM generate_series(-3, 3) AS d
         UNION ALL SELECT unnest('{-infinity,1999-01-01,2093-09-06 15:47:35.552+00,infinity}'::timestamptz[])) AS times;
SELECT count(*) > 10000 AS many,
    bool_and(snowflake_between(a.id, a.at, b.at) = (a.created_at >= a.at AND a.created_at < b.at)) AS same
FROM ends AS a JOIN ends AS b USING (id) WHERE a.id < 9223372036854775807 OR a.at <= a.created_at;
DROP VIEW ends;
-- with a null it is never true; as in BETWEEN, one end may be enough to know that it is false
SELECT snowflake_between(NULL, '2024-01-01', 'infinity') AS id, snowflake_between(7, NULL, 'infinity') AS since,
    snowflake_between(7, '2024-01-01', NULL) AS until, snowflake_between(7, NULL, '2024-01-01') AS before;

-- texts that sort as the IDs do
SELECT id, snowflake_to_base62(id), snowflake_from_base62(snowflake_to_base62(id)) = id AS same
FROM (VALUES (0), (61), (62), (362388381519879), (9223372036854775807), (NULL)) AS ids (id)
ORDER BY snowflake_to_base62(id);
SELECT count(*), bool_and(snowflake_from_base62(text) = id AND length(text) = 11) AS same,
    array_agg(id ORDER BY id) = array_agg(id ORDER BY text) AS sorted
FROM ids, snowflake_to_base62(id) AS text;
SELECT pg_typeof(snowflake_to_base62(1)), pg_collation_for(snowflake_to_base62(1)), snowflake_from_base62(NULL);
SELECT snowflake_from_base62('AzL8n0Y58m7'::snowflake_base62);
SELECT text, error_of(format('snowflake_from_base62(%L)', text)), error_of(format('%L::snowflake_base62', text)) AS domain
FROM unnest('{AzL8n0Y58m8,a0000000000,0,"",000000000000,0000000000-,"0000000000 "}'::text[]) AS text;
-- In another collation, 'a' may sort before 'A': the domain's check is to use "C", number 950, and no database's, number 100.
SELECT count(*), bool_and(conbin::text ~ ':inputcollid 950 ') AS c, bool_or(conbin::text ~ ':inputcollid 100 ') AS of_database
FROM pg_constraint WHERE contypid = 'snowflake_base62'::regtype;

-- IDs of other systems
SELECT name, layout, expires_at FROM snowflake_layouts;
SELECT bool_and(snowflake_decode(99999999999999, name) = snowflake_decode(99999999999999, layout)) AS same,
    bool_and(snowflake_timestamp(0, layout) < expires_at) AS ascending, bool_and(note <> '') AS notes FROM snowflake_layouts;
-- crates/snowflake_core/tests/core/reading.rs names the sources of these.
SELECT system, (snowflake_decode(id, system)).*
FROM (VALUES ('twitter', 1541815603606036480), ('Discord', 175928847299117063),
             ('instagram', 11637205501278089), ('mastodon', 103254962155278888), ('sonyflake', 144955176167466),
             ('leaf', 1256557484213448722), ('uid-generator', 34359738368032777), ('pgedge', 136169504773242881),
             ('shardingsphere', 362387865620487),
             ('29/21/13 1s 2016-09-20T00:00:00+08:00', 180363646902239241), (NULL, 1), ('leaf', NULL)
     ) AS known (system, id);
-- this server's layout, written out
SELECT count(*), bool_and(snowflake_decode(id) = snowflake_decode(id, '41/10/12 1ms 2024-01-01')) AS same FROM ids;
-- a text is read in place if it is stored in place: short, long, and another one in every row; or compressed
CREATE TABLE l AS
SELECT n, (ARRAY['discord', '41/10/12 1ms 2015-01-01', '41/10/12 1ms 2015-01-01' || repeat(' ', 70),
                 '41/s12/w10 1ms 2023-01-01'])[1 + n % 4] AS layout
FROM generate_series(0, 99) AS n;
SELECT count(*), bool_and((snowflake_decode(id, layout)).worker_id = CASE WHEN layout LIKE '41/s12%' THEN n ELSE 5 END) AS same,
    bool_and(snowflake_timestamp(id, layout) = '2015-01-01 00:00:00.007+00'::timestamptz
        + CASE WHEN layout LIKE '41/s12%' THEN 2922 ELSE 0 END * interval '24 h') AS same_time
FROM (SELECT n, layout, (7::bigint << 22) + (5 << 12) + n AS id FROM l) AS ids;
CREATE TABLE padded AS SELECT '41/10/12 1ms 2015-01-01' || repeat(' ', 9000) AS layout;
SELECT pg_column_size(layout) < 1000 AS is_compressed, left(error_of('snowflake_timestamp(1, layout) FROM padded'), 40) AS error_of
FROM padded;
DROP TABLE ids, l, padded;

SELECT error_of(format('snowflake_timestamp(%s, %L)', id, layout))
FROM (VALUES (-1, 'discord'), (9007199254740992, '41/5/7 1ms 2024-01-01'), (1, 'myspace'), (1, '41/12/12 1ms 2024-01-01'),
             (1, '41/10/12 1ms 2024-01-01 00:00')) AS calls (id, layout);
DROP FUNCTION error_of;
