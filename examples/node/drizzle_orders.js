// snowflake_id with Drizzle, over node-postgres.
//
// Connects as libpq does: PGHOST, PGDATABASE, PGUSER and so on say where.

import assert from "node:assert/strict";
import { eq, inArray, sql } from "drizzle-orm";
import { drizzle } from "drizzle-orm/node-postgres";
import { bigint, getTableConfig, pgTable, text } from "drizzle-orm/pg-core";
import pg from "pg";

// mode says what a bigint is in JavaScript: "bigint" is exact. "number" compiles, runs and rounds.
// `.default(sql...)` is the column's DEFAULT: drizzle-kit writes it, and inserts leave the ID to it. Not bigserial(),
// nor .generatedByDefaultAsIdentity(): those make a sequence.
const orders = pgTable("drizzle_orders", {
    id: bigint({ mode: "bigint" }).primaryKey().default(sql`snowflake_nextval()`),
    customer: text().notNull(),
});

// The mistake, to see what it does.
const rounded = pgTable("drizzle_orders", {
    id: bigint({ mode: "number" }).primaryKey().default(sql`snowflake_nextval()`),
    customer: text().notNull(),
});

const createdBetween = (id, since, until) => sql`snowflake_between(${id}, ${since}::timestamptz, ${until}::timestamptz)`;

const client = new pg.Client();
await client.connect();
const db = drizzle({ client });
// drizzle-kit would write this.
await db.execute(sql`DROP TABLE IF EXISTS drizzle_orders`);
await db.execute(sql`CREATE TABLE drizzle_orders (
    id       bigint PRIMARY KEY DEFAULT snowflake_nextval(),
    customer text NOT NULL
)`);
assert.ok(getTableConfig(orders).columns[0].hasDefault);
const minuteAgo = new Date(Date.now() - 60_000).toISOString();

// One row.
const [{ id }] = await db.insert(orders).values({ customer: "Ada" }).returning({ id: orders.id });
console.log("one row:", String(id));
assert.equal(typeof id, "bigint");
assert.ok(id > BigInt(Number.MAX_SAFE_INTEGER));

// Many rows: one INSERT with their IDs. Nothing promises the order in which RETURNING gives them: a column of yours
// beside the ID tells which is whose.
const many = await db
    .insert(orders)
    .values(Array.from({ length: 1000 }, (_, i) => ({ customer: `customer ${i}` })))
    .returning();
const ids = many.map((order) => order.id);
console.log("many rows:", ids.length, "from", String(ids[0]), "to", String(ids[999]));
assert.equal(new Set(ids).size, 1000);
assert.equal(new Set(many.map((order) => order.customer)).size, 1000);

// An ID in conditions.
const [ada] = await db.select().from(orders).where(eq(orders.id, id));
assert.deepEqual(ada, { id, customer: "Ada" });
assert.equal((await db.select().from(orders).where(inArray(orders.id, ids))).length, 1000);

// In mode "number" thousands of orders become dozens of numbers, and a look-up misses, or finds another order.
const numbers = (await db.select().from(rounded)).map((order) => order.id);
assert.equal(numbers.length, 1001);
assert.ok(new Set(numbers).size < 1001);
console.log("mode number:", numbers.length, "orders have", new Set(numbers).size, "numbers");
assert.ok(numbers.some((number) => !Number.isSafeInteger(number)));

// Rows of a span of time, by the primary key. An ID may be ahead of the clock by max_ahead, so a span that is to
// hold everything up to now has no upper end. A time in sql`` goes as text: Drizzle maps only columns' own types.
const recent = await db
    .select({ id: orders.id, createdAt: sql`snowflake_timestamp(${orders.id})`.mapWith((time) => new Date(time)) })
    .from(orders)
    .where(createdBetween(orders.id, minuteAgo, "infinity"))
    .orderBy(orders.id);
console.log("by time:", recent.length, "since a minute ago; the first at", recent[0].createdAt.toISOString());
assert.equal(recent.length, 1001);
assert.equal(recent[0].id, id);
assert.ok(recent[0].createdAt >= new Date(minuteAgo));

await client.end();
console.log("all is well");
