// What drizzle-kit compares the database with.

import { sql } from "drizzle-orm";
import { bigint, pgTable, text } from "drizzle-orm/pg-core";

export const orders = pgTable("drizzle_kit_orders", {
    id: bigint({ mode: "bigint" }).primaryKey().default(sql`snowflake_nextval()`),
    customer: text().notNull(),
});
