/* Two servers have a row of their own with one ID, and replication stops at the other's. Foreign keys to the row need
   ON UPDATE CASCADE. */

-- On the server whose worker you changed: its row gets another ID. Remember it.
UPDATE orders SET id = snowflake_nextval() WHERE id = :id RETURNING id;

-- On the other server: make room for the row that waits to be applied.
UPDATE orders SET id = -id WHERE id = :id;

-- On the other server, once it has the row with the new ID: undo that.
UPDATE orders SET id = -id WHERE id = -:id;
