//! Configurations, servers and faults that several files of tests begin with.

use super::disk::{Fault, Point};
use super::server::{DAY, MS, SECOND, Server};
use super::tape::Tape;
use super::world::{Machine, config};
use serde_json::Value;
use snowflake_core::platform::SLOT_BYTES;
use snowflake_core::{Config, Event, Layout, Limits, Tick};
use std::cell::Cell;
use std::rc::Rc;

/// `max_ahead` of the default limits, and how far past it a reservation reaches.
pub const MAX_AHEAD: i64 = 2 * SECOND;

pub const RESERVE: i64 = 500 * MS;

pub fn plain() -> Config {
    config("41/10/12", Tick::Millisecond, 0, 7, 16_384, Limits::default())
}

pub fn with_backups(backups: usize) -> Config {
    config("41/10/12", Tick::Millisecond, 0, backups, 16_384, Limits::default())
}

pub fn with_worker(home: i64) -> Config {
    config("41/10/12", Tick::Millisecond, home, 7, 16_384, Limits::default())
}

/// With a ring that `max_ahead` needs.
pub fn with_max_ahead(max_ahead_us: i64) -> Config {
    let limits = Limits { max_ahead_us, ..Limits::default() };
    let ring_ticks = Config::ring_ticks(&plain().layout, &limits);
    config("41/10/12", Tick::Millisecond, 0, 3, ring_ticks, limits)
}

/// Changes to the records in the file, which only these tests make.
pub trait Rewrite {
    fn rewrite(&self, slot: usize, change: impl FnOnce(&mut Value));
    fn rewrite_both(&self, change: impl Fn(&mut Value));
}

impl Rewrite for Machine {
    /// Changes a slot's record and its checksum.
    fn rewrite(&self, slot: usize, change: impl FnOnce(&mut Value)) {
        self.disk.scribble(slot, |bytes| {
            let mut document: Value = serde_json::from_slice(bytes).unwrap();
            change(&mut document);
            let version = document["version"].as_u64().unwrap() as u32;
            let record = document["record"].to_string();
            let crc = crc32c::crc32c_append(crc32c::crc32c(&version.to_le_bytes()), record.as_bytes());
            let text = format!(r#"{{"version":{version},"crc32c":"{crc:08x}","record":{record}}}"#);
            *bytes = text.into_bytes();
            bytes.resize(SLOT_BYTES, b' ');
        });
    }

    fn rewrite_both(&self, change: impl Fn(&mut Value)) {
        self.rewrite(0, &change);
        self.rewrite(1, &change);
    }
}

pub fn tick(unix_us: i64) -> i64 {
    unix_us / MS
}

/// A server that was first started two days ago, has generated an ID, and has crashed since.
pub fn crashed() -> Rc<Machine> {
    let machine = Machine::alone(plain());
    machine.step(-2 * DAY);
    machine.start_up();
    machine.step(2 * DAY);
    machine.id();
    machine.go_down();
    machine
}

pub fn other_layouts() -> [(&'static str, Config); 3] {
    let epoch = Layout::new(plain().layout.bits(), Tick::Millisecond, 1_000).unwrap();
    let with_epoch = Config { layout: epoch, ..plain() };
    [
        ("bits", config("42/10/11", Tick::Millisecond, 0, 7, 16_384, Limits::default())),
        ("tick", config("41/10/12", Tick::Centisecond, 0, 7, 16_384, Limits::default())),
        ("epoch", with_epoch),
    ]
}

/// The machine with the file replaced by one with the same bytes, as in a copied directory.
pub fn copied() -> Rc<Machine> {
    let machine = crashed();
    machine.disk.put(machine.disk.slots().unwrap());
    machine
}

/// The next start makes this timeline: a promotion, or a restore to a point in time.
pub fn promote(machine: &Machine, timeline: u32) {
    machine.set_start(|start| (start.timeline, start.made_timeline) = (timeline, true));
}

/// A server on the same host in a copy of the machine's directory. A snapshot of its volume has the file in place.
pub fn clone_of(machine: &Machine, is_in_place: bool) -> Machine {
    let mut disk = machine.disk.copy(&Rc::new(Tape::given(Vec::new(), 0)), 900);
    if is_in_place {
        disk.put_as(machine.disk.slots().unwrap(), machine.disk.identity().unwrap());
    }
    disk.host_lock.host = machine.disk.host_lock.host.clone();
    let clone = Machine::new(*machine.config.borrow(), &machine.boot, disk);
    clone.offset.set(machine.offset.get());
    clone.start.set(machine.start.get());
    clone
}

/// Generates IDs until they run as far ahead of the clock as they may.
pub fn run_ahead(machine: &Machine) {
    let tick_us = machine.config.borrow().layout.tick().micros();
    machine.with(|generator| {
        let latest = (machine.wall() + generator.limits().max_ahead_us) / tick_us;
        while generator.current_tick() < latest {
            generator.next_range(generator.capacity()).unwrap();
        }
    });
}

/// Whether it says that a start found no state.
pub fn is_opened_first(event: &Event) -> bool {
    matches!(event, Event::Opened { is_first: true, .. })
}

/// Lets the next `free` writes pass and makes all later ones fail with `errno` at `points`; returns a count of them
/// all.
pub fn break_disk(machine: &Machine, free: u32, errno: i32, points: fn(Point) -> bool) -> Rc<Cell<u32>> {
    let seen = Rc::new(Cell::new(0));
    let count = seen.clone();
    machine.disk.set_faults(move |point| {
        if !points(point) {
            return Fault::None;
        }
        count.set(count.get() + 1);
        if count.get() > free { Fault::Fail(errno) } else { Fault::None }
    });
    seen
}
