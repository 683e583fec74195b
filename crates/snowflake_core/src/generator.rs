//! The generator: [`Generator::attempt`] is the hot path, [`Generator::cold`] everything else.
//!
//! ```text
//! start: lane = the active lane, then now = the wall clock, then last = that lane's: in this order
//! tick = max(tick of now, last)                                 long after last: look at the clock first
//! again:
//!   tick <= now + max_ahead and tick <= the lane's ceiling     else the cold path
//!   claim in the ledger:  won        raise last to tick, return
//!                         full       tick + 1, again
//!                         overtaken  start over; a second time: raise last to the later tick, cold path
//! ```
//!
//! The hot path keeps off the last tick that `max_ahead` allows: see [`Rules::freely_ahead_us`].
//!
//! The order of the reads matters: with the clock read before the lane, a call that straddles a rotation
//! could push the new lane ahead by a clock that is gone, and cost a second lane.

use crate::ladder::{self, Refusal, Rules, Sight, Step};
use crate::lanes::{Gate, Lanes, MAX_LANES, NoLane, Workers};
use crate::layout::Layout;
use crate::ledger::{Claim, Ledger, SequenceStart, Shape};
use crate::memory::{CLOSED, Control, LaneMemory, View};
use crate::state::{
    AdoptError, Choice, Closed, Disk, Errno, FileIdentity, Floor, FloorCause, Loaded, Opening, Promises,
    Reading, Start, WriteError,
};
use crate::sync::{AtomicU64, Hint, Ordering};
use parking_lot::lock_api::RawMutex;
use std::iter::zip;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A forward step of the wall clock by more than this is reported: it is what makes the next correction
/// a step back.
const FORWARD_JUMP_US: i64 = 60_000_000;
/// An ID this much later than the one before it makes the generator look at the clock: either nobody came
/// for one meanwhile, or the clock was stepped forward, and a later step back is measured from there.
const UNEXPECTED_US: i64 = 1_000_000;
/// Two clocks cannot be read at once: a smaller difference is not taken for a step.
const CLOCK_NOISE_US: i64 = 500;
/// A wait looks at the clock again at least this often: somebody may have set it right.
const LONGEST_NAP_US: i64 = 50_000;
/// After a failure to open the gate or to write the state, the next attempt comes no sooner than this.
const RETRY_US: i64 = 1_000_000;
/// A write that takes longer than this does not move the next reservation any further ahead.
const SLOWEST_WRITE_US: i64 = 30_000_000;
/// A start waits for the clock to come within `max_ahead` of the restored mark where that takes no longer
/// than the reservation, or this: a crash, or a first start, never uses up a lane.
const SETTLING_US: i64 = 1_000_000;
/// A first start waits by this much longer, so that its IDs are not ahead of the clock: the default `max_ahead`.
const FIRST_PATIENCE_US: i64 = 2_000_000;
/// A call for no more than this part of a tick is one for little: it may have of the spare tick at once.
const LITTLE: i64 = 64;
/// A call for more waits so often until it may, where others begin each tick before it.
const MOST_TURNS_MISSED: u32 = 8;
/// A call that waits for the keeper looks again after this long at first, then after twice as long each time...
const FIRST_LOOK_US: i64 = 200;
/// ...up to this.
const LAST_LOOK_US: i64 = 20_000;
/// A keeper that has not done in this time what it was asked for, with the lock free, is taken for stuck.
const KEEPER_PATIENCE_US: i64 = 1_000_000;
/// No offset between the clocks has been seen yet.
pub(crate) const OFFSET_UNKNOWN: i64 = i64::MIN;

/// What the generator needs from the world around it.
pub trait Host {
    /// The wall clock: Unix time in microseconds. It may say anything at any time.
    fn wall_us(&self) -> i64;
    /// A clock that only goes forward, also while the machine sleeps, in microseconds from anywhere.
    fn boot_us(&self) -> i64;
    /// Waits for about this long by the monotonic clock. May return early, and may unwind: no lock is
    /// held (rule 6).
    fn wait(&self, micros: i64);
    /// Asks the process that calls [`Generator::keep`] to do so at once; `false`: there is none, and the caller
    /// writes itself. A process within an fsync answers nobody, so calls leave it to the keeper.
    fn ask_keeper(&self) -> bool {
        false
    }
    /// Waits as [`wait`](Self::wait) does, for the keeper's write.
    fn wait_for_keeper(&self, micros: i64) {
        self.wait(micros);
    }
    /// Something that an operator wants to know. No lock is held.
    fn report(&self, event: Event);
    /// Where marks are kept. Without one nothing is promised beyond the memory's life.
    fn disk(&self) -> Option<&dyn Disk> {
        None
    }
}

/// What a [`Host`] is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The wall clock was stepped forward by this many microseconds, more than a minute.
    ForwardJump(i64),
    /// IDs come from another worker now.
    Rotated {
        /// The worker that was left.
        from: i64,
        /// The worker that is active now.
        to: i64,
        /// How far the wall clock was behind the last ID, in microseconds; 0: no further than IDs may
        /// run ahead of it.
        behind_us: i64,
    },
    /// No lane can be used. Told once until an ID has been made again.
    Refused(NoLane),
    /// The state cannot be written. Told once until it can be written again.
    WriteFailed(Errno),
    /// The state can be written again.
    WriteRecovered,
    /// The gate was opened for a timeline, on a worker.
    Opened {
        /// The timeline.
        timeline: u32,
        /// The worker.
        worker: i64,
        /// Its lane, and the home worker of all lanes.
        lane: usize,
        /// See `lane`.
        home: i64,
        /// The earliest time that its IDs carry, as a Unix time in microseconds.
        first_us: i64,
        /// No state was found: marks start from the clock.
        is_first: bool,
    },
    /// An operator vouched that nobody made an ID above this Unix time in microseconds.
    Adopted {
        /// The time.
        floor_us: i64,
        /// Marks above it were lowered.
        lower: bool,
    },
}

/// Why the gate is not open yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOpen {
    /// It cannot be opened as things are.
    Closed(Closed),
    /// It will be once the clock has gone on by this many microseconds: IDs of the last run reach so far.
    Settling(i64),
    /// It will be once somebody comes who can read prepared transactions: see [`Prepared`](crate::Prepared).
    PreparedUnread,
}

/// The host of a plain process: the system's clock, and a thread's sleep.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemHost;

impl Host for SystemHost {
    fn wall_us(&self) -> i64 {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_micros() as i64,
            Err(before) => -(before.duration().as_micros() as i64),
        }
    }

    fn boot_us(&self) -> i64 {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_micros() as i64
    }

    fn wait(&self, micros: i64) {
        std::thread::sleep(Duration::from_micros(micros as u64));
    }

    fn report(&self, _event: Event) {}
}

/// What is fixed while a generator's memory lives.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bits, tick and epoch.
    pub layout: Layout,
    /// Datacenter of every ID; 0 where the layout has none.
    pub datacenter: i64,
    /// The workers that this generator owns.
    pub workers: Workers,
    /// Where the sequence of a tick starts.
    pub sequence_start: SequenceStart,
    /// Ticks that each lane's ring remembers: see [`ring_ticks`](Self::ring_ticks).
    pub ring_ticks: usize,
    /// The rules at the start.
    pub rules: Rules,
}

impl Default for Config {
    /// The default layout and rules; worker 0 with 7 backups.
    fn default() -> Self {
        let (layout, rules) = (Layout::default(), Rules::default());
        let workers = Workers::new(&layout, 0, 7).expect("128 home workers");
        let ring_ticks = Self::ring_ticks(&layout, &rules);
        Self { layout, datacenter: 0, workers, sequence_start: SequenceStart::Zero, ring_ticks, rules }
    }
}

impl Config {
    /// The ring that these rules need: a power of two of at least 16,384 ticks and 4 times `max_ahead`.
    pub fn ring_ticks(layout: &Layout, rules: &Rules) -> usize {
        let ahead = rules.max_ahead_us / layout.tick().micros();
        (4 * ahead as usize).max(16_384).next_power_of_two()
    }
}

/// Consecutive IDs from one tick of one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The lowest.
    pub first: i64,
    /// The highest.
    pub last: i64,
}

/// What an attempt has read, and the first tick that it tries.
struct Aim<'m, 'g> {
    index: usize,
    lane: &'g Lane<'m>,
    last: i64,
    tick: i64,
    /// The latest time, counted from the epoch, that an ID may carry (rule 4).
    latest_us: i64,
}

/// An attempt that found no tick to claim, and what it had read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked {
    n: i64,
    lane: usize,
    last: i64,
    tried: i64,
    wanted: i64,
}

/// On what terms an attempt is made.
#[derive(Clone, Copy)]
struct Terms {
    /// The clock was looked at, however long ago the last ID is.
    has_looked: bool,
    /// The spare tick may be used: see [`Rules::freely_ahead_us`].
    may_use_spare: bool,
}

impl Terms {
    const HOT: Self = Self { has_looked: false, may_use_spare: false };
}

enum Attempt {
    Won(Range),
    /// The last ID is long ago: [`Generator::observe_clock`] has to look at the clock before another is made.
    Late,
    Blocked(Blocked),
    /// The slot has gone to this later tick of the lane.
    Overtaken {
        lane: usize,
        by: i64,
    },
}

/// What is known about the generator now. Counters count since `since_us`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Status {
    pub open: bool,
    pub lane: usize,
    pub worker: i64,
    /// When the tick of the active lane's last ID began, as a Unix time in microseconds.
    pub last_id_at_us: Option<i64>,
    /// How far IDs run ahead of the wall clock.
    pub ahead_us: i64,
    /// How far the wall clock has yet to go to the epoch; 0 once it is there.
    pub before_epoch_us: i64,
    pub issued: u64,
    pub waits: u64,
    pub wait_us: u64,
    pub rollbacks: u64,
    pub largest_rollback_us: i64,
    pub forward_jumps: u64,
    pub rotations: u64,
    pub refusals: u64,
    pub since_us: i64,
    /// The end of the active lane's reservation, as a Unix time; `None` without one.
    pub reserved_until_us: Option<i64>,
    /// Why the state could not be written when that was last tried.
    pub write_error: Option<Errno>,
}

/// What is known about one lane now.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct LaneStatus {
    pub lane: usize,
    pub worker: i64,
    pub active: bool,
    pub in_half: bool,
    /// What the wall clock must say before the lane can issue, as a Unix time in microseconds; `None` while
    /// the gate is closed.
    pub usable_at_us: Option<i64>,
    /// The lane's mark: when the last tick that it may have used began, as a Unix time; `None`: never used.
    pub mark_us: Option<i64>,
    pub issued: u64,
}

/// Makes IDs. Any number of generators, in as many threads or processes, may share one memory; all of
/// them must have the same [`Config`].
pub struct Generator<'m, H, R: RawMutex> {
    layout: Layout,
    /// The layout's tick, which is slow to look up.
    tick_us: i64,
    workers: Workers,
    /// [`Lane::node`] of all lanes.
    nodes: [i64; MAX_LANES],
    shape: Shape,
    ring_ticks: usize,
    unexpected_ticks: i64,
    control: &'m Control<R>,
    lanes: Box<[Lane<'m>]>,
    host: H,
    /// The last ID that the cold path made here: of its tick the next call gets none, while that is spare.
    served: Hint,
}

/// One lane: its memory and its ring.
struct Lane<'m> {
    /// Datacenter and worker, as they stand in an ID.
    node: i64,
    memory: &'m LaneMemory,
    ledger: Ledger<'m>,
}

impl<'m, H: Host, R: RawMutex> Generator<'m, H, R> {
    /// A generator on this memory, which must have been made for this configuration.
    pub fn new(config: &Config, view: View<'m, R>, host: H) -> Self {
        let Config { layout, datacenter, workers, ring_ticks, .. } = *config;
        let View { control, lanes, slots } = view;
        assert_eq!(lanes.len(), workers.lanes(), "the memory has another number of lanes");
        assert_eq!(slots.len(), workers.lanes() * ring_ticks, "the memory has another ring");
        assert!((0..layout.datacenters()).contains(&datacenter), "the datacenter is outside its field");
        let shape = Shape::new(&layout, config.sequence_start);
        let nodes = std::array::from_fn(|lane| layout.node(datacenter, workers.worker(lane)));
        let lane = |(node, (memory, ring)): (i64, (&'m LaneMemory, &'m [AtomicU64]))| Lane {
            node,
            memory,
            ledger: Ledger::new(ring, &memory.evicted, shape),
        };
        Self {
            layout,
            tick_us: layout.tick().micros(),
            workers,
            nodes,
            shape,
            ring_ticks,
            unexpected_ticks: UNEXPECTED_US / layout.tick().micros(),
            control,
            lanes: zip(nodes, zip(lanes, slots.chunks_exact(ring_ticks))).map(lane).collect(),
            host,
            served: Hint::new(-1),
        }
    }

    /// What surrounds this generator.
    pub fn host(&self) -> &H {
        &self.host
    }

    /// The most IDs that [`next_range`](Self::next_range) can take at once.
    pub fn capacity(&self) -> i64 {
        self.shape.capacity()
    }

    /// Changes the rules for every generator on this memory. `max_ahead` is held to a quarter of the ring.
    pub fn set_rules(&self, rules: Rules) {
        self.control.switch.set_rules(&rules.held_to(self.ring_ticks, &self.layout), &self.layout);
    }

    /// Makes an ID.
    #[inline]
    pub fn next_id(&self) -> Result<i64, Refusal> {
        match self.attempt(1, Terms::HOT) {
            Attempt::Won(range) => Ok(range.first),
            otherwise => self.cold(1, otherwise).map(|range| range.first),
        }
    }

    /// Makes an ID if the hot path can, which asks nothing of the host but the wall clock; otherwise
    /// [`next_id`](Self::next_id) has to make it.
    #[inline]
    pub fn try_next_id(&self) -> Option<i64> {
        let aim = self.aim(Terms::HOT)?;
        match self.claim(aim.tick, 1, &aim)? {
            Attempt::Won(range) => Some(range.first),
            _ => None,
        }
    }

    /// Makes `n` IDs in a row from one tick; 1 <= n <= [`capacity`](Self::capacity), or it panics.
    pub fn next_range(&self, n: i64) -> Result<Range, Refusal> {
        assert!((1..=self.capacity()).contains(&n), "a range has 1 to {} IDs", self.capacity());
        match self.attempt(n, Terms::HOT) {
            Attempt::Won(range) => Ok(range),
            otherwise => self.cold(n, otherwise),
        }
    }

    /// One try at a number of IDs: no lock, no policy, no allocation, one clock read, and one compare-and-swap
    /// a tick.
    #[inline]
    fn attempt(&self, n: i64, terms: Terms) -> Attempt {
        let Some(aim) = self.aim(terms) else { return Attempt::Late };
        let mut tick = aim.tick;
        loop {
            if let Some(attempt) = self.claim(tick, n, &aim) {
                return attempt;
            }
            tick += 1;
        }
    }

    /// Reads lane, clock and last, in this order; `None`: the clock is to be looked at before an ID is made.
    #[inline(always)]
    fn aim(&self, terms: Terms) -> Option<Aim<'m, '_>> {
        let switch = &self.control.switch;
        let index = switch.active.load(Ordering::Acquire);
        let lane = &self.lanes[index];
        let now_us = self.layout.relative(self.host.wall_us());
        let last = lane.memory.last.load(Ordering::Acquire);

        // `last` is never negative: a clock before the epoch fails the first check of `claim`.
        let mut tick = last;
        // Most calls come in the tick of the one before: a comparison costs them less than a division.
        if now_us >= (last + 1) * self.tick_us {
            tick = self.layout.tick().holding(now_us);
            if tick - last > self.unexpected_ticks && !terms.has_looked {
                return None;
            }
        }
        let ahead_us = if terms.may_use_spare { switch.max_ahead_us() } else { switch.freely_ahead_us() };
        Some(Aim { index, lane, last, tick, latest_us: now_us + ahead_us })
    }

    /// Claims `n` IDs of this tick; `None`: it has not that many left.
    #[inline(always)]
    fn claim(&self, tick: i64, n: i64, aim: &Aim<'m, '_>) -> Option<Attempt> {
        let Aim { index, lane, last, .. } = *aim;
        // Rule 4, then the gate, rule 2 and the end of the time field.
        if tick * self.tick_us > aim.latest_us || tick > lane.memory.ceiling.load(Ordering::Acquire) {
            return Some(Attempt::Blocked(Blocked { n, lane: index, last, tried: aim.tick, wanted: tick }));
        }
        match lane.ledger.claim(tick, n) {
            Claim::Won { first } => {
                if last < tick {
                    lane.memory.last.fetch_max(tick, Ordering::AcqRel);
                }
                let first = self.layout.join(tick, lane.node, first);
                Some(Attempt::Won(Range { first, last: first + (n - 1) }))
            }
            Claim::Full => None,
            Claim::Overtaken(by) => Some(Attempt::Overtaken { lane: index, by }),
        }
    }

    /// Climbs the ladder until an attempt succeeds or nothing is left to try. Holds no lock while waiting.
    #[cold]
    fn cold(&self, n: i64, mut attempt: Attempt) -> Result<Range, Refusal> {
        let counters = &self.control.counters;
        let mut patience = Patience::default();
        let (mut terms, mut overtaken) = (Terms::HOT, false);
        loop {
            match attempt {
                Attempt::Won(range) => {
                    self.served.store(range.first, Ordering::Relaxed);
                    return Ok(range);
                }
                Attempt::Late => {
                    self.observe_clock();
                    terms.has_looked = true;
                }
                Attempt::Overtaken { lane, by } => {
                    // Once is a call that slept for a whole ring. Twice running is a replay that went
                    // behind the ring: with `last` where the words are, the ladder finds another way.
                    if overtaken {
                        self.lanes[lane].memory.last.fetch_max(by, Ordering::AcqRel);
                    }
                    overtaken = !overtaken;
                }
                Attempt::Blocked(blocked) => {
                    overtaken = false;
                    self.observe_clock();
                    match self.look(&blocked, &mut patience) {
                        Step::Again => {}
                        Step::Wait(micros) => self.wait(micros, &mut patience),
                        Step::Replay(_) => self.replay(&blocked, &mut patience),
                        Step::Reserve => self.reserve(&blocked, &mut patience)?,
                        Step::Rotate => self.leave(&blocked, &mut patience)?,
                        // Not a refusal yet: the caller opens the gate and comes again, or says why not.
                        Step::Refuse(Refusal::Closed) => return Err(Refusal::Closed),
                        Step::Refuse(refusal) => {
                            counters.refusals.fetch_add(1, Ordering::Relaxed);
                            return Err(refusal);
                        }
                    }
                    terms.may_use_spare = self.may_use_spare(&blocked, &patience);
                }
            }
            attempt = self.attempt(n, terms);
        }
    }

    /// Whether a call may have of the spare tick, if that is what it wants: see [`Rules::freely_ahead_us`].
    ///
    /// A call that asks for much would take it from all others, and with it what is left of the tick before,
    /// for no ID comes after a greater one (rule 5). It waits for a tick that nobody has begun; but not for ever.
    fn may_use_spare(&self, blocked: &Blocked, patience: &Patience) -> bool {
        let (lane, wanted) = (&self.lanes[blocked.lane], blocked.wanted);
        // A start may begin ahead of the clock: the ticks before are not full but forbidden (rule 3).
        if wanted == lane.memory.restored.load(Ordering::Acquire) + 1 {
            return true;
        }
        if blocked.n > (self.capacity() / LITTLE).max(1) {
            return patience.waits >= MOST_TURNS_MISSED;
        }
        let lowest = self.layout.join(wanted, lane.node, 0);
        let is_served = self.layout.are_of_one_tick(self.served.load(Ordering::Relaxed), lowest);
        !is_served || patience.waits > 0
    }

    /// Reads lane, last and clock afresh, in this order, and asks the ladder.
    fn look(&self, blocked: &Blocked, patience: &mut Patience) -> Step {
        let control = self.control;
        if control.switch.active.load(Ordering::Acquire) != blocked.lane {
            return Step::Again;
        }
        let memory = &self.lanes[blocked.lane].memory;
        let last = memory.last.load(Ordering::Acquire);
        if last != blocked.last {
            return Step::Again;
        }
        let sight = Sight {
            tried: blocked.tried,
            wanted: blocked.wanted,
            last,
            ceiling: memory.ceiling.load(Ordering::Acquire),
            restored: memory.restored.load(Ordering::Acquire),
            ring: self.ring_ticks as i64,
            now_us: self.layout.relative(self.host.wall_us()),
            waited_us: patience.spent_since(last),
            may_use_spare: self.may_use_spare(blocked, patience),
        };
        ladder::climb(&sight, &control.switch.rules(), &self.layout)
    }

    fn wait(&self, micros: i64, patience: &mut Patience) {
        let counters = &self.control.counters;
        if patience.waits == 0 {
            counters.waits.fetch_add(1, Ordering::Relaxed);
        }
        patience.waits += 1;
        let before_us = self.host.boot_us();
        self.host.wait(micros.min(LONGEST_NAP_US));
        let spent_us = self.host.boot_us() - before_us;
        patience.spend(spent_us);
        counters.wait_us.fetch_add(spent_us as u64, Ordering::Relaxed);
    }

    /// Does something under the cold lock, and afterwards tells the host whether the disk failed in it.
    fn locked<T>(&self, work: impl FnOnce(&mut Lanes) -> T) -> T {
        let mut lanes = self.control.cold.lock();
        let failed_before = lanes.write_failure.is_some();
        let result = work(&mut lanes);
        let failure = lanes.write_failure;
        drop(lanes);
        match (failed_before, failure) {
            (false, Some((errno, _))) => self.host.report(Event::WriteFailed(errno)),
            (true, None) => self.host.report(Event::WriteRecovered),
            _ => {}
        }
        result
    }

    /// Lowers `last` to the wall clock's tick. Under the lock, after another look: without it, a replay that was
    /// decided before [`adopt`](Self::adopt) could succeed after it and lead below its floor, where meanwhile
    /// another replay has brought `last` back to what was read.
    fn replay(&self, blocked: &Blocked, patience: &mut Patience) {
        self.locked(|_| {
            if let Step::Replay(tick) = self.look(blocked, patience) {
                // Failed: a call has raised `last`, and the next look sees it.
                let last = &self.lanes[blocked.lane].memory.last;
                let order = (Ordering::AcqRel, Ordering::Relaxed);
                let _ = last.compare_exchange(blocked.last, tick, order.0, order.1);
            }
        });
    }

    /// Leaves the lane on which a call is blocked, unless somebody already has: a hundred calls that see
    /// one step make one rotation.
    fn leave(&self, blocked: &Blocked, patience: &mut Patience) -> Result<(), Refusal> {
        let mut is_asked = false;
        let (result, event) = self.locked(|lanes| {
            // The lock may have been long in coming: whether to rotate is asked again, under it.
            if self.look(blocked, patience) != Step::Rotate {
                return (Ok(()), None);
            }
            let refused = self.next_lane(lanes, blocked.lane, blocked.n).err();
            is_asked = refused.is_none() && self.asks_keeper(lanes, blocked, patience);
            if is_asked {
                return (Ok(()), None);
            }
            match refused.map_or_else(|| self.rotate(lanes, blocked.lane, blocked.n), Err) {
                Ok(event) => (Ok(()), Some(event)),
                Err(Refusal::NoLane(no_lane)) => {
                    let word = self.lanes[blocked.lane].ledger.word(blocked.last);
                    let episode = Some((blocked.lane, blocked.last, word));
                    let is_new = std::mem::replace(&mut lanes.reported, episode) != episode;
                    (Err(Refusal::NoLane(no_lane)), is_new.then_some(Event::Refused(no_lane)))
                }
                Err(refusal) => (Err(refusal), None),
            }
        });
        if let Some(event) = event {
            self.host.report(event);
        }
        if is_asked {
            self.wait_for_keeper(patience);
        }
        self.counted(result)
    }

    /// Makes the reservation reach the tick on which a call is blocked.
    fn reserve(&self, blocked: &Blocked, patience: &mut Patience) -> Result<(), Refusal> {
        let mut is_asked = false;
        let result = self.locked(|lanes| {
            if self.look(blocked, patience) != Step::Reserve {
                return Ok(());
            }
            is_asked = self.asks_keeper(lanes, blocked, patience);
            if is_asked { Ok(()) } else { self.extend(lanes, blocked.lane, blocked.wanted) }
        });
        if is_asked {
            self.wait_for_keeper(patience);
        }
        self.counted(result)
    }

    /// Leaves a write to the keeper where there is one: a process within an fsync answers no cancel. A write that
    /// has just failed is not left to it, but refused.
    fn asks_keeper(&self, lanes: &mut Lanes, blocked: &Blocked, patience: &Patience) -> bool {
        // A keeper that does nothing is asked no more until it has done something.
        lanes.is_keeper_stuck |= patience.keeper_us >= KEEPER_PATIENCE_US;
        if self.just_failed(lanes).is_some() || lanes.is_keeper_stuck {
            return false;
        }
        let is_asked = self.host.ask_keeper();
        if is_asked {
            lanes.errand = Some((*blocked, *patience));
        }
        is_asked
    }

    /// Lets the keeper write. The lock is free meanwhile, or the keeper's.
    fn wait_for_keeper(&self, patience: &mut Patience) {
        patience.look_us = (2 * patience.look_us).clamp(FIRST_LOOK_US, LAST_LOOK_US);
        patience.keeper_us += patience.look_us;
        self.host.wait_for_keeper(patience.look_us);
    }

    fn counted<T>(&self, result: Result<T, Refusal>) -> Result<T, Refusal> {
        if result.is_err() {
            self.control.counters.refusals.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Moves to the next usable lane of the half and tells its worker; for an operator's hand.
    pub fn rotate_now(&self) -> Result<i64, Refusal> {
        let (event, to) = self.locked(|lanes| {
            if lanes.gate != Gate::Open {
                return Err(Refusal::Closed);
            }
            let event = self.rotate(lanes, self.active(), 1)?;
            Ok((event, self.active()))
        })?;
        self.host.report(event);
        Ok(self.workers.worker(to))
    }

    fn active(&self) -> usize {
        self.control.switch.active.load(Ordering::Acquire)
    }

    /// From the active lane `from`, which has no room for `n` IDs, to the next usable one. The lane that is left keeps its reservation as
    /// its mark; the lane that is entered gets one, and both are durable before it is published.
    fn rotate(&self, lanes: &mut Lanes, from: usize, n: i64) -> Result<Event, Refusal> {
        let allowed_us = self.control.switch.max_ahead_us() + self.layout.tick().micros();
        let behind_us = Some(self.behind_us(from)).filter(|us| *us > allowed_us).unwrap_or(0);
        let to = self.next_lane(lanes, from, n)?;
        // A call that is still under way on the old lane claims in that lane's own ledger, at or below
        // that lane's own reservation: unique and durable all the same.
        lanes.promises.marks[from] = self.mark(lanes, from);
        let last = self.lanes[to].memory.last.load(Ordering::Acquire);
        let first = last.max(lanes.promises.marks[to] + 1);
        self.promise(lanes, to, first, to)?;
        self.control.switch.active.store(to, Ordering::Release);
        self.control.counters.rotations.fetch_add(1, Ordering::Relaxed);
        let (from, to) = (self.workers.worker(from), self.workers.worker(to));
        Ok(Event::Rotated { from, to, behind_us })
    }

    /// Moves a lane's reservation ahead, at least to `wanted`.
    fn extend(&self, lanes: &mut Lanes, lane: usize, wanted: i64) -> Result<(), Refusal> {
        self.promise(lanes, lane, wanted, self.active())
    }

    /// Makes a reservation for `lane` that reaches `wanted`, with `active` as the active lane: first on
    /// disk, then in memory (rule 2). A mark is never lowered, not even one whose write failed: it may
    /// have reached the disk.
    fn promise(&self, lanes: &mut Lanes, lane: usize, wanted: i64, active: usize) -> Result<(), Refusal> {
        if self.host.disk().is_none() {
            return Ok(());
        }
        let mark = self.reservation(lanes, wanted).max(lanes.promises.marks[lane]);
        lanes.promises.marks[lane] = mark;
        lanes.promises.reserved_us = self.reserve_us(lanes);
        self.persist(lanes, active).map_err(Refusal::NotDurable)?;
        self.lanes[lane].memory.ceiling.store(mark, Ordering::Release);
        Ok(())
    }

    /// How far a reservation reaches that is made now for `wanted` or a later tick: a whole tick ahead at
    /// least, and, as `wanted` is at most `max_ahead` past the clock (rule 4), no further than that and
    /// [`reserve_us`](Self::reserve_us) past it.
    fn reservation(&self, lanes: &Lanes, wanted: i64) -> i64 {
        let ahead = (self.reserve_us(lanes) / self.layout.tick().micros()).max(1);
        let now = self.layout.tick_at(self.host.wall_us());
        (wanted.max(now) + ahead).min(self.layout.max_tick())
    }

    /// How far ahead of use a reservation is written: `reserve`, or twice what the last write took, for a
    /// reservation that is past by the time it is durable would be none.
    fn reserve_us(&self, lanes: &Lanes) -> i64 {
        self.rules().reserve_us.max(2 * lanes.write_us.min(SLOWEST_WRITE_US))
    }

    /// Writes what is promised, with `active` as the active lane; where that has just failed, fails again.
    fn persist(&self, lanes: &mut Lanes, active: usize) -> Result<(), Errno> {
        self.just_failed(lanes).map_or_else(|| self.write(lanes, active, false), Err)
    }

    /// Why the last write failed, where that was less than a second ago.
    fn just_failed(&self, lanes: &Lanes) -> Option<Errno> {
        lanes
            .write_failure
            .filter(|(_, at_us)| self.host.boot_us() - at_us < RETRY_US)
            .map(|(errno, _)| errno)
    }

    /// Writes what is promised: into the file that is there, or, if that cannot be done, or must not, into
    /// a new one.
    fn write(&self, lanes: &mut Lanes, active: usize, is_new: bool) -> Result<(), Errno> {
        let Some(disk) = self.host.disk() else { return Ok(()) };
        let begun_us = self.host.boot_us();
        lanes.promises.generation += 1;
        let owed_us = if lanes.promises.owes_prepared { lanes.promises.max_ahead_us } else { 0 };
        lanes.promises.max_ahead_us = self.rules().max_ahead_us.max(owed_us);
        let choice = Choice { timeline: lanes.timeline, active };
        let promises = &mut lanes.promises;
        let written = match is_new {
            false => self.overwrite(disk, promises, choice).or_else(|_| self.create(disk, promises, choice)),
            true => self.create(disk, promises, choice),
        };
        let ended_us = self.host.boot_us();
        lanes.write_us = ended_us - begun_us;
        lanes.write_failure = written.err().map(|errno| (errno, ended_us));
        written
    }

    /// Writes first into the slot that does not hold the newest durable record, so that a torn write leaves
    /// that one whole, then into the other.
    fn overwrite(&self, disk: &dyn Disk, promises: &mut Promises, choice: Choice) -> Result<(), WriteError> {
        let bytes = promises.encode(&self.layout, self.nodes(), choice, promises.file);
        let first = 1 - promises.newest;
        disk.write(promises.file, first, &bytes)?;
        promises.newest = first;
        // The promise is durable by now. Where this fails, the next record goes to this slot first.
        match disk.write(promises.file, 1 - first, &bytes) {
            Err(WriteError::Replaced) => Err(WriteError::Replaced),
            Ok(()) | Err(WriteError::Os(_)) => Ok(()),
        }
    }

    /// Makes the file anew, with the promises as they stand.
    fn create(&self, disk: &dyn Disk, promises: &mut Promises, choice: Choice) -> Result<(), Errno> {
        let encode = |file| promises.encode(&self.layout, self.nodes(), choice, file);
        promises.file = disk.create(&encode)?;
        promises.newest = 0;
        Ok(())
    }

    fn nodes(&self) -> &[i64] {
        &self.nodes[..self.workers.lanes()]
    }

    /// The lane to go to from the active lane `from`, which has no room for `n` IDs.
    fn next_lane(&self, lanes: &Lanes, from: usize, n: i64) -> Result<usize, Refusal> {
        let now_us = self.layout.relative(self.host.wall_us());
        let latest = self.layout.tick().holding(now_us + self.control.switch.max_ahead_us());
        let half = self.workers.half(lanes.timeline);
        let now = self.layout.tick().holding(now_us);
        let first_free = |lane| self.first_free(lanes, lane, from, now, n);
        Lanes::next(half, from, latest, first_free).map_err(|(lane, tick)| {
            if tick > self.layout.max_tick() {
                return Refusal::Exhausted;
            }
            let floor = self.floor(lanes, lane).filter(|floor| floor.mark + 1 == tick);
            Refusal::NoLane(NoLane {
                behind_us: self.behind_us(from),
                worker: self.workers.worker(lane),
                usable_at_us: self.usable_at(tick),
                floor: floor.map(|floor| floor.cause),
            })
        })
    }

    /// The floor above which a lane begins, where it has made no ID since it was set.
    fn floor(&self, lanes: &Lanes, lane: usize) -> Option<Floor> {
        let restored = self.lanes[lane].memory.restored.load(Ordering::Acquire);
        let is_unused = self.lanes[lane].ledger.last_tick().is_none();
        lanes.promises.floor.filter(|floor| is_unused && floor.mark == restored)
    }

    /// How far the wall clock is behind the last ID of a lane; negative: ahead of it.
    fn behind_us(&self, lane: usize) -> i64 {
        let last = self.lanes[lane].memory.last.load(Ordering::Acquire);
        last * self.layout.tick().micros() - self.layout.relative(self.host.wall_us())
    }

    /// The lane's mark: no ID of it above this tick has been made, but, without a disk, by calls under way.
    fn mark(&self, lanes: &Lanes, lane: usize) -> i64 {
        lanes.promises.marks[lane].max(self.lanes[lane].ledger.last_tick().unwrap_or(-1))
    }

    /// The tick at which a lane would go on with `n` IDs: the active one where there is room from its last
    /// and the clock's tick on (after a replay, ticks there may be full), another above its mark.
    fn first_free(&self, lanes: &Lanes, lane: usize, active: usize, now: i64, n: i64) -> i64 {
        let last = self.lanes[lane].memory.last.load(Ordering::Acquire);
        if lane == active {
            self.lanes[lane].ledger.room_from(last.max(now), n, self.layout.max_tick())
        } else {
            last.max(lanes.promises.marks[lane] + 1)
        }
    }

    /// What the wall clock must say before `tick` can be issued.
    fn usable_at(&self, tick: i64) -> i64 {
        self.layout.starts_at(tick).saturating_sub(self.control.switch.max_ahead_us())
    }

    /// Whether the gate is open.
    pub fn is_open(&self) -> bool {
        self.lanes[self.active()].memory.ceiling.load(Ordering::Acquire) != CLOSED
    }

    /// Opens the gate: reads the state, decides, makes the decision durable, and waits for nothing. Does
    /// nothing where the gate is open.
    pub fn open(&self, start: &Start) -> Result<(), NotOpen> {
        self.observe_clock();
        let (result, event) = self.locked(|lanes| {
            let mut event = None;
            let result = match lanes.gate {
                Gate::Open => Ok(()),
                Gate::Settling => Ok(()),
                Gate::Closed(why, again_us) if self.host.boot_us() < again_us => Err(why),
                Gate::Closed(..) | Gate::Shut => self.start(lanes, start).map(|opened| event = Some(opened)),
            };
            (result.map_err(NotOpen::Closed).and_then(|()| self.settle(lanes, start)), event)
        });
        if let Some(event) = event {
            self.host.report(event);
        }
        result
    }

    /// The steps of a start up to the open gate; see [`Reading::decide`].
    fn start(&self, lanes: &mut Lanes, start: &Start) -> Result<Event, Closed> {
        let half: Vec<usize> = self.workers.half(start.timeline).collect();
        let decide = |disk: &dyn Disk| {
            let loaded = disk.load().map_err(Closed::Os)?;
            let reading = self.reading(start, &half);
            let mut opening = reading.decide(loaded.as_ref()).map_err(|why| match why {
                Closed::NotPromoted(_) => {
                    self.disown(disk, loaded.as_ref(), &reading).map_or_else(Closed::Os, |()| why)
                }
                _ => why,
            })?;
            // What cannot be made sure of is left alone, and the file made anew.
            opening.is_new |= loaded.is_some_and(|loaded| disk.write_again(&loaded).is_err());
            Ok(opening)
        };
        let undurable = Opening { promises: Promises::none(), active: half[0], is_new: false };
        let decided = self.host.disk().map_or(Ok(undurable), decide);
        let chosen = decided.and_then(|opening| self.choose(lanes, start, opening));
        if let Err(why) = chosen {
            lanes.gate = Gate::Closed(why, self.host.boot_us() + RETRY_US);
        }
        chosen
    }

    /// Makes a file that says of itself that it is a copy.
    fn disown(&self, disk: &dyn Disk, loaded: Option<&Loaded>, reading: &Reading<'_>) -> Result<(), Errno> {
        let Some((timeline, promises)) = reading.disowned(loaded) else { return Ok(()) };
        let choice = Choice { timeline, active: reading.half[0] };
        let nobody = FileIdentity { inode: 0, born_ns: 0 };
        let bytes = promises.encode(&self.layout, self.nodes(), choice, nobody);
        disk.create(&|_| bytes.clone()).map(drop)
    }

    fn reading<'a>(&'a self, start: &'a Start, half: &'a [usize]) -> Reading<'a> {
        Reading {
            layout: &self.layout,
            nodes: self.nodes(),
            half,
            start,
            now_us: self.host.wall_us(),
            max_ahead_us: self.control.switch.max_ahead_us(),
        }
    }

    /// Makes a start's choice durable.
    fn choose(&self, lanes: &mut Lanes, start: &Start, opening: Opening) -> Result<Event, Closed> {
        let is_first = opening.is_new && opening.promises.generation == 0;
        lanes.timeline = start.timeline;
        lanes.promises = opening.promises;
        for (Lane { memory, .. }, mark) in self.lanes.iter().zip(opening.promises.marks) {
            memory.restored.store(mark, Ordering::Release);
            memory.last.fetch_max(mark + 1, Ordering::AcqRel);
        }
        self.write(lanes, opening.active, opening.is_new).map_err(Closed::Os)?;
        self.control.switch.active.store(opening.active, Ordering::Release);
        lanes.gate = Gate::Settling;
        let lane = opening.active;
        let first = self.lanes[lane].memory.last.load(Ordering::Acquire);
        Ok(Event::Opened {
            timeline: start.timeline,
            worker: self.workers.worker(lane),
            lane,
            home: self.workers.worker(0),
            first_us: self.layout.starts_at(first),
            is_first,
        })
    }

    /// Raises the marks above the transactions that earlier timelines left prepared.
    fn respect_prepared(&self, lanes: &mut Lanes, start: &Start) -> Result<(), NotOpen> {
        let half: Vec<usize> = self.workers.half(start.timeline).collect();
        let reading = self.reading(start, &half);
        // Their IDs were made under the other server's `max_ahead`, which the record keeps as long as it owes them.
        let max_ahead_us = reading.max_ahead_us.max(lanes.promises.max_ahead_us);
        let reading = Reading { max_ahead_us, ..reading };
        let floor = reading.prepared_mark().ok_or(NotOpen::PreparedUnread)?;
        lanes.promises.owes_prepared = false;
        let raised =
            self.just_failed(lanes).map_or_else(|| self.raise(lanes, floor, FloorCause::NewTimeline), Err);
        raised.map_err(|errno| {
            lanes.promises.owes_prepared = true;
            NotOpen::Closed(Closed::Os(errno))
        })
    }

    /// Opens the gate once the clock is near the restored mark, or too far from it to wait.
    fn settle(&self, lanes: &mut Lanes, start: &Start) -> Result<(), NotOpen> {
        if lanes.gate == Gate::Open {
            return Ok(());
        }
        if lanes.promises.owes_prepared {
            self.respect_prepared(lanes, start)?;
        }
        let tick_us = self.layout.tick().micros();
        let floor = self.floor(lanes, self.active());
        let max_ahead_us = self.rules().max_ahead_us;
        // A first start keeps nobody waiting for long, so its IDs need not run ahead of the clock; with a long
        // `max_ahead` they do.
        let ahead_us = match floor {
            Some(Floor { cause: FloorCause::NoState, .. }) => {
                max_ahead_us - max_ahead_us.min(FIRST_PATIENCE_US)
            }
            _ => max_ahead_us,
        };
        let missing_us = self.behind_us(self.active()) - ahead_us;
        // What the record says: the last run may have reserved further ahead, for a disk that was slow.
        let reserved_us = self.reserve_us(lanes).max(lanes.promises.reserved_us);
        // A floor lies above the latest of several clocks, which may differ by a little.
        let floored_us = max_ahead_us.min(FIRST_PATIENCE_US) + 2 * SETTLING_US;
        let settling_us = if floor.is_some() { floored_us } else { SETTLING_US };
        let patience_us = reserved_us.max(settling_us) + tick_us;
        let is_durable = self.host.disk().is_some();
        if is_durable && (1..=patience_us).contains(&missing_us) {
            return Err(NotOpen::Settling(missing_us));
        }
        // Marks that were raised meanwhile are in memory only where their write failed (rule 2).
        if lanes.write_failure.is_some() {
            self.persist(lanes, self.active()).map_err(|errno| NotOpen::Closed(Closed::Os(errno)))?;
        }
        lanes.gate = Gate::Open;
        for (Lane { memory, .. }, mark) in self.lanes.iter().zip(lanes.promises.marks) {
            let ceiling = if is_durable { mark } else { self.layout.max_tick() };
            memory.ceiling.store(ceiling, Ordering::Release);
        }
        Ok(())
    }

    /// Moves the reservation ahead where less than half of it is left, and does what calls have asked for. For the
    /// keeper, from time to time and when [`Host::ask_keeper`] wakes it.
    pub fn keep(&self) -> Result<(), Refusal> {
        let event = self.locked(|lanes| {
            lanes.is_keeper_stuck = false;
            match lanes.errand.take() {
                Some((blocked, mut patience)) => match self.look(&blocked, &mut patience) {
                    Step::Rotate => self.rotate(lanes, blocked.lane, blocked.n).map(Some),
                    Step::Reserve => self.extend(lanes, blocked.lane, blocked.wanted).map(|()| None),
                    _ => self.keep_ahead(lanes).map(|()| None),
                },
                None => self.keep_ahead(lanes).map(|()| None),
            }
        })?;
        event.into_iter().for_each(|event| self.host.report(event));
        Ok(())
    }

    fn keep_ahead(&self, lanes: &mut Lanes) -> Result<(), Refusal> {
        let reserve_ticks = self.reserve_us(lanes) / self.layout.tick().micros();
        let lane = self.active();
        let memory = &self.lanes[lane].memory;
        let now_us = self.layout.relative(self.host.wall_us());
        let tick = memory.last.load(Ordering::Acquire).max(self.layout.tick().holding(now_us));
        let latest = self.layout.tick().holding(now_us + self.control.switch.max_ahead_us());
        let ceiling = memory.ceiling.load(Ordering::Acquire);
        if ceiling == CLOSED {
            return Ok(());
        }
        let is_short = ceiling - tick < reserve_ticks / 2 + 1;
        // IDs under a longer `max_ahead` are told to those who follow before there are many.
        let is_longer = lanes.promises.max_ahead_us < self.rules().max_ahead_us;
        if (is_short || is_longer) && tick <= latest.min(self.layout.max_tick()) {
            self.extend(lanes, lane, tick)
        } else {
            Ok(())
        }
    }

    /// The tick from which the next call starts, for telling whether IDs are being made.
    pub fn last(&self) -> i64 {
        self.lanes[self.active()].memory.last.load(Ordering::Acquire)
    }

    /// Writes exact marks, so that a restart costs nothing. For the very end of a clean stop, when nobody
    /// can make an ID any more; does nothing where the gate was never open.
    pub fn farewell(&self) -> Result<(), Errno> {
        let Some(mut lanes) = self.control.cold.try_lock() else { return Ok(()) };
        if lanes.gate != Gate::Open || self.host.disk().is_none() {
            return Ok(());
        }
        for (Lane { memory, ledger, .. }, mark) in self.lanes.iter().zip(&mut lanes.promises.marks) {
            memory.ceiling.store(CLOSED, Ordering::Release);
            *mark = memory.restored.load(Ordering::Acquire).max(ledger.last_tick().unwrap_or(-1));
        }
        lanes.promises.reserved_us = 0;
        self.write(&mut lanes, self.active(), false)
    }

    /// Vouches for the state: opens a gate that a lost, copied or foreign state keeps closed, with marks of
    /// at least `floor_us` (a Unix time); on an open gate raises the marks. With `lower`, marks become that floor
    /// also where they were higher, but for lanes that have made IDs in this run; without, none that can be read is
    /// lowered. After it, [`open`](Self::open) ends what is left of a start.
    pub fn adopt(&self, start: &Start, floor_us: i64, lower: bool) -> Result<(), AdoptError> {
        let half: Vec<usize> = self.workers.half(start.timeline).collect();
        self.locked(|lanes| {
            let reading = self.reading(start, &half);
            if matches!(lanes.gate, Gate::Open | Gate::Settling) {
                let floor = reading.floor_mark(floor_us)?;
                let done = match lower {
                    false => self.raise(lanes, floor, FloorCause::Operator),
                    true => self.lower(lanes, floor),
                };
                return done.map_err(|errno| AdoptError::Closed(Closed::Os(errno)));
            }
            let Some(disk) = self.host.disk() else { return Ok(()) };
            let loaded = disk.load().map_err(|errno| AdoptError::Closed(Closed::Os(errno)))?;
            let opening = reading.adopt(loaded.as_ref(), floor_us, lower)?;
            self.choose(lanes, start, opening).map(drop).map_err(AdoptError::Closed)
        })?;
        self.host.report(Event::Adopted { floor_us, lower });
        Ok(())
    }

    /// Sets the marks to `floor`, but for lanes that can make IDs: the active one, where the clock lets it, and those
    /// that have made some since the start. Their marks are never lowered, because a call may be on its way.
    fn lower(&self, lanes: &mut Lanes, floor: i64) -> Result<(), Errno> {
        let before = lanes.promises;
        let is_used = |lane: &Lane<'_>| {
            let restored = lane.memory.restored.load(Ordering::Acquire);
            lane.memory.ceiling.load(Ordering::Acquire) > restored || lane.ledger.last_tick().is_some()
        };
        let used: Vec<bool> = self.lanes.iter().map(is_used).collect();
        lanes.promises.set(floor);
        for (lane, _) in used.iter().enumerate().filter(|(_, is_used)| **is_used) {
            lanes.promises.marks[lane] = before.marks[lane].max(floor);
        }
        if let Err(errno) = self.write(lanes, self.active(), false) {
            // Lower marks that are on no disk must not be taken for promises.
            let Promises { file, generation, newest, .. } = lanes.promises;
            lanes.promises = before;
            (lanes.promises.file, lanes.promises.generation, lanes.promises.newest) =
                (file, generation, newest);
            return Err(errno);
        }
        for ((Lane { memory, .. }, mark), is_used) in zip(zip(&self.lanes, lanes.promises.marks), used) {
            if !is_used {
                memory.restored.store(mark, Ordering::Release);
                memory.last.store(mark + 1, Ordering::Release);
            }
            self.publish_mark(lanes, memory, mark);
        }
        Ok(())
    }

    /// Raises every mark to `floor`: durable first, then in memory. Replay lowers `last` under the same lock, so
    /// it cannot come between the two.
    fn raise(&self, lanes: &mut Lanes, floor: i64, cause: FloorCause) -> Result<(), Errno> {
        lanes.promises.raise(floor, cause);
        // At once, also where a write has just failed: an operator waits for the answer.
        self.write(lanes, self.active(), false)?;
        for (Lane { memory, .. }, mark) in self.lanes.iter().zip(lanes.promises.marks) {
            memory.restored.fetch_max(floor, Ordering::AcqRel);
            memory.last.fetch_max(floor + 1, Ordering::AcqRel);
            self.publish_mark(lanes, memory, mark);
        }
        Ok(())
    }

    /// Lets calls go up to a mark that is durable, where the gate is open.
    fn publish_mark(&self, lanes: &Lanes, memory: &LaneMemory, mark: i64) {
        if lanes.gate == Gate::Open && self.host.disk().is_some() {
            memory.ceiling.store(mark, Ordering::Release);
        }
    }

    /// Compares the wall clock with the boot clock. Both are slewed alike, so the difference changes only
    /// when the wall clock is stepped; one step is counted once, whoever sees it.
    #[cold]
    fn observe_clock(&self) {
        let counters = &self.control.counters;
        // Before the clocks: an offset that somebody has replaced since must not be replaced again by what
        // was read before the step.
        let known_us = counters.clock_offset_us.load(Ordering::Acquire);
        let mut looks = std::iter::repeat_with(|| {
            let before_us = self.host.boot_us();
            (self.host.wall_us().saturating_sub(before_us), self.host.boot_us() - before_us)
        });
        // A process that slept between the clocks knows neither: it looks again, or leaves it to the next.
        let Some((offset_us, _)) = looks.by_ref().take(3).find(|(_, took_us)| *took_us <= CLOCK_NOISE_US)
        else {
            return;
        };
        let step_us = offset_us.saturating_sub(known_us);
        if known_us != OFFSET_UNKNOWN && step_us.unsigned_abs() <= CLOCK_NOISE_US as u64 {
            return;
        }
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let cell = &counters.clock_offset_us;
        let won = cell.compare_exchange(known_us, offset_us, order.0, order.1).is_ok();
        if !won || known_us == OFFSET_UNKNOWN {
            return;
        }
        if step_us < 0 {
            counters.rollbacks.fetch_add(1, Ordering::Relaxed);
            counters.largest_rollback_us.fetch_max(step_us.saturating_neg(), Ordering::Relaxed);
        } else if step_us > FORWARD_JUMP_US {
            counters.forward_jumps.fetch_add(1, Ordering::Relaxed);
            self.host.report(Event::ForwardJump(step_us));
        }
    }

    /// Sets the counters back to zero.
    pub fn reset_stats(&self) {
        let _lanes = self.control.cold.lock();
        for Lane { memory, ledger, .. } in &self.lanes {
            memory.issued_before.store(ledger.issued(), Ordering::Relaxed);
        }
        let counters = &self.control.counters;
        counters.waits.store(0, Ordering::Relaxed);
        counters.wait_us.store(0, Ordering::Relaxed);
        counters.rollbacks.store(0, Ordering::Relaxed);
        counters.largest_rollback_us.store(0, Ordering::Relaxed);
        counters.forward_jumps.store(0, Ordering::Relaxed);
        counters.rotations.store(0, Ordering::Relaxed);
        counters.refusals.store(0, Ordering::Relaxed);
        counters.since_us.store(self.host.wall_us(), Ordering::Relaxed);
    }

    /// What is known now. Looks at the clock, so that a step is counted by the time it is shown.
    pub fn status(&self) -> Status {
        self.observe_clock();
        let counters = &self.control.counters;
        let lane = self.active();
        let write_failure = self.control.cold.lock().write_failure;
        let ceiling = self.lanes[lane].memory.ceiling.load(Ordering::Acquire);
        let is_reserved = ceiling != CLOSED && self.host.disk().is_some();
        let now_us = self.layout.relative(self.host.wall_us());
        let last_tick = self.last_tick(lane);
        let ahead = |tick: i64| (tick * self.layout.tick().micros() - now_us).max(0);
        Status {
            open: self.is_open(),
            lane,
            worker: self.workers.worker(lane),
            last_id_at_us: last_tick.map(|tick| self.layout.starts_at(tick)),
            ahead_us: last_tick.map_or(0, ahead),
            before_epoch_us: (-now_us).max(0),
            issued: (0..self.workers.lanes()).map(|lane| self.issued(lane)).sum(),
            waits: counters.waits.load(Ordering::Relaxed),
            wait_us: counters.wait_us.load(Ordering::Relaxed),
            rollbacks: counters.rollbacks.load(Ordering::Relaxed),
            largest_rollback_us: counters.largest_rollback_us.load(Ordering::Relaxed),
            forward_jumps: counters.forward_jumps.load(Ordering::Relaxed),
            rotations: counters.rotations.load(Ordering::Relaxed),
            refusals: counters.refusals.load(Ordering::Relaxed),
            since_us: counters.since_us.load(Ordering::Relaxed),
            reserved_until_us: is_reserved.then(|| self.layout.starts_at(ceiling + 1)),
            write_error: write_failure.map(|(errno, _)| errno),
        }
    }

    /// What a call would be refused for now; `None` where it would get an ID, perhaps after a wait.
    pub fn obstacle(&self) -> Option<Refusal> {
        let lanes = self.control.cold.lock();
        if lanes.gate != Gate::Open {
            return Some(Refusal::Closed);
        }
        let active = self.active();
        let memory = &self.lanes[active].memory;
        let last = memory.last.load(Ordering::Acquire);
        let now_us = self.layout.relative(self.host.wall_us());
        let tried = last.max(self.layout.tick().holding(now_us));
        let latest = self.layout.tick().holding(now_us + self.rules().max_ahead_us);
        let room = self.lanes[active].ledger.room_from(tried, 1, latest.min(self.layout.max_tick()));
        let sight = Sight {
            tried,
            wanted: room.max(tried),
            last,
            ceiling: memory.ceiling.load(Ordering::Acquire),
            restored: memory.restored.load(Ordering::Acquire),
            ring: self.ring_ticks as i64,
            now_us,
            waited_us: 0,
            may_use_spare: true,
        };
        match ladder::climb(&sight, &self.rules(), &self.layout) {
            Step::Refuse(refusal) => Some(refusal),
            Step::Rotate => self.next_lane(&lanes, active, 1).err(),
            Step::Reserve => lanes.write_failure.map(|(errno, _)| Refusal::NotDurable(errno)),
            Step::Again | Step::Wait(_) | Step::Replay(_) => None,
        }
    }

    /// What is known now about each lane.
    pub fn lane_statuses(&self) -> Vec<LaneStatus> {
        let lanes = self.control.cold.lock();
        let active = self.active();
        let half = self.workers.half(lanes.timeline);
        let now = self.layout.tick_at(self.host.wall_us());
        let status = |lane| {
            let mark = self.mark(&lanes, lane);
            let first = self.first_free(&lanes, lane, active, now, 1);
            LaneStatus {
                lane,
                worker: self.workers.worker(lane),
                active: lane == active && lanes.gate == Gate::Open,
                in_half: half.clone().any(|other| other == lane),
                usable_at_us: (lanes.gate == Gate::Open).then(|| self.usable_at(first)),
                mark_us: (mark >= 0).then(|| self.layout.starts_at(mark)),
                issued: self.issued(lane),
            }
        };
        (0..self.workers.lanes()).map(status).collect()
    }

    /// The tick of the lane's last ID: where `last` points, or the highest where replay has just lowered it.
    fn last_tick(&self, lane: usize) -> Option<i64> {
        let last = self.lanes[lane].memory.last.load(Ordering::Acquire);
        let ledger = self.lanes[lane].ledger;
        if ledger.holds(last) { Some(last) } else { ledger.last_tick() }
    }

    fn issued(&self, lane: usize) -> u64 {
        let before = self.lanes[lane].memory.issued_before.load(Ordering::Relaxed);
        self.lanes[lane].ledger.issued().saturating_sub(before)
    }

    /// The rules in force.
    pub fn rules(&self) -> Rules {
        self.control.switch.rules()
    }
}

/// How long one call has waited without anybody's progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    last: Option<i64>,
    spent_us: i64,
    waits: u32,
    /// How long the keeper has been waited for, in looks of this length by now.
    keeper_us: i64,
    look_us: i64,
}

impl Patience {
    /// What was spent since `last` moved: while it moves, the ticks that a call slept for went to others.
    fn spent_since(&mut self, last: i64) -> i64 {
        if self.last != Some(last) {
            (self.last, self.spent_us) = (Some(last), 0);
        }
        self.spent_us
    }

    fn spend(&mut self, micros: i64) {
        self.spent_us += micros;
    }
}
