//! IDs for rows that have times of their own. The SQL with its comments is in `sql/importing.sql`.

use super::function_info;
use super::reading::tick_of;
use super::row::record;
use crate::messages::reading;
use crate::postgres::time::to_postgres;
use crate::session::layout_guard;
use crate::settings;
use crate::shmem;
use pgrx::is_a;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::prelude::*;
use snowflake_core::placement::{Misplaced, Placement};
use snowflake_core::{Config, Layout, Parts};
use std::ffi::c_int;

extension_sql_file!(
    "../../sql/importing.sql",
    name = "importing",
    requires = ["replication", snowflake_import_span]
);

/// The settings; an error unless the layout has the worker, and this server does not use it.
fn settings_for(worker: i32) -> &'static Config {
    let settings = layout_guard::for_owners().unwrap_or_else(|error| error.raise());
    let workers = settings.layout.workers();
    if !(0..workers).contains(&i64::from(worker)) {
        reading::field_outside("worker", worker, workers - 1, &settings.layout).raise();
    }
    let configured = settings::configured_home();
    // An ended lease counts, too, until the server has another one.
    let leased = shmem::generator().and_then(|generator| generator.lease_end()).map(|(home, _)| home);
    if let Some((home, _)) = settings.workers.owner(worker.into())
        && [configured, leased].contains(&Some(home))
    {
        reading::own_worker(worker, home).raise();
    }
    settings
}

/// The error for a tick that the layout does not have.
fn tick_outside(layout: &Layout, tick: i64) -> ! {
    reading::time_outside(to_postgres(layout.starts_at(tick))).raise()
}

fn id(settings: &Config, worker: i32, tick: i64, sequence: i64) -> i64 {
    let parts = Parts { tick, datacenter: settings.datacenter, worker: worker.into(), sequence };
    settings.layout.pack(parts).expect("every field was checked")
}

/// The IDs of a worker in the tick that contains a time, or a number of ticks later.
#[pg_extern(sql = r#"
CREATE FUNCTION snowflake_internal.snowflake_import_span(ts timestamptz, worker integer, later bigint,
        OUT "first" bigint, OUT "last" bigint)
    VOLATILE STRICT PARALLEL SAFE LANGUAGE c AS '@MODULE_PATHNAME@', '@FUNCTION_NAME@';
"#)]
fn snowflake_import_span(
    ts: TimestampWithTimeZone,
    worker: i32,
    later: i64,
    call: pg_sys::FunctionCallInfo,
) -> pgrx::composite_type!('static, "record") {
    let settings = settings_for(worker);
    let layout = &settings.layout;
    // Every role may call this function, with any number.
    let tick = tick_of(ts).saturating_add(later.max(0));
    if tick > layout.max_tick() {
        tick_outside(layout, layout.max_tick() + 1);
    }
    let [first, last] = [0, layout.sequences() - 1].map(|sequence| id(settings, worker, tick, sequence));
    // SAFETY: PostgreSQL's own pointer to this call; the SQL above declares two bigints.
    unsafe { record(call, [first.into_datum(), last.into_datum()]) }
}

unsafe extern "C-unwind" {
    // PostgreSQL's functions for window functions, which pgrx does not declare.
    fn WinGetFuncArgCurrent(
        window: *mut pg_sys::WindowObjectData,
        argument: c_int,
        is_null: *mut bool,
    ) -> pg_sys::Datum;
    fn WinGetCurrentPosition(window: *mut pg_sys::WindowObjectData) -> i64;
}

/// The rows of a query so far.
struct Import {
    settings: &'static Config,
    /// The worker, which was checked.
    worker: i32,
    placement: Placement,
}

/// The C function behind the SQL function of this name.
///
/// # Safety
/// Only PostgreSQL may call it, as the SQL declares it.
#[pg_guard]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn snowflake_at(call: pg_sys::FunctionCallInfo) -> pg_sys::Datum {
    // SAFETY: the call is PostgreSQL's, of a window function with these two arguments. Only this function uses `fn_extra`,
    // and its target is in `fn_mcxt`, so valid as long as that pointer.
    unsafe {
        let window = (*call).context.cast::<pg_sys::WindowObjectData>();
        assert!(!window.is_null() && is_a(window.cast(), pg_sys::NodeTag::T_WindowObjectData));
        let function = (*call).flinfo;
        if WinGetCurrentPosition(window) == 0 && !(*function).fn_extra.is_null() {
            reading::another_partition().raise();
        }
        let argument = |number| {
            let mut is_null = false;
            // It evaluates an expression, which can raise an error.
            let value = pg_guard_ffi_boundary(|| WinGetFuncArgCurrent(window, number, &mut is_null));
            (value, is_null)
        };
        let (ts, worker) = (argument(0), argument(1));
        let (Some(ts), Some(worker)) =
            (TimestampWithTimeZone::from_datum(ts.0, ts.1), i32::from_datum(worker.0, worker.1))
        else {
            (*call).isnull = true;
            return pg_sys::Datum::null();
        };
        if (*function).fn_extra.is_null() {
            let settings = settings_for(worker);
            let import = Import { settings, worker, placement: Placement::new(settings.layout) };
            let place = pg_sys::MemoryContextAlloc((*function).fn_mcxt, size_of::<Import>()).cast::<Import>();
            place.write(import);
            (*function).fn_extra = place.cast();
        }
        let import = &mut *(*function).fn_extra.cast::<Import>();
        if import.worker != worker {
            settings_for(worker);
            import.worker = worker;
        }
        pg_sys::Datum::from(import.next(ts))
    }
}
function_info!(pg_finfo_snowflake_at);

impl Import {
    /// The ID of the next row.
    fn next(&mut self, ts: TimestampWithTimeZone) -> i64 {
        let layout = &self.settings.layout;
        match self.placement.place(tick_of(ts)) {
            Ok((tick, sequence)) => id(self.settings, self.worker, tick, sequence),
            Err(Misplaced::Full) => tick_outside(layout, layout.max_tick() + 1),
            Err(Misplaced::Descending(before)) => {
                reading::descending(ts.into(), layout.starts_at(before)).raise()
            }
        }
    }
}
