-- On each server.
BEGIN;
CREATE TRIGGER refuse_own_worker BEFORE INSERT ON orders
    FOR EACH ROW WHEN (snowflake_is_own(NEW.id)) EXECUTE FUNCTION snowflake_refuse_own_worker();
ALTER TABLE orders ENABLE REPLICA TRIGGER refuse_own_worker;
COMMIT;
