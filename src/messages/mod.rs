//! The texts of errors and log lines. An [`Error`] ends a statement: the constructors in [`gate`] are of a generator that
//! refuses, those in [`reading`] of an argument or a layout, those in [`importing`] of rows with times of their own, those
//! in [`replication`] of a guard, those in [`horizon`] of a bound that is not known. `contact` has why the registry granted no lease,
//! and [`log`] the lines of the server's log. Why a setting's value is bad is said where it is checked, and what PostgreSQL's
//! library or the core's readers say about a given text is passed on.
//!
//! They follow PostgreSQL's own rules. The primary message is one line in lower case without a full stop: what cannot
//! be done, and why. DETAIL and HINT are full sentences, and a hint says what to do in every case in which it is shown:
//! where nothing is to be done, there is none. `pg_test/server/tests/all/documents/words.rs` holds all texts against this.

mod contact;
mod error;
pub mod gate;
pub mod horizon;
pub mod importing;
pub mod log;
pub mod reading;
pub mod replication;

pub use contact::LeaseFailure;
pub use error::Error;
pub use gate::Awaited;

use error::{error, not_ready};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::borrow::Cow;

/// Where the state lies, from the data directory.
pub const STATE_FILE: &str = "snowflake_id/state";

/// How the message of an error begins where no ID can be generated; its cause follows.
const GENERATING: &str = "cannot generate a snowflake ID";
/// For a message without DETAIL.
const NO_DETAIL: &str = "";
/// For a message after which nothing is to be done.
const NO_HINT: &str = "";

/// A message with its parts.
#[derive(Debug)]
struct Text {
    state: PgSqlErrorCode,
    message: Cow<'static, str>,
    detail: Cow<'static, str>,
    hint: Cow<'static, str>,
}

impl Text {
    #[track_caller]
    fn report(self, level: PgLogLevel) {
        let mut report = ErrorReport::new(self.state, self.message, "snowflake_id");
        if !self.hint.is_empty() {
            report = report.set_hint(self.hint);
        }
        if !self.detail.is_empty() {
            report = report.set_detail(self.detail);
        }
        report.report(level);
    }
}

/// The server's log names the statement that runs with each message, and these do not concern it: it came first.
fn without_statement(report: impl FnOnce()) {
    // SAFETY: the text of the statement is read by PostgreSQL's own report alone, in this process, which has one
    // thread; a message of this level does not unwind.
    unsafe {
        let statement = pg_sys::debug_query_string;
        pg_sys::debug_query_string = std::ptr::null();
        report();
        pg_sys::debug_query_string = statement;
    }
}
