//! Replication groups whose servers all have one `worker_id`: which servers are copies of one that may still run, which
//! are successors, and above which IDs a successor starts.

use snowflake_server_tests::ids::{Ids, worker};
use snowflake_server_tests::sql::{Failure, column, one, run, status, take, unpack};
use snowflake_server_tests::{Builder, Server, Stop, days, ms, secs, wait_until};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// IDs that run as far ahead of the clock as `ticks` allows: whole ticks, each by its first and its last ID. A server
/// that forgot them would generate them again.
fn burst_of(server: &Server, ticks: u32) -> Vec<i64> {
    let query = format!(
        "SELECT string_agg(int8send(r.first) || int8send(r.last), ''::bytea)
         FROM generate_series(1, {ticks}) AS i, snowflake_nextval_range(4096 + i % 1) AS r"
    );
    unpack(&one::<Vec<u8>>(&mut server.connect(), &query))
}

fn burst(server: &Server) -> Vec<i64> {
    burst_of(server, 2_100)
}

/// The IDs that a server generates within a few moments; none if it refuses.
fn try_for(server: &Server, limit: Duration) -> Vec<i64> {
    let began = std::time::Instant::now();
    let mut session = server.connect();
    let mut ids = Vec::new();
    while began.elapsed() < limit {
        match session.query_one("SELECT snowflake_nextval()", &[]) {
            Ok(row) => ids.push(row.get(0)),
            Err(e) => assert_eq!(Failure::from(&e).code, "55000", "{}", Failure::from(&e)),
        }
        std::thread::sleep(ms(5));
    }
    ids
}

/// Waits until a server generates IDs.
fn opens(server: &Server) -> Vec<i64> {
    let mut session = server.connect();
    wait_until("the first ID", secs(30), || {
        session.query_one("SELECT snowflake_nextval()", &[]).ok().map(|row| vec![row.get(0)])
    })
}

// ---- copies of servers that follow, or followed ----

/// The former role of a server that somebody started without recovery, beside the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Was {
    /// A standby.
    Standby,
    /// A `pg_basebackup` of a standby.
    Backup,
    /// A copy of a stopped standby's files.
    Files,
    /// The primary of the previous timeline, which has followed since a switchover.
    Primary,
    /// A standby without a state file, because it was cloned before the first ID.
    Stateless,
}

/// A layout with few ticks, which are used up soon once enough IDs are ahead of the clock.
const FEW: u32 = 300;

/// A primary, and a stopped server that follows it at its next start.
struct Group {
    primary: Server,
    follower: Server,
    ids: Ids,
}

/// Servers that find each other quickly, even after a switchover.
fn in_group(builder: Builder) -> Builder {
    builder.setting("wal_keep_size", "1GB").setting("wal_retrieve_retry_interval", "100ms")
}

/// Servers that hand over to each other until `timeline`, and one that always follows.
fn group(was: Was, timeline: usize) -> Group {
    let mut ids = Ids::new();
    let builder = in_group(Server::builder());
    let is_stateless = was == Was::Stateless;
    let mut primary = match is_stateless {
        true => builder.without("snowflake_id.worker_id").start(),
        false => builder.start_with_extension(),
    };
    if is_stateless {
        run(&mut primary.connect(), "CREATE EXTENSION snowflake_id");
    }
    let mut standby = (timeline > 1).then(|| primary.standby(|builder| builder));
    let mut third = (was != Was::Primary).then(|| primary.standby(|builder| builder));
    if is_stateless {
        for server in [&mut primary].into_iter().chain(&mut standby).chain(&mut third) {
            assert!(!server.data().join("snowflake_id").exists(), "there is a state already");
            server.set("snowflake_id.worker_id", "1");
            server.restart();
        }
    }
    ids.add("timeline 1", opens(&primary));
    ids.add("timeline 1", burst(&primary));
    for number in 2..=timeline {
        let successor = standby.as_mut().expect("a server to hand over to");
        let mut others: Vec<&mut Server> = third.iter_mut().collect();
        primary.hand_over(successor, &mut others);
        std::mem::swap(&mut primary, successor);
        ids.add(format!("timeline {number}"), opens(&primary));
        ids.add(
            format!("timeline {number}"),
            burst_of(&primary, if number == timeline { 2_100 } else { FEW }),
        );
        run(&mut primary.connect(), &format!("CREATE TABLE of_timeline_{number} ()"));
        standby.iter().chain(&third).for_each(|server| server.catch_up_with(&primary));
    }
    let mut follower = third.or(standby).expect("a server that follows");
    follower.restartpoint_with(&primary);
    let mut follower = match was {
        Was::Backup => follower.backup(),
        Was::Files => follower.copy(),
        Was::Standby | Was::Primary | Was::Stateless => {
            follower.stop(Stop::Fast);
            follower
        }
    };
    follower.follow(&primary);
    Group { primary, follower, ids }
}

impl Group {
    /// Asks both for IDs at once. No ID repeats, and the follower's gate is closed.
    #[track_caller]
    fn is_closed(&mut self, when: &str) {
        let (mut of_primary, mut of_follower) = (Vec::new(), Vec::new());
        std::thread::scope(|scope| {
            let primary = scope.spawn(|| burst_of(&self.primary, FEW));
            of_follower = try_for(&self.follower, ms(300));
            if !of_follower.is_empty() {
                of_follower.extend(burst_of(&self.follower, FEW));
            }
            of_primary = primary.join().expect("IDs");
        });
        self.ids.add(format!("the primary, {when}"), of_primary);
        self.ids.add(format!("the follower, {when}"), of_follower.clone());
        self.ids.assert_unique();
        let status = status(&mut self.follower.connect());
        assert_eq!((status.state.as_str(), of_follower.len()), ("closed", 0), "{when}: {status:?}");
        let reason = status.reason.as_deref().unwrap_or_default();
        let is_told = reason.contains("copy") || reason.contains("another server may be generating");
        assert!(is_told, "{when}: {status:?}");
    }

    /// Asserts that both generate IDs, and none twice.
    #[track_caller]
    fn are_open(&mut self, when: &str) {
        self.ids.add(format!("the follower, {when}"), opens(&self.follower));
        let (of_primary, of_follower) = std::thread::scope(|scope| {
            let primary = scope.spawn(|| burst_of(&self.primary, FEW));
            let of_follower = burst_of(&self.follower, FEW);
            (primary.join().expect("IDs"), of_follower)
        });
        self.ids.add(format!("the primary, {when}"), of_primary);
        self.ids.add(format!("the follower, {when}"), of_follower);
        self.ids.assert_unique();
    }
}

/// Started without recovery beside its primary, a server is a copy, however often it is started.
fn is_a_copy_beside_its_primary(was: Was, timeline: usize) -> Group {
    let mut group = group(was, timeline);
    group.follower.stand_alone();
    group.follower.start();
    assert!(!one::<bool>(&mut group.follower.connect(), "SELECT pg_is_in_recovery()"));
    group.is_closed("started first");
    group.follower.restart();
    group.is_closed("started again");
    group.follower.crash();
    group.follower.start();
    group.is_closed("after a crash");
    group
}

/// If it is promoted, the same server is its primary's successor: it opens by itself, even after a restart.
fn succeeds_its_primary(was: Was, timeline: usize) {
    let mut group = group(was, timeline);
    group.follower.start();
    group.follower.catch_up_with(&group.primary);
    group.follower.promote();
    group.are_open("promoted");
    group.follower.restart();
    group.are_open("promoted and restarted");
    group.follower.crash();
    group.follower.start();
    group.are_open("promoted and crashed");
}

// What PostgreSQL says of a server depends on its role, and of its timeline only the depth counts. That the generator does
// right at every depth, and what opens a copy, is for the core's tests.

/// It generates IDs with a worker of its own, or once an operator vouches that the primary is gone.
#[test]
fn a_standby_started_alone_is_a_copy() {
    let mut group = is_a_copy_beside_its_primary(Was::Standby, 1);
    // The first way out that the message names. The state cannot know which workers other servers have by now, so an
    // operator vouches for each.
    group.follower.set("snowflake_id.worker_id", "2");
    group.follower.restart();
    group.is_closed("with a worker for which nobody has vouched");
    run(&mut group.follower.connect(), "SELECT snowflake_adopt()");
    group.are_open("with a worker of its own");
    group.follower.restart();
    group.are_open("with a worker of its own, started again");
    group.follower.set("snowflake_id.worker_id", "1");
    group.follower.restart();
    group.is_closed("with the primary's worker again");
    // The other way.
    let Group { mut primary, mut follower, mut ids } = group;
    primary.stop(Stop::Fast);
    run(&mut follower.connect(), "SELECT snowflake_adopt()");
    ids.add("adopted", opens(&follower));
    ids.add("adopted", burst_of(&follower, FEW));
    follower.restart();
    ids.add("adopted, started again", opens(&follower));
    ids.add("adopted, started again", burst_of(&follower, FEW));
    ids.assert_unique();
}

#[test]
fn a_standby_promoted_is_a_successor() {
    succeeds_its_primary(Was::Standby, 1);
}

#[test]
fn a_backup_of_a_standby_is_a_copy() {
    is_a_copy_beside_its_primary(Was::Backup, 1);
}

#[test]
fn a_backup_of_a_standby_promoted_is_a_successor() {
    succeeds_its_primary(Was::Backup, 1);
}

#[test]
fn a_copy_of_a_standbys_files_is_a_copy() {
    is_a_copy_beside_its_primary(Was::Files, 1);
}

#[test]
fn an_old_primary_started_alone_is_a_copy() {
    is_a_copy_beside_its_primary(Was::Primary, 2);
}

#[test]
fn an_old_primary_promoted_is_a_successor() {
    succeeds_its_primary(Was::Primary, 2);
}

#[test]
fn a_standby_without_a_state_is_a_copy() {
    is_a_copy_beside_its_primary(Was::Stateless, 2);
}

#[test]
fn a_standby_without_a_state_promoted_is_a_successor() {
    succeeds_its_primary(Was::Stateless, 2);
}

/// A standby's record knows the workers that were configured when it was started alone. Its primary's need not be among
/// them.
#[test]
fn a_standby_without_a_state_is_a_copy_under_the_worker_that_it_gets_later_too() {
    let mut group = group(Was::Stateless, 1);
    group.follower.stand_alone();
    group.follower.set("snowflake_id.worker_id", "2");
    group.follower.start();
    group.is_closed("with a worker of its own");
    group.follower.set("snowflake_id.worker_id", "1");
    group.follower.restart();
    group.is_closed("with the primary's");
}

/// Afterwards its control file says that it was a primary, shut down cleanly.
#[test]
fn a_standby_without_a_state_whose_wal_was_reset_is_a_copy() {
    let mut group = group(Was::Stateless, 1);
    group.follower.stand_alone();
    group.follower.tool("pg_resetwal", &["--force", "-D", "data"]);
    group.follower.start();
    assert!(!one::<bool>(&mut group.follower.connect(), "SELECT pg_is_in_recovery()"));
    group.is_closed("started first");
    group.follower.restart();
    group.is_closed("started again");
}

/// A drill has taken the number of the next timeline, so the successor's number is odd, as its primary's.
#[test]
fn an_old_primary_and_its_successor_share_no_worker_though_drills_took_timelines() {
    let archive = snowflake_server_tests::faults::new_folder();
    let path = archive.display();
    let builder = in_group(Server::builder())
        .setting("archive_mode", "on")
        .setting("archive_command", &format!("cp %p {path}/%f.new && mv {path}/%f.new {path}/%f"));
    let primary = builder.start_with_extension();
    let standby = primary.standby(|builder| builder.setting("restore_command", &format!("cp {path}/%f %p")));
    let mut drill = primary.backup();
    drill.recover();
    wait_until("the drill's timeline in the archive", secs(30), || {
        archive.join("00000002.history").exists().then_some(())
    });
    drill.stop(Stop::Fast);
    // To the lane on which the third timeline starts.
    run(&mut primary.connect(), "SELECT snowflake_rotate()");
    let mut ids = Ids::new();
    ids.add("the primary", opens(&primary));
    // A standby that had replayed no more than the drill would go on along the drill's timeline.
    run(&mut primary.connect(), "CREATE TABLE since_the_drill ()");
    standby.catch_up_with(&primary);
    standby.promote();
    ids.add("its successor", opens(&standby));
    let timeline = "SELECT timeline_id FROM pg_control_checkpoint()";
    run(&mut standby.connect(), "CHECKPOINT");
    assert_eq!(one::<i32>(&mut standby.connect(), timeline), 3);
    let mut group = Group { primary, follower: standby, ids };
    let half = "SELECT worker_id FROM snowflake_workers WHERE in_half";
    let of_primary: Vec<i32> = column(&mut group.primary.connect(), half);
    let of_successor: Vec<i32> = column(&mut group.follower.connect(), half);
    let shared = of_primary.iter().filter(|worker| of_successor.contains(worker)).collect::<Vec<_>>();
    // Above the floor with which the new timeline began.
    std::thread::sleep(secs(4));
    group.are_open("both at once");
    assert!(shared.is_empty(), "both may use the workers {shared:?}");
    group.follower.restart();
    group.are_open("after a restart");
}

// ---- above which IDs a successor starts ----

/// A primary of which all workers may be used, and its standby, 60 s later: the standby's clock is then 40 s behind.
/// With no backup workers, a successor continues on its primary's worker.
fn lagging_pair(builder: Builder, standby: impl FnOnce(&Server) -> Server) -> (Server, Server) {
    let builder = builder.setting("snowflake_id.backup_workers", "0").born(days(400));
    let primary = builder.start_with_extension();
    primary.step_forward(days(400));
    run(&mut primary.connect(), "CREATE TABLE made (id bigint PRIMARY KEY DEFAULT snowflake_nextval())");
    let standby = standby(&primary);
    primary.step_forward(secs(60));
    standby.step_forward(secs(20));
    (primary, standby)
}

const FILL: &str = "INSERT INTO made SELECT FROM generate_series(1, 100000)";

/// Asserts that all IDs of the promoted server are above its primary's, whether the clock stays as it is or is nearly
/// right.
#[track_caller]
fn starts_above(standby: &Server, mut before: Ids) {
    let newest = *before.assert_unique().last().expect("IDs");
    let early = try_for(standby, secs(3));
    assert!(early.iter().all(|id| *id > newest), "{} IDs lie below the primary's", early.len());
    before.add("promoted, its clock behind", early);
    standby.step_forward(ms(39_500));
    let mut session = standby.connect();
    wait_until("rows", secs(20), || match session.batch_execute(FILL) {
        Ok(()) => Some(()),
        Err(e) => {
            let failure = Failure::from(&e);
            assert_eq!(failure.code, "55000", "{failure}");
            None
        }
    });
    before.add("promoted", burst(standby));
    before.assert_unique();
    let rows: Vec<i64> = column(&mut session, "SELECT id FROM made");
    assert!(rows.iter().filter(|id| **id > newest).count() >= 20_000);
}

/// The restart begins after the last commit, so it knows nothing of that.
#[test]
fn a_standby_restarted_before_its_promotion_starts_above_what_it_had_replayed() {
    let (mut primary, mut standby) =
        lagging_pair(Server::builder(), |primary| primary.standby(|builder| builder));
    let mut ids = Ids::new();
    run(&mut primary.connect(), FILL);
    ids.add("the primary", column(&mut primary.connect(), "SELECT id FROM made"));
    standby.restartpoint_with(&primary);
    standby.stop(Stop::Fast);
    standby.start();
    standby.catch_up_with(&primary);
    let replayed: Option<String> =
        one(&mut standby.connect(), "SELECT pg_last_xact_replay_timestamp()::text");
    assert_eq!(replayed, None, "the restart was to begin after the last commit");
    primary.stop(Stop::Fast);
    standby.promote();
    starts_above(&standby, ids);
}

/// The newest ID is in a transaction that is prepared on the primary and committed by its successor.
fn a_prepared_transaction_is_respected(
    builder: Builder,
    standby: impl FnOnce(&Server) -> Server,
    is_restarted: bool,
    is_asked_first: bool,
) {
    let builder = builder.setting("max_prepared_transactions", "5");
    let (mut primary, mut standby) = lagging_pair(builder, standby);
    let mut ids = Ids::new();
    let mut session = primary.connect();
    // The newest is neither the first of all nor the last.
    let older = "BEGIN; CREATE TABLE older AS SELECT snowflake_nextval() AS id; PREPARE TRANSACTION 'older'";
    run(&mut session, older);
    run(&mut session, "BEGIN");
    run(&mut session, FILL);
    ids.add("the primary", column(&mut session, "SELECT id FROM made"));
    run(&mut session, "PREPARE TRANSACTION 'newest'");
    run(&mut session, "BEGIN; LOCK TABLE pg_class IN ACCESS SHARE MODE; PREPARE TRANSACTION 'without'");
    drop(session);
    // An archive has whole segments only, and none of them may contain a later time.
    let prepared: String = one(&mut primary.connect(), "SELECT pg_current_wal_lsn()::text");
    run(&mut primary.connect(), "SELECT pg_switch_wal()");
    standby.wait_for_replay_to(&prepared);
    if is_restarted {
        standby.restartpoint_with(&primary);
        standby.stop(Stop::Fast);
        standby.start();
        standby.catch_up_with(&primary);
    }
    primary.stop(Stop::Immediate);
    standby.promote();
    if is_asked_first {
        let newest = *ids.assert_unique().last().expect("IDs");
        let early = try_for(&standby, secs(1));
        assert!(early.iter().all(|id| *id > newest), "{} IDs lie below the primary's", early.len());
    }
    run(&mut standby.connect(), "COMMIT PREPARED 'newest'");
    starts_above(&standby, ids);
}

#[test]
fn a_transaction_that_was_prepared_on_the_primary_is_respected() {
    for is_restarted in [false, true] {
        let standby = |primary: &Server| primary.standby(|builder| builder);
        a_prepared_transaction_is_respected(Server::builder(), standby, is_restarted, true);
    }
}

/// Nobody asks for an ID before the commit, and after it nothing tells when the transaction was prepared.
#[test]
fn a_prepared_transaction_that_is_committed_before_the_first_id_is_respected() {
    let standby = |primary: &Server| primary.standby(|builder| builder);
    a_prepared_transaction_is_respected(Server::builder(), standby, false, false);
}

#[test]
fn a_prepared_transaction_is_respected_by_a_standby_that_has_an_archive_only() {
    let archive = snowflake_server_tests::faults::new_folder();
    let path = archive.display();
    let builder = Server::builder()
        .setting("archive_mode", "on")
        .setting("archive_command", &format!("cp %p {path}/%f.new && mv {path}/%f.new {path}/%f"));
    let standby = |primary: &Server| from_archive(primary, &archive);
    a_prepared_transaction_is_respected(builder, standby, false, true);
}

/// A standby that never connects to its primary.
fn from_archive(primary: &Server, archive: &Path) -> Server {
    let mut standby = primary.backup();
    let signal = standby.data().join("standby.signal");
    fs::write(&signal, "").expect("it can be written");
    snowflake_server_tests::faults::own(&signal);
    standby.set("restore_command", &format!("cp {}/%f %p", archive.display()));
    standby.set("archive_mode", "off");
    standby.set("wal_retrieve_retry_interval", "100ms");
    standby.start();
    standby
}

/// A primary with a `max_ahead` of a minute has IDs that far ahead of the clock.
const AHEAD: u32 = 58_000;

/// Its successor, with the default of 2 s, generates none of them again, neither at once nor when the clock reaches
/// them.
#[track_caller]
fn starts_above_those_ahead(successor: &Server, mut ids: Ids) {
    let newest = *ids.assert_unique().last().expect("IDs");
    let of_worker = worker(newest);
    let early = try_for(successor, secs(5));
    ids.add("at once", early.clone());
    if !early.is_empty() {
        ids.add("at once", burst(successor));
    }
    ids.assert_unique();
    let below = early.iter().filter(|id| worker(**id) == of_worker && **id <= newest).count();
    assert_eq!(below, 0, "of {} IDs that lie below the old primary's newest", early.len());
    successor.step_forward(secs(30));
    ids.add("half a minute later", try_for(successor, secs(1)));
    successor.step_forward(secs(35));
    ids.add("a minute later", opens(successor));
    ids.add("a minute later", burst(successor));
    ids.assert_unique();
}

fn runs_ahead(builder: Builder) -> Server {
    let mut primary = builder.born(days(400)).start_with_extension();
    primary.step_forward(days(400));
    // Not from the first start on, because that waits until no ID is ahead of the clock.
    primary.set("snowflake_id.max_ahead", "60s");
    primary.restart();
    opens(&primary);
    primary
}

#[test]
fn a_smaller_max_ahead_on_the_successor_repeats_nothing_without_backup_workers() {
    let mut primary = runs_ahead(Server::builder().setting("snowflake_id.backup_workers", "0"));
    let standby = primary.standby(|builder| builder.setting("snowflake_id.max_ahead", "2s"));
    let mut ids = Ids::new();
    ids.add("the primary", burst_of(&primary, AHEAD));
    run(&mut primary.connect(), "CREATE TABLE last_commit ()");
    standby.catch_up_with(&primary);
    primary.stop(Stop::Fast);
    standby.promote();
    starts_above_those_ahead(&standby, ids);
}

/// The standby was copied before the first change. It knows the other settings only because it ran with them.
#[test]
fn settings_that_the_whole_group_had_for_a_while_repeat_nothing() {
    let set = |server: &mut Server, backups: &str, max_ahead: &str| {
        server.set("snowflake_id.backup_workers", backups);
        server.set("snowflake_id.max_ahead", max_ahead);
        server.restart();
    };
    let builder = in_group(Server::builder()).setting("snowflake_id.backup_workers", "3");
    let mut primary = builder.born(days(400)).start_with_extension();
    primary.step_forward(days(400));
    let mut standby = primary.standby(|builder| builder);
    let mut ids = Ids::new();
    ids.add("at first", opens(&primary));
    set(&mut primary, "7", "60s");
    set(&mut standby, "7", "60s");
    ids.add("with other settings", opens(&primary));
    // With 3 backup workers it is the successor's first.
    assert_eq!(one::<i32>(&mut primary.connect(), "SELECT snowflake_rotate()::integer"), 257);
    ids.add("with other settings", burst_of(&primary, AHEAD));
    run(&mut primary.connect(), "CREATE TABLE last_commit ()");
    standby.catch_up_with(&primary);
    primary.stop(Stop::Fast);
    set(&mut standby, "3", "2s");
    standby.promote();
    starts_above_those_ahead(&standby, ids);
}

#[test]
fn a_smaller_max_ahead_on_the_third_timeline_repeats_nothing() {
    let mut first = runs_ahead(in_group(Server::builder()));
    let second = first.standby(|builder| builder);
    let mut third = first.standby(|builder| builder.setting("snowflake_id.max_ahead", "2s"));
    let mut ids = Ids::new();
    // The worker on which the third timeline starts.
    run(&mut first.connect(), "SELECT snowflake_rotate()");
    ids.add("the first", burst_of(&first, AHEAD));
    run(&mut first.connect(), "CREATE TABLE last_commit ()");
    first.hand_over(&second, &mut [&mut third]);
    run(&mut second.connect(), "CREATE TABLE of_the_second ()");
    third.catch_up_with(&second);
    let mut second = second;
    second.stop(Stop::Fast);
    third.promote();
    starts_above_those_ahead(&third, ids);
}

/// The time that a promoted server needs, with equal settings and a correct clock: no longer than before.
#[test]
fn a_plain_promotion_opens_within_seconds_on_any_timeline() {
    let mut group = group(Was::Standby, 3);
    group.follower.start();
    group.follower.catch_up_with(&group.primary);
    group.primary.stop(Stop::Fast);
    group.follower.promote();
    let began = std::time::Instant::now();
    group.ids.add("promoted", opens(&group.follower));
    assert!(began.elapsed() < secs(6), "{:?}", began.elapsed());
    group.ids.add("promoted", take(&mut group.follower.connect(), 1_000));
    group.ids.assert_unique();
}
