// snowflake_id with pgx. PGHOST, PGDATABASE, PGUSER and so on say where.
package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v4"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, "")
	must(err)
	_, err = connection.Exec(ctx, "DROP TABLE IF EXISTS pgx_orders")
	must(err)
	_, err = connection.Exec(ctx, `CREATE TABLE pgx_orders (
		id       bigint PRIMARY KEY DEFAULT snowflake_nextval(),
		customer text NOT NULL
	)`)
	must(err)

	var id int64
	must(connection.QueryRow(ctx, "INSERT INTO pgx_orders (customer) VALUES ($1) RETURNING id", "Ada").Scan(&id))
	fmt.Println("one row:", id)

	customers := make([]string, 1000)
	for i := range customers {
		customers[i] = fmt.Sprint("customer ", i)
	}
	rows, err := connection.Query(ctx,
		"INSERT INTO pgx_orders (customer) SELECT unnest($1::text[]) RETURNING id", customers)
	must(err)
	var ids []int64
	for rows.Next() {
		must(rows.Scan(&id))
		ids = append(ids, id)
	}
	must(rows.Err())
	fmt.Println("many rows:", len(ids), "from", ids[0], "to", ids[len(ids)-1])
	fmt.Println("all is well")
}
