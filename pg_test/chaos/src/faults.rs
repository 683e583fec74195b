//! The table of faults, and how a seed draws from it. The functions that its rows name are in the modules
//! below, by what they attack.

mod clock;
mod copies;
mod disk;
mod processes;
mod replication;
mod restarts;
mod settings;
mod state_file;

use crate::act::{A_COPY, A_SECOND, Act, Down};
use crate::random::Random;
use crate::world::World;
use std::fmt;

/// A row of the table.
pub struct Kind {
    pub name: &'static str,
    /// How often it is drawn, relative to the other weights.
    weight: u64,
    /// Whether it keeps to the promise of `docs/reliability.md` in this world: see below.
    is_survivable: fn(&World) -> bool,
    pub clock: Clock,
    /// Until it is repaired, every call must be refused for one of these reasons, if there are any.
    closed_for: &'static [&'static str],
    pub inflict: fn(&mut Act, &Fault),
    /// For `--list`.
    pub text: &'static str,
}

/// The clock when the fault begins: as an earlier fault left it, or set right before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    Any,
    True,
}
use Clock::{Any, True};

const DAY_US: i64 = 86_400_000_000;

const fn kind(
    name: &'static str,
    weight: u64,
    is_survivable: fn(&World) -> bool,
    clock: Clock,
    closed_for: &'static [&'static str],
    inflict: fn(&mut Act, &Fault),
    text: &'static str,
) -> Kind {
    Kind { name, weight, is_survivable, clock, closed_for, inflict, text }
}

const OPEN: &[&str] = &[];
const NEWER: &[&str] = &["later version"];
const LAYOUT: &[&str] = &["the snowflake layout of this database differs from this server's"];

/// Every fault. All keep to the promise: "If two runs of one worker never overlap, no ID repeats, unless the newest state
/// was lost or replaced AND a clock was behind. Either the state or the clock is right: that suffices." So none starts two
/// servers with one number where the host's lock does not keep them apart, and none that replaces the newest state meets
/// a clock that is, or was, wrong: every ID that is acknowledged twice is a fault of the extension.
///
/// The checks after it are the same for all. `Act::must_serve_after` gives each server and each
/// client 40 s to go on. A call may be refused only with an SQLSTATE of `clients::EXPECTED`. No ID may be
/// further ahead of the clock than `max_ahead` allows, or be acknowledged twice.
#[rustfmt::skip] // Columns.
pub static FAULTS: &[Kind] = &[
    //   name               weight  survivable      clock closed_for  inflict; below it, the text

    // ---- processes
    kind("kill-backend",          8, always,         Any,  OPEN,       processes::kill_backend,
         "SIGKILL of a backend"),
    kind("kill-keeper",           6, always,         Any,  OPEN,       processes::kill_keeper,
         "SIGKILL of the keeper"),
    kind("kill-postmaster",       8, always,         Any,  OPEN,       |act, _| act.restart(Down::Killed),
         "SIGKILL of the postmaster, then a start"),
    kind("end-keeper",            6, always,         Any,  OPEN,       processes::end_keeper,
         "SIGTERM of the keeper"),
    kind("freeze-keeper",         4, always,         Any,  OPEN,       processes::freeze_keeper,
         "SIGSTOP of the keeper for a while"),
    kind("freeze-backend",        4, always,         Any,  OPEN,       processes::freeze_backend,
         "SIGSTOP of a backend for a while"),
    kind("cancel",                5, always,         Any,  OPEN,       processes::cancel,
         "statements cancelled and sessions terminated"),
    kind("immediate-stop",        7, always,         Any,  OPEN,       |act, _| act.restart(Down::Immediate),
         "an immediate stop, then a start"),
    kind("fast-stop",             5, always,         Any,  OPEN,       |act, _| act.restart(Down::Fast),
         "a fast stop, then a start"),
    kind("smart-stop",            4, always,         Any,  OPEN,       |act, _| act.restart(Down::Smart),
         "a smart stop, then a start"),
    kind("reboot",                6, always,         Any,  OPEN,       restarts::reboot,
         "a stop or a kill, and a start without the host's lock file"),
    kind("lock-deleted",          2, always,         Any,  OPEN,       restarts::delete_lock_file,
         "the host's lock file deleted while running"),

    // ---- the clock
    kind("clock-back",           10, newest,         True, OPEN,       clock::step_back,
         "the clock back by 1 ms to 1 year while running, and right again"),
    kind("clock-forward",         5, lane_left,      True, OPEN,       clock::step_forward,
         "the clock forward by 1 ms to 1 year while running, and right again"),
    kind("clock-back-stopped",    5, newest,         True, OPEN,       clock::step_back_stopped,
         "a stop, a start with the clock back, and right again"),
    kind("clock-forward-stopped", 3, lane_left,      True, OPEN,       clock::step_forward_stopped,
         "a stop, a start with the clock forward, and right again"),
    kind("day-forward",           2, lane_left,      True, OPEN,       clock::start_after_a_day_forward,
         "the clock a day forward, a stop, a start with the true time"),

    // ---- the disk under the state file
    kind("disk-full",             4, small_disk,     Any,  OPEN,       disk::fill,
         "no byte free beside the state file"),
    kind("disk-full-lost",        4, small_disk,     True, OPEN,       disk::fill_and_delete,
         "no byte free, and the state file deleted: it cannot be made anew"),
    kind("read-only",             5, always,         Any,  OPEN,       disk::write_protect,
         "the folder of the state file read-only"),
    kind("write-error",           4, always,         Any,  OPEN,       disk::fail_writes,
         "writes of the state fail"),
    kind("fsync-error",           4, always,         Any,  OPEN,       disk::fail_fsyncs,
         "fsyncs of the state fail"),
    kind("slow-disk",             2, always,         Any,  OPEN,       disk::slow_down,
         "fsyncs of the state take long"),
    kind("slow-disk-crash",       5, always,         True, OPEN,       disk::crash_while_slow,
         "processes killed while an fsync of the state takes seconds"),
    kind("torn-write",            5, always,         Any,  OPEN,       disk::tear_a_write,
         "a writer of the state killed within its write, or before its fsync"),

    // ---- the state file
    kind("torn-slot",             5, always,         Any,  OPEN,       state_file::tear_older_slot,
         "the older slot overwritten in whole or in part while stopped"),
    kind("bad-checksum",          3, always,         Any,  OPEN,       state_file::flip_a_bit,
         "one bit of the older slot turned while stopped"),
    kind("lost-state",            3, no_future,      True, OPEN,       state_file::lose,
         "both slots destroyed, or the file truncated, while stopped"),
    kind("foreign-state",         3, no_future,      True, A_COPY,     state_file::take_foreign,
         "the state of another cluster: closed until adopted"),
    kind("newer-state",           3, always,         Any,  NEWER,      state_file::take_newer,
         "a slot of a later version: closed until it is gone"),
    kind("deleted-running",       4, no_future,      True, OPEN,       state_file::delete_while_running,
         "the state file, or its folder, deleted while running"),
    kind("deleted-stopped",       3, no_future,      True, OPEN,       state_file::delete_while_stopped,
         "the state file, or its folder, deleted while stopped"),

    // ---- settings and functions
    kind("other-layout",          2, always,         Any,  LAYOUT,     settings::other_layout,
         "another layout configured: closed until it is set back"),
    kind("worker",                4, always,         True, OPEN,       settings::worker,
         "worker_id changed, and sometimes changed back"),
    kind("backup-workers",        3, always,         True, OPEN,       settings::backup_workers,
         "backup_workers 3, 7, 3"),
    kind("reload",                6, always,         Any,  OPEN,       settings::reload,
         "rollback_policy, max_ahead and max_wait reloaded"),
    kind("rotate",                4, always,         Any,  OPEN,       settings::rotate,
         "snowflake_rotate by hand"),
    kind("adopt",                 3, no_future,      True, OPEN,       settings::adopt,
         "snowflake_adopt while the gate is open, raising the marks beside the clients"),

    // ---- standbys, copies and backups
    kind("promotion",             9, standby,        True, OPEN,       replication::promote,
         "a standby promoted, its clock up to 0.9 s apart, after its primary or before that stops on the same host"),
    kind("standby-restart",       4, standby,        True, OPEN,       replication::promote_after_a_restart,
         "a standby restarted after all that its primary did; then promoted, its clock up to 0.9 s apart"),
    kind("switchovers",           5, standby,        True, OPEN,       replication::switch_over_often,
         "five switchovers among three servers with one number"),
    kind("standby-alone",         4, standby,        True, A_SECOND,   replication::start_the_standby_alone,
         "a standby, or an old primary that follows, started without recovery beside its primary"),
    kind("copy",                  6, no_future,      True, A_SECOND,   copies::start_a_copy,
         "a backup or a copy of a primary or a standby, started beside the primary, then in its place"),
    kind("restore",               5, no_future,      True, OPEN,       copies::restore,
         "a base backup recovered onto a new timeline, in the place of the original"),
    kind("put-back",              7, no_future,      True, OPEN,       copies::put_back,
         "an older state put over the files in place, alone or with the data directory"),
    kind("put-back-anew",         4, no_future,      True, A_COPY,     copies::put_back_anew,
         "the same as new files: closed until adopted"),
    kind("roll-back",             7, on_volume,      True, OPEN,       copies::roll_back,
         "a volume rolled back to an earlier snapshot"),
    kind("move",                  4, contained,      True, OPEN,       copies::move_away_and_back,
         "the server run on another host for a while, whose clock is up to 0.9 s apart"),
    kind("elsewhere",             8, contained,      True, OPEN,       copies::run_elsewhere,
         "a backup, copy or volume run there, adopted or without its state, and the original again"),
];

// ---- when a fault is survivable

fn always(_: &World) -> bool {
    true
}

fn small_disk(world: &World) -> bool {
    world.has_small_disk
}

/// Every mark is above the IDs of its lane, so the clock may be wrong.
fn newest(world: &World) -> bool {
    !world.is_replaced
}

/// A step forward uses up a lane. If it is the last one, the operator's way out is a worker that was never
/// used; a further step would need another such worker before the first is in place.
fn lane_left(world: &World) -> bool {
    newest(world) && world.future < World::LANES
}

/// The clock was never ahead, so it is right even for a server without the newest state.
fn no_future(world: &World) -> bool {
    world.future == 0
}

fn standby(world: &World) -> bool {
    no_future(world) && world.has_standby
}

fn on_volume(world: &World) -> bool {
    no_future(world) && world.has_volumes && !world.has_small_disk
}

/// On another host, whose clock differs.
fn contained(world: &World) -> bool {
    no_future(world) && newest(world) && world.can_mount
}

// ---- drawing

/// A fault that was drawn. Every parameter has a value; the kind decides which of them it uses.
pub struct Fault {
    pub number: u32,
    pub kind: &'static Kind,
    pub down: Down,
    /// A step of the clock (µs).
    step_us: i64,
    hold_ms: u64,
    /// The clock stays wrong for some more faults.
    stays: bool,
    /// The server crashes meanwhile.
    crashes: bool,
    /// Decides everything else.
    pub variant: u64,
}

impl Fault {
    /// A fault of a kind among `only` that is survivable in this world, if there is one.
    pub fn draw(random: &mut Random, world: &World, number: u32, only: &[&'static Kind]) -> Option<Fault> {
        let kinds: Vec<&Kind> = only.iter().copied().filter(|kind| (kind.is_survivable)(world)).collect();
        let total: u64 = kinds.iter().map(|kind| kind.weight).sum();
        // Every fault takes as many random numbers, so that its parameters do not depend on other faults'.
        let mut at = random.below(total.max(1));
        let down = random.pick(&[Down::Killed, Down::Immediate, Down::Fast, Down::Smart]);
        let step_us = draw_step(random);
        let hold_ms = random.between(50, 600);
        let (stays, crashes, variant) = (random.percent(20), random.percent(25), random.below(1_000_000));
        let kind = kinds.into_iter().find(|kind| {
            let is_it = at < kind.weight;
            at = at.saturating_sub(kind.weight);
            is_it
        })?;
        Some(Fault { number, kind, down, step_us, hold_ms, stays, crashes, variant })
    }

    /// Lets the fault last for so many times its unit.
    fn hold(&self, times: u32) {
        std::thread::sleep(snowflake_server_tests::ms(self.hold_ms) * times);
    }

    /// How far the clocks of two hosts are apart (µs).
    fn apart_us(&self) -> i64 {
        [-900_000, -450_000, 0, 450_000, 900_000][(self.variant / 64 % 5) as usize]
    }

    fn pick(&self, from: &[i32]) -> Option<i32> {
        from.get(self.variant as usize % from.len().max(1)).copied()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { number, kind, down, step_us, hold_ms, stays, crashes, variant } = self;
        write!(f, "{number} {} step {} ms", kind.name, *step_us as f64 / 1e3)?;
        write!(f, " hold {hold_ms} ms {down:?}{}", if *stays { " stays" } else { "" })?;
        write!(f, "{} variant {variant}", if *crashes { " crashes" } else { "" })
    }
}

/// 1 ms to 1 year, each order of magnitude about as often.
pub fn draw_step(random: &mut Random) -> i64 {
    const BOUNDS_MS: [u64; 8] = [1, 5, 100, 2_500, 60_000, 3_600_000, 86_400_000, 31_536_000_000];
    let class = random.below(BOUNDS_MS.len() as u64 - 1) as usize;
    let ms = random.between(BOUNDS_MS[class], BOUNDS_MS[class + 1]);
    // Clocks do not step by whole milliseconds.
    (ms * 1_000 + random.below(1_000)) as i64
}
