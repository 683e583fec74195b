//! Expressions and checks that new IDs must meet: one that fails for every ID is an obstacle, others are in the notes.

use super::calls::{convert, database, reasons, refused};
use snowflake_server_tests::sql::{column, fails, one, run};

/// PostgreSQL evaluates these at each INSERT or ANALYZE, so one that fails for a new ID would make those fail.
#[test]
fn what_does_not_accept_new_ids_is_refused_before() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, "CREATE DOMAIN few AS bigint CHECK (VALUE < 100000)");
    for (dependent, code, words) in [
        ("CREATE INDEX ON t ((id::integer % 16))", "22003", "index public.t_expr_idx does not accept"),
        ("CREATE INDEX part ON t (n) WHERE id::integer > 0", "22003", "index public.part does not accept"),
        (
            "CREATE INDEX narrow ON t (n) WHERE (id % 16)::smallint > 0 AND id::integer > 0",
            "22003",
            "index public.narrow",
        ),
        (
            "ALTER TABLE t ADD g integer GENERATED ALWAYS AS (id) STORED",
            "22003",
            "generated column g of table public.t",
        ),
        (
            "ALTER TABLE t ADD g varchar(9) GENERATED ALWAYS AS (id::text) STORED",
            "22001",
            "generated column g of table",
        ),
        (
            "ALTER TABLE t ADD g numeric(9,1) GENERATED ALWAYS AS (id) STORED",
            "22003",
            "generated column g of table",
        ),
        (
            "CREATE STATISTICS s ON n, (id::integer % 7) FROM t",
            "22003",
            "statistics object public.s does not accept",
        ),
        (
            "ALTER TABLE t ADD CONSTRAINT c CHECK (id::integer > 0)",
            "22003",
            "constraint c on table public.t does not",
        ),
        (
            "CREATE TABLE u (t bigint REFERENCES t); CREATE INDEX ON u ((t::integer))",
            "22003",
            "index public.u_t_idx",
        ),
        ("CREATE TABLE u (t few REFERENCES t)", "23514", "type public.few of column t of table public.u"),
        (
            "CREATE TABLE u (n integer, t bigint REFERENCES t) PARTITION BY LIST ((t::integer));
          CREATE TABLE u_0 PARTITION OF u DEFAULT",
            "22003",
            "partition key of table public.u",
        ),
        (
            "CREATE TABLE u (m integer) INHERITS (t); CREATE INDEX ON u ((id::integer))",
            "22003",
            "index public.u_id_idx",
        ),
        // Of a widened column PostgreSQL would not even parse these.
        ("ALTER TABLE t ADD CONSTRAINT c CHECK (id::boolean)", "42846", "constraint c on table public.t"),
        ("CREATE INDEX ON t (chr(id))", "42883", "index public.t_chr_idx"),
    ] {
        let kind = if code.starts_with("42") { "integer" } else { "bigint" };
        for rows in ["", "; INSERT INTO t VALUES (8, 1)"] {
            run(&mut session, &format!("BEGIN; CREATE TABLE t (id {kind} PRIMARY KEY, n integer)"));
            run(&mut session, &format!("{dependent}{rows}"));
            let reasons = reasons(&mut session, "'t', 'id'");
            assert!(reasons[0].contains(words), "{dependent}{rows}: {reasons:?}");
            let failure = fails(&mut session, code, "SELECT snowflake_convert('t', 'id', false)");
            assert!(failure.message.contains(words), "{dependent}{rows}: {failure}");
            assert!(!failure.detail.is_empty() && !failure.hint.is_empty(), "{failure}");
            run(&mut session, "ROLLBACK");
        }
    }
    if one::<i32>(&mut session, "SELECT current_setting('server_version_num')::int") >= 180_000 {
        run(
            &mut session,
            "CREATE TABLE v (id bigint PRIMARY KEY, g integer GENERATED ALWAYS AS (id) VIRTUAL)",
        );
        let failure = refused(&database, &mut session, "'v', 'id'", "22003");
        assert_eq!(failure.message, "generated column g of table public.v does not accept new IDs");
    }
    // What accepts them, or what only a row of nulls would break.
    for dependent in [
        "CREATE INDEX ON t ((id % 16))",
        "CREATE INDEX ON t ((id::integer)) WHERE id < 100000",
        "CREATE INDEX ON t (id) WHERE n::integer > 0",
        "ALTER TABLE t ADD g smallint GENERATED ALWAYS AS (id % 16) STORED",
        "ALTER TABLE t ADD g varchar(9) GENERATED ALWAYS AS (left(id::text, 9)) STORED",
        "ALTER TABLE t ADD g few GENERATED ALWAYS AS (id % 16) STORED",
        "ALTER TABLE t ADD CHECK (id > 0 OR n > 0)",
        "CREATE FUNCTION picky(bigint, integer) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS
             $$ BEGIN IF $2 IS NULL THEN RAISE EXCEPTION 'null'; END IF; RETURN $1; END $$;
         CREATE INDEX ON t (public.picky(id, n))",
        // Within the conversion its search_path does not find this one.
        "CREATE FUNCTION inner_one(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT $1';
         CREATE FUNCTION outer_one(bigint) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS
             'BEGIN RETURN inner_one($1); END';
         CREATE INDEX ON t (public.outer_one(id))",
    ] {
        for rows in ["", "; INSERT INTO t VALUES (8, 1)"] {
            run(&mut session, "BEGIN; CREATE TABLE t (id bigint PRIMARY KEY, n integer)");
            run(&mut session, &format!("{dependent}{rows}"));
            convert(&mut session, "'t', 'id'", false);
            run(&mut session, "INSERT INTO t (n) VALUES (1)");
            if !dependent.contains("inner_one") {
                run(&mut session, "ANALYZE t"); // from PostgreSQL 17 on with such a search_path, too
            }
            run(&mut session, "ROLLBACK");
        }
    }
}

/// A check may depend on other columns, so a violation is no obstacle.
#[test]
fn a_check_that_new_ids_violate_is_to_be_checked() {
    let database = database();
    run(
        &mut database.connect(),
        "CREATE TABLE t (id bigserial PRIMARY KEY, CONSTRAINT low CHECK (id < 1000), CONSTRAINT fine CHECK (id > 0));
         INSERT INTO t DEFAULT VALUES; INSERT INTO t DEFAULT VALUES;
         CREATE TABLE u (a bigint REFERENCES t, b bigint REFERENCES t,
             CONSTRAINT differs CHECK (a <> b), CONSTRAINT below CHECK (a < b)); INSERT INTO u VALUES (1, 2);
         CREATE TABLE v (a bigint REFERENCES t, b bigint REFERENCES t, CONSTRAINT above CHECK (a > b));
         INSERT INTO v VALUES (2, 1);
         CREATE TABLE w (a bigint REFERENCES t, b bigint REFERENCES t, CONSTRAINT equal CHECK (a = b));
         INSERT INTO w VALUES (1, 1)",
    );
    // Two columns of one family have different IDs, in one order or the other.
    let query = "SELECT concat_ws(' | ', object, note, remedy) FROM snowflake_convert('t', 'id')
                 WHERE kind = 'check' AND object LIKE 'constraint%' ORDER BY step";
    let rows: Vec<String> = column(&mut database.connect(), query);
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows[0].starts_with("constraint low on table public.t | constraint low"), "{rows:?}");
    assert!(rows[1].starts_with("constraint equal on table public.w | constraint equal"), "{rows:?}");
    assert!(
        rows[1].ends_with(" | If it rejects every new ID, drop it, or replace it by one that accepts them."),
        "{rows:?}"
    );
}

#[test]
fn the_notes_tell_every_check_that_new_ids_must_meet() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id bigserial PRIMARY KEY, n integer, CHECK (id > n), CHECK (n > 0));
         CREATE POLICY p ON t USING (id > 0); CREATE TABLE child (CHECK (id < 2000)) INHERITS (t);
         CREATE TABLE narrow (t integer REFERENCES t CHECK (t < 3000));
         CREATE TABLE wide (t bigint REFERENCES t, m integer CHECK (m < 5), CHECK (t < 4000 OR m > 0))",
    );
    let note: String = one(
        &mut session,
        "SELECT note FROM snowflake_convert('t', 'id') WHERE statement LIKE '%SET DEFAULT%'",
    );
    assert_eq!(
        note,
        "there is no value yet; new IDs must satisfy CHECK ((id > n)), policy p on table public.t, \
         CHECK ((id < 2000)) of public.child, \
         CHECK ((t < 3000)) of public.narrow, CHECK (((t < 4000) OR (m > 0))) of public.wide"
    );
}

#[test]
fn the_notes_tell_the_highest_value_and_the_checks_that_new_ids_must_meet() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, "CREATE TABLE t (id bigserial PRIMARY KEY, n integer CHECK (n > 0))");
    let note = "SELECT note FROM snowflake_convert('t', 'id') WHERE statement LIKE '%SET DEFAULT%'";
    assert_eq!(one::<String>(&mut session, note), "there is no value yet");
    run(&mut session, "ALTER TABLE t ADD CHECK (id < 1000); INSERT INTO t VALUES (-5), (7)");
    assert_eq!(
        one::<String>(&mut session, note),
        "the highest value is 7; new IDs must satisfy CHECK ((id < 1000))"
    );
    run(&mut session, "UPDATE t SET id = -1 WHERE id = 7");
    assert!(one::<String>(&mut session, note).contains("the highest value is -1"));
}
