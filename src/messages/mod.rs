//! Every text that a user can meet. [`error`] ends a statement: its texts are in `gate`, where the generator is what
//! refuses, in `reading`, where an argument or a layout is, and in `replication`, where a guard is. `contact` has why the registry
//! granted no lease. [`log`] tells the
//! server's log.
//!
//! They follow PostgreSQL's own rules. The primary message is one line in lower case without a full stop: what cannot
//! be done, and why. DETAIL and HINT are full sentences, and a hint says what to do in every case in which it is shown:
//! where nothing is to be done, there is none. `pg_test/server/tests/words.rs` holds all texts against this.

mod contact;
pub mod error;
mod gate;
pub mod log;
mod reading;
mod replication;

pub use contact::Unleased;
pub use error::{Awaited, Error};
pub use gate::settling;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::borrow::Cow;

/// Where the state lies, from the data directory.
pub const STATE_FILE: &str = "snowflake_id/state";

/// How the message of an error begins where no ID can be generated; its cause follows.
const GENERATING: &str = "cannot generate a snowflake ID";
/// For a message without DETAIL.
const NO_DETAIL: &str = "";
/// For a message that asks nobody to do anything.
const NO_HINT: &str = "";

/// A message with its parts.
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

    /// The message without what cannot be done: where that is said already.
    fn cause(&self) -> &str {
        let cause = self.message.strip_prefix(GENERATING).and_then(|rest| rest.strip_prefix(": "));
        cause.unwrap_or(&self.message)
    }
}

fn text(
    state: PgSqlErrorCode,
    message: impl Into<Cow<'static, str>>,
    detail: impl Into<Cow<'static, str>>,
    hint: impl Into<Cow<'static, str>>,
) -> Text {
    Text { state, message: message.into(), detail: detail.into(), hint: hint.into() }
}

/// An error of a server that is not in the state for a call.
fn not_ready(
    message: impl Into<Cow<'static, str>>,
    detail: impl Into<Cow<'static, str>>,
    hint: impl Into<Cow<'static, str>>,
) -> Text {
    text(PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message, detail, hint)
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
