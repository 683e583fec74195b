//! What a session has to do for statements that are not about IDs. PostgreSQL tells no extension of DISCARD, which
//! session pools send between two clients, nor of the end of a prepared transaction: so utility statements pass by here,
//! as they do by extensions that audit or distribute them.

use crate::generator;
use pgrx::prelude::*;
use std::ffi::c_char;

static mut PREVIOUS: pg_sys::ProcessUtility_hook_type = None;

unsafe extern "C-unwind" {
    /// PostgreSQL's own, without pgrx's wrapper, which catches every error so that Rust can clean up: nothing here
    /// needs that.
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

/// Has PostgreSQL run utility statements through here.
pub fn install_hook() {
    // SAFETY: called once by the postmaster, which has one thread, while it loads libraries.
    unsafe {
        PREVIOUS = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(process_utility);
    }
}

/// Runs a statement; forgets the session's last ID where it makes a session forget `lastval()`, and looks at prepared
/// transactions before it ends one of them.
///
/// # Safety
/// To be called by PostgreSQL. An error of the statement leaves this function by longjmp: so it has nothing that would be
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
    // SAFETY: the arguments are PostgreSQL's, handed on; the hook before ours is never changed after the start. The
    // statement is looked at first: DISCARD may free it.
    unsafe {
        let forgets = discards_sequences((*statement).utilityStmt);
        if ends_prepared((*statement).utilityStmt) {
            heed_prepared();
        }
        let run = PREVIOUS.unwrap_or(standard_ProcessUtility);
        run(statement, query, is_read_only, context, parameters, environment, destination, completion);
        if forgets {
            generator::forget_last_id();
        }
    }
}

/// With pgrx's wrapper, which makes an error of PostgreSQL's out of what Rust may unwind with.
#[pg_guard]
extern "C-unwind" fn heed_prepared() {
    generator::heed_prepared();
}

/// # Safety
/// `statement` is a utility statement of PostgreSQL's.
unsafe fn ends_prepared(statement: *const pg_sys::Node) -> bool {
    use pg_sys::TransactionStmtKind::{TRANS_STMT_COMMIT_PREPARED, TRANS_STMT_ROLLBACK_PREPARED};
    // SAFETY: by the contract of this function; the tag says what it is.
    unsafe {
        (*statement).type_ == pg_sys::NodeTag::T_TransactionStmt
            && [TRANS_STMT_COMMIT_PREPARED, TRANS_STMT_ROLLBACK_PREPARED]
                .contains(&(*statement.cast::<pg_sys::TransactionStmt>()).kind)
    }
}

/// # Safety
/// `statement` is a utility statement of PostgreSQL's.
unsafe fn discards_sequences(statement: *const pg_sys::Node) -> bool {
    // SAFETY: by the contract of this function; the tag says what it is.
    unsafe {
        (*statement).type_ == pg_sys::NodeTag::T_DiscardStmt
            && matches!(
                (*statement.cast::<pg_sys::DiscardStmt>()).target,
                pg_sys::DiscardMode::DISCARD_ALL | pg_sys::DiscardMode::DISCARD_SEQUENCES
            )
    }
}
