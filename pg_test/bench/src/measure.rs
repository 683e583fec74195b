//! The measurements, each over several rounds in which the candidates take turns in changing order.

use crate::candidates::{Candidate, GIST_ID, of_version, reference};
use crate::figures::{Run, quantile};
use postgres::Client;
use postgres::error::SqlState;
use snowflake_server_tests::sql::{one, run, status};
use snowflake_server_tests::{Server, Signal, pg_version, wait_until};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The size of each measurement.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub rounds: usize,
    /// Rounds of the cost of a call, which are short.
    pub call_rounds: usize,
    /// Calls per query when the cost of a call is measured.
    pub calls: u32,
    /// Seconds for each figure of IDs per second.
    pub seconds: u32,
    /// pgbench's scale, the seconds of each TPC-B run, and the rounds: commits wait for the disk, whose speed varies
    /// more than the candidates do.
    pub tpcb: (u32, u32, usize),
    /// Rows of one INSERT, and of one COPY.
    pub rows: u32,
    /// Statements of 1,000 rows each that each of four clients executes afterwards.
    pub fills: u32,
    /// Calls per round that are timed one by one, on a saturated machine: 100,000 in all.
    pub timed_calls: u32,
    /// How many seconds whole queries are timed then.
    pub timed_for: Duration,
    /// A value of `shared_buffers` that no index fits into.
    pub small_buffers: &'static str,
}

/// The sizes for the page. On two cores this takes some 20 minutes.
pub const FULL: Scale = Scale {
    rounds: 5,
    call_rounds: 11,
    calls: 3_000_000,
    seconds: 1,
    tpcb: (64, 5, 15),
    rows: 2_000_000,
    fills: 750,
    timed_calls: 20_000,
    timed_for: Duration::from_millis(1000),
    small_buffers: "64MB",
};

/// The sizes to show that the benchmark works. The figures mean nothing.
pub const QUICK: Scale = Scale {
    rounds: 2,
    call_rounds: 2,
    calls: 300_000,
    seconds: 1,
    tpcb: (8, 1, 2),
    rows: 100_000,
    fills: 50,
    timed_calls: 10_000,
    timed_for: Duration::from_millis(300),
    small_buffers: "4MB",
};

/// Clients in the measurements of IDs per second.
pub const CLIENTS: [u32; 4] = [1, 2, 8, 64];

/// A measurement and its name.
type Measurement = (&'static str, fn(&mut Bench));

/// In the order in which they run: `lookups` needs the tables of `rows`.
pub const MEASUREMENTS: [Measurement; 7] = [
    ("call", Bench::call),
    ("ids", Bench::ids),
    ("latency", Bench::latency),
    ("tpcb", Bench::tpcb),
    ("copy", Bench::copy),
    ("rows", Bench::rows),
    ("lookups", Bench::lookups),
];

const LARGE_BUFFERS: &str = "1GB";

/// A server, and the results measured on it.
pub struct Bench {
    server: Server,
    session: Client,
    scale: Scale,
    candidates: Vec<Candidate>,
    /// The keeper's process while it is stopped.
    stopped_keeper: Option<i32>,
    pub run: Run,
}

impl Bench {
    /// A new server. The worker is the only setting of snowflake_id; the others keep background work out of the
    /// measurements, and none weakens a commit.
    pub fn new(scale: Scale) -> Self {
        let server = Server::builder()
            .without("fsync")
            .setting("checkpoint_timeout", "1h")
            .setting("jit", "off")
            .setting("max_parallel_workers_per_gather", "0")
            .setting("max_wal_size", "8GB")
            .setting("shared_buffers", LARGE_BUFFERS)
            .setting("work_mem", "256MB")
            .start_with_extension();
        let mut session = server.connect();
        run(&mut session, "CREATE SEQUENCE plain; CREATE SEQUENCE cached CACHE 1000");
        run(&mut session, GIST_ID);
        // It determines the cost of a random number.
        let postgres = one(
            &mut session,
            "SELECT current_setting('server_version') || CASE current_setting('ssl_library')
                        WHEN '' THEN ', built without OpenSSL' ELSE '' END",
        );
        let snowflake_id =
            one(&mut session, "SELECT extversion FROM pg_extension WHERE extname = 'snowflake_id'");
        let major = pg_version();
        let date = one(
            &mut session,
            "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI\"Z\"')",
        );
        let run = Run { major, postgres, snowflake_id, date, ..Run::default() };
        Self { server, session, scale, candidates: of_version(major), stopped_keeper: None, run }
    }

    /// The candidates in a different order for each round, so that none is always first, or always after the same
    /// other.
    fn turns(&self, others: &[Candidate], round: usize) -> Vec<Candidate> {
        let mut turns: Vec<Candidate> = others.iter().chain(&self.candidates).copied().collect();
        let first = round % turns.len();
        turns.rotate_left(first);
        if round % 2 == 1 {
            turns.reverse();
        }
        turns
    }

    /// The other candidates must not pay for the keeper, which keeps writing for a minute after an ID, so it is stopped
    /// during their turns.
    fn begin_turn(&mut self, candidate: Candidate) {
        if candidate.key == "snowflake" {
            self.let_keeper_go_on();
        } else if self.stopped_keeper.is_none() {
            let keeper = self.server.keeper();
            self.server.stop_between_writes(&[keeper], |_| true);
            self.stopped_keeper = Some(keeper);
        }
    }

    fn let_keeper_go_on(&mut self) {
        if let Some(keeper) = self.stopped_keeper.take() {
            self.server.signal_backend(keeper, Signal::SIGCONT);
        }
    }

    fn note(&mut self, measurement: &str, candidate: Candidate, figure: f64) {
        self.run.note(measurement, candidate.key, figure);
    }

    // ---- the cost of a call

    /// The time of a query with many calls, minus that of the same query with a constant, divided by the number of
    /// calls.
    fn call(&mut self) {
        let constant = Candidate { call: "1::bigint", ..reference("constant") };
        for round in 0..=self.scale.call_rounds {
            let mut times = Vec::new();
            for candidate in self.turns(&[constant, reference("clock")], round) {
                self.begin_turn(candidate);
                times.push((candidate, self.ns_a_call(candidate)));
            }
            let base = times.iter().find(|(it, _)| it.key == "constant").expect("it had its turn").1;
            // The first round warms up.
            for (candidate, ns) in times.into_iter().filter(|(it, _)| round > 0 && it.key != "constant") {
                self.note("call_ns", candidate, ns - base);
            }
        }
    }

    /// From a run in which no call had to wait for the clock, because that would measure the layout.
    fn ns_a_call(&mut self, candidate: Candidate) -> f64 {
        let slow = matches!(candidate.key, "gist" | "uuid4" | "uuid7");
        let calls = self.scale.calls / if slow { 6 } else { 1 };
        let query = format!(
            "SELECT count(x) FROM (SELECT {} AS x FROM generate_series(1, {calls}) OFFSET 0) s",
            candidate.call
        );
        for _ in 0..5 {
            self.give_back(candidate);
            let waits = status(&mut self.session).waits;
            let took = self.seconds_of(&query);
            if status(&mut self.session).waits == waits {
                return took * 1e9 / f64::from(calls);
            }
            say("   a call had to wait for the clock: measured again");
        }
        panic!("snowflake_nextval() was throttled in each of five measurements");
    }

    // ---- IDs per second

    /// One ID per query, and 1,000 per query, with more and more clients.
    fn ids(&mut self) {
        for round in 0..self.scale.rounds {
            for clients in CLIENTS {
                for candidate in self.turns(&[reference("constant")], round) {
                    self.begin_turn(candidate);
                    self.give_back(candidate);
                    let pgbench = self.for_a_while(clients);
                    let tps = tps(&output_of(start(pgbench, &format!("SELECT {};", candidate.call))));
                    self.note(&format!("single_{clients}"), candidate, tps);
                }
                for candidate in self.turns(&[], round) {
                    self.begin_turn(candidate);
                    let pgbench = self.for_a_while(clients);
                    let running = start(pgbench, &thousand(candidate));
                    self.use_up(candidate, clients);
                    let tps = tps(&output_of(running));
                    self.note(&format!("thousand_{clients}"), candidate, tps * 1000.0);
                }
            }
        }
    }

    fn for_a_while(&self, clients: u32) -> Command {
        let mut pgbench = self.pgbench(clients);
        pgbench.args(["-n", "-M", "prepared", "-T", &self.scale.seconds.to_string(), "-f", "-"]);
        pgbench
    }

    // ---- latency of a call, on a saturated machine

    /// Eight clients take 1,000 values per query, as fast as they can, while another one times each of its calls.
    fn latency(&mut self) {
        for round in 0..self.scale.rounds {
            for candidate in self.turns(&[], round) {
                self.begin_turn(candidate);
                let saturation = self.saturate(candidate);
                self.use_up(candidate, 8);
                std::thread::sleep(Duration::from_millis(200));
                let issued = status(&mut self.session).issued;
                let began = Instant::now();
                self.time_calls(candidate, self.scale.timed_calls);
                self.time_queries(candidate);
                if candidate.key == "snowflake" {
                    // How late the operating system wakes a sleeping process, beside the same clients.
                    self.time_calls(reference("sleep"), self.scale.timed_calls / 20);
                    let issued = (status(&mut self.session).issued - issued) as f64;
                    self.note("saturated_ids_a_s", candidate, issued / began.elapsed().as_secs_f64());
                }
                drop(saturation);
                self.wait_for_clients(0);
            }
        }
    }

    /// Calls of one session, timed inside the server, whose clock has microseconds. Between two calls it does some 20
    /// us of other work. A session that only calls would take whole milliseconds when it has a core, and hide its few
    /// waits among thousands of calls.
    fn time_calls(&mut self, candidate: Candidate, n: u32) {
        let calls = format!(
            "SELECT (extract(epoch FROM after - before) * 1e6)::float8
             FROM (SELECT clock_timestamp() AS before, {}, clock_timestamp() AS after,
                          md5(repeat(n::text, 2000)) AS work
                   FROM generate_series(100001, 100000 + {n}) AS n OFFSET 0) s
             WHERE work IS NOT NULL",
            candidate.call
        );
        let rows = self.session.query(&calls, &[]).expect("calls can be timed");
        let took = rows.iter().map(|row| row.get(0)).collect();
        self.note_quantiles("call", candidate, took);
    }

    /// Whole queries of one call, as an application sends them, timed by the client.
    fn time_queries(&mut self, candidate: Candidate) {
        let query = format!("SELECT {}", candidate.call);
        let query = self.session.prepare(&query).expect("a query of one call");
        let mut took = Vec::new();
        let end = Instant::now() + self.scale.timed_for;
        while Instant::now() < end {
            let began = Instant::now();
            self.session.query_one(&query, &[]).expect("one call");
            took.push(began.elapsed().as_secs_f64() * 1e6);
        }
        self.note_quantiles("query", candidate, took);
    }

    fn note_quantiles(&mut self, measurement: &str, candidate: Candidate, mut micros: Vec<f64>) {
        self.note(&format!("{measurement}_count"), candidate, micros.len() as f64);
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)] {
            self.note(&format!("{measurement}_{name}_us"), candidate, quantile(&mut micros, share));
        }
    }

    fn saturate(&self, candidate: Candidate) -> Background {
        let mut pgbench = self.pgbench(8);
        pgbench.args(["-n", "-M", "prepared", "-T", "600", "-f", "-"]);
        Background(start(pgbench, &thousand(candidate)))
    }

    // ---- TPC-B

    /// pgbench's own transaction, with a history table that has each kind of key in turn. Every commit is flushed to
    /// disk.
    fn tpcb(&mut self) {
        let (scale, seconds, rounds) = self.scale.tpcb;
        let mut pgbench = self.server.client_program("pgbench", "postgres");
        pgbench.args(["-i", "-q", "-s", &scale.to_string()]);
        output_of(start(pgbench, ""));
        for round in 0..rounds {
            for candidate in self.turns(&[], round) {
                self.begin_turn(candidate);
                let history = format!(
                    "DROP TABLE pgbench_history;
                     CREATE TABLE pgbench_history (
                         id {}, tid integer, bid integer, aid integer, delta integer, mtime timestamp,
                         filler character(22))",
                    candidate.column
                );
                run(&mut self.session, &history);
                self.give_back(candidate);
                run(&mut self.session, "CHECKPOINT");
                let mut pgbench = self.pgbench(8);
                pgbench.args(["-M", "prepared", "-T", &seconds.to_string()]);
                let tps = tps(&output_of(start(pgbench, "")));
                self.note("tpcb_tps", candidate, tps);
            }
        }
        run(
            &mut self.session,
            "DROP TABLE pgbench_accounts, pgbench_branches, pgbench_tellers, pgbench_history",
        );
    }

    // ---- rows

    fn copy(&mut self) {
        let file = self.server.data().join("copied");
        let rows = self.scale.rows;
        run(&mut self.session, &format!("COPY (SELECT generate_series(1, {rows})) TO '{}'", file.display()));
        for round in 0..self.scale.rounds {
            for candidate in self.turns(&[], round) {
                self.begin_turn(candidate);
                let table = self.fresh_table("copied", candidate);
                let from = self.wal();
                let took = self.seconds_of(&format!("COPY {table} (v) FROM '{}'", file.display()));
                let wal = self.wal() - from;
                self.note("copy_s", candidate, took);
                self.note("copy_wal", candidate, wal / f64::from(rows));
                run(&mut self.session, &format!("DROP TABLE {table}"));
            }
        }
    }

    /// One INSERT of many rows; then, after a checkpoint, more rows from four clients at once. The tables of the last
    /// round are kept.
    fn rows(&mut self) {
        let rows = self.scale.rows;
        let all = f64::from(rows + 4 * self.scale.fills * 1000);
        for round in 0..self.scale.rounds {
            for candidate in self.turns(&[], round) {
                self.begin_turn(candidate);
                let table = self.fresh_table("rows", candidate);
                let before = self.wal();
                let insert = format!("INSERT INTO {table} (v) SELECT generate_series(1, {rows})");
                let took = self.seconds_of(&insert);
                let inserted = self.wal() - before;
                self.note("insert_s", candidate, took);

                self.give_back(candidate);
                run(&mut self.session, "CHECKPOINT");
                let before = self.wal();
                let (rows_a_second, repeated) = self.fill(&table);
                let filled = self.wal() - before;
                self.note("fill_rows_a_s", candidate, rows_a_second);
                self.note("fill_repeated", candidate, f64::from(repeated));
                self.note("wal_a_row", candidate, (inserted + filled) / all);
                let index: i64 =
                    one(&mut self.session, &format!("SELECT pg_relation_size('{table}_pkey'::regclass)"));
                self.note("index_mib", candidate, index as f64 / 1_048_576.0);
            }
        }
    }

    /// Rows per second of four clients, and how many of their statements met a key that existed already, because not
    /// every candidate is unique. Such a statement is repeated.
    fn fill(&self, table: &str) -> (f64, u32) {
        let insert = format!("INSERT INTO {table} (v) SELECT generate_series(1, 1000)");
        let client = || {
            let mut session = self.server.connect();
            let insert = session.prepare(&insert).expect("the statement is right");
            move |statements| {
                let mut repeated = 0;
                for _ in 0..statements {
                    while let Err(error) = session.execute(&insert, &[]) {
                        assert_eq!(error.code(), Some(&SqlState::UNIQUE_VIOLATION), "{error:?}");
                        repeated += 1;
                    }
                }
                repeated
            }
        };
        let clients = [client(), client(), client(), client()];
        let fills = self.scale.fills;
        let began = Instant::now();
        let repeated = std::thread::scope(|scope| {
            let running = clients.map(|mut client| scope.spawn(move || client(fills)));
            running.map(|client| client.join().expect("a client fails by a repeated key only"))
        });
        let rows = f64::from(4 * fills * 1000);
        (rows / began.elapsed().as_secs_f64(), repeated.iter().sum())
    }

    /// An empty table, with everything before it on disk, and IDs not ahead of the clock.
    fn fresh_table(&mut self, prefix: &str, candidate: Candidate) -> String {
        let table = format!("{prefix}_{}", candidate.key);
        let statements = format!(
            "SET client_min_messages = warning;
             DROP TABLE IF EXISTS {table};
             CREATE TABLE {table} (id {}, v integer)",
            candidate.column
        );
        run(&mut self.session, &statements);
        self.give_back(candidate);
        run(&mut self.session, "CHECKPOINT");
        table
    }

    /// Looks up the newest hundredth of the rows of `rows` one by one, in random order: with all tables in memory, and
    /// with a buffer that the indexes do not fit into.
    fn lookups(&mut self) {
        for candidate in self.candidates.clone() {
            let statements = format!(
                "VACUUM (FREEZE, ANALYZE) rows_{key};
                 CREATE TABLE newest_{key} AS
                     SELECT id FROM rows_{key}
                     WHERE ctid >= (SELECT format('(%s,0)', pg_relation_size('rows_{key}') / 8192 * 99 / 100)::tid)
                     ORDER BY random();
                 VACUUM ANALYZE newest_{key}",
                key = candidate.key
            );
            for statement in statements.split(';') {
                run(&mut self.session, statement);
            }
        }
        self.let_keeper_go_on(); // or the server could not stop
        let small = self.scale.small_buffers;
        for (name, buffers) in [("warm", LARGE_BUFFERS), ("small", small)] {
            self.server.set("shared_buffers", buffers);
            self.server.restart();
            self.session = self.server.connect();
            for round in 0..self.scale.rounds {
                for candidate in self.turns(&[], round) {
                    if name == "warm" {
                        self.look_up(candidate);
                    }
                    let (micros, read) = self.look_up(candidate);
                    self.note(&format!("lookup_{name}_us"), candidate, micros);
                    self.note(&format!("lookup_{name}_read"), candidate, read);
                }
            }
        }
    }

    /// Microseconds and pages outside the buffer, per lookup.
    fn look_up(&mut self, candidate: Candidate) -> (f64, f64) {
        let key = candidate.key;
        // One row of the index after another, as single queries would do.
        run(
            &mut self.session,
            "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_memoize = off;
             SET enable_bitmapscan = off",
        );
        let query = format!(
            "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON)
             SELECT count(r.v) FROM newest_{key} n JOIN rows_{key} r ON r.id = n.id"
        );
        let explained: serde_json::Value = one(&mut self.session, &query);
        let plan = &explained[0]["Plan"];
        let join = &plan["Plans"][0];
        let inner = &join["Plans"][1];
        assert_eq!(
            (&join["Node Type"], &inner["Node Type"]),
            (&"Nested Loop".into(), &"Index Scan".into()),
            "another plan: {explained:#}"
        );
        let lookups = inner["Actual Loops"].as_f64().expect("a number of lookups");
        let ms = explained[0]["Execution Time"].as_f64().expect("a time in ms");
        let read = inner["Shared Read Blocks"].as_f64().expect("a number of pages");
        (ms * 1000.0 / lookups, read / lookups)
    }

    // ---- shared by the measurements

    /// Runs pgbench with this many clients.
    fn pgbench(&self, clients: u32) -> Command {
        let mut pgbench = self.server.client_program("pgbench", "postgres");
        pgbench.args(["-c", &clients.to_string(), "-j", "2"]);
        pgbench
    }

    fn seconds_of(&mut self, statement: &str) -> f64 {
        let began = Instant::now();
        run(&mut self.session, statement);
        began.elapsed().as_secs_f64()
    }

    /// The end of the WAL, in bytes.
    fn wal(&mut self) -> f64 {
        one(&mut self.session, "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8")
    }

    /// Waits until IDs are not ahead of the clock; only time changes that. Does nothing for the other candidates.
    fn give_back(&mut self, candidate: Candidate) {
        if candidate.key != "snowflake" {
            return;
        }
        wait_until("the clock to catch up", Duration::from_secs(30), || {
            (status(&mut self.session).ahead_ms <= Some(0.0)).then_some(())
        });
    }

    /// Makes IDs run ahead as far as they may, so that the measurement shows the rate that can be sustained. Called
    /// once the clients are connected, because the clock catches up while they connect.
    fn use_up(&mut self, candidate: Candidate, clients: u32) {
        self.wait_for_clients(clients);
        if candidate.key != "snowflake" {
            return;
        }
        // Only as much as is left: more would be taken from the clients.
        loop {
            let left = 1_995.0 - status(&mut self.session).ahead_ms.unwrap_or(0.0);
            if left <= 0.0 {
                break;
            }
            let ranges = "SELECT count(snowflake_nextval_range(4096)) FROM generate_series(1, ";
            run(&mut self.session, &format!("{ranges}{})", left.ceil()));
        }
    }

    /// Waits until this many clients are connected besides this one.
    fn wait_for_clients(&mut self, clients: u32) {
        wait_until("the clients to come or to leave", Duration::from_secs(30), || {
            let query = "SELECT count(*) FROM pg_stat_activity
                         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
            (one::<i64>(&mut self.session, query) == i64::from(clients)).then_some(())
        });
    }
}

fn thousand(candidate: Candidate) -> String {
    format!("SELECT count({}) FROM generate_series(1, 1000);", candidate.call)
}

/// Prints progress.
pub fn say(text: &str) {
    eprintln!("{text}");
}

// ---- programs

fn start(mut command: Command, script: &str) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot run {command:?}: {e}"));
    let stdin = child.stdin.take().expect("a pipe");
    { stdin }.write_all(script.as_bytes()).expect("it reads its script");
    child
}

fn output_of(program: Child) -> String {
    let output = program.wait_with_output().expect("it is our child");
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors = errors.lines().rev().take(5).collect::<Vec<_>>().join("\n");
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// pgbench's transactions per second, without connection times.
fn tps(output: &str) -> f64 {
    let line = output.lines().find_map(|line| line.strip_prefix("tps = "));
    let number = line.and_then(|rest| rest.split(' ').next()).and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("pgbench tells no tps: {output}"))
}

/// A program that runs until this is dropped.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
