//! The one place that chooses between the machine's atomics and loom's.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// A number that may be out of date, as no ID's uniqueness hangs on it: loom need not know of it.
pub(crate) use std::sync::atomic::AtomicI64 as Hint;
