//! The manual's examples are true: its SQL runs and prints what the manual says.
//!
//! Each document is played from top to bottom on servers of its own. Its blocks are read like this:
//!
//! * an `ini` block, or the comment `<!-- new server -->`: a new server, with the settings of the README's first `ini`
//!   block and those of this one;
//! * `sql`: every statement must succeed; `sql error=22023`: the last one must fail with this SQLSTATE;
//! * `text`, which must follow an `sql` block: the output of its last statement, or its error. IDs, points in
//!   time and durations need not agree, unless `<!-- exact -->` stands before the block; nor do the values of
//!   a column `x` where `<!-- any: x -->` does. DETAIL and HINT may be left out;
//! * the comment `<!-- clock: -60 s -->`: the server's wall clock is moved by as much;
//! * the comment `<!-- do: stop; clock: -60 s; start -->`: each of these is done, in this order; what else
//!   can be done is what [`Player::act`] knows;
//! * `log`: lines of the server's log since it was started;
//! * `sh run`: each line is a program of PostgreSQL's with its arguments, which must succeed, in the folder around
//!   the data directory;
//! * `js`: node must run it to its end without an error;
//! * a block of any language with `from=FILE`: the file has these lines, in this order; a line with only `…` stands for
//!   omitted lines;
//! * `yaml`: must be YAML, and name only settings that the server has;
//! * `sh packages`: `scripts/inspect` runs it, in the folder with the packages of `scripts/package`;
//! * other `sh`, `java` and blocks without a language are ignored; an indented block is an error.

use super::pages::{DOCUMENTS, Part, conf, first_ini, parts, read, root};
use postgres::{Client, SimpleQueryMessage};
use regex::Regex;
use snowflake_server_tests::fleet::member;
use snowflake_server_tests::partman;
use snowflake_server_tests::sql::{Failure, column, fails, next, one, run};
use snowflake_server_tests::{Builder, Server, Stop, days, has_contrib, secs, wait_until};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use yaml_rust2::YamlLoader;

/// A test per document that is played as it stands.
macro_rules! documents {
    ($($name:ident: $document:literal,)*) => {
        $(#[test]
        fn $name() {
            play($document);
        })*

        const PLAYED: &[&str] = &[$($document),*];
    };
}

documents! {
    the_readme_runs_as_written: "README.md",
    the_page_on_clients_runs_as_written: "docs/clients.md",
    the_page_on_comparison_runs_as_written: "docs/comparison.md",
    the_page_on_fleets_runs_as_written: "docs/fleet.md",
    the_page_on_high_availability_runs_as_written: "docs/high-availability.md",
    the_page_on_imports_runs_as_written: "docs/importing.md",
    the_page_on_installing_runs_as_written: "docs/installing.md",
    the_page_on_migration_runs_as_written: "docs/migration.md",
    the_page_on_monitoring_runs_as_written: "docs/monitoring.md",
    the_page_on_operations_runs_as_written: "docs/operations.md",
    the_page_on_partitioning_runs_as_written: "docs/partitioning.md",
    the_page_on_polling_runs_as_written: "docs/polling.md",
    the_page_on_the_portable_generator_runs_as_written: "docs/portable.md",
    the_page_on_reading_runs_as_written: "docs/reading.md",
    the_page_on_registries_runs_as_written: "docs/registry.md",
    the_page_on_replication_runs_as_written: "docs/replication.md",
    the_page_on_settings_runs_as_written: "docs/settings.md",
    the_page_on_sql_runs_as_written: "docs/sql.md",
}

/// `citus.rs` plays this page where there is Citus. The check asks each node only for what any server has, so it is
/// tried with one server in the place of all nodes.
#[test]
fn the_check_of_citus_nodes_is_tried_without_citus() {
    let mut server = Server::builder().start_with_extension();
    let mut session = server.connect();
    next(&mut session);
    run(
        &mut session,
        "CREATE TABLE pg_dist_node (nodename text, nodeport integer, isactive boolean, noderole text);
         INSERT INTO pg_dist_node VALUES ('a', 5432, true, 'primary'), ('b', 5432, true, 'secondary');
         CREATE FUNCTION master_run_on_worker(text[], integer[], text[], boolean)
             RETURNS TABLE (node_name text, node_port integer, success boolean, result text)
             LANGUAGE plpgsql AS $$
         BEGIN
             success := true;
             FOR n IN 1 .. cardinality($1) LOOP
                 node_name := $1[n]; node_port := $2[n];
                 EXECUTE $3[n] INTO result;
                 RETURN NEXT;
             END LOOP;
         END $$",
    );
    run(&mut session, &read("examples/citus/check_nodes.sql"));
    let problems = |server: &Server, arguments: &str| {
        let query = format!("SELECT node || ' ' || problem FROM check_nodes({arguments})");
        column::<String>(&mut server.connect(), &query)
    };
    assert_eq!(problems(&server, ""), [""; 0]);
    let twice = ["a:5432 shares workers with c:5432", "c:5432 shares workers with a:5432"];
    assert_eq!(problems(&server, "'c'"), twice);
    server.stop(Stop::Fast);
    fs::remove_dir_all(server.data().join("snowflake_id")).expect("the state can be deleted");
    server.set("snowflake_id.layout", "41/5+5/12");
    server.start();
    let found = problems(&server, "'c'");
    let differs = "a:5432 generates no IDs: the snowflake layout of this database differs from this server's";
    assert!(found.iter().any(|problem| problem.starts_with(differs)), "{found:?}");
    assert!(found.contains(&twice[0].to_owned()), "{found:?}");
}

/// As a DBA runs it, with the output that the page promises.
#[test]
fn the_rehearsal_of_a_wrong_clock_runs_as_written() {
    let page = parts(&read("docs/reliability.md"));
    let output = page.into_iter().find_map(|part| match part {
        Part::Block(_, language, text) if language.is_empty() => Some(text),
        _ => None,
    });
    let script = read("examples/clock/rehearse.sh");
    let mut server = Server::builder().start();
    let program = server.client_program("pg_ctl", "postgres").get_program().to_owned();
    let programs = Path::new(&program).parent().expect("a folder").display().to_string();
    server.stop(Stop::Fast);
    let script = format!(
        "unset PGPORT PGDATA; PATH={programs}:$PATH; mkdir rehearsal; cd rehearsal
         trap 'pg_ctl -D data -m immediate stop >log.stop' EXIT
         {script}"
    );
    assert_eq!(server.tool("/bin/bash", &["-euc", &script]), output.expect("its output"));
}

#[test]
fn the_page_on_reliability_runs_as_written() {
    // Its times hold where statements follow each other at once. What is false is so every time.
    let told_once = (1..=3).any(|_| std::panic::catch_unwind(|| play("docs/reliability.md")).is_ok());
    assert!(told_once, "three times in a row, as printed above");
}

/// Each script of the page on migration asserts at its end what it has done to the rows. The catalog is the one that the
/// same change has in few statements with long locks, but for the order of columns.
#[test]
fn the_scripts_for_big_tables_run_as_written() {
    let server = Server::builder().start_with_extension();
    let catalog = |database: &str| -> Vec<Vec<String>> {
        let dump = server.dump(database, &["-s"]);
        let sorted = |statement: &str| {
            let mut lines: Vec<_> =
                statement.lines().map(|line| line.trim_end_matches(',').to_owned()).collect();
            lines.sort();
            lines
        };
        dump.split("\n\n").map(sorted).collect()
    };
    let conversion = "CREATE TABLE readings_conversion AS SELECT * FROM snowflake_convert('readings');
                      SELECT script FROM readings_conversion \\gexec\n";
    let replacement = "
        TRUNCATE documents, comments;
        ALTER TABLE comments DROP CONSTRAINT comments_document_fkey;
        ALTER TABLE documents DROP CONSTRAINT documents_pkey;
        ALTER TABLE documents RENAME COLUMN id TO public_id;
        CREATE UNIQUE INDEX documents_public_id ON documents (public_id);
        ALTER TABLE documents ADD COLUMN id bigint PRIMARY KEY DEFAULT snowflake_nextval();
        ALTER TABLE comments ALTER COLUMN document TYPE bigint USING 0;
        ALTER TABLE comments ADD FOREIGN KEY (document) REFERENCES documents ON DELETE CASCADE;";
    for (name, at_once) in [("big_table", conversion), ("uuid_key", replacement)] {
        let script = read(&format!("examples/migration/{name}.sql"));
        let (tables, _) = script.split_once("\n-- 1. ").expect("its first step");
        let expected = format!("{name}_at_once");
        for (database, statements) in [(name, &*script), (&*expected, &format!("{tables}{at_once}"))] {
            run(&mut server.connect(), &format!("CREATE DATABASE {database}"));
            let quiet = "SET client_min_messages = warning; CREATE EXTENSION snowflake_id;";
            server.restore(database, &format!("{quiet}\n{statements}"));
        }
        assert_eq!(catalog(name), catalog(&expected), "{name}");
    }
}

#[test]
fn the_domain_for_postgrest_writes_and_reads_text() {
    let server = Server::builder().start_with_extension();
    let mut session = server.connect();
    run(
        &mut session,
        "CREATE TABLE orders (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), customer text)",
    );
    run(&mut session, &read("examples/postgrest/id_as_text.sql"));
    let id: i64 = one(&mut session, "INSERT INTO orders (customer) VALUES ('Ada') RETURNING id");
    let written: String = one(&mut session, "SELECT id_to_json(id)::text FROM api.orders");
    assert_eq!(written, format!("\"{id}\""));
    let back =
        |text: &str| format!("SELECT id_as_text({text})::bigint FROM (SELECT '{written}'::json AS j) AS q");
    assert_eq!(one::<i64>(&mut session, &back("j")), id);
    assert_eq!(one::<i64>(&mut session, &back("j #>> '{}'")), id);
}

/// The manual's lines for `postgresql.conf` are all that a server needs, without any of the harness's.
#[test]
fn the_lines_for_postgresql_conf_start_a_server_that_makes_ids() {
    let builder = Server::builder().without_library();
    let server = with(builder, &conf(&first_ini(&read("README.md")))).start_with_extension();
    assert!(next(&mut server.connect()) > 0);
}

/// Pages of text and commands alone.
const TEXTS: [&str; 2] = ["docs/benchmarks.md", "docs/index.md"];

#[test]
fn only_pages_of_text_alone_are_not_played() {
    for document in DOCUMENTS {
        let is_played_block = |part: &Part| matches!(part, Part::Block(_, language, _) if language != "sh");
        let has_blocks = parts(&read(document)).iter().any(is_played_block);
        assert_eq!(has_blocks, !TEXTS.contains(document), "{document}");
        let is_played =
            PLAYED.contains(document) || ["docs/citus.md", "docs/reliability.md"].contains(document);
        assert_eq!(is_played, has_blocks, "{document}");
    }
}

#[test]
fn no_document_is_left_out() {
    let pages = std::fs::read_dir(root().join("docs")).unwrap();
    let pages = pages.map(|page| format!("docs/{}", page.unwrap().file_name().to_string_lossy()));
    let missed: Vec<String> =
        pages.filter(|page| page.ends_with(".md") && !DOCUMENTS.contains(&page.as_str())).collect();
    assert!(missed.is_empty(), "add a test, and the name to DOCUMENTS: {missed:?}");
}

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines <= 200, "{lines} lines: what is more belongs on a page of its own");
}

// ---- playing a document ----

/// The output of a block.
enum Output {
    Rows { columns: Vec<String>, rows: Vec<Vec<String>> },
    Error(Failure),
}

struct Player {
    server: Server,
    session: Client,
    /// Length of the log when the server was ready.
    log_from: usize,
    /// Other servers that keep running.
    others: Vec<Server>,
}

impl Player {
    /// A new server whose cluster was created long ago, so that every worker is usable: a first start's marks lie near
    /// its clock.
    fn new(document: &str, settings: &BTreeMap<String, String>) -> Self {
        let builder = Server::builder().setting("timezone", "UTC");
        let server = with(builder, settings).born(days(400)).start_with_extension();
        let mut session = server.connect();
        next(&mut session);
        server.step_forward(days(400));
        next(&mut session);
        run(&mut session, "SELECT snowflake_reset_stats()");
        // The README creates it itself.
        if document == "README.md" {
            run(&mut session, "DROP EXTENSION snowflake_id");
        }
        let session = server.connect();
        let log_from = server.log().len();
        Self { server, session, log_from, others: Vec::new() }
    }

    /// Runs a block of statements; returns the output of the last one that returned rows, or of the last one at all.
    fn sql(&mut self, place: &str, options: &str, text: &str) -> Option<Output> {
        let expected = options.trim().strip_prefix("error=");
        let statements = statements(text);
        let (last, before) = statements.split_last().unwrap_or_else(|| panic!("{place}: no statement"));
        let mut output = None;
        for statement in before.iter().chain(expected.is_none().then_some(last)) {
            // As psql does.
            let mut statement = statement.as_str();
            while let Some((query, rest)) = statement.split_once("\\gexec") {
                for text in column::<String>(&mut self.session, query) {
                    run(&mut self.session, &text);
                }
                statement = rest;
            }
            // Its files are not installed in any server: see `partman`.
            if statement.trim() == "CREATE EXTENSION pg_partman SCHEMA partman;" {
                partman::versions().last().expect("one at least").create(&mut self.session);
                continue;
            }
            output = match self.session.simple_query(statement) {
                Ok(messages) => rows(&messages),
                Err(error) => panic!("{place}: {statement}\n{}", Failure::from(&error)),
            };
        }
        match expected {
            Some(code) => Some(Output::Error(fails(&mut self.session, code, last))),
            None => output,
        }
    }

    /// Moves the wall clock by a number of seconds, written as `-60 s` or `+1 s`.
    fn clock(&mut self, place: &str, by: &str) {
        let length = secs(seconds(place, by).unsigned_abs());
        if by.starts_with('-') { self.server.step_back(length) } else { self.server.step_forward(length) }
    }

    /// Does something to the server.
    fn act(&mut self, place: &str, action: &str) {
        let (name, value) = action.split_once(':').map_or((action, ""), |(name, value)| (name, value.trim()));
        match name {
            "stop" => self.server.stop(Stop::Fast),
            "crash" => self.server.stop(Stop::Immediate),
            "start" => self.server.start(),
            "restart" => self.server.restart(),
            // The server is stopped.
            "clock" => {
                let length = secs(seconds(place, value).unsigned_abs());
                let clock = self.server.clock();
                if value.starts_with('-') { clock.back(length) } else { clock.forward(length) }
            }
            "set" => {
                let (name, value) = value.split_once('=').unwrap_or_else(|| panic!("{place}: set what?"));
                self.server.set(name.trim(), value.trim());
            }
            "wait" => std::thread::sleep(secs(seconds(place, value).unsigned_abs())),
            "wait for IDs" => {
                self.server.wait_for_worker("an ID", secs(60), |session| {
                    session.query_one("SELECT snowflake_nextval()", &[]).ok()
                });
            }
            // From now on the copy is the server.
            "copy" => {
                let copy = self.server.copy();
                drop(std::mem::replace(&mut self.server, copy));
                self.log_from = 0;
            }
            // From now on the standby is the server; the old one keeps running.
            "standby" => {
                let standby = self.server.standby(|settings| settings);
                self.others.push(std::mem::replace(&mut self.server, standby));
                self.log_from = 0;
            }
            "stop the others" => self.others.clear(),
            "promote" => self.server.promote(),
            "join the registry" => self.others.push(member(&self.server, "db-1").start()),
            "lose the state" => {
                fs::write(self.state_file(), [0; 8192]).expect("the state can be overwritten")
            }
            "delete the state" => {
                fs::remove_dir_all(self.state_file().parent().expect("a folder")).expect("it can be deleted");
            }
            other => panic!("{place}: nobody can do \"{other}\""),
        }
        if let Ok(session) = self.server.config().connect(postgres::NoTls) {
            self.session = session;
        }
    }

    fn state_file(&self) -> PathBuf {
        self.server.data().join("snowflake_id/state")
    }

    fn log(&self, place: &str, text: &str) {
        let of_others = || self.others.iter().map(Server::log).collect::<String>();
        let log = || self.server.log()[self.log_from..].to_owned() + &of_others();
        for line in text.lines().map(without_variables).map(unpadded) {
            // The server does this by itself, at a time of its own.
            wait_until(&format!("{place}: in the log: {line}"), secs(30), || {
                log().lines().map(without_variables).map(unpadded).find(|logged| logged.contains(&line))
            });
        }
    }
}

/// A number of seconds, written as `-60 s`.
fn seconds(place: &str, text: &str) -> i64 {
    let number = text.strip_suffix(" s").and_then(|number| number.parse::<i64>().ok());
    number.unwrap_or_else(|| panic!("{place}: \"{text}\" is not a number of seconds"))
}

fn run_js(place: &str, script: &str) {
    let output = Command::new("node").args(["-e", script]).output();
    let output = output.expect("node is needed: Debian's package nodejs has it");
    assert!(output.status.success(), "{place}: {}", String::from_utf8_lossy(&output.stderr));
}

fn with(builder: Builder, settings: &BTreeMap<String, String>) -> Builder {
    settings.iter().fold(builder, |builder, (name, value)| builder.setting(name, value))
}

fn play(document: &'static str) {
    let base = conf(&first_ini(&read("README.md")));
    let mut player: Option<Player> = None;
    let mut output: Option<Output> = None;
    let (mut exact, mut any) = (false, Vec::new());
    for part in parts(&read(document)) {
        match part {
            Part::Comment(line, comment) => {
                let place = format!("{document}:{line}");
                if comment == "new server" {
                    player = Some(Player::new(document, &base));
                } else if comment == "exact" {
                    exact = true;
                } else if let Some(columns) = comment.strip_prefix("any:") {
                    any = columns.split(',').map(|column| column.trim().to_owned()).collect();
                } else if let Some(by) = comment.strip_prefix("clock:") {
                    player.as_mut().expect("a server").clock(&place, by.trim());
                } else if let Some(actions) = comment.strip_prefix("do:") {
                    let player = player.as_mut().expect("a server");
                    actions.split(';').for_each(|action| player.act(&place, action.trim()));
                }
            }
            Part::Block(line, language, text) => {
                let place = format!("{document}:{line}");
                let (name, options) = language.split_once(' ').unwrap_or((&language, ""));
                match name {
                    _ if options.starts_with("from=") => assert_quoted(&place, &options[5..], &text),
                    "ini" => {
                        let mut settings = base.clone();
                        settings.extend(conf(&text));
                        player = Some(Player::new(document, &settings));
                    }
                    "sql" => {
                        let player = player.get_or_insert_with(|| Player::new(document, &base));
                        output = player.sql(&place, options, &text);
                        continue; // its output may come next
                    }
                    "text" => {
                        let output = output.take().unwrap_or_else(|| panic!("{place}: output of what?"));
                        compare(&place, &output, &text, exact, &any);
                        (exact, any) = (false, Vec::new());
                    }
                    "log" => player.as_ref().expect("a server").log(&place, &text),
                    "js" => run_js(&place, &text),
                    "sh" if options == "run" => {
                        let server = &player.as_ref().expect("a server").server;
                        for line in text.lines() {
                            let words: Vec<&str> = line.split_whitespace().collect();
                            if words[0] != "pg_amcheck" || has_contrib() {
                                server.tool(words[0], &words[1..]);
                            }
                        }
                    }
                    "yaml" => check_yaml(&place, &text, &player.as_ref().expect("a server").server),
                    "sh" | "java" | "" => {}
                    other => panic!("{place}: blocks of {other} are not understood"),
                }
                output = None;
            }
        }
    }
    assert!(player.is_some(), "{document} has no SQL");
}

fn check_yaml(place: &str, text: &str, server: &Server) {
    YamlLoader::load_from_str(text).unwrap_or_else(|e| panic!("{place}: {e}"));
    let words = text.split(|c: char| c.is_whitespace() || c == ':' || c == '"');
    for setting in words.filter(|word| word.starts_with("snowflake_id.")) {
        let shown = server.connect().query(&format!("SHOW {setting}"), &[]);
        assert!(shown.is_ok(), "{place}: there is no setting {setting}");
    }
}

/// Whether a file contains the lines of a block, in the block's order.
fn assert_quoted(place: &str, file: &str, text: &str) {
    let source = read(file.trim());
    let mut lines = source.lines().map(str::trim);
    for quoted in text.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "…") {
        assert!(lines.any(|line| line == quoted), "{place}: {file} does not go on with: {quoted}");
    }
}

/// The statements of a block. Each ends with a semicolon or `\gexec` at the end of a line, outside of dollar quotes.
fn statements(text: &str) -> Vec<String> {
    let mut statements = vec![String::new()];
    for line in text.lines() {
        let statement = statements.last_mut().expect("never empty");
        statement.push_str(line);
        statement.push('\n');
        if (line.trim_end().ends_with(';') || line.ends_with("\\gexec")) && !is_within_quotes(statement) {
            statements.push(String::new());
        }
    }
    let rest = statements.pop().expect("never empty");
    assert!(rest.trim().is_empty(), "a statement without a semicolon: {rest}");
    statements
}

/// Whether a text ends within dollar quotes.
fn is_within_quotes(text: &str) -> bool {
    let mut open = None;
    for tag in Regex::new(r"\$[a-z]*\$").expect("a pattern").find_iter(text).map(|tag| tag.as_str()) {
        open = match open {
            None => Some(tag),
            Some(other) if other == tag => None,
            other => other,
        };
    }
    open.is_some()
}

fn rows(messages: &[SimpleQueryMessage]) -> Option<Output> {
    let mut output = None;
    for message in messages {
        match (message, &mut output) {
            (SimpleQueryMessage::RowDescription(columns), _) => {
                let columns = columns.iter().map(|column| column.name().to_owned()).collect();
                output = Some(Output::Rows { columns, rows: Vec::new() });
            }
            (SimpleQueryMessage::Row(row), Some(Output::Rows { rows, .. })) => {
                rows.push((0..row.len()).map(|i| row.get(i).unwrap_or_default().to_owned()).collect());
            }
            _ => {}
        }
    }
    output
}

/// Compares the output with the document, in psql's format.
fn compare(place: &str, output: &Output, text: &str, exact: bool, any: &[String]) {
    // psql pads, and plans are indented; neither is compared.
    let plain = |text: &str| if exact { text.trim().to_owned() } else { without_variables(text.trim()) };
    match output {
        Output::Rows { columns, rows } => {
            let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
            let mut lines = text.lines();
            assert_eq!(&lines.next().map(cells).unwrap_or_default(), columns, "{place}: the columns");
            let rule = lines.next().unwrap_or_default();
            assert!(rule.starts_with("--"), "{place}: {rule:?} is not the line under the header");
            let mut lines: Vec<&str> = lines.collect();
            let count = if rows.len() == 1 { "(1 row)".to_owned() } else { format!("({} rows)", rows.len()) };
            assert_eq!(lines.pop(), Some(count.as_str()), "{place}: the number of rows");
            let stated: Vec<Vec<String>> = lines.into_iter().map(cells).collect();
            let masked = |rows: &[Vec<String>]| -> Vec<Vec<String>> {
                let mask = |(column, cell): (&String, &String)| {
                    if any.contains(column) { "*".to_owned() } else { plain(cell) }
                };
                rows.iter().map(|row| columns.iter().zip(row).map(mask).collect()).collect()
            };
            assert_eq!(masked(&stated), masked(rows), "{place}: the rows, as stated and as printed");
        }
        Output::Error(failure) => {
            let printed =
                [("ERROR:  ", &failure.message), ("DETAIL:  ", &failure.detail), ("HINT:  ", &failure.hint)];
            assert!(text.starts_with(printed[0].0), "{place}: the statement fails with {failure}");
            for line in text.lines() {
                let known =
                    printed.iter().find_map(|(label, printed)| Some((line.strip_prefix(label)?, printed)));
                let (stated, printed) =
                    known.unwrap_or_else(|| panic!("{place}: {line} is no part of an error"));
                assert_eq!(plain(stated), plain(printed), "{place}");
            }
        }
    }
}

/// The text with placeholders for everything that differs from run to run: points in time, durations, IDs.
fn without_variables(text: &str) -> String {
    /// A digit in the pattern stands for any digit.
    fn has_shape(text: &str, shape: &str) -> bool {
        let fits = |(c, s): (u8, u8)| if s.is_ascii_digit() { c.is_ascii_digit() } else { c == s };
        text.len() >= shape.len() && text.bytes().zip(shape.bytes()).all(fits)
    }
    let number = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let decimal = |text: &str| {
        let whole = number(text);
        match text[whole..].strip_prefix('.').map(number) {
            Some(digits) if whole > 0 && digits > 0 => whole + 1 + digits,
            _ => whole,
        }
    };
    const TIME: &str = "0000-00-00 00:00:00";
    let mut result = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let mut length = c.len_utf8();
        if has_shape(rest, TIME) {
            length = TIME.len() - 2 + decimal(&rest[TIME.len() - 2..]);
            if has_shape(&rest[length..], "+00") {
                length += 3;
            }
            result.push_str("<time>");
        } else if c.is_ascii_digit() {
            length = decimal(rest);
            let unit = [" ms", " s", " min", " h", " days"].into_iter().find(|unit| {
                let after = rest[length..].strip_prefix(unit);
                after.is_some_and(|after| !after.starts_with(char::is_alphanumeric))
            });
            match unit {
                Some(unit) => {
                    length += unit.len();
                    // A length of time is written in one unit or in two.
                    if !result.ends_with("<duration> ") {
                        result.push_str("<duration>");
                    } else {
                        result.pop();
                    }
                }
                None if (15..=19).contains(&length) => result.push_str("<id>"),
                None => result.push_str(&rest[..length]),
            }
        } else {
            result.push(c);
        }
        rest = &rest[length..];
    }
    result
}

/// With single spaces, because PostgreSQL's log has two after `LOG:`.
fn unpadded(line: String) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn what_differs_from_run_to_run_is_replaced() {
    assert_eq!(
        without_variables(
            "382501920606015488 is 59.9 s, 24 h 0 min or 5000 IDs after 2026-11-21 12:02:04.049+00."
        ),
        "<id> is <duration>, <duration> or 5000 IDs after <time>."
    );
    assert_eq!(without_variables("362388381519879|2024-01-02 00:00:00+00"), "<id>|<time>");
}
