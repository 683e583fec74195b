-- Asks all nodes of a Citus cluster, and one that you are about to add, whether they generate IDs with workers of their
-- own: docs/citus.md.

CREATE FUNCTION check_nodes(new_node text DEFAULT NULL, new_port integer DEFAULT 5432)
    RETURNS TABLE (node text, problem text) LANGUAGE sql AS $$
WITH nodes AS (
    SELECT nodename, nodeport FROM pg_dist_node WHERE isactive AND noderole = 'primary'
    UNION
    SELECT new_node, new_port WHERE new_node IS NOT NULL
), asked AS (
    SELECT array_agg(nodename) AS names, array_agg(nodeport) AS ports, array_agg(text $command$
        SELECT jsonb_build_object(
            'closed', CASE WHEN s.state <> 'open' THEN coalesce(s.reason, s.state::text) END,
            'layout', l.layout || format(' %sms since %s with %s backup workers', l.tick_ms, l.epoch AT TIME ZONE 'UTC',
                                         current_setting('snowflake_id.backup_workers', true)),
            'workers', ARRAY(SELECT concat(d.datacenter, worker_id) FROM snowflake_workers WHERE worker_id IS NOT NULL))
        FROM snowflake_status AS s, snowflake_server_layout() AS l,
            LATERAL (SELECT CASE WHEN l.layout LIKE '%+%' THEN current_setting('snowflake_id.datacenter_id') || '+' END)
                AS d (datacenter)
    $command$) AS commands FROM nodes
), answers AS (
    SELECT node_name || ':' || node_port AS name, success, result, CASE WHEN success THEN result::jsonb END AS of
    FROM asked, master_run_on_worker(names, ports, commands, true)
)
SELECT name, 'cannot be checked: ' || result FROM answers WHERE NOT success
UNION ALL
SELECT name, 'generates no IDs: ' || (of->>'closed') FROM answers WHERE of->>'closed' IS NOT NULL
UNION ALL
SELECT name, 'has layout ' || (of->>'layout') FROM answers
WHERE success AND (SELECT count(DISTINCT of->>'layout') FROM answers) > 1
UNION ALL
SELECT a.name, 'shares workers with ' || b.name FROM answers AS a, answers AS b
WHERE a.name <> b.name
    AND a.of->'workers' ?| ARRAY(SELECT jsonb_array_elements_text(b.of->'workers'))
ORDER BY 1, 2
$$;
