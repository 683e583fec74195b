//! Keys that a conversion changes.

mod drawn;
mod keys;
mod report;
mod rights;
mod sets;
