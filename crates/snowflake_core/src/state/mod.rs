//! The state that survives a crash: the record on disk, and its meaning at the next start.

pub(crate) mod pending;
pub(crate) mod record;
pub(crate) mod start;
