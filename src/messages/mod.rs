//! The texts of errors and log lines. An [`Error`] ends a statement: [`gate`] has those of a generator that refuses and of
//! an unknown bound, [`reading`] those about arguments and layouts. `contact` has the causes of a missing lease, and [`log`]
//! the lines of the server's log. `settings` has the texts about bad values. Texts of libpq and the core are passed on.
//!
//! They follow PostgreSQL's own rules. The primary message is one line in lower case without a full stop: what cannot be
//! done, and why. DETAIL and HINT are full sentences, and a hint fits every case in which it is shown: if there is nothing
//! to do, there is none.

mod contact;
pub mod gate;
pub mod log;
pub mod reading;

pub use contact::LeaseFailure;

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use std::borrow::Cow;

/// Path of the state file, relative to the data directory.
pub const STATE_FILE: &str = "snowflake_id/state";

/// Prefix of the message of an error that generates no ID; the cause follows.
const GENERATING: &str = "cannot generate a snowflake ID";
const NO_DETAIL: &str = "";
const NO_HINT: &str = "";

/// A message with its parts.
#[derive(Debug)]
pub struct Text {
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

/// An error that ends a statement, or the start of a server.
#[derive(Debug)]
#[must_use]
pub struct Error(Text);

impl Error {
    /// Ends the statement, or, while the server starts, the start.
    #[cold]
    #[track_caller]
    pub fn raise(self) -> ! {
        self.0.report(PgLogLevel::ERROR);
        unreachable!("an error does not return")
    }

    /// Ends the statement, with the name of a function that generates no ID in the message.
    #[cold]
    #[track_caller]
    pub fn raise_in(self, function: &str) -> ! {
        let Self(text) = self;
        let message = match text.message.strip_prefix(GENERATING) {
            Some(cause) => format!("cannot execute {function}{cause}").into(),
            None => text.message,
        };
        Self(Text { message, ..text }).raise()
    }

    /// The hint.
    pub fn hint(&self) -> &str {
        &self.0.hint
    }

    /// The cause with its detail, in one line, for a view.
    pub fn summary(&self) -> String {
        let (cause, Self(text)) = (self.cause(), self);
        if text.detail.is_empty() { cause.to_owned() } else { format!("{cause}: {}", text.detail) }
    }

    /// The message without the prefix `cannot generate a snowflake ID: `.
    pub fn cause(&self) -> &str {
        let message = &self.0.message;
        let cause = message.strip_prefix(GENERATING).and_then(|rest| rest.strip_prefix(": "));
        cause.unwrap_or(message)
    }
}

fn error(
    state: PgSqlErrorCode,
    message: impl Into<Cow<'static, str>>,
    detail: impl Into<Cow<'static, str>>,
    hint: impl Into<Cow<'static, str>>,
) -> Error {
    Error(Text { state, message: message.into(), detail: detail.into(), hint: hint.into() })
}

/// An error of a server that is not in the state for a call.
fn not_ready(
    message: impl Into<Cow<'static, str>>,
    detail: impl Into<Cow<'static, str>>,
    hint: impl Into<Cow<'static, str>>,
) -> Error {
    error(PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message, detail, hint)
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
