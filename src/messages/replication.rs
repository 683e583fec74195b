//! Errors of the trigger that guards replicated rows.

use super::{Error, error};
use crate::display::timestamp;
use pgrx::PgSqlErrorCode::{
    ERRCODE_DATATYPE_MISMATCH as WRONG_TYPE, ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED as MISUSED,
    ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION as VIOLATION,
    ERRCODE_INVALID_TABLE_DEFINITION as WRONG_DEFINITION, ERRCODE_UNDEFINED_COLUMN as MISSING,
};

/// Why a column's IDs cannot be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnFault {
    Missing,
    NotBigint,
    Generated,
}

const REFUSES: &str = "It refuses rows that replication is about to insert.";
const CREATE: &str = "Name it in CREATE TRIGGER with BEFORE INSERT and FOR EACH ROW.";

pub fn not_a_trigger() -> Error {
    error(
        MISUSED,
        "function \"snowflake_refuse_own_worker\" was not called by trigger manager",
        REFUSES,
        CREATE,
    )
}

pub fn not_before_insert() -> Error {
    error(
        MISUSED,
        "function \"snowflake_refuse_own_worker\" must be fired BEFORE INSERT FOR EACH ROW",
        REFUSES,
        CREATE,
    )
}

pub fn not_replica_trigger(trigger: &str, table: &str) -> Error {
    error(
        MISUSED,
        format!("trigger \"{trigger}\" of table \"{table}\" must be a replica trigger"),
        "It would refuse the rows that this server inserts itself.",
        "Run ALTER TABLE with ENABLE REPLICA TRIGGER, in the transaction that creates the trigger.",
    )
}

pub fn not_an_id_column(fault: ColumnFault, column: &str, table: &str) -> Error {
    const DETAIL: &str = "The function snowflake_refuse_own_worker reads IDs from this column.";
    const HINT: &str = "Create the trigger with the name of the ID column as the function's argument.";
    match fault {
        ColumnFault::Missing => {
            error(MISSING, format!("column \"{column}\" of table \"{table}\" does not exist"), DETAIL, HINT)
        }
        ColumnFault::NotBigint => error(
            WRONG_TYPE,
            format!("column \"{column}\" of table \"{table}\" is not of type bigint"),
            DETAIL,
            HINT,
        ),
        ColumnFault::Generated => {
            let detail = "PostgreSQL computes it after the triggers.";
            error(
                WRONG_DEFINITION,
                format!("column \"{column}\" of table \"{table}\" is a generated column"),
                detail,
                HINT,
            )
        }
    }
}

pub fn own_worker(id: i64, worker: i64, created_us: i64, column: &str, table: &str) -> Error {
    error(
        VIOLATION,
        format!("replicated row of table \"{table}\" has an ID of this server's own worker"),
        format!("{column} = {id} is of worker {worker} and from {}.", timestamp(created_us)),
        "If another server generates with this worker, give one of the two another snowflake_id.worker_id. If the row \
         is this server's own, subscribe with origin = none (PostgreSQL 16 or later), or publish only the rows that \
         each server inserts. If the table is being copied, disable the trigger until the copy is complete.",
    )
}
