//! Reading fields of IDs, beside the same by hand: `to_timestamp` of a float, shifts and masks.

use crate::bench::Bench;
use snowflake_server_tests::sql::run;

const ROWS: u32 = 500_000;

/// The measurement, who, and the query's head; all count what they read.
const QUERIES: [(&str, &str, &str); 7] = [
    ("read_time_ms", "snowflake", "count(snowflake_timestamp(id)) FROM ids"),
    ("read_time_ms", "by_hand", "count(to_timestamp(((id >> 22) + 1704067200000)::float8 / 1000)) FROM ids"),
    ("read_time_ms", "numeric", "count(to_timestamp(((id >> 22) + 1704067200000) / 1000.0)) FROM ids"),
    (
        "read_all_ms",
        "snowflake",
        "count(created_at), count(worker_id), count(sequence)
         FROM (SELECT (snowflake_decode(id)).* FROM ids OFFSET 0) s",
    ),
    (
        "read_all_ms",
        "by_hand",
        "count(t), count(w), count(s)
         FROM (SELECT to_timestamp(((id >> 22) + 1704067200000)::float8 / 1000) AS t, (id >> 12) & 1023 AS w,
                      id & 4095 AS s FROM ids OFFSET 0) s",
    ),
    (
        "read_foreign_ms",
        "snowflake",
        "count(created_at), count(datacenter_id), count(worker_id), count(sequence)
         FROM (SELECT (snowflake_decode(id, 'discord')).* FROM ids OFFSET 0) s",
    ),
    (
        "read_foreign_ms",
        "by_hand",
        "count(t), count(d), count(w), count(s)
         FROM (SELECT to_timestamp(((id >> 22) + 1420070400000)::float8 / 1000) AS t, (id >> 17) & 31 AS d,
                      (id >> 12) & 31 AS w, id & 4095 AS s FROM ids OFFSET 0) s",
    ),
];

pub fn reading(bench: &mut Bench, seconds: f64) {
    let create = format!(
        "CREATE TABLE ids AS
             SELECT snowflake_encode('2026-01-01 00:00Z'::timestamptz + n * interval '1 s', 1, 0) AS id
             FROM generate_series(1, {ROWS}) AS n"
    );
    run(&mut bench.session, &create);
    run(&mut bench.session, "VACUUM ANALYZE ids");
    bench.warm_up(|bench| round(bench, 0));
    bench.rounds("reading", seconds, round);
    run(&mut bench.session, "DROP TABLE ids");
}

fn round(bench: &mut Bench, nth: usize) {
    for turn in 0..QUERIES.len() {
        let (measurement, key, query) = QUERIES[(turn + nth) % QUERIES.len()];
        let took = bench.seconds_of(&format!("SELECT {query}"));
        bench.note(measurement, key, took * 1e3);
    }
}
