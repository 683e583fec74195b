-- Reading IDs: the functions that the planner can inline. Their bodies are bound when the extension is created, so a
-- caller's search_path cannot change what they call. They name the schema of everything, so that no object that another
-- role created before is bound.

CREATE TYPE snowflake_parts AS (
    created_at    timestamptz,
    datacenter_id integer,
    worker_id     integer,
    sequence      integer
);

-- Not STRICT, because then the planner would not inline it. For a null argument it returns a row of nulls, which IS
-- NULL.
CREATE FUNCTION snowflake_decode(id bigint) RETURNS @extschema@.snowflake_parts
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN ROW(
        @extschema@.snowflake_timestamp(id),
        @extschema@.snowflake_datacenter(id),
        @extschema@.snowflake_worker(id),
        @extschema@.snowflake_sequence(id)
    )::@extschema@.snowflake_parts;

-- As above, for another system's ID. Its layout is looked up once for all rows.
CREATE FUNCTION snowflake_decode(id bigint, layout text) RETURNS @extschema@.snowflake_parts
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN ROW(
        @extschema@.snowflake_timestamp(id, layout),
        @extschema@.snowflake_datacenter(id, layout),
        @extschema@.snowflake_worker(id, layout),
        @extschema@.snowflake_sequence(id, layout)
    )::@extschema@.snowflake_parts;

-- Not STRICT, because then the planner would not inline it. So a null argument gives null or, if the other end of the
-- span excludes the ID, false. Each end is used once, because otherwise the planner would not inline an end that is a
-- subquery. Both bounds are inclusive, so that no partition is read that has none of the IDs.
CREATE FUNCTION snowflake_between(id bigint, since timestamptz, until timestamptz) RETURNS boolean
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN id OPERATOR(pg_catalog.>=) snowflake_internal.snowflake_between_from(since)
        AND id OPERATOR(pg_catalog.<=) snowflake_internal.snowflake_between_until(until);

CREATE VIEW snowflake_layouts AS SELECT * FROM snowflake_internal.snowflake_layouts_rows();

COMMENT ON DOMAIN snowflake_base62 IS 'an ID as 11 base62 characters that sort as the IDs do';
COMMENT ON FUNCTION snowflake_encode(timestamptz, integer, integer) IS
    'returns the ID of a time, a worker and a sequence, in this server''s datacenter if the layout has one';
COMMENT ON FUNCTION snowflake_min(timestamptz) IS 'returns the lowest ID of the tick that contains a time';
COMMENT ON FUNCTION snowflake_max(timestamptz) IS 'returns the highest ID of the tick that contains a time';
COMMENT ON FUNCTION snowflake_between(bigint, timestamptz, timestamptz) IS
    'returns whether an ID was created at or after since, and before until';
COMMENT ON FUNCTION snowflake_to_base62(bigint) IS 'converts an ID to 11 base62 characters that sort as the IDs do';
COMMENT ON FUNCTION snowflake_from_base62(text) IS 'converts the result of snowflake_to_base62 back to the ID';
COMMENT ON FUNCTION snowflake_decode(bigint, text) IS
    'returns the fields of an ID in another system''s layout: a name from snowflake_layouts, or a layout written out';
COMMENT ON FUNCTION snowflake_timestamp(bigint, text) IS
    'returns the creation time of another system''s ID: the start of its tick';
COMMENT ON FUNCTION snowflake_datacenter(bigint, text) IS
    'returns the datacenter number of another system''s ID, or null if that system has none';
COMMENT ON FUNCTION snowflake_worker(bigint, text) IS
    'returns the worker number of another system''s ID, or null if that system has none';
COMMENT ON FUNCTION snowflake_sequence(bigint, text) IS
    'returns the sequence of another system''s ID, or null if that system has none';
COMMENT ON VIEW snowflake_layouts IS 'systems whose IDs snowflake_decode can read by name';
