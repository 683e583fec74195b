-- On each server.
BEGIN;
CREATE TRIGGER refuse_own_worker BEFORE INSERT ON orders
    FOR EACH ROW EXECUTE FUNCTION snowflake_refuse_own_worker('id');
ALTER TABLE orders ENABLE REPLICA TRIGGER refuse_own_worker;
COMMIT;
