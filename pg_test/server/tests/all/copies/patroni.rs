//! Patroni with etcd manages the servers: switchovers, kills, a split brain, pg_rewind, a replica made anew, and a
//! standby cluster that is promoted for a drill. Clients keep every ID that they ever received.

use nix::sys::signal::Signal;
use postgres::{Config, NoTls};
use snowflake_server_tests::fleet::registry;
use snowflake_server_tests::patroni::{Cluster, Etcd};
use snowflake_server_tests::sql::{one, run};
use snowflake_server_tests::{Ids, ms, secs, wait_until};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SNOWFLAKE: &str = "SELECT snowflake_nextval()";
const BIGSERIAL: &str = "INSERT INTO numbered DEFAULT VALUES RETURNING id";

/// What the clients of one kind received.
#[derive(Default)]
struct Kept {
    by_client: Mutex<BTreeMap<String, Vec<i64>>>,
    /// When each answer came.
    answers: Mutex<Vec<Instant>>,
}

impl Kept {
    /// Asks one server for IDs, and connects again whenever it must.
    fn ask(&self, client: &str, config: &Config, query: &str, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            let Ok(mut session) = config.connect(NoTls) else {
                thread::sleep(ms(20));
                continue;
            };
            while !is_over.load(Ordering::Relaxed) {
                match session.query_one(query, &[]) {
                    Ok(row) => {
                        self.by_client.lock().unwrap().entry(client.to_owned()).or_default().push(row.get(0));
                        self.answers.lock().unwrap().push(Instant::now());
                        // Other tests run beside this one, and the cluster has to heal.
                        thread::sleep(ms(5));
                    }
                    Err(_) if session.is_closed() => break,
                    Err(_) => thread::sleep(ms(20)),
                }
            }
        }
    }

    /// The longest time between two answers from any server since `began`.
    fn longest_gap(&self, began: Instant) -> Duration {
        let mut answers = self.answers.lock().unwrap().clone();
        answers.sort();
        answers.windows(2).filter(|two| two[1] >= began).map(|two| two[1] - two[0]).max().unwrap_or_default()
    }

    fn len(&self) -> usize {
        self.answers.lock().unwrap().len()
    }
}

/// Lets clients ask every node while `faults` happen, and returns what they received.
fn under_load(cluster: &mut Cluster, faults: impl FnOnce(&mut Cluster, &dyn Fn(&str, Instant))) -> Kept {
    let (snowflake, bigserial, is_over) = (Kept::default(), Kept::default(), AtomicBool::new(false));
    let configs: Vec<(String, Config)> =
        cluster.nodes.iter().map(|node| (node.name.clone(), node.config())).collect();
    thread::scope(|scope| {
        for (name, config) in &configs {
            let (snowflake, bigserial, is_over) = (&snowflake, &bigserial, &is_over);
            scope.spawn(move || snowflake.ask(name, config, SNOWFLAKE, is_over));
            scope.spawn(move || bigserial.ask(name, config, BIGSERIAL, is_over));
        }
        // Ends the clients also where a fault panics.
        let over = Over(&is_over);
        let tell = |what: &str, began: Instant| {
            // Until both answer again.
            let (before, also_before) = (snowflake.len(), bigserial.len());
            let patience = Instant::now();
            while (snowflake.len() <= before || bigserial.len() <= also_before)
                && patience.elapsed() < secs(120)
            {
                thread::sleep(ms(20));
            }
            println!(
                "{what}: no snowflake ID for {:?}, no bigserial for {:?}, {} IDs so far",
                snowflake.longest_gap(began),
                bigserial.longest_gap(began),
                snowflake.len()
            );
            assert!(snowflake.len() > before, "no ID after {what}");
        };
        faults(cluster, &tell);
        drop(over);
    });
    snowflake
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn assert_unique(kept: impl IntoIterator<Item = Kept>) {
    let mut all = Ids::new();
    for kept in kept {
        for (client, ids) in kept.by_client.into_inner().unwrap() {
            all.add(client, ids);
        }
    }
    println!("{} IDs", all.len());
    all.assert_unique();
}

fn switch_over(cluster: &Cluster, from: usize, to: usize) {
    let (from, to) = (cluster.nodes[from].name.clone(), cluster.nodes[to].name.clone());
    let command = ["switchover", "--leader", &from, "--candidate", &to, "--force"];
    // patronictl succeeds also where the candidate is not ready yet, as one that was just made anew.
    wait_until("the switchover", secs(240), || {
        let printed = cluster.ctl(&command).unwrap_or_else(|printed| printed);
        let is_done = printed.contains("Successfully switched over") || cluster.is_leader(&to);
        if !is_done {
            println!("{printed}");
        }
        is_done.then_some(())
    });
}

fn timeline(cluster: &Cluster) -> i32 {
    wait_until("the leader's timeline", secs(240), || {
        cluster.nodes[cluster.wait_for_leader(|_| true)].timeline()
    })
}

/// Five timelines at least: two switchovers, a kill, two split brains, and another switchover.
fn five_timelines(cluster: &mut Cluster, tell: &dyn Fn(&str, Instant)) {
    let mut leader = cluster.wait_for_leader(|_| true);
    let first = timeline(cluster);
    for what in ["a switchover", "a second switchover"] {
        let began = Instant::now();
        let next = (leader + 1) % 3;
        switch_over(cluster, leader, next);
        leader = cluster.wait_for_leader(|n| n == next);
        tell(what, began);
        cluster.wait_until_healthy();
    }

    let began = Instant::now();
    let killed = leader;
    cluster.nodes[killed].kill();
    leader = cluster.wait_for_leader(|n| n != killed);
    tell("a kill of the leader", began);
    // pg_rewind lets it follow.
    cluster.start_again(killed);
    cluster.wait_until_healthy();

    let began = Instant::now();
    let paused = leader;
    cluster.nodes[paused].signal(Signal::SIGSTOP);
    leader = cluster.wait_for_leader(|n| n != paused);
    let in_recovery: bool = one(&mut cluster.nodes[paused].connect(), "SELECT pg_is_in_recovery()");
    assert!(!in_recovery, "the old leader's server goes on beside its successor");
    thread::sleep(secs(2));
    tell("a split brain", began);
    cluster.nodes[paused].signal(Signal::SIGCONT);
    cluster.wait_until_healthy();

    let began = Instant::now();
    let (scope, replica) = (cluster.scope().to_owned(), (leader + 1) % 3);
    cluster.ctl(&["pause", &scope, "--wait"]).unwrap_or_else(|said| panic!("{said}"));
    let promoted: bool = one(&mut cluster.nodes[replica].connect(), "SELECT pg_promote()");
    assert!(promoted, "a paused Patroni lets a replica be promoted beside its leader");
    thread::sleep(secs(2));
    tell("a split brain by hand under a paused Patroni", began);
    cluster.ctl(&["resume", &scope, "--wait"]).unwrap_or_else(|said| panic!("{said}"));
    cluster.wait_for_leader(|n| n == leader);
    // It need not find its way back by itself.
    let name = cluster.nodes[replica].name.clone();
    cluster.ctl(&["reinit", &scope, &name, "--force", "--wait"]).unwrap_or_else(|said| panic!("{said}"));
    cluster.wait_until_healthy();

    let began = Instant::now();
    let next = (leader + 1) % 3;
    switch_over(cluster, leader, next);
    cluster.wait_for_leader(|n| n == next);
    tell("a switchover to a replica that was made anew", began);
    cluster.wait_until_healthy();
    let last = timeline(cluster);
    assert!(last >= first + 5, "timelines {first} to {last}");
}

fn prepare(cluster: &Cluster) {
    let leader = cluster.wait_for_leader(|_| true);
    let mut session = cluster.nodes[leader].connect();
    run(&mut session, "CREATE EXTENSION snowflake_id; CREATE TABLE numbered (id bigserial PRIMARY KEY)");
}

fn nothing_local(_: usize) -> String {
    String::new()
}

const PRELOADED: (&str, &str) = ("shared_preload_libraries", "snowflake_id");

#[test]
fn one_worker_for_all_nodes_over_five_timelines_repeats_nothing() {
    let etcd = Etcd::start();
    let settings = [PRELOADED, ("snowflake_id.worker_id", "1")];
    let mut cluster = Cluster::start(&etcd, "alike", 3, &settings, nothing_local, None);
    prepare(&cluster);
    let kept = under_load(&mut cluster, five_timelines);
    assert_unique([kept]);
}

#[test]
fn a_worker_for_each_node_over_five_timelines_repeats_nothing() {
    let etcd = Etcd::start();
    let worker = |n| format!("    snowflake_id.worker_id: {}\n", n + 1);
    let mut cluster = Cluster::start(&etcd, "apart", 3, &[PRELOADED], worker, None);
    prepare(&cluster);
    let kept = under_load(&mut cluster, five_timelines);
    assert_unique([kept]);
}

#[test]
fn with_a_registry_neither_five_timelines_nor_a_drill_repeat_anything() {
    let registry = registry("1 hour");
    let string = registry.registry_string();
    let settings =
        [PRELOADED, ("snowflake_id.backup_workers", "3"), ("snowflake_id.registry", string.as_str())];
    let etcd = Etcd::start();
    let mut cluster = Cluster::start(&etcd, "fleet", 3, &settings, nothing_local, None);
    prepare(&cluster);
    let leader = cluster.wait_for_leader(|_| true);
    let mut drill = Cluster::start(&etcd, "drill", 1, &settings, nothing_local, Some(&cluster.nodes[leader]));

    let kept = under_load(&mut cluster, |cluster, tell| {
        // The standby cluster is promoted beside its primary, both with one worker of their own.
        drill.ctl(&["promote-cluster", "drill", "--force"]).unwrap_or_else(|said| panic!("{said}"));
        five_timelines(cluster, tell);
    });
    let of_drill = under_load(&mut drill, |_, tell| tell("the drill", Instant::now()));
    assert_unique([kept, of_drill]);
}
