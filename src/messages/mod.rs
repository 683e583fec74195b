//! The texts of errors and log lines. An [`Error`] ends a statement: [`gate`] has those of a generator that refuses,
//! [`reading`] those about arguments and layouts, [`importing`] those about rows with times of their own, [`horizon`] those
//! of an unknown bound. `contact` has the causes of a missing lease, and [`log`] the lines of the server's log. `settings`
//! has the texts about bad values. Texts of libpq and the core are passed on.
//!
//! They follow PostgreSQL's own rules. The primary message is one line in lower case without a full stop: what cannot be
//! done, and why. DETAIL and HINT are full sentences, and a hint fits every case in which it is shown: if there is nothing
//! to do, there is none.

mod contact;
mod error;
pub mod gate;
pub mod horizon;
pub mod importing;
pub mod log;
pub mod reading;

pub use contact::LeaseFailure;
pub use error::Error;
pub use gate::Awaited;

use error::{error, not_ready};
use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::borrow::Cow;

/// Path of the state file, relative to the data directory.
pub const STATE_FILE: &str = "snowflake_id/state";

/// Prefix of the message of an error that generates no ID; the cause follows.
const GENERATING: &str = "cannot generate a snowflake ID";
/// For a message without DETAIL.
const NO_DETAIL: &str = "";
/// For a message without HINT.
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

/// Reports without the line STATEMENT: the current statement is only the first to meet the event, not its cause.
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
