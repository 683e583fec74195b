-- Conversion of existing keys: the functions, the plan, the execution, the checks, the sequences, sets, the way back, the
-- rights.
CREATE EXTENSION snowflake_id;
\set SHOW_CONTEXT never

-- ---- the functions ----
SELECT p.oid::regprocedure AS function, obj_description(p.oid, 'pg_proc') AS comment
FROM pg_proc p
WHERE p.proname ~ '^snowflake_(convert|revert)' AND p.pronamespace <> 'snowflake_internal'::regnamespace ORDER BY p.oid;

-- ---- the plan ----
CREATE TABLE customer (id bigserial PRIMARY KEY, name text);
CREATE TABLE "Order" (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer bigint REFERENCES customer,
    replaces integer REFERENCES "Order" CHECK (replaces < id)
);
CREATE TABLE line ("order" integer REFERENCES "Order", n integer, PRIMARY KEY ("order", n));
CREATE TABLE event (id smallserial, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE event_2026 PARTITION OF event FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
INSERT INTO customer (name) VALUES ('Ada'), ('Grace');
INSERT INTO "Order" (customer) VALUES (1), (2);
INSERT INTO line VALUES (1, 1), (2, 1);

-- all of a report
SELECT step, kind, object, statement, regexp_replace(note, 'sessions [0-9]+', 'sessions N') AS note, remedy FROM snowflake_convert('customer', 'id');
-- a bigint key: no table is rewritten
SELECT step, statement, locks, rewrites FROM snowflake_convert('customer', 'id') WHERE kind = 'statement';
SELECT regexp_replace(note, 'sessions [0-9]+', 'sessions N') AS note FROM snowflake_convert('customer', 'id') WHERE note IS NOT NULL AND kind = 'statement';
SELECT statement FROM snowflake_convert('customer', 'id', keep_sequence => true) WHERE kind = 'statement';
-- an integer key: its table is rewritten, and those with columns that reference it
SELECT step, statement, locks, rewrites FROM snowflake_convert('"Order"', 'id') WHERE kind = 'statement';
-- a partitioned table is converted as a whole
SELECT step, statement FROM snowflake_convert('event', 'id') WHERE kind = 'statement';
-- a dry run locks tables as SELECT does, and sequences as nextval() does
BEGIN;
SELECT count(*) AS steps FROM snowflake_convert('"Order"', 'id');
SELECT relation::regclass, mode FROM pg_locks
WHERE pid = pg_backend_pid() AND relation IN ('"Order"'::regclass, 'line'::regclass, '"Order_id_seq"'::regclass)
ORDER BY relation::regclass::text COLLATE "C";
COMMIT;
-- nothing has changed so far
\d "Order"

-- ---- the execution ----
SELECT count(*) AS steps FROM snowflake_convert('customer', 'id', dry_run => false);
SELECT count(*) AS steps FROM snowflake_convert('"Order"', 'id', dry_run => false);
SELECT count(*) AS steps FROM snowflake_convert('event', 'id', dry_run => false);
SELECT * FROM snowflake_convert('"Order"', 'id', dry_run => false);
\d customer
\d "Order"
\d line
\d event_2026
INSERT INTO "Order" (customer, replaces) VALUES (1, 1);
SELECT min(id) AS lowest, max(id) > 2 AS new_above_old, count(*) FROM "Order";

-- ---- the checks ----
CREATE VIEW customer_names AS SELECT name FROM customer;
SELECT snowflake_convert('customer_names', 'name');
SELECT snowflake_convert('customer', 'name', dry_run => false);
SELECT snowflake_convert('customer', 'ID');
SELECT snowflake_convert('event_2026', 'id');
SELECT snowflake_convert('line', 'order', dry_run => false);
SELECT snowflake_convert('no_such_table', 'id');
SELECT snowflake_convert('pg_class', 'oid');
SELECT snowflake_convert('customer', 'id', NULL);
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT snowflake_convert('customer', 'id');
ROLLBACK;
BEGIN READ ONLY;
SELECT snowflake_convert('customer', 'id');
ROLLBACK;
CREATE TABLE ticket (id serial, n integer DEFAULT 7 UNIQUE, seen integer UNIQUE);
CREATE VIEW ticket_ids AS SELECT id, n, seen FROM ticket;
SELECT snowflake_convert('ticket', 'id', dry_run => false);
SELECT snowflake_convert('ticket', 'n', dry_run => false);
SELECT statement FROM snowflake_convert('ticket', 'seen') WHERE statement NOT LIKE 'CREATE VIEW%' AND kind = 'statement';
CREATE DOMAIN narrow AS integer;
CREATE TABLE seat (id bigint PRIMARY KEY);
CREATE TABLE guest (seat narrow REFERENCES seat);
SELECT snowflake_convert('seat', 'id', dry_run => false);
CREATE TABLE part (id bigint PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE part_old PARTITION OF part FOR VALUES FROM (0) TO (1000);
\set VERBOSITY terse
SELECT snowflake_convert('part', 'id', dry_run => false);
\set VERBOSITY default
CREATE TABLE part_new PARTITION OF part DEFAULT;
SELECT statement FROM snowflake_convert('part', 'id') WHERE kind = 'statement';

-- ---- the sequences ----
CREATE TABLE stub (id integer UNIQUE DEFAULT nextval('ticket_id_seq'));
SELECT snowflake_convert('stub', 'id', dry_run => false);
INSERT INTO stub VALUES (1);
ALTER TABLE stub ALTER COLUMN id TYPE bigint;
INSERT INTO stub VALUES (9223372036854775807);
\set VERBOSITY terse
SELECT snowflake_convert('stub', 'id', dry_run => false, keep_sequence => true);
\set VERBOSITY default
-- a serial column's sequence can be kept
CREATE TABLE kept (id serial PRIMARY KEY);
INSERT INTO kept DEFAULT VALUES;
SELECT count(*) AS steps FROM snowflake_convert('kept', 'id', dry_run => false, keep_sequence => true);
SELECT nextval('kept_id_seq');
-- an identity column's sequence cannot
CREATE TABLE lost (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
SELECT object, note, remedy FROM snowflake_convert('lost', 'id', keep_sequence => true) WHERE kind = 'obstacle';
SELECT snowflake_convert('lost', 'id', dry_run => false, keep_sequence => true);
\d lost

-- ---- sets ----
CREATE SCHEMA shop;
CREATE TABLE shop.buyer (id serial PRIMARY KEY, name text);
CREATE TABLE shop.purchase (
    id      integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    buyer   integer NOT NULL REFERENCES shop.buyer,
    follows integer REFERENCES shop.purchase
);
CREATE TABLE shop.tag (tag text PRIMARY KEY, purchase integer REFERENCES shop.purchase);
CREATE VIEW shop.buyers WITH (security_barrier) AS SELECT id, name FROM shop.buyer WHERE name <> '';
CREATE VIEW shop.purchases AS SELECT p.id, b.name FROM shop.purchase p JOIN shop.buyers b ON b.id = p.buyer;
GRANT SELECT ON shop.buyers TO pg_monitor;
COMMENT ON COLUMN shop.purchases.name IS 'the buyer''s';
-- each table is rewritten once, and the views are created again
SELECT step, split_part(statement, ' AS SELECT', 1) AS statement, rewrites, size IS NOT NULL AS has_size,
    regexp_replace(note, 'sessions [0-9]+', 'sessions N') AS note
FROM snowflake_convert_schema('shop') WHERE kind = 'statement';
SELECT snowflake_convert_tables('{shop.buyer, shop.tag}');
SELECT snowflake_convert_tables(NULL);
CREATE MATERIALIZED VIEW shop.stored AS SELECT id FROM shop.buyers;
SELECT kind, object, split_part(statement, ' AS SELECT', 1) AS statement, note, remedy
FROM snowflake_convert_tables('{shop.buyer, shop.purchase}')
WHERE kind IN ('obstacle', 'before', 'after');
SELECT snowflake_convert_tables('{shop.buyer, shop.purchase}', dry_run => false);
DROP MATERIALIZED VIEW shop.stored;
SELECT count(*) AS steps FROM snowflake_convert_tables('{shop.buyer, shop.purchase}', dry_run => false);
SELECT * FROM snowflake_convert_schema('shop', dry_run => false);
SELECT reloptions, has_table_privilege('pg_monitor', oid, 'SELECT') AS may_monitor_read FROM pg_class
WHERE oid = 'shop.buyers'::regclass;
\d shop.purchases

-- ---- the way back ----
SELECT * FROM snowflake_revert('shop.purchase', 'id');
SELECT statement FROM snowflake_revert('shop.purchase', 'id', becomes => 'identity always');
SELECT snowflake_revert('shop.purchase', 'id', becomes => 'serial');
SELECT snowflake_revert('shop.purchase', 'ID');
SELECT count(*) AS steps FROM snowflake_revert_schema('shop', dry_run => false);
SELECT * FROM snowflake_revert_tables('{shop.buyer}', dry_run => false);
SELECT * FROM snowflake_revert('shop.buyer', 'id', dry_run => false);
INSERT INTO shop.buyer (name) VALUES ('Ada') RETURNING id;
\d shop.buyer
DROP SCHEMA shop CASCADE;

-- ---- the rights ----
CREATE ROLE passer_by;
SET ROLE passer_by;
SELECT snowflake_convert('customer', 'id');
RESET ROLE;
GRANT EXECUTE ON FUNCTION snowflake_convert TO passer_by;
SET ROLE passer_by;
SELECT snowflake_convert('customer', 'id');
-- the internal functions give no role any rights
SELECT snowflake_internal.snowflake_convert_keys('itself', ARRAY[('customer', 'id', NULL)::snowflake_internal.snowflake_key],
                                                 false, false, '{}');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION snowflake_convert FROM passer_by;
DROP ROLE passer_by;
DROP VIEW customer_names, ticket_ids;
DROP TABLE customer, "Order", line, event, stub, ticket, guest, seat, part, kept, lost;
DROP SEQUENCE kept_id_seq;
DROP DOMAIN narrow;
DROP EXTENSION snowflake_id;
