-- On each of two servers. This is server a; on b, swap the hosts.
CREATE EXTENSION pglogical;
SELECT pglogical.create_node('a', 'host=a.example.com dbname=app user=replicator');
SELECT pglogical.replication_set_add_table('default', 'orders');

-- Once the other server has its node.
SELECT pglogical.create_subscription('other_server', 'host=b.example.com dbname=app user=replicator',
                                     synchronize_data := false, forward_origins := '{}');
