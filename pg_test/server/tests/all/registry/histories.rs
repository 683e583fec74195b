//! Random histories against the registry's SQL functions: contacts lost, replayed and forged, leases that are given back, operators, failovers to
//! older copies, and clocks that say anything. No two nodes are granted one tick of one worker, whoever still knows of
//! the grant. `studies/fleet` explores the same protocol; this runs the code.
//!
//! Time is virtual: the functions read a clock and a timeline that the history sets. A history runs in one session, in a
//! transaction that is rolled back. Each has its own seed: `FLEET_SEED=7 FLEET_HISTORIES=1` repeats one, and
//! `FLEET_HISTORIES=20000` takes about an hour.
//!
//! Each file in `pg_test/server/mutants` is a fault in the SQL that these histories must find.

use postgres::{Client, Row, Statement};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::{one, run};
use std::collections::{BTreeMap, BTreeSet};
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
    $$SELECT timestamptz '2024-01-01 00:00:00+00' + current_setting('fuzz.clock')::bigint * interval '1 s'$$;
CREATE FUNCTION fuzz_contact(
    clock bigint, timeline bigint, node text, name text, number bigint, nonce text, leased integer, low bigint,
    high bigint, releases boolean, node_clock bigint, early bigint,
    OUT told text, OUT worker integer, OUT granted_floor bigint, OUT granted_until bigint, OUT reason text,
    OUT fence bigint, OUT is_doubt boolean, OUT is_elsewhere boolean, OUT ended_early boolean, OUT is_changed boolean)
LANGUAGE plpgsql AS $$
DECLARE
    was     record;
    becomes record;
    answer  record;
BEGIN
    PERFORM set_config('fuzz.clock', clock::text, false), set_config('fuzz.timeline', timeline::text, false);
    SELECT count(*) FILTER (WHERE g.node_id IS NOT NULL AND g.until >= early) AS running,
           string_agg(g::text, ';' ORDER BY g.worker_id) FILTER (WHERE g.until IS NOT NULL OR g.note IS NOT NULL) AS digest
    INTO was FROM snowflake_internal.snowflake_registry_groups g;
    SELECT * INTO answer FROM snowflake_registry_contact(NULL, node::uuid, name, number, nonce::uuid, leased, low, high, releases,
        timestamptz '2024-01-01 00:00:00+00' + node_clock * interval '1 s', '28/4/31', 1000,
        '2024-01-01 00:00:00+00', 7, 0, false, '1.0.0');
    told := answer.answer;
    worker := answer.worker_id;
    granted_floor := answer.floor;
    granted_until := answer.until;
    reason := answer.reason;
    SELECT r.fence, coalesce(r.fence_before <> r.fence, false), r.written_in <> snowflake_internal.snowflake_fleet_location()
    INTO fence, is_doubt, is_elsewhere
    FROM snowflake_internal.snowflake_registry r;
    SELECT count(*) FILTER (WHERE g.node_id IS NOT NULL AND g.until >= early) AS running,
           string_agg(g::text, ';' ORDER BY g.worker_id) FILTER (WHERE g.until IS NOT NULL OR g.note IS NOT NULL) AS digest
    INTO becomes FROM snowflake_internal.snowflake_registry_groups g;
    ended_early := becomes.running < was.running;
    is_changed := was.digest IS DISTINCT FROM becomes.digest;
END $$;
CREATE FUNCTION fuzz_operate(
    clock bigint, timeline bigint, call text, OUT state text, OUT fence bigint, OUT is_doubt boolean,
    OUT is_elsewhere boolean)
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('fuzz.clock', clock::text, false), set_config('fuzz.timeline', timeline::text, false);
    BEGIN
        EXECUTE 'SELECT ' || call;
        state := 'done';
    EXCEPTION WHEN SQLSTATE '55000' OR SQLSTATE '42704' THEN
        state := SQLSTATE;
    END;
    SELECT r.fence, coalesce(r.fence_before <> r.fence, false), r.written_in <> snowflake_internal.snowflake_fleet_location()
    INTO fence, is_doubt, is_elsewhere
    FROM snowflake_internal.snowflake_registry r;
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
    UPDATE snowflake_internal.snowflake_registry r SET (fence, fence_before, written_in)
        = (SELECT c.fence, c.fence_before, c.written_in FROM copy_registry c);
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
    let contact = "SELECT * FROM fuzz_contact($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
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
    releases: bool,
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

/// What is true of one copy of the registry.
#[derive(Clone, Debug, Default)]
struct Truth {
    /// Of the contacts committed since the last copy was made, and of those that are lost, the latest of their earlier
    /// clocks.
    since: i64,
    is_changed: bool,
    lost: Option<i64>,
    fence: i64,
    /// A doubt is on that no operator has vouched for, and whether commits were lost before it.
    is_doubt: bool,
    has_lost: bool,
    /// The last number and nonce of each node.
    accepted: BTreeMap<u64, (i64, u64)>,
    /// The lease of each node: it has one in its life.
    leases: BTreeMap<u64, (i32, i64)>,
    reserved: BTreeSet<i32>,
}

impl Truth {
    fn commit(&mut self, earlier: i64) {
        self.is_changed = true;
        self.since = self.since.max(earlier);
    }

    /// Whether a doubt that no operator has vouched for is on by this clock.
    fn is_on(&self, clock: i64) -> bool {
        self.is_doubt && clock <= self.fence
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
    is_elsewhere: bool,
    truth: Truth,
    copy: Truth,
    nodes: Vec<Node>,
    drawn: u64,
    strays: Vec<Contact>,
    granted: Vec<Granted>,
    /// Nodes that have given their lease back: whatever is granted to them later, no server uses.
    released: BTreeSet<u64>,
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
        if self.released.contains(&holder.0) {
            return Ok(());
        }
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
        let least = self.truth.lost.unwrap_or_default();
        // What the protocol does not protect from.
        if self.is_elsewhere
            && (contact.clock - clock).abs() <= TOLERANCE
            && contact.clock.max(clock) + TOLERANCE < least
        {
            return Ok(None);
        }
        // What no contact ends: a lease that runs by both clocks, or in a doubt by the tolerance.
        let early = contact.clock.min(clock) + if self.is_elsewhere { 2 * TOLERANCE } else { 0 };
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
                &contact.releases,
                &contact.clock,
                &early,
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
        let (was, is): (bool, bool) = (self.is_elsewhere, row.get("is_elsewhere"));
        if was && !is {
            // Both clocks have passed the last fence: who vouches from now on says nothing of what came before it.
            let is_over = self.truth.fence < contact.clock.max(clock) + TOLERANCE;
            let has_lost = self.truth.lost.take().is_some();
            self.truth.has_lost = has_lost || self.truth.has_lost && self.truth.is_doubt && !is_over;
        }
        self.follow(was, is, &row);
        if row.get::<_, bool>("ended_early") && !contact.releases {
            return Err("a lease was ended that runs by both clocks".to_owned());
        }
        if was && is && (told != "refused" || reason.as_deref() != Some("clock") || row.get("is_changed")) {
            return Err("a contact was served before the doubt".to_owned());
        }
        let is_changed: bool = row.get("is_changed");
        if told != "granted" && !contact.releases && was == is && is_changed {
            return Err("a contact that was not granted changed a row".to_owned());
        }
        let is_accepted = lease.is_some() || contact.releases && was == is && is_changed;
        if let Some((number, nonce)) = self.truth.accepted.get(&contact.node)
            && is_accepted
            && (contact.number < *number || contact.number == *number && contact.nonce != *nonce)
        {
            return Err("a stale contact was accepted".to_owned());
        }
        if is_accepted {
            self.truth.accepted.insert(contact.node, (contact.number, contact.nonce));
            self.truth.commit(contact.clock.min(clock));
        }
        if let Some((worker, floor, until)) = lease {
            let shown = contact.lease.map_or(0, |lease| lease.2);
            let known = self.granted.iter().filter(|g| g.worker == worker && g.holder.0 == contact.node);
            let most = known.map(|g| g.until).max().unwrap_or(0);
            if until < floor {
                return Err("a lease ends below its floor".to_owned());
            }
            // What a node that gave its lease back, perhaps unheard, is still told of it, no server uses.
            let is_used = !self.released.contains(&contact.node);
            if is_used && (until > most.max(shown).max(contact.clock.min(clock) + GRANT) || until < shown) {
                return Err(format!("until {until} is not what F5 allows"));
            }
            if *self.truth.leases.entry(contact.node).or_insert((worker, floor)) != (worker, floor) {
                return Err("a node has another lease in the same life".to_owned());
            }
            self.grant(worker, (contact.node, false), floor, until)?;
        }
        Ok(Some((told, lease)))
    }

    /// What a step has done to the registry's row.
    fn follow(&mut self, was: bool, is: bool, row: &Row) {
        let (fence, is_doubt) = (row.get("fence"), row.get("is_doubt"));
        self.truth.is_changed |= (was, self.truth.fence, self.truth.is_doubt) != (is, fence, is_doubt);
        (self.truth.fence, self.truth.is_doubt, self.is_elsewhere) = (fence, is_doubt, is);
        if was && !is {
            self.truth.accepted.clear();
        }
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
            releases: false,
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

    /// A node gives its lease back, or tries to: it uses nothing above the mark that it shows.
    fn release(&mut self, at: usize) -> Result<(), String> {
        let Node { id, name, number, lease, offset, .. } = self.nodes[at];
        let Some((worker, floor, until)) = lease else { return Ok(()) };
        // A copy of the node, which no server keeps a lease for, has given it back.
        if self.released.contains(&id) {
            self.live_anew(at);
            return Ok(());
        }
        let mark = self.random.random_range(floor..=until);
        let (nonce, clock) = (self.draw(), self.time + offset);
        let of_node = |g: &&mut Granted| g.holder == (id, false) && g.worker == worker && g.floor == floor;
        self.granted.iter_mut().filter(of_node).for_each(|g| g.until = mark);
        self.released.insert(id);
        let lease = Some((worker, floor, mark));
        let contact = Contact { node: id, name, number: number + 1, nonce, lease, releases: true, clock };
        self.live_anew(at);
        for _ in 0..self.random.random_range(0..3) {
            if let Some((told, _)) = self.send(&contact)?
                && told == "granted"
            {
                return Err("a lease that was given back was granted".to_owned());
            }
        }
        self.strays.push(contact);
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
        let releases = self.random.random_ratio(1, 4);
        let forged = Contact { node, name: 9, number: 99, nonce, lease, releases, clock };
        let answer = self.send(&forged)?;
        match answer.is_some_and(|(told, _)| told == "granted") {
            true => Err("a forged lease was granted".to_owned()),
            false => Ok(()),
        }
    }

    fn operate(&mut self, call: &str) -> Result<bool, String> {
        let clock = self.clock();
        let row = self
            .registry
            .session
            .query_one(&self.registry.operate, &[&clock, &self.timeline, &call])
            .map_err(|e| format!("{call}: {e:?}"))?;
        let state: String = row.get("state");
        let _ = writeln!(self.log, "{clock} {call}: {state}");
        let (was, is): (bool, bool) = (self.is_elsewhere, row.get("is_elsewhere"));
        if was && state == "done" && !call.contains("vouch") {
            return Err("an operator changed a worker before the doubt".to_owned());
        }
        self.follow(was, is, &row);
        self.truth.is_changed |= state == "done";
        Ok(state == "done")
    }

    /// An operator vouches if it is true, of a failover and of a doubt that is on.
    fn vouch(&mut self) -> Result<(), String> {
        let is_on = self.truth.is_on(self.clock());
        if self.is_elsewhere && self.truth.lost.is_some() || is_on && self.truth.has_lost {
            return Ok(());
        }
        self.operate("snowflake_registry_vouch()")?;
        self.truth.lost = None;
        if self.is_elsewhere || self.truth.is_on(self.clock()) {
            return Err("a vouch left a doubt".to_owned());
        }
        Ok(())
    }

    fn reserve(&mut self) -> Result<(), String> {
        let worker = self.random.random_range(0..WORKERS);
        let clock = self.clock();
        if self.truth.reserved.contains(&worker) {
            if self.operate(&format!("snowflake_registry_unreserve({worker})"))? {
                self.truth.reserved.remove(&worker);
                self.truth.commit(clock);
                let of_worker = self.granted.iter_mut().filter(|g| g.worker == worker && g.until == i64::MAX);
                of_worker.for_each(|g| g.until = clock + GRANT);
            }
        } else if self.operate(&format!("snowflake_registry_reserve({worker}, 'mine')"))? {
            self.truth.reserved.insert(worker);
            self.truth.commit(clock);
            let holder = self.draw();
            // That server's clock may be behind.
            self.grant(worker, (holder, true), clock - TOLERANCE - 1, i64::MAX)?;
        }
        Ok(())
    }

    fn fail_over(&mut self) {
        // What the protocol does not protect from: a reservation that is lost.
        if self.truth.reserved != self.copy.reserved {
            return;
        }
        run(&mut self.registry.session, "SELECT fuzz_fail_over()");
        self.timeline += 1;
        self.is_elsewhere = true;
        let (old, new) = (&self.truth, &mut self.copy);
        if old.is_changed {
            new.lost = Some(new.lost.unwrap_or_default().max(old.since));
        }
        self.truth = self.copy.clone();
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
        if self.truth.lost.is_none() && self.truth.is_doubt && self.random.random_ratio(2, 3) {
            self.offset =
                self.truth.fence - GRANT - TOLERANCE - self.random.random_range(1..=GRANT) - self.time;
            let at = self.random.random_range(0..NODES);
            self.nodes[at].offset = self.offset;
        }
        let _ = writeln!(self.log, "{} failover, lost {:?}", self.clock(), self.truth.lost);
    }

    fn sync(&mut self) {
        run(&mut self.registry.session, "SELECT fuzz_sync()");
        (self.truth.since, self.truth.is_changed) = (0, false);
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
            59..63 => {
                let call =
                    format!("snowflake_registry_retire('node {}')", self.random.random_range(0..NODES));
                self.operate(&call).map(drop)
            }
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
            91..93 => {
                let at = self.random.random_range(0..NODES);
                self.release(at)
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
    let mut history = History {
        registry,
        random,
        log: String::new(),
        time: BEGIN + 1 + TOLERANCE,
        offset: 0,
        timeline: 1,
        is_elsewhere: false,
        truth: Truth { fence: BEGIN, ..Truth::default() },
        copy: Truth { fence: BEGIN, ..Truth::default() },
        nodes: vec![blank; NODES],
        drawn: 0,
        strays: Vec::new(),
        granted: Vec::new(),
        released: BTreeSet::new(),
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

/// Histories that find most of the mutants, and so are tried first. They need not: any other may.
const FINDERS: [u64; 12] = [82, 8, 29, 44, 15, 142, 88, 54, 2, 30, 51, 234];

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
        let found =
            FINDERS.into_iter().chain(0..histories).find(|seed| history(&mut registry, *seed).is_some());
        println!("{name:40} {found:?} {:?}", began.elapsed());
        missed.extend(found.is_none().then_some(name));
        run(&mut registry.session, "SELECT fuzz_restore()");
    }
    assert!(missed.is_empty(), "no history found {missed:?}");
}
