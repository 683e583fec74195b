//! Arguments that cannot be: the SQLSTATE, the words of the error, and no ID that they cost.

use snowflake_server_tests::Server;
use snowflake_server_tests::refusals::assert_no_rust;
use snowflake_server_tests::sql::{Failure, column, fails, next, one, status};

#[test]
fn a_number_of_ids_that_cannot_be_is_refused_and_costs_none() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    let before = next(&mut session);
    let issued = status(&mut session).issued;
    for n in [-1, i32::MIN] {
        let failure = fails(&mut session, "22023", &format!("SELECT snowflake_nextval_batch({n})"));
        assert_eq!(
            (failure.message, failure.detail),
            ("n must not be negative".into(), format!("n is {n}."))
        );
    }
    for n in [0, -1, 4_097, i32::MAX, i32::MIN] {
        let failure = fails(&mut session, "22023", &format!("SELECT snowflake_nextval_range({n})"));
        assert_eq!(failure.message, "n must be between 1 and 4096");
        let room = format!("n is {n}. A range lies within one tick, which has room for 4096 IDs under");
        assert!(failure.detail.starts_with(&room), "{failure}");
        assert_eq!(failure.hint.is_empty(), n < 1, "{failure}");
    }
    fails(&mut session, "42883", "SELECT snowflake_nextval_batch(1::bigint)");
    // STRICT: null in, null out.
    assert!(column::<i64>(&mut session, "SELECT snowflake_nextval_batch(NULL)").is_empty());
    assert!(column::<i64>(&mut session, "SELECT id FROM snowflake_nextval_batch(NULL) id").is_empty());
    let row = session.query_one("SELECT first, last FROM snowflake_nextval_range(NULL)", &[]).unwrap();
    assert_eq!((row.get(0), row.get(1)), (None::<i64>, None::<i64>));
    assert!(column::<i64>(&mut session, "SELECT snowflake_nextval_batch(0)").is_empty());
    assert_eq!(status(&mut session).issued, issued);
    assert_eq!(one::<i64>(&mut session, "SELECT snowflake_lastval()"), before);
    // The largest that there is.
    let whole = "SELECT last - first + 1 FROM snowflake_nextval_range(4096)";
    assert_eq!(one::<i64>(&mut session, whole), 4_096);
    assert_eq!(status(&mut session).issued, issued + 4_096);
}

/// Each argument that can be wrong, in the worst way; a negative ID, in each function of one.
#[test]
fn no_error_has_a_text_of_rust() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    let layouts = [
        " ",
        "myspace",
        "41/10/12 5ms 2015-01-01",
        "41/10/12 1ms yesterday",
        "41/10/12 1ms 2015-01-01T00:00:00",
        "41/10/12 1ms 99999-01-01T00:00:00Z",
        "41/10/12 1ms 2015-01-01T00:00:00+99:00",
        "41/10/14 1ms 2015-01-01",
        "0/10/12 1ms 2015-01-01",
        "64/0/0 1ms 2015-01-01",
        "20/1/40 1ms 2015-01-01",
        "99999999999/1/1 1ms 2015-01-01",
        "-1/1/1 1ms 2015-01-01",
        "41/s12/w 1ms 2015-01-01",
    ];
    let mut calls: Vec<String> =
        layouts.iter().map(|layout| format!("snowflake_decode(1, '{layout}')")).collect();
    for text in
        ["", "0", "00000000000000", "-0000000001", "+0000000001", "0000000000 ", "zzzzzzzzzzz", "0000000000é"]
    {
        calls.push(format!("snowflake_from_base62('{text}')"));
    }
    let of_ids: Vec<String> = column(
        &mut session,
        "SELECT format('%s(%L::bigint%s)', proname, id, layout)
         FROM unnest('{-1,-9223372036854775808}'::bigint[]) AS id,
             (VALUES ('bigint', ''), ('bigint, text', ', ''instagram''')) AS of (arguments, layout)
         JOIN pg_proc ON oidvectortypes(proargtypes) = arguments
         WHERE proname ~ '^snowflake_' AND pronamespace = 'public'::regnamespace
             AND proname NOT IN ('snowflake_is_own', 'snowflake_origin')",
    );
    assert!(of_ids.len() >= 18, "{of_ids:?}");
    calls.extend(of_ids);
    calls.push("snowflake_decode(9223372036854775807, '41/5/7 1ms 2015-01-01')".to_owned());
    for time in ["-infinity", "infinity", "0001-01-01 BC", "294276-12-31", "2023-12-31 23:59:59.999999+00"] {
        calls.push(format!("snowflake_min('{time}')"));
        calls.push(format!("snowflake_max('{time}')"));
        calls.push(format!("snowflake_encode('{time}', 0, 0)"));
    }
    for (worker, sequence) in [(-1, 0), (1_024, 0), (0, -1), (0, 4_096), (i32::MIN, i32::MAX)] {
        calls.push(format!("snowflake_encode(now(), {worker}, {sequence})"));
    }
    for epoch in ["-infinity", "infinity", "0001-12-31 BC", "294276-12-31"] {
        calls.push(format!("snowflake_generator_sql(1, epoch => '{epoch}')"));
    }
    calls.push("snowflake_adopt('infinity')".to_owned());
    for call in calls {
        let error = session.batch_execute(&format!("SELECT {call}")).expect_err(&call);
        let failure = Failure::from(&error);
        assert!(["22023", "22008"].contains(&failure.code.as_str()), "{call}: {failure}");
        assert_no_rust(&failure.text());
    }
    let failure = fails(&mut session, "22023", "SELECT snowflake_decode(1, '64/0/0 1ms 2015-01-01')");
    assert!(failure.detail.contains("has 64 bits"), "{failure}");
}
