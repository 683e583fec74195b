-- On each of two servers, with PostgreSQL 16 or later. This is server a; on b, name a's host.
CREATE PUBLICATION own_rows FOR TABLE orders;

-- Once the other server has its publication.
CREATE SUBSCRIPTION other_server CONNECTION 'host=b.example.com dbname=app user=replicator' PUBLICATION own_rows
    WITH (origin = none, copy_data = false);
