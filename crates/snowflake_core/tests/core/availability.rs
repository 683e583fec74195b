//! For how long a server with a lease generates no IDs, with the default grant and the default tolerance.

use crate::simulation::disk::SimDisk;
use crate::simulation::registry::{GRANT, Member, Registry, TOLERANCE, fleet};
use crate::simulation::server::{HOUR, MINUTE, SECOND, Server};
use crate::simulation::tape::Tape;
use crate::simulation::world::Machine;
use snowflake_core::Limits;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// How far apart contacts are at most, be they answered or not.
const PERIOD: i64 = 12 * SECOND;
/// How far apart the clients' calls are here.
const STEP: i64 = 2 * SECOND;

/// Servers with clients, and their registry, in virtual time.
struct Fleet {
    registry: Registry,
    servers: Vec<Machine>,
    /// When the last contact of each server was.
    contacted: Vec<i64>,
    /// When each server generated its last ID, and the longest time between two.
    generated: Vec<i64>,
    longest: Vec<i64>,
    seen: BTreeSet<(i64, i64)>,
}

impl Fleet {
    /// All of them have run for a while.
    fn of(count: u32) -> Self {
        let boot = Rc::new(Cell::new(77_000_000));
        let server = |i| {
            let disk = SimDisk::new(&Rc::new(Tape::given(Vec::new(), i)));
            Machine::new(fleet(Limits::default()), &boot, disk)
        };
        let servers: Vec<Machine> = (0..count).map(server).collect();
        let registry = Registry::new();
        *registry.clock.borrow_mut() = Some((boot.clone(), servers[0].offset.get()));
        for server in &servers {
            server.join(&registry);
        }
        let now = vec![boot.get(); servers.len()];
        let (contacted, generated) = (now.clone(), now);
        let longest = vec![0; servers.len()];
        let mut fleet = Self { registry, servers, contacted, generated, longest, seen: BTreeSet::new() };
        fleet.run(20 * MINUTE);
        assert_eq!(fleet.longest(), 0);
        fleet
    }

    fn run(&mut self, micros: i64) {
        let end = self.servers[0].boot.get() + micros;
        while self.servers[0].boot.get() < end {
            self.servers[0].pass(STEP);
            let now = self.servers[0].boot.get();
            for (i, server) in self.servers.iter().enumerate() {
                if now - self.contacted[i] >= PERIOD {
                    self.contacted[i] = now;
                    match self.registry.is_away.get() {
                        true => drop(server.contact()),
                        false => drop(server.meet(&self.registry)),
                    }
                }
                let _ = server.open();
                if let Ok(id) = server.try_id() {
                    assert!(self.seen.insert((id.worker, id.tick)), "{id:?} of server {i} is there already");
                    self.generated[i] = now;
                }
                self.longest[i] = self.longest[i].max(now - self.generated[i]);
            }
        }
    }

    fn reboot(&mut self, server: usize) {
        self.servers[server].reboot();
        self.servers[server].load_node();
        // A start contacts the registry at once.
        self.contacted[server] = i64::MIN / 2;
    }

    fn longest(&self) -> i64 {
        self.longest.iter().copied().max().expect("a server")
    }

    /// For no longer than this a server generated no IDs, and for nearly as long one did.
    #[track_caller]
    fn assert_longest(&self, limit: i64) {
        let longest = self.longest();
        assert!(longest <= limit, "{} s are more than {} s", longest / SECOND, limit / SECOND);
        assert!(
            longest >= limit - 3 * MINUTE,
            "{} s: the manual says {} s",
            longest / SECOND,
            limit / SECOND
        );
    }
}

/// Until a server has heard from the registry again.
const HEARD: i64 = PERIOD + STEP;
/// For how long a registry that has failed over leases nothing.
const DOUBT: i64 = GRANT + 2 * TOLERANCE + HEARD;

#[test]
fn registry_away_for_less_than_a_grant_costs_nothing() {
    for failed_over in [false, true] {
        let mut fleet = Fleet::of(2);
        fleet.registry.is_away.set(true);
        fleet.run(GRANT - 2 * MINUTE);
        fleet.registry.is_away.set(false);
        if failed_over {
            fleet.registry.fail_over(&[]);
        }
        fleet.run(2 * HOUR);
        assert_eq!(fleet.longest(), 0);
    }
    let mut fleet = Fleet::of(2);
    fleet.registry.is_away.set(true);
    fleet.run(GRANT + 30 * MINUTE);
    fleet.registry.is_away.set(false);
    fleet.run(2 * HOUR);
    fleet.assert_longest(30 * MINUTE + 2 * HEARD);
}

#[test]
fn failover_of_the_registry_costs_running_leases_nothing() {
    for offset in [-50 * SECOND, 0, 50 * SECOND] {
        let mut fleet = Fleet::of(2);
        fleet.registry.offset.set(offset);
        fleet.registry.fail_over(&[]);
        fleet.run(3 * HOUR);
        assert_eq!(fleet.longest(), 0, "{offset}");
    }
    for vouched in [false, true] {
        let mut fleet = Fleet::of(2);
        fleet.registry.fail_over(&[]);
        fleet.run(MINUTE);
        fleet.reboot(0);
        if vouched {
            fleet.run(MINUTE);
            fleet.registry.vouch();
        }
        fleet.run(2 * HOUR);
        fleet.assert_longest(if vouched { MINUTE + HEARD } else { DOUBT });
    }
}

/// The registry neither renews nor ends it: its server goes on to its end, and claims once the doubt is over.
#[test]
fn lease_that_a_failover_lost_ends_shortly_before_the_doubt() {
    for offset in [-50 * SECOND, 0, 50 * SECOND] {
        let mut fleet = Fleet::of(2);
        fleet.registry.offset.set(offset);
        fleet.registry.fail_over(&[0]);
        fleet.run(GRANT - MINUTE);
        assert_eq!(fleet.longest(), 0, "{offset}");
        fleet.run(2 * HOUR);
        // The earlier clock has to pass what the later one set.
        let least = TOLERANCE + offset.abs();
        let limits = least..=least + 2 * HEARD;
        assert!(limits.contains(&fleet.longest[0]), "{offset}: {:?} s", fleet.longest[0] / SECOND);
        assert_eq!(fleet.longest[1], 0, "{offset}");
    }
}

#[test]
fn failover_after_more_than_a_grant_leases_nothing_until_a_vouch() {
    for vouched in [false, true] {
        let mut fleet = Fleet::of(2);
        fleet.registry.is_away.set(true);
        fleet.run(GRANT + 30 * MINUTE);
        fleet.registry.is_away.set(false);
        fleet.registry.fail_over(&[]);
        if vouched {
            fleet.run(MINUTE);
            fleet.registry.vouch();
        }
        fleet.run(2 * HOUR);
        fleet.assert_longest(30 * MINUTE + if vouched { MINUTE + HEARD } else { DOUBT });
    }
}

#[test]
fn clocks_that_are_apart_by_less_than_a_grant_cost_nothing() {
    for offset in [-(GRANT - 5 * MINUTE), GRANT - 5 * MINUTE, 5 * GRANT] {
        let mut fleet = Fleet::of(2);
        fleet.registry.offset.set(offset);
        fleet.run(3 * HOUR);
        assert_eq!(fleet.longest(), 0, "{offset}");
    }
}

/// It ends nothing, and renews nothing: servers go on to the ends of their leases.
#[test]
fn registry_with_a_wrong_clock_is_away_until_it_is_right_or_vouched() {
    for vouched in [false, true] {
        let mut fleet = Fleet::of(2);
        fleet.registry.offset.set(-5 * HOUR);
        fleet.registry.fail_over(&[]);
        fleet.run(GRANT - 3 * MINUTE);
        fleet.registry.offset.set(0);
        if vouched {
            fleet.registry.vouch();
        }
        fleet.run(2 * HOUR);
        assert_eq!(fleet.longest(), 0);
    }
    let mut fleet = Fleet::of(2);
    fleet.registry.offset.set(5 * HOUR);
    fleet.registry.fail_over(&[]);
    fleet.run(GRANT + 30 * MINUTE);
    fleet.registry.offset.set(0);
    fleet.run(2 * HOUR);
    fleet.assert_longest(30 * MINUTE + DOUBT);
}

#[test]
fn a_server_whose_clock_is_more_than_a_grant_ahead_stops_until_the_clock_is_right() {
    let mut fleet = Fleet::of(2);
    fleet.servers[1].step(2 * GRANT);
    fleet.run(10 * MINUTE);
    fleet.servers[1].step(-2 * GRANT);
    fleet.run(HOUR);
    assert_eq!(fleet.longest[0], 0);
    fleet.assert_longest(10 * MINUTE + HEARD);
}

#[test]
fn rebooted_servers_have_ids_at_once_while_workers_are_free() {
    let mut fleet = Fleet::of(2);
    (0..2).for_each(|server| fleet.reboot(server));
    fleet.run(10 * MINUTE);
    assert_eq!(fleet.longest(), 0);

    // The registry is needed.
    let mut fleet = Fleet::of(1);
    fleet.registry.is_away.set(true);
    fleet.reboot(0);
    fleet.run(10 * MINUTE);
    fleet.registry.is_away.set(false);
    fleet.run(10 * MINUTE);
    fleet.assert_longest(10 * MINUTE + HEARD);

    // Nor is there a free one.
    let mut fleet = Fleet::of(2);
    fleet.registry.groups.set(2);
    (0..2).for_each(|server| fleet.reboot(server));
    fleet.run(2 * HOUR);
    fleet.assert_longest(GRANT + HEARD);
}
