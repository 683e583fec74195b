//! Every error that a user can meet: its SQLSTATE, what happened, and what to do about it.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::prelude::*;
use snowflake_core::{NoLane, Refusal};
use std::borrow::Cow;
use std::ffi::CStr;

/// The line that an operator has to add, for hints.
const PRELOAD: &str = "Add this line to postgresql.conf, or extend the one that is there, and restart \
     the server: shared_preload_libraries = 'snowflake_id'";

/// What can go wrong, by cause.
#[derive(Debug)]
pub enum Error {
    NotPreloaded,
    WorkerUnset {
        highest: i64,
    },
    InRecovery,
    Refused(Refusal),
    NoLastId,
    BatchSize(i32),
    RangeSize {
        n: i32,
        most: i64,
    },
    NotAnId(i64),
    /// A setting that stops the server's start.
    Setting {
        name: &'static str,
        value: String,
        detail: String,
        hint: String,
    },
}

struct Text {
    state: PgSqlErrorCode,
    message: Cow<'static, str>,
    detail: Option<String>,
    hint: Cow<'static, str>,
}

impl Error {
    /// Ends the statement, or, while the server starts, the start.
    #[cold]
    #[track_caller]
    pub fn raise(self) -> ! {
        let Text { state, message, detail, hint } = self.text();
        let mut report = ErrorReport::new(state, message, "snowflake_id").set_hint(hint);
        if let Some(detail) = detail {
            report = report.set_detail(detail);
        }
        report.report(PgLogLevel::ERROR);
        unreachable!("an error does not return")
    }

    /// What happened, in one line, for a display.
    pub fn summary(self) -> String {
        let Text { message, detail, .. } = self.text();
        match detail {
            Some(detail) => format!("{message}: {detail}"),
            None => message.into_owned(),
        }
    }

    fn text(self) -> Text {
        use PgSqlErrorCode::{
            ERRCODE_INVALID_PARAMETER_VALUE as INVALID,
            ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE as NOT_READY,
            ERRCODE_READ_ONLY_SQL_TRANSACTION as READ_ONLY,
        };
        let text = |state, message: Cow<'static, str>, detail: &str, hint: Cow<'static, str>| Text {
            state,
            message,
            detail: (!detail.is_empty()).then(|| detail.to_owned()),
            hint,
        };
        match self {
            Self::NotPreloaded => text(
                NOT_READY,
                "snowflake_id is not in shared_preload_libraries".into(),
                "IDs are made from shared memory, and read by the layout in the server's settings: both are \
                 set up when the server starts.",
                PRELOAD.into(),
            ),
            Self::WorkerUnset { highest } => text(
                NOT_READY,
                "snowflake_id.worker_id is not set".into(),
                "Every server needs a worker of its own: two that share one would make the same IDs.",
                format!(
                    "Set snowflake_id.worker_id in postgresql.conf to a number from 0 to {highest} that no \
                     other server has, and restart the server."
                )
                .into(),
            ),
            Self::InRecovery => text(
                READ_ONLY,
                "cannot make a snowflake ID during recovery".into(),
                "A standby makes no IDs, for it would make those of its primary again.",
                "Run the statement on the primary, or promote this server.".into(),
            ),
            Self::NoLastId => text(
                NOT_READY,
                "this session has not made a snowflake ID yet".into(),
                "",
                "Call snowflake_nextval first, or insert a row whose default calls it.".into(),
            ),
            Self::Refused(refusal) => refusal_text(refusal),
            Self::BatchSize(n) => text(
                INVALID,
                "a batch cannot have a negative number of IDs".into(),
                &format!("{n} IDs were asked for."),
                "Ask for 0 or more.".into(),
            ),
            Self::RangeSize { n, most } => text(
                INVALID,
                "a range of IDs must fit into one tick".into(),
                &format!("{n} IDs were asked for; under this server's settings a range has 1 to {most}."),
                "Ask for fewer, or use snowflake_nextval_batch, which has no limit.".into(),
            ),
            Self::NotAnId(id) => text(
                INVALID,
                format!("{id} is not a snowflake ID of this server's layout").into(),
                if id < 0 { "An ID is never negative." } else { "It has bits above the time field." },
                "Check where the value comes from; an ID of another system needs that system's layout."
                    .into(),
            ),
            Self::Setting { name, value, detail, hint } => text(
                INVALID,
                format!("invalid value for parameter \"{name}\": \"{value}\"").into(),
                &detail,
                hint.into(),
            ),
        }
    }
}

fn refusal_text(refusal: Refusal) -> Text {
    let not_ready = |message: &'static str, detail: String, hint: &'static str| Text {
        state: PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        message: message.into(),
        detail: Some(detail),
        hint: hint.into(),
    };
    match refusal {
        Refusal::Closed => not_ready(
            "the snowflake ID generator is closed",
            "It was closed again while this call was opening it.".to_owned(),
            "Try again; see the view snowflake_status for the reason.",
        ),
        Refusal::BeforeEpoch(micros) => not_ready(
            "the clock has not reached snowflake_id.epoch",
            format!("The wall clock is {} before the epoch.", duration(micros)),
            "Correct the clock, or set snowflake_id.epoch to a time in the past and restart the server.",
        ),
        Refusal::Exhausted => not_ready(
            "the time field of the snowflake layout is exhausted",
            "No tick is left that the layout can hold.".to_owned(),
            "Correct the clock if it is ahead; otherwise move to a layout with more bits of time, or to a \
             coarser tick.",
        ),
        Refusal::NoLane(no_lane) => not_ready(
            "the clock is back and no worker of this server can make an ID yet",
            no_lane_detail(&no_lane),
            "Wait, or correct the clock if it is wrong. To go on at once, set snowflake_id.worker_id to a \
             worker that was never used and restart the server.",
        ),
    }
}

/// How far the clock is back, and until when.
pub fn no_lane_detail(no_lane: &NoLane) -> String {
    format!(
        "The wall clock is {} behind the last ID. Lane {} is usable first, when the clock reads {}.",
        duration(no_lane.behind_us.max(0)),
        no_lane.lane,
        timestamp(no_lane.usable_at_us),
    )
}

/// A length of time for a message.
pub fn duration(micros: i64) -> String {
    let millis = micros / 1_000;
    match millis {
        ..10_000 => format!("{millis} ms"),
        10_000..600_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{} s", millis / 1_000),
    }
}

/// A Unix time in microseconds, as PostgreSQL prints it in its log.
pub fn timestamp(unix_us: i64) -> String {
    // SAFETY: returns a NUL-terminated text in a static buffer for any value, copied before it is used
    // again.
    unsafe {
        let text = pg_sys::timestamptz_to_str(crate::functions::to_postgres(unix_us));
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}
