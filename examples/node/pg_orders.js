// snowflake_id with node-postgres.
//
// Connects as libpq does: PGHOST, PGDATABASE, PGUSER and so on say where.

import assert from "node:assert/strict";
import { isSafeNumber, parse } from "lossless-json";
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

// JSON that PostgreSQL makes has numbers, which JSON.parse() rounds. The ID as text, in the query:
const asText = await client.query(
    "SELECT to_jsonb(o) || jsonb_build_object('id', o.id::text) AS json FROM pg_orders AS o WHERE id = $1",
    [id],
);
assert.deepEqual(asText.rows[0].json, { id, customer: "Ada" });
// Or a parser for json and jsonb that makes BigInts of large numbers.
const { JSON: JSON_TYPE, JSONB } = pg.types.builtins;
const parseJson = (text) => parse(text, null, (number) => (isSafeNumber(number) ? Number(number) : BigInt(number)));
const exactJson = new pg.Client({
    types: {
        getTypeParser: (oid, format) =>
            [JSON_TYPE, JSONB].includes(oid) ? parseJson : pg.types.getTypeParser(oid, format),
    },
});
await exactJson.connect();
for (const type of ["json", "jsonb"]) {
    const query = `SELECT to_jsonb(o)::${type} AS json, '{"n": 0.5}'::${type} AS other FROM pg_orders AS o WHERE id = $1`;
    const { rows: [row] } = await exactJson.query(query, [id]);
    assert.deepEqual(row, { json: { id: BigInt(id), customer: "Ada" }, other: { n: 0.5 } });
}
await exactJson.end();
// The parser of JavaScript itself can do it from Node.js 21 on, which passes the source to a reviver.
const reviver = (_, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context.source) ? BigInt(context.source) : value;
if (parseInt(process.versions.node) >= 21) {
    assert.deepEqual(JSON.parse(`{"id": ${id}, "n": 0.5}`, reviver), { id: BigInt(id), n: 0.5 });
}
// With "binary: true", node-postgres returns other numbers for large bigints.
const binary = new pg.Client({ binary: true });
await binary.connect();
const misread = await binary.query("SELECT $1::bigint AS id", ["382501920606015489"]);
assert.notEqual(String(misread.rows[0].id), "382501920606015489");
await binary.end();

// How often rounding shows. One row at a time has the sequence 0, so its ID is a multiple of 4096, which a Number holds;
// the IDs of a burst are not.
const rounded = (made) => made.filter((made) => BigInt(Number(made)) !== BigInt(made)).length;
const slowly = [];
for (let i = 0; i < 100; i++) {
    slowly.push((await client.query("SELECT snowflake_nextval() AS id")).rows[0].id);
    await new Promise((resolve) => setTimeout(resolve, 3));
}
const burst = (await client.query("SELECT snowflake_nextval_batch(4000) AS id")).rows.map((row) => row.id);
console.log("rounded:", rounded(slowly), "of 100 one by one,", rounded(burst), "of 4000 at once");
if (process.env.SEQUENCE_START !== "spread") {
    assert.ok(rounded(slowly) <= 5 && rounded(burst) > 3900);
} else {
    assert.ok(rounded(slowly) > 90);
}

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
