-- Makes the integer key of a big table, and a column that references it, bigint with short locks only, and then converts
-- the key: docs/migration.md. Copy the statements that follow "1.", with your names. DROP COLUMN also drops what contains
-- the column: try them on a copy, and create again what is missing in pg_dump -s.

CREATE TABLE readings (id serial PRIMARY KEY, value float8);
CREATE TABLE alarms (
    id      bigint PRIMARY KEY DEFAULT snowflake_nextval(),
    reading integer DEFAULT 1 NOT NULL REFERENCES readings ON DELETE CASCADE
);
CREATE INDEX alarms_reading_idx ON alarms (reading);
COMMENT ON COLUMN readings.id IS 'counts up';
COMMENT ON COLUMN alarms.reading IS 'its cause';
GRANT SELECT (id) ON readings TO PUBLIC;
GRANT SELECT (reading) ON alarms TO PUBLIC;
INSERT INTO readings (value) SELECT i FROM generate_series(1, 10000) AS i;
INSERT INTO alarms (reading) SELECT id FROM readings;

-- 1. Columns with the old ones' comments and grants. Triggers fill them in each row that is written from now on.
BEGIN;
SET LOCAL lock_timeout = '2s';
ALTER TABLE readings ADD COLUMN wide_id bigint;
ALTER TABLE alarms ADD COLUMN wide_reading bigint;
ALTER TABLE alarms ALTER COLUMN wide_reading SET DEFAULT 1;
COMMENT ON COLUMN readings.wide_id IS 'counts up';
COMMENT ON COLUMN alarms.wide_reading IS 'its cause';
GRANT SELECT (wide_id) ON readings TO PUBLIC;
GRANT SELECT (wide_reading) ON alarms TO PUBLIC;
CREATE FUNCTION wide_id() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN new.wide_id := new.id; RETURN new; END';
CREATE FUNCTION wide_reading() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN new.wide_reading := new.reading; RETURN new; END';
CREATE TRIGGER wide_id BEFORE INSERT OR UPDATE ON readings FOR EACH ROW EXECUTE FUNCTION wide_id();
CREATE TRIGGER wide_reading BEFORE INSERT OR UPDATE ON alarms FOR EACH ROW EXECUTE FUNCTION wide_reading();
COMMIT;

-- 2. Repeat each UPDATE until it says UPDATE 0 (in psql: \watch 1), and run VACUUM in between, so that the tables do not
-- double.
CREATE INDEX CONCURRENTLY readings_to_do ON readings (id) WHERE wide_id IS NULL;
CREATE INDEX CONCURRENTLY alarms_to_do ON alarms (id) WHERE wide_reading IS NULL;
UPDATE readings SET wide_id = id
WHERE id IN (SELECT id FROM readings WHERE wide_id IS NULL ORDER BY id LIMIT 10000 FOR UPDATE SKIP LOCKED);
UPDATE alarms SET wide_reading = reading
WHERE id IN (SELECT id FROM alarms WHERE wide_reading IS NULL ORDER BY id LIMIT 10000 FOR UPDATE SKIP LOCKED);

-- 3. None takes a long lock. The constraints prove that no value is missing.
DROP INDEX CONCURRENTLY readings_to_do;
DROP INDEX CONCURRENTLY alarms_to_do;
CREATE UNIQUE INDEX CONCURRENTLY wide_id ON readings (wide_id);
CREATE INDEX CONCURRENTLY wide_reading ON alarms (wide_reading);
SET lock_timeout = '2s';
ALTER TABLE readings ADD CONSTRAINT wide_id_is_set CHECK (wide_id IS NOT NULL) NOT VALID;
ALTER TABLE readings VALIDATE CONSTRAINT wide_id_is_set;
ALTER TABLE alarms ADD CONSTRAINT wide_reading_is_set CHECK (wide_reading IS NOT NULL) NOT VALID;
ALTER TABLE alarms VALIDATE CONSTRAINT wide_reading_is_set;
ALTER TABLE alarms ADD CONSTRAINT wide_reading
    FOREIGN KEY (wide_reading) REFERENCES readings (wide_id) ON DELETE CASCADE NOT VALID;
ALTER TABLE alarms VALIDATE CONSTRAINT wide_reading;
ANALYZE readings, alarms;

-- 4. The swap takes milliseconds. For an identity, leave out the lines with its sequence, and run step 5 before COMMIT.
BEGIN;
SET LOCAL lock_timeout = '2s';
LOCK TABLE readings, alarms IN ACCESS EXCLUSIVE MODE;
DROP FUNCTION wide_id, wide_reading CASCADE;
ALTER TABLE alarms DROP COLUMN reading;
ALTER TABLE alarms RENAME COLUMN wide_reading TO reading;
ALTER TABLE alarms ALTER COLUMN reading SET NOT NULL;
ALTER TABLE alarms DROP CONSTRAINT wide_reading_is_set;
ALTER TABLE alarms RENAME CONSTRAINT wide_reading TO alarms_reading_fkey;
ALTER INDEX wide_reading RENAME TO alarms_reading_idx;
ALTER SEQUENCE readings_id_seq OWNED BY readings.wide_id;
ALTER TABLE readings ALTER COLUMN wide_id SET DEFAULT nextval('readings_id_seq');
ALTER TABLE readings DROP COLUMN id;
ALTER TABLE readings RENAME COLUMN wide_id TO id;
ALTER TABLE readings ADD CONSTRAINT readings_pkey PRIMARY KEY USING INDEX wide_id;
ALTER TABLE readings DROP CONSTRAINT wide_id_is_set;
COMMIT;

-- 5. As any bigint key.
CREATE TABLE readings_conversion AS SELECT * FROM snowflake_convert('readings');
SELECT script FROM readings_conversion \gexec

-- The old keys are there, and the next one is an ID.
INSERT INTO readings (value) VALUES (0);
DO $$ BEGIN
    ASSERT (SELECT (count(*), min(id), count(*) FILTER (WHERE id > 10000)) = (10001, 1, 1) FROM readings);
    ASSERT (SELECT bool_and(id = value) FROM readings WHERE id <= 10000);
    ASSERT (SELECT count(*) = 10000 FROM alarms JOIN readings ON readings.id = reading);
END $$;
