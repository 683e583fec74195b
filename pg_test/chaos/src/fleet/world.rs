//! The servers of an act.

use super::NODES;
use super::network::{Hosts, Link};
use super::node::{Node, Scene, name};
use super::registry::Registry;
use super::roster::Roster;
use crate::act::SETTINGS;
use crate::random::Random;
use crate::shared::Shared;
use snowflake_server_tests::{Server, secs};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// How an act's fleet is set up, and how long it lives.
#[derive(Debug)]
pub struct Plan {
    grant_s: u64,
    /// Home workers that are not reserved. With few of them, a worker soon has another node.
    workers: u32,
    /// By node: whether it has a standby.
    standbys: [bool; NODES],
    /// Pause of the clients that take whole ticks (µs).
    pause_us: u64,
    pub rounds: u32,
}

impl Plan {
    pub fn draw(random: &mut Random) -> Self {
        Self {
            grant_s: random.pick(&[5, 5, 5, 6, 8, 8, 12, 20]),
            workers: random.pick(&[28, 28, 40, 256]),
            standbys: std::array::from_fn(|_| random.percent(30)),
            pause_us: random.pick(&[20_000, 40_000, 80_000]),
            rounds: random.between(10, 20) as u32,
        }
    }
}

pub struct Fleet {
    pub registry: Registry,
    pub nodes: Vec<Node>,
    pub scene: Scene,
}

impl Fleet {
    pub fn begin(shared: &Arc<Shared>, plan: Plan, has_volumes: bool) -> Self {
        let hosts = Arc::new(Hosts::default());
        let grant = secs(plan.grant_s);
        let registry = Registry::new(grant, plan.workers, &hosts);
        let scene = Scene {
            shared: shared.clone(),
            roster: Roster::new(shared.busy.len()),
            links: std::array::from_fn(|_| Link::new(&hosts)),
            grant,
            has_volumes,
            devices: Mutex::new(()),
        };
        shared.pause_us.store(plan.pause_us, Ordering::Relaxed);
        let nodes = std::thread::scope(|threads| {
            let begin = |number| {
                let (scene, has_standby) = (&scene, plan.standbys[number]);
                threads.spawn(move || new_node(number, has_standby, scene))
            };
            let begun: Vec<_> = (0..NODES).map(begin).collect();
            begun.into_iter().map(|node| node.join().expect("a node starts")).collect()
        });
        let fleet = Self { registry, nodes, scene };
        fleet.must_serve();
        fleet
    }

    pub fn begin_round(&self) {
        self.scene.shared.reset_longest();
        self.nodes.iter().for_each(|node| node.begin_round(&self.scene.shared));
    }

    pub fn send_guests_away(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.send_guests_away(&self.scene));
    }

    pub fn discard(self) {
        self.nodes.into_iter().for_each(Node::discard);
    }
}

fn new_node(number: usize, has_standby: bool, scene: &Scene) -> Node {
    let builder = Server::builder().without("snowflake_id.worker_id").faketime(true);
    let builder = SETTINGS.iter().fold(builder, |builder, (name, value)| builder.setting(name, value));
    let server = builder
        .setting("max_wal_size", "64MB")
        .setting("min_wal_size", "32MB")
        .setting("wal_keep_size", "64MB")
        .setting("snowflake_id.backup_workers", "3")
        .setting("snowflake_id.registry", &scene.links[number].registry_string())
        .setting("snowflake_id.node_name", &name(number))
        .create();
    let mut primary = scene.member(server, &name(number));
    primary.start();
    primary.run(
        "CREATE EXTENSION snowflake_id;
         CREATE TABLE made (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), call bigint);
         CREATE INDEX ON made (call)",
    );
    let mut node = Node { number, primary, standby: None, guests: Vec::new(), is_replaced: false };
    if has_standby {
        node.standby = Some(node.new_standby(&node.primary, &format!("{}-b", node.name()), scene));
    }
    node.send_clients(scene);
    node
}
