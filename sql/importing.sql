-- IDs for rows that have times of their own.

-- For a set of rows. A window function, because an aggregate's default frame ends with the last row of the same time, so
-- all rows of one time would have one result.
CREATE FUNCTION snowflake_at(ts timestamptz, worker integer) RETURNS bigint
    VOLATILE WINDOW PARALLEL RESTRICTED LANGUAGE c AS 'MODULE_PATHNAME', 'snowflake_at';

-- For single rows, above the IDs that the table has. No two transactions get the same ID: the second waits for the end of
-- the first, and then sees its rows. At another isolation level than READ COMMITTED it does not see them, so it gets the
-- same ID, which the unique index refuses.
CREATE FUNCTION snowflake_next_at(ts timestamptz, worker integer, table_name regclass, column_name name DEFAULT 'id')
    RETURNS bigint
    VOLATILE STRICT PARALLEL UNSAFE LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    first   bigint;
    last    bigint;
    highest bigint;
    later   bigint := 0; -- ticks after the time's own, which are full
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_attribute a JOIN pg_index i ON i.indrelid = a.attrelid AND i.indkey[0] = a.attnum
        WHERE a.attrelid = table_name AND a.attname = column_name AND a.atttypid = 'bigint'::regtype
            AND i.indisunique AND i.indisvalid AND i.indnkeyatts = 1 AND i.indpred IS NULL
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'object_not_in_prerequisite_state',
            MESSAGE = 'snowflake_next_at needs a bigint column with a unique index of its own',
            DETAIL = format('Column %I of %s is none.', column_name, table_name),
            HINT = 'Add a primary key or a unique index on this column alone, or pass another column.';
    ELSIF row_security_active(table_name) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = 'snowflake_next_at needs a role that sees all rows of the table',
            DETAIL = format('Row-level security of %s applies to role %I.', table_name, current_user),
            HINT = 'Call it in a SECURITY DEFINER function of a role to which row-level security does not apply.';
    END IF;
    PERFORM pg_advisory_xact_lock(table_name::oid::integer, worker);
    LOOP
        SELECT s.first, s.last INTO first, last FROM snowflake_internal.snowflake_import_span(ts, worker, later) s;
        EXECUTE format('SELECT max(%1$I) FROM %2$s WHERE %1$I BETWEEN $1 AND $2', column_name, table_name)
            INTO highest USING first, last;
        IF highest IS NULL THEN
            RETURN first;
        ELSIF highest < last THEN
            RETURN highest + 1;
        END IF;
        later := later + 1;
    END LOOP;
END
$$;

COMMENT ON FUNCTION snowflake_at(timestamptz, integer) IS
    'window function: returns the ID of a row''s time and a worker that no server has';
COMMENT ON FUNCTION snowflake_next_at(timestamptz, integer, regclass, name) IS
    'returns the next ID of a time and a worker that no server has, after those in a table';
