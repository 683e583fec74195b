//! The results of a run: a data file for each major version of PostgreSQL, and their statistics.

use serde::{Deserialize, Serialize};
use statrs::statistics::{Data, OrderStatistics};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::num::ParseFloatError;
use std::path::{Path, PathBuf};

/// All results of one run, and the machine on which they were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Major version of PostgreSQL.
    pub major: u32,
    /// Its full version.
    pub postgres: String,
    /// Version and commit of the extension, and the compiler.
    pub snowflake_id: String,
    /// Processor, cores, memory, clock source.
    pub machine: String,
    /// Operating system and kernel.
    pub system: String,
    /// UTC, to the minute.
    pub date: String,
    /// How long it took.
    pub minutes: f64,
    /// Too short to mean anything.
    pub is_quick: bool,
    /// Measurement, then candidate, then one figure per round.
    pub figures: BTreeMap<String, BTreeMap<String, Rounds>>,
}

/// One figure per round; a line of text in the data files, because JSON would give each number a line of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Rounds(Vec<f64>);

impl Rounds {
    /// Their median, minimum and maximum.
    pub fn spread(&self) -> Option<Spread> {
        Spread::of(&self.0)
    }
}

impl From<Rounds> for String {
    fn from(rounds: Rounds) -> Self {
        rounds.0.iter().map(f64::to_string).collect::<Vec<_>>().join(" ")
    }
}

impl TryFrom<String> for Rounds {
    type Error = ParseFloatError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.split(' ').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl Run {
    /// Records the result of a round.
    pub fn note(&mut self, measurement: &str, candidate: &str, figure: f64) {
        // Four digits are more than any of them is accurate to, and keep the data files readable.
        let rounded = format!("{figure:.3e}").parse().expect("a number that was printed just now");
        let candidates = self.figures.entry(measurement.to_owned()).or_default();
        candidates.entry(candidate.to_owned()).or_default().0.push(rounded);
    }

    /// The figures of a candidate, if it was measured.
    pub fn of(&self, measurement: &str, candidate: &str) -> Option<Spread> {
        self.figures.get(measurement)?.get(candidate)?.spread()
    }

    /// For each round, the ratio of a candidate's figure to the other's. Comparing within a round cancels disturbances
    /// of the machine that come and go, because they affect both.
    pub fn ratio(&self, measurement: &str, candidate: &str, other: (&str, &str)) -> Option<Spread> {
        let ours = self.figures.get(measurement)?.get(candidate)?;
        let theirs = self.figures.get(other.0)?.get(other.1)?;
        let ratios: Vec<f64> = ours.0.iter().zip(&theirs.0).map(|(ours, theirs)| ours / theirs).collect();
        Spread::of(&ratios)
    }

    /// Writes the data file into a folder.
    ///
    /// # Errors
    /// An error of the operating system.
    pub fn save(&self, folder: &Path) -> io::Result<PathBuf> {
        fs::create_dir_all(folder)?;
        let path = folder.join(format!("{}.json", self.major));
        fs::write(&path, serde_json::to_string_pretty(self)? + "\n")?;
        Ok(path)
    }

    /// Reads what [`Run::save`] wrote.
    ///
    /// # Errors
    /// A description of what is wrong with the file.
    pub fn load(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// The runs whose data files are in a folder, by version.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn load_all(folder: &Path) -> Result<Vec<Self>, String> {
        let files = (15..=18).map(|major| folder.join(format!("{major}.json")));
        files.filter(|file| file.exists()).map(|file| Self::load(&file)).collect()
    }
}

/// Median, minimum and maximum of some rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Half of the rounds are below it.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
    /// How many rounds.
    pub rounds: usize,
}

impl Spread {
    /// The statistics of at least one round.
    pub fn of(figures: &[f64]) -> Option<Self> {
        let fold = |pick: fn(f64, f64) -> f64| figures.iter().copied().reduce(pick);
        let (min, max) = (fold(f64::min)?, fold(f64::max)?);
        Some(Self { median: Data::new(figures.to_vec()).median(), min, max, rounds: figures.len() })
    }
}

/// The value that this share (0.999, for example) of the values does not exceed.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    // The smallest value with that share at or below it, as in percentile_disc, so it is one of the values.
    let rank = (share * values.len() as f64).ceil().max(1.0) as usize;
    values[rank - 1]
}

/// A number with three significant digits and separated thousands; whole numbers as they are.
pub fn readable(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    let is_whole = number.fract() == 0.0;
    // Rust rounds when it prints.
    let rounded: f64 = format!("{number:.2e}").parse().expect("a number that was printed just now");
    let decimals = (2 - rounded.abs().log10().floor() as i32).clamp(0, 3) as usize * usize::from(!is_whole);
    let mut text = format!("{rounded:.decimals$}");
    let mut at = text.find('.').unwrap_or(text.len());
    while at > 3 && text[..at - 3].ends_with(|c: char| c.is_ascii_digit()) {
        at -= 3;
        text.insert(at, ',');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        let mut run = Run { major: 15, postgres: "15.20".to_owned(), ..Run::default() };
        for (ours, theirs) in [(2.0, 10.0), (4.0, 10.0), (3.0, 5.0)] {
            run.note("insert_s", "snowflake", ours);
            run.note("insert_s", "bigserial", theirs);
        }
        run
    }

    #[test]
    fn a_spread_is_median_least_and_greatest() {
        let spread = run().of("insert_s", "snowflake").unwrap();
        assert_eq!(spread, Spread { median: 3.0, min: 2.0, max: 4.0, rounds: 3 });
        assert_eq!(Spread::of(&[1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn a_ratio_compares_each_round_with_itself() {
        let ratio = run().ratio("insert_s", "snowflake", ("insert_s", "bigserial")).unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max), (0.2, 0.4, 0.6));
    }

    #[test]
    fn a_quantile_is_a_value_that_was_seen() {
        let mut values: Vec<f64> = (1..=1000).rev().map(f64::from).collect();
        assert_eq!(quantile(&mut values, 0.5), 500.0);
        assert_eq!(quantile(&mut values, 0.999), 999.0);
        assert_eq!(quantile(&mut values, 1.0), 1000.0);
        assert_eq!(quantile(&mut [7.0], 0.999), 7.0);
    }

    #[test]
    fn a_run_is_read_back_as_it_was_written() {
        let folder = std::env::temp_dir().join(format!("snowflake_bench-{}", std::process::id()));
        let path = run().save(&folder).unwrap();
        let read = Run::load(&path);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read.unwrap(), run());
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        let texts =
            [0.0, 2.0, 0.1666, 0.998, 4.096, 35.12, 165.4, 4_095_700.0, 999.7, 12_345.0].map(readable);
        assert_eq!(
            texts,
            ["0", "2", "0.167", "0.998", "4.10", "35.1", "165", "4,100,000", "1,000", "12,300"]
                .map(str::to_owned)
        );
    }
}
