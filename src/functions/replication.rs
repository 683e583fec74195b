//! The trigger that refuses replicated rows with an ID of this server's own worker. Its SQL: `sql/replication.sql`.

use super::function_info;
use crate::display::quote;
use crate::generator;
use crate::layout_guard;
use crate::messages::replication::{self, ColumnFault};
use pgrx::prelude::*;
use pgrx::{PgTupleDesc, is_a};
use std::ffi::CStr;

/// The column that is checked if the trigger names none.
const DEFAULT_COLUMN: &CStr = c"id";

/// The C function behind the SQL function of this name.
///
/// # Safety
/// Only PostgreSQL may call it.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_refuse_own_worker(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the call is PostgreSQL's, which keeps its trigger and arguments valid until it returns.
    unsafe {
        let context = (*call).context;
        if context.is_null() || !is_a(context, pg_sys::NodeTag::T_TriggerData) {
            replication::not_a_trigger().raise();
        }
        let fired = &*context.cast::<pg_sys::TriggerData>();
        let row = Row::of(fired);
        let trigger = &*fired.tg_trigger;
        match trigger.tgnargs {
            1.. => {
                (0..trigger.tgnargs as usize).for_each(|i| row.check(CStr::from_ptr(*trigger.tgargs.add(i))))
            }
            _ => row.check(DEFAULT_COLUMN),
        }
        pg_sys::Datum::from(fired.tg_trigtuple)
    }
}
function_info!(pg_finfo_snowflake_refuse_own_worker);

/// The row that is about to be inserted.
struct Row<'a> {
    fired: &'a pg_sys::TriggerData,
    columns: PgTupleDesc<'a>,
}

impl<'a> Row<'a> {
    /// # Safety
    /// PostgreSQL has called a function with this trigger, and the call has not returned.
    unsafe fn of(fired: &'a pg_sys::TriggerData) -> Self {
        let before_insert_row =
            pg_sys::TRIGGER_EVENT_BEFORE | pg_sys::TRIGGER_EVENT_ROW | pg_sys::TRIGGER_EVENT_INSERT;
        let mask =
            pg_sys::TRIGGER_EVENT_TIMINGMASK | pg_sys::TRIGGER_EVENT_ROW | pg_sys::TRIGGER_EVENT_OPMASK;
        if fired.tg_event & mask != before_insert_row {
            replication::not_before_insert().raise();
        }
        // SAFETY: by this function's contract. The relation is open and locked, so its description stays.
        let columns = unsafe { PgTupleDesc::from_pg_unchecked((*fired.tg_relation).rd_att) };
        let row = Self { fired, columns };
        // An ordinary trigger would refuse the rows that this server's sessions insert.
        // SAFETY: by this function's contract.
        if unsafe { (*fired.tg_trigger).tgenabled } as u8 != pg_sys::TRIGGER_FIRES_ON_REPLICA {
            // SAFETY: by this function's contract, and the name is a C string.
            let trigger = unsafe { CStr::from_ptr((*fired.tg_trigger).tgname) };
            replication::not_replica_trigger(&name(trigger), &row.table()).raise();
        }
        row
    }

    /// Raises an error if this column has an ID of this server's own worker.
    fn check(&self, column: &CStr) {
        let Some(id) = self.id(column) else { return };
        let layout = layout_guard::for_reading().map(|settings| settings.layout);
        let layout = layout.unwrap_or_else(|error| error.raise());
        let Some(parts) = layout.unpack(id) else { return };
        if generator::is_own(&parts) {
            let (worker, created_us) = (parts.worker, layout.starts_at(parts.tick));
            replication::own_worker(id, worker, created_us, &name(column), &self.table()).raise();
        }
    }

    /// The value of a column.
    fn id(&self, column: &CStr) -> Option<i64> {
        let refuse = |fault| replication::not_an_id_column(fault, &name(column), &self.table()).raise();
        let is_named = |at: &pg_sys::FormData_pg_attribute| {
            // SAFETY: a name is a C string.
            !at.attisdropped && unsafe { CStr::from_ptr(at.attname.data.as_ptr()) } == column
        };
        let found = self.columns.iter().find(|at| is_named(at));
        let attribute = found.unwrap_or_else(|| refuse(ColumnFault::Missing));
        // SAFETY: a type's ID, which the table's definition has.
        let is_bigint = attribute.atttypid == pg_sys::INT8OID
            || unsafe { pg_sys::getBaseType(attribute.atttypid) } == pg_sys::INT8OID;
        if !is_bigint {
            refuse(ColumnFault::NotBigint);
        }
        // PostgreSQL computes these after the triggers.
        if attribute.attgenerated != 0 {
            refuse(ColumnFault::Generated);
        }
        let mut is_null = false;
        // SAFETY: the row is of the table's type, and has a bigint in this column.
        unsafe {
            let columns = (*self.fired.tg_relation).rd_att;
            let (row, number) = (self.fired.tg_trigtuple, attribute.attnum.into());
            let value = pg_sys::heap_getattr(row, number, columns, &mut is_null);
            i64::from_datum(value, is_null)
        }
    }

    fn table(&self) -> String {
        // SAFETY: the relation is open, and its name is a C string.
        name(unsafe { CStr::from_ptr((*(*self.fired.tg_relation).rd_rel).relname.data.as_ptr()) })
    }
}

fn name(text: &CStr) -> String {
    quote(text.to_bytes())
}
