//! The effect of many cores on the one word that they all swap.
//!
//! A word lies in a cache line, and the line is in the cache of the core that wrote it last. A call reads the word and
//! swaps it. The line must come to the core for the reading, and become the core's own for the swap. Requests for a
//! line are served one after another. So the line is the server of a queue. Its service time is the time that it needs
//! from one core to another, which has been measured on many machines.
//!
//! A swap fails if another core's swap came between its reading and itself. No data sheet says what happens then: the
//! line is here now, and the retry needs it for a few nanoseconds more. [`Claim`] has both extremes; a real machine
//! lies between them.
//!
//! One simplification is pessimistic: simultaneous readings of the line by several cores are served one by one too.
//! Another is neither pessimistic nor optimistic: the queue is first come, first served, although machines favour
//! nearby cores.

use crate::random;
use rand_distr::{Distribution, Exp1};
use snowflake_figures::stats::{mean, quantile};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How long a line needs from core to core, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Its processors.
    pub name: &'static str,
    /// How many cores it has.
    pub cores: usize,
    /// The number of cores that share a cache: among them the line moves in `near_ns`.
    pub group: usize,
    /// Within a group.
    pub near_ns: f64,
    /// Within a socket.
    pub far_ns: f64,
    /// To the other socket; `None` if there is only one.
    pub other_socket_ns: Option<f64>,
}

/// Medians of <https://github.com/nviennot/core-to-core-latency>: a message by compare-and-swap from one core to
/// another. Each machine has as many cores as the one that was measured.
pub const MACHINES: [Machine; 3] = [
    Machine { name: "Graviton3", cores: 64, group: 64, near_ns: 46.0, far_ns: 46.0, other_socket_ns: None },
    Machine {
        name: "2 × Ice Lake",
        cores: 64,
        group: 32,
        near_ns: 51.0,
        far_ns: 51.0,
        other_socket_ns: Some(108.0),
    },
    Machine {
        name: "2 × Milan",
        cores: 96,
        group: 8,
        near_ns: 23.0,
        far_ns: 107.0,
        other_socket_ns: Some(197.0),
    },
];

/// A compare-and-swap on a line that the core owns: about 20 cycles.
const OWN_NS: f64 = 5.0;
/// Reading a line that is in the core's cache.
const HIT_NS: f64 = 1.0;
/// The time from the end of a reading, or of a failed swap, to the next swap.
const GAP_NS: f64 = 2.0;

/// A reading and a swap by a core that has the line.
pub const ALONE_NS: f64 = HIT_NS + GAP_NS + OWN_NS;

impl Machine {
    /// A machine on which every move of the line takes equally long.
    pub const fn uniform(ns: f64) -> Self {
        Self { name: "uniform", cores: 128, group: 128, near_ns: ns, far_ns: ns, other_socket_ns: None }
    }

    fn move_ns(&self, from: usize, to: usize, cores: usize) -> f64 {
        let socket = |core: usize| core * 2 / cores.max(2);
        match self.other_socket_ns {
            Some(ns) if socket(from) != socket(to) => ns,
            _ if from / self.group == to / self.group => self.near_ns,
            _ => self.far_ns,
        }
    }
}

/// How a call takes its IDs from the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// By adding to it blindly: one move of the line, no failure. No design on one word can do better. Ours cannot add,
    /// because a word must not move past the end of its tick.
    Adds,
    /// By reading and swapping. After a failed swap the line stays for the retry, which therefore succeeds.
    SwapStays,
    /// By reading and swapping. After a failed swap, a waiting core takes the line away first: the retry queues again,
    /// and may fail again.
    SwapTaken,
}

/// The load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How many cores generate IDs.
    pub cores: usize,
    /// The mean time that a core spends between two calls, and in a call outside the word, in nanoseconds;
    /// exponentially distributed.
    pub think_ns: f64,
    /// The number of IDs that a call takes with one swap.
    pub ids: f64,
}

/// The result.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// IDs per second.
    pub ids_per_s: f64,
    /// The mean time from the request for the line to the swap's success, in nanoseconds.
    pub mean_ns: f64,
    /// Its median.
    pub p50_ns: f64,
    /// Its 99th percentile.
    pub p99_ns: f64,
    /// Failed swaps per call.
    pub failures: f64,
}

const CALLS: usize = 6_000;
const WARM_UP: usize = 1_000;

/// Simulates the line.
pub fn simulate(machine: &Machine, claim: Claim, load: &Load) -> Outcome {
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Request {
        Read,
        Swap,
    }
    let mut random = random(load.cores as u64);
    let mut think = || -> f64 {
        let share: f64 = Exp1.sample(&mut random);
        share * load.think_ns
    };
    // In picoseconds, because integers can be ordered.
    let ps = |ns: f64| (ns * 1e3) as u64;
    let ns = |ps: u64| ps as f64 / 1e3;
    let mut requests = BinaryHeap::new();
    let mut began = vec![0; load.cores];
    let first = if claim == Claim::Adds { Request::Swap } else { Request::Read };
    for (core, began) in began.iter_mut().enumerate() {
        *began = ps(think());
        requests.push(Reverse((*began, core, first)));
    }
    // First come, first served, so the outcome of a request is known when it arrives.
    let (mut free, mut version, mut failures) = (0, 0_u64, 0_usize);
    let (mut owner, mut sharers) = (0, 1_u128);
    let mut seen = vec![0; load.cores];
    let (mut took, mut started) = (Vec::with_capacity(CALLS), 0);
    let mut done = 0;
    while done < WARM_UP + CALLS {
        let Reverse((now, core, request)) = requests.pop().expect("as many as cores");
        let start = free.max(now);
        match request {
            Request::Read => {
                let cost = match sharers >> core & 1 {
                    1 => HIT_NS,
                    _ => machine.move_ns(owner, core, load.cores),
                };
                sharers |= 1 << core;
                free = start + ps(cost);
                seen[core] = version;
                requests.push(Reverse((free + ps(GAP_NS), core, Request::Swap)));
            }
            Request::Swap => {
                let (mut others, mut cost) = (sharers & !(1 << core), OWN_NS);
                while others != 0 {
                    let other = others.trailing_zeros() as usize;
                    cost = cost.max(machine.move_ns(other, core, load.cores));
                    others &= others - 1;
                }
                (owner, sharers) = (core, 1 << core);
                free = start + ps(cost);
                if claim != Claim::Adds && seen[core] != version {
                    failures += usize::from(done >= WARM_UP);
                    if claim == Claim::SwapTaken {
                        seen[core] = version;
                        requests.push(Reverse((free + ps(GAP_NS), core, Request::Swap)));
                        continue;
                    }
                    free += ps(GAP_NS + OWN_NS);
                }
                version += 1;
                done += 1;
                if done == WARM_UP {
                    started = free;
                } else if done > WARM_UP {
                    took.push(ns(free - began[core]));
                }
                began[core] = free + ps(think());
                requests.push(Reverse((began[core], core, first)));
            }
        }
    }
    Outcome {
        ids_per_s: load.ids * CALLS as f64 / ns(free - started) * 1e9,
        mean_ns: mean(&took),
        p50_ns: quantile(&took, 0.5),
        p99_ns: quantile(&took, 0.99),
        failures: failures as f64 / CALLS as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_near(found: f64, expected: f64, tolerance: f64) {
        assert!((found / expected - 1.0).abs() < tolerance, "{found} is not {expected}");
    }

    #[test]
    fn one_core_keeps_the_line() {
        let load = Load { cores: 1, think_ns: 200.0, ids: 1.0 };
        for claim in [Claim::SwapStays, Claim::SwapTaken] {
            let outcome = simulate(&Machine::uniform(50.0), claim, &load);
            assert_eq!(outcome.failures, 0.0);
            is_near(outcome.p99_ns, HIT_NS + GAP_NS + OWN_NS, 0.001);
            is_near(outcome.ids_per_s, 1e9 / (200.0 + HIT_NS + GAP_NS + OWN_NS), 0.03);
        }
    }

    /// Cores that think for long arrive as a Poisson process at a server with one service time for all, so the mean
    /// wait is that of Pollaczek and Khinchine.
    #[test]
    fn a_word_that_is_added_to_is_the_queue_m_d_1() {
        let (cores, service) = (128, 100.0);
        for rho in [0.2, 0.5] {
            let load = Load { cores, think_ns: cores as f64 * service / rho, ids: 1.0 };
            let outcome = simulate(&Machine::uniform(service), Claim::Adds, &load);
            let wait = rho * service / (2.0 * (1.0 - rho));
            is_near(outcome.mean_ns, service + wait, 0.03);
            is_near(outcome.ids_per_s, rho * 1e9 / service, 0.03);
            assert_eq!(outcome.failures, 0.0);
        }
    }

    /// A line that is never free serves one request after another: two moves per call.
    #[test]
    fn a_saturated_line_that_stays_gives_one_call_for_two_moves() {
        let load = Load { cores: 64, think_ns: 10.0, ids: 1.0 };
        let outcome = simulate(&Machine::uniform(50.0), Claim::SwapStays, &load);
        let call = 2.0 * 50.0 + outcome.failures * (GAP_NS + OWN_NS);
        is_near(outcome.ids_per_s, 1e9 / call, 0.02);
        // The utilisation law of a closed queue: cores = rate * (think + time of a call).
        is_near(outcome.ids_per_s * (10.0 + outcome.mean_ns) / 1e9, 64.0, 0.02);
    }

    /// If the line is taken away, one swap of a round succeeds, and the others have seen an old word.
    #[test]
    fn a_saturated_line_that_is_taken_loses_most_swaps() {
        let load = |cores| Load { cores, think_ns: 10.0, ids: 1.0 };
        let few = simulate(&Machine::uniform(50.0), Claim::SwapTaken, &load(4));
        let many = simulate(&Machine::uniform(50.0), Claim::SwapTaken, &load(64));
        assert!(many.failures > 4.0 * few.failures, "{few:?} {many:?}");
        assert!(many.ids_per_s < few.ids_per_s / 4.0, "{few:?} {many:?}");
    }

    #[test]
    fn sockets_and_groups_are_as_far_apart_as_measured() {
        let machine = &MACHINES[2];
        assert_eq!(machine.move_ns(0, 7, 96), 23.0);
        assert_eq!(machine.move_ns(0, 8, 96), 107.0);
        assert_eq!(machine.move_ns(0, 47, 96), 107.0);
        assert_eq!(machine.move_ns(0, 48, 96), 197.0);
    }
}
