//! Why a contact with the fleet's registry brought no lease, and what to do about it: by cause, for the log, for
//! `snowflake_status` and for calls.

use super::{STATE_FILE, gate::UNWRITABLE_HINT};
use crate::postgres::display::os_error;
use snowflake_contact::{Failure, Kind};
use snowflake_core::Errno;

const SAME_VERSION: &str = "Install the same version of snowflake_id on the server and the registry.";

/// Why a contact brought no lease.
#[derive(Debug)]
pub struct LeaseFailure {
    /// The cause, in one line; may be a sentence.
    pub error: String,
    /// The hint; empty if there is nothing to do.
    pub hint: String,
}

impl LeaseFailure {
    fn new(error: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { error: error.into(), hint: hint.into() }
    }

    /// There was no answer.
    pub fn failed(failure: &Failure) -> Self {
        let hint = match failure.kind {
            Kind::Server => {
                "Check that PostgreSQL's client library (libpq5) is installed, and this server's limits of processes, open \
                 files and memory."
            }
            Kind::Connection => {
                "Check the hosts, database, role and password in snowflake_id.registry, the role's rights and its \
                 default_transaction_read_only, the registry's server, and the network between."
            }
            Kind::Call => {
                "Check the registry's server and its log, and after a lock timeout the view pg_locks in its database."
            }
            Kind::Answer => SAME_VERSION,
        };
        Self::new(&failure.text, failure.hint.as_deref().unwrap_or(hint))
    }

    /// The registry's reply does not fit the request.
    pub fn not_fitting() -> Self {
        Self::new("the registry's answer does not fit this server's settings", SAME_VERSION)
    }

    /// A reload has left the server without a registry.
    pub fn removed() -> Self {
        Self::new("snowflake_id.registry is not set", "Set snowflake_id.registry, and reload the settings.")
    }

    /// The lease cannot be written.
    pub fn unwritable(errno: Errno) -> Self {
        Self::new(format!("could not write file \"{STATE_FILE}\": {}", os_error(errno)), UNWRITABLE_HINT)
    }
}
