//! What the properties range over: layouts, settings, clocks and calls.

use crate::common;
use crate::simulation::basics::default_config;
use proptest::prelude::*;
use snowflake_core::{Bits, Config, Layout, Limits, Policy, SequenceStart, Tick, Workers};

pub use crate::simulation::server::{DAY, SECOND};

pub const YEAR: i64 = 365 * DAY;

/// A waiting call looks at the clock at least this often, so it may overshoot by as much.
pub const NAP: i64 = 50_000;

/// `default` cases, or as many as `PROPTEST_CASES` says.
pub fn cases(default: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig { cases: cases.unwrap_or(default), failure_persistence: None, ..ProptestConfig::default() }
}

pub fn ticks() -> impl Strategy<Value = Tick> {
    prop_oneof![Just(Tick::Millisecond), Just(Tick::Centisecond), Just(Tick::Second)]
}

pub fn widest_time(tick: Tick) -> u32 {
    match tick {
        Tick::Millisecond => 52,
        Tick::Centisecond => 48,
        Tick::Second => 42,
    }
}

/// Any valid layout.
pub fn layouts() -> impl Strategy<Value = Layout> {
    let widths = (1..=52_u32, 0..=31_u32, 0..=31_u32, 0..=31_u32);
    (ticks(), widths, -200 * YEAR..200 * YEAR).prop_map(
        |(tick, (time, datacenter, worker, sequence), epoch)| {
            let time = time.min(widest_time(tick));
            let datacenter = datacenter.min(63 - time);
            let worker = worker.min(63 - time - datacenter);
            let sequence = sequence.min(63 - time - datacenter - worker);
            Layout::new(Bits { time, datacenter, worker, sequence }, tick, epoch).unwrap()
        },
    )
}

pub fn policies() -> impl Strategy<Value = Policy> {
    prop_oneof![Just(Policy::Hold), Just(Policy::Replay)]
}

pub fn sequence_starts() -> impl Strategy<Value = SequenceStart> {
    prop_oneof![Just(SequenceStart::Zero), Just(SequenceStart::Spread)]
}

/// Limits of a few ticks, because `max_ahead` is clamped to a quarter of the ring anyway.
pub fn limits(tick: Tick) -> impl Strategy<Value = Limits> {
    let tick = tick.micros();
    let ahead = prop_oneof![Just(0), 0..=3 * tick, Just(10 * tick), 0..3 * SECOND];
    let wait = prop_oneof![Just(0), 0..=3 * tick, 0..=20 * tick];
    (policies(), ahead, wait).prop_map(|(policy, ahead, wait)| common::limits(policy, ahead, wait))
}

/// A configuration with which ticks fill, rings wrap, lanes run out and time fields end within a short run.
pub fn configs() -> impl Strategy<Value = Config> {
    let sizes = (0..=15_usize, 0..=3_u32, 0..=2_u32, prop_oneof![0..=3_u32, Just(7), Just(9)]);
    let times = prop_oneof![2..=10_u32, 41..=52_u32];
    let epochs = prop_oneof![Just(0), Just(1_704_067_200 * SECOND), -100 * YEAR..100 * YEAR];
    let rings = prop_oneof![1..=4_u32, 5..=8_u32].prop_map(|bits| 1_usize << bits);
    (ticks(), sizes, times, epochs, rings, sequence_starts(), any::<(u8, u8)>())
        .prop_flat_map(|(tick, (backups, spare, datacenter, sequence), time, epoch_us, ring, start, any)| {
            let worker = (backups + 1).next_power_of_two().ilog2() + spare;
            let time = time.min(widest_time(tick)).min(63 - worker - datacenter - sequence);
            let bits = Bits { time, datacenter, worker, sequence };
            let layout = Layout::new(bits, tick, epoch_us).unwrap();
            let stride = layout.workers() / (backups as i64 + 1);
            let workers = Workers::new(&layout, any.0 as i64 % stride, backups).unwrap();
            let datacenter = any.1 as i64 % layout.datacenters();
            limits(tick).prop_map(move |limits| Config {
                layout,
                datacenter,
                workers,
                sequence_start: start,
                ring_ticks: ring,
                limits,
                ..default_config()
            })
        })
        .no_shrink()
}

/// How much time passes, or how far a clock is stepped: nothing, part of a tick, some ticks, up to years.
pub fn amounts(tick: i64) -> impl Strategy<Value = i64> {
    prop_oneof![
        2 => 1..=tick,
        4 => 1..=20 * tick,
        2 => 1..=400 * tick,
        1 => Just(600),
        1 => 1..=10 * SECOND,
        1 => 1..=2 * DAY,
        1 => 1..=5 * YEAR,
    ]
}

#[derive(Clone, Debug)]
pub enum Op {
    /// Calls of one caller; how many IDs each takes, as a percentage of the capacity (0: one).
    Calls(usize, Vec<u8>),
    /// Asks `obstacle`, and then calls.
    ForetoldCall,
    Pass(i64),
    Step(i64),
    /// Corrects the clock: undoes all steps so far.
    SetRight,
    /// Steps that happen while a call waits.
    StepInWaits(Vec<i64>),
    Stall(bool),
    Reload(Limits),
    RotateNow,
    Open(u32),
    ResetStats,
}

pub fn ops(tick: Tick) -> impl Strategy<Value = Op> {
    let us = tick.micros();
    let share = prop_oneof![6 => Just(0_u8), 2 => 1..=100_u8, 1 => Just(100)];
    let signed =
        |amount: BoxedStrategy<i64>| (amount, any::<bool>()).prop_map(|(a, back)| if back { -a } else { a });
    prop_oneof![
        12 => (0..3_usize, prop::collection::vec(share, 1..20)).prop_map(|(who, n)| Op::Calls(who, n)),
        3 => Just(Op::ForetoldCall),
        5 => amounts(us).prop_map(Op::Pass),
        5 => signed(amounts(us).boxed()).prop_map(Op::Step),
        2 => Just(Op::SetRight),
        1 => prop::collection::vec(signed((0..30 * us).boxed()), 1..4).prop_map(Op::StepInWaits),
        1 => any::<bool>().prop_map(Op::Stall),
        1 => limits(tick).prop_map(Op::Reload),
        1 => Just(Op::RotateNow),
        1 => (1..6_u32).prop_map(Op::Open),
        1 => Just(Op::ResetStats),
    ]
}

/// A configuration, where the clock starts (ticks after the epoch), and the operations.
pub fn runs() -> impl Strategy<Value = (Config, i64, Vec<Op>)> {
    configs().prop_flat_map(|config| {
        let max = config.layout.max_tick();
        let tick = config.layout.tick();
        let starts = prop_oneof![-5..=5_i64, 0..=max.min(1 << 40), (max - 20).max(0)..=max + 5];
        (Just(config), starts, prop::collection::vec(ops(tick), 1..60))
    })
}
