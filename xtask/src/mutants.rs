//! Breaks the core on purpose, one guarantee at a time, and requires that a test notices.
//!
//! Each file in `crates/snowflake_core/mutants` says which promise it breaks, which test of the core must fail ("Caught
//! by: FILE TEST"), and what to replace by what:
//!
//! ```text
//! <<<< file
//! text that occurs once in the file
//! ====
//! the text in its place
//! >>>>
//! ```
//!
//! The replacements are made one mutant at a time in a copy of the workspace; the workspace itself is not changed.

use crate::command::read;
use anyhow::{Context, Result, bail, ensure};
use regex::Regex;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const MUTANTS: &str = "crates/snowflake_core/mutants";
const CAUGHT: &str = "caught";

/// A fault in the code, and the test that must find it.
#[derive(Debug, PartialEq, Eq)]
struct Mutant {
    /// The file of tests, and the test.
    caught_by: (String, String),
    replacements: Vec<Replacement>,
}

#[derive(Debug, PartialEq, Eq)]
struct Replacement {
    file: PathBuf,
    old: String,
    new: String,
}

impl Mutant {
    fn parse(text: &str) -> Result<Self> {
        let caught_by = text.lines().find_map(|line| line.strip_prefix("Caught by: ")?.split_once(' '));
        let (file, test) = caught_by.context("no line 'Caught by: FILE TEST'")?;
        let pattern = Regex::new(r"(?m)^<<<< (.*)\n((?s).*?)^====\n((?s).*?)^>>>>$").context("a pattern")?;
        let replacements: Vec<Replacement> = pattern
            .captures_iter(text)
            .map(|found| Replacement { file: found[1].into(), old: found[2].into(), new: found[3].into() })
            .collect();
        ensure!(!replacements.is_empty(), "no replacement can be read");
        Ok(Self { caught_by: (file.to_owned(), test.to_owned()), replacements })
    }

    /// Makes the replacements in the folder.
    fn apply(&self, tree: &Path) -> Result<()> {
        for Replacement { file, old, new } in &self.replacements {
            let path = tree.join(file);
            let code = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let times = code.matches(old).count();
            ensure!(times == 1, "the text to replace occurs {times} times in {}:\n{old}", file.display());
            fs::write(&path, code.replacen(old, new, 1))?;
        }
        Ok(())
    }

    /// Undoes them.
    fn mend(&self, tree: &Path, root: &Path) -> Result<()> {
        for Replacement { file, .. } in &self.replacements {
            // Written, not copied, because cargo has to see a new time.
            fs::write(tree.join(file), fs::read(root.join(file))?)?;
        }
        Ok(())
    }
}

/// A copy of the workspace, in which tests are built and run.
struct Workshop {
    root: PathBuf,
    /// The folder of the copy and of its builds.
    folder: PathBuf,
}

impl Workshop {
    fn new() -> Result<Self> {
        let root = std::env::current_dir()?;
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let shop = Self { root, folder: target.join("mutants") };
        let tree = shop.tree();
        if tree.exists() {
            fs::remove_dir_all(&tree)?;
        }
        let listed = read(Command::new("git").args(["ls-files", "-co", "--exclude-standard", "-z"]))?;
        for file in listed.split_terminator('\0').filter(|file| Path::new(file).is_file()) {
            let to = tree.join(file);
            fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
            fs::copy(file, to)?;
        }
        Ok(shop)
    }

    fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// Runs `cargo test` on that file of tests; loom needs other atomics and a build of its own. Returns whether it
    /// succeeds, and its output.
    fn test(&self, file: &str, args: &[&str]) -> Result<(bool, String)> {
        let mut cargo = Command::new("cargo");
        cargo.args(["test", "--quiet", "-p", "snowflake_core", "--test", file]).args(args);
        cargo.envs([("CARGO_PROFILE_DEV_OPT_LEVEL", "2"), ("CARGO_PROFILE_DEV_DEBUG", "0")]);
        cargo.envs([("MODEL_SHRINK", "0"), ("RUST_BACKTRACE", "0")]).env_remove("RUSTFLAGS");
        cargo.env("CARGO_TARGET_DIR", self.folder.join("target")).current_dir(self.tree());
        if std::env::var_os("MODEL_SECONDS").is_none() {
            cargo.env("MODEL_SECONDS", "20");
        }
        if file == "loom" {
            cargo.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", self.folder.join("loom"));
        }
        let output = cargo.output().context("cargo")?;
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        Ok((output.status.success(), said))
    }

    /// What becomes of a mutant, and what to show of it.
    fn try_mutant(&self, mutant: &Mutant) -> Result<(&'static str, String)> {
        if let Err(misfit) = mutant.apply(&self.tree()) {
            return Ok(("MISFIT", format!("{misfit:#}\n")));
        }
        let (file, test) = &mutant.caught_by;
        let (is_built, said) = self.test(file, &["--no-run"])?;
        if !is_built {
            return Ok(("NO-BUILD", said));
        }
        let (passes, said) = self.test(file, &["--", "--exact", test])?;
        Ok((judged(passes, &said), String::new()))
    }
}

/// Of a run of the one test that must fail. A wrong name of the test would otherwise count as caught.
fn judged(passes: bool, said: &str) -> &'static str {
    match said.contains("test result: FAILED. 0 passed; 1 failed") {
        _ if passes => "SURVIVED",
        true => CAUGHT,
        false => "NOT-RUN",
    }
}

/// Tries the named mutants, or all.
///
/// # Errors
/// One that is not caught, or tests that fail without any.
pub fn main(names: &[String]) -> Result<()> {
    let mut files = fs::read_dir(MUTANTS)?.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    let name =
        |file: &Path| file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    if let Some(unknown) = names.iter().find(|asked| !files.iter().any(|file| name(file) == **asked)) {
        bail!("{MUTANTS} has no {unknown}");
    }
    let shop = Workshop::new()?;
    println!("unchanged:");
    for file in ["startup", "identity", "timelines", "writes", "keeper", "adopt", "scenarios", "model"] {
        let (passes, said) = shop.test(file, &[])?;
        ensure!(passes, "{said}\n{file} fails without a mutant");
    }
    let mut survivors = 0;
    println!("{:<32} {:<8} test", "mutant", "result");
    for file in files.iter().filter(|file| names.is_empty() || names.contains(&name(file))) {
        let mutant = Mutant::parse(&fs::read_to_string(file)?).with_context(|| name(file))?;
        let (outcome, shown) = shop.try_mutant(&mutant)?;
        mutant.mend(&shop.tree(), &shop.root)?;
        survivors += usize::from(outcome != CAUGHT);
        let (tests, test) = &mutant.caught_by;
        println!("{shown}{:<32} {outcome:<8} {tests}: {test}", name(file));
    }
    ensure!(survivors == 0, "{survivors} not caught");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "A promise.\nCaught by: model a_test\n\n<<<< a.rs\nold\n====\nnew\n>>>>\n<<<< b.rs\nx\n====\n>>>>\n";

    #[test]
    fn every_mutant_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut count = 0;
        for file in fs::read_dir(root.join(MUTANTS)).unwrap() {
            let path = file.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let mutant = Mutant::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert_eq!(mutant.replacements.len(), text.matches("\n<<<< ").count(), "{}", path.display());
            count += 1;
        }
        assert!(count > 50, "{count}");
    }

    #[test]
    fn a_mutant_is_applied_and_mended() {
        let (root, tree) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (file, text) in [("a.rs", "1\nold\n2\n"), ("b.rs", "x\n")] {
            fs::write(root.path().join(file), text).unwrap();
            fs::copy(root.path().join(file), tree.path().join(file)).unwrap();
        }
        let mutant = Mutant::parse(TEXT).unwrap();
        assert_eq!(mutant.caught_by, ("model".to_owned(), "a_test".to_owned()));
        mutant.apply(tree.path()).unwrap();
        let read = |file: &str| fs::read_to_string(tree.path().join(file)).unwrap();
        assert_eq!((read("a.rs").as_str(), read("b.rs").as_str()), ("1\nnew\n2\n", ""));
        mutant.mend(tree.path(), root.path()).unwrap();
        assert_eq!((read("a.rs").as_str(), read("b.rs").as_str()), ("1\nold\n2\n", "x\n"));
        fs::write(tree.path().join("a.rs"), "old\nold\n").unwrap();
        assert!(mutant.apply(tree.path()).unwrap_err().to_string().contains("occurs 2 times"));
    }

    #[test]
    fn only_the_failure_of_the_named_test_counts_as_caught() {
        assert_eq!(judged(true, "test result: ok. 1 passed; 0 failed"), "SURVIVED");
        assert_eq!(judged(false, "test result: FAILED. 0 passed; 1 failed; 0 ignored"), CAUGHT);
        assert_eq!(judged(true, "test result: ok. 0 passed; 0 failed; 0 ignored"), "SURVIVED");
        assert_eq!(judged(false, "error: could not compile"), "NOT-RUN");
    }
}
