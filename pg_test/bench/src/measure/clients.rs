//! IDs for many clients at once: pgbench, as fast as it can.

use crate::bench::Bench;
use crate::candidates::{CANDIDATES, Candidate, NO_ID};
use snowflake_server_tests::sql::{run, status};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// More than the cores of a small machine, so that every core is busy.
const CLIENTS: u32 = 8;
/// IDs per second of the default layout.
const CAP: f64 = 4_096_000.0;

/// One ID per query, 8 clients: microseconds for each query of all of them.
pub fn single(bench: &mut Bench, seconds: f64) {
    bench.rounds("single", seconds, |bench, nth| {
        for candidate in bench.turns(&[NO_ID], nth) {
            bench.begin_turn(candidate);
            let running = start(pgbench(bench, 1), &format!("SELECT {};", candidate.call));
            bench.note("single_us", candidate.key, 1e6 / tps(&output_of(running)));
        }
    });
}

/// 1,000 IDs per query, 8 clients: nanoseconds for each ID of all of them.
pub fn thousand(bench: &mut Bench, seconds: f64) {
    bench.rounds("thousand", seconds, |bench, nth| {
        for candidate in bench.turns(&[], nth) {
            bench.begin_turn(candidate);
            let running = start(pgbench(bench, 1), &thousand_of(candidate));
            use_up(bench, candidate);
            let tps = tps(&output_of(running));
            bench.note("thousand_ns", candidate.key, 1e9 / (tps * 1_000.0));
        }
    });
}

/// Eight clients take 1,000 values per query, and use up what the layout allows: nanoseconds for each ID of the server.
pub fn sustained(bench: &mut Bench, seconds: f64) {
    let ours = CANDIDATES[0];
    bench.rounds("sustained", seconds, |bench, _| {
        bench.begin_turn(ours);
        let clients = Background(start(pgbench(bench, 600), &thousand_of(ours)));
        use_up(bench, ours);
        std::thread::sleep(Duration::from_millis(200));
        let (issued, began) = (status(&mut bench.session).issued, Instant::now());
        std::thread::sleep(Duration::from_secs(2));
        let issued = (status(&mut bench.session).issued - issued) as f64;
        note_sustained(bench, issued, began.elapsed().as_secs_f64());
        drop(clients);
        bench.wait_for_clients(0);
    });
}

fn note_sustained(bench: &mut Bench, issued: f64, seconds: f64) {
    // Guarantee 4: an ID's tick is at most `max_ahead` past the clock.
    let allowed = (seconds + bench.max_ahead_ms() / 1e3 + 0.001) * CAP;
    assert!(issued <= allowed, "{issued} IDs in {seconds} s, where {allowed} are allowed");
    bench.note("sustained_ns", CANDIDATES[0].key, seconds * 1e9 / issued);
    bench.note("sustained_ns", "cap", 1e9 / CAP);
}

/// Makes IDs run ahead as far as they may, so that the measurement shows the rate that can be sustained. Called once
/// the clients are connected, because the clock catches up while they connect.
fn use_up(bench: &mut Bench, candidate: Candidate) {
    bench.wait_for_clients(CLIENTS);
    if candidate != CANDIDATES[0] {
        return;
    }
    // Only as much as is left: more would be taken from the clients.
    loop {
        let left = bench.max_ahead_ms() - 5.0 - status(&mut bench.session).ahead_ms.unwrap_or(0.0);
        if left <= 0.0 {
            break;
        }
        let ranges = "SELECT count(snowflake_nextval_range(4096)) FROM generate_series(1, ";
        run(&mut bench.session, &format!("{ranges}{})", left.ceil()));
    }
}

fn thousand_of(candidate: Candidate) -> String {
    format!("SELECT count({}) FROM generate_series(1, 1000);", candidate.call)
}

// ---- programs

fn pgbench(bench: &Bench, seconds: u32) -> Command {
    let mut pgbench = bench.server.client_program("pgbench", "postgres");
    pgbench.args(["-c", &CLIENTS.to_string(), "-j", "2", "-n", "-M", "prepared", "-f", "-"]);
    pgbench.args(["-T", &seconds.to_string()]);
    pgbench
}

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
