//! The ID generator of `snowflake_id` as plain Rust over atomics: no PostgreSQL, no I/O, no `unsafe`.
//!
//! An ID is a positive 64-bit integer: `time | datacenter | worker | sequence` ([`Layout`]). One [`Generator`] serves
//! any number of threads, or of processes that share its memory. The memory is plain data ([`Memory`], [`View`]), so
//! it can lie on the heap of one process or in a segment that many processes map. The clock, the waiting and the disk
//! are the [`Platform`]'s; the lock of the slow path is any [`lock_api::RawMutex`].
//!
//! # The guarantees
//!
//! Comments and tests cite them by their numbers.
//!
//! 1. **Unique.** An ID is returned only by the call whose compare-and-swap moved that ID's ring entry onto it. While
//!    the ring exists, uniqueness depends neither on the clock, nor on a policy, nor on the order in which calls race;
//!    policies only choose the tick to try.
//! 2. **Durable.** Before an ID is returned, its tick is at or below the mark of its lane on disk, fsynced. While the
//!    server runs, no mark on disk is lowered.
//! 3. **Restart.** After any start, a lane issues only in ticks above its mark on disk.
//! 4. **Bounded lead.** An ID's tick is at most `max_ahead` past the wall clock that its call read.
//! 5. **Ordered.** If call X returned before call Y began, on any backends, then id(X) < id(Y), unless a rotation or a
//!    replay overlaps one of them or comes between. This is the order of allocation, not of commit.
//! 6. **Never stuck.** No lock is held while a call waits, no process waits uninterruptibly for a lock behind an fsync,
//!    and every wait answers a cancel at once and is bounded by the monotonic clock.
//! 7. **Either the state or the clock.** If two runs of one worker never overlap, no ID repeats, unless the newest
//!    state was lost or replaced *and* a clock was behind (`state/start.rs`).
//! 8. **One worker, one meaning.** No session can change a worker, the epoch or the layout.
//!
//! # Glossary
//!
//! | word | meaning |
//! | --- | --- |
//! | tick | the time unit of the ID, 1 ms by default, counted from the epoch; signed: a clock may be before the epoch |
//! | worker | the value in the ID's worker field |
//! | home worker | the worker that an operator configured, or a registry leased |
//! | lane | one worker that this server owns: lane 0 is the home worker, the others are its backup workers |
//! | origin | datacenter and worker side by side, as they stand in an ID |
//! | position | tick and sequence side by side: an ID without its origin |
//! | ring, entry | per lane, a ring of 64-bit entries, one per tick: the last position issued in it |
//! | current tick | per lane in memory: the tick from which the next call starts |
//! | mark | per lane on disk: no ID of the lane above it has ever been returned |
//! | restored mark | the tick above which a lane began in this run, or a floor that was set since |
//! | reservation | the mark on disk, written ahead of use while the lane is active |
//! | permit | per lane in memory: its origin, and the reservation as calls see it: the last tick that may be issued |
//! | floor | a tick or time up to which no ID may be generated, although none may exist there |
//! | gate | open, or closed for a reason; behind a closed gate calls are refused |
//! | record | the content of the state file, in each of its two slots |
//! | pending record | the content of the next record, in memory |
//! | state writer | has the pending record, and decides when and to which slot or file it is written |
//! | run | one start, and all processes that generate IDs by it |
//! | host lock | a host's lock on each worker of a cluster, for one server at a time; lost with the boot |
//! | token | drawn at each start, in the record and in the host lock: the server that has both is the only one |
//! | start | the steps of a server from the closed gate to the open one |
//! | rotate | make another lane the active one |
//! | replay | lower the current tick to the wall clock, and go on from each tick's last sequence |
//! | hold | let IDs ascend while the wall clock catches up |
//! | break | the end of one order of IDs, after which lower ones may follow |
//! | horizon | below it the transaction of every ID has ended |
//! | keeper | the process that moves the reservation, so that calls need not |
//! | keeper_request | the write or rotation that a blocked call leaves to the keeper |
//! | cold lock | the one lock: held for every change beyond the hot path's |
//! | node | a server's name for the registry: its data directory, up to a restart over which its lease does not go on |
//! | lease | a group of workers, a home worker and its backups, that the registry granted to a node up to a tick |
//! | contact | one call of the registry, and its answer |
//! | limits | the settings that a reload changes: [`Limits`] |

#![forbid(unsafe_code)]

pub mod base62;
mod clock_watch;
mod config;
pub mod foreign;
mod generator;
mod horizon;
mod ladder;
mod lane;
pub mod layout;
mod lease;
mod memory;
mod permit;
pub mod placement;
pub mod platform;
mod refusal;
mod ring;
mod state;
mod state_writer;
mod sync;
pub mod workers;

pub use config::{Config, Limits, Policy, SequenceStart, WorkerSource};
pub use generator::{Generator, Horizon, LaneStatus, Range, Status};
pub use horizon::{Slot, Slots};
pub use lane::LaneMemory;
pub use layout::{Bits, Layout, LayoutError, Parts, Tick};
pub use lease::{Answer, Contact, Effect, Lease};
pub use memory::{Control, View};
pub use parking_lot::lock_api;
pub use platform::{Disk, Event, Platform};
pub use refusal::{AdoptError, ClosedReason, Errno, NoLane, NotOpen, Refusal};
pub use state::start::Start;
pub use workers::Workers;
