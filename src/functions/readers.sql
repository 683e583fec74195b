-- Readers of snowflake IDs in the layout {layout}, tick {tick}, epoch {epoch} UTC.
-- Plain SQL for PostgreSQL 14 or later: the planner inlines it, and the server needs no extension.
-- For a number that is no ID of this layout, and for a time outside it, the result is null.

CREATE FUNCTION snowflake_timestamp(id bigint) RETURNS timestamptz IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN id BETWEEN 0 AND {last_id}
        THEN (timestamp '{epoch}' + {time}) AT TIME ZONE 'UTC' END;

CREATE FUNCTION snowflake_datacenter(id bigint) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN id BETWEEN 0 AND {last_id} THEN {datacenter} END;

CREATE FUNCTION snowflake_worker(id bigint) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN id BETWEEN 0 AND {last_id} THEN (id >> {sequence_bits} & {worker_mask})::integer END;

CREATE FUNCTION snowflake_sequence(id bigint) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN id BETWEEN 0 AND {last_id} THEN (id & {sequence_mask})::integer END;

CREATE FUNCTION snowflake_min(ts timestamptz) RETURNS bigint IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN ts >= timestamptz '{epoch}+00' AND ts < timestamptz '{end}+00'
        THEN floor({ticks_of_ts})::bigint << {shift} END;

CREATE FUNCTION snowflake_max(ts timestamptz) RETURNS bigint IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN snowflake_min(ts) | {below_time};

CREATE FUNCTION snowflake_between_from(ts timestamptz) RETURNS bigint IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN ts <= timestamptz '{epoch}+00' THEN 0
        WHEN ts > timestamptz '{last_tick}+00' THEN {beyond}
        WHEN ts IS NOT NULL THEN ceil({ticks_of_ts})::bigint << {shift} END;

CREATE FUNCTION snowflake_between_until(ts timestamptz) RETURNS bigint IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN ts <= timestamptz '{epoch}+00' THEN -1
        WHEN ts > timestamptz '{last_tick}+00' THEN {last_id}
        WHEN ts IS NOT NULL THEN (ceil({ticks_of_ts})::bigint << {shift}) - 1 END;

CREATE FUNCTION snowflake_between(id bigint, since timestamptz, until timestamptz) RETURNS boolean
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN id >= snowflake_between_from(since) AND id <= snowflake_between_until(until);
