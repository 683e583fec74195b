//! How many IDs a server and a fleet can generate with each layout, and when the time field ends.

use snowflake_core::{Bits, Layout, Tick, Workers};

/// A layout that somebody may want, with its epoch.
pub struct Choice {
    /// The layout.
    pub layout: Layout,
    /// How it differs from the default.
    pub about: &'static str,
}

/// The layouts that are compared.
pub fn choices() -> Vec<Choice> {
    let make = |bits: &str, tick, epoch: &str, about| {
        let bits: Bits = bits.parse().expect("bits");
        let epoch = snowflake_core::layout::parse_epoch(epoch).expect("an epoch");
        Choice { layout: Layout::new(bits, tick, epoch).expect("a layout"), about }
    };
    let ours = "2024-01-01T00:00:00Z";
    vec![
        make("41/10/12", Tick::Millisecond, ours, "the default"),
        make("41/8/14", Tick::Millisecond, ours, "2 bits from worker to sequence"),
        make("41/12/10", Tick::Millisecond, ours, "2 bits from sequence to worker"),
        make("42/9/12", Tick::Millisecond, ours, "1 bit from worker to time"),
        make("40/11/12", Tick::Millisecond, ours, "1 bit from time to worker"),
        make("39/8/16", Tick::Centisecond, ours, "a tick of 10 ms"),
        make("32/9/22", Tick::Second, ours, "a tick of 1 s"),
        make("41/4/8", Tick::Millisecond, ours, "53 bits, for JavaScript"),
        make("41/10/12", Tick::Millisecond, "2010-11-04T01:42:54.657Z", "Twitter's epoch"),
        make("28/22/13", Tick::Second, "2016-05-20T00:00:00Z", "uid-generator's fields and epoch"),
    ]
}

/// The IDs per second that one worker can sustain.
pub fn per_worker(layout: &Layout) -> f64 {
    layout.sequences() as f64 * 1e6 / layout.tick().micros() as f64
}

/// The IDs that an idle worker can generate at once, if IDs may run this far ahead, beginning with the clock's tick.
pub fn burst(layout: &Layout, max_ahead_ms: f64) -> f64 {
    let ticks = 1 + (max_ahead_ms * 1e3) as i64 / layout.tick().micros();
    (ticks * layout.sequences()) as f64
}

/// How many servers a fleet can have.
pub fn servers(layout: &Layout, backups: usize) -> Option<i64> {
    let workers = Workers::new(layout, 0, backups).ok()?;
    Some((workers.highest_home() + 1) * layout.datacenters())
}

/// The last day on which the layout has a tick.
pub fn ends(layout: &Layout) -> String {
    let end = jiff::Timestamp::from_microsecond(layout.ends_at_us()).expect("within a timestamp's reach");
    end.strftime("%Y-%m-%d").to_string()
}

/// How long the time field lasts, in years of 365.2425 days.
pub fn years(layout: &Layout) -> f64 {
    (layout.max_tick() + 1) as f64 * layout.tick().micros() as f64 / 1e6 / 86_400.0 / 365.2425
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_layout_is_what_the_manual_says() {
        let layout = Layout::default();
        assert_eq!(per_worker(&layout), 4_096_000.0);
        assert_eq!(ends(&layout), "2093-09-06");
        assert_eq!(years(&layout).floor(), 69.0);
        assert_eq!([0, 3, 7].map(|backups| servers(&layout, backups)), [Some(1_024), Some(256), Some(128)]);
    }

    /// uid-generator's default has ended, as its users have noticed.
    #[test]
    fn the_end_of_uid_generators_time_is_known() {
        assert_eq!(ends(&choices().last().expect("one").layout), "2024-11-20");
    }
}
