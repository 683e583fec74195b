//! A generator's configuration: settings that are fixed while its memory lives, and the limits that a reload changes.

use crate::layout::Layout;
use crate::workers::Workers;

/// The response to a clock that stepped back further than `max_ahead`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// IDs keep ascending while the wall clock catches up.
    #[default]
    Hold,
    /// IDs follow the wall clock back and go on from each tick's last sequence.
    Replay,
}

/// Where the sequence of a new tick starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SequenceStart {
    /// At 0: every tick has all values of the field.
    #[default]
    Zero,
    /// At a hash of the tick within the lowest 1/64 of the field, so that the low bits vary even at a low rate. It is a
    /// function of the tick, so counts stay exact, and it never wraps, so order holds.
    Spread,
}

/// Where this server's workers come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorkerSource {
    /// The configuration. The operator ensures that no other server has them.
    #[default]
    Configured,
    /// The fleet's registry.
    Registry,
}

/// The settings that may change while the generator runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The response to a clock that stepped back.
    pub policy: Policy,
    /// How far IDs may run ahead of the wall clock, in microseconds.
    pub max_ahead_us: i64,
    /// How long a call may wait for the clock before it rotates, in microseconds.
    pub max_wait_us: i64,
}

impl Limits {
    /// How many of the limits are times.
    pub(crate) const TIMES: usize = 2;

    /// The limits that are times, in microseconds, in the order in which shared memory keeps them.
    pub(crate) fn times_mut(&mut self) -> [&mut i64; Self::TIMES] {
        let Self { policy: _, max_ahead_us, max_wait_us } = self;
        [max_ahead_us, max_wait_us]
    }

    /// The limits that can be met: `max_ahead` up to a quarter of the ring, and times whose sums do not overflow.
    pub(crate) fn clamped_to(mut self, ring_ticks: usize, layout: &Layout) -> Self {
        self.times_mut().into_iter().for_each(|us| *us = (*us).clamp(0, 1 << 60));
        self.max_ahead_us = self.max_ahead_us.min(ring_ticks as i64 / 4 * layout.tick().micros());
        self
    }
}

impl Default for Limits {
    /// As the settings are by default.
    fn default() -> Self {
        Self { policy: Policy::Hold, max_ahead_us: 2_000_000, max_wait_us: 5_000 }
    }
}

/// The settings that are fixed while a generator's memory lives, and the first limits.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bits, tick and epoch.
    pub layout: Layout,
    /// The datacenter of every ID; 0 if the layout has none.
    pub datacenter: i64,
    /// The workers that this generator owns; with [`WorkerSource::Registry`], any of the fleet's.
    pub workers: Workers,
    /// Where they come from.
    pub source: WorkerSource,
    /// Where the sequence of a tick starts.
    pub sequence_start: SequenceStart,
    /// How many ticks each lane's ring remembers: see [`ring_ticks`](Self::ring_ticks).
    pub ring_ticks: usize,
    /// The limits at the start.
    pub limits: Limits,
}

impl Config {
    /// The home worker, unless the registry grants it.
    pub(crate) fn configured_home(&self) -> Option<i64> {
        (self.source != WorkerSource::Registry).then(|| self.workers.worker(0))
    }

    /// The length of the ring that these limits need: a power of two of at least 16,384 ticks and 4 times `max_ahead`.
    pub fn ring_ticks(layout: &Layout, limits: &Limits) -> usize {
        let ahead = limits.max_ahead_us / layout.tick().micros();
        (4 * ahead as usize).max(16_384).next_power_of_two()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Tick;

    #[test]
    fn limits_are_clamped_to_a_quarter_of_the_ring_and_to_what_sums_can_bear() {
        let asked = Limits { policy: Policy::Replay, max_ahead_us: i64::MAX, max_wait_us: i64::MAX };
        let layout = Layout::new("32/10/21".parse().unwrap(), Tick::Second, 0).unwrap();
        let clamped = asked.clamped_to(16_384, &layout);
        assert_eq!(clamped.policy, Policy::Replay);
        assert_eq!((clamped.max_ahead_us, clamped.max_wait_us), (4_096_000_000, 1 << 60));
        let low = Limits { max_ahead_us: -1, max_wait_us: 4_000, ..Limits::default() };
        assert_eq!(low.clamped_to(16_384, &layout), Limits { max_ahead_us: 0, ..low });
    }

    #[test]
    fn ring_has_four_times_max_ahead_as_a_power_of_two_of_ticks() {
        let ring_ticks = |tick, max_ahead_us| {
            let layout = Layout::new("32/10/20".parse().unwrap(), tick, 0).unwrap();
            Config::ring_ticks(&layout, &Limits { max_ahead_us, ..Limits::default() })
        };
        let expected = [16_384, 16_384, 32_768];
        assert_eq!([0, 4_096_000, 4_097_000].map(|us| ring_ticks(Tick::Millisecond, us)), expected);
        assert_eq!([0, 4_096, 4_097].map(|s| ring_ticks(Tick::Second, s * 1_000_000)), expected);
    }
}
