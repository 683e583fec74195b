//! Names, definitions and roles that try to make a script do more than it says.

use super::{assert_same, comes_back, comments, database, scripts, state};
use snowflake_server_tests::pg_version;
use snowflake_server_tests::sql::{column, fails, one, run};

/// Names that would end a comment, a literal or a quotation, if they were not escaped.
const NAMES: [&str; 12] = [
    "a\nDROP TABLE victim; --",
    "a\r\\! false",
    "a'; DROP TABLE victim; --",
    "a\"; DROP TABLE victim; --",
    "$snowflake$ DROP TABLE victim",
    "$$; DROP TABLE victim; $$",
    "/* a",
    "*/ a -- ",
    "\\'; DROP TABLE victim",
    "%s %1$I %",
    "{a,\"b\\\"}",
    "Ünï\u{2028}\u{202e}\u{1f600}",
];

#[test]
fn names_stay_in_their_comments_and_quotes() {
    let database = database();
    let mut owner = database.connect_as("owner");
    run(&mut owner, "CREATE TABLE victim (id serial PRIMARY KEY)");
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let literal = |name: &str| format!("E'{}'", name.replace('\\', "\\\\").replace('\'', "\\'"));
    let mut regclasses = Vec::new();
    for (n, name) in NAMES.iter().enumerate() {
        let (ident, text) = (quoted(name), literal(name));
        let (view, index, sequence) =
            (quoted(&format!("v{name}")), quoted(&format!("i{name}")), quoted(&format!("s{name}")));
        run(
            &mut owner,
            &format!(
                "CREATE SCHEMA {ident}; SET search_path = {ident}, public; CREATE SEQUENCE {sequence};
                 CREATE TABLE {ident} ({ident} integer PRIMARY KEY DEFAULT nextval({seq}), CONSTRAINT {index} CHECK ({ident} <> 7));
                 ALTER SEQUENCE {sequence} OWNED BY {ident}.{ident};
                 CREATE TABLE ref (\"I d\" integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, {ident} integer[], \"{n}id\" integer REFERENCES {ident});
                 CREATE VIEW {view} AS SELECT {ident}, {text}::text AS t FROM {ident} WHERE ({ident}::text <> {text} OR {ident} = NULL) AND '{{NULL}}'::text[] <> '{{a}}' AND interval '-1 1:00' < '1 d'
                     AND now() > timestamptz '2024-01-01Z' AND '\\x615c'::bytea <> ''
                     AND '0.30000000000000004'::float8 > 0;
                 COMMENT ON VIEW {view} IS {text}; COMMENT ON COLUMN {view}.t IS {text};
                 CREATE FUNCTION {ident}({ident} integer) RETURNS SETOF {view} LANGUAGE sql SET search_path = {ident} AS {body};
                 CREATE POLICY {ident} ON {ident} USING ({ident}::text <> {text});
                 CREATE RULE {ident} AS ON DELETE TO {view} DO INSTEAD (DELETE FROM victim WHERE false; SELECT {text}; NOTIFY {ident}, {text});
                 INSERT INTO {ident} DEFAULT VALUES; RESET search_path",
                seq = literal(&sequence),
                body = literal(&format!("SELECT * FROM {view} WHERE {text}::text <> '' -- $snowflake99999999999999999999$"))
            ),
        );
        regclasses.push(format!(
            "{}, {}",
            literal(&format!("{ident}.{ident}")),
            literal(&format!("{ident}.ref"))
        ));
    }
    let call = format!("convert({})", regclasses.join(", "));
    let script = comes_back(&database, "owner", &call).script;
    let before_code = script.split("\nDO ").next().expect("comments");
    assert!(before_code.lines().all(|line| line.starts_with("-- ")), "{before_code}");
    assert!(!before_code.contains('\r'), "{before_code}");
    assert_eq!(comments(&script, "OBSTACLE"), [""; 0]);
    // Made and run with other settings, it is the same, but for the sizes of the tables.
    let before = state(&database);
    let (mut maker, mut other) = (database.connect_as("owner"), database.connect());
    for session in [&mut maker, &mut other] {
        if pg_version() < 19 {
            run(session, "SET standard_conforming_strings = off; SET escape_string_warning = off");
        }
        run(
            session,
            "SET transform_null_equals = on; SET array_nulls = off; SET IntervalStyle = sql_standard; SET TimeZone = 'Asia/Tokyo';
             SET bytea_output = escape; SET quote_all_identifiers = on; SET DateStyle = 'German, DMY'; SET extra_float_digits = 0",
        );
    }
    scripts(&mut other, "convert_schema('public')");
    let both = scripts(&mut maker, &call);
    let without_sizes = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with("-- rewrites: ")).map(str::to_owned).collect()
    };
    assert_same(&without_sizes(&both.script), &without_sizes(&script), "other settings");
    run(&mut other, &both.script);
    run(&mut other, &both.back);
    assert_eq!(state(&database), before);
    assert_eq!(one::<i64>(&mut owner, "SELECT count(*) FROM pg_tables WHERE tablename = 'victim'"), 1);
}

/// A superuser's script runs what the owner has defined as the owner, and nothing that lies in a search_path.
#[test]
fn a_superuser_executes_nothing_as_itself() {
    let database = database();
    let mut owner = database.connect_as("owner");
    run(
        &mut owner,
        "CREATE TABLE seen (who text, as_what text);
         CREATE FUNCTION note() RETURNS void LANGUAGE sql AS 'INSERT INTO public.seen VALUES (session_user, current_user)';
         CREATE FUNCTION noted(bigint) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS 'BEGIN PERFORM public.note(); RETURN $1; END';
         CREATE TABLE t (id serial PRIMARY KEY, CHECK (noted(id) > 0)); CREATE INDEX ON t (noted(id)); INSERT INTO t DEFAULT VALUES;
         CREATE MATERIALIZED VIEW m AS SELECT noted(id) FROM t; DELETE FROM seen;
         CREATE FUNCTION public.format(text, VARIADIC text[]) RETURNS text LANGUAGE sql AS 'SELECT 1 / 0';
         CREATE FUNCTION public.set_config(text, text, boolean) RETURNS text LANGUAGE sql AS 'SELECT 1 / 0';
         CREATE TYPE public.text AS (x integer); CREATE VIEW public.pg_class AS SELECT 1 / 0 AS oid;
         CREATE FUNCTION public.less(name, name) RETURNS boolean LANGUAGE sql AS 'SELECT 1 / 0 > 0';
         CREATE OPERATOR public.= (LEFTARG = name, RIGHTARG = name, FUNCTION = public.less)",
    );
    let mut superuser = database.connect();
    run(&mut superuser, "SET search_path = public, pg_catalog");
    let row = superuser
        .query_one("SELECT script::pg_catalog.text, back::pg_catalog.text FROM snowflake_convert('t')", &[]);
    let row = row.expect("a row");
    run(&mut superuser, row.get(0));
    run(&mut superuser, row.get(1));
    run(&mut superuser, "RESET search_path; DROP TYPE public.text");
    let seen: Vec<String> = column(&mut superuser, "SELECT DISTINCT who || ' ' || as_what FROM seen");
    assert_eq!(seen, ["postgres owner"]);
}

/// A role that owns a table beside others', in a schema where it may create objects.
#[test]
fn another_owner_gains_no_right_from_a_script() {
    let database = database();
    let mut owner = database.connect_as("owner");
    run(
        &mut owner,
        "CREATE SCHEMA app; CREATE TABLE app.t (id serial PRIMARY KEY); GRANT ALL ON SCHEMA app TO reader; GRANT SELECT, REFERENCES ON app.t TO reader",
    );
    let mut other = database.connect_as("reader");
    // What the call names is not what has the name when the script runs.
    let text = scripts(&mut database.connect(), "convert('app.t')").script;
    run(&mut owner, "ALTER TABLE app.t RENAME TO old");
    run(&mut other, "CREATE TABLE app.t (id serial PRIMARY KEY)");
    let failure = fails(&mut database.connect(), "42501", &text);
    assert!(failure.message.contains("permission denied for table t"), "{failure}");
    run(&mut other, "DROP TABLE app.t");
    run(&mut owner, "ALTER TABLE app.old RENAME TO t");
    // Views and references of another role are obstacles, and a role that is not the owner runs no script.
    run(
        &mut other,
        "CREATE VIEW app.v AS SELECT id FROM app.t; CREATE TABLE app.r (t integer REFERENCES app.t)",
    );
    let both = scripts(&mut other, "convert('app.t')");
    assert_eq!(comments(&both.script, "OBSTACLE: ").len(), 2);
    for text in [&both.script, &both.back, &text] {
        fails(&mut other, "42501", text);
    }
    assert!(!both.script.contains("CREATE VIEW"), "{}", both.script);
}
