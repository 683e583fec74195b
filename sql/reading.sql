-- Reading IDs: what the planner can see through. Bodies are parsed when the extension is created, so no
-- search_path that a caller sets can change what they call.

CREATE TYPE snowflake_parts AS (
    created_at    timestamptz,
    datacenter_id integer,
    worker_id     integer,
    sequence      integer
);

-- Not STRICT, or the planner would not inline it; of a null it is a row of nulls, which IS NULL.
CREATE FUNCTION snowflake_decode(id bigint) RETURNS snowflake_parts
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN ROW(
        snowflake_timestamp(id),
        snowflake_datacenter(id),
        snowflake_worker(id),
        snowflake_sequence(id)
    )::snowflake_parts;
