/* pglogical has given each of two servers the other's row with one ID. `grep CONFLICT` in the logs finds the ID. */

-- On the server that keeps its worker: the row of the other server gets an ID of its own.
INSERT INTO orders (note) SELECT note FROM orders WHERE id = :id RETURNING id;

-- On the other server, once it has that row: send the row that has the ID.
UPDATE orders SET id = id WHERE id = :id;
