//! An error that a user can meet: its constructors are in `gate`, `reading` and `replication`.

use super::{GENERATING, Text};
use pgrx::prelude::*;
use std::borrow::Cow;

/// An error that ends a statement, or the start of a server.
#[derive(Debug)]
#[must_use]
pub struct Error(pub(super) Text);

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

pub(super) fn error(
    state: PgSqlErrorCode,
    message: impl Into<Cow<'static, str>>,
    detail: impl Into<Cow<'static, str>>,
    hint: impl Into<Cow<'static, str>>,
) -> Error {
    Error(Text { state, message: message.into(), detail: detail.into(), hint: hint.into() })
}

/// An error of a server that is not in the state for a call.
pub(super) fn not_ready(
    message: impl Into<Cow<'static, str>>,
    detail: impl Into<Cow<'static, str>>,
    hint: impl Into<Cow<'static, str>>,
) -> Error {
    error(PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, message, detail, hint)
}
