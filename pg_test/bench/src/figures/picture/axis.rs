//! A logarithmic axis: range and ticks.

/// The axis of a picture. It reaches from the tick below the least value to the tick above the greatest.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Its quantity and unit.
    pub name: String,
    /// Formats a tick.
    pub text: fn(f64) -> String,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Axis {
    /// Ticks are 1, 2, 5 and their multiples by ten; over many decades, the powers of ten.
    ///
    /// # Panics
    /// If a value is not positive, or there is none.
    pub fn log(name: &str, text: fn(f64) -> String, values: &[f64]) -> Self {
        let least = values.iter().copied().fold(f64::MAX, f64::min);
        let greatest = values.iter().copied().fold(f64::MIN, f64::max);
        assert!(least > 0.0 && greatest >= least, "{name}: {least} to {greatest}");
        let decades = least.log10().floor() as i32..=greatest.log10().ceil() as i32;
        let steps = |steps: &'static [f64]| {
            let decades = decades.clone();
            decades.flat_map(move |decade| steps.iter().map(move |step| step * 10_f64.powi(decade)))
        };
        let from = steps(&[1.0, 2.0, 5.0]).rfind(|tick| *tick <= least * 1.001).unwrap_or(least);
        let to = steps(&[1.0, 2.0, 5.0]).find(|tick| *tick >= greatest * 0.999).unwrap_or(greatest);
        let is_within = |tick: &f64| (from * 0.999..=to * 1.001).contains(tick);
        let fine = to / from < 150.0;
        let ticks = steps(if fine { &[1.0, 2.0, 5.0] } else { &[1.0] }).filter(is_within).collect();
        Self { name: name.to_owned(), text, from, to, ticks }
    }

    /// The ticks.
    pub fn ticks(&self) -> &[f64] {
        &self.ticks
    }

    /// The position of a value, from 0 to 1; `None` beyond the ends.
    pub fn share(&self, value: f64) -> Option<f64> {
        let share = (value / self.from).ln() / (self.to / self.from).ln();
        (-0.001..=1.001).contains(&share).then_some(share)
    }

    /// As [`Axis::share`]; a value beyond the ends is at the end.
    pub fn clamped(&self, value: f64) -> f64 {
        self.share(value).unwrap_or(if value < self.from { 0.0 } else { 1.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::text::tick;

    #[test]
    fn a_logarithmic_axis_ends_at_the_steps_around_the_data() {
        let axis = Axis::log("", tick, &[0.65, 5.9]);
        assert_eq!(axis.ticks(), [0.5, 1.0, 2.0, 5.0, 10.0]);
        assert!((axis.share(0.5).unwrap()).abs() < 1e-9 && (axis.share(10.0).unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(Axis::log("", tick, &[0.7, 114.0]).ticks(), [1.0, 10.0, 100.0]);
    }

    #[test]
    fn what_lies_beyond_the_ends_has_no_place() {
        let axis = Axis::log("", tick, &[1.0, 10.0]);
        assert_eq!((axis.share(0.5), axis.share(0.0), axis.share(20.0)), (None, None, None));
        assert_eq!((axis.clamped(0.0), axis.clamped(20.0)), (0.0, 1.0));
    }

    #[test]
    #[should_panic(expected = "-1 to 2")]
    fn a_logarithmic_axis_has_no_place_for_a_negative_value() {
        Axis::log("", tick, &[-1.0, 2.0]);
    }
}
