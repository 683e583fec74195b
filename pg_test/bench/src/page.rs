//! The figures of `docs/benchmarks.md` and of the README.

use crate::blocks::{File, read, table, with_blocks};
use crate::candidates::{CANDIDATES, CLOCK, Candidate, NO_ID};
use crate::picture;
use crate::run::{FOLDER, Run};
use crate::stats::Spread;
use crate::targets::{TARGETS, Target, Verdict};
use crate::text::digits;

/// Measurements that a table shows beside one another, each with a short name.
struct Group {
    /// The block of the page.
    name: &'static str,
    /// The subject.
    title: &'static str,
    /// Measurements and their names.
    columns: &'static [(&'static str, &'static str)],
}

const GROUPS: [Group; 4] = [
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

impl Group {
    /// What a table shows of a candidate: the ratio to our own cost.
    fn of(run: &Run, measurement: &str, candidate: &Candidate) -> Option<Spread> {
        run.ratio(measurement, candidate.key, CANDIDATES[0].key)
    }

    /// The candidates that were measured.
    fn shown(&self, runs: &[Run]) -> Vec<Candidate> {
        let (measurement, _) = self.columns[0];
        let has =
            |candidate: &Candidate| runs.iter().any(|run| Self::of(run, measurement, candidate).is_some());
        rows().filter(has).collect()
    }
}

/// The rows of tables, ours first.
fn rows() -> impl Iterator<Item = Candidate> {
    CANDIDATES.into_iter().chain([CLOCK, NO_ID])
}

/// The page and the README with the runs' figures, and the README's picture.
pub fn make(runs: &[Run]) -> Vec<File> {
    const PAGE: &str = "docs/benchmarks.md";
    let mut blocks = vec![("runs", about(runs))];
    blocks.extend(GROUPS.iter().map(|group| (group.name, table_of(group, runs))));
    let readme = [("costs", readme(runs))];
    let call = &GROUPS[0];
    let of = |candidate: &Candidate| runs.iter().map(|run| Group::of(run, "call_ns", candidate)).collect();
    let rows: Vec<picture::Row> =
        call.shown(runs).iter().map(|candidate| (candidate.label.to_owned(), of(candidate))).collect();
    vec![
        with_blocks(PAGE, &read(PAGE), &blocks),
        with_blocks("README.md", &read("README.md"), &readme),
        (format!("{FOLDER}/call.svg"), picture::svg(call.title, runs, &rows)),
    ]
}

/// What a run on its own shows: targets, and ratios to our own cost.
pub fn summary(run: &Run) -> String {
    let runs = std::slice::from_ref(run);
    let mut text = format!("{}\n\n{}\n", about(runs), targets(runs));
    for group in &GROUPS {
        if group.columns.iter().any(|(measurement, _)| run.figures.contains_key(*measurement)) {
            text += &format!("{}:\n\n{}\n", group.title, table_of(group, runs));
        }
    }
    text
}

// ---------------------------------------------------------------- parts

/// A line per run, and what runs share once.
fn about(runs: &[Run]) -> String {
    let place = |run: &Run| format!("snowflake_id {}. {}.", run.snowflake_id, run.machine);
    let is_shared = runs.iter().all(|run| place(run) == place(&runs[0]));
    let line = |run: &Run| {
        let (all, disturbed) = run.disturbed();
        let own = if is_shared { String::new() } else { format!(" {}", place(run)) };
        format!(
            "- **PostgreSQL {}**, measured {}; {disturbed} of {all} rounds were disturbed.{own}\n",
            run.postgres, run.date
        )
    };
    let lines: String = runs.iter().map(line).collect();
    if is_shared && !runs.is_empty() { format!("{lines}\n{}", place(&runs[0])) } else { lines }
}

fn targets(runs: &[Run]) -> String {
    let mut heads = vec!["what".to_owned(), "compared with".to_owned(), "target".to_owned()];
    heads.extend(runs.iter().map(|run| format!("PostgreSQL {}", run.major)));
    let row = |target: &Target| {
        let mut row = vec![target.what.to_owned(), target.against.to_owned(), format!("≤ {}", target.limit)];
        row.extend(runs.iter().map(|run| match target.judge(run) {
            None => "not measured".to_owned(),
            Some((found, verdict)) => spread(found) + word(verdict),
        }));
        row
    };
    let measured = TARGETS.iter().filter(|target| runs.iter().any(|run| target.judge(run).is_some()));
    let rows: Vec<Vec<String>> = measured.map(row).collect();
    table(&heads, &rows)
}

/// Behind a result. A target without a word is met.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Met => "",
        Verdict::Missed => " **missed**",
        Verdict::Unclear => " unclear",
    }
}

/// A cell has the medians of all runs, so that a row fits a screen.
fn table_of(group: &Group, runs: &[Run]) -> String {
    let majors: Vec<String> = runs.iter().map(|run| run.major.to_string()).collect();
    let mut heads = vec![format!("PostgreSQL {}", majors.join("; "))];
    let name = |title: &str| if title.is_empty() { "times ours".to_owned() } else { title.to_owned() };
    heads.extend(group.columns.iter().map(|(_, title)| name(title)));
    let row = |candidate: &Candidate| {
        let cell = |(measurement, _): &(&str, &str)| {
            let medians: Vec<Option<String>> =
                runs.iter().map(|run| Some(digits(Group::of(run, measurement, candidate)?.median))).collect();
            if medians.iter().all(Option::is_none) {
                return String::new();
            }
            medians.into_iter().map(|median| median.unwrap_or("–".to_owned())).collect::<Vec<_>>().join("; ")
        };
        [head(candidate)].into_iter().chain(group.columns.iter().map(cell)).collect()
    };
    let is_other = |candidate: &&Candidate| **candidate != CANDIDATES[0];
    let candidates = group.shown(runs);
    let rows: Vec<Vec<String>> = candidates.iter().filter(is_other).map(row).collect();
    table(&heads, &rows)
}

/// Some of the figures, and the picture of a call.
fn readme(runs: &[Run]) -> String {
    let mut heads = vec!["compared with `bigserial`".to_owned()];
    heads.extend(runs.iter().map(|run| format!("PostgreSQL {}", run.major)));
    let of = [
        ("time of a call inside the server", "call_ns"),
        ("time of one `INSERT` of 500,000 rows", "insert_s"),
        ("WAL of an inserted row", "insert_wal"),
    ];
    let rows = of.map(|(what, measurement)| {
        let mut row = vec![what.to_owned()];
        row.extend(runs.iter().map(|run| {
            let found = run.ratio(measurement, CANDIDATES[0].key, CANDIDATES[1].key);
            found.map_or("not measured".to_owned(), |found| digits(found.median))
        }));
        row
    });
    format!("![{}](docs/benchmarks/call.svg)\n\n{}", GROUPS[0].title, table(&heads, &rows))
}

// ---------------------------------------------------------------- cells

/// The median, with the middle half of the rounds in brackets.
fn spread(spread: Spread) -> String {
    let [median, low, high] = [spread.median, spread.low, spread.high].map(digits);
    if low == high { median } else { format!("{median} ({low}–{high})") }
}

fn head(candidate: &Candidate) -> String {
    // Code is set as code.
    let is_code = candidate.label.ends_with(')') && *candidate != NO_ID;
    if is_code { format!("`{}`", candidate.label) } else { candidate.label.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::stale;

    #[test]
    fn the_pages_in_the_repository_are_made_from_the_figures_there() {
        assert_eq!(stale(&make(&Run::load_all())), [""; 0], "scripts/bench --page makes them");
    }

    #[test]
    fn the_page_has_runs_of_the_oldest_and_the_newest_version_that_measured_everything() {
        let runs = Run::load_all();
        assert_eq!(runs.iter().map(|run| run.major).collect::<Vec<_>>(), [15, 18]);
        for run in &runs {
            assert!(!run.postgres.contains("without OpenSSL"), "its random numbers are not those of others");
            for target in TARGETS {
                assert!(target.judge(run).is_some(), "PostgreSQL {}: {target:?}", run.major);
            }
            for (measurement, _) in GROUPS.iter().flat_map(|group| group.columns) {
                assert!(
                    run.ratio(measurement, CANDIDATES[1].key, CANDIDATES[0].key).is_some(),
                    "{measurement}"
                );
            }
        }
    }

    #[test]
    fn a_run_of_some_measurements_has_a_summary() {
        let mut run = Run { major: 15, ..Run::default() };
        for candidate in rows() {
            run.note("call_ns", candidate.key, if candidate == CANDIDATES[0] { 30.0 } else { 60.0 });
        }
        run.note_probe("call", 5.0);
        let summary = summary(&run);
        assert!(
            summary.contains("| time of a call | `nextval()` | ≤ 0.25 | 0.500 **missed** |"),
            "{summary}"
        );
        assert!(summary.contains("| bigserial | 2.00 |") && !summary.contains("INSERT"), "{summary}");
    }
}
