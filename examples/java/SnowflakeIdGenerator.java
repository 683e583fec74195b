// Hibernate 6 and later: IDs from a pool, fetched 50 at a time in one round trip. Annotate the key of an entity with
// @SnowflakeId, and set hibernate.jdbc.batch_size = 50. No test compiles this; one runs the pool's arithmetic, in
// ../python/pooled_lo.py.

@IdGeneratorType(SnowflakeIdGenerator.class)
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.FIELD, ElementType.METHOD})
@interface SnowflakeId {}

public class SnowflakeIdGenerator implements IdentifierGenerator {
    private static final int SIZE = 50;

    private long next;
    private long end; // one past the last ID

    @Override
    public synchronized Object generate(SharedSessionContractImplementor session, Object entity) {
        if (next == end) {
            session.doReturningWork(connection -> {
                try (var statement =
                        connection.prepareStatement("SELECT first, last FROM snowflake_nextval_range(?)")) {
                    statement.setInt(1, SIZE);
                    try (var range = statement.executeQuery()) {
                        range.next();
                        next = range.getLong(1);
                        end = range.getLong(2) + 1;
                        return null;
                    }
                }
            });
        }
        return next++;
    }
}
