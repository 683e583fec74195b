//! When each stage of `scripts/test` runs, for several versions of PostgreSQL: as many at once as keep the processors
//! busy, what takes long first, and none beside one that it would disturb.

use anyhow::{Result, bail};
use std::fmt;

/// What has to be known of a stage to run it beside others.
struct Stage {
    name: &'static str,
    with: With,
    /// Stages that come before it: of the same PostgreSQL, or of all where one of the two runs once.
    after: &'static [&'static str],
    /// Tenths of a core that it keeps busy on average; see pg_test/README.md for how it was measured.
    load: usize,
    /// About how long it takes by itself on two cores.
    seconds: usize,
    /// What only one stage at a time may use.
    uses: Option<&'static str>,
}

/// Which of the PostgreSQLs a stage runs with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum With {
    /// None, or one of its own choice.
    None,
    Each,
    /// The oldest and the newest: stages about the generator's behaviour, which no version in between could change alone.
    Ends,
}

const ONCE: Stage = Stage { name: "", with: With::None, after: &[], load: 10, seconds: 10, uses: None };
const EACH: Stage = Stage { with: With::Each, after: &["install"], ..ONCE };
const ENDS: Stage = Stage { with: With::Ends, ..EACH };

/// cargo-pgrx builds the library for all versions in one place.
const DEBUG_LIBRARY: Option<&str> = Some("target/debug");
const LIBRARY: Option<&str> = Some("target/release");

/// In the order of `scripts/test --list`.
const STAGES: &[Stage] = &[
    Stage { name: "fmt", seconds: 2, ..ONCE },
    Stage { name: "lint", seconds: 20, ..ONCE },
    Stage { name: "core", seconds: 110, ..ONCE },
    Stage { name: "loom", seconds: 80, ..ONCE },
    Stage { name: "fleet", load: 14, seconds: 60, ..ONCE },
    Stage { name: "bench", seconds: 60, ..ONCE },
    Stage { name: "xtask", seconds: 20, ..ONCE },
    Stage { name: "pgxn", seconds: 40, ..ONCE },
    Stage { name: "site", seconds: 20, ..ONCE },
    Stage { name: "postgres", after: &[], seconds: 15, ..EACH },
    Stage { name: "pgrx", load: 14, seconds: 70, ..ONCE },
    Stage { name: "clippy", after: &["postgres"], seconds: 70, ..ENDS },
    // It installs the library of its own tests, which the stages after `install` must not see.
    Stage { name: "pg", after: &["postgres", "pgrx"], seconds: 60, uses: DEBUG_LIBRARY, ..EACH },
    Stage { name: "install", after: &["postgres", "pgrx", "pg"], seconds: 60, uses: LIBRARY, ..EACH },
    Stage { name: "regress", seconds: 5, ..EACH },
    Stage { name: "instructions", seconds: 8, ..EACH },
    Stage { name: "package", seconds: 80, uses: LIBRARY, ..ENDS },
    Stage { name: "upstream", load: 8, seconds: 130, ..EACH },
    Stage { name: "server", load: 4, seconds: 300, ..EACH },
    Stage { name: "faults", load: 3, seconds: 700, ..ENDS },
    Stage { name: "chaos", load: 4, seconds: 140, ..ENDS },
    Stage { name: "patroni", load: 2, seconds: 400, ..ENDS },
    // Skipped where there is no Citus.
    Stage { name: "citus", seconds: 2, ..EACH },
    Stage { name: "upgrade", with: With::None, seconds: 40, ..EACH },
];

/// One stage, with one PostgreSQL or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    stage: usize,
    /// The major version of the PostgreSQL.
    pub major: Option<u32>,
}

impl Job {
    fn facts(self) -> &'static Stage {
        &STAGES[self.stage]
    }

    pub fn stage(self) -> &'static str {
        self.facts().name
    }

    fn comes_after(self, other: Job) -> bool {
        let same = self.major.is_none() || other.major.is_none() || self.major == other.major;
        same && self.facts().after.contains(&other.stage())
    }

    fn excludes(self, other: Job) -> bool {
        let (one, two) = (self.facts(), other.facts());
        one.uses.is_some() && one.uses == two.uses
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.major {
            Some(major) => write!(f, "{} with PostgreSQL {major}", self.stage()),
            None => f.write_str(self.stage()),
        }
    }
}

/// Jobs, in the order in which they are begun when they can be.
pub struct Plan {
    waiting: Vec<Job>,
    running: Vec<Job>,
    /// Tenths of a core.
    capacity: usize,
}

impl Plan {
    /// For these stages and versions on this many cores. What they need is in the plan as well.
    ///
    /// # Errors
    /// An unknown stage.
    pub fn new(stages: &[String], majors: &[u32], cores: usize) -> Result<Self> {
        for stage in stages {
            if !STAGES.iter().any(|known| known.name == stage) {
                bail!("no stage '{stage}'");
            }
        }
        let asked = |name: &str| stages.iter().any(|stage| stage == name);
        let is_installed = STAGES.iter().any(|stage| asked(stage.name) && stage.after.contains(&"install"));
        let is_each =
            STAGES.iter().any(|stage| asked(stage.name) && stage.with != With::None) || is_installed;
        let mut jobs = Vec::new();
        for (index, stage) in STAGES.iter().enumerate() {
            let is_needed = match stage.name {
                "postgres" => is_each,
                "install" => is_installed,
                "pgrx" => is_installed || asked("pg"),
                _ => false,
            };
            if !asked(stage.name) && !is_needed {
                continue;
            }
            let ends = [majors.iter().min(), majors.iter().max()];
            jobs.extend(match stage.with {
                With::None => vec![Job { stage: index, major: None }],
                With::Each | With::Ends => majors
                    .iter()
                    .filter(|&major| stage.with == With::Each || ends.contains(&Some(major)))
                    .map(|&major| Job { stage: index, major: Some(major) })
                    .collect(),
            });
        }
        // What has the longest way to go, itself included, comes first; the order is kept among equals.
        let lengths: Vec<usize> = jobs.iter().map(|&job| way(job, &jobs)).collect();
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.sort_by_key(|&n| std::cmp::Reverse(lengths[n]));
        // More than there is, because a stage that computes sometimes waits, for the disk or for a lock.
        let capacity = cores * 10 + 8;
        Ok(Self { waiting: order.into_iter().map(|n| jobs[n]).collect(), running: Vec::new(), capacity })
    }

    /// A job to begin now, if there is one: it is running from now on.
    pub fn begin(&mut self) -> Option<Job> {
        let load: usize = self.running.iter().map(|job| job.facts().load).sum();
        let can_begin = |&job: &Job| {
            let is_ready = !self.running.iter().chain(&self.waiting).any(|&other| job.comes_after(other));
            let fits = self.running.is_empty() || load + job.facts().load <= self.capacity;
            is_ready && fits && !self.running.iter().any(|&other| job.excludes(other))
        };
        let next = self.waiting.iter().position(can_begin)?;
        let job = self.waiting.remove(next);
        self.running.push(job);
        Some(job)
    }

    /// A running job has ended.
    pub fn end(&mut self, job: Job) {
        self.running.retain(|&other| other != job);
    }

    /// Whether the job finds the extension installed by an earlier one.
    pub fn is_installed_for(job: Job) -> bool {
        job.facts().after.contains(&"install")
    }
}

/// The seconds from the beginning of a job to the end of the last one that has to wait for it.
fn way(job: Job, jobs: &[Job]) -> usize {
    let then = jobs.iter().filter(|next| next.comes_after(job));
    job.facts().seconds + then.map(|&next| way(next, jobs)).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<String> {
        STAGES.iter().map(|stage| stage.name.to_owned()).collect()
    }

    /// A job, its beginning and its end.
    type Played = (Job, usize, usize);

    /// Plays a plan as if every job took the seconds that are stated.
    fn played(mut plan: Plan) -> Vec<Played> {
        let (mut now, mut running, mut done) = (0, Vec::new(), Vec::new());
        loop {
            while let Some(job) = plan.begin() {
                running.push((job, now, now + job.facts().seconds));
            }
            let Some(&first) = running.iter().min_by_key(|(_, _, end)| *end) else { break };
            now = first.2;
            plan.end(first.0);
            running.retain(|other| *other != first);
            done.push(first);
        }
        assert!(plan.waiting.is_empty(), "never begun: {:?}", plan.waiting);
        done
    }

    fn pairs(done: &[Played]) -> impl Iterator<Item = (&Played, &Played)> {
        done.iter()
            .flat_map(move |one| done.iter().map(move |two| (one, two)))
            .filter(|(one, two)| one.0 != two.0)
    }

    fn are_together(one: &Played, two: &Played) -> bool {
        one.1 < two.2 && two.1 < one.2
    }

    #[test]
    fn every_stage_runs_once_with_the_ends_or_with_each_version() {
        for cores in [1, 2, 4, 64] {
            let mut jobs: Vec<String> = played(Plan::new(&all(), &[15, 16, 17, 18, 19], cores).unwrap())
                .iter()
                .map(|j| j.0.to_string())
                .collect();
            let with = |with: With| STAGES.iter().filter(|stage| stage.with == with).count();
            let expected = with(With::None) + 2 * with(With::Ends) + 5 * with(With::Each);
            assert_eq!(jobs.len(), expected);
            jobs.sort();
            jobs.dedup();
            assert_eq!(jobs.len(), expected);
        }
    }

    #[test]
    fn a_stage_waits_for_what_it_needs() {
        for cores in [1, 2, 4, 64] {
            let done = played(Plan::new(&all(), &[15, 19], cores).unwrap());
            for (one, two) in pairs(&done) {
                assert!(!one.0.comes_after(two.0) || one.1 >= two.2, "{} before the end of {}", one.0, two.0);
            }
        }
    }

    #[test]
    fn one_place_is_used_by_one_stage_at_a_time() {
        let done = played(Plan::new(&all(), &[15, 16, 17, 18, 19], 64).unwrap());
        for (one, two) in pairs(&done).filter(|(one, two)| are_together(one, two)) {
            let place = one.0.facts().uses;
            assert!(place.is_none() || place != two.0.facts().uses, "{} beside {}", one.0, two.0);
        }
    }

    #[test]
    fn stages_that_wait_run_beside_those_that_compute() {
        let done = played(Plan::new(&all(), &[15, 16, 17, 18, 19], 2).unwrap());
        let waits = |job: &Played| job.0.facts().load < 10;
        assert!(
            pairs(&done).any(|(one, two)| waits(one) && two.0.facts().load == 10 && are_together(one, two))
        );
        for at in done.iter().map(|job| job.1) {
            let load: usize =
                done.iter().filter(|job| job.1 <= at && at < job.2).map(|job| job.0.facts().load).sum();
            assert!(load <= 28, "{load} tenths of a core at {at} s");
        }
    }

    #[test]
    fn the_cores_of_a_small_machine_are_busy_to_the_end() {
        let done = played(Plan::new(&all(), &[15, 16, 17, 18, 19], 2).unwrap());
        let work: usize = done.iter().map(|job| job.0.facts().load * job.0.facts().seconds).sum();
        let took = done.iter().map(|job| job.2).max().unwrap();
        assert!(took * 20 <= work * 11 / 10, "{} s for {} s of two cores", took, work / 20);
    }

    #[test]
    fn a_stage_that_takes_more_than_there_is_runs_alone() {
        assert_eq!(played(Plan::new(&["server".to_owned()], &[15], 0).unwrap()).len(), 4);
    }

    #[test]
    fn what_a_stage_needs_is_in_its_plan() {
        let jobs = |stage: &str| -> Vec<&str> {
            let plan = Plan::new(&[stage.to_owned()], &[15], 2).unwrap();
            played(plan).iter().map(|job| job.0.stage()).collect()
        };
        assert_eq!(jobs("core"), ["core"]);
        assert_eq!(jobs("clippy"), ["postgres", "clippy"]);
        assert_eq!(jobs("upgrade"), ["postgres", "pgrx", "install", "upgrade"]);
    }

    #[test]
    fn an_unknown_stage_is_an_error() {
        assert!(Plan::new(&["sever".to_owned()], &[15], 2).is_err());
    }

    #[test]
    fn the_plan_has_the_stages_of_the_script() {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/test");
        let output = std::process::Command::new(script).arg("--list").output().unwrap();
        let listed = String::from_utf8(output.stdout).unwrap();
        assert_eq!(listed.lines().collect::<Vec<_>>(), all());
    }

    #[test]
    fn the_workflow_runs_every_stage() {
        let workflow = include_str!("../../.github/workflows/test.yml").replace("\n          ", " ");
        let calls = workflow.lines().filter(|line| line.contains("scripts/test "));
        let mut called: Vec<&str> = calls.flat_map(str::split_whitespace).collect();
        called.retain(|word| STAGES.iter().any(|stage| stage.name == *word));
        called.sort_unstable();
        let mut all = all();
        all.sort_unstable();
        assert_eq!(called, all);
    }
}
