//! Registries, and nodes that are calls: what the tests of a registry's SQL share. Nothing is preloaded where they call.

use postgres::Client;
use snowflake_server_tests::sql::{Failure, column, one, run};
use snowflake_server_tests::{Builder, Server, ms, secs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A server that preloads nothing.
pub fn bare() -> Server {
    Server::builder().without_library().start()
}

/// A registry with these arguments after the role's name.
pub fn registry(arguments: &str) -> Server {
    registry_on(Server::builder().without_library(), arguments)
}

/// One with four groups, which are leased for an hour. Tests move its clock: then a slow machine ends no lease.
pub fn small_registry() -> Server {
    registry_on(Server::builder().without_library().faketime(true), ", '1 h', '41/4/18'")
}

/// One with a single group.
pub fn single_registry() -> Server {
    registry_on(Server::builder().without_library().faketime(true), ", '1 h', '41/2/20'")
}

pub fn registry_on(builder: Builder, arguments: &str) -> Server {
    let server = builder.setting("timezone", "UTC").start();
    run(&mut server.connect(), "CREATE ROLE node LOGIN; CREATE EXTENSION snowflake_id");
    run(&mut server.connect(), &format!("SELECT snowflake_registry_create('node'{arguments})"));
    // Both clocks have to pass the tick in which it was created.
    thread::sleep(ms(5));
    server
}

pub const MINUTE: Duration = secs(60);

/// An hour's grant, and what both clocks need to pass it.
pub const AFTER_GRANT: Duration = secs(3_601);

// ---- nodes ----

#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    pub worker: i32,
    pub floor: i64,
    pub until: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub answer: String,
    pub lease: Option<Lease>,
    pub reason: String,
    pub detail: String,
    pub hint: String,
    /// In how many seconds something comes free, as the detail says.
    pub free_in: Option<f64>,
    pub registry: String,
}

/// What a node keeps, and sends.
#[derive(Clone, Debug)]
pub struct Node {
    pub registry: Option<String>,
    pub id: String,
    pub name: String,
    pub number: i64,
    pub nonce: String,
    pub lease: Option<Lease>,
    pub clock: String,
    pub layout: String,
    pub tick_ms: i32,
    pub backups: i32,
    pub datacenter: i32,
    pub system_identifier: i64,
}

pub fn draw() -> String {
    static DRAWN: AtomicU64 = AtomicU64::new(1);
    format!("00000000-0000-4000-8000-{:012x}", DRAWN.fetch_add(1, Ordering::Relaxed))
}

fn literal<T: ToString>(value: &Option<T>) -> String {
    value.as_ref().map_or("NULL".to_owned(), |value| format!("'{}'", value.to_string()))
}

impl Node {
    pub fn new(name: &str) -> Self {
        Self {
            registry: None,
            id: draw(),
            name: name.to_owned(),
            number: 0,
            nonce: draw(),
            lease: None,
            clock: "clock_timestamp()".to_owned(),
            layout: "41/10/12".to_owned(),
            tick_ms: 1,
            backups: 3,
            datacenter: 0,
            system_identifier: -1,
        }
    }

    /// Of a fleet with four groups.
    pub fn small(name: &str) -> Self {
        Self { layout: "41/4/18".to_owned(), ..Self::new(name) }
    }

    /// Of a fleet with one group.
    pub fn single(name: &str) -> Self {
        Self { layout: "41/2/20".to_owned(), ..Self::new(name) }
    }

    pub fn query(&self) -> String {
        let lease = |part: fn(&Lease) -> i64| literal(&self.lease.as_ref().map(part));
        format!(
            "SELECT answer, registry::text, worker_id, floor, until, coalesce(reason, '') AS reason,
                 coalesce(detail, '') AS detail, coalesce(hint, '') AS hint,
                 extract(epoch FROM substring(detail FROM ' before (.*)[.]$')::timestamptz
                     - clock_timestamp())::double precision AS free_in
             FROM snowflake_internal.snowflake_registry_contact({}, {}, '{}', '{}', {}, '{}', {}, {}, {}, {}, '{}', {},
                 '2024-01-01 00:00:00+00', {}, {}, false, '1.0.0')",
            literal(&self.registry),
            self.system_identifier,
            self.id,
            self.name,
            self.number,
            self.nonce,
            lease(|lease| lease.worker.into()),
            lease(|lease| lease.floor),
            lease(|lease| lease.until),
            self.clock,
            self.layout,
            self.tick_ms,
            self.backups,
            self.datacenter,
        )
    }

    /// Sends what it has sent before, or what a test has made of it.
    pub fn send(&self, session: &mut Client) -> Answer {
        let row = session.query_one(&self.query(), &[]).unwrap_or_else(|e| panic!("{}", Failure::from(&e)));
        let lease = row.get::<_, Option<i32>>("worker_id").map(|worker| Lease {
            worker,
            floor: row.get("floor"),
            until: row.get("until"),
        });
        Answer {
            answer: row.get("answer"),
            lease,
            reason: row.get("reason"),
            detail: row.get("detail"),
            hint: row.get("hint"),
            free_in: row.get("free_in"),
            registry: row.get("registry"),
        }
    }

    /// The next contact. It keeps what it is granted.
    pub fn contact(&mut self, session: &mut Client) -> Answer {
        self.number += 1;
        self.nonce = draw();
        let answer = self.send(session);
        self.take(&answer);
        answer
    }

    fn take(&mut self, answer: &Answer) {
        match answer.answer.as_str() {
            "granted" => {
                self.registry = Some(answer.registry.clone());
                self.lease = answer.lease.clone();
            }
            "over" => {
                self.id = draw();
                self.lease = None;
            }
            _ => (),
        }
    }

    #[track_caller]
    pub fn granted(&mut self, session: &mut Client) -> Lease {
        let answer = self.contact(session);
        assert_eq!(answer.answer, "granted", "{answer:?}");
        answer.lease.expect("a lease")
    }

    #[track_caller]
    pub fn refused(&mut self, session: &mut Client, reason: &str) -> Answer {
        let answer = self.contact(session);
        assert_eq!((answer.answer.as_str(), answer.reason.as_str()), ("refused", reason), "{answer:?}");
        assert!(answer.lease.is_none() && answer.detail.ends_with('.'), "{answer:?}");
        assert!(answer.hint.ends_with('.'), "{answer:?}");
        answer
    }

    #[track_caller]
    pub fn over(&mut self, session: &mut Client) -> Answer {
        let answer = self.contact(session);
        assert_eq!(answer.answer, "over", "{answer:?}");
        assert!(answer.lease.is_none(), "{answer:?}");
        answer
    }
}

// ---- a registry as operators see it ----

/// The tick of this moment, by the registry's clock.
pub fn now(session: &mut Client) -> i64 {
    one(
        session,
        "SELECT floor(extract(epoch FROM clock_timestamp() - '2024-01-01 00:00:00+00') * 1000)::bigint",
    )
}

/// The time of a tick of a millisecond, as messages have it.
pub fn time(session: &mut Client, tick: i64) -> String {
    one(session, &format!("SELECT (timestamptz '2024-01-01Z' + {tick} * interval '1 ms')::text"))
}

pub fn rows(session: &mut Client) -> Vec<String> {
    column(session, "SELECT g::text FROM snowflake_internal.snowflake_registry_groups g ORDER BY worker_id")
}

/// As if the registry had failed over, and nobody knew yet.
pub fn move_elsewhere(operator: &mut Client) {
    run(operator, "UPDATE snowflake_internal.snowflake_registry SET written_in = 'timeline 0'");
}

/// In how many seconds workers are leased again; none: the registry is in no doubt.
pub fn free_in(operator: &mut Client) -> Option<f64> {
    let free_in = "SELECT CASE WHEN free_from = 'infinity' THEN 'infinity'::float8
                   ELSE extract(epoch FROM free_from - clock_timestamp())::float8 END FROM snowflake_fleet_capacity";
    one(operator, free_in)
}
