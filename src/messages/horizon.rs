//! Errors of `snowflake_horizon`, where the bound is not known.

use super::{Error, not_ready};

pub fn in_recovery() -> Error {
    not_ready(
        "cannot execute snowflake_horizon during recovery",
        "Only the server that generates the IDs knows which transactions have not ended.",
        "Call it on the primary, store the result in a table there, and read that table on the standby.",
    )
}

pub fn earlier_prepared() -> Error {
    not_ready(
        "cannot execute snowflake_horizon: a transaction was prepared before the server started",
        "It is not known which IDs the transaction generated.",
        "Commit or roll back the prepared transactions. The view pg_prepared_xacts lists them.",
    )
}
