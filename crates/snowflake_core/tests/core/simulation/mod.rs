//! A simulated machine, for the tests of durability.

pub mod basics;
pub mod disk;
pub mod fixtures;
pub mod registry;
pub mod server;
pub mod tape;
pub mod world;

use std::sync::atomic::AtomicU64;
