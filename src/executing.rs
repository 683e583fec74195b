//! Executing a statement with the rights of another role, as PostgreSQL's own CREATE INDEX, REINDEX and ANALYZE do for
//! the owner of a table: planning, reading and altering a table evaluate the expressions in its definition, and so call
//! functions that its owner chose.

use pgrx::prelude::*;
use std::ffi::CStr;

/// PostgreSQL executes no statement of this kind within another: one that begins or ends a transaction, or a COPY from or
/// to the client.
#[derive(Debug)]
pub struct WrongKind;

/// Executes a statement as `owner`. Needs a transaction.
///
/// SET ROLE would not do, because the functions that are called can RESET it. Here they cannot change the role, nor
/// leave behind a setting, a deferred trigger or a temporary object that would act with the rights of the caller.
pub fn execute_as(owner: pg_sys::Oid, statement: &CStr) {
    try_execute_as(owner, statement).expect("the statement is this library's own");
}

/// The same for any statement. Returns the first column of its first row, if it has one, in the memory context of the call.
pub fn try_execute_as(owner: pg_sys::Oid, statement: &CStr) -> Result<Option<&'static CStr>, WrongKind> {
    let (mut user, mut context) = (pg_sys::Oid::INVALID, 0);
    // SAFETY: a question about a role, and plain settings of the session, which PostgreSQL resets itself if an error
    // ends the statement.
    let level = unsafe {
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        let mut restricted = pg_sys::SECURITY_LOCAL_USERID_CHANGE | pg_sys::SECURITY_RESTRICTED_OPERATION;
        if pg_sys::has_bypassrls_privilege(user) {
            // The caller sees all rows, and FORCE ROW LEVEL SECURITY would hide them from the owner.
            restricted |= pg_sys::SECURITY_NOFORCE_RLS;
        }
        pg_sys::SetUserIdAndSecContext(owner, context | restricted as i32);
        let level = pg_sys::NewGUCNestLevel();
        pg_sys::set_config_option(
            c"search_path".as_ptr(),
            c"pg_catalog, pg_temp".as_ptr(),
            pg_sys::GucContext::PGC_USERSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
        level
    };
    let value = execute(statement);
    // SAFETY: as above; the settings that the statement changed get their values back.
    unsafe {
        pg_sys::AtEOXact_GUC(false, level);
        pg_sys::SetUserIdAndSecContext(user, context);
    }
    value
}

/// Executes a statement, and returns the first column of its first row as text. Not by pgrx, whose statements are in
/// UTF-8 whatever the database's encoding is. The value has any size, so PostgreSQL allocates it: where there is no memory
/// for it, that is an error, while Rust would abort the process, and with it the server.
fn execute(statement: &CStr) -> Result<Option<&'static CStr>, WrongKind> {
    // SAFETY: calls in the order that SPI asks for, within a transaction. The value is made in the caller's memory context,
    // which outlives SPI's, and PostgreSQL cleans up if an error ends the statement.
    unsafe {
        let callers = pg_sys::CurrentMemoryContext;
        pg_sys::SPI_connect();
        let outcome = pg_sys::SPI_execute(statement.as_ptr(), false, 0);
        if outcome < 0 {
            pg_sys::SPI_finish();
            return Err(WrongKind);
        }
        let rows = pg_sys::SPI_tuptable;
        let value = if rows.is_null() || pg_sys::SPI_processed == 0 {
            std::ptr::null_mut()
        } else {
            pg_sys::MemoryContextSwitchTo(callers);
            pg_sys::SPI_getvalue(*(*rows).vals, (*rows).tupdesc, 1)
        };
        pg_sys::SPI_finish();
        Ok((!value.is_null()).then(|| CStr::from_ptr(value)))
    }
}
