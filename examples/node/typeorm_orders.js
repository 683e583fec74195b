// snowflake_id with TypeORM, over node-postgres. PGHOST, PGDATABASE, PGUSER and so on say where.

import assert from "node:assert/strict";
import { DataSource, EntitySchema } from "typeorm";

// With decorators: @PrimaryColumn({ type: "bigint", default: () => "snowflake_nextval()" }) id: string;
const Order = new EntitySchema({
    name: "Order",
    tableName: "typeorm_orders",
    columns: {
        id: { type: "bigint", primary: true, default: () => "snowflake_nextval()" },
        customer: { type: "text" },
    },
});
const { PGHOST: host, PGPORT: port, PGUSER: username, PGPASSWORD: password, PGDATABASE: database } = process.env;
const source = new DataSource({ type: "postgres", host, port, username, password, database, entities: [Order] });
await source.initialize();
await source.query("DROP TABLE IF EXISTS typeorm_orders");
await source.synchronize();
// A migration that it would write now is empty.
assert.deepEqual((await source.driver.createSchemaBuilder().log()).upQueries, []);

const orders = source.getRepository("Order");
const ada = await orders.save({ customer: "Ada" });
console.log("one row:", ada.id);
assert.equal(typeof ada.id, "string");
assert.equal((await orders.findOneBy({ id: ada.id })).customer, "Ada");

const many = await orders.save(Array.from({ length: 1000 }, (_, i) => ({ customer: `customer ${i}` })));
console.log("many rows:", many.length, "from", many[0].id, "to", many[999].id);
assert.equal(new Set(many.map((order) => order.id)).size, 1000);

await source.destroy();
console.log("all is well");
