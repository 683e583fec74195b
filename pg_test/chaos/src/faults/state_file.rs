//! A state file that is damaged, lost, deleted, or another's.

use super::Fault;
use crate::act::{Act, Down};
use crate::disk::{self, SLOT, Slot};
use crate::random::Random;
use snowflake_server_tests::ms;

pub fn tear_older_slot(act: &mut Act, fault: &Fault) {
    act.stop(fault.down);
    let slot = disk::older_slot(&act.primary.state_bytes(), fault.variant as usize);
    let mut random = Random::new(fault.variant);
    let from = random.below(SLOT as u64) as usize;
    let size = random.between(1, (SLOT - from) as u64) as usize;
    let (from, size) = if random.percent(50) { (0, SLOT) } else { (from, size) };
    disk::overwrite(&act.primary.server, slot * SLOT + from, &noise(&mut random, size));
    act.start();
}

pub fn flip_a_bit(act: &mut Act, fault: &Fault) {
    act.stop(fault.down);
    let bytes = act.primary.state_bytes();
    let mut random = Random::new(fault.variant);
    let slot = disk::older_slot(&bytes, fault.variant as usize);
    let at = slot * SLOT + random.below(400) as usize;
    disk::overwrite(&act.primary.server, at, &[bytes[at] ^ (1 << random.below(8))]);
    act.start();
}

pub fn lose(act: &mut Act, fault: &Fault) {
    act.stop(fault.down);
    let mut random = Random::new(fault.variant);
    let server = &act.primary.server;
    match fault.variant % 4 {
        0 => disk::overwrite(server, 0, &noise(&mut random, 2 * SLOT)),
        1 => disk::overwrite(server, 0, &[0; 2 * SLOT]),
        2 => disk::truncate(server, 0),
        _ => disk::truncate(server, random.between(1, 60)),
    }
    start_without_the_newest(act);
    if fault.crashes {
        // Sometimes within the second in which calls wait.
        std::thread::sleep(ms(fault.variant % 1_500));
        act.restart(fault.down);
    }
}

pub fn take_foreign(act: &mut Act, fault: &Fault) {
    act.stop(fault.down);
    let bytes = act.primary.state_bytes();
    let foreign = a_slot(&bytes).foreign();
    disk::overwrite(&act.primary.server, 0, &foreign);
    disk::overwrite(&act.primary.server, SLOT, &foreign);
    act.start_closed(fault.kind.closed_for);
    if fault.variant.is_multiple_of(2) {
        act.wait_for_clock();
        return act.adopt();
    }
    act.stop(fault.down);
    disk::overwrite(&act.primary.server, 0, &bytes);
    act.start();
}

/// One slot, or both, are those of a later version, until the old file is written back.
pub fn take_newer(act: &mut Act, fault: &Fault) {
    act.stop(fault.down);
    let bytes = act.primary.state_bytes();
    let newer = a_slot(&bytes).newer();
    let slot = fault.variant as usize % 3;
    for at in 0..2 {
        if slot == at || slot == 2 {
            disk::overwrite(&act.primary.server, at * SLOT, &newer);
        }
    }
    act.start_closed(fault.kind.closed_for);
    if (fault.variant / 3).is_multiple_of(2) {
        return disk::overwrite(&act.primary.server, 0, &bytes);
    }
    act.stop(fault.down);
    disk::overwrite(&act.primary.server, 0, &bytes);
    act.start();
}

pub fn delete_while_running(act: &mut Act, fault: &Fault) {
    delete(act, fault.variant.is_multiple_of(2));
    if fault.crashes {
        std::thread::sleep(ms(fault.variant % 200));
        act.stop(Down::Killed);
        act.wait_for_clock();
        act.start();
    }
    act.must_serve_after("a deleted state file");
    act.file_comes_back();
}

pub fn delete_while_stopped(act: &mut Act, fault: &Fault) {
    act.stop(fault.down);
    delete(act, fault.variant.is_multiple_of(2));
    start_without_the_newest(act);
}

/// Starts the stopped primary with a state that is seen not to be the newest one: all lanes begin above the clock.
fn start_without_the_newest(act: &mut Act) {
    act.settled_count(&act.primary);
    act.wait_for_clock();
    act.start();
    act.world.is_replaced = false;
}

/// Deletes the file, or its folder, which cannot be deleted while it is a mount point.
fn delete(act: &Act, file_only: bool) {
    let server = &act.primary.server;
    let _ = if file_only || act.primary.disk.is_some() {
        std::fs::remove_file(disk::state_file(server))
    } else {
        std::fs::remove_dir_all(disk::state_folder(server))
    };
}

fn noise(random: &mut Random, size: usize) -> Vec<u8> {
    (0..size).map(|_| random.next() as u8).collect()
}

fn a_slot(bytes: &[u8]) -> Slot {
    Slot::all(bytes).into_iter().flatten().next().expect("a whole slot")
}
