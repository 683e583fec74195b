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
--   leased -> ended     a release, which lowers `until` to the last tick used; an operator; a doubt; the next claim: end
--   ended -> free       by time: both clocks have passed `until` and the fence
--   free -> reserved    an operator: operate
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
    time_bits integer NOT NULL, datacenter_bits integer NOT NULL, worker_bits integer NOT NULL, sequence_bits integer NOT NULL,
    -- Number of home workers per datacenter.
    homes           bigint NOT NULL,
    grant_ticks     bigint NOT NULL,
    -- Greatest difference of two clocks that the fleet tolerates.
    tolerance_ticks bigint NOT NULL,
    fence           bigint NOT NULL,
    -- `fence` before the first doubt that has not ended; equal to `fence` after a vouch. Null: there was no doubt.
    fence_before    bigint,
    -- Last known location of this row. If snowflake_fleet_location returns another, commits may be lost.
    written_in      text NOT NULL
);

-- A block of rows is inserted when the first of them is needed.
CREATE TABLE snowflake_internal.snowflake_registry_groups (
    datacenter_id   integer NOT NULL,
    worker_id       integer NOT NULL,
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
    PRIMARY KEY (datacenter_id, worker_id),
    CHECK (node_id IS NULL OR note IS NULL AND node_name IS NOT NULL AND floor IS NOT NULL AND until IS NOT NULL
        AND number IS NOT NULL AND nonce IS NOT NULL)
) WITH (fillfactor = 50); -- A renewal changes no indexed column, so with room on its page it writes no index.

-- One row per lease that has ended. The worker is part of the key, so that ending a node's lease does not wait for its claim.
CREATE TABLE snowflake_internal.snowflake_registry_leases (
    node_id       uuid NOT NULL,
    node_name     text NOT NULL,
    datacenter_id integer NOT NULL, worker_id integer NOT NULL, floor bigint NOT NULL, until bigint NOT NULL,
    PRIMARY KEY (node_id, worker_id)
);
CREATE INDEX snowflake_registry_leases_until
    ON snowflake_internal.snowflake_registry_leases (datacenter_id, worker_id, until);

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

-- The extension and its schema, which a superuser must own: another owner could rename the schema at any moment, and
-- replace the functions that nodes and operators call.
CREATE FUNCTION snowflake_internal.snowflake_fleet_schema(OUT extension oid, OUT schema regnamespace)
    STABLE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    installed record;
BEGIN
    SELECT e.oid AS extension, e.extnamespace::regnamespace AS schema, r.rolname AS owner, r.rolsuper AS is_superusers
    INTO STRICT installed
    FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
    JOIN pg_roles r ON r.oid = CASE n.nspowner WHEN 'pg_database_owner'::regrole
        THEN (SELECT datdba FROM pg_database WHERE datname = current_database()) ELSE n.nspowner END
    WHERE e.extname = 'snowflake_id';
    IF NOT installed.is_superusers THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('schema %s of the registry is not owned by a superuser', installed.schema),
            DETAIL = format('The owner is %s, and the registry trusts the owner of its schema with all servers.',
                installed.owner),
            HINT = CASE WHEN EXISTS (SELECT FROM snowflake_internal.snowflake_registry)
                THEN 'Keep the extension, whose tables have the leases of all servers. Drop what its schema has of other '
                    'roles, and give the schema, or with schema public the database, to a superuser.'
                ELSE 'Drop the extension and create it in a schema of a superuser.' END;
    END IF;
    extension := installed.extension;
    schema := installed.schema;
END
$$;

-- The registry's row; an error without one, or if no superuser owns the schema.
CREATE FUNCTION snowflake_internal.snowflake_fleet_current() RETURNS snowflake_internal.snowflake_registry
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    registry snowflake_internal.snowflake_registry;
BEGIN
    PERFORM snowflake_internal.snowflake_fleet_schema();
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
        node_id, node_name, datacenter_id, worker_id, floor, until)
    VALUES (ended.node_id, ended.node_name, ended.datacenter_id, ended.worker_id, ended.floor, ended.until);
    UPDATE snowflake_internal.snowflake_registry_groups g
    SET node_id = NULL, floor = NULL, number = NULL, nonce = NULL, until = ended.until
    WHERE g.datacenter_id = ended.datacenter_id AND g.worker_id = ended.worker_id;
END
$$;

-- Inserts the rows of the block that has this group, as far as they are missing. Two sessions that insert one block wait
-- for each other at its first row.
CREATE FUNCTION snowflake_internal.snowflake_fleet_add_groups(
    registry snowflake_internal.snowflake_registry, of_datacenter integer, first_worker integer
) RETURNS void
    STRICT LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO snowflake_internal.snowflake_registry_groups (datacenter_id, worker_id)
    SELECT of_datacenter, worker FROM generate_series(
        first_worker / 1024 * 1024::bigint,
        least(first_worker / 1024 * 1024::bigint + 1024, registry.homes) - 1) AS worker
    ON CONFLICT DO NOTHING;
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
    clock_tolerance interval DEFAULT '1 min', replaces_lost boolean DEFAULT false
) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    installed record;
    parsed  record;
    others  text;
    rights  text;
    refusal record;
    tick_ms integer := CASE WHEN tick BETWEEN interval '0' AND interval '1 s' THEN extract(epoch FROM tick) * 1000 END;
BEGIN
    SELECT * INTO STRICT installed FROM snowflake_internal.snowflake_fleet_schema();
    -- Rights that were granted since the installation, by name or by default.
    SELECT left(string_agg(format('%s of %s', a.privilege_type, o.described)
            || format(' by %s', snowflake_internal.snowflake_grantee(a.grantee)), ', '
            ORDER BY o.described, a.privilege_type, a.grantee), 500)
    INTO rights
    FROM pg_depend d, LATERAL (
        SELECT format('table %s', c.relname), c.relowner, c.relacl FROM pg_class c
        WHERE d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind = 'r'
            AND starts_with(c.relname, 'snowflake_registry')
        UNION ALL
        SELECT format('function %s', f.proname), f.proowner, coalesce(f.proacl, acldefault('f', f.proowner))
        FROM pg_proc f
        WHERE d.classid = 'pg_proc'::regclass AND f.oid = d.objid
            AND (starts_with(f.proname, 'snowflake_fleet_') OR starts_with(f.proname, 'snowflake_registry_'))
            -- Roles may have got EXECUTE on this one before.
            AND f.proname <> 'snowflake_registry_contact'
    ) AS o (described, owner, acl), aclexplode(o.acl) AS a
    WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = installed.extension AND d.deptype = 'e'
        AND a.grantee <> o.owner
        -- Taken away below.
        AND (a.privilege_type, a.grantee) NOT IN (('SELECT', 0::oid), ('INSERT', 'pg_database_owner'::regrole))
        AND NOT (o.described IN ('function snowflake_fleet_time', 'function snowflake_fleet_free_from')
            AND a.grantee = 'pg_monitor'::regrole);
    SELECT string_agg(coalesce(quote_ident(r.rolname), 'PUBLIC'), ', ' ORDER BY r.rolname) INTO others
    FROM pg_namespace n, aclexplode(n.nspacl) AS a LEFT JOIN pg_roles r ON r.oid = a.grantee
    WHERE n.oid IN (installed.schema, 'snowflake_internal'::regnamespace) AND a.privilege_type = 'CREATE'
        AND r.rolsuper IS NOT TRUE AND a.grantee NOT IN (n.nspowner, 'pg_database_owner'::regrole);
    SELECT r.state, r.message, r.detail, r.hint INTO refusal FROM (VALUES
        (others IS NOT NULL, '55000', format('other roles have CREATE on schema %s of the registry', installed.schema),
            format('They are: %s.', others),
            'Revoke it: a function with a name of the extension''s would stop the registry.'),
        (num_nulls(node_role, grant_length, layout, tick, epoch, backup_workers, clock_tolerance, replaces_lost) > 0,
            '22004', 'arguments of snowflake_registry_create must not be null', 'Each argument decides what nodes are granted.',
            'Leave out an argument to use its default.'),
        (EXISTS (SELECT FROM snowflake_internal.snowflake_registry), '55000', 'this database is a snowflake registry already',
            'A database can be the registry of one fleet.', 'To let another role in, grant it EXECUTE on '
            'snowflake_registry_contact and USAGE on its schema.'),
        (EXISTS (SELECT FROM snowflake_internal.snowflake_registry_groups)
            OR EXISTS (SELECT FROM snowflake_internal.snowflake_registry_leases), '55000',
            'tables of the registry have rows already', 'A registry was restored in part, or its row was deleted.',
            'Restore all tables of the registry; or drop the extension, create it again, and create a registry with '
            'replaces_lost => true.'),
        (rights IS NOT NULL, '55000', 'other roles have rights on the objects of the registry',
            format('With these rights they could change which server may generate which IDs: %s.', rights),
            'Revoke them, and call snowflake_registry_create again.'),
        (NOT (grant_length BETWEEN interval '2 seconds' AND interval '30 days'
            -- At least 1 second, because a request takes some time to arrive.
            AND clock_tolerance BETWEEN interval '1 second' AND grant_length / 2
            AND coalesce(tick = tick_ms * interval '1 ms' AND tick_ms IN (1, 10, 1000), false)
            AND epoch BETWEEN timestamptz '0001-01-01 00:00:00+00' AND clock_timestamp()
            AND backup_workers BETWEEN 0 AND 15), '22023', 'an argument of snowflake_registry_create is out of range',
            'Allowed are: grant_length from 2 seconds to 30 days, clock_tolerance from 1 second to half of that, tick of '
            '1 ms, 10 ms or 1 s, epoch between the year 1 and now, backup_workers from 0 to 15.',
            'Use tick, epoch and backup_workers of the servers, check the clock, and pass clock_tolerance with a grant_length '
            'below 2 minutes.')
    ) AS r (is_true, state, message, detail, hint) WHERE r.is_true LIMIT 1;
    PERFORM snowflake_internal.snowflake_raise(refusal.state, refusal.message, refusal.detail, refusal.hint);
    PERFORM snowflake_internal.snowflake_fleet_commit_durably(interval '1 min');
    SELECT * INTO STRICT parsed FROM snowflake_internal.snowflake_fleet_layout(layout, tick_ms, backup_workers);
    INSERT INTO snowflake_internal.snowflake_registry (
        id, layout, tick_ms, epoch, backup_workers, time_bits, datacenter_bits, worker_bits, sequence_bits, homes,
        grant_ticks, tolerance_ticks, fence, written_in)
    SELECT gen_random_uuid(), parsed.bits, tick_ms, epoch, backup_workers, parsed.time_bits, parsed.datacenter_bits,
        parsed.worker_bits, parsed.sequence_bits, (1::bigint << parsed.worker_bits) / (backup_workers + 1),
        ceil(extract(epoch FROM grant_length) * 1000 / tick_ms)::bigint,
        ceil(extract(epoch FROM clock_tolerance) * 1000 / tick_ms)::bigint,
        -- Servers that had these workers before have IDs below this tick.
        snowflake_internal.snowflake_fleet_tick(clock_timestamp(), tick_ms, epoch),
        CASE WHEN replaces_lost THEN 'a registry that is lost' ELSE snowflake_internal.snowflake_fleet_location() END;
    REVOKE SELECT, INSERT ON snowflake_internal.snowflake_registry, snowflake_internal.snowflake_registry_groups,
        snowflake_internal.snowflake_registry_leases FROM PUBLIC, pg_database_owner;
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', (
        SELECT f.oid::regprocedure FROM pg_depend d JOIN pg_proc f ON f.oid = d.objid
        WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = installed.extension AND d.deptype = 'e'
            AND d.classid = 'pg_proc'::regclass AND f.proname = 'snowflake_registry_contact'), node_role);
    IF NOT has_schema_privilege(node_role, installed.schema::oid, 'USAGE') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %s TO %s', installed.schema, node_role);
    END IF;
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
    passes      bigint;
    free        timestamptz;
    is_in_doubt boolean;
    named       constant integer := worker_id;
    -- The number's high bits are the datacenter's, as in an ID.
    of_datacenter integer;
    of_worker     integer;
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
            WHERE g.node_name = note_or_name AND g.node_id IS NOT NULL ORDER BY g.datacenter_id, g.worker_id FOR UPDATE
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
    of_datacenter := named >> registry.worker_bits;
    of_worker := named & ((1::bigint << registry.worker_bits) - 1);
    IF named >= 0 AND of_datacenter < 1::bigint << registry.datacenter_bits AND of_worker < registry.homes THEN
        PERFORM snowflake_internal.snowflake_fleet_add_groups(registry, of_datacenter, of_worker);
    END IF;
    SELECT * INTO own FROM snowflake_internal.snowflake_registry_groups g
    WHERE g.datacenter_id = of_datacenter AND g.worker_id = of_worker FOR UPDATE;
    -- The clocks of the last server and of the next one may be behind the registry's.
    passes := registry.tolerance_ticks + greatest(
        own.until + greatest(-own.clock_offset_ms / registry.tick_ms, 0),
        CASE WHEN registry.fence_before IS NOT NULL THEN registry.fence END);
    free := snowflake_internal.snowflake_fleet_time(passes + 1, registry.tick_ms, registry.epoch);
    tick := snowflake_internal.snowflake_fleet_tick(clock_timestamp(), registry.tick_ms, registry.epoch);
    SELECT r.state, r.message, r.detail, r.hint INTO refusal FROM (VALUES
        (named IS NULL OR note_or_name IS NULL, '22004', 'worker_id and note must not be null',
            'A reservation keeps one worker, and tells others why.', 'Name the server in the note.'),
        (own.worker_id IS NULL, '22023', format('worker_id %s is out of range', named),
            format('Layout %s with %s backup workers has home workers 0 to %s.', registry.layout,
                registry.backup_workers, registry.homes - 1),
            format('Use snowflake_id.worker_id of the server, and add %s for each datacenter before its own.',
                1::bigint << registry.worker_bits)),
        (operation = 'unreserve' AND own.note IS NULL, '42704', format('worker %s is not reserved', named),
            'No operator has reserved it.', 'Check the number.'),
        (operation = 'reserve' AND own.note <> note_or_name, '55000', format('worker %s is reserved already', named),
            format('Its note is "%s".', left(own.note, 64)),
            'Reserve another worker. If that server is gone, call snowflake_registry_unreserve, and wait until the worker is '
            'free.'),
        (operation = 'reserve' AND passes >= tick, '55000',
            format('cannot reserve worker %s: it is not free yet', named),
            CASE WHEN own.node_id IS NOT NULL THEN format('Node "%s" may have it until %s.', own.node_name, free)
                WHEN is_in_doubt THEN format('The registry may have lost commits: another server may have it until %s.', free)
                ELSE format('The server that had it last may have it until %s.', free) END,
            CASE WHEN is_in_doubt THEN 'Wait until then. If no commit was lost, call snowflake_registry_vouch.'
                ELSE 'Reserve another worker; or stop the server that has it, and wait until then.' END)
    ) AS r (is_true, state, message, detail, hint) WHERE r.is_true LIMIT 1;
    PERFORM snowflake_internal.snowflake_raise(refusal.state, refusal.message, refusal.detail, refusal.hint);
    IF own.node_id IS NOT NULL THEN
        PERFORM snowflake_internal.snowflake_fleet_end(own);
    END IF;
    -- IDs that the server generated under its reservation are below its own clock, at most one grant ahead.
    UPDATE snowflake_internal.snowflake_registry_groups g
    SET note = CASE operation WHEN 'reserve' THEN note_or_name END,
        until = CASE operation WHEN 'unreserve' THEN greatest(g.until, tick + registry.grant_ticks) ELSE g.until END
    WHERE g.datacenter_id = of_datacenter AND g.worker_id = of_worker
    RETURNING g.until INTO tick;
    RETURN snowflake_internal.snowflake_fleet_time(tick + 1, registry.tick_ms, registry.epoch);
END
$$;

CREATE FUNCTION @extschema@.snowflake_registry_reserve(worker_id integer, note text) RETURNS void LANGUAGE sql
    BEGIN ATOMIC SELECT snowflake_internal.snowflake_fleet_operate('reserve'::text, worker_id, note); END;

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
    g.last_contact_at, g.clock_offset_ms, g.in_recovery, g.address, g.version,
    CASE WHEN r.datacenter_bits > 0 THEN g.datacenter_id END AS datacenter_id
FROM snowflake_internal.snowflake_registry r, snowflake_internal.snowflake_registry_groups g
WHERE g.node_id IS NOT NULL;

-- When a registry in doubt leases workers again. Infinity: no contact has begun the doubt yet, so even renewals are
-- refused; a standby cannot detect this. Null: no doubt. The body is bound, so it can be SECURITY DEFINER.
CREATE FUNCTION snowflake_internal.snowflake_fleet_free_from() RETURNS timestamptz
    SECURITY DEFINER LANGUAGE sql
    RETURN (
        SELECT CASE
            WHEN CASE WHEN NOT pg_is_in_recovery()
                THEN r.written_in <> snowflake_internal.snowflake_fleet_location() END THEN timestamptz 'infinity'
            WHEN snowflake_internal.snowflake_fleet_in_doubt(r, clock_timestamp())
                THEN snowflake_internal.snowflake_fleet_time(r.fence + 1, r.tick_ms, r.epoch) END
        FROM snowflake_internal.snowflake_registry r);

-- Groups that were never used may have no row.
CREATE VIEW @extschema@.snowflake_fleet_capacity AS
SELECT CASE WHEN r.datacenter_bits > 0 THEN g.datacenter_id END AS datacenter_id, r.homes AS workers,
    r.homes - count(g.worker_id) FILTER (WHERE g.note IS NOT NULL
        OR snowflake_internal.snowflake_fleet_time(g.until, r.tick_ms, r.epoch) >= clock_timestamp()) AS free,
    (SELECT snowflake_internal.snowflake_fleet_free_from()) AS free_from
FROM snowflake_internal.snowflake_registry r LEFT JOIN snowflake_internal.snowflake_registry_groups g ON true
GROUP BY 1, 2;

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
            SELECT g.node_name, g.datacenter_id, g.worker_id, g.floor, g.until
            FROM snowflake_internal.snowflake_registry_groups g WHERE g.node_id IS NOT NULL
            UNION ALL
            SELECT h.node_name, h.datacenter_id, h.worker_id, h.floor, h.until
            FROM snowflake_internal.snowflake_registry_leases h
        ) AS l ON l.datacenter_id = f.datacenter AND l.worker_id = f.worker % r.homes
            AND l.floor < f.tick AND f.tick <= l.until
        WHERE f.worker / r.homes <= r.backup_workers AND $1 >= 0;
    END;
