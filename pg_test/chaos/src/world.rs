//! A cluster as far as the drawing of faults knows it.

use crate::random::Random;

/// How an act's cluster is set up, and how many faults it lives through.
#[derive(Debug)]
pub struct ActPlan {
    /// Created 400 days ago by its clock: a clock that moves back still finds lanes that it can use.
    pub is_old: bool,
    /// Mounts can be made, and so containers.
    pub can_mount: bool,
    /// A data directory can be on a volume of its own.
    pub has_volumes: bool,
    /// The state file is on a small disk of its own.
    pub has_small_disk: bool,
    pub has_standby: bool,
    /// `snowflake_id.sequence_start` is `spread`.
    pub spread: bool,
    /// Pause of the clients that take whole ticks (µs); 0: none.
    pub pause_us: u64,
    pub faults: u32,
}

impl ActPlan {
    pub fn draw(random: &mut Random, can_mount: bool, has_volumes: bool) -> Self {
        Self {
            is_old: random.percent(65),
            can_mount,
            has_volumes,
            has_small_disk: random.percent(40) && can_mount,
            has_standby: random.percent(60),
            spread: random.percent(20),
            pause_us: random.pick(&[0, 0, 3_000, 8_000]),
            faults: random.between(12, 30) as u32,
        }
    }
}

/// The consequences of the faults drawn so far. They depend neither on time nor on the servers, so that a
/// seed draws the same faults on every machine.
#[derive(Clone, Debug)]
pub struct World {
    pub can_mount: bool,
    pub has_volumes: bool,
    pub has_small_disk: bool,
    pub has_standby: bool,
    /// Lanes of the configured worker whose newest ID is in the future by the true clock.
    pub future: u32,
    /// The clock is still wrong from an earlier fault.
    pub shifted: bool,
    /// An older state took the place of the newest one, and no start or operator has raised all marks since. The
    /// promise needs right clocks meanwhile.
    pub is_replaced: bool,
}

impl World {
    /// Lanes of a home worker and its 3 backup workers.
    pub const LANES: u32 = 4;

    pub fn new(plan: &ActPlan) -> Self {
        Self {
            can_mount: plan.can_mount,
            has_volumes: plan.has_volumes,
            has_small_disk: plan.has_small_disk,
            has_standby: plan.has_standby,
            future: 0,
            shifted: false,
            is_replaced: false,
        }
    }
}
