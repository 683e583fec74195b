//! The steps of a contact.

use crate::failure::{Failure, Kind};
use crate::libpq::{Connection, Libpq};
use crate::wire::{COLUMNS, Reply, Value};
use std::ffi::CStr;
use std::path::Path;

/// Selects the schema of the extension in the registry's database. A second round trip, so that the call does not depend on
/// the node role's search path, nor on objects there.
const FIND_SCHEMA: &str = "SELECT pg_catalog.quote_ident(n.nspname::pg_catalog.text)
    FROM pg_catalog.pg_extension AS e
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
    WHERE e.extname OPERATOR(pg_catalog.=) 'snowflake_id'";

/// Connects to the registry, makes one call, and disconnects. Blocks without a limit, on name servers, Kerberos or LDAP:
/// call it in a process that can be killed. The registry has committed before this returns a reply; after an error it may
/// have committed, too.
///
/// Tries `libraries` in turn until one has libpq's functions. `ask` returns the arguments of a [`Request`](crate::Request).
/// It is called right before they are sent, because the registry compares the request's time with its own clock, and
/// connecting may take seconds.
pub fn contact(
    libraries: &[&Path],
    connection_string: &CStr,
    ask: impl FnOnce() -> Result<Vec<Value>, Failure>,
) -> Result<Reply, Failure> {
    let libpq = Libpq::load(libraries)?;
    libpq.check(connection_string)?;
    let connection = Connection::open(&libpq, connection_string)?;
    // The default of the role, the database or the server may be another level.
    connection.command(c"BEGIN ISOLATION LEVEL READ COMMITTED")?;
    let schema = find_schema(&connection)?;
    let arguments = ask()?;
    let columns = COLUMNS.join(", ");
    let places = (1..=arguments.len()).map(|i| format!("${i}")).collect::<Vec<_>>().join(", ");
    let call = format!("SELECT {columns} FROM {schema}.snowflake_registry_contact({places})");
    let rows = connection.query(&call, &arguments)?;
    connection.command(c"COMMIT")?;
    match rows.as_slice() {
        [row] => Reply::from_row(row),
        rows => Err(Failure::new(Kind::Answer, format!("the registry answered with {} rows", rows.len()))),
    }
}

/// The schema of the extension on the registry, quoted for SQL.
fn find_schema(connection: &Connection<'_>) -> Result<String, Failure> {
    let rows = connection.query(FIND_SCHEMA, &[])?;
    let name = rows.first().and_then(|row| row.first()).and_then(Option::as_ref);
    let name = name.and_then(|bytes| std::str::from_utf8(bytes).ok());
    name.map(str::to_owned).ok_or_else(|| {
        Failure::new(
            Kind::Connection,
            "the extension snowflake_id is not installed in the registry's database",
        )
    })
}
