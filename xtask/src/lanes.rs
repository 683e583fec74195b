//! Runs a plan: each job is a `scripts/test` of its own with its output in a file, which is shown if it fails.

use crate::plan::{Job, Plan};
use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Set when this process is asked to end. The jobs are in process groups of their own, so they hear of it from here.
static STOP: AtomicBool = AtomicBool::new(false);

struct Lane {
    job: Job,
    process: std::process::Child,
    log: PathBuf,
}

/// Ends its jobs when it goes out of scope, and waits until they have cleaned up.
struct Lanes(Vec<Lane>);

impl Drop for Lanes {
    fn drop(&mut self) {
        for lane in &self.0 {
            let _ = killpg(Pid::from_raw(lane.process.id().cast_signed()), Signal::SIGTERM);
        }
        for lane in &mut self.0 {
            let _ = lane.process.wait();
        }
    }
}

/// Runs the stages with all versions.
///
/// # Errors
/// The first stage that fails; the others are ended then.
pub fn run(stages: &[String], majors: &[u32]) -> Result<()> {
    let cores = std::thread::available_parallelism()?.get();
    let mut plan = Plan::new(stages, majors, cores)?;
    ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed))?;
    let logs = tempfile::Builder::new().prefix("snowflake_id-test.").tempdir()?;
    println!("-- The output of what runs is in {}", logs.path().display());
    play(&mut plan, Path::new("scripts/test"), logs.path(), cores)
}

fn play(plan: &mut Plan, script: &Path, logs: &Path, cores: usize) -> Result<()> {
    let began = Instant::now();
    let mut lanes = Lanes(Vec::new());
    loop {
        while let Some(job) = plan.begin() {
            say(began, &format!("{job}: begins"));
            lanes.0.push(open(job, script, logs)?);
        }
        if lanes.0.is_empty() {
            break;
        }
        if STOP.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        let mut ended = None;
        for (n, lane) in lanes.0.iter_mut().enumerate() {
            if let Some(status) = lane.process.try_wait()? {
                ended = Some((n, status));
            }
        }
        let Some((n, status)) = ended else {
            sleep(Duration::from_millis(100));
            continue;
        };
        let lane = lanes.0.swap_remove(n);
        let output = std::fs::read(&lane.log)?;
        if !status.success() {
            std::io::stdout().write_all(&output)?;
            let again = how_to_repeat(lane.job, &String::from_utf8_lossy(&output));
            bail!("{} did not pass ({status}), see above\n{again}", lane.job);
        }
        let output = String::from_utf8_lossy(&output);
        for skipped in output.lines().filter(|line| line.contains(": SKIPPED")) {
            say(began, skipped);
        }
        let took = output.lines().rfind(|line| line.starts_with(lane.job.stage()) && line.contains(" took "));
        say(began, &format!("{}: passed; {}", lane.job, took.unwrap_or_default()));
        plan.end(lane.job);
    }
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let used = used.user_time().tv_sec() + used.system_time().tv_sec();
    let took = began.elapsed().as_secs().max(1);
    println!("-- {took} s, in which the stages used {used} s of {cores} cores");
    Ok(())
}

/// Commands for what has failed, by itself: each of Cargo's tests that its output names, and the stage.
fn how_to_repeat(job: Job, output: &str) -> String {
    let (option, environment) = match job.major {
        Some(major) => (format!("--pg {major} "), format!("PG_CONFIG=$(scripts/postgres {major}) ")),
        None => Default::default(),
    };
    let mut commands = String::new();
    let mut failed: Vec<&str> = Vec::new();
    for line in output.lines() {
        if let Some(name) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
            failed.push(name.trim_end_matches(" - should panic"));
        } else if let Some(program) = line.strip_prefix("error: test failed, to rerun pass `") {
            for name in failed.drain(..) {
                let program = program.trim_end_matches('`');
                commands += &format!(
                    "  {environment}cargo test --profile quick {program} -- --exact --nocapture {name}\n"
                );
            }
        }
    }
    format!("failed; to run it alone:\n{commands}  scripts/test {option}{}", job.stage())
}

fn say(began: Instant, text: &str) {
    println!("{:>5} s  {text}", began.elapsed().as_secs());
}

fn open(job: Job, script: &Path, logs: &Path) -> Result<Lane> {
    let log = logs.join(job.to_string().replace(' ', "-"));
    let output = File::create(&log)?;
    let mut command = Command::new(script);
    if let Some(major) = job.major {
        command.args(["--pg", &major.to_string()]);
    }
    if Plan::is_installed_for(job) {
        command.env("SNOWFLAKE_IS_INSTALLED", "1");
    }
    // There is one for each version.
    if std::env::var_os("CHAOS_DURATION").is_none() {
        command.env("CHAOS_DURATION", "30s");
    }
    command.arg(job.stage()).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
    let process = command.spawn().with_context(|| format!("{} cannot be run", script.display()))?;
    Ok(Lane { job, process, log })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Plays the stages fmt and lint with a script in the place of `scripts/test`, whose last argument is the stage.
    fn play_with(lines: &str) -> Result<()> {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, format!("#!/bin/sh\n{lines}\n")).unwrap();
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut plan = Plan::new(&["fmt".to_owned(), "lint".to_owned()], &[15, 16], 2).unwrap();
        play(&mut plan, &script, folder.path(), 2)
    }

    #[test]
    fn all_that_pass_pass() {
        play_with("exit 0").unwrap();
    }

    #[test]
    fn a_test_that_failed_is_named_with_the_command_that_runs_it_alone() {
        let mut plan = Plan::new(&["server".to_owned()], &[15], 2).unwrap();
        let job = loop {
            let job = plan.begin().unwrap();
            if job.stage() == "server" {
                break job;
            }
            plan.end(job);
        };
        let output = "test passes ... ok\ntest a::breaks ... FAILED\n\n\
                      error: test failed, to rerun pass `-p snowflake_server_tests --test clock`\n";
        let expected = "failed; to run it alone:\n  PG_CONFIG=$(scripts/postgres 15) cargo test --profile quick \
                        -p snowflake_server_tests --test clock -- --exact --nocapture a::breaks\n  \
                        scripts/test --pg 15 server";
        assert_eq!(how_to_repeat(job, output), expected);
        assert!(!how_to_repeat(job, &output.replace("FAILED", "ok")).contains("breaks"));
    }

    #[test]
    fn one_that_fails_fails_and_ends_the_others() {
        let began = Instant::now();
        let failed = play_with("test $1 = lint && exit 3; sleep 60").unwrap_err();
        assert_eq!(
            failed.to_string(),
            "lint did not pass (exit status: 3), see above\nfailed; to run it alone:\n  scripts/test lint"
        );
        assert!(began.elapsed() < Duration::from_secs(30), "the other one was not ended");
    }
}
