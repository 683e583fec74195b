-- A generator of snowflake IDs in PL/pgSQL: layout 41/10/12, tick 1ms, epoch 2024-01-01 00:00:00 UTC.
-- For PostgreSQL 12 or later, where the library of snowflake_id cannot be loaded. Run it as one transaction, as the role
-- that will own the generator. If you run it again, for a later version or another worker, the generator keeps its state.
--
-- Why no ID comes out twice: the value of the sequence is count << 41 | tick, and its increment is
-- 1 << 41. So nextval() changes only the count, never the tick. Only snowflake_move() sets it, alone under a
-- lock: to a larger tick, or to the present one's first count that no ID has. Hence no pair of tick and count repeats.
CREATE SCHEMA IF NOT EXISTS "snowflake";

-- No object on the caller's search_path is taken for PostgreSQL's own; the last statement restores the path.
DO $do$
BEGIN
    PERFORM pg_catalog.set_config('snowflake_generator.path', pg_catalog.current_setting('search_path'), true);
END
$do$;
SET LOCAL search_path = pg_catalog, pg_temp;

DO $do$
DECLARE
    problem text;
BEGIN
    -- Objects of another role must not become a part of the generator.
    SELECT format('%s belongs to role %I.', pg_describe_object(o.classid, o.oid, 0), pg_get_userbyid(o.owner))
    INTO problem
    FROM (
        SELECT 'pg_proc'::regclass, oid, proowner, proname, pronamespace FROM pg_proc
        UNION ALL SELECT 'pg_class'::regclass, oid, relowner, relname, relnamespace FROM pg_class
        UNION ALL SELECT 'pg_type'::regclass, oid, typowner, typname, typnamespace FROM pg_type
    ) AS o (classid, oid, owner, name, namespace)
    WHERE o.namespace = '"snowflake"'::regnamespace AND starts_with(o.name, 'snowflake_')
        AND pg_get_userbyid(o.owner) <> current_user
    -- A schema's owner can replace it, and the generator would call the functions there with the rights of its own owner. A
    -- role with CREATE on the schema could add functions until this script has created them.
    UNION ALL
    SELECT CASE g.role WHEN n.nspowner THEN format('Schema %I belongs to role %I.', n.nspname, pg_get_userbyid(r.role))
        ELSE format('%s may create objects in schema %I.', CASE r.role WHEN 0 THEN 'PUBLIC'
            ELSE format('Role %I', pg_get_userbyid(r.role)) END, n.nspname) END
    FROM pg_namespace n, LATERAL (
        SELECT n.nspowner UNION SELECT a.grantee FROM aclexplode(n.nspacl) AS a WHERE a.privilege_type = 'CREATE'
    ) AS g (role), LATERAL (
        SELECT CASE g.role WHEN to_regrole('pg_database_owner')
            THEN (SELECT datdba FROM pg_database WHERE datname = current_database()) ELSE g.role END
    ) AS r (role)
    WHERE n.oid = '"snowflake"'::regnamespace AND NOT pg_has_role(r.role, current_user, 'MEMBER')
    LIMIT 1;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = 'cannot create a snowflake generator among objects of another role', DETAIL = problem,
            HINT = 'Run this as the role that owns schema and generator, or choose a schema of this role in which no '
                'other can create objects.';
    END IF;
    IF to_regtype('"snowflake".snowflake_base62') IS NULL THEN
        CREATE DOMAIN "snowflake".snowflake_base62 AS text COLLATE pg_catalog."C" CHECK (
            VALUE COLLATE pg_catalog."C" OPERATOR(pg_catalog.~) '^[0-9A-Za-z]{11}$'
            AND VALUE COLLATE pg_catalog."C" OPERATOR(pg_catalog.<=) 'AzL8n0Y58m7');
    END IF;
    IF to_regtype('"snowflake".snowflake_parts') IS NULL THEN
        CREATE TYPE "snowflake".snowflake_parts AS
            (created_at timestamptz, datacenter_id integer, worker_id integer, sequence integer);
    END IF;
END
$do$;

-- The layout of the IDs. snowflake_move() locks this table; no other role has the right to.
CREATE TABLE IF NOT EXISTS "snowflake".snowflake_config (
    layout  text NOT NULL,
    tick_ms integer NOT NULL,
    epoch   timestamptz NOT NULL
);
-- A restore of data, or replication, may add the row a second time.
INSERT INTO "snowflake".snowflake_config SELECT '41/10/12', 1, '2024-01-01 00:00:00+00'
WHERE NOT EXISTS (SELECT FROM "snowflake".snowflake_config);
DO $do$
DECLARE
    own record;
BEGIN
    SELECT * INTO own FROM "snowflake".snowflake_config c
    WHERE (c.layout, c.tick_ms, c.epoch) IS DISTINCT FROM ('41/10/12', 1, timestamptz '2024-01-01 00:00:00+00')
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'the existing snowflake generator has another layout',
            DETAIL = format('It generates %s %sms %s.', own.layout, own.tick_ms, own.epoch),
            HINT = 'Use that layout, or another schema.';
    END IF;
END
$do$;
CREATE SEQUENCE IF NOT EXISTS "snowflake".snowflake_state AS bigint INCREMENT 2199023255552 MINVALUE 0 START 0 NO CYCLE;

-- ---- generating IDs ----

-- The worker of this generator. No other server or database may generate IDs with the same number.
CREATE OR REPLACE FUNCTION "snowflake".snowflake_generator_worker() RETURNS bigint
    IMMUTABLE PARALLEL SAFE LANGUAGE sql AS $$ SELECT 0::bigint $$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_error(state text, message text, detail text, hint text) RETURNS boolean
    IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = state, MESSAGE = message, DETAIL = detail, HINT = hint;
END
$$;

-- The system clock in microseconds since the epoch.
CREATE OR REPLACE FUNCTION "snowflake".snowflake_clock() RETURNS bigint VOLATILE PARALLEL SAFE LANGUAGE sql AS $$
    SELECT ((pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) '1e6'::double precision)::bigint OPERATOR(pg_catalog.-) (1704067200000000))
$$;

-- Makes n positions of one tick current, and returns the ID of the first. Each attempt is a block that ends with an
-- exception: that releases the lock even within a long transaction, and does not undo setval(). With exit_on_error the
-- exception would end the session. With client_min_messages = debug the server would send messages while it holds the
-- lock, and wait for a client that does not read.
CREATE OR REPLACE FUNCTION "snowflake".snowflake_move(n bigint) RETURNS bigint
    VOLATILE PARALLEL UNSAFE LANGUAGE plpgsql SET client_min_messages = error SET exit_on_error = off AS $$
DECLARE
    clock   bigint; -- in microseconds since the epoch
    state   bigint;
    tick    bigint;
    missing bigint; -- microseconds until the tick is no more than max_ahead ahead of the clock
BEGIN
    LOOP
        BEGIN
            LOCK TABLE "snowflake".snowflake_config IN EXCLUSIVE MODE;
            clock := ((pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) '1e6'::double precision)::bigint OPERATOR(pg_catalog.-) (1704067200000000));
            state := pg_catalog.pg_sequence_last_value('"snowflake".snowflake_state');
            IF (state OPERATOR(pg_catalog.>=) 9007199254740992) IS NOT TRUE THEN
                state := pg_catalog.nextval('"snowflake".snowflake_state');
            END IF;
            tick := state OPERATOR(pg_catalog.&) 2199023255551;
            missing := tick OPERATOR(pg_catalog.*) 1000 OPERATOR(pg_catalog.-) clock
                OPERATOR(pg_catalog.-) 2000000;
            IF missing OPERATOR(pg_catalog.<=) 0
                AND (tick OPERATOR(pg_catalog.+) 1) OPERATOR(pg_catalog.*) 1000 OPERATOR(pg_catalog.>) clock
                -- The last of n positions is inside the field.
                AND (state OPERATOR(pg_catalog.>>) 41) OPERATOR(pg_catalog.+) n
                    OPERATOR(pg_catalog.<=) 4096
                -- Other sessions may take some of them meanwhile; then these stay unused.
                AND (n OPERATOR(pg_catalog.=) 1 OR (
                    SELECT pg_catalog.max(pg_catalog.nextval('"snowflake".snowflake_state'))
                    FROM pg_catalog.generate_series(2, n)
                ) OPERATOR(pg_catalog.=) (state OPERATOR(pg_catalog.+)
                    ((n OPERATOR(pg_catalog.-) 1) OPERATOR(pg_catalog.*) 2199023255552)))
            THEN
                RAISE EXCEPTION USING ERRCODE = 'SFID1';
            END IF;
            -- A larger tick: that of the clock, or the next.
            IF (tick OPERATOR(pg_catalog.+) 1) OPERATOR(pg_catalog.*) 1000 OPERATOR(pg_catalog.<=) clock THEN
                tick := clock OPERATOR(pg_catalog./) 1000;
            ELSE
                tick := tick OPERATOR(pg_catalog.+) 1;
            END IF;
            missing := tick OPERATOR(pg_catalog.*) 1000 OPERATOR(pg_catalog.-) clock
                OPERATOR(pg_catalog.-) 2000000;
            IF missing OPERATOR(pg_catalog.<=) 0 AND tick OPERATOR(pg_catalog.<=) 2199023255551 THEN
                state := pg_catalog.setval('"snowflake".snowflake_state',
                    (n OPERATOR(pg_catalog.-) 1) OPERATOR(pg_catalog.<<) 41 OPERATOR(pg_catalog.|) tick);
                state := tick;
                RAISE EXCEPTION USING ERRCODE = 'SFID1';
            END IF;
            -- Refused: the present tick becomes just full, so that this session's value is one that snowflake_lastval()
            -- does not take for an ID.
            state := pg_catalog.setval('"snowflake".snowflake_state',
                9007199254740992 OPERATOR(pg_catalog.|) (state OPERATOR(pg_catalog.&) 2199023255551));
            RAISE EXCEPTION USING ERRCODE = 'SFID2';
        EXCEPTION
            WHEN SQLSTATE 'SFID1' THEN
                RETURN ((state OPERATOR(pg_catalog.&) 2199023255551) OPERATOR(pg_catalog.<<) 22) OPERATOR(pg_catalog.|) ((0 OPERATOR(pg_catalog.|) "snowflake".snowflake_generator_worker()) OPERATOR(pg_catalog.<<) 12) OPERATOR(pg_catalog.|) (state OPERATOR(pg_catalog.>>) 41);
            WHEN SQLSTATE 'SFID2' THEN
                NULL;
        END;
        IF clock OPERATOR(pg_catalog.<) 0 THEN
            PERFORM "snowflake".snowflake_error('55000', 'cannot generate a snowflake ID: system clock is before the epoch',
                pg_catalog.format('The system clock reads %s; the epoch is 2024-01-01 00:00:00+00.', pg_catalog.clock_timestamp()),
                'Correct the clock.');
        ELSIF tick OPERATOR(pg_catalog.>) 2199023255551 THEN
            PERFORM "snowflake".snowflake_error('55000',
                'cannot generate a snowflake ID: the layout''s time field is exhausted',
                'Layout 41/10/12 ends before 2093-09-06 15:47:35.552+00.', 'Correct the clock if it is ahead. Otherwise move to a layout '
                'with more time bits or a coarser tick.');
        ELSIF missing OPERATOR(pg_catalog.>) 5000 THEN
            PERFORM "snowflake".snowflake_error('55000', 'cannot generate a snowflake ID: system clock moved backwards',
                pg_catalog.format('The system clock is %s ms behind the newest ID.',
                    (missing OPERATOR(pg_catalog.+) 2000000) OPERATOR(pg_catalog./) 1000),
                pg_catalog.format('Wait until the clock reaches %s, or correct the clock if it is wrong.',
                    pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+)
                    (missing::double precision OPERATOR(pg_catalog.*) interval '1 us')));
        END IF;
        PERFORM pg_catalog.pg_sleep(missing::double precision OPERATOR(pg_catalog./) 1000000);
    END LOOP;
END
$$;

-- A full tick has no further counts, or else calls that fail to move it would use up those of the sequence.
-- Operators are named with their schema instead of a search_path for the function, which would double a call's cost.
CREATE OR REPLACE FUNCTION "snowflake".snowflake_nextval() RETURNS bigint
    VOLATILE PARALLEL UNSAFE SECURITY DEFINER LANGUAGE plpgsql AS $$
DECLARE
    state constant bigint := CASE WHEN pg_catalog.pg_sequence_last_value('"snowflake".snowflake_state')
        OPERATOR(pg_catalog.>=) 9007199254740992 THEN 9007199254740992 ELSE pg_catalog.nextval('"snowflake".snowflake_state') END;
    lead  constant bigint := (state OPERATOR(pg_catalog.&) 2199023255551) OPERATOR(pg_catalog.*) 1000
        OPERATOR(pg_catalog.-) ((pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) '1e6'::double precision)::bigint OPERATOR(pg_catalog.-) (1704067200000000)); -- of the tick's beginning over the clock, in microseconds
BEGIN
    IF state OPERATOR(pg_catalog.<) 9007199254740992 AND lead OPERATOR(pg_catalog.>) -1000
        AND lead OPERATOR(pg_catalog.<=) 2000000
    THEN
        RETURN ((state OPERATOR(pg_catalog.&) 2199023255551) OPERATOR(pg_catalog.<<) 22) OPERATOR(pg_catalog.|) ((0 OPERATOR(pg_catalog.|) "snowflake".snowflake_generator_worker()) OPERATOR(pg_catalog.<<) 12) OPERATOR(pg_catalog.|) (state OPERATOR(pg_catalog.>>) 41);
    END IF;
    -- With the declared type, because an overload that another role has created could match an integer better.
    RETURN "snowflake".snowflake_move(1::bigint);
END
$$;

-- Checks the argument of snowflake_nextval_batch, which PostgreSQL could not stream if it were in PL/pgSQL.
CREATE OR REPLACE FUNCTION "snowflake".snowflake_batch_size(n integer) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF n < 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'n must not be negative', DETAIL = format('n is %s.', n);
    END IF;
    RETURN n;
END
$$;

-- ROWS 1, so that Memoize never costs less: it would generate the IDs of each n once.
CREATE OR REPLACE FUNCTION "snowflake".snowflake_nextval_batch(n integer) RETURNS SETOF bigint
    VOLATILE STRICT PARALLEL UNSAFE ROWS 1 LANGUAGE sql AS $$
    SELECT "snowflake".snowflake_nextval() FROM pg_catalog.generate_series(1, "snowflake".snowflake_batch_size(n))
$$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_nextval_range(n integer, OUT "first" bigint, OUT "last" bigint)
    VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF n NOT BETWEEN 1 AND 4096 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'n must be between 1 and 4096',
            DETAIL = format('n is %s. A range lies within one tick, which has room for 4096 IDs.', n),
            HINT = 'Ask for fewer IDs, or call snowflake_nextval_batch, which has no limit.';
    END IF;
    "first" := "snowflake".snowflake_move(n::bigint);
    "last" := "first" + (n - 1);
END
$$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_lastval() RETURNS bigint
    VOLATILE STRICT PARALLEL RESTRICTED SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    state bigint;
BEGIN
    state := currval('"snowflake".snowflake_state');
    IF state >= 9007199254740992 THEN
        RAISE object_not_in_prerequisite_state;
    END IF;
    RETURN ((state OPERATOR(pg_catalog.&) 2199023255551) OPERATOR(pg_catalog.<<) 22) OPERATOR(pg_catalog.|) ((0 OPERATOR(pg_catalog.|) "snowflake".snowflake_generator_worker()) OPERATOR(pg_catalog.<<) 12) OPERATOR(pg_catalog.|) (state OPERATOR(pg_catalog.>>) 41);
EXCEPTION WHEN object_not_in_prerequisite_state THEN
    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'snowflake_lastval is not yet defined in this session',
        DETAIL = 'This session has generated no ID since it began, since DISCARD ALL or DISCARD SEQUENCES, or since a call '
            'failed.',
        HINT = 'Call snowflake_nextval first, or insert a row whose default calls it.';
END
$$;

-- ---- reading IDs ----

CREATE OR REPLACE FUNCTION "snowflake".snowflake_timestamp(id bigint) RETURNS timestamp with time zone IMMUTABLE PARALLEL SAFE LANGUAGE sql
    AS $$ SELECT CASE WHEN id OPERATOR(pg_catalog.>=) 0 AND id OPERATOR(pg_catalog.<=) 9223372036854775807 THEN (timestamp '2024-01-01 00:00:00' OPERATOR(pg_catalog.+) ((id OPERATOR(pg_catalog.>>) 22) OPERATOR(pg_catalog.*) interval '1000 us')) AT TIME ZONE 'UTC'
        WHEN id IS NOT NULL AND "snowflake".snowflake_error('22023',
            pg_catalog.format('%s is not a snowflake ID of layout 41/10/12', id),
            CASE WHEN id OPERATOR(pg_catalog.<) 0 THEN 'A snowflake ID is never negative.'
                ELSE 'It has bits above the layout''s time field.' END,
            'Check the source of the value. To read an ID of another system, call snowflake_decode(id, layout).')
            THEN NULL::timestamp with time zone END $$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_datacenter(id bigint) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql
    AS $$ SELECT CASE WHEN id OPERATOR(pg_catalog.>=) 0 AND id OPERATOR(pg_catalog.<=) 9223372036854775807 THEN NULL::integer
        WHEN id IS NOT NULL AND "snowflake".snowflake_error('22023',
            pg_catalog.format('%s is not a snowflake ID of layout 41/10/12', id),
            CASE WHEN id OPERATOR(pg_catalog.<) 0 THEN 'A snowflake ID is never negative.'
                ELSE 'It has bits above the layout''s time field.' END,
            'Check the source of the value. To read an ID of another system, call snowflake_decode(id, layout).')
            THEN NULL::integer END $$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_worker(id bigint) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql
    AS $$ SELECT CASE WHEN id OPERATOR(pg_catalog.>=) 0 AND id OPERATOR(pg_catalog.<=) 9223372036854775807 THEN ((id OPERATOR(pg_catalog.>>) 12) OPERATOR(pg_catalog.&) 1023)::integer
        WHEN id IS NOT NULL AND "snowflake".snowflake_error('22023',
            pg_catalog.format('%s is not a snowflake ID of layout 41/10/12', id),
            CASE WHEN id OPERATOR(pg_catalog.<) 0 THEN 'A snowflake ID is never negative.'
                ELSE 'It has bits above the layout''s time field.' END,
            'Check the source of the value. To read an ID of another system, call snowflake_decode(id, layout).')
            THEN NULL::integer END $$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_sequence(id bigint) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql
    AS $$ SELECT CASE WHEN id OPERATOR(pg_catalog.>=) 0 AND id OPERATOR(pg_catalog.<=) 9223372036854775807 THEN (id OPERATOR(pg_catalog.&) 4095)::integer
        WHEN id IS NOT NULL AND "snowflake".snowflake_error('22023',
            pg_catalog.format('%s is not a snowflake ID of layout 41/10/12', id),
            CASE WHEN id OPERATOR(pg_catalog.<) 0 THEN 'A snowflake ID is never negative.'
                ELSE 'It has bits above the layout''s time field.' END,
            'Check the source of the value. To read an ID of another system, call snowflake_decode(id, layout).')
            THEN NULL::integer END $$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_owner(id bigint, OUT home_worker_id integer, OUT lane integer)
    STABLE STRICT PARALLEL SAFE LANGUAGE sql
    AS $$ SELECT ROW(CASE WHEN "snowflake".snowflake_worker(id) OPERATOR(pg_catalog.<) 1024 THEN "snowflake".snowflake_worker(id) OPERATOR(pg_catalog.%) 256 END,
        CASE WHEN "snowflake".snowflake_worker(id) OPERATOR(pg_catalog.<) 1024 THEN "snowflake".snowflake_worker(id) OPERATOR(pg_catalog./) 256 END) $$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_min(ts timestamp with time zone) RETURNS bigint IMMUTABLE PARALLEL SAFE LANGUAGE sql
    AS $$ SELECT CASE WHEN ts OPERATOR(pg_catalog.>=) timestamp with time zone '2024-01-01 00:00:00+00'
            AND ts OPERATOR(pg_catalog.<) timestamp with time zone '2093-09-06 15:47:35.552+00'
        THEN (((extract(epoch FROM ts AT TIME ZONE 'UTC') OPERATOR(pg_catalog.*) 1000000)::bigint OPERATOR(pg_catalog.-) (1704067200000000)) OPERATOR(pg_catalog./) 1000) OPERATOR(pg_catalog.<<) 22
        WHEN ts IS NOT NULL AND "snowflake".snowflake_error('22008', 'timestamp is out of range for layout 41/10/12',
            pg_catalog.format('The timestamp is %s. The layout starts at 2024-01-01 00:00:00+00 and ends before 2093-09-06 15:47:35.552+00.', ts),
            'To compare IDs with any timestamp, use snowflake_between; to import an older row, pass the start.') THEN NULL::bigint END $$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_max(ts timestamp with time zone) RETURNS bigint IMMUTABLE PARALLEL SAFE LANGUAGE sql
    AS $$ SELECT "snowflake".snowflake_min(ts) OPERATOR(pg_catalog.|) 4194303 $$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_between_from(ts timestamp with time zone) RETURNS bigint
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    AS $$ SELECT CASE WHEN ts OPERATOR(pg_catalog.<=) timestamp with time zone '2024-01-01 00:00:00+00' THEN 0
        WHEN ts OPERATOR(pg_catalog.>) timestamp with time zone '2093-09-06 15:47:35.551+00' THEN 9223372036854775807
        WHEN ts IS NOT NULL THEN
            ((((extract(epoch FROM ts AT TIME ZONE 'UTC') OPERATOR(pg_catalog.*) 1000000)::bigint OPERATOR(pg_catalog.-) (1704067200000000)) OPERATOR(pg_catalog.+) 999) OPERATOR(pg_catalog./) 1000) OPERATOR(pg_catalog.<<) 22 END $$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_between_until(ts timestamp with time zone) RETURNS bigint
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    AS $$ SELECT CASE WHEN ts OPERATOR(pg_catalog.<=) timestamp with time zone '2024-01-01 00:00:00+00' THEN -1
        WHEN ts OPERATOR(pg_catalog.>) timestamp with time zone '2093-09-06 15:47:35.551+00' THEN 9223372036854775807
        WHEN ts IS NOT NULL THEN
            (((((extract(epoch FROM ts AT TIME ZONE 'UTC') OPERATOR(pg_catalog.*) 1000000)::bigint OPERATOR(pg_catalog.-) (1704067200000000)) OPERATOR(pg_catalog.+) 999) OPERATOR(pg_catalog./) 1000) OPERATOR(pg_catalog.<<) 22)
            OPERATOR(pg_catalog.-) 1 END $$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_between(id bigint, since timestamp with time zone, until timestamp with time zone)
    RETURNS boolean IMMUTABLE PARALLEL SAFE LANGUAGE sql
    AS $$ SELECT id OPERATOR(pg_catalog.>=) "snowflake".snowflake_between_from(since)
        AND id OPERATOR(pg_catalog.<=) "snowflake".snowflake_between_until(until) $$;


CREATE OR REPLACE FUNCTION "snowflake".snowflake_decode(id bigint) RETURNS "snowflake".snowflake_parts
    IMMUTABLE PARALLEL SAFE LANGUAGE sql AS $$
    SELECT ROW("snowflake".snowflake_timestamp(id), "snowflake".snowflake_datacenter(id), "snowflake".snowflake_worker(id),
        "snowflake".snowflake_sequence(id))::"snowflake".snowflake_parts
$$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_encode(ts timestamptz, worker integer, sequence integer) RETURNS bigint
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lowest constant bigint := "snowflake".snowflake_min(ts);
BEGIN
    IF worker NOT BETWEEN 0 AND 1023 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'worker must be between 0 and 1023',
            DETAIL = format('worker is %s. The layout is 41/10/12.', worker);
    ELSIF sequence NOT BETWEEN 0 AND 4095 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'sequence must be between 0 and 4095',
            DETAIL = format('sequence is %s. The layout is 41/10/12.', sequence);
    END IF;
    RETURN lowest | (0::bigint << 10 + 12)
        | (worker::bigint << 12) | sequence;
END
$$;

-- IDs for rows that have times of their own, after those in a table: as the extension's.
CREATE OR REPLACE FUNCTION "snowflake".snowflake_next_at(
    ts timestamptz, worker integer, table_name regclass, column_name name DEFAULT 'id') RETURNS bigint
    VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first   bigint;
    last    bigint;
    highest bigint;
    later   bigint := 0; -- ticks after the time's own, which are full
BEGIN
    IF worker = "snowflake".snowflake_generator_worker() THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('worker %s belongs to this generator', worker),
            DETAIL = 'The generator may have generated the same ID with it, or may do so later.',
            HINT = 'Pass a worker that no server has.';
    ELSIF NOT EXISTS (
        SELECT FROM pg_attribute a JOIN pg_index i ON i.indrelid = a.attrelid AND i.indkey[0] = a.attnum
        WHERE a.attrelid = table_name AND a.attname = column_name AND a.atttypid = 'bigint'::regtype
            AND i.indisunique AND i.indisvalid AND i.indnkeyatts = 1 AND i.indpred IS NULL
    ) THEN
        RAISE EXCEPTION USING ERRCODE = '55000',
            MESSAGE = 'snowflake_next_at needs a bigint column with a unique index of its own',
            DETAIL = format('Column %I of %s is none.', column_name, table_name),
            HINT = 'Add a primary key or a unique index on this column alone, or pass another column.';
    ELSIF row_security_active(table_name) THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
            MESSAGE = 'snowflake_next_at needs a role that sees all rows of the table',
            DETAIL = format('Row-level security of %s applies to role %I.', table_name, current_user),
            HINT = 'Call it in a SECURITY DEFINER function of a role to which row-level security does not apply.';
    END IF;
    PERFORM pg_advisory_xact_lock(table_name::oid::integer, worker);
    LOOP
        first := "snowflake".snowflake_encode(ts + later * interval '1 ms', worker, 0);
        last := first + 4095;
        EXECUTE format('SELECT max(%1$I) FROM %2$s WHERE %1$I BETWEEN $1 AND $2', column_name, table_name)
            INTO highest USING first, last;
        IF highest IS NULL THEN
            RETURN first;
        ELSIF highest < last THEN
            RETURN highest + 1;
        END IF;
        later := later + 1;
    END LOOP;
END
$$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_to_base62(id bigint) RETURNS "snowflake".snowflake_base62
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    digits constant text := '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
    rest   bigint := id;
    result text := '';
BEGIN
    IF id < 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('%s is not a snowflake ID', id),
            DETAIL = 'A snowflake ID is never negative.';
    END IF;
    FOR i IN 1..11 LOOP
        result := substr(digits, (rest % 62)::integer + 1, 1) || result;
        rest := rest / 62;
    END LOOP;
    RETURN result;
END
$$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_from_base62(base62 text) RETURNS bigint
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    digits constant text := '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
    result bigint := 0;
BEGIN
    -- An overflow is caught before it happens: the texts sort as the IDs do.
    IF octet_length(base62) <> 11 OR base62 COLLATE "C" !~ '^[0-9A-Za-z]{11}$'
        OR base62 COLLATE "C" > 'AzL8n0Y58m7'
    THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = format('invalid base62 snowflake ID: "%s"', left(base62, 64)),
            DETAIL = 'A base62 ID has 11 of the digits 0 to 9, A to Z and a to z, and is at most AzL8n0Y58m7.',
            HINT = 'Pass the 11 characters that snowflake_to_base62 returned, including leading zeros.';
    END IF;
    FOR i IN 1..11 LOOP
        result := result * 62 + (strpos(digits, substr(base62, i, 1)) - 1);
    END LOOP;
    RETURN result;
END
$$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_time_encoder(ts timestamptz) RETURNS "snowflake".snowflake_base62
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql AS $$ SELECT "snowflake".snowflake_to_base62("snowflake".snowflake_min(ts)) $$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_time_decoder(base62 text) RETURNS timestamptz
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql AS $$ SELECT "snowflake".snowflake_timestamp("snowflake".snowflake_from_base62(base62)) $$;

-- ---- reading the IDs of other systems ----

CREATE OR REPLACE VIEW "snowflake".snowflake_layouts (name, layout, expires_at, note) AS VALUES
    ('twitter', '41/5+5/12 1ms 2010-11-04T01:42:54.657Z', timestamp with time zone '2080-07-10 17:30:30.209+00', 'IDs since November 2010; older ones are plain numbers without a time'),
    ('discord', '41/5+5/12 1ms 2015-01-01', timestamp with time zone '2084-09-06 15:47:35.552+00', 'datacenter is Discord''s internal worker ID, worker its internal process ID'),
    ('instagram', '41/13/10 1ms 2011-08-24T21:07:01.721Z', timestamp with time zone '2046-06-27 17:00:49.497+00', 'worker is the logical shard; 64 bits, so IDs turn negative in 2046 and cannot be read then; the epoch is that of Instagram''s published function, copies of which may use another'),
    ('mastodon', '48/0/16 1ms 1970-01-01', timestamp with time zone '6429-10-17 02:45:55.328+00', 'no worker; the sequence is partly a hash, so it has no order'),
    ('sonyflake', '39/s8/w16 10ms 2014-09-01', timestamp with time zone '2188-11-16 03:28:58.88+00', 'version 1 with its default start time; for another StartTime, and for version 2, which starts at 2025-01-01, write the layout out'),
    ('leaf', '41/10/12 1ms 2010-11-04T01:42:54.657Z', timestamp with time zone '2080-07-10 17:30:30.209+00', 'Meituan''s Leaf, snowflake mode'),
    ('uid-generator', '28/22/13 1s 2016-05-19T16:00:00Z', timestamp with time zone '2024-11-20 13:24:16+00', 'the defaults of its code: 2016-05-20 in China''s time zone; where widths or epoch are configured, write the layout out'),
    ('pgedge', '41/10/12 1ms 2023-01-01', timestamp with time zone '2092-09-06 15:47:35.552+00', 'pgEdge snowflake: worker is the node; for IDs before October 2023, which have the sequence above it, use 41/s12/w10 1ms 2023-01-01'),
    ('shardingsphere', '41/10/12 1ms 2016-11-01', timestamp with time zone '2086-07-08 15:47:35.552+00', 'the epoch is midnight in the time zone of the host that generated the ID: this is for hosts in UTC; for one in China use 41/10/12 1ms 2016-11-01T00:00:00+08:00');

-- The fields of an ID of another system: see the view snowflake_layouts for how a layout is written.
CREATE OR REPLACE FUNCTION "snowflake".snowflake_decode(id bigint, layout text) RETURNS "snowflake".snowflake_parts
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    written    constant text := coalesce((
        SELECT l.layout FROM "snowflake".snowflake_layouts l
        WHERE l.name = lower(btrim(left(snowflake_decode.layout, 100), E' \t\r\n'))), left(snowflake_decode.layout, 100));
    words      constant text[] := regexp_match(written,
        E'^\\s*(\\d{1,2})/(?:(?:(\\d{1,2})\\+)?(\\d{1,2})/(\\d{1,2})|s(\\d{1,2})/w(?:(\\d{1,2})\\+)?(\\d{1,2}))'
        '\\s(1ms|10ms|1s)\\s+(\\d{4}-\\d\\d-\\d\\d)([Tt ]\\d\\d:\\d\\d(?::\\d\\d(?:\\.\\d+)?)?(?:[Zz]|[+-]\\d\\d(?::?\\d\\d)?))?\\s*$');
    datacenter integer := coalesce(words[2], words[6], '0');
    worker     integer := coalesce(words[3], words[7]);
    sequence   integer := coalesce(words[4], words[5]);
    above      integer := datacenter + worker + sequence; -- the bits below the time
    low        integer := CASE WHEN words[5] IS NULL THEN sequence ELSE 0 END; -- the bits below the worker
    tick_us    bigint := CASE words[8] WHEN '1ms' THEN 1000 WHEN '10ms' THEN 10000 ELSE 1000000 END;
    parts      "snowflake".snowflake_parts;
BEGIN
    IF words IS NULL OR octet_length(layout) > 100 OR words[1]::integer = 0
        OR words[1]::integer + above > 64 OR greatest(datacenter, worker, sequence) > 31
        OR words[1]::integer - (words[1]::integer + above = 64)::integer
            > (CASE words[8] WHEN '1ms' THEN 52 WHEN '10ms' THEN 48 ELSE 42 END)
    THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('invalid layout: "%s"', left(layout, 64)),
            DETAIL = 'It is neither a known name, nor bits of at most 63 in all, tick and epoch.',
            HINT = 'Use a name from the view snowflake_layouts; or write the bits of time/worker/sequence, the tick '
                'and the epoch, for example 41/10/12 1ms 2015-01-01.';
    ELSIF id < 0 OR (id >> above) >> least(words[1]::integer, 62) > 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
            MESSAGE = format('%s is not an ID of layout "%s"', id, left(layout, 64)),
            DETAIL = CASE WHEN id < 0 THEN 'A negative ID cannot be read.'
                ELSE 'It has bits above the layout''s time field.' END,
            HINT = 'Check the source of the value, and its layout.';
    END IF;
    -- In two parts, because an interval is multiplied by a number of 53 bits.
    parts.created_at := ((words[9] || coalesce(words[10], ' 00:00:00Z'))::timestamptz AT TIME ZONE 'UTC'
        + ((id >> above) >> 20) * (tick_us << 20) * interval '1 us' + ((id >> above) & 1048575) * tick_us
        * interval '1 us') AT TIME ZONE 'UTC';
    parts.datacenter_id := CASE WHEN datacenter > 0 THEN (id >> low + worker) & ((1::bigint << datacenter) - 1) END;
    parts.worker_id := CASE WHEN worker > 0 THEN (id >> low) & ((1::bigint << worker) - 1) END;
    parts.sequence := CASE WHEN sequence > 0
        THEN (id >> CASE WHEN words[5] IS NULL THEN 0 ELSE datacenter + worker END) & ((1::bigint << sequence) - 1) END;
    RETURN parts;
END
$$;

CREATE OR REPLACE FUNCTION "snowflake".snowflake_timestamp(id bigint, layout text) RETURNS timestamptz
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql AS $$ SELECT ("snowflake".snowflake_decode(id, layout)).created_at $$;
CREATE OR REPLACE FUNCTION "snowflake".snowflake_datacenter(id bigint, layout text) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql AS $$ SELECT ("snowflake".snowflake_decode(id, layout)).datacenter_id $$;
CREATE OR REPLACE FUNCTION "snowflake".snowflake_worker(id bigint, layout text) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql AS $$ SELECT ("snowflake".snowflake_decode(id, layout)).worker_id $$;
CREATE OR REPLACE FUNCTION "snowflake".snowflake_sequence(id bigint, layout text) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql AS $$ SELECT ("snowflake".snowflake_decode(id, layout)).sequence $$;

-- ---- watching ----

CREATE OR REPLACE VIEW "snowflake".snowflake_status AS
SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'recovery'
        WHEN s.lead_us OPERATOR(pg_catalog.>) 2000000 THEN 'closed' ELSE 'open' END AS state,
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'A standby cannot generate IDs.'
        WHEN s.lead_us OPERATOR(pg_catalog.>) 2000000 THEN 'The system clock moved backwards.' END AS reason,
    "snowflake".snowflake_generator_worker()::integer AS worker_id,
    CASE WHEN s.tick OPERATOR(pg_catalog.>) 0 THEN "snowflake".snowflake_timestamp(s.tick OPERATOR(pg_catalog.<<) 22) END AS last_id_at,
    greatest(s.lead_us OPERATOR(pg_catalog./) 1000, 0) AS ahead_ms,
    text '41/10/12 1ms' AS layout,
    timestamp with time zone '2024-01-01 00:00:00+00' AS epoch,
    timestamp with time zone '2093-09-06 15:47:35.552+00' AS expires_at
FROM (
    SELECT last_value OPERATOR(pg_catalog.&) 2199023255551 AS tick,
        (last_value OPERATOR(pg_catalog.&) 2199023255551) OPERATOR(pg_catalog.*) 1000
            OPERATOR(pg_catalog.-) "snowflake".snowflake_clock() AS lead_us
    FROM "snowflake".snowflake_state
) AS s;

-- ---- rights and comments ----

-- Revokes what default privileges granted: a stray nextval() would use up counts, and a setval() repeat IDs.
DO $do$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT format('REVOKE ALL ON %s FROM %s', o.name,
            CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END)
        FROM (
            SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE 'TABLE ' END || c.oid::regclass, c.relacl, c.relowner
            FROM pg_class c
            WHERE c.relnamespace = '"snowflake"'::regnamespace AND c.relname IN ('snowflake_state', 'snowflake_config')
            UNION ALL
            SELECT 'FUNCTION ' || p.oid::regprocedure, coalesce(p.proacl, acldefault('f', p.proowner)), p.proowner
            FROM pg_proc p
            WHERE p.pronamespace = '"snowflake"'::regnamespace AND p.proname = 'snowflake_move'
        ) AS o (name, acl, owner), aclexplode(o.acl) AS a
        WHERE a.grantee <> o.owner
    LOOP
        EXECUTE statement;
    END LOOP;
    FOR statement IN
        SELECT format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', p.oid::regprocedure) FROM pg_proc p
        WHERE p.pronamespace = '"snowflake"'::regnamespace AND starts_with(p.proname, 'snowflake_')
            AND p.proname <> 'snowflake_move' AND pg_get_userbyid(p.proowner) = current_user
    LOOP
        EXECUTE statement;
    END LOOP;
END
$do$;
-- A role that dumps the database reads the first two.
GRANT SELECT ON "snowflake".snowflake_config, "snowflake".snowflake_state, "snowflake".snowflake_layouts TO PUBLIC;
GRANT SELECT ON "snowflake".snowflake_status TO pg_monitor;

COMMENT ON TABLE "snowflake".snowflake_config IS 'layout of the snowflake IDs in this schema; snowflake_move locks the table';
COMMENT ON SEQUENCE "snowflake".snowflake_state IS 'state of the snowflake generator; only its functions may change it';
COMMENT ON VIEW "snowflake".snowflake_status IS 'state of the snowflake generator in this schema';
COMMENT ON VIEW "snowflake".snowflake_layouts IS 'systems whose IDs snowflake_decode can read by name';
COMMENT ON TYPE "snowflake".snowflake_parts IS 'fields of a snowflake ID';
COMMENT ON DOMAIN "snowflake".snowflake_base62 IS 'an ID as 11 base62 characters that sort as the IDs do';
COMMENT ON FUNCTION "snowflake".snowflake_nextval() IS 'generates an ID; use it as a column''s default';
COMMENT ON FUNCTION "snowflake".snowflake_nextval_batch(integer) IS 'generates n IDs';
COMMENT ON FUNCTION "snowflake".snowflake_nextval_range(integer) IS 'generates n consecutive IDs and returns the first and last';
COMMENT ON FUNCTION "snowflake".snowflake_lastval() IS 'returns the last ID that this session generated';
COMMENT ON FUNCTION "snowflake".snowflake_decode(bigint) IS 'returns the fields of an ID';
COMMENT ON FUNCTION "snowflake".snowflake_timestamp(bigint) IS 'returns the creation time of an ID: the start of its tick';
COMMENT ON FUNCTION "snowflake".snowflake_datacenter(bigint) IS 'returns the datacenter number of an ID, or null if the layout has none';
COMMENT ON FUNCTION "snowflake".snowflake_worker(bigint) IS 'returns the worker number of an ID';
COMMENT ON FUNCTION "snowflake".snowflake_sequence(bigint) IS 'returns the sequence of an ID';
COMMENT ON FUNCTION "snowflake".snowflake_owner(bigint) IS
    'returns home worker and lane of the server that owns an ID''s worker';
COMMENT ON FUNCTION "snowflake".snowflake_encode(timestamptz, integer, integer) IS
    'returns the ID of a time, a worker and a sequence';
COMMENT ON FUNCTION "snowflake".snowflake_next_at(timestamptz, integer, regclass, name) IS
    'returns the next ID of a time and a worker that no server has, after those in a table';
COMMENT ON FUNCTION "snowflake".snowflake_min(timestamptz) IS 'returns the lowest ID of the tick that contains a time';
COMMENT ON FUNCTION "snowflake".snowflake_max(timestamptz) IS 'returns the highest ID of the tick that contains a time';
COMMENT ON FUNCTION "snowflake".snowflake_between(bigint, timestamptz, timestamptz) IS
    'returns whether an ID was created at or after since, and before until';
COMMENT ON FUNCTION "snowflake".snowflake_to_base62(bigint) IS 'converts an ID to 11 base62 characters that sort as the IDs do';
COMMENT ON FUNCTION "snowflake".snowflake_from_base62(text) IS 'converts the result of snowflake_to_base62 back to the ID';
COMMENT ON FUNCTION "snowflake".snowflake_time_encoder(timestamptz) IS
    'returns the lowest ID of the tick that contains a time, in base62; p_time_encoder for pg_partman';
COMMENT ON FUNCTION "snowflake".snowflake_time_decoder(text) IS
    'returns the creation time of an ID in base62; p_time_decoder for pg_partman';
COMMENT ON FUNCTION "snowflake".snowflake_decode(bigint, text) IS
    'returns the fields of an ID in another system''s layout: a name from snowflake_layouts, or a layout written out';
COMMENT ON FUNCTION "snowflake".snowflake_timestamp(bigint, text) IS 'returns the creation time of another system''s ID';
COMMENT ON FUNCTION "snowflake".snowflake_datacenter(bigint, text) IS
    'returns the datacenter number of another system''s ID, or null if that system has none';
COMMENT ON FUNCTION "snowflake".snowflake_worker(bigint, text) IS
    'returns the worker number of another system''s ID, or null if that system has none';
COMMENT ON FUNCTION "snowflake".snowflake_sequence(bigint, text) IS
    'returns the sequence of another system''s ID, or null if that system has none';
COMMENT ON FUNCTION "snowflake".snowflake_generator_worker() IS 'internal: the worker number of this generator';
COMMENT ON FUNCTION "snowflake".snowflake_move(bigint) IS 'internal: moves the generator to a later tick';
COMMENT ON FUNCTION "snowflake".snowflake_clock() IS 'internal: the system clock in microseconds since the epoch';
COMMENT ON FUNCTION "snowflake".snowflake_batch_size(integer) IS 'internal: checks the argument of snowflake_nextval_batch';
COMMENT ON FUNCTION "snowflake".snowflake_error(text, text, text, text) IS 'internal: raises an error';
COMMENT ON FUNCTION "snowflake".snowflake_between_from(timestamptz) IS
    'internal: the lowest ID created at or after a time, for snowflake_between';
COMMENT ON FUNCTION "snowflake".snowflake_between_until(timestamptz) IS
    'internal: the highest ID created before a time, for snowflake_between';

DO $do$
BEGIN
    PERFORM pg_catalog.set_config('search_path', pg_catalog.current_setting('snowflake_generator.path', true), true);
END
$do$;
