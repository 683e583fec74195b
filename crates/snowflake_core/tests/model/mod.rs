//! A simulated machine, for the tests of durability.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod disk;
pub mod fixtures;
pub mod registry;
pub mod server;
pub mod tape;
pub mod world;
