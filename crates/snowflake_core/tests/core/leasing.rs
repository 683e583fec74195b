//! Leases: a registry says which workers a server has, and how long. Rule 7 of a start.

use crate::simulation::disk::{Down, EIO, Fault, Point, Power};
use crate::simulation::fixtures::{MAX_AHEAD, RESERVE, clone_of, promote, run_ahead};
use crate::simulation::registry::{BITS, GRANT, Member, Registry, configured, fleet, member, standby_of};
use crate::simulation::server::{HOUR, MINUTE, MS, SECOND, Server};
use crate::simulation::world::{Machine, SYSTEM, config};
use snowflake_core::platform::{FileIdentity, HostLock, SLOT_BYTES};
use snowflake_core::{Answer, ClosedReason, Config, Effect, Event, Layout, Lease, Limits, Parts};
use snowflake_core::{NotOpen, Policy, Refusal, Tick, WorkerSource};
use std::cell::Cell;
use std::rc::Rc;
use uuid::Uuid;

#[test]
fn only_ids_of_the_lease_are_a_servers_own() {
    let (machine, registry) = (member(), Registry::new());
    let is_own = |worker: i64, tick: i64, datacenter: i64| {
        let parts = Parts { tick, datacenter, worker, sequence: 7 };
        machine.with(|generator| generator.is_own(&parts))
    };
    machine.boot_up();
    machine.load_node();
    assert!(!is_own(0, machine.wall() / MS, 0), "it has no worker");
    machine.join(&registry);
    registry.end(0);
    assert_eq!(machine.meet(&registry), Effect::Leased);
    let lease = machine.lease().expect("another");
    assert_eq!(lease.home, 1);
    // Of the first lease, and of other servers.
    assert_eq!([0, 2, 255, 256, 1_023].map(|worker| is_own(worker, machine.wall() / MS, 0)), [false; 5]);
    // Of each lane, within the lease.
    assert_eq!([1, 257, 513, 769].map(|worker| is_own(worker, machine.wall() / MS, 0)), [true; 4]);
    for (tick, own) in
        [(lease.floor, false), (lease.floor + 1, true), (lease.until, true), (lease.until + 1, false)]
    {
        assert_eq!(is_own(1, tick, 0), own, "{tick} of {lease:?}");
    }
    assert!(!is_own(1, machine.wall() / MS, 1), "of another datacenter");
}

#[test]
fn with_a_configured_worker_every_id_of_its_lanes_is_a_servers_own() {
    let machine = Machine::alone(configured(7));
    let is_own = |worker: i64| {
        [0, i64::MAX >> 22].map(|tick| {
            let parts = Parts { tick, datacenter: 0, worker, sequence: 0 };
            machine.with(|generator| generator.is_own(&parts))
        })
    };
    machine.boot_up();
    assert_eq!([7, 263, 519, 775].map(is_own), [[true; 2]; 4]);
    assert_eq!([0, 6, 8, 264, 1_023].map(is_own), [[false; 2]; 5]);
}

#[test]
fn node_generates_nothing_before_it_has_a_lease() {
    let (machine, registry) = (member(), Registry::new());
    machine.boot_up();
    assert_eq!(machine.open(), Err(NotOpen::NoLease));
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
    assert_eq!(machine.with(|generator| generator.worker_numbers()), [0; 0]);
    assert_eq!(machine.meet(&registry), Effect::Leased);
    assert!(machine.settle() <= MS, "the lease's floor replaces rule 4");
    assert_eq!(machine.told(|event| matches!(event, Event::Opened { .. })), 1);
    let id = machine.id();
    assert!(id.worker == 0 && id.tick <= (machine.wall() + MAX_AHEAD) / MS);

    let second = member();
    second.join(&registry);
    assert_eq!((second.id().worker, second.with(|generator| generator.status().worker)), (1, 1));
    assert_eq!(second.told(|event| matches!(event, Event::Opened { home: 1, .. })), 1);
}

#[test]
fn no_id_lies_above_the_end_of_the_lease_until_a_renewal() {
    let (machine, registry) = (member(), Registry::new());
    let lease = machine.join(&registry);
    machine.id();
    machine.pass(GRANT - 10 * MS);
    let mut last = machine.id();
    while let Ok(id) = machine.try_id() {
        assert!(id.tick <= lease.until, "{id:?}");
        last = id;
        machine.pass(MS / 2);
    }
    assert_eq!(last.tick, lease.until, "the whole lease was used");
    assert_eq!(machine.try_id(), Err(Refusal::LeaseEnded));
    assert_eq!(machine.with(|generator| generator.obstacle()), Some(Refusal::LeaseEnded));
    machine.keep();
    assert!(machine.mark(0) <= lease.until, "no mark is above the lease");
    let ends_at_us = (lease.until + 1) * MS;
    assert_eq!(machine.with(|generator| generator.lease_end()), Some((0, ends_at_us)));
    machine.with(|generator| generator.set_limits(Limits { max_ahead_us: HOUR, ..Limits::default() }));
    machine.keep();
    assert_eq!(machine.with(|generator| generator.rotate_now()), Err(Refusal::LeaseEnded));
    assert_eq!(machine.meet(&registry), Effect::Renewed);
    assert_eq!(machine.id().worker, last.worker);
}

#[test]
fn keeper_writes_nothing_past_the_end_of_the_lease() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    machine.pass(GRANT - 100 * MS);
    machine.id();
    machine.keep();
    let writes = machine.disk.writes.get();
    machine.pass(60 * MS);
    machine.id();
    machine.keep();
    assert_eq!(machine.disk.writes.get(), writes);
}

#[test]
fn a_crash_and_a_clean_stop_keep_the_lease_without_the_registry() {
    let (machine, registry) = (member(), Registry::new());
    let lease = machine.join(&registry);
    let before = machine.id();
    machine.crash();
    assert!(machine.settle() <= RESERVE + MS, "nor for rule 4");
    assert_eq!(machine.lease(), Some(lease));
    let between = machine.id();
    assert!(between.tick > before.tick && between.worker == before.worker);
    machine.stop();
    assert!(machine.start_up() <= MS);
    assert_eq!(machine.id().worker, before.worker);
    machine.pass(GRANT);
    assert_eq!(machine.try_id(), Err(Refusal::LeaseEnded));
}

// ---- Rule 7: the token

/// What happens to a node that has crashed, so that its lease does not go on.
type Incident = fn(&Machine);

const INCIDENTS: [(&str, Incident); 6] = [
    ("reboot", |machine| machine.disk.host_lock.forget()),
    ("no lock", |machine| machine.disk.host_lock.is_broken.set(true)),
    ("copy", |machine| {
        machine.disk.put(machine.disk.slots().unwrap());
    }),
    ("another cluster", |machine| machine.set_start(|start| start.system_identifier += 1)),
    ("its workers taken", |machine| machine.disk.host_lock.hold_as(99, SYSTEM, 256)),
    ("a clone that ran in between", |machine| {
        let clone = clone_of(machine, true);
        clone.start_up();
        clone.id();
        clone.go_down();
    }),
];

#[test]
fn lease_goes_on_only_with_the_hosts_token() {
    for (name, happens) in INCIDENTS {
        let (machine, registry) = (member(), Registry::new());
        let lease = machine.join(&registry);
        let node = machine.contact().node;
        machine.go_down();
        happens(&machine);
        machine.boot_up();
        assert_eq!(machine.open(), Err(NotOpen::NoLease), "{name}");
        // Nor does an operator bring it back.
        machine.adopt(machine.wall()).unwrap();
        assert_eq!((machine.lease(), machine.open()), (None, Err(NotOpen::NoLease)), "{name}");
        let contact = machine.contact();
        assert!(contact.node != node && contact.lease.is_none() && contact.registry.is_none(), "{name}");
        assert_eq!(machine.disk.host_lock.held(), [0; 0], "it has no worker");
        machine.meet(&registry);
        machine.settle();
        assert_ne!(machine.home(machine.id()), lease.home, "{name}");
    }
}

/// The node before generated IDs under a clock that was ahead.
#[test]
fn lease_begins_above_its_floor_on_all_lanes() {
    let (machine, registry) = (member(), Registry::new());
    machine.boot_up();
    machine.load_node();
    let now = machine.wall() / MS;
    let lease = Lease { home: 1, floor: now + 30_000, until: now + 90_000 };
    let contact = machine.contact();
    machine.answered(&contact, Answer::Granted { registry: registry.id, lease });
    for worker in [1, 257, 513, 769] {
        assert_eq!(machine.disk.lowest_mark(worker), Some(lease.floor), "{worker}");
    }
    machine.settle();
    assert!(matches!(machine.try_id(), Err(Refusal::NoLane(it)) if it.worker % 256 == 1), "on no lane");
    machine.pass(30 * SECOND);
    assert!(machine.id().tick > lease.floor);
}

#[test]
fn token_of_a_lease_is_durable_in_record_and_lock() {
    let (machine, registry) = (member(), Registry::new());
    machine.boot_up();
    machine.load_node();
    assert_eq!(machine.disk.said().unwrap().token, None, "it has no worker");
    let mut seen = vec![None];
    for home in [0, 1] {
        machine.meet(&registry);
        let token = machine.disk.lowest(home).unwrap().token;
        assert!(!seen.contains(&token), "each lease draws one");
        assert_eq!(machine.disk.host_lock.held(), (0..4).map(|lane| home + lane * 256).collect::<Vec<_>>());
        assert_eq!(machine.disk.host_lock.signed(SYSTEM, home), token);
        seen.push(token);
        registry.end(home);
    }
}

/// The marks of such a state are too low, and rule 2 is above them. Its contacts have old numbers.
#[test]
fn lease_in_a_state_put_back_from_the_same_run_repeats_nothing() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    machine.meet(&registry);
    let (slots, identity) = (machine.disk.slots().unwrap(), machine.disk.identity().unwrap());
    machine.pass(HOUR / 2);
    machine.meet(&registry);
    run_ahead(&machine);
    let last = machine.id();
    machine.go_down();
    machine.disk.put_as(slots, identity);
    machine.boot_up();
    machine.settle();
    let next = machine.id();
    assert!(next.worker == last.worker && next.tick > last.tick, "{next:?} after {last:?}");
    let contact = machine.contact();
    assert_eq!(registry.answer(&contact, machine.wall()), Answer::Over);
}

#[test]
fn lease_of_an_earlier_run_that_is_put_back_is_over() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    let (slots, identity) = (machine.disk.slots().unwrap(), machine.disk.identity().unwrap());
    machine.crash();
    machine.settle();
    machine.go_down();
    machine.disk.put_as(slots, identity);
    machine.boot_up();
    assert_eq!(machine.open(), Err(NotOpen::NoLease));
}

/// A server whose lease of these workers is over may not know that yet. The registry keeps the two apart.
#[test]
fn lease_of_workers_locked_by_another_server_opens_without_a_token() {
    let (machine, registry) = (member(), Registry::new());
    machine.boot_up();
    machine.load_node();
    machine.disk.host_lock.hold_as(99, SYSTEM, 512);
    machine.meet(&registry);
    machine.settle();
    machine.id();
    assert_eq!(machine.disk.said().unwrap().token, None);
    machine.crash();
    assert_eq!(machine.open(), Err(NotOpen::NoLease), "it is another node");
}

/// Otherwise the next server on the host to which they are leased would stay closed.
#[test]
fn lease_that_is_over_frees_its_workers_on_the_host() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    assert_eq!(machine.disk.host_lock.held(), [0, 256, 512, 768]);
    registry.end(0);
    let contact = machine.contact();
    assert_eq!(machine.answered(&contact, registry.answer(&contact, machine.wall())), Effect::Lost);
    assert_eq!(machine.disk.host_lock.held(), [0; 0]);
    machine.crash();
    assert_eq!(machine.open(), Err(NotOpen::NoLease));
}

/// The last process of the run before has yet to end, as the log's collector.
#[test]
fn lease_waits_for_a_process_of_the_run_before() {
    let (machine, registry) = (member(), Registry::new());
    let lease = machine.join(&registry);
    machine.crash();
    machine.disk.host_lock.is_own_held.set(true);
    for _ in 0..2 {
        assert_eq!(machine.open(), Err(NotOpen::Closed(ClosedReason::Taken)));
    }
    machine.disk.host_lock.is_own_held.set(false);
    machine.settle();
    assert_eq!(machine.lease(), Some(lease));
    machine.id();
}

#[test]
fn server_that_ran_with_a_configured_worker_is_another_node() {
    let (machine, registry) = (member(), Registry::new());
    let lease = machine.join(&registry);
    machine.set_config(configured(lease.home));
    machine.crash();
    machine.settle();
    machine.id();
    machine.set_config(fleet(Limits::default()));
    machine.crash();
    assert_eq!(machine.open(), Err(NotOpen::NoLease));
}

#[test]
fn a_server_killed_between_any_two_steps_of_a_write_keeps_its_lease() {
    let points: [fn(usize) -> Point; 4] = [|_| Point::Open, Point::Write, Point::Sync, Point::Synced];
    for point in points {
        let (machine, registry) = (member(), Registry::new());
        let lease = machine.join(&registry);
        machine.id();
        machine.pass(MINUTE);
        let point = point(1 - machine.disk.newest_slot().expect("a record"));
        machine.disk.set_faults(move |at| if at == point { Fault::Down(Power::Server) } else { Fault::None });
        let machine_again = machine.clone();
        let down = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| machine_again.id()));
        assert!(down.unwrap_err().is::<Down>(), "{point:?} is not reached");
        machine.disk.heal();
        machine.crash();
        machine.settle();
        assert_eq!(machine.lease(), Some(lease), "{point:?}");
    }
}

#[test]
fn lease_that_is_over_closes_the_gate_until_the_next_one() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    let before = machine.id();
    registry.end(0);
    let contact = machine.contact();
    assert_eq!(machine.answered(&contact, registry.answer(&contact, machine.wall())), Effect::Lost);
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
    assert_eq!(machine.with(|it| (it.status().home, it.status().open)), (None, false));
    assert_eq!(machine.open(), Err(NotOpen::NoLease));
    assert_ne!(machine.contact().node, contact.node);
    machine.meet(&registry);
    machine.settle();
    let after = machine.id();
    assert_eq!(machine.home(after), 1);
    assert!(after.tick >= before.tick);
}

#[test]
fn lease_that_begins_on_a_failing_disk_begins_once_it_is_durable() {
    let (machine, registry) = (member(), Registry::new());
    machine.boot_up();
    machine.load_node();
    let contact = machine.contact();
    let answer = registry.answer(&contact, machine.wall());
    machine.disk.set_faults(|_| Fault::Fail(EIO));
    assert_eq!(machine.with(|generator| generator.answered(&contact, answer)), Err(EIO));
    assert_eq!((machine.lease(), machine.open()), (None, Err(NotOpen::NoLease)));
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
    machine.disk.heal();
    assert_eq!(machine.answered(&contact, answer), Effect::Leased);
    machine.settle();
    machine.id();
    // A lease that is over is over, whether that can be written or not.
    registry.end(0);
    let contact = machine.contact();
    let answer = registry.answer(&contact, machine.wall());
    machine.disk.set_faults(|_| Fault::Fail(EIO));
    assert_eq!(machine.answered(&contact, answer), Effect::Lost);
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
}

#[test]
fn lease_outside_the_layout_is_ignored() {
    let (highest, end) = (255, (1 << 41) - 1);
    for ((home, floor, until), is_one) in [
        ((highest, -1, end), true),
        ((0, end, end), true),
        ((highest + 1, 0, 9), false),
        ((-1, 0, 9), false),
        ((0, -2, 9), false),
        ((0, 10, 9), false),
        ((0, 0, end + 1), false),
    ] {
        let (machine, registry, lease) = (member(), Uuid::from_u128(77), Lease { home, floor, until });
        machine.boot_up();
        machine.load_node();
        let effect = machine.answered(&machine.contact(), Answer::Granted { registry, lease });
        assert_eq!(effect, if is_one { Effect::Leased } else { Effect::Ignored }, "{lease:?}");
    }
}

/// At each look at the clock, the lease of the call ends and another begins, of another group or of the same.
#[test]
fn call_across_a_change_of_lease_generates_what_one_allows() {
    for policy in [Policy::Hold, Policy::Replay] {
        for (home, floor_ahead) in [(9, -50), (9, 3), (9, 40), (0, 40)] {
            for look in 1..=6 {
                let machine = Machine::alone(fleet(Limits { policy, ..Limits::default() }));
                let registry = Registry::new();
                let first = machine.join(&registry);
                machine.id();
                machine.step(-20 * MS);
                let second = Lease {
                    home,
                    floor: machine.wall() / MS + floor_ahead,
                    until: machine.wall() / MS + 500,
                };
                let (looks, changing) = (Cell::new(0), machine.clone());
                *machine.meanwhile.borrow_mut() = Some(Rc::new(move |read: &dyn Fn()| {
                    looks.set(looks.get() + 1);
                    if looks.get() == look {
                        // The contact itself looks at the clock, too.
                        looks.set(100);
                        let contact = changing.contact();
                        let answer = Answer::Granted { registry: Uuid::from_u128(77), lease: second };
                        assert_eq!(changing.answered(&contact, answer), Effect::Leased);
                        assert!(!changing.with(|generator| generator.is_open()));
                        let _ = changing.open();
                    }
                    read();
                }));
                for _ in 0..4 {
                    let Ok(id) = machine.try_id() else { break };
                    let allowed = |lease: Lease| {
                        machine.home(id) == lease.home && id.tick > lease.floor && id.tick <= lease.until
                    };
                    let is_old = allowed(first) && (home != 0 || id.tick <= second.floor);
                    assert!(
                        is_old || allowed(second),
                        "{policy:?} look {look}: {id:?} of {first:?} or {second:?}"
                    );
                }
            }
        }
    }
}

/// While a call sleeps, its lease ends, another begins that allows lower ticks, and a replay goes there. The call must
/// not follow with the permit of its own lease: below that lease's floor are the IDs of the group's earlier node.
#[test]
fn call_across_a_replay_under_another_lease_stays_above_its_floor() {
    for look in 1..=6 {
        let config = fleet(Limits { policy: Policy::Replay, ..Limits::default() });
        let (machine, registry) = (Machine::alone(config), Registry::new());
        machine.boot_up();
        machine.load_node();
        let now = machine.wall() / MS;
        let first = Lease { home: 0, floor: now - 1_000, until: now + 60_000 };
        let grant = |lease| Answer::Granted { registry: registry.id, lease };
        let answer = grant(first);
        assert_eq!(machine.answered(&machine.contact(), answer), Effect::Leased);
        machine.settle();
        machine.id();
        let second = grant(Lease { home: 9, floor: -1, until: now + 60_000 });
        let (looks, changing) = (Cell::new(0), Rc::downgrade(&machine));
        *machine.meanwhile.borrow_mut() = Some(Rc::new(move |read: &dyn Fn()| {
            looks.set(looks.get() + 1);
            if looks.get() == look {
                looks.set(100);
                let machine = changing.upgrade().expect("it runs");
                assert_eq!(machine.answered(&machine.contact(), second), Effect::Leased);
                machine.settle();
                machine.step(-5 * SECOND);
                let _ = machine.try_id();
            }
            read();
        }));
        if let Ok(id) = machine.try_id() {
            let is_above = machine.home(id) != first.home || id.tick > first.floor;
            assert!(is_above, "look {look}: {id:?} of {first:?}");
        }
    }
}

/// What a lease allows depends on the number of lanes, on the datacenter and on the layout.
#[test]
fn server_that_counts_workers_or_ticks_otherwise_is_another_node() {
    let of = |bits, tick, backups, datacenter| {
        let config = config(bits, tick, 0, backups, 16_384, Limits::default());
        Config { source: WorkerSource::Registry, datacenter, ..config }
    };
    let plain = of(BITS, Tick::Millisecond, 3, 0);
    let later = Layout::new(BITS.parse().unwrap(), Tick::Millisecond, 1_000).unwrap();
    for (before, after) in [
        (plain, of(BITS, Tick::Millisecond, 7, 0)),
        (of("41/5+5/12", Tick::Millisecond, 3, 1), of("41/5+5/12", Tick::Millisecond, 3, 2)),
        (plain, of("42/9/12", Tick::Millisecond, 3, 0)),
        (plain, of(BITS, Tick::Centisecond, 3, 0)),
        (plain, Config { layout: later, ..plain }),
    ] {
        let (machine, registry) = (Machine::alone(before), Registry::new());
        machine.join(&registry);
        machine.id();
        machine.set_config(after);
        machine.crash();
        assert_eq!(machine.open(), Err(NotOpen::NoLease), "{after:?}");
        machine.set_config(before);
        machine.crash();
        assert_eq!(machine.open(), Err(NotOpen::NoLease), "it was another node meanwhile");
    }
}

#[test]
fn number_and_nonce_are_durable_before_they_are_sent() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    machine.disk.set_faults(|_| Fault::Fail(EIO));
    assert_eq!(machine.with(|generator| generator.contact()), Err(EIO));
    machine.disk.heal();
    let contact = machine.contact();
    // The answer is lost, and so is the memory.
    machine.crash();
    machine.settle();
    let again = machine.contact();
    assert_eq!((again.number, again.nonce), (contact.number, contact.nonce));
    assert_eq!(machine.meet(&registry), Effect::Renewed);
    assert_eq!(machine.contact().number, contact.number + 1);
}

#[test]
fn what_was_granted_is_durable_before_calls_can_use_it() {
    let (machine, registry) = (member(), Registry::new());
    let lease = machine.join(&registry);
    machine.pass(lease.until * MS - machine.wall());
    machine.id();
    machine.with(|generator| generator.rotate_now()).unwrap();
    machine.pass(SECOND);
    assert_eq!(machine.try_id(), Err(Refusal::LeaseEnded));
    let contact = machine.contact();
    let answer = registry.answer(&contact, machine.wall());
    machine.disk.set_faults(|_| Fault::Fail(EIO));
    assert_eq!(machine.with(|generator| generator.answered(&contact, answer)), Err(EIO));
    assert_eq!(machine.try_id(), Err(Refusal::LeaseEnded));
    let other = Answer::Granted { registry: registry.id, lease: Lease { home: 5, ..lease } };
    assert_eq!(machine.with(|generator| generator.answered(&contact, other)), Err(EIO));
    assert_eq!(machine.lease(), Some(lease));
    machine.disk.heal();
    assert_eq!(machine.answered(&contact, answer), Effect::Renewed);
    machine.settle();
    assert_eq!(machine.home(machine.id()), lease.home);
}

#[test]
fn standby_claims_its_own_group_and_uses_it_when_it_is_promoted() {
    let (primary, registry) = (member(), Registry::new());
    primary.join(&registry);
    primary.id();
    let standby = standby_of(&primary);
    standby.load_node();
    assert_eq!(standby.meet(&registry), Effect::Leased);
    promote(&standby, 2);
    assert!(standby.settle() <= MS, "the lease's floor replaces rule 4");
    assert_eq!((standby.id().worker, primary.id().worker), (1, 0));
    standby.pass(SECOND);
    standby.keep();
    assert_eq!(standby.disk.said().unwrap().timeline, 2);
    // Also where the promotion comes with a restart, over which the lease goes on.
    let lease = standby.lease();
    standby.crash();
    promote(&standby, 3);
    assert!(standby.settle() <= RESERVE + MS);
    assert_eq!((standby.lease(), standby.id().worker), (lease, 1));
}

/// Files that cannot be the newest, too, wait for nothing but the lease.
#[test]
fn lease_floor_replaces_rule_4() {
    for (name, happens) in INCIDENTS {
        let (machine, registry) = (member(), Registry::new());
        machine.join(&registry);
        machine.id();
        machine.go_down();
        happens(&machine);
        promote(&machine, 2);
        machine.set_start(|start| start.replayed_us = Some(machine.wall() + HOUR));
        machine.boot_up();
        machine.load_node();
        assert_eq!(machine.meet(&registry), Effect::Leased);
        assert!(machine.settle() <= MS, "{name}");
        let id = machine.id();
        assert_eq!(id.worker, 256 + machine.lease().unwrap().home, "{name}: the timeline's lane");
        assert_eq!(machine.disk.said().unwrap().active, Some(id.worker), "{name}");
    }
}

#[test]
fn leased_lane_goes_on_above_the_workers_own_mark() {
    let machine = Machine::alone(configured(0));
    machine.start_up();
    let before = machine.id();
    machine.stop();
    machine.step(-SECOND);
    machine.set_config(fleet(Limits::default()));
    let registry = Registry::new();
    machine.boot_up();
    machine.load_node();
    machine.meet(&registry);
    machine.settle();
    let after = machine.id();
    assert!(after.worker == before.worker && after.tick > before.tick, "{before:?} {after:?}");
}

// ---- two events at once ----

/// What a server does about its lease, each with a write.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Deed {
    Enlist,
    Contact,
    Renewed,
    Leased,
    Lost,
}

/// No write succeeds during a deed. Then the disk works again, and the server goes on, or it has crashed meanwhile.
#[test]
fn deed_that_cannot_be_written_changes_nothing_and_is_done_again() {
    let deeds = [Deed::Enlist, Deed::Contact, Deed::Renewed, Deed::Leased, Deed::Lost];
    for (deed, crashes) in deeds.into_iter().flat_map(|deed| [(deed, false), (deed, true)]) {
        let case = format!("{deed:?} {crashes}");
        let (machine, registry) = (member(), Registry::new());
        machine.boot_up();
        if deed != Deed::Enlist {
            machine.join(&registry);
            machine.id();
        }
        if matches!(deed, Deed::Leased | Deed::Lost) {
            registry.end(0);
        }
        if deed == Deed::Leased {
            let contact = machine.contact();
            assert_eq!(machine.answered(&contact, registry.answer(&contact, machine.wall())), Effect::Lost);
        }
        let asked = match deed {
            Deed::Renewed | Deed::Leased | Deed::Lost => Some(machine.contact()),
            Deed::Enlist | Deed::Contact => None,
        };
        let answer = asked.map(|asked| registry.answer(&asked, machine.wall()));
        let start = machine.start.get();
        let try_it = || match deed {
            Deed::Enlist => machine.with(|generator| generator.load_node(&start)).map_err(drop),
            Deed::Contact => machine.with(|generator| generator.contact()).map(drop).map_err(drop),
            Deed::Renewed | Deed::Leased | Deed::Lost => {
                let answered = |contact| machine.with(|it| it.answered(&contact, answer.unwrap()));
                answered(asked.unwrap()).map(drop).map_err(drop)
            }
        };
        let before = machine.lease();
        machine.disk.set_faults(|_| Fault::Fail(EIO));
        // A lease that is over is over, whatever the disk does.
        assert_eq!(try_it().is_ok(), deed == Deed::Lost, "{case}");
        assert_eq!(machine.lease(), before.filter(|_| deed != Deed::Lost), "{case}");
        if !matches!(deed, Deed::Contact | Deed::Renewed) {
            assert_eq!(machine.try_id(), Err(Refusal::GateClosed), "{case}");
        }
        machine.disk.heal();
        if crashes {
            machine.crash();
            machine.load_node();
            // What was asked before the crash is asked again by a node that has its lease still.
            if let Some(asked) = asked {
                let again = machine.contact();
                let is_same =
                    (again.node, again.number, again.nonce) == (asked.node, asked.number, asked.nonce);
                assert_eq!(is_same, deed != Deed::Leased, "{case}");
                machine.answered(&again, registry.answer(&again, machine.wall()));
            }
        } else {
            machine.pass(2 * SECOND);
            assert_eq!(try_it(), Ok(()), "{case}");
        }
        machine.meet(&registry);
        machine.settle();
        let id = machine.id();
        let has = machine.lease().expect("a lease");
        assert!(machine.home(id) == has.home && (has.floor..=has.until).contains(&id.tick), "{case}");
        if matches!(deed, Deed::Contact | Deed::Renewed) {
            assert_eq!(before.map(|lease| lease.home), Some(has.home), "{case}");
        }
    }
}

/// The file can be read, but not written onto itself.
#[test]
fn server_whose_file_cannot_be_rewritten_keeps_its_lease() {
    let (machine, registry) = (member(), Registry::new());
    let lease = machine.join(&registry);
    machine.id();
    machine.go_down();
    machine.disk.set_faults(|at| if matches!(at, Point::Write(_)) { Fault::Fail(EIO) } else { Fault::None });
    machine.boot_up();
    machine.settle();
    assert_eq!(machine.lease(), Some(lease));
    machine.id();
}

/// IDs of an earlier life of the data are ahead of the clock, and an operator has said so.
#[test]
fn a_floor_that_an_operator_has_set_holds_under_each_later_lease() {
    for before_first in [false, true] {
        let (machine, registry) = (member(), Registry::new());
        machine.boot_up();
        machine.load_node();
        if !before_first {
            machine.join(&registry);
            machine.id();
        }
        let floor = machine.wall() + HOUR / 2;
        machine.adopt(floor).expect("a floor");
        for home in 0..2 {
            if home > 0 || !before_first {
                registry.end(if before_first { home - 1 } else { home });
            }
            assert_eq!(machine.meet(&registry), Effect::Leased);
            let home = machine.lease().expect("a lease").home;
            assert!((0..4).all(|lane| machine.mark(home + lane * 256) >= floor / MS), "{before_first}");
        }
        let _ = machine.open();
        assert!(machine.try_id().is_err());
        machine.pass(HOUR / 2 + SECOND);
        machine.meet(&registry);
        machine.settle();
        assert!(machine.id().tick > floor / MS);
    }
}

/// A lane that the server had left has a permit still, and is the first of the next lease.
#[test]
fn a_lease_that_is_over_closes_the_lanes_that_were_left_too() {
    let (machine, registry) = (member(), Registry::new());
    machine.join(&registry);
    machine.id();
    machine.pass(SECOND);
    machine.with(|generator| generator.rotate_now()).expect("another lane");
    assert_eq!(machine.lane(), 2);
    registry.end(0);
    assert_eq!(machine.meet(&registry), Effect::Leased);
    assert_eq!(machine.lane(), 0);
    machine.step(-SECOND);
    assert_eq!(machine.try_id(), Err(Refusal::GateClosed));
    machine.step(SECOND);
    machine.settle();
    assert_eq!(machine.home(machine.id()), 1);
}

// ---- the states of releases ----

/// Has the machine's disk hold what a release wrote, as a slot of `tests/state` has it: from its release on, that never
/// changes. Returns the end of the mark of worker 0.
fn put(machine: &Machine, slot: &std::path::Path) -> i64 {
    let text = std::fs::read_to_string(slot).expect("it can be read");
    let record = &serde_json::from_str::<serde_json::Value>(&text).expect("JSON")["record"];
    let file: FileIdentity = serde_json::from_value(record["file"].clone()).expect("an identity");
    let mut bytes = text.into_bytes();
    bytes.resize(SLOT_BYTES, b' ');
    machine.disk.put_as([bytes.clone(), bytes], file);
    record["marks"]["0"].as_i64().expect("a mark")
}

#[test]
fn the_states_of_all_releases_are_read() {
    let mut releases = 0;
    for folder in std::fs::read_dir("tests/state").expect("the folder is there") {
        let folder = folder.expect("it can be read").path();
        let machine = Machine::alone(configured(0));
        let mark = put(&machine, &folder.join("configured.json"));
        machine.pass(SECOND); // and the mark is ahead of the clock
        assert!((MS + 1..SECOND).contains(&machine.start_up()), "a plain start, and its mark is waited for");
        let id = machine.id();
        assert!(id.worker == 0 && id.tick * MS >= mark, "{id:?} is not above {mark}");

        // The host has its token.
        let machine = member();
        put(&machine, &folder.join("leased.json"));
        machine.disk.host_lock.lock(SYSTEM, &[0, 256, 512, 768]);
        machine
            .disk
            .host_lock
            .sign(&[0], machine.disk.said().expect("it can be read").token.expect("a token"));
        machine.start_up();
        assert_eq!(machine.lease().map(|lease| lease.home), Some(0));
        machine.id();
        releases += 1;
    }
    assert!(releases > 0);
}
