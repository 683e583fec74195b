//! `snowflake_id` with sqlx.
//!
//! Connects as libpq does: PGHOST, PGDATABASE, PGUSER and so on say where.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{Connection, Executor, FromRow};

/// A bigint is an i64, exactly. (PostgreSQL has no unsigned types, and sqlx none for u64; an ID is never
/// negative.) A newtype keeps the IDs of one table from being taken for those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, sqlx::Type)]
#[sqlx(transparent)]
struct OrderId(i64);

#[derive(Debug, FromRow)]
struct Order {
    id: OrderId,
    customer: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect_with(&PgConnectOptions::new()).await?;
    connection.execute("DROP TABLE IF EXISTS sqlx_orders").await?;
    connection
        .execute(
            "CREATE TABLE sqlx_orders (
                 id       bigint PRIMARY KEY DEFAULT snowflake_nextval(),
                 customer text NOT NULL
             )",
        )
        .await?;
    let began = Utc::now();

    // One row.
    let id: OrderId = sqlx::query_scalar("INSERT INTO sqlx_orders (customer) VALUES ($1) RETURNING id")
        .bind("Ada")
        .fetch_one(&mut connection)
        .await?;
    println!("one row: {}", id.0);
    assert!(id.0 > 0);

    // Many rows and their IDs in one round trip: one statement over an array, in the array's order.
    let customers: Vec<String> = (0..1000).map(|i| format!("customer {i}")).collect();
    let many: Vec<Order> = sqlx::query_as(
        "INSERT INTO sqlx_orders (customer)
         SELECT customer FROM unnest($1::text[]) WITH ORDINALITY AS u (customer, n) ORDER BY n
         RETURNING id, customer",
    )
    .bind(&customers)
    .fetch_all(&mut connection)
    .await?;
    println!("many rows: {} from {} to {}", many.len(), many[0].id.0, many[999].id.0);
    assert!(many.iter().map(|order| &order.customer).eq(&customers));
    assert!(many.is_sorted_by(|a, b| a.id < b.id) && many[0].id > id);

    // Where the keys must be known before the rows are sent: take them first.
    let taken: Vec<OrderId> =
        sqlx::query_scalar("SELECT snowflake_nextval_batch($1)").bind(10).fetch_all(&mut connection).await?;
    let written = sqlx::query(
        "INSERT INTO sqlx_orders (id, customer)
         SELECT id, 'taken ' || n FROM unnest($1::bigint[]) WITH ORDINALITY AS u (id, n)",
    )
    .bind(&taken)
    .execute(&mut connection)
    .await?;
    println!("taken: {} from {} to {}", taken.len(), taken[0].0, taken[9].0);
    assert_eq!(written.rows_affected(), 10);

    // Rows of a span of time, by the primary key. An ID may be ahead of the clock by max_ahead, so a span that
    // is to hold everything up to now has no upper end.
    let (found, first): (i64, DateTime<Utc>) = sqlx::query_as(
        "SELECT count(*), snowflake_timestamp(min(id))
         FROM sqlx_orders WHERE snowflake_between(id, $1, 'infinity')",
    )
    .bind(began - TimeDelta::minutes(1))
    .fetch_one(&mut connection)
    .await?;
    println!("by time: {found} since a minute ago; the first at {first}");
    assert_eq!(found, 1 + 1000 + 10);
    assert!((first - began).abs() < TimeDelta::minutes(1));

    // What leaves for a browser leaves as text: JavaScript's numbers are f64, and have 53 bits.
    assert_ne!(382_501_920_606_015_489_i64 as f64 as i64, 382_501_920_606_015_489);
    assert_eq!(id.0.to_string().parse(), Ok(id.0));

    connection.close().await?;
    println!("all is well");
    Ok(())
}
