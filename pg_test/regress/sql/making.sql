-- Generating IDs, in every way that a table can ask for them.
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item text);
INSERT INTO orders (item) VALUES ('a'), ('b') RETURNING snowflake_server(id), item;
WITH made AS (INSERT INTO orders (item) SELECT 'bulk' FROM generate_series(1, 5000) RETURNING id)
SELECT count(*), bool_and(id > before) AS ascending FROM (SELECT id, lag(id) OVER () AS before FROM made) steps;
COPY orders (item) FROM stdin;
copied
copied as well
\.
INSERT INTO orders (item) VALUES ('upsert')
ON CONFLICT (id) DO UPDATE SET item = 'never: no ID repeats' RETURNING item;
DO $$ BEGIN FOR i IN 1..100 LOOP INSERT INTO orders (item) VALUES ('loop'); END LOOP; END $$;
PREPARE one AS INSERT INTO orders (item) VALUES ('prepared');
EXECUTE one;
EXECUTE one;
SELECT count(*), count(DISTINCT id), min(id) > 0 AS positive FROM orders;

-- of this server's worker, and of the time of the call
SELECT snowflake_server(id),
    snowflake_timestamp(id) BETWEEN before - interval '1 ms' AND clock_timestamp() + interval '2 s' AS of_now
FROM (SELECT clock_timestamp() AS before, snowflake_nextval() AS id OFFSET 0) made;

-- in the order in which they were generated
SELECT count(*), bool_and(id > before) AS ascending
FROM (SELECT id, lag(id) OVER (ORDER BY n) AS before
      FROM (SELECT n, snowflake_nextval() AS id FROM generate_series(1, 100000) AS n) calls) steps;
SELECT count(*), bool_and(id > before) AS ascending
FROM (SELECT id, lag(id) OVER (ORDER BY n) AS before
      FROM snowflake_nextval_batch(10000) WITH ORDINALITY AS batch (id, n)) steps;

-- ranges
SELECT n, last - first + 1 AS size, snowflake_sequence(last) - snowflake_sequence(first) + 1 AS in_one_tick,
    snowflake_timestamp(last) = snowflake_timestamp(first) AND snowflake_worker(last) = snowflake_worker(first) AS of_one_tick
FROM (SELECT n, length(repeat('memory of a row', n)) AS used, snowflake_nextval_range(n) AS range
      FROM unnest('{1,2,100,1000,4096}'::integer[]) AS n OFFSET 0) calls,
LATERAL (SELECT (range).first, (range).last WHERE used > 0) ranges;
-- and single IDs between them
SELECT count(*), bool_and(first > before) AND bool_and(id > last) AS ascending
FROM (SELECT first, last, id, lag(id) OVER (ORDER BY place) AS before
      FROM (SELECT place, first, last, snowflake_nextval() AS id
            FROM unnest('{7,1,300}'::integer[]) WITH ORDINALITY AS sizes (n, place), snowflake_nextval_range(n)) calls
     ) steps;
SELECT snowflake_nextval() = snowflake_lastval() AS of_one,
    (SELECT last = snowflake_lastval() FROM snowflake_nextval_range(3)) AS of_range,
    (SELECT max(id) = snowflake_lastval() FROM snowflake_nextval_batch(3) AS id) AS of_batch,
    (SELECT count(*) FROM snowflake_nextval_batch(0)) AS of_none;

-- in a read-only transaction, and as a temporary table's default
BEGIN READ ONLY;
SELECT snowflake_nextval() > 0 AS made;
COMMIT;
CREATE TEMPORARY TABLE scratch (id bigint DEFAULT snowflake_nextval());
INSERT INTO scratch DEFAULT VALUES RETURNING id > 0 AS made;
DROP TABLE orders;
