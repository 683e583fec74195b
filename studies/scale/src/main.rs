//! See `--help`.

use snowflake_scale::{calibration, page};
use std::env;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo run --release -p snowflake_scale -- COMMAND

  --write      make the numbers of docs/scale.md and its pictures anew
  --calibrate  measure this machine, in a few seconds, and print lines for studies/scale/calibration.txt
";

fn main() -> ExitCode {
    match env::args().nth(1).as_deref() {
        Some("--write") => snowflake_figures::page::write(&page::make()),
        Some("--calibrate") => calibration::measure(),
        Some("-h" | "--help") => print!("{USAGE}"),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}
