-- What roles do with the rights that install.sql lists.
CREATE ROLE ordinary_user;
CREATE ROLE monitoring_user IN ROLE pg_monitor;
CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_nextval());
GRANT INSERT, SELECT ON t TO ordinary_user;

SET ROLE ordinary_user;
INSERT INTO t DEFAULT VALUES RETURNING snowflake_server(id);
SELECT count(*) FROM t WHERE snowflake_between(id, '-infinity', 'infinity');

SET ROLE monitoring_user;
SELECT state, reason, home_worker_id, layout, epoch AT TIME ZONE 'UTC' AS epoch,
    expires_at AT TIME ZONE 'UTC' AS expires_at, worker_id % 256 AS worker,
    ahead_ms BETWEEN 0 AND 2000 AS is_near, now() - stats_reset < '1 day' AS has_counted, keeper_pid > 0 AS has_keeper, write_error
FROM snowflake_status;
SELECT lane, worker_id, count(*) FILTER (WHERE active) OVER () AS active FROM snowflake_workers ORDER BY lane;
RESET ROLE;

-- an administrator
SELECT snowflake_reset_stats();
SELECT rotations, issued, worker_id AS before FROM snowflake_status \gset
\echo :rotations :issued
SELECT snowflake_rotate() AS worker \gset
SELECT rotations, worker_id = :worker AS is_shown, worker_id <> :before AS is_another, lane = worker_id / 256 AS has_lane,
    worker_id % 256 AS home_worker FROM snowflake_status;
SELECT snowflake_worker(snowflake_nextval()) = :worker AS is_used;
SELECT snowflake_reset_stats();
SELECT rotations, issued, worker_id = :worker AS is_kept FROM snowflake_status;
SELECT sum(issued) AS issued FROM snowflake_workers;
SELECT snowflake_nextval_batch(3) IS NOT NULL AS made;
SELECT last - first AS more FROM snowflake_nextval_range(66);
SELECT issued FROM snowflake_status;
-- a floor raises what the next IDs are above, and never lowers it
SELECT clock_timestamp() AS floor \gset
SELECT snowflake_adopt(:'floor');
SELECT snowflake_nextval() AS id \gset
SELECT snowflake_timestamp(:id) > :'floor' AS is_above;
SELECT snowflake_adopt('2024-02-01 00:00+00');
SELECT snowflake_nextval() > :id AS is_above;
SELECT snowflake_adopt(NULL) IS NULL AS null_in_null_out;
\set VERBOSITY terse
SELECT snowflake_adopt(now() + interval '25 h');
\set VERBOSITY default
\echo :LAST_ERROR_SQLSTATE
-- every ID lies below what is reserved
SELECT snowflake_nextval() AS id \gset
SELECT snowflake_timestamp(:id) < reserved_until AS is_below, snowflake_timestamp(:id) = last_id_at AS is_last FROM snowflake_status;

DROP TABLE t;
DROP ROLE ordinary_user, monitoring_user;
DROP EXTENSION snowflake_id;
