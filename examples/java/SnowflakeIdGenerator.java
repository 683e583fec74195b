// Hibernate 6 and later: IDs from a pool, fetched 50 at a time in one round trip. Annotate the key of an entity with
// @SnowflakeId, and set hibernate.jdbc.batch_size = 50. No test compiles this; one runs the same pool, in
// ../python/pooled.py.

@IdGeneratorType(SnowflakeIdGenerator.class)
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.FIELD, ElementType.METHOD})
@interface SnowflakeId {}

public class SnowflakeIdGenerator implements IdentifierGenerator {
    private static final int SIZE = 50;

    private final Queue<Long> ids = new ArrayDeque<>(SIZE);

    @Override
    public synchronized Object generate(SharedSessionContractImplementor session, Object entity) {
        if (ids.isEmpty()) {
            session.doReturningWork(connection -> {
                try (var statement = connection.prepareStatement("SELECT snowflake_nextval_batch(?)")) {
                    statement.setInt(1, SIZE);
                    try (var batch = statement.executeQuery()) {
                        while (batch.next()) {
                            ids.add(batch.getLong(1));
                        }
                        return null;
                    }
                }
            });
        }
        return ids.remove();
    }
}
