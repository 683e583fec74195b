//! A fleet under faults: eight servers, configured alike, that have their workers from a registry.
//!
//! A run is a row of acts. In each, a new registry with a standby, and eight nodes, some with a standby, live
//! through rounds. A round draws at most one fault of the registry or of the whole network, and faults of
//! several nodes; they strike at the same time. Then every node, every clone and every old primary that runs
//! must generate IDs again, and the clones and old primaries leave.
//!
//! All IDs of a run are compared with each other. The next act's registry hands out the same workers again, so
//! it is created only after the clock has passed the newest ID, as an operator would have to.
//!
//! `faults` is the table; `world` an act's servers; `registry` and `node` what is done to them; `network` lies
//! between; `roster` says which client asks whom; `recovery` has the check after a round.

mod faults;
mod network;
mod node;
mod recovery;
mod registry;
mod roster;
mod world;

pub use faults::{FAULTS, Kind};
pub use roster::FEWEST_CLIENTS;

use crate::random::Random;
use crate::report::Outcome;
use crate::run::Run;
use crate::shared::true_ms;
use crate::volume;
use faults::{Fault, Strike};
use snowflake_server_tests::ids::at_ms;
use snowflake_server_tests::{ms, secs, wait_until};
use std::sync::atomic::Ordering;
use world::{Fleet, Plan};

/// How many nodes a fleet has.
pub const NODES: usize = 8;

/// What a call may be refused for; after `55000`, by the beginning of the message.
pub fn is_expected(code: &str, message: &str) -> bool {
    const CLOSED: [&str; 5] = [
        "cannot generate a snowflake ID: the registry has assigned no worker to this server",
        "cannot generate a snowflake ID: the registry did not renew this server's lease in time",
        "cannot generate a snowflake ID: system clock moved backwards",
        "cannot generate a snowflake ID: system clock is before snowflake_id.epoch",
        "cannot generate a snowflake ID: the generator is closed",
    ];
    match code {
        "55000" => CLOSED.iter().any(|text| message.starts_with(text)),
        _ => ["57P01", "57P02", "57P03", "closed", "unreachable"].contains(&code),
    }
}

pub fn draw_and_check(run: &mut Run, kinds: &[&'static Kind], can_mount: bool) {
    let has_volumes = volume::can_be_used(can_mount);
    let mut random = Random::new(run.options.seed);
    while !run.is_over() {
        let plan = Plan::draw(&mut random);
        let rounds = plan.rounds;
        run.journal.acts += 1;
        run.say(&format!("act {}: {plan:?}", run.journal.acts));
        let mut fleet = Fleet::begin(run.shared, plan, has_volumes);
        run.say("every node generates IDs");
        for _ in 0..rounds {
            let faults = Fault::draw_round(&mut random, run.journal.faults + 1, kinds);
            round(run, &mut fleet, &faults);
            if run.is_over() {
                break;
            }
        }
        end(run, fleet);
    }
}

/// Inflicts faults at the same time, each healed by its function, and waits for IDs from every server.
fn round(run: &mut Run, fleet: &mut Fleet, faults: &[Fault]) {
    for fault in faults {
        let line = run.say(&format!("fault {fault}"));
        run.journal.begin(line);
    }
    let shared = run.shared;
    shared.fault.store(run.journal.faults, Ordering::Relaxed);
    fleet.begin_round();
    let in_flight = shared.under_way();
    let Fleet { registry, nodes, scene, .. } = fleet;
    std::thread::scope(|threads| {
        let mut registry = Some(registry);
        let mut nodes: Vec<_> = nodes.iter_mut().map(Some).collect();
        for fault in faults {
            let scene = &*scene;
            let begin = move || std::thread::sleep(ms(fault.delay_ms));
            match fault.kind.strike {
                Strike::Registry(inflict) => {
                    let registry = registry.take().expect("one of these a round");
                    threads.spawn(move || {
                        begin();
                        inflict(registry, scene, fault);
                    });
                }
                Strike::Node(inflict) => {
                    let node = nodes[fault.node].take().expect("one of these a node");
                    threads.spawn(move || {
                        begin();
                        inflict(node, scene, fault);
                    });
                }
            }
        }
    });
    run.say("healed");
    let recovery = fleet.must_serve();
    for fault in faults {
        let of = match fault.kind.strike {
            Strike::Registry(_) => 0..NODES,
            Strike::Node(_) => fault.node..fault.node + 1,
        };
        let longest = of.clone().map(|node| shared.longest_of(&fleet.nodes[node].primary.target));
        let longest = longest.max().expect("a node");
        let recovery = of.map(|node| recovery[node]).max().expect("a node");
        run.journal.end(fault.kind.name, Outcome { longest, recovery, in_flight: in_flight / faults.len() });
    }
    fleet.send_guests_away();
    run.check();
}

/// Ends an act, and waits until its workers can be handed out by another registry.
fn end(run: &Run, fleet: Fleet) {
    let shared = run.shared;
    shared.send_to(Vec::new());
    wait_until("the clients to leave", secs(60), || (shared.under_way() == 0).then_some(()));
    fleet.discard();
    shared.tally.compare();
    let newest_ms = shared.tally.range().map_or(0, |(_, last)| at_ms(last));
    wait_until("the clock to pass the newest ID", secs(300), || (newest_ms < true_ms()).then_some(()));
}
