-- How SQL raises errors, and the purposes of the functions of snowflake_internal. Only the owner's rights suffice for those of the registry.

-- Without the extension's schema, where another role may have created functions and operators.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Removes CONTEXT from the error that PL/pgSQL raises next.
CREATE FUNCTION snowflake_internal.snowflake_drop_context() RETURNS boolean
    VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_drop_context_wrapper';

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
        ('snowflake_raise', 'raises an error without CONTEXT'),
        ('snowflake_refuse', 'raises the first obstacle of a call'),
        ('snowflake_convert_relations', 'returns the relations of a schema'),
        ('snowflake_convert_find', 'returns the serial, identity and snowflake keys of tables'),
        ('snowflake_convert_columns', 'returns the columns that hold values of keys'),
        ('snowflake_convert_sequences', 'returns the sequences of keys'),
        ('snowflake_convert_lock', 'locks the views, tables and sequences of a call'),
        ('snowflake_convert_left', 'returns the keys that are left to change, with their highest values'),
        ('snowflake_convert_execute', 'executes a plan'),
        ('snowflake_convert_check_call', 'checks a call and the tables that it names'),
        ('snowflake_other_owner', 'the role that owns an object in the caller''s place'),
        ('snowflake_convert_check_owners', 'checks that the caller owns what a call changes, and sees all rows'),
        ('snowflake_convert_check_columns', 'checks the columns of a conversion and their tables'),
        ('snowflake_convert_check_keys', 'checks indexes, defaults, sequences and inserting roles of keys'),
        ('snowflake_convert_inserters', 'returns the roles that may insert rows into a table'),
        ('snowflake_convert_check_widening', 'checks what becomes bigint'),
        ('snowflake_convert_has', 'whether an index has a column in its expressions'),
        ('snowflake_convert_check_plans', 'checks that queries of the tables can be planned'),
        ('snowflake_convert_check_values', 'compares the values of keys with new IDs'),
        ('snowflake_convert_check_expressions', 'evaluates what depends on the columns with a new ID'),
        ('snowflake_convert_readers', 'returns the views and functions that read a widened column'),
        ('snowflake_convert_create', 'returns the statements that create an object again'),
        ('snowflake_convert_check_views', 'checks that views can be created again'),
        ('snowflake_convert_plan_readers', 'returns the statements that drop views or create them again'),
        ('snowflake_convert_code', 'returns code that may not work after a conversion'),
        ('snowflake_convert_left_out', 'returns columns that a conversion leaves as they are'),
        ('snowflake_convert_back', 'returns the statements that bring keys back'),
        ('snowflake_convert_script', 'returns the statements that drop obstacles or create them again'),
        ('snowflake_convert_plan', 'returns the statements of a conversion'),
        ('snowflake_convert_size', 'returns the size of a table with its indexes and children'),
        ('snowflake_convert_keys', 'converts keys'),
        ('snowflake_revert_find', 'returns the keys of tables with a snowflake default'),
        ('snowflake_revert_sequences', 'returns the sequences that keys get'),
        ('snowflake_revert_check', 'checks that keys can have a sequence'),
        ('snowflake_revert_plan', 'returns the statements that give keys a sequence'),
        ('snowflake_revert_keys', 'gives keys a sequence'),
        ('snowflake_registry_contact', 'claims or renews the lease of a worker; servers call it'),
        ('snowflake_fleet_location', 'the location of the registry''s row'),
        ('snowflake_fleet_current', 'the row of the registry'),
        ('snowflake_fleet_commit_durably', 'makes the transaction durable before it is acknowledged'),
        ('snowflake_fleet_doubt', 'when a registry in doubt leases workers again, and its last contact before'),
        ('snowflake_fleet_begin_doubt', 'begins the doubt of a registry that may have lost commits'),
        ('snowflake_fleet_end', 'ends a lease'),
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
        IF own.name ~ '^snowflake_(fleet|registry)_' THEN
            EXECUTE format('REVOKE ALL ON FUNCTION snowflake_internal.%I FROM PUBLIC', own.name);
        END IF;
    END LOOP;
END
$$;

-- The path of CREATE EXTENSION again, for the rest of the script.
SET LOCAL search_path = @extschema@, pg_temp;
