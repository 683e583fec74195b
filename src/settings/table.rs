//! The settings, a row each: how PostgreSQL defines it, and why a value cannot be used.

use super::{BadValue, guc};
use crate::display::{quote, readable};
use pgrx::prelude::*;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum};
use snowflake_core::layout::parse_epoch;
use snowflake_core::workers::MAX_LANES;
use snowflake_core::{Bits, Layout, Tick};
use std::borrow::Cow;
use std::ffi::{CStr, CString};

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

pub static WORKER_ID: GucSetting<i32> = GucSetting::<i32>::new(-1);
pub static DATACENTER_ID: GucSetting<i32> = GucSetting::<i32>::new(0);
pub static BACKUP_WORKERS: GucSetting<i32> = GucSetting::<i32>::new(3);
pub static LAYOUT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"41/10/12"));
pub static TICK: GucSetting<i32> = GucSetting::<i32>::new(1);
pub static EPOCH: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(c"2024-01-01T00:00:00Z"));
pub static ROLLBACK_POLICY: GucSetting<RollbackPolicy> =
    GucSetting::<RollbackPolicy>::new(RollbackPolicy::hold);
pub static MAX_AHEAD: GucSetting<i32> = GucSetting::<i32>::new(2_000);
pub static MAX_WAIT: GucSetting<i32> = GucSetting::<i32>::new(5);
pub static SEQUENCE_START: GucSetting<SequenceStartName> =
    GucSetting::<SequenceStartName>::new(SequenceStartName::zero);
pub static REGISTRY: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
pub static NODE_NAME: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));

/// Ten minutes. A ring for more would take more memory than a worse clock is worth.
const LONGEST_MS: i32 = 600_000;

const PLAIN: GucFlags = GucFlags::empty();

/// Whether a text can be used as a setting. The error is a sentence that says why not.
type Check = fn(&Setting, &str) -> Result<(), String>;

/// A setting. Worker and datacenter have no upper bound here, because theirs depends on the layout.
pub struct Setting {
    name: &'static CStr,
    description: &'static CStr,
    /// A reload changes it; otherwise only a restart does.
    is_reloadable: bool,
    flags: GucFlags,
    kind: Kind,
    /// Checks a text; none if any will do.
    check: Option<Check>,
    /// The correction.
    pub(super) hint: &'static str,
}

/// The setting's variable; of an integer its range; and PostgreSQL's hooks: to check a value, and of an integer to assign it.
enum Kind {
    Integer(&'static GucSetting<i32>, (i32, i32), pg_sys::GucIntCheckHook, pg_sys::GucIntAssignHook),
    Text(&'static GucSetting<Option<CString>>, pg_sys::GucStringCheckHook),
    Policy,
    SequenceStart,
}

pub static SETTINGS: [Setting; 12] = [
    Setting {
        name: c"snowflake_id.worker_id",
        description:
            c"This server's worker number; -1 for none: a registry assigns one, or no IDs are generated.",
        is_reloadable: false,
        flags: PLAIN,
        kind: Kind::Integer(&WORKER_ID, (-1, i32::MAX), Some(guc::check_worker), None),
        check: Some(an_integer),
        hint: "Use a number that no other server has.",
    },
    Setting {
        name: c"snowflake_id.datacenter_id",
        description: c"This server's datacenter number, if the layout has datacenter bits.",
        is_reloadable: false,
        flags: PLAIN,
        kind: Kind::Integer(&DATACENTER_ID, (0, i32::MAX), Some(guc::check_datacenter), None),
        check: Some(an_integer),
        hint: "Use the number of this server's datacenter.",
    },
    Setting {
        name: c"snowflake_id.backup_workers",
        description: c"Backup workers per server; the same number on all servers of a fleet.",
        is_reloadable: false,
        flags: PLAIN,
        kind: Kind::Integer(&BACKUP_WORKERS, (0, MAX_LANES as i32 - 1), None, None),
        check: Some(an_integer),
        hint: "Use the number that all servers of the fleet have.",
    },
    Setting {
        name: c"snowflake_id.layout",
        description:
            c"Widths of the fields in bits: time/worker/sequence or time/datacenter+worker/sequence.",
        is_reloadable: false,
        flags: PLAIN,
        kind: Kind::Text(&LAYOUT, Some(guc::check_layout)),
        check: Some(|_, text| check_layout(text)),
        hint: LAYOUT_HINT,
    },
    Setting {
        name: c"snowflake_id.tick",
        description: c"Time unit of IDs: 1ms, 10ms or 1s.",
        is_reloadable: false,
        flags: GucFlags::UNIT_MS,
        kind: Kind::Integer(&TICK, (1, 1_000), Some(guc::check_tick), None),
        check: Some(|row, text| check_tick(parse_integer(text, row.flags).unwrap_or_default())),
        hint: TICK_HINT,
    },
    Setting {
        name: c"snowflake_id.epoch",
        description: c"Start of the time field: a date and time with an explicit offset.",
        is_reloadable: false,
        flags: PLAIN,
        kind: Kind::Text(&EPOCH, Some(guc::check_epoch)),
        check: Some(|_, text| check_epoch(text)),
        hint: EPOCH_HINT,
    },
    Setting {
        name: c"snowflake_id.rollback_policy",
        description:
            c"Response when the clock steps back beyond max_ahead: keep order (hold) or follow the clock \
              (replay).",
        is_reloadable: true,
        flags: PLAIN,
        kind: Kind::Policy,
        check: Some(|_, text| check_name(text, &["hold", "replay"])),
        hint: OTHER_HINT,
    },
    Setting {
        name: c"snowflake_id.max_ahead",
        description: c"How far ID times may run ahead of the system clock.",
        is_reloadable: true,
        flags: GucFlags::UNIT_MS,
        kind: Kind::Integer(&MAX_AHEAD, (0, LONGEST_MS), None, Some(guc::assign_max_ahead)),
        check: Some(an_integer),
        hint: OTHER_HINT,
    },
    Setting {
        name: c"snowflake_id.max_wait",
        description: c"How long a call waits for the clock before the server rotates to a backup worker.",
        is_reloadable: true,
        flags: GucFlags::UNIT_MS,
        kind: Kind::Integer(&MAX_WAIT, (0, LONGEST_MS), None, Some(guc::assign_max_wait)),
        check: Some(an_integer),
        hint: OTHER_HINT,
    },
    Setting {
        name: c"snowflake_id.sequence_start",
        description:
            c"First sequence of a tick: always 0 (zero), or varying within the lowest 1/64 of the field \
              (spread).",
        is_reloadable: false,
        flags: PLAIN,
        kind: Kind::SequenceStart,
        check: Some(|_, text| check_name(text, &["zero", "spread"])),
        hint: OTHER_HINT,
    },
    Setting {
        name: c"snowflake_id.registry",
        description: c"Connection string of the fleet's registry, which then assigns this server's worker.",
        is_reloadable: true,
        // It may have a password.
        flags: GucFlags::SUPERUSER_ONLY,
        // As primary_conninfo, it is not checked: only libpq can, and no session loads that.
        kind: Kind::Text(&REGISTRY, None),
        check: None,
        hint: OTHER_HINT,
    },
    Setting {
        name: c"snowflake_id.node_name",
        description: c"This server's name in the registry; empty for the name of its host and its port.",
        is_reloadable: false,
        flags: PLAIN,
        kind: Kind::Text(&NODE_NAME, Some(guc::check_node_name)),
        check: Some(|_, text| check_node_name(text)),
        hint: NODE_NAME_HINT,
    },
];

impl Setting {
    /// Defines the setting in PostgreSQL.
    pub fn define(&self) {
        let Self { name, description, flags, .. } = *self;
        let context = || if self.is_reloadable { GucContext::Sighup } else { GucContext::Postmaster };
        let long = c"";
        // SAFETY: the hooks have the types that PostgreSQL calls. They are guarded, so they cannot unwind into it.
        unsafe {
            match self.kind {
                Kind::Integer(variable, (least, greatest), hook, assign) => {
                    GucRegistry::define_int_guc_with_hooks(
                        name,
                        description,
                        long,
                        variable,
                        least,
                        greatest,
                        context(),
                        flags,
                        hook,
                        assign,
                        None,
                    );
                }
                Kind::Text(variable, hook) => GucRegistry::define_string_guc_with_hooks(
                    name,
                    description,
                    long,
                    variable,
                    context(),
                    flags,
                    hook,
                    None,
                    None,
                ),
                Kind::Policy => GucRegistry::define_enum_guc_with_hooks(
                    name,
                    description,
                    long,
                    &ROLLBACK_POLICY,
                    context(),
                    flags,
                    None,
                    Some(guc::assign_policy),
                    None,
                ),
                Kind::SequenceStart => {
                    GucRegistry::define_enum_guc(name, description, long, &SEQUENCE_START, context(), flags);
                }
            }
        }
    }

    /// Checks a text that can perhaps not be read.
    pub(super) fn check<'a>(
        &self,
        text: impl FnOnce() -> Result<Cow<'a, str>, String>,
    ) -> Result<(), String> {
        self.check.map_or(Ok(()), |check| check(self, &text()?))
    }

    /// The row of this name.
    pub(super) fn of(name: &CStr) -> &'static Self {
        SETTINGS.iter().find(|row| row.name == name).expect("a setting")
    }

    /// The value in the server's files or on its command line, if it cannot be used by itself.
    pub fn find_bad_value(&self) -> Option<BadValue> {
        let text = configured_text(self.name)?;
        let detail = self.check(|| readable(text.to_bytes())).err()?;
        let value = quote(text.to_bytes());
        Some(BadValue { name: self.name.to_str().expect("ASCII"), value, detail, hint: self.hint })
    }
}

/// The text in the server's files or on its command line for a setting that is not yet defined.
fn configured_text(name: &CStr) -> Option<CString> {
    // SAFETY: a static name; the text is copied before anything can change it.
    unsafe {
        let text = pg_sys::GetConfigOption(name.as_ptr(), true, false);
        (!text.is_null()).then(|| CStr::from_ptr(text).to_owned())
    }
}

// ---- which values are valid ----

pub const TICKS: &str = "A tick must be 1ms, 10ms or 1s.";
pub const TICK_HINT: &str = "Use one of these values.";
pub const EPOCH_HINT: &str = "Use a date and time with an explicit offset, for example 2024-01-01T00:00:00Z.";
pub const LAYOUT_HINT: &str =
    "Use time/worker/sequence widths with a sum of at most 63 bits, for example 41/10/12.";
const NO_DURATION: &str = "The value is not a duration: a whole number with a unit, such as ms or s.";
const OTHER_HINT: &str = "Correct the value, or remove the setting to use its default.";

fn check_epoch(text: &str) -> Result<(), String> {
    parse_epoch(text).map(drop).map_err(|problem| problem.to_string())
}

/// Checks a layout by itself: with the shortest tick, which allows the widest time field.
fn check_layout(text: &str) -> Result<(), String> {
    let layout = text.parse::<Bits>().and_then(|bits| Layout::new(bits, Tick::Millisecond, 0));
    layout.map(drop).map_err(|error| error.to_string())
}

pub fn check_tick(millis: i32) -> Result<(), String> {
    Tick::from_millis(millis.into()).map(drop).ok_or_else(|| TICKS.to_owned())
}

/// As long as the name of a host can be on Linux.
const LONGEST_NODE_NAME: usize = 64;
const NODE_NAME_HINT: &str = "Use a shorter name in one line, or an empty one for the name of the host.";

fn check_node_name(text: &str) -> Result<(), String> {
    // Processes without a database escape what is not ASCII: four characters a byte.
    let length = text.bytes().map(|byte| if byte.is_ascii() { 1 } else { 4 }).sum::<usize>();
    if text.contains(|c: char| c.is_control()) {
        return Err("The name has a control character.".to_owned());
    }
    if length > LONGEST_NODE_NAME {
        return Err(format!(
            "The name takes {length} characters, of which a byte that is not ASCII takes four; it may take \
             {LONGEST_NODE_NAME}."
        ));
    }
    Ok(())
}

fn an_integer(row: &Setting, text: &str) -> Result<(), String> {
    let Kind::Integer(_, (least, greatest), ..) = row.kind else { unreachable!("a row of another kind") };
    match parse_integer(text, row.flags) {
        Some(value) if (least..=greatest).contains(&value) => Ok(()),
        Some(value) => Err(format!("{value} is outside the valid range ({least} .. {greatest}).")),
        None if row.flags.contains(GucFlags::UNIT_MS) => Err(NO_DURATION.to_owned()),
        None => Err("The value is not an integer.".to_owned()),
    }
}

fn check_name(text: &str, names: &[&str]) -> Result<(), String> {
    let is_known = names.iter().any(|name| name.eq_ignore_ascii_case(text));
    if is_known { Ok(()) } else { Err(format!("The value is none of {}.", names.join(", "))) }
}

/// Reads an integer as PostgreSQL reads a setting's value.
pub fn parse_integer(text: &str, flags: GucFlags) -> Option<i32> {
    let text = CString::new(text).ok()?;
    let mut value = 0;
    // SAFETY: a valid text, a place for the result, and no place for a hint, which is allowed.
    let is_integer =
        unsafe { pg_sys::parse_int(text.as_ptr(), &mut value, flags.bits(), std::ptr::null_mut()) };
    is_integer.then_some(value)
}
