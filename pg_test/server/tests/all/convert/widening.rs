//! Integer keys become `bigint`, with all columns that reference them. Statistics stay.

use super::calls::{converts, database, insert, kind_of};
use snowflake_server_tests::sql::{column, fails, one, run};

#[test]
fn integer_keys_are_widened_with_all_that_reference_them() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE author (id serial PRIMARY KEY, boss integer REFERENCES author);
         CREATE TABLE book (author smallint REFERENCES author ON DELETE CASCADE, part integer,
             second integer, PRIMARY KEY (author, part));
         ALTER TABLE book ADD FOREIGN KEY (second) REFERENCES author NOT VALID;
         CREATE TABLE page (author integer, part integer, note text,
             FOREIGN KEY (author, part) REFERENCES book);
         CREATE TABLE profile (author integer PRIMARY KEY REFERENCES author);
         CREATE TABLE photo (profile integer DEFAULT 1 REFERENCES profile);
         CREATE INDEX ON photo (profile) WHERE profile > 0;
         COMMENT ON CONSTRAINT photo_profile_fkey ON photo IS 'kept';
         CREATE TABLE sale (author integer REFERENCES author, at date) PARTITION BY RANGE (at);
         CREATE TABLE sale_1 PARTITION OF sale FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
         CREATE TABLE wide (author bigint REFERENCES author, n bigint);
         CREATE TABLE other (id serial PRIMARY KEY, n integer);
         INSERT INTO author SELECT i, i / 2 + 1 FROM generate_series(1, 10) i;
         INSERT INTO book SELECT i, 1, i FROM generate_series(1, 10) i;
         INSERT INTO page SELECT i, 1 FROM generate_series(1, 10) i;
         INSERT INTO profile VALUES (1), (2); INSERT INTO photo VALUES (2), (1);
         INSERT INTO sale VALUES (3, '2026-05-05'); INSERT INTO wide VALUES (4, 5)",
    );
    let rows = "SELECT md5(string_agg(r, ' ' ORDER BY r)) FROM (
        SELECT author::text r FROM author UNION ALL SELECT book::text FROM book UNION ALL
        SELECT page::text FROM page UNION ALL SELECT photo::text FROM photo UNION ALL
        SELECT sale::text FROM sale UNION ALL SELECT wide::text FROM wide) r";
    let before: String = one(&mut session, rows);
    let said = converts(&database, &mut session, "'author', 'id'");
    assert_eq!(
        said,
        [
            "LOCK TABLE public.author, public.book, public.page, public.photo, public.profile, public.sale, \
             public.wide IN ACCESS EXCLUSIVE MODE",
            "ALTER TABLE public.author ALTER COLUMN id TYPE bigint, ALTER COLUMN boss TYPE bigint",
            "ALTER TABLE public.book ALTER COLUMN author TYPE bigint, ALTER COLUMN second TYPE bigint",
            "ALTER TABLE public.page ALTER COLUMN author TYPE bigint",
            "ALTER TABLE public.photo ALTER COLUMN profile TYPE bigint",
            "ALTER TABLE public.profile ALTER COLUMN author TYPE bigint",
            "ALTER TABLE public.sale ALTER COLUMN author TYPE bigint",
            "ANALYZE public.author, public.book, public.page, public.photo, public.profile, public.sale, \
             public.sale_1",
            "ALTER TABLE public.author ALTER COLUMN id SET DEFAULT public.snowflake_nextval()",
            "DROP SEQUENCE public.author_id_seq",
        ]
    );
    assert_eq!(one::<String>(&mut session, rows), before, "no value has changed");

    // No column is left that is too narrow for what it references, and unrelated columns are unchanged.
    let narrow =
        "SELECT attrelid::regclass || '.' || attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid
        WHERE atttypid IN ('integer'::regtype, 'smallint'::regtype) AND attnum > 0
            AND relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
            AND relname NOT LIKE 'snowflake\\_%' ORDER BY 1";
    assert_eq!(column::<String>(&mut session, narrow), ["book.part", "other.id", "other.n", "page.part"]);

    let mut fresh = database.restored();
    for session in [&mut session, &mut fresh] {
        let id = insert(session, "INSERT INTO author DEFAULT VALUES", "id");
        run(
            session,
            &format!(
                "UPDATE author SET boss = {id} WHERE id = 1; INSERT INTO book VALUES ({id}, 1, {id});
                 INSERT INTO page VALUES ({id}, 1); INSERT INTO profile VALUES ({id});
                 INSERT INTO photo VALUES ({id}); INSERT INTO sale VALUES ({id}, '2026-06-06');
                 INSERT INTO wide VALUES ({id}, {id})"
            ),
        );
        fails(session, "23503", "INSERT INTO photo VALUES (77)");
    }
}

/// If a foreign key has two columns, only the one that references the key is widened, in either place.
#[test]
fn of_a_foreign_key_over_two_columns_one_is_widened() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE item (shop integer, id serial PRIMARY KEY, UNIQUE (shop, id), UNIQUE (id, shop));
         CREATE TABLE line (item_no integer, shop_no integer, at smallint,
             FOREIGN KEY (shop_no, item_no) REFERENCES item (shop, id));
         CREATE TABLE price (shop_no smallint, item_no smallint,
             FOREIGN KEY (item_no, shop_no) REFERENCES item (id, shop), UNIQUE (shop_no, item_no));
         CREATE TABLE offer (a integer, b integer, FOREIGN KEY (a, b) REFERENCES price (shop_no, item_no));
         INSERT INTO item (shop) VALUES (1), (2); INSERT INTO line VALUES (2, 2, 7);
         INSERT INTO price VALUES (2, 2); INSERT INTO offer VALUES (2, 2)",
    );
    let said = converts(&database, &mut session, "'item', 'id'");
    assert_eq!(
        said[1..said.len() - 3],
        [
            "ALTER TABLE public.item ALTER COLUMN id TYPE bigint",
            "ALTER TABLE public.line ALTER COLUMN item_no TYPE bigint",
            "ALTER TABLE public.offer ALTER COLUMN b TYPE bigint",
            "ALTER TABLE public.price ALTER COLUMN item_no TYPE bigint",
        ]
    );
    let mut fresh = database.restored();
    for session in [&mut session, &mut fresh] {
        let id = insert(session, "INSERT INTO item (shop) VALUES (3)", "id");
        run(
            session,
            &format!(
                "INSERT INTO line VALUES ({id}, 3); INSERT INTO price VALUES (3, {id});
                 INSERT INTO offer VALUES (3, {id})"
            ),
        );
        fails(session, "23503", &format!("INSERT INTO line VALUES ({id}, 2)"));
    }
}

/// The key itself may be wide already.
#[test]
fn integer_columns_that_reference_a_bigint_key_are_widened() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id bigserial PRIMARY KEY);
         CREATE TABLE narrow (t integer REFERENCES t);
         CREATE TABLE wide (t bigint PRIMARY KEY REFERENCES t);
         CREATE TABLE beyond (wide smallint REFERENCES wide);
         INSERT INTO t DEFAULT VALUES; INSERT INTO narrow VALUES (1); INSERT INTO wide VALUES (1);
         INSERT INTO beyond VALUES (1)",
    );
    let said = converts(&database, &mut session, "'t', 'id'");
    assert_eq!(
        said,
        [
            "LOCK TABLE public.beyond, public.narrow, public.t, public.wide IN ACCESS EXCLUSIVE MODE",
            "ALTER TABLE public.beyond ALTER COLUMN wide TYPE bigint",
            "ALTER TABLE public.narrow ALTER COLUMN t TYPE bigint",
            "ANALYZE public.beyond, public.narrow",
            "ALTER TABLE public.t ALTER COLUMN id SET DEFAULT public.snowflake_nextval()",
            "DROP SEQUENCE public.t_id_seq",
        ]
    );
    let mut fresh = database.restored();
    for session in [&mut session, &mut fresh] {
        let id = insert(session, "INSERT INTO t DEFAULT VALUES", "id");
        for table in ["narrow", "wide", "beyond"] {
            run(session, &format!("INSERT INTO {table} VALUES ({id})"));
        }
    }
    // A column that is wide enough needs no change, whatever it references.
    run(&mut session, "CREATE TABLE u (id bigserial PRIMARY KEY); CREATE TABLE of_u (u bigint REFERENCES u)");
    assert!(!converts(&database, &mut session, "'u', 'id'").join(" ").contains("of_u"));
    // A column that references a snowflake key already.
    run(&mut session, "CREATE TABLE late (u integer REFERENCES u)");
    converts(&database, &mut session, "'u', 'id'");
    assert_eq!(kind_of(&mut session, "late", "u"), "bigint  no default");
}

#[test]
fn a_cycle_of_foreign_keys_is_widened() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE egg (id serial PRIMARY KEY, hen integer UNIQUE);
         CREATE TABLE hen (egg integer PRIMARY KEY REFERENCES egg);
         ALTER TABLE egg ADD FOREIGN KEY (hen) REFERENCES hen;
         INSERT INTO egg VALUES (1, NULL); INSERT INTO hen VALUES (1); UPDATE egg SET hen = 1",
    );
    let said = converts(&database, &mut session, "'egg', 'id'");
    assert!(said.contains(
        &"ALTER TABLE public.egg ALTER COLUMN id TYPE bigint, ALTER COLUMN hen TYPE bigint".to_owned()
    ));
    insert(&mut database.restored(), "INSERT INTO egg DEFAULT VALUES", "id");
}

#[test]
fn a_published_integer_key_comes_with_a_word_on_subscribers() {
    let database = database();
    let mut session = database.connect();
    run(&mut session, "CREATE TABLE t (id serial PRIMARY KEY); CREATE PUBLICATION \"P 1\" FOR ALL TABLES");
    let notes = "SELECT string_agg(note, ' ') FROM snowflake_convert('t', 'id')";
    let note: String = one(&mut session, notes);
    assert!(note.contains("published by \"P 1\": subscribers need the wider columns first"), "{note}");
    run(&mut session, "DROP PUBLICATION \"P 1\"");
    assert!(!one::<String>(&mut session, notes).contains("published"));
    converts(&database, &mut session, "'t', 'id'");
}

#[test]
fn the_statistics_of_widened_columns_are_there_again() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id serial PRIMARY KEY); CREATE TABLE u (t integer REFERENCES t, n integer);
         INSERT INTO t SELECT FROM generate_series(1, 1000);
         INSERT INTO u SELECT i % 10 + 1, i FROM generate_series(1, 10000) i; ANALYZE",
    );
    let statistics =
        "SELECT tablename || '.' || attname || ' ' || n_distinct FROM pg_stats WHERE schemaname = 'public'
                      AND tablename IN ('t', 'u') ORDER BY 1";
    let before: Vec<String> = column(&mut session, statistics);
    assert_eq!(before, ["t.id -1", "u.n -1", "u.t 10"]);
    converts(&database, &mut session, "'t', 'id'");
    assert_eq!(column::<String>(&mut session, statistics), before);
}

#[test]
fn statistics_keep_their_targets() {
    let database = database();
    let mut session = database.connect();
    run(
        &mut session,
        "CREATE TABLE t (id serial PRIMARY KEY, n integer);
         CREATE STATISTICS \"S 1\" ON id, n FROM t; ALTER STATISTICS \"S 1\" SET STATISTICS 77;
         CREATE STATISTICS s2 ON (id + 1), n FROM t; CREATE STATISTICS s3 ON n, (n + 1) FROM t;
         CREATE INDEX i ON t (n, (id + 1)); ALTER INDEX i ALTER COLUMN 2 SET STATISTICS 55;
         ALTER STATISTICS s2 SET STATISTICS 0; COMMENT ON STATISTICS s2 IS 'kept'",
    );
    let kept = "SELECT concat_ws(' ', stxname, stxstattarget, obj_description(oid)) FROM pg_statistic_ext
                UNION ALL SELECT concat_ws(' ', attname, attstattarget) FROM pg_attribute
                WHERE attrelid = 'i'::regclass AND attstattarget >= 0 ORDER BY 1";
    let before: Vec<String> = column(&mut session, kept);
    assert!(before.contains(&"s2 0 kept".to_owned()) && before.contains(&"expr 55".to_owned()), "{before:?}");
    converts(&database, &mut session, "'t', 'id'");
    assert_eq!(column::<String>(&mut session, kept), before);
    assert_eq!(kind_of(&mut session, "t", "id"), "bigint  snowflake_nextval() not null");
}
