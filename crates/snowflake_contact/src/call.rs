//! The steps of a contact.

use crate::failure::{Failure, Kind};
use crate::hosts::Hosts;
use crate::libpq::{Connection, Libpq};
use crate::wire::{COLUMNS, Reply, Request};
use serde::{Deserialize, Serialize};
use snowflake_core::Contact;
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
/// `libraries` are tried in turn until one has libpq's functions. `hosts` replace those of the connection string.
/// `connected` is called once the registry has accepted the connection, `clock_us` when the call is about to be sent: the
/// registry compares that time with its own, and to connect may take seconds.
pub fn contact(
    libraries: &[&Path],
    connection_string: &CStr,
    hosts: Option<&Hosts>,
    request: &Request,
    connected: impl FnOnce(),
    clock_us: impl FnOnce() -> i64,
) -> Contacted {
    let mut answered = None;
    let result = Libpq::load(libraries).and_then(|libpq| {
        libpq.check(connection_string)?;
        let connection = Connection::open(&libpq, connection_string, hosts)?;
        connected();
        let reply = call(&connection, request, clock_us)?;
        answered = connection.hosts();
        Ok(reply)
    });
    Contacted { result, hosts: answered }
}

/// What became of a contact.
#[derive(Debug, Serialize, Deserialize)]
pub struct Contacted {
    /// The answer; an error if there is none, though the registry may have granted something nonetheless.
    pub result: Result<Reply, Failure>,
    /// After an answer of one of several hosts: all, beginning with that one.
    pub hosts: Option<Hosts>,
}

fn call(
    connection: &Connection<'_>,
    request: &Request,
    clock_us: impl FnOnce() -> i64,
) -> Result<Reply, Failure> {
    // Whatever the default of the role, the database or the server is.
    connection.command(c"BEGIN ISOLATION LEVEL READ COMMITTED")?;
    let schema = find_schema(connection)?;
    let columns = COLUMNS.map(|(name, _)| name).join(", ");
    let contact = Contact { clock_us: clock_us(), ..request.contact };
    let arguments = Request { contact, ..request.clone() }.arguments();
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
    let name = rows.first().and_then(|row| row.first()).and_then(|(_, bytes)| bytes.as_ref());
    let name = name.and_then(|bytes| std::str::from_utf8(bytes).ok());
    name.map(str::to_owned).ok_or_else(|| {
        Failure::new(
            Kind::NoRegistry,
            "the extension snowflake_id is not installed in the registry's database",
        )
    })
}
