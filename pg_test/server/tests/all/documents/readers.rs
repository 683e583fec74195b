//! `snowflake_reader_sql()`: on a server without the library, its functions return what the extension's own return.

use postgres::Client;
use rand::Rng;
use snowflake_server_tests::Server;
use snowflake_server_tests::sql::{column, next, one, run};

const EPOCH_S: i64 = 1_704_067_200;

/// Bits, tick, epoch, and the length of a tick in microseconds.
const LAYOUTS: &[(&str, &str, &str, i64)] = &[
    ("41/10/12", "1ms", "2024-01-01T00:00:00Z", 1_000),
    ("41/5+5/12", "1ms", "2024-01-01T00:00:00Z", 1_000),
    ("39/16/8", "10ms", "2014-09-01T00:00:00.123456Z", 10_000),
    ("31/16/10", "1s", "1969-07-20T20:17:40.5Z", 1_000_000),
    // A time field that needs both parts of an interval, and an ID's highest bit.
    ("42/1/20", "1s", "2024-01-01T00:00:00Z", 1_000_000),
];

fn without_the_library() -> Server {
    Server::builder().without_library().start()
}

/// Everything that readers or a generator might use by a plain name, before PostgreSQL's own on the search_path.
pub const HOSTILE: &str = "
    DO $do$
    DECLARE of_types record; operator text; called text;
    BEGIN
        FOR of_types IN SELECT * FROM (VALUES
            ('bigint', 'bigint'), ('bigint', 'integer'), ('integer', 'integer'), ('bigint', 'interval'), ('double precision', 'interval'),
            ('numeric', 'numeric'), ('numeric', 'integer'), ('numeric', 'bigint'), ('timestamp', 'interval'),
            ('interval', 'interval'), ('timestamptz', 'timestamptz')) AS t (l, r)
        LOOP
            EXECUTE format('CREATE FUNCTION public.hostile(%s, %s) RETURNS bigint LANGUAGE plpgsql
                            AS $$ BEGIN RAISE EXCEPTION ''hostile''; END $$', of_types.l, of_types.r);
            FOREACH operator IN ARRAY '{&,|,<<,>>,+,-,*,/,%,<,>,<=,>=,=}'::text[] LOOP
                EXECUTE format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.hostile)',
                               operator, of_types.l, of_types.r);
            END LOOP;
        END LOOP;
        FOREACH called IN ARRAY string_to_array('floor(numeric); ceil(numeric); extract(text, timestamp); nextval(regclass);'
            ' timezone(text, timestamptz); clock_timestamp(); pg_sequence_last_value(regclass); generate_series(int, int);'
            ' date_part(text, timestamptz); currval(regclass); setval(regclass, bigint); pg_sleep(float8)', '; ')
        LOOP
            EXECUTE format('CREATE FUNCTION public.%s RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE ''hostile''; END $$', called);
        END LOOP;
    END
    $do$;
    CREATE DOMAIN public.timestamptz AS text;
    SET search_path = public, pg_catalog";

/// The first and last IDs, one off each end of the time, and random ones.
fn ids(bits: &str) -> Vec<i64> {
    let widths: Vec<u32> = bits.split(['/', '+']).map(|width| width.parse().expect("a width")).collect();
    let (all, below): (u32, u32) = (widths.iter().sum(), widths[1..].iter().sum());
    let (last, tick) = (i64::MAX >> (63 - all), 1 << below);
    let mut random = rand::rng();
    let ends = [0, 1, tick - 1, tick, tick + 1, last - tick, last - tick + 1, last - 1, last];
    ends.into_iter().chain((0..2_000).map(|_| random.random_range(0..=last))).collect()
}

/// The ends of the layout's time and of its first and last tick, and a microsecond beside them.
fn times(session: &mut Client, ids: &[i64], tick_us: i64) -> Vec<String> {
    let around = "SELECT DISTINCT (snowflake_timestamp(id) + n * interval '1 us' + m * $2::float8 * interval '1 us')::text
                  FROM unnest($1::bigint[]) AS id, generate_series(-1, 1) AS n, generate_series(-1, 2) AS m";
    let rows = session.query(around, &[&&ids[..40], &(tick_us as f64)]).expect("times");
    let infinite = ["-infinity".to_owned(), "infinity".to_owned(), "0044-03-15 00:00 BC".to_owned()];
    rows.iter().map(|row| row.get(0)).chain(infinite).collect()
}

fn texts(session: &mut Client, query: &str, of: &[String]) -> Vec<Option<String>> {
    let rows = session.query(query, &[&of]).unwrap_or_else(|e| panic!("{query}: {e}"));
    rows.iter().map(|row| row.get(0)).collect()
}

#[test]
fn the_readers_read_what_the_extension_reads() {
    let plain = without_the_library();
    let mut reader = plain.connect();
    for &(bits, tick, epoch, tick_us) in LAYOUTS {
        let server = Server::builder()
            .setting("snowflake_id.layout", bits)
            .setting("snowflake_id.tick", tick)
            .setting("snowflake_id.epoch", epoch)
            .start_with_extension();
        let mut own = server.connect();
        let statements: String = one(&mut own, "SELECT snowflake_reader_sql()");
        assert!(!statements.contains('{') && statements.contains(&format!("IDs in the layout {bits}, tick")));
        run(&mut reader, "DROP SCHEMA public CASCADE; CREATE SCHEMA public");
        run(&mut reader, HOSTILE);
        run(&mut reader, &statements);
        run(&mut reader, "RESET search_path");

        let ids = ids(bits);
        let of_ids: Vec<String> = ids.iter().map(i64::to_string).collect();
        let names: Vec<String> = column(
            &mut reader,
            "SELECT proname::text FROM pg_proc WHERE proname LIKE 'snowflake%' AND proargtypes = '20'",
        );
        assert!(names.len() >= 5, "{names:?}");
        for name in &names {
            let values = format!(
                "SELECT {name}(id)::text FROM unnest($1::text[]::bigint[]) WITH ORDINALITY AS ids(id, n) ORDER BY n"
            );
            let of_reader = texts(&mut reader, &values, &of_ids);
            // A layout of two workers has no room for backup workers: the extension refuses to name a server.
            if bits == "42/1/20" && name == "snowflake_server" {
                assert!(of_reader.iter().all(Option::is_none), "{of_reader:?}");
            } else {
                assert_eq!(of_reader, texts(&mut own, &values, &of_ids), "{bits}: {name}");
            }
            assert_eq!(one::<Option<String>>(&mut reader, &format!("SELECT {name}(-1)::text")), None);
        }

        let times = times(&mut own, &ids, tick_us);
        let bounds = "SELECT ROW(snowflake_between_from(ts), snowflake_between_until(ts))::text
                      FROM unnest($1::text[]::timestamptz[]) WITH ORDINALITY AS times(ts, n) ORDER BY n";
        let own_bounds = bounds.replace("snowflake_between_", "snowflake_internal.snowflake_between_");
        assert_eq!(texts(&mut reader, bounds, &times), texts(&mut own, &own_bounds, &times), "{bits}");
        for time in &times {
            let of_tick = format!("SELECT ROW(snowflake_min('{time}'), snowflake_max('{time}'))::text");
            // Where the extension raises an error, the readers return null.
            let real = own.query_one(&of_tick, &[]).map_or("(,)".to_owned(), |row| row.get(0));
            assert_eq!(one::<String>(&mut reader, &of_tick), real, "{bits}, {time}");
        }
    }
}

#[test]
fn a_span_of_time_uses_the_primary_key() {
    let server = Server::builder().start_with_extension();
    let statements: String = one(&mut server.connect(), "SELECT snowflake_reader_sql()");
    let plain = without_the_library();
    let mut session = plain.connect();
    run(&mut session, &statements);
    let rows = "CREATE TABLE orders (id bigint PRIMARY KEY);
                INSERT INTO orders SELECT snowflake_min(to_timestamp($ + n)) FROM generate_series(0, 99999) AS n;
                ANALYZE orders";
    run(&mut session, &rows.replace('$', &EPOCH_S.to_string()));
    for ends in [
        "'2024-01-01 01:00Z', '2024-01-01 02:00Z'",
        "to_timestamp(1704070800), to_timestamp(1704074400)",
        "(SELECT timestamptz '2024-01-01 01:00Z'), (SELECT timestamptz '2024-01-01 02:00Z')",
    ] {
        let query = format!("SELECT count(*) FROM orders WHERE snowflake_between(id, {ends})");
        let plan = column::<String>(&mut session, &format!("EXPLAIN (COSTS OFF) {query}")).join("\n");
        assert!(plan.contains("Index Cond: ((id >= ") && !plan.contains("Filter"), "{plan}");
        assert_eq!(one::<i64>(&mut session, &query), 3_600, "{ends}");
    }
    let one_of_them = next(&mut server.connect());
    assert!(one::<bool>(
        &mut session,
        &format!("SELECT snowflake_timestamp({one_of_them}) <= clock_timestamp()")
    ));
}
