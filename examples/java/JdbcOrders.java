// snowflake_id with JDBC. The URL is the argument, such as jdbc:postgresql://localhost/postgres?user=app

import java.sql.DriverManager;

class JdbcOrders {
    public static void main(String[] args) throws Exception {
        try (var connection = DriverManager.getConnection(args[0]);
                var statement = connection.createStatement()) {
            statement.execute("DROP TABLE IF EXISTS jdbc_orders");
            statement.execute(
                    "CREATE TABLE jdbc_orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), customer text NOT NULL)");
            // Statement.RETURN_GENERATED_KEYS would return every column.
            try (var insert = connection.prepareStatement(
                    "INSERT INTO jdbc_orders (customer) VALUES (?)", new String[] {"id"})) {
                insert.setString(1, "Ada");
                insert.executeUpdate();
                var keys = insert.getGeneratedKeys();
                keys.next();
                System.out.println("one row: " + keys.getLong(1));

                for (int i = 0; i < 1000; i++) {
                    insert.setString(1, "customer " + i);
                    insert.addBatch();
                }
                insert.executeBatch();
                keys = insert.getGeneratedKeys();
                long first = 0, last = 0, n = 0;
                for (; keys.next(); n++) {
                    last = keys.getLong(1);
                    first = n == 0 ? last : first;
                }
                System.out.println("many rows: " + n + " from " + first + " to " + last);
            }
        }
        System.out.println("all is well");
    }
}
