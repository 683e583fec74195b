//! The one place that chooses between the machine's atomics and loom's.

#[cfg(not(feature = "loom"))]
pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(feature = "loom")]
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering, fence};
