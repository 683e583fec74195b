-- A generator of snowflake IDs in PL/pgSQL: layout {layout}, tick {tick}, epoch {epoch} UTC.
-- For PostgreSQL 12 or later, where the library of snowflake_id cannot be loaded. Run it as one transaction, as the role
-- that will own the generator. If you run it again, for a later version or another worker, the generator keeps its state.
--
-- Why no ID comes out twice: the value of the sequence is count << {time_bits} | tick, and its increment is
-- 1 << {time_bits}. So nextval() changes only the count, never the tick. Only snowflake_move() sets it, alone under a
-- lock: to a larger tick, or to the present one's first count that no ID has. Hence no pair of tick and count repeats.
{create_schema}
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
    WHERE o.namespace = {schema_name}::regnamespace AND starts_with(o.name, 'snowflake_')
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
    WHERE n.oid = {schema_name}::regnamespace AND NOT pg_has_role(r.role, current_user, 'MEMBER')
    LIMIT 1;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = 'cannot create a snowflake generator among objects of another role', DETAIL = problem,
            HINT = 'Run this as the role that owns schema and generator, or choose a schema of this role in which no '
                'other can create objects.';
    END IF;
    IF to_regtype('{s_literal}snowflake_base62') IS NULL THEN
        CREATE DOMAIN {s}snowflake_base62 AS text COLLATE pg_catalog."C" CHECK (
            VALUE COLLATE pg_catalog."C" OPERATOR(pg_catalog.~) '^[0-9A-Za-z]{11}$'
            AND VALUE COLLATE pg_catalog."C" OPERATOR(pg_catalog.<=) 'AzL8n0Y58m7');
    END IF;
    IF to_regtype('{s_literal}snowflake_parts') IS NULL THEN
        CREATE TYPE {s}snowflake_parts AS
            (created_at timestamptz, datacenter_id integer, worker_id integer, sequence integer);
    END IF;
END
$do$;

-- The layout of the IDs. snowflake_move() locks this table; no other role has the right to.
CREATE TABLE IF NOT EXISTS {s}snowflake_config (
    layout  text NOT NULL,
    tick_ms integer NOT NULL,
    epoch   timestamptz NOT NULL
);
-- A restore of data, or replication, may add the row a second time.
INSERT INTO {s}snowflake_config SELECT '{layout}', {tick_ms}, '{epoch}+00'
WHERE NOT EXISTS (SELECT FROM {s}snowflake_config);
DO $do$
DECLARE
    own record;
BEGIN
    SELECT * INTO own FROM {s}snowflake_config c
    WHERE (c.layout, c.tick_ms, c.epoch) IS DISTINCT FROM ('{layout}', {tick_ms}, timestamptz '{epoch}+00')
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'the existing snowflake generator has another layout',
            DETAIL = format('It generates %s %sms %s.', own.layout, own.tick_ms, own.epoch),
            HINT = 'Use that layout, or another schema.';
    END IF;
END
$do$;
CREATE SEQUENCE IF NOT EXISTS {s}snowflake_state AS bigint INCREMENT {step} MINVALUE 0 START 0 NO CYCLE;

-- ---- generating IDs ----

-- The worker of this generator. No other server or database may generate IDs with the same number.
CREATE OR REPLACE FUNCTION {s}snowflake_generator_worker() RETURNS bigint
    IMMUTABLE PARALLEL SAFE LANGUAGE sql AS $$ SELECT {own_worker}::bigint $$;

CREATE OR REPLACE FUNCTION {s}snowflake_error(state text, message text, detail text, hint text) RETURNS boolean
    IMMUTABLE PARALLEL SAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = state, MESSAGE = message, DETAIL = detail, HINT = hint;
END
$$;

-- The system clock in microseconds since the epoch.
CREATE OR REPLACE FUNCTION {s}snowflake_clock() RETURNS bigint VOLATILE PARALLEL SAFE LANGUAGE sql AS $$
    SELECT {clock}
$$;

-- Makes n positions of one tick current, and returns the ID of the first. Each attempt is a block that ends with an
-- exception: that releases the lock even within a long transaction, and does not undo setval(). With exit_on_error the
-- exception would end the session. With client_min_messages = debug the server would send messages while it holds the
-- lock, and wait for a client that does not read.
CREATE OR REPLACE FUNCTION {s}snowflake_move(n bigint) RETURNS bigint
    VOLATILE PARALLEL UNSAFE LANGUAGE plpgsql SET client_min_messages = error SET exit_on_error = off AS $$
DECLARE
    clock   bigint; -- in microseconds since the epoch
    state   bigint;
    tick    bigint;
    missing bigint; -- microseconds until the tick is no more than max_ahead ahead of the clock
BEGIN
    LOOP
        BEGIN
            LOCK TABLE {s}snowflake_config IN EXCLUSIVE MODE;
            clock := {clock};
            state := pg_catalog.pg_sequence_last_value('{s_literal}snowflake_state');
            IF (state OPERATOR(pg_catalog.>=) {full}) IS NOT TRUE THEN
                state := pg_catalog.nextval('{s_literal}snowflake_state');
            END IF;
            tick := state OPERATOR(pg_catalog.&) {time_mask};
            missing := tick OPERATOR(pg_catalog.*) {tick_us} OPERATOR(pg_catalog.-) clock
                OPERATOR(pg_catalog.-) {max_ahead_us};
            IF missing OPERATOR(pg_catalog.<=) 0
                AND (tick OPERATOR(pg_catalog.+) 1) OPERATOR(pg_catalog.*) {tick_us} OPERATOR(pg_catalog.>) clock
                -- The last of n positions is inside the field.
                AND (state OPERATOR(pg_catalog.>>) {time_bits}) OPERATOR(pg_catalog.+) n
                    OPERATOR(pg_catalog.<=) {sequences}
                -- Other sessions may take some of them meanwhile; then these stay unused.
                AND (n OPERATOR(pg_catalog.=) 1 OR (
                    SELECT pg_catalog.max(pg_catalog.nextval('{s_literal}snowflake_state'))
                    FROM pg_catalog.generate_series(2, n)
                ) OPERATOR(pg_catalog.=) (state OPERATOR(pg_catalog.+)
                    ((n OPERATOR(pg_catalog.-) 1) OPERATOR(pg_catalog.*) {step})))
            THEN
                RAISE EXCEPTION USING ERRCODE = 'SFID1';
            END IF;
            -- A larger tick: that of the clock, or the next.
            IF (tick OPERATOR(pg_catalog.+) 1) OPERATOR(pg_catalog.*) {tick_us} OPERATOR(pg_catalog.<=) clock THEN
                tick := clock OPERATOR(pg_catalog./) {tick_us};
            ELSE
                tick := tick OPERATOR(pg_catalog.+) 1;
            END IF;
            missing := tick OPERATOR(pg_catalog.*) {tick_us} OPERATOR(pg_catalog.-) clock
                OPERATOR(pg_catalog.-) {max_ahead_us};
            IF missing OPERATOR(pg_catalog.<=) 0 AND tick OPERATOR(pg_catalog.<=) {max_tick} THEN
                state := pg_catalog.setval('{s_literal}snowflake_state',
                    (n OPERATOR(pg_catalog.-) 1) OPERATOR(pg_catalog.<<) {time_bits} OPERATOR(pg_catalog.|) tick);
                state := tick;
                RAISE EXCEPTION USING ERRCODE = 'SFID1';
            END IF;
            -- Refused: the present tick becomes just full, so that this session's value is one that snowflake_lastval()
            -- does not take for an ID.
            state := pg_catalog.setval('{s_literal}snowflake_state',
                {full} OPERATOR(pg_catalog.|) {tick_of_state});
            RAISE EXCEPTION USING ERRCODE = 'SFID2';
        EXCEPTION
            WHEN SQLSTATE 'SFID1' THEN
                RETURN {id_of_state};
            WHEN SQLSTATE 'SFID2' THEN
                NULL;
        END;
        IF clock OPERATOR(pg_catalog.<) 0 THEN
            PERFORM {s}snowflake_error('55000', 'cannot generate a snowflake ID: system clock is before the epoch',
                pg_catalog.format('The system clock reads %s; the epoch is {epoch}+00.', pg_catalog.clock_timestamp()),
                'Correct the clock.');
        ELSIF tick OPERATOR(pg_catalog.>) {max_tick} THEN
            PERFORM {s}snowflake_error('55000',
                'cannot generate a snowflake ID: the layout''s time field is exhausted',
                'Layout {layout} ends before {end}+00.', 'Correct the clock if it is ahead. Otherwise move to a layout '
                'with more time bits or a coarser tick.');
        ELSIF missing OPERATOR(pg_catalog.>) {patience_us} THEN
            PERFORM {s}snowflake_error('55000', 'cannot generate a snowflake ID: system clock moved backwards',
                pg_catalog.format('The system clock is %s ms behind the newest ID.',
                    (missing OPERATOR(pg_catalog.+) {max_ahead_us}) OPERATOR(pg_catalog./) 1000),
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
CREATE OR REPLACE FUNCTION {s}snowflake_nextval() RETURNS bigint
    VOLATILE PARALLEL UNSAFE SECURITY DEFINER LANGUAGE plpgsql AS $$
DECLARE
    state constant bigint := CASE WHEN pg_catalog.pg_sequence_last_value('{s_literal}snowflake_state')
        OPERATOR(pg_catalog.>=) {full} THEN {full} ELSE pg_catalog.nextval('{s_literal}snowflake_state') END;
    lead  constant bigint := (state OPERATOR(pg_catalog.&) {time_mask}) OPERATOR(pg_catalog.*) {tick_us}
        OPERATOR(pg_catalog.-) {clock}; -- of the tick's beginning over the clock, in microseconds
BEGIN
    IF state OPERATOR(pg_catalog.<) {full} AND lead OPERATOR(pg_catalog.>) -{tick_us}
        AND lead OPERATOR(pg_catalog.<=) {max_ahead_us}
    THEN
        RETURN {id_of_state};
    END IF;
    -- With the declared type, because an overload that another role has created could match an integer better.
    RETURN {s}snowflake_move(1::bigint);
END
$$;

-- Checks the argument of snowflake_nextval_batch, which PostgreSQL could not stream if it were in PL/pgSQL.
CREATE OR REPLACE FUNCTION {s}snowflake_batch_size(n integer) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF n < 0 THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'n must not be negative', DETAIL = format('n is %s.', n);
    END IF;
    RETURN n;
END
$$;

-- ROWS 1, so that Memoize never costs less: it would generate the IDs of each n once.
CREATE OR REPLACE FUNCTION {s}snowflake_nextval_batch(n integer) RETURNS SETOF bigint
    VOLATILE STRICT PARALLEL UNSAFE ROWS 1 LANGUAGE sql AS $$
    SELECT {s}snowflake_nextval() FROM pg_catalog.generate_series(1, {s}snowflake_batch_size(n))
$$;

CREATE OR REPLACE FUNCTION {s}snowflake_nextval_range(n integer, OUT "first" bigint, OUT "last" bigint)
    VOLATILE STRICT PARALLEL UNSAFE SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF n NOT BETWEEN 1 AND {sequences} THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'n must be between 1 and {sequences}',
            DETAIL = format('n is %s. A range lies within one tick, which has room for {sequences} IDs.', n),
            HINT = 'Ask for fewer IDs, or call snowflake_nextval_batch, which has no limit.';
    END IF;
    "first" := {s}snowflake_move(n::bigint);
    "last" := "first" + (n - 1);
END
$$;

CREATE OR REPLACE FUNCTION {s}snowflake_lastval() RETURNS bigint
    VOLATILE STRICT PARALLEL RESTRICTED SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    state bigint;
BEGIN
    state := currval('{s_literal}snowflake_state');
    IF state >= {full} THEN
        RAISE object_not_in_prerequisite_state;
    END IF;
    RETURN {id_of_state};
EXCEPTION WHEN object_not_in_prerequisite_state THEN
    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'snowflake_lastval is not yet defined in this session',
        DETAIL = 'This session has generated no ID since it began, since DISCARD ALL or DISCARD SEQUENCES, or since a call '
            'failed.',
        HINT = 'Call snowflake_nextval first, or insert a row whose default calls it.';
END
$$;

-- ---- reading IDs ----

{readers}

CREATE OR REPLACE FUNCTION {s}snowflake_decode(id bigint) RETURNS {s}snowflake_parts
    IMMUTABLE PARALLEL SAFE LANGUAGE sql AS $$
    SELECT ROW({s}snowflake_timestamp(id), {s}snowflake_datacenter(id), {s}snowflake_worker(id),
        {s}snowflake_sequence(id))::{s}snowflake_parts
$$;

CREATE OR REPLACE FUNCTION {s}snowflake_encode(ts timestamptz, worker integer, sequence integer) RETURNS bigint
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    lowest constant bigint := {s}snowflake_min(ts);
BEGIN
    IF worker NOT BETWEEN 0 AND {last_worker} THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'worker must be between 0 and {last_worker}',
            DETAIL = format('worker is %s. The layout is {layout}.', worker);
    ELSIF sequence NOT BETWEEN 0 AND {last_sequence} THEN
        RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'sequence must be between 0 and {last_sequence}',
            DETAIL = format('sequence is %s. The layout is {layout}.', sequence);
    END IF;
    RETURN lowest | ({datacenter_id}::bigint << {worker_bits} + {sequence_bits})
        | (worker::bigint << {sequence_bits}) | sequence;
END
$$;

-- IDs for rows that have times of their own, after those in a table: as the extension's.
CREATE OR REPLACE FUNCTION {s}snowflake_next_at(
    ts timestamptz, worker integer, table_name regclass, column_name name DEFAULT 'id') RETURNS bigint
    VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first   bigint;
    last    bigint;
    highest bigint;
    later   bigint := 0; -- ticks after the time's own, which are full
BEGIN
    IF worker = {s}snowflake_generator_worker() THEN
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
        first := {s}snowflake_encode(ts + later * interval '{tick_ms} ms', worker, 0);
        last := first + {last_sequence};
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

CREATE OR REPLACE FUNCTION {s}snowflake_to_base62(id bigint) RETURNS {s}snowflake_base62
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

CREATE OR REPLACE FUNCTION {s}snowflake_from_base62(base62 text) RETURNS bigint
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

CREATE OR REPLACE FUNCTION {s}snowflake_time_encoder(ts timestamptz) RETURNS {s}snowflake_base62
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql AS $$ SELECT {s}snowflake_to_base62({s}snowflake_min(ts)) $$;

CREATE OR REPLACE FUNCTION {s}snowflake_time_decoder(base62 text) RETURNS timestamptz
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql AS $$ SELECT {s}snowflake_timestamp({s}snowflake_from_base62(base62)) $$;

-- ---- reading the IDs of other systems ----

CREATE OR REPLACE VIEW {s}snowflake_layouts (name, layout, expires_at, note) AS VALUES
{presets};

-- The fields of an ID of another system: see the view snowflake_layouts for how a layout is written.
CREATE OR REPLACE FUNCTION {s}snowflake_decode(id bigint, layout text) RETURNS {s}snowflake_parts
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    written    constant text := coalesce((
        SELECT l.layout FROM {s}snowflake_layouts l
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
    parts      {s}snowflake_parts;
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

CREATE OR REPLACE FUNCTION {s}snowflake_timestamp(id bigint, layout text) RETURNS timestamptz
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql AS $$ SELECT ({s}snowflake_decode(id, layout)).created_at $$;
CREATE OR REPLACE FUNCTION {s}snowflake_datacenter(id bigint, layout text) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql AS $$ SELECT ({s}snowflake_decode(id, layout)).datacenter_id $$;
CREATE OR REPLACE FUNCTION {s}snowflake_worker(id bigint, layout text) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql AS $$ SELECT ({s}snowflake_decode(id, layout)).worker_id $$;
CREATE OR REPLACE FUNCTION {s}snowflake_sequence(id bigint, layout text) RETURNS integer
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql AS $$ SELECT ({s}snowflake_decode(id, layout)).sequence $$;

-- ---- watching ----

CREATE OR REPLACE VIEW {s}snowflake_status AS
SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'recovery'
        WHEN s.lead_us OPERATOR(pg_catalog.>) {max_ahead_us} THEN 'closed' ELSE 'open' END AS state,
    CASE WHEN pg_catalog.pg_is_in_recovery() THEN 'A standby cannot generate IDs.'
        WHEN s.lead_us OPERATOR(pg_catalog.>) {max_ahead_us} THEN 'The system clock moved backwards.' END AS reason,
    {s}snowflake_generator_worker()::integer AS worker_id,
    CASE WHEN s.tick OPERATOR(pg_catalog.>) 0 THEN {time_of_tick} END AS last_id_at,
    greatest(s.lead_us OPERATOR(pg_catalog./) 1000, 0) AS ahead_ms,
    text '{layout} {tick}' AS layout,
    timestamp with time zone '{epoch}+00' AS epoch,
    timestamp with time zone '{end}+00' AS expires_at
FROM (
    SELECT last_value OPERATOR(pg_catalog.&) {time_mask} AS tick,
        (last_value OPERATOR(pg_catalog.&) {time_mask}) OPERATOR(pg_catalog.*) {tick_us}
            OPERATOR(pg_catalog.-) {s}snowflake_clock() AS lead_us
    FROM {s}snowflake_state
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
            WHERE c.relnamespace = {schema_name}::regnamespace AND c.relname IN ('snowflake_state', 'snowflake_config')
            UNION ALL
            SELECT 'FUNCTION ' || p.oid::regprocedure, coalesce(p.proacl, acldefault('f', p.proowner)), p.proowner
            FROM pg_proc p
            WHERE p.pronamespace = {schema_name}::regnamespace AND p.proname = 'snowflake_move'
        ) AS o (name, acl, owner), aclexplode(o.acl) AS a
        WHERE a.grantee <> o.owner
    LOOP
        EXECUTE statement;
    END LOOP;
    FOR statement IN
        SELECT format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', p.oid::regprocedure) FROM pg_proc p
        WHERE p.pronamespace = {schema_name}::regnamespace AND starts_with(p.proname, 'snowflake_')
            AND p.proname <> 'snowflake_move' AND pg_get_userbyid(p.proowner) = current_user
    LOOP
        EXECUTE statement;
    END LOOP;
END
$do$;
-- A role that dumps the database reads the first two.
GRANT SELECT ON {s}snowflake_config, {s}snowflake_state, {s}snowflake_layouts TO PUBLIC;
GRANT SELECT ON {s}snowflake_status TO pg_monitor;

COMMENT ON TABLE {s}snowflake_config IS 'layout of the snowflake IDs in this schema; snowflake_move locks the table';
COMMENT ON SEQUENCE {s}snowflake_state IS 'state of the snowflake generator; only its functions may change it';
COMMENT ON VIEW {s}snowflake_status IS 'state of the snowflake generator in this schema';
COMMENT ON VIEW {s}snowflake_layouts IS 'systems whose IDs snowflake_decode can read by name';
COMMENT ON TYPE {s}snowflake_parts IS 'fields of a snowflake ID';
COMMENT ON DOMAIN {s}snowflake_base62 IS 'an ID as 11 base62 characters that sort as the IDs do';
COMMENT ON FUNCTION {s}snowflake_nextval() IS 'generates an ID; use it as a column''s default';
COMMENT ON FUNCTION {s}snowflake_nextval_batch(integer) IS 'generates n IDs';
COMMENT ON FUNCTION {s}snowflake_nextval_range(integer) IS 'generates n consecutive IDs and returns the first and last';
COMMENT ON FUNCTION {s}snowflake_lastval() IS 'returns the last ID that this session generated';
COMMENT ON FUNCTION {s}snowflake_decode(bigint) IS 'returns the fields of an ID';
COMMENT ON FUNCTION {s}snowflake_timestamp(bigint) IS 'returns the creation time of an ID: the start of its tick';
COMMENT ON FUNCTION {s}snowflake_datacenter(bigint) IS 'returns the datacenter number of an ID, or null if the layout has none';
COMMENT ON FUNCTION {s}snowflake_worker(bigint) IS 'returns the worker number of an ID';
COMMENT ON FUNCTION {s}snowflake_sequence(bigint) IS 'returns the sequence of an ID';
COMMENT ON FUNCTION {s}snowflake_owner(bigint) IS
    'returns home worker and lane of the server that owns an ID''s worker';
COMMENT ON FUNCTION {s}snowflake_encode(timestamptz, integer, integer) IS
    'returns the ID of a time, a worker and a sequence';
COMMENT ON FUNCTION {s}snowflake_next_at(timestamptz, integer, regclass, name) IS
    'returns the next ID of a time and a worker that no server has, after those in a table';
COMMENT ON FUNCTION {s}snowflake_min(timestamptz) IS 'returns the lowest ID of the tick that contains a time';
COMMENT ON FUNCTION {s}snowflake_max(timestamptz) IS 'returns the highest ID of the tick that contains a time';
COMMENT ON FUNCTION {s}snowflake_between(bigint, timestamptz, timestamptz) IS
    'returns whether an ID was created at or after since, and before until';
COMMENT ON FUNCTION {s}snowflake_to_base62(bigint) IS 'converts an ID to 11 base62 characters that sort as the IDs do';
COMMENT ON FUNCTION {s}snowflake_from_base62(text) IS 'converts the result of snowflake_to_base62 back to the ID';
COMMENT ON FUNCTION {s}snowflake_time_encoder(timestamptz) IS
    'returns the lowest ID of the tick that contains a time, in base62; p_time_encoder for pg_partman';
COMMENT ON FUNCTION {s}snowflake_time_decoder(text) IS
    'returns the creation time of an ID in base62; p_time_decoder for pg_partman';
COMMENT ON FUNCTION {s}snowflake_decode(bigint, text) IS
    'returns the fields of an ID in another system''s layout: a name from snowflake_layouts, or a layout written out';
COMMENT ON FUNCTION {s}snowflake_timestamp(bigint, text) IS 'returns the creation time of another system''s ID';
COMMENT ON FUNCTION {s}snowflake_datacenter(bigint, text) IS
    'returns the datacenter number of another system''s ID, or null if that system has none';
COMMENT ON FUNCTION {s}snowflake_worker(bigint, text) IS
    'returns the worker number of another system''s ID, or null if that system has none';
COMMENT ON FUNCTION {s}snowflake_sequence(bigint, text) IS
    'returns the sequence of another system''s ID, or null if that system has none';
COMMENT ON FUNCTION {s}snowflake_generator_worker() IS 'internal: the worker number of this generator';
COMMENT ON FUNCTION {s}snowflake_move(bigint) IS 'internal: moves the generator to a later tick';
COMMENT ON FUNCTION {s}snowflake_clock() IS 'internal: the system clock in microseconds since the epoch';
COMMENT ON FUNCTION {s}snowflake_batch_size(integer) IS 'internal: checks the argument of snowflake_nextval_batch';
COMMENT ON FUNCTION {s}snowflake_error(text, text, text, text) IS 'internal: raises an error';
COMMENT ON FUNCTION {s}snowflake_between_from(timestamptz) IS
    'internal: the lowest ID created at or after a time, for snowflake_between';
COMMENT ON FUNCTION {s}snowflake_between_until(timestamptz) IS
    'internal: the highest ID created before a time, for snowflake_between';
{keep_state}
DO $do$
BEGIN
    PERFORM pg_catalog.set_config('search_path', pg_catalog.current_setting('snowflake_generator.path', true), true);
END
$do$;
