//! The variables of the settings, and which values they take.

use pgrx::prelude::*;
use pgrx::{GucFlags, GucSetting, PostgresGucEnum};
use snowflake_core::layout::parse_epoch;
use snowflake_core::{Bits, Layout, Tick};
use std::ffi::CString;

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

// ---- which values are valid ----

pub const TICKS: &str = "A tick must be 1ms, 10ms or 1s.";
pub const TICK_HINT: &str = "Use one of these values.";
pub const EPOCH_HINT: &str = "Use a date and time with an explicit offset, for example 2024-01-01T00:00:00Z.";
pub const LAYOUT_HINT: &str =
    "Use time/worker/sequence widths with a sum of at most 63 bits, for example 41/10/12.";

pub fn check_epoch(text: &str) -> Result<(), String> {
    parse_epoch(text).map(drop).map_err(|problem| problem.to_string())
}

/// Checks a layout by itself: with the shortest tick, which allows the widest time field.
pub fn check_layout(text: &str) -> Result<(), String> {
    let layout = text.parse::<Bits>().and_then(|bits| Layout::new(bits, Tick::Millisecond, 0));
    layout.map(drop).map_err(|error| error.to_string())
}

pub fn check_tick(millis: i32) -> Result<(), String> {
    Tick::from_millis(millis.into()).map(drop).ok_or_else(|| TICKS.to_owned())
}

/// As long as the name of a host can be on Linux.
const LONGEST_NODE_NAME: usize = 64;
pub const NODE_NAME_HINT: &str = "Use a shorter name in one line, or an empty one for the name of the host.";

pub fn check_node_name(text: &str) -> Result<(), String> {
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

pub fn check_name(text: &str, names: &[&str]) -> Result<(), String> {
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
