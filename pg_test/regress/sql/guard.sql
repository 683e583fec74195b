-- The trigger that refuses replicated rows with IDs of this server's own worker: of 1, 257, 513 and 769.
CREATE EXTENSION snowflake_id;
\set SHOW_CONTEXT never
-- which IDs are this server's own
SELECT array_agg(worker) FROM generate_series(0, 1023) AS worker WHERE snowflake_is_own(snowflake_encode(now(), worker, 0));
SELECT snowflake_is_own(snowflake_nextval()), snowflake_is_own(NULL), snowflake_is_own(-1),
    snowflake_is_own(-9223372036854775808);

-- what the statements fail with, which takes all of them back
CREATE FUNCTION error_of(statements text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
    hint   text;
BEGIN
    EXECUTE statements;
    RAISE 'none';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    -- PostgreSQL 19 has one where no function accepts the types.
    RETURN concat_ws(E'\n', SQLSTATE || ' ' || SQLERRM, CASE WHEN SQLSTATE <> '42883' THEN detail END,
        CASE WHEN SQLSTATE = '39P01' THEN hint END);
END $$;
CREATE TABLE t (id bigint, note text);
CREATE TRIGGER guard BEFORE INSERT ON t FOR EACH ROW WHEN (snowflake_is_own(NEW.id))
    EXECUTE FUNCTION snowflake_refuse_own_worker();
ALTER TABLE t ENABLE REPLICA TRIGGER guard;
-- what this server inserts is not replicated
INSERT INTO t VALUES (snowflake_nextval());

-- in a session that applies what another server sent
SET session_replication_role = replica;
INSERT INTO t VALUES (snowflake_encode('2026-01-02 03:04Z', 257, 9), 'of another');
\echo :LAST_ERROR_SQLSTATE
SELECT right(error_of(format('INSERT INTO t VALUES (snowflake_encode(''2026-01-02 03:04Z'', 257, 9), %L)', repeat('x', n))), 5)
FROM generate_series(179, 180) AS n;
INSERT INTO t SELECT snowflake_encode(now(), worker, 0) FROM generate_series(0, 1023) AS worker WHERE worker % 256 <> 1;
INSERT INTO t VALUES (NULL), (-1), (-9223372036854775808);
SELECT count(*) FROM t;
-- it is for inserted rows: an update of an own row comes from any server
UPDATE t SET id = snowflake_encode(now(), 1, 0) WHERE id = -1;
RESET session_replication_role;
DROP TABLE t;

-- any column that a bigint comes from, in any table: of another server's row and an own one, the own one is refused
CREATE DOMAIN key AS bigint CHECK (VALUE > 0);
CREATE TABLE parts (id bigint) PARTITION BY HASH (id);
SELECT definition, condition, error_of(format($$
    CREATE TABLE t %s;
    CREATE TRIGGER guard BEFORE INSERT ON t FOR EACH ROW WHEN (%s) EXECUTE FUNCTION snowflake_refuse_own_worker();
    ALTER TABLE t ENABLE REPLICA TRIGGER guard;
    SET session_replication_role = replica;
    INSERT INTO t (key) OVERRIDING SYSTEM VALUE
    SELECT snowflake_encode('2026-01-02 03:04Z', worker, 9) FROM unnest('{6,1}'::integer[]) AS worker
$$, definition, condition))
FROM (VALUES ('(key key)', 'snowflake_is_own(NEW.key)'),
             ('(key bigint GENERATED ALWAYS AS IDENTITY)', 'snowflake_is_own(NEW.key)'),
             ('(key bigint, other bigint DEFAULT 0)', 'snowflake_is_own(NEW.other) OR snowflake_is_own(NEW.key)'),
             ('(key text)', 'snowflake_is_own(NEW.key)'),
             ('(n bigint, key bigint GENERATED ALWAYS AS (n) STORED)', 'snowflake_is_own(NEW.key)')
     ) AS tables (definition, condition);
CREATE TABLE part PARTITION OF parts FOR VALUES WITH (MODULUS 1, REMAINDER 0);
CREATE TRIGGER guard BEFORE INSERT ON parts FOR EACH ROW WHEN (snowflake_is_own(NEW.id))
    EXECUTE FUNCTION snowflake_refuse_own_worker();
ALTER TABLE parts ENABLE REPLICA TRIGGER guard;
SET session_replication_role = replica;
INSERT INTO parts VALUES (snowflake_encode('2026-01-02 03:04Z', 6, 9));
SELECT error_of('INSERT INTO parts VALUES (snowflake_encode(''2026-01-02 03:04Z'', 1, 9))');
RESET session_replication_role;
DROP TABLE parts;
DROP DOMAIN key;

-- it is a replica trigger for inserted rows, with a condition
SELECT string_agg(concat_ws(' ', fires, condition, enable), E'\n') AS triggers, error_of(format($$
    CREATE TABLE t AS SELECT 1::bigint AS id;
    CREATE TRIGGER with_condition BEFORE UPDATE ON t FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION snowflake_refuse_own_worker();
    CREATE TABLE u AS TABLE t;
    CREATE TRIGGER guard BEFORE INSERT ON u FOR EACH ROW WHEN (NEW.id = 1) EXECUTE FUNCTION snowflake_refuse_own_worker();
    CREATE TRIGGER guard %s ON t FOR EACH ROW %s EXECUTE FUNCTION snowflake_refuse_own_worker();
    ALTER TABLE t %s TRIGGER guard;
    %s
$$, fires, condition, enable, statement)) AS error
FROM (VALUES ('BEFORE INSERT', 'WHEN (snowflake_is_own(NEW.id))', 'ENABLE', 'INSERT INTO t VALUES (snowflake_nextval())'),
             ('BEFORE INSERT', 'WHEN (snowflake_is_own(NEW.id))', 'ENABLE ALWAYS', 'INSERT INTO t VALUES (snowflake_nextval())'),
             ('BEFORE INSERT', '', 'ENABLE REPLICA', 'SET session_replication_role = replica; INSERT INTO t VALUES (1)'),
             ('BEFORE DELETE', 'WHEN (OLD.id = 1)', 'ENABLE REPLICA', 'SET session_replication_role = replica; DELETE FROM t')
     ) AS triggers (fires, condition, enable, statement) GROUP BY error;
DROP FUNCTION error_of;

-- any owner of a table can use it, whatever the search path has
CREATE ROLE guarding_user;
CREATE SCHEMA own AUTHORIZATION guarding_user;
SET ROLE guarding_user;
CREATE TABLE own.t (id bigint);
CREATE FUNCTION own.format(text, name) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''called''; END';
CREATE TRIGGER guard BEFORE INSERT ON own.t FOR EACH ROW WHEN (snowflake_is_own(NEW.id))
    EXECUTE FUNCTION snowflake_refuse_own_worker();
ALTER TABLE own.t ENABLE REPLICA TRIGGER guard;
INSERT INTO own.t VALUES (snowflake_nextval());
RESET ROLE;
SET search_path = own, pg_catalog, public;
SET session_replication_role = replica;
INSERT INTO own.t VALUES (public.snowflake_encode('2026-01-02 03:04Z', 1, 9));
RESET session_replication_role;
RESET search_path;
DROP TABLE own.t;
DROP FUNCTION own.format;
DROP SCHEMA own;
DROP ROLE guarding_user;
DROP EXTENSION snowflake_id;
