//! Deliberate faults: each leaves out one sentence of the protocol. `tests/fleet.rs` says which scope finds which.

/// A fault in the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    // ---- F1: fenced
    /// Marks are promised above `until`.
    MarkAboveUntil,
    // ---- F2: above the fence
    /// A claim gets a group without a floor.
    NoFloor,
    // ---- F3: one voice
    /// The registry looks at no number.
    NumberIgnored,
    /// The registry looks at no nonce: whoever says its last number again is believed.
    NonceIgnored,
    /// A renewal is accepted although it shows another floor than the row has.
    FloorNotCompared,
    /// A new life keeps its node id, and with it the contact that is pending.
    NodeIdKept,
    // ---- F4: durable first
    /// A contact is sent before its number and nonce are durable.
    SentFirst,
    /// The permit is published before the renewed lease is durable.
    PermitFirst,
    /// The registry answers before it has committed.
    AnsweredFirst,
    // ---- F5: in doubt
    /// A registry never doubts.
    NoDoubt,
    /// A registry in doubt ends what has passed, but sets no fence.
    NoFence,
    /// The fence is one tick lower.
    ShortFence,
    /// Nothing is added to the later clock for the fence.
    FenceWithoutTolerance,
    /// A second doubt sets a lower fence than the first.
    FenceLowered,
    /// A registry in doubt does not end the leases whose `until` has passed.
    PassedNotEnded,
    /// Nothing is added to the later clock for what has passed.
    EndedWithoutTolerance,
    /// A lease ends one tick late.
    EndedLate,
    /// A contact finds out that commits may be lost, however far apart its clocks are.
    AnyClockFindsOut,
    /// It renews a lease that its row does not have.
    UnknownRenewed,
    /// Who vouches restores the fence of a doubt that is long over.
    BeforeKept,
    /// A lease is granted from the node's clock, although the registry's is behind it.
    NotClamped,
    /// The leases that the registry has are not looked at, but only the two clocks of the contact that finds out.
    LeasesIgnored,
    /// The time that a reservation returns is not above the fence.
    ReservedBelowFence,
    /// It is not above the `until` of the last lease.
    ReservedBelowUntil,
    /// A group is reserved at once while its lease runs.
    ReservedRunning,
    // ---- the same life
    /// A lease is kept over a restart without a look at the token in the host's file.
    TokenIgnored,
    /// A start draws no token.
    TokenNotDrawn,
    /// A lease of a disk that was rolled back goes on from its mark, whatever the clock says.
    ClockIgnored,
    /// A lease is kept in another directory.
    DirectoryIgnored,
    // ---- what the protocol does not protect from
    /// An operator vouches although commits were lost.
    WrongVouch,
    /// The old registry primary goes on beside its successor.
    OldPrimary,
    /// A virtual machine is cloned with its memory, and no repetition is excused.
    TwinNotExcused,
    /// Both clocks of the discovery are behind both of a lost contact by more than the tolerance.
    ClockBehindLoss,
}
