//! The candidates and references that are compared.

/// A kind of key that people use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name in the data files, and in the names of its tables.
    pub key: &'static str,
    /// Its name for readers.
    pub label: &'static str,
    /// One call that generates one value.
    pub call: &'static str,
    /// The type of a primary key with these values.
    pub column: &'static str,
    /// The first major version of PostgreSQL that supports it.
    pub since: u32,
    /// Its colour in the plots, from the palette of Okabe and Ito, which colour-blind readers can tell apart.
    pub color: (u8, u8, u8),
}

const fn candidate(
    key: &'static str,
    label: &'static str,
    call: &'static str,
    column: &'static str,
    since: u32,
    color: (u8, u8, u8),
) -> Candidate {
    Candidate { key, label, call, column, since, color }
}

/// All candidates, in the order of tables and plots; ours first.
pub const CANDIDATES: [Candidate; 6] = [
    candidate(
        "snowflake",
        "snowflake_nextval()",
        "snowflake_nextval()",
        "bigint PRIMARY KEY DEFAULT snowflake_nextval()",
        15,
        (0, 114, 178),
    ),
    candidate("bigserial", "bigserial", "nextval('plain')", "bigserial PRIMARY KEY", 15, (213, 94, 0)),
    candidate(
        "cached",
        "sequence, CACHE 1000",
        "nextval('cached')",
        "bigint PRIMARY KEY DEFAULT nextval('cached')",
        15,
        (230, 159, 0),
    ),
    candidate(
        "uuid4",
        "gen_random_uuid()",
        "gen_random_uuid()",
        "uuid PRIMARY KEY DEFAULT gen_random_uuid()",
        15,
        (204, 121, 167),
    ),
    candidate("uuid7", "uuidv7()", "uuidv7()", "uuid PRIMARY KEY DEFAULT uuidv7()", 18, (0, 158, 115)),
    candidate(
        "gist",
        "PL/pgSQL snowflake",
        "gist_id()",
        "bigint PRIMARY KEY DEFAULT gist_id()",
        15,
        (100, 100, 100),
    ),
];

/// Not keys, but references that keys are measured against.
pub const REFERENCES: [Candidate; 3] = [
    candidate("clock", "clock_timestamp()", "clock_timestamp()", "", 15, (0, 0, 0)),
    candidate("sleep", "pg_sleep(0.001)", "pg_sleep(0.001)", "", 15, (0, 0, 0)),
    candidate("constant", "no ID at all", "pg_backend_pid()", "", 15, (0, 0, 0)),
];

/// A PL/pgSQL function of the kind that people copy: written here, in the form of Instagram's.
pub const GIST_ID: &str = include_str!("gist_id.sql");

/// The candidates that a server of this major version supports.
pub fn of_version(major: u32) -> Vec<Candidate> {
    CANDIDATES.into_iter().filter(|candidate| candidate.since <= major).collect()
}

/// The reference with this name.
///
/// # Panics
/// If there is none.
pub fn reference(key: &str) -> Candidate {
    REFERENCES.into_iter().find(|reference| reference.key == key).expect("a reference of that name")
}
