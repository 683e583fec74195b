-- The one function of the registry that nodes call: it claims a group, or renews the lease of one.

-- Why a group cannot be leased now, and what to do about it; called where none was found.
CREATE FUNCTION snowflake_internal.snowflake_fleet_refusal(
    fleet snowflake_internal.snowflake_registry, of_datacenter integer, claimant text, wanted integer,
    node_tick bigint, tick bigint, OUT reason text, OUT detail text, OUT hint text, OUT free_at timestamptz
) STABLE PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own     snowflake_internal.snowflake_registry_groups;
    first   bigint;
    earlier constant bigint := least(node_tick, tick);
BEGIN
    SELECT * INTO own FROM snowflake_internal.snowflake_registry_groups g
    WHERE g.datacenter_id = of_datacenter AND g.worker_id = wanted;
    SELECT min(g.until) INTO first FROM snowflake_internal.snowflake_registry_groups g
    WHERE g.datacenter_id = of_datacenter AND g.note IS NULL AND (g.worker_id = wanted OR wanted IS NULL);
    free_at := CASE WHEN own.note IS NULL
        THEN snowflake_internal.snowflake_fleet_time(
            greatest(first, fleet.fence, earlier - 1) + 1, fleet.tick_ms, fleet.epoch) END;
    IF own.note IS NOT NULL THEN
        reason := 'reserved';
        detail := format('Worker %s is reserved: %s.', wanted, left(own.note, 255));
        hint := format('Set snowflake_id.worker_id on this server to another number, or remove it so that the registry '
            'chooses one, and restart the server. If the number was reserved for this server, call '
            'snowflake_registry_unreserve(%s) in the registry: the worker comes free one grant later.',
            (of_datacenter::bigint << fleet.worker_bits) + wanted);
    -- Before the doubt, which ends by itself.
    ELSIF own.node_id IS NOT NULL AND own.until >= earlier THEN
        reason := 'taken';
        detail := format('Node "%s" has worker %s, which comes free at %s unless that node renews its lease.',
            own.node_name, wanted, free_at);
        hint := CASE WHEN own.node_name = claimant
            THEN 'If that node is this server before a restore or the loss of its state, wait until then. If it is '
                'another server, give this one a snowflake_id.node_name and a snowflake_id.worker_id of its own, and '
                'restart it.'
            ELSE format('If node "%s" is gone, wait until then. Otherwise set snowflake_id.worker_id on this server to '
                'another number, or remove it so that the registry chooses one, and restart the server.', own.node_name)
            END;
    ELSIF fleet.fences_before <> '{}' AND fleet.fence >= tick THEN
        reason := 'doubt';
        detail := format('The registry may have lost commits, and leases no worker before %s.', free_at);
        hint := 'Wait until then. If no commit was lost, call snowflake_registry_vouch in the registry.';
    ELSIF own.until >= earlier THEN
        reason := 'taken';
        detail := format('The lease or reservation of worker %s has ended, and the worker comes free at %s.', wanted,
            free_at);
        hint := 'Wait until then: this server gets the worker without a restart.';
    ELSIF fleet.fence >= earlier THEN
        reason := 'clock';
        detail := format('The clock of %s is behind: the registry leases workers from %s on.',
            CASE WHEN fleet.fence < tick THEN 'the node' WHEN fleet.fence < node_tick THEN 'the registry'
                ELSE 'the node and that of the registry' END, free_at);
        hint := 'Correct the clock, or wait until it has reached that time.';
    ELSIF wanted IS NOT NULL THEN
        reason := 'taken';
        detail := format('Worker %s is being leased or reserved at this moment.', wanted);
    ELSIF first IS NULL THEN
        reason := 'full';
        detail := 'Every worker is reserved.';
        hint := 'End a reservation with snowflake_registry_unreserve.';
    ELSE
        reason := 'full';
        detail := format('Every worker is leased or reserved, and none comes free before %s.', free_at);
        hint := 'Stop a server that needs no IDs, and retire it with snowflake_registry_retire; or end a reservation '
            'with snowflake_registry_unreserve. A server that is gone leaves its worker free when its lease ends.';
    END IF;
END
$$;

-- The row of a new lease, or null if no group can be leased: its last name's, or one never used, or the one that has
-- been free longest. The group's row is locked.
CREATE FUNCTION snowflake_internal.snowflake_fleet_claim(
    fleet snowflake_internal.snowflake_registry, of_datacenter integer, claimant text, wanted integer, clock timestamptz
) RETURNS snowflake_internal.snowflake_registry_groups
    VOLATILE PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own     snowflake_internal.snowflake_registry_groups;
    latest  bigint;
    missing bigint;
BEGIN
    IF wanted IS NOT NULL THEN
        PERFORM snowflake_internal.snowflake_fleet_add_groups(fleet, of_datacenter, wanted);
        -- Waits for others that claim it, who are then told apart: `refusal` names them. Not if it has a lease: who
        -- keeps the lock could keep its node from a renewal.
        PERFORM FROM snowflake_internal.snowflake_registry_groups g
        WHERE g.datacenter_id = of_datacenter AND g.worker_id = wanted
            AND (g.until IS NULL OR g.until < snowflake_internal.snowflake_fleet_tick(
                clock_timestamp(), fleet.tick_ms, fleet.epoch)) FOR UPDATE;
    END IF;
    LOOP
        -- Both clocks must have passed `until` and the fence.
        latest := snowflake_internal.snowflake_fleet_tick(
            least(clock, clock_timestamp()), fleet.tick_ms, fleet.epoch) - 1;
        IF latest < fleet.fence THEN
            RETURN NULL;
        END IF;
        -- A block without rows; looked for before the rows, because another claim may add it in between.
        SELECT first INTO missing FROM generate_series(0, fleet.homes - 1, 1024) AS first
        WHERE NOT EXISTS (SELECT FROM snowflake_internal.snowflake_registry_groups g
                          WHERE g.datacenter_id = of_datacenter AND g.worker_id = first) LIMIT 1;
        -- What another claim has locked is as good as leased.
        SELECT * INTO own FROM snowflake_internal.snowflake_registry_groups g
        WHERE g.datacenter_id = of_datacenter AND g.note IS NULL AND (g.worker_id = wanted OR wanted IS NULL)
            AND (g.until IS NULL OR g.until <= latest)
        ORDER BY (g.node_name = claimant) IS TRUE DESC,
            CASE WHEN g.node_name = claimant THEN -g.until ELSE g.until END NULLS FIRST, g.worker_id
        LIMIT 1 FOR UPDATE SKIP LOCKED;
        -- Groups that were never used come before others.
        EXIT WHEN missing IS NULL OR wanted IS NOT NULL OR own.node_name = claimant
            OR own.worker_id IS NOT NULL AND own.until IS NULL;
        PERFORM snowflake_internal.snowflake_fleet_add_groups(fleet, of_datacenter, missing::integer);
    END LOOP;
    IF own.worker_id IS NULL THEN
        RETURN NULL;
    ELSIF own.node_id IS NOT NULL THEN
        PERFORM snowflake_internal.snowflake_fleet_end(own, false);
    END IF;
    own.floor := greatest(own.until, fleet.fence);
    RETURN own;
END
$$;

-- What a contact cannot be, whatever the fleet: the caller may be anybody with the role of the nodes.
CREATE FUNCTION snowflake_internal.snowflake_fleet_check_contact(
    nulls integer, lease_nulls integer, node_name text, number bigint, version text, system_identifier numeric,
    clock timestamptz
) RETURNS void
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    refusal snowflake_internal.snowflake_refusal;
BEGIN
    SELECT r.state, r.message, r.detail,
        coalesce(r.hint, 'Install the same version of snowflake_id on the server and the registry.') INTO refusal
    FROM (VALUES
        (pg_is_in_recovery(), '25006', 'cannot contact the registry during recovery',
            'A standby of the registry leases no workers.',
            'Connect with target_session_attrs = read-write, and name all hosts of the registry.'),
        -- An older snapshot would not show what others have committed before a lock was granted.
        (current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted'), '25001',
            'snowflake_registry_contact must run in a READ COMMITTED transaction',
            format('This transaction is %s and may not see the newest rows.',
                upper(current_setting('transaction_isolation'))),
            'Start the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.'),
        (nulls > 0, '22004', 'arguments of snowflake_registry_contact must not be null',
            'Only registry_id, wanted_worker_id and those of a lease can be.', NULL),
        (lease_nulls NOT IN (0, 3), '22004', 'the lease of a contact is incomplete',
            'All of lease_worker_id, lease_floor and lease_until are given, or none.', NULL),
        (length(node_name) NOT BETWEEN 1 AND 255 OR node_name ~ '[\x01-\x1f\x7f]', '22023',
            'node_name must have 1 to 255 characters, and no control characters',
            format('It has %s characters.', length(node_name)), 'Set snowflake_id.node_name on the server.'),
        (length(version) > 64, '22023', 'version must have at most 64 characters',
            format('It has %s characters.', length(version)), NULL),
        (number < 0, '22023', 'number must not be negative', format('The value is %s.', number), NULL),
        (NOT system_identifier BETWEEN 0 AND 18446744073709551615, '22023',
            'system_identifier must have 64 bits', format('It is %s.', left(system_identifier::text, 64)), NULL),
        (NOT isfinite(clock), '22023', 'clock must be finite', format('The value is %s.', clock), NULL)
    ) AS r (is_true, state, message, detail, hint) WHERE r.is_true LIMIT 1;
    PERFORM snowflake_internal.snowflake_refuse(refusal);
END
$$;

-- Why a node does not belong to this fleet, as it is configured, and what to do about it; nulls if it does.
CREATE FUNCTION snowflake_internal.snowflake_fleet_unfit(
    fleet snowflake_internal.snowflake_registry, registry_id uuid, layout text, tick_ms integer, epoch timestamptz,
    backup_workers integer, of_datacenter integer, wanted integer, OUT reason text, OUT detail text, OUT hint text
) STABLE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF registry_id <> fleet.id THEN
        reason := 'registry';
        detail := format('This is registry %s; the node belongs to registry %s.', fleet.id, registry_id);
        hint := 'Name the registry to which this server belongs in snowflake_id.registry, and reload the settings. If '
            'that one is lost, the manual says how its servers move to another.';
    ELSIF layout <> fleet.layout OR tick_ms <> fleet.tick_ms OR epoch <> fleet.epoch
        OR backup_workers <> fleet.backup_workers THEN
        reason := 'layout';
        detail := format('The registry has layout %s, tick %s ms, epoch %s and backup_workers %s; '
            'the node has layout %s, tick %s ms, epoch %s and backup_workers %s.', fleet.layout, fleet.tick_ms,
            fleet.epoch, fleet.backup_workers, left(layout, 64), tick_ms, epoch, backup_workers);
        hint := 'Give snowflake_id.layout, tick, epoch and backup_workers of this server the values of the registry, '
            'and restart the server.';
    ELSIF of_datacenter < 0 OR of_datacenter >= 1::bigint << fleet.datacenter_bits THEN
        reason := 'datacenter';
        detail := format('Layout %s has datacenters 0 to %s; the node has datacenter_id %s.', fleet.layout,
            (1::bigint << fleet.datacenter_bits) - 1, of_datacenter);
        hint := 'Set snowflake_id.datacenter_id on this server to a number in this range, and restart the server.';
    ELSIF wanted < 0 OR wanted >= fleet.homes THEN
        reason := 'worker';
        detail := format('Layout %s with %s backup workers has home workers 0 to %s; the node has worker_id %s.',
            fleet.layout, fleet.backup_workers, fleet.homes - 1, wanted);
        hint := 'Set snowflake_id.worker_id on this server to a number in this range, or remove it so that the registry '
            'chooses one, and restart the server.';
    END IF;
END
$$;

-- Why the node's clock allows no lease, and what to do about it; nulls if it does.
CREATE FUNCTION snowflake_internal.snowflake_fleet_bad_clock(
    fleet snowflake_internal.snowflake_registry, clock timestamptz, here timestamptz, OUT detail text, OUT hint text
) STABLE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- Compared as times first: the distance of two timestamps can be more than an interval holds.
    IF clock > snowflake_internal.snowflake_fleet_time(fleet.grant_ticks, fleet.tick_ms, here) THEN
        detail := format('The clock of the node reads %s, more than one grant ahead of the registry''s, which reads %s.',
            clock, here);
        hint := 'Compare both clocks with the true time, and correct the one that is wrong.';
    ELSIF clock < fleet.epoch THEN
        detail := format('The clock of the node reads %s, before the epoch %s.', clock, fleet.epoch);
        hint := 'Correct the clock of this server.';
    ELSIF clock >= snowflake_internal.snowflake_fleet_time((1::bigint << fleet.time_bits) - 1, fleet.tick_ms, fleet.epoch)
    THEN
        detail := format('The clock of the node reads %s, when layout %s has ended.', clock, fleet.layout);
        hint := 'Correct the clock if it is ahead. Otherwise move the fleet to a layout with more time bits or a coarser '
            'tick.';
    END IF;
END
$$;

-- A contact has come to a registry that may have lost commits, and nobody knows yet. It begins the doubt if it has the
-- same time as the registry: then no lost contact had later clocks, unless both are wrong. Else it returns why not, and
-- nothing is granted or ended: a clock may be wrong for a moment after a failover.
CREATE FUNCTION snowflake_internal.snowflake_fleet_find_out(fleet snowflake_internal.snowflake_registry, clock timestamptz)
    RETURNS text
    VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tolerance constant interval := fleet.tolerance_ticks * fleet.tick_ms * interval '1 ms';
    here      timestamptz;
BEGIN
    FOR with_lock IN 0..1 LOOP
        IF with_lock = 1 THEN
            -- Others may find the same at this moment; who waits here sees what the first has written.
            SELECT * INTO STRICT fleet FROM snowflake_internal.snowflake_registry FOR UPDATE;
            IF NOT snowflake_internal.snowflake_fleet_is_elsewhere(fleet) THEN
                RETURN NULL;
            END IF;
        END IF;
        here := clock_timestamp();
        IF NOT clock BETWEEN here - tolerance AND here + tolerance THEN
            RETURN format('The registry may have lost commits, and waits for a server whose clock differs from its own '
                'by at most %s: the clock of the node reads %s, and the registry''s %s.', tolerance, clock, here);
        END IF;
    END LOOP;
    PERFORM snowflake_internal.snowflake_fleet_doubt(snowflake_internal.snowflake_fleet_tick(
        greatest(clock, here), fleet.tick_ms, fleet.epoch) + fleet.tolerance_ticks);
    RETURN NULL;
END
$$;

-- Whether a node still has the lease that it shows: the locked row of its group, or null if that lease is over. A
-- number is higher than the last one; or it is the last one with its nonce, because the answer was lost.
CREATE FUNCTION snowflake_internal.snowflake_fleet_renew(
    fleet snowflake_internal.snowflake_registry, own snowflake_internal.snowflake_registry_groups, claimant uuid, claimed bigint,
    drawn uuid, shown_floor bigint, shown_until bigint, tick bigint
) RETURNS snowflake_internal.snowflake_registry_groups
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF own.node_id = claimant THEN
        RETURN CASE WHEN own.floor = shown_floor
            AND (claimed > own.number OR (claimed, drawn) = (own.number, own.nonce))
            -- Nobody was granted more, unless the registry has lost it: then the row must learn it, within reason.
            AND shown_until <= greatest(own.until, tick + fleet.grant_ticks + fleet.tolerance_ticks) THEN own END;
    END IF;
    -- In doubt: a lease of which only the node knows, since its commit was lost. Others had the group below its floor.
    IF fleet.fences_before = '{}' OR fleet.fence < tick OR own.node_id IS NOT NULL OR own.note IS NOT NULL
        -- What has ended in the doubt lies below this, and no lost grant above the fence.
        OR shown_until < fleet.fence - fleet.grant_ticks OR shown_until > fleet.fence
        OR shown_until < coalesce(own.until, 0)
        OR shown_floor < 0 OR shown_floor >= shown_until
        OR EXISTS (SELECT FROM snowflake_internal.snowflake_registry_groups g WHERE g.node_id = claimant) THEN
        RETURN NULL;
    END IF;
    DELETE FROM snowflake_internal.snowflake_registry_leases l
    WHERE l.node_id = claimant AND NOT l.is_retired
        AND (l.datacenter_id, l.worker_id, l.floor) = (own.datacenter_id, own.worker_id, shown_floor);
    IF NOT FOUND AND (shown_floor < own.until
        OR EXISTS (SELECT FROM snowflake_internal.snowflake_registry_leases l WHERE l.node_id = claimant)) THEN
        RETURN NULL;
    END IF;
    own.floor := shown_floor;
    RETURN own;
END
$$;

-- The row of the group that a contact is about, locked: of the lease that it shows, or of this node's own.
CREATE FUNCTION snowflake_internal.snowflake_fleet_lock(
    fleet snowflake_internal.snowflake_registry, asked snowflake_internal.snowflake_registry_groups
) RETURNS snowflake_internal.snowflake_registry_groups
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own snowflake_internal.snowflake_registry_groups;
BEGIN
    IF asked.worker_id IS NULL THEN
        -- The same claim twice at once: the second gets the first one's answer.
        PERFORM pg_advisory_xact_lock(hashtextextended(asked.node_id::text, 0));
        SELECT * INTO own FROM snowflake_internal.snowflake_registry_groups g WHERE g.node_id = asked.node_id FOR UPDATE;
        RETURN own;
    END IF;
    -- Not locked, if it is another node's: who keeps the lock could keep that node from its renewal.
    SELECT * INTO own FROM snowflake_internal.snowflake_registry_groups g
    WHERE g.datacenter_id = asked.datacenter_id AND g.worker_id = asked.worker_id;
    IF own.node_id <> asked.node_id THEN
        RETURN own;
    END IF;
    SELECT * INTO own FROM snowflake_internal.snowflake_registry_groups g
    WHERE g.datacenter_id = asked.datacenter_id AND g.worker_id = asked.worker_id FOR UPDATE;
    -- In doubt, the row itself may be lost.
    IF own.worker_id IS NULL AND fleet.fences_before <> '{}' AND asked.worker_id BETWEEN 0 AND fleet.homes - 1
        AND snowflake_internal.snowflake_fleet_add_groups(fleet, asked.datacenter_id, asked.worker_id) >= 0 THEN
        RETURN snowflake_internal.snowflake_fleet_lock(fleet, asked);
    END IF;
    RETURN own;
END
$$;

-- The answer to a node that fits the fleet. `asked` is what it sent, as far as a group's row has it; last_contact_at is
-- its clock.
CREATE FUNCTION snowflake_internal.snowflake_fleet_answer(
    fleet snowflake_internal.snowflake_registry, asked snowflake_internal.snowflake_registry_groups, wanted integer,
    OUT answer text, OUT leased snowflake_internal.snowflake_registry_groups, OUT here timestamptz, OUT reason text,
    OUT detail text, OUT hint text, OUT free_at timestamptz
) VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    clock     constant timestamptz := asked.last_contact_at;
    own       constant snowflake_internal.snowflake_registry_groups := snowflake_internal.snowflake_fleet_lock(fleet, asked);
    node_tick bigint;
    tick      bigint;
BEGIN
    answer := 'refused';
    -- Only now, because a lock may have been waited for.
    here := clock_timestamp();
    SELECT c.detail, c.hint INTO detail, hint
    FROM snowflake_internal.snowflake_fleet_bad_clock(fleet, clock, here) AS c;
    IF detail IS NOT NULL THEN
        reason := 'clock';
        RETURN;
    END IF;
    tick := snowflake_internal.snowflake_fleet_tick(here, fleet.tick_ms, fleet.epoch);
    node_tick := snowflake_internal.snowflake_fleet_tick(clock, fleet.tick_ms, fleet.epoch);

    IF asked.worker_id IS NOT NULL THEN
        IF asked.worker_id = coalesce(wanted, asked.worker_id) THEN
            leased := snowflake_internal.snowflake_fleet_renew(
                fleet, own, asked.node_id, asked.number, asked.nonce, asked.floor, asked.until, tick);
        END IF;
    ELSIF own.node_id IS NOT NULL THEN
        -- The claim is asked again, or this is another copy of the node.
        IF (own.number, own.nonce, own.datacenter_id, own.worker_id)
            = (asked.number, asked.nonce, asked.datacenter_id, coalesce(wanted, own.worker_id)) THEN
            leased := own;
        END IF;
    ELSIF NOT EXISTS (SELECT FROM snowflake_internal.snowflake_registry_leases l WHERE l.node_id = asked.node_id) THEN
        leased := snowflake_internal.snowflake_fleet_claim(fleet, asked.datacenter_id, asked.node_name, wanted, clock);
        IF leased.worker_id IS NULL THEN
            SELECT r.* INTO reason, detail, hint, free_at FROM snowflake_internal.snowflake_fleet_refusal(
                fleet, asked.datacenter_id, asked.node_name, wanted, node_tick, tick) AS r;
            RETURN;
        END IF;
    END IF;
    IF leased.worker_id IS NULL THEN
        answer := 'over';
        hint := CASE WHEN own.node_id = asked.node_id AND own.worker_id = coalesce(wanted, own.worker_id)
            THEN 'If a copy of the data directory of this server runs elsewhere, stop one of them.' END;
        detail := CASE
            WHEN own.node_id = asked.node_id AND own.worker_id <> wanted
            THEN format('The node has worker %s, and asks for worker %s now.', own.worker_id, wanted)
            WHEN own.node_id = asked.node_id
            THEN format('Contact %s has renewed the lease of worker %s: a copy of this node may be running.',
                own.number, own.worker_id)
            WHEN own.node_id IS NOT NULL THEN format('Worker %s is leased to node "%s".', own.worker_id, own.node_name)
            ELSE 'The registry has no lease of this node.' END;
        RETURN;
    END IF;
    answer := 'granted';
    UPDATE snowflake_internal.snowflake_registry_groups g
    SET node_id = asked.node_id, node_name = asked.node_name, floor = leased.floor, number = asked.number,
        nonce = asked.nonce, until = greatest(leased.until, asked.until,
            least(node_tick + fleet.grant_ticks, tick + fleet.grant_ticks, (1::bigint << fleet.time_bits) - 1)),
        last_contact_at = here, clock_offset_ms = extract(epoch FROM clock - here) * 1000,
        in_recovery = asked.in_recovery, address = asked.address, version = asked.version,
        system_identifier = asked.system_identifier
    WHERE g.datacenter_id = leased.datacenter_id AND g.worker_id = leased.worker_id
        -- This sees a restore if any query above has seen what it brought back.
        AND EXISTS (SELECT FROM snowflake_internal.snowflake_registry r
            WHERE r = fleet AND snowflake_internal.snowflake_fleet_trigger_steps() IS NULL)
    RETURNING g.* INTO leased;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'serialization_failure',
            MESSAGE = 'cannot lease a worker: rows of the registry were restored meanwhile',
            DETAIL = 'The restored rows may be older than those on which this lease depends.',
            HINT = 'Repeat the contact, as servers do.';
    END IF;
END
$$;

CREATE FUNCTION @extschema@.snowflake_registry_contact(
    registry_id uuid, node_id uuid, node_name text, number bigint, nonce uuid,
    lease_worker_id integer, lease_floor bigint, lease_until bigint, clock timestamptz,
    layout text, tick_ms integer, epoch timestamptz, backup_workers integer, datacenter_id integer,
    wanted_worker_id integer, in_recovery boolean, version text, system_identifier numeric,
    OUT answer text, OUT registry uuid, OUT worker_id integer, OUT floor bigint, OUT until bigint,
    OUT registry_clock timestamptz, OUT reason text, OUT detail text, OUT hint text, OUT free_at timestamptz
)
    -- A session that keeps a lock delays others by no more than this.
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE SECURITY DEFINER LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp SET lock_timeout = '5s'
AS $$
DECLARE
    fleet snowflake_internal.snowflake_registry;
BEGIN
    PERFORM snowflake_internal.snowflake_fleet_place();
    -- Before any query: each copies all of a text that it names, and this caller may be anybody who got in.
    IF greatest(octet_length(node_name), octet_length(layout), octet_length(version)) > 1020 THEN
        RAISE EXCEPTION USING
            ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'a text of a contact must not have more than 1020 bytes',
            DETAIL = format('The arguments have these lengths: node_name %s, layout %s, version %s.',
                octet_length(node_name), octet_length(layout), octet_length(version)),
            HINT = 'Install the same version of snowflake_id on the server and the registry.';
    END IF;
    PERFORM snowflake_internal.snowflake_fleet_check_contact(
        num_nulls(node_id, node_name, number, nonce, clock, layout, tick_ms, epoch, backup_workers, datacenter_id,
            in_recovery, version, system_identifier),
        num_nulls(lease_worker_id, lease_floor, lease_until), node_name, number, version, system_identifier, clock);
    PERFORM snowflake_internal.snowflake_fleet_commit_durably(interval '10 s');
    fleet := snowflake_internal.snowflake_fleet_current();
    registry := fleet.id;
    registry_clock := clock_timestamp();
    SELECT u.reason, u.detail, u.hint INTO reason, detail, hint FROM snowflake_internal.snowflake_fleet_unfit(
        fleet, registry_id, layout, tick_ms, epoch, backup_workers, datacenter_id, wanted_worker_id) AS u;
    IF reason IS NOT NULL THEN
        answer := 'refused';
        RETURN;
    END IF;
    IF snowflake_internal.snowflake_fleet_is_elsewhere(fleet) THEN
        detail := snowflake_internal.snowflake_fleet_find_out(fleet, clock);
        IF detail IS NOT NULL THEN
            answer := 'refused';
            reason := 'clock';
            hint := 'Compare both clocks with the true time, and correct the one that is wrong. If no commit was lost, '
                'call snowflake_registry_vouch in the registry.';
            RETURN;
        END IF;
        fleet := snowflake_internal.snowflake_fleet_current();
    END IF;
    -- What is leased is null unless it is granted.
    SELECT a.answer, a.here, (a.leased).worker_id, (a.leased).floor, (a.leased).until, a.reason, a.detail, a.hint, a.free_at
    INTO answer, registry_clock, worker_id, floor, until, reason, detail, hint, free_at
    FROM snowflake_internal.snowflake_fleet_answer(fleet, ROW(datacenter_id, lease_worker_id, NULL, node_id, node_name,
        lease_floor, lease_until, number, nonce, clock, NULL, in_recovery, inet_client_addr(), version,
        system_identifier)::snowflake_internal.snowflake_registry_groups, wanted_worker_id) AS a;
END
$$;

REVOKE ALL ON FUNCTION
    @extschema@.snowflake_registry_create(regrole, interval, text, interval, timestamptz, integer, interval, boolean),
    @extschema@.snowflake_registry_reserve(integer, text), @extschema@.snowflake_registry_unreserve(integer),
    @extschema@.snowflake_registry_retire(text), @extschema@.snowflake_registry_vouch(timestamptz),
    @extschema@.snowflake_origin(bigint),
    @extschema@.snowflake_registry_contact(uuid, uuid, text, bigint, uuid, integer, bigint, bigint, timestamptz, text,
        integer, timestamptz, integer, integer, integer, boolean, text, numeric)
    FROM PUBLIC;

COMMENT ON TABLE snowflake_internal.snowflake_registry IS 'the fleet whose registry this database is; at most one row';
COMMENT ON TABLE snowflake_internal.snowflake_registry_groups IS
    'the workers of the fleet, one row per home worker: who has a lease, or why it is reserved';
COMMENT ON TABLE snowflake_internal.snowflake_registry_leases IS 'the leases of the fleet that have ended, one row per lease';
COMMENT ON VIEW @extschema@.snowflake_fleet IS 'the servers that have workers from this registry, one row per lease';
COMMENT ON VIEW @extschema@.snowflake_fleet_capacity IS
    'how many home workers the fleet has, how many are free, and when a registry in doubt leases them; one row per '
    'datacenter in use';
COMMENT ON FUNCTION @extschema@.snowflake_origin(bigint) IS
    'returns the server that had the worker of an ID when the ID was generated; no row if there was none';
COMMENT ON FUNCTION
    @extschema@.snowflake_registry_create(regrole, interval, text, interval, timestamptz, integer, interval, boolean) IS
    'makes this database the registry of a fleet, and lets a role contact it';
COMMENT ON FUNCTION @extschema@.snowflake_registry_reserve(integer, text) IS
    'keeps a worker for a server that does not use the registry';
COMMENT ON FUNCTION @extschema@.snowflake_registry_unreserve(integer) IS
    'ends a reservation, and returns when the registry can lease the worker';
COMMENT ON FUNCTION @extschema@.snowflake_registry_retire(text) IS
    'ends the leases of a server, and returns when the registry can lease its workers again';
COMMENT ON FUNCTION @extschema@.snowflake_registry_vouch(timestamptz) IS
    'asserts that a failover or restore of the registry lost no commit, or none after a time';
COMMENT ON FUNCTION
    @extschema@.snowflake_registry_contact(uuid, uuid, text, bigint, uuid, integer, bigint, bigint, timestamptz, text,
        integer, timestamptz, integer, integer, integer, boolean, text, numeric) IS
    'claims or renews the lease of a worker; servers call it';

-- As CREATE EXTENSION has set it, for what follows.
SET LOCAL search_path = @extschema@, pg_temp;
