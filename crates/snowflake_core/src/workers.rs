//! The workers of one server: which it owns, and in which order lanes rotate.

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

    /// The lane on which a timeline (1, 2, ...) starts.
    pub(crate) fn first_lane(&self, timeline: u32) -> usize {
        timeline.saturating_sub(1) as usize % self.lanes
    }

    /// The lanes to which a timeline moves from lane `from`, in the order of preference: cyclically, those that are an
    /// even number of lanes from its first one before the others. So an old primary that still runs beside its
    /// successor with the same workers meets it only after several rotations.
    pub(crate) fn rotation(&self, timeline: u32, from: usize) -> impl Iterator<Item = usize> + Clone {
        let (lanes, first) = (self.lanes, self.first_lane(timeline));
        let others = (1..lanes).map(move |i| (from + i) % lanes);
        let is_preferred = move |lane: &usize| lane % 2 == first % 2;
        { others.clone() }.filter(is_preferred).chain(others.filter(move |lane| !is_preferred(lane)))
    }
}

/// The origin of each lane: datacenter and worker as they stand in an ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origins {
    origins: [i64; MAX_LANES],
    lanes: usize,
}

impl Origins {
    /// Those of a server that has no workers yet.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(backups: usize) -> Workers {
        Workers::new(&Layout::default(), 5, backups).unwrap()
    }

    #[test]
    fn lanes_lie_a_stride_apart_and_have_one_owner() {
        let workers = workers(7);
        assert_eq!(
            (0..8).map(|lane| workers.worker(lane)).collect::<Vec<_>>(),
            [5, 133, 261, 389, 517, 645, 773, 901]
        );
        assert_eq!((workers.owner(773), workers.owner(-1)), (Some((5, 6)), None));
        assert_eq!(workers.highest_home(), 127);
        assert_eq!(Workers::new(&Layout::default(), 0, 2).unwrap().owner(1_023), None);
    }

    #[test]
    fn a_home_worker_outside_its_range_is_refused_with_the_range() {
        let layout = Layout::default();
        assert_eq!(Workers::new(&layout, 128, 7), Err(WorkersError::HomeOutside(127)));
        assert_eq!(Workers::new(&layout, -1, 7), Err(WorkersError::HomeOutside(127)));
        assert_eq!(Workers::new(&layout, 0, 16), Err(WorkersError::TooManyLanes(1_024)));
        let tiny = Layout::new("41/2/12".parse().unwrap(), layout.tick(), 0).unwrap();
        assert_eq!(Workers::new(&tiny, 0, 7), Err(WorkersError::TooManyLanes(4)));
    }

    #[test]
    fn timeline_starts_on_its_number_less_one() {
        for timeline in 1..30 {
            for backups in [0, 1, 2, 3, 5, 7, 15] {
                let expected = (timeline as usize - 1) % (backups + 1);
                assert_eq!(workers(backups).first_lane(timeline), expected, "{backups} {timeline}");
            }
        }
    }

    #[test]
    fn rotation_reaches_every_other_lane_and_prefers_the_timelines_parity() {
        let order = |backups, timeline, from| workers(backups).rotation(timeline, from).collect::<Vec<_>>();
        assert_eq!(order(7, 1, 0), [2, 4, 6, 1, 3, 5, 7]);
        assert_eq!(order(7, 2, 1), [3, 5, 7, 2, 4, 6, 0]);
        assert_eq!(order(7, 1, 3), [4, 6, 0, 2, 5, 7, 1]);
        assert_eq!(order(3, 2, 1), [3, 2, 0]);
        assert_eq!(order(2, 1, 0), [2, 1]);
        assert_eq!(order(0, 1, 0), [0; 0]);
    }
}
