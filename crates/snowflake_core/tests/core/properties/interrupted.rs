//! Calls in the course of which others begin and end.

use super::check_unique;
use super::ranges::{cases, configs};
use crate::common::{Gen, When, generators};
use crate::simulation::world::{Machine, is_locked};
use proptest::prelude::*;
use snowflake_core::{Config, Policy, Range, Start};
use std::cell::RefCell;

/// The action of another caller while a call looks at the clock.
#[derive(Clone, Debug)]
struct Intrusion {
    read: usize,
    before: bool,
    op: Intruder,
}

#[derive(Clone, Debug)]
enum Intruder {
    Calls(usize),
    Step(i64),
    StepAndCall(i64),
    RotateNow,
}

fn intrusions(us: i64) -> impl Strategy<Value = Vec<Intrusion>> {
    let step = || prop_oneof![-30 * us..30 * us, -5 * us..5 * us];
    let op = prop_oneof![
        3 => (1..8_usize).prop_map(Intruder::Calls),
        2 => step().prop_map(Intruder::Step),
        3 => step().prop_map(Intruder::StepAndCall),
        1 => Just(Intruder::RotateNow),
    ];
    let one = (1..6_usize, any::<bool>(), op).prop_map(|(read, before, op)| Intrusion { read, before, op });
    prop::collection::vec(one, 0..4)
}

/// A call that returned: its IDs, and when it began and ended, in a count of such moments.
#[derive(Clone, Copy, Debug)]
struct Made {
    began: u64,
    ended: u64,
    rotations: (u64, u64),
    range: Range,
}

/// Calls within calls: a world, the callers that may intervene, and everything that they generated.
struct Nested {
    world: &'static Machine,
    config: Config,
    callers: [Gen; 2],
    moment: std::cell::Cell<u64>,
    made: RefCell<Vec<Made>>,
}

impl Nested {
    fn moment(&self) -> u64 {
        self.moment.set(self.moment.get() + 1);
        self.moment.get()
    }

    fn call(&self, who: usize, n: i64) {
        let caller = &self.callers[who];
        let (began, before) = (self.moment(), caller.status().rotations);
        let first_read = self.world.reads.borrow().len();
        let result = caller.next_range(n);
        let highest = self.world.reads.borrow()[first_read..].iter().copied().max();
        let (ended, after) = (self.moment(), caller.status().rotations);
        let Ok(range) = result else { return };
        let layout = self.config.layout;
        let begins = layout.starts_at(layout.unpack(range.first).unwrap().tick);
        let ahead = caller.limits().max_ahead_us;
        assert!(begins <= highest.unwrap() + ahead, "guarantee 4");
        self.made.borrow_mut().push(Made { began, ended, rotations: (before, after), range });
    }

    fn intrude(&self, op: &Intruder) {
        if is_locked() {
            return;
        }
        match op {
            Intruder::Calls(n) => (0..*n).for_each(|_| self.call(1, 1)),
            Intruder::Step(us) => self.world.step(*us),
            Intruder::StepAndCall(us) => {
                self.world.step(*us);
                self.call(1, 1);
            }
            Intruder::RotateNow => drop(self.callers[1].rotate_now()),
        }
    }

    fn check(&self) {
        let mut made = self.made.take();
        check_unique(made.iter().map(|made| made.range).collect());
        let count: i64 = made.iter().map(|made| made.range.last - made.range.first + 1).sum();
        let status = self.callers[0].status();
        assert_eq!(status.issued, count as u64);
        if self.config.limits.policy == Policy::Replay {
            return;
        }
        made.sort_by_key(|made| made.began);
        for (at, x) in made.iter().enumerate() {
            for y in &made[at + 1..] {
                if x.ended < y.began && x.rotations.0 == y.rotations.1 {
                    assert!(x.range.last < y.range.first, "guarantee 5: {x:?} and {y:?}");
                }
            }
        }
    }
}

/// An interrupted call, and what happens after it.
type Interrupted = (u8, Vec<Intrusion>, i64, bool);

fn interrupted_runs() -> impl Strategy<Value = (Config, Vec<Interrupted>)> {
    configs().prop_flat_map(|config| {
        let us = config.layout.tick().micros();
        let after = prop_oneof![0..3 * us, 0..40 * us];
        let call = (prop_oneof![Just(0_u8), 0..=100_u8], intrusions(us), after, any::<bool>());
        (Just(config), prop::collection::vec(call, 1..30))
    })
}

proptest! {
    #![proptest_config(cases(1_500))]

    /// Others intervene at any look at the clock: guarantees 1, 4 and 5, and exact counts.
    #[test]
    fn any_interrupted_calls_keep_the_guarantees((config, calls) in interrupted_runs()) {
        let middle = config.layout.max_tick().min(1 << 40) / 2;
        let world = Machine::starting_at(config.layout.starts_at(middle));
        let nested: &'static Nested = Box::leak(Box::new(Nested {
            world,
            config,
            callers: generators(&config, world),
            moment: Default::default(),
            made: Default::default(),
        }));
        nested.callers[0].open(&Start::of_timeline(1)).unwrap();
        for (share, intrusions, pass, back) in calls {
            for Intrusion { read, before, op } in intrusions {
                let when = if before { When::BeforeRead } else { When::AfterRead };
                world.interrupt(read, when, move || nested.intrude(&op));
            }
            let n = (nested.callers[0].capacity() * share as i64 / 100).max(1);
            nested.call(0, n);
            if back { world.step(-pass) } else { world.pass(pass) }
        }
        nested.check();
    }
}
