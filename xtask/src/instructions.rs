//! Counts the instructions of one call of the functions that generate and read IDs, and compares them with the counts
//! that are committed. `scripts/instructions --help` says what for. Benchmarking crates such as gungraun run callgrind too,
//! but give the sum of a program or of a function with all that it calls, not the part of one library in it.

use crate::callgrind;
use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use snowflake_server_tests::{Server, pg_config};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

const COMMITTED: &str = "scripts/instructions.txt";
/// Per cent.
const TOLERANCE: f64 = 5.0;

/// A clock, which is set when a path begins, is libfaketime's: either it stands still, so that all calls come in one
/// tick, or it advances by a millisecond with each reading, so that each call comes in a new one. So nothing depends on
/// the time of day or on the speed of the machine. A tick has room for all calls of its path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clock {
    Standing,
    Advancing,
}
use Clock::{Advancing, Standing};

/// Calls that are counted one by one, and only in the library.
struct Measured {
    name: &'static str,
    clock: Clock,
    /// The IDs that the query generates or reads.
    ids: i64,
    query: &'static str,
}

const PATHS: [Measured; 5] = [
    measured("nextval, same tick", Standing, 1000, NEXTVAL),
    measured("nextval, new tick", Advancing, 1000, NEXTVAL),
    measured("nextval_batch, an ID", Standing, 1000, "SELECT count(*) FROM snowflake_nextval_batch(1000)"),
    measured("nextval_range(10)", Standing, 100, RANGE),
    measured("decode, all fields", Standing, 1000, DECODE),
];

const NEXTVAL: &str = "SELECT count(snowflake_nextval()) FROM generate_series(1, 1000)";
const RANGE: &str = "SELECT count(r) FROM (SELECT snowflake_nextval_range(10) AS r \
    FROM generate_series(1, 100) OFFSET 0) AS s";
const DECODE: &str = "SELECT count(created_at), count(datacenter_id), count(worker_id), count(sequence) \
    FROM (SELECT (snowflake_decode(382501920606015488 + n)).* FROM generate_series(1, 1000) AS n OFFSET 0) AS s";

const fn measured(name: &'static str, clock: Clock, ids: i64, query: &'static str) -> Measured {
    Measured { name, clock, ids, query }
}

/// A single-process server reads one statement per line. callgrind writes a dump and starts over whenever this function
/// is called, so a statement between two marks has a dump of its own: dump.2 is the first, dump.4 the second.
const MARK: &str = "pg_backend_pid";

/// 50 more calls show whether the clock was the one that the path asks for.
const TICKS: &str = "SELECT 'ticks: ' || count(DISTINCT snowflake_timestamp(id)) AS found \
    FROM (SELECT snowflake_nextval() AS id FROM generate_series(1, 50) OFFSET 0) AS s";

/// What is done in the server under callgrind.
fn statements(clock_file: &Path) -> String {
    let mut lines = Vec::new();
    let mut day = 0;
    // Sets the clock, and runs the query once, for everything that only a first call does.
    let mut begin = |lines: &mut Vec<String>, clock: Clock, query: String| {
        day += 1;
        let time = format!("2080-01-{day:02} 00:00:00");
        let time = if clock == Standing { time } else { format!("@{time} i0.001") };
        lines.push(format!("COPY (SELECT '{time}') TO '{}'", clock_file.display()));
        lines.push(query);
    };
    let mark = || format!("SELECT {MARK}()");
    for path in &PATHS {
        begin(&mut lines, path.clock, path.query.to_owned());
        lines.extend([mark(), path.query.to_owned(), mark(), TICKS.to_owned()]);
    }
    lines.join("\n") + "\n"
}

// ---- a server of one process ----

/// Runs one with these statements, and returns what it prints. It goes on after an error.
fn run(mut command: Command, statements: &str, folder: &Path) -> Result<String> {
    let file = folder.join("statements");
    fs::write(&file, statements)?;
    let output = command.stdin(File::open(&file)?).output()?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let failed = ["ERROR:", "FATAL:", "PANIC:"].iter().any(|level| said.contains(level));
    ensure!(output.status.success() && !failed, "the server under callgrind: {}\n{said}", output.status);
    Ok(said)
}

/// The server, in whose folder callgrind leaves its dumps, and what it has answered.
fn counted() -> Result<(Server, String)> {
    let settings = [
        ("jit", "off"),
        ("timezone", "UTC"),
        ("log_timezone", "UTC"),
        ("max_parallel_workers_per_gather", "0"),
        // The reservation covers all calls of a path; otherwise one in some hundred would write the next one.
        ("snowflake_id.reserve", "10s"),
    ];
    let builder = Server::builder().without("shared_buffers").without("autovacuum").faketime(true);
    let server =
        settings.iter().fold(builder, |builder, (name, value)| builder.setting(name, value)).create();
    let folder = server.folder().to_owned();
    let single = |command: &mut Command| {
        command.args(["--single", "-D"]).arg(server.data()).arg("postgres");
    };
    // By the true clock: a new cluster generates its first ID only some seconds after it was created, which a clock
    // that stands still would never reach.
    let mut postgres = server.client_program("postgres", "postgres");
    single(&mut postgres);
    run(postgres, "CREATE EXTENSION snowflake_id\nSELECT snowflake_nextval()\n", &folder)?;

    let clock = folder.join("clock");
    fs::write(&clock, "2080-01-01 00:00:00\n")?;
    let mut valgrind = server.client_program("/usr/bin/valgrind", "postgres");
    valgrind.args(["--tool=callgrind", "--vgdb=no", &format!("--dump-before={MARK}")]);
    valgrind.arg(format!("--callgrind-out-file={}", folder.join("dump").display()));
    valgrind.arg(Path::new(&pg_config("--bindir")).join("postgres"));
    single(&mut valgrind);
    valgrind.env("TZ", "UTC").env("LD_PRELOAD", snowflake_server_tests::clock::library());
    valgrind.env("FAKETIME_TIMESTAMP_FILE", &clock).env("FAKETIME_NO_CACHE", "1");
    valgrind.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DONT_RESET", "1");
    let answers = run(valgrind, &statements(&clock), &folder)?;
    Ok((server, answers))
}

/// The same, with the clock that each path asks for. Once in some twenty runs libfaketime steps a clock later than asked,
/// and the counts of that run are of another path.
fn counted_by_the_clock() -> Result<Server> {
    const ATTEMPTS: usize = 3;
    let mut attempt = 1;
    loop {
        let (server, answers) = counted()?;
        match check_ticks(&answers) {
            Ok(()) => return Ok(server),
            Err(error) if attempt == ATTEMPTS => return Err(error),
            Err(error) => println!("{error:#}; once more"),
        }
        attempt += 1;
    }
}

/// Checks that each path had the clock that it asks for.
fn check_ticks(answers: &str) -> Result<()> {
    let found = Regex::new(r#"found = "ticks: ([0-9]+)""#).context("a pattern")?;
    let found: Vec<&str> =
        found.captures_iter(answers).filter_map(|c| c.get(1)).map(|m| m.as_str()).collect();
    let asked = PATHS.map(|path| if path.clock == Standing { "1" } else { "50" });
    ensure!(found == asked, "libfaketime's clock did not do what was asked: ticks {found:?}, not {asked:?}");
    Ok(())
}

// ---- the result ----

/// One call: the library's own instructions, and the calls that leave it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Cost {
    instructions: f64,
    out: f64,
}

/// By the name of the path, in the order of [`PATHS`].
type Costs = Vec<(String, Cost)>;

/// # Errors
/// A count that cannot be had, or that is worse than the committed one.
pub fn main(accept: bool) -> Result<()> {
    let server = counted_by_the_clock()?;
    let dump = |n: usize| -> Result<callgrind::Counts> {
        let file = server.folder().join(format!("dump.{n}"));
        callgrind::read(&String::from_utf8_lossy(
            &fs::read(&file).with_context(|| file.display().to_string())?,
        ))
    };
    let mut costs = Costs::new();
    for (n, path) in PATHS.iter().enumerate() {
        let counts = dump(2 + 2 * n)?;
        let of_one = |count: i64| count as f64 / path.ids as f64;
        costs
            .push((path.name.to_owned(), Cost { instructions: of_one(counts.own), out: of_one(counts.out) }));
    }
    print_table(&costs)?;
    let prefix = format!("{}|{}|", std::env::consts::ARCH, snowflake_server_tests::pg_version());
    let committed = fs::read_to_string(COMMITTED)?;
    if accept {
        fs::write(COMMITTED, accepted(&committed, &prefix, &costs))?;
        println!("\n{COMMITTED} has the counts of this run now");
        return Ok(());
    }
    let worse = worse(&committed, &prefix, &costs)?;
    if !worse.is_empty() {
        bail!("{}\nthe counts are worse than those of {COMMITTED}", worse.join("\n"));
    }
    println!("\nNo count is more than {TOLERANCE} % above {COMMITTED}");
    Ok(())
}

fn print_table(costs: &Costs) -> Result<()> {
    let rustc = Command::new("rustc").arg("--version").output()?;
    let rustc = String::from_utf8_lossy(&rustc.stdout).trim().to_owned();
    println!("{}, {}, {rustc}\n", pg_config("--version"), std::env::consts::ARCH);
    println!("| of one call, the library alone | instructions | calls out of it |\n| --- | --- | --- |");
    for (name, cost) in costs {
        println!("| {name} | {} | {} |", cost.instructions, cost.out);
    }
    Ok(())
}

/// The committed file with these counts. Comments stay in front; the lines of each PostgreSQL stay in their order.
fn accepted(committed: &str, prefix: &str, costs: &Costs) -> String {
    let (comments, counts): (Vec<&str>, Vec<&str>) =
        committed.lines().partition(|line| line.starts_with('#'));
    let mut counts: Vec<String> =
        counts.into_iter().filter(|line| !line.starts_with(prefix)).map(str::to_owned).collect();
    counts.extend(
        costs.iter().map(|(name, cost)| format!("{prefix}{name}|{}|{}", cost.instructions, cost.out)),
    );
    counts.sort_by_key(|line| line.split('|').take(2).collect::<Vec<_>>().join("|"));
    comments.into_iter().map(str::to_owned).chain(counts).map(|line| line + "\n").collect()
}

/// What is worse than committed, a sentence each.
fn worse(committed: &str, prefix: &str, costs: &Costs) -> Result<Vec<String>> {
    let mut worse = Vec::new();
    for (name, cost) in costs {
        let Some(line) = committed.lines().find_map(|line| line.strip_prefix(&format!("{prefix}{name}|")))
        else {
            worse.push(format!(
                "{name}: {COMMITTED} has no count that begins with {prefix}: scripts/instructions --accept writes it"
            ));
            continue;
        };
        let (instructions, out) = line.split_once('|').with_context(|| format!("{COMMITTED}: {line}"))?;
        let was = Cost { instructions: instructions.parse()?, out: out.parse()? };
        if cost.instructions > was.instructions * (1.0 + TOLERANCE / 100.0) {
            worse.push(format!(
                "{name}: {} instructions, and {} are committed: more than {TOLERANCE} % more",
                cost.instructions, was.instructions
            ));
        }
        if cost.out > was.out {
            worse.push(format!(
                "{name}: a call leaves the library {} times, and {} is committed",
                cost.out, was.out
            ));
        }
    }
    Ok(worse)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# a comment\nx86_64|15|a, b|100|1\nx86_64|15|c|200|0\nx86_64|16|a, b|100|1\n";

    fn costs(instructions: f64, out: f64) -> Costs {
        vec![("a, b".to_owned(), Cost { instructions, out })]
    }

    #[test]
    fn a_count_may_grow_by_the_tolerance_and_by_no_more() {
        assert!(worse(FILE, "x86_64|15|", &costs(105.0, 1.0)).unwrap().is_empty());
        assert_eq!(worse(FILE, "x86_64|15|", &costs(105.001, 1.0)).unwrap().len(), 1);
    }

    #[test]
    fn one_more_call_out_of_the_library_is_worse() {
        assert_eq!(worse(FILE, "x86_64|15|", &costs(100.0, 1.001)).unwrap().len(), 1);
    }

    #[test]
    fn a_count_that_is_not_committed_is_worse() {
        assert_eq!(worse(FILE, "x86_64|17|", &costs(1.0, 0.0)).unwrap().len(), 1);
        assert_eq!(worse(FILE, "aarch64|15|", &costs(1.0, 0.0)).unwrap().len(), 1);
    }

    #[test]
    fn accepting_replaces_the_lines_of_one_postgresql() {
        let accepted = accepted(FILE, "x86_64|15|", &costs(90.5, 1.0));
        assert_eq!(accepted, "# a comment\nx86_64|15|a, b|90.5|1\nx86_64|16|a, b|100|1\n");
    }
}
