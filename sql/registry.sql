-- The registry of a fleet: tables, what operators call, and what they look at. registry_nodes.sql has what nodes call.
--
-- Floors, fences and `until` are ticks of the fleet's layout: places among IDs, whatever any clock says. A lease allows
-- the ticks above its floor, up to its `until`.

-- Bodies and checks are bound when they are created. So that nothing that others have created in the extension's schema
-- is taken for an operator or a function of PostgreSQL, that schema is not searched meanwhile.
SET LOCAL search_path = pg_catalog, pg_temp;

CREATE TABLE snowflake_internal.snowflake_registry (
    is_only           boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    id                uuid NOT NULL,
    layout            text NOT NULL,
    tick_ms           integer NOT NULL,
    epoch             timestamptz NOT NULL,
    backup_workers    integer NOT NULL,
    time_bits         integer NOT NULL,
    datacenter_bits   integer NOT NULL,
    worker_bits       integer NOT NULL,
    sequence_bits     integer NOT NULL,
    -- How many home workers a datacenter has.
    homes             bigint NOT NULL,
    grant_ticks       bigint NOT NULL,
    -- The difference of two clocks that the fleet tolerates.
    tolerance_ticks   bigint NOT NULL,
    -- No group is handed out before both clocks have passed this tick.
    fence             bigint NOT NULL,
    -- What it was before each time that commits may have been lost, of which nobody has said that they were not. So
    -- without any, the fence is that of the registry's creation. No clock ends one of these, because it may be wrong.
    fences_before     bigint[] NOT NULL DEFAULT '{}',
    -- Where this row was written. After a promotion or a recovery the timeline is another one, in another cluster the
    -- identifier, in a base backup or another copy of the files the control file, in a copy of the database its OID; the
    -- identifier is 0 once rows of the registry were restored. Then commits may have been lost.
    timeline          bigint NOT NULL,
    system_identifier bigint NOT NULL,
    control_file      text NOT NULL,
    database          oid NOT NULL,
    -- The place of which an operator who wanted to vouch was told that commits may have been lost.
    told              text
);

-- One row per group: a home worker with its lanes. A block of rows is inserted when the first of them is needed.
CREATE TABLE snowflake_internal.snowflake_registry_groups (
    datacenter_id     integer NOT NULL,
    worker_id         integer NOT NULL,
    -- Why an operator has reserved it; null: nobody has.
    note              text,
    -- Null: no lease, or one that has ended. A node has one lease in its life.
    node_id           uuid UNIQUE,
    -- The last node that had it, for its next life.
    node_name         text,
    floor             bigint,
    -- The greatest that was ever granted; null: none.
    until             bigint,
    -- Of the last contact.
    number            bigint,
    nonce             uuid,
    last_contact_at   timestamptz,
    clock_offset_ms   bigint,
    in_recovery       boolean,
    address           inet,
    version           text,
    system_identifier numeric,
    PRIMARY KEY (datacenter_id, worker_id),
    CHECK (node_id IS NULL OR note IS NULL AND node_name IS NOT NULL AND floor IS NOT NULL AND until IS NOT NULL
        AND number IS NOT NULL AND nonce IS NOT NULL)
) WITH (fillfactor = 50); -- A renewal changes no indexed column, so with room on its page it writes no index.

-- One row per lease that has ended.
CREATE TABLE snowflake_internal.snowflake_registry_leases (
    node_id       uuid PRIMARY KEY,
    node_name     text NOT NULL,
    datacenter_id integer NOT NULL,
    worker_id     integer NOT NULL,
    floor         bigint NOT NULL,
    until         bigint NOT NULL,
    -- An operator ended it: a registry in doubt does not take it back.
    is_retired    boolean NOT NULL
);
CREATE INDEX snowflake_registry_leases_until
    ON snowflake_internal.snowflake_registry_leases (datacenter_id, worker_id, until);

-- Rows can be restored from a dump, also one table at a time and while servers contact the registry, or be applied by a
-- subscription. How they come does not matter: the functions of the registry insert no group with an `until`, and lower
-- or delete no `until`. Any other change that does brings older rows back, so the registry's row was written nowhere.
CREATE FUNCTION snowflake_internal.snowflake_fleet_check() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_RELID = 'snowflake_internal.snowflake_registry'::regclass THEN
        NEW.system_identifier := 0;
        NEW.told := NULL;
    ELSIF TG_OP = 'TRUNCATE' OR TG_OP = 'INSERT' AND NEW.until IS NOT NULL OR OLD.until > coalesce(NEW.until, -1) THEN
        -- Who finds this out waits for the lock, and then sees all that this transaction has restored.
        PERFORM FROM snowflake_internal.snowflake_registry FOR UPDATE;
        UPDATE snowflake_internal.snowflake_registry r SET system_identifier = 0, told = NULL
        WHERE r.system_identifier <> 0 OR r.told IS NOT NULL;
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END
$$;
-- Triggers fire in the order of their names: first the guard decides who may change a row.
CREATE TRIGGER snowflake_fleet_source BEFORE INSERT ON snowflake_internal.snowflake_registry
    FOR EACH ROW EXECUTE FUNCTION snowflake_internal.snowflake_fleet_check();
CREATE TRIGGER snowflake_fleet_source BEFORE INSERT OR UPDATE OR DELETE ON snowflake_internal.snowflake_registry_groups
    FOR EACH ROW EXECUTE FUNCTION snowflake_internal.snowflake_fleet_check();
CREATE TRIGGER snowflake_fleet_source_of_all BEFORE TRUNCATE ON snowflake_internal.snowflake_registry_groups
    EXECUTE FUNCTION snowflake_internal.snowflake_fleet_check();

-- The members of pg_write_all_data may change the rows of any table. These say who may generate which IDs, so only the
-- owner changes them, or a function with the owner's rights. Logical replication, which a subscription may apply with the
-- rights of such a member, fires the triggers for rows alone.
CREATE FUNCTION snowflake_internal.snowflake_fleet_guard() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT pg_has_role((SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE') THEN
        RAISE EXCEPTION USING
            ERRCODE = 'insufficient_privilege',
            MESSAGE = format('must be owner of table %s to change its rows', TG_TABLE_NAME),
            DETAIL = 'The rows of the registry say which server may generate which IDs.',
            HINT = 'Call the functions of the registry, or ask the owner of the extension.';
    END IF;
    RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
END
$$;
CREATE TRIGGER snowflake_fleet_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON snowflake_internal.snowflake_registry
    EXECUTE FUNCTION snowflake_internal.snowflake_fleet_guard();
CREATE TRIGGER snowflake_fleet_guard
    BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON snowflake_internal.snowflake_registry_groups
    EXECUTE FUNCTION snowflake_internal.snowflake_fleet_guard();
CREATE TRIGGER snowflake_fleet_guard
    BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON snowflake_internal.snowflake_registry_leases
    EXECUTE FUNCTION snowflake_internal.snowflake_fleet_guard();
CREATE TRIGGER snowflake_fleet_row_guard BEFORE INSERT OR UPDATE OR DELETE ON snowflake_internal.snowflake_registry
    FOR EACH ROW EXECUTE FUNCTION snowflake_internal.snowflake_fleet_guard();
CREATE TRIGGER snowflake_fleet_row_guard BEFORE INSERT OR UPDATE OR DELETE ON snowflake_internal.snowflake_registry_groups
    FOR EACH ROW EXECUTE FUNCTION snowflake_internal.snowflake_fleet_guard();
CREATE TRIGGER snowflake_fleet_row_guard BEFORE INSERT OR UPDATE OR DELETE ON snowflake_internal.snowflake_registry_leases
    FOR EACH ROW EXECUTE FUNCTION snowflake_internal.snowflake_fleet_guard();

-- The statements after which all these triggers fire ALWAYS: the setting that turns others off can be granted, and
-- replication has it. Null: they do. A restore with --disable-triggers leaves them to fire as others do.
CREATE FUNCTION snowflake_internal.snowflake_fleet_trigger_steps() RETURNS text
    STABLE PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        SELECT string_agg(format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', t.tgrelid::regclass, t.tgname), '; ')
        FROM pg_trigger t
        WHERE t.tgrelid IN ('snowflake_internal.snowflake_registry'::regclass,
                'snowflake_internal.snowflake_registry_groups'::regclass,
                'snowflake_internal.snowflake_registry_leases'::regclass)
            AND starts_with(t.tgname, 'snowflake_fleet_') AND t.tgenabled <> 'A');
END
$$;
DO $$
BEGIN
    EXECUTE snowflake_internal.snowflake_fleet_trigger_steps();
END
$$;

-- A dump keeps them.
SELECT pg_extension_config_dump('snowflake_internal.snowflake_registry', '');
SELECT pg_extension_config_dump('snowflake_internal.snowflake_registry_groups', '');
SELECT pg_extension_config_dump('snowflake_internal.snowflake_registry_leases', '');

-- ---------------------------------------------------------------- ticks and times

CREATE FUNCTION snowflake_internal.snowflake_fleet_tick(at timestamptz, tick_ms integer, epoch timestamptz) RETURNS bigint
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql
    RETURN floor(extract(epoch FROM at - epoch) * 1000 / tick_ms)::bigint;

-- Not STRICT, so that the planner inlines it.
CREATE FUNCTION snowflake_internal.snowflake_fleet_time(tick bigint, tick_ms integer, epoch timestamptz) RETURNS timestamptz
    STABLE PARALLEL SAFE LANGUAGE sql
    RETURN epoch + (tick * tick_ms)::double precision * interval '1 ms';

-- ---------------------------------------------------------------- what has become of the registry

-- Where the registry's row would be written now.
CREATE FUNCTION snowflake_internal.snowflake_fleet_here(
    OUT timeline bigint, OUT system_identifier bigint, OUT control_file text, OUT database oid
)
    VOLATILE PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- The control file may still have the old timeline after a promotion, so it is that of the WAL.
    timeline := ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
    system_identifier := (pg_control_system()).system_identifier;
    control_file := snowflake_internal.snowflake_fleet_control_file();
    SELECT d.oid INTO STRICT database FROM pg_database d WHERE d.datname = current_database();
END
$$;

-- The registry's row.
CREATE FUNCTION snowflake_internal.snowflake_fleet_current() RETURNS snowflake_internal.snowflake_registry
    VOLATILE PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
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

-- Whether this row was written elsewhere, so that commits may have been lost, and nobody has found out yet.
CREATE FUNCTION snowflake_internal.snowflake_fleet_is_elsewhere(registry snowflake_internal.snowflake_registry) RETURNS boolean
    VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (registry.timeline, registry.system_identifier, registry.control_file, registry.database)
        <> snowflake_internal.snowflake_fleet_here() OR snowflake_internal.snowflake_fleet_trigger_steps() IS NOT NULL;
END
$$;

-- From now on the registry, whose row the caller has locked, is where it is. Who may read it is only set right if that
-- is wrong, and nothing fails for it: an event trigger may refuse every GRANT and REVOKE.
CREATE FUNCTION snowflake_internal.snowflake_fleet_settle() RETURNS void
    VOLATILE PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    steps constant text := snowflake_internal.snowflake_fleet_trigger_steps();
BEGIN
    -- This may fail: without the triggers, the next restore would go unnoticed.
    IF steps IS NOT NULL THEN
        EXECUTE steps;
    END IF;
    UPDATE snowflake_internal.snowflake_registry r
    SET (timeline, system_identifier, control_file, database) = (SELECT * FROM snowflake_internal.snowflake_fleet_here()),
        told = NULL;
    -- The restore may have left out privileges.
    IF has_table_privilege('public', 'snowflake_internal.snowflake_registry'::regclass, 'SELECT')
        OR has_table_privilege('public', 'snowflake_internal.snowflake_registry_groups'::regclass, 'SELECT')
        OR has_table_privilege('public', 'snowflake_internal.snowflake_registry_leases'::regclass, 'SELECT') THEN
        BEGIN
            REVOKE SELECT ON snowflake_internal.snowflake_registry, snowflake_internal.snowflake_registry_groups,
                snowflake_internal.snowflake_registry_leases FROM PUBLIC;
        EXCEPTION WHEN OTHERS THEN
            RAISE LOG 'snowflake_id: every role can read the tables of the registry'
                USING DETAIL = format('The privileges could not be revoked: %s.', SQLERRM),
                    HINT = 'Revoke SELECT on snowflake_registry, snowflake_registry_groups and '
                        'snowflake_registry_leases from PUBLIC.';
        END;
    END IF;
END
$$;

-- Commits may have been lost, but none for which both clocks had passed `since`: begins a doubt. The caller has locked
-- the registry's row.
CREATE FUNCTION snowflake_internal.snowflake_fleet_doubt(since bigint) RETURNS void
    VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    registry snowflake_internal.snowflake_registry;
BEGIN
    PERFORM snowflake_internal.snowflake_fleet_settle();
    -- No lost grant reaches further than one grant beyond the earlier of the two clocks.
    UPDATE snowflake_internal.snowflake_registry r
    SET fence = greatest(r.fence, since + r.grant_ticks), fences_before = r.fences_before || r.fence
    RETURNING * INTO STRICT registry;
    -- Their groups may have gone to others, who show up with leases that no row knows.
    PERFORM snowflake_internal.snowflake_fleet_end(g, false) FROM snowflake_internal.snowflake_registry_groups g
    WHERE g.node_id IS NOT NULL AND g.until < since;
    RAISE LOG 'snowflake_id: the registry may have lost commits in a failover or restore'
        USING DETAIL = format('It leases no worker before %s, and renews leases meanwhile.',
                snowflake_internal.snowflake_fleet_time(registry.fence + 1, registry.tick_ms, registry.epoch)),
            HINT = 'If no commit was lost, or none after a time that you know, call snowflake_registry_vouch.';
END
$$;

-- Ends the lease of a group whose row the caller has locked: it becomes a row of the history, and nobody has the group.
-- Its `until` stays.
CREATE FUNCTION snowflake_internal.snowflake_fleet_end(ended snowflake_internal.snowflake_registry_groups, by_operator boolean)
    RETURNS void
    VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO snowflake_internal.snowflake_registry_leases AS l (
        node_id, node_name, datacenter_id, worker_id, floor, until, is_retired)
    VALUES (ended.node_id, ended.node_name, ended.datacenter_id, ended.worker_id, ended.floor, ended.until,
        by_operator)
    -- It has ended before, and a restore has brought it back.
    ON CONFLICT (node_id) DO UPDATE
    SET until = greatest(l.until, excluded.until), is_retired = l.is_retired OR by_operator;
    UPDATE snowflake_internal.snowflake_registry_groups g
    SET node_id = NULL, floor = NULL, number = NULL, nonce = NULL
    WHERE g.datacenter_id = ended.datacenter_id AND g.worker_id = ended.worker_id;
END
$$;

-- Inserts the rows of the block that has this group; returns how many were missing. Two sessions that insert one block
-- wait for each other at its first row.
CREATE FUNCTION snowflake_internal.snowflake_fleet_add_groups(
    registry snowflake_internal.snowflake_registry, of_datacenter integer, first_worker integer
) RETURNS bigint
    VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    added bigint;
BEGIN
    INSERT INTO snowflake_internal.snowflake_registry_groups (datacenter_id, worker_id)
    SELECT of_datacenter, worker FROM generate_series(
        first_worker / 1024 * 1024::bigint,
        least(first_worker / 1024 * 1024::bigint + 1024, registry.homes) - 1) AS worker
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS added = ROW_COUNT;
    RETURN added;
END
$$;

-- ---------------------------------------------------------------- operators

-- The extension, and the schema in which nodes and operators find its functions. The owner of that schema could rename
-- it at any moment, and put functions of his own in their place.
CREATE FUNCTION snowflake_internal.snowflake_fleet_place(OUT extension oid, OUT schema regnamespace)
    STABLE PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    place record;
BEGIN
    SELECT e.oid AS extension, e.extnamespace::regnamespace AS schema, r.rolname AS owner, r.rolsuper AS is_superusers
    INTO STRICT place
    FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
    JOIN pg_roles r ON r.oid = CASE n.nspowner WHEN 'pg_database_owner'::regrole
        THEN (SELECT datdba FROM pg_database WHERE datname = current_database()) ELSE n.nspowner END
    WHERE e.extname = 'snowflake_id';
    IF NOT place.is_superusers THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = format('schema %s of the registry is not owned by a superuser', place.schema),
            DETAIL = format('The owner is %s, and the registry trusts the owner of its schema with all servers.',
                place.owner),
            -- Without these rows, the workers of servers that run would be leased to others.
            HINT = CASE WHEN EXISTS (SELECT FROM snowflake_internal.snowflake_registry)
                THEN 'Keep the extension, whose tables have the leases of all servers. Drop what its schema has of other '
                    'roles, which a superuser could run, and give the schema, or with schema public the database, to '
                    'a superuser.'
                ELSE 'Drop the extension and create it in a schema of a superuser. Do not give this schema to one: its '
                    'owner may have put functions there that a superuser would run.' END;
    END IF;
    extension := place.extension;
    schema := place.schema;
END
$$;

CREATE FUNCTION @extschema@.snowflake_registry_create(
    node_role regrole, grant_length interval DEFAULT '1 hour', layout text DEFAULT '41/10/12',
    tick interval DEFAULT '1 ms', epoch timestamptz DEFAULT '2024-01-01 00:00:00+00', backup_workers integer DEFAULT 3,
    clock_tolerance interval DEFAULT '1 min', replaces_lost boolean DEFAULT false
) RETURNS void
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    place   record;
    parsed  record;
    others  text;
    rights  text;
    refusal snowflake_internal.snowflake_refusal;
    tick_ms integer := CASE WHEN tick BETWEEN interval '0' AND interval '1 s' THEN extract(epoch FROM tick) * 1000 END;
BEGIN
    SELECT * INTO STRICT place FROM snowflake_internal.snowflake_fleet_place();
    SELECT left(string_agg(format('%s of %s', a.privilege_type, o.described)
            || format(' by %s', CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END), ', '
            ORDER BY o.described, a.privilege_type, a.grantee), 500)
    INTO rights
    FROM pg_depend d, LATERAL (
        SELECT format('table %s', c.relname), c.relowner, c.relacl FROM pg_class c
        WHERE d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind = 'r'
        UNION ALL
        SELECT format('function %s', f.proname), f.proowner, coalesce(f.proacl, acldefault('f', f.proowner))
        FROM pg_proc f
        WHERE d.classid = 'pg_proc'::regclass AND f.oid = d.objid
            AND (starts_with(f.proname, 'snowflake_fleet_') OR starts_with(f.proname, 'snowflake_registry_'))
            -- Others may be let in before.
            AND f.proname <> 'snowflake_registry_contact'
    ) AS o (described, owner, acl), aclexplode(o.acl) AS a
    WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = place.extension AND d.deptype = 'e'
        AND a.grantee <> o.owner
        AND NOT (a.privilege_type = 'SELECT' AND (a.grantee = 0 OR o.described = 'table snowflake_config'))
        AND NOT (o.described IN ('function snowflake_fleet_time', 'function snowflake_fleet_free_from')
            AND a.grantee = 'pg_monitor'::regrole);
    SELECT string_agg(coalesce(quote_ident(r.rolname), 'PUBLIC'), ', ' ORDER BY r.rolname) INTO others
    FROM pg_namespace n, aclexplode(n.nspacl) AS a LEFT JOIN pg_roles r ON r.oid = a.grantee
    WHERE n.oid IN (place.schema, 'snowflake_internal'::regnamespace) AND a.privilege_type = 'CREATE'
        AND r.rolsuper IS NOT TRUE AND a.grantee NOT IN (n.nspowner, 'pg_database_owner'::regrole);
    SELECT r.state, r.message, r.detail, r.hint INTO refusal FROM (VALUES
        (others IS NOT NULL, '55000', format('other roles have CREATE on schema %s of the registry', place.schema),
            format('They are: %s.', others),
            'Revoke it: a function with a name of the extension''s would stop the registry.'),
        (num_nulls(node_role, grant_length, layout, tick, epoch, backup_workers, clock_tolerance, replaces_lost) > 0,
            '22004', 'arguments of snowflake_registry_create must not be null', 'Each argument decides what nodes are granted.',
            'Leave out an argument to use its default.'),
        (EXISTS (SELECT FROM snowflake_internal.snowflake_registry), '55000', 'this database is a snowflake registry already',
            'A database can be the registry of one fleet.',
            'Grant EXECUTE on snowflake_registry_contact, and USAGE on its schema, to let another role in.'),
        -- Rights that somebody has granted since the installation, by name or by default.
        (rights IS NOT NULL, '55000', 'other roles have rights on the objects of the registry',
            format('With these rights they could change which server may generate which IDs: %s.', rights),
            'Revoke them, and call snowflake_registry_create again.'),
        (NOT grant_length BETWEEN interval '2 seconds' AND interval '30 days', '22023',
            'grant_length must be between 2 seconds and 30 days', format('grant_length is %s.', grant_length),
            'Use 1 hour, unless servers can reach the registry only at times.'),
        -- A contact is some time on its way.
        (NOT clock_tolerance BETWEEN interval '1 second' AND grant_length / 2, '22023',
            'clock_tolerance must be between 1 second and half of grant_length',
            format('clock_tolerance is %s, and grant_length is %s.', clock_tolerance, grant_length),
            'Use the greatest difference between the clocks of two servers.'),
        (NOT backup_workers BETWEEN 0 AND 15, '22023', 'backup_workers must be between 0 and 15',
            format('backup_workers is %s.', backup_workers), 'Use snowflake_id.backup_workers of the servers.'),
        (tick IS DISTINCT FROM tick_ms * interval '1 ms' OR tick_ms NOT IN (1, 10, 1000), '22023',
            'tick must be 1 ms, 10 ms or 1 s', format('The value is %s.', tick),
            'Use snowflake_id.tick of the servers.'),
        (NOT epoch BETWEEN timestamptz '0001-01-01 00:00:00+00' AND clock_timestamp(), '22023',
            'epoch must be between the year 1 and now', format('The value is %s.', epoch),
            'Use snowflake_id.epoch of the servers, and check the clock.')
    ) AS r (is_true, state, message, detail, hint) WHERE r.is_true LIMIT 1;
    PERFORM snowflake_internal.snowflake_refuse(refusal);
    PERFORM snowflake_internal.snowflake_fleet_commit_durably(interval '1 min');
    SELECT * INTO STRICT parsed FROM snowflake_internal.snowflake_fleet_layout(layout, tick_ms, backup_workers);
    -- The fence: whichever servers had these workers before, their IDs lie below this moment.
    INSERT INTO snowflake_internal.snowflake_registry (
        id, layout, tick_ms, epoch, backup_workers, time_bits, datacenter_bits, worker_bits, sequence_bits, homes,
        grant_ticks, tolerance_ticks, fence, timeline, system_identifier, control_file, database)
    SELECT gen_random_uuid(), parsed.bits, tick_ms, epoch, backup_workers, parsed.time_bits, parsed.datacenter_bits,
        parsed.worker_bits, parsed.sequence_bits, (1::bigint << parsed.worker_bits) / (backup_workers + 1),
        ceil(extract(epoch FROM grant_length) * 1000 / tick_ms)::bigint,
        ceil(extract(epoch FROM clock_tolerance) * 1000 / tick_ms)::bigint,
        snowflake_internal.snowflake_fleet_tick(clock_timestamp(), tick_ms, epoch), 0, 0, '', 0;
    -- Else it is as if it had been restored without its last commits. Groups that are there were restored before it.
    UPDATE snowflake_internal.snowflake_registry r
    SET (timeline, system_identifier, control_file, database) = (SELECT * FROM snowflake_internal.snowflake_fleet_here())
    WHERE NOT replaces_lost AND NOT EXISTS (SELECT FROM snowflake_internal.snowflake_registry_groups);
    -- Here it is told if that fails.
    REVOKE SELECT ON snowflake_internal.snowflake_registry, snowflake_internal.snowflake_registry_groups,
        snowflake_internal.snowflake_registry_leases FROM PUBLIC;
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s', (
        SELECT f.oid::regprocedure FROM pg_depend d JOIN pg_proc f ON f.oid = d.objid
        WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = place.extension AND d.deptype = 'e'
            AND d.classid = 'pg_proc'::regclass AND f.proname = 'snowflake_registry_contact'), node_role);
    IF NOT has_schema_privilege(node_role, place.schema::oid, 'USAGE') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %s TO %s', place.schema, node_role);
    END IF;
END
$$;

-- What an operator says of the last time that commits may have been lost: none was, or none after `dead_since` by the
-- clock of the registry that committed it.
CREATE FUNCTION snowflake_internal.snowflake_fleet_vouch(dead_since timestamptz) RETURNS void
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    registry snowflake_internal.snowflake_registry;
    here     text := snowflake_internal.snowflake_fleet_here()::text;
    tick     bigint;
    since    bigint;
BEGIN
    SELECT * INTO STRICT registry FROM snowflake_internal.snowflake_registry FOR UPDATE;
    tick := snowflake_internal.snowflake_fleet_tick(clock_timestamp(), registry.tick_ms, registry.epoch);
    IF NOT dead_since BETWEEN registry.epoch AND snowflake_internal.snowflake_fleet_time(
        tick + registry.tolerance_ticks, registry.tick_ms, registry.epoch)
    THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = 'dead_since must be between the epoch and now',
            DETAIL = format('The value is %s.', dead_since),
            HINT = 'Use a time after the last commit of the former registry.';
    END IF;
    since := snowflake_internal.snowflake_fleet_tick(dead_since, registry.tick_ms, registry.epoch);
    IF NOT snowflake_internal.snowflake_fleet_is_elsewhere(registry) THEN
        IF registry.fences_before = '{}' OR registry.fence < tick THEN
            RAISE NOTICE 'the registry is not in doubt, skipping';
            RETURN;
        END IF;
        -- With a time, the doubt may go on, and an operator may still vouch for all of it.
        UPDATE snowflake_internal.snowflake_registry r
        SET fence = CASE WHEN since IS NULL THEN r.fences_before[cardinality(r.fences_before)]
                ELSE least(r.fence, greatest(
                    r.fences_before[cardinality(r.fences_before)], since + r.grant_ticks)) END,
            fences_before = CASE WHEN since IS NULL THEN trim_array(r.fences_before, 1) ELSE r.fences_before END
        RETURNING * INTO STRICT registry;
    ELSIF since IS NOT NULL THEN
        PERFORM snowflake_internal.snowflake_fleet_doubt(since);
        registry := snowflake_internal.snowflake_fleet_current();
    ELSIF registry.told = here THEN
        PERFORM snowflake_internal.snowflake_fleet_settle();
    ELSE
        UPDATE snowflake_internal.snowflake_registry r SET told = here;
        RAISE WARNING 'the registry may have lost commits in a failover or restore of which no server knows yet'
            USING DETAIL = format('Its row was written in timeline %s of cluster %s, and this is timeline %s of cluster '
                    '%s. Rows may have been restored, or it is a copy of files or of a database.', registry.timeline,
                    registry.system_identifier, (snowflake_internal.snowflake_fleet_here()).timeline,
                    (snowflake_internal.snowflake_fleet_here()).system_identifier),
                HINT = 'If no commit was lost, call snowflake_registry_vouch again.';
        RETURN;
    END IF;
    IF registry.fences_before <> '{}' AND registry.fence >= tick THEN
        RAISE NOTICE 'the registry is still in doubt, and leases no worker before %', snowflake_internal.snowflake_fleet_time(
            registry.fence + 1, registry.tick_ms, registry.epoch)
            USING HINT = 'If an earlier failover or restore is the cause, and no commit was lost in that one either, '
                'call snowflake_registry_vouch again.';
    END IF;
END
$$;

-- How the caller's transaction ends: durably, because what it acknowledges must be; and soon, because contacts wait for the
-- rows that it has locked, while the host or the network of its client may be gone. A SET clause ends with its function.
CREATE FUNCTION snowflake_internal.snowflake_fleet_commit_durably(longest_pause interval) RETURNS void
    VOLATILE PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'local', true);
    END IF;
    IF NOT current_setting('idle_in_transaction_session_timeout')::interval BETWEEN interval '1 ms' AND longest_pause THEN
        PERFORM set_config('idle_in_transaction_session_timeout', extract(epoch FROM longest_pause) || 's', true);
    END IF;
END
$$;

-- What operators do with groups. Calls have the exact types, so that PostgreSQL takes no other function of that name:
-- somebody may have put one there before.
CREATE FUNCTION snowflake_internal.snowflake_fleet_operate(
    operation text, worker_id integer, words text, moment timestamptz
)
    RETURNS timestamptz
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    registry record;
    refusal  snowflake_internal.snowflake_refusal;
    tick     bigint;
    latest   bigint;
    passes   bigint;
    is_in_doubt boolean;
    own      record;
    named    constant integer := worker_id;
    -- The number's high bits are the datacenter's, as in an ID.
    of_datacenter integer;
    of_worker     integer;
BEGIN
    PERFORM snowflake_internal.snowflake_fleet_place();
    PERFORM snowflake_internal.snowflake_fleet_commit_durably(interval '1 min');
    -- Whoever restores rows has locked one of these, or waits.
    LOCK TABLE snowflake_internal.snowflake_registry_groups IN ROW EXCLUSIVE MODE;
    PERFORM FROM snowflake_internal.snowflake_registry FOR UPDATE;
    registry := snowflake_internal.snowflake_fleet_current();
    IF operation = 'vouch' THEN
        PERFORM snowflake_internal.snowflake_fleet_vouch(moment);
        RETURN NULL;
    ELSIF snowflake_internal.snowflake_fleet_is_elsewhere(registry) THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'cannot change workers: the registry may have lost commits in a failover or restore',
            DETAIL = 'No server with the same time has contacted the registry since.',
            HINT = 'Wait for the next contact of a server. If no commit was lost, call snowflake_registry_vouch.';
    END IF;
    tick := snowflake_internal.snowflake_fleet_tick(clock_timestamp(), registry.tick_ms, registry.epoch);
    is_in_doubt := registry.fences_before <> '{}' AND registry.fence >= tick;
    IF operation = 'retire' THEN
        latest := NULL;
        FOR own IN
            SELECT g AS whole, g.until FROM snowflake_internal.snowflake_registry_groups g
            WHERE g.node_name = words AND g.node_id IS NOT NULL ORDER BY g.datacenter_id, g.worker_id FOR UPDATE
        LOOP
            PERFORM snowflake_internal.snowflake_fleet_end(own.whole, true);
            latest := greatest(latest, own.until);
        END LOOP;
        -- What the doubt has ended would be taken back.
        FOR own IN
            UPDATE snowflake_internal.snowflake_registry_leases l SET is_retired = true
            WHERE is_in_doubt AND l.node_name = words AND NOT l.is_retired RETURNING l.until
        LOOP
            latest := greatest(latest, own.until);
        END LOOP;
        IF latest IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'undefined_object',
                MESSAGE = format('node "%s" has no lease', left(words, 64)),
                DETAIL = 'No row of snowflake_fleet has this name.', HINT = 'Look up the name in snowflake_fleet.';
        END IF;
        RETURN snowflake_internal.snowflake_fleet_time(
            greatest(latest, CASE WHEN is_in_doubt THEN registry.fence END) + 1, registry.tick_ms, registry.epoch);
    END IF;
    of_datacenter := named >> registry.worker_bits;
    of_worker := named & ((1::bigint << registry.worker_bits) - 1);
    IF named >= 0 AND of_datacenter < 1::bigint << registry.datacenter_bits
        AND of_worker < registry.homes
    THEN
        PERFORM snowflake_internal.snowflake_fleet_add_groups(registry, of_datacenter, of_worker);
    END IF;
    SELECT g AS whole, g.worker_id, g.note, g.node_id, g.node_name, g.until INTO own
    FROM snowflake_internal.snowflake_registry_groups g
    WHERE g.datacenter_id = of_datacenter AND g.worker_id = of_worker FOR UPDATE;
    -- The server that had it last may be behind the registry.
    passes := own.until + registry.tolerance_ticks + greatest(-(own.whole).clock_offset_ms / registry.tick_ms, 0);
    tick := snowflake_internal.snowflake_fleet_tick(clock_timestamp(), registry.tick_ms, registry.epoch);
    SELECT r.state, r.message, r.detail, r.hint INTO refusal FROM (VALUES
        (named IS NULL OR words IS NULL, '22004', 'worker_id and note must not be null',
            'A reservation keeps one worker, and tells others why.', 'Name the server in the note.'),
        (octet_length(words) > 1020, '22023', 'note must not have more than 1020 bytes',
            format('It has %s bytes.', octet_length(words)), 'Keep a longer text elsewhere, and name that place.'),
        (own.worker_id IS NULL, '22023', format('worker_id %s is out of range', named),
            format('Layout %s with %s backup workers has home workers 0 to %s.', registry.layout,
                registry.backup_workers, registry.homes - 1),
            format('Use snowflake_id.worker_id of the server, and add %s for each datacenter before its own.',
                1::bigint << registry.worker_bits)),
        (operation = 'unreserve' AND own.note IS NULL, '42704', format('worker %s is not reserved', named),
            'No operator has reserved it.', 'Check the number.'),
        -- The server that gets it may be behind by the tolerance, and must have passed what others were granted.
        (operation = 'reserve' AND registry.fences_before <> '{}'
            AND registry.fence >= tick - registry.tolerance_ticks, '55000',
            format('cannot reserve worker %s: the registry may have lost commits', named),
            format('Another server may have this worker until %s.', snowflake_internal.snowflake_fleet_time(
                registry.fence + registry.tolerance_ticks + 1, registry.tick_ms, registry.epoch)),
            'Wait until then. If no commit was lost, call snowflake_registry_vouch.'),
        (operation = 'reserve' AND passes >= tick, '55000',
            format('cannot reserve worker %s: it is not free yet', named),
            format(CASE WHEN own.node_id IS NULL
                THEN 'Its last lease or reservation has ended, and it comes free at %2$s.'
                ELSE 'Node "%1$s" has it until %2$s.' END, own.node_name, snowflake_internal.snowflake_fleet_time(
                passes + 1, registry.tick_ms, registry.epoch)),
            CASE WHEN own.node_id IS NULL THEN 'Reserve another worker, or wait until then.'
                ELSE 'Reserve another worker; or stop that server, and wait until its lease has ended.' END)
    ) AS r (is_true, state, message, detail, hint) WHERE r.is_true LIMIT 1;
    PERFORM snowflake_internal.snowflake_refuse(refusal);
    IF own.node_id IS NOT NULL THEN
        PERFORM snowflake_internal.snowflake_fleet_end(own.whole, false);
    END IF;
    -- What the server has generated under its reservation lies below its own clock, at most one grant ahead.
    UPDATE snowflake_internal.snowflake_registry_groups g
    SET note = CASE operation WHEN 'reserve' THEN words END,
        until = CASE operation WHEN 'unreserve' THEN greatest(g.until, tick + registry.grant_ticks) ELSE g.until END
    WHERE g.datacenter_id = of_datacenter AND g.worker_id = of_worker
    RETURNING g.until INTO tick;
    RETURN snowflake_internal.snowflake_fleet_time(tick + 1, registry.tick_ms, registry.epoch);
END
$$;

CREATE FUNCTION @extschema@.snowflake_registry_reserve(worker_id integer, note text) RETURNS void
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE sql
    BEGIN ATOMIC SELECT snowflake_internal.snowflake_fleet_operate(
        'reserve'::text, worker_id, note, NULL::timestamptz); END;

CREATE FUNCTION @extschema@.snowflake_registry_unreserve(worker_id integer) RETURNS timestamptz
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE sql
    RETURN snowflake_internal.snowflake_fleet_operate('unreserve'::text, worker_id, ''::text, NULL::timestamptz);

CREATE FUNCTION @extschema@.snowflake_registry_retire(node_name text) RETURNS timestamptz
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE sql
    RETURN snowflake_internal.snowflake_fleet_operate('retire'::text, NULL::integer, node_name, NULL::timestamptz);

CREATE FUNCTION @extschema@.snowflake_registry_vouch(dead_since timestamptz DEFAULT NULL) RETURNS void
    VOLATILE CALLED ON NULL INPUT PARALLEL UNSAFE LANGUAGE sql
    BEGIN ATOMIC SELECT snowflake_internal.snowflake_fleet_operate(
        'vouch'::text, NULL::integer, NULL::text, dead_since); END;

-- ---------------------------------------------------------------- views

CREATE VIEW @extschema@.snowflake_fleet AS
SELECT g.node_name, g.worker_id,
    snowflake_internal.snowflake_fleet_time(g.until, r.tick_ms, r.epoch) AS granted_until,
    g.last_contact_at, g.clock_offset_ms, g.in_recovery, g.address, g.version, g.system_identifier,
    CASE WHEN r.datacenter_bits > 0 THEN g.datacenter_id END AS datacenter_id
FROM snowflake_internal.snowflake_registry r, snowflake_internal.snowflake_registry_groups g
WHERE g.node_id IS NOT NULL;

-- The time before which no worker is leased because the registry is in doubt; infinity: nobody has found out yet, so
-- that even renewals are refused; null: it is in no doubt. A standby cannot tell whether somebody has. Its body is
-- bound, so it can have its owner's rights.
CREATE FUNCTION snowflake_internal.snowflake_fleet_free_from() RETURNS timestamptz
    VOLATILE PARALLEL UNSAFE SECURITY DEFINER LANGUAGE sql
    RETURN (
        SELECT CASE
            WHEN CASE WHEN NOT pg_is_in_recovery() THEN snowflake_internal.snowflake_fleet_is_elsewhere(r) END
                THEN timestamptz 'infinity'
            WHEN r.fences_before <> '{}'
                AND snowflake_internal.snowflake_fleet_time(r.fence + 1, r.tick_ms, r.epoch) > clock_timestamp()
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

-- Its body is bound, so it can have its owner's rights: others need none on the tables.
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
