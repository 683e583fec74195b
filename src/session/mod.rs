//! What a session does before it generates an ID, and at the end of a transaction.

pub mod generator;
pub mod hooks;
pub mod layout_guard;
pub mod start;
