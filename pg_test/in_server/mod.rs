//! Tests inside a PostgreSQL server, of what only they can show: the library as it is built for development, where Rust
//! checks arithmetic for overflow and pointers for sense, and calls of it from Rust. What it does is in `regress`.
//!
//! The server runs with `worker_id = 5` and the other settings by default.

#[pgrx::pg_schema]
mod tests {
    use pgrx::prelude::*;
    use std::collections::HashSet;

    fn one<T: FromDatum + IntoDatum>(sql: &str) -> Option<T> {
        Spi::get_one(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    #[pg_test]
    fn a_value_a_set_a_row_and_a_null_come_to_rust() {
        let first = one::<i64>("SELECT snowflake_nextval()").expect("an ID is never null");
        let batch = Spi::connect(|client| {
            let rows = client.select("SELECT snowflake_nextval_batch(10000)", None, &[]).expect("a batch");
            rows.map(|row| row.get::<i64>(1).expect("a bigint").expect("no null")).collect::<Vec<_>>()
        });
        // In no order, because the next test rotates on the same server.
        let ids: HashSet<i64> = batch.into_iter().chain([first]).collect();
        assert_eq!(ids.len(), 10_001);
        let (first, last) =
            Spi::get_two::<i64, i64>("SELECT * FROM snowflake_nextval_range(300)").expect("a range");
        assert_eq!(last.zip(first).map(|(last, first)| last - first), Some(299));
        assert_eq!(one::<i64>("SELECT (snowflake_nextval_range(NULL)).first"), None);
        let server = "SELECT snowflake_server($1)";
        assert_eq!(Spi::get_one_with_args::<i32>(server, &[(773_i64 << 12).into()]), Ok(Some(5)));
        let other = one::<i32>("SELECT (snowflake_decode(7, '41/10/12 1ms 2024-01-01')).sequence");
        assert_eq!(other, Some(7));
    }

    /// The largest values, the smallest, and those that administrators call.
    #[pg_test]
    fn no_call_overflows_or_reads_what_is_not_there() {
        for call in [
            "snowflake_nextval_range(4096), snowflake_lastval(), snowflake_rotate(), snowflake_adopt()",
            "snowflake_decode(9223372036854775807), snowflake_server(9223372036854775807), snowflake_decode(0)",
            "snowflake_encode('2093-09-06 15:47:35.551+00', 1023, 4095), snowflake_min('2024-01-01 00:00+00')",
            "snowflake_between(9223372036854775807, '4714-11-24 00:00+00 BC', '294276-12-31 23:59:59.999999+00')",
            "snowflake_from_base62(snowflake_to_base62(9223372036854775807)), snowflake_to_base62(0)",
            "snowflake_decode(9223372036854775807, name) FROM snowflake_layouts",
            "snowflake_generator_sql(1023), snowflake_reader_sql()",
            "snowflake_reset_stats(), status, workers FROM snowflake_status AS status, snowflake_workers AS workers",
        ] {
            Spi::run(&format!("SELECT {call}")).unwrap_or_else(|error| panic!("{call}: {error}"));
        }
    }

    /// Values of which each is of another size, so that none is taken for another, or in another unit.
    #[pg_test]
    fn each_message_has_its_values_in_its_units() {
        use crate::messages::{LeaseFailure, gate, log::describe, reading};
        use crate::postgres::{display::duration, time::clock_us, time::to_postgres};
        use snowflake_contact::{Failure, Kind};
        use snowflake_core::{Event, NoLane, Refusal};
        let year = |n: i64| (n - 1970) * 31_556_952_000_000 + 15_000_000_000_000;
        let opened = |timeline, first_us, is_first| {
            describe(Event::Opened { timeline, worker: 515, lane: 2, home: 3, first_us, is_first })
        };
        let rotated = |behind_us| describe(Event::Rotated { from: 1, to: 257, behind_us });
        let in_two_days = clock_us(libc::CLOCK_REALTIME) + 180_000_000_000;
        let starts = [opened(1, 0, false), opened(4, in_two_days, false), opened(1, year(2032), true)];
        let events = [describe(Event::Adopted(year(2031))), rotated(0), rotated(7_150_000_000)];
        let no_lane = NoLane { behind_us: -5_000, worker: 771, usable_at_us: year(2037), is_floor: false };
        let refusals = [Refusal::BeforeEpoch(90_500_000), Refusal::Exhausted, Refusal::NoLane(no_lane)];
        let (refusals, rotation) = (refusals.map(gate::refused), gate::not_rotated(Refusal::NoLane(no_lane)));
        let kinds = [Kind::Server, Kind::Connection, Kind::Call, Kind::Answer];
        let failures = kinds.map(|kind| LeaseFailure::failed(&Failure::new(kind, format!("{kind:?}"))));
        let waits =
            [gate::lease_ended(7, year(2033), None), gate::settling(1_500_000), gate::not_adopted(28)];
        let floors = [year(2034), i64::MAX].map(gate::floor_in_future);
        let rows = reading::descending(to_postgres(year(2035)), year(2036));
        let others = ["1", "2, 3"].map(reading::other_database);
        let lengths = [9_999_000, 7_800_000_000, 200_000_000_000].map(duration);
        let all = format!("{starts:?}{events:?}{refusals:?}{waits:?}{floors:?}{rows:?}{others:?}{lengths:?}")
            + &format!("{rotation:?}{failures:?}");
        for words in "worker 515 generates the IDs of timeline 4|lane 2 of home worker 3: successive|\
            lane 2 of home worker 3. IDs continue above everything that was reserved before.\"|which is 2 days 1 h ahead|\
            begin a second further above the system clock, at 2032-|adopted, with IDs above 2031-|exists elsewhere.\", hint: \"\"|\
            from worker 1 to worker 257\"|from worker 1 to worker 257: system|is 119 min 10 s behind the newest|\
            is 90.5 s before the epoch|ends at 2093-09-06|lease of worker 7 ended at 2033-|near enough in 1500 ms|\
            floor is 2034-|floor is infinity; |snowflake_adopt: could not access file|No space left on device\"|\
            A row with time 2035-|follows one with time 2036-|has 1; |Set snowflake_id.layout|has 2, 3; |\
            A dump of another layout|\"9999 ms\"|\"2 h 10 min\"|\"2 days 7 h\"|is 0 ms behind the times|Worker 771 is|\
            reaches 2037-|hint: \"\" })[LeaseFailure|Server\", hint: \"Check that PostgreSQL's client|\
            Connection\", hint: \"Check the hosts|Call\", hint: \"Check the registry's server|Answer\", hint: \"Install".split('|')
        {
            assert!(all.contains(words), "{words:?} is missing in {all}");
        }
    }
}
