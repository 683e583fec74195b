-- Reading IDs: the functions that the planner can inline. Their bodies are bound when the extension is created, so a
-- caller's search_path cannot change what they call. They name the schema of everything, so that no object that another
-- role created before is bound.

-- Not STRICT, because then the planner would not inline them. For a null argument they return a row of nulls, which IS
-- NULL.
CREATE FUNCTION snowflake_decode(id bigint) RETURNS @extschema@.snowflake_parts
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN ROW(
        @extschema@.snowflake_timestamp(id),
        @extschema@.snowflake_datacenter(id),
        @extschema@.snowflake_worker(id),
        @extschema@.snowflake_sequence(id)
    )::@extschema@.snowflake_parts;
COMMENT ON FUNCTION snowflake_decode(bigint) IS 'returns the fields of an ID in this server''s layout';

CREATE FUNCTION snowflake_decode(id bigint, layout text) RETURNS @extschema@.snowflake_parts
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN ROW(
        @extschema@.snowflake_timestamp(id, layout),
        snowflake_internal.snowflake_foreign_field(id, layout, 0),
        snowflake_internal.snowflake_foreign_field(id, layout, 1),
        snowflake_internal.snowflake_foreign_field(id, layout, 2)
    )::@extschema@.snowflake_parts;
COMMENT ON FUNCTION snowflake_decode(bigint, text) IS
    'returns the fields of an ID in another system''s layout: a name from snowflake_layouts, or a layout written out';

-- Not STRICT, because then the planner would not inline it. So a null argument gives null or, if the other end of the
-- span excludes the ID, false. Each end is used once, because otherwise the planner would not inline an end that is a
-- subquery. Both bounds are inclusive, so that no partition is read that has none of the IDs.
CREATE FUNCTION snowflake_between(id bigint, since timestamptz, until timestamptz) RETURNS boolean
    IMMUTABLE PARALLEL SAFE LANGUAGE sql
    RETURN id OPERATOR(pg_catalog.>=) snowflake_internal.snowflake_between_from(since)
        AND id OPERATOR(pg_catalog.<=) snowflake_internal.snowflake_between_until(until);
COMMENT ON FUNCTION snowflake_between(bigint, timestamptz, timestamptz) IS
    'returns whether an ID was created at or after since, and before until';

CREATE VIEW snowflake_layouts AS SELECT * FROM snowflake_internal.snowflake_layouts_rows();
COMMENT ON VIEW snowflake_layouts IS 'systems whose IDs snowflake_decode can read by name';
