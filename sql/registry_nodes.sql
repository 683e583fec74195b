-- The one function of the registry that nodes call: it claims a group, or renews its lease. registry.sql has the definitions
-- and states.
--
-- Steps of snowflake_registry_contact():
-- 1. snowflake_fleet_unfit refuses a node whose settings or clock do not fit the fleet.
-- 2. If the registry's row was written elsewhere, snowflake_fleet_begin_doubt sets the fence.
-- 3. snowflake_fleet_answer grants (snowflake_fleet_claim), refuses (snowflake_fleet_refusal), or answers `over`.

-- The reason why no group can be leased now.
CREATE FUNCTION snowflake_internal.snowflake_fleet_refusal(
    fleet snowflake_internal.snowflake_registry, clock timestamptz, registry_clock timestamptz,
    OUT reason text, OUT detail text
) STABLE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first bigint;
    free  timestamptz;
BEGIN
    SELECT min(coalesce(g.until, -1)) INTO first FROM snowflake_internal.snowflake_registry_groups g
    WHERE g.note IS NULL;
    free := snowflake_internal.snowflake_fleet_time(greatest(first, fleet.fence) + 1, fleet.tick_ms, fleet.epoch);
    IF snowflake_internal.snowflake_fleet_in_doubt(fleet, registry_clock) THEN
        reason := 'doubt';
        detail := format('The registry may have lost commits, and leases no worker before %s.', free);
    ELSIF free <= registry_clock AND free > clock THEN
        reason := 'clock';
        detail := format('The clock of the node reads %s, and that of the registry %s: a worker is free from %s on.',
            clock, registry_clock, free);
    ELSE
        reason := 'full';
        detail := format('Every worker is leased or reserved%s.',
            CASE WHEN free > registry_clock THEN format(', and none comes free before %s', free) END);
    END IF;
END
$$;

-- Locks the group of a new lease and returns its row: the last one of this name, else one never used, else the one free for
-- longest. Null if none is free.
CREATE FUNCTION snowflake_internal.snowflake_fleet_claim(
    fleet snowflake_internal.snowflake_registry, claimant text, clock timestamptz
) RETURNS snowflake_internal.snowflake_registry_groups LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own    snowflake_internal.snowflake_registry_groups;
    -- Both clocks must have passed `until` and the fence.
    latest constant bigint := snowflake_internal.snowflake_fleet_tick(
        least(clock, clock_timestamp()), fleet.tick_ms, fleet.epoch) - 1;
BEGIN
    IF latest < fleet.fence THEN
        RETURN NULL;
    END IF;
    -- Skips rows that other claims have locked, because they are about to be leased.
    SELECT * INTO own FROM snowflake_internal.snowflake_registry_groups g
    WHERE g.note IS NULL AND (g.until IS NULL OR g.until <= latest)
    ORDER BY (g.node_name = claimant) IS TRUE DESC,
        CASE WHEN g.node_name = claimant THEN -g.until ELSE g.until END NULLS FIRST, g.worker_id
    LIMIT 1 FOR UPDATE SKIP LOCKED;
    IF own.worker_id IS NULL THEN
        RETURN NULL;
    ELSIF own.node_id IS NOT NULL THEN
        PERFORM snowflake_internal.snowflake_fleet_end(own);
    END IF;
    own.floor := greatest(own.until, fleet.fence);
    RETURN own;
END
$$;

-- Begins the doubt of a registry whose row was written elsewhere, if the clocks of node and registry agree: then no lost
-- contact had later clocks, unless both are wrong, and so were those of all leases that are left. Otherwise returns the
-- reason, and the caller changes nothing: a clock may be wrong for a moment after a failover.
CREATE FUNCTION snowflake_internal.snowflake_fleet_begin_doubt(clock timestamptz) RETURNS text
    STRICT LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    fleet          snowflake_internal.snowflake_registry;
    tolerance      interval;
    registry_clock timestamptz;
    since          bigint;
    -- Null: there was no doubt.
    is_on          boolean;
BEGIN
    -- Another contact may begin the doubt at this moment. The one that waits for its lock then reads its row.
    SELECT * INTO STRICT fleet FROM snowflake_internal.snowflake_registry FOR UPDATE;
    IF fleet.written_in = snowflake_internal.snowflake_fleet_location() THEN
        RETURN NULL;
    END IF;
    registry_clock := clock_timestamp();
    tolerance := fleet.tolerance_ticks * fleet.tick_ms * interval '1 ms';
    IF NOT clock BETWEEN registry_clock - tolerance AND registry_clock + tolerance THEN
        RETURN format('The registry may have lost commits, and waits for a server whose clock differs from its own by at '
            'most %s: the clock of the node reads %s, and the registry''s %s.', tolerance, clock, registry_clock);
    END IF;
    -- A lease ends one grant after the earlier of the two clocks of its last contact.
    since := fleet.tolerance_ticks + greatest(
        snowflake_internal.snowflake_fleet_tick(greatest(clock, registry_clock), fleet.tick_ms, fleet.epoch),
        (SELECT max(g.until) - fleet.grant_ticks FROM snowflake_internal.snowflake_registry_groups g
         WHERE g.node_id IS NOT NULL));
    is_on := fleet.fence_before <> fleet.fence AND fleet.fence >= since;
    -- No lost lease ends later than one grant after the earlier of its two clocks.
    UPDATE snowflake_internal.snowflake_registry r
    SET written_in = snowflake_internal.snowflake_fleet_location(), fence = greatest(r.fence, since + r.grant_ticks),
        fence_before = CASE WHEN is_on THEN r.fence_before ELSE r.fence END,
        lost_after = CASE WHEN is_on THEN r.lost_after
            ELSE (SELECT max(g.last_contact_at) FROM snowflake_internal.snowflake_registry_groups g) END
    RETURNING * INTO STRICT fleet;
    -- Lost commits may have leased their groups to other nodes.
    PERFORM snowflake_internal.snowflake_fleet_end(g) FROM snowflake_internal.snowflake_registry_groups g
    WHERE g.node_id IS NOT NULL AND g.until < since;
    RAISE LOG 'snowflake_id: the registry may have lost commits in a failover or restore'
        USING DETAIL = format('It leases no worker before %s, and renews leases meanwhile.',
                snowflake_internal.snowflake_fleet_time(fleet.fence + 1, fleet.tick_ms, fleet.epoch)),
            HINT = 'If no commit was lost since lost_after in snowflake_fleet_capacity, call snowflake_registry_vouch.';
    RETURN NULL;
END
$$;

-- The reason why a node's cluster, settings or clock do not fit the fleet; nulls if they do.
CREATE FUNCTION snowflake_internal.snowflake_fleet_unfit(
    fleet snowflake_internal.snowflake_registry, registry_id uuid, system_identifier bigint, layout text, tick_ms integer,
    epoch timestamptz, backup_workers integer, datacenter_id integer, clock timestamptz, OUT reason text, OUT detail text
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    registry_clock constant timestamptz := clock_timestamp();
    -- Compared as times, because the difference of two timestamps can overflow an interval.
    latest constant timestamptz := least(
        snowflake_internal.snowflake_fleet_time(fleet.grant_ticks, fleet.tick_ms, registry_clock),
        snowflake_internal.snowflake_fleet_time((1::bigint << fleet.time_bits) - 2, fleet.tick_ms, fleet.epoch));
BEGIN
    -- The clock of such a server is the registry's, and both fail over together.
    IF system_identifier = (SELECT c.system_identifier FROM pg_control_system() AS c) THEN
        reason := 'own';
        detail := format('The server is in the cluster of the registry, or was copied from it: both have the system '
            'identifier %s.', system_identifier);
    ELSIF (coalesce(registry_id, fleet.id), layout, tick_ms, epoch, backup_workers, datacenter_id)
        <> (fleet.id, fleet.layout, fleet.tick_ms, fleet.epoch, fleet.backup_workers, fleet.datacenter_id) THEN
        reason := 'settings';
        detail := format('The registry is %s, with layout %s, tick %s ms, epoch %s, backup_workers %s and datacenter_id %s; '
            'the node is of registry %s, with layout %s, tick %s ms, epoch %s, backup_workers %s and datacenter_id %s.',
            fleet.id, fleet.layout, fleet.tick_ms, fleet.epoch, fleet.backup_workers, fleet.datacenter_id,
            coalesce(registry_id, fleet.id), left(layout, 64), tick_ms, epoch, backup_workers, datacenter_id);
    ELSIF NOT clock BETWEEN fleet.epoch AND latest THEN
        reason := 'clock';
        detail := format('The clock of the node reads %s, and the registry''s %s: leases are for clocks of %s to %s, which '
            'is one grant ahead or the end of the layout.', clock, registry_clock, fleet.epoch, latest);
    END IF;
END
$$;

-- The answer to a node that fits the fleet. `asked` is its request in the columns of a group; last_contact_at is its clock.
-- The request's number must be above the last one of the lease; or equal, with the same nonce, because the answer was lost.
CREATE FUNCTION snowflake_internal.snowflake_fleet_answer(
    fleet snowflake_internal.snowflake_registry, asked snowflake_internal.snowflake_registry_groups,
    OUT answer text, OUT leased snowflake_internal.snowflake_registry_groups, OUT reason text, OUT detail text
) LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    clock          constant timestamptz := asked.last_contact_at;
    own            snowflake_internal.snowflake_registry_groups;
    is_new         boolean;
    registry_clock timestamptz;
    earlier        bigint;
    tick           bigint;
BEGIN
    IF asked.worker_id IS NULL THEN
        -- If a claim comes twice at once, the second waits, and gets the same lease. It waits for the key of a row that
        -- the first deletes at once: any role could hold an advisory lock.
        INSERT INTO snowflake_internal.snowflake_registry_leases
        VALUES (asked.node_id, asked.node_name, -1, -1, -1);
        DELETE FROM snowflake_internal.snowflake_registry_leases l WHERE l.node_id = asked.node_id AND l.worker_id = -1;
    END IF;
    SELECT * INTO own FROM snowflake_internal.snowflake_registry_groups g WHERE g.node_id = asked.node_id FOR UPDATE;
    is_new := own.node_id IS NULL
        AND NOT EXISTS (SELECT FROM snowflake_internal.snowflake_registry_leases l WHERE l.node_id = asked.node_id);
    -- Read after the waits for locks.
    registry_clock := clock_timestamp();
    tick := snowflake_internal.snowflake_fleet_tick(registry_clock, fleet.tick_ms, fleet.epoch);
    earlier := least(tick, snowflake_internal.snowflake_fleet_tick(clock, fleet.tick_ms, fleet.epoch));
    IF is_new AND asked.worker_id IS NULL THEN
        leased := snowflake_internal.snowflake_fleet_claim(fleet, asked.node_name, clock);
        IF leased.worker_id IS NULL THEN
            answer := 'refused';
            SELECT r.* INTO reason, detail
            FROM snowflake_internal.snowflake_fleet_refusal(fleet, clock, registry_clock) AS r;
            RETURN;
        END IF;
    ELSIF is_new AND snowflake_internal.snowflake_fleet_in_doubt(fleet, registry_clock) THEN
        -- Its claim may be among the lost commits.
        answer := 'refused';
        reason := 'doubt';
        detail := format('The registry may have lost commits, and does not have the lease of this server, which generates '
            'IDs until it ends. It leases no worker before %s.',
            snowflake_internal.snowflake_fleet_time(fleet.fence + 1, fleet.tick_ms, fleet.epoch));
        RETURN;
    ELSIF (CASE
        WHEN asked.worker_id IS NULL THEN (asked.number, asked.nonce) = (own.number, own.nonce)
        ELSE (own.worker_id, own.floor) = (asked.worker_id, asked.floor)
            AND (asked.number > own.number OR (asked.number, asked.nonce) = (own.number, own.nonce))
            -- After a lost renewal, a node's `until` exceeds the row's: accept it, up to what a renewal can have granted.
            AND asked.until BETWEEN own.floor
                AND greatest(own.until, tick + fleet.grant_ticks + fleet.tolerance_ticks) END) THEN
        leased := own;
    END IF;
    IF leased.worker_id IS NULL THEN
        answer := 'over';
        detail := CASE WHEN own.node_id IS NULL THEN 'The registry has no lease of this node.'
            ELSE format('Contact %s has renewed the lease of worker %s: a copy of this node may be running.', own.number,
                own.worker_id) END;
        RETURN;
    END IF;
    answer := 'granted';
    UPDATE snowflake_internal.snowflake_registry_groups g
    SET node_id = asked.node_id, node_name = asked.node_name, floor = leased.floor, number = asked.number,
        nonce = asked.nonce, until = greatest(leased.until, asked.until,
            least(earlier + fleet.grant_ticks, (1::bigint << fleet.time_bits) - 1)),
        last_contact_at = registry_clock, clock_offset_ms = extract(epoch FROM clock - registry_clock) * 1000,
        in_recovery = asked.in_recovery, address = asked.address, version = asked.version
    WHERE g.worker_id = leased.worker_id
    RETURNING g.* INTO STRICT leased;
END
$$;

CREATE FUNCTION snowflake_internal.snowflake_registry_contact(
    registry_id uuid, system_identifier bigint, node_id uuid, node_name text, number bigint, nonce uuid,
    lease_worker_id integer, lease_floor bigint, lease_until bigint, clock timestamptz,
    layout text, tick_ms integer, epoch timestamptz, backup_workers integer, datacenter_id integer,
    in_recovery boolean, version text,
    OUT answer text, OUT registry uuid, OUT worker_id integer, OUT floor bigint, OUT until bigint,
    OUT reason text, OUT detail text, OUT hint text
)
    -- The longest wait for another session's lock.
    SECURITY DEFINER LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s' AS $$
DECLARE
    fleet   snowflake_internal.snowflake_registry;
    refusal record;
BEGIN
    -- Before any query, because a query copies the whole of each text that it names.
    IF greatest(octet_length(node_name), octet_length(layout), octet_length(version)) > 1020 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'a text of a contact must not have more than 1020 bytes',
            DETAIL = format('The arguments have these lengths: node_name %s, layout %s, version %s.',
                octet_length(node_name), octet_length(layout), octet_length(version)),
            HINT = 'Install the same version of snowflake_id on the server and the registry.';
    END IF;
    SELECT r.state, r.message, r.detail, r.hint INTO refusal FROM (VALUES
        (pg_is_in_recovery(), '25006', 'cannot contact the registry during recovery',
            'A standby of the registry leases no workers.',
            'Connect with target_session_attrs = read-write, and name all hosts of the registry.'),
        -- An older snapshot would not show rows that were committed during a wait for a lock.
        (current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted'), '25001',
            'snowflake_registry_contact must run in a READ COMMITTED transaction',
            'A transaction of another isolation level may not see the newest rows.',
            'Start the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.'),
        (current_setting('transaction_read_only')::boolean, '25006',
            'cannot contact the registry in a read-only transaction',
            format('The setting default_transaction_read_only is on for role %s, its database or the server.', session_user),
            'Set it to off, as by ALTER ROLE.'),
        (num_nulls(system_identifier, node_id, node_name, number, nonce, clock, layout, tick_ms, epoch, backup_workers,
                datacenter_id, in_recovery, version) > 0
            OR num_nulls(lease_worker_id, lease_floor, lease_until) NOT IN (0, 3),
            '22004', 'arguments of snowflake_registry_contact must not be null',
            'Only registry_id and those of a lease can be; of a lease all or none.',
            'Install the same version of snowflake_id on the server and the registry.'),
        (length(node_name) NOT BETWEEN 1 AND 255 OR node_name ~ E'[\\x01-\\x1f\\x7f]'
            OR getdatabaseencoding() = 'UTF8' AND node_name ~ E'[\\x80-\\x9f]', '22023',
            'node_name must have 1 to 255 characters, and no control characters',
            format('It has %s characters.', length(node_name)), 'Set snowflake_id.node_name on the server.')
    ) AS r (is_true, state, message, detail, hint) WHERE r.is_true LIMIT 1;
    PERFORM snowflake_internal.snowflake_raise(refusal.state, refusal.message, refusal.detail, refusal.hint);
    PERFORM snowflake_internal.snowflake_fleet_commit_durably(interval '10 s');
    fleet := snowflake_internal.snowflake_fleet_current();
    registry := fleet.id;
    SELECT u.reason, u.detail INTO reason, detail FROM snowflake_internal.snowflake_fleet_unfit(
        fleet, registry_id, system_identifier, layout, tick_ms, epoch, backup_workers, datacenter_id, clock) AS u;
    IF reason IS NULL AND fleet.written_in <> snowflake_internal.snowflake_fleet_location() THEN
        detail := snowflake_internal.snowflake_fleet_begin_doubt(clock);
        reason := CASE WHEN detail IS NOT NULL THEN 'clock' END;
        fleet := snowflake_internal.snowflake_fleet_current();
    END IF;
    IF reason IS NOT NULL THEN
        answer := 'refused';
    ELSE
        -- `leased` is null unless the answer is a grant.
        SELECT a.answer, (a.leased).worker_id, (a.leased).floor, (a.leased).until, a.reason, a.detail
        INTO answer, worker_id, floor, until, reason, detail
        FROM snowflake_internal.snowflake_fleet_answer(fleet, ROW(lease_worker_id, NULL, node_id, node_name,
            lease_floor, lease_until, number, nonce, clock, NULL, in_recovery, inet_client_addr(), version
            )::snowflake_internal.snowflake_registry_groups) AS a;
    END IF;
    hint := CASE CASE WHEN reason = 'settings' AND registry_id <> fleet.id THEN 'other' ELSE reason END
        WHEN 'own' THEN 'Use a registry in a cluster of its own; or number the servers of this cluster by hand: reserve a '
            'number for each with snowflake_registry_reserve, set snowflake_id.worker_id, and remove snowflake_id.registry.'
        WHEN 'other' THEN 'Correct snowflake_id.registry; or if this registry was created with replaces_lost => true in place '
            'of the server''s, stop the server, delete its folder snowflake_id, and start it.'
        WHEN 'settings' THEN 'Correct snowflake_id.registry, or layout, tick, epoch, backup_workers and datacenter_id of '
            'this server.'
        WHEN 'clock' THEN 'Compare the clocks of this server and of the registry with the true time, and correct the one '
            'that is wrong.'
        WHEN 'full' THEN 'Wait; or stop servers that need no IDs, or end a reservation with snowflake_registry_unreserve. '
            'snowflake_registry_retire helps only against a server that you cannot stop: no worker is free before its lease '
            'ends.'
        WHEN 'doubt' THEN 'Wait until then; or if the registry lost no commit since lost_after in snowflake_fleet_capacity, '
            'call snowflake_registry_vouch there.' END;
END
$$;

REVOKE ALL ON FUNCTION
    @extschema@.snowflake_registry_create(regrole, interval, text, interval, timestamptz, integer, integer, interval, boolean),
    @extschema@.snowflake_registry_reserve(integer, text), @extschema@.snowflake_registry_unreserve(integer),
    @extschema@.snowflake_registry_retire(text), @extschema@.snowflake_registry_vouch(),
    @extschema@.snowflake_origin(bigint)
    FROM PUBLIC;

COMMENT ON TABLE snowflake_internal.snowflake_registry IS 'the fleet whose registry this database is; at most one row';
COMMENT ON TABLE snowflake_internal.snowflake_registry_groups IS 'the workers of the fleet, one row per home worker';
COMMENT ON TABLE snowflake_internal.snowflake_registry_leases IS 'the leases of the fleet that have ended, one row per lease';
COMMENT ON VIEW @extschema@.snowflake_fleet IS 'the servers that have workers from this registry, one row per lease';
COMMENT ON VIEW @extschema@.snowflake_fleet_capacity IS 'home workers of the fleet: how many, and how many are free';
COMMENT ON FUNCTION @extschema@.snowflake_origin(bigint) IS 'returns the server that had an ID''s worker';
COMMENT ON FUNCTION
    @extschema@.snowflake_registry_create(regrole, interval, text, interval, timestamptz, integer, integer, interval, boolean) IS
    'makes this database the registry of a fleet, and lets a role contact it';
COMMENT ON FUNCTION @extschema@.snowflake_registry_reserve(integer, text) IS
    'keeps a worker for a server outside it, and returns the time that the server''s clock must have passed';
COMMENT ON FUNCTION @extschema@.snowflake_registry_unreserve(integer) IS
    'ends a reservation, if the server''s clock is at most a grant ahead, and returns when the worker is free';
COMMENT ON FUNCTION @extschema@.snowflake_registry_retire(text) IS 'ends a server''s leases, and returns when they are free';
COMMENT ON FUNCTION @extschema@.snowflake_registry_vouch() IS 'asserts that the registry has lost no commit';
-- The path of CREATE EXTENSION again, for the rest of the script.
SET LOCAL search_path = @extschema@, pg_temp;
