-- The guard for rows that logical replication applies. Its condition decides, so this function runs only to refuse a row.

CREATE FUNCTION snowflake_refuse_own_worker() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    failing text := NEW::text;
BEGIN
    IF current_setting('session_replication_role') <> 'replica' OR TG_OP <> 'INSERT' OR NOT EXISTS (
        SELECT FROM pg_trigger WHERE tgrelid = TG_RELID AND tgname = TG_NAME AND tgqual IS NOT NULL
    ) THEN
        RAISE EXCEPTION USING ERRCODE = 'trigger_protocol_violated',
            MESSAGE = format('trigger "%s" of table "%s" must be a replica trigger for INSERT with a condition',
                TG_NAME, TG_TABLE_NAME),
            DETAIL = 'It would refuse rows that this server inserts itself, or all rows.',
            HINT = 'Run CREATE TRIGGER with BEFORE INSERT and WHEN (snowflake_is_own(NEW.id)), and ALTER TABLE with ENABLE '
                'REPLICA TRIGGER, in one transaction.';
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'integrity_constraint_violation',
        MESSAGE = format('replicated row of table "%s" has an ID of this server''s own worker', TG_TABLE_NAME),
        DETAIL = format('Failing row contains %s.', left(failing, 200) || repeat('...', (length(failing) > 200)::integer)),
        HINT = 'If another server generates with this worker, give one of the two another snowflake_id.worker_id. If the '
            'row is this server''s own, subscribe with origin = none (PostgreSQL 16 or later), or publish only the rows that '
            'each server inserts. If the table is being copied, disable the trigger until the copy is complete.';
END
$$;

COMMENT ON FUNCTION snowflake_is_own(bigint) IS
    'returns whether an ID is one that this server may generate, so that no other server may';
COMMENT ON FUNCTION snowflake_refuse_own_worker() IS
    'for a trigger BEFORE INSERT with the condition snowflake_is_own(NEW.id): refuses replicated rows';
