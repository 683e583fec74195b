//! A server to measure on, and rounds: in each, all candidates take their turn, and what is compared is compared within
//! it. So a disturbance that lasts longer than a round cancels out, and one that does not is an outlier among many.

use crate::candidates::{CANDIDATES, Candidate, GIST_ID, of_server};
use crate::{machine, probe, run::Run};
use postgres::Client;
use snowflake_server_tests::sql::{one, run, status};
use snowflake_server_tests::{Server, Signal, pg_version, wait_until};
use std::time::{Duration, Instant};

/// A value of `shared_buffers` that all tables fit into.
pub const LARGE_BUFFERS: &str = "1GB";

/// A server, and the results measured on it.
pub struct Bench {
    pub server: Server,
    pub session: Client,
    pub candidates: Vec<Candidate>,
    /// The share of the full time that each measurement gets.
    pub share: f64,
    pub run: Run,
    /// The keeper's process while it is stopped.
    stopped_keeper: Option<i32>,
    /// Figures do not count.
    is_warming_up: bool,
}

impl Bench {
    /// A new server. The worker is the only setting of `snowflake_id`; the others keep background work out of the
    /// measurements, and none weakens a commit.
    pub fn new(share: f64) -> Self {
        let server = Server::builder()
            .without("fsync")
            .setting("checkpoint_timeout", "1h")
            .setting("jit", "off")
            .setting("max_parallel_workers_per_gather", "0")
            .setting("max_wal_size", "8GB")
            .setting("shared_buffers", LARGE_BUFFERS)
            .setting("snowflake.node", "1") // pgEdge's; without its extension nobody reads it
            .setting("work_mem", "256MB")
            .start_with_extension();
        let mut session = server.connect();
        run(&mut session, "CREATE SEQUENCE plain; CREATE SEQUENCE cached CACHE 1000");
        run(&mut session, GIST_ID);
        let query = "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'snowflake')";
        let has_pgedge = one(&mut session, query);
        if has_pgedge {
            run(&mut session, "CREATE EXTENSION snowflake; CREATE SEQUENCE pgedge");
        }
        let candidates = of_server(pg_version(), has_pgedge);
        let run = describe(&mut session);
        Self { server, session, candidates, share, run, stopped_keeper: None, is_warming_up: false }
    }

    /// Rounds of a measurement for this many seconds of a full run, and at least a few.
    pub fn rounds(&mut self, measurement: &str, seconds: f64, mut round: impl FnMut(&mut Self, usize)) {
        let least = if self.share < 1.0 { 2 } else { 3 };
        let budget = Duration::from_secs_f64(seconds * self.share);
        let began = Instant::now();
        let mut before = probe::ms();
        for nth in 0.. {
            // Half of the next round would still be within the budget.
            let spent = began.elapsed();
            if nth >= least && spent + spent / nth as u32 / 2 > budget {
                break;
            }
            round(self, nth);
            let after = probe::ms();
            if self.run.note_probe(measurement, before.max(after)) {
                say(&format!(
                    "   round {} was disturbed: something else ran, or the machine was slower",
                    nth + 1
                ));
            }
            before = after;
        }
    }

    /// The same round before the others, which does not count.
    pub fn warm_up(&mut self, round: impl FnOnce(&mut Self)) {
        self.is_warming_up = true;
        round(self);
        self.is_warming_up = false;
    }

    /// The candidates and references, in a different order for each round, so that none is always first, or always
    /// after the same other.
    pub fn turns(&self, references: &[Candidate], round: usize) -> Vec<Candidate> {
        let mut turns: Vec<Candidate> = references.iter().chain(&self.candidates).copied().collect();
        let first = round % turns.len();
        turns.rotate_left(first);
        if round % 2 == 1 {
            turns.reverse();
        }
        turns
    }

    /// The other candidates must not pay for the keeper, which keeps writing for a minute after an ID, so it is stopped
    /// during their turns. Ours begin with IDs that are not ahead of the clock.
    pub fn begin_turn(&mut self, candidate: Candidate) {
        if candidate.key == CANDIDATES[0].key {
            self.let_keeper_go_on();
            wait_until("the clock to catch up", Duration::from_secs(30), || {
                (status(&mut self.session).ahead_ms <= Some(0.0)).then_some(())
            });
        } else if self.stopped_keeper.is_none() {
            let keeper = self.server.keeper();
            self.server.stop_between_writes(&[keeper], |_| true);
            self.stopped_keeper = Some(keeper);
        }
    }

    /// Before the server stops, too, or it could not.
    pub fn let_keeper_go_on(&mut self) {
        if let Some(keeper) = self.stopped_keeper.take() {
            self.server.signal_backend(keeper, Signal::SIGCONT);
        }
    }

    pub fn note(&mut self, measurement: &str, key: &str, figure: f64) {
        if !self.is_warming_up {
            self.run.note(measurement, key, figure);
        }
    }

    pub fn seconds_of(&mut self, statement: &str) -> f64 {
        let began = Instant::now();
        run(&mut self.session, statement);
        began.elapsed().as_secs_f64()
    }

    /// The end of the WAL, in bytes.
    pub fn wal(&mut self) -> f64 {
        one(&mut self.session, "SELECT (pg_current_wal_insert_lsn() - '0/0')::float8")
    }

    /// The extension's `max_ahead`, in milliseconds.
    pub fn max_ahead_ms(&mut self) -> f64 {
        let query = "SELECT setting::float8 FROM pg_settings WHERE name = 'snowflake_id.max_ahead'";
        one(&mut self.session, query)
    }

    /// Waits until this many clients are connected besides this one.
    pub fn wait_for_clients(&mut self, clients: u32) {
        wait_until("the clients to come or to leave", Duration::from_secs(30), || {
            let query = "SELECT count(*) FROM pg_stat_activity
                         WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
            (one::<i64>(&mut self.session, query) == i64::from(clients)).then_some(())
        });
    }
}

fn describe(session: &mut Client) -> Run {
    let extension = |name: &str| {
        format!("SELECT coalesce(min(extversion), '') FROM pg_extension WHERE extname = '{name}'")
    };
    let version: String = one(session, &extension("snowflake_id"));
    let pgedge: String = one(session, &extension("snowflake"));
    let with = if pgedge.is_empty() { String::new() } else { format!(", pgEdge snowflake {pgedge}") };
    // It determines the cost of a random number.
    let postgres: String = one(
        session,
        "SELECT current_setting('server_version') || CASE current_setting('ssl_library')
                    WHEN '' THEN ', built without OpenSSL' ELSE ', with OpenSSL' END",
    );
    Run {
        major: pg_version(),
        postgres: postgres + &with,
        snowflake_id: format!("{version} ({})", machine::build()),
        machine: machine::machine(),
        date: one(
            session,
            "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI\"Z\"')",
        ),
        ..Run::default()
    }
}

/// Prints progress.
pub fn say(text: &str) {
    eprintln!("{text}");
}
