-- Gives a big table with an integer key snowflake IDs, with short locks only: docs/migration.md. Copy the statements that
-- follow "1.", with the names of your table. A column that references the key needs steps 1 to 4 as well, in the same
-- transaction of step 4.

CREATE TABLE readings (id serial PRIMARY KEY, value float8);
INSERT INTO readings (value) SELECT i FROM generate_series(1, 10000) AS i;

-- 1. Every row that is written from now on has both columns.
ALTER TABLE readings ADD COLUMN wide_id bigint;
CREATE FUNCTION readings_wide_id() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN new.wide_id := new.id; RETURN new; END';
CREATE TRIGGER readings_wide_id BEFORE INSERT OR UPDATE ON readings
    FOR EACH ROW EXECUTE FUNCTION readings_wide_id();

-- 2. Repeat this until it says UPDATE 0 (in psql: \watch 1), and run VACUUM in between, so that the table does not double.
UPDATE readings SET wide_id = id
WHERE id IN (SELECT id FROM readings WHERE wide_id IS NULL ORDER BY id LIMIT 10000 FOR UPDATE SKIP LOCKED);

-- 3. Neither takes a long lock. The constraint proves that no value is missing.
CREATE UNIQUE INDEX CONCURRENTLY readings_wide_id_key ON readings (wide_id);
ALTER TABLE readings ADD CONSTRAINT wide_id_is_set CHECK (wide_id IS NOT NULL) NOT VALID;
ALTER TABLE readings VALIDATE CONSTRAINT wide_id_is_set;

-- 4. The swap takes milliseconds. DROP COLUMN also drops the default and the sequence that the column owned.
BEGIN;
SET LOCAL lock_timeout = '2s';
LOCK TABLE readings IN ACCESS EXCLUSIVE MODE;
DROP TRIGGER readings_wide_id ON readings;
ALTER TABLE readings DROP COLUMN id;
ALTER TABLE readings RENAME COLUMN wide_id TO id;
ALTER TABLE readings ADD CONSTRAINT readings_pkey PRIMARY KEY USING INDEX readings_wide_id_key;
ALTER TABLE readings DROP CONSTRAINT wide_id_is_set;
SELECT script FROM snowflake_convert('readings') \gexec
COMMIT;
DROP FUNCTION readings_wide_id();

-- The old keys are there, and the next one is an ID.
INSERT INTO readings (value) VALUES (0);
DO $$ BEGIN
    ASSERT (SELECT (count(*), min(id), count(*) FILTER (WHERE id > 10000)) = (10001, 1, 1) FROM readings);
    ASSERT (SELECT bool_and(id = value) FROM readings WHERE id <= 10000);
END $$;
