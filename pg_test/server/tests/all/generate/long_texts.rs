//! Texts of any length and encoding, as arguments and as values of settings: an error quotes their beginning, and none
//! fills the memory or ends a process.

use postgres::{Client, NoTls};
use snowflake_server_tests::refusals::assert_tells;
use snowflake_server_tests::sql::{Failure, fails, next, one, run};
use snowflake_server_tests::{Server, process};

/// Rust's texts are UTF-8; a database's may be in another encoding.
#[test]
fn a_text_in_another_encoding_is_refused_as_any_other() {
    let server = Server::builder().start_with_extension();
    for (database, encoding) in [("latin", "LATIN1"), ("bytes", "SQL_ASCII"), ("korean", "EUC_KR")] {
        run(
            &mut server.connect(),
            &format!(
                "CREATE DATABASE {database} ENCODING {encoding} LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
            ),
        );
        let mut session = server.config().dbname(database).connect(NoTls).expect("a session");
        run(&mut session, "CREATE EXTENSION snowflake_id");
        // These two bytes are one character in some of the encodings and two in others.
        let text = "E'\\xb0\\xa1345678901'";
        for call in [
            format!("snowflake_from_base62({text})"),
            format!("snowflake_decode(1, {text})"),
            format!("snowflake_timestamp(1, {text})"),
            format!("snowflake_decode(1, '41/10/12 1ms ' || {text})"),
            format!("snowflake_decode(1, '41/10/12 ' || {text} || ' 2015-01-01')"),
            format!("snowflake_decode(1, {text} || ' 1ms 2015-01-01')"),
        ] {
            let failure = fails(&mut session, "22023", &format!("SELECT {call}"));
            assert_tells(&failure, &["\\xb0\\xa1345678901"]);
        }
        // PostgreSQL's own message repeats the bytes, and cannot convert those of SQL_ASCII for the client.
        if encoding != "SQL_ASCII" {
            let refused = "ALTER SYSTEM SET snowflake_id.layout = E'\\xb0\\xa1'";
            fails(&mut session, "22023", refused);
        }
        assert_eq!(
            one::<i32>(&mut session, "SELECT (snowflake_decode(77 << 12, 'TWITTER')).worker_id"),
            77 & 31
        );
        let id = next(&mut session);
        let there_and_back = format!("SELECT snowflake_from_base62(snowflake_to_base62({id}))");
        assert_eq!(one::<i64>(&mut session, &there_and_back), id);
    }
    // In UTF-8, a message shows the text as it is.
    let mut session = server.connect();
    assert_tells(&fails(&mut session, "22023", "SELECT snowflake_from_base62('Zürich')"), &["Zürich"]);
    assert_tells(&fails(&mut session, "22023", "SELECT snowflake_decode(1, 'Zürich')"), &["Zürich"]);
}

// ---- of any length ----

/// What an argument of a type is where another argument is tried.
const OTHERS: [(&str, &str); 25] = [
    ("bigint", "1"),
    ("bigint[]", "'{1}'::bigint[]"),
    ("boolean", "false"),
    ("integer", "1"),
    ("integer[]", "'{}'::integer[]"),
    ("interval", "interval '1 s'"),
    ("jsonb", "'[]'::jsonb"),
    ("name", "'x'"),
    ("name[]", "'{}'::name[]"),
    ("numeric", "1"),
    ("oid", "1::oid"),
    ("oid[]", "'{}'::oid[]"),
    ("pg_node_tree", "(SELECT adbin FROM pg_attrdef LIMIT 1)"),
    ("regclass", "'big'::regclass"),
    ("regclass[]", "'{big}'::regclass[]"),
    ("regnamespace", "'public'::regnamespace"),
    ("regprocedure", "'pg_catalog.now()'::regprocedure"),
    ("regrole", "'postgres'::regrole"),
    ("smallint", "1::smallint"),
    ("snowflake_internal.snowflake_key[]", "'{}'::snowflake_internal.snowflake_key[]"),
    ("snowflake_base62", "'00000000001'::snowflake_base62"),
    ("text", "'x'"),
    ("text[]", "'{}'::text[]"),
    ("timestamp with time zone", "now()"),
    ("uuid", "'00000000-0000-0000-0000-000000000007'::uuid"),
];

/// A call of each of the extension's functions for each text that it takes, with the text of the table `big`; and whether
/// it must leave the most of that where it is.
fn calls_with_a_big_text(session: &mut Client) -> Vec<(String, bool)> {
    let functions = session
        .query(
            "SELECT p.oid::regproc::text, has_function_privilege('nobody', p.oid, 'EXECUTE'),
                 p.pronamespace = 'snowflake_internal'::regnamespace, p.probin IS NOT NULL,
                 array(SELECT format_type(t, NULL) FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (t, i)
                       ORDER BY i)
             FROM pg_depend d JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
             WHERE d.deptype = 'e' AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_id')",
            &[],
        )
        .expect("the functions");
    let mut calls = vec![("t::snowflake_base62::text".to_owned(), true)];
    for function in &functions {
        let (name, is_public, is_internal): (String, bool, bool) =
            (function.get(0), function.get(1), function.get(2));
        let (is_compiled, types): (bool, Vec<String>) = (function.get(3), function.get(4));
        let others: Option<Vec<&str>> = types
            .iter()
            .map(|of_type| OTHERS.iter().find(|(name, _)| name == of_type).map(|(_, value)| *value))
            .collect();
        let Some(others) = others else {
            // A row, perhaps with texts; or what no SQL can pass.
            assert!(
                !is_public || types.iter().all(|of_type| of_type == "internal"),
                "{name}({types:?}) can be called by everybody"
            );
            continue;
        };
        for (at, of_type) in types.iter().enumerate() {
            if ["text", "snowflake_base62"].contains(&of_type.as_str()) {
                let mut arguments = others.clone();
                arguments[at] = "t";
                // A superuser's own calls in PL/pgSQL may fill memory.
                let is_bounded =
                    is_compiled || name.ends_with("_registry_contact") || is_public && !is_internal;
                calls.push((format!("{name}({})", arguments.join(", ")), is_bounded));
            }
        }
    }
    assert!(calls.len() > 12, "{calls:?}");
    calls
}

/// Whatever the length of a text, a function refuses it by what PostgreSQL has stored of its length, reads no more than
/// its beginning, and quotes no more than that.
#[test]
fn a_text_of_any_length_ends_no_process_and_fills_no_memory() {
    // Of the second, escaped, no message could be made: PostgreSQL has no text of a gigabyte.
    const TEXTS: [(&str, &str); 2] = [
        ("latin1", "repeat(repeat(chr(233), 1000), 269000)"),
        ("utf8", "repeat(repeat(chr(233), 1000), 100000)"),
    ];
    let mut server = Server::builder().start();
    run(&mut server.connect(), "CREATE ROLE nobody");
    for (encoding, text) in TEXTS {
        let create = format!("CREATE DATABASE {encoding} ENCODING {encoding} LC_COLLATE 'C' LC_CTYPE 'C'");
        run(&mut server.connect(), &format!("{create} TEMPLATE template0"));
        let mut session = server.config().dbname(encoding).connect(NoTls).expect("a session");
        run(&mut session, "CREATE TABLE big (t text); CREATE TABLE less (t text)");
        // Compressed by a hundred, as anybody can send it.
        run(&mut session, &format!("INSERT INTO big SELECT {text}"));
        run(&mut session, "INSERT INTO less SELECT left(t, 1000000) FROM big");
    }
    refuses_big_texts(&mut server, TEXTS);
    server.unset("shared_preload_libraries");
    server.unset("snowflake_id.worker_id");
    server.restart();
    refuses_big_texts(&mut server, TEXTS);
}

fn refuses_big_texts(server: &mut Server, texts: [(&str, &str); 2]) {
    for (encoding, text) in texts {
        let config = server.config().dbname(encoding).clone();
        let connect = || config.connect(NoTls).expect("a session");
        run(&mut connect(), "DROP EXTENSION IF EXISTS snowflake_id; CREATE EXTENSION snowflake_id");
        let calls = calls_with_a_big_text(&mut connect());
        let mut problems = Vec::new();
        for is_registry in [false, true] {
            if is_registry {
                run(&mut connect(), "SELECT snowflake_registry_create('nobody')");
            }
            let begin = || {
                let mut session = connect();
                let pid: i32 = one(&mut session, "SELECT pg_backend_pid()");
                (session, pid, process::peak_memory(pid))
            };
            // One session serves until it has needed some memory, because what calls need adds up.
            let mut begun = begin();
            for (call, is_bounded) in &calls {
                let (session, pid, before) = &mut begun;
                let table = if *is_bounded { "big" } else { "less" };
                let said =
                    session.query_one(&format!("SELECT octet_length(({call})::text) FROM {table}"), &[]);
                let length = match said {
                    Ok(row) => row.get::<_, Option<i32>>(0).unwrap_or_default() as usize,
                    Err(error) if error.is_closed() => {
                        problems.push(format!("{call}: the process ended"));
                        server.wait_until_ready();
                        begun = begin();
                        continue;
                    }
                    Err(error) => Failure::from(&error).text().len(),
                };
                let grown = process::peak_memory(*pid) - *before;
                if length >= 2_000 || grown >= 100_000_000 {
                    problems.push(format!("{call}: {length} bytes of text, {grown} of memory"));
                }
                if grown >= 50_000_000 {
                    begun = begin();
                }
            }
        }
        assert!(problems.is_empty(), "{encoding}: {problems:#?}");
        // Not stored: as it is in memory.
        for call in
            [&format!("SELECT snowflake_from_base62({text})"), "SELECT snowflake_from_base62(t) FROM less"]
        {
            let failure = fails(&mut connect(), "22023", call);
            assert!(failure.text().len() < 2_000 && failure.message.ends_with("...\""), "{failure}");
        }
    }
}

/// A replicated row can be long.
#[test]
fn guard_shows_the_beginning_of_a_long_row() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE TABLE t (id bigint, note text);
         CREATE TRIGGER guard BEFORE INSERT ON t FOR EACH ROW WHEN (snowflake_is_own(NEW.id))
             EXECUTE FUNCTION snowflake_refuse_own_worker();
         ALTER TABLE t ENABLE REPLICA TRIGGER guard; SET session_replication_role = replica",
    );
    let failure =
        fails(&mut session, "23000", "INSERT INTO t VALUES (snowflake_nextval(), repeat('é', 5000000))");
    assert!(failure.detail.ends_with("éé...."), "{failure}");
    assert!(failure.detail.chars().count() < 250, "{failure}");
}

/// ALTER SYSTEM can be granted, and a setting's value is a text.
#[test]
fn a_long_value_of_a_setting_is_refused_with_a_short_text() {
    let server = Server::builder().start();
    let mut session = server.connect();
    let long = "z".repeat(5_000_000);
    for name in ["layout", "epoch", "node_name"] {
        let failure =
            fails(&mut session, "22023", &format!("ALTER SYSTEM SET snowflake_id.{name} = '{long}'"));
        // The message is PostgreSQL's own.
        assert!((20..400).contains(&failure.detail.len()), "{name}: {} bytes", failure.detail.len());
    }
}
