// snowflake_id with node-postgres.
//
// Connects as libpq does: PGHOST, PGDATABASE, PGUSER and so on say where.

import assert from "node:assert/strict";
import pg from "pg";

const client = new pg.Client();
await client.connect();
await client.query("DROP TABLE IF EXISTS pg_orders");
await client.query(`CREATE TABLE pg_orders (
    id       bigint PRIMARY KEY DEFAULT snowflake_nextval(),
    customer text NOT NULL
)`);
const minuteAgo = new Date(Date.now() - 60_000);

// One row. A bigint arrives as a string, for a Number cannot hold it. A string can be compared for equality, be
// a key of a Map, go into JSON and back into a query: often it is all that you need.
const inserted = await client.query("INSERT INTO pg_orders (customer) VALUES ($1) RETURNING id", ["Ada"]);
const id = inserted.rows[0].id;
console.log("one row:", id);
assert.equal(typeof id, "string");

// What happens to an ID in a Number: it has 53 bits, so one in 2^58 to 2^59 is rounded to a multiple of 64.
// That is somebody else's order, or nobody's.
assert.ok(!Number.isSafeInteger(Number(id)));
assert.equal(Number(382501920606015489n), Number(382501920606015488n));
assert.notEqual(String(JSON.parse('{"id": 382501920606015489}').id), "382501920606015489");
// Strings of digits of unequal length do not sort as numbers do: let the database sort, or compare BigInts.
assert.ok("99" > "100" && 99n < 100n);

// To have them as BigInt: by a type parser of this client's own; pg.types.setTypeParser() would set it for all.
const INT8 = pg.types.builtins.INT8;
const types = {
    getTypeParser: (oid, format) =>
        oid === INT8 && format !== "binary" ? BigInt : pg.types.getTypeParser(oid, format),
};
const exact = new pg.Client({ types });
await exact.connect();

// Many rows and their IDs in one round trip: one statement over an array, in the array's order.
const customers = Array.from({ length: 1000 }, (_, i) => `customer ${i}`);
const many = await exact.query(
    `INSERT INTO pg_orders (customer)
     SELECT customer FROM unnest($1::text[]) WITH ORDINALITY AS u (customer, n) ORDER BY n
     RETURNING id, customer`,
    [customers],
);
const ids = many.rows.map((row) => row.id);
console.log("many rows:", ids.length, "from", String(ids[0]), "to", String(ids[999]));
assert.equal(typeof ids[0], "bigint");
assert.equal(new Set(ids).size, 1000);
assert.ok(ids[0] > BigInt(id));
assert.deepEqual(many.rows.map((row) => row.customer), customers);

// count(*) is a bigint too, and now a BigInt: cast what is small.
const { rows: [counted] } = await exact.query("SELECT count(*) AS big, count(*)::integer AS small FROM pg_orders");
assert.deepEqual(counted, { big: 1001n, small: 1001 });

// JSON has no BigInt: stringify() throws, unless a replacer makes text of it. So does a browser need it.
assert.throws(() => JSON.stringify({ id: ids[0] }), TypeError);
const json = JSON.stringify({ id: ids[0] }, (_, value) => (typeof value === "bigint" ? String(value) : value));
assert.equal(BigInt(JSON.parse(json).id), ids[0]);

// An ID as a parameter: a string or a BigInt, in an array too.
const found = await exact.query("SELECT customer FROM pg_orders WHERE id = $1", [id]);
assert.equal(found.rows[0].customer, "Ada");
const pair = await exact.query("SELECT customer FROM pg_orders WHERE id = ANY($1::bigint[]) ORDER BY id", [[id, ids[0]]]);
assert.deepEqual(pair.rows.map((row) => row.customer), ["Ada", "customer 0"]);

// Rows of a span of time, by the primary key. An ID may be ahead of the clock by max_ahead, so a span that is to
// hold everything up to now has no upper end.
const { rows: [recent] } = await client.query(
    `SELECT count(*)::integer AS n, snowflake_timestamp(min(id)) AS first
     FROM pg_orders WHERE snowflake_between(id, $1, 'infinity')`,
    [minuteAgo],
);
console.log("by time:", recent.n, "since a minute ago; the first at", recent.first.toISOString());
assert.equal(recent.n, 1001);
assert.ok(recent.first > minuteAgo);

await exact.end();
await client.end();
console.log("all is well");
