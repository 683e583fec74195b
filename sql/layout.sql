-- The layouts of a database's IDs. src/session/layout_guard.rs has the comparison.
--
-- 1. The record is the body of snowflake_own_layouts(): the layouts whose IDs, or values computed from them, are here. The
--    library compares it as text. DML, replication, locks and dumps do not reach it. No update script creates it again.
-- 2. A server generates and reads IDs only if the record is exactly its own layout. No call changes the record.
-- 3. CREATE EXTENSION records the server's layout, or none and warns if it cannot be used: a database for a registry needs
--    none, and a restore before the library is preloaded keeps the dump's.
-- 4. A restore adds the layouts of its dump. Two layouts close the database under both, because rows precede the record in
--    a dump: columns were computed by the server's layout. pg_restore shows no warning, so a second table raises an error.
-- 5. The owner of the database may add a layout; only a superuser may replace them. A text that is no layout is refused.

CREATE FUNCTION snowflake_internal.snowflake_own_layouts() RETURNS text LANGUAGE sql STABLE AS 'SELECT NULL::text';

-- Citus refuses CREATE FUNCTION on workers, and in transactions that have used several connections.
CREATE FUNCTION snowflake_internal.snowflake_set_layouts(layouts text[]) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET citus.enable_ddl_propagation = off AS $$
BEGIN
    PERFORM snowflake_internal.snowflake_lowest_id(l) FROM unnest(layouts) AS l;
    EXECUTE format('CREATE OR REPLACE FUNCTION snowflake_internal.snowflake_own_layouts() RETURNS text LANGUAGE sql STABLE '
        'AS %L', format('SELECT %L::text', (SELECT string_agg(l, ', ' ORDER BY l COLLATE "C") FROM unnest(layouts) AS l)));
END
$$;

-- Whether the record lacked one of these, which it has now. A function of its own, because members of pg_write_all_data may
-- insert into any table.
CREATE FUNCTION snowflake_internal.snowflake_add_layouts(layouts text[]) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    recorded text[];
BEGIN
    -- Several restores or jobs may insert at the same time: the second one waits for the record of the first one. Not a
    -- mode that conflicts with the lock of their INSERT: two of them would wait for each other.
    LOCK TABLE snowflake_internal.snowflake_config IN SHARE UPDATE EXCLUSIVE MODE;
    recorded := string_to_array(snowflake_internal.snowflake_own_layouts(), ', ');
    IF layouts <@ recorded THEN
        RETURN false;
    END IF;
    PERFORM snowflake_internal.snowflake_set_layouts(ARRAY(SELECT unnest(recorded) UNION SELECT unnest(layouts)));
    RETURN true;
END
$$;

-- Always empty: pg_dump reads a row for each from the function, and a restore inserts it, each in a transaction of its own
-- unless all is one. The row that comes first adds, and the other one raises the error: parallel jobs may swap the two.
CREATE TABLE snowflake_internal.snowflake_config (layouts text, CHECK (false));
CREATE TABLE snowflake_internal.snowflake_config_check (layouts text, CHECK (false));

CREATE FUNCTION snowflake_internal.snowflake_config_row() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_added constant boolean := snowflake_internal.snowflake_add_layouts(string_to_array(NEW.layouts, ', '));
BEGIN
    IF NOT is_added AND snowflake_internal.snowflake_own_layouts() LIKE '%, %' THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'the dump''s snowflake layout differs from this database''s',
            DETAIL = format('The dump has %s; the database has %s. So it generates and reads no snowflake IDs.',
                NEW.layouts, snowflake_internal.snowflake_own_layouts()),
            HINT = 'Restore the dump into a new database of a server with its snowflake_id.layout, tick and epoch. If this '
                'database has no IDs of another layout than the server''s, a superuser calls snowflake_change_layout().';
    END IF;
    RETURN NULL;
END
$$;
-- ALWAYS, so that session_replication_role does not disable them.
CREATE TRIGGER snowflake_config_row BEFORE INSERT ON snowflake_internal.snowflake_config
    FOR EACH ROW EXECUTE FUNCTION snowflake_internal.snowflake_config_row();
ALTER TABLE snowflake_internal.snowflake_config ENABLE ALWAYS TRIGGER snowflake_config_row;
CREATE TRIGGER snowflake_config_row BEFORE INSERT ON snowflake_internal.snowflake_config_check
    FOR EACH ROW EXECUTE FUNCTION snowflake_internal.snowflake_config_row();
ALTER TABLE snowflake_internal.snowflake_config_check ENABLE ALWAYS TRIGGER snowflake_config_row;

-- pg_dump appends this to its query of the rows.
SELECT pg_catalog.pg_extension_config_dump('snowflake_internal.snowflake_config',
    'WHERE false UNION ALL SELECT l FROM snowflake_internal.snowflake_own_layouts() AS l WHERE l IS NOT NULL');
SELECT pg_catalog.pg_extension_config_dump('snowflake_internal.snowflake_config_check',
    'WHERE false UNION ALL SELECT l FROM snowflake_internal.snowflake_own_layouts() AS l WHERE l IS NOT NULL');

CREATE FUNCTION snowflake_change_layout(has_ids boolean DEFAULT true) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    own constant text := snowflake_internal.server_layout();
    higher text;
BEGIN
    -- A restore may be about to add a layout.
    LOCK TABLE snowflake_internal.snowflake_config IN SHARE UPDATE EXCLUSIVE MODE;
    IF has_ids IS NOT FALSE THEN
        SELECT l INTO higher FROM unnest(string_to_array(snowflake_internal.snowflake_own_layouts(), ', ')) AS l
        WHERE l <> own AND snowflake_internal.snowflake_lowest_id(l) >= snowflake_internal.snowflake_lowest_id(own) LIMIT 1;
    END IF;
    IF higher IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'new snowflake IDs would be lower than existing ones in this database',
            DETAIL = format('The database has %s; this server is configured with %s.', higher, own),
            HINT = 'Set snowflake_id.layout, tick and epoch to those of the database and restart the server. If it has no '
                'IDs of that layout, call snowflake_change_layout(has_ids => false).';
    END IF;
    PERFORM snowflake_internal.snowflake_set_layouts(ARRAY[own]);
END
$$;

-- Without the extension's schema, where a function of another role could be a better match.
SET LOCAL search_path = pg_catalog, pg_temp;

DO $$
DECLARE
    detail text;
    hint   text;
BEGIN
    PERFORM snowflake_internal.snowflake_set_layouts(ARRAY[snowflake_internal.server_layout()]);
EXCEPTION WHEN object_not_in_prerequisite_state THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RAISE WARNING USING MESSAGE = SQLERRM, DETAIL = detail, HINT = concat_ws(' ', hint, 'Then call '
        'snowflake_change_layout() in this database. A database for a registry alone needs nothing.');
END
$$;

SET LOCAL search_path = @extschema@, pg_temp;

REVOKE ALL ON FUNCTION snowflake_change_layout(boolean), snowflake_internal.snowflake_set_layouts(text[]),
    snowflake_internal.snowflake_add_layouts(text[]), snowflake_internal.snowflake_config_row() FROM PUBLIC;
COMMENT ON FUNCTION snowflake_change_layout(boolean) IS
    'records this server''s layout as the only one of this database''s IDs; for superusers';
COMMENT ON TABLE snowflake_internal.snowflake_config IS
    'always empty; a restore adds the layouts of its dump by a row';
COMMENT ON TABLE snowflake_internal.snowflake_config_check IS
    'always empty; a restore of another layout fails by a row';
