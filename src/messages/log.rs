//! Messages for the server's log, and notices: what happened to the generator.

use super::gate::{self, UNWRITABLE_HINT, lease_end};
use super::{Error, LeaseFailure, NO_DETAIL, NO_HINT, STATE_FILE, Text, without_statement};
use crate::postgres::display::{duration, io_error, os_error, shown, timestamp};
use crate::postgres::time::clock_us;
use pgrx::PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION as NO_ERROR;
use pgrx::prelude::*;
use snowflake_core::{Event, Refusal};
use std::borrow::Cow;
use std::io;
use std::path::Path;

pub fn event(event: Event) {
    write(describe(event));
}

pub fn unavailable(why: Error) {
    write(cannot_generate(why));
}

/// The error that a call gets.
fn cannot_generate(why: Error) -> Text {
    let message = format!("snowflake_id: cannot generate IDs: {}", why.cause());
    text(message, why.0.detail, why.0.hint)
}

pub fn expiry(expires_at_us: i64) {
    write(text(
        format!("snowflake_id: the layout's time field ends at {}", timestamp(expires_at_us)),
        "No ID can be generated after that.",
        "Move all servers of the fleet to a layout with more time bits or a coarser tick.",
    ));
}

pub fn clamped(held_us: i64) {
    write(text(
        format!("snowflake_id: max_ahead is limited to {} ms until the next restart", held_us / 1_000),
        "Shared memory was sized for this value when the server started.",
        "Restart the server to use the configured value.",
    ));
}

pub fn registry_unreachable(why: &LeaseFailure) {
    contact_failed("snowflake_id: could not contact the registry", why);
}

/// The registry's text may be in any language.
fn contact_failed(message: &'static str, why: &LeaseFailure) {
    let [error, hint] = [&why.error, &why.hint].map(|text| shown(text.as_bytes()).into_owned());
    write(text(message, error, hint));
}

pub fn registry_removed() {
    write(text(
        "snowflake_id: snowflake_id.registry was removed, and the lease is not renewed",
        "This server generates IDs until its lease ends.",
        "Set snowflake_id.registry again. Or reserve a number in the registry with snowflake_registry_reserve(), set \
         snowflake_id.worker_id to it, and restart the server.",
    ));
}

pub fn lease_granted(home: i64, until_us: i64) {
    write(text(
        format!("snowflake_id: the registry assigned home worker {home} to this server"),
        format!("The lease ends at {} unless the registry renews it.", timestamp(until_us)),
        NO_HINT,
    ));
}

pub fn lease_lost(why: &LeaseFailure) {
    let detail = format!("{} This server asks for another worker at once.", shown(why.error.as_bytes()));
    write(text("snowflake_id: the registry ended this server's lease", detail, NO_HINT));
}

pub fn lease_refused(why: &LeaseFailure) {
    contact_failed("snowflake_id: the registry refused this server's request", why);
}

pub fn lease_ended(home: i64, ended_at_us: i64, why: Option<LeaseFailure>) {
    let (detail, hint) = lease_end(home, ended_at_us, why);
    let [detail, hint] = [detail, hint].map(|text| shown(text.as_bytes()).into_owned());
    write(text("snowflake_id: this server's lease ended, and it generates no IDs", detail, hint));
}

pub fn registry_reachable() {
    write(text("snowflake_id: the registry answers again", NO_DETAIL, NO_HINT));
}

pub fn host_lock_failed(path: &Path, error: &io::Error) {
    let why = io_error(error);
    write(text(
        format!("snowflake_id: could not lock this server's workers in file \"{}\": {why}", path.display()),
        "A second server with the same worker on this host is not recognized. With a registry, this server asks for another \
         worker after a restart.",
        "Check that the folder exists, has room and can be written. If the file belongs to another user, remove it.",
    ));
}

pub fn registry_waits() {
    write(text(
        "snowflake_id: snowflake_id.registry takes effect after a restart",
        "This server was started with snowflake_id.worker_id, and goes on with that worker.",
        "Remove snowflake_id.worker_id, and restart the server.",
    ));
}

/// A message that is no error.
fn text(
    message: impl Into<Cow<'static, str>>,
    detail: impl Into<Cow<'static, str>>,
    hint: impl Into<Cow<'static, str>>,
) -> Text {
    Text { state: NO_ERROR, message: message.into(), detail: detail.into(), hint: hint.into() }
}

/// Writes a message to the server's log.
fn write(message: Text) {
    without_statement(|| message.report(PgLogLevel::LOG));
}

pub fn describe(event: Event) -> Text {
    match event {
        Event::ForwardJump(micros) => text(
            format!("snowflake_id: system clock moved forward by {}", duration(micros)),
            "New IDs follow the clock.",
            "If the clock is wrong now, correct it soon: until then IDs encode future times, and the correction will \
             move the clock backwards.",
        ),
        Event::Rotated { from, to, behind_us: ..=0 } => text(
            format!("snowflake_id: rotated from worker {from} to worker {to}"),
            "The system clock is no further behind the newest ID than max_ahead allows.",
            NO_HINT,
        ),
        Event::Rotated { from, to, behind_us } => text(
            format!("snowflake_id: rotated from worker {from} to worker {to}: system clock moved backwards"),
            format!("The system clock is {} behind the newest ID.", duration(behind_us)),
            "Find out what moved the clock. Backup workers run out if it moves backwards again before it has caught \
             up.",
        ),
        Event::WriteFailed(errno) => text(
            format!("snowflake_id: could not write file \"{STATE_FILE}\": {}", os_error(errno)),
            "The server generates no IDs beyond the time that is reserved on disk.",
            UNWRITABLE_HINT,
        ),
        Event::WriteRecovered => text(
            format!("snowflake_id: file \"{STATE_FILE}\" is writable again"),
            "The server reserves time on disk again.",
            NO_HINT,
        ),
        Event::Opened { timeline, worker, lane, home, first_us, is_first: false } => text(
            format!("snowflake_id: worker {worker} generates the IDs of timeline {timeline}"),
            format!("{} {}", lane_of(lane, home, timeline), starts_at(first_us)),
            NO_HINT,
        ),
        Event::Opened { timeline, worker, lane, home, first_us, is_first: true } => text(
            format!(
                "snowflake_id: worker {worker} generates the IDs of timeline {timeline}, with a new state file"
            ),
            format!(
                "{} There was no usable file \"{STATE_FILE}\", so IDs begin a second further above the system clock, at {}.",
                lane_of(lane, home, timeline),
                timestamp(first_us),
            ),
            NO_HINT,
        ),
        Event::Adopted(floor_us) => text(
            format!("snowflake_id: the state was adopted, with IDs above {}", timestamp(floor_us)),
            "The caller of snowflake_adopt asserted that no later ID exists elsewhere.",
            NO_HINT,
        ),
        Event::Unreadable => text(
            format!("snowflake_id: file \"{STATE_FILE}\" contains no valid record"),
            "The file holds two records and neither is valid. IDs start above the system clock.",
            "Check the disk that holds the data directory. If the system clock was behind when the server started, call \
             snowflake_adopt with a time after which no ID was generated.",
        ),
        Event::Refused(no_lane) => cannot_generate(gate::refused(Refusal::NoLane(no_lane))),
    }
}

/// A sentence: the worker's lane, and why that one.
fn lane_of(lane: usize, home: i64, timeline: u32) -> String {
    match (lane, timeline) {
        (0, _) => "It is the home worker.".to_owned(),
        (_, 1) => format!("It is lane {lane} of home worker {home}."),
        _ => {
            format!("It is lane {lane} of home worker {home}: successive timelines start on different lanes.")
        }
    }
}

/// A sentence: the first ID's time, and how far it is ahead.
fn starts_at(first_us: i64) -> String {
    let (first, ahead_us) = (timestamp(first_us), first_us - clock_us(libc::CLOCK_REALTIME));
    match ahead_us {
        ..=0 => "IDs continue above everything that was reserved before.".to_owned(),
        _ => format!(
            "IDs continue above everything that was reserved before, from {first} on, which is {} ahead of the \
             system clock.",
            duration(ahead_us)
        ),
    }
}
