//! The check after a round: every server of the fleet generates IDs again.

use super::NODES;
use super::world::Fleet;
use crate::act::Member;
use postgres::NoTls;
use snowflake_server_tests::{Failure, ms, secs};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Fleet {
    /// Waits until every server has served a call that began after now, and every client has had an answer. Returns,
    /// by node, the time until its servers had served; zeros if something is wrong, which ends the run.
    pub fn must_serve(&self) -> [Duration; NODES] {
        let shared = &self.scene.shared;
        let (healed_us, began) = (shared.now_us(), Instant::now());
        // A registry in doubt hands out no worker for two grants, and workers may be scarce for one more.
        let limit = secs(120) + 4 * self.scene.grant;
        let mut served: [Option<Duration>; NODES] = [None; NODES];
        loop {
            let waits = |member: &&Member| member.target.served_us.load(Ordering::Acquire) <= healed_us;
            for (node, served) in self.nodes.iter().zip(&mut served) {
                if served.is_none() && !node.serving().any(|member| waits(&member)) {
                    *served = Some(began.elapsed());
                }
            }
            if served.iter().all(Option::is_some) && shared.waiting_since_before(healed_us).is_none() {
                return served.map(Option::unwrap_or_default);
            }
            if shared.is_wrong() {
                return served.map(Option::unwrap_or_default);
            }
            if began.elapsed() > limit {
                let client = shared.waiting_since_before(healed_us);
                let closed = self.nodes.iter().flat_map(|node| node.serving()).filter(waits);
                let closed: String = closed.map(describe).collect();
                panic!(
                    "no ID within {limit:?}, although the registry can be reached; client {client:?}\n{closed}"
                );
            }
            std::thread::sleep(ms(5));
        }
    }
}

/// What a closed server says of itself.
fn describe(member: &Member) -> String {
    let name = &member.target.name;
    let log = member.server.log();
    let lines: Vec<&str> = log.lines().filter(|line| !line.contains("STATEMENT:")).collect();
    let log = lines[lines.len().saturating_sub(25)..].join("\n");
    let status = member.server.config().connect(NoTls).and_then(|mut session| {
        let said: String =
            session.query_one("SELECT row_to_json(s)::text FROM snowflake_status s", &[])?.get(0);
        Ok(said)
    });
    let status = status.unwrap_or_else(|e| Failure::from(&e).text());
    format!("{name}: {status}\n{log}\n")
}
