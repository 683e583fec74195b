//! The layout of this database's IDs, from its table `snowflake_config`. A server's state file can be lost or left
//! behind; the row is stored beside the IDs, and dumps, replication and pg_upgrade carry it.
//!
//! The row is read without SQL, so that parallel workers can read it, callers need no right to the table, and no
//! search_path hides it. If there is no row, there is nothing to compare with.

use crate::display::{shown, timestamp};
use crate::messages::Error;
use crate::time::{from_postgres, to_postgres};
use pgrx::prelude::*;
use snowflake_core::{Layout, Tick};

/// The table's columns, by number.
const LAYOUT: i32 = 1;
const TICK_MS: i32 = 2;
const EPOCH: i32 = 3;

/// The error for a database whose IDs have another layout, if they have. Needs a transaction.
pub fn differs(own: &Layout) -> Option<Error> {
    // SAFETY: a plain flag. pg_upgrade evaluates the expressions of indexes, but on no row of the database.
    if unsafe { pg_sys::IsBinaryUpgrade } {
        return None;
    }
    let (bits, tick_ms, epoch) = recorded()?;
    let own_tick_ms = own.tick().micros() / 1_000;
    if bits == own.bits().to_string() && tick_ms == own_tick_ms && epoch == to_postgres(own.epoch_us()) {
        return None;
    }
    let tick = Tick::from_millis(tick_ms).map_or_else(|| format!("{tick_ms}ms"), |tick| tick.to_string());
    Some(Error::OtherDatabase(format!("{bits} {tick} {}", timestamp(from_postgres(epoch)))))
}

/// The row: bits, tick in milliseconds, and epoch.
fn recorded() -> Option<(String, i64, pg_sys::TimestampTz)> {
    // SAFETY: a row of pg_extension, whose first columns are never null and have fixed lengths.
    let schema = first(pg_sys::ExtensionRelationId, |row, _| unsafe {
        let extension = &*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_extension>();
        (pg_sys::name_data_to_str(&extension.extname) == "snowflake_id").then_some(extension.extnamespace)
    })?;
    // SAFETY: a static name; if there is no such table, the result is an invalid ID.
    let table = unsafe { pg_sys::get_relname_relid(c"snowflake_config".as_ptr(), schema) };
    first(table, |row, columns| {
        // SAFETY: the extension's script gave the columns these types.
        unsafe {
            let value = |column| {
                let mut is_null = false;
                let value = pg_sys::heap_getattr(row, column, columns, &mut is_null);
                (!is_null).then_some(value)
            };
            Some((
                shown(<&[u8]>::from_datum(value(LAYOUT)?, false)?).into_owned(),
                i32::from_datum(value(TICK_MS)?, false)?.into(),
                i64::from_datum(value(EPOCH)?, false)?,
            ))
        }
    })
}

/// The first non-`None` result of `read` over the rows of a table.
fn first<T>(
    table: pg_sys::Oid,
    read: impl Fn(pg_sys::HeapTuple, pg_sys::TupleDesc) -> Option<T>,
) -> Option<T> {
    // SAFETY: the callers run within a transaction. This function closes what it opens, or PostgreSQL does if an error
    // ends the statement. A row is valid until the next one is fetched.
    unsafe {
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let relation = pg_sys::try_table_open(table, lock);
        if relation.is_null() {
            return None;
        }
        let mut found = None;
        if (*(*relation).rd_rel).relkind as u8 == pg_sys::RELKIND_RELATION {
            let (no_index, no_keys) = (pg_sys::InvalidOid, std::ptr::null_mut());
            let scan =
                pg_sys::systable_beginscan(relation, no_index, false, std::ptr::null_mut(), 0, no_keys);
            while found.is_none() {
                let row = pg_sys::systable_getnext(scan);
                if row.is_null() {
                    break;
                }
                found = read(row, (*relation).rd_att);
            }
            pg_sys::systable_endscan(scan);
        }
        pg_sys::table_close(relation, lock);
        found
    }
}
