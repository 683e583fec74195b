-- The trigger that refuses replicated rows with IDs of this server's own worker: of 1, 257, 513 and 769.
CREATE EXTENSION snowflake_id;
SET timezone = 'UTC';
SET datestyle = 'ISO';
-- what the statements fail with, which takes all of them back
CREATE FUNCTION error_of(statements text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    detail text;
BEGIN
    EXECUTE statements;
    RAISE 'none';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RETURN concat_ws(E'\n', SQLSTATE || ' ' || SQLERRM, detail);
END $$;
CREATE TABLE t (id bigint, note text);
CREATE TRIGGER guard BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION snowflake_refuse_own_worker();
ALTER TABLE t ENABLE REPLICA TRIGGER guard;
-- what this server inserts is not replicated
INSERT INTO t VALUES (snowflake_nextval());

-- in a session that applies what another server sent
SET session_replication_role = replica;
INSERT INTO t VALUES (snowflake_encode('2026-01-02 03:04Z', 1, 9));
\echo :LAST_ERROR_SQLSTATE
SELECT worker, error_of(format('INSERT INTO t VALUES (snowflake_encode(''2026-01-02 03:04Z'', %s, 9))', worker))
FROM unnest('{1,257,513,769}'::integer[]) AS worker;
INSERT INTO t SELECT snowflake_encode(now(), worker, 0) FROM generate_series(0, 1023) AS worker WHERE worker % 256 <> 1;
INSERT INTO t VALUES (NULL), (-1), (-9223372036854775808);
SELECT count(*) FROM t;
-- it is for inserted rows: an update of an own row comes from any server
UPDATE t SET id = snowflake_encode(now(), 1, 0) WHERE id = -1;
RESET session_replication_role;
DROP TABLE t;

-- the columns that it is told, in any table: of another server's row and an own one, the own one is refused
CREATE DOMAIN key AS bigint CHECK (VALUE > 0);
CREATE DOMAIN order_key AS key;
CREATE TABLE parts (id bigint) PARTITION BY HASH (id);
SELECT definition, argument, error_of(format($$
    CREATE TABLE t %s;
    CREATE TRIGGER guard BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION snowflake_refuse_own_worker(%s);
    ALTER TABLE t ENABLE REPLICA TRIGGER guard;
    ALTER TABLE t DROP COLUMN IF EXISTS gone;
    SET session_replication_role = replica;
    INSERT INTO %s OVERRIDING SYSTEM VALUE
    SELECT snowflake_encode('2026-01-02 03:04Z', worker, 9) FROM unnest('{6,1}'::integer[]) AS worker
$$, definition, argument, inserts))
FROM (VALUES ('(gone text, note text, "the Key" bigint)', '''the Key''', 't ("the Key")'),
             ('(gone text, key order_key)', 'key', 't (key)'),
             ('(gone text, id bigint GENERATED ALWAYS AS IDENTITY)', '', 't (id)'),
             ('(gone text, other bigint DEFAULT 0, id bigint)', '''other'', ''id''', 't (id)')
     ) AS tables (definition, argument, inserts);
CREATE TABLE part PARTITION OF parts FOR VALUES WITH (MODULUS 1, REMAINDER 0);
CREATE TRIGGER guard BEFORE INSERT ON part FOR EACH ROW EXECUTE FUNCTION snowflake_refuse_own_worker();
ALTER TABLE part ENABLE REPLICA TRIGGER guard;
SET session_replication_role = replica;
INSERT INTO parts VALUES (snowflake_encode('2026-01-02 03:04Z', 6, 9));
SELECT error_of('INSERT INTO parts VALUES (snowflake_encode(''2026-01-02 03:04Z'', 1, 9))');
RESET session_replication_role;
DROP TABLE parts;
DROP DOMAIN order_key, key;

-- one that cannot read IDs refuses every row
SELECT columns, argument, error_of(format($$
    CREATE TABLE t (%s);
    CREATE TRIGGER guard BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION snowflake_refuse_own_worker(%s);
    ALTER TABLE t ENABLE REPLICA TRIGGER guard;
    SET session_replication_role = replica;
    INSERT INTO t DEFAULT VALUES
$$, columns, argument))
FROM (VALUES ('key bigint', ''), ('id bigint', '''ctid'''), ('id bigint', '''id); DROP TABLE t; --'''), ('id integer', ''),
             ('id snowflake_base62', ''), ('id numeric', ''), ('n int, id bigint GENERATED ALWAYS AS (n) STORED', '')
     ) AS tables (columns, argument);

-- it is a replica trigger before insert for each row, and nothing else
SELECT fires, enable, error_of(format($$
    CREATE TABLE t AS SELECT 0::bigint AS id;
    CREATE TRIGGER guard %s EXECUTE FUNCTION snowflake_refuse_own_worker();
    ALTER TABLE t %s TRIGGER guard;
    %s
$$, fires, enable, statement))
FROM (VALUES ('BEFORE INSERT ON t FOR EACH ROW', 'ENABLE', 'INSERT INTO t VALUES (1)'),
             ('BEFORE INSERT ON t FOR EACH ROW', 'ENABLE ALWAYS', 'INSERT INTO t VALUES (1)'),
             ('AFTER INSERT ON t FOR EACH ROW', 'ENABLE', 'INSERT INTO t VALUES (1)'),
             ('BEFORE INSERT ON t FOR EACH STATEMENT', 'ENABLE', 'INSERT INTO t VALUES (1)'),
             ('BEFORE INSERT OR UPDATE ON t FOR EACH ROW', 'ENABLE', 'UPDATE t SET id = 2'),
             ('BEFORE DELETE ON t FOR EACH ROW', 'ENABLE', 'DELETE FROM t'),
             ('BEFORE TRUNCATE ON t', 'ENABLE', 'TRUNCATE t')
     ) AS triggers (fires, enable, statement);
SELECT snowflake_refuse_own_worker();
\echo :LAST_ERROR_SQLSTATE
DROP FUNCTION error_of;

-- any owner of a table can use it, whatever the search path has
CREATE ROLE guarding_user;
CREATE SCHEMA own AUTHORIZATION guarding_user;
SET ROLE guarding_user;
CREATE TABLE own.t (id bigint);
CREATE FUNCTION own.snowflake_worker(bigint) RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''called''; END';
CREATE TRIGGER guard BEFORE INSERT ON own.t FOR EACH ROW EXECUTE FUNCTION snowflake_refuse_own_worker();
ALTER TABLE own.t ENABLE REPLICA TRIGGER guard;
INSERT INTO own.t VALUES (snowflake_nextval());
RESET ROLE;
SET search_path = own, public;
SET session_replication_role = replica;
INSERT INTO own.t VALUES (public.snowflake_encode('2026-01-02 03:04Z', 1, 9));
RESET session_replication_role;
RESET search_path;
DROP TABLE own.t;
DROP FUNCTION own.snowflake_worker;
DROP SCHEMA own;
DROP ROLE guarding_user;
DROP EXTENSION snowflake_id;
