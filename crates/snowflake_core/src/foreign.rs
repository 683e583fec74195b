//! IDs of other systems, to be read and never generated: layouts by name, or written out in one line.
//!
//! They can have what this project's own layouts cannot: a missing field, a sequence above the worker, an epoch that is
//! a date, and 64 bits, of which a positive ID has 63.

use crate::layout::parse_epoch;
use crate::{Bits, Layout, LayoutError};
use std::str::FromStr;

/// A system whose IDs can be read by the system's name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name in SQL.
    pub name: &'static str,
    /// Its layout, written out.
    pub layout: &'static str,
    /// The meaning of its fields, and differences between installations.
    pub note: &'static str,
}

/// Every system that is known by name.
pub const PRESETS: [Preset; 9] = [
    Preset {
        name: "twitter",
        layout: "41/5+5/12 1ms 2010-11-04T01:42:54.657Z",
        note: "IDs since November 2010; older ones are plain numbers without a time",
    },
    Preset {
        name: "discord",
        layout: "41/5+5/12 1ms 2015-01-01",
        note: "datacenter is Discord's internal worker ID, worker its internal process ID",
    },
    Preset {
        name: "instagram",
        layout: "41/13/10 1ms 2011-08-24T21:07:01.721Z",
        note: "worker is the logical shard; 64 bits, so IDs turn negative in 2046 and cannot be read then; the epoch \
               is that of Instagram's published function, copies of which may use another",
    },
    Preset {
        name: "mastodon",
        layout: "48/0/16 1ms 1970-01-01",
        note: "no worker; the sequence is partly a hash, so it has no order",
    },
    Preset {
        name: "sonyflake",
        layout: "39/s8/w16 10ms 2014-09-01",
        note: "version 1 with its default start time; for another StartTime, and for version 2, which starts at \
               2025-01-01, write the layout out",
    },
    Preset {
        name: "leaf",
        layout: "41/10/12 1ms 2010-11-04T01:42:54.657Z",
        note: "Meituan's Leaf, snowflake mode",
    },
    Preset {
        name: "uid-generator",
        layout: "28/22/13 1s 2016-05-19T16:00:00Z",
        note: "the defaults of its code: 2016-05-20 in China's time zone; where widths or epoch are configured, write \
               the layout out",
    },
    Preset {
        name: "pgedge",
        layout: "41/10/12 1ms 2023-01-01",
        note: "pgEdge snowflake: worker is the node; for IDs before October 2023, which have the sequence above it, \
               use 41/s12/w10 1ms 2023-01-01",
    },
    Preset {
        name: "shardingsphere",
        layout: "41/10/12 1ms 2016-11-01",
        note: "the epoch is midnight in the time zone of the host that generated the ID: this is for hosts in UTC; for \
               one in China use 41/10/12 1ms 2016-11-01T00:00:00+08:00",
    },
];

/// The layout of another system's IDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignLayout {
    layout: Layout,
    datacenter: Field,
    worker: Field,
    sequence: Field,
}

/// A field's place in an ID: how many bits are below it, and how many it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    below: u32,
    bits: u32,
}

impl ForeignLayout {
    /// The sequence may be above the datacenter and worker, not below.
    const fn new(layout: Layout, is_sequence_first: bool) -> Self {
        let Bits { datacenter, worker, sequence, .. } = layout.bits();
        let (below_worker, below_sequence) =
            if is_sequence_first { (0, datacenter + worker) } else { (sequence, 0) };
        Self {
            layout,
            datacenter: Field { below: below_worker + worker, bits: datacenter },
            worker: Field { below: below_worker, bits: worker },
            sequence: Field { below: below_sequence, bits: sequence },
        }
    }

    /// The layout of a system's name, in any case, or of a line such as `41/10/12 1ms 2015-01-01`. The error is
    /// a sentence about the line.
    pub fn find(text: &str) -> Result<Self, String> {
        let preset = PRESETS.iter().find(|preset| preset.name.eq_ignore_ascii_case(text.trim()));
        preset.map_or(text, |preset| preset.layout).parse()
    }

    /// When its time field ends: the first Unix time in microseconds that no positive ID can have.
    pub const fn ends_at_us(&self) -> i64 {
        self.layout.ends_at_us()
    }

    /// When an ID's tick began, as a Unix time in microseconds; `None` if it is not an ID.
    pub fn created_at_us(&self, id: i64) -> Option<i64> {
        self.tick(id).map(|tick| self.layout.starts_at(tick))
    }

    /// A field of an ID by its place: datacenter, worker and sequence. `None` if it is not an ID, `Some(None)` if the
    /// layout has no such field.
    pub fn field(&self, id: i64, place: i32) -> Option<Option<i64>> {
        let Field { below, bits } = match place {
            0 => self.datacenter,
            1 => self.worker,
            _ => self.sequence,
        };
        self.tick(id).map(|_| (bits > 0).then(|| (id >> below) & ((1 << bits) - 1)))
    }

    /// The time field of an ID; `None` if it is negative or has bits above the field.
    fn tick(&self, id: i64) -> Option<i64> {
        let tick = id >> (self.datacenter.bits + self.worker.bits + self.sequence.bits);
        (0..=self.layout.max_tick()).contains(&tick).then_some(tick)
    }
}

/// Reads bits, tick and epoch, as in `41/10/12 1ms 2015-01-01`. The bits are time/worker/sequence or, with the sequence
/// above the worker, time/`s`sequence/`w`worker. A field of 0 bits is missing. The worker may be split into datacenter
/// + worker. The epoch is a date, which begins in UTC, or a date and time with an explicit offset.
impl FromStr for ForeignLayout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.trim().splitn(3, char::is_whitespace);
        let (Some(bits), Some(tick), Some(epoch)) = (words.next(), words.next(), words.next()) else {
            return Err("The text is neither a known name nor bits, tick and epoch.".to_owned());
        };
        let (mut bits, is_sequence_first) = read_bits(bits).map_err(|error| error.to_string())?;
        // A positive ID never has the highest of 64 bits set, so the time field has one usable bit less.
        let has_sign = bits.time > 0 && bits.sum() == 64;
        bits.time -= u32::from(has_sign);
        let tick =
            tick.parse().map_err(|()| format!("The tick is \"{tick}\"; it must be 1ms, 10ms or 1s."))?;
        let epoch_us = read_epoch(epoch.trim())?;
        let layout = Layout::new(bits, tick, epoch_us).map_err(|error| match error {
            LayoutError::TimeTooWide(bits, most) if has_sign => LayoutError::TimeTooWide(bits + 1, most + 1),
            other => other,
        });
        let layout = layout.map_err(|error| error.to_string())?;
        Ok(Self::new(layout, is_sequence_first))
    }
}

/// The widths, and whether the sequence stands above the worker.
fn read_bits(text: &str) -> Result<(Bits, bool), LayoutError> {
    let swapped = text.split_once("/s").and_then(|(time, rest)| {
        let (sequence, worker) = rest.split_once("/w")?;
        Some(format!("{time}/{worker}/{sequence}"))
    });
    let is_sequence_first = swapped.is_some();
    let bits = swapped.as_deref().unwrap_or(text).parse();
    Ok((bits.map_err(|_: LayoutError| LayoutError::Unreadable(text.to_owned()))?, is_sequence_first))
}

fn read_epoch(text: &str) -> Result<i64, String> {
    let is_date = text.len() == "2015-01-01".len();
    let time = if is_date { parse_epoch(&format!("{text}T00:00:00Z")) } else { parse_epoch(text) };
    time.map_err(|problem| format!("The epoch \"{text}\" is invalid. {problem}"))
}
