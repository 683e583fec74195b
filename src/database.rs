//! The layout of this database's IDs, from its table `snowflake_config`. A server's state file can be lost or left
//! behind; the row is stored beside the IDs, and dumps, replication and pg_upgrade carry it.
//!
//! The row is read without SQL, so that parallel workers can read it, callers need no right to the table, and no
//! search_path hides it. If there is no row, there is nothing to compare with, and the first ID stores one.

use crate::display::{quote, timestamp};
use crate::executing::execute_as;
use crate::messages::{Error, reading};
use crate::time::{from_postgres, to_postgres};
use pgrx::prelude::*;
use snowflake_core::{Layout, Tick};

/// The table's columns, by number.
const LAYOUT: i32 = 1;
const TICK_MS: i32 = 2;
const EPOCH: i32 = 3;
const IS_USED: i32 = 5;

/// How far the result of a comparison holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// For this process: the row is committed, and its trigger keeps it as this server's layout.
    InThisProcess,
    /// For now: the transaction has written the row, or perhaps deleted it, and may still roll back.
    ForNow,
}

/// Compares this server's layout with that of the database's IDs; an error if they differ. Needs a transaction.
pub fn compare(own: &Layout) -> Result<Holds, Error> {
    // SAFETY: a plain flag, and a question about this transaction. pg_upgrade evaluates the expressions of indexes, but
    // on no row of the database.
    let (is_upgrade, has_written) = unsafe {
        (pg_sys::IsBinaryUpgrade, pg_sys::GetTopTransactionIdIfAny() != pg_sys::InvalidTransactionId)
    };
    if is_upgrade {
        return Ok(Holds::InThisProcess);
    }
    let Some(row) = row() else {
        return Ok(if has_written { Holds::ForNow } else { Holds::InThisProcess });
    };
    if row.is_of(own) {
        return Ok(if row.is_ours { Holds::ForNow } else { Holds::InThisProcess });
    }
    let Row { bits, tick_ms, epoch, .. } = row;
    let tick = Tick::from_millis(tick_ms).map_or_else(|| format!("{tick_ms}ms"), |tick| tick.to_string());
    Err(reading::other_database(&format!("{bits} {tick} {}", timestamp(from_postgres(epoch)))))
}

/// Whether this database has stored its layout, and it is this server's. Needs a transaction.
pub fn is_checked(own: &Layout) -> bool {
    row().is_some() && compare(own).is_ok()
}

/// Stores that the database has IDs of this layout, unless it has those of another, or something is in the way: another
/// transaction that stores it, or one of this session that may not write. Needs a transaction.
pub fn store_use(own: &Layout) {
    let is_to_store = || row().is_none_or(|row| !row.is_used && row.is_of(own));
    // SAFETY: flags, and questions about this transaction.
    let may_write =
        unsafe { !pg_sys::XactReadOnly && !pg_sys::IsInParallelMode() && !pg_sys::IsBinaryUpgrade };
    let table = table();
    if !may_write || table == pg_sys::InvalidOid || !is_to_store() {
        return;
    }
    // Two transactions that insert the row would wait for each other, and a call waits for none.
    // SAFETY: a table of this database; the transaction's end releases the lock.
    let owner = unsafe {
        if !pg_sys::ConditionalLockRelationOid(table, pg_sys::ShareRowExclusiveLock as pg_sys::LOCKMODE) {
            return;
        }
        owner(table)
    };
    // It may have been stored, or the table dropped, before the lock.
    if let Some(owner) = owner
        && is_to_store()
    {
        // Its trigger puts the row in the place of that which CREATE EXTENSION stored.
        execute_as(
            owner,
            c"INSERT INTO snowflake_internal.snowflake_config (layout, tick_ms, epoch, is_used)
              SELECT layout, tick_ms, epoch, true FROM snowflake_internal.server_layout()",
        );
    }
}

/// The owner of an ordinary table, which is locked; none if there is no such table.
fn owner(table: pg_sys::Oid) -> Option<pg_sys::Oid> {
    // SAFETY: within a transaction, as the callers are; the relation is closed at once, and the lock is the caller's.
    unsafe {
        let relation = pg_sys::try_table_open(table, pg_sys::NoLock as pg_sys::LOCKMODE);
        if relation.is_null() {
            return None;
        }
        let class = *(*relation).rd_rel;
        pg_sys::table_close(relation, pg_sys::NoLock as pg_sys::LOCKMODE);
        (class.relkind as u8 == pg_sys::RELKIND_RELATION).then_some(class.relowner)
    }
}

struct Row {
    bits: String,
    tick_ms: i64,
    epoch: pg_sys::TimestampTz,
    /// The database has generated IDs.
    is_used: bool,
    /// This transaction has written it.
    is_ours: bool,
}

impl Row {
    fn is_of(&self, layout: &Layout) -> bool {
        self.bits == layout.bits().to_string()
            && self.tick_ms == layout.tick().millis()
            && self.epoch == to_postgres(layout.epoch_us())
    }
}

fn row() -> Option<Row> {
    // SAFETY: a row of pg_extension, whose first columns are never null and have fixed lengths.
    first(pg_sys::ExtensionRelationId, |row, _| unsafe {
        let extension = &*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_extension>();
        (pg_sys::name_data_to_str(&extension.extname) == "snowflake_id").then_some(())
    })?;
    first(table(), |row, columns| {
        // SAFETY: the extension's script gave the columns these types.
        unsafe {
            let value = |column| {
                let mut is_null = false;
                let value = pg_sys::heap_getattr(row, column, columns, &mut is_null);
                (!is_null).then_some(value)
            };
            let written_by = (*(*row).t_data).t_choice.t_heap.t_xmin;
            Some(Row {
                bits: quote(<&[u8]>::from_datum(value(LAYOUT)?, false)?),
                tick_ms: i32::from_datum(value(TICK_MS)?, false)?.into(),
                epoch: i64::from_datum(value(EPOCH)?, false)?,
                is_used: bool::from_datum(value(IS_USED)?, false)?,
                is_ours: pg_sys::TransactionIdIsCurrentTransactionId(written_by),
            })
        }
    })
}

/// The table's ID, or an invalid one if there is no such schema or table.
fn table() -> pg_sys::Oid {
    // SAFETY: static names, within a transaction.
    unsafe {
        let schema = pg_sys::get_namespace_oid(c"snowflake_internal".as_ptr(), true);
        pg_sys::get_relname_relid(c"snowflake_config".as_ptr(), schema)
    }
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
