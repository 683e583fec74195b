//! Tests that run inside a PostgreSQL server, one transaction each: every function, label, setting and error that needs
//! no second session, no moved clock and no other configuration.
//!
//! The server runs with `worker_id = 5` and defaults: lanes 5, 261, 517 and 773, and the layout 41/10/12.

#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;
    use std::collections::HashSet;

    fn one<T: FromDatum + IntoDatum>(sql: &str) -> Option<T> {
        Spi::get_one(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    fn is_true(sql: &str) -> bool {
        one(&format!("SELECT {sql}")).unwrap_or_else(|| panic!("{sql} is null"))
    }

    fn ids(sql: &str) -> Vec<i64> {
        Spi::connect(|client| {
            let rows = client.select(sql, None, &[]).unwrap();
            rows.map(|row| row.get::<i64>(1).unwrap().expect("an ID is never null")).collect()
        })
    }

    /// SQLSTATE, message, detail and hint of the error that a statement raises.
    fn error_of(sql: &str) -> [String; 4] {
        Spi::run(
            "CREATE OR REPLACE FUNCTION pg_temp.error_of(statement text) RETURNS text[]
             LANGUAGE plpgsql AS $$
             DECLARE message text; detail text; hint text;
             BEGIN
                 EXECUTE statement;
                 RETURN ARRAY['00000', '', '', ''];
             EXCEPTION WHEN OTHERS THEN
                 GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL,
                     hint = PG_EXCEPTION_HINT;
                 RETURN ARRAY[SQLSTATE, message, detail, hint];
             END $$",
        )
        .unwrap();
        let error = Spi::get_one_with_args::<Vec<String>>("SELECT pg_temp.error_of($1)", &[sql.into()]);
        error.unwrap().unwrap().try_into().unwrap()
    }

    // ---- generating IDs ----

    #[pg_test]
    fn nextval_ascends_and_never_repeats() {
        let made = ids("SELECT snowflake_nextval() FROM generate_series(1, 100000)");
        assert!(made.is_sorted_by(|a, b| a < b));
        assert!(made[0] > 0);
    }

    #[pg_test]
    fn an_id_carries_the_time_of_its_making_and_the_home_worker() {
        assert!(is_true(
            "snowflake_timestamp(id) BETWEEN before - interval '1 ms'
                 AND clock_timestamp() + interval '2 s' AND snowflake_worker(id) IN (5, 261, 517, 773)
             FROM (SELECT clock_timestamp() AS before, snowflake_nextval() AS id OFFSET 0) made"
        ));
    }

    #[pg_test]
    fn a_batch_has_as_many_ids_as_asked_for() {
        let made = ids("SELECT snowflake_nextval_batch(10000)");
        assert_eq!(made.iter().collect::<HashSet<_>>().len(), 10_000);
        assert!(made.is_sorted());
        assert!(ids("SELECT snowflake_nextval_batch(0)").is_empty());
        assert!(ids("SELECT * FROM snowflake_nextval_batch(NULL)").is_empty());
    }

    #[pg_test]
    fn a_batch_streams() {
        // In a target list, a set-returning function computes each row only when it is asked for.
        let made = ids("SELECT snowflake_nextval_batch(2000000000) LIMIT 3");
        assert_eq!(made.len(), 3);
    }

    #[pg_test]
    fn a_range_is_contiguous_and_from_one_tick() {
        for n in [1, 2, 100, 4096] {
            assert!(is_true(&format!(
                "last - first + 1 = {n} AND snowflake_timestamp(first) = snowflake_timestamp(last)
                 AND snowflake_worker(first) = snowflake_worker(last) FROM snowflake_nextval_range({n})"
            )));
        }
        assert!(is_true("snowflake_nextval_range(NULL) IS NULL"));
    }

    #[pg_test]
    fn ranges_and_single_ids_do_not_overlap() {
        let mut made = Vec::new();
        for n in [7, 1, 300] {
            let first = one::<i64>(&format!("SELECT first FROM snowflake_nextval_range({n})")).unwrap();
            made.extend(first..first + n);
            made.extend(ids("SELECT snowflake_nextval()"));
        }
        assert!(made.is_sorted_by(|a, b| a < b));
    }

    #[pg_test]
    fn lastval_is_the_last_id_of_this_session() {
        assert!(is_true("snowflake_nextval() = snowflake_lastval()"));
        assert!(is_true("max(id) = snowflake_lastval() FROM snowflake_nextval_batch(3) AS id"));
        assert!(is_true("last = snowflake_lastval() FROM snowflake_nextval_range(3)"));
    }

    #[pg_test]
    fn ids_may_be_made_in_a_read_only_transaction() {
        Spi::run("SET TRANSACTION READ ONLY").unwrap();
        assert!(is_true("snowflake_nextval() > 0"));
    }

    #[pg_test]
    fn a_column_default_makes_the_keys() {
        Spi::run("CREATE TABLE t (id bigint PRIMARY KEY DEFAULT snowflake_nextval(), n int)").unwrap();
        let returned = ids("INSERT INTO t (n) SELECT generate_series(1, 1000) RETURNING id");
        assert!(returned.is_sorted_by(|a, b| a < b));
        assert_eq!(one::<i64>("SELECT count(DISTINCT id) FROM t"), Some(1_000));
    }

    // ---- reading IDs ----

    #[pg_test]
    fn decode_agrees_with_the_single_fields() {
        assert!(is_true(
            "(parts).created_at = snowflake_timestamp(id) AND (parts).worker_id = snowflake_worker(id)
             AND (parts).sequence = snowflake_sequence(id) AND (parts).datacenter_id IS NULL
             FROM (SELECT id, snowflake_decode(id) AS parts
                   FROM (SELECT snowflake_nextval() AS id OFFSET 0) made) decoded"
        ));
    }

    /// 2024-01-01 + 86,400,123 ms, worker 5, sequence 7: 86400123 << 22 | 5 << 12 | 7, computed by hand.
    #[pg_test]
    fn decode_reads_the_documented_layout_to_the_millisecond() {
        assert!(is_true(
            "snowflake_decode(362388381519879) =
             ROW('2024-01-02 00:00:00.123+00', NULL, 5, 7)::snowflake_parts"
        ));
        assert!(is_true("snowflake_decode(0) = ROW('2024-01-01 00:00+00', NULL, 0, 0)::snowflake_parts"));
        assert!(is_true(
            "snowflake_decode(9223372036854775807) =
             ROW('2093-09-06 15:47:35.551+00', NULL, 1023, 4095)::snowflake_parts"
        ));
    }

    #[pg_test]
    fn decoding_null_is_null() {
        assert!(is_true("snowflake_decode(NULL) IS NULL"));
        for function in ["timestamp", "datacenter", "worker", "sequence", "owner"] {
            assert!(is_true(&format!("snowflake_{function}(NULL) IS NULL")), "{function}");
        }
    }

    #[pg_test]
    fn decode_is_inlined_and_unused_fields_vanish() {
        Spi::run("CREATE TABLE t (id bigint)").unwrap();
        let plan = |what: &str| plan(&format!("SELECT {what} FROM t"));
        let all = plan("(snowflake_decode(id)).*");
        assert!(!all.contains("snowflake_decode"), "{all}");
        assert_eq!(all.matches("snowflake_timestamp(").count(), 1, "{all}");
        let one = plan("(snowflake_decode(id)).worker_id");
        assert!(one.contains("snowflake_worker(") && !one.contains("snowflake_timestamp("), "{one}");
        let foreign = plan("(snowflake_decode(id, 'discord')).worker_id");
        assert!(
            foreign.contains("snowflake_worker(") && !foreign.contains("snowflake_timestamp("),
            "{foreign}"
        );
    }

    #[pg_test]
    fn every_lane_has_its_owner() {
        assert!(is_true("snowflake_owner(362388381519879) = ROW(5, 0)"));
        // Worker 773 is lane 3 of home worker 5: 773 = 5 + 3 * 256.
        assert!(is_true("snowflake_owner((773 << 12)::bigint) = ROW(5, 3)"));
        assert!(is_true("home_worker_id = 255 AND lane = 3 FROM snowflake_owner(1023 << 12)"));
    }

    /// Random IDs and edge cases, as column `id` of the subquery `ids`.
    const SOME_IDS: &str = "(
        SELECT (random() * 9223372036854775000::float8)::bigint AS id FROM generate_series(1, 2000)
        UNION ALL SELECT * FROM unnest('{0,1,4095,4096,4194303,4194304,362388381519879,9223372036854775807}'::bigint[])
    ) ids";

    #[pg_test]
    fn encode_is_the_inverse_of_decode() {
        assert!(is_true("snowflake_encode('2024-01-02 00:00:00.123+00', 5, 7) = 362388381519879"));
        assert!(is_true(&format!(
            "bool_and(snowflake_encode(created_at, worker_id, sequence) = id)
             FROM (SELECT id, (snowflake_decode(id)).* FROM {SOME_IDS}) decoded"
        )));
    }

    #[pg_test]
    fn encode_takes_any_time_within_the_tick() {
        assert!(is_true(
            "snowflake_encode('2024-01-02 00:00:00.123999+00', 5, 7) = 362388381519879
             AND snowflake_encode('2024-01-02 00:00:00.124+00', 5, 7) = 362388381519879 + 4194304"
        ));
    }

    #[pg_test]
    fn min_and_max_are_the_ends_of_a_tick() {
        assert!(is_true(&format!(
            "bool_and(snowflake_min(t) = id & ~4194303::bigint AND snowflake_max(t) = id | 4194303
                      AND snowflake_min(t + interval '0.999 ms') = snowflake_min(t))
             FROM (SELECT id, snowflake_timestamp(id) AS t FROM {SOME_IDS}) timed"
        )));
    }

    /// Both ends are whole and broken ticks around each ID, and both infinities. Above the last ID of 63 bits there is
    /// no number to compare with.
    #[pg_test]
    fn between_is_what_the_timestamps_say() {
        assert!(is_true(&format!(
            "count(*) > 10000 AND bool_and(
                 snowflake_between(id, since, until) = (created_at >= since AND created_at < until))
             FROM (SELECT id, snowflake_timestamp(id) AS created_at FROM {SOME_IDS} LIMIT 500 OFFSET 1508) timed,
             LATERAL (SELECT created_at + d * interval '0.4 ms' FROM generate_series(-3, 3) AS d
                      UNION ALL SELECT unnest(
                          '{{-infinity,1999-01-01,2093-09-06 15:47:35.552+00,infinity}}'::timestamptz[])
             ) AS a (since),
             LATERAL (SELECT created_at + d * interval '0.4 ms' FROM generate_series(-3, 3) AS d
                      UNION ALL SELECT unnest(
                          '{{-infinity,1999-01-01,2093-09-06 15:47:35.552+00,infinity}}'::timestamptz[])
             ) AS b (until)
             WHERE id < 9223372036854775807 OR since <= created_at"
        )));
    }

    #[pg_test]
    fn between_of_what_is_no_id_is_false() {
        assert!(is_true("NOT snowflake_between(-1, '-infinity', 'infinity')"));
        assert!(is_true("snowflake_between(0, '-infinity', 'infinity')"));
    }

    #[pg_test]
    fn between_with_a_null_is_never_true() {
        for arguments in ["NULL, '2024-01-01', 'infinity'", "7, NULL, 'infinity'", "7, '2024-01-01', NULL"] {
            assert!(is_true(&format!("snowflake_between({arguments}) IS NULL")), "{arguments}");
        }
        // As in BETWEEN, one end may be enough to know the result.
        assert!(is_true("snowflake_between(7, NULL, '2024-01-01') IS FALSE"));
    }

    #[pg_test]
    fn between_is_inlined_whatever_its_ends_are() {
        Spi::run("CREATE TABLE t (id bigint PRIMARY KEY); SET LOCAL enable_seqscan = off").unwrap();
        for ends in [
            "'2026-01-01', '2026-02-01'",
            "now() - interval '1 day', now()",
            "date_trunc('month', now()), date_trunc('month', now()) + interval '1 month'",
            "(SELECT min(now()) FROM pg_class), (SELECT max(now()) FROM pg_class)",
        ] {
            let plan = plan(&format!("SELECT FROM t WHERE snowflake_between(id, {ends})"));
            assert!(!plan.contains("snowflake_between("), "{plan}");
            let condition = plan.lines().find(|line| line.contains("Index Cond: "));
            assert!(condition.is_some_and(|line| line.contains("id >=") && line.contains("id <=")), "{plan}");
        }
    }

    #[pg_test]
    fn base62_goes_both_ways_and_sorts_as_ids_do() {
        assert!(is_true("snowflake_to_base62(362388381519879) = '001eu38nrlv'"));
        assert!(is_true(&format!(
            "bool_and(snowflake_from_base62(snowflake_to_base62(id)) = id AND length(snowflake_to_base62(id)) = 11)
             AND array_agg(id ORDER BY id) = array_agg(id ORDER BY snowflake_to_base62(id)) FROM {SOME_IDS}"
        )));
        assert!(is_true("snowflake_to_base62(NULL) IS NULL AND snowflake_from_base62(NULL) IS NULL"));
        assert!(is_true("pg_collation_for(snowflake_to_base62(1)) = '\"C\"'"));
    }

    /// In a database with another collation, 'a' may sort before 'A', and a check that used it would accept too much.
    #[pg_test]
    fn the_domain_takes_ids_and_nothing_else_in_any_database() {
        assert!(is_true("snowflake_from_base62('AzL8n0Y58m7'::snowflake_base62) = 9223372036854775807"));
        for text in ["AzL8n0Y58m8", "a0000000000", "0", "", "000000000000", "0000000000-", "0000000000 "] {
            assert_eq!(error_of(&format!("SELECT '{text}'::snowflake_base62"))[0], "23514", "{text}");
        }
        let checks = "FROM pg_constraint WHERE contypid = 'snowflake_base62'::regtype";
        assert!(is_true(&format!("count(*) = 1 AND bool_and(conbin::text ~ ':inputcollid 950 ') {checks}")));
        assert!(is_true(&format!("bool_and(conbin::text !~ ':inputcollid 100 ') {checks}")));
    }

    #[pg_test]
    fn ids_of_other_systems_are_read_by_name() {
        // crates/snowflake_core/tests/reading.rs names the sources of these.
        for (system, id, parts) in [
            ("twitter", "1541815603606036480", "'2022-06-28 16:07:40.105+00', 11, 26, 0"),
            ("discord", "175928847299117063", "'2016-04-30 11:18:25.796+00', 1, 0, 7"),
            ("instagram", "11637205501278089", "'2011-09-09 22:28:04.721+00', NULL, 1341, 905"),
            ("mastodon", "103254962155278888", "'2019-12-05 11:34:47.183+00', NULL, NULL, 53800"),
            ("sonyflake", "144955176167466", "'2014-09-02 00:00:00.01+00', NULL, 43050, 200"),
            ("leaf", "1256557484213448722", "'2020-05-02 12:13:44.602+00', NULL, 619, 18"),
            ("uid-generator", "34359738368032777", "'2016-05-31 05:46:40+00', NULL, 4, 9"),
            ("pgedge", "136169504773242881", "'2024-01-11 18:08:59.845+00', NULL, 0, 1"),
            ("shardingsphere", "362387865620487", "'2016-11-02 00:00+00', NULL, 5, 7"),
        ] {
            assert!(
                is_true(&format!("snowflake_decode({id}, '{system}') = ROW({parts})::snowflake_parts")),
                "{system}"
            );
        }
    }

    #[pg_test]
    fn the_view_of_layouts_has_what_decode_takes() {
        assert!(is_true(
            "array_agg(name ORDER BY name) = '{discord,instagram,leaf,mastodon,pgedge,shardingsphere,sonyflake,
                                               twitter,uid-generator}'
             AND bool_and(snowflake_decode(99999999999999, name) = snowflake_decode(99999999999999, layout))
             AND bool_and(snowflake_timestamp(0, layout) < expires_at AND note <> '')
             AND has_table_privilege('public', 'snowflake_layouts', 'SELECT') FROM snowflake_layouts"
        ));
    }

    #[pg_test]
    fn this_servers_own_layout_written_out_reads_the_same() {
        assert!(is_true(&format!(
            "bool_and(snowflake_decode(id) = snowflake_decode(id, '41/10/12 1ms 2024-01-01')) FROM {SOME_IDS}"
        )));
    }

    /// A text is read in place if it is stored in place: short, long, compressed, and a different one in every row.
    #[pg_test]
    fn a_layout_may_come_from_a_column() {
        Spi::run(
            "CREATE TABLE l (n int, layout text);
             INSERT INTO l SELECT n, (ARRAY['discord', '41/10/12 1ms 2015-01-01',
                 '41/10/12 1ms 2015-01-01' || repeat(' ', 70), '41/s12/w10 1ms 2023-01-01'])[1 + n % 4]
             FROM generate_series(0, 99) AS n",
        )
        .unwrap();
        assert!(is_true(
            "bool_and(snowflake_worker(5 << 12 | n, layout) =
                      CASE WHEN layout LIKE '41/s12%' THEN n ELSE 5 END) FROM l"
        ));
        // Compressed, and longer than any layout.
        Spi::run("CREATE TABLE padded AS SELECT '41/10/12 1ms 2015-01-01' || repeat(' ', 9000) AS layout")
            .unwrap();
        assert!(is_true("pg_column_size(layout) < 1000 FROM padded"));
        assert_eq!(error_of("SELECT snowflake_worker(1, layout) FROM padded")[0], "22023");
    }

    #[pg_test]
    fn decoding_by_a_layout_with_a_null_is_null() {
        assert!(is_true("snowflake_decode(NULL, 'discord') IS NULL AND snowflake_decode(1, NULL) IS NULL"));
    }

    fn plan(sql: &str) -> String {
        Spi::connect(|client| {
            let rows = client.select(&format!("EXPLAIN (VERBOSE, COSTS OFF) {sql}"), None, &[]).unwrap();
            rows.map(|row| row.get::<String>(1).unwrap().unwrap()).collect::<Vec<_>>().join("\n")
        })
    }

    // ---- watching ----

    #[pg_test]
    fn issued_counts_batches_and_ranges() {
        let issued = || one::<i64>("SELECT issued FROM snowflake_status").unwrap();
        let before = issued();
        ids("SELECT snowflake_nextval_batch(1234)");
        Spi::run("SELECT snowflake_nextval_range(66)").unwrap();
        // At least, because other tests run in parallel. The tests on servers of their own check exact numbers.
        assert!(issued() - before >= 1_300);
    }

    #[pg_test]
    fn status_shows_the_configuration() {
        // The server may have started less than a second ago.
        Spi::run("SELECT snowflake_nextval()").unwrap();
        assert!(is_true(
            "state = 'open' AND reason IS NULL AND home_worker_id = 5 AND worker_id % 256 = 5
             AND layout = '41/10/12' AND epoch = '2024-01-01 00:00+00'
             AND expires_at = '2093-09-06 15:47:35.552+00' AND ahead_ms BETWEEN 0 AND 2000
             AND stats_reset <= now() FROM snowflake_status"
        ));
    }

    #[pg_test]
    fn workers_shows_a_row_a_lane() {
        // The server may have started less than a second ago.
        Spi::run("SELECT snowflake_nextval()").unwrap();
        assert!(is_true(
            "array_agg(worker_id ORDER BY lane) = '{5,261,517,773}' AND array_agg(lane ORDER BY lane) = '{0,1,2,3}'
             AND count(*) FILTER (WHERE active) = 1 FROM snowflake_workers"
        ));
    }

    // ---- administering (rotation is tested on servers of its own, because tests run in parallel here) ----

    #[pg_test]
    fn adopt_raises_the_marks_of_an_open_gate_and_never_lowers_one() {
        assert!(is_true(
            "snowflake_timestamp(snowflake_nextval()) > floor
             FROM (SELECT clock_timestamp() AS floor OFFSET 0) f,
             LATERAL (SELECT snowflake_adopt(floor) OFFSET 0) adopted"
        ));
        let before = one::<i64>("SELECT snowflake_nextval()").unwrap();
        Spi::run("SELECT snowflake_adopt('2024-02-01 00:00+00')").unwrap();
        assert!(one::<i64>("SELECT snowflake_nextval()").unwrap() > before);
        let far = "floor must not be more than one day ahead of the system clock";
        assert_error("SELECT snowflake_adopt(now() + interval '25 h')", "22023", far);
        assert!(is_true("snowflake_adopt(NULL) IS NULL"), "STRICT: nothing happens");
    }

    #[pg_test]
    fn every_id_lies_below_the_reservation() {
        assert!(is_true(
            "snowflake_timestamp(id) < reserved_until AND keeper_pid > 0 AND write_error IS NULL
             FROM (SELECT snowflake_nextval() AS id OFFSET 0) made, LATERAL (
                 SELECT * FROM snowflake_status WHERE id > 0 OFFSET 0) status"
        ));
    }

    // ---- labels ----

    /// Roles that may convert need the parts of a conversion, and these do nothing that their callers could not do
    /// themselves. They all have one set of labels.
    const PARTS: &str =
        "pronamespace = 'snowflake_internal'::regnamespace AND proname ~ '^snowflake_(convert|revert)_'";

    /// Name, volatility, strictness, parallel safety, and whether PUBLIC may execute it.
    const LABELS: [(&str, &str, bool, &str, bool); 77] = [
        ("snowflake_nextval()", "v", true, "r", true),
        ("snowflake_internal.snowflake_nextval_in_copy(internal)", "s", true, "r", true),
        ("snowflake_internal.snowflake_nextval_support(internal)", "v", true, "s", false),
        ("snowflake_nextval_batch(integer)", "v", true, "r", true),
        ("snowflake_nextval_range(integer)", "v", true, "r", true),
        ("snowflake_lastval()", "v", true, "r", true),
        ("snowflake_at(timestamptz,integer)", "v", false, "r", true),
        ("snowflake_next_at(timestamptz,integer,regclass,name)", "v", true, "u", true),
        ("snowflake_internal.snowflake_import_span(timestamptz,integer,bigint)", "v", true, "s", true),
        // Not STRICT, because the planner inlines a strict SQL function only if its body is strict too.
        ("snowflake_decode(bigint)", "i", false, "s", true),
        ("snowflake_timestamp(bigint)", "i", true, "s", true),
        ("snowflake_datacenter(bigint)", "i", true, "s", true),
        ("snowflake_worker(bigint)", "i", true, "s", true),
        ("snowflake_sequence(bigint)", "i", true, "s", true),
        ("snowflake_owner(bigint)", "s", true, "s", true),
        ("snowflake_encode(timestamptz,integer,integer)", "i", true, "s", true),
        ("snowflake_min(timestamptz)", "i", true, "s", true),
        ("snowflake_max(timestamptz)", "i", true, "s", true),
        // For pruning at plan time all three must be immutable, so that the planner has two constants.
        ("snowflake_between(bigint,timestamptz,timestamptz)", "i", false, "s", true),
        ("snowflake_internal.snowflake_between_from(timestamptz)", "i", true, "s", true),
        ("snowflake_internal.snowflake_between_until(timestamptz)", "i", true, "s", true),
        ("snowflake_to_base62(bigint)", "i", true, "s", true),
        ("snowflake_from_base62(text)", "i", true, "s", true),
        ("snowflake_time_encoder(timestamptz)", "i", true, "s", true),
        ("snowflake_time_decoder(text)", "i", true, "s", true),
        ("snowflake_decode(bigint,text)", "i", false, "s", true),
        ("snowflake_timestamp(bigint,text)", "i", true, "s", true),
        ("snowflake_datacenter(bigint,text)", "i", true, "s", true),
        ("snowflake_worker(bigint,text)", "i", true, "s", true),
        ("snowflake_sequence(bigint,text)", "i", true, "s", true),
        ("snowflake_internal.snowflake_layouts_rows()", "i", true, "s", true),
        ("snowflake_reader_sql()", "s", true, "s", true),
        ("snowflake_generator_sql(integer,name,text,interval,timestamptz)", "s", false, "s", true),
        ("snowflake_refuse_own_worker()", "v", false, "u", true),
        ("snowflake_internal.snowflake_status_row()", "v", true, "s", false),
        ("snowflake_internal.snowflake_workers_rows()", "v", true, "s", false),
        ("snowflake_rotate()", "v", true, "u", false),
        ("snowflake_adopt(timestamptz)", "v", true, "u", false),
        ("snowflake_reset_stats()", "v", true, "u", false),
        ("snowflake_convert(regclass,name,boolean,boolean)", "v", false, "u", false),
        ("snowflake_convert_tables(regclass[],boolean,boolean)", "v", false, "u", false),
        ("snowflake_convert_schema(regnamespace,boolean,boolean,text[])", "v", false, "u", false),
        ("snowflake_revert(regclass,name,boolean,text)", "v", false, "u", false),
        ("snowflake_revert_tables(regclass[],boolean,text)", "v", false, "u", false),
        ("snowflake_revert_schema(regnamespace,boolean,text)", "v", false, "u", false),
        ("snowflake_server_layout()", "s", false, "s", true),
        ("snowflake_internal.server_layout()", "s", false, "s", true),
        ("snowflake_internal.snowflake_config_check()", "v", false, "u", false),
        ("snowflake_internal.snowflake_config_changed()", "v", false, "u", false),
        ("snowflake_internal.snowflake_raise(text,text,text,text)", "v", true, "u", true),
        ("snowflake_internal.snowflake_refuse(snowflake_internal.snowflake_refusal[])", "v", true, "u", true),
        ("snowflake_layout_steps()", "s", false, "u", false),
        ("snowflake_internal.snowflake_other_owner(oid,oid)", "s", false, "u", true),
        // A registry's: for the role of its nodes, and for administrators.
        (
            "snowflake_registry_create(regrole,interval,text,interval,timestamptz,integer,interval,boolean)",
            "v",
            false,
            "u",
            false,
        ),
        ("snowflake_registry_reserve(integer,text)", "v", false, "u", false),
        ("snowflake_registry_unreserve(integer)", "v", false, "u", false),
        ("snowflake_registry_retire(text)", "v", false, "u", false),
        ("snowflake_registry_vouch()", "v", false, "u", false),
        ("snowflake_origin(bigint)", "s", true, "s", false),
        (
            "snowflake_registry_contact(uuid,uuid,text,bigint,uuid,integer,bigint,bigint,boolean,timestamptz,text,integer,\
             timestamptz,integer,integer,boolean,text)",
            "v",
            false,
            "u",
            false,
        ),
        (
            "snowflake_internal.snowflake_fleet_add_groups(snowflake_internal.snowflake_registry,integer,integer)",
            "v",
            true,
            "u",
            false,
        ),
        (
            "snowflake_internal.snowflake_fleet_answer(snowflake_internal.snowflake_registry,snowflake_internal.snowflake_registry_groups,boolean)",
            "v",
            false,
            "u",
            false,
        ),
        (
            "snowflake_internal.snowflake_fleet_claim(snowflake_internal.snowflake_registry,integer,text,timestamptz)",
            "v",
            false,
            "u",
            false,
        ),
        ("snowflake_internal.snowflake_fleet_current()", "v", false, "u", false),
        ("snowflake_internal.snowflake_fleet_commit_durably(interval)", "v", false, "u", false),
        (
            "snowflake_internal.snowflake_fleet_end(snowflake_internal.snowflake_registry_groups)",
            "v",
            true,
            "u",
            false,
        ),
        ("snowflake_internal.snowflake_fleet_find_out(timestamptz)", "v", true, "u", false),
        ("snowflake_internal.snowflake_fleet_free_from()", "v", false, "u", false),
        ("snowflake_internal.snowflake_fleet_here()", "v", false, "u", false),
        (
            "snowflake_internal.snowflake_fleet_in_doubt(snowflake_internal.snowflake_registry,timestamptz)",
            "i",
            true,
            "s",
            false,
        ),
        ("snowflake_internal.snowflake_fleet_layout(text,integer,integer)", "i", true, "s", false),
        ("snowflake_internal.snowflake_fleet_operate(text,integer,text)", "v", false, "u", false),
        ("snowflake_internal.snowflake_fleet_place()", "s", false, "u", false),
        (
            "snowflake_internal.snowflake_fleet_refusal(snowflake_internal.snowflake_registry,integer,timestamptz,timestamptz)",
            "s",
            false,
            "u",
            false,
        ),
        ("snowflake_internal.snowflake_fleet_tick(timestamptz,integer,timestamptz)", "i", true, "s", false),
        ("snowflake_internal.snowflake_fleet_time(bigint,integer,timestamptz)", "s", false, "s", false),
        (
            "snowflake_internal.snowflake_fleet_unfit(snowflake_internal.snowflake_registry,uuid,text,integer,timestamptz,integer,integer,timestamptz)",
            "v",
            false,
            "u",
            false,
        ),
    ];

    #[pg_test]
    fn every_function_has_its_labels() {
        for (function, volatility, strict, parallel, public) in LABELS {
            assert!(
                is_true(&format!(
                    "provolatile = '{volatility}' AND proisstrict = {strict} AND proparallel = '{parallel}'
                     AND has_function_privilege('public', oid, 'EXECUTE') = {public}
                     FROM pg_proc WHERE oid = '{function}'::regprocedure"
                )),
                "{function}"
            );
        }
        assert!(is_true(&format!(
            "count(*) > 20 AND bool_and(provolatile = 'v' AND proparallel = 'u'
                 AND has_function_privilege('public', oid, 'EXECUTE')) FROM pg_proc WHERE {PARTS}"
        )));
    }

    #[pg_test]
    fn no_function_is_missing_from_the_labels() {
        let functions = one::<i64>(&format!(
            "SELECT count(*) FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
             JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
             WHERE e.extname = 'snowflake_id' AND d.deptype = 'e' AND pronamespace <> 'tests'::regnamespace
             AND NOT ({PARTS})"
        ));
        assert_eq!(functions, Some(LABELS.len() as i64));
    }

    /// What `\\df snowflake*` shows.
    #[pg_test]
    fn the_users_schema_has_what_users_call() {
        assert!(is_true(
            "count(*) < 50 AND bool_and(obj_description(oid, 'pg_proc') NOT LIKE 'internal:%')
             FROM pg_proc WHERE proname LIKE 'snowflake%' AND pg_function_is_visible(oid)"
        ));
        assert!(is_true(
            "bool_and(relkind = 'v' OR relname = 'snowflake_parts')
             FROM pg_class WHERE relname LIKE 'snowflake%' AND pg_table_is_visible(oid)"
        ));
    }

    #[pg_test]
    fn every_object_has_a_comment() {
        let silent = one::<String>(
            "SELECT string_agg(pg_describe_object(classid, objid, 0), ', ')
             FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
             LEFT JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
             LEFT JOIN pg_type t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
             WHERE e.extname = 'snowflake_id' AND d.deptype = 'e'
             -- From 17 on, the types of rows and arrays are members, too.
             AND (t.oid IS NULL OR t.typtype = 'd'
                 OR t.typtype = 'c' AND (SELECT relkind FROM pg_class WHERE oid = t.typrelid) = 'c')
             AND p.pronamespace IS DISTINCT FROM 'tests'::regnamespace
             AND d.objid IS DISTINCT FROM 'tests'::regnamespace
             AND obj_description(d.objid, d.classid::regclass::name) IS NULL",
        );
        assert_eq!(silent, None);
    }

    #[pg_test]
    fn the_views_are_for_monitors() {
        for view in ["snowflake_status", "snowflake_workers"] {
            assert!(is_true(&format!(
                "has_table_privilege('pg_monitor', '{view}', 'SELECT')
                 AND NOT has_table_privilege('public', '{view}', 'SELECT')"
            )));
        }
    }

    // ---- settings ----

    #[pg_test]
    fn settings_have_the_documented_types_and_contexts() {
        let settings = [
            ("worker_id", "integer", "-1", "postmaster"),
            ("datacenter_id", "integer", "0", "postmaster"),
            ("backup_workers", "integer", "3", "postmaster"),
            ("layout", "string", "41/10/12", "postmaster"),
            ("tick", "integer", "1", "postmaster"),
            ("epoch", "string", "2024-01-01T00:00:00Z", "postmaster"),
            ("rollback_policy", "enum", "hold", "sighup"),
            ("max_ahead", "integer", "2000", "sighup"),
            ("max_wait", "integer", "5", "sighup"),
            ("sequence_start", "enum", "zero", "postmaster"),
            ("registry", "string", "", "sighup"),
            ("node_name", "string", "", "postmaster"),
        ];
        for (name, kind, default, context) in settings {
            assert!(
                is_true(&format!(
                    "vartype = '{kind}' AND boot_val = '{default}' AND context = '{context}'
                     FROM pg_settings WHERE name = 'snowflake_id.{name}'"
                )),
                "{name}"
            );
        }
        let all = one::<i64>("SELECT count(*) FROM pg_settings WHERE name LIKE 'snowflake_id.%'");
        assert_eq!(all, Some(settings.len() as i64));
    }

    #[pg_test]
    fn no_session_can_change_a_setting() {
        for set in ["worker_id = 6", "layout = '41/10/12'", "max_ahead = '5s'", "rollback_policy = 'replay'"]
        {
            let [state, ..] = error_of(&format!("SET snowflake_id.{set}"));
            assert_eq!(state, "55P02", "{set}");
        }
        let [state, ..] = error_of("SET snowflake_id.no_such_setting = 1");
        assert_eq!(state, "42602");
    }

    // ---- errors ----

    fn assert_error(sql: &str, state: &str, message: &str) {
        let [got_state, got_message, detail, hint] = error_of(sql);
        assert_eq!((got_state.as_str(), got_message.as_str()), (state, message), "{sql}");
        assert!(detail.ends_with('.'), "{sql}: {detail:?}");
        assert!(hint.is_empty() || hint.ends_with('.'), "{sql}: {hint:?}");
    }

    #[pg_test]
    fn a_negative_id_is_refused_by_every_reader() {
        for function in ["decode", "timestamp", "datacenter", "worker", "sequence", "owner"] {
            assert_error(
                &format!("SELECT snowflake_{function}(-1)"),
                "22023",
                "-1 is not a snowflake ID of this server's layout",
            );
        }
    }

    #[pg_test]
    fn what_the_layout_has_no_id_for_is_refused() {
        let outside = "timestamp is out of range for this server's layout";
        for time in ["-infinity", "2023-12-31 23:59:59.999+00", "2093-09-06 15:47:35.552+00", "infinity"] {
            for call in ["encode('{}', 0, 0)", "min('{}')", "max('{}')"] {
                assert_error(&format!("SELECT snowflake_{}", call.replace("{}", time)), "22008", outside);
            }
        }
        for (fields, message) in [
            ("-1, 0", "worker must be between 0 and 1023"),
            ("1024, 0", "worker must be between 0 and 1023"),
            ("0, -1", "sequence must be between 0 and 4095"),
            ("0, 4096", "sequence must be between 0 and 4095"),
        ] {
            assert_error(&format!("SELECT snowflake_encode('2024-01-01', {fields})"), "22023", message);
        }
        let [_, _, detail, _] = error_of("SELECT snowflake_encode('2024-01-01', 1024, 0)");
        assert_eq!(detail, "worker is 1024. This server's layout is 41/10/12 1ms 2024-01-01 00:00:00+00.");
        let [_, _, detail, _] = error_of("SELECT snowflake_min('infinity')");
        assert!(detail.starts_with("The timestamp is infinity. The layout starts at "), "{detail}");
    }

    // ---- replicated rows ----

    /// A table whose guard reads this column, and a session that applies rows.
    fn guarded(table: &str, columns: &str, argument: &str) {
        Spi::run(&format!(
            "SET LOCAL session_replication_role = origin;
             CREATE TABLE {table} {columns};
             CREATE TRIGGER guard BEFORE INSERT ON {table} FOR EACH ROW
                 EXECUTE FUNCTION snowflake_refuse_own_worker({argument});
             ALTER TABLE {table} ENABLE REPLICA TRIGGER guard;
             SET LOCAL session_replication_role = replica"
        ))
        .unwrap();
    }

    const OWN_WORKER: &str = "replicated row of table \"t\" has an ID of this server's own worker";

    #[pg_test]
    fn the_guard_refuses_a_replicated_row_of_an_own_worker_and_lets_others_pass() {
        guarded("t", "(id bigint, note text)", "");
        for worker in [5, 261, 517, 773] {
            let row = format!("INSERT INTO t VALUES (snowflake_encode('2026-01-02 03:04Z', {worker}, 9))");
            assert_error(&row, "23000", OWN_WORKER);
        }
        Spi::run(
            "INSERT INTO t SELECT snowflake_encode(now(), worker, 0) FROM generate_series(0, 1023) AS worker
             WHERE worker % 256 <> 5;
             INSERT INTO t VALUES (NULL), (-1), (-9223372036854775808)",
        )
        .unwrap();
        assert_eq!(one::<i64>("SELECT count(*) FROM t"), Some(1_023));
        // The guard is for inserted rows: an update of an own row comes from any server.
        Spi::run("UPDATE t SET id = snowflake_encode(now(), 5, 0) WHERE id = -1").unwrap();
        let [_, _, detail, hint] =
            error_of("INSERT INTO t VALUES (snowflake_encode('2026-01-02 03:04Z', 261, 9))");
        assert!(detail.starts_with("id = 265"), "{detail}");
        assert!(detail.ends_with(" is of worker 261 and from 2026-01-02 03:04:00+00."), "{detail}");
        assert!(hint.contains("another snowflake_id.worker_id"), "{hint}");
    }

    #[pg_test]
    fn the_guard_reads_the_columns_that_it_is_told_in_any_table() {
        Spi::run(
            "CREATE DOMAIN key AS bigint CHECK (VALUE > 0); CREATE DOMAIN order_key AS key;
             CREATE TABLE parts (id bigint) PARTITION BY HASH (id)",
        )
        .unwrap();
        for (definition, argument, column) in [
            ("(note text, gone text, \"the Key\" bigint)", "'the Key'", "\"the Key\""),
            ("(key order_key)", "key", "key"),
            ("(id bigint GENERATED ALWAYS AS IDENTITY)", "", "id"),
            ("(other bigint DEFAULT 0, id bigint)", "'other', 'id'", "id"),
            ("PARTITION OF parts FOR VALUES WITH (modulus 1, remainder 0)", "", "id"),
        ] {
            guarded("t", definition, argument);
            Spi::run("ALTER TABLE t DROP COLUMN IF EXISTS gone").unwrap();
            let table = if definition.starts_with('(') { "t" } else { "parts" };
            let insert =
                |id: &str| format!("INSERT INTO {table} ({column}) OVERRIDING SYSTEM VALUE VALUES ({id})");
            assert_error(&insert("snowflake_nextval()"), "23000", OWN_WORKER);
            Spi::run(&insert("snowflake_encode(now(), 6, 0)")).unwrap();
            Spi::run("DROP TABLE t").unwrap();
        }
    }

    #[pg_test]
    fn a_guard_that_cannot_read_ids_refuses_every_row() {
        for (column, argument, state, message) in [
            ("key bigint", "", "42703", "column \"id\" of table \"t\" does not exist"),
            ("id bigint", "'ctid'", "42703", "column \"ctid\" of table \"t\" does not exist"),
            (
                "id bigint",
                "'id); DROP TABLE t; --'",
                "42703",
                "column \"id); DROP TABLE t; --\" of table \"t\" does not exist",
            ),
            ("id integer", "", "42804", "column \"id\" of table \"t\" is not of type bigint"),
            ("id snowflake_base62", "", "42804", "column \"id\" of table \"t\" is not of type bigint"),
            ("id numeric", "", "42804", "column \"id\" of table \"t\" is not of type bigint"),
            (
                "n int, id bigint GENERATED ALWAYS AS (n) STORED",
                "",
                "42P16",
                "column \"id\" of table \"t\" is a generated column",
            ),
        ] {
            guarded("t", &format!("({column})"), argument);
            assert_error("INSERT INTO t DEFAULT VALUES", state, message);
            Spi::run("DROP TABLE t").unwrap();
        }
    }

    #[pg_test]
    fn the_guard_is_a_replica_trigger_before_insert_for_each_row_and_nothing_else() {
        let function = "function \"snowflake_refuse_own_worker\"";
        let misplaced = format!("{function} must be fired BEFORE INSERT FOR EACH ROW");
        let ordinary = "trigger \"guard\" of table \"t\" must be a replica trigger";
        for (when, enable, call, message) in [
            ("BEFORE INSERT ON t FOR EACH ROW", "ENABLE", "INSERT INTO t VALUES (1)", ordinary),
            ("BEFORE INSERT ON t FOR EACH ROW", "ENABLE ALWAYS", "INSERT INTO t VALUES (1)", ordinary),
            ("AFTER INSERT ON t FOR EACH ROW", "ENABLE", "INSERT INTO t VALUES (1)", &misplaced),
            ("BEFORE INSERT ON t FOR EACH STATEMENT", "ENABLE", "INSERT INTO t VALUES (1)", &misplaced),
            ("BEFORE INSERT OR UPDATE ON t FOR EACH ROW", "ENABLE", "UPDATE t SET id = 2", &misplaced),
            ("BEFORE DELETE ON t FOR EACH ROW", "ENABLE", "DELETE FROM t", &misplaced),
            ("BEFORE TRUNCATE ON t", "ENABLE", "TRUNCATE t", &misplaced),
        ] {
            Spi::run(&format!(
                "CREATE TABLE t AS SELECT 0::bigint AS id;
                 CREATE TRIGGER guard {when} EXECUTE FUNCTION snowflake_refuse_own_worker();
                 ALTER TABLE t {enable} TRIGGER guard"
            ))
            .unwrap();
            assert_error(call, "39P01", message);
            Spi::run("DROP TABLE t").unwrap();
        }
        let plain = format!("{function} was not called by trigger manager");
        assert_error("SELECT snowflake_refuse_own_worker()", "39P01", &plain);
    }

    #[pg_test]
    fn any_owner_of_a_table_can_guard_it_whatever_the_search_path_has() {
        Spi::run(
            "CREATE ROLE owner; CREATE SCHEMA own AUTHORIZATION owner; SET LOCAL ROLE owner;
             CREATE TABLE own.t (id bigint);
             CREATE FUNCTION own.snowflake_worker(bigint) RETURNS int LANGUAGE plpgsql
                 AS 'BEGIN RAISE EXCEPTION ''called''; END';
             CREATE TRIGGER guard BEFORE INSERT ON own.t FOR EACH ROW EXECUTE FUNCTION snowflake_refuse_own_worker();
             ALTER TABLE own.t ENABLE REPLICA TRIGGER guard;
             RESET ROLE; SET LOCAL search_path = own, public; SET LOCAL session_replication_role = replica",
        )
        .unwrap();
        assert_error("INSERT INTO own.t VALUES (snowflake_nextval())", "23000", OWN_WORKER);
        Spi::run(
            "SET LOCAL session_replication_role = origin; INSERT INTO own.t VALUES (snowflake_nextval())",
        )
        .unwrap();
    }

    #[pg_test]
    fn what_is_no_base62_is_refused() {
        assert_error("SELECT snowflake_to_base62(-1)", "22023", "-1 is not a snowflake ID");
        for text in ["", "0", "000000000000", "0000000000-", "AzL8n0Y58m8", "0000000000\u{e9}"] {
            let message = format!("invalid base62 snowflake ID: \"{text}\"");
            assert_error(&format!("SELECT snowflake_from_base62('{text}')"), "22023", &message);
        }
    }

    #[pg_test]
    fn what_is_no_id_of_another_system_is_refused() {
        for (id, layout) in [("-1", "discord"), ("9007199254740992", "41/5/7 1ms 2024-01-01")] {
            let message = format!("{id} is not an ID of layout \"{layout}\"");
            for function in ["decode", "timestamp", "datacenter", "worker", "sequence"] {
                assert_error(&format!("SELECT snowflake_{function}({id}, '{layout}')"), "22023", &message);
            }
        }
        for layout in ["myspace", "", "41/10/12", "41/10/12 5ms 2015-01-01", "41/10/12 1ms now"] {
            let message = format!("invalid layout: \"{layout}\"");
            assert_error(&format!("SELECT snowflake_decode(1, '{layout}')"), "22023", &message);
        }
    }

    #[pg_test]
    fn n_out_of_range_is_refused() {
        let batch = "n must not be negative";
        assert_error("SELECT snowflake_nextval_batch(-1)", "22023", batch);
        let range = "n must be between 1 and 4096";
        for n in [0, -1, 4097, i32::MAX] {
            assert_error(&format!("SELECT snowflake_nextval_range({n})"), "22023", range);
        }
    }

    #[pg_test]
    fn administering_needs_the_right() {
        Spi::run("CREATE ROLE ordinary; SET LOCAL ROLE ordinary").unwrap();
        assert!(is_true("snowflake_nextval() > 0"), "making an ID needs none");
        for call in [
            "snowflake_rotate()",
            "snowflake_adopt()",
            "snowflake_reset_stats()",
            "snowflake_internal.snowflake_status_row()",
        ] {
            let [state, ..] = error_of(&format!("SELECT {call}"));
            assert_eq!(state, "42501", "{call}");
        }
    }
}
