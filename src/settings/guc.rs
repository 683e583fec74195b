//! The hooks that PostgreSQL calls when ALTER SYSTEM sets a setting, and when it rereads the files.

use super::values::{
    self, BACKUP_WORKERS, EPOCH_HINT, LAYOUT_HINT, NODE_NAME_HINT, RollbackPolicy, TICK_HINT, parse_integer,
};
use super::{BACKUP_WORKERS_NAME, LAYOUT_NAME, bad_datacenter, bad_workers, layout, micros};
use crate::display::readable;
use pgrx::GucFlags;
use pgrx::prelude::*;
use snowflake_core::workers::WorkersError;
use snowflake_core::{Layout, Limits, Policy, Tick, Workers};
use std::borrow::Cow;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

/// Accepts the value, or gives PostgreSQL the detail and hint for its own message, which names the setting.
fn verdict(result: Result<(), String>, hint: &str) -> bool {
    let Err(detail) = result else { return true };
    let copied = |text: &str| CString::new(text.replace('\0', " ")).unwrap_or_default();
    let (detail, hint) = (copied(&detail), copied(hint));
    // SAFETY: PostgreSQL reads these right after the hook, and frees them with the memory context.
    unsafe {
        pg_sys::GUC_check_errdetail_string = pg_sys::pstrdup(detail.as_ptr());
        pg_sys::GUC_check_errhint_string = pg_sys::pstrdup(hint.as_ptr());
    }
    false
}

/// # Safety
/// `value` is what PostgreSQL passes to a check hook: a pointer to a text or to null.
unsafe fn text_of<'a>(value: *mut *mut c_char) -> Result<Cow<'a, str>, String> {
    // SAFETY: by this function's contract.
    unsafe {
        let text = *value;
        if text.is_null() { Ok("".into()) } else { readable(CStr::from_ptr(text).to_bytes()) }
    }
}

/// Whether a statement sets the value, which only ALTER SYSTEM can. The hook's `source` is the same when PostgreSQL reads
/// the files: at the start and, between two statements, at a reload.
fn is_set_by_statement() -> bool {
    // SAFETY: plain reads of variables of this process.
    unsafe {
        pg_sys::MyBackendType == pg_sys::BackendType::B_BACKEND && !pg_sys::debug_query_string.is_null()
    }
}

/// The layout and the number of backup workers that the next start would use, if they are valid. They come from the
/// files, because ALTER SYSTEM may have changed them since the start.
fn at_next_start() -> Option<(Layout, i32)> {
    let mut texts = [None, None];
    // SAFETY: a session may read the server's files at any time, as the view pg_file_settings does. Lines with errors
    // are left out of the list or have no name. Kept values are copied, and the list is freed.
    unsafe {
        let (mut first, mut last) = (std::ptr::null_mut(), std::ptr::null_mut());
        for file in [pg_sys::ConfigFileName.cast_const(), pg_sys::PG_AUTOCONF_FILENAME.as_ptr()] {
            let level = PgLogLevel::DEBUG3 as c_int;
            pg_sys::ParseConfigFile(file, false, std::ptr::null(), 0, 0, level, &mut first, &mut last);
        }
        let mut item = first;
        while let Some(line) = item.as_ref() {
            if !line.name.is_null() && !line.value.is_null() {
                let name = CStr::from_ptr(line.name).to_string_lossy();
                for (text, wanted) in texts.iter_mut().zip([LAYOUT_NAME, BACKUP_WORKERS_NAME]) {
                    if name.eq_ignore_ascii_case(wanted) {
                        *text = Some(CStr::from_ptr(line.value).to_string_lossy().into_owned());
                    }
                }
            }
            item = line.next;
        }
        pg_sys::FreeConfigVariables(first);
    }
    let [layout_text, backups_text] = texts;
    let layout = match layout_text {
        Some(text) => Layout::new(text.parse().ok()?, Tick::Millisecond, 0).ok()?,
        // From the command line, or the default.
        None => layout()?,
    };
    let backups = match backups_text {
        Some(text) => parse_integer(&text, GucFlags::default())?,
        None => BACKUP_WORKERS.get(),
    };
    Some((layout, backups))
}

#[pg_guard]
pub extern "C-unwind" fn check_worker(
    value: *mut c_int,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: called by PostgreSQL as a check hook, with a pointer to the new value.
    let home = unsafe { *value };
    if home < 0 || !is_set_by_statement() {
        return true;
    }
    let Some((layout, backups)) = at_next_start() else { return true };
    match Workers::new(&layout, home.into(), backups as usize) {
        Err(error @ WorkersError::HomeOutside(_)) => {
            let bad = bad_workers(error, &layout, home, backups);
            verdict(Err(bad.detail), &format!("{} {SET_FIRST}", bad.hint))
        }
        // With too many backup workers, no home worker is valid.
        Ok(_) | Err(WorkersError::TooManyLanes(_)) => true,
    }
}

#[pg_guard]
pub extern "C-unwind" fn check_datacenter(
    value: *mut c_int,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: called by PostgreSQL as a check hook, with a pointer to the new value.
    let datacenter = unsafe { *value };
    if !is_set_by_statement() {
        return true;
    }
    let bad = at_next_start().and_then(|(layout, _)| bad_datacenter(&layout, datacenter));
    bad.is_none_or(|bad| verdict(Err(bad.detail), &format!("{} {SET_FIRST}", bad.hint)))
}

const SET_FIRST: &str = "If layout or backup_workers change, too, set those first.";

/// The check hook of a text setting, with the check and its hint.
macro_rules! text_hook {
    ($hook:ident, $check:path, $hint:expr) => {
        #[pg_guard]
        pub extern "C-unwind" fn $hook(
            value: *mut *mut c_char,
            _extra: *mut *mut c_void,
            _source: pg_sys::GucSource::Type,
        ) -> bool {
            // SAFETY: called by PostgreSQL as a check hook.
            let text = unsafe { text_of(value) };
            verdict(text.and_then(|text| $check(&text)), $hint)
        }
    };
}
text_hook!(check_layout, values::check_layout, LAYOUT_HINT);
text_hook!(check_epoch, values::check_epoch, EPOCH_HINT);
text_hook!(check_node_name, values::check_node_name, NODE_NAME_HINT);

#[pg_guard]
pub extern "C-unwind" fn check_tick(
    value: *mut c_int,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: called by PostgreSQL as a check hook, with a pointer to the new value.
    let millis = unsafe { *value };
    verdict(values::check_tick(millis), TICK_HINT)
}

/// Changes the limits in shared memory.
type Publish = fn(&dyn Fn(Limits) -> Limits);

static PUBLISH: OnceLock<Publish> = OnceLock::new();

/// Sets the function that publishes reloads.
pub fn publish_reloads_with(publish: Publish) {
    PUBLISH.set(publish).expect("called once");
}

/// Publishes a reload. Processes reread the files at different moments, so the value in force is in shared memory, and the
/// postmaster, which rereads first, writes it.
fn publish(change: impl Fn(Limits) -> Limits) {
    // SAFETY: a plain flag.
    let is_postmaster = unsafe { !pg_sys::IsUnderPostmaster };
    if is_postmaster && let Some(publish) = PUBLISH.get() {
        publish(&change);
    }
}

#[pg_guard]
pub extern "C-unwind" fn assign_policy(value: c_int, _extra: *mut c_void) {
    let is_replay = value == RollbackPolicy::replay as c_int;
    let policy = if is_replay { Policy::Replay } else { Policy::Hold };
    publish(|limits| Limits { policy, ..limits });
}

/// The assign hook of a limit in milliseconds.
macro_rules! limit_hook {
    ($hook:ident, $limit:ident) => {
        #[pg_guard]
        pub extern "C-unwind" fn $hook(value: c_int, _extra: *mut c_void) {
            publish(|limits| Limits { $limit: micros(value), ..limits });
        }
    };
}
limit_hook!(assign_max_ahead, max_ahead_us);
limit_hook!(assign_max_wait, max_wait_us);
