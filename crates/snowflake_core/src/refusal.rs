//! The reasons for which a call, a start or an operator's request is refused.

use crate::layout::Layout;
use serde::{Deserialize, Serialize};

/// An error of the operating system: its number.
pub type Errno = i32;

/// Why a call got no ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The gate is closed.
    GateClosed,
    /// The wall clock is before the epoch by this many microseconds.
    BeforeEpoch(i64),
    /// The time field has no tick left.
    Exhausted,
    /// No lane can be used until the clock has caught up.
    NoLane(NoLane),
    /// The registry has not renewed this server's lease in time.
    LeaseEnded,
    /// The reservation is used up, and the operating system's error prevents the next one.
    NotDurable(Errno),
}

/// No lane of the half can be used before the wall clock has caught up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoLane {
    /// How far the wall clock is behind the last ID of the active lane, in microseconds.
    pub behind_us: i64,
    /// The worker that will be usable first.
    pub worker: i64,
    /// The wall-clock time from which it will be, as a Unix time in microseconds.
    pub usable_at_us: i64,
    /// The cause of the floor, if the clock must pass a floor rather than an ID. Then the clock need not have moved.
    pub floor: Option<FloorCause>,
}

/// Why the marks of all lanes were raised although no ID reached them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FloorCause {
    /// A start found no state, so it does not know which IDs exist.
    NoState,
    /// A new timeline: other servers generated IDs with these workers.
    NewTimeline,
    /// An operator, by `adopt`.
    Operator,
}

/// Why the gate is not open yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// It stays closed until something changes.
    Closed(ClosedReason),
    /// It opens once the clock has gone on by this many microseconds, because IDs of the last run reach that far.
    Settling(i64),
    /// It opens once the registry leases workers to this server.
    NoLease,
    /// It opens once a session has read the prepared transactions: see [`Prepared`](crate::Prepared).
    PreparedUnread,
}

/// Why the gate stays closed after a start. What the operating system refused is tried again; all else waits for `adopt`
/// or another configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedReason {
    /// The file could not be read or created: the operating system's error.
    Os(Errno),
    /// The file exists, but neither slot can be read.
    Unreadable,
    /// A slot was written by a later version.
    NewerVersion(u32),
    /// IDs were generated with this layout, but another is configured.
    OtherLayout(Layout),
    /// The state belongs to another database cluster, with this system identifier.
    Foreign(u64),
    /// The directory is a copy of one that may still run.
    Copied,
    /// Another server runs in this directory.
    Taken,
    /// A server that runs in another directory of this host goes on from the same state, or has the same worker.
    Beside,
    /// A later record of this state was written on this host: an older state was put back, or a copy went on from it.
    PutBack,
    /// The state does not know the configured worker, and it does not name all workers of other servers.
    UnknownWorker,
    /// Another server began this timeline and may still generate its IDs: a standby was started without a promotion.
    NotPromoted(u32),
}

/// Why `adopt` was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptError {
    /// The floor lies more than a day ahead of the clock.
    FloorInFuture,
    /// The configured layout's IDs would lie below those that were generated with this layout.
    LayoutBelow(Layout),
    /// The gate stays closed for a reason that `adopt` cannot remove.
    Closed(ClosedReason),
}
