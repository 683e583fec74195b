//! Real servers, many clients, and faults drawn by a seed: no ID may be acknowledged twice.
//!
//! A run is a row of acts. In each, a cluster of its own, with workers of its own, lives through some
//! twenty faults, while clients ask it for IDs and note every one that is acknowledged, outside the
//! database. All notes of the run are compared with each other. The report is that of Jepsen's checker of
//! unique IDs, with the faults, the refusals and the times without an ID.
//!
//! With `--fleet`, it is eight servers that have their workers from a registry: see `fleet`.
//!
//! Start with `faults`, the table; `cluster`, the loop; and `act`, a cluster. Below these, `clients` ask, `tally`
//! finds duplicates, `disk` comes between a server and its state file, `report` prints.

mod act;
mod clients;
mod cluster;
mod disk;
mod faults;
mod fleet;
mod random;
mod report;
mod run;
mod shared;
mod tally;
mod volume;
mod world;

use faults::{FAULTS, Kind};
use random::Random;
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str = "\
usage: scripts/chaos [option...]
  --seed N         draw the faults from this seed; the same seed draws the same faults (default: random)
  --duration TIME  run at least so long: 90s, 2m, 1h (default 2m, unless --faults or --ids is given)
  --faults N       run until so many faults were drawn
  --ids N          run until so many IDs were acknowledged
  --clients N      how many clients ask for IDs (default 16; with --fleet 32)
  --only KIND,...  draw only faults of these kinds
  --fleet          eight servers with workers from a registry, and faults of servers, registry and network
  --verbose        print each fault as it is drawn
  --list           print the kinds of faults; with --fleet, those of a fleet";

struct Options {
    seed: u64,
    duration: Duration,
    faults: u32,
    ids: u64,
    clients: usize,
    mode: Mode,
    is_verbose: bool,
}

/// What is tested, and the kinds of faults that are drawn.
enum Mode {
    Cluster(Vec<&'static Kind>),
    Fleet(Vec<&'static fleet::Kind>),
}

fn main() -> ExitCode {
    snowflake_server_tests::messages::leave_uncompared();
    let options = match options(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => return ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    // Before any other thread starts, because it would keep the mounts that it started with.
    let can_mount = disk::prepare_mounts();
    if !can_mount {
        println!("No file systems can be mounted here (it takes root): no full disks, and a folder is made");
        println!("read-only by its mode. Writes that fail are made by a library instead.");
    }
    match &options.mode {
        Mode::Cluster(kinds) => {
            run::run(&options, clients::is_expected, |run| cluster::draw_and_check(run, kinds, can_mount))
        }
        Mode::Fleet(kinds) => {
            run::run(&options, fleet::is_expected, |run| fleet::draw_and_check(run, kinds, can_mount))
        }
    }
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Option<Options>, String> {
    let mut options = Options {
        seed: std::process::id().into(),
        duration: Duration::ZERO,
        faults: 0,
        ids: 0,
        clients: 16,
        mode: Mode::Cluster(Vec::new()),
        is_verbose: false,
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    options.seed ^= Random::new(now.as_nanos() as u64).next() % 1_000_000_000;
    let mut has_end = false;
    let (mut only, mut clients, mut is_fleet, mut is_list) = (None, None, false, false);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--seed" => options.seed = number(&value()?)?,
            "--duration" => (options.duration, has_end) = (duration(&value()?)?, true),
            "--faults" => (options.faults, has_end) = (number(&value()?)? as u32, true),
            "--ids" => (options.ids, has_end) = (number(&value()?)?, true),
            "--clients" => clients = Some(number(&value()?)?.clamp(2, 60) as usize),
            "--only" => only = Some(value()?),
            "--fleet" => is_fleet = true,
            "--verbose" => options.is_verbose = true,
            "--list" => is_list = true,
            "--help" => {
                println!("{USAGE}");
                return Ok(None);
            }
            _ => return Err(format!("what is {word}?")),
        }
    }
    if is_list {
        match is_fleet {
            false => FAULTS.iter().for_each(|kind| println!("{:<22} {}", kind.name, kind.text)),
            true => fleet::FAULTS.iter().for_each(|kind| println!("{:<22} {}", kind.name, kind.text)),
        }
        return Ok(None);
    }
    options.mode = match is_fleet {
        false => Mode::Cluster(chosen(FAULTS, |kind| kind.name, only.as_deref())?),
        true => Mode::Fleet(chosen(fleet::FAULTS, |kind| kind.name, only.as_deref())?),
    };
    options.clients = match is_fleet {
        false => clients.unwrap_or(16),
        true => clients.unwrap_or(32).max(fleet::FEWEST_CLIENTS),
    };
    if !has_end {
        options.duration = Duration::from_secs(120);
    }
    Ok(Some(options))
}

/// The kinds that `--only` names, or all.
fn chosen<K>(all: &'static [K], name: fn(&K) -> &str, only: Option<&str>) -> Result<Vec<&'static K>, String> {
    let Some(only) = only else { return Ok(all.iter().collect()) };
    let named = |wanted: &str| all.iter().find(|kind| name(kind) == wanted);
    only.split(',').map(|wanted| named(wanted).ok_or(format!("no fault is called {wanted}"))).collect()
}

fn number(text: &str) -> Result<u64, String> {
    text.replace('_', "").parse().map_err(|_| format!("{text} is not a number"))
}

fn duration(text: &str) -> Result<Duration, String> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(format!("{text} is not a time, as 90s, 2m or 1h")),
    };
    Ok(Duration::from_secs(number(digits)? * unit))
}

impl Options {
    /// The names of the faults that are drawn.
    fn names(&self) -> Vec<&'static str> {
        match &self.mode {
            Mode::Cluster(kinds) => kinds.iter().map(|kind| kind.name).collect(),
            Mode::Fleet(kinds) => kinds.iter().map(|kind| kind.name).collect(),
        }
    }

    /// The command that draws the same faults again.
    fn command_line(&self) -> String {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let has_seed = words.iter().any(|word| word == "--seed");
        let seed = if has_seed { String::new() } else { format!(" --seed {}", self.seed) };
        format!("scripts/chaos{seed} {}", words.join(" ")).trim_end().to_owned()
    }
}
