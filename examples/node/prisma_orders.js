// snowflake_id with Prisma, by the adapter for node-postgres. PGHOST, PGDATABASE, PGUSER and so on say where.

import assert from "node:assert/strict";
import { PrismaPg } from "@prisma/adapter-pg";
import { PrismaClient } from "@prisma/client"; // generated from schema.prisma

const prisma = new PrismaClient({ adapter: new PrismaPg({}) });
// `prisma migrate` would write this.
await prisma.$executeRaw`DROP TABLE IF EXISTS prisma_orders`;
await prisma.$executeRaw`CREATE TABLE prisma_orders (
    id       bigint PRIMARY KEY DEFAULT snowflake_nextval(),
    customer text NOT NULL
)`;

const { id } = await prisma.order.create({ data: { customer: "Ada" } });
console.log("one row:", String(id));
assert.equal(typeof id, "bigint");
assert.equal((await prisma.order.findUnique({ where: { id } })).customer, "Ada");

const data = Array.from({ length: 1000 }, (_, i) => ({ customer: `customer ${i}` }));
const many = await prisma.order.createManyAndReturn({ data });
console.log("many rows:", many.length, "from", String(many[0].id), "to", String(many[999].id));
assert.equal(new Set(many.map((order) => order.id)).size, 1000);

await prisma.$disconnect();
console.log("all is well");
