//! The ID generator of `snowflake_id` as plain Rust over atomics: no PostgreSQL, no I/O, no `unsafe`.
//!
//! An ID is a positive 64-bit integer: `time | datacenter | worker | sequence` ([`Layout`]). One
//! [`Generator`] makes IDs for any number of threads, or of processes that share its memory, and never
//! makes one twice while that memory lives, whatever the clock does:
//!
//! * [`ledger`] is the proof of uniqueness: the ring of words and the only compare-and-swap loop;
//! * [`ladder`] decides what to do when a tick cannot be had: a pure function of what was read;
//! * [`lanes`] owns the workers: which lane is active, and where to go when the clock is back;
//! * [`state`] is what survives a crash: marks on disk, and what they mean at the next start;
//! * [`generator`] puts them together: the hot path in one screen, and the cold path beside it.
//!
//! Beside it stands what only reads: [`foreign`] for the IDs of other systems, [`base62`] for IDs as text.
//!
//! The memory is plain data ([`memory`]), so it can lie on the heap of one process or in a segment that
//! many processes map. The clock and the waiting are the [`Host`]'s, the lock of the cold path is any
//! [`lock_api::RawMutex`].
//!
//! ```
//! use snowflake_core::{Config, Generator, Memory, Start, SystemHost};
//!
//! let config = Config::default();
//! let memory = Memory::<parking_lot::RawMutex>::new(&config);
//! let generator = Generator::new(&config, memory.view(), SystemHost);
//! generator.open(&Start::of_timeline(1)).unwrap();
//!
//! let first = generator.next_id().unwrap();
//! let second = generator.next_id().unwrap();
//! assert!(first < second);
//! assert_eq!(config.layout.unpack(first).unwrap().worker, 0);
//! ```

#![forbid(unsafe_code)]

pub mod base62;
pub mod foreign;
pub mod generator;
pub mod ladder;
pub mod lanes;
pub mod layout;
pub mod ledger;
pub mod memory;
pub mod state;
mod sync;

pub use generator::{Config, Event, Generator, Host, NotOpen, Range, SystemHost};
pub use ladder::{Policy, Refusal, Rules};
pub use lanes::{Lanes, NoLane, Workers};
pub use layout::{Bits, Layout, LayoutError, Parts, Tick};
pub use ledger::SequenceStart;
pub use memory::{Memory, View};
pub use parking_lot::lock_api;
pub use state::{AdoptError, Closed, Disk, Errno, Prepared, Start};
