//! The faults, and how a seed draws them: which come, in which order and with what parameters depends on
//! the seed and the options alone, never on time or on what the servers did.

use crate::random::Random;
use std::fmt;

macro_rules! kinds {
    ($($kind:ident $name:literal $weight:literal $text:literal,)*) => {
        /// What can happen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind { $(#[doc = $text] $kind,)* }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$kind,)*];

            pub fn name(self) -> &'static str {
                match self { $(Kind::$kind => $name,)* }
            }

            pub fn text(self) -> &'static str {
                match self { $(Kind::$kind => $text,)* }
            }

            /// How often it is drawn, against the others.
            fn weight(self) -> u64 {
                match self { $(Kind::$kind => $weight,)* }
            }
        }
    };
}

kinds! {
    KillBackend "kill-backend" 8 "SIGKILL of a backend",
    KillKeeper "kill-keeper" 6 "SIGKILL of the keeper",
    KillPostmaster "kill-postmaster" 8 "SIGKILL of the postmaster, then a start",
    EndKeeper "end-keeper" 6 "SIGTERM of the keeper",
    FreezeKeeper "freeze-keeper" 4 "SIGSTOP of the keeper for a while",
    FreezeBackend "freeze-backend" 4 "SIGSTOP of a backend for a while",
    Cancel "cancel" 5 "statements cancelled and sessions terminated",
    Immediate "immediate-stop" 7 "an immediate stop, then a start",
    Fast "fast-stop" 5 "a fast stop, then a start",
    Smart "smart-stop" 4 "a smart stop, then a start",
    ClockBack "clock-back" 10 "the clock back by 1 ms to 1 year while running, and right again",
    ClockForward "clock-forward" 8 "the clock forward by 1 ms to 1 year while running, and right again",
    ClockBackStopped "clock-back-stopped" 5 "a stop, a start with the clock back, and right again",
    ClockForwardStopped "clock-forward-stopped" 4 "a stop, a start with the clock forward, and right again",
    DayForward "day-forward" 3 "the clock a day forward, a stop, a start with the true time",
    DiskFull "disk-full" 4 "no byte free beside the state file",
    DiskFullLost "disk-full-lost" 4 "no byte free, and the state file deleted: it cannot be made anew",
    ReadOnly "read-only" 5 "the folder of the state file read-only",
    WriteError "write-error" 4 "writes of the state fail",
    FsyncError "fsync-error" 4 "fsyncs of the state fail",
    SlowDisk "slow-disk" 2 "fsyncs of the state take long",
    SlowCrash "slow-disk-crash" 5 "processes killed while an fsync of the state takes seconds",
    TornWrite "torn-write" 5 "a writer of the state killed within its write, or before its fsync",
    TornSlot "torn-slot" 5 "the older slot overwritten in whole or in part while stopped",
    BadChecksum "bad-checksum" 3 "one bit of the older slot turned while stopped",
    LostState "lost-state" 3 "both slots destroyed, or the file truncated: closed until adopted",
    Foreign "foreign-state" 3 "the state of another cluster: closed until adopted",
    Newer "newer-state" 3 "a slot of a later version: closed until it is gone",
    DeletedRunning "deleted-running" 4 "the state file, or its folder, deleted while running",
    DeletedStopped "deleted-stopped" 3 "the state file, or its folder, deleted while stopped",
    OtherLayout "other-layout" 2 "another layout configured: closed until it is set back",
    Worker "worker" 4 "worker_id changed, and sometimes changed back",
    Backups "backup-workers" 3 "backup_workers 7, 3, 7",
    Reload "reload" 6 "rollback_policy, max_ahead, max_wait and reserve reloaded",
    Rotate "rotate" 4 "snowflake_rotate by hand",
    Adopt "adopt" 3 "snowflake_adopt while the gate is open",
    Promotion "promotion" 9 "a standby promoted, its clock behind, the old primary running on for a while",
    Restarted "standby-restart" 4 "a standby restarted, its clock behind, after all that its primary did; then promoted",
    Switchovers "switchovers" 5 "five switchovers among three servers, one of which is then started without recovery",
    Alone "standby-alone" 4 "a standby, or an old primary that follows, started without recovery beside its primary",
    Copy "copy" 6 "a backup or a copy of a primary or a standby, started beside the primary or in its place",
    Restore "restore" 3 "a base backup recovered onto a new timeline, in the place of the original",
}

impl Kind {
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

/// How a server goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Down {
    Killed,
    Immediate,
    Fast,
    Smart,
}

/// A fault with its parameters. All are drawn for every fault; which count depends on the kind.
#[derive(Clone, Debug)]
pub struct Fault {
    pub number: u32,
    pub kind: Kind,
    pub down: Down,
    /// A step of the clock (µs).
    pub step_us: i64,
    /// How long it lasts (ms).
    pub hold_ms: u64,
    /// The clock stays as it is for some faults more.
    pub stays: bool,
    /// The server crashes meanwhile.
    pub crashes: bool,
    /// Whatever else there is to choose.
    pub variant: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { number, kind, down, step_us, hold_ms, stays, crashes, variant } = self;
        write!(f, "{number} {} step {} ms", kind.name(), *step_us as f64 / 1e3)?;
        write!(f, " hold {hold_ms} ms {down:?}{}", if *stays { " stays" } else { "" })?;
        write!(f, "{} variant {variant}", if *crashes { " crashes" } else { "" })
    }
}

/// A cluster's life within a run.
#[derive(Clone, Debug)]
pub struct ActPlan {
    /// Made 400 days ago by its clock: a clock that goes back finds lanes that it can use.
    pub is_old: bool,
    /// Its state lies on a small disk of its own.
    pub has_small_disk: bool,
    pub has_standby: bool,
    pub spread: bool,
    /// Pause of the clients that take whole ticks (µs); 0: as fast as it goes.
    pub pause_us: u64,
    pub faults: u32,
}

impl ActPlan {
    pub fn draw(random: &mut Random, can_mount: bool) -> Self {
        Self {
            is_old: random.percent(65),
            has_small_disk: random.percent(60) && can_mount,
            has_standby: random.percent(60),
            spread: random.percent(20),
            pause_us: random.pick(&[0, 3_000, 8_000, 20_000]),
            faults: random.between(12, 30) as u32,
        }
    }
}

/// What the drawing knows of the cluster: only what follows from the faults drawn so far.
#[derive(Clone, Debug)]
pub struct World {
    pub has_small_disk: bool,
    pub has_standby: bool,
    pub timeline: u32,
    pub backups: u32,
    /// Lanes that made IDs of a time to come, with the worker that is configured now.
    pub future: u32,
    /// The clock was left wrong.
    pub shifted: bool,
}

impl World {
    pub fn new(plan: &ActPlan) -> Self {
        Self {
            has_small_disk: plan.has_small_disk,
            has_standby: plan.has_standby,
            timeline: 1,
            backups: 7,
            future: 0,
            shifted: false,
        }
    }

    /// Lanes that the timeline may use.
    pub fn lanes(&self) -> u32 {
        self.backups.div_ceil(2)
    }

    /// Whether a fault is one that the extension promises to survive, the world being what it is. What
    /// is left out here is what the manual names as unprotected.
    fn may_have(&self, kind: Kind) -> bool {
        let no_future = self.future == 0;
        match kind {
            Kind::DiskFull | Kind::DiskFullLost => self.has_small_disk,
            // With every lane but one in the future, the next goes there, and a worker that was never
            // used is the operator's way out: one more would need another first.
            Kind::ClockForward | Kind::ClockForwardStopped | Kind::DayForward => self.future < self.lanes(),
            // Whoever has lost the marks has only the clock and the control file to go by: IDs of a time
            // to come are beyond both. So is the floor of an adoption, by at most a day.
            Kind::LostState | Kind::Foreign | Kind::DeletedRunning | Kind::DeletedStopped | Kind::Adopt => {
                no_future
            }
            Kind::Worker => no_future,
            // Halves are counted by lanes: with another number of lanes a worker changes its half, so the
            // whole fleet has to be stopped for it.
            Kind::Backups => no_future && !self.has_standby,
            // From the third timeline on, IDs of the first are known only by what was replayed: those of
            // a time to come are not. (And the first primary does not run any more by then.)
            Kind::Promotion | Kind::Restarted => {
                self.has_standby && self.backups == 7 && (self.timeline == 1 || no_future)
            }
            Kind::Switchovers => self.has_standby && self.backups == 7 && no_future,
            // A copy that takes over is adopted with a floor; a backup that is recovered is a promotion
            // of a standby that stands still, so its commits give no floor from the third timeline on.
            Kind::Copy => no_future,
            Kind::Alone => no_future && self.has_standby,
            Kind::Restore => self.timeline == 1 && self.backups == 7 && !self.has_standby && no_future,
            _ => true,
        }
    }

    pub fn draw(&self, random: &mut Random, number: u32, only: &[Kind]) -> Option<Fault> {
        let kinds: Vec<Kind> = only.iter().copied().filter(|kind| self.may_have(*kind)).collect();
        let total: u64 = kinds.iter().map(|kind| kind.weight()).sum();
        // All parameters are drawn whatever happens, so that one fault's are independent of another's.
        let mut at = random.below(total.max(1));
        let down = random.pick(&[Down::Killed, Down::Immediate, Down::Fast, Down::Smart]);
        let step_us = draw_step(random);
        let hold_ms = random.between(50, 600);
        let (stays, crashes, variant) = (random.percent(20), random.percent(25), random.below(1_000_000));
        let kind = *kinds.iter().find(|kind| {
            let weight = kind.weight();
            let is_it = at < weight;
            at = at.saturating_sub(weight);
            is_it
        })?;
        Some(Fault { number, kind, down, step_us, hold_ms, stays, crashes, variant })
    }
}

/// 1 ms to 1 year, each order of magnitude about as often.
fn draw_step(random: &mut Random) -> i64 {
    const BOUNDS_MS: [u64; 8] = [1, 5, 100, 2_500, 60_000, 3_600_000, 86_400_000, 31_536_000_000];
    let class = random.below(BOUNDS_MS.len() as u64 - 1) as usize;
    let ms = random.between(BOUNDS_MS[class], BOUNDS_MS[class + 1]);
    // Clocks do not step by whole milliseconds.
    (ms * 1_000 + random.below(1_000)) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_draws_the_same_faults_again() {
        let draw = || {
            let mut random = Random::new(7);
            let plan = ActPlan::draw(&mut random, true);
            let world = World::new(&plan);
            (0..200).map(|n| world.draw(&mut random, n, Kind::ALL).unwrap().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
    }

    #[test]
    fn steps_are_between_a_millisecond_and_a_year() {
        let mut random = Random::new(1);
        let steps: Vec<i64> = (0..10_000).map(|_| draw_step(&mut random)).collect();
        assert!(steps.iter().all(|us| (1_000..=31_536_001_000_000).contains(us)));
        assert!(steps.iter().any(|us| *us < 5_000) && steps.iter().any(|us| *us > 86_400_000_000));
    }

    #[test]
    fn names_find_their_kinds() {
        assert!(Kind::ALL.iter().all(|kind| Kind::named(kind.name()) == Some(*kind)));
    }
}
