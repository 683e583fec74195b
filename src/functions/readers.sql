{create} {s}snowflake_timestamp(id bigint) RETURNS timestamp with time zone IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN {is_id} THEN (timestamp '{epoch}' OPERATOR(pg_catalog.+) {time}) AT TIME ZONE 'UTC'
        {no_timestamp} END;
COMMENT ON FUNCTION {s}snowflake_timestamp(bigint) IS 'returns the creation time of an ID: the start of its tick';

{create} {s}snowflake_datacenter(id bigint) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN {is_id} THEN {datacenter}
        {no_integer} END;
COMMENT ON FUNCTION {s}snowflake_datacenter(bigint) IS
    'returns the datacenter number of an ID, or null if the layout has none';

{create} {s}snowflake_worker(id bigint) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN {is_id} THEN {worker}
        {no_integer} END;
COMMENT ON FUNCTION {s}snowflake_worker(bigint) IS 'returns the number of the worker that generated an ID';

{create} {s}snowflake_sequence(id bigint) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN {is_id} THEN {sequence}
        {no_integer} END;
COMMENT ON FUNCTION {s}snowflake_sequence(bigint) IS 'returns the sequence of an ID within its tick';

{create} {s}snowflake_server(id bigint) RETURNS integer STABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN {s}snowflake_worker(id) OPERATOR(pg_catalog.<) {owned}
        THEN {s}snowflake_worker(id) OPERATOR(pg_catalog.%) {homes} END;
COMMENT ON FUNCTION {s}snowflake_server(bigint) IS
    'returns the home worker of the server that owns an ID''s worker, or null if no server can own it';

{create} {s}snowflake_min(ts timestamp with time zone) RETURNS bigint IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN ts OPERATOR(pg_catalog.>=) timestamp with time zone '{epoch}+00'
            AND ts OPERATOR(pg_catalog.<) timestamp with time zone '{end}+00'
        THEN ({us_of_ts} OPERATOR(pg_catalog./) {tick_us}) OPERATOR(pg_catalog.<<) {shift}
        {no_time} END;
COMMENT ON FUNCTION {s}snowflake_min(timestamp with time zone) IS 'returns the lowest ID of the tick that contains a time';

{create} {s}snowflake_max(ts timestamp with time zone) RETURNS bigint IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN {s}snowflake_min(ts) OPERATOR(pg_catalog.|) {below_time};
COMMENT ON FUNCTION {s}snowflake_max(timestamp with time zone) IS 'returns the highest ID of the tick that contains a time';

{create} {s}snowflake_between_from(ts timestamp with time zone) RETURNS bigint
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN ts OPERATOR(pg_catalog.<=) timestamp with time zone '{epoch}+00' THEN 0
        WHEN ts OPERATOR(pg_catalog.>) timestamp with time zone '{last_tick}+00' THEN {beyond}
        WHEN ts IS NOT NULL THEN
            (({us_of_ts} OPERATOR(pg_catalog.+) {last_us}) OPERATOR(pg_catalog./) {tick_us}) OPERATOR(pg_catalog.<<) {shift} END;
COMMENT ON FUNCTION {s}snowflake_between_from(timestamp with time zone) IS
    'internal: the lowest ID created at or after a time, for snowflake_between';

{create} {s}snowflake_between_until(ts timestamp with time zone) RETURNS bigint
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN ts OPERATOR(pg_catalog.<=) timestamp with time zone '{epoch}+00' THEN -1
        WHEN ts OPERATOR(pg_catalog.>) timestamp with time zone '{last_tick}+00' THEN {last_id}
        WHEN ts IS NOT NULL THEN
            ((({us_of_ts} OPERATOR(pg_catalog.+) {last_us}) OPERATOR(pg_catalog./) {tick_us}) OPERATOR(pg_catalog.<<) {shift})
            OPERATOR(pg_catalog.-) 1 END;
COMMENT ON FUNCTION {s}snowflake_between_until(timestamp with time zone) IS
    'internal: the highest ID created before a time, for snowflake_between';

{create} {s}snowflake_between(id bigint, since timestamp with time zone, until timestamp with time zone)
    RETURNS boolean IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN id OPERATOR(pg_catalog.>=) {s}snowflake_between_from(since)
        AND id OPERATOR(pg_catalog.<=) {s}snowflake_between_until(until);
COMMENT ON FUNCTION {s}snowflake_between(bigint, timestamp with time zone, timestamp with time zone) IS
    'returns whether an ID was created at or after since, and before until';
