//! Keys of partitioned tables, and of tables that others inherit from.

use super::calls::{converts, database, insert, refused};
use snowflake_server_tests::sql::run;

#[test]
fn a_partitioned_table_is_converted_with_its_partitions() {
    let database = database();
    let mut session = database.connect();
    // By time, with an integer key; by a hash of a bigint key; by lists of a bigint key; nested.
    run(
        &mut session,
        "CREATE TABLE log (id serial, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
         CREATE TABLE log_1 PARTITION OF log FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')
             PARTITION BY LIST (at);
         CREATE TABLE log_1_a PARTITION OF log_1 FOR VALUES IN ('2026-05-05');
         CREATE TABLE log_1_b PARTITION OF log_1 DEFAULT;
         CREATE TABLE spread (id bigserial PRIMARY KEY) PARTITION BY HASH (id);
         CREATE TABLE spread_0 PARTITION OF spread FOR VALUES WITH (MODULUS 2, REMAINDER 0);
         CREATE TABLE spread_1 PARTITION OF spread FOR VALUES WITH (MODULUS 2, REMAINDER 1);
         CREATE TABLE ranges (id bigserial PRIMARY KEY) PARTITION BY RANGE (id);
         CREATE TABLE ranges_0 PARTITION OF ranges FOR VALUES FROM (0) TO (1000000);
         INSERT INTO log (at) VALUES ('2026-05-05'), ('2026-06-06');
         INSERT INTO spread SELECT FROM generate_series(1, 10);
         INSERT INTO ranges DEFAULT VALUES",
    );
    for partition in ["log_1", "log_1_a", "spread_0"] {
        let failure = refused(&database, &mut session, &format!("'{partition}', 'id'"), "42P16");
        assert!(failure.detail.contains("It comes from"), "{failure}");
    }
    converts(&database, &mut session, "'log', 'id'");
    converts(&database, &mut session, "'spread', 'id'");

    let failure = refused(&database, &mut session, "'ranges', 'id'", "55000");
    assert!(failure.message.contains("no partition of table public.ranges"), "{failure}");
    run(&mut session, "CREATE TABLE ranges_1 PARTITION OF ranges FOR VALUES FROM (1000000) TO (MAXVALUE)");
    converts(&database, &mut session, "'ranges', 'id'");
    run(
        &mut session,
        "CREATE TABLE lists (id bigint PRIMARY KEY) PARTITION BY LIST (id);
         CREATE TABLE lists_0 PARTITION OF lists FOR VALUES IN (1, 2)",
    );
    refused(&database, &mut session, "'lists', 'id'", "55000");
    run(&mut session, "CREATE TABLE lists_1 PARTITION OF lists DEFAULT");
    converts(&database, &mut session, "'lists', 'id'");

    let mut fresh = database.restored();
    for session in [&mut session, &mut fresh] {
        insert(session, "INSERT INTO log (at) VALUES ('2026-05-05')", "id");
        insert(session, "INSERT INTO log_1_b (at) VALUES ('2026-06-06')", "id");
        for table in ["spread", "ranges", "lists"] {
            insert(session, &format!("INSERT INTO {table} DEFAULT VALUES"), "id");
        }
    }
}

/// If the key decides on the partition, at any level, a new ID must find one.
#[test]
fn partitions_that_take_no_new_id_are_refused_and_others_are_not() {
    let database = database();
    let mut session = database.connect();
    // Each with the partition that refuses it; none if it is converted.
    for (table, partitions, dead_end) in [
        (
            "below (id bigint, r text, PRIMARY KEY (id, r)) PARTITION BY LIST (r)",
            "CREATE TABLE below_a PARTITION OF below FOR VALUES IN ('a') PARTITION BY RANGE (id);
             CREATE TABLE below_a_0 PARTITION OF below_a FOR VALUES FROM (0) TO (1000)",
            Some("below_a"),
        ),
        (
            "below_open (id bigint, r text, PRIMARY KEY (id, r)) PARTITION BY LIST (r)",
            "CREATE TABLE below_open_a PARTITION OF below_open FOR VALUES IN ('a') PARTITION BY RANGE (id);
             CREATE TABLE below_open_a_0 PARTITION OF below_open_a FOR VALUES FROM (MINVALUE) TO (1000);
             CREATE TABLE below_open_a_1 PARTITION OF below_open_a FOR VALUES FROM (1000) TO (MAXVALUE)",
            None,
        ),
        (
            "two (id bigint, r text, PRIMARY KEY (id, r)) PARTITION BY RANGE (id, r)",
            "CREATE TABLE two_0 PARTITION OF two FOR VALUES FROM (0, 'a') TO (1000, 'z')",
            Some("two"),
        ),
        (
            "two_open (id bigint, r text, PRIMARY KEY (id, r)) PARTITION BY RANGE (r, id)",
            "CREATE TABLE two_open_0 PARTITION OF two_open FOR VALUES FROM ('a', 0) TO ('z', 1000);
             CREATE TABLE two_open_1 PARTITION OF two_open DEFAULT",
            None,
        ),
        (
            "bounded (id bigint, r text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
            "CREATE TABLE bounded_0 PARTITION OF bounded FOR VALUES FROM (0) TO (1000);
             CREATE TABLE bounded_1 PARTITION OF bounded DEFAULT PARTITION BY RANGE (id);
             CREATE TABLE bounded_1_0 PARTITION OF bounded_1 FOR VALUES FROM (1000) TO (2000)",
            Some("bounded_1"),
        ),
        (
            "old (id bigint, r text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
            // No new ID comes to old_0.
            "CREATE TABLE old_0 PARTITION OF old FOR VALUES FROM (0) TO (1000) PARTITION BY RANGE (id);
             CREATE TABLE old_0_0 PARTITION OF old_0 FOR VALUES FROM (0) TO (500);
             CREATE TABLE old_1 PARTITION OF old FOR VALUES FROM (1000) TO (9000000000000000000)",
            None,
        ),
        (
            "past (id bigint, r text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
            // The same with a default partition, with ranges and lists.
            "CREATE TABLE past_0 PARTITION OF past FOR VALUES FROM (0) TO (1000) PARTITION BY RANGE (id);
             CREATE TABLE past_0_0 PARTITION OF past_0 FOR VALUES FROM (0) TO (500);
             CREATE TABLE past_1 PARTITION OF past FOR VALUES FROM (1000) TO (2000) PARTITION BY LIST (id);
             CREATE TABLE past_1_0 PARTITION OF past_1 FOR VALUES IN (1001);
             CREATE TABLE past_2 PARTITION OF past DEFAULT PARTITION BY HASH (id);
             CREATE TABLE past_2_0 PARTITION OF past_2 FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
            None,
        ),
        (
            "unreached (id bigint, r text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
            // No new ID comes to the default partition.
            "CREATE TABLE unreached_0 PARTITION OF unreached DEFAULT PARTITION BY RANGE (id);
             CREATE TABLE unreached_0_0 PARTITION OF unreached_0 FOR VALUES FROM (0) TO (500);
             CREATE TABLE unreached_1 PARTITION OF unreached FOR VALUES FROM (1000) TO (9000000000000000000)",
            None,
        ),
        (
            "referred (id bigint PRIMARY KEY, r text)",
            "CREATE TABLE of_referred (id bigint REFERENCES referred) PARTITION BY RANGE (id);
             CREATE TABLE of_referred_0 PARTITION OF of_referred FOR VALUES FROM (0) TO (1000)",
            Some("of_referred"),
        ),
        (
            "computed (id bigint, r text) PARTITION BY LIST ((id % 2))",
            "CREATE TABLE computed_0 PARTITION OF computed (PRIMARY KEY (id)) FOR VALUES IN (0);
             CREATE TABLE computed_1 PARTITION OF computed (PRIMARY KEY (id)) FOR VALUES IN (1)",
            Some("is not a key"),
        ),
        (
            "hashed (id bigint, r text, PRIMARY KEY (id, r)) PARTITION BY HASH (id, r)",
            "CREATE TABLE hashed_0 PARTITION OF hashed FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
            None,
        ),
        (
            "elsewhere (id bigint, r text, PRIMARY KEY (id, r)) PARTITION BY LIST (r)",
            // With its columns in another order.
            "CREATE TABLE elsewhere_a (r text NOT NULL, id bigint NOT NULL, PRIMARY KEY (id, r))
                 PARTITION BY RANGE (id);
             CREATE TABLE elsewhere_a_0 PARTITION OF elsewhere_a FOR VALUES FROM (0) TO (1000);
             ALTER TABLE elsewhere ATTACH PARTITION elsewhere_a FOR VALUES IN ('a')",
            Some("elsewhere_a"),
        ),
    ] {
        let name = table.split(' ').next().expect("a name");
        run(&mut session, &format!("CREATE TABLE {table}; {partitions}; INSERT INTO {name} VALUES (1, 'a')"));
        match dead_end {
            None => {
                converts(&database, &mut session, &format!("'{name}', 'id'"));
                insert(&mut session, &format!("INSERT INTO {name} (r) VALUES ('a')"), "id");
            }
            Some("is not a key") => {
                refused(&database, &mut session, &format!("'{name}', 'id'"), "42P10");
            }
            Some(table) => {
                let failure = refused(&database, &mut session, &format!("'{name}', 'id'"), "55000");
                let message = format!("no partition of table public.{table} accepts new IDs");
                assert_eq!(failure.message, message, "{failure}");
                run(&mut session, &format!("CREATE TABLE {table}_rest PARTITION OF {table} DEFAULT"));
                converts(&database, &mut session, &format!("'{name}', 'id'"));
                insert(&mut session, &format!("INSERT INTO {name} (r) VALUES ('a')"), "id");
            }
        }
    }
}

#[test]
fn an_identity_of_a_partitioned_table_is_converted() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE parent (id integer GENERATED ALWAYS AS IDENTITY, at date) PARTITION BY RANGE (at);
         CREATE TABLE part PARTITION OF parent FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
         ALTER TABLE parent ADD PRIMARY KEY (id, at);
         INSERT INTO parent (at) VALUES ('2026-05-05')",
    );
    converts(&database, &mut session, "'parent', 'id'");
    let mut fresh = database.restored();
    for session in [&mut session, &mut fresh] {
        insert(session, "INSERT INTO parent (at) VALUES ('2026-05-05')", "id");
        insert(session, "INSERT INTO part (at) VALUES ('2026-05-05')", "id");
    }
}

#[test]
fn a_table_is_converted_with_those_that_inherit_from_it() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE city (id serial PRIMARY KEY, name text);
         CREATE TABLE capital (country text, UNIQUE (id)) INHERITS (city);
         CREATE TABLE seaport (id integer DEFAULT 0 UNIQUE, ships integer) INHERITS (city);
         CREATE TABLE visit (capital integer REFERENCES capital (id));
         CREATE TABLE trip (city integer);
         CREATE TABLE cruise (days integer, FOREIGN KEY (city) REFERENCES city) INHERITS (trip);
         INSERT INTO city (name) VALUES ('Bath'); INSERT INTO capital (name) VALUES ('Oslo');
         INSERT INTO visit VALUES (2)",
    );
    let failure = refused(&database, &mut session, "'capital', 'id'", "42P16");
    assert_eq!(failure.detail, "It comes from table public.city.");
    let failure = refused(&database, &mut session, "'city', 'id'", "42611");
    assert!(failure.message.contains("table public.seaport"), "{failure}");
    run(&mut session, "ALTER TABLE seaport ALTER COLUMN id DROP DEFAULT");
    let said = converts(&database, &mut session, "'city', 'id'");
    // Columns that reference a child's column are widened with it, and so are those that a referencing one inherits
    // from.
    assert!(said.contains(&"ALTER TABLE public.trip ALTER COLUMN city TYPE bigint".to_owned()), "{said:?}");
    assert!(
        said.contains(&"ALTER TABLE public.visit ALTER COLUMN capital TYPE bigint".to_owned()),
        "{said:?}"
    );
    let mut fresh = database.restored();
    for session in [&mut session, &mut fresh] {
        for table in ["city", "capital", "seaport"] {
            insert(session, &format!("INSERT INTO {table} (name) VALUES ('new')"), "id");
        }
    }
}
