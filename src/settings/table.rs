//! The settings, a row each: its definition in PostgreSQL, and the check of its value.

use super::values::{
    BACKUP_WORKERS, DATACENTER_ID, EPOCH, EPOCH_HINT, LAYOUT, LAYOUT_HINT, MAX_AHEAD, MAX_WAIT, NODE_NAME,
    NODE_NAME_HINT, REGISTRY, ROLLBACK_POLICY, SEQUENCE_START, TICK, TICK_HINT, WORKER_ID, check_epoch,
    check_layout, check_name, check_node_name, check_tick, parse_integer,
};
use super::{BadValue, guc};
use crate::display::{quote, readable};
use pgrx::prelude::*;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};
use snowflake_core::workers::MAX_LANES;
use std::ffi::{CStr, CString};

/// Ten minutes. The ring's memory grows with it, and no usable clock needs more.
const LONGEST_MS: i32 = 600_000;

const NO_DURATION: &str = "The value is not a duration: a whole number with a unit, such as ms or s.";
const OTHER_HINT: &str = "Correct the value, or remove the setting to use its default.";

const PLAIN: GucFlags = GucFlags::empty();

/// Whether a text can be used as a setting. The error is a sentence with the reason.
type Check = fn(&Setting, &str) -> Result<(), String>;

/// A setting. Worker and datacenter have no upper bound here, because theirs depends on the layout.
pub struct Setting {
    name: &'static CStr,
    description: &'static CStr,
    /// A reload changes it; otherwise only a restart does.
    is_reloadable: bool,
    flags: GucFlags,
    kind: Kind,
    /// Checks a text; `None`: any text is valid.
    check: Option<Check>,
    /// The correction.
    hint: &'static str,
}

/// The setting's variable, the range of an integer, and PostgreSQL's check and assign hooks.
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
        // It may contain a password.
        flags: GucFlags::SUPERUSER_ONLY,
        // Not checked, like primary_conninfo: only libpq can, and no session loads that.
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

    /// The value in the server's files or on its command line, if it cannot be used by itself.
    pub fn find_bad_value(&self) -> Option<BadValue> {
        let text = configured_text(self.name)?;
        let check = self.check?;
        let detail = readable(text.to_bytes()).and_then(|text| check(self, &text)).err()?;
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

fn an_integer(row: &Setting, text: &str) -> Result<(), String> {
    let Kind::Integer(_, (least, greatest), ..) = row.kind else { unreachable!("a row of another kind") };
    match parse_integer(text, row.flags) {
        Some(value) if (least..=greatest).contains(&value) => Ok(()),
        Some(value) => Err(format!("{value} is outside the valid range ({least} .. {greatest}).")),
        None if row.flags.contains(GucFlags::UNIT_MS) => Err(NO_DURATION.to_owned()),
        None => Err("The value is not an integer.".to_owned()),
    }
}
