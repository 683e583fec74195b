//! Common to all acts of a run: the clients, and the supply of workers that no other cluster has.

use crate::shared::{Shared, true_ms};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// Home workers whose numbers are apart even with 7 backup workers each.
const HOMES: i64 = 128;

pub struct Stage {
    pub shared: Arc<Shared>,
    next_worker: Cell<i64>,
    /// Home workers of acts that ended, and the time of the latest ID of each.
    retired: RefCell<Vec<(i64, i64)>>,
}

impl Stage {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, next_worker: Cell::new(0), retired: RefCell::default() }
    }

    /// A worker that was never used in this run.
    pub fn unused_worker(&self) -> Option<i64> {
        let worker = self.next_worker.get();
        (worker < HOMES).then(|| self.next_worker.replace(worker + 1))
    }

    /// A worker of a cluster that has ended. All its IDs are in the past.
    pub fn retired_worker(&self) -> i64 {
        let mut retired = self.retired.borrow_mut();
        let past = retired.iter().position(|(_, newest_ms)| *newest_ms < true_ms() - 10_000);
        retired.swap_remove(past.expect("a worker whose IDs are in the past")).0
    }

    pub fn retire(&self, workers: &[i64], newest_ms: i64) {
        self.retired.borrow_mut().extend(workers.iter().map(|worker| (*worker, newest_ms)));
    }
}
