-- The registry of a fleet: its tables, and the functions and views for operators. registry_nodes.sql has the nodes' part.
--
-- Definitions:
--   tick   a value of the time field of IDs, in the fleet's layout; floors, fences and `until` are ticks
--   group  a home worker with its backup workers
--   node   one incarnation of a server; it has one lease
--   lease  allows a node the ticks of a group above `floor`, up to `until`
--   fence  no group is leased before the clocks of registry and node have passed this tick
--
-- States of a group, and what moves it (functions without their prefix snowflake_fleet_):
--   free -> leased      a claim: claim chooses the group, answer stores the lease
--   leased -> leased    a renewal raises `until`: answer
--   leased -> ended     an operator; a doubt; the next claim: end
--   ended -> free       by time: both clocks have passed `until` and the fence
--   any but a lease that runs -> reserved    an operator, at once: operate
--   reserved -> ended   an operator, which sets `until`: operate
-- States of the registry:
--   normal -> moved     its row was written elsewhere, so commits may be lost: nothing is granted
--   moved -> in doubt   a contact sets the fence: begin_doubt. Leases are renewed, and no group is leased.
--   in doubt -> normal  by time: both clocks have passed the fence
--   either -> normal    an operator vouches that no commit was lost: operate

-- Bodies and checks are bound here, without the extension's schema on the search path: no function or operator that another
-- role created there replaces PostgreSQL's.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE TABLE snowflake_internal.snowflake_registry (
    is_only         boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    id              uuid NOT NULL,
    layout          text NOT NULL,
    tick_ms         integer NOT NULL,
    epoch           timestamptz NOT NULL,
    backup_workers  integer NOT NULL,
    datacenter_id   integer NOT NULL,
    time_bits integer NOT NULL, datacenter_bits integer NOT NULL, worker_bits integer NOT NULL, sequence_bits integer NOT NULL,
    -- Number of home workers of the layout: worker i of home worker h is h + i * homes.
    homes           bigint NOT NULL,
    grant_ticks     bigint NOT NULL,
    -- Greatest difference of two clocks that the fleet tolerates.
    tolerance_ticks bigint NOT NULL,
    fence           bigint NOT NULL,
    -- `fence` before the first doubt that has not ended; equal to `fence` after a vouch. Null: there was no doubt.
    fence_before    bigint,
    -- Time of the latest contact that the registry had at that doubt: no later commit was lost if none at all was.
    lost_after      timestamptz,
    -- Last known location of this row. If snowflake_fleet_location returns another, commits may be lost.
    written_in      text NOT NULL
);

-- All groups of the fleet. Home workers above the first 65,536 are never leased, so that a claim can look at every row.
CREATE TABLE snowflake_internal.snowflake_registry_groups (
    worker_id       integer PRIMARY KEY,
    -- An operator's reason for the reservation. Null: not reserved.
    note            text,
    -- The lessee. Null: no lease, or an ended one.
    node_id         uuid UNIQUE,
    -- The last lessee's name: its next incarnation gets the same group.
    node_name       text,
    floor           bigint,
    -- Last tick that the last lease or ended reservation allows. Null: there was none.
    until           bigint,
    -- Number and nonce of the last request.
    number          bigint,
    nonce           uuid,
    last_contact_at timestamptz, clock_offset_ms bigint, in_recovery boolean, address inet, version text,
    CHECK (node_id IS NULL OR note IS NULL AND node_name IS NOT NULL AND floor IS NOT NULL AND until IS NOT NULL
        AND number IS NOT NULL AND nonce IS NOT NULL)
) WITH (fillfactor = 50); -- A renewal changes no indexed column, so with room on its page it writes no index.

-- One row per lease that has ended. The worker is part of the key, so that ending a node's lease does not wait for its claim.
CREATE TABLE snowflake_internal.snowflake_registry_leases (
    node_id   uuid NOT NULL,
    node_name text NOT NULL,
    worker_id integer NOT NULL, floor bigint NOT NULL, until bigint NOT NULL,
    PRIMARY KEY (node_id, worker_id)
);
CREATE INDEX snowflake_registry_leases_until
    ON snowflake_internal.snowflake_registry_leases (worker_id, until);

-- pg_dump dumps these rows.
SELECT pg_extension_config_dump('snowflake_internal.snowflake_registry', '');
SELECT pg_extension_config_dump('snowflake_internal.snowflake_registry_groups', '');
SELECT pg_extension_config_dump('snowflake_internal.snowflake_registry_leases', '');

-- ---------------------------------------------------------------- ticks, location, rows

CREATE FUNCTION snowflake_internal.snowflake_fleet_tick(at timestamptz, tick_ms integer, epoch timestamptz) RETURNS bigint
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql
    RETURN floor(extract(epoch FROM at - epoch) * 1000 / tick_ms)::bigint;

-- Not STRICT, so that the planner inlines it.
CREATE FUNCTION snowflake_internal.snowflake_fleet_time(tick bigint, tick_ms integer, epoch timestamptz) RETURNS timestamptz
    STABLE PARALLEL SAFE LANGUAGE sql
    RETURN epoch + (tick * tick_ms)::double precision * interval '1 ms';

-- The location of the registry's row: a promotion or a recovery changes the timeline, another cluster has another
-- identifier, a copy of the database another OID, and a restored dump another table.
CREATE FUNCTION snowflake_internal.snowflake_fleet_location() RETURNS text
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN format('timeline %s of cluster %s, database %s, table %s',
        -- The timeline of the WAL: after a promotion the control file may still have the old one.
        ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint,
        (pg_control_system()).system_identifier,
        (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()),
        'snowflake_internal.snowflake_registry'::regclass::oid);
END
$$;

-- The registry's row; an error without one.
CREATE FUNCTION snowflake_internal.snowflake_fleet_current() RETURNS snowflake_internal.snowflake_registry
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    registry snowflake_internal.snowflake_registry;
BEGIN
    SELECT * INTO registry FROM snowflake_internal.snowflake_registry;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'this database is not a snowflake registry',
            DETAIL = 'The table snowflake_registry has no row.',
            HINT = 'Call snowflake_registry_create in the database that is to be the registry.';
    END IF;
    RETURN registry;
END
$$;

-- Whether the registry leases no group, by this clock, because it may have lost commits.
CREATE FUNCTION snowflake_internal.snowflake_fleet_in_doubt(
    registry snowflake_internal.snowflake_registry, clock timestamptz
) RETURNS boolean
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql
    RETURN coalesce(registry.fence_before <> registry.fence, false)
        AND registry.fence >= snowflake_internal.snowflake_fleet_tick(clock, registry.tick_ms, registry.epoch);

-- Ends the lease of a group whose row the caller has locked: it becomes a row of the history.
CREATE FUNCTION snowflake_internal.snowflake_fleet_end(ended snowflake_internal.snowflake_registry_groups) RETURNS void
    STRICT LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO snowflake_internal.snowflake_registry_leases (
        node_id, node_name, worker_id, floor, until)
    VALUES (ended.node_id, ended.node_name, ended.worker_id, ended.floor, ended.until);
    UPDATE snowflake_internal.snowflake_registry_groups g
    SET node_id = NULL, floor = NULL, number = NULL, nonce = NULL
    WHERE g.worker_id = ended.worker_id;
END
$$;

-- Makes the caller's transaction end durably, because its result must survive a crash; and soon, because contacts wait for
-- the rows that it has locked, even if its client is gone. Not a SET clause, because that ends with the function.
CREATE FUNCTION snowflake_internal.snowflake_fleet_commit_durably(longest_pause interval) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', true);
    END IF;
    IF NOT current_setting('idle_in_transaction_session_timeout')::interval BETWEEN interval '1 ms' AND longest_pause THEN
        PERFORM set_config('idle_in_transaction_session_timeout', extract(epoch FROM longest_pause) || 's', true);
    END IF;
END
$$;

-- ---------------------------------------------------------------- operators

CREATE FUNCTION @extschema@.snowflake_registry_create(
    node_role regrole, grant_length interval DEFAULT '1 hour', layout text DEFAULT '41/10/12',
    tick interval DEFAULT '1 ms', epoch timestamptz DEFAULT '2024-01-01 00:00:00+00', backup_workers integer DEFAULT 3,
    datacenter_id integer DEFAULT 0, clock_tolerance interval DEFAULT '1 min', replaces_lost boolean DEFAULT false
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    installed oid := (SELECT e.oid FROM pg_extension e WHERE e.extname = 'snowflake_id');
    parsed  record;
    others  text;
    refusal record;
    tick_ms integer := CASE WHEN tick BETWEEN interval '0' AND interval '1 s' THEN extract(epoch FROM tick) * 1000 END;
BEGIN
    SELECT * INTO STRICT parsed FROM snowflake_internal.snowflake_fleet_layout(layout, tick_ms, backup_workers);
    -- Roles that can create functions for which an operator may take the extension's, or that can rename its schema.
    SELECT string_agg(DISTINCT coalesce(quote_ident(r.rolname), 'PUBLIC'), ', ') INTO others
    FROM pg_extension e, pg_namespace n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) AS a
    LEFT JOIN pg_roles r ON r.oid = CASE a.grantee WHEN 'pg_database_owner'::regrole
        THEN (SELECT d.datdba FROM pg_database d WHERE d.datname = current_database()) ELSE a.grantee END
    WHERE e.oid = installed AND n.oid IN (e.extnamespace, 'snowflake_internal'::regnamespace)
        AND a.privilege_type = 'CREATE' AND r.rolsuper IS NOT TRUE;
    SELECT r.state, r.message, r.detail, r.hint INTO refusal FROM (VALUES
        (others IS NOT NULL, '55000', 'other roles have CREATE on a schema of the extension', format('They are: %s.', others),
            'Revoke it, or drop the extension and create it in a schema of a superuser: superusers call its functions.'),
        (num_nulls(node_role, grant_length, layout, tick, epoch, backup_workers, datacenter_id, clock_tolerance,
            replaces_lost) > 0,
            '22004', 'arguments of snowflake_registry_create must not be null', 'Each argument decides what nodes are granted.',
            'Leave out an argument to use its default.'),
        (EXISTS (SELECT FROM snowflake_internal.snowflake_registry), '55000', 'this database is a snowflake registry already',
            'A database can be the registry of one fleet.', 'To let another role in, make it a member of the first.'),
        (EXISTS (SELECT FROM snowflake_internal.snowflake_registry_groups)
            OR EXISTS (SELECT FROM snowflake_internal.snowflake_registry_leases), '55000',
            'tables of the registry have rows already', 'A registry was restored in part, or its row was deleted.',
            'Restore all tables of the registry; or drop the extension, create it again, and create a registry with '
            'replaces_lost => true.'),
        (NOT (grant_length BETWEEN interval '2 seconds' AND interval '30 days'
            -- At least 1 second, because a request takes some time to arrive.
            AND clock_tolerance BETWEEN interval '1 second' AND grant_length / 2
            AND coalesce(tick = tick_ms * interval '1 ms' AND tick_ms IN (1, 10, 1000), false)
            AND epoch BETWEEN timestamptz '0001-01-01 00:00:00+00' AND clock_timestamp()
            AND backup_workers BETWEEN 0 AND 15 AND datacenter_id BETWEEN 0 AND (1::bigint << parsed.datacenter_bits) - 1),
            '22023', 'an argument of snowflake_registry_create is out of range',
            'Allowed are: grant_length from 2 seconds to 30 days, clock_tolerance from 1 second to half of that, tick of '
            '1 ms, 10 ms or 1 s, epoch between the year 1 and now, backup_workers from 0 to 15, datacenter_id of the layout.',
            'Use tick, epoch, backup_workers and datacenter_id of the servers, check the clock, and pass clock_tolerance with '
            'a grant_length below 2 minutes.')
    ) AS r (is_true, state, message, detail, hint) WHERE r.is_true LIMIT 1;
    PERFORM snowflake_internal.snowflake_raise(refusal.state, refusal.message, refusal.detail, refusal.hint);
    PERFORM snowflake_internal.snowflake_fleet_commit_durably(interval '1 min');
    INSERT INTO snowflake_internal.snowflake_registry (
        id, layout, tick_ms, epoch, backup_workers, datacenter_id, time_bits, datacenter_bits, worker_bits, sequence_bits,
        homes, grant_ticks, tolerance_ticks, fence, written_in)
    SELECT gen_random_uuid(), parsed.bits, tick_ms, epoch, backup_workers, datacenter_id, parsed.time_bits,
        parsed.datacenter_bits, parsed.worker_bits, parsed.sequence_bits,
        (1::bigint << parsed.worker_bits) / (backup_workers + 1),
        ceil(extract(epoch FROM grant_length) * 1000 / tick_ms)::bigint,
        ceil(extract(epoch FROM clock_tolerance) * 1000 / tick_ms)::bigint,
        -- Servers that had these workers before have IDs below this tick.
        snowflake_internal.snowflake_fleet_tick(clock_timestamp(), tick_ms, epoch),
        CASE WHEN replaces_lost THEN 'a registry that is lost' ELSE snowflake_internal.snowflake_fleet_location() END;
    INSERT INTO snowflake_internal.snowflake_registry_groups (worker_id)
    SELECT worker FROM snowflake_internal.snowflake_registry r, generate_series(0, least(r.homes, 65536) - 1) AS worker;
    REVOKE SELECT, INSERT ON snowflake_internal.snowflake_registry, snowflake_internal.snowflake_registry_groups,
        snowflake_internal.snowflake_registry_leases FROM PUBLIC, pg_database_owner;
    EXECUTE format('GRANT EXECUTE ON FUNCTION snowflake_internal.snowflake_registry_contact TO %s', node_role);
END
$$;

-- The commands of operators. Calls pass the declared types, so that no overload that existed before matches better.
CREATE FUNCTION snowflake_internal.snowflake_fleet_operate(operation text, worker_id integer, note_or_name text)
    RETURNS timestamptz LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    registry    snowflake_internal.snowflake_registry;
    refusal     record;
    own         snowflake_internal.snowflake_registry_groups;
    tick        bigint;
    latest      bigint;
    is_in_doubt boolean;
    named       constant integer := worker_id;
BEGIN
    PERFORM snowflake_internal.snowflake_fleet_commit_durably(interval '1 min');
    PERFORM FROM snowflake_internal.snowflake_registry FOR UPDATE;
    registry := snowflake_internal.snowflake_fleet_current();
    is_in_doubt := snowflake_internal.snowflake_fleet_in_doubt(registry, clock_timestamp());
    IF operation = 'vouch' THEN
        UPDATE snowflake_internal.snowflake_registry r
        SET written_in = snowflake_internal.snowflake_fleet_location(),
            fence = CASE WHEN is_in_doubt THEN r.fence_before ELSE r.fence END
        WHERE is_in_doubt OR r.written_in <> snowflake_internal.snowflake_fleet_location();
        IF NOT FOUND THEN
            RAISE NOTICE 'the registry is not in doubt, skipping';
        END IF;
        RETURN NULL;
    ELSIF registry.written_in <> snowflake_internal.snowflake_fleet_location() THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'cannot change workers: the registry may have lost commits in a failover or restore',
            DETAIL = format('Its row was written in %s; this is %s. No server with the same time has contacted the '
                'registry since.', registry.written_in, snowflake_internal.snowflake_fleet_location()),
            HINT = 'Wait for the next contact of a server. If no commit was lost, call snowflake_registry_vouch.';
    ELSIF operation = 'retire' THEN
        FOR own IN
            SELECT * FROM snowflake_internal.snowflake_registry_groups g
            WHERE g.node_name = note_or_name AND g.node_id IS NOT NULL FOR UPDATE
        LOOP
            PERFORM snowflake_internal.snowflake_fleet_end(own);
            latest := greatest(latest, own.until);
        END LOOP;
        IF latest IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'undefined_object',
                MESSAGE = format('node "%s" has no lease', left(note_or_name, 64)),
                DETAIL = 'No row of snowflake_fleet has this name.', HINT = 'Look up the name in snowflake_fleet.';
        END IF;
        RETURN snowflake_internal.snowflake_fleet_time(
            greatest(latest, registry.fence) + 1, registry.tick_ms, registry.epoch);
    END IF;
    SELECT * INTO own FROM snowflake_internal.snowflake_registry_groups g WHERE g.worker_id = named FOR UPDATE;
    tick := snowflake_internal.snowflake_fleet_tick(clock_timestamp(), registry.tick_ms, registry.epoch);
    SELECT r.state, r.message, r.detail, r.hint INTO refusal FROM (VALUES
        (named IS NULL OR note_or_name IS NULL, '22004', 'worker_id and note must not be null',
            'A reservation keeps one worker, and tells others why.', 'Name the server in the note.'),
        (own.worker_id IS NULL, '22023', format('worker_id %s is out of range', named),
            format('The registry leases home workers 0 to %s.', least(registry.homes, 65536) - 1),
            'Use snowflake_id.worker_id of the server. Higher home workers of the layout need no reservation.'),
        (operation = 'unreserve' AND own.note IS NULL, '42704', format('worker %s is not reserved', named),
            'No operator has reserved it.', 'Check the number.'),
        (operation = 'reserve' AND own.note <> note_or_name, '55000', format('worker %s is reserved already', named),
            format('Its note is "%s".', left(own.note, 64)),
            'Reserve another worker. If that server is gone, call snowflake_registry_unreserve first.'),
        (operation = 'reserve' AND own.node_id IS NOT NULL AND own.until >= tick, '55000',
            format('cannot reserve worker %s: it is leased', named),
            format('Node "%s" has it until %s.', own.node_name,
                snowflake_internal.snowflake_fleet_time(own.until, registry.tick_ms, registry.epoch)),
            'Reserve another worker; or call snowflake_registry_retire for that node, and reserve this one then.')
    ) AS r (is_true, state, message, detail, hint) WHERE r.is_true LIMIT 1;
    PERFORM snowflake_internal.snowflake_raise(refusal.state, refusal.message, refusal.detail, refusal.hint);
    IF own.node_id IS NOT NULL THEN
        PERFORM snowflake_internal.snowflake_fleet_end(own);
    END IF;
    -- IDs that the server generated under its reservation are below its own clock, at most one grant ahead.
    UPDATE snowflake_internal.snowflake_registry_groups g
    SET note = CASE operation WHEN 'reserve' THEN note_or_name END,
        until = CASE operation WHEN 'unreserve' THEN greatest(g.until, tick + registry.grant_ticks) ELSE g.until END
    WHERE g.worker_id = named
    RETURNING g.until INTO latest;
    -- Lost commits may have leased the group. A reservation takes effect at once, and its server waits for this time.
    IF registry.fence_before IS NOT NULL THEN
        latest := greatest(latest, registry.fence);
    END IF;
    RETURN snowflake_internal.snowflake_fleet_time(latest + 1, registry.tick_ms, registry.epoch);
END
$$;

CREATE FUNCTION @extschema@.snowflake_registry_reserve(worker_id integer, note text) RETURNS timestamptz LANGUAGE sql
    RETURN snowflake_internal.snowflake_fleet_operate('reserve'::text, worker_id, note);

CREATE FUNCTION @extschema@.snowflake_registry_unreserve(worker_id integer) RETURNS timestamptz LANGUAGE sql
    RETURN snowflake_internal.snowflake_fleet_operate('unreserve'::text, worker_id, ''::text);

CREATE FUNCTION @extschema@.snowflake_registry_retire(node_name text) RETURNS timestamptz LANGUAGE sql
    RETURN snowflake_internal.snowflake_fleet_operate('retire'::text, NULL::integer, node_name);

CREATE FUNCTION @extschema@.snowflake_registry_vouch() RETURNS void LANGUAGE sql
    BEGIN ATOMIC SELECT snowflake_internal.snowflake_fleet_operate('vouch'::text, NULL::integer, NULL::text); END;

-- ---------------------------------------------------------------- views

CREATE VIEW @extschema@.snowflake_fleet AS
SELECT g.node_name, g.worker_id,
    snowflake_internal.snowflake_fleet_time(g.until, r.tick_ms, r.epoch) AS granted_until,
    g.last_contact_at, g.clock_offset_ms, g.in_recovery, g.address, g.version
FROM snowflake_internal.snowflake_registry r, snowflake_internal.snowflake_registry_groups g
WHERE g.node_id IS NOT NULL;

-- When a registry in doubt leases workers again, and the latest contact that it had before. Infinity: no contact has begun
-- the doubt yet, so even renewals are refused; a standby cannot detect this. Null: no doubt. The body is bound, so it can
-- be SECURITY DEFINER.
CREATE FUNCTION snowflake_internal.snowflake_fleet_doubt(OUT free_from timestamptz, OUT lost_after timestamptz)
    SECURITY DEFINER LANGUAGE sql
    BEGIN ATOMIC
        SELECT CASE WHEN s.is_moved THEN timestamptz 'infinity'
                WHEN s.is_in_doubt THEN snowflake_internal.snowflake_fleet_time(r.fence + 1, r.tick_ms, r.epoch) END,
            CASE WHEN s.is_in_doubt THEN r.lost_after
                WHEN s.is_moved THEN (SELECT max(g.last_contact_at) FROM snowflake_internal.snowflake_registry_groups g) END
        FROM snowflake_internal.snowflake_registry r CROSS JOIN LATERAL (
            SELECT CASE WHEN NOT pg_is_in_recovery()
                    THEN r.written_in <> snowflake_internal.snowflake_fleet_location() END AS is_moved,
                snowflake_internal.snowflake_fleet_in_doubt(r, clock_timestamp()) AS is_in_doubt
        ) AS s;
    END;

CREATE VIEW @extschema@.snowflake_fleet_capacity AS
SELECT count(*) AS workers,
    count(*) FILTER (WHERE g.note IS NULL
        AND snowflake_internal.snowflake_fleet_time(g.until, r.tick_ms, r.epoch) >= clock_timestamp() IS NOT TRUE) AS free,
    d.free_from, d.lost_after
FROM snowflake_internal.snowflake_registry r, snowflake_internal.snowflake_registry_groups g,
    snowflake_internal.snowflake_fleet_doubt() AS d
GROUP BY d.free_from, d.lost_after;

-- The body is bound, so it can be SECURITY DEFINER, and callers need no rights on the tables.
CREATE FUNCTION @extschema@.snowflake_origin(id bigint)
    RETURNS TABLE (
        node_name text, home_worker_id integer, lane integer, leased_from timestamptz, leased_until timestamptz)
    STABLE STRICT PARALLEL SAFE SECURITY DEFINER ROWS 1 LANGUAGE sql
    BEGIN ATOMIC
        SELECT l.node_name, l.worker_id, (f.worker / r.homes)::integer,
            snowflake_internal.snowflake_fleet_time(l.floor + 1, r.tick_ms, r.epoch),
            snowflake_internal.snowflake_fleet_time(l.until, r.tick_ms, r.epoch)
        FROM snowflake_internal.snowflake_registry r
        CROSS JOIN LATERAL (
            SELECT $1 >> (r.datacenter_bits + r.worker_bits + r.sequence_bits) AS tick,
                $1 >> (r.worker_bits + r.sequence_bits) & ((1::bigint << r.datacenter_bits) - 1) AS datacenter,
                $1 >> r.sequence_bits & ((1::bigint << r.worker_bits) - 1) AS worker
        ) AS f
        JOIN (
            SELECT g.node_name, g.worker_id, g.floor, g.until
            FROM snowflake_internal.snowflake_registry_groups g
            UNION ALL
            SELECT h.node_name, h.worker_id, h.floor, h.until FROM snowflake_internal.snowflake_registry_leases h
        ) AS l ON l.worker_id = f.worker % r.homes AND l.floor < f.tick AND f.tick <= l.until
        WHERE f.datacenter = r.datacenter_id AND f.worker / r.homes <= r.backup_workers;
    END;
