//! The results of a run: a data file for each major version of PostgreSQL.

use crate::blocks::root;
use crate::stats::Spread;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::num::ParseFloatError;
use std::path::PathBuf;

/// All results of one run, and the machine on which they were measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Major version of PostgreSQL.
    pub major: u32,
    /// Its full version.
    pub postgres: String,
    /// Version and commit of the extension, and the compiler.
    pub snowflake_id: String,
    /// Processor, cores, memory, clock source, system.
    pub machine: String,
    /// UTC, to the minute.
    pub date: String,
    /// How long it took.
    pub minutes: f64,
    /// Measurement, then candidate, then one figure per round. A lower figure is always a lower cost.
    pub figures: BTreeMap<String, BTreeMap<String, Rounds>>,
    /// Measurement, then for each round the milliseconds of a fixed piece of work: see [`crate::probe`].
    pub probes: BTreeMap<String, Rounds>,
}

/// One figure per round; a line of text in the data files, because JSON would give each number a line of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Rounds(pub Vec<f64>);

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

/// The folder of the data files and pictures, in the repository.
pub const FOLDER: &str = "docs/benchmarks";

/// A fixed piece of work that takes this much longer than in the run's fastest round tells of a disturbance.
const DISTURBED: f64 = 1.25;

impl Run {
    /// Records the result of a round.
    pub fn note(&mut self, measurement: &str, candidate: &str, figure: f64) {
        let candidates = self.figures.entry(measurement.to_owned()).or_default();
        candidates.entry(candidate.to_owned()).or_default().0.push(rounded(figure));
    }

    /// Records how long the fixed piece of work took around a round; returns whether the round was disturbed.
    pub fn note_probe(&mut self, measurement: &str, ms: f64) -> bool {
        self.probes.entry(measurement.to_owned()).or_default().0.push(rounded(ms));
        ms > DISTURBED * self.fastest_probe()
    }

    fn fastest_probe(&self) -> f64 {
        self.probes.values().flat_map(|rounds| &rounds.0).copied().fold(f64::MAX, f64::min)
    }

    /// How many rounds there were, and how many of them were disturbed.
    pub fn disturbed(&self) -> (usize, usize) {
        let limit = DISTURBED * self.fastest_probe();
        let all: Vec<f64> = self.probes.values().flat_map(|rounds| rounds.0.clone()).collect();
        (all.len(), all.iter().filter(|ms| **ms > limit).count())
    }

    /// For each round, the ratio of a candidate's figure to another's.
    pub fn ratio(&self, measurement: &str, candidate: &str, other: &str) -> Option<Spread> {
        Spread::of_ratios(&self.rounds(measurement, candidate)?.0, &self.rounds(measurement, other)?.0)
    }

    fn rounds(&self, measurement: &str, candidate: &str) -> Option<&Rounds> {
        self.figures.get(measurement)?.get(candidate)
    }

    /// The data file.
    pub fn path(&self) -> PathBuf {
        path(self.major)
    }

    /// Its text.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data") + "\n"
    }

    /// The run whose data file is in the repository.
    ///
    /// # Panics
    /// If the file cannot be read.
    pub fn load(major: u32) -> Option<Self> {
        let text = fs::read_to_string(path(major)).ok()?;
        Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path(major).display())))
    }

    /// Those of all versions.
    pub fn load_all() -> Vec<Self> {
        (15..=18).filter_map(Self::load).collect()
    }
}

fn path(major: u32) -> PathBuf {
    root().join(FOLDER).join(format!("{major}.json"))
}

/// Four digits are more than any figure is accurate to, and keep the data files readable.
fn rounded(figure: f64) -> f64 {
    format!("{figure:.3e}").parse().expect("a number that was printed just now")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_read_back_as_it_was_written() {
        let mut run = Run { major: 15, postgres: "15.20".to_owned(), ..Run::default() };
        run.note("insert_s", "snowflake", 2.0);
        run.note("insert_s", "snowflake", 0.123_46);
        run.note_probe("insert", 5.0);
        assert_eq!(serde_json::from_str::<Run>(&run.text()).unwrap(), run);
        assert!(run.text().contains("\"2 0.1235\""), "{}", run.text());
    }

    #[test]
    fn a_round_is_disturbed_if_the_same_work_takes_longer() {
        let mut run = Run::default();
        assert!(!run.note_probe("call", 5.0));
        assert!(!run.note_probe("call", 6.0));
        assert!(run.note_probe("copy", 8.0));
        assert_eq!(run.disturbed(), (3, 1));
        // A faster round shows that the earlier ones were disturbed, too.
        run.note_probe("copy", 4.0);
        assert_eq!(run.disturbed(), (4, 2));
    }
}
