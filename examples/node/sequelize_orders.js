// snowflake_id with Sequelize, over node-postgres. PGHOST, PGDATABASE, PGUSER and so on say where.

import assert from "node:assert/strict";
import { DataTypes, Sequelize } from "sequelize";

const { PGHOST: host, PGPORT: port, PGUSER: username, PGPASSWORD: password, PGDATABASE: database } = process.env;
const sequelize = new Sequelize({ dialect: "postgres", host, port, username, password, database, logging: false });

const Order = sequelize.define(
    "Order",
    {
        id: { type: DataTypes.BIGINT, primaryKey: true, defaultValue: sequelize.literal("snowflake_nextval()") },
        customer: { type: DataTypes.TEXT, allowNull: false },
    },
    { tableName: "sequelize_orders", timestamps: false },
);
await Order.sync({ force: true });

const ada = await Order.create({ customer: "Ada" });
console.log("one row:", ada.id);
assert.equal(typeof ada.id, "string");
assert.equal((await Order.findByPk(ada.id)).customer, "Ada");

const many = await Order.bulkCreate(Array.from({ length: 1000 }, (_, i) => ({ customer: `customer ${i}` })));
console.log("many rows:", many.length, "from", many[0].id, "to", many[999].id);
assert.equal(new Set(many.map((order) => order.id)).size, 1000);

// max() makes a Number of it, which rounds, unless it is told another type.
const { id: last } = await Order.findOne({ order: [["id", "DESC"]] });
assert.equal(await Order.max("id"), Number(last));
assert.equal(await Order.max("id", { dataType: DataTypes.STRING }), last);

await sequelize.close();
console.log("all is well");
