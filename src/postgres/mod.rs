//! PostgreSQL's own facts, and its latches and times, for all other parts.

pub mod control_file;
pub mod display;
pub mod time;
pub mod transactions;
pub mod wakeup;
