//! The settings, a row each: the variable or the limit that it fills, its definition in PostgreSQL, and the hooks that
//! PostgreSQL calls when ALTER SYSTEM sets one, and when it rereads the files.

use super::{
    BACKUP_WORKERS_NAME, BadValue, EPOCH_HINT, LAYOUT_HINT, LAYOUT_NAME, TICK_HINT, TICKS, bad_datacenter,
    bad_workers, layout,
};
use crate::postgres::display::{quote, readable};
use pgrx::guc::GucCheckError;
use pgrx::prelude::*;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum};
use snowflake_core::layout::parse_epoch;
use snowflake_core::workers::MAX_LANES;
use snowflake_core::{Bits, Layout, LayoutError, Limits, Policy, Tick};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt::Display;
use std::sync::OnceLock;

/// Ten minutes. The ring's memory grows with it, and no usable clock needs more.
const LONGEST_MS: i32 = 600_000;

const NODE_NAME_HINT: &str = "Use a shorter name in one line, or an empty one for the name of the host.";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
#[allow(non_camel_case_types, reason = "the names of the values in SQL")]
pub enum RollbackPolicy {
    hold,
    replay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
#[allow(non_camel_case_types, reason = "the names of the values in SQL")]
pub enum SequenceStartName {
    zero,
    spread,
}

/// A setting. Worker and datacenter have no upper bound here, because theirs depends on the layout.
pub struct Setting {
    pub name: &'static CStr,
    description: &'static CStr,
    kind: Kind,
    /// The correction.
    hint: &'static str,
    /// A reload changes it; otherwise only a restart does.
    is_reloadable: bool,
    flags: GucFlags,
}

/// The variable with the default, the range, and the check hook; or the assign hook of a limit, which fills shared memory,
/// where calls read it.
enum Kind {
    Integer(&'static GucSetting<i32>, (i32, i32), pg_sys::GucIntCheckHook),
    Text(&'static GucSetting<Option<CString>>, pg_sys::GucStringCheckHook),
    SequenceStart(&'static GucSetting<SequenceStartName>),
    Limit(GucSetting<i32>, pg_sys::GucIntAssignHook),
    Policy(GucSetting<RollbackPolicy>, pg_sys::GucEnumAssignHook),
}

pub static WORKER_ID: GucSetting<i32> = GucSetting::<i32>::new(-1);
pub static DATACENTER_ID: GucSetting<i32> = GucSetting::<i32>::new(0);
pub static BACKUP_WORKERS: GucSetting<i32> = GucSetting::<i32>::new(3);
pub static LAYOUT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"41/10/12"));
pub static TICK: GucSetting<i32> = GucSetting::<i32>::new(1);
pub static EPOCH: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(c"2024-01-01T00:00:00Z"));
pub static SEQUENCE_START: GucSetting<SequenceStartName> =
    GucSetting::<SequenceStartName>::new(SequenceStartName::zero);
pub static REGISTRY: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
pub static NODE_NAME: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));

/// The check hook that calls a function with the new value and these arguments.
macro_rules! check_hook {
    ($type:ty, $check:path $(, $argument:expr)*) => {{
        #[pg_guard]
        extern "C-unwind" fn check(
            value: *mut $type,
            _extra: *mut *mut std::ffi::c_void,
            _source: pg_sys::GucSource::Type,
        ) -> bool {
            // SAFETY: called by PostgreSQL as a check hook, with a pointer to the new value.
            $check(unsafe { *value } $(, $argument)*)
        }
        Some(check)
    }};
}

/// The assign hook of a limit, with the function that reads its value.
macro_rules! limit_hook {
    ($limit:ident, $read:expr) => {{
        #[pg_guard]
        extern "C-unwind" fn assign(value: c_int, _extra: *mut std::ffi::c_void) {
            change_limits(|limits| limits.$limit = $read(value));
        }
        Some(assign)
    }};
}

/// A setting that only a restart changes, and that everybody may see.
const fn setting(name: &'static CStr, description: &'static CStr, kind: Kind, hint: &'static str) -> Setting {
    Setting { name, description, kind, hint, is_reloadable: false, flags: GucFlags::empty() }
}

/// A duration that calls read.
const fn limit(
    name: &'static CStr,
    description: &'static CStr,
    millis: i32,
    hook: pg_sys::GucIntAssignHook,
) -> Setting {
    let kind = Kind::Limit(GucSetting::<i32>::new(millis), hook);
    let hint = "Use a duration from 0 to 10 minutes, for example 2s.";
    Setting { is_reloadable: true, flags: GucFlags::UNIT_MS, ..setting(name, description, kind, hint) }
}

pub static SETTINGS: [Setting; 12] = [
    setting(
        c"snowflake_id.worker_id",
        c"This server's worker number; -1 for none: a registry assigns one, or no IDs are generated.",
        Kind::Integer(&WORKER_ID, (-1, i32::MAX), check_hook!(c_int, check_number, bad_workers)),
        "Use a number that no other server has.",
    ),
    setting(
        c"snowflake_id.datacenter_id",
        c"This server's datacenter number, if the layout has datacenter bits.",
        Kind::Integer(&DATACENTER_ID, (0, i32::MAX), check_hook!(c_int, check_number, bad_datacenter)),
        "Use the number of this server's datacenter.",
    ),
    setting(
        c"snowflake_id.backup_workers",
        c"Backup workers per server; the same number on all servers of a fleet.",
        Kind::Integer(&BACKUP_WORKERS, (0, MAX_LANES as i32 - 1), None),
        "Use the number that all servers of the fleet have, at most 15.",
    ),
    setting(
        c"snowflake_id.layout",
        c"Widths of the fields in bits: time/worker/sequence or time/datacenter+worker/sequence.",
        Kind::Text(&LAYOUT, check_hook!(*mut c_char, check_text, parse_layout, LAYOUT_HINT)),
        LAYOUT_HINT,
    ),
    Setting {
        flags: GucFlags::UNIT_MS,
        ..setting(
            c"snowflake_id.tick",
            c"Time unit of IDs: 1ms, 10ms or 1s.",
            Kind::Integer(&TICK, (1, 1_000), check_hook!(c_int, check_tick)),
            TICK_HINT,
        )
    },
    setting(
        c"snowflake_id.epoch",
        c"Start of the time field: a date and time with an explicit offset.",
        Kind::Text(&EPOCH, check_hook!(*mut c_char, check_text, parse_epoch, EPOCH_HINT)),
        EPOCH_HINT,
    ),
    Setting {
        is_reloadable: true,
        ..setting(
            c"snowflake_id.rollback_policy",
            c"Response when the clock steps back beyond max_ahead: keep order (hold) or follow the clock \
                  (replay).",
            Kind::Policy(
                GucSetting::<RollbackPolicy>::new(RollbackPolicy::hold),
                limit_hook!(policy, policy),
            ),
            "Use hold or replay.",
        )
    },
    limit(
        c"snowflake_id.max_ahead",
        c"How far ID times may run ahead of the system clock.",
        2_000,
        limit_hook!(max_ahead_us, micros),
    ),
    limit(
        c"snowflake_id.max_wait",
        c"How long a call waits for the clock before the server rotates to a backup worker.",
        5,
        limit_hook!(max_wait_us, micros),
    ),
    setting(
        c"snowflake_id.sequence_start",
        c"First sequence of a tick: always 0 (zero), or varying within the lowest 1/64 of the field (spread).",
        Kind::SequenceStart(&SEQUENCE_START),
        "Use zero or spread.",
    ),
    Setting {
        is_reloadable: true,
        // It may contain a password.
        flags: GucFlags::SUPERUSER_ONLY,
        ..setting(
            c"snowflake_id.registry",
            c"Connection string of the fleet's registry, which then assigns this server's worker.",
            // Not checked, like primary_conninfo: only libpq can, and no session loads that.
            Kind::Text(&REGISTRY, None),
            "",
        )
    },
    setting(
        c"snowflake_id.node_name",
        c"This server's name in the registry; empty for the name of its host and its port.",
        Kind::Text(&NODE_NAME, check_hook!(*mut c_char, check_text, check_node_name, NODE_NAME_HINT)),
        NODE_NAME_HINT,
    ),
];

impl Setting {
    /// Defines the setting in PostgreSQL.
    pub fn define(&'static self) {
        let Self { name, description, flags, .. } = *self;
        let context = if self.is_reloadable { GucContext::Sighup } else { GucContext::Postmaster };
        macro_rules! define {
            ($define:ident, $variable:expr $(, $bound:expr)*; $check:expr, $assign:expr) => {
                // SAFETY: the hooks have the types that PostgreSQL calls. They are guarded, so they cannot unwind into it.
                unsafe {
                    GucRegistry::$define(
                        name, description, c"", $variable, $($bound,)* context, flags, $check, $assign, None,
                    )
                }
            };
        }
        match &self.kind {
            Kind::Integer(variable, (least, most), check) => {
                define!(define_int_guc_with_hooks, variable, *least, *most; *check, None)
            }
            Kind::Text(variable, check) => define!(define_string_guc_with_hooks, variable; *check, None),
            Kind::SequenceStart(variable) => define!(define_enum_guc_with_hooks, variable; None, None),
            Kind::Limit(variable, assign) => {
                define!(define_int_guc_with_hooks, variable, 0, LONGEST_MS; None, *assign)
            }
            Kind::Policy(variable, assign) => define!(define_enum_guc_with_hooks, variable; None, *assign),
        }
    }

    /// The text in the server's files or on its command line, before the setting is defined.
    pub fn configured_text(&self) -> Option<CString> {
        // SAFETY: a static name; the text is copied before anything can change it.
        unsafe {
            let text = pg_sys::GetConfigOption(self.name.as_ptr(), true, false);
            (!text.is_null()).then(|| CStr::from_ptr(text).to_owned())
        }
    }

    /// The error for a configured text that PostgreSQL does not accept.
    pub fn find_bad_value(&self, text: &CStr) -> Option<BadValue> {
        use pg_sys::{GucAction::GUC_ACTION_SET, GucContext::PGC_POSTMASTER, GucSource::PGC_S_FILE};
        let (name, value, level) = (self.name.as_ptr(), text.as_ptr(), PgLogLevel::DEBUG5 as c_int);
        // SAFETY: the setting is defined, and is only checked. The detail is null, or the text of its check hook.
        let detail = unsafe {
            pg_sys::GUC_check_errdetail_string = std::ptr::null_mut();
            match pg_sys::set_config_option(
                name,
                value,
                PGC_POSTMASTER,
                PGC_S_FILE,
                GUC_ACTION_SET,
                false,
                level,
                false,
            ) {
                // -1: valid, and not applied.
                1.. | -1 => return None,
                _ if pg_sys::GUC_check_errdetail_string.is_null() => self.description,
                _ => CStr::from_ptr(pg_sys::GUC_check_errdetail_string),
            }
        };
        let name = self.name.to_str().expect("ASCII");
        Some(BadValue::new(name, quote(text.to_bytes()), detail.to_string_lossy(), self.hint))
    }
}

/// A setting in milliseconds.
fn micros(millis: c_int) -> i64 {
    i64::from(millis) * 1_000
}

fn policy(value: c_int) -> Policy {
    if value == RollbackPolicy::replay as c_int { Policy::Replay } else { Policy::Hold }
}

// ---- which values are valid ----

/// A layout by itself: with the shortest tick, which allows the widest time field.
fn parse_layout(text: &str) -> Result<Layout, LayoutError> {
    text.parse::<Bits>().and_then(|bits| Layout::new(bits, Tick::Millisecond, 0))
}

/// Accepts 64 characters, as many as the name of a host can have on Linux.
fn check_node_name(text: &str) -> Result<(), String> {
    // Processes without a database escape what is not ASCII: four characters a byte.
    let length = text.bytes().map(|byte| if byte.is_ascii() { 1 } else { 4 }).sum::<usize>();
    if text.contains(|c: char| c.is_control()) {
        return Err("The name has a control character.".to_owned());
    }
    if length > 64 {
        return Err(format!(
            "The name takes {length} characters, of which a byte that is not ASCII takes four; it may take 64."
        ));
    }
    Ok(())
}

// ---- what the check hooks call ----

/// Accepts the value, or gives PostgreSQL the detail and hint for its own message, which names the setting.
fn verdict(result: Result<(), String>, hint: &str) -> bool {
    let Err(detail) = result else { return true };
    let error = GucCheckError::default().with_detail(detail).with_hint(hint);
    // SAFETY: only check hooks call this.
    unsafe { error.apply() };
    false
}

/// The verdict on a text, which is null or ends in a zero byte.
fn check_text<T, E: Display>(new: *mut c_char, parse: fn(&str) -> Result<T, E>, hint: &str) -> bool {
    // SAFETY: PostgreSQL keeps the text until the hook returns.
    let bytes = if new.is_null() { &[] } else { unsafe { CStr::from_ptr(new) }.to_bytes() };
    let parsed = readable(bytes).and_then(|text| parse(&text).map_err(|problem| problem.to_string()));
    verdict(parsed.map(drop), hint)
}

fn check_tick(millis: c_int) -> bool {
    verdict(Tick::from_millis(millis.into()).map(drop).ok_or_else(|| TICKS.to_owned()), TICK_HINT)
}

/// The verdict on a number that a statement sets, with the layout and the number of backup workers of the next start.
fn check_number(new: c_int, find_bad: fn(&Layout, i32, i32) -> Option<BadValue>) -> bool {
    // Only ALTER SYSTEM can. PostgreSQL also calls the hook when it reads the files: at the start and, between two
    // statements, at a reload.
    // SAFETY: plain reads of variables of this process.
    let is_statement = unsafe {
        pg_sys::MyBackendType == pg_sys::BackendType::B_BACKEND && !pg_sys::debug_query_string.is_null()
    };
    let next_start = if is_statement { at_next_start() } else { None };
    // With too many backup workers, no number would be valid.
    let bad = next_start
        .and_then(|(layout, backups)| find_bad(&layout, backups, new))
        .filter(|bad| bad.name != BACKUP_WORKERS_NAME);
    let set_first = "If layout or backup_workers change, too, set those first.";
    bad.is_none_or(|bad| verdict(Err(bad.detail), &format!("{} {set_first}", bad.hint)))
}

/// The layout and the number of backup workers that the next start would use, if they are valid. They come from the
/// files, because ALTER SYSTEM may have changed them since the start.
fn at_next_start() -> Option<(Layout, i32)> {
    // SAFETY: a session may read the server's files at any time, as the view pg_file_settings does. Lines with errors
    // are left out of the list or have no name. Kept values are copied, and the list is freed.
    let [layout_text, backups_text] = unsafe {
        let (mut first, mut last) = (std::ptr::null_mut(), std::ptr::null_mut());
        for file in [pg_sys::ConfigFileName.cast_const(), pg_sys::PG_AUTOCONF_FILENAME.as_ptr()] {
            let level = PgLogLevel::DEBUG3 as c_int;
            pg_sys::ParseConfigFile(file, false, std::ptr::null(), 0, 0, level, &mut first, &mut last);
        }
        let texts = [LAYOUT_NAME, BACKUP_WORKERS_NAME].map(|wanted| {
            let lines = std::iter::successors(first.as_ref(), |line| line.next.as_ref());
            let whole = lines.filter(|line| !line.name.is_null() && !line.value.is_null());
            let texts =
                whole.map(|line| [line.name, line.value].map(|text| CStr::from_ptr(text).to_string_lossy()));
            let named = texts.filter(|[name, _]| name.eq_ignore_ascii_case(wanted));
            named.last().map(|[_, value]| value.into_owned())
        });
        pg_sys::FreeConfigVariables(first);
        texts
    };
    let layout = match layout_text {
        Some(text) => parse_layout(&text).ok()?,
        // From the command line, or the default.
        None => layout()?,
    };
    let backups = backups_text.map_or(Some(BACKUP_WORKERS.get()), |text| text.trim().parse().ok())?;
    Some((layout, backups))
}

// ---- limits, which a reload changes ----

/// Changes the limits in shared memory.
type Publish = fn(&dyn Fn(&mut Limits));

pub static PUBLISH: OnceLock<Publish> = OnceLock::new();

thread_local! {
    /// The limits of the settings, as this process sees them.
    pub static LIMITS: Cell<Limits> = Cell::default();
}

/// Changes a limit, and publishes a reload. Processes reread the files at different moments, so the value in force is in
/// shared memory, and the postmaster, which rereads first, writes it.
fn change_limits(change: impl Fn(&mut Limits)) {
    let mut limits = LIMITS.get();
    change(&mut limits);
    LIMITS.set(limits);
    // SAFETY: a plain flag.
    let is_postmaster = unsafe { !pg_sys::IsUnderPostmaster };
    if is_postmaster && let Some(publish) = PUBLISH.get() {
        publish(&change);
    }
}
