//! Pages with figures: people write the text, a program the blocks between `<!-- made: name -->` and `<!-- end -->`.

use std::fs;
use std::path::{Path, PathBuf};

/// A made file: its path in the repository, and its text.
pub type File = (String, String);

/// The page at `path` with new blocks.
///
/// # Panics
/// If the page has no place for a block, or a place for one that is not made.
pub fn with_blocks(path: &str, text: &str, blocks: &[(&str, String)]) -> File {
    let mut text = text.to_owned();
    for (name, block) in blocks {
        let begin = format!("<!-- made: {name} -->\n");
        let start =
            text.find(&begin).unwrap_or_else(|| panic!("{path} has no place for {name}")) + begin.len();
        let end = text[start..].find("<!-- end -->").unwrap_or_else(|| panic!("{path}: {name} has no end"));
        text = format!("{}{}\n{}", &text[..start], block.trim_end(), &text[start + end..]);
    }
    let places = text.matches("<!-- made: ").count();
    assert_eq!(places, blocks.len(), "{path} has {places} places for {} blocks", blocks.len());
    (path.to_owned(), text)
}

/// A table. Columns of numbers read better when their heads are short.
pub fn table<H: AsRef<str>>(heads: &[H], rows: &[Vec<String>]) -> String {
    let cell = |text: &String| if text.is_empty() { " |".to_owned() } else { format!(" {text} |") };
    let line = |cells: &[String]| format!("|{}\n", cells.iter().map(cell).collect::<String>());
    let heads: Vec<String> = heads.iter().map(|head| head.as_ref().to_owned()).collect();
    let rule = vec!["---".to_owned(); heads.len()];
    let body: String = rows.iter().map(|row| line(row)).collect();
    line(&heads) + &line(&rule) + &body
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text of a file of the repository.
///
/// # Panics
/// If it cannot be read.
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Writes made files into the repository.
///
/// # Panics
/// If one cannot be written.
pub fn write(files: &[File]) {
    for (path, text) in files {
        fs::write(root().join(path), text).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}

/// The made files that differ from those in the repository.
#[cfg(test)]
pub fn stale(files: &[File]) -> Vec<&str> {
    let differs = |(path, text): &&File| fs::read_to_string(root().join(path)).ok().as_ref() != Some(text);
    files.iter().filter(differs).map(|(path, _)| path.as_str()).collect()
}
