-- Rows of other servers with an ID of this server's own worker.
SELECT o.id, o.xmin AS transaction, origin.timestamp AS applied
FROM orders AS o
    CROSS JOIN pg_xact_commit_timestamp_origin(o.xmin) AS origin
WHERE o.id >= snowflake_min(now() - interval '1 hour')
    AND origin.roident <> 0
    AND snowflake_server(o.id) = (SELECT home_worker_id FROM snowflake_status)
    AND coalesce(snowflake_datacenter(o.id), 0) = current_setting('snowflake_id.datacenter_id')::integer
ORDER BY o.id;
