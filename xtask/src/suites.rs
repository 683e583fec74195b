//! PostgreSQL's own suites, run by its own drivers, and whether pg_upgrade can.

use crate::run;
use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use snowflake_server_tests::server::Builder;
use snowflake_server_tests::sql::{one, run as sql};
use snowflake_server_tests::{Server, Stop, pg_config};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The command that runs tests in a folder of the servers' owner.
fn driver(server: &Server, suite: &str, folder: &Path) -> Command {
    let program = if suite == "isolation" { "isolation/pg_isolation_regress" } else { "regress/pg_regress" };
    // Of src/makefiles/pgxs.mk and src/test.
    let program = Path::new(&pg_config("--pgxs")).with_file_name("../test").join(program);
    let mut driver = server.client_program(&program.to_string_lossy(), "postgres");
    let option = |name: &str, value: &Path| format!("--{name}={}", value.display());
    driver.arg(option("inputdir", folder)).arg(option("outputdir", folder));
    driver.arg(option("bindir", Path::new(&pg_config("--bindir")))).arg(option("host", server.folder()));
    driver.args(["--port=5432", "--user=postgres"]);
    driver
}

fn work_folder(server: &Server) -> Result<PathBuf> {
    let folder = server.folder().join("suite");
    fs::create_dir(&folder)?;
    give(&folder, server)?;
    Ok(folder)
}

/// Copies a folder and gives it to the servers' owner, who need not be able to read the original.
fn copy(from: &Path, to: &Path, server: &Server) -> Result<()> {
    run(Command::new("cp").arg("-r").arg(from).arg(to))?;
    give(to, server)
}

fn give(path: &Path, server: &Server) -> Result<()> {
    let like = format!("--reference={}", server.folder().display());
    run(Command::new("chown").args(["-R", &like]).arg(path))
}

// ---- pg_upgrade ----

/// Whether pg_upgrade can bring a plain table from the PostgreSQL of `PG_CONFIG_OLD` to that of `PG_CONFIG`.
///
/// # Errors
/// Why it cannot.
pub fn can_upgrade() -> Result<()> {
    let mut old = Server::builder().of_older_version().without_library().start();
    let new = Server::builder().without_library().create();
    let version: String = one(&mut old.connect(), "SHOW server_version");
    println!("-- Can pg_upgrade bring a plain table from {version} to {}?", pg_config("--version"));
    sql(&mut old.connect(), "CREATE TABLE plain (a integer)");
    old.stop(Stop::Fast);
    // pg_upgrade wants both to have checksums or neither; new clusters have them from PostgreSQL 18 on.
    let checksums = |server: &Server| {
        let told = server.tool("pg_controldata", &["-D", "data"]);
        told.lines().find(|line| line.contains("checksum version")).map(str::to_owned)
    };
    if checksums(&old) != checksums(&new) {
        old.tool("pg_checksums", &["--enable", "-D", "data"]);
    }
    let said = old.upgrade_to(&new, &[]);
    said.map(drop).map_err(|said| anyhow::anyhow!("no: {said}"))
}

// ---- the suites in PostgreSQL's source ----

/// As on the suites' own server: PostgreSQL's defaults, no setting that keeps a test from running.
fn plain() -> Builder {
    let changed = ["autovacuum", "max_connections", "max_wal_size", "shared_buffers", "log_line_prefix"];
    let builder = changed.iter().fold(Server::builder(), |builder, name| builder.without(name));
    builder.setting("max_prepared_transactions", "10")
}

/// `regress` and `isolation` of PostgreSQL's source, of which `sources` has src/test and contrib/spi.
///
/// The server preloads the extension, the database under test has it, and clients make IDs in another one meanwhile.
/// Every test has to pass. If one does not, its suite is run again without the extension: what a test gives there too,
/// letter for letter, is not the extension's. It is to be expected where the suites are those of another minor version
/// than the server. Some tests fail now and then on a busy machine, so each suite is run twice both ways before a test
/// counts.
///
/// # Errors
/// Tests that do not pass, unless they give the same without the extension.
pub fn upstream(sources: &Path) -> Result<()> {
    println!("-- The suites in {}, and {}", sources.display(), pg_config("--version"));
    check(sources, "regress")?;
    check(sources, "isolation")
}

fn check(sources: &Path, suite: &str) -> Result<()> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let unlike = loop {
        {
            let server = plain().start();
            let clients = Clients::start(&server)?;
            with.push(Outcome::of(suite, sources, &server, &["--load-extension=snowflake_id"])?);
            clients.assert_were_served(&server)?;
        }
        if with.iter().all(|run| run.differences.is_empty()) {
            println!("{suite}: all {} tests pass with the extension", with[0].tests);
            return Ok(());
        }
        println!("-- Not all as expected. Without the extension:");
        without.push(Outcome::of(suite, sources, &plain().without_library().start(), &[])?);
        let unlike = only_with(&with, &without);
        if unlike.is_empty() || with.len() == 2 {
            break unlike;
        }
        println!("-- Otherwise than with it. Some of these tests fail now and then, so once more:");
    };
    for test in &unlike {
        for (how, runs) in [("with", &with), ("without", &without)] {
            for run in runs {
                println!("-- {test}, {how} the extension:\n{}", run.difference(test));
            }
        }
    }
    ensure!(unlike.is_empty(), "{suite}: with the extension otherwise than without it: {unlike:?}");
    // A suite of which many tests fail without the extension too proves nothing.
    let (failed, tests): (Vec<_>, _) = (without[0].differences.keys().collect(), with[0].tests);
    ensure!(failed.len() * 10 < tests, "too many tests fail without the extension: {failed:?}");
    println!(
        "{suite}: {tests} tests give with the extension what they give without it; these fail: {failed:?}"
    );
    Ok(())
}

/// The tests that passed in no run with the extension, and gave in none what they gave in one without it.
fn only_with<'a>(with: &'a [Outcome], without: &[Outcome]) -> BTreeSet<&'a str> {
    let is_alike = |test: &str| {
        with.iter().map(|run| run.difference(test)).any(|difference| {
            difference.is_empty() || without.iter().any(|run| run.difference(test) == difference)
        })
    };
    let tests = with.iter().flat_map(|run| run.differences.keys());
    tests.map(String::as_str).filter(|test| !is_alike(test)).collect()
}

/// One test lists the functions that run with their owner's rights, of which PostgreSQL has none. The registry has two, so
/// it lists those that initdb made.
fn spare_registry(suite: &Path) -> Result<()> {
    for file in ["sql/opr_sanity.sql", "expected/opr_sanity.out"] {
        let text = fs::read_to_string(suite.join(file))?;
        let spared = text.replace("WHERE prosecdef\n", "WHERE prosecdef AND p1.oid < 16384\n");
        fs::write(suite.join(file), spared)?;
    }
    Ok(())
}

/// How the results of a suite differ from the expected ones, without what differs from run to run.
struct Outcome {
    /// How many tests it has.
    tests: usize,
    /// Of each test that did not pass.
    differences: BTreeMap<String, String>,
}

impl Outcome {
    fn of(suite: &str, sources: &Path, server: &Server, options: &[&str]) -> Result<Self> {
        let work = work_folder(server)?;
        let folder = work.join(suite);
        copy(&sources.join("src/test").join(suite), &folder, server)?;
        build_libraries(sources, &work)?;
        give(&work, server)?;
        let mut driver = driver(server, suite, &folder);
        let schedule = if suite == "regress" {
            spare_registry(&folder)?;
            driver.arg(format!("--dlpath={}", work.display()));
            driver.args(["--dbname=regression", "--max-concurrent-tests=20"]);
            folder.join("parallel_schedule")
        } else {
            driver.arg("--dbname=isolation_regression");
            folder.join("isolation_schedule")
        };
        driver.arg(format!("--schedule={}", schedule.display()));
        println!("-- Running the suite {suite}: about half a minute");
        let run = driver.args(options).output()?;
        let output = String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
        let differences = fs::read(folder.join("regression.diffs")).unwrap_or_default();
        let differences = String::from_utf8_lossy(&differences).into_owned();
        ensure!(run.status.success() || !differences.is_empty(), "{suite} did not run to its end:\n{output}");
        let schedule = fs::read_to_string(schedule)?;
        let tests = schedule.lines().filter_map(|line| line.strip_prefix("test:"));
        let tests = tests.flat_map(str::split_whitespace).count();
        Ok(Self { tests, differences: by_test(&differences, server.folder()) })
    }

    fn difference(&self, test: &str) -> &str {
        self.differences.get(test).map_or("", String::as_str)
    }
}

/// The differences of each test, without the server's folder and the times of the files.
fn by_test(differences: &str, folder: &Path) -> BTreeMap<String, String> {
    let text = differences.replace(&*folder.to_string_lossy(), "…");
    let mut tests = BTreeMap::<_, String>::new();
    let mut test = "";
    for line in text.lines() {
        let is_file = line.starts_with("--- …") || line.starts_with("+++ …");
        let line = if is_file { line.split('\t').next().unwrap_or(line) } else { line };
        if let Some(file) = line.strip_prefix("diff ") {
            test = file.rsplit('/').next().and_then(|name| name.strip_suffix(".out")).unwrap_or(file);
        }
        *tests.entry(test.to_owned()).or_default() += &format!("{line}\n");
    }
    tests
}

/// The C functions that the tests use; refint is built as contrib/spi's own Makefile does it.
fn build_libraries(sources: &Path, folder: &Path) -> Result<()> {
    for library in ["src/test/regress/regress.c", "contrib/spi/refint.c", "contrib/spi/autoinc.c"] {
        let source = sources.join(library);
        let name = source.file_stem().context("a file")?;
        let mut compiler = Command::new("cc");
        compiler.args("-O2 -fPIC -fwrapv -fno-strict-aliasing -shared -DREFINT_VERBOSE -I".split(' '));
        compiler.arg(source.parent().context("in a folder")?).arg("-I").arg(pg_config("--includedir-server"));
        compiler.arg("-o").arg(folder.join(name).with_extension("so")).arg(&source);
        run(&mut compiler)?;
    }
    Ok(())
}

/// Clients that make IDs meanwhile, in a database of their own, and without a transaction ID, because tests look at
/// those.
struct Clients(Child);

impl Clients {
    fn start(server: &Server) -> Result<Self> {
        server.tool("createdb", &["ids"]);
        sql(&mut server.config().dbname("ids").connect(postgres::NoTls)?, "CREATE EXTENSION snowflake_id");
        let script = server.folder().join("ids.sql");
        fs::write(&script, "SELECT snowflake_nextval();\n")?;
        let mut pgbench = server.client_program("pgbench", "ids");
        pgbench.args(["-n", "-c", "2", "-R", "50", "-T", "3600", "-f"]).arg(script);
        Ok(Self(pgbench.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }

    /// The clients survived, so the server did; none of their calls was refused.
    fn assert_were_served(mut self, server: &Server) -> Result<()> {
        if let Some(status) = self.0.try_wait()? {
            let pattern = Regex::new("PANIC|terminated by|snowflake_id:").context("a pattern")?;
            let log = server.log();
            let lines: Vec<&str> = log.lines().filter(|line| pattern.is_match(line)).collect();
            bail!("the clients that made IDs ended before the suite did ({status}):\n{}", lines.join("\n"));
        }
        let mut session = server.config().dbname("ids").connect(postgres::NoTls)?;
        let served = "SELECT state = 'open' AND refusals = 0 AND issued > 500 FROM snowflake_status";
        ensure!(one::<bool>(&mut session, served), "{:?}", snowflake_server_tests::sql::status(&mut session));
        Ok(())
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_counts_that_gives_nothing_that_it_gives_without_the_extension() {
        let run = |text: &str| {
            let differences = text.split(' ').filter_map(|test| test.split_once('='));
            let differences = differences.map(|(test, said)| (test.to_owned(), said.to_owned())).collect();
            Outcome { tests: 0, differences }
        };
        let unlike = |with: &[&str], without: &[&str]| {
            let runs = |texts: &[&str]| texts.iter().copied().map(run).collect::<Vec<_>>();
            only_with(&runs(with), &runs(without)).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(unlike(&["a=1 b=1"], &["a=1 c=1"]), ["b"]);
        assert_eq!(unlike(&["a=1 b=1", "a=2"], &["a=2"]), [""; 0]);
        assert_eq!(unlike(&["a=1", "a=2"], &["a=3", "b=1"]), ["a"]);
    }
}
