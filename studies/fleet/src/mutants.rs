//! Deliberate faults: each leaves out one sentence of the protocol. `tests/fleet.rs` says which scope finds which.

/// A fault in the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    // ---- F1: fenced
    /// Marks are promised above `until`.
    MarkAboveUntil,
    /// `adopt` on an open gate publishes the raised mark, although it lies above `until`.
    AdoptAboveUntil,
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
    /// The permit is published before the lease is durable.
    PermitFirst,
    /// The registry answers before it has committed.
    AnsweredFirst,
    // ---- F5: in doubt
    /// A registry never doubts.
    NoDoubt,
    /// A registry in doubt takes back, and ends what has passed, but sets no fence.
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
    /// It takes back a lease whose `until` has passed.
    TakenBackBlindly,
    /// It takes back a lease whose `until` is one tick too low.
    TakenBackLow,
    /// It takes back a lease whose `until` is above the fence.
    TakenBackAboveFence,
    /// It takes back a lease whose row has a running one.
    TakenBackFromAnother,
    /// It takes back a lease whose `until` is below the row's.
    TakenBackBelow,
    /// A lease is granted from the node's clock, although the registry's is behind it.
    NotClamped,
    /// Who vouches that nothing was committed after a time is taken at a word that is one tick off.
    VouchedEarly,
    /// An operator's reservation does not look at the fence.
    ReservedBelowFence,
    /// It looks at the registry's clock alone, and not at that of a server behind it.
    ReservedWithoutTolerance,
    // ---- the permit
    /// A call reads `last` before the permit.
    LastFirst,
    /// A call reads the clock before the permit.
    ClockFirst,
    /// The permit of another lease is published before the restored mark and `last` are above its floor.
    PermitBeforeFloor,
    /// Replay lowers `last` by a compare-and-swap without the cold lock.
    ReplayUnlocked,
    // ---- the same life
    /// A lease is kept over a restart without asking the witness.
    WitnessIgnored,
    /// A lease is kept over a restart in another boot.
    BootIgnored,
    /// A lease is kept in another directory.
    DirectoryIgnored,
    /// The witness is told after the permit is published.
    WitnessLate,
    /// `adopt` goes on from the mark on disk, without a floor from the operator.
    AdoptedWithoutFloor,
    /// `adopt` lowers the mark below the floor of the lease.
    AdoptedBelowFloor,
    // ---- what the protocol does not protect from
    /// An operator vouches although commits were lost.
    WrongVouch,
    /// An operator adopts a directory although its copy runs.
    WrongAdopt,
    /// The old registry primary goes on beside its successor.
    OldPrimary,
    /// A virtual machine is cloned with its memory, and no repetition is excused.
    TwinNotExcused,
    /// Both clocks of the discovery are behind both of a lost contact by more than the tolerance.
    ClockBehindLoss,
}

/// All of them.
pub const MUTANTS: &[Mutant] = &[
    Mutant::MarkAboveUntil,
    Mutant::AdoptAboveUntil,
    Mutant::NoFloor,
    Mutant::NumberIgnored,
    Mutant::NonceIgnored,
    Mutant::FloorNotCompared,
    Mutant::NodeIdKept,
    Mutant::SentFirst,
    Mutant::PermitFirst,
    Mutant::AnsweredFirst,
    Mutant::NoDoubt,
    Mutant::NoFence,
    Mutant::ShortFence,
    Mutant::FenceWithoutTolerance,
    Mutant::FenceLowered,
    Mutant::PassedNotEnded,
    Mutant::EndedWithoutTolerance,
    Mutant::EndedLate,
    Mutant::AnyClockFindsOut,
    Mutant::TakenBackBlindly,
    Mutant::TakenBackLow,
    Mutant::TakenBackAboveFence,
    Mutant::TakenBackFromAnother,
    Mutant::TakenBackBelow,
    Mutant::NotClamped,
    Mutant::VouchedEarly,
    Mutant::ReservedBelowFence,
    Mutant::ReservedWithoutTolerance,
    Mutant::LastFirst,
    Mutant::ClockFirst,
    Mutant::PermitBeforeFloor,
    Mutant::ReplayUnlocked,
    Mutant::WitnessIgnored,
    Mutant::BootIgnored,
    Mutant::DirectoryIgnored,
    Mutant::WitnessLate,
    Mutant::AdoptedWithoutFloor,
    Mutant::AdoptedBelowFloor,
    Mutant::WrongVouch,
    Mutant::WrongAdopt,
    Mutant::OldPrimary,
    Mutant::TwinNotExcused,
    Mutant::ClockBehindLoss,
];
