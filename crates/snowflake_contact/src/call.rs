//! The steps of a contact.

use crate::failure::{Failure, Kind};
use crate::libpq::{Connection, Libpq};
use crate::wire::{COLUMNS, Reply, Request};
use std::ffi::CStr;
use std::path::Path;

/// Connects to the registry, makes one call, and disconnects. Blocks without a limit, on name servers, Kerberos or LDAP:
/// call it in a process that can be killed. The registry has committed before this returns a reply; after an error it may
/// have committed, too.
///
/// Tries `libraries` in turn until one has libpq's functions. Calls `connected` before anything is sent to the registry,
/// and reads the clock, as a Unix time in microseconds, right before the request: the registry compares it with its own
/// clock, and connecting may take seconds.
pub fn contact(
    libraries: &[&Path],
    connection_string: &CStr,
    request: &Request,
    connected: impl FnOnce(),
    clock_us: impl FnOnce() -> i64,
) -> Result<Reply, Failure> {
    let libpq = Libpq::load(libraries)?;
    libpq.check(connection_string)?;
    let connection = Connection::open(&libpq, connection_string)?;
    connected();
    // The default of the role, the database or the server may be another level.
    connection.command(c"BEGIN ISOLATION LEVEL READ COMMITTED")?;
    let arguments = request.arguments(clock_us());
    let columns = COLUMNS.join(", ");
    let places = (1..=arguments.len()).map(|i| format!("${i}")).collect::<Vec<_>>().join(", ");
    // By the name of its schema, so that neither the role's search path nor objects on it count.
    let call = format!("SELECT {columns} FROM snowflake_internal.snowflake_registry_contact({places})");
    let rows = connection.query(&call, &arguments)?;
    connection.command(c"COMMIT")?;
    match rows.as_slice() {
        [row] => Reply::from_row(row),
        rows => Err(Failure::new(Kind::Answer, format!("the registry answered with {} rows", rows.len()))),
    }
}
