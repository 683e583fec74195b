//! The steps of a contact.

use crate::failure::{Failure, Kind};
use crate::libpq::{Connection, Libpq};
use crate::wire::{Answer, COLUMNS, Request};
use std::ffi::CStr;
use std::path::Path;

/// Where the extension is in the registry's database. Two trips instead of one, so that neither the search path of the
/// node's role nor an object on it decides what is called.
const FIND_SCHEMA: &str = "SELECT pg_catalog.quote_ident(n.nspname::pg_catalog.text)
    FROM pg_catalog.pg_extension AS e
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
    WHERE e.extname OPERATOR(pg_catalog.=) 'snowflake_id'";

/// Connects to the registry, makes one call, and disconnects. Blocks, and name servers, Kerberos and LDAP may make it
/// block for long: call it in a process that can be killed. The registry has committed before this returns an answer.
///
/// `libraries` are tried in turn until one has libpq's functions.
///
/// # Errors
/// No answer; the registry may have granted something nonetheless.
pub fn contact(libraries: &[&Path], connection_string: &CStr, request: &Request) -> Result<Answer, Failure> {
    let libpq = Libpq::load(libraries)?;
    libpq.check(connection_string)?;
    let connection = Connection::open(&libpq, connection_string)?;
    let schema = find_schema(&connection)?;
    let columns = COLUMNS.map(|(name, _)| name).join(", ");
    let arguments = request.arguments();
    let places = (1..=arguments.len()).map(|i| format!("${i}")).collect::<Vec<_>>().join(", ");
    let call = format!("SELECT {columns} FROM {schema}.snowflake_registry_contact({places})");
    match connection.query(&call, &arguments)?.as_slice() {
        [row] => Answer::from_row(row),
        rows => Err(Failure::new(Kind::Answer, format!("the registry answered with {} rows", rows.len()))),
    }
}

/// The schema of the extension on the registry, quoted for SQL.
fn find_schema(connection: &Connection<'_>) -> Result<String, Failure> {
    let rows = connection.query(FIND_SCHEMA, &[])?;
    let name = rows.first().and_then(|row| row.first()).and_then(|(_, bytes)| bytes.as_ref());
    let name = name.and_then(|bytes| std::str::from_utf8(bytes).ok());
    name.map(str::to_owned).ok_or_else(|| {
        Failure::new(
            Kind::NoRegistry,
            "the extension snowflake_id is not installed in the registry's database",
        )
    })
}
