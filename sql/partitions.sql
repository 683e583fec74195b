-- pg_partman calls these functions to partition a table by time on a base62 ID: its p_time_encoder and p_time_decoder.
-- It calls the encoder with a timestamptz and uses the result as a bound, and the decoder with a bound or with a key
-- cast to text.

CREATE FUNCTION snowflake_time_encoder(ts timestamptz) RETURNS @extschema@.snowflake_base62
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql
    RETURN @extschema@.snowflake_to_base62(@extschema@.snowflake_min(ts));

CREATE FUNCTION snowflake_time_decoder(base62 text) RETURNS timestamptz
    IMMUTABLE STRICT PARALLEL SAFE LANGUAGE sql
    RETURN @extschema@.snowflake_timestamp(@extschema@.snowflake_from_base62(base62));

COMMENT ON FUNCTION snowflake_time_encoder(timestamptz) IS
    'returns the lowest ID of the tick that contains a time, in base62; p_time_encoder for pg_partman';
COMMENT ON FUNCTION snowflake_time_decoder(text) IS
    'returns the creation time of an ID in base62; p_time_decoder for pg_partman';
