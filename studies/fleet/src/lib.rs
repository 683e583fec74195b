//! A model of how servers get their workers from a registry. No ID is generated twice in any state that a scope
//! reaches, whatever the clocks say, and each sentence of the protocol that is left out is missed.
//!
//! | file | what it has |
//! | --- | --- |
//! | `state` | servers, registry, what is under way between them |
//! | `registry` | the registry's rules, which are a crate of their own, `studies/registry`, with what the invariants need |
//! | `node` | the rest of the protocol: a server |
//! | `faults` | what happens to hosts, directories, volumes, virtual machines, and to the registry's servers |
//! | `invariants` `ghost` | what must hold, and what the model remembers to check it |
//! | `mutants` | deliberate faults in the protocol; `tests/fleet.rs` says which scope finds which |
//! | `scopes` | what is explored: how much of everything, and how often each event |
//! | `model` `explorer` | which action may come next; stateright explores them |
//!
//! The rules, as comments here name them:
//! - F1: a node issues nothing above the `until` of its lease, and promises no mark above it.
//! - F2: a group goes to another node only with a floor at or above every `until` that was granted for it.
//! - F3: a contact has a number, one higher than the last, and a nonce; the registry takes a higher number, or the same
//!   contact again. A new life draws a new node id.
//! - F4: what is sent is durable first; what is permitted is durable first; what is answered is committed first.
//! - F5: a registry that may have lost commits refuses all until a contact whose two clocks are close, or an operator who
//!   vouches. What has passed by the later clock, by the grants of the leases that it has, and the tolerance, ends, and
//!   the fence is one grant above that. A lease that its row does not have is neither renewed nor ended.
//!
//! Where the protocol leaves a choice, the model makes the one that allows more: which of the free groups a claim
//! gets; when a node contacts the registry; how far a reservation goes. These are its own:
//! - A row's lease is running until something ended it, whatever the clock says; only discovery ends it for its
//!   `until`.
//! - An operator vouches whenever it is true, also long after the doubt.
//! - A claim by a node that has a running lease is answered again if it is the same contact; a newer one ends that
//!   lease.
//! - A state that may not be the newest starts above every ID of its group: the clock is right then.
//! - A standby is a node that issues late, so that it needs no action of its own.
//!
//! A call is one step here: how its reads interleave with a change of lease is explored by loom, with the core's code.
//! The core's own model (`crates/snowflake_core/tests/core/model`) runs the real code, whose state cannot be compared,
//! and repeats a tape of choices from the start. This one has no code to run but a protocol to decide, so it visits
//! each state once: that is what reaches two servers, a registry and a failover within seconds.

mod explorer;
mod faults;
mod ghost;
mod invariants;
mod model;
mod mutants;
mod node;
mod registry;
mod scopes;
mod state;

pub use explorer::{Explored, explore};
pub use ghost::Breach;
pub use mutants::Mutant;
pub use scopes::{SCOPES, Scope};
