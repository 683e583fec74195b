//! A session's reaction to the end of a transaction, and to DISCARD, which session pools send between two clients.
//! PostgreSQL has no callback for the latter, so a hook gets every utility statement.

use super::generator;
use super::layout_guard;
use crate::postgres::transactions;
use pgrx::prelude::*;
use std::ffi::{c_char, c_void};
use std::ptr;

static mut PREVIOUS: pg_sys::ProcessUtility_hook_type = None;

unsafe extern "C-unwind" {
    /// PostgreSQL's own function, without pgrx's wrapper, which catches every error so that Rust can clean up. Nothing
    /// here needs cleaning up.
    fn standard_ProcessUtility(
        statement: *mut pg_sys::PlannedStmt,
        query: *const c_char,
        is_read_only: bool,
        context: pg_sys::ProcessUtilityContext::Type,
        parameters: pg_sys::ParamListInfo,
        environment: *mut pg_sys::QueryEnvironment,
        destination: *mut pg_sys::DestReceiver,
        completion: *mut pg_sys::QueryCompletion,
    );
}

/// Installs the hook of utility statements, and the callback for the end of a transaction. Called by the postmaster; the
/// other processes inherit them.
pub fn install() {
    // SAFETY: called once by the postmaster, which has one thread, while it loads libraries.
    unsafe {
        pg_sys::RegisterXactCallback(Some(transaction_event), ptr::null_mut());
        PREVIOUS = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(process_utility);
    }
}

/// Without pgrx's wrapper, whose cost each transaction would pay.
///
/// # Safety
/// Only PostgreSQL may call it.
unsafe extern "C-unwind" fn transaction_event(event: pg_sys::XactEvent::Type, argument: *mut c_void) {
    match event {
        // SAFETY: as this function's contract.
        pg_sys::XactEvent::XACT_EVENT_PRE_PREPARE => unsafe { prepare(argument) },
        // Events before the end come here, too, which only makes the next call slower.
        _ => layout_guard::end_transaction(),
    }
}

/// # Safety
/// As `transaction_event`.
#[pg_guard]
unsafe extern "C-unwind" fn prepare(_argument: *mut c_void) {
    transactions::prepare();
}

/// Runs a statement. Forgets the session's last ID if the statement makes a session forget `lastval()`.
///
/// # Safety
/// Only PostgreSQL may call it. An error of the statement leaves this function by longjmp, so it has no values to be
/// dropped.
unsafe extern "C-unwind" fn process_utility(
    statement: *mut pg_sys::PlannedStmt,
    query: *const c_char,
    is_read_only: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    destination: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: the arguments are PostgreSQL's, passed on. The hook that was installed before never changes after the
    // start. The statement is inspected before it runs, because DISCARD may free it.
    unsafe {
        let forgets = discards_sequences((*statement).utilityStmt);
        let run = PREVIOUS.unwrap_or(standard_ProcessUtility);
        run(statement, query, is_read_only, context, parameters, environment, destination, completion);
        if forgets {
            generator::forget_last_id();
        }
    }
}

/// # Safety
/// `statement` is a PostgreSQL utility statement.
unsafe fn discards_sequences(statement: *const pg_sys::Node) -> bool {
    // SAFETY: by this function's contract; the tag is that of the type.
    unsafe {
        (*statement).type_ == pg_sys::NodeTag::T_DiscardStmt
            && matches!(
                (*statement.cast::<pg_sys::DiscardStmt>()).target,
                pg_sys::DiscardMode::DISCARD_ALL | pg_sys::DiscardMode::DISCARD_SEQUENCES
            )
    }
}
