//! Messages for the server's log, and notices: what happened to the generator.

use super::error::{FLOOR_HINT, NO_LANE_HINT, UNWRITABLE_HINT, no_lane_detail};
use super::{Error, STATE_FILE, Text, without_statement};
use crate::display::{duration, os_error, timestamp};
use crate::time::clock_us;
use pgrx::prelude::*;
use snowflake_core::Event;

/// What the generator reports.
pub fn event(event: Event) {
    let (message, detail, hint) = describe(event);
    line(message, detail, hint);
}

/// Why no IDs are generated, before anybody asks for one.
pub fn unavailable(why: Error) {
    let text = why.text();
    let message = format!("snowflake_id: no IDs are made: {}", text.message).into();
    let state = PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION;
    without_statement(|| Text { state, message, ..text }.report(PgLogLevel::LOG));
}

/// Says that the layout comes to its end.
pub fn expiry(expires_at_us: i64) {
    line(
        format!("snowflake_id: the time field of the layout ends at {}", timestamp(expires_at_us)),
        "From then on no ID can be made.".to_owned(),
        "Move to a layout with more bits of time, or to a coarser tick, with all servers of the fleet; see \
         docs/reliability.md.",
    );
}

/// Says what is left to be done where the configured layout was adopted.
pub fn databases_left() {
    let text = Text {
        state: PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
        message: "the databases of this server still have the earlier snowflake layout".into(),
        detail: Some("Each refuses to generate and to read snowflake IDs until it has this server's layout.".into()),
        hint: "In each database with the extension, run in psql: SELECT statement FROM snowflake_layout_steps() \\gexec"
            .into(),
    };
    text.report(PgLogLevel::NOTICE);
}

/// Says that a reload of max_ahead takes effect only in part.
pub fn clamped(held_us: i64) {
    line(
        "snowflake_id.max_ahead takes full effect at the next restart".to_owned(),
        format!("The ledger in shared memory has room for {} ms.", held_us / 1_000),
        "Restart the server when it suits.",
    );
}

/// A line of the server's log. No hint, where nothing is to be done.
fn line(message: String, detail: String, hint: &'static str) {
    let state = PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION;
    let text = Text { state, message: message.into(), detail: Some(detail), hint: hint.into() };
    without_statement(|| text.report(PgLogLevel::LOG));
}

fn describe(event: Event) -> (String, String, &'static str) {
    match event {
        Event::ForwardJump(micros) => (
            format!("snowflake_id: the wall clock was set forward by {}", duration(micros)),
            "IDs follow it.".to_owned(),
            "If the clock was right before, correct it soon: until then IDs carry a time to come, and the \
             correction will be a step back.",
        ),
        Event::Rotated { from, to, behind_us: ..=0 } => (
            format!("snowflake_id: rotated from worker {from} to worker {to}"),
            "The wall clock is no further behind the last ID than IDs may run ahead.".to_owned(),
            "",
        ),
        Event::Rotated { from, to, behind_us } => (
            format!("snowflake_id: rotated from worker {from} to worker {to}, because the clock is back"),
            format!("The wall clock is {} behind the last ID.", duration(behind_us)),
            "Find out what set the clock back; backup workers are used up by steps that come faster than \
             the clock catches up.",
        ),
        Event::WriteFailed(errno) => (
            format!(
                "snowflake_id: could not write \"{}\": {}",
                STATE_FILE,
                os_error(errno)
            ),
            "IDs are made up to the end of the reservation that is on disk, and no further.".to_owned(),
            UNWRITABLE_HINT,
        ),
        Event::WriteRecovered => (
            format!("snowflake_id: \"{}\" can be written again", STATE_FILE),
            "The reservation moves on.".to_owned(),
            "",
        ),
        Event::Opened { timeline, worker, lane, home, first_us, is_first: false } => (
            format!("snowflake_id: worker {worker} generates the IDs of timeline {timeline}"),
            format!("{} {}", lane_of(lane, home, timeline), starts_at(first_us)),
            "",
        ),
        Event::Opened { timeline, worker, lane, home, first_us, is_first: true } => (
            format!(
                "snowflake_id: worker {worker} generates the IDs of timeline {timeline}, from a new state"
            ),
            format!(
                "{} There was no \"{}\" for this cluster, so IDs start when the system clock has passed {}, in {}.",
                lane_of(lane, home, timeline),
                STATE_FILE,
                timestamp(first_us),
                duration((first_us - clock_us(libc::CLOCK_REALTIME)).max(0)),
            ),
            "If this data once lived elsewhere and its IDs may lie ahead of this clock, call snowflake_adopt with \
             a later time.",
        ),
        Event::Adopted { floor_us, lower: false } => (
            format!("snowflake_id: the state was adopted, with IDs above {}", timestamp(floor_us)),
            "Somebody with the right to call snowflake_adopt vouched for it.".to_owned(),
            "",
        ),
        Event::Adopted { floor_us, lower: true } => (
            format!("snowflake_id: the marks were lowered to {}", timestamp(floor_us)),
            "A superuser vouched that no later ID exists.".to_owned(),
            "",
        ),
        Event::Refused(no_lane) if no_lane.floor.is_none() => (
            "snowflake_id: the clock is back and no worker of this server can make an ID yet".to_owned(),
            no_lane_detail(&no_lane),
            NO_LANE_HINT,
        ),
        Event::Refused(no_lane) => (
            "snowflake_id: the clock has not reached the time from which this server may generate snowflake IDs"
                .to_owned(),
            no_lane_detail(&no_lane),
            FLOOR_HINT,
        ),
    }
}

/// Which of a server's workers it is, and why that one.
fn lane_of(lane: usize, home: i64, timeline: u32) -> String {
    match (lane, timeline) {
        (0, _) => "It is the home worker.".to_owned(),
        (_, 1) => format!("It is lane {lane} of home worker {home}."),
        _ => {
            format!("It is lane {lane} of home worker {home}: successive timelines start on different lanes.")
        }
    }
}

/// From when on IDs come, and how far that is ahead.
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
