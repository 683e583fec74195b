//! A node of the fleet: its servers, and what can be done to them.

use super::NODES;
use super::network::Link;
use super::roster::Roster;
use crate::act::{Down, Member};
use crate::shared::Shared;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use snowflake_server_tests::process::children;
use snowflake_server_tests::{Server, Signal, wait_until};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How far ahead of the clock an ID may be, by default.
pub const MAX_AHEAD_MS: i64 = 2_000;

/// What the faults of a round share.
pub struct Scene {
    pub shared: Arc<Shared>,
    pub roster: Roster,
    pub links: [Link; NODES],
    pub grant: Duration,
    pub has_volumes: bool,
    /// Held by whoever gives and takes devices.
    pub devices: Mutex<()>,
}

impl Scene {
    pub fn member(&self, server: Server, name: &str) -> Member {
        let member = Member::new(&self.shared, server, name);
        member.set_clock(0, MAX_AHEAD_MS);
        member
    }
}

pub struct Node {
    pub number: usize,
    pub primary: Member,
    pub standby: Option<Member>,
    /// Clones and old primaries, until the round ends.
    pub guests: Vec<Member>,
    /// An older state took the place of the newest one. The promise needs right clocks, until the host is rebooted and
    /// the node is another one.
    pub is_replaced: bool,
}

impl Node {
    pub fn name(&self) -> String {
        name(self.number)
    }

    pub fn link<'a>(&self, scene: &'a Scene) -> &'a Link {
        &scene.links[self.number]
    }

    /// All servers that generate IDs.
    pub fn serving(&self) -> impl Iterator<Item = &Member> {
        std::iter::once(&self.primary).chain(&self.guests)
    }

    pub fn send_clients(&self, scene: &Scene) {
        let targets = self.serving().map(|member| member.target.clone()).collect();
        scene.roster.send(&scene.shared, self.number, targets);
    }

    pub fn set_clock(&self, offset_us: i64) {
        self.primary.set_clock(offset_us, MAX_AHEAD_MS);
    }

    /// Before a round: IDs may no longer be as far ahead as the clock was in the round before.
    pub fn begin_round(&self, shared: &Shared) {
        for member in self.serving() {
            member.set_clock(0, MAX_AHEAD_MS);
            shared.reset_longest_of(&member.target);
        }
    }

    pub fn restart(&mut self, down: Down) {
        self.primary.stop(down);
        self.primary.start();
    }

    /// Restarts the server as after a reboot of its host, which takes everything in shared memory away.
    pub fn reboot(&mut self, down: Down) {
        self.primary.stop(down);
        self.primary.forget();
        self.primary.start();
        self.is_replaced = false;
    }

    /// Has a second server generate IDs beside the primary until the round ends.
    pub fn invite(&mut self, guest: Member, scene: &Scene) {
        self.guests.push(guest);
        self.send_clients(scene);
    }

    pub fn send_guests_away(&mut self, scene: &Scene) {
        if self.guests.is_empty() {
            return;
        }
        let guests = std::mem::take(&mut self.guests);
        self.send_clients(scene);
        guests.into_iter().for_each(discard);
    }

    /// A standby, which is a node of its own.
    pub fn new_standby(&self, of: &Member, name: &str, scene: &Scene) -> Member {
        let mut server = of.server.backup();
        server.follow(&of.server);
        server.set("snowflake_id.node_name", name);
        let mut standby = scene.member(server, name);
        standby.start();
        standby
    }

    pub fn discard(self) {
        self.guests.into_iter().chain(self.standby).for_each(discard);
        discard(self.primary);
    }
}

pub fn name(number: usize) -> String {
    format!("node-{number}")
}

pub fn discard(mut member: Member) {
    if member.server.is_started() {
        member.stop(Down::Immediate);
    }
    member.discard();
}

/// Stops all processes of a server, until the result is dropped.
pub fn freeze(server: &Server) -> Thaw {
    let mut thaw = Thaw(Vec::new());
    // The postmaster first, so that no process is started meanwhile; its grandchildren are contacts.
    let mut next = vec![server.pid() as i32];
    while let Some(pid) = next.pop() {
        if kill(Pid::from_raw(pid), Signal::SIGSTOP).is_ok() {
            thaw.0.push(pid);
            wait_until("a process to stop", Duration::from_secs(30), || {
                use snowflake_server_tests::process::{has_ended, is_stopped};
                (is_stopped(pid) || has_ended(pid)).then_some(())
            });
            next.extend(children(pid));
        }
    }
    thaw
}

/// Stopped processes.
pub struct Thaw(Vec<i32>);

impl Drop for Thaw {
    fn drop(&mut self) {
        for pid in self.0.iter().rev() {
            let _ = kill(Pid::from_raw(*pid), Signal::SIGCONT);
        }
    }
}
