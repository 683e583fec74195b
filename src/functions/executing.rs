//! Executing a statement with the rights of the owner of what it touches, for the parts in SQL.

use crate::display::shown;
use crate::executing::try_execute_as;
use crate::messages::reading;
use pgrx::prelude::*;
use std::ffi::CStr;

/// The caller can do no more by this than by SET ROLE, so every role may execute it.
///
/// What only reads must not write, alter or rename anything either: the caller's own locks do not prevent that. A
/// read-only transaction would not do, because PostgreSQL 15 lets everybody RESET that.
#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_internal.snowflake_execute_as(owner oid, statement text, only_reads boolean DEFAULT false)
    RETURNS text VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_execute_as(owner: pg_sys::Oid, statement: &[u8], only_reads: bool) -> Option<&'static [u8]> {
    // SAFETY: a name and a copy that PostgreSQL allocates, or its error if there is no such role or no memory; and questions
    // about roles.
    let (statement, name) = unsafe {
        let name = CStr::from_ptr(pg_sys::GetUserNameFromId(owner, false));
        if !may_become(pg_sys::GetUserId(), owner) {
            reading::not_the_owner(&shown(name.to_bytes())).raise();
        }
        (CStr::from_ptr(pg_sys::pnstrdup(statement.as_ptr().cast(), statement.len())), name)
    };
    let before = commands_that_wrote();
    let value = try_execute_as(owner, statement).unwrap_or_else(|_| reading::not_executed_as().raise());
    if only_reads && commands_that_wrote() != before {
        reading::wrote(&shown(name.to_bytes())).raise();
    }
    value.map(CStr::to_bytes)
}

/// The commands of this transaction, of which PostgreSQL counts those that write rows, also of catalogs.
fn commands_that_wrote() -> pg_sys::CommandId {
    // SAFETY: within a transaction, and nothing of this library holds a snapshot.
    unsafe {
        pg_sys::CommandCounterIncrement();
        pg_sys::GetCurrentCommandId(false)
    }
}

/// Whether a role may SET ROLE to another, which PostgreSQL refuses in a function with its owner's rights. There a role
/// does what it could do by itself: a superuser, anything.
///
/// # Safety
/// Within a transaction, because it reads catalogs.
unsafe fn may_become(user: pg_sys::Oid, owner: pg_sys::Oid) -> bool {
    // SAFETY: by this function's contract.
    unsafe {
        if pg_sys::InLocalUserIdChange() {
            return user == owner || pg_sys::superuser_arg(user);
        }
        #[cfg(feature = "pg15")]
        return pg_sys::is_member_of_role(user, owner);
        #[cfg(not(feature = "pg15"))]
        return pg_sys::member_can_set_role(user, owner);
    }
}
