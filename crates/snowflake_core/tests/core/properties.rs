//! Properties over arbitrary layouts, clocks, limits and interleavings. `PROPTEST_CASES` sets the number of cases.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use crate::common::{Gen, When, World, generators, locks_held};
use proptest::prelude::*;
use snowflake_core::layout::parse_epoch;
use snowflake_core::{Bits, Config, Event, Generator, Host, Layout, LayoutError, Memory, Parts, Policy};
use snowflake_core::{Limits, Range, Refusal, SequenceStart, Start, Tick, Unopened, Workers};

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
const YEAR: i64 = 365 * DAY;
/// A waiting call looks at the clock at least this often, so it may overshoot by as much.
const NAP: i64 = 50_000;

/// `default` cases, or as many as `PROPTEST_CASES` says.
fn cases(default: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(default), failure_persistence: None, ..ProptestConfig::default() }
}

// ---- What the properties range over ----

fn ticks() -> impl Strategy<Value = Tick> {
    prop_oneof![Just(Tick::Millisecond), Just(Tick::Centisecond), Just(Tick::Second)]
}

fn widest_time(tick: Tick) -> u32 {
    match tick {
        Tick::Millisecond => 52,
        Tick::Centisecond => 48,
        Tick::Second => 42,
    }
}

/// Any valid layout.
fn layouts() -> impl Strategy<Value = Layout> {
    let widths = (1..=52_u32, 0..=31_u32, 0..=31_u32, 0..=31_u32);
    (ticks(), widths, -200 * YEAR..200 * YEAR).prop_map(
        |(tick, (time, datacenter, worker, sequence), epoch)| {
            let time = time.min(widest_time(tick));
            let datacenter = datacenter.min(63 - time);
            let worker = worker.min(63 - time - datacenter);
            let sequence = sequence.min(63 - time - datacenter - worker);
            Layout::new(Bits { time, datacenter, worker, sequence }, tick, epoch).unwrap()
        },
    )
}

fn policies() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Hold), Just(Policy::Replay)]
}

fn sequence_starts() -> impl Strategy<Value = SequenceStart> {
    prop_oneof![Just(SequenceStart::Zero), Just(SequenceStart::Spread)]
}

/// Limits of a few ticks, because `max_ahead` is clamped to a quarter of the ring anyway.
fn limits(tick: Tick) -> impl Strategy<Value = Limits> {
    let tick = tick.micros();
    let ahead = prop_oneof![Just(0), 0..=3 * tick, Just(10 * tick), 0..3 * SECOND];
    let wait = prop_oneof![Just(0), 0..=3 * tick, 0..=20 * tick];
    (policies(), ahead, wait).prop_map(|(policy, max_ahead_us, max_wait_us)| Limits {
        policy,
        max_ahead_us,
        max_wait_us,
    })
}

/// A configuration with which ticks fill, rings wrap, lanes run out and time fields end within a short run.
fn configs() -> impl Strategy<Value = Config> {
    let sizes = (0..=15_usize, 0..=3_u32, 0..=2_u32, prop_oneof![0..=3_u32, Just(7), Just(9)]);
    let times = prop_oneof![2..=10_u32, 41..=52_u32];
    let epochs = prop_oneof![Just(0), Just(1_704_067_200 * SECOND), -100 * YEAR..100 * YEAR];
    let rings = prop_oneof![1..=4_u32, 5..=8_u32].prop_map(|bits| 1_usize << bits);
    (ticks(), sizes, times, epochs, rings, sequence_starts(), any::<(u8, u8)>())
        .prop_flat_map(|(tick, (backups, spare, datacenter, sequence), time, epoch_us, ring, start, any)| {
            let worker = (backups + 1).next_power_of_two().ilog2() + spare;
            let time = time.min(widest_time(tick)).min(63 - worker - datacenter - sequence);
            let bits = Bits { time, datacenter, worker, sequence };
            let layout = Layout::new(bits, tick, epoch_us).unwrap();
            let stride = layout.workers() / (backups as i64 + 1);
            let workers = Workers::new(&layout, any.0 as i64 % stride, backups).unwrap();
            let datacenter = any.1 as i64 % layout.datacenters();
            limits(tick).prop_map(move |limits| Config {
                layout,
                datacenter,
                workers,
                sequence_start: start,
                ring_ticks: ring,
                limits,
                ..Config::default()
            })
        })
        .no_shrink()
}

/// How much time passes, or how far a clock is stepped: nothing, part of a tick, some ticks, up to years.
fn amounts(tick: i64) -> impl Strategy<Value = i64> {
    prop_oneof![
        2 => 1..=tick,
        4 => 1..=20 * tick,
        2 => 1..=400 * tick,
        1 => Just(600),
        1 => 1..=10 * SECOND,
        1 => 1..=2 * DAY,
        1 => 1..=5 * YEAR,
    ]
}

#[derive(Clone, Debug)]
enum Op {
    /// Calls of one caller; how many IDs each takes, as a percentage of the capacity (0: one).
    Calls(usize, Vec<u8>),
    /// Asks `obstacle`, and then calls.
    ForetoldCall,
    Pass(i64),
    Step(i64),
    /// Corrects the clock: undoes all steps so far.
    SetRight,
    /// Steps that happen while a call waits.
    StepInWaits(Vec<i64>),
    Stall(bool),
    Reload(Limits),
    RotateNow,
    Open(u32),
    ResetStats,
}

fn ops(tick: Tick) -> impl Strategy<Value = Op> {
    let us = tick.micros();
    let share = prop_oneof![6 => Just(0_u8), 2 => 1..=100_u8, 1 => Just(100)];
    let signed =
        |amount: BoxedStrategy<i64>| (amount, any::<bool>()).prop_map(|(a, back)| if back { -a } else { a });
    prop_oneof![
        12 => (0..3_usize, prop::collection::vec(share, 1..20)).prop_map(|(who, n)| Op::Calls(who, n)),
        3 => Just(Op::ForetoldCall),
        5 => amounts(us).prop_map(Op::Pass),
        5 => signed(amounts(us).boxed()).prop_map(Op::Step),
        2 => Just(Op::SetRight),
        1 => prop::collection::vec(signed((0..30 * us).boxed()), 1..4).prop_map(Op::StepInWaits),
        1 => any::<bool>().prop_map(Op::Stall),
        1 => limits(tick).prop_map(Op::Reload),
        1 => Just(Op::RotateNow),
        1 => (1..6_u32).prop_map(Op::Open),
        1 => Just(Op::ResetStats),
    ]
}

/// A configuration, where the clock starts (ticks after the epoch), and the operations.
fn runs() -> impl Strategy<Value = (Config, i64, Vec<Op>)> {
    configs().prop_flat_map(|config| {
        let max = config.layout.max_tick();
        let tick = config.layout.tick();
        let starts = prop_oneof![-5..=5_i64, 0..=max.min(1 << 40), (max - 20).max(0)..=max + 5];
        (Just(config), starts, prop::collection::vec(ops(tick), 1..60))
    })
}

// ---- A model of what was issued, independent of words and swaps ----

#[derive(Default)]
struct LaneModel {
    /// Tick -> the last sequence issued in it.
    used: BTreeMap<i64, i64>,
    issued: u64,
    /// The tick of the last ID, or the one to which a rotation has raised the frontier since.
    last: i64,
    /// A call of several rotations may have entered the lane and left it again, at a reading of the clock that is not known.
    is_passed: bool,
    /// Ring slot -> the latest tick that used it; an earlier one cannot be had any more.
    slots: HashMap<i64, i64>,
    ring: i64,
}

impl LaneModel {
    fn new(config: &Config) -> Self {
        Self { ring: config.ring_ticks as i64, ..Self::default() }
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
        self.last.max(self.highest() + 1)
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
    world: &'static World,
    lanes: Vec<LaneModel>,
    limits: Limits,
    timeline: u32,
    active: usize,
    rotations: u64,
    /// The last ID of the active lane since the last rotation; `None` while the frontier is not known.
    frontier: Option<Range>,
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
    fn new(config: Config, world: &'static World) -> Self {
        let lanes = (0..config.workers.lanes()).map(|_| LaneModel::new(&config)).collect();
        Self {
            config,
            world,
            lanes,
            limits: config.limits,
            timeline: 0,
            active: 0,
            rotations: 0,
            frontier: None,
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
        let latest = self.config.layout.tick().holding(now + self.limits.max_ahead_us);
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
        let start = lane.last.max(layout.tick().holding(now));
        let latest = layout.tick().holding(now + self.limits.max_ahead_us);
        self.missing(lane.room_from(start, n, &layout).min(start.max(latest + 1)), wall)
    }

    /// The highest possible frontier of the active lane: a refused call may have gone on to ticks that a replay had
    /// left.
    fn farthest_frontier(&self) -> i64 {
        let lane = &self.lanes[self.active];
        if self.frontier.is_some() { lane.last } else { lane.last.max(lane.highest()) }
    }

    fn call(&mut self, generator: &Gen, n: i64, undisturbed: bool) {
        self.world.reads.borrow_mut().clear();
        let rotations = generator.status().rotations;
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
        let rotated = status.rotations - rotations;
        self.rotations += rotated;

        self.check_wait(waited, undisturbed);
        if waited > 0 && undisturbed {
            self.check_turn(n, &reads);
        }
        self.check_rotations(rotated, n, &reads, undisturbed);
        let active = status.lane;
        if rotated > 0 {
            assert!(self.others().contains(&active) || !undisturbed, "lane {active} was left");
            self.frontier = None;
            for (index, lane) in self.lanes.iter_mut().enumerate() {
                lane.is_passed = index != active && (lane.is_passed || rotated > 1);
            }
            self.lanes[active].last = generator.frontier();
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
                    self.frontier = None;
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

        // Guarantee 5. Replay may go back, but only if the frontier could not be used.
        if let Some(before) = self.frontier
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
        self.frontier = Some(range);
    }

    fn check_wait(&self, waited: i64, undisturbed: bool) {
        // Replay moves the frontier, and then a call's patience starts over.
        let turns = if self.limits.policy == Policy::Replay { 2 } else { 1 };
        let bound = turns * (self.limits.max_wait_us + self.tick_us() + self.tick_us().min(NAP));
        assert!(waited <= bound || !undisturbed, "waited {waited} us of at most {bound}");
    }

    /// A call waits only for ticks that guarantee 4 forbids.
    fn check_turn(&self, n: i64, reads: &[i64]) {
        let lane = &self.lanes[self.active];
        if self.farthest_frontier() > lane.last {
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
        if self.frontier.is_none() {
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
        assert!(!(replays && in_ring && has_room && now >= 0), "a rotation where replay helps");
    }

    fn check_refusal(&mut self, generator: &Gen, refusal: Refusal, n: i64, reads: &[i64]) {
        let layout = self.config.layout;
        let now = layout.relative(*reads.last().unwrap());
        let latest = layout.tick().holding(now + self.limits.max_ahead_us);
        let lane = &self.lanes[self.active];
        let start = self.farthest_frontier().max(layout.tick().holding(now));
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
                    self.world.step(no_lane.usable_at_us - self.world.wall.get());
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
        let (layout, wall) = (self.config.layout, self.world.wall.get());
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

    fn check_counts(&self, generator: &Gen) {
        let status = generator.status();
        self.world.observe();
        let observer = self.world.observer.get();
        assert_eq!(status.rollbacks, observer.rollbacks - self.stats_since.rollbacks);
        assert_eq!(status.forward_jumps, observer.forward_jumps - self.stats_since.forward_jumps);
        if self.stats_since.rollbacks == 0 {
            assert_eq!(status.largest_rollback_us, observer.largest);
        }
        assert_eq!(status.refusals, self.refusals);
        let issued: u64 = self.lanes.iter().map(|lane| lane.issued).sum();
        assert_eq!(status.issued, issued - self.resets_before, "issued");
        let statuses = generator.lane_statuses();
        assert_eq!(statuses.iter().map(|lane| lane.issued).sum::<u64>(), status.issued);
        for (lane, model) in statuses.iter().zip(&self.lanes) {
            if self.resets_before == 0 {
                assert_eq!(lane.issued, model.issued, "issued in lane {}", lane.lane);
            }
            let mark = lane.mark_us.map_or(-1, |mark| self.config.layout.tick_at(mark));
            assert_eq!(mark, model.highest(), "the mark of lane {}", lane.lane);
            assert_eq!(lane.active, lane.lane == self.active);
        }
    }

    fn reload(&mut self, generator: &Gen, limits: Limits) {
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
                        let expected = self.next_lane(self.world.wall.get());
                        assert!(expected == Some(lane) || !is_known, "lane {lane}, not {expected:?}");
                        self.lanes[lane].last = first.frontier();
                        assert_eq!(first.status().lane, lane);
                        self.rotations += 1;
                        (self.active, self.frontier) = (lane, None);
                    }
                    Err(Refusal::NoLane(_)) => {
                        let expected = self.next_lane(self.world.wall.get());
                        assert!(expected.is_none() || !is_known, "{expected:?} could be used");
                    }
                    // No lane has a tick left.
                    Err(Refusal::Exhausted) => {}
                    Err(refusal) => panic!("{refusal:?}"),
                }
            }
            Op::Open(timeline) => {
                first.open(&Start::of_timeline(timeline)).unwrap();
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
        assert_eq!(first.status().rotations, self.rotations);
        self.world.observe();
    }
}

/// Three callers; the clock starts `start` ticks after the epoch. The gate opens only within the layout's time.
fn keeps_the_guarantees(config: Config, start: i64, ops: Vec<Op>) {
    let inside = start.clamp(0, config.layout.max_tick());
    let begins_at = config.layout.starts_at(inside);
    let outside_us = (start - inside) * config.layout.tick().micros();
    let [closed] = generators(&config, World::starting_at(begins_at + outside_us));
    let opened = closed.open(&Start::of_timeline(1));
    assert_eq!(matches!(opened, Err(Unopened::Clock(_))), outside_us != 0, "{opened:?}");
    let world = World::starting_at(begins_at);
    let callers: [Gen; 3] = generators(&config, world);
    let mut model = Model::new(config, world);
    assert!(callers[0].next_id().is_err(), "the gate is closed");
    model.refusals = callers[0].status().refusals;
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
        limits: Limits { policy: Policy::Replay, max_ahead_us, max_wait_us },
        ..Config::default()
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

// ---- Calls that others interrupt ----

/// The action of another caller while a call looks at the clock.
#[derive(Clone, Debug)]
struct Intrusion {
    read: usize,
    before: bool,
    op: Intruder,
}

#[derive(Clone, Debug)]
enum Intruder {
    Calls(usize),
    Step(i64),
    StepAndCall(i64),
    RotateNow,
}

fn intrusions(us: i64) -> impl Strategy<Value = Vec<Intrusion>> {
    let step = || prop_oneof![-30 * us..30 * us, -5 * us..5 * us];
    let op = prop_oneof![
        3 => (1..8_usize).prop_map(Intruder::Calls),
        2 => step().prop_map(Intruder::Step),
        3 => step().prop_map(Intruder::StepAndCall),
        1 => Just(Intruder::RotateNow),
    ];
    let one = (1..6_usize, any::<bool>(), op).prop_map(|(read, before, op)| Intrusion { read, before, op });
    prop::collection::vec(one, 0..4)
}

/// A call that returned: its IDs, and when it began and ended, in a count of such moments.
#[derive(Clone, Copy, Debug)]
struct Made {
    began: u64,
    ended: u64,
    rotations: (u64, u64),
    range: Range,
}

/// Calls within calls: a world, the callers that may intervene, and everything that they generated.
struct Nested {
    world: &'static World,
    config: Config,
    callers: [Gen; 2],
    moment: std::cell::Cell<u64>,
    made: RefCell<Vec<Made>>,
}

impl Nested {
    fn moment(&self) -> u64 {
        self.moment.set(self.moment.get() + 1);
        self.moment.get()
    }

    fn call(&self, who: usize, n: i64) {
        let caller = &self.callers[who];
        let (began, before) = (self.moment(), caller.status().rotations);
        let first_read = self.world.reads.borrow().len();
        let result = caller.next_range(n);
        let highest = self.world.reads.borrow()[first_read..].iter().copied().max();
        let (ended, after) = (self.moment(), caller.status().rotations);
        let Ok(range) = result else { return };
        let layout = self.config.layout;
        let begins = layout.starts_at(layout.unpack(range.first).unwrap().tick);
        let ahead = caller.limits().max_ahead_us;
        assert!(begins <= highest.unwrap() + ahead, "guarantee 4");
        self.made.borrow_mut().push(Made { began, ended, rotations: (before, after), range });
    }

    fn intrude(&self, op: &Intruder) {
        if locks_held() > 0 {
            return;
        }
        match op {
            Intruder::Calls(n) => (0..*n).for_each(|_| self.call(1, 1)),
            Intruder::Step(us) => self.world.step(*us),
            Intruder::StepAndCall(us) => {
                self.world.step(*us);
                self.call(1, 1);
            }
            Intruder::RotateNow => drop(self.callers[1].rotate_now()),
        }
    }

    fn check(&self) {
        let mut made = self.made.take();
        check_unique(made.iter().map(|made| made.range).collect());
        let count: i64 = made.iter().map(|made| made.range.last - made.range.first + 1).sum();
        let status = self.callers[0].status();
        assert_eq!(status.issued, count as u64);
        if self.config.limits.policy == Policy::Replay {
            return;
        }
        made.sort_by_key(|made| made.began);
        for (at, x) in made.iter().enumerate() {
            for y in &made[at + 1..] {
                if x.ended < y.began && x.rotations.0 == y.rotations.1 {
                    assert!(x.range.last < y.range.first, "guarantee 5: {x:?} and {y:?}");
                }
            }
        }
    }
}

fn check_unique(mut ranges: Vec<Range>) {
    ranges.sort_unstable_by_key(|range| range.first);
    for pair in ranges.windows(2) {
        assert!(pair[0].last < pair[1].first, "guarantee 1: {pair:?}");
    }
}

/// An interrupted call, and what happens after it.
type Interrupted = (u8, Vec<Intrusion>, i64, bool);

fn interrupted_runs() -> impl Strategy<Value = (Config, Vec<Interrupted>)> {
    configs().prop_flat_map(|config| {
        let us = config.layout.tick().micros();
        let after = prop_oneof![0..3 * us, 0..40 * us];
        let call = (prop_oneof![Just(0_u8), 0..=100_u8], intrusions(us), after, any::<bool>());
        (Just(config), prop::collection::vec(call, 1..30))
    })
}

proptest! {
    #![proptest_config(cases(1_500))]

    /// Others intervene at any look at the clock: guarantees 1, 4 and 5, and exact counts.
    #[test]
    fn any_interrupted_calls_keep_the_guarantees((config, calls) in interrupted_runs()) {
        let middle = config.layout.max_tick().min(1 << 40) / 2;
        let world = World::starting_at(config.layout.starts_at(middle));
        let nested: &'static Nested = Box::leak(Box::new(Nested {
            world,
            config,
            callers: generators(&config, world),
            moment: Default::default(),
            made: Default::default(),
        }));
        nested.callers[0].open(&Start::of_timeline(1)).unwrap();
        for (share, intrusions, pass, back) in calls {
            for Intrusion { read, before, op } in intrusions {
                let when = if before { When::BeforeRead } else { When::AfterRead };
                world.interrupt(read, when, move || nested.intrude(&op));
            }
            let n = (nested.callers[0].capacity() * share as i64 / 100).max(1);
            nested.call(0, n);
            if back { world.step(-pass) } else { world.pass(pass) }
        }
        nested.check();
    }
}

// ---- Threads under a moving clock ----

/// A clock that all threads share. Each thread records what it read.
struct Shared {
    wall: AtomicI64,
    boot: AtomicI64,
}

thread_local! {
    static TOLD: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) };
}

impl Host for &Shared {
    fn wall_us(&self) -> i64 {
        let wall = self.wall.load(Ordering::SeqCst);
        TOLD.with_borrow_mut(|told| told.push(wall));
        wall
    }

    fn boot_us(&self) -> i64 {
        self.boot.load(Ordering::SeqCst)
    }

    fn wait(&self, micros: i64) {
        assert_eq!(locks_held(), 0, "guarantee 6: a wait under a lock");
        self.boot.fetch_add(micros, Ordering::SeqCst);
        self.wall.fetch_add(micros, Ordering::SeqCst);
        std::thread::yield_now();
    }

    fn report(&self, event: Event) {
        assert_eq!(locks_held(), 0, "a report under a lock: {event:?}");
    }
}

proptest! {
    #![proptest_config(cases(400))]

    /// Real threads, tiny rings and sequences, a clock that jumps about: guarantees 1 and 4, and exact counts.
    #[test]
    fn any_threads_under_any_clock_keep_the_guarantees(
        config in configs(),
        threads in 2..=4_usize,
        moves in prop::collection::vec((-40..40_i64, any::<bool>()), 1..40),
        share in 0..=100_i64,
    ) {
        let us = config.layout.tick().micros();
        let middle = config.layout.starts_at(config.layout.max_tick().min(1 << 40) / 2);
        let clock = Shared { wall: AtomicI64::new(middle), boot: AtomicI64::new(5) };
        let memory = Memory::<crate::common::Tracked>::new(&config);
        let generators: Vec<_> =
            (0..threads).map(|_| Generator::new(&config, memory.view(), &clock)).collect();
        generators[0].open(&Start::of_timeline(1)).unwrap();
        let barrier = Barrier::new(threads + 1);
        let is_over = AtomicBool::new(false);
        let max_ahead = generators[0].limits().max_ahead_us;
        let all = std::thread::scope(|scope| {
            let (clock, barrier, is_over) = (&clock, &barrier, &is_over);
            let calls = generators.iter().map(|generator| {
                scope.spawn(move || {
                    let mut made = vec![];
                    barrier.wait();
                    for call in 0..200 {
                        let n = if call % 3 == 0 { generator.capacity() * share / 100 } else { 1 };
                        TOLD.with_borrow_mut(Vec::clear);
                        let Ok(range) = generator.next_range(n.max(1)) else { continue };
                        let told = TOLD.with_borrow(|told| told.iter().copied().max()).unwrap();
                        let tick = config.layout.unpack(range.first).unwrap().tick;
                        assert!(config.layout.starts_at(tick) <= told + max_ahead, "guarantee 4");
                        made.push(range);
                    }
                    made
                })
            });
            let calls: Vec<_> = calls.collect();
            scope.spawn(move || {
                barrier.wait();
                for (ticks, is_time) in moves.iter().cycle() {
                    clock.wall.fetch_add(ticks * us, Ordering::SeqCst);
                    if *is_time {
                        clock.boot.fetch_add(ticks.abs() * us, Ordering::SeqCst);
                    }
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    std::thread::yield_now();
                }
            });
            let made: Vec<_> = calls.into_iter().map(|call| call.join()).collect();
            is_over.store(true, Ordering::Relaxed);
            made.into_iter().flat_map(|made| made.expect("a caller failed")).collect::<Vec<_>>()
        });
        let count: i64 = all.iter().map(|range| range.last - range.first + 1).sum();
        let mut per_lane = HashMap::<i64, u64>::new();
        for range in &all {
            let worker = config.layout.unpack(range.first).unwrap().worker;
            *per_lane.entry(worker).or_default() += (range.last - range.first + 1) as u64;
        }
        check_unique(all);
        assert_eq!(generators[0].status().issued, count as u64);
        for lane in generators[0].lane_statuses() {
            assert_eq!(lane.issued, per_lane.get(&lane.worker).copied().unwrap_or(0), "lane {}", lane.lane);
        }
    }
}

// ---- Layouts, bits, epochs ----

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn what_is_packed_is_unpacked(layout in layouts(), seeds in any::<[u64; 4]>()) {
        let of = |seed: u64, most: i64| (seed % (most as u64 + 1)) as i64;
        let parts = Parts {
            tick: of(seeds[0], layout.max_tick()),
            datacenter: of(seeds[1], layout.datacenters() - 1),
            worker: of(seeds[2], layout.workers() - 1),
            sequence: of(seeds[3], layout.sequences() - 1),
        };
        let id = layout.pack(parts).unwrap();
        assert!(id >= 0);
        assert_eq!(layout.unpack(id), Some(parts));
        assert_eq!(layout.tick_at(layout.starts_at(parts.tick)), parts.tick);
        assert_eq!(layout.tick_at(layout.starts_at(parts.tick) - 1), parts.tick - 1);

        let later = Parts { tick: parts.tick + 1, datacenter: 0, worker: 0, sequence: 0 };
        match layout.pack(later) {
            Some(later) => assert!(later > id, "a later tick is a greater ID"),
            None => assert_eq!(parts.tick, layout.max_tick()),
        }
        for outside in [
            Parts { tick: layout.max_tick() + 1, ..parts },
            Parts { datacenter: layout.datacenters(), ..parts },
            Parts { worker: layout.workers(), ..parts },
            Parts { sequence: layout.sequences(), ..parts },
            Parts { tick: -1, ..parts },
            Parts { sequence: -1, ..parts },
        ] {
            assert_eq!(layout.pack(outside), None, "{outside:?}");
        }
    }

    #[test]
    fn any_bigint_is_an_id_or_not_but_never_two(layout in layouts(), id in any::<i64>()) {
        match layout.unpack(id) {
            Some(parts) => assert_eq!(layout.pack(parts), Some(id)),
            None => {
                let Bits { time, datacenter, worker, sequence } = layout.bits();
                let width = time + datacenter + worker + sequence;
                assert!(id < 0 || id >> width.min(62) > 0 || width == 63);
            }
        }
    }

    #[test]
    fn bits_are_read_as_they_are_shown(widths in any::<[u32; 4]>()) {
        let [time, datacenter, worker, sequence] = widths;
        let bits = Bits { time, datacenter, worker, sequence };
        assert_eq!(bits.to_string().parse(), Ok(bits));
    }

    #[test]
    fn a_layout_is_accepted_exactly_when_it_adds_up(
        tick in ticks(),
        widths in prop_oneof![any::<[u32; 4]>(), prop::array::uniform4(0..40_u32)],
    ) {
        let [time, datacenter, worker, sequence] = widths;
        let bits = Bits { time, datacenter, worker, sequence };
        let sum = widths.into_iter().map(u64::from).sum::<u64>();
        let adds_up = sum <= 63 && (1..=widest_time(tick)).contains(&time);
        let fits = [datacenter, worker, sequence].into_iter().all(|width| width <= 31);
        assert_eq!(Layout::new(bits, tick, 0).is_ok(), adds_up && fits);
    }
}

#[test]
fn bad_layouts_are_refused_with_what_is_wrong() {
    let new = |text: &str, tick| text.parse().and_then(|bits| Layout::new(bits, tick, 0)).unwrap_err();
    let ms = |text| new(text, Tick::Millisecond);
    for text in ["", "41", "41/10", "41/10/12/1", "41/+5/12", "41/5+/12", "-1/10/12", "a/b/c", "41/1+2+3/4"] {
        assert_eq!(ms(text), LayoutError::Unreadable(text.to_owned()));
    }
    assert_eq!(ms("42/10/12"), LayoutError::TooWide(64));
    assert_eq!(ms("41/5+6/12"), LayoutError::TooWide(64));
    assert_eq!(ms("4294967295/1/1"), LayoutError::TooWide(u32::MAX));
    assert_eq!(ms("0/10/12"), LayoutError::NoTime);
    assert_eq!(ms("53/5/5"), LayoutError::TimeTooWide(53, 52));
    assert_eq!(new("49/5/5", Tick::Centisecond), LayoutError::TimeTooWide(49, 48));
    assert_eq!(new("43/5/5", Tick::Second), LayoutError::TimeTooWide(43, 42));
    assert_eq!(ms("20/0/32"), LayoutError::FieldTooWide("sequence", 32));
    assert_eq!(ms("20/32/0"), LayoutError::FieldTooWide("worker", 32));
    assert_eq!(ms("20/32+0/0"), LayoutError::FieldTooWide("datacenter", 32));
    assert_eq!(Tick::from_millis(10), Some(Tick::Centisecond));
    assert!([0, 2, 100, -1].into_iter().all(|millis| Tick::from_millis(millis).is_none()));
}

#[test]
fn an_epoch_is_a_moment_whoever_reads_it() {
    let good = [
        ("2024-01-01T00:00:00Z", 1_704_067_200 * SECOND),
        ("  2024-01-01 00:00:00Z ", 1_704_067_200 * SECOND),
        ("2024-01-01T00:00:00+00:00", 1_704_067_200 * SECOND),
        ("2024-01-01T05:30:00+05:30", 1_704_067_200 * SECOND),
        ("2023-12-31 19:00:00-05", 1_704_067_200 * SECOND),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1969-12-31T23:59:59.999999Z", -1),
    ];
    for (text, micros) in good {
        assert_eq!(parse_epoch(text), Ok(micros), "{text}");
    }
    let bad = [
        "",
        "now",
        "today",
        "epoch",
        "infinity",
        "2024-01-01",
        "2024-01-01T00:00:00",
        "2024-01-01 00:00:00 Europe/Berlin",
        "2024-01-01T00:00:00[Europe/Berlin]",
        "2024-02-30T00:00:00Z",
        "2024-01-01T24:00:01Z",
        "1704067200",
        "2024-01-01T00:00:00Z x",
    ];
    for text in bad {
        assert!(parse_epoch(text).is_err(), "{text}: {:?}", parse_epoch(text));
    }
}
