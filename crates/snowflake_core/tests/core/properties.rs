//! Properties over arbitrary layouts, clocks and limits. `PROPTEST_CASES` sets the number of cases. Here
//! is that of calls, one after the other: a model of what was issued, independent of entries and swaps.

mod layouts;
mod ranges;

use crate::common::{Gen, generators, limits, open_gate};
use crate::simulation::basics::{default_config, start_on};
use crate::simulation::world::Machine;
use proptest::prelude::*;
use ranges::{NAP, Op, SECOND, cases, runs};
use snowflake_core::{
    Bits, Config, Layout, Limits, NotOpen, Parts, Policy, Range, Refusal, SequenceStart, Tick, Workers,
};
use std::collections::{BTreeMap, HashMap};

#[derive(Default)]
struct LaneModel {
    /// Tick -> the last sequence issued in it.
    used: BTreeMap<i64, i64>,
    issued: u64,
    /// As the generator shows it. What has to be above it is the subject of other tests.
    mark: i64,
    /// The tick of the last ID, or the one to which a rotation has raised the current tick since.
    last: i64,
    /// A call of several rotations may have entered the lane and left it again, at a reading of the clock that is not
    /// known.
    is_passed: bool,
    /// Ring slot -> the latest tick that used it; an earlier one cannot be had any more.
    slots: HashMap<i64, i64>,
    ring: i64,
}

impl LaneModel {
    fn new(config: &Config) -> Self {
        Self { ring: config.ring_ticks as i64, last: 1, mark: 0, ..Self::default() }
    }

    fn use_tick(&mut self, tick: i64, sequence: i64) -> Option<i64> {
        self.last = tick;
        let later = self.slots.insert(tick % self.ring, tick);
        assert!(later.is_none_or(|later| later <= tick), "tick {tick} in the slot of {later:?}");
        self.used.insert(tick, sequence)
    }

    fn highest(&self) -> i64 {
        self.used.last_key_value().map_or(-1, |(tick, _)| *tick)
    }

    /// Where a rotation to the lane would lead.
    fn first_free(&self) -> i64 {
        self.last.max(self.mark + 1)
    }

    /// The first tick from `tick` on with room for `n`.
    fn room_from(&self, mut tick: i64, n: i64, layout: &Layout) -> i64 {
        loop {
            let slot = self.slots.get(&(tick % self.ring)).copied().unwrap_or(tick);
            let is_full = || self.used.get(&tick).is_some_and(|last| last + n >= layout.sequences());
            tick = if slot > tick {
                slot
            } else if is_full() {
                tick + 1
            } else {
                return tick;
            };
        }
    }
}

struct Model {
    config: Config,
    world: &'static Machine,
    lanes: Vec<LaneModel>,
    limits: Limits,
    timeline: u32,
    active: usize,
    rotations: u64,
    /// The last ID of the active lane since the last rotation; `None` while the current tick is not known.
    current_tick: Option<Range>,
    refusals: u64,
    last_refusal: Option<Refusal>,
    resets_before: u64,
    stats_since: Observed,
    steps_undone: i64,
}

/// The counters at the last reset.
#[derive(Clone, Copy, Default)]
struct Observed {
    rollbacks: u64,
    forward_jumps: u64,
}

impl Model {
    fn new(config: Config, world: &'static Machine) -> Self {
        let lanes = (0..config.workers.lanes()).map(|_| LaneModel::new(&config)).collect();
        Self {
            config,
            world,
            lanes,
            limits: config.limits,
            timeline: 0,
            active: 0,
            rotations: 0,
            current_tick: None,
            refusals: 0,
            last_refusal: None,
            resets_before: 0,
            stats_since: Observed::default(),
            steps_undone: 0,
        }
    }

    fn tick_us(&self) -> i64 {
        self.config.layout.tick().micros()
    }

    /// The lanes but for the active one. Those that are an even number of lanes from the timeline's first come first.
    fn others(&self) -> Vec<usize> {
        let lanes = self.config.workers.lanes();
        let first = (self.timeline as usize - 1) % lanes;
        let mut others: Vec<usize> = (1..lanes).map(|i| (self.active + i) % lanes).collect();
        others.sort_by_key(|lane| (lane % 2 != first % 2) as usize);
        others
    }

    /// The lane to which a rotation leads at this reading of the clock.
    fn next_lane(&self, wall: i64) -> Option<usize> {
        let now = self.config.layout.relative(wall);
        let latest = self.config.layout.tick().containing(now + self.limits.max_ahead_us);
        let latest = latest.min(self.config.layout.max_tick());
        self.others().into_iter().find(|lane| self.lanes[*lane].first_free() <= latest)
    }

    /// How long before tick `tick` may be issued, at this reading of the clock.
    fn missing(&self, tick: i64, wall: i64) -> i64 {
        tick * self.tick_us() - (self.config.layout.relative(wall) + self.limits.max_ahead_us)
    }

    /// How long before `n` IDs of the active lane may be issued. An attempt continues from the last ID or the clock,
    /// and stops at the first tick that guarantee 4 forbids, whether it is full or not.
    fn missing_for(&self, n: i64, wall: i64) -> i64 {
        let layout = self.config.layout;
        let now = layout.relative(wall);
        let lane = &self.lanes[self.active];
        let start = lane.last.max(layout.tick().containing(now));
        let latest = layout.tick().containing(now + self.limits.max_ahead_us);
        self.missing(lane.room_from(start, n, &layout).min(start.max(latest + 1)), wall)
    }

    /// The highest possible current tick of the active lane: a refused call may have gone on to ticks that a replay had
    /// left.
    fn farthest_tick(&self) -> i64 {
        let lane = &self.lanes[self.active];
        if self.current_tick.is_some() { lane.last } else { lane.last.max(lane.highest()) }
    }

    fn call(&mut self, generator: &Gen, n: i64, undisturbed: bool) {
        self.world.reads.borrow_mut().clear();
        let rotations = generator.status().counts.rotations;
        self.world.observe();
        self.world.reads.borrow_mut().clear();
        let boot = self.world.boot.get();
        let result = match n {
            1 => generator.next_id().map(|id| Range { first: id, last: id }),
            n => generator.next_range(n),
        };
        let waited = self.world.boot.get() - boot;
        let reads = self.world.reads.take();
        let status = generator.status();
        self.world.observe();
        let rotated = status.counts.rotations - rotations;
        self.rotations += rotated;

        self.check_wait(waited, undisturbed);
        if waited > 0 && undisturbed {
            self.check_turn(n, &reads);
        }
        self.check_rotations(rotated, n, &reads, undisturbed);
        let active = status.lane;
        if rotated > 0 {
            assert!(self.others().contains(&active) || !undisturbed, "lane {active} was left");
            self.current_tick = None;
            for (index, lane) in self.lanes.iter_mut().enumerate() {
                lane.is_passed = index != active && (lane.is_passed || rotated > 1);
            }
            self.lanes[active].last = generator.current_tick();
        } else {
            assert_eq!(active, self.active, "the lane changed without a rotation");
        }
        self.active = active;
        match result {
            Ok(range) => {
                self.issued(range, n, &reads);
                let tick = self.config.layout.unpack(range.last).unwrap().tick;
                assert_eq!(status.last_id_at_us, Some(self.config.layout.starts_at(tick)));
            }
            Err(refusal) => {
                self.refusals += 1;
                self.last_refusal = Some(refusal);
                let lane = &self.lanes[self.active];
                if self.limits.policy == Policy::Replay || lane.last < lane.highest() {
                    // It may still have replayed, or gone on to ticks that another replay had left.
                    self.current_tick = None;
                }
                self.check_refusal(generator, refusal, n, &reads);
            }
        }
        self.check_counts(generator);
    }

    fn issued(&mut self, range: Range, n: i64, reads: &[i64]) {
        let layout = self.config.layout;
        assert!(range.first >= 0 && range.last - range.first == n - 1);
        let parts = layout.unpack(range.first).expect("an ID of the layout");
        let end = layout.unpack(range.last).expect("an ID of the layout");
        assert_eq!(Parts { sequence: 0, ..parts }, Parts { sequence: 0, ..end }, "one tick, one node");
        assert_eq!(layout.pack(parts), Some(range.first));
        assert_eq!(parts.datacenter, self.config.datacenter);
        assert_eq!(self.config.workers.owner(parts.worker).unwrap().1, self.active);
        assert_eq!(self.config.workers.worker(self.active), parts.worker);
        assert!((0..=layout.max_tick()).contains(&parts.tick));

        // Guarantee 4, by the clock that the winning attempt read, which is the last reading.
        let missing = self.missing(parts.tick, *reads.last().unwrap());
        assert!(missing <= 0, "guarantee 4: {missing} us too early");

        // Guarantee 5. Replay may go back, but only if the current tick could not be used.
        if let Some(before) = self.current_tick
            && range.first < before.first
        {
            let was_blocked = reads.iter().any(|read| self.missing_for(n, *read) > 0);
            assert_eq!(
                self.limits.policy,
                Policy::Replay,
                "guarantee 5: {} after {}",
                range.first,
                before.last
            );
            assert!(was_blocked, "replayed although nothing was missing");
        }

        // Guarantee 1: within a tick of a lane, sequences only ascend.
        let lane = &mut self.lanes[self.active];
        let used = lane.use_tick(parts.tick, end.sequence);
        match used {
            Some(used) => assert_eq!(parts.sequence, used + 1, "guarantee 1: {range:?} after {used}"),
            None => match self.config.sequence_start {
                SequenceStart::Zero => assert_eq!(parts.sequence, 0),
                SequenceStart::Spread => assert!(parts.sequence < (layout.sequences() / 64).max(1)),
            },
        }
        lane.issued += n as u64;
        self.current_tick = Some(range);
    }

    fn check_wait(&self, waited: i64, undisturbed: bool) {
        // Replay moves the current tick, and then a call's patience starts over.
        let turns = if self.limits.policy == Policy::Replay { 2 } else { 1 };
        let bound = turns * (self.limits.max_wait_us + self.tick_us() + self.tick_us().min(NAP));
        assert!(waited <= bound || !undisturbed, "waited {waited} us of at most {bound}");
    }

    /// A call waits only for ticks that guarantee 4 forbids.
    fn check_turn(&self, n: i64, reads: &[i64]) {
        let lane = &self.lanes[self.active];
        if self.farthest_tick() > lane.last {
            return;
        }
        let now = self.config.layout.tick_at(reads[0]);
        let wanted = lane.room_from(lane.last.max(now), n, &self.config.layout);
        let is_forbidden = reads.iter().any(|read| self.missing_for(n, *read) > 0);
        assert!(is_forbidden, "waited for tick {wanted}, which it could have had");
    }

    /// The `reads` before the first rotation are the cause of it.
    fn check_rotations(&self, rotated: u64, n: i64, reads: &[i64], undisturbed: bool) {
        if rotated == 0 {
            return;
        }
        assert!(rotated == 1 || !undisturbed, "{rotated} rotations for one step");
        if self.current_tick.is_none() {
            return;
        }
        let layout = self.config.layout;
        let lane = &self.lanes[self.active];
        let now = layout.tick_at(reads[0]);
        let tick_with_room = lane.room_from(lane.last.max(now), n, &layout);
        if tick_with_room > layout.max_tick() {
            // Every tick that a replay revisits is full, up to the end of the field: no wait helps.
            return;
        }
        let was_blocked = reads.iter().any(|read| self.missing_for(n, *read) > 0);
        assert!(was_blocked, "a rotation that hold absorbs");
        let missing = self.missing_for(n, reads[0]);
        if !undisturbed || missing <= 0 {
            return;
        }
        let room = self.missing(tick_with_room, reads[0]);
        let in_ring = lane.highest() < now + self.config.ring_ticks as i64;
        if !self.world.stalled.get() && (self.limits.policy == Policy::Hold || in_ring) {
            assert!(room > self.limits.max_wait_us.max(self.tick_us()), "{room} us could be waited for");
        }
        let has_room = lane.room_from(now, n, &layout) == now;
        let replays = self.limits.policy == Policy::Replay && missing > self.tick_us();
        assert!(!(replays && in_ring && has_room && now >= 1), "a rotation where replay helps");
    }

    fn check_refusal(&mut self, generator: &Gen, refusal: Refusal, n: i64, reads: &[i64]) {
        let layout = self.config.layout;
        let now = layout.relative(*reads.last().unwrap());
        let latest = layout.tick().containing(now + self.limits.max_ahead_us);
        let lane = &self.lanes[self.active];
        let start = self.farthest_tick().max(layout.tick().containing(now));
        let room = lane.room_from(start, n, &layout);
        match refusal {
            Refusal::GateClosed => panic!("the gate is open"),
            Refusal::NotDurable(_) => panic!("nothing is durable here"),
            Refusal::LeaseEnded => panic!("there is no registry"),
            Refusal::BeforeEpoch(by) => {
                assert!(latest < 0, "tick 0 could be had");
                assert_eq!(by, -now);
            }
            Refusal::Exhausted => {
                assert!(room > layout.max_tick(), "tick {room} of {} could be had", layout.max_tick());
            }
            Refusal::NoLane(no_lane) => {
                self.config.workers.owner(no_lane.worker).expect("a worker of this server");
                for lane in self.others().into_iter().filter(|lane| !self.lanes[*lane].is_passed) {
                    let fresh = self.lanes[lane].first_free();
                    assert!(fresh > latest, "lane {lane} could issue in tick {fresh}");
                }
                assert!(room > latest, "the active lane could issue in tick {room}");
                assert!(no_lane.usable_at_us > *reads.last().unwrap(), "usable since {no_lane:?}");
                // The refusal must be true: at that time there is an ID, unless it would be in the very last tick.
                let end = layout.starts_at(layout.max_tick());
                if no_lane.usable_at_us + self.limits.max_ahead_us < end {
                    self.world.step(no_lane.usable_at_us - self.world.wall());
                    self.refusals_are_over(generator, n);
                }
            }
        }
    }

    /// Checks that a call meets exactly the refusal that `obstacle` returned.
    fn foretold_call(&mut self, generator: &Gen) {
        self.world.steps_in_waits.take();
        self.world.stalled.set(false);
        let foretold = generator.obstacle();
        let (layout, wall) = (self.config.layout, self.world.wall());
        let lane = &self.lanes[self.active];
        let room = self.missing(lane.room_from(lane.last.max(layout.tick_at(wall)), 1, &layout), wall);
        let is_near = room <= self.tick_us().max(self.limits.max_wait_us);
        let refusals = self.refusals;
        self.call(generator, 1, true);
        let is_refused = self.refusals > refusals;
        if let Some(refusal) = foretold {
            assert!(is_refused, "no ID was foretold: {refusal:?}");
        } else if self.limits.policy == Policy::Hold && is_near {
            // Only an attempt shows whether a replay finds room, or whether a longer wait ends among full ticks.
            let is_refused = is_refused && self.last_refusal != Some(Refusal::Exhausted);
            assert!(!is_refused, "an ID was foretold");
        }
    }

    fn refusals_are_over(&mut self, generator: &Gen, n: i64) {
        self.world.steps_in_waits.take();
        self.world.stalled.set(false);
        let refusals = self.refusals;
        self.call(generator, n, true);
        let is_over = self.refusals == refusals || self.last_refusal == Some(Refusal::Exhausted);
        assert!(is_over, "refused at the time when a lane should be usable");
    }

    fn check_counts(&mut self, generator: &Gen) {
        let status = generator.status();
        self.world.observe();
        let observer = self.world.observer.get();
        assert_eq!(status.steps.rollbacks, observer.rollbacks - self.stats_since.rollbacks);
        assert_eq!(status.steps.forward_jumps, observer.forward_jumps - self.stats_since.forward_jumps);
        if self.stats_since.rollbacks == 0 {
            assert_eq!(status.steps.largest_rollback_us, observer.largest);
        }
        assert_eq!(status.counts.refusals, self.refusals);
        let issued: u64 = self.lanes.iter().map(|lane| lane.issued).sum();
        assert_eq!(status.issued, issued - self.resets_before, "issued");
        let statuses = generator.lane_statuses();
        assert_eq!(statuses.iter().map(|lane| lane.issued).sum::<u64>(), status.issued);
        for (lane, model) in statuses.iter().zip(&self.lanes) {
            if self.resets_before == 0 {
                assert_eq!(lane.issued, model.issued, "issued in lane {}", lane.lane);
            }
            assert_eq!(lane.active, lane.lane == self.active);
        }
        self.see_marks(generator);
    }

    fn see_marks(&mut self, generator: &Gen) {
        for (lane, model) in generator.lane_statuses().iter().zip(&mut self.lanes) {
            let mark = self.config.layout.tick_at(lane.mark_us.expect("a mark"));
            assert!(mark >= model.mark.max(model.highest()), "the mark of lane {}", lane.lane);
            model.mark = mark;
        }
    }

    fn reload(&mut self, generator: &Gen, limits: Limits) {
        // Other tests have a `max_ahead` that changes.
        let limits = Limits { max_ahead_us: self.config.limits.max_ahead_us, ..limits };
        generator.set_limits(limits);
        self.limits = generator.limits();
        let most = self.config.ring_ticks as i64 / 4 * self.tick_us();
        assert_eq!(self.limits, Limits { max_ahead_us: limits.max_ahead_us.min(most), ..limits });
    }

    fn run(&mut self, callers: &[Gen], op: Op) {
        let first = &callers[0];
        match op {
            Op::Calls(who, shares) => {
                for share in shares {
                    let n = (first.capacity() * share as i64 / 100).max(1);
                    let undisturbed = self.world.steps_in_waits.borrow().is_empty();
                    self.call(&callers[who % callers.len()], n, undisturbed);
                }
            }
            Op::ForetoldCall => self.foretold_call(first),
            Op::Pass(micros) => self.world.pass(micros),
            Op::Step(micros) => {
                self.steps_undone += micros;
                self.world.step(micros);
            }
            Op::SetRight => self.world.step(-std::mem::take(&mut self.steps_undone)),
            Op::StepInWaits(steps) => *self.world.steps_in_waits.borrow_mut() = steps.into(),
            Op::Stall(stalled) => self.world.stalled.set(stalled),
            Op::Reload(limits) => self.reload(first, limits),
            Op::RotateNow => {
                self.world.observe();
                first.status();
                let is_known = !self.lanes.iter().any(|lane| lane.is_passed);
                match first.rotate_now() {
                    Ok(worker) => {
                        let lane = self.config.workers.owner(worker).unwrap().1;
                        let expected = self.next_lane(self.world.wall());
                        assert!(expected == Some(lane) || !is_known, "lane {lane}, not {expected:?}");
                        self.lanes[lane].last = first.current_tick();
                        assert_eq!(first.status().lane, lane);
                        self.rotations += 1;
                        (self.active, self.current_tick) = (lane, None);
                    }
                    Err(Refusal::NoLane(_)) => {
                        let expected = self.next_lane(self.world.wall());
                        assert!(expected.is_none() || !is_known, "{expected:?} could be used");
                    }
                    // No lane has a tick left.
                    Err(Refusal::Exhausted) => {}
                    Err(refusal) => panic!("{refusal:?}"),
                }
            }
            Op::Open(timeline) => {
                match self.timeline {
                    0 => open_gate(&self.config, first, timeline),
                    _ => first.open(&start_on(timeline)).unwrap(),
                }
                self.world.observe();
                // The gate opens once; a later start finds it open.
                if self.timeline == 0 {
                    self.timeline = timeline;
                    self.active = first.status().lane;
                    assert_eq!(self.active, (timeline as usize - 1) % self.config.workers.lanes());
                }
            }
            Op::ResetStats => {
                first.status();
                self.world.observe();
                first.reset_stats();
                let observer = self.world.observer.get();
                self.stats_since =
                    Observed { rollbacks: observer.rollbacks, forward_jumps: observer.forward_jumps };
                self.resets_before = self.lanes.iter().map(|lane| lane.issued).sum();
                (self.rotations, self.refusals) = (0, 0);
            }
        }
        assert_eq!(first.status().counts.rotations, self.rotations);
        self.see_marks(first);
        self.world.observe();
    }
}

/// Three callers; the clock starts `start` ticks after the epoch. The gate opens only within the layout's time.
fn keeps_the_guarantees(config: Config, start: i64, ops: Vec<Op>) {
    let inside = start.clamp(0, config.layout.max_tick());
    let begins_at = config.layout.starts_at(inside);
    let outside_us = (start - inside) * config.layout.tick().micros();
    let [closed] = generators(&config, Machine::starting_at(begins_at + outside_us));
    let opened = closed.open(&start_on(1));
    assert_eq!(matches!(opened, Err(NotOpen::Clock(_))), outside_us != 0, "{opened:?}");
    let world = Machine::starting_at(config.layout.starts_at(inside.max(1)));
    let callers: [Gen; 3] = generators(&config, world);
    let mut model = Model::new(config, world);
    assert!(callers[0].next_id().is_err(), "the gate is closed");
    model.refusals = callers[0].status().counts.refusals;
    model.reload(&callers[0], config.limits);
    model.run(&callers, Op::Open(1));
    model.run(&callers, Op::Step(outside_us));
    for op in ops {
        model.run(&callers, op);
    }
}

proptest! {
    #![proptest_config(cases(3_000))]

    /// One call after another, by any caller: guarantees 1, 4, 5 and 6, exact counts, correct refusals.
    #[test]
    fn any_run_of_calls_keeps_the_guarantees((config, start, ops) in runs()) {
        keeps_the_guarantees(config, start, ops);
    }
}

// Runs that the property has found. In each of them the property was wrong, and was corrected.

fn replaying(bits: Bits, backups: usize, ring_ticks: usize, max_ahead_us: i64, max_wait_us: i64) -> Config {
    let layout = Layout::new(bits, Tick::Second, 0).unwrap();
    Config {
        layout,
        workers: Workers::new(&layout, 0, backups).unwrap(),
        ring_ticks,
        limits: limits(Policy::Replay, max_ahead_us, max_wait_us),
        ..default_config()
    }
}

const WIDE: Bits = Bits { time: 42, datacenter: 0, worker: 4, sequence: 7 };

/// A replay comes to a tick in which the caller had IDs before the clock went back.
#[test]
fn a_replay_to_what_a_caller_has_had_keeps_the_guarantees() {
    let ops = vec![
        Op::Calls(1, vec![0, 100, 0, 0]),
        Op::Step(-8_370_013),
        Op::ForetoldCall,
        Op::Pass(8_320_070),
        Op::Calls(2, vec![0]),
        Op::Calls(1, vec![0]),
        Op::Calls(2, vec![98]),
        Op::Calls(1, vec![0]),
    ];
    keeps_the_guarantees(replaying(WIDE, 8, 64, 1_147_652, 1_265_158), 1_000_000, ops);
}

/// A refused call has tried to replay a tick further back than the ring reaches, and so has gone on from the later tick
/// in its slot. Earlier ticks cannot be had any more.
#[test]
fn a_replay_that_goes_behind_the_ring_keeps_the_guarantees() {
    let ops = vec![
        Op::Calls(0, vec![0]),
        Op::Step(100 * SECOND),
        Op::Calls(0, vec![0]),
        Op::Step(-110 * SECOND),
        Op::Calls(1, vec![0]),
        Op::Step(-146 * SECOND),
        Op::Calls(0, vec![0]),
    ];
    keeps_the_guarantees(replaying(WIDE, 0, 256, 10 * SECOND, 0), 1_000_000, ops);
}

/// The same, if the later tick is the very last: nothing is left.
#[test]
fn a_replay_that_goes_behind_the_ring_at_the_end_of_time_keeps_the_guarantees() {
    let bits = Bits { time: 6, datacenter: 0, worker: 2, sequence: 0 };
    let ops = vec![
        Op::Step(5_575_156),
        Op::Calls(0, vec![0; 11]),
        Op::Stall(true),
        Op::SetRight,
        Op::Calls(0, vec![0; 4]),
        Op::Step(-12_900_000),
        Op::Pass(600),
        Op::Calls(0, vec![0]),
        Op::ForetoldCall,
        Op::StepInWaits(vec![-17_475_445]),
        Op::Calls(0, vec![0; 4]),
        Op::SetRight,
        Op::Calls(0, vec![0]),
    ];
    keeps_the_guarantees(replaying(bits, 0, 32, 10 * SECOND, 0), 48, ops);
}
