//! Random histories against the registry's SQL functions: contacts lost, replayed and forged, operators, failovers to older copies, and clocks that say anything. After each step, answer and tables are those
//! of the rules in `studies/registry`, which `studies/fleet` explores; and no two nodes are granted one tick of one
//! worker, whoever still knows of the grant.
//!
//! Time is virtual: the functions read a clock and a timeline that the history sets. A history runs in one session, in a
//! transaction that is rolled back. Each has its own seed: `FLEET_SEED=7 FLEET_HISTORIES=1` repeats one, and
//! `FLEET_HISTORIES=20000` takes about an hour.
//!
//! Each file in `pg_test/server/mutants` is a fault in the SQL that these histories must find.

use postgres::{Client, Statement};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use snowflake_registry::{Reply, Request, Row};
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::{one, run};
use std::collections::BTreeSet;
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// In ticks, which are seconds.
const GRANT: i64 = 10;
const TOLERANCE: i64 = 2;
const WORKERS: i32 = 2;
const NODES: usize = 3;
const STEPS: usize = 50;
const BEGIN: i64 = 1_000;

/// What the functions read instead of the clock and the timeline, and each step of a history in one call.
const TOOLS: &str = "
CREATE FUNCTION fuzz_clock() RETURNS timestamptz LANGUAGE sql VOLATILE AS
    $$SELECT timestamptz '2024-01-01 00:00:00+00' + (current_setting('fuzz.clock')::bigint + 0.9) * interval '1 s'$$;
CREATE FUNCTION fuzz_state() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT format('fence %s before %s elsewhere %s:%s', r.fence, nullif(r.fence_before, r.fence),
        r.written_in <> snowflake_internal.snowflake_fleet_location(),
        (SELECT string_agg(format(' %s %s %s', right(g.node_id::text, 12), coalesce(g.until, 0), g.note), ','
            ORDER BY g.worker_id) FROM snowflake_internal.snowflake_registry_groups g))
    FROM snowflake_internal.snowflake_registry r
$$;
CREATE FUNCTION fuzz_contact(
    clock bigint, timeline bigint, node text, name text, number bigint, nonce text, leased integer, low bigint,
    high bigint, node_clock bigint,
    OUT told text, OUT worker integer, OUT granted_floor bigint, OUT granted_until bigint, OUT reason text, OUT state text)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('fuzz.clock', clock::text, false), set_config('fuzz.timeline', timeline::text, false);
    SELECT c.answer, c.worker_id, c.floor, c.until, c.reason INTO told, worker, granted_floor, granted_until, reason
    FROM snowflake_internal.snowflake_registry_contact(NULL, 1, node::uuid, name, number, nonce::uuid, leased, low, high,
        timestamptz '2024-01-01 00:00:00+00' + (node_clock + 0.9) * interval '1 s', '28/4/31', 1000,
        '2024-01-01 00:00:00+00', 7, 0, false, '1.0.0') AS c;
    state := fuzz_state();
END $$;
CREATE FUNCTION fuzz_operate(
    clock bigint, timeline bigint, call text, OUT outcome text, OUT passed bigint, OUT state text)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('fuzz.clock', clock::text, false), set_config('fuzz.timeline', timeline::text, false);
    BEGIN
        IF call ~ '_reserve' THEN
            -- The last tick that the reservation's server must have passed.
            EXECUTE 'SELECT extract(epoch FROM ' || call || ' - timestamptz ''2024-01-01 00:00:00+00'')::bigint - 1' INTO passed;
        ELSE
            EXECUTE 'SELECT ' || call;
        END IF;
        outcome := 'done';
    EXCEPTION WHEN SQLSTATE '55000' OR SQLSTATE '42704' THEN
        outcome := SQLSTATE;
    END;
    state := fuzz_state();
END $$;
CREATE FUNCTION fuzz_sync() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM copy_registry; DELETE FROM copy_groups; DELETE FROM copy_leases;
    INSERT INTO copy_registry SELECT * FROM snowflake_internal.snowflake_registry;
    INSERT INTO copy_groups SELECT * FROM snowflake_internal.snowflake_registry_groups;
    INSERT INTO copy_leases SELECT * FROM snowflake_internal.snowflake_registry_leases;
END $$;
CREATE FUNCTION fuzz_fail_over() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM snowflake_internal.snowflake_registry_groups; DELETE FROM snowflake_internal.snowflake_registry_leases;
    INSERT INTO snowflake_internal.snowflake_registry_groups SELECT * FROM copy_groups;
    INSERT INTO snowflake_internal.snowflake_registry_leases SELECT * FROM copy_leases;
    UPDATE snowflake_internal.snowflake_registry r SET (fence, fence_before, lost_after, written_in)
        = (SELECT c.fence, c.fence_before, c.lost_after, c.written_in FROM copy_registry c);
END $$;
CREATE FUNCTION fuzz_restore() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    place record;
BEGIN
    FOR place IN SELECT o.code FROM originals o LOOP
        EXECUTE place.code;
    END LOOP;
END $$;
CREATE TABLE copy_registry (LIKE snowflake_internal.snowflake_registry);
CREATE TABLE copy_groups (LIKE snowflake_internal.snowflake_registry_groups);
CREATE TABLE copy_leases (LIKE snowflake_internal.snowflake_registry_leases);
-- Replaces code in all functions of the extension that have it; how often.
CREATE FUNCTION fuzz_replace(prefix text, was text, becomes text) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    place record;
    times integer := 0;
BEGIN
    FOR place IN
        SELECT pg_get_functiondef(p.oid) AS code FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
        WHERE p.proname LIKE prefix AND l.lanname = 'plpgsql' AND position(was IN p.prosrc) > 0
    LOOP
        times := times + (length(place.code) - length(replace(place.code, was, ''))) / length(was);
        EXECUTE replace(place.code, was, becomes);
    END LOOP;
    RETURN times;
END $$;
";

/// A session, and what each step asks of it.
struct Registry {
    session: Client,
    contact: Statement,
    operate: Statement,
}

fn registry() -> (Server, Registry) {
    let server = Server::builder().without_library().start();
    let mut session = server.connect();
    run(&mut session, "CREATE ROLE node; CREATE EXTENSION snowflake_id");
    run(&mut session, TOOLS);
    for (was, becomes) in [
        ("clock_timestamp()", "public.fuzz_clock()"),
        (
            "('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint",
            "current_setting('fuzz.timeline')::bigint",
        ),
    ] {
        let replace = format!("SELECT fuzz_replace('snowflake\\_%', $f${was}$f$, $f${becomes}$f$)");
        assert!(one::<i32>(&mut session, &replace) > 0, "{was}");
    }
    run(&mut session, &format!("SET fuzz.clock = {BEGIN}; SET fuzz.timeline = 1"));
    run(
        &mut session,
        &format!(
            "SELECT snowflake_registry_create('node', '{GRANT} s', '28/4/31', '1 s',
                 backup_workers => 7, clock_tolerance => '{TOLERANCE} s')"
        ),
    );
    run(&mut session, "SET client_min_messages = error; SET log_min_messages = panic");
    let contact = "SELECT * FROM fuzz_contact($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let contact = session.prepare(contact).expect("the function");
    let operate = session.prepare("SELECT * FROM fuzz_operate($1, $2, $3)").expect("the function");
    (server, Registry { session, contact, operate })
}

/// Worker, floor and `until`.
type Lease = (i32, i64, i64);

/// An answer, and the lease that it grants.
type Told = (String, Option<Lease>);

#[derive(Clone, Debug)]
struct Contact {
    node: u64,
    name: usize,
    number: i64,
    nonce: u64,
    lease: Option<Lease>,
    clock: i64,
}

#[derive(Clone, Debug)]
struct Node {
    id: u64,
    name: usize,
    number: i64,
    lease: Option<Lease>,
    /// Its answer was lost.
    pending: Option<(i64, u64)>,
    offset: i64,
}

type Rules = snowflake_registry::Registry<i64, u64, { WORKERS as usize }>;

/// What is true of one copy of the registry.
#[derive(Clone, Debug, PartialEq)]
struct Truth {
    rules: Rules,
    /// The name that each group's node has or had.
    names: [usize; WORKERS as usize],
    /// The nodes that have or had a lease: each has one in its life.
    lives: BTreeSet<u64>,
    /// Of the contacts committed since the last copy was made, and of those that are lost, the latest of their earlier
    /// clocks.
    since: i64,
    lost: Option<i64>,
    /// Commits were lost before the doubt that is on.
    has_lost: bool,
    /// How many reservations were made.
    reservations: usize,
}

impl Truth {
    /// The answer of the rules, where a claim gets `worker`. The SQL gives a node no second lease in its life, and does
    /// not believe every `until`.
    fn answer(&mut self, request: &Request<i64, u64>, clock: i64, worker: Option<i32>) -> Option<Reply<i64>> {
        let rules = &mut self.rules;
        if rules.is_elsewhere {
            if !rules.can_find_out(request.clock, clock) {
                return None;
            }
            let latest = rules.latest(request.clock, clock);
            let has_lost = self.lost.take().is_some();
            self.has_lost = has_lost || self.has_lost && rules.is_in_doubt(latest + TOLERANCE);
            rules.find_out(request.clock, clock);
        }
        let own = rules.rows.iter().find(|row| row.node == request.node && row.is_running());
        let is_again = |row: &Row<i64, u64>| (row.number, row.nonce) == (request.number, request.nonce);
        let is_believed = |row: &Row<i64, u64>| {
            (row.floor..=row.until.max(clock + GRANT + TOLERANCE)).contains(&request.until)
        };
        let is_served =
            own.is_some_and(|row| if request.group == 0 { is_again(row) } else { is_believed(row) });
        if self.lives.contains(&request.node) && !is_served && request.clock <= clock + GRANT {
            return Some(Reply::Over);
        }
        let picks = worker.map_or(0..WORKERS, |worker| worker..worker + 1);
        let reply = { picks }.find_map(|worker| rules.answer(request, clock, worker as u8 + 1));
        if matches!(reply, Some(Reply::Granted { .. })) {
            self.since = self.since.max(request.clock.min(clock));
        }
        reply
    }

    /// What `fuzz_state` returns of it.
    fn state(&self) -> String {
        let Rules { rows, fence, before, is_elsewhere, .. } = &self.rules;
        let before = before.filter(|before| before != fence).map(|it| it.to_string()).unwrap_or_default();
        let row = |row: &Row<i64, u64>| {
            let node = if row.is_running() { format!("{:012x}", row.node) } else { String::new() };
            format!(" {node} {} {}", row.until, if row.is_reserved { "mine" } else { "" })
        };
        let elsewhere = if *is_elsewhere { "t" } else { "f" };
        format!("fence {fence} before {before} elsewhere {elsewhere}:{}", rows.each_ref().map(row).join(","))
    }
}

/// Everything that was ever granted; nobody forgets it.
#[derive(Clone, Debug)]
struct Granted {
    worker: i32,
    /// A node, or a reservation.
    holder: (u64, bool),
    floor: i64,
    until: i64,
}

struct History<'a> {
    registry: &'a mut Registry,
    random: StdRng,
    log: String,
    time: i64,
    offset: i64,
    timeline: i64,
    truth: Truth,
    copy: Truth,
    nodes: Vec<Node>,
    drawn: u64,
    strays: Vec<Contact>,
    granted: Vec<Granted>,
}

fn uuid(number: u64) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

impl History<'_> {
    fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.drawn
    }

    fn offset(&mut self) -> i64 {
        match self.random.random_range(0..10) {
            0..7 => self.random.random_range(-TOLERANCE / 2..=TOLERANCE / 2),
            7..9 => self.random.random_range(-GRANT..=GRANT),
            _ => self.random.random_range(-3 * GRANT..=3 * GRANT),
        }
    }

    fn clock(&self) -> i64 {
        self.time + self.offset
    }

    fn grant(&mut self, worker: i32, holder: (u64, bool), floor: i64, until: i64) -> Result<(), String> {
        for other in &self.granted {
            let is_same = other.holder == holder && other.floor == floor;
            if other.worker == worker && !is_same && other.floor < until && floor < other.until {
                return Err(format!(
                    "{holder:?} has worker {worker} from {floor} to {until}, and so has {other:?}"
                ));
            }
        }
        let known =
            self.granted.iter_mut().find(|g| g.worker == worker && g.holder == holder && g.floor == floor);
        match known {
            Some(known) => known.until = known.until.max(until),
            None => self.granted.push(Granted { worker, holder, floor, until }),
        }
        Ok(())
    }

    /// A contact reaches the registry; whether it was answered, and what.
    fn send(&mut self, contact: &Contact) -> Result<Option<Told>, String> {
        let clock = self.clock();
        let rules = &self.truth.rules;
        let finds_out = rules.is_elsewhere && rules.can_find_out(contact.clock, clock);
        // What the protocol does not protect from.
        if finds_out && rules.latest(contact.clock, clock) + TOLERANCE < self.truth.lost.unwrap_or_default() {
            return Ok(None);
        }
        let (node, nonce) = (uuid(contact.node), uuid(contact.nonce));
        let name = format!("node {}", contact.name);
        let (leased, low, high) = match contact.lease {
            Some((worker, floor, until)) => (Some(worker), Some(floor), Some(until)),
            None => (None, None, None),
        };
        let row = self.registry.session.query_one(
            &self.registry.contact,
            &[
                &clock,
                &self.timeline,
                &node,
                &name,
                &contact.number,
                &nonce,
                &leased,
                &low,
                &high,
                &contact.clock,
            ],
        );
        let row = row.map_err(|e| format!("{contact:?}: {e:?}"))?;
        let told: String = row.get("told");
        let lease = row
            .get::<_, Option<i32>>("worker")
            .map(|worker| (worker, row.get::<_, i64>("granted_floor"), row.get::<_, i64>("granted_until")));
        let reason: Option<String> = row.get("reason");
        let _ = writeln!(
            self.log,
            "{clock} {contact:?}: {told} {lease:?} {}",
            reason.as_deref().unwrap_or_default()
        );
        let Contact { node, number, nonce, clock: node_clock, .. } = *contact;
        let (worker, floor, until) = contact.lease.unwrap_or((-1, 0, 0));
        let group = (worker + 1) as u8;
        let request = Request { node, number, nonce, group, floor, until, clock: node_clock };
        let reply = self.truth.answer(&request, clock, lease.map(|lease| lease.0));
        let expected = match reply {
            Some(Reply::Granted { group, floor, until }) => {
                ("granted", Some((group as i32 - 1, floor, until)))
            }
            Some(Reply::Over) => ("over", None),
            None => ("refused", None),
        };
        if (told.as_str(), lease) != expected {
            return Err(format!("by the rules it is {expected:?}"));
        }
        self.compare(&row)?;
        if let Some((worker, floor, until)) = lease {
            self.truth.names[worker as usize] = contact.name;
            self.truth.lives.insert(node);
            self.grant(worker, (node, false), floor, until)?;
        }
        Ok(Some((told, lease)))
    }

    /// After a step, the tables are those of the rules.
    fn compare(&self, row: &postgres::Row) -> Result<(), String> {
        let (state, expected) = (row.get::<_, String>("state"), self.truth.state());
        if state == expected { Ok(()) } else { Err(format!("{state}\nby the rules it is\n{expected}")) }
    }

    fn contact(&mut self, at: usize) -> Result<(), String> {
        if self.nodes[at].pending.is_none() {
            self.nodes[at].number += 1;
            let nonce = self.draw();
            self.nodes[at].pending = Some((self.nodes[at].number, nonce));
        }
        let node = self.nodes[at].clone();
        let (number, nonce) = node.pending.expect("a contact");
        let contact = Contact {
            node: node.id,
            name: node.name,
            number,
            nonce,
            lease: node.lease,
            clock: self.time + node.offset,
        };
        if self.random.random_ratio(1, 6) {
            self.strays.push(contact.clone());
            if self.random.random_ratio(1, 2) {
                return Ok(());
            }
        }
        let Some((told, lease)) = self.send(&contact)? else { return Ok(()) };
        if self.random.random_ratio(1, 6) {
            return Ok(());
        }
        self.nodes[at].pending = None;
        match told.as_str() {
            "granted" => self.nodes[at].lease = lease,
            "over" => self.live_anew(at),
            _ => {}
        }
        Ok(())
    }

    /// Another node gets the worker as soon as it can, often just before a failover that loses it.
    fn hand_over(&mut self) -> Result<(), String> {
        let (from, to) = (self.random.random_range(0..NODES), self.random.random_range(0..NODES));
        let Some((.., until)) = self.nodes[from].lease.filter(|_| from != to) else { return Ok(()) };
        if self.random.random_ratio(2, 3) {
            self.sync();
        }
        self.live_anew(to);
        self.nodes[to].name = self.nodes[from].name;
        self.nodes[to].offset = self.offset + self.random.random_range(0..=1);
        self.time = self.time.max(until + 1 - self.offset);
        self.contact(to)?;
        if self.random.random_ratio(2, 3) {
            self.fail_over();
            for _ in 0..2 {
                let at = self.random.random_range(0..NODES);
                self.contact(at)?;
            }
            self.contact(from)?;
        }
        Ok(())
    }

    fn live_anew(&mut self, at: usize) {
        let id = self.draw();
        let Node { name, offset, .. } = self.nodes[at];
        self.nodes[at] = Node { id, name, number: 0, lease: None, pending: None, offset };
    }

    /// What nobody was granted, by a node that nobody knows.
    fn forge(&mut self) -> Result<(), String> {
        let (node, nonce) = (self.draw(), self.draw());
        let floor = self.time + self.random.random_range(-2 * GRANT..GRANT);
        let until = floor + self.random.random_range(1..2 * GRANT);
        let worker = self.random.random_range(0..WORKERS);
        let (clock, lease) = (self.time, Some((worker, floor, until)));
        let forged = Contact { node, name: 9, number: 99, nonce, lease, clock };
        let answer = self.send(&forged)?;
        match answer.is_some_and(|(told, _)| told == "granted") {
            true => Err("a forged lease was granted".to_owned()),
            false => Ok(()),
        }
    }

    /// An operator's call; the rules change as it does, if it is done. Returns the time of a reservation.
    fn operate(
        &mut self,
        call: &str,
        does: impl FnOnce(&mut Truth, i64),
    ) -> Result<Option<Option<i64>>, String> {
        let clock = self.clock();
        let row = self
            .registry
            .session
            .query_one(&self.registry.operate, &[&clock, &self.timeline, &call])
            .map_err(|e| format!("{call}: {e:?}"))?;
        let outcome: String = row.get("outcome");
        let _ = writeln!(self.log, "{clock} {call}: {outcome}");
        if outcome == "done" {
            does(&mut self.truth, clock);
        }
        self.compare(&row)?;
        Ok((outcome == "done").then(|| row.get("passed")))
    }

    fn retire(&mut self) -> Result<(), String> {
        let name = self.random.random_range(0..NODES);
        let call = format!("snowflake_registry_retire('node {name}')");
        let does = |truth: &mut Truth, _| {
            let groups = (1..=WORKERS as u8).zip(truth.names).filter(|(_, of)| *of == name);
            groups.for_each(|(group, _)| truth.rules.retire(group));
        };
        self.operate(&call, does).map(drop)
    }

    /// An operator vouches if it is true, of a failover and of a doubt that is on.
    fn vouch(&mut self) -> Result<(), String> {
        let Truth { rules, lost, has_lost, .. } = &self.truth;
        let is_on = rules.is_in_doubt(self.clock());
        if rules.is_elsewhere && lost.is_some() || is_on && *has_lost {
            return Ok(());
        }
        let does = |truth: &mut Truth, clock| {
            truth.lost = None;
            truth.rules.vouch(clock);
        };
        self.operate("snowflake_registry_vouch()", does).map(drop)
    }

    fn reserve(&mut self) -> Result<(), String> {
        let worker = self.random.random_range(0..WORKERS);
        let (at, clock) = (worker as usize, self.clock());
        let mut rules = self.truth.rules;
        let expected = rules.can_reserve(worker as u8 + 1, clock).then(|| rules.reserve(worker as u8 + 1));
        if self.truth.rules.rows[at].is_reserved {
            let does = |truth: &mut Truth, clock| {
                let row = &mut truth.rules.rows[at];
                (row.is_reserved, row.until) = (false, row.until.max(clock + GRANT));
                truth.since = truth.since.max(clock);
            };
            if self.operate(&format!("snowflake_registry_unreserve({worker})"), does)?.is_some() {
                let of_worker = self.granted.iter_mut().filter(|g| g.worker == worker && g.until == i64::MAX);
                of_worker.for_each(|g| g.until = clock + GRANT);
            }
        } else {
            let does = |truth: &mut Truth, clock| {
                let _ = truth.rules.reserve(worker as u8 + 1);
                truth.reservations += 1;
                truth.since = truth.since.max(clock);
            };
            let done = self.operate(&format!("snowflake_registry_reserve({worker}, 'mine')"), does)?;
            if done != expected {
                return Err(format!("{done:?}, by the rules {expected:?}"));
            }
            if let Some(passed) = done {
                let holder = self.draw();
                // That server begins when its own clock has passed the time, whatever the registry's says.
                self.grant(worker, (holder, true), passed.unwrap_or_default(), i64::MAX)?;
            }
        }
        Ok(())
    }

    fn fail_over(&mut self) {
        // What the protocol does not protect from: a reservation that is lost, even one that was ended.
        let reserved = |truth: &Truth| (truth.reservations, truth.rules.rows.map(|row| row.is_reserved));
        if reserved(&self.truth) != reserved(&self.copy) {
            return;
        }
        run(&mut self.registry.session, "SELECT fuzz_fail_over()");
        self.timeline += 1;
        let has_lost = self.truth.rules != self.copy.rules;
        let since = std::mem::replace(&mut self.truth, self.copy.clone()).since;
        self.truth.rules.is_elsewhere = true;
        if has_lost {
            self.truth.lost = Some(self.truth.lost.unwrap_or_default().max(since));
        }
        self.copy = self.truth.clone();
        self.offset = self.offset();
        // Often as late as the protocol allows: then one tick decides.
        if let Some(lost) = self.truth.lost.filter(|lost| *lost > 0)
            && self.random.random_ratio(2, 3)
        {
            self.offset = lost - TOLERANCE - self.time + self.random.random_range(0..=1);
            // Either of the two clocks is the later one.
            let apart = self.random.random_range(-TOLERANCE..=TOLERANCE);
            self.offset -= apart.max(0);
            let at = self.random.random_range(0..NODES);
            self.nodes[at].offset = self.offset + apart;
        }
        // Or before an earlier doubt was found out, whose fence counts on.
        let Rules { fence, before, .. } = self.truth.rules;
        if self.truth.lost.is_none() && before.is_some() && self.random.random_ratio(2, 3) {
            self.offset = fence - GRANT - TOLERANCE - self.random.random_range(1..=GRANT) - self.time;
            let at = self.random.random_range(0..NODES);
            self.nodes[at].offset = self.offset;
        }
        let _ = writeln!(self.log, "{} failover, lost {:?}", self.clock(), self.truth.lost);
    }

    fn sync(&mut self) {
        run(&mut self.registry.session, "SELECT fuzz_sync()");
        self.truth.since = 0;
        self.copy = self.truth.clone();
        let _ = writeln!(self.log, "sync");
    }

    fn step(&mut self) -> Result<(), String> {
        match self.random.random_range(0..100) {
            0..45 => {
                let at = self.random.random_range(0..NODES);
                self.contact(at)
            }
            45..48 => self.hand_over(),
            48..56 if !self.strays.is_empty() => {
                let at = self.random.random_range(0..self.strays.len());
                let stray = self.strays[at].clone();
                self.send(&stray).map(drop)
            }
            56..59 => self.forge(),
            59..63 => self.retire(),
            63..68 => self.reserve(),
            68..74 => self.vouch(),
            74..79 => {
                self.sync();
                Ok(())
            }
            79..83 => {
                self.fail_over();
                Ok(())
            }
            83..86 => {
                let at = self.random.random_range(0..NODES);
                self.nodes[at].offset = self.offset();
                Ok(())
            }
            86 => {
                self.offset = self.offset();
                Ok(())
            }
            87..90 => {
                let at = self.random.random_range(0..NODES);
                self.live_anew(at);
                Ok(())
            }
            90 => {
                // A clone: one voice.
                let (from, to) = (self.random.random_range(0..NODES), self.random.random_range(0..NODES));
                self.nodes[to] = self.nodes[from].clone();
                Ok(())
            }
            _ => {
                self.time += self.random.random_range(1..=GRANT);
                Ok(())
            }
        }
    }
}

/// What is wrong in the history of this seed, and the way there.
fn history(registry: &mut Registry, seed: u64) -> Option<String> {
    let random = StdRng::seed_from_u64(seed);
    let blank = Node { id: 0, name: 0, number: 0, lease: None, pending: None, offset: 0 };
    let rules = Rules { fence: BEGIN, ..Rules::new(GRANT, TOLERANCE) };
    let truth = Truth {
        rules,
        names: [NODES; WORKERS as usize],
        lives: BTreeSet::new(),
        since: 0,
        lost: None,
        has_lost: false,
        reservations: 0,
    };
    let mut history = History {
        registry,
        random,
        log: String::new(),
        time: BEGIN + 1 + TOLERANCE,
        offset: 0,
        timeline: 1,
        copy: truth.clone(),
        truth,
        nodes: vec![blank; NODES],
        drawn: 0,
        strays: Vec::new(),
        granted: Vec::new(),
    };
    run(&mut history.registry.session, "BEGIN; SELECT fuzz_sync()");
    for at in 0..NODES {
        history.nodes[at].offset = history.offset();
        history.nodes[at].name = at;
        history.live_anew(at);
    }
    let wrong = (0..STEPS).find_map(|_| history.step().err());
    let log = std::mem::take(&mut history.log);
    run(&mut registry.session, "ROLLBACK");
    wrong.map(|wrong| format!("FLEET_SEED={seed} FLEET_HISTORIES=1\n{log}{wrong}"))
}

#[test]
fn no_history_grants_one_tick_of_a_worker_to_two() {
    let (_server, mut registry) = registry();
    let number = |name: &str| env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let histories = number("FLEET_HISTORIES").unwrap_or(150);
    let began = Instant::now();
    // The same ones every time, and others.
    let random = rand::rng().random_range(1_000_000..u64::MAX / 2);
    for first in number("FLEET_SEED").map_or(vec![0, random], |seed| vec![seed]) {
        println!("FLEET_SEED={first} FLEET_HISTORIES={histories}");
        for seed in first..first + histories {
            if let Some(wrong) = history(&mut registry, seed) {
                panic!("{wrong}");
            }
        }
    }
    println!("{:?}", began.elapsed());
}

/// Each mutant has the shape of those of the core (scripts/mutants), with a function in the place of the file.
#[test]
fn every_mutant_of_the_sql_is_found() {
    let (_server, mut registry) = registry();
    run(
        &mut registry.session,
        "CREATE TABLE originals AS SELECT pg_get_functiondef(p.oid) AS code
         FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
         WHERE p.proname ~ '^snowflake_(fleet|registry)' AND l.lanname = 'plpgsql'",
    );
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutants");
    let mut files: Vec<_> =
        fs::read_dir(folder).expect("mutants").map(|file| file.expect("a file").path()).collect();
    files.sort();
    let histories =
        env::var("FLEET_HISTORIES").map_or(1_000, |histories| histories.parse().expect("a number"));
    let only = env::var("FLEET_MUTANT").unwrap_or_default();
    let mut missed = Vec::new();
    for file in files.iter().filter(|file| file.to_string_lossy().contains(&only)) {
        let text = fs::read_to_string(file).expect("a mutant");
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        let mut replaced = Vec::new();
        for part in text.split("<<<< ").skip(1) {
            let (function, part) = part.split_once('\n').expect("a function");
            let (was, part) = part.split_once("\n====\n").expect("what it was");
            let becomes = part.split_once("\n>>>>").expect("what it becomes").0;
            let (was, becomes) = (was.trim_start_matches('\n'), becomes);
            replaced.push((function.to_owned(), was.to_owned(), becomes.to_owned()));
        }
        assert!(!replaced.is_empty(), "{name}");
        let mut replace = |was: &str, becomes: &str, function: &str| -> i32 {
            let code = "SELECT fuzz_replace($1, $2, $3)";
            registry.session.query_one(code, &[&function, &was, &becomes]).expect("the function").get(0)
        };
        for (function, was, becomes) in &replaced {
            assert_eq!(replace(was, becomes, function), 1, "{name}: {was}");
        }
        let began = Instant::now();
        let found = (0..histories).find(|seed| history(&mut registry, *seed).is_some());
        println!("{name:40} {found:?} {:?}", began.elapsed());
        missed.extend(found.is_none().then_some(name));
        run(&mut registry.session, "SELECT fuzz_restore()");
    }
    assert!(missed.is_empty(), "no history found {missed:?}");
}
