//! The workers of one server: which it owns, which half of them its timeline may use, and in which order lanes rotate.

use crate::layout::Layout;
use std::ops::Deref;

/// The most lanes that a server can have: a home worker and 15 backups.
pub const MAX_LANES: usize = 16;

/// The workers that a server owns: lane `i` of home worker `w` is worker `w + i * stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    home: i64,
    lanes: usize,
    stride: i64,
}

/// The lanes that a timeline may use, in the order of rotation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Half {
    offset: usize,
    step: usize,
    size: usize,
    turn: usize,
    next: usize,
}

impl Iterator for Half {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let at = (self.next < self.size).then_some(self.next)?;
        self.next += 1;
        Some(self.offset + self.step * ((self.turn + at) % self.size))
    }
}

/// Why a home worker or a number of backup workers cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkersError {
    /// More lanes than the worker field has values; it has this many.
    TooManyLanes(i64),
    /// The home worker is negative or above this.
    HomeOutside(i64),
}

impl Workers {
    /// The workers of home worker `home` with `backups` (0 ..= 15) backup workers under `layout`.
    pub fn new(layout: &Layout, home: i64, backups: usize) -> Result<Self, WorkersError> {
        let lanes = backups + 1;
        let stride = layout.workers() / lanes as i64;
        if stride == 0 || lanes > MAX_LANES {
            return Err(WorkersError::TooManyLanes(layout.workers()));
        }
        if !(0..stride).contains(&home) {
            return Err(WorkersError::HomeOutside(stride - 1));
        }
        Ok(Self { home, lanes, stride })
    }

    /// The number of lanes: the home worker and its backup workers.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// The highest home worker of a fleet with this layout and number of backups; the lowest is 0.
    pub fn highest_home(&self) -> i64 {
        self.stride - 1
    }

    /// The worker of a lane.
    pub fn worker(&self, lane: usize) -> i64 {
        self.home + lane as i64 * self.stride
    }

    /// The workers of another home worker, which must be at most [`highest_home`](Self::highest_home).
    pub(crate) fn of_home(self, home: i64) -> Self {
        Self { home, ..self }
    }

    /// Home worker and lane of any worker of a fleet with this layout and number of backups; `None` if no lane has the
    /// worker.
    pub fn owner(&self, worker: i64) -> Option<(i64, usize)> {
        let lane = worker / self.stride;
        (worker >= 0 && lane < self.lanes as i64).then_some((worker % self.stride, lane as usize))
    }

    /// The lanes that a timeline (1, 2, ...) may use, in the order of rotation from its first.
    ///
    /// With three backups or more, the lanes of a timeline at an odd depth (see [`Start`](crate::Start)) are the even
    /// ones, and those at an even depth the odd ones, so that an old primary that still runs never shares a lane with
    /// its successor. The number alone does not tell: drills with one archive take numbers, and a failover may go from
    /// timeline 1 to timeline 9. Each timeline of a half starts one lane further than the one before it, so that
    /// timelines which began from the same one start apart.
    pub(crate) fn half(&self, timeline: u32, depth: u32) -> Half {
        let (number, turn) = (timeline.saturating_sub(1) as usize, depth.saturating_sub(1) as usize);
        let (offset, step, turn) = if self.lanes >= 4 { (turn % 2, 2, number / 2) } else { (0, 1, turn) };
        let size = (self.lanes - offset).div_ceil(step);
        Half { offset, step, size, turn, next: 0 }
    }

    /// All lanes, for a server that shares its workers with none: each timeline may use them.
    pub(crate) fn all(&self) -> Half {
        Half { offset: 0, step: 1, size: self.lanes, turn: 0, next: 0 }
    }
}

/// The origin of each lane: datacenter and worker as they stand in an ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origins {
    origins: [i64; MAX_LANES],
    lanes: usize,
}

impl Origins {
    /// Of a server that has no workers yet.
    pub(crate) const NONE: Self = Self { origins: [0; MAX_LANES], lanes: 0 };

    pub(crate) fn new(layout: &Layout, datacenter: i64, workers: Workers) -> Self {
        Self::of((0..workers.lanes).map(|lane| layout.origin(datacenter, workers.worker(lane))))
    }

    /// These origins, at most [`MAX_LANES`].
    pub(crate) fn of(origins: impl Iterator<Item = i64>) -> Self {
        let mut these = Self::NONE;
        for origin in origins {
            these.origins[these.lanes] = origin;
            these.lanes += 1;
        }
        these
    }
}

impl Deref for Origins {
    type Target = [i64];

    fn deref(&self) -> &[i64] {
        &self.origins[..self.lanes]
    }
}

/// The next lane after `from`, in the cyclic order of `half`, whose first free tick is at most `latest`; `first_free`
/// returns a lane's first free tick. If there is none, the lane that is usable first, with its tick.
pub(crate) fn next_usable(
    half: impl Iterator<Item = usize> + Clone,
    from: usize,
    latest: i64,
    first_free: impl Fn(usize) -> i64,
) -> Result<usize, (usize, i64)> {
    // `from` can lie outside the half, if the gate has been opened for another timeline since.
    let start = half.clone().position(|lane| lane == from).map_or(0, |at| at + 1);
    let size = half.clone().count();
    let candidates = half.cycle().skip(start).take(size);
    let others = candidates.clone().filter(|lane| *lane != from);
    match { others }.find(|lane| first_free(*lane) <= latest) {
        Some(lane) => Ok(lane),
        None => Err(candidates
            .map(|lane| (lane, first_free(lane)))
            .min_by_key(|(_, tick)| *tick)
            .expect("a half has at least one lane")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(backups: usize) -> Workers {
        Workers::new(&Layout::default(), 5, backups).unwrap()
    }

    fn half(backups: usize, timeline: u32) -> Vec<usize> {
        workers(backups).half(timeline, timeline).collect()
    }

    #[test]
    fn lanes_lie_a_stride_apart_and_have_one_owner() {
        let workers = workers(7);
        assert_eq!(
            (0..8).map(|lane| workers.worker(lane)).collect::<Vec<_>>(),
            [5, 133, 261, 389, 517, 645, 773, 901]
        );
        assert_eq!(workers.owner(773), Some((5, 6)));
        assert_eq!(workers.highest_home(), 127);
        assert_eq!(Workers::new(&Layout::default(), 0, 2).unwrap().owner(1_023), None);
    }

    #[test]
    fn a_home_worker_outside_its_range_is_refused_with_the_range() {
        let layout = Layout::default();
        assert_eq!(Workers::new(&layout, 128, 7), Err(WorkersError::HomeOutside(127)));
        assert_eq!(Workers::new(&layout, -1, 7), Err(WorkersError::HomeOutside(127)));
        let tiny = Layout::new("41/2/12".parse().unwrap(), layout.tick(), 0).unwrap();
        assert_eq!(Workers::new(&tiny, 0, 7), Err(WorkersError::TooManyLanes(4)));
    }

    #[test]
    fn a_timeline_shares_no_lane_with_the_one_from_which_it_began_whatever_their_numbers() {
        for backups in 3..MAX_LANES {
            for (depth, parent, child) in [(1, 1, 2), (1, 1, 9), (2, 9, 11), (2, 2, 100), (3, 7, 8)] {
                let of_parent = workers(backups).half(parent, depth).collect::<Vec<_>>();
                let shared = workers(backups).half(child, depth + 1).find(|lane| of_parent.contains(lane));
                assert_eq!(shared, None, "{backups} backups, timelines {parent} and {child}");
            }
        }
        // Without halves they start apart at least.
        for backups in [1, 2] {
            assert_ne!(workers(backups).half(1, 1).next(), workers(backups).half(9, 2).next());
        }
    }

    #[test]
    fn a_timeline_starts_on_lane_timeline_less_one() {
        for timeline in 1..30 {
            for backups in [0, 1, 2, 3, 5, 7, 15] {
                let first = half(backups, timeline)[0];
                assert_eq!(first, (timeline as usize - 1) % (backups + 1), "{backups} {timeline}");
            }
        }
    }

    /// With an odd number of lanes, (timeline - 1) mod lanes would leave the half after one round.
    #[test]
    fn with_an_odd_number_of_lanes_a_timeline_still_starts_inside_its_half() {
        assert_eq!(half(4, 6), [1, 3]);
        assert_eq!(half(4, 7), [0, 2, 4]);
    }

    #[test]
    fn rotation_takes_the_next_usable_lane_in_cyclic_order() {
        let free = [0_i64, 0, 50, 0, 10, 0, 20, 0];
        let next = |from, latest| next_usable(workers(7).half(1, 1), from, latest, |lane| free[lane]);
        assert_eq!(next(0, 100), Ok(2));
        assert_eq!(next(0, 30), Ok(4));
        assert_eq!(next(4, 30), Ok(6));
        assert_eq!(next(6, 30), Ok(0));
        assert_eq!(next(0, 5), Err((0, 0)));
    }
}
