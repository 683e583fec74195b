-- Monitoring and administration: views, comments, grants.

CREATE VIEW snowflake_status AS SELECT * FROM @extschema@.snowflake_status_row();

CREATE VIEW snowflake_workers AS SELECT * FROM @extschema@.snowflake_workers_rows();

-- The functions in a view are checked against the role that reads the view, so both need the grant.
REVOKE ALL ON FUNCTION snowflake_status_row(), snowflake_workers_rows() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION snowflake_status_row(), snowflake_workers_rows() TO pg_monitor;
REVOKE ALL ON snowflake_status, snowflake_workers FROM PUBLIC;
GRANT SELECT ON snowflake_status, snowflake_workers TO pg_monitor;

REVOKE ALL ON FUNCTION
    snowflake_rotate(), snowflake_adopt(timestamptz, boolean), snowflake_reset_stats() FROM PUBLIC;

COMMENT ON FUNCTION snowflake_nextval() IS
    'generates an ID: unique, and higher than each ID of this server that was returned before the call began';
COMMENT ON FUNCTION snowflake_nextval_batch(integer) IS 'generates n IDs, one per row';
COMMENT ON FUNCTION snowflake_nextval_range(integer) IS
    'generates n consecutive IDs from one tick, and returns the lowest and the highest';
COMMENT ON FUNCTION snowflake_lastval() IS 'returns the last ID that this session generated';
COMMENT ON TYPE snowflake_parts IS 'the fields of an ID';
COMMENT ON FUNCTION snowflake_decode(bigint) IS 'returns the fields of an ID in this server''s layout';
COMMENT ON FUNCTION snowflake_timestamp(bigint) IS 'returns the creation time of an ID: the start of its tick';
COMMENT ON FUNCTION snowflake_datacenter(bigint) IS
    'returns the datacenter number of an ID, or null if the layout has none';
COMMENT ON FUNCTION snowflake_worker(bigint) IS 'returns the number of the worker that generated an ID';
COMMENT ON FUNCTION snowflake_sequence(bigint) IS 'returns the sequence of an ID within its tick';
COMMENT ON FUNCTION snowflake_owner(bigint) IS
    'returns the home worker and lane of an ID under the current backup_workers, or nulls if no lane has its worker';
COMMENT ON VIEW snowflake_status IS 'state, clock and counters of this server''s generator; one row';
COMMENT ON VIEW snowflake_workers IS 'workers of this server, one row per lane';
COMMENT ON TYPE snowflake_status_fields IS 'internal: the columns of the view snowflake_status';
COMMENT ON TYPE snowflake_workers_fields IS 'internal: the columns of the view snowflake_workers';
COMMENT ON FUNCTION snowflake_status_row() IS 'internal: the row of the view snowflake_status';
COMMENT ON FUNCTION snowflake_workers_rows() IS 'internal: the rows of the view snowflake_workers';
COMMENT ON FUNCTION snowflake_rotate() IS
    'moves to the next usable backup worker and returns its number; for administrators';
COMMENT ON FUNCTION snowflake_adopt(timestamptz, boolean) IS
    'asserts that no ID newer than floor exists elsewhere (with lower: anywhere), and resumes generation';
COMMENT ON FUNCTION snowflake_reset_stats() IS
    'resets the counters of snowflake_status and snowflake_workers to zero; for administrators';
