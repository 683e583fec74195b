//! The state that survives a crash: the record on disk, and its meaning at the next start.

mod adopt;
pub(crate) mod enlist;
pub(crate) mod promises;
pub(crate) mod record;
mod slots;
pub(crate) mod start;

pub use slots::{recorded_layout, recorded_name};
