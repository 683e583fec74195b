//! A machine for a generator to live on: a clock that does as it is told, a disk, and a memory that can be
//! lost.

use super::disk::SimDisk;
use super::tape::Tape;
use snowflake_core::lock_api::{GuardSend, RawMutex};
use snowflake_core::{Bits, Config, Disk, Event, Generator, Host, Layout, Limits, Memory, Start};
use snowflake_core::{Tick, Workers};
use std::cell::{Cell, RefCell};
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

/// Whether the cold lock is held.
pub fn is_locked() -> bool {
    IS_LOCKED.get()
}

/// The panic payload of a call that would wait for the lock of the call around it.
pub struct LockedOut;

/// A lock for one thread on which one call can run in the middle of another.
pub struct Lock;

#[allow(unsafe_code, reason = "a RawMutex is unsafe to implement")]
// SAFETY: everything that uses it stays on one thread, and it is never taken twice there.
unsafe impl RawMutex for Lock {
    const INIT: Self = Self;
    type GuardMarker = GuardSend;

    fn lock(&self) {
        if IS_LOCKED.replace(true) {
            resume_unwind(Box::new(LockedOut));
        }
    }

    fn try_lock(&self) -> bool {
        !IS_LOCKED.replace(true)
    }

    unsafe fn unlock(&self) {
        IS_LOCKED.set(false);
    }
}

pub type Gen<'m, 'w> = Generator<'m, &'w Machine, Lock>;

/// Runs around a look at the clock, which it does itself by calling its argument.
pub type Meanwhile = dyn Fn(&dyn Fn());

/// A machine and the server on it.
pub struct Machine {
    /// A clock that only goes forward, shared with the other machines.
    pub boot: Rc<Cell<i64>>,
    /// Wall clock minus boot clock.
    pub offset: Cell<i64>,
    pub disk: SimDisk,
    pub has_disk: bool,
    pub config: RefCell<Config>,
    pub start: Cell<Start>,
    pub memory: RefCell<Option<Rc<Memory<Lock>>>>,
    pub events: RefCell<Vec<Event>>,
    /// A call runs in the middle of one that holds the lock.
    pub is_locked_by_another: Cell<bool>,
    /// The last two values that the wall clock returned, the latest first.
    pub last_reads: Cell<[i64; 2]>,
    pub reads: Cell<u64>,
    /// The actions of other processes while a call looks at the clock.
    pub meanwhile: RefCell<Option<Rc<Meanwhile>>>,
    /// The keeper's action while a call waits for it; `None` if there is no keeper.
    pub keeper: RefCell<Option<Rc<dyn Fn()>>>,
}

/// A call that looks at the clock more often than this will never end.
const MOST_READS: u64 = 100_000;

impl Machine {
    pub fn new(config: Config, boot: &Rc<Cell<i64>>, disk: SimDisk) -> Self {
        Self {
            boot: boot.clone(),
            offset: Cell::new(NOON - 77_000_000),
            disk,
            has_disk: true,
            config: RefCell::new(config),
            start: Cell::new(Start { system_identifier: SYSTEM, ..Start::of_timeline(1) }),
            memory: RefCell::default(),
            events: RefCell::default(),
            is_locked_by_another: Cell::new(false),
            last_reads: Cell::new([i64::MIN; 2]),
            reads: Cell::new(0),
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
        self.boot.get() + self.offset.get()
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
        self.reads.set(0);
        work(&Generator::new(&config, memory.view(), self))
    }
}

impl Host for &Machine {
    fn wall_us(&self) -> i64 {
        self.reads.set(self.reads.get() + 1);
        assert!(self.reads.get() < MOST_READS, "the call never ends");
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
        seen.get()
    }

    fn boot_us(&self) -> i64 {
        self.boot.get()
    }

    fn wait(&self, micros: i64) {
        assert!(micros > 0, "a wait of {micros} us");
        assert!(!is_locked() || self.is_locked_by_another.get(), "guarantee 6: a wait under the lock");
        self.reads.set(self.reads.get() + 1);
        self.pass(micros);
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

    fn disk(&self) -> Option<&dyn Disk> {
        self.has_disk.then_some(&self.disk as &dyn Disk)
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
    Config { layout, workers, ring_ticks, limits, ..Config::default() }
}
