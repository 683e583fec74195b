//! The table of the fleet's faults, and how a seed draws a round of them.

mod copies;
mod node;
mod registry;

use super::NODES;
use super::node::{Node, Scene};
use super::registry::Registry;
use crate::act::Down;
use crate::faults::draw_step;
use crate::random::Random;
use std::fmt;
use std::time::Duration;

/// A row of the table.
pub struct Kind {
    pub name: &'static str,
    /// How often it is drawn, relative to the other weights.
    weight: u64,
    pub strike: Strike,
    /// Moves a clock. A node may be ahead of the registry by a grant, so two wrong clocks could let it generate
    /// IDs far ahead of the true time, and a registry that then lost commits would not know.
    moves_clock: bool,
    /// For `--list`.
    pub text: &'static str,
}

/// What a fault has to itself. A round has one fault of the registry or of all links, and one of each node.
#[derive(Clone, Copy)]
pub enum Strike {
    Registry(fn(&mut Registry, &Scene, &Fault)),
    Node(fn(&mut Node, &Scene, &Fault)),
}
use Strike::{Node as N, Registry as R};

const fn kind(name: &'static str, weight: u64, strike: Strike, text: &'static str) -> Kind {
    Kind { name, weight, strike, moves_clock: false, text }
}

const fn clock(name: &'static str, weight: u64, strike: Strike, text: &'static str) -> Kind {
    Kind { name, weight, strike, moves_clock: true, text }
}

/// Every fault. After a round, every server has to generate IDs again, whatever the round was made of.
#[rustfmt::skip] // Columns.
pub static FAULTS: &[Kind] = &[
    // ---- the registry
    kind("registry-stop",          8, R(registry::stop),
         "the registry stopped for a while"),
    kind("registry-kill",          8, R(registry::kill),
         "the registry's postmaster killed, and started after a while"),
    kind("registry-freeze",        6, R(registry::freeze),
         "SIGSTOP of all processes of the registry for a while"),
    kind("registry-switchover",    6, R(registry::switch_over),
         "the registry's standby promoted with all commits, and sometimes vouched for"),
    kind("registry-failover",      6, R(registry::fail_over),
         "the registry killed, and its standby promoted"),
    kind("registry-failover-lost", 8, R(registry::fail_over_lost),
         "the same after the standby was cut off: the last commits are lost"),
    kind("registry-restore",       6, R(registry::restore),
         "the registry replaced by an earlier base backup, recovered onto a new timeline"),
    kind("registry-dump",          4, R(registry::restore_dump),
         "the registry replaced by an earlier dump in another cluster"),
    clock("registry-clock-back",   5, R(registry::clock_back),
         "the registry's clock back by 1 ms to 1 year for a while"),
    clock("registry-clock-forward", 5, R(registry::clock_forward),
         "the registry's clock forward by 1 ms to 1 year for a while"),
    kind("retire",                 8, R(registry::retire),
         "snowflake_registry_retire of nodes that run"),
    kind("reserve",                4, R(registry::reserve),
         "a worker reserved for a while, and unreserved"),
    kind("cut-all",               12, R(registry::cut_all),
         "all nodes cut from the registry: stalled, closed, refused, delayed, or answers lost"),

    // ---- a node's way to the registry
    kind("cut",                   10, N(node::cut),
         "a node cut from the registry in one of these ways"),
    kind("restart-alone",          6, N(node::restart_alone),
         "a node restarted while it is cut from the registry"),
    kind("reboot-alone",           4, N(node::reboot_alone),
         "its host rebooted meanwhile: it claims anew"),

    // ---- processes of a node
    kind("restart",                8, N(node::restart),
         "a node killed, or stopped immediately or fast, and started"),
    kind("kill-backend",           5, N(node::kill_backend),
         "SIGKILL of a backend"),
    kind("kill-registrar",         6, N(node::kill_registrar),
         "SIGKILL of the registrar"),
    kind("freeze",                12, N(node::freeze),
         "SIGSTOP of all processes of a node, often for longer than a grant"),
    kind("freeze-registrar",       6, N(node::freeze_registrar),
         "SIGSTOP of the registrar for a while"),
    kind("freeze-keeper",          4, N(node::freeze_keeper),
         "SIGSTOP of the keeper for a while"),

    // ---- the host of a node
    kind("reboot",                 8, N(node::reboot),
         "a node restarted, and the host's lock file in /dev/shm gone"),
    clock("clock-back",            6, N(node::clock_back),
         "a node's clock back by 1 ms to 1 year for a while, sometimes with a restart"),
    clock("clock-forward",         6, N(node::clock_forward),
         "a node's clock forward by 1 ms to 1 year for a while, sometimes with a restart"),

    // ---- more than one server with the same data
    kind("copy",                   8, N(copies::copy),
         "a copy of the files, or a base backup, started beside the original"),
    kind("block-clone",            5, N(copies::clone_volume),
         "a block device cloned, and both mounted and started"),
    kind("set-back",               5, N(copies::set_back_volume),
         "a block device set back to an earlier snapshot on the same device"),
    kind("state-set-back",         6, N(copies::set_back_state),
         "the state file set back in place while stopped"),
    kind("promotions",             8, N(copies::promote),
         "two promotions in turn, while both old primaries go on"),
];

/// A fault that was drawn. Every parameter has a value; the kind decides which of them it uses.
pub struct Fault {
    pub number: u32,
    pub kind: &'static Kind,
    /// For a fault of a node.
    pub node: usize,
    /// After the begin of the round.
    pub delay_ms: u64,
    /// How long it lasts, in thousandths of a grant.
    hold: u64,
    pub down: Down,
    step_us: i64,
    crashes: bool,
    /// Decides everything else.
    variant: u64,
}

impl Fault {
    /// The faults of a round, of kinds among `only`.
    pub fn draw_round(random: &mut Random, first: u32, only: &[&'static Kind]) -> Vec<Fault> {
        let (of_registry, of_nodes): (Vec<_>, Vec<_>) =
            only.iter().copied().partition(|kind| matches!(kind.strike, R(_)));
        let has_registry = random.percent(75) || of_nodes.is_empty();
        let mut faults = Vec::new();
        let mut add = |random: &mut Random, kinds: &[&'static Kind], node: usize| -> Option<bool> {
            let number = first + faults.len() as u32;
            let fault = Fault::draw(random, kinds, number, node)?;
            let moves_clock = fault.kind.moves_clock;
            faults.push(fault);
            Some(moves_clock)
        };
        let moves_clock = has_registry && add(random, &of_registry, 0).unwrap_or(false);
        let of_nodes: Vec<_> =
            of_nodes.into_iter().filter(|kind| !(moves_clock && kind.moves_clock)).collect();
        let mut nodes: Vec<usize> = (0..NODES).collect();
        for _ in 0..random.between(4, NODES as u64) {
            let node = nodes.swap_remove(random.below(nodes.len() as u64) as usize);
            add(random, &of_nodes, node);
        }
        faults
    }

    fn draw(random: &mut Random, kinds: &[&'static Kind], number: u32, node: usize) -> Option<Fault> {
        let total: u64 = kinds.iter().map(|kind| kind.weight).sum();
        // Every fault takes as many random numbers, so that its parameters do not depend on other faults'.
        let mut at = random.below(total.max(1));
        let delay_ms = random.below(2_000);
        let class = random.below(10);
        let holds = [random.between(20, 300), random.between(300, 1_000), random.between(1_000, 1_500)];
        let hold = holds[[0, 0, 0, 0, 0, 1, 1, 1, 2, 2][class as usize]];
        let down = random.pick(&[Down::Killed, Down::Immediate, Down::Fast]);
        let step_us = draw_step(random);
        let (crashes, variant) = (random.percent(25), random.below(1_000_000));
        let kind = kinds.iter().copied().find(|kind| {
            let is_it = at < kind.weight;
            at = at.saturating_sub(kind.weight);
            is_it
        })?;
        Some(Fault { number, kind, node, delay_ms, hold, down, step_us, crashes, variant })
    }

    fn length(&self, scene: &Scene) -> Duration {
        scene.grant * self.hold as u32 / 1_000
    }

    /// How far the clock of a registry that takes over is from the nodes': thousandths of the clock tolerance.
    fn apart(&self) -> i64 {
        [-900, 0, 900, -450, 450][(self.variant / 64 % 5) as usize]
    }

    /// Lets the fault last.
    fn hold(&self, scene: &Scene) {
        std::thread::sleep(self.length(scene));
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fault { number, kind, node, delay_ms, hold, down, step_us, crashes, variant } = self;
        write!(f, "{number} {}", kind.name)?;
        if matches!(kind.strike, N(_)) {
            write!(f, " of node {node}")?;
        }
        write!(
            f,
            " after {delay_ms} ms, hold {hold}/1000 grants, step {} ms {down:?}",
            *step_us as f64 / 1e3
        )?;
        write!(f, "{} variant {variant}", if *crashes { " crashes" } else { "" })
    }
}
