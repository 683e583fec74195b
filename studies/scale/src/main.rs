//! See `--help`.

use snowflake_scale::{calibration, page};
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

const USAGE: &str = "\
Usage: cargo run --release -p snowflake_scale -- COMMAND

  --write      make the numbers of docs/scale.md and its plots anew
  --calibrate  measure this machine, in a few seconds, and print lines for studies/scale/calibration.txt
";

fn main() -> ExitCode {
    match env::args().nth(1).as_deref() {
        Some("--write") => write(),
        Some("--calibrate") => calibration::measure(),
        Some("-h" | "--help") => print!("{USAGE}"),
        _ => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn write() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join(page::PAGE)).expect("the page");
    fs::create_dir_all(root.join("docs/scale")).expect("a folder for the plots");
    for (path, text) in page::make(&text) {
        fs::write(root.join(&path), text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}
