//! What each action of a scope does.

use super::runs::{Server, Snapshot, World};
use super::scopes::{AHEADS, Action, MS, PASSES, SECOND, limits};
use crate::simulation::disk::Power;
use snowflake_core::{Limits, Policy, Start};
use std::rc::Rc;

use Action::*;

pub fn act(world: &Rc<World>, action: Action) {
    let server = world.server();
    let tape = &world.tape;
    world.counts.borrow_mut().actions += 1;
    let machine = &server.machine;
    match action {
        Turn => {
            let next = (world.current.get() + 1) % world.servers.borrow().len();
            world.current.set(next);
            return;
        }
        Pass => {
            let passes = if world.is_large { &PASSES[..] } else { &PASSES[..2] };
            let micros = passes[tape.choose(passes.len() as u32) as usize];
            world.log(|| format!("{} ms pass", micros / MS));
            machine.pass(micros);
            return;
        }
        Step => return world.step(server.host, world.steps[tape.choose(world.steps.len() as u32) as usize]),
        Aim => {
            let (run, known) = (server.run.borrow(), world.clocks.borrow());
            let last = known.iter().rev().take(if world.is_large { 3 } else { 0 });
            let mut clocks: Vec<i64> = known.iter().take(1).chain(last).copied().collect();
            clocks.extend(run.is_decided.then_some(run.start));
            drop((run, known));
            clocks.dedup();
            if !clocks.is_empty() {
                let clock = clocks[tape.choose(clocks.len() as u32) as usize];
                world.step(server.host, clock - machine.wall());
            }
            return;
        }
        Ghost => return server.linger_on(|| server.call()),
        Promote => return promote(world),
        PutBack => return put_back(world, &server),
        HalfStart => {
            if !machine.is_up() {
                server.make_way();
                server.boot_up();
                server.live(|| server.try_to_open());
                if machine.is_up() {
                    server.down(Power::Server);
                }
            }
            return;
        }
        _ => server.start(),
    }
    match action {
        Issue => server.live(|| server.call()),
        Train => server.live(|| server.train()),
        Burst => server.live(|| {
            server.train();
            let worker = machine.with(|generator| generator.status().worker);
            let mark = machine.disk.said().map_or(-1, |said| said.mark(worker));
            machine.pass(((mark + 1) * MS - machine.wall()).clamp(0, SECOND));
            (0..3).for_each(|_| server.call());
        }),
        Keep => server.live(|| {
            let result = machine.with(|generator| generator.run_keeper());
            server.log(|| format!("keep: {result:?}"));
        }),
        Rotate => server.live(|| {
            world.clocks.borrow_mut().push(machine.wall());
            server.rotate();
            server.call();
        }),
        CrashServer => server.down(Power::Server),
        CrashMachine => server.down(Power::Machine),
        Linger => server.linger(),
        Stop => server.restart(true),
        Reconfigure => {
            let others = [(0, 0), (0, 1), (1, 1), (0, 3), (1, 3)];
            let others = others.into_iter().filter(|it| *it != (server.home.get(), server.backups.get()));
            let (home, backups) = others.collect::<Vec<_>>()[tape.choose(4) as usize];
            server.home.set(home);
            server.backups.set(backups);
            server.is_disturbed.set(true);
            server.restart(!world.is_large || tape.choose(2) == 0);
        }
        ChangePolicy => {
            let Limits { policy, max_ahead_us, .. } = server.limits.get();
            let policy = if policy == Policy::Hold { Policy::Replay } else { Policy::Hold };
            server.run.borrow_mut().steps_back += 1;
            server.reload(limits(policy, max_ahead_us));
        }
        ChangeAhead => {
            let others = AHEADS.into_iter().filter(|it| *it != server.limits.get().max_ahead_us);
            let ahead = others.collect::<Vec<_>>()[tape.choose(AHEADS.len() as u32 - 1) as usize];
            server.log(|| format!("max_ahead {ahead} us"));
            // IDs may lie further ahead than a shorter one allows.
            server.run.borrow_mut().excuses += 1;
            server.reload(limits(server.limits.get().policy, ahead));
        }
        Damage => {
            if machine.is_up() {
                server.down(Power::Server);
            }
            server.damage();
        }
        Delete => {
            server.log(|| "the file is deleted".to_owned());
            server.replace(None, true);
        }
        Adopt => server.live(|| server.adopt()),
        Meet => {
            let arrives = tape.choose(2) == 0;
            server.live(|| server.meet(arrives));
        }
        Late => {
            if let Some((contact, answer)) = server.late.take() {
                server.live(|| server.hear(&contact, answer));
            }
        }
        End => [0, 1].iter().for_each(|home| world.registry.end(*home)),
        Turn | Pass | Step | Aim | Ghost | Promote | PutBack | HalfStart => unreachable!("done above"),
    }
}

impl Server {
    fn reload(&self, limits: Limits) {
        self.limits.set(limits);
        self.machine.config.borrow_mut().limits = limits;
        if self.machine.is_up() {
            self.machine.with(|generator| generator.set_limits(limits));
        }
    }
}

fn put_back(world: &Rc<World>, server: &Rc<Server>) {
    let tape = &world.tape;
    if server.machine.is_up() {
        server.down(Power::Server);
    }
    let mut states: Vec<(&str, Option<Snapshot>, bool)> = Vec::new();
    let snapshots = server.snapshots.borrow().clone();
    if let Some(last) = snapshots.last() {
        states.push(("its last start", Some(last.clone()), true));
        states.push(("its last start, as a new file", Some(last.clone()), false));
    }
    if let [first, _, ..] = &snapshots[..] {
        states.push(("its first start", Some(first.clone()), true));
    }
    states.push(("nothing", None, true));
    for other in world.servers.borrow().iter().filter(|it| it.name != server.name) {
        if let Some(state) = other.state() {
            states.push(("another directory", Some(state.clone()), true));
            states.push(("another directory, as a new file", Some(state), false));
        }
    }
    let (name, state, in_place) = states.swap_remove(tape.choose(states.len() as u32) as usize);
    server.log(|| format!("its state is that of {name}"));
    server.replace(state, in_place);
}

fn promote(world: &Rc<World>) {
    let tape = &world.tape;
    let primary = world.server();
    let servers = world.servers.borrow().clone();
    let server = &servers[(primary.name + tape.choose(servers.len() as u32) as usize) % servers.len()];
    world.timeline.set(world.timeline.get() + 1);
    world.counts.borrow_mut().promotions += 1;
    let old = primary.snapshots.borrow().first().cloned();
    if server.machine.is_up() {
        server.down(Power::Server);
    }
    match tape.choose(if world.is_large { 3 } else { 2 }) {
        0 => {}
        1 => server.replace(old, false),
        _ => server.replace(primary.state(), false),
    }
    let replayed_us = primary.committed.get().filter(|_| world.is_large && tape.choose(2) == 1);
    server.home.set(primary.home.get());
    server.backups.set(primary.backups.get());
    server.is_disturbed.set(true);
    let start = server.machine.start.get();
    // It may crash before its state says that it was promoted; then it starts on a timeline that it has not made.
    let made_timeline = !world.is_large || tape.choose(2) == 0;
    server.machine.start.set(Start { timeline: world.timeline.get(), made_timeline, replayed_us, ..start });
    server.log(|| format!("promoted to timeline {}, replayed {replayed_us:?}", world.timeline.get()));
    world.current.set(server.name);
}
