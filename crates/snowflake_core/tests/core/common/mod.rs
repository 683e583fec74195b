//! Machines whose processes stay: what happens in the middle of a call, and who watches the clock. A clock for threads.

use crate::simulation::basics::{Memory, NoDisk, default_config, start_on};
use crate::simulation::disk::SimDisk;
use crate::simulation::fixtures::Rewrite;
use crate::simulation::tape::Tape;
use crate::simulation::world::{self, Lock, Machine, is_locked};
use snowflake_core::lock_api::RawMutex;
use snowflake_core::{Config, Disk, Event, Generator, Limits, NotOpen, Platform, Policy, Start, Tick};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum When {
    BeforeRead,
    AfterRead,
}

/// Counts the steps of the wall clock that the generator should count.
#[derive(Clone, Copy, Default)]
pub struct Observer {
    offset: Option<i64>,
    pub rollbacks: u64,
    pub largest: i64,
    pub forward_jumps: u64,
}

impl Machine {
    /// A machine that is never dropped, so that hooks may refer to it.
    pub fn starting_at(wall: i64) -> &'static Self {
        let disk = SimDisk::new(&Rc::new(Tape::given(Vec::new(), 0)));
        let machine = Self::new(default_config(), &Rc::new(Cell::new(77_000_000)), disk);
        machine.set_wall(wall);
        Box::leak(Box::new(machine))
    }

    /// Runs `hook` at the `nth` look at the wall clock from now; 1 is the next.
    pub fn interrupt(&self, nth: usize, when: When, hook: impl FnOnce() + 'static) {
        let at = self.reads.borrow().len() + nth;
        self.hooks.borrow_mut().push((at, when, Box::new(hook)));
    }

    pub fn run_hook(&self, read: usize, when: When) {
        let mut hooks = self.hooks.borrow_mut();
        let found = hooks.iter().position(|(at, w, _)| *at == read && *w == when);
        let hook = found.map(|index| hooks.remove(index).2);
        drop(hooks);
        if let Some(hook) = hook {
            hook();
        }
    }

    /// Whether every hook has run.
    pub fn all_hooks_ran(&self) -> bool {
        self.hooks.borrow().is_empty()
    }

    /// Lets the perfect observer look at the clocks.
    pub fn observe(&self) {
        let mut observer = self.observer.get();
        let offset = self.wall().saturating_sub(self.boot.get());
        let step = offset.saturating_sub(observer.offset.unwrap_or(offset));
        if observer.offset.is_none() || step.abs() > 500 {
            observer.offset = Some(offset);
        }
        if step < -500 {
            observer.rollbacks += 1;
            observer.largest = observer.largest.max(-step);
        } else if step > 60_000_000 {
            observer.forward_jumps += 1;
        }
        self.observer.set(observer);
    }
}

/// A clock that all threads share, and any of them can step. It moves on by `per_look` with each look.
pub struct SharedClock {
    pub wall: AtomicI64,
    pub boot: AtomicI64,
    per_look: i64,
    pub jumps_forward: AtomicU64,
}

impl SharedClock {
    pub fn new(wall: i64, per_look: i64) -> Self {
        Self { wall: wall.into(), boot: 5.into(), per_look, jumps_forward: 0.into() }
    }
}

impl Platform for &SharedClock {
    fn wall_us(&self) -> i64 {
        self.boot.fetch_add(self.per_look, Ordering::Relaxed);
        self.wall.fetch_add(self.per_look, Ordering::SeqCst)
    }

    fn boot_us(&self) -> i64 {
        self.boot.load(Ordering::SeqCst)
    }

    fn wait(&self, micros: i64) {
        assert!(!is_locked(), "guarantee 6: a wait under a lock");
        self.boot.fetch_add(micros, Ordering::SeqCst);
        self.wall.fetch_add(micros, Ordering::SeqCst);
        std::thread::yield_now();
    }

    fn report(&self, event: Event) {
        assert!(!is_locked(), "a report under a lock: {event:?}");
        let is_jump = matches!(event, Event::ForwardJump(_));
        self.jumps_forward.fetch_add(is_jump.into(), Ordering::Relaxed);
    }

    fn disk(&self) -> &dyn Disk {
        &NoDisk
    }
}

/// A process of such a machine.
pub type Gen = Generator<'static, &'static Machine, Lock>;

/// Any number of generators on one new memory.
pub fn generators<const N: usize>(config: &Config, machine: &'static Machine) -> [Gen; N] {
    let memory: &'static Memory<Lock> = Box::leak(Box::new(Memory::new(config)));
    std::array::from_fn(|_| Generator::new(config, memory.view(), machine))
}

/// Opens the gate of a server that has run since the epoch, on lanes that begin with tick 1, and reserves.
pub fn open_gate(config: &Config, generator: &Gen, timeline: u32) {
    let (machine, start) = (*generator.platform(), start_on(timeline));
    let age = machine.wall() - config.layout.starts_at(0);
    machine.pass(-age);
    let limits = Limits { max_ahead_us: 0, ..config.limits };
    let memory = Memory::new(&Config { limits, ..*config });
    let first: Generator<'_, _, Lock> = Generator::new(config, memory.view(), machine);
    first.load_node(&start).unwrap();
    machine.rewrite_both(|document| {
        let marks = document["record"]["marks"].as_object_mut().unwrap();
        marks.values_mut().for_each(|mark| *mark = config.layout.starts_at(1).into());
    });
    generator.set_limits(limits);
    settle(generator, &start);
    machine.pass(config.layout.starts_at(0) + age - machine.wall());
    generator.set_limits(config.limits);
    generator.run_keeper().unwrap();
}

/// Opens the gate, and waits for that.
pub fn settle<P: Platform, R: RawMutex>(generator: &Generator<'_, P, R>, start: &Start) {
    while let Err(why) = generator.open(start) {
        let NotOpen::Settling(micros) = why else { panic!("{why:?}") };
        generator.platform().wait(micros);
    }
}

/// Of the first home worker, with ticks of 1 ms.
pub fn config(bits: &str, backups: usize, ring_ticks: usize, limits: Limits) -> Config {
    world::config(bits, Tick::Millisecond, 0, backups, ring_ticks, limits)
}

pub fn limits(policy: Policy, max_ahead_us: i64, max_wait_us: i64) -> Limits {
    let mut limits = Limits::default();
    (limits.policy, limits.max_ahead_us, limits.max_wait_us) = (policy, max_ahead_us, max_wait_us);
    limits
}
