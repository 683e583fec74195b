//! The state that survives a crash: the record on disk, and its meaning at the next start.

pub(crate) mod pending;
pub(crate) mod record;
mod slots;
pub(crate) mod start;

pub(crate) use slots::{encode, newest};
