//! The horizon: which transactions have generated IDs, and from which position on.
//!
//! # Announcing and reading
//!
//! * A transaction *announces itself* before its first ID. It stores in the slot of its process the number of breaks,
//!   then the next free position, then its own name. A full fence follows; its calls read lane and current tick
//!   after that.
//! * A reader generates an ID. A full fence follows; then it reads the slots. The horizon is the least position of the
//!   transactions that still run and of the reader's own ID.
//!
//! One of the two fences comes first. If it is the writer's, the reader sees the slot, or that the transaction has
//! ended. If it is the reader's, the writer's calls see the current tick of the reader's ID or a later one, and in the
//! same tick the ring's entry that the reader has moved: their IDs are higher, whatever the reader sees of the slot.
//!
//! No slot is ever cleared. A slot counts while PostgreSQL lists its transaction as running.
//!
//! # Breaks
//!
//! The proof needs the order of IDs (guarantee 5). A *break* ends one order and begins another, perhaps with lower IDs:
//! a rotation, a replay, a start, an adoption, a change of lease. It is counted once every call must see the new order.
//! A transaction announces the count, so that a position of the old order never passes for one of the new. A reader
//! lowers an older slot to a position below all orders of this run: in the tick before their lowest, because an order
//! has workers of its own, whose IDs of one tick stand in the workers' order. A reader that sees the new order before
//! the break is counted has returned the old count, so its next call shows that it must look again.

use crate::sync::{AtomicI64, AtomicU64, Ordering, fence};

/// The name of no transaction.
const NONE: u64 = 0;

/// From which position on a transaction may have generated IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// How many breaks were counted when the position was read.
    pub(crate) breaks: u64,
    pub(crate) position: i64,
}

impl Bound {
    /// The bound of a transaction that has generated no ID: no reader heeds it.
    const NOTHING: Self = Self { breaks: u64::MAX, position: i64::MAX };
}

/// The announcement of one transaction, in a cache line of its own: other processes write their slots at any time.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slot {
    /// The name of the transaction; names are never used twice.
    transaction: AtomicU64,
    breaks: AtomicU64,
    position: AtomicI64,
}

impl Default for Slot {
    /// A slot of no transaction.
    fn default() -> Self {
        let Bound { breaks, position } = Bound::NOTHING;
        Self {
            transaction: AtomicU64::new(NONE),
            breaks: AtomicU64::new(breaks),
            position: AtomicI64::new(position),
        }
    }
}

impl Slot {
    /// Whether this transaction has announced itself here.
    #[inline]
    pub(crate) fn is_of(&self, transaction: u64) -> bool {
        self.transaction.load(Ordering::Relaxed) == transaction
    }

    /// Announces, before the first ID of a transaction. The process that has the slot calls it.
    #[inline]
    pub(crate) fn announce(&self, transaction: u64, bound: Bound) {
        self.write(transaction, bound);
        fence(Ordering::SeqCst);
    }

    /// In any order: the fences of readers and writers order what counts.
    fn write(&self, transaction: u64, Bound { breaks, position }: Bound) {
        self.breaks.store(breaks, Ordering::Relaxed);
        self.position.store(position, Ordering::Relaxed);
        self.transaction.store(transaction, Ordering::Relaxed);
    }

    /// The bound, if its transaction counts. If another one of the same process begins meanwhile, the first has ended,
    /// and either bound is right.
    fn bound_if(&self, counts: impl Fn(u64) -> bool) -> Option<Bound> {
        let transaction = self.transaction.load(Ordering::Relaxed);
        let bound = Bound {
            breaks: self.breaks.load(Ordering::Relaxed),
            position: self.position.load(Ordering::Relaxed),
        };
        (transaction != NONE && counts(transaction)).then_some(bound)
    }
}

/// The slots of a server: one per process, and one per prepared transaction, which belongs to no process.
#[derive(Clone, Copy, Debug)]
pub struct Slots<'m> {
    /// By the number of the process.
    pub running: &'m [Slot],
    /// At least as many as transactions can be prepared, or be about to.
    pub prepared: &'m [Slot],
}

impl Slots<'_> {
    /// Keeps what a running transaction has announced in `own`, under the name that it has once it is prepared. The
    /// transaction must be in progress under both names. `is_prepared`: whether a transaction of such a name is in
    /// progress. Returns false if there is no room.
    #[must_use]
    pub fn prepare(&self, own: &Slot, running: u64, name: u64, is_prepared: impl Fn(u64) -> bool) -> bool {
        let bound = own.bound_if(|transaction| transaction == running).unwrap_or(Bound::NOTHING);
        self.prepared.iter().any(|slot| {
            let earlier = slot.transaction.load(Ordering::Relaxed);
            let is_free = earlier == NONE || !is_prepared(earlier);
            let (won, lost) = (Ordering::Relaxed, Ordering::Relaxed);
            let is_won = is_free && slot.transaction.compare_exchange(earlier, name, won, lost).is_ok();
            if is_won {
                slot.write(name, bound);
                // A reader that no longer finds the running transaction finds all of this.
                fence(Ordering::Release);
            }
            is_won
        })
    }

    /// Whether a transaction was prepared under a name.
    pub fn has_prepared(&self, is_name: impl Fn(u64) -> bool) -> bool {
        self.prepared.iter().any(|slot| slot.bound_if(&is_name).is_some())
    }

    /// The least position from which a transaction in progress may have generated IDs; at most `own`, the position of
    /// the reader's ID. Running transactions come first, because one that is prepared meanwhile has its other slot by
    /// then.
    pub(crate) fn lowest(
        &self,
        own: i64,
        order: &Order,
        is_running: impl Fn(usize, u64) -> bool,
        is_prepared: impl Fn(u64) -> bool,
    ) -> i64 {
        fence(Ordering::SeqCst);
        let lowered = |bound: Bound| match bound.breaks < order.breaks() {
            true => order.below(),
            false => bound.position,
        };
        let running = self.running.iter().enumerate();
        let running = running.filter_map(|(process, slot)| slot.bound_if(|name| is_running(process, name)));
        let least = running.map(lowered).fold(own, i64::min);
        fence(Ordering::Acquire);
        let prepared = self.prepared.iter().filter_map(|slot| slot.bound_if(&is_prepared));
        prepared.map(lowered).fold(least, i64::min)
    }
}

/// The breaks of a run.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Order {
    breaks: AtomicU64,
    /// A position in a tick before all orders.
    below: AtomicI64,
}

impl Order {
    pub(crate) fn new() -> Self {
        Self { breaks: AtomicU64::new(0), below: AtomicI64::new(i64::MAX) }
    }

    /// Begins another order, under the cold lock: `begin` shows it to calls, and `below` is a position in an earlier
    /// tick.
    pub(crate) fn change(&self, below: i64, begin: impl FnOnce()) {
        self.below.fetch_min(below, Ordering::Relaxed);
        begin();
        self.breaks.fetch_add(1, Ordering::Release);
    }

    /// How many breaks calls must have seen.
    #[inline]
    pub(crate) fn breaks(&self) -> u64 {
        self.breaks.load(Ordering::Acquire)
    }

    fn below(&self) -> i64 {
        self.below.load(Ordering::Relaxed)
    }
}
