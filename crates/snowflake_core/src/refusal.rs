//! The reasons for which a call, a start or an operator's request is refused.

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

/// No lane can be used before the wall clock has caught up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoLane {
    /// How far the wall clock is behind the last ID of the active lane, in microseconds.
    pub behind_us: i64,
    /// The worker that will be usable first.
    pub worker: i64,
    /// The wall-clock time from which it will be, as a Unix time in microseconds.
    pub usable_at_us: i64,
    /// Whether a floor keeps every other worker from being used, too: one that an operator set, as a rule.
    pub is_floor: bool,
}

/// Why the gate is not open yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOpen {
    /// It stays closed until something changes.
    Closed(ClosedReason),
    /// It opens once the clock has gone on by this many microseconds, because earlier IDs may reach that far.
    Settling(i64),
    /// It opens once the registry leases workers to this server.
    NoLease,
    /// The clock is outside the layout's time, where nothing is written.
    Clock(Refusal),
}

/// Why the gate stays closed after a start. All but `Taken` are tried again every second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedReason {
    /// The file could not be read or created: the operating system's error.
    Os(Errno),
    /// A slot was written by a later version.
    NewerVersion(u32),
    /// The directory is a copy of one that may still run. Waits for `adopt`, or for another worker.
    Copied,
    /// Another server on this host has one of this server's workers. Waits for a restart or `adopt`, unless that server
    /// is the run before this one in the same directory, or this start made a timeline.
    Taken,
}

/// Why `adopt` was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptError {
    /// The floor is more than a day ahead of the clock.
    FloorInFuture,
    /// The gate stays closed for a reason that `adopt` cannot remove.
    NotOpen(NotOpen),
}
