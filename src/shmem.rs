//! The shared segment: where the generator's memory lies, and the cold lock.
//!
//! The postmaster makes the memory once at start, and afresh after a crash of a backend; every process
//! inherits the mapping by fork, so addresses are the same in all of them.

use crate::control_file::{self, ControlFile};
use crate::generator::PgHost;
use crate::settings;
use crate::waiting::{self, Reason};
use pgrx::prelude::*;
use snowflake_core::lock_api::{GuardNoSend, RawMutex};
use snowflake_core::{Config, Control, Generator, Host, LaneMemory, View};
use std::ffi::CStr;
use std::mem::{align_of, size_of};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

const NAME: &CStr = c"snowflake_id";

/// Whoever waits for the cold lock looks again after this long at first.
const FIRST_LOOK: Duration = Duration::from_millis(1);
/// And at last.
const LAST_LOOK: Duration = Duration::from_millis(32);

/// The generator on shared memory.
pub type SharedGenerator = Generator<'static, PgHost, ColdLock>;

/// Set by the postmaster, inherited by every process. Null: not preloaded, or no worker configured.
static GENERATOR: AtomicPtr<SharedGenerator> = AtomicPtr::new(std::ptr::null_mut());

/// The generator, where there is one.
#[inline]
pub fn generator() -> Option<&'static SharedGenerator> {
    // SAFETY: null or leaked by `startup`, so valid for the rest of the process.
    unsafe { GENERATOR.load(Ordering::Relaxed).as_ref() }
}

/// As `GENERATOR`, once this process has compared its database's layout with this server's. Null in the postmaster,
/// which has no database, and so in every process that begins.
static VERIFIED: AtomicPtr<SharedGenerator> = AtomicPtr::new(std::ptr::null_mut());

/// The generator, where this process may make IDs with it.
#[inline]
pub fn verified() -> Option<&'static SharedGenerator> {
    // SAFETY: null, or what `generator` returns.
    unsafe { VERIFIED.load(Ordering::Relaxed).as_ref() }
}

/// This process has compared the layouts.
pub fn verify() {
    VERIFIED.store(GENERATOR.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// What the processes of this server share besides the generator's own memory.
#[repr(C, align(128))]
struct Shared {
    /// Process ID of the keeper; 0 while there is none.
    keeper: AtomicI32,
    /// What wakes it.
    keeper_latch: AtomicPtr<pg_sys::Latch>,
    /// Somebody waits for the keeper.
    is_keeper_asked: AtomicBool,
    /// The control file before this start. Never written again.
    before: ControlFile,
    control: Control<ColdLock>,
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());

fn shared() -> Option<&'static Shared> {
    // SAFETY: null, or the segment, which this process maps as long as it lives.
    unsafe { SHARED.load(Ordering::Relaxed).as_ref() }
}

/// The keeper's process ID.
pub fn keeper() -> Option<i32> {
    shared().map(|shared| shared.keeper.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
}

/// Names this process as the keeper, as long as it lives.
pub fn become_keeper() {
    let Some(shared) = shared() else { return };
    // SAFETY: this process's own latch lies in shared memory, mapped at one address in all processes, as long as
    // the server runs; another process may have it later, whom a call in vain does no harm.
    shared.keeper_latch.store(unsafe { pg_sys::MyLatch }, Ordering::Relaxed);
    shared.keeper.store(std::process::id() as i32, Ordering::Release);
    // SAFETY: to be called once in a process, which runs it however it ends but by a crash; then all memory is new.
    unsafe { pg_sys::before_shmem_exit(Some(keeper_gone), pg_sys::Datum::null()) };
}

#[pg_guard]
extern "C-unwind" fn keeper_gone(_code: std::ffi::c_int, _argument: pg_sys::Datum) {
    if let Some(shared) = shared() {
        shared.keeper.store(0, Ordering::Release);
    }
}

/// Wakes the keeper, which then does what the generator's calls have asked for; `false`: there is no keeper.
pub fn ask_keeper() -> bool {
    let Some(shared) = shared().filter(|shared| shared.keeper.load(Ordering::Acquire) != 0) else {
        return false;
    };
    shared.is_keeper_asked.store(true, Ordering::Release);
    // SAFETY: a latch in shared memory, which was stored before the process ID.
    unsafe { pg_sys::SetLatch(shared.keeper_latch.load(Ordering::Relaxed)) };
    true
}

/// Whether the keeper has been asked since this was last called.
pub fn is_keeper_asked() -> bool {
    shared().is_some_and(|shared| shared.is_keeper_asked.swap(false, Ordering::Acquire))
}

/// The control file as it stood before this start.
pub fn control_file_before() -> Option<ControlFile> {
    shared().map(|shared| shared.before)
}

static mut PREVIOUS_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut PREVIOUS_STARTUP: pg_sys::shmem_startup_hook_type = None;

/// Asks PostgreSQL to call us when shared memory is requested and when it is there.
pub fn install_hooks() {
    // SAFETY: called once by the postmaster, which has one thread, while it loads libraries.
    unsafe {
        PREVIOUS_REQUEST = pg_sys::shmem_request_hook;
        pg_sys::shmem_request_hook = Some(request);
        PREVIOUS_STARTUP = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(startup);
    }
}

/// Where the parts lie in the segment, in bytes from its start.
struct Plan {
    lanes: usize,
    slots: usize,
    size: usize,
}

impl Plan {
    fn new(config: &Config) -> Self {
        let count = config.workers.lanes();
        let lanes = size_of::<Shared>().next_multiple_of(align_of::<LaneMemory>());
        let slots = lanes + count * size_of::<LaneMemory>();
        Self { lanes, slots, size: slots + count * config.ring_ticks * size_of::<AtomicU64>() }
    }
}

#[pg_guard]
extern "C-unwind" fn request() {
    // SAFETY: the hook that was installed before ours; requests belong here, and the name is static.
    unsafe {
        if let Some(previous) = PREVIOUS_REQUEST {
            previous();
        }
        if let Some(config) = settings::get().and_then(|settings| settings.config()) {
            pg_sys::RequestAddinShmemSpace(Plan::new(&config).size);
            pg_sys::RequestNamedLWLockTranche(NAME.as_ptr(), 1);
        }
    }
}

#[pg_guard]
extern "C-unwind" fn startup() {
    // SAFETY: the hook that was installed before ours.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP {
            previous();
        }
    }
    settings::compare_with_recorded();
    let Some(config) = settings::get().and_then(|settings| settings.config()) else { return };
    let config = Config { limits: settings::limits(), ..config };
    let plan = Plan::new(&config);
    let (lanes, slots) = (config.workers.lanes(), config.workers.lanes() * config.ring_ticks);

    // SAFETY: the postmaster alone runs this, before it starts any process that could see the segment.
    // The segment has the planned size, PostgreSQL aligns it to a cache line of 128 bytes (asserted), and
    // each part is written whole before a reference to it exists. It lives as long as the process maps
    // shared memory; after a crash this runs again, on fresh memory, and replaces the generator.
    let view = unsafe {
        let mut found = false;
        let base = pg_sys::ShmemInitStruct(NAME.as_ptr(), plan.size, &mut found).cast::<u8>();
        assert!(base.addr().is_multiple_of(align_of::<Shared>()));
        let shared = base.cast::<Shared>();
        let first_lane = base.add(plan.lanes).cast::<LaneMemory>();
        let first_slot = base.add(plan.slots).cast::<AtomicU64>();

        let lock = ColdLock(&raw mut (*pg_sys::GetNamedLWLockTranche(NAME.as_ptr())).lock);
        shared.write(Shared {
            keeper: AtomicI32::new(0),
            keeper_latch: AtomicPtr::new(std::ptr::null_mut()),
            is_keeper_asked: AtomicBool::new(false),
            before: control_file::read(),
            control: Control::new(lock, &config, PgHost.wall_us()),
        });
        SHARED.store(shared, Ordering::Relaxed);
        for lane in 0..lanes {
            first_lane.add(lane).write(LaneMemory::new());
        }
        first_slot.write_bytes(0, slots);
        View {
            control: &(*shared).control,
            lanes: std::slice::from_raw_parts(first_lane, lanes),
            slots: std::slice::from_raw_parts(first_slot, slots),
        }
    };
    let generator = Box::leak(Box::new(Generator::new(&config, view, PgHost)));
    GENERATOR.store(generator, Ordering::Relaxed);
    // SAFETY: the postmaster runs it when shared memory goes, before it is unmapped; after a crash this
    // hook runs again and registers it again. A child forgets what it inherits of this list.
    unsafe { pg_sys::on_shmem_exit(Some(write_exact_marks), pg_sys::Datum::null()) };
}

/// Writes exact marks at the end of a clean stop: when the control file says that this is one.
#[pg_guard]
extern "C-unwind" fn write_exact_marks(_code: std::ffi::c_int, _argument: pg_sys::Datum) {
    // SAFETY: a plain flag.
    let is_postmaster = unsafe { !pg_sys::IsUnderPostmaster };
    if is_postmaster
        && let Some(generator) = generator()
        && generator.is_open()
        && control_file::read().is_shut_down
    {
        // A failure costs the next start some waiting, and nothing else.
        let _ = generator.write_exact_marks();
    }
}

/// A PostgreSQL lightweight lock as the cold lock. Only ever tried: `LWLockAcquire` would not answer a
/// cancel (guarantee 6).
pub struct ColdLock(*mut pg_sys::LWLock);

// SAFETY: the pointer leads into shared memory that is mapped at one address in all processes, and the
// lock behind it is made for use by all of them.
unsafe impl Send for ColdLock {}
// SAFETY: as above.
unsafe impl Sync for ColdLock {}

// SAFETY: an LWLock in exclusive mode has one holder at a time in all processes.
unsafe impl RawMutex for ColdLock {
    /// No lock at all: one is made by `startup` alone.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(std::ptr::null_mut());
    type GuardMarker = GuardNoSend;

    /// The holder may be within an fsync: each look comes later than the one before, so that hundreds of sessions
    /// that wait for a slow disk leave the processors alone.
    fn lock(&self) {
        let mut nap = FIRST_LOOK;
        while !self.try_lock() {
            waiting::nap(nap, Reason::State);
            nap = (2 * nap).min(LAST_LOOK);
        }
    }

    fn try_lock(&self) -> bool {
        // SAFETY: the lock lies in shared memory, and this process has a slot for waiting on locks.
        unsafe { pg_sys::LWLockConditionalAcquire(self.0, pg_sys::LWLockMode::LW_EXCLUSIVE) }
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock. While an error unwinds, PostgreSQL has already reset the
        // count and releases every lock itself; releasing it here would count below zero.
        unsafe {
            if pg_sys::InterruptHoldoffCount > 0 {
                pg_sys::LWLockRelease(self.0);
            }
        }
    }
}
