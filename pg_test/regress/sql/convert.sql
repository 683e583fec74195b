-- Conversion of existing keys: a script and its way back, obstacles, errors.
CREATE EXTENSION snowflake_id;
\set VERBOSITY terse

-- ---- a script ----
CREATE ROLE regress_owner;
CREATE ROLE "regress Reader";
CREATE SCHEMA regress_shop AUTHORIZATION regress_owner;
SET ROLE regress_owner;
CREATE TABLE regress_shop.customer (
    id serial PRIMARY KEY, name text, group_id integer, twice integer GENERATED ALWAYS AS (id * 2) STORED
);
COMMENT ON COLUMN regress_shop.customer.twice IS 'the customer''s';
GRANT SELECT (twice), UPDATE (twice) ON regress_shop.customer TO "regress Reader";
CREATE TABLE regress_shop."Order" (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer integer REFERENCES regress_shop.customer CHECK (customer > 0)
);
CREATE UNIQUE INDEX half ON regress_shop."Order" ((customer / 2), id DESC) WITH (fillfactor = 70) WHERE customer > 5;
COMMENT ON INDEX regress_shop.half IS 'half';
CREATE STATISTICS regress_shop.both (ndistinct) ON customer, id FROM regress_shop."Order";
ALTER STATISTICS regress_shop.both SET STATISTICS 7;
CREATE POLICY "its reader's" ON regress_shop."Order" AS RESTRICTIVE FOR UPDATE TO "regress Reader"
    USING (customer > 1) WITH CHECK (id > 0);
CREATE FUNCTION regress_shop.same() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER "Check" AFTER UPDATE OF customer ON regress_shop."Order"
    FOR EACH ROW WHEN (NEW.customer > 1) EXECUTE FUNCTION regress_shop.same();
ALTER TABLE regress_shop."Order" ENABLE ALWAYS TRIGGER "Check";
COMMENT ON TRIGGER "Check" ON regress_shop."Order" IS 'checks';
CREATE RULE kept AS ON DELETE TO regress_shop."Order" WHERE OLD.customer = 7 DO INSTEAD NOTHING;
CREATE VIEW regress_shop.view WITH (security_barrier) AS
    SELECT o.customer, c.name FROM regress_shop."Order" o JOIN regress_shop.customer c ON c.id = o.customer;
COMMENT ON VIEW regress_shop.view IS 'customers with orders';
COMMENT ON COLUMN regress_shop.view.name IS 'of the customer';
ALTER VIEW regress_shop.view ALTER customer SET DEFAULT 7;
GRANT SELECT, DELETE ON regress_shop.view TO "regress Reader" WITH GRANT OPTION;
CREATE MATERIALIZED VIEW regress_shop.big AS SELECT v.customer, v.name FROM regress_shop.view v, regress_shop.view w WITH NO DATA;
CREATE INDEX ON regress_shop.big (customer);
CREATE TABLE regress_shop.note (id serial PRIMARY KEY);
INSERT INTO regress_shop.customer (name) VALUES ('Ada'), ('Grace');
INSERT INTO regress_shop."Order" (customer) VALUES (1), (2);
CREATE TABLE regress_shop.kept AS SELECT * FROM snowflake_convert_schema('regress_shop', exclude => '{no%}');
\pset format unaligned
\pset tuples_only on
-- The hash and the time in it differ.
SELECT regexp_replace(script, '''[0-9a-f]{32}''', 'HASH') FROM regress_shop.kept;
SELECT regexp_replace(back, '(id <) [0-9]+', '\1 NOW') FROM regress_shop.kept;
\pset format aligned
\pset tuples_only off
DO $$ BEGIN EXECUTE (SELECT script FROM regress_shop.kept); END $$;
INSERT INTO regress_shop."Order" (customer) SELECT id FROM regress_shop.customer WHERE name = 'Ada' RETURNING id > 2 AS new_above_old;

-- ---- it runs once ----
DO $$ BEGIN EXECUTE (SELECT script FROM regress_shop.kept); END $$;
SELECT * FROM snowflake_convert('regress_shop.customer');

-- ---- the way back ----
DO $$ BEGIN EXECUTE (SELECT back FROM regress_shop.kept); END $$;
INSERT INTO regress_shop."Order" (customer) VALUES (1) RETURNING id;
INSERT INTO regress_shop.customer (name) VALUES ('Edsger') RETURNING id;

-- ---- errors ----
\set VERBOSITY default
SELECT snowflake_convert('regress_shop.kept');
\set SHOW_CONTEXT never
INSERT INTO regress_shop."Order" OVERRIDING SYSTEM VALUE VALUES (9223372036854775807);
DO $$ BEGIN EXECUTE (SELECT script FROM snowflake_convert('regress_shop."Order"')); END $$;

RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA regress_shop CASCADE;
DROP ROLE regress_owner, "regress Reader";
DROP EXTENSION snowflake_id;
