//! The transactions of this server, for the horizon: which one this process is in, and which still run.
//!
//! A running transaction has the slot of its process's PGPROC. Its name is the virtual backend and its local transaction
//! ID: PostgreSQL counts these per virtual backend, which in 15 and 16 may have another PGPROC each time. PostgreSQL clears
//! the ID at the end, in the same hold of ProcArrayLock that makes the rows visible. So a snapshot taken after the ID was
//! seen cleared shows the transaction's rows, and nothing needs to be cleared here.
//!
//! The name of a prepared transaction is its transaction ID. Each PREPARE TRANSACTION since the start takes a slot: a
//! prepared transaction without one is older, and its IDs are unknown.

use pgrx::pg_sys::{PGPROC, TransactionId};
use pgrx::prelude::*;
use snowflake_core::{Slot, Slots};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

static RUNNING: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
static PREPARED: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());

/// Transactions whose ids differ by this much or more cannot both be in progress.
const HALF_OF_IDS: u64 = 1 << 31;

/// The number of slots that the server needs: for running transactions, and for prepared ones. Each process may be about to
/// prepare one. Both are fixed when shared memory is requested.
pub fn slots_needed() -> (usize, usize) {
    // SAFETY: plain reads of settings, which are fixed by then.
    let (processes, preparable) = unsafe { (pg_sys::MaxBackends, pg_sys::max_prepared_xacts) };
    let prepared = if preparable == 0 { 0 } else { processes + preparable };
    (processes as usize, prepared as usize)
}

/// Sets the slots in shared memory for this and all later processes: those of running transactions first.
pub fn share(slots: &'static [Slot]) {
    let (running, prepared) = slots.split_at(slots_needed().0);
    RUNNING.store(running.as_ptr().cast_mut(), Ordering::Relaxed);
    PREPARED.store(prepared.as_ptr().cast_mut(), Ordering::Relaxed);
}

/// The slots; none without a generator.
pub fn slots() -> Slots<'static> {
    let (running, prepared) = slots_needed();
    let part = |first: &AtomicPtr<Slot>, length| {
        let first = first.load(Ordering::Relaxed);
        // SAFETY: null, or as many slots as `share` was given, which are static.
        if first.is_null() { &[][..] } else { unsafe { std::slice::from_raw_parts(first, length) } }
    };
    Slots { running: part(&RUNNING, running), prepared: part(&PREPARED, prepared) }
}

/// The slot of this process, and the name of its transaction. Call it in a transaction, with a generator.
#[inline]
pub fn own() -> (&'static Slot, u64) {
    // SAFETY: a process in a transaction has a PGPROC. Those of processes that can run SQL come first, so that each has a
    // slot, which `share` was given.
    unsafe {
        // No reference, because other processes write there.
        let process = pg_sys::MyProc.cast_const();
        let number = process.offset_from((*pg_sys::ProcGlobal).allProcs.cast_const());
        debug_assert!((number as usize) < slots_needed().0);
        (&*RUNNING.load(Ordering::Relaxed).offset(number), name(process))
    }
}

/// The name of the transaction in a process: the virtual backend, then its local transaction ID, which is 0 between
/// transactions. In another process it may change at any time.
///
/// # Safety
/// `process` is a PGPROC.
#[inline]
unsafe fn name(process: *const PGPROC) -> u64 {
    // SAFETY: by this function's contract. Both are aligned words, which other processes write whole.
    let (backend, transaction) = unsafe {
        #[cfg(any(feature = "pg15", feature = "pg16"))]
        let ids = (&raw const (*process).backendId, &raw const (*process).lxid);
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        let ids = (&raw const (*process).vxid.procNumber, &raw const (*process).vxid.lxid);
        let (backend, transaction) = (ids.0.cast_mut(), ids.1.cast_mut());
        let backend = AtomicI32::from_ptr(backend).load(Ordering::Relaxed);
        (backend, std::sync::atomic::AtomicU32::from_ptr(transaction).load(Ordering::Relaxed))
    };
    u64::from(backend as u32) << 32 | u64::from(transaction)
}

/// Whether the transaction of this name still runs in the process of this number.
pub fn is_running(number: usize, transaction: u64) -> bool {
    // SAFETY: the number of a slot, so of a PGPROC.
    unsafe { name((*pg_sys::ProcGlobal).allProcs.add(number)) == transaction }
}

/// Whether the transaction of this ID, prepared or about to be, is in progress.
pub fn is_in_progress(transaction: u64) -> bool {
    // SAFETY: called within a transaction.
    unsafe {
        pg_sys::ReadNextFullTransactionId().value - transaction < HALF_OF_IDS
            && pg_sys::TransactionIdIsInProgress(TransactionId::from_inner(transaction as u32))
    }
}

/// Copies the announcement of this process's transaction to a slot of prepared ones: PREPARE TRANSACTION is about to detach
/// the transaction from the process.
pub fn prepare() {
    let slots = slots();
    // No transaction can be prepared: PostgreSQL will refuse this one.
    if slots.prepared.is_empty() {
        return;
    }
    let (slot, name) = own();
    // SAFETY: called within a transaction, which gets an ID anyway.
    let id = unsafe { pg_sys::GetTopFullTransactionId().value };
    assert!(slots.prepare(slot, name, id, is_in_progress), "more transactions are prepared than can be");
}

/// Whether a prepared transaction is in progress that was prepared before the server's start.
pub fn has_earlier_prepared() -> bool {
    // SAFETY: called within a transaction. PostgreSQL has a PGPROC for each transaction that can be prepared, and leaves
    // the ID of an ended one there until it is used again.
    unsafe {
        let next = pg_sys::ReadNextFullTransactionId().value;
        (0..pg_sys::max_prepared_xacts as usize).any(|i| {
            let id = (&raw const (*pg_sys::PreparedXactProcs.add(i)).xid).read_volatile();
            let age = (next as u32).wrapping_sub(id.into_inner());
            id != pg_sys::InvalidTransactionId
                && u64::from(age) < HALF_OF_IDS
                && pg_sys::TransactionIdIsInProgress(id)
                && !slots().has_prepared(|name| name as u32 == id.into_inner())
        })
    }
}
