//! A machine for a generator to live on: a clock that does as it is told, a disk, and a memory that can be
//! lost.

use super::basics::{Memory, default_config, start_on};
use super::disk::SimDisk;
use super::tape::Tape;
use crate::common::{Observer, When};
use snowflake_core::lock_api::{GuardSend, RawMutex};
use snowflake_core::{Bits, Config, Disk, Event, Generator, Layout, Limits, Platform, Start};
use snowflake_core::{Tick, Workers};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::rc::Rc;
use uuid::Uuid;

/// 2027 or so, as a Unix time in microseconds; ticks count from 0.
pub const NOON: i64 = 1_800_000_000_000_000;
pub const SYSTEM: u64 = 7_000_000_001;

thread_local! {
    static IS_LOCKED: Cell<bool> = const { Cell::new(false) };
    static DRAWN: Cell<u128> = const { Cell::new(0) };
}

/// Begins the random numbers of all machines anew, so that equal worlds look alike.
pub fn draw_anew() {
    DRAWN.set(0);
}

/// Whether this thread holds a cold lock.
pub fn is_locked() -> bool {
    IS_LOCKED.get()
}

/// The panic payload of a call that would wait for the lock of the call around it.
pub struct LockedOut;

/// parking_lot's lock, with which one call can run in the middle of another.
pub struct Lock(parking_lot::RawMutex);

#[allow(unsafe_code, reason = "a RawMutex is unsafe to implement")]
// SAFETY: parking_lot's lock excludes; this only remembers.
unsafe impl RawMutex for Lock {
    #[allow(clippy::declare_interior_mutable_const, reason = "lock_api wants it so")]
    const INIT: Self = Self(parking_lot::RawMutex::INIT);
    type GuardMarker = GuardSend;

    fn lock(&self) {
        if is_locked() {
            resume_unwind(Box::new(LockedOut));
        }
        self.0.lock();
        IS_LOCKED.set(true);
    }

    fn try_lock(&self) -> bool {
        let has_won = !is_locked() && self.0.try_lock();
        IS_LOCKED.set(is_locked() || has_won);
        has_won
    }

    unsafe fn unlock(&self) {
        IS_LOCKED.set(false);
        // SAFETY: the caller holds the lock.
        unsafe { self.0.unlock() }
    }
}

pub type Gen<'m, 'w> = Generator<'m, &'w Machine, Lock>;

/// Runs around a look at the clock, which it does itself by calling its argument.
pub type Meanwhile = dyn Fn(&dyn Fn());

/// Code to run in the middle of a call: at which look at the wall clock, and before or after it.
type Hook = (usize, When, Box<dyn FnOnce()>);

/// A machine and the server on it.
pub struct Machine {
    /// A clock that only goes forward, shared with the other machines.
    pub boot: Rc<Cell<i64>>,
    /// Wall clock minus boot clock.
    pub offset: Cell<i64>,
    pub disk: SimDisk,
    pub config: RefCell<Config>,
    pub start: Cell<Start>,
    pub memory: RefCell<Option<Rc<Memory<Lock>>>>,
    pub events: RefCell<Vec<Event>>,
    /// A call runs in the middle of one that holds the lock.
    pub is_locked_by_another: Cell<bool>,
    /// The last two values that the wall clock returned, the latest first.
    pub last_reads: Cell<[i64; 2]>,
    /// The values that the wall clock returned since `with` was called, in order.
    pub reads: RefCell<Vec<i64>>,
    /// The wall clock stands still while a call waits.
    pub stalled: Cell<bool>,
    /// The steps of the wall clock in the coming waits.
    pub steps_in_waits: RefCell<VecDeque<i64>>,
    /// The offset between the clocks as a perfect observer sees it, and the steps that it has counted.
    pub observer: Cell<Observer>,
    pub hooks: RefCell<Vec<Hook>>,
    /// The actions of other processes while a call looks at the clock.
    pub meanwhile: RefCell<Option<Rc<Meanwhile>>>,
    /// The keeper's action while a call waits for it; `None` if there is no keeper.
    pub keeper: RefCell<Option<Rc<dyn Fn()>>>,
}

/// A call that looks at the clock more often than this will never end. The bound is high because a call with much
/// patience looks some million times while a clock stands still a microsecond before the tick that it waits for.
const MOST_READS: usize = 10_000_000;

/// How much longer than asked Linux lets an ordinary process sleep.
const TIMER_SLACK_US: i64 = 50;

impl Machine {
    pub fn new(config: Config, boot: &Rc<Cell<i64>>, disk: SimDisk) -> Self {
        Self {
            boot: boot.clone(),
            offset: Cell::new(NOON - 77_000_000),
            disk,
            config: RefCell::new(config),
            start: Cell::new(Start { system_identifier: SYSTEM, ..start_on(1) }),
            memory: RefCell::default(),
            events: RefCell::default(),
            is_locked_by_another: Cell::new(false),
            last_reads: Cell::new([i64::MIN; 2]),
            reads: RefCell::default(),
            stalled: Cell::default(),
            steps_in_waits: RefCell::default(),
            observer: Cell::default(),
            hooks: RefCell::default(),
            meanwhile: RefCell::default(),
            keeper: RefCell::default(),
        }
    }

    /// A machine in a world of its own, with a clock at noon.
    pub fn alone(config: Config) -> Rc<Self> {
        let disk = SimDisk::new(&Rc::new(Tape::given(Vec::new(), 0)));
        Rc::new(Self::new(config, &Rc::new(Cell::new(77_000_000)), disk))
    }

    /// True time passes.
    pub fn pass(&self, micros: i64) {
        self.boot.set(self.boot.get() + micros);
    }

    /// The wall clock is set.
    pub fn step(&self, micros: i64) {
        self.offset.set(self.offset.get() + micros);
    }

    pub fn wall(&self) -> i64 {
        self.boot.get().wrapping_add(self.offset.get())
    }

    pub fn set_wall(&self, wall: i64) {
        self.offset.set(wall.wrapping_sub(self.boot.get()));
    }

    /// What was reported but for open gates, with which every test begins.
    pub fn news(&self) -> Vec<Event> {
        let is_news = |event: &&Event| !matches!(event, Event::Opened { .. });
        self.events.borrow().iter().filter(is_news).copied().collect()
    }

    /// The value of the wall clock that an attempt used. The call may have looked once more since, for a step.
    pub fn highest_read(&self) -> i64 {
        self.last_reads.get().into_iter().max().unwrap_or(i64::MIN)
    }

    /// Creates new memory, with a closed gate.
    pub fn boot_up(&self) {
        *self.memory.borrow_mut() = Some(Rc::new(Memory::new(&self.config.borrow())));
        self.events.borrow_mut().clear();
    }

    /// Drops the memory.
    pub fn go_down(&self) {
        *self.memory.borrow_mut() = None;
        if !self.disk.host_lock.is_own_held.get() {
            self.disk.host_lock.release();
        }
        self.is_locked_by_another.set(false);
        IS_LOCKED.set(false);
    }

    pub fn is_up(&self) -> bool {
        self.memory.borrow().is_some()
    }

    /// Uses a generator of its own on the shared memory, as one of many processes would.
    pub fn with<T>(&self, work: impl FnOnce(&Gen<'_, '_>) -> T) -> T {
        let memory = self.memory.borrow().clone().expect("the server is up");
        let config = *self.config.borrow();
        self.reads.borrow_mut().clear();
        work(&Generator::new(&config, memory.view(), self))
    }
}

impl Platform for &Machine {
    fn wall_us(&self) -> i64 {
        let read = self.reads.borrow().len() + 1;
        assert!(read < MOST_READS, "the call never ends");
        self.run_hook(read, When::BeforeRead);
        let meanwhile = self.meanwhile.borrow().clone();
        let seen = Cell::new(0);
        let look = || {
            seen.set(self.wall());
            self.last_reads.set([seen.get(), self.last_reads.get()[0]]);
        };
        match meanwhile {
            Some(meanwhile) if !is_locked() => meanwhile(&look),
            _ => look(),
        }
        self.reads.borrow_mut().push(seen.get());
        self.run_hook(read, When::AfterRead);
        seen.get()
    }

    fn boot_us(&self) -> i64 {
        self.boot.get()
    }

    fn wait(&self, micros: i64) {
        assert!(micros > 0, "a wait of {micros} us");
        assert!(!is_locked() || self.is_locked_by_another.get(), "guarantee 6: a wait under the lock");
        self.observe();
        match self.stalled.get() {
            // Linux's sleeps are no shorter, so a call that waits for one last microsecond waits only so often.
            true => {
                let slept = micros.max(TIMER_SLACK_US);
                self.pass(slept);
                self.step(-slept);
            }
            false => self.pass(micros),
        }
        let step = self.steps_in_waits.borrow_mut().pop_front();
        self.step(step.unwrap_or(0));
    }

    fn random(&self) -> Uuid {
        DRAWN.set(DRAWN.get() + 1);
        Uuid::from_u128(DRAWN.get())
    }

    fn ask_keeper(&self) -> bool {
        self.keeper.borrow().is_some()
    }

    fn wait_for_keeper(&self, micros: i64) {
        self.wait(micros);
        let keeper = self.keeper.borrow().clone();
        keeper.into_iter().for_each(|work| work());
    }

    fn report(&self, event: Event) {
        assert!(!is_locked() || self.is_locked_by_another.get(), "a report under the lock: {event:?}");
        self.events.borrow_mut().push(event);
    }

    fn disk(&self) -> &dyn Disk {
        &self.disk
    }
}

/// Ticks from the Unix epoch, so that a tick of 1 ms and a clock in milliseconds are one number.
pub fn config(
    bits: &str,
    tick: Tick,
    home: i64,
    backups: usize,
    ring_ticks: usize,
    limits: Limits,
) -> Config {
    let bits: Bits = bits.parse().unwrap();
    let layout = Layout::new(bits, tick, 0).unwrap();
    let workers = Workers::new(&layout, home, backups).unwrap();
    Config { layout, workers, ring_ticks, limits, ..default_config() }
}
