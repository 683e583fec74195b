//! Bits, tick and epoch of an ID: pack, unpack, ranges. Reads no clock, and has no state.
//!
//! Times are signed microseconds. A *Unix* time counts from 1970, a *relative* time from the layout's epoch. A tick is
//! a relative time in units of [`Tick`], rounded down; it is signed too, because a clock may be before the epoch.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The time unit of an ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Tick {
    /// 1 ms
    Millisecond,
    /// 10 ms
    Centisecond,
    /// 1 s
    Second,
}

impl Tick {
    /// The tick of this length in milliseconds: 1, 10 or 1,000.
    pub fn from_millis(millis: i64) -> Option<Self> {
        match millis {
            1 => Some(Self::Millisecond),
            10 => Some(Self::Centisecond),
            1_000 => Some(Self::Second),
            _ => None,
        }
    }

    /// Length in milliseconds.
    pub const fn millis(self) -> i64 {
        self.micros() / 1_000
    }

    /// Length in microseconds.
    #[inline]
    pub const fn micros(self) -> i64 {
        match self {
            Self::Millisecond => 1_000,
            Self::Centisecond => 10_000,
            Self::Second => 1_000_000,
        }
    }

    /// The tick that contains this relative time (µs), rounded down even before the epoch.
    #[inline]
    pub const fn containing(self, relative_us: i64) -> i64 {
        // A division by a constant compiles to a multiplication. By `self.micros()` it would be a 64-bit division, 5 to
        // 20 ns on the hot path.
        match self {
            Self::Millisecond => relative_us.div_euclid(1_000),
            Self::Centisecond => relative_us.div_euclid(10_000),
            Self::Second => relative_us.div_euclid(1_000_000),
        }
    }
}

impl FromStr for Tick {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        [Self::Millisecond, Self::Centisecond, Self::Second]
            .into_iter()
            .find(|tick| tick.to_string() == text)
            .ok_or(())
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Millisecond => "1ms",
            Self::Centisecond => "10ms",
            Self::Second => "1s",
        })
    }
}

/// The widths of the fields, in bits, from high to low.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bits {
    /// Ticks since the epoch.
    pub time: u32,
    /// Datacenter; 0 if the layout has none.
    pub datacenter: u32,
    /// Worker.
    pub worker: u32,
    /// Sequence within the tick.
    pub sequence: u32,
}

impl Bits {
    /// The width of an ID; an absurd one is `u32::MAX`.
    pub(crate) fn sum(self) -> u32 {
        let fields = [self.time, self.datacenter, self.worker, self.sequence];
        fields.into_iter().fold(0, u32::saturating_add)
    }
}

/// Reads `41/10/12`, or `41/5+5/12` where the worker field is split into datacenter and worker.
impl FromStr for Bits {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, LayoutError> {
        let unreadable = || LayoutError::Unreadable(text.to_owned());
        let width = |field: &str| {
            // `u32::from_str` alone would accept "+5".
            let unsigned = Some(field).filter(|field| !field.starts_with('+'));
            unsigned.and_then(|field| field.parse().ok()).ok_or_else(unreadable)
        };
        let mut fields = text.trim().split('/');
        let (Some(time), Some(middle), Some(sequence), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(unreadable());
        };
        let (datacenter, worker) = match middle.split_once('+') {
            Some((datacenter, worker)) => (width(datacenter)?, width(worker)?),
            None => (0, width(middle)?),
        };
        Ok(Self { time: width(time)?, datacenter, worker, sequence: width(sequence)? })
    }
}

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.datacenter {
            0 => write!(f, "{}/{}/{}", self.time, self.worker, self.sequence),
            d => write!(f, "{}/{d}+{}/{}", self.time, self.worker, self.sequence),
        }
    }
}

/// Further from the epoch than any tick, and small enough that times of this size can be added.
const FAR_US: i64 = 1 << 62;

/// Why a layout cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// Not of the form `41/10/12` or `41/5+5/12`.
    Unreadable(String),
    /// The fields need more than the 63 bits of a positive `bigint`.
    TooWide(u32),
    /// The time field has no bits.
    NoTime,
    /// The time field reaches beyond what a timestamp can hold: its width, and the greatest width with this tick.
    TimeTooWide(u32, u32),
    /// A field that SQL shows as `integer` has more than 31 bits: its name and width.
    FieldTooWide(&'static str, u32),
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(text) => write!(
                f,
                "\"{text}\" is not of the form time/worker/sequence or time/datacenter+worker/sequence."
            ),
            Self::TooWide(sum) => {
                write!(f, "The fields need {sum} bits; a positive bigint has 63.")
            }
            Self::NoTime => f.write_str("The time field has no bits."),
            Self::TimeTooWide(bits, most) => {
                write!(f, "The time field has {bits} bits; with this tick, timestamps hold at most {most}.")
            }
            Self::FieldTooWide(name, bits) => {
                write!(f, "The {name} field has {bits} bits; an integer holds at most 31.")
            }
        }
    }
}

impl std::error::Error for LayoutError {}

/// The fields of one ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Ticks since the epoch.
    pub tick: i64,
    /// Datacenter; 0 if the layout has none.
    pub datacenter: i64,
    /// Worker.
    pub worker: i64,
    /// Sequence within the tick.
    pub sequence: i64,
}

/// A checked layout: fields, tick and epoch. One that is deserialized is not checked, and good for comparisons only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    bits: Bits,
    tick: Tick,
    epoch_us: i64,
}

impl Default for Layout {
    /// `41/10/12`, 1 ms, 2024-01-01T00:00:00Z.
    fn default() -> Self {
        let bits = Bits { time: 41, datacenter: 0, worker: 10, sequence: 12 };
        Self { bits, tick: Tick::Millisecond, epoch_us: 1_704_067_200_000_000 }
    }
}

/// As a database records it: `41/10/12 1ms 2024-01-01 00:00:00+00`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An epoch that `parse_epoch` has returned is never outside.
        let epoch = jiff::Timestamp::from_microsecond(self.epoch_us).unwrap_or_default();
        write!(f, "{} {} {}+00", self.bits, self.tick, epoch.strftime("%Y-%m-%d %H:%M:%S%.f"))
    }
}

/// Reads what `Display` writes, and nothing else: two of these texts are equal exactly if the layouts are.
impl FromStr for Layout {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.splitn(3, ' ');
        let mut word = || words.next().ok_or(());
        let bits = word()?.parse().map_err(|_: LayoutError| ())?;
        let (tick, epoch_us) = (word()?.parse()?, parse_epoch(word()?).map_err(|_| ())?);
        Self::new(bits, tick, epoch_us).ok().filter(|layout| layout.to_string() == text).ok_or(())
    }
}

impl Layout {
    /// A layout whose epoch is a Unix time in microseconds.
    pub fn new(bits: Bits, tick: Tick, epoch_us: i64) -> Result<Self, LayoutError> {
        let sum = bits.sum();
        // 2^62 µs are 146,000 years. Any tick of the field times its length fits an i64, with room for an epoch and for
        // sums, so the hot path need not check for overflow.
        let most_time = 62 - (tick.micros() as u64).next_power_of_two().ilog2();
        if sum > 63 {
            return Err(LayoutError::TooWide(sum));
        }
        if bits.time == 0 {
            return Err(LayoutError::NoTime);
        }
        if bits.time > most_time {
            return Err(LayoutError::TimeTooWide(bits.time, most_time));
        }
        let narrow = [("datacenter", bits.datacenter), ("worker", bits.worker), ("sequence", bits.sequence)];
        if let Some((name, width)) = narrow.into_iter().find(|(_, width)| *width > 31) {
            return Err(LayoutError::FieldTooWide(name, width));
        }
        Ok(Self { bits, tick, epoch_us })
    }

    /// The widths of the fields.
    pub const fn bits(&self) -> Bits {
        self.bits
    }

    /// The time unit.
    pub const fn tick(&self) -> Tick {
        self.tick
    }

    /// The epoch as a Unix time in microseconds.
    pub const fn epoch_us(&self) -> i64 {
        self.epoch_us
    }

    /// The last tick that the time field can hold.
    pub const fn max_tick(&self) -> i64 {
        (1 << self.bits.time) - 1
    }

    /// How many values the datacenter field has; 1 if the layout has none.
    pub const fn datacenters(&self) -> i64 {
        1 << self.bits.datacenter
    }

    /// How many values the worker field has.
    pub const fn workers(&self) -> i64 {
        1 << self.bits.worker
    }

    /// How many IDs one worker can generate in a tick.
    pub const fn sequences(&self) -> i64 {
        1 << self.bits.sequence
    }

    /// A Unix time (µs) counted from the epoch. Because a clock can return any value, times further from the epoch than
    /// any tick are clamped to ±2^62 µs, so that callers cannot overflow.
    #[inline]
    pub const fn relative(&self, unix_us: i64) -> i64 {
        match unix_us.checked_sub(self.epoch_us) {
            // Within ±2^62, the two highest bits are equal.
            Some(relative_us) if relative_us ^ (relative_us << 1) >= 0 => relative_us,
            _ => self.far_end(unix_us),
        }
    }

    #[cold]
    const fn far_end(&self, unix_us: i64) -> i64 {
        if unix_us < self.epoch_us { -FAR_US } else { FAR_US }
    }

    /// The tick that contains this Unix time (µs); negative before the epoch.
    pub const fn tick_at(&self, unix_us: i64) -> i64 {
        self.tick.containing(self.relative(unix_us))
    }

    /// When a tick begins, as a Unix time in microseconds.
    pub const fn starts_at(&self, tick: i64) -> i64 {
        tick.saturating_mul(self.tick.micros()).saturating_add(self.epoch_us)
    }

    /// When the time field ends: the first Unix time in microseconds that no ID can have.
    pub const fn ends_at_us(&self) -> i64 {
        self.starts_at(self.max_tick() + 1)
    }

    /// The lowest ID of the tick that contains this Unix time (µs), also outside the time field: negative before the epoch,
    /// and above the highest ID past its end, as far as an `i64` reaches.
    pub fn lowest_id_at(&self, unix_us: i64) -> i64 {
        let id = i128::from(self.tick_at(unix_us)) << (self.origin_bits() + self.bits.sequence);
        id.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// The lowest ID of a tick.
    pub const fn lowest_id(&self, tick: i64) -> i64 {
        self.join(tick, 0, 0)
    }

    /// The highest ID of a tick.
    pub const fn highest_id(&self, tick: i64) -> i64 {
        self.join(tick + 1, 0, 0).wrapping_sub(1)
    }

    /// The first tick that begins at this Unix time (µs) or after it.
    const fn tick_from(&self, unix_us: i64) -> i64 {
        self.tick.containing(self.relative(unix_us) + self.tick.micros() - 1)
    }

    /// The lowest ID that was created at this Unix time (µs) or after it, in the layout's ticks or just past their end.
    /// Past the end of a layout of 63 bits there is no such number; then its highest ID.
    pub fn lowest_id_from(&self, unix_us: i64) -> i64 {
        self.highest_id_before(unix_us).saturating_add(1)
    }

    /// The highest ID that was created before this Unix time (µs); -1 if there is none.
    pub fn highest_id_before(&self, unix_us: i64) -> i64 {
        self.highest_id(self.tick_from(unix_us).clamp(0, self.max_tick() + 1) - 1)
    }

    /// The ID with these fields; `None` if a value does not fit its field.
    pub fn pack(&self, parts: Parts) -> Option<i64> {
        let fits = |value: i64, bits: u32| (0..1_i64 << bits).contains(&value);
        let all_fit = fits(parts.tick, self.bits.time)
            && fits(parts.datacenter, self.bits.datacenter)
            && fits(parts.worker, self.bits.worker)
            && fits(parts.sequence, self.bits.sequence);
        all_fit.then(|| {
            let origin = self.origin(parts.datacenter, parts.worker);
            self.join(parts.tick, origin, parts.sequence)
        })
    }

    /// The fields of an ID; `None` if it is negative or has bits above the time field.
    pub fn unpack(&self, id: i64) -> Option<Parts> {
        let field = |shift: u32, bits: u32| (id >> shift) & ((1 << bits) - 1);
        let Bits { datacenter, worker, sequence, .. } = self.bits;
        let tick = id >> (datacenter + worker + sequence);
        (0..=self.max_tick()).contains(&tick).then(|| Parts {
            tick,
            datacenter: field(worker + sequence, datacenter),
            worker: field(sequence, worker),
            sequence: field(0, sequence),
        })
    }

    /// The width of datacenter and worker side by side.
    pub(crate) const fn origin_bits(&self) -> u32 {
        self.bits.datacenter + self.bits.worker
    }

    /// Datacenter and worker as they stand in an ID, at bit 0.
    pub(crate) const fn origin(&self, datacenter: i64, worker: i64) -> i64 {
        datacenter << self.bits.worker | worker
    }

    /// [`pack`](Self::pack) without its checks.
    #[inline]
    pub(crate) const fn join(&self, tick: i64, origin: i64, sequence: i64) -> i64 {
        let Bits { datacenter, worker, sequence: low, .. } = self.bits;
        (tick << (datacenter + worker) | origin) << low | sequence
    }
}

/// The start of the year 1. PostgreSQL's timestamps reach further back, but no ID does.
const EARLIEST_EPOCH_US: i64 = -62_135_596_800_000_000;

/// Whether a Unix time in microseconds can be an epoch: any that `parse_epoch` returns.
pub fn is_epoch(unix_us: i64) -> bool {
    (EARLIEST_EPOCH_US..=jiff::Timestamp::MAX.as_microsecond()).contains(&unix_us)
}

/// Reads an epoch: a literal date and time with an explicit offset, such as `2024-01-01T00:00:00Z`, as a Unix time in
/// microseconds. The error is a sentence about the text.
pub fn parse_epoch(text: &str) -> Result<i64, &'static str> {
    let text = text.trim();
    match jiff::Timestamp::from_str(text).map(jiff::Timestamp::as_microsecond) {
        Ok(..EARLIEST_EPOCH_US) => Err("The time is before the year 1."),
        Ok(epoch_us) => Ok(epoch_us),
        Err(_) if jiff::civil::DateTime::from_str(text).is_ok() => Err("The time has no offset from UTC."),
        Err(_) => Err("The value is not a valid date and time with an offset from UTC."),
    }
}
