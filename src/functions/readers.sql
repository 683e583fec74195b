-- Readers of snowflake IDs in the layout {layout}, tick {tick}, epoch {epoch} UTC.
-- Plain SQL for PostgreSQL 14 or later: the planner inlines it, and the server needs no extension.
-- For a number that is no ID of this layout, and for a time outside it, the result is null.
-- Operators are named with their schema, so that no other operator on the search_path can take their place.

CREATE FUNCTION snowflake_timestamp(id bigint) RETURNS timestamp with time zone IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN {is_id} THEN (timestamp '{epoch}' OPERATOR(pg_catalog.+) {time}) AT TIME ZONE 'UTC' END;

CREATE FUNCTION snowflake_datacenter(id bigint) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN {is_id} THEN {datacenter} END;

CREATE FUNCTION snowflake_worker(id bigint) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN {is_id} THEN {worker} END;

CREATE FUNCTION snowflake_sequence(id bigint) RETURNS integer IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN {is_id} THEN {sequence} END;

CREATE FUNCTION snowflake_min(ts timestamp with time zone) RETURNS bigint IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN ts OPERATOR(pg_catalog.>=) timestamp with time zone '{epoch}+00'
            AND ts OPERATOR(pg_catalog.<) timestamp with time zone '{end}+00'
        THEN pg_catalog.floor({ticks_of_ts})::bigint OPERATOR(pg_catalog.<<) {shift} END;

CREATE FUNCTION snowflake_max(ts timestamp with time zone) RETURNS bigint IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN snowflake_min(ts) OPERATOR(pg_catalog.|) {below_time};

CREATE FUNCTION snowflake_between_from(ts timestamp with time zone) RETURNS bigint
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN ts OPERATOR(pg_catalog.<=) timestamp with time zone '{epoch}+00' THEN 0
        WHEN ts OPERATOR(pg_catalog.>) timestamp with time zone '{last_tick}+00' THEN {beyond}
        WHEN ts IS NOT NULL THEN pg_catalog.ceil({ticks_of_ts})::bigint OPERATOR(pg_catalog.<<) {shift} END;

CREATE FUNCTION snowflake_between_until(ts timestamp with time zone) RETURNS bigint
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN CASE WHEN ts OPERATOR(pg_catalog.<=) timestamp with time zone '{epoch}+00' THEN -1
        WHEN ts OPERATOR(pg_catalog.>) timestamp with time zone '{last_tick}+00' THEN {last_id}
        WHEN ts IS NOT NULL THEN
            (pg_catalog.ceil({ticks_of_ts})::bigint OPERATOR(pg_catalog.<<) {shift}) OPERATOR(pg_catalog.-) 1 END;

CREATE FUNCTION snowflake_between(id bigint, since timestamp with time zone, until timestamp with time zone)
    RETURNS boolean IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN id OPERATOR(pg_catalog.>=) snowflake_between_from(since)
        AND id OPERATOR(pg_catalog.<=) snowflake_between_until(until);
