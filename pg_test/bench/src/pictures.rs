//! The pictures of `docs/benchmarks.md`.

use crate::candidates::{CANDIDATES, CLOCK, Candidate, NO_ID};
use crate::figures::page::File;
use crate::figures::picture::{Axis, Mark, Panel, Row, Rows};
use crate::figures::stats::Spread;
use crate::figures::text::tick;
use crate::run::{FOLDER, Run};

/// Measurements that a table and a picture show beside one another, each with a short name.
pub struct Group {
    /// The picture's file.
    pub name: &'static str,
    /// The subject.
    pub title: &'static str,
    /// Measurements and their names.
    pub columns: &'static [(&'static str, &'static str)],
}

/// All of them.
pub const GROUPS: [Group; 4] = [
    Group {
        name: "call",
        title: "Cost of a call inside the server, in times that of snowflake_nextval()",
        columns: &[("call_ns", "")],
    },
    Group {
        name: "clients",
        title: "Time for an ID of eight clients, in times that of snowflake_nextval()",
        columns: &[("single_us", "1 ID per query"), ("thousand_ns", "1,000 IDs per query")],
    },
    Group {
        name: "rows",
        title: "Time for a row, in times that with snowflake_nextval()",
        columns: &[("insert_s", "one INSERT"), ("fill_s", "INSERTs of 4 clients"), ("copy_s", "COPY")],
    },
    Group {
        name: "space",
        title: "Space for a row, in times that with snowflake_nextval()",
        columns: &[("insert_wal", "WAL of INSERT"), ("copy_wal", "WAL of COPY"), ("index_mib", "index")],
    },
];

/// The rows of tables and pictures, ours first.
pub fn rows() -> impl Iterator<Item = Candidate> {
    CANDIDATES.into_iter().chain([CLOCK, NO_ID])
}

impl Group {
    /// What a table and a picture show of a candidate: the ratio to our own cost.
    pub fn of(&self, run: &Run, measurement: &str, candidate: &Candidate) -> Option<Spread> {
        run.ratio(measurement, candidate.key, CANDIDATES[0].key)
    }

    /// The candidates that were measured.
    pub fn shown(&self, runs: &[Run]) -> Vec<Candidate> {
        let has = |candidate: &Candidate| {
            let (measurement, _) = self.columns[0];
            runs.iter().any(|run| self.of(run, measurement, candidate).is_some())
        };
        rows().filter(has).collect()
    }

    fn picture(&self, runs: &[Run]) -> Rows {
        let candidates = self.shown(runs);
        let rows: Vec<Row> = candidates
            .iter()
            .map(|candidate| Row {
                name: candidate.label.to_owned(),
                is_ours: *candidate == CANDIDATES[0],
                cells: self
                    .columns
                    .iter()
                    .map(|(measurement, _)| {
                        runs.iter().map(|run| self.of(run, measurement, candidate).map(Mark)).collect()
                    })
                    .collect(),
            })
            .collect();
        let marks = rows.iter().flat_map(|row| row.cells.iter().flatten().flatten());
        let ends: Vec<f64> = marks.flat_map(|mark| [mark.0.low, mark.0.high]).collect();
        let axis = Axis::log("times ours", tick, &ends);
        let panel = |title: &str| Panel { title: title.to_owned(), axis: axis.clone() };
        Rows {
            title: self.title.to_owned(),
            marks: runs.iter().map(|run| format!("PostgreSQL {}", run.major)).collect(),
            panels: self.columns.iter().map(|(_, title)| panel(title)).collect(),
            rows,
            reference: Some(1.0),
        }
    }
}

/// The files of all pictures.
pub fn all(runs: &[Run]) -> Vec<File> {
    let file = |group: &Group| {
        let svg = group.picture(runs).svg().expect("a picture in memory");
        (format!("{FOLDER}/{}.svg", group.name), svg + "\n")
    };
    GROUPS.iter().map(file).collect()
}
