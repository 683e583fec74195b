//! What there is in a fleet: servers with a disk and a memory, a registry with a standby, and what is under way between
//! them. Plain data; a tick, a clock and a place in ID space are one small number, and 0 means none.

use crate::ghost::Ghost;
pub use crate::scopes::GROUPS;
use crate::scopes::{KINDS, Scope};

/// Data directories: each is a place for a server.
pub const SLOTS: usize = 2;

/// One state of the whole fleet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub registry: Registry,
    /// A lagging standby of it, or a backup; after a failover that left it running, the old primary.
    pub standby: Registry,
    pub slots: [Slot; SLOTS],
    /// The token in each host's file, outside of every data directory, at the place of each group; 0: none since the boot.
    pub places: [[u8; GROUPS]; SLOTS],
    /// A request that the network delivers later, once more.
    pub stray: Option<Request>,
    /// How often each kind of event may still happen.
    pub left: [u8; KINDS],
    pub ghost: Ghost,
}

/// The rules' tables, requests and replies.
pub type Tables = snowflake_registry::Registry<u8, u8, GROUPS>;
pub type Row = snowflake_registry::Row<u8, u8>;
pub type Request = snowflake_registry::Request<u8, u8>;
pub type Reply = snowflake_registry::Reply<u8>;

/// The registry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Registry {
    pub tables: Tables,
    /// Nothing that it knows, but what the invariants and the operators' words are about. Of the contacts committed since
    /// its standby caught up, and of those lost since its row was last right, the latest of their earlier clocks;
    /// whether a doubt that is still on follows a loss.
    pub since: u8,
    pub lost: Option<u8>,
    pub has_lost: bool,
}

/// A data directory, the host under it, and the server in it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Slot {
    pub disk: Record,
    /// An earlier state of the disk, to which a volume can be rolled back.
    pub snapshot: Option<Record>,
    /// The disk has what was copied, cloned or rolled back since the last start, and so perhaps not the newest state.
    pub is_put_back: bool,
    pub memory: Option<Memory>,
    /// The contact that waits for an answer: the request on its way, then the reply.
    pub wire: Option<Request>,
    pub reply: Option<Reply>,
    /// How many node ids, nonces and tokens were drawn here, so that each is drawn once.
    pub lives: u8,
    pub draws: u8,
    pub tokens: u8,
}

/// The state record of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Record {
    /// 0: this directory never had a server.
    pub node: u8,
    /// The leased group, from 1; 0: none.
    pub group: u8,
    pub floor: u8,
    pub until: u8,
    /// The last contact.
    pub number: u8,
    /// The nonce of the contact that is pending; 0: none is.
    pub nonce: u8,
    pub mark: u8,
    /// The directory (device, inode, birth time) that it was written in.
    pub home: u8,
    /// Drawn at each start.
    pub token: u8,
}

/// Shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Memory {
    pub permit: Permit,
    /// The tick from which the next call starts.
    pub last: u8,
    /// The ring: a bit a tick, a word a group. Set: this memory issued an ID there, and the next one differs from it.
    pub ring: [u16; GROUPS],
    /// The node ids that this memory has had, a bit each.
    pub nodes: u16,
}

/// One word: the worker as it stands in an ID, and the last tick that may be issued with it. Tick 0: closed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Permit {
    pub group: u8,
    pub tick: u8,
}

impl State {
    /// A fleet of blank directories and an empty registry.
    pub fn blank(scope: &Scope) -> Self {
        let tables = Tables::new(scope.grant, scope.tolerance);
        let registry = Registry { tables, since: 0, lost: None, has_lost: false };
        Self {
            registry,
            standby: registry,
            slots: [Slot::default(); SLOTS],
            places: [[0; GROUPS]; SLOTS],
            stray: None,
            left: scope.limits(),
            ghost: Ghost::default(),
        }
    }
}

impl Slot {
    /// A node id that nobody else draws.
    pub fn draw_node(&mut self, at: usize) -> u8 {
        self.lives += 1;
        at as u8 + SLOTS as u8 * (self.lives - 1) + 1
    }

    /// A nonce that nobody else draws.
    pub fn draw_nonce(&mut self, at: usize) -> u8 {
        self.draws += 1;
        at as u8 + SLOTS as u8 * (self.draws - 1) + 1
    }

    /// A token that nobody else draws.
    pub fn draw_token(&mut self, at: usize) -> u8 {
        self.tokens += 1;
        at as u8 + SLOTS as u8 * (self.tokens - 1) + 1
    }
}
