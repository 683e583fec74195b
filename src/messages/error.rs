//! Every error that a user can meet: its SQLSTATE, what happened, and what to do about it.

use super::{STATE_FILE, Text};
use crate::display::{duration, layout, os_error, postgres_timestamp, timestamp};
use crate::settings::{self, BadValue};
use pgrx::prelude::*;
use snowflake_core::{AdoptError, ClosedReason, FloorCause, NoLane, Refusal};
use std::borrow::Cow;

/// The line that an operator has to add, for hints.
const PRELOAD: &str = "Add this line to postgresql.conf, or extend the one that is there, and restart \
     the server: shared_preload_libraries = 'snowflake_id'";

/// What to do where the state cannot be written.
pub const UNWRITABLE_HINT: &str =
    "Make room, or make the data directory writable: it is tried again every second.";
/// What to do where no worker can be used, because the clock moved.
pub const NO_LANE_HINT: &str = "Wait, or correct the clock if it is wrong. To go on at once, set \
     snowflake_id.worker_id to a worker that was never used and restart the server.";
/// What to do where no worker can be used, because of a floor.
pub const FLOOR_HINT: &str = "Wait, or correct the clock if it is wrong. If no ID newer than now exists in this \
     database or elsewhere, a superuser can call snowflake_adopt(now(), lower => true).";

/// What can go wrong, by cause.
#[derive(Debug)]
pub enum Error {
    NotPreloaded,
    WorkerUnset {
        highest: i64,
    },
    InRecovery,
    /// While a call waited for the disk, or for the clock.
    StatementTimeout {
        is_disk: bool,
    },
    Refused(Refusal),
    Closed(ClosedReason),
    NotAdopted(AdoptError),
    LowerNotSuperuser,
    NoLastId,
    BatchSize(i32),
    RangeSize {
        n: i32,
        most: i64,
    },
    NotAnId(i64),
    NegativeId(i64),
    NotForeignId {
        id: i64,
        layout: String,
    },
    NotALayout {
        text: String,
        problem: String,
    },
    NotBase62 {
        text: String,
        problem: String,
    },
    TimeOutside(pg_sys::TimestampTz),
    FieldOutside {
        name: &'static str,
        value: i32,
        values: i64,
    },
    /// A setting that keeps the generator closed.
    Setting(&'static BadValue),
    /// The layout of the IDs of this session's database, in words, where it is not this server's.
    OtherDatabase(String),
}

impl Error {
    /// Ends the statement, or, while the server starts, the start.
    #[cold]
    #[track_caller]
    pub fn raise(self) -> ! {
        self.text().report(PgLogLevel::ERROR);
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

    pub(super) fn text(self) -> Text {
        use PgSqlErrorCode::{
            ERRCODE_DATETIME_FIELD_OVERFLOW as OVERFLOW, ERRCODE_INSUFFICIENT_PRIVILEGE as NO_RIGHT,
            ERRCODE_INVALID_PARAMETER_VALUE as INVALID,
            ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE as NOT_READY, ERRCODE_QUERY_CANCELED as CANCELED,
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
            Self::StatementTimeout { is_disk: false } => text(
                CANCELED,
                "canceling statement due to statement timeout".into(),
                "The statement was waiting for the wall clock to reach the next snowflake ID.",
                "See the view snowflake_status, and compare the server's clock with the true time.".into(),
            ),
            Self::StatementTimeout { is_disk: true } => text(
                CANCELED,
                "canceling statement due to statement timeout".into(),
                "The statement was waiting until the next snowflake IDs were reserved on disk.",
                "See the view snowflake_status, and check the disk that holds the data directory.".into(),
            ),
            Self::NoLastId => text(
                NOT_READY,
                "snowflake_lastval is not yet defined in this session".into(),
                "The session itself has generated no ID since it began, or since DISCARD ALL. IDs that parallel \
                 workers generated for its queries do not count.",
                "Call snowflake_nextval first, or insert a row whose default calls it.".into(),
            ),
            Self::Refused(refusal) => refusal_text(refusal),
            Self::Closed(why) => closed_text(why),
            Self::NotAdopted(AdoptError::Closed(why)) => closed_text(why),
            Self::NotAdopted(AdoptError::FloorInFuture) => text(
                INVALID,
                "the floor lies more than a day ahead of the clock".into(),
                "No ID could be made before the clock has come to it.",
                "Check the time that was given, and the server's clock.".into(),
            ),
            Self::NotAdopted(AdoptError::LayoutBelow(old)) => text(
                NOT_READY,
                "IDs of the configured layout would lie below those that were made".into(),
                &format!("IDs were made with {}; the configured one is {}.", layout(&old), configured_layout()),
                "Set snowflake_id.layout, tick and epoch back, and restart the server; or choose a layout whose \
                 lowest ID at this time lies above all IDs that the old one made."
                    .into(),
            ),
            Self::LowerNotSuperuser => text(
                NO_RIGHT,
                "must be superuser to lower the marks of snowflake IDs".into(),
                "With lower marks the server generates IDs of times that it may have used before.",
                "Ask a superuser, who can assert that no ID newer than floor exists.".into(),
            ),
            Self::BatchSize(n) => text(
                INVALID,
                "a batch cannot have a negative number of IDs".into(),
                &format!("{n} IDs were asked for."),
                "Ask for 0 or more.".into(),
            ),
            Self::RangeSize { n, most } => text(
                INVALID,
                format!("n must be from 1 to {most}").into(),
                &format!(
                    "n is {n}. A range lies within one tick, and has up to {most} IDs under this server's \
                     settings."
                ),
                if n < 1 {
                    "Ask for at least one ID.".into()
                } else {
                    "Ask for fewer, or use snowflake_nextval_batch, which has no limit.".into()
                },
            ),
            Self::NotAnId(id) => text(
                INVALID,
                format!("{id} is not a snowflake ID of this server's layout").into(),
                why_no_id(id),
                "Check where the value comes from; an ID of another system needs that system's layout."
                    .into(),
            ),
            Self::NegativeId(id) => text(
                INVALID,
                format!("{id} is not a snowflake ID").into(),
                why_no_id(id),
                "Check where the value comes from.".into(),
            ),
            Self::NotForeignId { id, layout } => text(
                INVALID,
                format!("{id} is not an ID of the layout \"{layout}\"").into(),
                // Of a layout of 64 bits, some are.
                if id < 0 { "A negative ID cannot be read." } else { why_no_id(id) },
                "Check where the value comes from, and which layout it has.".into(),
            ),
            Self::NotALayout { text: given, problem } => text(
                INVALID,
                format!("\"{given}\" is not a layout that can be read").into(),
                &problem,
                "Give a name from the view snowflake_layouts; or write the bits of time/worker/sequence, the \
                 tick and the epoch, for example 41/10/12 1ms 2015-01-01."
                    .into(),
            ),
            Self::NotBase62 { text: given, problem } => text(
                INVALID,
                format!("\"{given}\" is not a snowflake ID in base62").into(),
                &problem,
                "Give the 11 characters that snowflake_to_base62 returned, zeros in front included.".into(),
            ),
            Self::TimeOutside(time) => text(
                OVERFLOW,
                "timestamp is outside this server's layout".into(),
                &format!("{} was given. {}", postgres_timestamp(time), layout_span()),
                "Check the timestamp; or use snowflake_between, which takes any.".into(),
            ),
            Self::FieldOutside { name, value, values } => text(
                INVALID,
                format!("{name} is outside this server's layout").into(),
                &format!(
                    "{value} was given; with the layout {} a {name} is 0 to {}.",
                    configured_layout(),
                    values - 1
                ),
                "Check where the value comes from.".into(),
            ),
            Self::OtherDatabase(other) => text(
                NOT_READY,
                "the snowflake layout of this database differs from this server's".into(),
                &format!("Its IDs have {other}; this server is configured with {}.", configured_layout()),
                "Set snowflake_id.layout, tick and epoch to those of the database and restart the server; or, if the \
                 layout of the fleet was changed on purpose, run in this database, on the primary, the statements \
                 that snowflake_layout_steps returns."
                    .into(),
            ),
            Self::Setting(BadValue { name, value, detail, hint }) => text(
                NOT_READY,
                format!("invalid value for parameter \"{name}\": \"{value}\"").into(),
                detail,
                format!("{hint} Then restart the server.").into(),
            ),
        }
    }
}

/// Why a number cannot be an ID.
fn why_no_id(id: i64) -> &'static str {
    if id < 0 { "An ID is never negative." } else { "It has bits above the time field." }
}

/// The times of which the configured layout has IDs.
fn layout_span() -> String {
    settings::get().map_or_else(String::new, |settings| {
        let layout = &settings.layout;
        let end = layout.starts_at(layout.max_tick() + 1);
        format!("IDs are of {} and later, and before {}.", timestamp(layout.epoch_us()), timestamp(end))
    })
}

fn configured_layout() -> String {
    settings::layout().as_ref().map(layout).unwrap_or_default()
}

/// Why the gate is closed after a start.
fn closed_text(why: ClosedReason) -> Text {
    let not_ready = |message: String, detail: String, hint: &'static str| Text {
        state: PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        message: message.into(),
        detail: Some(detail),
        hint: hint.into(),
    };
    match why {
        ClosedReason::Os(errno) => not_ready(
            format!("could not use \"{STATE_FILE}\" in the data directory: {}", os_error(errno)),
            "Without it no ID can be promised to be unique after the next restart.".to_owned(),
            "Make room, or make the folder readable and writable for the server: it is tried again every \
             second.",
        ),
        ClosedReason::Unreadable => not_ready(
            format!("\"{STATE_FILE}\" in the data directory cannot be read"),
            "Neither of its two slots holds a whole record, so it is not known which IDs were made."
                .to_owned(),
            "Call snowflake_adopt with a time after which no ID was made; or restore the file, or set \
             snowflake_id.worker_id to a worker that was never used, remove the file and restart the server.",
        ),
        ClosedReason::NewerVersion(version) => not_ready(
            format!("\"{STATE_FILE}\" in the data directory was written by a later version of snowflake_id"),
            format!("It has version {version}."),
            "Install that version, or a later one.",
        ),
        ClosedReason::OtherLayout(old) => not_ready(
            "snowflake_id.layout, tick or epoch is not the one with which IDs were made".to_owned(),
            format!("IDs were made with {}; the configured one is {}.", layout(&old), configured_layout()),
            "Set it back and restart the server; or, if all servers of the fleet were stopped for the change, \
             call snowflake_adopt.",
        ),
        ClosedReason::Foreign(identifier) => not_ready(
            format!("\"{STATE_FILE}\" in the data directory is that of another database cluster"),
            format!("It was written by the cluster with the system identifier {identifier}."),
            "If that cluster is gone, call snowflake_adopt; otherwise set snowflake_id.worker_id to a worker \
             that no other server has, and restart the server.",
        ),
        ClosedReason::Copied => not_ready(
            "this data directory is a copy, and its original may still make IDs".to_owned(),
            format!("\"{STATE_FILE}\" names another file than the one it lies in."),
            "If the original is gone, call snowflake_adopt; otherwise set snowflake_id.worker_id to a worker \
             that no other server has, and restart the server.",
        ),
        ClosedReason::NotPromoted(timeline) => not_ready(
            format!("another server may be generating IDs on timeline {timeline}"),
            format!(
                "Its state file does not show that this server began timeline {timeline}: it was a standby, or a copy of \
                 one, that was started without a promotion; or it was stopped after its promotion, before the generator \
                 had opened."
            ),
            "If no other server generates IDs with this server's workers, call snowflake_adopt. Otherwise stop this \
             server, or set snowflake_id.worker_id to a worker that no other server has and restart it.",
        ),
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
        Refusal::GateClosed => not_ready(
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
        Refusal::NotDurable(errno) => Text {
            message: format!("could not write \"{STATE_FILE}\" in the data directory: {}", os_error(errno))
                .into(),
            ..not_ready(
                "",
                "The reservation on disk is used up, and an ID beyond it could be made again after a crash."
                    .to_owned(),
                UNWRITABLE_HINT,
            )
        },
        Refusal::NoLane(no_lane @ NoLane { floor: None, .. }) => not_ready(
            "the clock is back and no worker of this server can make an ID yet",
            no_lane_detail(&no_lane),
            NO_LANE_HINT,
        ),
        Refusal::NoLane(no_lane) => not_ready(
            "the clock has not reached the time from which this server may generate snowflake IDs",
            no_lane_detail(&no_lane),
            FLOOR_HINT,
        ),
    }
}

/// How far the clock is behind, and until when.
pub fn no_lane_detail(no_lane: &NoLane) -> String {
    let (behind, usable_at) = (duration(no_lane.behind_us.max(0)), timestamp(no_lane.usable_at_us));
    let cause = match no_lane.floor {
        None => {
            return format!(
                "The wall clock is {behind} behind the last ID. Worker {} is usable first, when the clock reads \
                 {usable_at}.",
                no_lane.worker
            );
        }
        Some(FloorCause::NoState) => {
            "It was set when the server started without a state file: from the clock, or from the time in the control \
             file, as they were then."
        }
        Some(FloorCause::NewTimeline) => {
            "It was set when this server began its timeline, above everything that it knew of earlier timelines."
        }
        Some(FloorCause::Operator) => "It was set by snowflake_adopt.",
    };
    format!("That time is {usable_at}; the system clock is {behind} behind the first ID. {cause}")
}
