import java.util.List;
import java.util.Map;
import javax.persistence.Entity;
import javax.persistence.EntityManager;
import javax.persistence.GeneratedValue;
import javax.persistence.Id;
import javax.persistence.Persistence;
import javax.persistence.Table;
import org.eclipse.persistence.config.SessionCustomizer;
import org.eclipse.persistence.queries.ValueReadQuery;
import org.eclipse.persistence.sequencing.QuerySequence;
import org.eclipse.persistence.sessions.Session;

/** snowflake_id with EclipseLink. The argument is a JDBC URL; META-INF/persistence.xml names the classes below. */
public class EclipseLinkOrders {
    @Entity
    @Table(name = "eclipselink_orders")
    public static class Order {
        // Not GenerationType.IDENTITY, with which EclipseLink takes lastval() for the key.
        @Id @GeneratedValue(generator = "snowflake") public Long id;
        public String customer;

        public Order() {}

        Order(String customer) { this.customer = customer; }
    }

    public static class Customizer implements SessionCustomizer {
        public void customize(Session session) {
            var sequence = new QuerySequence("snowflake", 1);
            sequence.setSelectQuery(new ValueReadQuery("SELECT snowflake_nextval()"));
            session.getLogin().addSequence(sequence);
        }
    }

    public static void main(String[] args) {
        var url = Map.of("javax.persistence.jdbc.url", args[0]);
        EntityManager orders = Persistence.createEntityManagerFactory("orders", url).createEntityManager();
        orders.getTransaction().begin();
        orders.createNativeQuery("DROP TABLE IF EXISTS eclipselink_orders").executeUpdate();
        orders.createNativeQuery("CREATE TABLE eclipselink_orders "
            + "(id bigint PRIMARY KEY DEFAULT snowflake_nextval(), customer text NOT NULL)").executeUpdate();
        var ada = new Order("Ada");
        orders.persist(ada);
        System.out.println("before the insert: " + ada.id);
        List<Order> many = List.of(new Order("Grace"), new Order("Edsger"));
        many.forEach(orders::persist);
        orders.getTransaction().commit();
        System.out.println("many rows: " + many.get(0).id + " to " + many.get(1).id);

        orders.clear();
        if (!orders.find(Order.class, ada.id).customer.equals("Ada")) throw new AssertionError(ada.id);
        System.out.println("all is well");
    }
}
