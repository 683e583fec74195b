//! Executing a statement with the rights of the owner of what it touches, for the parts in SQL.

use crate::display::shown;
use crate::executing::try_execute_as;
use crate::messages::reading;
use pgrx::prelude::*;
use std::ffi::{CStr, CString};

/// The caller can do no more by this than by SET ROLE, so every role may execute it.
#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_internal.snowflake_execute_as(owner oid, statement text) RETURNS text
    VOLATILE STRICT PARALLEL UNSAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_execute_as(owner: pg_sys::Oid, statement: &[u8]) -> Option<Vec<u8>> {
    let statement = CString::new(statement).expect("a text of PostgreSQL has no NUL");
    // SAFETY: a name that PostgreSQL allocates, or its error if there is no such role; and questions about roles.
    unsafe {
        let name = CStr::from_ptr(pg_sys::GetUserNameFromId(owner, false));
        if !may_become(pg_sys::GetUserId(), owner) {
            reading::not_the_owner(&shown(name.to_bytes())).raise();
        }
    }
    try_execute_as(owner, &statement).unwrap_or_else(|_| reading::not_executed_as().raise())
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
