//! The committed page is what the program writes.

use snowflake_scale::page::{PAGE, make};
use std::fs::read_to_string;
use std::path::Path;

#[test]
fn the_committed_page_and_its_plots_are_what_the_program_makes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let committed =
        |path: &str| read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    for (path, text) in make(&committed(PAGE)) {
        let is_same = text == committed(&path);
        assert!(is_same, "{path} is not up to date: cargo run --release -p snowflake_scale -- --write");
    }
}
