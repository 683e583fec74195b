// What TypeORM would change in a converted table, for a model with or without its default. Prints the statements.

const { DataSource, EntitySchema } = require("typeorm");

async function main(withDefault) {
  const key = withDefault ? { default: () => "snowflake_nextval()" } : {};
  const columns = { id: { type: "bigint", primary: true, ...key }, customer: { type: "text" } };
  const source = new DataSource({
    type: "postgres",
    host: process.env.PGHOST,
    username: process.env.PGUSER,
    database: process.env.PGDATABASE,
    entities: [new EntitySchema({ name: "Order", tableName: "orders", columns })],
  });
  await source.initialize();
  const changes = await source.driver.createSchemaBuilder().log();
  for (const change of changes.upQueries) console.log(change.query);
  await source.destroy();
}

main(process.argv[2] === "default");
