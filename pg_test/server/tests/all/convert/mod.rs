//! Keys that a conversion changes.

mod calls;
mod drawn;
mod keys;
mod locks;
mod names;
mod new_ids;
mod partitions;
mod refusals;
mod report;
mod rights;
mod sets;
mod views;
mod way_back;
mod widening;
