CREATE SEQUENCE gist_sequence;

CREATE FUNCTION gist_id(OUT result bigint) LANGUAGE plpgsql AS $$
DECLARE
    epoch bigint := 1704067200000; -- 2024-01-01
    shard bigint := 5;
    millis bigint;
    sequence bigint;
BEGIN
    SELECT nextval('gist_sequence') % 1024 INTO sequence;
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000) INTO millis;
    result := (millis - epoch) << 23;
    result := result | (shard << 10);
    result := result | sequence;
END;
$$;
