//! `scripts/stages.mk`, with a script in the place of `scripts/test`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const MAJORS: [&str; 5] = ["15", "16", "17", "18", "19"];

/// The stages of the script.
fn all() -> Vec<String> {
    let output = Command::new("scripts/test").arg("--list").current_dir(ROOT).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Plays stages; the script executes these lines, where `$stage` is the last argument, and `note` writes its argument
/// into the second result.
fn play(stages: &[&str], lines: &str, folder: &Path) -> (Output, String) {
    let (script, notes) = (folder.join("script"), folder.join("notes"));
    let head = format!(
        "#!/bin/sh\nfor stage; do :; done\nnote() {{ echo \"$*\" >>{}; }}\n{lines}\n",
        notes.display()
    );
    std::fs::write(&script, head).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new("make")
        .args(["-f", "scripts/stages.mk", "--keep-going", "--jobs=6", "--output-sync=target"])
        .args([format!("SCRIPT={}", script.display()), format!("LOGS={}", folder.display())])
        .args([format!("STAGES={}", stages.join(" ")), format!("MAJORS={}", MAJORS.join(" "))])
        .env_remove("SNOWFLAKE_IS_INSTALLED")
        .current_dir(ROOT)
        .output()
        .unwrap();
    (output, std::fs::read_to_string(notes).unwrap_or_default())
}

#[test]
fn every_stage_runs_once_with_one_end_both_or_each_version() {
    let all = all();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let folder = tempfile::tempdir().unwrap();
    let (output, notes) = play(&all, "note \"$*\"", folder.path());
    assert!(output.status.success(), "{output:?}");
    let mut played: Vec<String> = notes.lines().map(str::to_owned).collect();
    for stage in all {
        let of_stage = played.extract_if(.., |args| args.split(' ').next_back() == Some(stage));
        let mut majors: Vec<String> =
            of_stage.map(|args| args.replace("--pg ", "").replace(stage, "")).collect();
        majors.sort();
        let majors = majors.concat();
        let majors: Vec<&str> = majors.split_whitespace().collect();
        let known: [&[&str]; 5] = [&[], &["15"], &["19"], &["15", "19"], &MAJORS];
        assert!(known.contains(&&majors[..]), "{stage}: {majors:?}");
    }
    assert_eq!(played, [""; 0], "twice, or no stage of the script");
}

#[test]
fn what_fails_is_shown_and_the_others_go_on_but_for_those_that_need_it() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"
        note "$*"
        echo "said by $*"
        case "$*" in '--pg 17 install') exit 3 ;; fmt) exit 4 ;; '--pg 19 pg') exit 5 ;; esac"#;
    let (output, notes) = play(&["fmt", "lint", "pg", "regress"], script, folder.path());
    assert!(!output.status.success());
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("said by fmt") && shown.contains("said by --pg 17 install"), "{shown}");
    assert!(!shown.contains("said by lint"), "{shown}");
    assert!(notes.contains("lint") && notes.contains("--pg 18 regress"), "{notes}");
    assert!(!notes.contains("--pg 17 regress"), "{notes}");
    // What only waits for its end goes on.
    assert!(notes.contains("--pg 19 regress"), "{notes}");
    let failed = std::fs::read_to_string(folder.path().join("failed")).unwrap();
    for job in ["fmt", "install.17", "pg.19"] {
        assert!(failed.contains(&format!("{job} failed")), "{failed}");
    }
    let (output, _) = play(&["pg"], "test $stage != pg", folder.path());
    assert!(!output.status.success());
}

#[test]
fn each_night_runs_every_stage() {
    let workflow = include_str!("../../.github/workflows/all.yml").replace("\n          ", " ");
    let calls = workflow.lines().filter(|line| line.contains("scripts/test "));
    let mut all = all();
    let mut called: Vec<&str> = calls.flat_map(str::split_whitespace).collect();
    called.retain(|word| all.iter().any(|stage| stage == word));
    called.sort_unstable();
    all.sort_unstable();
    assert_eq!(called, all);
}
