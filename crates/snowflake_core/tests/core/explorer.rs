//! The table of layouts in `docs/explorer.html` is this crate's.

use snowflake_core::Layout;
use snowflake_core::foreign::PRESETS;
use std::path::Path;

const BEGIN: &str = "<script type=\"application/json\" id=\"layouts\">\n";
const END: &str = "\n</script>";

fn table() -> String {
    let ours = Layout::default();
    let epoch = jiff::Timestamp::from_microsecond(ours.epoch_us()).expect("a time");
    let ours = format!("{} {} {epoch}", ours.bits(), ours.tick());
    let all = [("snowflake_id", ours.as_str(), "the default layout of this project")];
    let all = all.into_iter().chain(PRESETS.iter().map(|preset| (preset.name, preset.layout, preset.note)));
    let rows = all.map(|(name, layout, note)| {
        // Plain text is quoted alike in Rust and in JSON.
        assert!(note.chars().all(|c| (' '..='~').contains(&c) && !matches!(c, '"' | '\\' | '<')), "{note}");
        format!("{{\"name\": \"{name}\", \"layout\": \"{layout}\", \"note\": \"{note}\"}}")
    });
    format!("[{}]", rows.collect::<Vec<_>>().join(",\n "))
}

#[test]
fn the_explorer_has_the_layouts_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explorer.html");
    let page = std::fs::read_to_string(&path).expect("the page");
    let (before, rest) = page.split_once(BEGIN).expect("a table");
    let (stated, after) = rest.split_once(END).expect("its end");
    if std::env::var_os("EXPLORER_ACCEPT").is_some() {
        let page = [before, BEGIN, &table(), END, after].concat();
        return std::fs::write(path, page).expect("the page can be written");
    }
    assert_eq!(stated, table(), "EXPLORER_ACCEPT=1 writes the table anew");
}
