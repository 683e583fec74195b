//! Keys that a conversion changes.

mod drawn;
mod keys;
mod rights;
mod sets;
