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
    'makes an ID: unique, and above every ID of this server that was returned before the call began';
COMMENT ON FUNCTION snowflake_nextval_batch(integer) IS 'makes n IDs, one a row';
COMMENT ON FUNCTION snowflake_nextval_range(integer) IS
    'makes n IDs in a row from one tick, and returns the lowest and the highest';
COMMENT ON FUNCTION snowflake_lastval() IS 'the last ID that this session made';
COMMENT ON TYPE snowflake_parts IS 'the fields of an ID';
COMMENT ON FUNCTION snowflake_decode(bigint) IS 'the fields of an ID under this server''s layout';
COMMENT ON FUNCTION snowflake_timestamp(bigint) IS 'when the tick of an ID began';
COMMENT ON FUNCTION snowflake_datacenter(bigint) IS
    'the datacenter of an ID, or null where the layout has none';
COMMENT ON FUNCTION snowflake_worker(bigint) IS 'the worker that made an ID';
COMMENT ON FUNCTION snowflake_sequence(bigint) IS 'the sequence of an ID within its tick';
COMMENT ON FUNCTION snowflake_owner(bigint) IS
    'the home worker and lane of an ID''s worker under today''s backup_workers, or nulls where no lane has it';
COMMENT ON VIEW snowflake_status IS 'the generator of this server: state, clock, counters; one row';
COMMENT ON VIEW snowflake_workers IS 'the workers of this server, a row a lane';
COMMENT ON FUNCTION snowflake_status_row() IS 'what the view snowflake_status shows';
COMMENT ON FUNCTION snowflake_workers_rows() IS 'what the view snowflake_workers shows';
COMMENT ON FUNCTION snowflake_rotate() IS
    'moves to the next usable backup worker and returns it; for administrators';
COMMENT ON FUNCTION snowflake_adopt(timestamptz, boolean) IS
    'asserts that no ID newer than floor exists elsewhere (with lower: anywhere), and resumes generation';
COMMENT ON FUNCTION snowflake_reset_stats() IS
    'sets the counters of snowflake_status and snowflake_workers back to zero; for administrators';
