-- The layout of this database's IDs. pg_dump dumps the row. Restored on a server with another layout, the database
-- generates and reads no IDs.

-- A session opens this table before its first ID. PostgreSQL would read defaults and CHECK constraints from catalogs that a
-- session has not cached, at a higher cost than the rest of that call. So the trigger below replaces them.
CREATE TABLE snowflake_internal.snowflake_config (
    layout  text,
    tick_ms integer,
    epoch   timestamptz,
    -- Always true, so the table has at most one row. The key is also the replica identity, so a publisher's change of its
    -- row applies to the row here, even if they differ.
    is_only boolean PRIMARY KEY,
    -- Whether the database has generated IDs. CREATE EXTENSION stores the server's layout with false, the first ID true.
    is_used boolean
);

-- A restore inserts the row of the dump after CREATE EXTENSION has inserted the server's, and logical replication of all
-- tables the publisher's. As a rule a superuser restores, so the function must not call anything that the database's owner
-- can create: it has its own search_path, names the schema of everything outside pg_catalog, and passes arguments of
-- exactly the declared types.
CREATE FUNCTION snowflake_internal.snowflake_config_check() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own record;
    is_replicated constant boolean := current_setting('session_replication_role') = 'replica';
    -- The new row is that of the database's IDs, and not the present one: a restore has just created the extension, or the
    -- database has generated no ID.
    replaces constant boolean := TG_OP = 'INSERT' AND NOT is_replicated
        AND NOT EXISTS (SELECT FROM snowflake_internal.snowflake_config c WHERE c.is_used);
BEGIN
    -- Members of pg_write_all_data may change any table, also by replication, but this row affects every session.
    IF NOT pg_has_role((SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE') THEN
        RAISE EXCEPTION USING
            ERRCODE = 'insufficient_privilege',
            MESSAGE = 'must be owner of table snowflake_config to change its row',
            DETAIL = 'A server whose layout differs from that of the row generates and reads no IDs in this database.',
            HINT = 'Ask the owner of the extension, or a superuser.';
    END IF;
    IF TG_OP = 'TRUNCATE' THEN
        -- A subscriber keeps its IDs. Its trigger can skip a replicated DELETE, but not a TRUNCATE.
        RAISE EXCEPTION USING
            ERRCODE = 'feature_not_supported',
            MESSAGE = 'cannot truncate table snowflake_config',
            DETAIL = 'Replication would empty the tables of subscribers, whose databases keep their IDs.',
            HINT = 'To remove the row, use DELETE.';
    END IF;
    IF TG_OP = 'DELETE' THEN
        -- The publisher has deleted its row, but this database still has its IDs.
        RETURN CASE WHEN is_replicated THEN NULL ELSE OLD END;
    END IF;
    NEW.is_only := true;
    NEW.is_used := coalesce(NEW.is_used, false);
    SELECT * INTO own FROM snowflake_internal.server_layout();
    IF own.layout IS NULL THEN
        -- A restore before the library is preloaded. Later, the server's layout is compared with this row.
        IF replaces AND num_nulls(NEW.layout, NEW.tick_ms, NEW.epoch) = 0 THEN
            DELETE FROM snowflake_internal.snowflake_config;
            RETURN NEW;
        END IF;
        -- This call raises the error about the missing layout.
        PERFORM snowflake_internal.snowflake_between_from(clock_timestamp());
    END IF;
    IF num_nulls(NEW.layout, NEW.tick_ms, NEW.epoch) > 0 THEN
        RAISE EXCEPTION USING
            ERRCODE = '23502',
            MESSAGE = 'layout, tick_ms and epoch of snowflake_config must not be null',
            DETAIL = 'A row without a layout would not say what the IDs of this database mean.',
            HINT = 'Insert all three, as the dump or the publisher has them.';
    END IF;
    IF (NEW.layout, NEW.tick_ms, NEW.epoch) IS DISTINCT FROM (own.layout, own.tick_ms, own.epoch) THEN
        IF replaces THEN
            -- Not an error: most restores would continue with the rows of the tables, whose IDs would be read and continued
            -- with the server's layout. Copied or replicated IDs exist without is_used, too. So the table below does.
            DELETE FROM snowflake_internal.snowflake_config;
            RETURN NEW;
        END IF;
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = CASE WHEN is_replicated THEN 'the publisher''s snowflake layout differs from this server''s'
                WHEN TG_OP = 'UPDATE' THEN 'the row''s snowflake layout differs from this server''s'
                ELSE 'the dump''s snowflake layout differs from this server''s' END,
            DETAIL = format('The row of snowflake_config has %s %sms %s; this server is configured with %s %sms %s.',
                NEW.layout, NEW.tick_ms, NEW.epoch, own.layout, own.tick_ms, own.epoch),
            HINT = CASE WHEN is_replicated
                THEN 'Replicate these IDs to a server with the publisher''s snowflake_id.layout, tick and epoch.'
                WHEN TG_OP = 'UPDATE' THEN 'Run the statements that snowflake_layout_steps() returns.'
                ELSE 'Drop what was restored, and restore it into a server with the dump''s snowflake_id.layout, tick and '
                    'epoch.' END;
    END IF;
    -- Compares the lowest ID of this moment in the old and in the new layout.
    IF TG_OP = 'UPDATE' AND NOT is_replicated AND (
        SELECT (lowest[1] >= lowest[2]) FROM (
            SELECT array_agg(floor(extract(epoch FROM clock_timestamp() - l.epoch) * 1000 / l.tick_ms) * 2::numeric ^ (
                SELECT sum(b::integer) FROM regexp_split_to_table(substring(l.layout FROM '/(.*)'), '[/+]') AS b
            ) ORDER BY l.is_new) AS lowest
            FROM (VALUES (OLD.layout, OLD.tick_ms, OLD.epoch, false), (NEW.layout, NEW.tick_ms, NEW.epoch, true))
                AS l (layout, tick_ms, epoch, is_new)
        ) AS compared
        WHERE (OLD.layout, OLD.tick_ms, OLD.epoch) IS DISTINCT FROM (NEW.layout, NEW.tick_ms, NEW.epoch)
    ) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'new snowflake IDs would be lower than existing ones in this database',
            DETAIL = format('The IDs of this database have %s %sms %s; this server is configured with %s %sms %s.',
                OLD.layout, OLD.tick_ms, OLD.epoch, NEW.layout, NEW.tick_ms, NEW.epoch),
            HINT = 'Set snowflake_id.layout, tick and epoch to those of the database and restart the server. If the '
                'database has no snowflake IDs, delete the row of snowflake_config first.';
    END IF;
    IF replaces AND NEW.is_used THEN
        DELETE FROM snowflake_internal.snowflake_config;
    ELSIF TG_OP = 'INSERT' AND EXISTS (SELECT FROM snowflake_internal.snowflake_config) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END
$$;

-- ALWAYS, so that it also fires under replication.
CREATE TRIGGER snowflake_config_check BEFORE INSERT OR UPDATE OR DELETE ON snowflake_internal.snowflake_config
    FOR EACH ROW EXECUTE FUNCTION snowflake_internal.snowflake_config_check();
ALTER TABLE snowflake_internal.snowflake_config ENABLE ALWAYS TRIGGER snowflake_config_check;
CREATE TRIGGER snowflake_config_truncate BEFORE TRUNCATE ON snowflake_internal.snowflake_config
    EXECUTE FUNCTION snowflake_internal.snowflake_config_check();
ALTER TABLE snowflake_internal.snowflake_config ENABLE ALWAYS TRIGGER snowflake_config_truncate;

-- Sends an invalidation, on which sessions compare the row again. AFTER, because before the change a session could compare
-- the old row again.
CREATE FUNCTION snowflake_internal.snowflake_config_changed() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_config_changed';
CREATE TRIGGER snowflake_config_changed AFTER INSERT OR UPDATE OR DELETE ON snowflake_internal.snowflake_config
    FOR EACH ROW EXECUTE FUNCTION snowflake_internal.snowflake_config_changed();
ALTER TABLE snowflake_internal.snowflake_config ENABLE ALWAYS TRIGGER snowflake_config_changed;

-- Makes a restore under another layout fail, after the row above has closed the database. It is always empty: pg_dump reads
-- its rows from the table above, and a restore inserts them in a transaction of their own.
CREATE TABLE snowflake_internal.snowflake_config_dumped (layout text, tick_ms integer, epoch timestamptz);
CREATE FUNCTION snowflake_internal.snowflake_config_compare() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own record;
BEGIN
    SELECT * INTO own FROM snowflake_internal.server_layout();
    IF (NEW.layout, NEW.tick_ms, NEW.epoch) IS DISTINCT FROM (own.layout, own.tick_ms, own.epoch)
        AND own.layout IS NOT NULL
        -- A database with IDs has refused the row above.
        AND NOT EXISTS (SELECT FROM snowflake_internal.snowflake_config c
            WHERE c.is_used AND (c.layout, c.tick_ms, c.epoch) = (own.layout, own.tick_ms, own.epoch)) THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'the dump''s snowflake layout differs from this server''s',
            DETAIL = format('The dump has %s %sms %s; this server is configured with %s %sms %s. So this database '
                'generates and reads no snowflake IDs.',
                NEW.layout, NEW.tick_ms, NEW.epoch, own.layout, own.tick_ms, own.epoch),
            HINT = 'Set snowflake_id.layout, tick and epoch to the dump''s layout, restart the server and restore again; or '
                'restore into another server. If the dump has no snowflake IDs, delete the row of snowflake_config.';
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER snowflake_config_compare BEFORE INSERT ON snowflake_internal.snowflake_config_dumped
    FOR EACH ROW EXECUTE FUNCTION snowflake_internal.snowflake_config_compare();

INSERT INTO snowflake_internal.snowflake_config
SELECT own.layout, own.tick_ms, own.epoch FROM snowflake_internal.server_layout() AS own
WHERE own.layout IS NOT NULL;

-- Without the extension's schema, where a function of another role could be a better match.
SET LOCAL search_path = pg_catalog, pg_temp;

DO $$
DECLARE
    detail text;
    hint   text;
BEGIN
    IF NOT EXISTS (SELECT FROM snowflake_internal.snowflake_config) THEN
        -- This call raises the error about the missing layout.
        PERFORM snowflake_internal.snowflake_between_from(clock_timestamp());
    END IF;
EXCEPTION WHEN object_not_in_prerequisite_state THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RAISE WARNING USING
        MESSAGE = SQLERRM, DETAIL = detail, HINT = concat_ws(' ', 'A database for a registry alone needs nothing.', hint);
END
$$;

SET LOCAL search_path = @extschema@, pg_temp;

SELECT pg_catalog.pg_extension_config_dump('snowflake_internal.snowflake_config', '');
-- pg_dump appends this to its query of the rows.
SELECT pg_catalog.pg_extension_config_dump('snowflake_internal.snowflake_config_dumped',
    'WHERE false UNION ALL SELECT layout, tick_ms, epoch FROM snowflake_internal.snowflake_config');

REVOKE ALL ON FUNCTION snowflake_internal.snowflake_config_check(), snowflake_internal.snowflake_config_changed(),
    snowflake_internal.snowflake_config_compare() FROM PUBLIC;

COMMENT ON TABLE snowflake_internal.snowflake_config IS
    'layout of the snowflake IDs in this database; a server with another layout generates and reads none';
COMMENT ON TABLE snowflake_internal.snowflake_config_dumped IS
    'always empty; makes a restore fail that brings another layout than the server''s';
COMMENT ON FUNCTION snowflake_internal.snowflake_config_compare() IS
    'internal: compares the layout of a dump with this server''s';
COMMENT ON FUNCTION snowflake_internal.snowflake_config_check() IS
    'internal: keeps snowflake_config to one row with this server''s layout';
COMMENT ON FUNCTION snowflake_internal.snowflake_config_changed() IS
    'internal: has all sessions compare their layout with the row again';
COMMENT ON FUNCTION snowflake_internal.server_layout() IS
    'internal: snowflake_server_layout(), for code that uses no other schema';
COMMENT ON FUNCTION snowflake_server_layout() IS
    'returns the layout in this server''s settings, or nulls if the extension is not preloaded';
