//! The shared segment: the generator's memory, and the control file before this start.
//!
//! The postmaster creates the memory at its start, and again after a crash of a backend. Every process inherits the
//! mapping by fork, so addresses are the same in all of them.

pub mod contact_status;

use crate::messages::log;
use crate::platform::lightweight_lock::LightweightLock;
use crate::platform::{PgPlatform, host_lock};
use crate::postgres::control_file::{self, ControlFile};
use crate::postgres::transactions;
use crate::postgres::wakeup::{self, Wakeups};
use crate::settings;
use contact_status::SharedStatus;
use pgrx::prelude::*;
use snowflake_core::{Config, Control, Generator, LaneMemory, Limits, Platform, Slot, View};
use std::ffi::CStr;
use std::mem::{align_of, size_of};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

const NAME: &CStr = c"snowflake_id";
/// The cold lock, and the lock of the contact status.
const LOCKS: i32 = 2;

/// The generator in shared memory.
pub type SharedGenerator = Generator<'static, PgPlatform, LightweightLock>;

/// Set by the postmaster, inherited by every process. Null if not preloaded, or by the settings.
static GENERATOR: AtomicPtr<SharedGenerator> = AtomicPtr::new(std::ptr::null_mut());

/// The generator, if there is one.
#[inline]
pub fn generator() -> Option<&'static SharedGenerator> {
    // SAFETY: null or leaked by `startup`, so valid for the rest of the process.
    unsafe { GENERATOR.load(Ordering::Relaxed).as_ref() }
}

/// The part of the segment that all processes share, besides lanes and rings.
#[repr(C, align(128))]
struct Shared {
    wakeups: Wakeups,
    contact_status: SharedStatus,
    /// The control file before this start. Never written again.
    before: ControlFile,
    control: Control<LightweightLock>,
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(std::ptr::null_mut());

fn shared() -> Option<&'static Shared> {
    // SAFETY: null, or the segment, which this process maps until it exits.
    unsafe { SHARED.load(Ordering::Relaxed).as_ref() }
}

/// The control file before this start.
pub fn control_file_before() -> Option<ControlFile> {
    shared().map(|shared| shared.before)
}

static mut PREVIOUS_REQUEST: pg_sys::shmem_request_hook_type = None;
static mut PREVIOUS_STARTUP: pg_sys::shmem_startup_hook_type = None;

/// Installs the hooks that request shared memory and initialize it.
pub fn install_hooks() {
    // SAFETY: called once by the postmaster, which has one thread, while it loads libraries.
    unsafe {
        PREVIOUS_REQUEST = pg_sys::shmem_request_hook;
        pg_sys::shmem_request_hook = Some(request);
        PREVIOUS_STARTUP = pg_sys::shmem_startup_hook;
        pg_sys::shmem_startup_hook = Some(startup);
    }
    settings::PUBLISH.set(publish).expect("called once");
}

/// The offsets of the segment's parts, in bytes.
struct Plan {
    lanes: usize,
    transactions: usize,
    words: usize,
    size: usize,
}

impl Plan {
    fn new(config: &Config) -> Self {
        let count = config.workers.lanes();
        let lanes = size_of::<Shared>().next_multiple_of(align_of::<LaneMemory>());
        let transactions = lanes + count * size_of::<LaneMemory>();
        let words = transactions + Self::transactions() * size_of::<Slot>();
        Self { lanes, transactions, words, size: words + count * config.ring_ticks * size_of::<AtomicU64>() }
    }

    /// How many slots transactions have.
    fn transactions() -> usize {
        let (running, prepared) = transactions::slots_needed();
        running + prepared
    }
}

/// Publishes the limits that a reload changed.
fn publish(change: &dyn Fn(&mut Limits)) {
    let Some(generator) = generator() else { return };
    let mut wanted = generator.asked_limits();
    change(&mut wanted);
    generator.set_limits(wanted);
    let clamped_us = generator.asked_limits().max_ahead_us;
    if clamped_us < wanted.max_ahead_us {
        log::clamped(clamped_us);
    }
}

#[pg_guard]
extern "C-unwind" fn request() {
    // SAFETY: the hook that was installed before; this hook is where memory may be requested, and the name is static.
    unsafe {
        if let Some(previous) = PREVIOUS_REQUEST {
            previous();
        }
        if let Some(config) = settings::config() {
            pg_sys::RequestAddinShmemSpace(Plan::new(&config).size);
            pg_sys::RequestNamedLWLockTranche(NAME.as_ptr(), LOCKS);
        }
    }
}

#[pg_guard]
extern "C-unwind" fn startup() {
    // SAFETY: the hook that was installed before.
    unsafe {
        if let Some(previous) = PREVIOUS_STARTUP {
            previous();
        }
    }
    let Some(config) = settings::config() else { return };
    host_lock::open();
    let plan = Plan::new(&config);
    let (lanes, words) = (config.workers.lanes(), config.workers.lanes() * config.ring_ticks);

    // SAFETY: the postmaster alone runs this, before it starts any process that could see the segment. The segment has the
    // planned size, PostgreSQL aligns it to a cache line of 128 bytes (asserted), and each part is written whole before a
    // reference to it exists. It is valid while the process maps shared memory; after a crash this runs again, on fresh
    // memory, and replaces the generator.
    let view = unsafe {
        let mut found = false;
        let base = pg_sys::ShmemInitStruct(NAME.as_ptr(), plan.size, &mut found).cast::<u8>();
        assert!(base.addr().is_multiple_of(align_of::<Shared>()));
        let shared = base.cast::<Shared>();
        let first_lane = base.add(plan.lanes).cast::<LaneMemory>();
        let first_transaction = base.add(plan.transactions).cast::<Slot>();
        let first_word = base.add(plan.words).cast::<AtomicU64>();

        let locks = pg_sys::GetNamedLWLockTranche(NAME.as_ptr());
        let [cold_lock, status_lock] = [0, 1].map(|i| LightweightLock::new(&raw mut (*locks.add(i)).lock));
        shared.write(Shared {
            wakeups: Wakeups::new(),
            contact_status: SharedStatus::new(status_lock),
            before: control_file::read(),
            control: Control::new(cold_lock, &config, PgPlatform.wall_us()),
        });
        SHARED.store(shared, Ordering::Relaxed);
        wakeup::share(&(*shared).wakeups);
        for lane in 0..lanes {
            first_lane.add(lane).write(LaneMemory::default());
        }
        for slot in 0..Plan::transactions() {
            first_transaction.add(slot).write(Slot::default());
        }
        transactions::share(std::slice::from_raw_parts(first_transaction, Plan::transactions()));
        first_word.write_bytes(0, words);
        View {
            control: &(*shared).control,
            lanes: std::slice::from_raw_parts(first_lane, lanes),
            slots: std::slice::from_raw_parts(first_word, words),
        }
    };
    let generator = Box::leak(Box::new(Generator::new(&config, view, PgPlatform)));
    GENERATOR.store(generator, Ordering::Relaxed);
    // SAFETY: the postmaster runs it before shared memory is unmapped. After a crash this hook runs again and registers it
    // again; a child clears the list that it inherited.
    unsafe { pg_sys::on_shmem_exit(Some(write_exact_marks), pg_sys::Datum::null()) };
}

/// Writes exact marks at the end of a clean stop, which the control file records.
#[pg_guard]
extern "C-unwind" fn write_exact_marks(_code: std::ffi::c_int, _argument: pg_sys::Datum) {
    if let Some(generator) = generator()
        && control_file::read().is_shut_down
    {
        // After a failure the next start only waits a little.
        let _ = generator.write_exact_marks();
    }
}
