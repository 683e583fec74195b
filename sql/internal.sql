-- Only the owner's rights suffice for the functions of the registry.

-- Without the extension's schema, where another role may have created functions and operators.
SET LOCAL search_path = pg_catalog, pg_temp;

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
            AND starts_with(p.proname, 'snowflake_fleet_')
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', own);
    END LOOP;
END
$$;

-- The path of CREATE EXTENSION again, for the rest of the script.
SET LOCAL search_path = @extschema@, pg_temp;
