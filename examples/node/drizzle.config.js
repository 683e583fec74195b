// drizzle-kit push --config drizzle.config.js. PGHOST, PGDATABASE, PGUSER and so on say where.

const { PGHOST: host, PGPORT: port, PGUSER: user, PGPASSWORD: password, PGDATABASE: database } = process.env;

export default {
    dialect: "postgresql",
    schema: "./drizzle_schema.js",
    // Without this, drizzle-kit wants to drop the views of the extension.
    tablesFilter: ["!snowflake_*"],
    dbCredentials: { host, port: Number(port), user, password, database, ssl: false },
};
