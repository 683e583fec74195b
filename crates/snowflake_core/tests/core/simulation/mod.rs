//! A simulated machine, for the tests of durability.

pub mod disk;
pub mod fixtures;
pub mod no_disk;
pub mod registry;
pub mod server;
pub mod tape;
pub mod world;
