//! Standbys: one generates no ID before its promotion. In groups whose servers all have one `worker_id`, on one host: which
//! servers are copies, which are successors, when they open, and above which IDs a successor starts.

use snowflake_server_tests::ids::{Ids, assert_ascending, worker};
use snowflake_server_tests::refusals::all_fail;
use snowflake_server_tests::refusals::assert_closed;
use snowflake_server_tests::sql::{
    Failure, column, fails, next, one, run, status, take, take_ticks, wait_for_id,
};
use snowflake_server_tests::{Builder, Server, Stop, days, ms, secs, wait_until};
use std::time::Duration;

/// IDs that run as far ahead of the clock as `ticks` allows: whole ticks, each by its first and its last ID. A server
/// that forgot them would generate them again.
fn burst_of(server: &Server, ticks: u32) -> Vec<i64> {
    take_ticks(&mut server.connect(), ticks)
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
    vec![wait_for_id(&mut server.connect())]
}

#[test]
fn a_standby_makes_no_ids_until_it_is_promoted() {
    let primary = Server::builder().start_with_extension();
    let mut ids = Ids::new();
    ids.add("the primary, before", take(&mut primary.connect(), 1_000));
    // A worker of its own, as the manual asks for.
    let standby = primary.standby(|settings| settings.setting("snowflake_id.worker_id", "2"));
    let mut session = standby.connect();
    all_fail(&mut session, "25006", &["DETAIL: A standby cannot generate", "HINT: Run the statement"]);
    for call in ["SELECT snowflake_rotate()", "SELECT snowflake_adopt()"] {
        fails(&mut session, "25006", call);
    }
    let now = status(&mut session);
    assert_eq!(now.state, "recovery");
    assert!(now.reason.is_some_and(|reason| !reason.is_empty()));
    assert_eq!(now.issued, 0);
    // Reading works.
    let id = next(&mut primary.connect());
    assert_eq!(one::<i32>(&mut session, &format!("SELECT snowflake_worker({id})")), 1);

    standby.promote();
    let made = take(&mut session, 1_000);
    assert_ascending("the promoted standby", &made);
    // Timeline 2 starts on lane 1.
    assert!(made.iter().all(|id| worker(*id) == 2 + 256), "{}", worker(made[0]));
    ids.add("the promoted standby", made);
    let now = status(&mut session);
    assert_eq!((now.state.as_str(), now.lane, now.worker_id), ("open", Some(1), Some(258)), "{now:?}");
    standby.wait_for_line("It is lane 1 of home worker 2: successive timelines start on", secs(30));
    ids.add("the primary, after", take(&mut primary.connect(), 1_000));
    ids.assert_unique();
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
    #[track_caller]
    fn is_closed(&self, message: &str) {
        assert_closed(&self.follower, message);
    }

    /// Asserts that the follower generates IDs, and none twice.
    #[track_caller]
    fn is_open(&mut self, when: &str) {
        self.ids.add(format!("the follower, {when}"), opens(&self.follower));
        self.ids.add(format!("the follower, {when}"), burst_of(&self.follower, FEW));
        self.ids.assert_unique();
    }

    #[track_caller]
    fn primary_goes_on(&mut self) {
        self.ids.add("the primary, on", burst_of(&self.primary, FEW));
    }
}

const TAKEN: &str = "another server on this host generates IDs with this worker";
const COPY: &str = "this data directory is a copy";

/// Started without recovery, a server that has its primary's state is a copy, however often it is started.
fn is_a_copy(was: Was) -> Group {
    let mut group = group(was, 1);
    group.follower.stand_alone();
    group.follower.start();
    assert!(!one::<bool>(&mut group.follower.connect(), "SELECT pg_is_in_recovery()"));
    group.is_closed(TAKEN);
    group.primary_goes_on();
    group.primary.stop(Stop::Fast);
    group.follower.restart();
    group.is_closed(COPY);
    group.follower.crash();
    group.follower.start();
    group.is_closed(COPY);
    group
}

/// If it is promoted, the same server is its primary's successor: it opens by itself once that is gone, even after a restart.
fn succeeds_its_primary(was: Was, timeline: usize) {
    let mut group = group(was, timeline);
    group.follower.start();
    group.follower.catch_up_with(&group.primary);
    group.follower.promote();
    group.is_closed(TAKEN);
    group.primary_goes_on();
    group.primary.stop(Stop::Fast);
    group.is_open("promoted");
    group.follower.restart();
    group.is_open("promoted and restarted");
    group.follower.crash();
    group.follower.start();
    group.is_open("promoted and crashed");
}

// What PostgreSQL says of a server depends on its role, and of its timeline only the depth counts. That the generator does
// right at every depth, and what opens a copy, is for the core's tests.

/// It generates IDs with a worker of its own, or once an operator vouches that the primary is gone.
#[test]
fn a_standby_started_alone_is_a_copy() {
    let mut group = is_a_copy(Was::Standby);
    group.follower.set("snowflake_id.worker_id", "2");
    group.follower.restart();
    group.is_open("with a worker of its own");

    let mut group = is_a_copy(Was::Standby);
    run(&mut group.follower.connect(), "SELECT snowflake_adopt()");
    group.is_open("adopted");
    group.follower.restart();
    group.is_open("adopted, started again");
}

#[test]
fn a_standby_promoted_is_a_successor() {
    succeeds_its_primary(Was::Standby, 1);
}

/// Its control file has a checkpoint of the timeline before, and the newer one only as that of the WAL that it has replayed.
#[test]
fn a_standby_started_alone_soon_after_a_switchover_is_a_copy() {
    let mut first = in_group(Server::builder()).start_with_extension();
    let (mut second, mut third) = (first.standby(|builder| builder), first.standby(|builder| builder));
    opens(&first);
    first.stop(Stop::Fast);
    second.promote();
    third.follow_now(&second);
    opens(&second);
    // The removal of a file is replayed only after the control file has the position.
    run(&mut second.connect(), "CREATE TABLE t (); DROP TABLE t");
    third.catch_up_with(&second);
    third.stop(Stop::Immediate);
    second.stop(Stop::Fast);
    third.stand_alone();
    third.start();
    assert_closed(&third, COPY);
}

#[test]
fn a_backup_of_a_standby_is_a_copy() {
    is_a_copy(Was::Backup);
}

#[test]
fn a_backup_of_a_standby_promoted_is_a_successor() {
    succeeds_its_primary(Was::Backup, 1);
}

#[test]
fn a_copy_of_a_standbys_files_is_a_copy() {
    is_a_copy(Was::Files);
}

#[test]
fn an_old_primary_promoted_is_a_successor() {
    succeeds_its_primary(Was::Primary, 2);
}

#[test]
fn a_standby_without_a_state_promoted_is_a_successor() {
    succeeds_its_primary(Was::Stateless, 2);
}

// ---- above which IDs a successor starts ----

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
    wait_until("the promoted server to insert rows", secs(20), || match session.batch_execute(FILL) {
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

/// A standby, 40 s behind, whose restart began after the last commit, so that it knows nothing of that; and its stopped
/// primary's IDs.
fn restarted_standby() -> (Server, Ids) {
    // With no backup workers, a successor continues on its primary's worker.
    let builder = Server::builder().setting("snowflake_id.backup_workers", "0").born(days(400));
    let mut primary = builder.start_with_extension();
    primary.step_forward(days(400));
    run(&mut primary.connect(), "CREATE TABLE made (id bigint PRIMARY KEY DEFAULT snowflake_nextval())");
    let mut standby = primary.standby(|builder| builder);
    primary.step_forward(secs(60));
    standby.step_forward(secs(20));
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
    (standby, ids)
}

#[test]
fn a_standby_restarted_before_its_promotion_starts_above_what_it_had_replayed() {
    let (standby, ids) = restarted_standby();
    let checkpoint = "SELECT checkpoint_time::text FROM pg_control_checkpoint()";
    let checkpoint: String = one(&mut standby.connect(), checkpoint);
    standby.promote();
    // The control file has whole seconds. max_ahead, and a second for clocks that differ.
    let above =
        format!("SELECT extract(epoch FROM max(mark) - '{checkpoint}')::float8 FROM snowflake_workers");
    let above = wait_until("a mark", secs(60), || one::<Option<f64>>(&mut standby.connect(), &above));
    assert!(above >= 4.0, "{above} s above the checkpoint's time");
    starts_above(&standby, ids);
}

/// Its floor is later than the one of the operator, who relies on the standby's clock.
#[test]
fn a_standby_adopted_without_a_promotion_starts_above_what_it_had_replayed() {
    let (mut standby, ids) = restarted_standby();
    standby.stand_alone();
    standby.restart();
    run(&mut standby.connect(), "SELECT snowflake_adopt()");
    starts_above(&standby, ids);
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
    // In the record before the standby is cloned.
    primary.set("snowflake_id.max_ahead", "60s");
    primary.restart();
    opens(&primary);
    primary
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
