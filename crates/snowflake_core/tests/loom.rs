//! Models: every interleaving of a few calls, by loom. To run them:
//!
//! ```text
//! cargo test --profile quick -p snowflake_core --features loom --test loom
//! ```
//!
//! Most models explore every schedule. Those with several replays and three threads are limited to a few preemptions,
//! because without a bound they take minutes to hours. `LOOM_MAX_PREEMPTIONS` sets another bound.

#[path = "core/simulation/basics.rs"]
mod basics;

use std::sync::{Mutex, OnceLock};

use basics::{Memory, NoDisk, default_config, start_on};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use loom::thread;
use snowflake_core::lock_api::{GuardSend, RawMutex};
use snowflake_core::{
    Answer, Config, Disk, Effect, Event, Generator, Horizon, Layout, Lease, Limits, NotOpen, Platform,
};
use snowflake_core::{Policy, Refusal, SequenceStart, Slot, Slots, Tick, WorkerSource, Workers};
use uuid::Uuid;

/// loom's atomics cannot be created in a constant, so the flag is created at its first use, inside the model.
struct SpinLock(OnceLock<AtomicBool>);

impl SpinLock {
    fn flag(&self) -> &AtomicBool {
        self.0.get_or_init(|| AtomicBool::new(false))
    }
}

#[allow(unsafe_code, reason = "a RawMutex is unsafe to implement")]
// SAFETY: the thread that moved the flag from false to true holds the lock until the flag is false again.
unsafe impl RawMutex for SpinLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "lock_api wants it so")]
    const INIT: Self = Self(OnceLock::new());
    type GuardMarker = GuardSend;

    fn lock(&self) {
        while !self.try_lock() {
            thread::yield_now();
        }
    }

    fn try_lock(&self) -> bool {
        self.flag().compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    unsafe fn unlock(&self) {
        self.flag().store(false, Ordering::Release);
    }
}

/// A tick has this many microseconds.
const MS: i64 = 1_000;
/// Tick 0 of the models, in ticks of the layout: the server was started for the first time 2 s before, with marks a
/// second above that.
const BEGIN: i64 = 2_000;

/// A shared clock whose steps interleave with the calls. Waiting moves it on.
struct Clock {
    wall: AtomicI64,
}

/// One thread's view of the clock, and the latest time that it returned to the thread.
struct Eye {
    clock: Arc<Clock>,
    told: Mutex<i64>,
    waited: Mutex<i64>,
}

impl Platform for Eye {
    fn wall_us(&self) -> i64 {
        let wall = self.clock.wall.load(Ordering::Acquire);
        let mut told = self.told.lock().unwrap();
        *told = wall.max(*told);
        wall
    }

    fn boot_us(&self) -> i64 {
        *self.waited.lock().unwrap()
    }

    fn wait(&self, micros: i64) {
        *self.waited.lock().unwrap() += micros;
        self.clock.wall.fetch_add(micros, Ordering::AcqRel);
        thread::yield_now();
    }

    fn report(&self, _event: Event) {}

    fn disk(&self) -> &dyn Disk {
        &NoDisk
    }
}

/// A memory and its clock.
struct World {
    config: Config,
    memory: Memory<SpinLock>,
    clock: Arc<Clock>,
}

impl World {
    /// 2 lanes, a ring of `ring` ticks with 2^`sequence` IDs each, and the clock at tick `start`.
    fn new(sequence: u32, ring: usize, start: i64, limits: Limits) -> Arc<Self> {
        let world = Self::closed(sequence, ring, limits, WorkerSource::Configured);
        world.open();
        world.step_to(start);
        // The first reservation, which is no part of any model.
        world.with(|generator| generator.run_keeper()).unwrap();
        world
    }

    /// The same in a fleet, under this lease.
    fn leased(ring: usize, start: i64, limits: Limits, lease: Lease) -> Arc<Self> {
        let world = Self::closed(2, ring, limits, WorkerSource::Registry);
        world.with(|generator| generator.load_node(&start_on(1)).unwrap());
        world.step_to(start);
        world.grant(lease);
        world.open();
        world
    }

    /// Opens the gate, and moves the clock by hand: loom prefers threads that have yielded less often, so a wait here
    /// would leave no preemptions for the thread that waited.
    fn open(&self) {
        self.with(|generator| {
            while let Err(why) = generator.open(&start_on(1)) {
                let NotOpen::Settling(micros) = why else { panic!("{why:?}") };
                self.clock.wall.fetch_add(micros, Ordering::AcqRel);
            }
        });
    }

    /// The registry grants another lease.
    fn grant(&self, lease: Lease) {
        self.with(|generator| {
            let contact = generator.contact().unwrap().unwrap();
            let lease = Lease { floor: BEGIN + lease.floor, until: BEGIN + lease.until, ..lease };
            let answer = Answer::Granted { registry: Uuid::nil(), lease };
            assert_eq!(generator.answered(&contact, answer), Ok(Effect::Leased));
        });
    }

    fn closed(sequence: u32, ring: usize, limits: Limits, source: WorkerSource) -> Arc<Self> {
        let bits = format!("20/2/{sequence}").parse().unwrap();
        let layout = Layout::new(bits, Tick::Millisecond, 0).unwrap();
        let workers = Workers::new(&layout, 0, 1).unwrap();
        // Fields of fewer than 7 bits begin at 0 all the same.
        let sequence_start = SequenceStart::Spread;
        let config =
            Config { layout, workers, source, sequence_start, ring_ticks: ring, limits, ..default_config() };
        let clock = Arc::new(Clock { wall: AtomicI64::new(0) });
        Arc::new(Self { config, memory: Memory::new(&config), clock })
    }

    fn with<T>(&self, act: impl FnOnce(&Generator<'_, Eye, SpinLock>) -> T) -> T {
        let (told, waited) = (Mutex::new(i64::MIN), Mutex::new(0));
        let eye = Eye { clock: self.clock.clone(), told, waited };
        act(&Generator::new(&self.config, self.memory.view(), eye))
    }

    fn step_to(&self, tick: i64) {
        self.clock.wall.store((BEGIN + tick) * MS, Ordering::Release);
    }

    /// One call by a caller of its own; checks guarantee 4.
    fn call(&self) -> Result<i64, Refusal> {
        self.with(|generator| {
            let id = generator.next_id()?;
            let told = *generator.platform().told.lock().unwrap();
            let begins = (BEGIN + self.tick(id)) * MS;
            assert!(begins <= told + generator.limits().max_ahead_us, "guarantee 4: {begins} at {told}");
            Ok(id)
        })
    }

    fn id(&self) -> i64 {
        self.call().expect("an ID")
    }

    fn range(&self, n: i64) -> Vec<i64> {
        let range = self.with(|generator| generator.next_range(n)).expect("a range");
        (range.first..=range.last).collect()
    }

    fn tick(&self, id: i64) -> i64 {
        self.config.layout.unpack(id).unwrap().tick - BEGIN
    }

    fn worker(&self, id: i64) -> i64 {
        self.config.layout.unpack(id).unwrap().worker
    }

    /// At the end: each ID is unique and counted once, and the number of rotations is in the range.
    fn check(&self, mut ids: Vec<i64>, rotations: std::ops::RangeInclusive<u64>) {
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count, "guarantee 1");
        self.with(|generator| {
            let status = generator.status();
            assert_eq!(status.issued, count as u64);
            assert!(rotations.contains(&status.counts.rotations), "{} rotations", status.counts.rotations);
            for lane in generator.lane_statuses() {
                let of_lane = ids.iter().filter(|id| self.worker(**id) == lane.worker).count();
                assert_eq!(lane.issued, of_lane as u64);
            }
        });
    }
}

fn limits(policy: Policy, max_ahead: i64) -> Limits {
    Limits { policy, max_ahead_us: max_ahead * MS, max_wait_us: 0 }
}

/// Explores a model; with a bound, only schedules with at most that many preemptions.
fn model(preemptions: Option<usize>, act: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
    builder.max_branches = 20_000;
    builder.check(act);
}

/// Runs `theirs` in a thread of its own beside `ours`.
fn beside<S: Send + Sync + 'static, T: 'static, U>(
    world: &Arc<S>,
    theirs: impl FnOnce(&S) -> T + 'static,
    ours: impl FnOnce(&S) -> U,
) -> (T, U) {
    let shared = world.clone();
    let thread = thread::spawn(move || theirs(&shared));
    let ours = ours(world);
    (thread.join().unwrap(), ours)
}

fn pair(world: &World) -> Vec<i64> {
    let ids = vec![world.id(), world.id()];
    assert!(ids[0] < ids[1], "guarantee 5 within one caller");
    ids
}

#[test]
fn two_calls_in_one_tick() {
    model(None, || {
        let world = World::new(2, 4, 8, limits(Policy::Hold, 1));
        let (theirs, ours) = beside(&world, pair, pair);
        world.check([theirs, ours].concat(), 0..=0);
    });
}

/// They fill the tick, or the loser goes on to the next; with 7 bits, its sequence may begin at 1.
#[test]
fn two_ranges_in_one_tick() {
    for (sequence, sizes) in [(2, [2, 2]), (2, [2, 3]), (7, [3, 126])] {
        model(None, move || {
            let world = World::new(sequence, 4, 8, limits(Policy::Hold, 1));
            let (theirs, ours) =
                beside(&world, move |world| world.range(sizes[0]), |world| world.range(sizes[1]));
            assert_eq!([theirs.len(), ours.len()].map(|n| n as i64), sizes);
            world.check([theirs, ours].concat(), 0..=0);
        });
    }
}

/// With one ID per tick, the loser goes on to the next tick, which max_ahead allows.
#[test]
fn two_calls_that_fill_their_tick() {
    model(None, || {
        let world = World::new(0, 8, 8, limits(Policy::Hold, 2));
        let (theirs, ours) = beside(&world, |world| world.id(), pair);
        let later = world.id();
        assert!(ours.iter().chain([&theirs]).all(|id| *id < later), "guarantee 5");
        world.check([ours, vec![theirs, later]].concat(), 0..=0);
    });
}

/// The clock goes on by a whole ring between two calls, so each entry is evicted and its ID counted.
#[test]
fn two_calls_that_evict_a_ring() {
    model(None, || {
        let world = World::new(1, 2, 8, limits(Policy::Hold, 0));
        let first = world.id();
        let theirs = |world: &World| {
            world.step_to(10);
            world.id()
        };
        let (theirs, ours) = beside(&world, theirs, pair);
        // A caller may see the clock from before the step, even if it has seen a later current tick.
        world.check([ours, vec![first, theirs]].concat(), 0..=1);
    });
}

/// The later tick wins the current tick, in whatever order the calls raise it: a step within max_ahead is held.
#[test]
fn a_raise_of_the_current_tick_undoes_no_other() {
    model(None, || {
        let world = World::new(2, 8, 8, limits(Policy::Hold, 2));
        let theirs = |world: &World| {
            world.step_to(9);
            let first = world.id();
            world.step_to(8);
            let second = world.id();
            assert!(first < second, "guarantee 5: {first} before {second}");
            vec![first, second]
        };
        let (theirs, ours) = beside(&world, theirs, |world| world.id());
        let later = world.id();
        assert!(theirs.iter().all(|id| *id < later) && ours < later, "guarantee 5");
        world.check([theirs, vec![ours, later]].concat(), 0..=0);
    });
}

/// One caller sees a step back while another issues: one rotation, and the new lane is not pushed ahead.
#[test]
fn a_call_beside_a_rotation() {
    model(None, || {
        let world = World::new(2, 8, 100, limits(Policy::Hold, 2));
        let first = world.id();
        let theirs = |world: &World| {
            world.step_to(20);
            world.id()
        };
        let (theirs, ours) = beside(&world, theirs, |world| world.id());
        let later = world.id();
        assert_eq!(world.worker(later), 2, "lane 1");
        assert_eq!(world.tick(later), 20);
        world.check(vec![first, theirs, ours, later], 1..=1);
    });
}

#[test]
fn two_rotations_at_once() {
    model(None, || {
        let world = World::new(1, 8, 100, limits(Policy::Hold, 2));
        let first = world.id();
        world.step_to(20);
        let (theirs, ours) = beside(&world, |world| world.id(), |world| world.id());
        assert_eq!((world.worker(theirs), world.worker(ours)), (2, 2));
        world.check(vec![first, theirs, ours], 1..=1);
    });
}

/// A requested rotation beside a step back: both may rotate. With two lanes the second finds none usable or comes back.
/// IDs stay unique and nobody hangs.
#[test]
fn a_rotation_by_hand_beside_a_call() {
    model(None, || {
        let world = World::new(1, 8, 20, limits(Policy::Hold, 2));
        let first = world.id();
        let by_hand = |world: &World| world.with(|generator| generator.rotate_now()).expect("lane 1");
        let (worker, ours) = beside(&world, by_hand, |world| world.id());
        let later = world.id();
        assert_eq!((worker, world.worker(later)), (2, 2));
        world.check(vec![first, ours, later], 1..=1);
    });
}

/// Replay lowers the current tick while another call raises it: nobody spins, nothing is issued twice.
#[test]
fn a_call_beside_a_replay() {
    model(None, || {
        let world = World::new(2, 8, 8, limits(Policy::Replay, 0));
        let first = world.id();
        let theirs = |world: &World| {
            world.step_to(5);
            world.id()
        };
        let (theirs, ours) = beside(&world, theirs, |world| world.id());
        let later = world.id();
        assert_eq!(world.tick(later), 5, "the current tick is where the clock is");
        world.check(vec![first, theirs, ours, later], 0..=0);
    });
}

#[test]
fn two_replays_at_once() {
    model(None, || {
        let world = World::new(2, 8, 8, limits(Policy::Replay, 0));
        let first = world.id();
        world.step_to(4);
        let (theirs, ours) = beside(&world, |world| world.id(), |world| world.id());
        assert_eq!((world.tick(theirs), world.tick(ours)), (4, 4));
        let slots = Slots { running: &[], prepared: &[] };
        let horizon = world.with(|generator| generator.horizon(slots, |_, _| false, |_| false)).unwrap();
        assert_eq!(horizon.breaks % MS, 2, "the start, and one replay");
        world.check(vec![first, theirs, ours, horizon.id], 0..=0);
    });
}

/// An adopt raises the marks between a replay's decision and its execution: afterwards nothing is issued below the
/// floor.
#[test]
fn a_replay_beside_an_adopt() {
    model(Some(3), || {
        let world = World::new(2, 8, 8, limits(Policy::Replay, 0));
        let first = world.id();
        world.step_to(4);
        let theirs = |world: &World| {
            world.with(|generator| generator.adopt(&start_on(1), (BEGIN + 5) * MS)).unwrap();
            let refused = world.call();
            assert!(refused.is_err(), "an ID of tick {} below the floor", world.tick(refused.unwrap()));
            world.step_to(6);
            world.id()
        };
        let (theirs, ours) = beside(&world, theirs, |world| world.call().ok());
        assert_eq!(world.tick(theirs), 6);
        // The clock may reach 6 after our call has decided to rotate; then the other lane is usable.
        world.check([first, theirs].into_iter().chain(ours).collect(), 0..=1);
    });
}

/// The clock is corrected while a call is about to replay: the replay must not go below IDs that others have generated
/// since.
#[test]
fn a_replay_that_comes_too_late() {
    model(Some(4), || {
        let world = World::new(2, 8, 8, limits(Policy::Replay, 1));
        let first = world.id();
        world.step_to(5);
        let theirs = |world: &World| {
            world.step_to(9);
            let ids = pair(world);
            world.step_to(8);
            // The clock is only so far back that hold absorbs it, so if nobody replays, order holds.
            let third = world.id();
            (ids, third)
        };
        let ((mut ids, third), ours) = beside(&world, theirs, |world| world.id());
        if world.tick(ours) >= 8 {
            assert!(ids[1] < third, "guarantee 5: {} before {third}", ids[1]);
        }
        ids.extend([first, third, ours]);
        world.check(ids, 0..=0);
    });
}

/// A third caller beside two that see the step; one of the two has read the clock before it.
#[test]
fn three_callers_and_a_step() {
    model(Some(2), || {
        let world = World::new(2, 8, 100, limits(Policy::Hold, 2));
        let first = world.id();
        let stepper = |world: &World| {
            world.step_to(20);
            world.id()
        };
        let third = world.clone();
        let third = thread::spawn(move || third.id());
        let (theirs, ours) = beside(&world, stepper, |world| world.id());
        let third = third.join().unwrap();
        let later = world.id();
        assert_eq!((world.worker(later), world.tick(later)), (2, 20));
        world.check(vec![first, theirs, ours, third, later], 1..=1);
    });
}

/// A second replay goes further back than the ring reaches, where entries belong to later ticks, while another call
/// issues.
#[test]
fn a_replay_behind_the_ring_beside_a_call() {
    model(Some(4), || {
        let world = World::new(1, 4, 8, limits(Policy::Replay, 0));
        let mut ids = vec![world.id()];
        world.step_to(6);
        ids.push(world.id());
        world.step_to(4);
        let (theirs, ours) = beside(&world, |world| world.call(), |world| world.call());
        ids.extend(theirs);
        ids.extend(ours);
        world.check(ids, 0..=1);
    });
}

/// Of these leases, each of its own group or the later above the end of the earlier, the one that allows this ID.
fn check_lease(world: &World, id: i64, leases: &[Lease]) {
    let (tick, home) = (world.tick(id), world.worker(id) % 2);
    let allows = |lease: &Lease| lease.home == home && tick > lease.floor && tick <= lease.until;
    assert!(leases.iter().any(allows), "worker {home}, tick {tick}: not of {leases:?}");
}

/// A call that sleeps between any two reads while its lease ends and another begins generates what one of them allows.
#[test]
fn a_call_beside_a_change_of_lease() {
    const LEASES: [Lease; 2] = [Lease { home: 0, floor: 2, until: 5 }, Lease { home: 1, floor: 5, until: 9 }];
    model(Some(3), || {
        let world = World::leased(8, 4, limits(Policy::Hold, 3), LEASES[0]);
        let first = world.id();
        let (ours, theirs) = beside(
            &world,
            |world| world.call(),
            |world| {
                world.grant(LEASES[1]);
                world.open();
                world.id()
            },
        );
        let ids: Vec<i64> = [first, theirs].into_iter().chain(ours).collect();
        ids.iter().for_each(|id| check_lease(&world, *id, &LEASES));
        let count = ids.len();
        assert_eq!(std::collections::BTreeSet::from_iter(ids).len(), count, "guarantee 1");
    });
}

/// The same while the clock steps back: a replay that was decided under the one lease must not lead below the floor of
/// the other.
#[test]
fn a_replay_beside_a_change_of_lease() {
    const LEASES: [Lease; 2] =
        [Lease { home: 0, floor: 0, until: 9 }, Lease { home: 1, floor: 5, until: 12 }];
    model(Some(2), || {
        let world = World::leased(8, 8, limits(Policy::Replay, 0), LEASES[0]);
        let first = world.id();
        world.step_to(4);
        let (ours, theirs) = beside(
            &world,
            |world| world.call().ok(),
            |world| {
                world.grant(LEASES[1]);
                world.step_to(6);
                world.open();
                world.call().ok()
            },
        );
        for id in [Some(first), ours, theirs].into_iter().flatten() {
            check_lease(&world, id, &LEASES);
        }
    });
}

/// Two callers evict the entries of one lane; the total is exact once both are done.
#[test]
fn the_eviction_count() {
    model(None, || {
        let world = World::new(1, 2, 8, limits(Policy::Hold, 0));
        let mut ids = vec![];
        for tick in [8, 8, 9] {
            world.step_to(tick);
            ids.push(world.id());
        }
        world.step_to(12);
        let theirs = |world: &World| {
            let first = world.id();
            world.step_to(15);
            [first, world.id()]
        };
        let (theirs, ours) = beside(&world, theirs, |world| world.id());
        ids.extend(theirs);
        ids.push(ours);
        world.check(ids, 0..=0);
    });
}

// ---- the horizon ----

/// Transactions that announce themselves, as PostgreSQL has them: each runs under its name until it ends, and a
/// snapshot shows what has ended. Reading what runs takes no lock, ending and taking a snapshot do.
struct Sessions {
    world: Arc<World>,
    running: [Slot; 2],
    prepared: [Slot; 2],
    /// The name of each session's transaction; 0 while it has none.
    names: [AtomicI64; 2],
    /// Whether the prepared transaction of this name is in progress.
    in_progress: [AtomicBool; 2],
    /// The IDs of transactions that have ended.
    visible: loom::sync::Mutex<Vec<i64>>,
}

/// The name of a session's only transaction, and the one under which it is prepared.
const NAMES: [u64; 2] = [7, 8];

impl Sessions {
    fn new(world: Arc<World>) -> Arc<Self> {
        Arc::new(Self {
            world,
            running: [Slot::default(), Slot::default()],
            prepared: [Slot::default(), Slot::default()],
            names: NAMES.map(|name| AtomicI64::new(name as i64)),
            in_progress: [AtomicBool::new(false), AtomicBool::new(false)],
            visible: loom::sync::Mutex::new(vec![]),
        })
    }

    fn slots(&self) -> Slots<'_> {
        Slots { running: &self.running, prepared: &self.prepared }
    }

    /// One ID of a session's transaction, by a call that announces the transaction if none has before.
    fn draw(&self, session: usize) -> Option<i64> {
        self.world.with(|generator| {
            generator.announce(&self.running[session], NAMES[session]);
            generator.next_id().ok()
        })
    }

    /// The transaction ends, and its IDs become visible: for snapshots at one moment.
    fn commit(&self, session: usize, ids: &[i64]) {
        let mut visible = self.visible.lock().unwrap();
        visible.extend(ids);
        self.names[session].store(0, Ordering::Relaxed);
    }

    fn prepare(&self, session: usize) {
        let name = NAMES[session] + 100;
        self.in_progress[session].store(true, Ordering::Relaxed);
        let is_prepared = |name: u64| self.is_prepared(name);
        assert!(self.slots().prepare(&self.running[session], NAMES[session], name, is_prepared));
        let _changes = self.visible.lock().unwrap();
        self.names[session].store(0, Ordering::Relaxed);
    }

    fn commit_prepared(&self, session: usize, ids: &[i64]) {
        let mut visible = self.visible.lock().unwrap();
        visible.extend(ids);
        self.in_progress[session].store(false, Ordering::Relaxed);
    }

    fn is_prepared(&self, name: u64) -> bool {
        NAMES
            .iter()
            .position(|of| of + 100 == name)
            .is_some_and(|i| self.in_progress[i].load(Ordering::Relaxed))
    }

    fn horizon(&self) -> Horizon {
        let is_running =
            |session: usize, name: u64| self.names[session].load(Ordering::Relaxed) == name as i64;
        let horizon = |generator: &Generator<'_, Eye, SpinLock>| {
            generator.horizon(self.slots(), is_running, |name| self.is_prepared(name))
        };
        self.world.with(horizon).expect("an open gate")
    }

    /// A reader: the horizon, then a snapshot.
    fn read(&self) -> (Horizon, Vec<i64>) {
        let horizon = self.horizon();
        (horizon, self.visible.lock().unwrap().clone())
    }

    /// The promise: what a reader did not see below its horizon does not exist, or a break says how far to go back.
    fn check(&self, (horizon, seen): (Horizon, Vec<i64>), ids: &[i64]) {
        let later = self.horizon();
        for id in ids.iter().filter(|id| **id < horizon.id && !seen.contains(id)) {
            let is_announced = later.breaks != horizon.breaks && later.since <= *id;
            assert!(is_announced, "{id} appears below {horizon:?}; later {later:?}");
        }
        // The start is the first break.
        let passes = ids.iter().all(|id| *id < later.id);
        assert!(passes || later.breaks > 1, "{later:?} does not pass {ids:?}");
    }
}

/// A transaction of two IDs beside a reader, in a tick that other calls have used before.
#[test]
fn a_transaction_beside_a_reader() {
    model(None, || {
        let sessions = Sessions::new(World::new(2, 8, 8, limits(Policy::Hold, 1)));
        sessions.world.id();
        let writer = |sessions: &Sessions| {
            let ids = [sessions.draw(0), sessions.draw(0)].map(|id| id.expect("an ID"));
            sessions.commit(0, &ids);
            ids
        };
        let (ids, read) = beside(&sessions, writer, Sessions::read);
        sessions.check(read, &ids);
    });
}

/// The clock goes on meanwhile, so that the two IDs have a tick each.
#[test]
fn a_transaction_beside_a_reader_in_the_next_tick() {
    model(None, || {
        let sessions = Sessions::new(World::new(2, 8, 8, limits(Policy::Hold, 1)));
        let writer = |sessions: &Sessions| {
            let first = sessions.draw(0).expect("an ID");
            sessions.commit(0, &[first]);
            first
        };
        let reader = |sessions: &Sessions| {
            sessions.world.step_to(9);
            sessions.read()
        };
        let (id, read) = beside(&sessions, writer, reader);
        sessions.check(read, &[id]);
    });
}

/// A transaction that goes on generating IDs keeps the horizon where its first one is.
#[test]
fn a_long_transaction_beside_a_reader() {
    model(None, || {
        let sessions = Sessions::new(World::new(2, 8, 8, limits(Policy::Hold, 1)));
        let first = sessions.draw(0).expect("an ID");
        let writer = |sessions: &Sessions| sessions.draw(0).expect("an ID");
        let (second, (horizon, seen)) = beside(&sessions, writer, Sessions::read);
        assert!(horizon.id <= first, "{horizon:?} is past {first}");
        sessions.commit(0, &[first, second]);
        sessions.check((horizon, seen), &[first, second]);
    });
}

/// It is prepared while the reader looks, and ends later.
#[test]
fn a_prepared_transaction_beside_a_reader() {
    model(None, || {
        let sessions = Sessions::new(World::new(2, 8, 8, limits(Policy::Hold, 1)));
        let first = sessions.draw(0).expect("an ID");
        let ((), (horizon, seen)) = beside(&sessions, |sessions| sessions.prepare(0), Sessions::read);
        assert!(horizon.id <= first, "{horizon:?} is past {first}");
        sessions.commit_prepared(0, &[first]);
        sessions.check((horizon, seen), &[first]);
    });
}

/// The clock steps back far, and a transaction that began before it goes on on another lane.
#[test]
fn a_rotation_beside_a_reader() {
    model(Some(3), || {
        let sessions = Sessions::new(World::new(2, 8, 100, limits(Policy::Hold, 2)));
        let writer = |sessions: &Sessions| {
            let first = sessions.draw(0).expect("an ID");
            sessions.world.step_to(20);
            let ids = [first, sessions.draw(0).expect("an ID")];
            sessions.commit(0, &ids);
            ids
        };
        let (ids, read) = beside(&sessions, writer, Sessions::read);
        sessions.check(read, &ids);
    });
}

/// A transaction that begins while another process rotates.
#[test]
fn a_transaction_that_begins_beside_a_rotation() {
    model(Some(3), || {
        let sessions = Sessions::new(World::new(2, 8, 100, limits(Policy::Hold, 2)));
        let earlier = sessions.world.id();
        sessions.world.step_to(20);
        let writer = |sessions: &Sessions| sessions.draw(0).expect("an ID");
        let rotating = |sessions: &Sessions| {
            sessions.world.id();
            sessions.read()
        };
        let (id, read) = beside(&sessions, writer, rotating);
        // It still runs, so the horizon is not past its ID, wherever that lies.
        let now = sessions.read();
        assert!(now.0.id <= id, "{:?} is past {id}, which comes after {earlier}", now.0);
        sessions.commit(0, &[id]);
        sessions.check(read, &[id]);
        sessions.check(now, &[id]);
    });
}

/// The clock steps back, and calls follow it.
#[test]
fn a_replay_beside_a_reader() {
    model(Some(3), || {
        let sessions = Sessions::new(World::new(2, 8, 8, limits(Policy::Replay, 0)));
        let writer = |sessions: &Sessions| {
            let first = sessions.draw(0).expect("an ID");
            sessions.world.step_to(5);
            let ids = [first, sessions.draw(0).expect("an ID")];
            sessions.commit(0, &ids);
            ids
        };
        let (ids, read) = beside(&sessions, writer, Sessions::read);
        sessions.check(read, &ids);
    });
}
