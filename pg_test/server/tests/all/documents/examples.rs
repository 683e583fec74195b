//! The manual is true: its SQL runs and prints what the manual says; its settings, functions, views and errors are the
//! extension's; and its links work.
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

use postgres::{Client, SimpleQueryMessage};
use regex::Regex;
use snowflake_server_tests::partman;
use snowflake_server_tests::sql::{Failure, column, fails, next, one, run};
use snowflake_server_tests::{Builder, Server, Stop, days, has_contrib, secs, wait_until};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use yaml_rust2::YamlLoader;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The documents that users read.
const DOCUMENTS: &[&str] = &[
    "README.md",
    "docs/backup.md",
    "docs/benchmarks.md",
    "docs/citus.md",
    "docs/clients.md",
    "docs/clock.md",
    "docs/comparison.md",
    "docs/fleet.md",
    "docs/glossary.md",
    "docs/high-availability.md",
    "docs/importing.md",
    "docs/index.md",
    "docs/installing.md",
    "docs/migration.md",
    "docs/monitoring.md",
    "docs/operations.md",
    "docs/partitioning.md",
    "docs/polling.md",
    "docs/portable.md",
    "docs/reading.md",
    "docs/registry.md",
    "docs/reliability.md",
    "docs/replication.md",
    "docs/scale.md",
    "docs/settings.md",
    "docs/sql.md",
    "docs/walking.md",
];

#[test]
fn the_readme_runs_as_written() {
    play("README.md");
}

#[test]
fn the_page_on_backup_tools_runs_as_written() {
    play("docs/backup.md");
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
    assert!(
        found.contains(&"a:5432 snowflake_config has another layout than the node".to_owned()),
        "{found:?}"
    );
    assert!(found.contains(&twice[0].to_owned()), "{found:?}");
    run(&mut server.connect(), "DELETE FROM snowflake_internal.snowflake_config");
    let found = problems(&server, "");
    assert!(found.contains(&"a:5432 snowflake_config is empty".to_owned()), "{found:?}");
}

#[test]
fn the_page_on_clients_runs_as_written() {
    play("docs/clients.md");
}

/// As a DBA runs it, with the output that the page promises.
#[test]
fn the_rehearsal_of_a_wrong_clock_runs_as_written() {
    let page = parts(&read("docs/clock.md"));
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
fn the_page_on_clocks_runs_as_written() {
    // Its times hold where statements follow each other at once. What is false is so every time.
    let told_once = (1..=3).any(|_| std::panic::catch_unwind(|| play("docs/clock.md")).is_ok());
    assert!(told_once, "three times in a row, as printed above");
}

#[test]
fn the_page_on_comparison_runs_as_written() {
    play("docs/comparison.md");
}

#[test]
fn the_page_on_fleets_runs_as_written() {
    play("docs/fleet.md");
}

#[test]
fn the_glossary_runs_as_written() {
    play("docs/glossary.md");
}

#[test]
fn the_page_on_high_availability_runs_as_written() {
    play("docs/high-availability.md");
}

#[test]
fn the_page_on_imports_runs_as_written() {
    play("docs/importing.md");
}

#[test]
fn the_page_on_installing_runs_as_written() {
    play("docs/installing.md");
}

#[test]
fn the_page_on_migration_runs_as_written() {
    play("docs/migration.md");
}

/// Each script of the page on migration asserts at its end what it has done.
#[test]
fn the_scripts_for_big_tables_run_as_written() {
    let server = Server::builder().start_with_extension();
    for name in ["big_table.sql", "uuid_key.sql"] {
        let script = read(&format!("examples/migration/{name}"));
        let copy = server.folder().join(name).to_string_lossy().into_owned();
        fs::write(&copy, script).expect("a copy that the servers' owner can read");
        server.tool("psql", &["-XqAt", "-v", "ON_ERROR_STOP=1", "-f", &copy]);
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

#[test]
fn the_page_on_monitoring_runs_as_written() {
    play("docs/monitoring.md");
}

#[test]
fn the_page_on_operations_runs_as_written() {
    play("docs/operations.md");
}

#[test]
fn the_page_on_partitioning_runs_as_written() {
    play("docs/partitioning.md");
}

#[test]
fn the_page_on_polling_runs_as_written() {
    play("docs/polling.md");
}

#[test]
fn the_page_on_the_portable_generator_runs_as_written() {
    play("docs/portable.md");
}

#[test]
fn the_page_on_reading_runs_as_written() {
    play("docs/reading.md");
}

#[test]
fn the_page_on_registries_runs_as_written() {
    play("docs/registry.md");
}

#[test]
fn the_page_on_replication_runs_as_written() {
    play("docs/replication.md");
}

#[test]
fn the_page_on_scale_runs_as_written() {
    play("docs/scale.md");
}

#[test]
fn the_page_on_settings_runs_as_written() {
    play("docs/settings.md");
}

#[test]
fn the_page_on_sql_runs_as_written() {
    play("docs/sql.md");
}

#[test]
fn the_page_on_walking_tables_runs_as_written() {
    play("docs/walking.md");
}

/// Pages of text and commands alone.
const TEXTS: [&str; 3] = ["docs/benchmarks.md", "docs/index.md", "docs/reliability.md"];

#[test]
fn only_pages_of_text_alone_are_not_played() {
    let tests = include_str!("examples.rs");
    for document in DOCUMENTS {
        let is_played_block = |part: &Part| matches!(part, Part::Block(_, language, _) if language != "sh");
        let has_blocks = parts(&read(document)).iter().any(is_played_block);
        assert_eq!(has_blocks, !TEXTS.contains(document), "{document}");
        let is_played = tests.contains(&format!("play(\"{document}\")")) || *document == "docs/citus.md";
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

/// A part of a document that has a meaning here.
#[derive(Debug)]
enum Part {
    /// Line number, language with its options, text.
    Block(usize, String, String),
    /// Line number, text.
    Comment(usize, String),
}

fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut block: Option<(usize, String, String)> = None;
    for (number, line) in (1..).zip(text.lines()) {
        match (&mut block, line.trim_end().strip_prefix("```")) {
            (None, Some(language)) => block = Some((number, language.to_owned(), String::new())),
            (Some(_), Some(_)) => {
                let (number, language, text) = block.take().expect("a block is open");
                parts.push(Part::Block(number, language, text));
            }
            (Some((_, _, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {
                assert!(
                    !line.trim_start().starts_with("```"),
                    "line {number}: an indented block is not played"
                );
                let comment = line.trim().strip_prefix("<!--").and_then(|rest| rest.strip_suffix("-->"));
                parts.extend(comment.map(|comment| Part::Comment(number, comment.trim().to_owned())));
            }
        }
    }
    assert!(block.is_none(), "a block is not closed");
    parts
}

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
            // The server becomes a member of the fleet whose registry is in its own database.
            "join the registry" => {
                self.server.unset("snowflake_id.worker_id");
                self.server.set("snowflake_id.backup_workers", "3");
                self.server.set("snowflake_id.registry", &self.server.registry_string());
                self.server.restart();
            }
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
        let log = || self.server.log()[self.log_from..].to_owned();
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

/// The statements of a block. Each ends with a semicolon at the end of a line, outside of `$$`.
fn statements(text: &str) -> Vec<String> {
    let mut statements = vec![String::new()];
    for line in text.lines() {
        let statement = statements.last_mut().expect("never empty");
        statement.push_str(line);
        statement.push('\n');
        if line.trim_end().ends_with(';') && statement.matches("$$").count() % 2 == 0 {
            statements.push(String::new());
        }
    }
    let rest = statements.pop().expect("never empty");
    assert!(rest.trim().is_empty(), "a statement without a semicolon: {rest}");
    statements
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

// ---- settings ----

fn first_ini(text: &str) -> String {
    let ini = parts(text).into_iter().find_map(|part| match part {
        Part::Block(_, language, text) if language == "ini" => Some(text),
        _ => None,
    });
    ini.expect("an ini block")
}

/// Lines of `postgresql.conf`.
fn conf(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines
        .filter(|line| !line.is_empty())
        .map(|line| {
            let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{line} is no setting"));
            (name.trim().to_owned(), value.trim().trim_matches('\'').to_owned())
        })
        .collect()
}

/// The manual's lines for `postgresql.conf` are all that a server needs, without any of the harness's.
#[test]
fn the_lines_for_postgresql_conf_start_a_server_that_makes_ids() {
    let builder = Server::builder().without_library();
    let server = with(builder, &conf(&first_ini(&read("README.md")))).start_with_extension();
    assert!(next(&mut server.connect()) > 0);
}

/// The packages' configuration file: no line of it overrides one of the server's, and the values in its comments are the
/// defaults.
#[test]
fn the_example_of_the_settings_has_the_defaults() {
    let text = read("packaging/snowflake_id.conf");
    assert_eq!(conf(&text), BTreeMap::new());

    let commented: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter(|line| !line.starts_with(' '))
        .collect();
    let mut commented = conf(&commented.join("\n"));
    assert_eq!(commented.remove("shared_preload_libraries").as_deref(), Some("snowflake_id"));
    assert!(commented.len() >= 8, "{commented:?}");
    let of_the_server = settings_of_the_server();
    for (name, value) in commented {
        let actual = of_the_server.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no {name}"));
        let value = match (name.as_str(), actual[1].as_str()) {
            ("snowflake_id.worker_id", _) => {
                assert_eq!(value, "", "nobody has a worker by default");
                continue;
            }
            (_, "integer") => count(&value).to_string(),
            _ => value,
        };
        assert_eq!(value, actual[3], "default of {name}");
    }
}

/// The parameters of a Cluster, which CloudNativePG accepts only as texts.
#[test]
fn the_manifests_have_settings_that_exist() {
    let of_the_server = settings_of_the_server();
    for file in ["extension-image.yaml", "image-catalog.yaml"] {
        let text = read(&format!("packaging/cloudnative-pg/{file}"));
        let documents = YamlLoader::load_from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
        let cluster = documents.iter().find(|document| document["kind"].as_str() == Some("Cluster"));
        let postgresql = &cluster.unwrap_or_else(|| panic!("{file}: no Cluster"))["spec"]["postgresql"];
        assert_eq!(postgresql["shared_preload_libraries"][0].as_str(), Some("snowflake_id"), "{file}");
        let parameters =
            postgresql["parameters"].as_hash().unwrap_or_else(|| panic!("{file}: no parameters"));
        assert!(parameters.len() >= 2, "{file}");
        for (name, value) in parameters {
            let known = of_the_server.iter().any(|row| Some(row[0].as_str()) == name.as_str());
            assert!(known && value.as_str().is_some(), "{file}: {name:?}: {value:?}");
        }
    }
}

/// The rows of the tables whose header starts with these cells, each as its cells.
fn table(text: &str, header: &[&str]) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim().trim_start_matches('|').trim_end_matches('|');
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let is_header = |line: &&str| line.starts_with('|') && cells(line).starts_with(&owned(header));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.iter().any(is_header), "no table {header:?}");
    let starts = (0..lines.len()).filter(|at| is_header(&lines[*at]));
    let rows = starts.flat_map(|at| lines[at + 2..].iter().take_while(|line| line.starts_with('|')));
    rows.map(|line| cells(line)).collect()
}

/// The rows of all such tables, in any document.
fn tables(header: &[&str]) -> Vec<Vec<String>> {
    let starts = |text: &str| text.contains(&format!("\n| {} |", header.join(" | ")));
    let texts: Vec<String> =
        DOCUMENTS.iter().map(|document| read(document)).filter(|text| starts(text)).collect();
    assert!(!texts.is_empty(), "no table {header:?}");
    texts.iter().flat_map(|text| table(text, header)).collect()
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// The text between backticks.
fn code(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// As PostgreSQL counts it: an integer, or a length of time in milliseconds.
fn count(text: &str) -> i64 {
    let digits = text.trim_start_matches('-').trim_start_matches(|c: char| c.is_ascii_digit());
    let number: i64 =
        text[..text.len() - digits.len()].parse().unwrap_or_else(|_| panic!("{text} is no number"));
    let unit = match digits {
        "" | "ms" => 1,
        "s" => 1_000,
        "min" => 60_000,
        other => panic!("{other} is no unit"),
    };
    number * unit
}

/// Name, type, unit, default, lowest and highest value, context, and the values of an enum.
fn settings_of_the_server() -> Vec<Vec<String>> {
    let server = Server::builder().start_with_extension();
    let query = "SELECT ARRAY[name, vartype, coalesce(unit, ''), boot_val, coalesce(min_val, ''),
                        coalesce(max_val, ''), context, coalesce(array_to_string(enumvals, ', '), '')]
                 FROM pg_settings WHERE name LIKE 'snowflake\\_id.%'";
    column(&mut server.connect(), query)
}

fn plain(cell: &str) -> String {
    cell.replace('`', "")
}

/// A table of settings has all of them, each with its default and with the moment at which a change takes effect.
fn assert_has_all(stated: &[Vec<String>], of_the_server: &[Vec<String>], default: usize, changed_by: usize) {
    let names = |rows: &[Vec<String>]| rows.iter().map(|row| plain(&row[0])).collect::<BTreeSet<_>>();
    assert_eq!(names(stated), names(of_the_server));
    for row in stated {
        let name = plain(&row[0]);
        let actual = of_the_server.iter().find(|row| row[0] == name).expect("compared above");
        let value = plain(&row[default]);
        let value = if actual[1] == "integer" { count(&value).to_string() } else { value };
        assert_eq!(value, actual[3], "default of {name}");
        let effect = if actual[6] == "postmaster" { "restart" } else { "reload" };
        assert_eq!(row[changed_by], effect, "{name} is changed by");
    }
}

#[test]
fn the_table_of_settings_is_that_of_the_server() {
    let page = read("docs/settings.md");
    let stated = table(&page, &["name", "type", "default", "range", "changed by"]);
    let of_the_server = settings_of_the_server();
    assert_has_all(&stated, &of_the_server, 2, 4);

    for row in &stated {
        let [name, kind, range] = [0, 1, 3].map(|i| plain(&row[i]));
        let actual = of_the_server.iter().find(|row| row[0] == name).expect("compared above");
        let [vartype, min, max, values] = [1, 4, 5, 7].map(|i| actual[i].as_str());

        assert_eq!(kind, if vartype == "string" { "text" } else { vartype }, "type of {name}");
        match (vartype, range.as_str()) {
            // Its bounds follow from other settings; PostgreSQL knows only those of the type.
            ("integer", "by layout") => assert_eq!(max, i32::MAX.to_string(), "{name}"),
            ("integer", range) => {
                let ends: Vec<&str> = range.split(", ").flat_map(|part| part.split(" to ")).collect();
                let (first, last) = (count(ends[0]), count(ends[ends.len() - 1]));
                assert_eq!([first.to_string(), last.to_string()], [min, max], "range of {name}");
            }
            ("enum", range) => assert_eq!(range, values, "values of {name}"),
            _ => {}
        }
    }
}

#[test]
fn every_setting_has_a_section() {
    let page = read("docs/settings.md");
    for setting in settings_of_the_server() {
        let short = setting[0].trim_start_matches("snowflake_id.");
        assert!(page.contains(&format!("\n## `{short}`\n\n")), "no section on {short}");
    }
}

#[test]
fn the_table_of_layouts_is_right() {
    for row in tables(&["`layout`", "`tick`", "lasts for"]) {
        let (layout, tick) = (code(&row[0]).remove(0), code(&row[1]).remove(0));
        // On a server of its own, because another layout closes one that has generated IDs.
        let server = Server::builder()
            .setting("snowflake_id.layout", &layout)
            .setting("snowflake_id.tick", &tick)
            .setting("snowflake_id.backup_workers", "3")
            .start_with_extension();
        let mut session = server.connect();
        assert!(next(&mut session) > 0, "{layout}");
        let years: String = one(
            &mut session,
            "SELECT round(extract(epoch FROM expires_at - epoch) / 86400 / 365.2425, 1)::text FROM snowflake_status",
        );
        assert_eq!(row[2], format!("{years} years"), "{layout}");

        let number = |text: &str| text.replace(',', "").parse::<i64>().expect("a number");
        let bits: Vec<Vec<u32>> = layout
            .split('/')
            .map(|field| field.split('+').map(|bits| bits.parse().expect("bits")).collect())
            .collect();
        let workers: Vec<i64> = row[3]
            .split(' ')
            .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
            .map(number)
            .collect();
        let of_bits: Vec<i64> = bits[1].iter().rev().map(|bits| 1 << bits).collect();
        assert_eq!(workers, of_bits, "workers of {layout}");
        assert_eq!(number(&row[4]), (1 << bits[2][0]) * 1_000 / count(&tick), "IDs a second of {layout}");
        if row[5].starts_with("53 bits") {
            assert_eq!(bits.iter().flatten().sum::<u32>(), 53, "{layout}");
        }
    }
}

#[test]
fn the_table_of_backup_workers_is_right() {
    let mut server = Server::builder().start_with_extension();
    for row in table(&read("docs/fleet.md"), &["`backup_workers`", "`worker_id`", "servers"]) {
        let range: Vec<&str> = row[1].split(" to ").collect();
        server.set("snowflake_id.backup_workers", &row[0]);
        server.set("snowflake_id.worker_id", range[1]);
        server.restart();
        let mut session = server.connect();
        assert!(next(&mut session) > 0, "{row:?}");
        let highest: i64 = range[1].parse().expect("a number");
        assert_eq!(row[2].replace(',', ""), (highest + 1).to_string());
        let lanes: i64 = one(&mut session, "SELECT count(*) FROM snowflake_workers");
        assert_eq!(row[3], lanes.to_string(), "{row:?}");
        // No other home worker would have room above the highest.
        let most: i32 = one(&mut session, "SELECT max(worker_id) FROM snowflake_workers");
        assert!((1_024 - lanes..1_024).contains(&most.into()), "{row:?}: {most}");
    }
}

// ---- functions and views ----

#[test]
fn the_tables_of_functions_are_those_of_the_extension() {
    let server = Server::builder().start_with_extension();
    // A function with OUT parameters returns "record", and its parameters say more.
    let query = "
        SELECT ARRAY[proname || '('
                         || regexp_replace(pg_get_function_identity_arguments(oid), '(^|, )OUT .*', '') || ')',
                     CASE pg_get_function_result(oid) WHEN 'record' THEN '(' || (
                         SELECT string_agg(proargnames[i] || ' ' || format_type(proallargtypes[i], NULL), ', '
                                           ORDER BY i)
                         FROM generate_subscripts(proargnames, 1) AS i WHERE proargmodes[i] = 'o') || ')'
                     ELSE pg_get_function_result(oid) END]
        FROM pg_proc WHERE oid IN (SELECT objid FROM pg_depend WHERE deptype = 'e'
            AND classid = 'pg_proc'::regclass
            AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'snowflake_id'))
        AND (prorettype <> 'trigger'::regtype OR proname = 'snowflake_refuse_own_worker')
        AND pronamespace <> 'snowflake_internal'::regnamespace -- only for the others
        AND proname <> 'snowflake_registry_contact'"; // servers call it
    let actual: Vec<Vec<String>> = column(&mut server.connect(), query);
    let short = |text: &str| text.replace("timestamp with time zone", "timestamptz");
    let actual: BTreeSet<(String, String)> =
        actual.iter().map(|row| (short(&row[0]), short(&row[1]))).collect();

    // A row has functions that return the same.
    let signatures = |row: &Vec<String>| {
        let returned = code(&row[1]).remove(0);
        code(&row[0]).into_iter().map(|function| (function, returned.clone())).collect::<Vec<_>>()
    };
    let stated: BTreeSet<(String, String)> = [
        "generating IDs",
        "reading IDs",
        "importing rows",
        "guarding replicated rows",
        "administering",
        "keeping a registry",
    ]
    .into_iter()
    .flat_map(|header| tables(&[header, "returns"]))
    .flat_map(|row| signatures(&row))
    .collect();
    assert_eq!(stated, actual);
}

#[test]
fn the_tables_of_the_views_have_every_column() {
    let server = Server::builder().start_with_extension();
    let reference = read("docs/sql.md");
    for (view, header) in [
        ("snowflake_status", "view `snowflake_status`, one row"),
        ("snowflake_workers", "view `snowflake_workers`, one row per lane"),
        ("snowflake_fleet", "view `snowflake_fleet`, one row per lease"),
        ("snowflake_fleet_capacity", "view `snowflake_fleet_capacity`, one row per datacenter in use"),
    ] {
        let query = format!(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = '{view}'::regclass AND attnum > 0"
        );
        let actual: BTreeSet<String> = column(&mut server.connect(), &query).into_iter().collect();
        let stated =
            table(&reference, &[header]).iter().flat_map(|row| code(&row[0])).collect::<BTreeSet<_>>();
        assert_eq!(stated, actual, "{view}");
    }
}

// ---- errors ----

/// The sources of the messages, with the path of the state file filled in.
fn messages() -> String {
    let files = ["gate", "horizon", "importing", "reading", "replication"]
        .map(|file| read(&format!("src/messages/{file}.rs")));
    files.concat().replace("{STATE_FILE}", "snowflake_id/state")
}

/// SQLSTATE or level, and message, of what SQL raises, but for the refusals of functions for administrators, which have
/// DETAIL and HINT in place of a row in the manual.
fn raised() -> Vec<(String, String)> {
    // "%s" in the code is "…" in the manual; a text with one word is none.
    let texts = |part: &str| {
        let literal = Regex::new("'((?:[^']|'')*)'").expect("a pattern");
        let texts = literal.captures_iter(part).map(|text| text[1].replace("''", "'").replace("%s", "…"));
        texts.filter(|text| text.contains(' ')).collect::<Vec<_>>()
    };
    let raise = r"(?s)(?:ERRCODE = '([0-9A-Za-z_]+)',[ \n]*)?MESSAGE = (.*?),[ \n]*(?:DETAIL|HINT) =";
    let call = r"_error\('([0-9A-Z]+)',[ \n]*(?:pg_catalog\.format\()?('(?:[^']|'')*')";
    let mut found = Vec::new();
    for (file, pattern) in
        [("sql/config.sql", raise), ("portable/snowflake_id.sql", raise), ("portable/snowflake_id.sql", call)]
    {
        for raised in Regex::new(pattern).expect("a pattern").captures_iter(&read(file)) {
            let state = match raised.get(1).map_or("WARNING", |state| state.as_str()) {
                "insufficient_privilege" => "42501",
                "feature_not_supported" => "0A000",
                "object_not_in_prerequisite_state" => "55000",
                state => state,
            };
            found.extend(texts(&raised[2]).into_iter().map(|text| (state.to_owned(), text)));
        }
    }
    found
}

/// The text of all string literals as a user sees them: continued lines joined, quotes unescaped.
fn as_printed(source: &str) -> String {
    let mut lines = source.split("\\\n");
    let mut joined = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        joined.push_str(line.trim_start());
    }
    joined.replace("\\\"", "\"")
}

/// What the page on operations has in the place of the SQLSTATE of a line of the log.
const LOGGED: &str = "LOG";

/// SQLSTATE and message of the errors and lines of the log on the page on operations. A row has those of one cause.
fn rows_of_operations() -> Vec<(String, String)> {
    let rows = table(&read("docs/operations.md"), &["SQLSTATE and message", "what to do"]);
    let messages = rows.iter().flat_map(|row| {
        let pieces: Vec<&str> = row[0].split('`').collect();
        let messages = pieces.chunks_exact(2).map(|two| (two[0].trim_start_matches("<br>").trim(), two[1]));
        messages.map(|(state, message)| (state.to_owned(), message.to_owned())).collect::<Vec<_>>()
    });
    messages.collect()
}

/// SQLSTATE and message of the errors in the manual: on the page on operations, and on those of single functions.
fn stated_errors() -> Vec<(String, String)> {
    let of_functions = tables(&["SQLSTATE", "message"]);
    let of_functions = of_functions.iter().map(|row| (row[0].clone(), code(&row[1]).remove(0)));
    rows_of_operations().into_iter().filter(|(state, _)| state != LOGGED).chain(of_functions).collect()
}

#[test]
fn every_error_message_of_the_manual_is_in_the_code() {
    let source = as_printed(&messages());
    let raised = raised();
    for (state, message) in stated_errors() {
        if raised.iter().any(|(other, text)| *other == state && is_stated_as(text, &message)) {
            continue;
        }
        // "…" stands for what the message is about.
        for part in message.split('…').filter(|part| !part.trim_matches(['"', ' ', ':']).is_empty()) {
            assert!(source.contains(part), "no error says {part:?}");
        }
    }
}

/// Whether a text is what the manual states, where "…" stands for anything.
fn is_stated_as(text: &str, stated: &str) -> bool {
    let pattern = stated.split('…').map(regex::escape).collect::<Vec<_>>().join(".*");
    Regex::new(&format!("^{pattern}$")).expect("a pattern").is_match(text)
}

#[test]
fn every_error_of_the_sql_is_in_the_manual_or_has_detail_and_hint() {
    let (raised, stated) = (raised(), stated_errors());
    assert!(raised.len() >= 20, "the SQL has changed its form; found {raised:?}");
    for (state, text) in &raised {
        let is_stated = stated.iter().any(|(other, message)| other == state && is_stated_as(text, message));
        assert!(is_stated, "missing: {state} {text}");
    }
    // `words.rs` looks at the rows of refusals.
    let folder = fs::read_dir(root().join("sql")).expect("the folder sql");
    for file in folder.map(|entry| entry.expect("a file").path()) {
        let source = fs::read_to_string(&file).expect("SQL");
        for statement in
            source.split("RAISE EXCEPTION").skip(1).map(|rest| rest.split(";\n").next().unwrap_or(rest))
        {
            let is_explained = ["DETAIL = ", "HINT = "].iter().all(|part| statement.contains(part));
            assert!(is_explained, "{}: {statement}", file.display());
        }
    }
}

#[test]
fn the_reference_has_every_object_of_the_extension() {
    let server = Server::builder().start_with_extension();
    let objects: Vec<String> = column(
        &mut server.connect(),
        "SELECT DISTINCT substring(pg_describe_object(d.classid, d.objid, 0) FROM 'snowflake_\\w+') AS name
         FROM pg_depend AS d JOIN pg_extension AS e ON e.oid = d.refobjid
         WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass AND e.extname = 'snowflake_id'
             -- No helpers.
             AND (pg_identify_object(d.classid, d.objid, 0)).schema = 'public'
         ORDER BY name",
    );
    assert!(objects.len() > 30, "{objects:?}");
    let reference = read("docs/sql.md");
    let is_named = |name: &&String| ["(", "`"].iter().any(|end| reference.contains(&format!("`{name}{end}")));
    let missing: Vec<&String> = objects.iter().filter(|name| !is_named(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// SQLSTATE and message of the calls that make errors in `src/messages`: `error(STATE, "…"` and `not_ready("…"`, either
/// with a `format!`.
#[test]
fn every_error_of_the_code_is_in_the_manual() {
    let states = [
        ("NOT_READY", "55000"),
        ("NO_RIGHT", "42501"),
        ("READ_ONLY", "25006"),
        ("WRONG_STATE", "25000"),
        ("INVALID", "22023"),
        ("OVERFLOW", "22008"),
        ("CANCELED", "57014"),
        ("MISUSED", "39P01"),
        ("MISSING", "42703"),
        ("WRONG_TYPE", "42804"),
        ("WRONG_DEFINITION", "42P16"),
        ("VIOLATION", "23000"),
        ("UNSUPPORTED", "0A000"),
    ];
    let source = messages();
    let message = |text: &str| {
        let start = text.find('"').expect("a message") + 1;
        let text = as_printed(&text[start..].replace("\\\"", "”"));
        text[..text.find('"').expect("its end")].replace('”', "\"")
    };
    let calls = |name: &'static str| source.split(name).skip(1).map(str::trim_start);
    let mut errors: Vec<(&str, String)> = Vec::new();
    for call in calls(" error(") {
        let state = states.iter().find(|(name, _)| call.starts_with(name));
        let (_, state) = state.unwrap_or_else(|| panic!("no state: {call:.80}"));
        errors.push((state, message(call)));
    }
    for call in calls(" not_ready(") {
        assert!(call.starts_with(['"', 'f']), "no message: {call:.80}");
        errors.push(("55000", message(call)));
    }
    assert!(errors.len() >= 33, "the code has changed its form; found {errors:?}");

    let stated = stated_errors();
    for (state, message) in errors {
        // "{id}" in the code is "…" in the manual.
        let mut pieces = message.split(['{', '}']);
        let mut shown = pieces.next().unwrap_or_default().to_owned();
        while let (Some(_), Some(text)) = (pieces.next(), pieces.next()) {
            shown = shown + "…" + text;
        }
        assert!(stated.contains(&(state.to_owned(), shown.clone())), "missing: {state} {shown}");
    }
}

/// The lines that the server logs by itself.
#[test]
fn the_page_on_operations_has_every_line_of_the_log_and_no_other() {
    let source = as_printed(&read("src/messages/log.rs").replace("\\\"", "”"));
    // The registry's server logs from SQL.
    let registry = read("sql/registry_nodes.sql");
    let of_registry = registry.split("RAISE LOG '").skip(1).filter_map(|rest| rest.split('\'').next());
    // "{worker}" in the code is "…" in the manual.
    let logged: BTreeSet<Vec<String>> = source
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|text| text.starts_with("snowflake_id: "))
        .chain(of_registry)
        .map(|text| text.replace('”', "\"").split(['{', '}']).step_by(2).map(str::to_owned).collect())
        .collect();
    assert!(logged.len() >= 10, "the code has changed its form; found {logged:?}");
    let stated: BTreeSet<Vec<String>> = rows_of_operations()
        .iter()
        .filter(|(state, _)| state == LOGGED)
        .map(|(_, message)| message.split('…').map(str::to_owned).collect())
        .collect();
    assert_eq!(stated, logged);
}

// ---- the tables of promises, of faults and of tools ----

/// The places of the tests that they name, as `folder::file::test` and `file::test`.
const TESTS: [&str; 3] =
    ["pg_test/server/tests/all", "crates/snowflake_core/tests/core", "crates/snowflake_core/tests"];

/// The first cells of a table, in its order.
fn first_cells(rows: &[Vec<String>]) -> Vec<&str> {
    rows.iter().map(|row| row[0].as_str()).collect()
}

#[test]
fn every_guarantee_names_tests_that_exist() {
    let rows = table(&read("pg_test/README.md"), &["promise", "shown by"]);
    assert_all_shown(&rows, 2);
    let reliability = read("docs/reliability.md");
    let guarantees: Vec<&str> = reliability
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()))
        .filter_map(|line| line.split("**").nth(1)?.strip_suffix('.'))
        .collect();
    assert!(guarantees.len() >= 9, "{guarantees:?}");
    assert!(first_cells(&rows).starts_with(&guarantees), "{guarantees:?}");
}

#[test]
fn every_mutant_breaks_one_promise() {
    let rows = table(&read("pg_test/README.md"), &["promise", "shown by"]);
    let promises = first_cells(&rows);
    for mutant in fs::read_dir(root().join("crates/snowflake_core/mutants")).expect("mutants") {
        let path = mutant.expect("a file").path();
        let text = fs::read_to_string(&path).expect("a mutant");
        let broken: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("Breaks: ")).collect();
        assert!(broken.len() == 1 && promises.contains(&broken[0]), "{}: {broken:?}", path.display());
    }
}

#[test]
fn every_fault_of_the_table_names_tests_that_exist() {
    let header = ["fault", "what the server does", "IDs unavailable for", "shown by"];
    let rows = table(&read("pg_test/README.md"), &header);
    assert!(rows.len() >= 40, "{} rows", rows.len());
    assert_all_shown(&rows, 4);
}

#[test]
fn every_kind_of_chaos_shows_something() {
    let page = read("pg_test/README.md");
    let source = read("pg_test/chaos/src/faults.rs");
    // Their names are the only strings of small letters there.
    let is_name = |text: &&str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c == '-');
    let kinds: Vec<&str> = source.split('"').skip(1).step_by(2).filter(is_name).collect();
    assert!(kinds.len() >= 40, "{kinds:?}");
    let missing: Vec<_> = kinds.iter().filter(|kind| !page.contains(&format!("`chaos {kind}`"))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_tool_of_the_table_names_tests_that_exist() {
    let rows = table(&read("pg_test/README.md"), &["tool", "shown by"]);
    assert_all_shown(&rows, 2);
    let of_users = table(&read("docs/backup.md"), &["tool", "with this extension"]);
    let tools = |rows: &[Vec<String>]| rows.iter().flat_map(|row| code(&row[0])).collect::<BTreeSet<_>>();
    assert_eq!(tools(&rows), tools(&of_users));
}

/// The last column of tables with this many columns names tests, or faults of `scripts/chaos`.
fn assert_all_shown(rows: &[Vec<String>], columns: usize) {
    for row in rows {
        assert_eq!(row.len(), columns, "{row:?}");
        // A heading within the table.
        if row[0].starts_with("**") {
            continue;
        }
        let shown_by = code(&row[columns - 1]);
        assert!(!shown_by.is_empty(), "nothing shows {:?}", row[0]);
        shown_by.iter().for_each(|test| assert_exists(test));
    }
}

/// A test, as `file::test`, or a fault of `scripts/chaos`, as `chaos fault`.
fn assert_exists(test: &str) {
    if let Some(kind) = test.strip_prefix("chaos ") {
        let chaos = read("pg_test/chaos/src/faults.rs");
        assert!(chaos.contains(&format!("kind(\"{kind}\",")), "scripts/chaos has no fault {kind}");
        return;
    }
    let (file, name) = test.rsplit_once("::").unwrap_or_else(|| panic!("{test} is no test"));
    let file = file.replace("::", "/");
    let files = TESTS.map(|folder| root().join(folder).join(&file).with_extension("rs"));
    let source = files.iter().find_map(|file| fs::read_to_string(file).ok());
    let source = source.unwrap_or_else(|| panic!("{test}: there is no {file}.rs"));
    assert!(source.contains(&format!("fn {name}()")), "{test} does not exist");
}

// ---- the version ----

#[test]
fn one_version_is_named_everywhere() {
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    let control = read("snowflake_id.control");
    assert!(control.contains("default_version = '@CARGO_VERSION@'"), "{control}");
    let changes = read("CHANGELOG.md");
    let mut headings = changes.lines().filter(|line| line.starts_with("## "));
    assert!(headings.any(|heading| heading.contains(VERSION)), "CHANGELOG.md has no {VERSION}");
    // Each with the number of times that it names the version.
    for (file, times) in [
        ("META.json", 2),
        ("README.md", 2),
        ("docs/installing.md", 3),
        ("packaging/cloudnative-pg/extension-image.yaml", 3),
        ("packaging/cloudnative-pg/image-catalog.yaml", 4),
    ] {
        let text = read(file);
        // The format of META.json has a version of its own, at the file's end.
        let text = text.split("\"meta-spec\"").next().unwrap_or_default();
        assert_eq!(text.matches(VERSION).count(), times, "{file} names {VERSION}");
    }
    let server = Server::builder().start();
    let versions = "SELECT version FROM pg_available_extension_versions WHERE name = 'snowflake_id'";
    assert_eq!(column::<String>(&mut server.connect(), versions), [VERSION]);
}

// ---- links ----

#[test]
fn every_link_leads_somewhere() {
    for document in
        DOCUMENTS.iter().chain(&["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "pg_test/README.md"])
    {
        let text = read(document);
        let folder = root().join(document).parent().expect("a folder").to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            // On GitHub, a repository's workflows are beside its files.
            if link.starts_with("https://") || link.starts_with("../../actions/workflows/test.yml") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { root().join(document) } else { folder.join(path) };
            assert!(target.exists(), "{document}: {link}");
            if !anchor.is_empty() {
                let target = std::fs::read_to_string(&target).expect("a page");
                let headings = target.lines().filter(|line| line.starts_with('#')).map(as_anchor);
                assert!(headings.into_iter().any(|heading| heading == anchor), "{document}: {link}");
            }
        }
    }
}

/// The anchor of a heading.
fn as_anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
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
