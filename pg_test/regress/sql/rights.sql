-- Who may do what.
CREATE ROLE ordinary_user;
CREATE ROLE monitoring_user IN ROLE pg_monitor;
CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
GRANT INSERT, SELECT ON t TO ordinary_user;

SET ROLE ordinary_user;
INSERT INTO t DEFAULT VALUES RETURNING (snowflake_decode(id)).worker_id;
SELECT count(*) FROM t WHERE snowflake_between(id, '-infinity', 'infinity');
SELECT count(*) > 0 AS may_read FROM snowflake_layouts;
SELECT snowflake_rotate();
SELECT snowflake_adopt();
SELECT snowflake_reset_stats();
SELECT * FROM snowflake_status;
SELECT * FROM snowflake_workers;
SELECT state FROM snowflake_internal.snowflake_status_row();

SET ROLE monitoring_user;
SELECT state, reason, home_worker_id, layout FROM snowflake_status;
SELECT lane, worker_id, active FROM snowflake_workers ORDER BY lane;
SELECT snowflake_rotate();
RESET ROLE;

-- an administrator
SELECT snowflake_rotate() AS worker;
SELECT rotations, lane, worker_id FROM snowflake_status;
SELECT snowflake_worker(snowflake_nextval()) AS worker;
SELECT snowflake_reset_stats();
SELECT rotations, issued, worker_id FROM snowflake_status;
SELECT sum(issued) AS issued FROM snowflake_workers;
SELECT snowflake_nextval_batch(3) IS NOT NULL AS made;
SELECT issued FROM snowflake_status;

-- no session can change a setting, not even one of a superuser
SET snowflake_id.worker_id = 2;
SET snowflake_id.max_ahead = '1min';
SET snowflake_id.rollback_policy = 'replay';
SET snowflake_id.no_such_setting = 1;
-- ALTER SYSTEM writes no value that would keep the gate closed at the next start
ALTER SYSTEM SET snowflake_id.layout = '41/10/13';
ALTER SYSTEM SET snowflake_id.layout = '41-10-12';
ALTER SYSTEM SET snowflake_id.epoch = '2024-01-01 00:00:00';
ALTER SYSTEM SET snowflake_id.epoch = 'now';
ALTER SYSTEM SET snowflake_id.tick = '5ms';
ALTER SYSTEM SET snowflake_id.backup_workers = 16;
ALTER SYSTEM SET snowflake_id.rollback_policy = 'guess';

DROP TABLE t;
DROP ROLE ordinary_user, monitoring_user;
DROP EXTENSION snowflake_id;
