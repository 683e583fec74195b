//! The page: the template's text with the runs' figures.

use crate::candidates::{CANDIDATES, Candidate, GIST_ID, REFERENCES};
use crate::figures::{Run, Spread, readable};
use crate::measure::FULL;
use crate::plots::PLOTS;
use crate::targets::{TARGETS, Target};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value, context};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const TEMPLATE: &str = include_str!("page.md.j2");

/// The folder of the data files and plots, beside the page.
pub fn folder(docs: &Path) -> PathBuf {
    docs.join("benchmarks")
}

/// The page and its plots, with their paths under `docs`.
///
/// # Errors
/// A missed target without a cause in the template, or an error of a library.
pub fn make(docs: &Path, runs: &[Run]) -> Result<Vec<(PathBuf, String)>, String> {
    let mut files = vec![(docs.join("benchmarks.md"), text(runs)?)];
    for plot in PLOTS.iter().filter(|_| !runs.is_empty()) {
        let svg = plot.svg(runs).map_err(|e| format!("{}: {e}", plot.name))?;
        files.push((folder(docs).join(format!("{}.svg", plot.name)), svg));
    }
    Ok(files)
}

/// Writes the page for the data files under `docs`.
///
/// # Errors
/// As for [`make`], and errors of the operating system.
pub fn write(docs: &Path) -> Result<PathBuf, String> {
    let files = make(docs, &Run::load_all(&folder(docs))?)?;
    for (path, text) in &files {
        fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(docs.join("benchmarks.md"))
}

fn text(runs: &[Run]) -> Result<String, String> {
    let mut text = render(runs).map_err(|e| {
        // The source of the error says more, for example what is wrong with a function's arguments.
        let cause = std::error::Error::source(&e).map(|cause| format!(": {cause}")).unwrap_or_default();
        format!("{e}{cause}")
    })?;
    // Omitted parts leave their blank lines behind.
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    Ok(text)
}

fn render(runs: &[Run]) -> Result<String, Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_syntax(
        SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build()?,
    );

    let all: Arc<[Run]> = runs.into();
    let of = Arc::clone(&all);
    environment.add_function("versions", move |measurement: String| versions(&of, &measurement));
    let of = Arc::clone(&all);
    environment.add_function("clients", move |prefix: String, unit: String| {
        let heads = crate::measure::CLIENTS.map(|clients| {
            (
                format!("{prefix}_{clients}"),
                match clients {
                    1 => format!("1 client, {unit}"),
                    more => format!("{more} clients"),
                },
            )
        });
        columns(&of, &heads)
    });
    let of = Arc::clone(&all);
    environment.add_function("quantiles", move |prefix: String| {
        let heads = [
            ("p50_us", "p50, µs"),
            ("p99_us", "p99, µs"),
            ("p999_us", "p99.9, µs"),
            ("count", "calls a run"),
        ];
        columns(&of, &heads.map(|(end, head)| (format!("{prefix}_{end}"), head.to_owned())))
    });
    let of = Arc::clone(&all);
    environment.add_function("each", move |measurement: String, candidate: String, unit: String| {
        each(&of, &measurement, &candidate, &unit)
    });
    let any = !runs.is_empty();
    environment.add_function("plot", move |name: String| -> Result<String, Error> {
        let plot = PLOTS.iter().find(|plot| plot.name == name);
        let plot = plot.ok_or_else(|| wrong(format!("no plot is called {name}")))?;
        Ok(if any { format!("![{}](benchmarks/{name}.svg)\n", plot.title) } else { String::new() })
    });
    environment.add_function("no_cause", |key: String, major: u32| -> Result<String, Error> {
        Err(wrong(format!(
            "the target \"{key}\" was missed on PostgreSQL {major}, and pg_test/bench/src/page.md.j2 gives no cause: find it, write it there, and run scripts/bench --page"
        )))
    });

    let targets = TARGETS.iter().map(|target| {
        let results = runs.iter().map(|run| judged(target, run)).collect::<Result<Vec<_>, _>>()?;
        Ok(context! { key => target.key, what => target.what, limit => target.limit(), results })
    });
    let targets = targets.collect::<Result<Vec<_>, Error>>()?;

    environment.add_template("page.md.j2", TEMPLATE)?;
    environment.get_template("page.md.j2")?.render(context! {
        runs => runs.iter().map(about).collect::<Vec<_>>(), targets, gist_id => GIST_ID.trim_end(),
        rounds => FULL.rounds, call_rounds => FULL.call_rounds, tpcb_rounds => FULL.tpcb.2,
    })
}

/// A target's result, and the facts that its cause may refer to.
fn judged(target: &Target, run: &Run) -> Result<Value, Error> {
    let (found, is_met) = target
        .judge(run)
        .ok_or_else(|| wrong(format!("{}: not measured on PostgreSQL {}", target.key, run.major)))?;
    Ok(context! {
        major => run.major, found => spread(found), is_met, is_quick => run.is_quick,
        // Some rounds below 1, some above.
        is_split => found.min < 1.0 && found.max > 1.0,
    })
}

fn about(run: &Run) -> Value {
    let Run { major, postgres, snowflake_id, machine, system, date, minutes, is_quick, .. } = run.clone();
    context! { major, postgres, snowflake_id, machine, system, date, minutes, is_quick }
}

fn wrong(what: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}

/// The median, with minimum and maximum in brackets.
fn spread(spread: Spread) -> String {
    let [median, min, max] = [spread.median, spread.min, spread.max].map(readable);
    if min == max { median } else { format!("{median} ({min}–{max})") }
}

fn rows() -> impl Iterator<Item = Candidate> {
    CANDIDATES.into_iter().chain(REFERENCES)
}

fn head(candidate: Candidate) -> String {
    // Code is set as code.
    if candidate.label.ends_with(')') && !candidate.label.contains(' ') {
        format!("`{}`", candidate.label)
    } else {
        candidate.label.to_owned()
    }
}

/// A table with the versions side by side: each figure, and its ratio to ours.
fn versions(runs: &[Run], measurement: &str) -> Result<String, Error> {
    if runs.is_empty() {
        return Ok(String::new());
    }
    let mut table = String::from("| |");
    runs.iter().for_each(|run| table.push_str(&format!(" PostgreSQL {} | times ours |", run.major)));
    table.push_str(&format!("\n| --- |{}\n", " --- | --- |".repeat(runs.len())));
    let mut has_figures = false;
    for candidate in rows() {
        let cells: String = runs
            .iter()
            .map(|run| {
                let figure = run.of(measurement, candidate.key);
                let ratio = run.ratio(measurement, candidate.key, (measurement, "snowflake"));
                let ratio = ratio.filter(|_| candidate.key != "snowflake" && figure.is_some());
                let ratio = ratio.filter(|ratio| ratio.median.is_finite());
                let figure = figure.map(spread).unwrap_or_default();
                format!(" {figure} | {} |", ratio.map(|ratio| readable(ratio.median)).unwrap_or_default())
            })
            .collect();
        if cells.contains(|c: char| c.is_ascii_digit()) {
            has_figures = true;
            table.push_str(&format!("| {} |{cells}\n", head(candidate)));
        }
    }
    if has_figures { Ok(table) } else { Err(wrong(format!("nothing was measured as {measurement}"))) }
}

/// A table for each version, with a column for each measurement.
fn columns(runs: &[Run], heads: &[(String, String)]) -> Result<String, Error> {
    let mut tables = Vec::new();
    for run in runs {
        let mut table = format!("| PostgreSQL {} |", run.major);
        heads.iter().for_each(|(_, head)| table.push_str(&format!(" {head} |")));
        table.push_str(&format!("\n| --- |{}\n", " --- |".repeat(heads.len())));
        for candidate in rows() {
            let figures: Vec<_> =
                heads.iter().map(|(name, _)| run.of(name, candidate.key).map(spread)).collect();
            if figures.iter().any(Option::is_some) {
                let figures: Vec<String> = figures.into_iter().map(Option::unwrap_or_default).collect();
                table.push_str(&format!("| {} | {} |\n", head(candidate), figures.join(" | ")));
            }
        }
        if !table.contains(CANDIDATES[0].label) {
            return Err(wrong(format!("nothing was measured as {}", heads[0].0)));
        }
        tables.push(table);
    }
    Ok(tables.join("\n"))
}

/// A figure within a sentence, for each version.
fn each(runs: &[Run], measurement: &str, candidate: &str, unit: &str) -> Result<String, Error> {
    let figure = |run: &Run| {
        let found = run.of(measurement, candidate);
        let found = found.ok_or_else(|| wrong(format!("{measurement} of {candidate} was not measured")))?;
        Ok(format!("{} {unit} on PostgreSQL {}", spread(found), run.major))
    };
    Ok(runs.iter().map(figure).collect::<Result<Vec<_>, Error>>()?.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::CLIENTS;

    fn docs() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
    }

    /// A run of invented figures that meet every target.
    fn invented(major: u32) -> Run {
        let mut run = Run { major, postgres: format!("{major}.0"), ..Run::default() };
        let mut names: Vec<String> = [
            "call_ns",
            "tpcb_tps",
            "insert_s",
            "fill_rows_a_s",
            "fill_repeated",
            "copy_s",
            "copy_wal",
            "wal_a_row",
            "index_mib",
            "lookup_warm_us",
            "lookup_small_us",
            "lookup_small_read",
            "lookup_warm_read",
            "saturated_ids_a_s",
        ]
        .map(str::to_owned)
        .into();
        names.extend(CLIENTS.iter().flat_map(|n| [format!("single_{n}"), format!("thousand_{n}")]));
        for prefix in ["call", "query"] {
            names.extend(["p50_us", "p99_us", "p999_us", "count"].map(|end| format!("{prefix}_{end}")));
        }
        for name in names {
            for (nth, candidate) in rows().enumerate() {
                for round in 0..5 {
                    let rate = if name == "tpcb_tps" { -1.0 } else { 1.0 };
                    let figure = 100.0 * 5_f64.powf(rate * nth as f64) + f64::from(round);
                    run.note(&name, candidate.key, figure);
                }
            }
        }
        run
    }

    /// The same, except for one figure.
    fn with(mut run: Run, measurement: &str, candidate: &str, figure: f64) -> Run {
        run.figures.get_mut(measurement).unwrap().remove(candidate);
        run.note(measurement, candidate, figure);
        run
    }

    #[test]
    fn the_page_in_the_repository_is_made_from_the_figures_there() {
        let runs = Run::load_all(&folder(&docs())).unwrap();
        for run in &runs {
            assert!(!run.is_quick, "PostgreSQL {}: a quick run shows nothing", run.major);
        }
        for (path, text) in make(&docs(), &runs).unwrap() {
            let found = fs::read_to_string(&path).unwrap_or_default();
            assert!(found == text, "{} is not what scripts/bench --page makes", path.display());
        }
    }

    #[test]
    fn a_page_has_every_plot_and_figure() {
        let files = make(Path::new("docs"), &[invented(15), invented(18)]).unwrap();
        let page = &files[0].1;
        for (path, svg) in &files[1..] {
            let name = path.file_name().unwrap().to_string_lossy();
            assert!(page.contains(&format!("](benchmarks/{name})")), "{name} is not shown");
            assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{name}");
        }
        assert_eq!(files.len(), 1 + PLOTS.len());
        assert!(!page.contains("MISS"), "{page}");
        assert!(page.contains("| pass |"));
    }

    // The benchmark does not run on 17, so the template has no cause for it.
    #[test]
    fn a_missed_target_without_a_cause_is_an_error() {
        let run = with(invented(17), "insert_s", "snowflake", 2500.0);
        let error = text(&[run]).unwrap_err();
        assert!(error.contains("\"insert\" was missed on PostgreSQL 17"), "{error}");
    }

    #[test]
    fn a_cause_is_given_only_where_the_figures_bear_it_out() {
        let rates = |ours: [f64; 2]| {
            let mut run = with(invented(17), "tpcb_tps", "snowflake", ours[0]);
            run = with(run, "tpcb_tps", "bigserial", 1000.0);
            run.note("tpcb_tps", "snowflake", ours[1]);
            run.note("tpcb_tps", "bigserial", 1000.0);
            text(&[run])
        };
        assert!(rates([900.0, 1001.0]).unwrap().contains("cannot be told apart"));
        assert!(rates([900.0, 950.0]).unwrap_err().contains("\"tpcb\" was missed"));
    }

    #[test]
    fn a_quick_run_needs_no_causes_and_says_so() {
        let run = with(invented(15), "insert_s", "snowflake", 2500.0);
        let page = text(&[Run { is_quick: true, ..run }]).unwrap();
        assert!(page.contains("**MISS**") && page.contains("not what anything costs"), "{page}");
    }

    #[test]
    fn a_figure_that_is_not_there_is_an_error() {
        let mut run = invented(15);
        run.figures.remove("copy_wal");
        assert!(text(&[run]).is_err());
    }
}
