//! Conversions beside other sessions: locks, transactions, and statements that were prepared before.

use super::calls::{convert, database, insert, kind_of};
use snowflake_server_tests::sql::{fails, one, run, wait_for_lock};

#[test]
fn a_dry_run_stands_in_nobodys_way() {
    let database = database();
    let (mut writer, mut session) = (database.connect(), database.connect());
    run(&mut writer, "CREATE TABLE t (id serial PRIMARY KEY); CREATE TABLE u (t integer REFERENCES t)");
    run(&mut writer, "BEGIN; INSERT INTO t DEFAULT VALUES; INSERT INTO u VALUES (1)");
    run(&mut session, "SET lock_timeout = '1s'");
    run(&mut session, "BEGIN");
    convert(&mut session, "'t', 'id'", true);
    let strongest = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation IN
        ('t'::regclass, 'u'::regclass, 't_id_seq'::regclass)
        AND mode <> CASE relation WHEN 't_id_seq'::regclass THEN 'RowExclusiveLock' ELSE 'AccessShareLock' END";
    assert_eq!(one::<i64>(&mut session, strongest), 0);
    // A sequence is locked as nextval() locks it.
    run(&mut writer, "INSERT INTO t DEFAULT VALUES; LOCK TABLE t, u IN EXCLUSIVE MODE");
    run(&mut database.connect(), "SET statement_timeout = '5s'; SELECT nextval('t_id_seq')");
    run(&mut session, "ROLLBACK");
    // The real run waits for the writer, up to its limit.
    fails(&mut session, "55P03", "SELECT snowflake_convert('t', 'id', false)");
    run(&mut writer, "COMMIT");
    convert(&mut session, "'t', 'id'", false);
}

#[test]
fn every_table_is_locked_before_any_value_is_looked_at() {
    let database = database();
    let (mut writer, mut session) = (database.connect(), database.connect());
    run(&mut writer, "CREATE TABLE t (id bigserial PRIMARY KEY)");
    run(&mut writer, "BEGIN; INSERT INTO t VALUES (9223372036854775807)");
    // It waits for the writer, and then sees the rows that the writer has left.
    let waits = std::thread::spawn(move || {
        fails(&mut session, "55000", "SELECT snowflake_convert('t', 'id', false)")
    });
    wait_for_lock(&mut database.connect());
    run(&mut writer, "COMMIT");
    let failure = waits.join().expect("it was refused");
    assert!(failure.detail.contains("9223372036854775807"), "{failure}");
}

#[test]
fn what_begins_to_reference_a_widened_column_meanwhile_is_widened_too() {
    let database = database();
    let (mut writer, mut session) = (database.connect(), database.connect());
    run(
        &mut writer,
        "CREATE TABLE t (id serial PRIMARY KEY); CREATE TABLE u (t integer PRIMARY KEY REFERENCES t);
         CREATE TABLE v (u integer)",
    );
    run(&mut writer, "BEGIN; ALTER TABLE v ADD FOREIGN KEY (u) REFERENCES u");
    let waits = std::thread::spawn(move || convert(&mut session, "'t', 'id'", false));
    wait_for_lock(&mut database.connect());
    run(&mut writer, "COMMIT");
    let done = waits.join().expect("it was converted");
    assert!(done.contains(&"ALTER TABLE public.v ALTER COLUMN u TYPE bigint".to_owned()), "{done:?}");
}

#[test]
fn a_table_that_takes_the_name_meanwhile_is_not_converted() {
    let database = database();
    let mut writer = database.connect();
    run(
        &mut writer,
        "CREATE TABLE t (id bigserial PRIMARY KEY); CREATE TABLE u (t bigint REFERENCES t);
         CREATE TABLE v (CHECK (t > 0)) INHERITS (u)",
    );
    for (name, takes) in [
        // A table that stays as it is, whose expressions a dry run evaluates, too.
        ("v", "DROP TABLE v; CREATE VIEW v AS SELECT 1::bigint AS t"),
        ("t", "ALTER TABLE t RENAME TO t_old; CREATE TABLE t (id bigint PRIMARY KEY)"),
    ] {
        run(&mut writer, &format!("BEGIN; {takes}"));
        let mut session = database.connect();
        let waits = std::thread::spawn(move || {
            let call = format!("SELECT snowflake_convert('t', 'id', {})", name == "v");
            fails(&mut session, "55006", &call)
        });
        wait_for_lock(&mut database.connect());
        run(&mut writer, "COMMIT");
        let failure = waits.join().expect("it was refused");
        let message = format!("could not lock public.{name}: it was renamed or moved");
        assert!(failure.message.contains(&message), "{failure}");
    }
    for table in ["t", "t_old"] {
        assert!(!kind_of(&mut writer, table, "id").contains("snowflake"), "{table}");
    }
}

/// The call holds its locks meanwhile.
#[test]
fn the_columns_of_twice_as_many_partitions_are_not_read_four_times() {
    let database = database();
    run(
        &mut database.connect(),
        "CREATE TABLE t (id bigserial PRIMARY KEY);
         CREATE TABLE u (t bigint REFERENCES t, n integer) PARTITION BY RANGE (n)",
    );
    let reads = |partitions: std::ops::RangeInclusive<i32>| {
        let count = *partitions.end();
        let create: Vec<String> = partitions
            .map(|n| format!("CREATE TABLE u_{n} PARTITION OF u FOR VALUES FROM ({n}) TO ({})", n + 1))
            .collect();
        // With statistics, the planner takes the names of columns for as good as unique.
        run(&mut database.connect(), &format!("{}; ANALYZE", create.join(";")));
        let mut session = database.connect();
        run(&mut session, "BEGIN");
        let columns = "SELECT count(*) FROM snowflake_internal.snowflake_convert_columns(
                           ARRAY[('t', 'id', NULL)::snowflake_internal.snowflake_key])";
        assert_eq!(one::<i64>(&mut session, columns), i64::from(count) + 2);
        let read =
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_sys_tables WHERE relname = 'pg_attribute'";
        one::<i64>(&mut session, read)
    };
    let (once, twice) = (reads(1..=100), reads(101..=200));
    assert!(twice < 3 * once, "{once}, and then {twice}");
}

#[test]
fn a_conversion_is_part_of_its_transaction() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id serial PRIMARY KEY); CREATE TABLE u (t integer REFERENCES t);
         INSERT INTO t DEFAULT VALUES",
    );
    database.unchanged_by("what is rolled back", || {
        run(&mut session, "BEGIN; SELECT snowflake_convert('t', 'id', false); INSERT INTO t DEFAULT VALUES");
        let others = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted
            AND relation IN ('t'::regclass, 'u'::regclass) AND pid = pg_backend_pid()";
        assert_eq!(one::<i64>(&mut session, others), 2, "both are locked until the end");
        run(&mut session, "ROLLBACK");
    });
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        run(&mut session, &format!("BEGIN ISOLATION LEVEL {level}"));
        let failure = fails(&mut session, "25001", "SELECT snowflake_convert('t', 'id', false)");
        assert!(failure.detail.contains(level), "{failure}");
        run(&mut session, "ROLLBACK");
    }
    // Its own rows of this transaction are checked like others.
    run(
        &mut session,
        "BEGIN; CREATE TABLE v (id bigint PRIMARY KEY); INSERT INTO v VALUES (9223372036854775807)",
    );
    fails(&mut session, "55000", "SELECT snowflake_convert('v', 'id', false)");
    run(&mut session, "ROLLBACK");
}

/// As the manual says.
#[test]
fn a_statement_fails_until_it_is_prepared_again() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id serial PRIMARY KEY, n integer); INSERT INTO t VALUES (1, 1);
         PREPARE returns AS SELECT id FROM t WHERE n = $1; EXECUTE returns (1);
         PREPARE compares AS SELECT n FROM t WHERE id = $1; EXECUTE compares (1)",
    );
    // As does a trigger function that a session has called before.
    run(
        &mut session,
        "CREATE TABLE log (t bigint); CREATE FUNCTION record() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO public.log VALUES (NEW.id); RETURN NEW; END';
         CREATE TRIGGER record AFTER UPDATE ON t FOR EACH ROW EXECUTE FUNCTION record()",
    );
    let mut pooled = database.connect();
    run(&mut pooled, "UPDATE t SET n = 1");
    convert(&mut session, "'t', 'id'", false);
    fails(&mut pooled, "42804", "UPDATE t SET n = 1");
    run(&mut database.connect(), "UPDATE t SET n = 1");
    let id = insert(&mut session, "INSERT INTO t (n) VALUES (2)", "id");
    for _ in 0..3 {
        fails(&mut session, "0A000", "EXECUTE returns (1)");
        fails(&mut session, "22003", &format!("EXECUTE compares ({id})"));
        run(&mut session, "EXECUTE compares (1)");
    }
    run(&mut session, "DEALLOCATE ALL; PREPARE compares AS SELECT n FROM t WHERE id = $1");
    run(&mut session, &format!("EXECUTE compares ({id})"));
}
