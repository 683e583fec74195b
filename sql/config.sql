-- What the IDs of this database mean. pg_dump carries the row, and a server with another layout refuses it.

CREATE TABLE snowflake_config (
    layout  text NOT NULL,
    tick_ms integer NOT NULL,
    epoch   timestamptz NOT NULL
);

-- A restore comes with the row of the dump, after CREATE EXTENSION has made that of the server. Mostly it is a
-- superuser who restores: nothing that the owner of the database can create may be called here, so the function has a
-- search_path of its own, names the schema of what is not in pg_catalog, and passes arguments of the declared types.
CREATE FUNCTION snowflake_config_check() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own record;
BEGIN
    SELECT * INTO own FROM @extschema@.snowflake_server_layout();
    IF own.layout IS NULL THEN
        -- It raises the error that says what is missing. Were 0 an integer, a function for integers beside it
        -- would be the one that is meant.
        PERFORM @extschema@.snowflake_timestamp(0::bigint);
    END IF;
    IF (NEW.layout, NEW.tick_ms, NEW.epoch) IS DISTINCT FROM (own.layout, own.tick_ms, own.epoch) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'the snowflake IDs of this data have another layout than those of this server',
            DETAIL = format('They were made with %s %sms %s; this server is configured with %s %sms %s.',
                NEW.layout, NEW.tick_ms, NEW.epoch, own.layout, own.tick_ms, own.epoch),
            HINT = 'Set snowflake_id.layout, tick and epoch as the IDs were made, restart the server and '
                'restore again; or restore into another server.';
    END IF;
    IF TG_OP = 'INSERT' AND EXISTS (SELECT FROM @extschema@.snowflake_config) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER snowflake_config_check BEFORE INSERT OR UPDATE ON snowflake_config
    FOR EACH ROW EXECUTE FUNCTION @extschema@.snowflake_config_check();

INSERT INTO snowflake_config
SELECT own.layout, own.tick_ms, own.epoch FROM @extschema@.snowflake_server_layout() AS own
WHERE own.layout IS NOT NULL;

SELECT pg_catalog.pg_extension_config_dump('snowflake_config', '');

-- Whoever may dump the database must be able to read it.
GRANT SELECT ON snowflake_config TO PUBLIC;
REVOKE ALL ON FUNCTION snowflake_config_check() FROM PUBLIC;

COMMENT ON TABLE snowflake_config IS
    'the layout of the snowflake IDs in this database, for dumps: a server with another one refuses to restore it';
COMMENT ON FUNCTION snowflake_config_check() IS 'keeps snowflake_config to one row, the layout of this server';
COMMENT ON FUNCTION snowflake_server_layout() IS
    'the layout of this server''s settings; nulls where the extension is not preloaded';
