//! Every text that a user can meet: [`error`] ends a statement, [`log`] tells the server's log.

pub mod error;
pub mod log;

pub use error::Error;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::borrow::Cow;

/// Where the state lies, from the data directory.
pub const STATE_FILE: &str = "snowflake_id/state";

/// A message with its parts; an empty hint is none.
struct Text {
    state: PgSqlErrorCode,
    message: Cow<'static, str>,
    detail: Option<String>,
    hint: Cow<'static, str>,
}

impl Text {
    #[track_caller]
    fn report(self, level: PgLogLevel) {
        let mut report = ErrorReport::new(self.state, self.message, "snowflake_id");
        if !self.hint.is_empty() {
            report = report.set_hint(self.hint);
        }
        if let Some(detail) = self.detail {
            report = report.set_detail(detail);
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
