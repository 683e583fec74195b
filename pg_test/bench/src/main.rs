//! The cost of `snowflake_id` beside the keys that people would choose instead, on real servers, and the page about it.
//!
//! * [`candidates`]: the keys that are compared;
//! * [`measure`]: the measurements, on a server of their own;
//! * [`figures`]: their results, a data file for each major version, and its statistics;
//! * [`targets`]: the project's performance targets;
//! * [`plots`], [`page`]: `docs/benchmarks.md` and its SVGs, from the data files and the template.
//!
//! `scripts/bench --full` starts it, after it has built and installed the extension.

mod candidates;
mod figures;
mod measure;
mod page;
mod plots;
mod targets;

use measure::{Bench, FULL, MEASUREMENTS, QUICK, say};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "\
usage: snowflake_bench [option...]
  --docs FOLDER   where the page, and the folder benchmarks with data files and plots, are written
  --page          make the page from the data files that are there, and measure nothing
  --quick         fewer and shorter rounds
  --only NAME,... only these measurements, whose figures are printed; nothing is written
  --commit TEXT   what was built, for the data file; --machine TEXT, --system TEXT: where it runs";

#[derive(Default)]
struct Options {
    docs: PathBuf,
    makes_page_only: bool,
    is_quick: bool,
    only: Vec<String>,
    commit: String,
    machine: String,
    system: String,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--docs" => options.docs = value()?.into(),
            "--page" => options.makes_page_only = true,
            "--quick" => options.is_quick = true,
            "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
            "--commit" => options.commit = value()?,
            "--machine" => options.machine = value()?,
            "--system" => options.system = value()?,
            "--help" => return Ok(None),
            _ => return Err(format!("what is {word}?")),
        }
    }
    let exists = |name: &String| MEASUREMENTS.iter().any(|(known, _)| known == name);
    if let Some(unknown) = options.only.iter().find(|name| !exists(name)) {
        return Err(format!("no measurement is called {unknown}"));
    }
    if options.only.is_empty() && options.docs.as_os_str().is_empty() {
        return Err("--docs says where to write".to_owned());
    }
    Ok(Some(options))
}

fn run(options: &Options) -> Result<(), String> {
    if !options.makes_page_only {
        let run = measured(options);
        if !options.only.is_empty() {
            print(&run);
            return Ok(());
        }
        // Before the page, so that the figures are there even if the page is refused.
        let file = run.save(&page::folder(&options.docs)).map_err(|e| e.to_string())?;
        say(&format!("-- {}", shown(&file)));
    }
    let page = page::write(&options.docs)?;
    println!("{}", shown(&page));
    Ok(())
}

fn shown(path: &Path) -> String {
    path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string()
}

fn measured(options: &Options) -> figures::Run {
    let began = Instant::now();
    let mut bench = Bench::new(if options.is_quick { QUICK } else { FULL });
    for (name, measure) in MEASUREMENTS {
        if options.only.is_empty() || options.only.iter().any(|only| only == name) {
            let began = Instant::now();
            say(&format!("-- PostgreSQL {}: {name}", bench.run.postgres));
            measure(&mut bench);
            say(&format!("   {:.0} s", began.elapsed().as_secs_f64()));
        }
    }
    let mut run = bench.run;
    run.snowflake_id = format!("{} ({})", run.snowflake_id, options.commit);
    run.machine.clone_from(&options.machine);
    run.system.clone_from(&options.system);
    run.is_quick = options.is_quick;
    run.minutes = (began.elapsed().as_secs_f64() / 6.0).round() / 10.0;
    run
}

fn print(run: &figures::Run) {
    for (measurement, row) in &run.figures {
        for (candidate, spread) in row.iter().filter_map(|(key, figures)| Some((key, figures.spread()?))) {
            let [median, min, max] = [spread.median, spread.min, spread.max].map(figures::readable);
            println!("{measurement:<20} {candidate:<10} {median} ({min} to {max})");
        }
    }
}
