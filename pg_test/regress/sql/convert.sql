-- Conversion of existing keys: the dry run, and what is refused.
CREATE EXTENSION snowflake_id;
\set SHOW_CONTEXT never
CREATE TABLE customer (id bigserial PRIMARY KEY, name text);
CREATE TABLE "Order" (
    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer bigint REFERENCES customer,
    replaces integer REFERENCES "Order" CHECK (replaces < id)
);
CREATE TABLE line ("order" integer REFERENCES "Order", n integer, PRIMARY KEY ("order", n));
INSERT INTO customer (name) VALUES ('Ada'), ('Grace');
INSERT INTO "Order" (customer) VALUES (1), (2);
INSERT INTO line VALUES (1, 1), (2, 1);

-- a bigint key: no table is rewritten
SELECT step, statement, locks, rewrites FROM snowflake_convert('customer', 'id');
SELECT note FROM snowflake_convert('customer', 'id') WHERE note IS NOT NULL;
SELECT statement FROM snowflake_convert('customer', 'id', keep_sequence => true);
-- an integer key: it is, with those that reference it
SELECT step, statement, locks, rewrites FROM snowflake_convert('"Order"', 'id');
SELECT step, regexp_replace(statement, 'convert_\d+', 'convert_OID') AS statement
FROM snowflake_convert('"Order"', 'id', keep_sequence => true);
-- nothing has changed so far
\d "Order"

SELECT count(*) AS steps FROM snowflake_convert('customer', 'id', dry_run => false);
SELECT count(*) AS steps FROM snowflake_convert('"Order"', 'id', dry_run => false);
SELECT * FROM snowflake_convert('"Order"', 'id', dry_run => false);
\d customer
\d "Order"
\d line
INSERT INTO "Order" (customer, replaces) VALUES (1, 1);
SELECT min(id) AS lowest, max(id) > 2 AS new_above_old, count(*) FROM "Order";

-- refused
CREATE VIEW customer_names AS SELECT name FROM customer;
SELECT snowflake_convert('customer_names', 'name');
SELECT snowflake_convert('customer', 'name');
SELECT snowflake_convert('customer', 'ID');
SELECT snowflake_convert('line', 'order');
SELECT snowflake_convert('no_such_table', 'id');
SELECT snowflake_convert('pg_class', 'oid');
SELECT snowflake_convert('customer', 'id', NULL);
CREATE TABLE ticket (id serial, n integer DEFAULT 7 UNIQUE, seen integer UNIQUE);
CREATE VIEW ticket_ids AS SELECT id, n, seen FROM ticket;
CREATE TABLE stub (id integer UNIQUE DEFAULT nextval('ticket_id_seq'));
SELECT snowflake_convert('ticket', 'id');
SELECT snowflake_convert('ticket', 'n');
SELECT snowflake_convert('ticket', 'seen');
SELECT snowflake_convert('stub', 'id');
INSERT INTO stub VALUES (1);
ALTER TABLE stub ALTER COLUMN id TYPE bigint;
INSERT INTO stub VALUES (9223372036854775807);
\set VERBOSITY terse
SELECT snowflake_convert('stub', 'id', keep_sequence => true);
\set VERBOSITY default
CREATE ROLE passer_by;
SET ROLE passer_by;
SELECT snowflake_convert('customer', 'id');
RESET ROLE;
GRANT EXECUTE ON FUNCTION snowflake_convert TO passer_by;
SET ROLE passer_by;
SELECT snowflake_convert('customer', 'id');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION snowflake_convert FROM passer_by;
DROP ROLE passer_by;
DROP VIEW customer_names, ticket_ids;
DROP TABLE customer, "Order", line, stub, ticket;
DROP EXTENSION snowflake_id;
