-- The purposes of the functions of snowflake_internal. Only the owner's rights suffice for those of the registry.

-- Without the extension's schema, where another role may have created functions and operators.
SET LOCAL search_path = pg_catalog, pg_temp;

DO $$
DECLARE
    own record;
BEGIN
    FOR own IN SELECT * FROM (VALUES
        ('snowflake_nextval_in_copy', 'snowflake_nextval() in a default that COPY evaluates; no SQL can call it'),
        ('snowflake_nextval_support', 'lets COPY write rows with snowflake_nextval() in batches'),
        ('snowflake_between_from', 'the lowest ID created at or after a time, for snowflake_between'),
        ('snowflake_between_until', 'the highest ID created before a time, for snowflake_between'),
        ('snowflake_import_span', 'the first and the last ID of a worker in a tick, for snowflake_next_at'),
        ('snowflake_layouts_rows', 'the rows of the view snowflake_layouts'),
        ('snowflake_status_row', 'the row of the view snowflake_status'),
        ('snowflake_workers_rows', 'the rows of the view snowflake_workers'),
        ('snowflake_drop_context', 'keeps CONTEXT from the error that PL/pgSQL raises next'),
        ('snowflake_grantee', 'the role of an entry of an access control list, as GRANT names it'),
        ('snowflake_other_owner', 'the role that owns an object in the caller''s place'),
        ('snowflake_convert_default', 'the new default of a key'),
        ('snowflake_convert_lowest', 'a bound below all new IDs'),
        ('snowflake_convert_now', 'the lowest ID of this moment'),
        ('snowflake_convert_find', 'returns the keys of tables'),
        ('snowflake_convert_calls_nextval', 'whether a default is a call of nextval()'),
        ('snowflake_convert_columns', 'returns the columns that hold values of keys'),
        ('snowflake_convert_locked', 'returns the tables that a conversion locks'),
        ('snowflake_convert_create', 'returns the statements that create an object again'),
        ('snowflake_convert_readers', 'returns the views and functions that read a column that becomes bigint'),
        ('snowflake_convert_dependents', 'returns the statements that drop what depends on such columns and create it again'),
        ('snowflake_convert_obstacles', 'returns what keeps keys from being converted'),
        ('snowflake_convert_notes', 'returns what to look at before a conversion'),
        ('snowflake_convert_statements', 'returns the statements of a conversion or its way back'),
        ('snowflake_convert_hash', 'identifies what a script was made from'),
        ('snowflake_convert_check', 'checks that a script still fits, once the tables are locked'),
        ('snowflake_convert_script', 'returns the script of a conversion or of its way back'),
        ('snowflake_fleet_schema', 'returns the schema of the registry, which a superuser must own'),
        ('snowflake_fleet_location', 'the location of the registry''s row'),
        ('snowflake_fleet_current', 'the row of the registry'),
        ('snowflake_fleet_commit_durably', 'makes the transaction durable before it is acknowledged'),
        ('snowflake_fleet_free_from', 'when a registry in doubt leases workers again'),
        ('snowflake_fleet_begin_doubt', 'begins the doubt of a registry that may have lost commits'),
        ('snowflake_fleet_end', 'ends a lease'),
        ('snowflake_fleet_add_groups', 'inserts the rows of a block of workers'),
        ('snowflake_fleet_operate', 'executes a command of an operator'),
        ('snowflake_fleet_tick', 'the tick of a time'),
        ('snowflake_fleet_time', 'the start of a tick'),
        ('snowflake_fleet_layout', 'the widths of a layout that a fleet can have'),
        ('snowflake_fleet_in_doubt', 'whether a registry may have lost commits, and leases no worker'),
        ('snowflake_fleet_refusal', 'why no worker can be leased now'),
        ('snowflake_fleet_claim', 'chooses the worker of a new lease'),
        ('snowflake_fleet_unfit', 'how the settings or the clock of a server differ from what the fleet needs'),
        ('snowflake_fleet_answer', 'the answer to a server that belongs to the fleet')
    ) AS f (name, purpose) LOOP
        EXECUTE format('COMMENT ON FUNCTION snowflake_internal.%I IS %L', own.name, 'internal: ' || own.purpose);
        IF starts_with(own.name, 'snowflake_fleet_') THEN
            EXECUTE format('REVOKE ALL ON FUNCTION snowflake_internal.%I FROM PUBLIC', own.name);
        END IF;
    END LOOP;
END
$$;

-- The path of CREATE EXTENSION again, for the rest of the script.
SET LOCAL search_path = @extschema@, pg_temp;

-- Raises an error without CONTEXT; nothing if `code` is null, because the caller's query found no row.
CREATE FUNCTION snowflake_internal.snowflake_raise(code text, message text, detail text, hint text) RETURNS void
    CALLED ON NULL INPUT LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    is_dropped boolean;
BEGIN
    IF code IS NULL THEN
        RETURN;
    END IF;
    is_dropped := snowflake_internal.snowflake_drop_context();
    RAISE EXCEPTION USING ERRCODE = left(code, 5), MESSAGE = message, DETAIL = concat(detail), HINT = concat(hint);
END
$$;

COMMENT ON FUNCTION snowflake_internal.snowflake_raise(text, text, text, text) IS 'internal: raises an error without CONTEXT';
