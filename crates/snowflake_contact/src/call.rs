//! The steps of a contact.

use crate::failure::{Failure, Kind};
use crate::libpq::{Connection, Libpq};
use crate::wire::{COLUMNS, Reply, Value};
use std::ffi::CStr;
use std::path::Path;

/// Where the extension is in the registry's database. Two trips instead of one, so that neither the search path of the
/// node's role nor an object on it decides what is called.
const FIND_SCHEMA: &str = "SELECT pg_catalog.quote_ident(n.nspname::pg_catalog.text)
    FROM pg_catalog.pg_extension AS e
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
    WHERE e.extname OPERATOR(pg_catalog.=) 'snowflake_id'";

/// Connects to the registry, makes one call, and disconnects. Blocks, and name servers, Kerberos and LDAP may make it
/// block for long: call it in a process that can be killed. The registry has committed before this returns an answer;
/// after an error it may have committed nonetheless.
///
/// `libraries` are tried in turn until one has libpq's functions. `ask` returns the arguments of a
/// [`Request`](crate::Request). It is called when the next step is to send them, because the registry compares the
/// request's time with its own, and to connect may take seconds.
pub fn contact(
    libraries: &[&Path],
    connection_string: &CStr,
    ask: impl FnOnce() -> Result<Vec<Value>, Failure>,
) -> Result<Reply, Failure> {
    let libpq = Libpq::load(libraries)?;
    libpq.check(connection_string)?;
    let connection = Connection::open(&libpq, connection_string)?;
    // Whatever the default of the role, the database or the server is.
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
