-- Generating IDs, in every way that a table can ask for them.
CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), item text);
INSERT INTO orders (item) VALUES ('a'), ('b') RETURNING snowflake_worker(id) AS worker, item;
INSERT INTO orders (item) SELECT 'bulk' FROM generate_series(1, 5000);
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

-- in the order in which they were generated
SELECT bool_and(made) AS ascending
FROM (SELECT id > lag(id) OVER (ORDER BY ordinality) AS made
      FROM snowflake_nextval_batch(10000) WITH ORDINALITY AS batch (id, ordinality)) steps;

-- ranges
SELECT last - first + 1 AS size, snowflake_sequence(last) - snowflake_sequence(first) + 1 AS in_one_tick
FROM snowflake_nextval_range(1000);
SELECT snowflake_lastval() = last AS lastval FROM snowflake_nextval_range(1);
SELECT count(*) FROM snowflake_nextval_batch(0);
SELECT snowflake_nextval_range(NULL) IS NULL AS null_in_null_out;

-- the bound for readers that poll
SELECT snowflake_nextval() AS id \gset
SELECT horizon > :id AS passed, since <= :id AS covered FROM snowflake_horizon();
BEGIN;
SELECT snowflake_nextval() AS id \gset
SELECT horizon > :id AS passed, since <= :id AS covered FROM snowflake_horizon();
COMMIT;

-- invalid numbers of IDs
SELECT snowflake_nextval_batch(-1);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_nextval_range(0);
\echo :LAST_ERROR_SQLSTATE
SELECT snowflake_nextval_range(4097);

-- a session that has generated none
\c
SELECT snowflake_lastval();
\echo :LAST_ERROR_SQLSTATE

-- in a read-only transaction, and as a temporary table's default
BEGIN READ ONLY;
SELECT snowflake_nextval() > 0 AS made;
COMMIT;
CREATE TEMPORARY TABLE scratch (id bigint DEFAULT snowflake_nextval());
INSERT INTO scratch DEFAULT VALUES RETURNING id > 0 AS made;

-- a partitioned table
CREATE TABLE parted (id bigint DEFAULT snowflake_nextval(), part int) PARTITION BY HASH (id);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);
INSERT INTO parted (part) SELECT generate_series(1, 1000);
SELECT count(DISTINCT id), count(DISTINCT tableoid) AS partitions FROM parted;
DROP TABLE orders, parted;
