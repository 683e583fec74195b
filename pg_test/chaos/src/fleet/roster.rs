//! Which client asks which server: each node has clients of its own, and its guests share them.

use super::NODES;
use crate::shared::{Shared, Target};
use crate::tally::lock;
use std::sync::{Arc, Mutex};

/// The primary of every node is asked, and two servers beside it.
pub const FEWEST_CLIENTS: usize = 3 * NODES;

pub struct Roster {
    clients: usize,
    /// By node: the primary first.
    servers: Mutex<Vec<Vec<Arc<Target>>>>,
}

impl Roster {
    pub fn new(clients: usize) -> Self {
        Self { clients, servers: Mutex::new(vec![Vec::new(); NODES]) }
    }

    /// Sends a node's clients to these servers of it, and leaves all other clients where they are.
    pub fn send(&self, shared: &Shared, node: usize, targets: Vec<Arc<Target>>) {
        let mut servers = lock(&self.servers);
        servers[node] = targets;
        if servers.iter().all(|of_node| !of_node.is_empty()) {
            shared.send_to((0..self.clients).map(|client| choose(&servers, client)).collect());
        }
    }
}

fn choose(servers: &[Vec<Arc<Target>>], client: usize) -> Arc<Target> {
    let row = client / NODES;
    // Shifted in each row, so that a node has clients with different calls.
    let of_node = &servers[(client + 3 * row) % NODES];
    of_node[row % of_node.len()].clone()
}
