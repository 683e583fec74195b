-- Monitoring and administration: views, comments, grants.

CREATE VIEW snowflake_status AS SELECT * FROM snowflake_internal.snowflake_status_row();

CREATE VIEW snowflake_workers AS SELECT * FROM snowflake_internal.snowflake_workers_rows();

REVOKE ALL ON FUNCTION snowflake_internal.snowflake_status_row(), snowflake_internal.snowflake_workers_rows(),
    snowflake_rotate(), snowflake_adopt(timestamptz), snowflake_reset_stats(),
    snowflake_internal.snowflake_nextval_support(internal) FROM PUBLIC;

COMMENT ON SCHEMA snowflake_internal IS 'internal: the tables of the extension snowflake_id, and what its functions call';
COMMENT ON FUNCTION snowflake_nextval() IS
    'generates an ID: unique, and higher than each ID of this server that was returned before the call began';
COMMENT ON FUNCTION snowflake_nextval_batch(integer) IS 'generates n IDs, one per row';
COMMENT ON FUNCTION snowflake_nextval_range(integer) IS
    'generates n consecutive IDs from one tick, and returns the lowest and the highest';
COMMENT ON FUNCTION snowflake_horizon() IS
    'returns the ID below which no transaction of this server adds a row any more, and what breaks that order';
COMMENT ON FUNCTION snowflake_lastval() IS 'returns the last ID that this session generated';
COMMENT ON VIEW snowflake_status IS 'state, clock and counters of this server''s generator; one row';
COMMENT ON VIEW snowflake_workers IS 'workers of this server, one row per lane';
COMMENT ON TYPE snowflake_internal.snowflake_status_fields IS 'internal: the columns of the view snowflake_status';
COMMENT ON TYPE snowflake_internal.snowflake_workers_fields IS 'internal: the columns of the view snowflake_workers';
COMMENT ON FUNCTION snowflake_server_layout() IS
    'returns the layout in this server''s settings, or nulls if the extension is not preloaded';
COMMENT ON FUNCTION snowflake_rotate() IS
    'moves to the next usable backup worker and returns its number; for administrators';
COMMENT ON FUNCTION snowflake_adopt(timestamptz) IS
    'asserts that no ID newer than floor exists elsewhere, and resumes generation';
COMMENT ON FUNCTION snowflake_reset_stats() IS
    'resets the counters of snowflake_status and snowflake_workers to zero; for administrators';

-- ---------------------------------------------------------------- rights

-- Without the extension's schema, where another role may have created functions and operators.
SET LOCAL search_path = pg_catalog, pg_temp;

-- ALTER DEFAULT PRIVILEGES may have given other roles rights on all objects above. This revokes them on the schema
-- snowflake_internal, on every table and view, and on every function from which this script revokes a right.
DO $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT DISTINCT format('REVOKE ALL ON %s FROM %s', o.described,
            snowflake_internal.snowflake_grantee(a.grantee))
        FROM pg_extension e
        JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e',
        LATERAL (
            SELECT format('SCHEMA %s', n.oid::regnamespace), n.nspowner, n.nspacl FROM pg_namespace n
            WHERE d.classid = 'pg_namespace'::regclass AND n.oid = d.objid
            UNION ALL
            SELECT format('TABLE %s', c.oid::regclass), c.relowner, c.relacl FROM pg_class c
            WHERE d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind IN ('r', 'v')
            UNION ALL
            SELECT format('FUNCTION %s', f.oid::regprocedure), f.proowner, f.proacl
            FROM pg_proc f JOIN pg_init_privs i ON i.classoid = 'pg_proc'::regclass AND i.objoid = f.oid
            WHERE d.classid = 'pg_proc'::regclass AND f.oid = d.objid
        ) AS o (described, owner, acl), aclexplode(o.acl) AS a
        WHERE e.extname = 'snowflake_id' AND a.grantee <> o.owner
    LOOP
        EXECUTE statement;
    END LOOP;
END
$$;

-- Default privileges may give PUBLIC no EXECUTE. A grant on the function that a role calls must then suffice, so PUBLIC
-- gets those that it calls in turn, if this script revokes no right on them: those of snowflake_internal, and the readers
-- in the bodies of other functions.
DO $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', f.oid::regprocedure) FROM pg_proc f
        WHERE (f.pronamespace = 'snowflake_internal'::regnamespace OR f.provolatile = 'i' AND EXISTS (
                SELECT FROM pg_depend d JOIN pg_depend e ON (e.classid, e.objid) = (d.classid, d.objid)
                JOIN pg_extension x ON e.refclassid = 'pg_extension'::regclass AND e.refobjid = x.oid AND e.deptype = 'e'
                WHERE d.refclassid = 'pg_proc'::regclass AND d.refobjid = f.oid AND d.classid = 'pg_proc'::regclass
                    AND x.extname = 'snowflake_id'))
            AND NOT EXISTS (SELECT FROM pg_init_privs i WHERE i.classoid = 'pg_proc'::regclass AND i.objoid = f.oid)
    LOOP
        EXECUTE statement;
    END LOOP;
END
$$;

-- Roles that dump a database or execute snowflake_convert look up names there. Each object has its own rights.
GRANT USAGE ON SCHEMA snowflake_internal TO PUBLIC;
-- Every role that may dump a database must be able to read these tables. snowflake_registry_create revokes this for the
-- registry's own, because with a node's id and number a role could make the node's contacts.
GRANT SELECT ON snowflake_internal.snowflake_config, snowflake_internal.snowflake_config_check,
    snowflake_internal.snowflake_registry, snowflake_internal.snowflake_registry_groups,
    snowflake_internal.snowflake_registry_leases, @extschema@.snowflake_layouts TO PUBLIC;
-- So that the owner of a database can restore its dump, which names these tables even if it has no rows for them.
GRANT INSERT ON snowflake_internal.snowflake_config, snowflake_internal.snowflake_config_check,
    snowflake_internal.snowflake_registry, snowflake_internal.snowflake_registry_groups,
    snowflake_internal.snowflake_registry_leases TO pg_database_owner;
GRANT EXECUTE ON FUNCTION snowflake_internal.snowflake_add_layouts(text[]) TO pg_database_owner;
-- A reader of a view needs SELECT on it and EXECUTE on its functions.
GRANT SELECT ON @extschema@.snowflake_status, @extschema@.snowflake_workers, @extschema@.snowflake_fleet,
    @extschema@.snowflake_fleet_capacity TO pg_monitor;
GRANT EXECUTE ON FUNCTION snowflake_internal.snowflake_status_row(), snowflake_internal.snowflake_workers_rows(),
    snowflake_internal.snowflake_fleet_time(bigint, integer, timestamptz), snowflake_internal.snowflake_fleet_doubt(),
    @extschema@.snowflake_origin(bigint) TO pg_monitor;
