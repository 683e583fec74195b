//! PostgreSQL's `pg_upgrade` on a server that generated IDs. It needs two versions: `scripts/test upgrade`.

use super::tools::{goes_on, has_checksums, in_shop, shop, sold};
use snowflake_server_tests::sql::{fails, one};
use snowflake_server_tests::{Server, Stop};

/// A stopped shop of the older PostgreSQL, and what it has sold. It has checksums if new clusters have them.
fn old() -> (Server, Vec<i64>) {
    let mut old = shop(Server::builder().of_older_version());
    let before = sold(&old);
    old.stop(Stop::Fast);
    if has_checksums(&Server::builder().create()) && !has_checksums(&old) {
        old.tool("pg_checksums", &["--enable", "-D", "data"]);
    }
    (old, before)
}

/// Upgrades, after a check. Neither the check nor pg_upgrade's own servers leave a state in the new cluster.
#[track_caller]
fn upgrade(old: &Server, new: &Server, options: &[&str]) {
    let said = old.upgrade_to(new, &[options, &["--check"]].concat()).unwrap_or_else(|said| panic!("{said}"));
    assert!(said.contains("*Clusters are compatible*"), "{said}");
    let said = old.upgrade_to(new, options).unwrap_or_else(|said| panic!("{said}"));
    assert!(said.contains("Upgrade Complete"), "{said}");
    assert!(!new.data().join("snowflake_id").exists());
}

/// Asserts that the upgraded server has all earlier IDs, creates a state of its own, and goes on above them.
#[track_caller]
fn goes_on_anew(new: &Server, before: &[i64]) {
    assert_eq!(sold(new), before);
    goes_on(new);
    assert!(new.log().contains("with a new state file"), "{}", new.log());
    // As pg_upgrade tells to do.
    new.tool("vacuumdb", &["--all", "--analyze-in-stages"]);
    new.tool("reindexdb", &["--all"]);
    goes_on(new);
    // The settings are those with which the IDs were generated.
    let same = "SELECT snowflake_internal.snowflake_own_layouts() = snowflake_internal.server_layout()";
    assert!(one::<bool>(&mut in_shop(new), same));
}

#[test]
#[ignore = "needs an older PostgreSQL as well: PG_CONFIG_OLD"]
fn copies_the_files_and_ids_go_on() {
    let (old, before) = old();
    let mut new = Server::builder().create();
    upgrade(&old, &new, &[]);
    new.start();
    goes_on_anew(&new, &before);
}

#[test]
#[ignore = "needs an older PostgreSQL as well: PG_CONFIG_OLD"]
fn links_the_files_and_ids_go_on() {
    let (old, before) = old();
    let mut new = Server::builder().create();
    upgrade(&old, &new, &["--link"]);
    new.start();
    goes_on_anew(&new, &before);
}

#[test]
#[ignore = "needs an older PostgreSQL as well: PG_CONFIG_OLD"]
fn the_settings_may_come_after_it() {
    let (old, before) = old();
    let unprepared = Server::builder().without_library();
    let mut new = unprepared.create();
    upgrade(&old, &new, &[]);
    new.start();
    let failure = fails(&mut in_shop(&new), "55000", "INSERT INTO orders (customer) VALUES ('too early')");
    assert!(failure.text().contains("must be loaded via \"shared_preload_libraries\""), "{failure}");
    new.set("shared_preload_libraries", "snowflake_id");
    new.set("snowflake_id.worker_id", "1");
    new.restart();
    goes_on_anew(&new, &before);
}

#[test]
#[ignore = "needs an older PostgreSQL as well: PG_CONFIG_OLD"]
fn a_forgotten_epoch_is_refused() {
    let (old, before) = old();
    let mut new = Server::builder().setting("snowflake_id.epoch", "2020-01-01T00:00:00Z").create();
    upgrade(&old, &new, &[]);
    new.start();
    for call in
        ["SELECT snowflake_timestamp(id) FROM orders", "INSERT INTO orders (customer) VALUES ('too early')"]
    {
        let failure = fails(&mut in_shop(&new), "55000", call);
        assert!(failure.text().contains("layout of this database differs from this server's"), "{failure}");
    }
    // Nothing was generated with the mistaken epoch, so its state binds nobody.
    new.stop(Stop::Fast);
    new.unset("snowflake_id.epoch");
    new.start();
    goes_on_anew(&new, &before);
}
