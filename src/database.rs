//! The layout of this database's IDs, from its table `snowflake_config`. The row is stored beside the IDs; dumps,
//! replication and pg_upgrade carry it.
//!
//! The row is read without SQL, so that parallel workers can read it, callers need no right to the table, and no
//! search_path hides it. If there is no row, there is nothing to compare with, and the first ID stores one.

use crate::display::{quote, timestamp};
use crate::messages::{Error, reading};
use crate::time::{from_postgres, to_postgres};
use pgrx::itemptr::item_pointer_to_u64;
use pgrx::prelude::*;
use snowflake_core::{Layout, Tick};
use std::ffi::c_int;

/// The table's columns, by number.
const LAYOUT: i32 = 1;
const TICK_MS: i32 = 2;
const EPOCH: i32 = 3;
const IS_USED: i32 = 5;

/// The result of a comparison that found no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compared {
    /// OID of the table; `None` without a table, and in pg_upgrade.
    pub table: Option<pg_sys::Oid>,
    /// The database has generated IDs.
    pub is_used: bool,
}

/// Compares this server's layout with that of the database's IDs; an error if they differ. Needs a transaction.
pub fn compare(own: &Layout) -> Result<Compared, Error> {
    // SAFETY: a plain flag. pg_upgrade evaluates the expressions of indexes, but on no row of the database.
    let is_upgrade = unsafe { pg_sys::IsBinaryUpgrade };
    let found = if is_upgrade { None } else { read() };
    let Some((table, row)) = found else { return Ok(Compared { table: None, is_used: false }) };
    match row {
        Some(row) if !row.is_of(own) => {
            let Row { bits, tick_ms, epoch, .. } = row;
            let tick =
                Tick::from_millis(tick_ms).map_or_else(|| format!("{tick_ms}ms"), |tick| tick.to_string());
            Err(reading::other_database(&format!("{bits} {tick} {}", timestamp(from_postgres(epoch)))))
        }
        row => Ok(Compared { table: Some(table), is_used: row.is_some_and(|row| row.is_used) }),
    }
}

/// Whether this database has stored its layout, and it is this server's. Needs a transaction.
pub fn is_checked(own: &Layout) -> bool {
    read().and_then(|(_, row)| row).is_some_and(|row| row.is_of(own))
}

/// Stores `is_used` with this layout. Does nothing if the row has another layout, if another transaction has locked the
/// table, or if this one cannot write: it is read-only, parallel or pg_upgrade's, or applies replicated changes, whose rows
/// the table's trigger does not take. Needs a transaction.
pub fn store_use(own: &Layout) {
    let to_mark = |snapshot| {
        read_by(snapshot)
            .filter(|(_, row)| row.as_ref().is_none_or(|row| !row.is_used && row.is_of(own)))
            .map(|(table, row)| (table, row.map(|row| row.place)))
    };
    // SAFETY: plain reads of flags and of this transaction's state.
    let may_mark = unsafe {
        let is_replica = pg_sys::SessionReplicationRole == pg_sys::SESSION_REPLICATION_ROLE_REPLICA as c_int;
        !pg_sys::XactReadOnly
            && !pg_sys::IsInParallelMode()
            && !pg_sys::IsBinaryUpgrade
            && !is_replica
            && pg_sys::ActiveSnapshotSet()
    };
    if !may_mark {
        return;
    }
    let Some(found) = to_mark(LATEST) else { return };
    let (table, _) = found;
    // Only tried: the holder may be a transaction that stores the row, and a call must not wait for a transaction.
    // SAFETY: a table of this database; the transaction's end releases the lock. There is an active snapshot.
    let (owner, active) = unsafe {
        if !pg_sys::ConditionalLockRelationOid(table, pg_sys::ShareRowExclusiveLock as pg_sys::LOCKMODE) {
            return;
        }
        (owner(table), pg_sys::GetActiveSnapshot())
    };
    // Read again: before the lock, the row may have been stored, or the table dropped. A transaction whose snapshot is older
    // than the row cannot change it.
    if let Some(owner) = owner
        && to_mark(LATEST) == Some(found)
        && to_mark(active) == Some(found)
    {
        insert(owner);
    }
}

/// Stores the row as the table's owner, because roles that generate IDs have no right to it. The table's trigger deletes
/// the row that CREATE EXTENSION stored.
fn insert(owner: pg_sys::Oid) {
    let statement = c"INSERT INTO snowflake_internal.snowflake_config (layout, tick_ms, epoch, is_used)
                      SELECT layout, tick_ms, epoch, true FROM snowflake_internal.server_layout()";
    let (mut user, mut context) = (pg_sys::Oid::INVALID, 0);
    // SAFETY: SPI's calls in their required order, within a transaction. After an error PostgreSQL resets SPI and user.
    unsafe {
        pg_sys::GetUserIdAndSecContext(&mut user, &mut context);
        pg_sys::SetUserIdAndSecContext(owner, context | pg_sys::SECURITY_LOCAL_USERID_CHANGE as i32);
        pg_sys::SPI_connect();
        pg_sys::SPI_execute(statement.as_ptr(), false, 0);
        pg_sys::SPI_finish();
        pg_sys::SetUserIdAndSecContext(user, context);
    }
}

/// The owner of an ordinary table that the caller has locked; `None` if there is no such table.
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
    /// Where this version of the row is stored.
    place: u64,
}

impl Row {
    fn is_of(&self, layout: &Layout) -> bool {
        self.bits == layout.bits().to_string()
            && self.tick_ms == layout.tick().millis()
            && self.epoch == to_postgres(layout.epoch_us())
    }
}

/// OID of the table; `None` without the schema or the table. Only the extension creates them.
fn table() -> Option<pg_sys::Oid> {
    let valid = |oid| (oid != pg_sys::InvalidOid).then_some(oid);
    // SAFETY: static names, within a transaction.
    unsafe {
        let schema = valid(pg_sys::get_namespace_oid(c"snowflake_internal".as_ptr(), true))?;
        valid(pg_sys::get_relname_relid(c"snowflake_config".as_ptr(), schema))
    }
}

/// The snapshot with all that was committed.
const LATEST: pg_sys::Snapshot = std::ptr::null_mut();

fn read() -> Option<(pg_sys::Oid, Option<Row>)> {
    read_by(LATEST)
}

/// The table, and its row if it has one; `None` without a table. Locks the table first, which processes the invalidations
/// of all earlier changes, so a process that caches the row later receives those of later changes.
fn read_by(snapshot: pg_sys::Snapshot) -> Option<(pg_sys::Oid, Option<Row>)> {
    let table = table()?;
    // SAFETY: the callers run within a transaction. This function closes what it opens, or PostgreSQL does if an error
    // ends the statement.
    unsafe {
        let lock = pg_sys::AccessShareLock as pg_sys::LOCKMODE;
        let relation = pg_sys::try_table_open(table, lock);
        if relation.is_null() {
            return None;
        }
        let is_table = (*(*relation).rd_rel).relkind as u8 == pg_sys::RELKIND_RELATION;
        let row = is_table.then(|| {
            let (no_index, no_keys) = (pg_sys::InvalidOid, std::ptr::null_mut());
            let scan = pg_sys::systable_beginscan(relation, no_index, false, snapshot, 0, no_keys);
            let row = pg_sys::systable_getnext(scan);
            let row = if row.is_null() { None } else { values(row, (*relation).rd_att) };
            pg_sys::systable_endscan(scan);
            row
        });
        pg_sys::table_close(relation, lock);
        row.map(|row| (table, row))
    }
}

/// # Safety
/// `row` is a row of the table, which is open.
unsafe fn values(row: pg_sys::HeapTuple, columns: pg_sys::TupleDesc) -> Option<Row> {
    // SAFETY: by this function's contract; the extension's script gave the columns these types.
    unsafe {
        let value = |column| {
            let mut is_null = false;
            let value = pg_sys::heap_getattr(row, column, columns, &mut is_null);
            (!is_null).then_some(value)
        };
        Some(Row {
            bits: quote(<&[u8]>::from_datum(value(LAYOUT)?, false)?),
            tick_ms: i32::from_datum(value(TICK_MS)?, false)?.into(),
            epoch: i64::from_datum(value(EPOCH)?, false)?,
            is_used: bool::from_datum(value(IS_USED)?, false)?,
            place: item_pointer_to_u64((*row).t_self),
        })
    }
}
