//! Why there is no ID: what a call, a start or an operator is told.

use crate::layout::Layout;
use serde::{Deserialize, Serialize};

/// An error of the operating system: its number.
pub type Errno = i32;

/// Why a call got no ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The gate is closed.
    GateClosed,
    /// The wall clock stands before the epoch by this many microseconds.
    BeforeEpoch(i64),
    /// The time field has no tick left.
    Exhausted,
    /// No lane can be used until the clock has caught up.
    NoLane(NoLane),
    /// The reservation is used up and the next one cannot be written: the operating system's error.
    NotDurable(Errno),
}

/// No lane of the half can be used before the wall clock has caught up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoLane {
    /// How far the wall clock is behind the last ID of the active lane, in microseconds.
    pub behind_us: i64,
    /// The worker that will be usable first.
    pub worker: i64,
    /// When: what the wall clock must say, as a Unix time in microseconds.
    pub usable_at_us: i64,
    /// What set the floor, where the clock has to pass a floor and not an ID. Then the clock need not have moved.
    pub floor: Option<FloorCause>,
}

/// What raises the marks of all lanes without an ID that reached them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FloorCause {
    /// A start that found no state: which IDs exist is not known.
    NoState,
    /// A new timeline: other servers generated IDs with these workers.
    NewTimeline,
    /// An operator, by `adopt`.
    Operator,
}

/// Why the gate is not open yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unopened {
    /// It stays closed as things are.
    Closed(ClosedReason),
    /// It opens once the clock has gone on by this many microseconds: IDs of the last run reach so far.
    Settling(i64),
    /// It opens once somebody comes who can read prepared transactions: see [`Prepared`](crate::Prepared).
    PreparedUnread,
}

/// Why the gate stays closed after a start, until `adopt` or another configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedReason {
    /// The file could not be read or created: the operating system's error.
    Os(Errno),
    /// A file is there, and neither slot can be read.
    Unreadable,
    /// A slot was written by a later version.
    NewerVersion(u32),
    /// IDs were generated with this layout, which is not the configured one.
    OtherLayout(Layout),
    /// The state is that of another database cluster: its system identifier.
    Foreign(u64),
    /// The directory is a copy of one that may still run.
    Copied,
    /// Another server began this timeline and may still generate its IDs: a standby was started without a promotion.
    NotPromoted(u32),
}

/// Why `adopt` was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptError {
    /// The floor lies more than a day ahead of the clock.
    FloorInFuture,
    /// The configured layout's IDs would lie below those that were generated with this one.
    LayoutBelow(Layout),
    /// The gate stays closed for something that `adopt` cannot mend.
    Closed(ClosedReason),
}
