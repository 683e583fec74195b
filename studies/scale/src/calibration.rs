//! The measurements and their machine. `--calibrate` measures again and prints a new `calibration.txt`.

use crate::random;
use parking_lot::RawMutex;
use rand_distr::{Distribution, Exp1};
use snowflake_core::{Config, Generator, Layout, Memory, Start, SystemHost, Tick, Workers};
use snowflake_figures::stats::quantile;
use std::hint::{black_box, spin_loop};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{available_parallelism, scope, yield_now};
use std::time::{Duration, Instant};

/// The committed measurements.
pub const COMMITTED: &str = include_str!("../calibration.txt");

/// The measurements on one machine.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    /// Processor, cores, operating system.
    pub machine: String,
    /// The date of the measurement.
    pub date: String,
    /// How long a compare-and-swap's message takes from one core to the other, in nanoseconds.
    pub move_ns: f64,
    /// Rounds with some work between two calls.
    pub pairs: Vec<Pair>,
    /// Rows per second that one session inserted with `INSERT ... SELECT`, with the key as default.
    pub insert_rows_per_s: f64,
    /// Statements per second, one row each, of 8 sessions on 2 cores, without waiting for the disk.
    pub insert_statements_per_s: f64,
}

/// The real generator, used by one thread and by two at once.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// The time that one thread takes for the work and the call, in nanoseconds.
    pub alone_ns: f64,
    /// The IDs per second that two threads generate together.
    pub two_per_s: f64,
}

impl Calibration {
    /// Reads `name = value` lines; `#` begins a comment.
    pub fn read(text: &str) -> Self {
        let mut read = Self::default();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
            let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("not a measurement: {line}"));
            let value = value.trim();
            let number = || value.parse::<f64>().unwrap_or_else(|_| panic!("not a number: {line}"));
            match name.trim() {
                "machine" => read.machine = value.to_owned(),
                "date" => read.date = value.to_owned(),
                "move_ns" => read.move_ns = number(),
                "insert_rows_per_s" => read.insert_rows_per_s = number(),
                "insert_statements_per_s" => read.insert_statements_per_s = number(),
                "pair" => {
                    let (alone, two) = value.split_once(' ').unwrap_or_else(|| panic!("not a pair: {line}"));
                    let number = |text: &str| text.trim().parse().expect("a number");
                    read.pairs.push(Pair { alone_ns: number(alone), two_per_s: number(two) });
                }
                _ => panic!("unknown: {line}"),
            }
        }
        read
    }

    /// Reads the committed file.
    pub fn committed() -> Self {
        Self::read(COMMITTED)
    }
}

/// Measures this machine and prints lines for `calibration.txt`.
pub fn measure() {
    println!("move_ns = {:.1}", move_ns());
    // Iterations of a loop, not nanoseconds; their time is measured.
    for work in [0, 50, 100, 200, 400, 800, 1_600, 3_200] {
        let alone = rate(1, work);
        println!("pair = {:.1} {:.0}", 1e9 / alone, rate(2, work));
    }
    // The quantities that the models describe, if the machine has enough cores to show them.
    let cores = available_parallelism().map_or(2, usize::from);
    for threads in [4, 8, 16, 32, 64, 128].into_iter().filter(|threads| *threads <= cores) {
        println!("# {threads} threads without work in between: {:.0} IDs a second", rate(threads, 0));
    }
}

/// Half of the time that a word takes from one thread to the other and back. A low value of many short rounds, because
/// a thread that loses its core spoils a round.
fn move_ns() -> f64 {
    const TURNS: u64 = 100;
    let rounds: Vec<f64> = (0..500)
        .map(|_| {
            let (word, barrier) = (AtomicU64::new(0), Barrier::new(2));
            let play = |first: u64| {
                barrier.wait();
                let start = Instant::now();
                for turn in 0..TURNS {
                    let mine = 2 * turn + first;
                    let mut tries = 0;
                    while word.compare_exchange(mine, mine + 1, Ordering::AcqRel, Ordering::Relaxed).is_err()
                    {
                        tries += 1;
                        // The other thread has no core: the round is spoilt, and need not take long.
                        if tries % 1_000 == 0 { yield_now() } else { spin_loop() }
                    }
                }
                start.elapsed().as_nanos() as f64 / (2 * TURNS) as f64
            };
            scope(|scope| {
                let other = scope.spawn(|| play(1));
                play(0).min(other.join().expect("it plays"))
            })
        })
        .collect();
    quantile(&rounds, 0.1)
}

const STAMP_EVERY: usize = 8;
const ROUND: Duration = Duration::from_millis(100);
const BIN_NS: u64 = 100_000;
const ENOUGH_BINS: usize = 60;
const MOST_ROUNDS: usize = 40;

/// The IDs per second that this many threads generate together with the real generator. `work` is the number of loop
/// iterations between two calls, exponentially distributed. The layout has so many sequences that no call waits for the
/// clock. Stretches in which a thread had no core do not count.
fn rate(threads: usize, work: u32) -> f64 {
    let mut rates = Vec::new();
    for _ in 0..MOST_ROUNDS {
        rates.extend(round(threads, work));
        if rates.len() >= ENOUGH_BINS {
            return quantile(&rates, 0.5);
        }
    }
    panic!("the machine is too busy: {} stretches without a pause", rates.len());
}

/// The rates of those stretches of one round in which every thread ran from end to end.
fn round(threads: usize, work: u32) -> Vec<f64> {
    let bits = "40/1/22".parse().expect("bits");
    let layout = Layout::new(bits, Tick::Millisecond, Layout::default().epoch_us()).expect("a layout");
    let workers = Workers::new(&layout, 0, 0).expect("a worker");
    let config = Config { layout, workers, ..Config::default() };
    let memory = Memory::<RawMutex>::new(&config);
    let barrier = Barrier::new(threads);
    let mut random = random(u64::from(work));
    let turns: Vec<u32> = (0..4_096)
        .map(|_| {
            let share: f64 = Exp1.sample(&mut random);
            (share * f64::from(work)) as u32
        })
        .collect();
    let start = Instant::now();
    let run = |first: usize| {
        let generator = Generator::new(&config, memory.view(), SystemHost);
        generator.open(&Start::of_timeline(1)).expect("it opens");
        let mut stamps = Vec::with_capacity(1 << 21);
        barrier.wait();
        let began = Instant::now();
        let mut turn = first;
        while began.elapsed() < ROUND && stamps.len() < stamps.capacity() {
            stamps.push(start.elapsed().as_nanos() as u64);
            for _ in 0..STAMP_EVERY {
                black_box(generator.next_id().expect("an ID"));
                turn = (turn + 1) % turns.len();
                for i in 0..turns[turn] {
                    black_box(i);
                }
            }
        }
        stamps
    };
    let all: Vec<Vec<u64>> = scope(|scope| {
        let started: Vec<_> = (0..threads).map(|i| scope.spawn(move || run(i * 1_000))).collect();
        started.into_iter().map(|thread| thread.join().expect("it runs")).collect()
    });
    let from = all.iter().map(|stamps| stamps[0]).max().expect("a thread");
    let to = all.iter().map(|stamps| stamps[stamps.len() - 1]).min().expect("a thread");
    (from / BIN_NS + 1..to / BIN_NS)
        .filter_map(|bin| {
            let (begin, end) = (bin * BIN_NS, (bin + 1) * BIN_NS);
            let mut ids = 0.0;
            for stamps in &all {
                let inside = &stamps[stamps.partition_point(|at| *at < begin)..];
                let inside = &inside[..inside.partition_point(|at| *at < end)];
                let usual = BIN_NS / (inside.len() as u64).max(1);
                let edges = [begin].into_iter().chain(inside.iter().copied()).chain([end]);
                let times: Vec<u64> = edges.collect();
                let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max()?;
                if inside.len() < 3 || longest > 6 * usual + 3_000 {
                    return None;
                }
                ids += (inside.len() * STAMP_EVERY) as f64;
            }
            Some(ids * 1e9 / BIN_NS as f64)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_measurements_can_be_read() {
        let read = Calibration::committed();
        assert!(read.move_ns > 1.0 && read.pairs.len() >= 5 && !read.machine.is_empty(), "{read:?}");
        assert!(read.insert_rows_per_s > 1.0 && read.insert_statements_per_s > 1.0, "{read:?}");
    }
}
