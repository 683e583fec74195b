//! Surroundings for a generator in a test: clocks under the test's control, and a lock that knows its holder.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use snowflake_core::lock_api::{GuardSend, RawMutex};
use snowflake_core::{Bits, Config, Event, Generator, Host, Layout, Limits, Memory, Policy};
use snowflake_core::{Tick, Workers};

thread_local! {
    static LOCKS_HELD: Cell<u32> = const { Cell::new(0) };
}

/// How many [`Tracked`] locks this thread holds.
pub fn locks_held() -> u32 {
    LOCKS_HELD.get()
}

/// parking_lot's lock, which also counts how many of its kind the current thread holds.
pub struct Tracked(parking_lot::RawMutex);

impl Tracked {
    fn count(locked: bool) -> bool {
        LOCKS_HELD.set(LOCKS_HELD.get() + locked as u32);
        locked
    }
}

#[allow(unsafe_code, reason = "a RawMutex is unsafe to implement")]
// SAFETY: parking_lot's lock excludes; this only counts.
unsafe impl RawMutex for Tracked {
    #[allow(clippy::declare_interior_mutable_const, reason = "lock_api wants it so")]
    const INIT: Self = Self(parking_lot::RawMutex::INIT);
    type GuardMarker = GuardSend;

    fn lock(&self) {
        assert_eq!(locks_held(), 0, "the cold lock is taken twice");
        self.0.lock();
        Self::count(true);
    }

    fn try_lock(&self) -> bool {
        Self::count(self.0.try_lock())
    }

    unsafe fn unlock(&self) {
        LOCKS_HELD.set(LOCKS_HELD.get() - 1);
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock() }
    }
}

type Hook = Box<dyn FnOnce()>;

/// The clocks of one thread's world. Time passes only if a test or a wait lets it.
#[derive(Default)]
pub struct World {
    pub wall: Cell<i64>,
    pub boot: Cell<i64>,
    /// The wall clock stands still while a call waits.
    pub stalled: Cell<bool>,
    /// The steps of the wall clock in the coming waits.
    pub steps_in_waits: RefCell<VecDeque<i64>>,
    /// The values that the wall clock returned, in order.
    pub reads: RefCell<Vec<i64>>,
    /// The offset between the clocks as a perfect observer sees it, and the steps that it has counted.
    pub observer: Cell<Observer>,
    pub events: RefCell<Vec<Event>>,
    /// Code to run in the middle of a call: at which look at the wall clock, and before or after it.
    hooks: RefCell<Vec<(usize, When, Hook)>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum When {
    BeforeRead,
    AfterRead,
}

/// Counts the steps of the wall clock that the generator should count.
#[derive(Clone, Copy, Default)]
pub struct Observer {
    offset: Option<i64>,
    pub rollbacks: u64,
    pub largest: i64,
    pub forward_jumps: u64,
}

/// A call that looks at the clock more often than this will never end. The bound is high because a call with much
/// patience looks some million times while a clock stands still a microsecond before the tick that it waits for.
const MOST_READS: usize = 10_000_000;

/// How much longer than asked Linux lets an ordinary process sleep.
const TIMER_SLACK_US: i64 = 50;

impl World {
    /// A world that is never dropped, so that hooks may refer to it.
    pub fn starting_at(wall: i64) -> &'static Self {
        let world = Self::default();
        world.wall.set(wall);
        world.boot.set(77_000_000);
        Box::leak(Box::new(world))
    }

    /// True time passes.
    pub fn pass(&self, micros: i64) {
        self.wall.set(self.wall.get() + micros);
        self.boot.set(self.boot.get() + micros);
    }

    /// The wall clock is set.
    pub fn step(&self, micros: i64) {
        self.wall.set(self.wall.get() + micros);
    }

    /// Runs `hook` at the `nth` look at the wall clock from now; 1 is the next.
    pub fn interrupt(&self, nth: usize, when: When, hook: impl FnOnce() + 'static) {
        let at = self.reads.borrow().len() + nth;
        self.hooks.borrow_mut().push((at, when, Box::new(hook)));
    }

    fn run_hook(&self, read: usize, when: When) {
        let mut hooks = self.hooks.borrow_mut();
        let found = hooks.iter().position(|(at, w, _)| *at == read && *w == when);
        let hook = found.map(|index| hooks.remove(index).2);
        drop(hooks);
        if let Some(hook) = hook {
            hook();
        }
    }

    /// Whether every hook has run.
    pub fn all_hooks_ran(&self) -> bool {
        self.hooks.borrow().is_empty()
    }

    /// Lets the perfect observer look at the clocks.
    pub fn observe(&self) {
        let mut observer = self.observer.get();
        let offset = self.wall.get().saturating_sub(self.boot.get());
        let step = offset.saturating_sub(observer.offset.unwrap_or(offset));
        if observer.offset.is_none() || step.abs() > 500 {
            observer.offset = Some(offset);
        }
        if step < -500 {
            observer.rollbacks += 1;
            observer.largest = observer.largest.max(-step);
        } else if step > 60_000_000 {
            observer.forward_jumps += 1;
        }
        self.observer.set(observer);
    }
}

impl Host for &World {
    fn wall_us(&self) -> i64 {
        let read = self.reads.borrow().len() + 1;
        self.run_hook(read, When::BeforeRead);
        let wall = self.wall.get();
        self.reads.borrow_mut().push(wall);
        assert!(self.reads.borrow().len() < MOST_READS, "the call never ends");
        self.run_hook(read, When::AfterRead);
        wall
    }

    fn boot_us(&self) -> i64 {
        self.boot.get()
    }

    fn wait(&self, micros: i64) {
        assert!(micros > 0, "a wait of {micros} us");
        assert_eq!(locks_held(), 0, "guarantee 6: a wait under a lock");
        self.observe();
        if self.stalled.get() {
            // Linux's sleeps are no shorter, so a call that waits for one last microsecond waits only so often.
            self.boot.set(self.boot.get() + micros.max(TIMER_SLACK_US));
        } else {
            self.boot.set(self.boot.get() + micros);
            self.step(micros);
        }
        let step = self.steps_in_waits.borrow_mut().pop_front();
        self.step(step.unwrap_or(0));
        let end = self.reads.borrow().len();
        assert!(end < MOST_READS, "the call never ends");
    }

    fn report(&self, event: Event) {
        assert_eq!(locks_held(), 0, "a report under a lock: {event:?}");
        // Not worth recording: every test begins with an open gate.
        if !matches!(event, Event::Opened { .. }) {
            self.events.borrow_mut().push(event);
        }
    }
}

/// A generator of this thread's world.
pub type Gen = Generator<'static, &'static World, Tracked>;

/// Any number of generators on one new memory.
pub fn generators<const N: usize>(config: &Config, world: &'static World) -> [Gen; N] {
    let memory: &'static Memory<Tracked> = Box::leak(Box::new(Memory::new(config)));
    std::array::from_fn(|_| Generator::new(config, memory.view(), world))
}

/// Ticks of 1 ms from the Unix epoch, so that a tick and a clock in milliseconds are one number.
pub fn config(bits: &str, backups: usize, ring_ticks: usize, limits: Limits) -> Config {
    let bits: Bits = bits.parse().unwrap();
    let layout = Layout::new(bits, Tick::Millisecond, 0).unwrap();
    let workers = Workers::new(&layout, 0, backups).unwrap();
    Config { layout, workers, ring_ticks, limits, ..Config::default() }
}

pub fn limits(policy: Policy, max_ahead_us: i64, max_wait_us: i64) -> Limits {
    Limits { policy, max_ahead_us, max_wait_us }
}
