//! The keys that are compared.

/// A kind of key that people use, or a reference that keys are measured against.
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
    /// A call takes microseconds, so a query has fewer of them.
    pub is_slow: bool,
}

/// The extension of pgEdge, written in C. No package registry has it: it takes part where it is installed.
const PGEDGE: &str = "pgedge";

/// All candidates, in the order of tables and pictures; ours first.
pub const CANDIDATES: [Candidate; 7] = [
    Candidate {
        key: "snowflake",
        label: "snowflake_nextval()",
        call: "snowflake_nextval()",
        column: "bigint PRIMARY KEY DEFAULT snowflake_nextval()",
        is_slow: false,
    },
    Candidate {
        key: "bigserial",
        label: "bigserial",
        call: "nextval('plain')",
        column: "bigserial PRIMARY KEY",
        is_slow: false,
    },
    Candidate {
        key: "cached",
        label: "sequence, CACHE 1000",
        call: "nextval('cached')",
        column: "bigint PRIMARY KEY DEFAULT nextval('cached')",
        is_slow: false,
    },
    Candidate {
        key: PGEDGE,
        label: "pgEdge snowflake",
        call: "snowflake.nextval('pgedge')",
        column: "bigint PRIMARY KEY DEFAULT snowflake.nextval('pgedge')",
        is_slow: false,
    },
    Candidate {
        key: "uuid4",
        label: "gen_random_uuid()",
        call: "gen_random_uuid()",
        column: "uuid PRIMARY KEY DEFAULT gen_random_uuid()",
        is_slow: true,
    },
    Candidate {
        key: "uuid7",
        label: "uuidv7()",
        call: "uuidv7()",
        column: "uuid PRIMARY KEY DEFAULT uuidv7()",
        is_slow: true,
    },
    Candidate {
        key: "gist",
        label: "PL/pgSQL snowflake",
        call: "gist_id()",
        column: "bigint PRIMARY KEY DEFAULT gist_id()",
        is_slow: true,
    },
];

/// What an ID cannot cost less than: reading the clock.
pub const CLOCK: Candidate = reference("clock", "clock_timestamp()", "clock_timestamp()");
/// A query without an ID.
pub const NO_ID: Candidate = reference("no_id", "no ID at all", "pg_backend_pid()");
/// A query with constants in place of calls.
pub const CONSTANT: Candidate = reference("constant", "", "1::bigint");

const fn reference(key: &'static str, label: &'static str, call: &'static str) -> Candidate {
    Candidate { key, label, call, column: "", is_slow: false }
}

/// A PL/pgSQL function of the kind that people copy: written here, in the form of Instagram's.
pub const GIST_ID: &str = include_str!("gist_id.sql");

/// The candidates of a server of this major version, with or without pgEdge's extension.
pub fn of_server(major: u32, has_pgedge: bool) -> Vec<Candidate> {
    let is_there = |candidate: &Candidate| match candidate.key {
        "uuid7" => major >= 18,
        PGEDGE => has_pgedge,
        _ => true,
    };
    CANDIDATES.into_iter().filter(is_there).collect()
}
