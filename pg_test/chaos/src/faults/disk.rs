//! A disk that is full, read-only or slow, or that fails or cuts short the writes of the state file.

use super::{Fault, processes};
use crate::act::{Act, Down};
use crate::disk;
use nix::errno::Errno;
use snowflake_server_tests::disk::{SmallDisk, Trouble};
use snowflake_server_tests::ms;
use std::fs::File;

pub fn fill(act: &mut Act, fault: &Fault) {
    small_disk(act).fill();
    fault.hold(3);
    if fault.crashes {
        act.restart(fault.down);
    }
    // The file already has its blocks, so IDs go on.
    act.must_serve_after("a full disk");
    small_disk(act).free();
}

pub fn fill_and_delete(act: &mut Act, fault: &Fault) {
    let state = disk::state_file(&act.primary.server);
    // An open file keeps its blocks, so the disk stays full after the deletion.
    let held = File::open(&state).expect("the state file is there");
    small_disk(act).fill();
    std::fs::remove_file(&state).expect("the state file can be removed");
    fault.hold(5);
    small_disk(act).free();
    drop(held);
    act.must_serve_after("room for the state file");
    act.file_comes_back();
}

fn small_disk<'a>(act: &'a Act) -> &'a SmallDisk {
    act.primary.disk.as_ref().expect("drawn only where there is one")
}

pub fn write_protect(act: &mut Act, fault: &Fault) {
    let protect = |act: &Act, yes| match &act.primary.disk {
        Some(disk) => disk.read_only(yes),
        None => disk::protect(&act.primary.server, yes),
    };
    protect(act, true);
    last(act, fault);
    protect(act, false);
}

pub fn fail_writes(act: &mut Act, fault: &Fault) {
    let errors = [Errno::EIO, Errno::ENOSPC, Errno::EROFS, Errno::EDQUOT];
    fail(act, fault, Trouble::Write(errors[fault.variant as usize % 4] as i32));
}

pub fn fail_fsyncs(act: &mut Act, fault: &Fault) {
    fail(act, fault, Trouble::Fsync(Errno::EIO as i32));
}

fn fail(act: &mut Act, fault: &Fault, trouble: Trouble) {
    act.primary.trouble.make(trouble);
    last(act, fault);
    act.primary.trouble.make(Trouble::None);
}

/// Lets trouble last, sometimes through a restart.
fn last(act: &mut Act, fault: &Fault) {
    fault.hold(5);
    if fault.crashes {
        act.restart(fault.down);
        fault.hold(1);
    }
}

pub fn tear_a_write(act: &mut Act, fault: &Fault) {
    // Where the whole slot is written, the writer is killed before its fsync.
    let bytes = (fault.variant % 1_400) as i32 * 3;
    act.crash_by(|primary| {
        primary.trouble.make(Trouble::Torn(bytes));
        true
    });
    if fault.crashes {
        act.restart(fault.down);
    }
    act.primary.trouble.make(Trouble::None);
}

pub fn slow_down(act: &mut Act, fault: &Fault) {
    act.primary.trouble.make(Trouble::Slow(50 + (fault.variant % 700) as i32));
    fault.hold(5);
    act.must_serve_after("a slow disk");
    if fault.crashes {
        act.restart(fault.down);
    }
    act.primary.trouble.make(Trouble::None);
}

/// Crashes while the disk takes seconds. The reservation is long by then: the next start waits for all of it, or
/// generates on another lane.
pub fn crash_while_slow(act: &mut Act, fault: &Fault) {
    let fsync_ms = 500 + fault.variant % 2_000;
    act.primary.trouble.make(Trouble::Slow(fsync_ms as i32));
    // By the end of this, one slow write has ended and the next has begun.
    std::thread::sleep(ms(2 * fsync_ms + 500 + fault.hold_ms));
    match fault.variant / 2 % 3 {
        0 => {
            let is_backend = fault.variant.is_multiple_of(2);
            let backend = act.primary.backends().first().copied();
            let pid = if is_backend { backend } else { act.primary.keeper() };
            processes::kill(act, pid);
        }
        1 => act.stop(Down::Killed),
        _ => act.stop(Down::Immediate),
    }
    if fault.crashes {
        // The disk is slow during this start too.
        start_again(act);
    }
    act.primary.trouble.make(Trouble::None);
    start_again(act);
    act.must_serve_after("a crash on a slow disk");
}

fn start_again(act: &mut Act) {
    if !act.primary.server.is_started() {
        act.start();
    }
}
