//! Conversions of sets of tables, of a schema for example: each table is rewritten once.

use postgres::Client;
use snowflake_server_tests::sql::{Failure, column, fails, one, run};
use snowflake_server_tests::{Database, Server, ms, secs};
use std::thread;
use std::time::Instant;

/// A database of the server that the tests share, with roles that none of them changes.
#[track_caller]
pub(super) fn database() -> Database {
    let roles = ["keeper", "other", "reader", "app"].map(|role| format!("CREATE ROLE {role} LOGIN"));
    let grants = ["snowflake_convert", "snowflake_convert_schema", "snowflake_revert"]
        .map(|function| format!("GRANT EXECUTE ON FUNCTION {function} TO keeper, other"));
    Database::shared(Server::builder(), &format!("{};{}", roles.join(";"), grants.join(";")))
}

/// The statements of a call, which the dry run returns and changes nothing, and the real run executes.
#[track_caller]
pub(super) fn calls(
    database: &Database,
    session: &mut Client,
    function: &str,
    arguments: &str,
) -> Vec<String> {
    let call = |dry_run| {
        // The way back has statements only.
        format!(
            "SELECT statement FROM {function}({arguments}, dry_run => {dry_run}) AS r
             WHERE coalesce(to_jsonb(r) ->> 'kind', 'statement') = 'statement' ORDER BY step"
        )
    };
    let said: Vec<String> = database.unchanged_by(arguments, || column(session, &call(true)));
    assert_eq!(column::<String>(session, &call(false)), said, "{function}({arguments})");
    said
}

/// A refusal of the dry run and of the real one, with nothing changed.
#[track_caller]
pub(super) fn refused(database: &Database, session: &mut Client, call: &str, code: &str) -> Failure {
    let (said, failure) = database.unchanged_by(call, || {
        let real = format!("SELECT {}, dry_run => false)", call.trim_end_matches(')'));
        // The dry run of a conversion returns an obstacle as a row, and that of the way back raises it.
        let query = format!(
            "SELECT note FROM {call} AS r WHERE to_jsonb(r) ->> 'kind' = 'obstacle' ORDER BY step LIMIT 1"
        );
        let said = match session.query_one(&query, &[]) {
            Ok(row) => row.get(0),
            Err(e) => Failure::from(&e).message,
        };
        (said, fails(session, code, &real))
    });
    assert!(said.contains(&failure.message), "the dry run says what the real one will: {said}, {failure}");
    assert!(failure.hint.ends_with('.') && failure.detail.ends_with('.'), "{failure}");
    failure
}

/// Tables that reference one another, in a circle too, and one that has no key of its own.
pub(super) const SHOP: &str = "
    CREATE TABLE shop.customers (id serial PRIMARY KEY, referred_by integer REFERENCES shop.customers);
    CREATE TABLE shop.orders (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        customer integer NOT NULL REFERENCES shop.customers, payer integer REFERENCES shop.customers);
    CREATE TABLE shop.lines (id bigserial PRIMARY KEY, ordered integer REFERENCES shop.orders, buyer smallint
        REFERENCES shop.customers);
    ALTER TABLE shop.customers ADD last_order integer REFERENCES shop.orders;
    CREATE TABLE shop.tags (tag text PRIMARY KEY, line integer REFERENCES shop.lines);
    CREATE TABLE shop.log (id serial, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
    CREATE TABLE shop.log_2026 PARTITION OF shop.log FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
    CREATE TABLE shop.numbers (id uuid PRIMARY KEY, number serial UNIQUE);
    INSERT INTO shop.customers SELECT i FROM generate_series(1, 9) i;
    INSERT INTO shop.orders (customer) SELECT i FROM generate_series(1, 9) i;
    INSERT INTO shop.lines (ordered, buyer) SELECT i, i FROM generate_series(1, 9) i;
    INSERT INTO shop.tags VALUES ('t', 3); INSERT INTO shop.log (at) VALUES ('2026-05-05')";

/// A new customer, with an order, its line, and a row of the log.
pub(super) const NEW_ROWS: &str = "
    WITH c AS (INSERT INTO shop.customers DEFAULT VALUES RETURNING id) INSERT INTO shop.orders (customer) SELECT id FROM c;
    INSERT INTO shop.lines (ordered, buyer) SELECT max(id), max(customer) FROM shop.orders;
    UPDATE shop.customers SET last_order = (SELECT max(id) FROM shop.orders);
    INSERT INTO shop.log (at) VALUES ('2026-05-05')";

// ---- sets ----

#[test]
fn a_schema_is_converted_in_one_call_that_rewrites_each_table_once() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, "CREATE SCHEMA shop");
    run(&mut session, SHOP);
    run(
        &mut session,
        "CREATE TABLE rewrites (relid regclass);
         CREATE FUNCTION count_it() RETURNS event_trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO public.rewrites VALUES (pg_event_trigger_table_rewrite_oid()); END';
         CREATE EVENT TRIGGER count_them ON table_rewrite EXECUTE FUNCTION count_it()",
    );
    let said = calls(&database, &mut session, "snowflake_convert_schema", "'shop'");
    assert_eq!(
        said,
        [
            "LOCK TABLE shop.customers, shop.lines, shop.log, shop.orders, shop.tags IN ACCESS EXCLUSIVE MODE",
            "ALTER TABLE shop.orders ALTER COLUMN id DROP IDENTITY",
            "ALTER TABLE shop.customers ALTER COLUMN id TYPE bigint, ALTER COLUMN referred_by TYPE bigint, \
             ALTER COLUMN last_order TYPE bigint",
            "ALTER TABLE shop.lines ALTER COLUMN ordered TYPE bigint, ALTER COLUMN buyer TYPE bigint",
            "ALTER TABLE shop.log ALTER COLUMN id TYPE bigint",
            "ALTER TABLE shop.orders ALTER COLUMN id TYPE bigint, ALTER COLUMN customer TYPE bigint, \
             ALTER COLUMN payer TYPE bigint",
            "ALTER TABLE shop.tags ALTER COLUMN line TYPE bigint",
            "ANALYZE shop.customers, shop.lines, shop.log, shop.log_2026, shop.orders, shop.tags",
            "ALTER TABLE shop.customers ALTER COLUMN id SET DEFAULT public.snowflake_nextval()",
            "ALTER TABLE shop.lines ALTER COLUMN id SET DEFAULT public.snowflake_nextval()",
            "ALTER TABLE shop.log ALTER COLUMN id SET DEFAULT public.snowflake_nextval()",
            "ALTER TABLE shop.orders ALTER COLUMN id SET DEFAULT public.snowflake_nextval()",
            "DROP SEQUENCE shop.customers_id_seq",
            "DROP SEQUENCE shop.lines_id_seq",
            "DROP SEQUENCE shop.log_id_seq",
        ]
    );
    let counts = "SELECT relid || ' ' || count(*) FROM rewrites GROUP BY relid ORDER BY relid::text";
    assert_eq!(
        column::<String>(&mut session, counts),
        ["shop.customers 1", "shop.lines 1", "shop.log_2026 1", "shop.orders 1", "shop.tags 1"]
    );
    run(&mut session, "DROP EVENT TRIGGER count_them");
    assert_eq!(
        calls(&database, &mut session, "snowflake_convert_schema", "'shop'"),
        [""; 0],
        "nothing is left"
    );
    for session in [&mut session, &mut database.restored()] {
        run(session, NEW_ROWS);
        let ids: i64 =
            one(session, "SELECT count(*) FROM shop.lines WHERE id > 9 AND ordered > 9 AND buyer > 9");
        assert_eq!(ids, 1);
    }
}

#[test]
fn a_dry_run_of_a_set_shows_sizes_and_locks() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, "CREATE SCHEMA shop");
    run(&mut session, SHOP);
    let rows: Vec<String> = column(
        &mut session,
        "SELECT concat_ws(' | ', locks, size, rewrites) FROM snowflake_convert_tables('{shop.log, shop.lines}')
         WHERE kind = 'statement' AND statement LIKE 'ALTER TABLE%' ORDER BY step",
    );
    assert_eq!(
        rows,
        [
            "ACCESS EXCLUSIVE on shop.log | 24 kB | t",
            "ACCESS EXCLUSIVE on shop.tags | 32 kB | t",
            "ACCESS EXCLUSIVE on shop.lines | 24 kB | f",
            "ACCESS EXCLUSIVE on shop.log | 24 kB | f",
        ]
    );
}

#[test]
fn a_set_is_refused_for_what_is_no_key_of_it() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, "CREATE SCHEMA shop");
    run(&mut session, SHOP);
    let failure =
        refused(&database, &mut session, "snowflake_convert_tables('{shop.lines, shop.tags}')", "42P16");
    assert_eq!(failure.message, "table shop.tags has no serial or identity key");
    for call in [
        "snowflake_convert_tables(NULL)",
        "snowflake_convert_tables('{shop.lines, NULL}')",
        "snowflake_convert_tables('{{shop.lines, NULL}}')",
        "snowflake_revert_tables('{{shop.lines, NULL}}')",
        "snowflake_convert_schema(NULL)",
        "snowflake_revert_tables(NULL)",
        "snowflake_revert_schema(NULL)",
    ] {
        refused(&database, &mut session, call, "22004");
    }
    // What one table of the set cannot do, no table does.
    run(&mut session, "CREATE MATERIALIZED VIEW shop.m AS SELECT id FROM shop.customers");
    let failure = refused(&database, &mut session, "snowflake_convert_schema('shop')", "2BP01");
    assert!(failure.detail.contains("materialized view shop.m"), "{failure}");
    // A table of an extension is none of the schema's.
    run(
        &mut session,
        "DROP MATERIALIZED VIEW shop.m; CREATE TABLE shop.of_extension (id serial PRIMARY KEY);
         ALTER EXTENSION snowflake_id ADD TABLE shop.of_extension",
    );
    let said: Vec<String> = column(
        &mut session,
        "SELECT statement FROM snowflake_convert_schema('shop', false) WHERE kind = 'statement'",
    );
    assert!(!said.is_empty() && !said.join(" ").contains("of_extension"), "{said:?}");
    fails(&mut session, "0A000", "SELECT snowflake_convert_tables('{shop.of_extension}', false)");
}

#[test]
fn sets_in_any_order_and_their_readers_do_not_wait_for_each_other() {
    let database = database();
    let mut session = database.connect();
    // With plans for any arguments, they wait for each other more than they plan.
    for setting in ["deadlock_timeout = '20ms'", "plan_cache_mode = force_generic_plan"] {
        run(&mut session, &format!("ALTER DATABASE {} SET {setting}", database.name()));
    }
    run(&mut session, "CREATE SCHEMA shop");
    run(&mut session, SHOP);
    run(
        &mut session,
        "CREATE VIEW shop.a AS SELECT id, customer FROM shop.orders;
         CREATE VIEW shop.b AS SELECT a.id FROM shop.a JOIN shop.log ON a.id = log.id;
         CREATE VIEW shop.c AS SELECT count(*) FROM shop.b",
    );
    let repeat = |statements: &'static [&'static str]| {
        let database = &database;
        move || {
            let mut session = database.connect();
            let began = Instant::now();
            let mut rounds = 0;
            while rounds < 15 && began.elapsed() < secs(60) {
                for statement in statements {
                    run(&mut session, "BEGIN");
                    run(&mut session, statement);
                    run(&mut session, "ROLLBACK");
                }
                rounds += 1;
                thread::sleep(ms(1));
            }
            assert!(rounds > 3, "{rounds}");
        }
    };
    thread::scope(|scope| {
        let sessions = [
            scope.spawn(repeat(&[
                "SELECT snowflake_convert_tables('{shop.orders, shop.log, shop.customers}', false)",
            ])),
            scope.spawn(repeat(&[
                "SELECT snowflake_convert_tables('{shop.log, shop.customers, shop.lines}', false)",
            ])),
            scope.spawn(repeat(&["SELECT snowflake_convert('shop.orders', 'id', false)"])),
            scope.spawn(repeat(&[
                "SELECT FROM shop.c",
                "SELECT FROM shop.b",
                "SELECT FROM shop.log",
                "SELECT FROM shop.a",
            ])),
        ];
        for session in sessions {
            session.join().expect("no deadlock");
        }
    });
}
