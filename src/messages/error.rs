//! Every error that a user can meet, by cause. The texts are in `gate`, `reading` and `replication`.

use super::{GENERATING, Text, Unleased, gate, reading, replication};
use crate::settings::BadValue;
use pgrx::prelude::*;
use snowflake_core::{AdoptError, ClosedReason, Refusal};

/// What a call waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    Clock,
    Disk,
    Registry,
}

/// Why a column's IDs cannot be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnFault {
    Missing,
    NotBigint,
    Generated,
}

/// What can go wrong, by cause.
#[derive(Debug)]
pub enum Error {
    NotPreloaded,
    WorkerUnset {
        highest: i64,
    },
    InRecovery,
    /// The registry has leased no workers to this server; with why the last contact brought no lease, and whether an
    /// operator can resume an earlier lease.
    NoLease {
        why: Option<Unleased>,
        is_resumable: bool,
    },
    /// The lease of this home worker has ended at this Unix time in microseconds; with why it was not renewed.
    LeaseEnded {
        home: i64,
        ended_at_us: i64,
        why: Option<Unleased>,
    },
    StatementTimeout(Awaited),
    Refused(Refusal),
    NotRotated(Refusal),
    Closed(ClosedReason),
    NotAdopted {
        why: AdoptError,
        floor_us: i64,
    },
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
    /// A layout with which no registry or portable generator can be created.
    NotAFleetsLayout {
        text: String,
        problem: String,
        hint: &'static str,
    },
    /// A worker that the layout of a portable generator does not have.
    WorkerOutside {
        worker: i32,
        highest: i64,
        layout: String,
    },
    NotBase62 {
        text: String,
        problem: String,
    },
    TimeOutside(pg_sys::TimestampTz),
    /// A statement was to be executed as a role that the caller may not become.
    NotTheOwner {
        role: String,
    },
    /// The guard of replicated rows was called as a plain function.
    NotATrigger,
    NotBeforeInsert,
    /// The trigger fires for rows that this server's sessions insert.
    NotReplicaTrigger {
        trigger: String,
        table: String,
    },
    NotAnIdColumn {
        fault: ColumnFault,
        column: String,
        table: String,
    },
    /// A replicated row has an ID of a worker of this server.
    OwnWorker {
        id: i64,
        worker: i64,
        created_us: i64,
        column: String,
        table: String,
    },
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
        report(self.text())
    }

    /// Ends the statement, in a function that generates no ID: the message names it.
    #[cold]
    #[track_caller]
    pub fn raise_in(self, function: &str) -> ! {
        let text = self.text();
        let message = match text.message.strip_prefix(GENERATING) {
            Some(cause) => format!("cannot execute {function}{cause}").into(),
            None => text.message,
        };
        report(Text { message, ..text })
    }

    /// What to do about it.
    pub fn hint(self) -> String {
        self.text().hint.into_owned()
    }

    /// What happened, in one line, for a display.
    pub fn summary(self) -> String {
        let text = self.text();
        let cause = text.cause();
        if text.detail.is_empty() { cause.to_owned() } else { format!("{cause}: {}", text.detail) }
    }

    pub(super) fn text(self) -> Text {
        match self {
            Self::NotPreloaded => gate::not_preloaded(),
            Self::WorkerUnset { highest } => gate::worker_unset(highest),
            Self::InRecovery => gate::in_recovery(),
            Self::NoLease { why, is_resumable } => gate::no_lease(why, is_resumable),
            Self::LeaseEnded { home, ended_at_us, why } => gate::lease_ended(home, ended_at_us, why),
            Self::StatementTimeout(awaited) => gate::statement_timeout(awaited),
            Self::Refused(refusal) => gate::refused(refusal),
            Self::NotRotated(refusal) => gate::not_rotated(refusal),
            Self::Closed(why) => gate::closed(why),
            Self::NotAdopted { why, floor_us } => gate::not_adopted(why, floor_us),
            Self::LowerNotSuperuser => gate::lower_not_superuser(),
            Self::Setting(bad) => gate::bad_value(bad),
            Self::NoLastId => reading::no_last_id(),
            Self::BatchSize(n) => reading::batch_size(n),
            Self::RangeSize { n, most } => reading::range_size(n, most),
            Self::NotAnId(id) => reading::not_an_id(id),
            Self::NegativeId(id) => reading::negative_id(id),
            Self::NotForeignId { id, layout } => reading::not_foreign_id(id, &layout),
            Self::NotALayout { text, problem } => reading::not_a_layout(&text, problem),
            Self::NotAFleetsLayout { text, problem, hint } => {
                reading::not_a_fleets_layout(&text, problem, hint)
            }
            Self::WorkerOutside { worker, highest, layout } => {
                reading::worker_outside(worker, highest, &layout)
            }
            Self::NotBase62 { text, problem } => reading::not_base62(&text, problem),
            Self::TimeOutside(time) => reading::time_outside(time),
            Self::NotTheOwner { role } => reading::not_the_owner(&role),
            Self::NotATrigger => replication::not_a_trigger(),
            Self::NotBeforeInsert => replication::not_before_insert(),
            Self::NotReplicaTrigger { trigger, table } => replication::not_replica_trigger(&trigger, &table),
            Self::NotAnIdColumn { fault, column, table } => {
                replication::not_an_id_column(fault, &column, &table)
            }
            Self::OwnWorker { id, worker, created_us, column, table } => {
                replication::own_worker(id, worker, created_us, &column, &table)
            }
            Self::FieldOutside { name, value, values } => reading::field_outside(name, value, values - 1),
            Self::OtherDatabase(layout) => reading::other_database(&layout),
        }
    }
}

#[cold]
#[track_caller]
fn report(text: Text) -> ! {
    text.report(PgLogLevel::ERROR);
    unreachable!("an error does not return")
}
