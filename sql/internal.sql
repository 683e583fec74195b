-- How SQL raises errors. Only the owner's rights suffice for the functions of the registry.

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
    own regprocedure;
BEGIN
    FOR own IN
        SELECT p.oid
        FROM pg_extension e
        JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
        JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
        WHERE e.extname = 'snowflake_id' AND p.pronamespace = 'snowflake_internal'::regnamespace
            AND p.proname ~ '^snowflake_(fleet|registry)_'
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', own);
    END LOOP;
END
$$;

-- The path of CREATE EXTENSION again, for the rest of the script.
SET LOCAL search_path = @extschema@, pg_temp;
