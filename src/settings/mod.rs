//! The settings, checked against each other and read as one typed value.
//!
//! PostgreSQL only warns if a value in its files fails the check of an extension's setting, and continues with the
//! default. But another layout or number of backup workers would change the meaning of every ID. So each value is read
//! here first. A bad value does not stop the server, but keeps the generator's gate closed.
//!
//! `table` has a row per setting, and the hooks that run when one is set or reloaded.

mod table;

pub use table::PUBLISH;

use crate::postgres::display::shown;
use pgrx::GucSetting;
use pgrx::prelude::*;
use snowflake_core::layout::parse_epoch;
use snowflake_core::workers::WorkersError;
use snowflake_core::{Bits, Config, Layout, SequenceStart, Tick, WorkerSource, Workers};
use std::ffi::{CStr, CString};
use std::iter::zip;
use std::sync::OnceLock;
use table::{
    BACKUP_WORKERS, DATACENTER_ID, EPOCH, LAYOUT, LIMITS, NODE_NAME, REGISTRY, SEQUENCE_START, SETTINGS,
    SequenceStartName, Setting, TICK, WORKER_ID,
};

pub const TICKS: &str = "A tick must be 1ms, 10ms or 1s.";
pub const TICK_HINT: &str = "Use 1ms, 10ms or 1s.";
pub const EPOCH_HINT: &str = "Use a date and time with an explicit offset, for example 2024-01-01T00:00:00Z.";
pub const LAYOUT_HINT: &str =
    "Use time/worker/sequence widths with a sum of at most 63 bits, for example 41/10/12.";

/// The settings that are fixed while the server runs, checked.
#[derive(Debug)]
struct Checked {
    /// With home worker 0 if none is configured, for functions that need only the fleet's numbers.
    config: Config,
    /// Whether the settings name a worker or a registry.
    has_source: bool,
    /// The values that cannot be used.
    bad: Vec<BadValue>,
}

static CHECKED: OnceLock<Checked> = OnceLock::new();

/// The settings; `None` if the library was not preloaded. Defaults replace values that cannot be used.
#[inline]
pub fn get() -> Option<&'static Config> {
    CHECKED.get().map(|checked| &checked.config)
}

/// The generator's configuration; `None` without a source of workers, or if a value cannot be used.
pub fn config() -> Option<Config> {
    let checked = CHECKED.get().filter(|checked| checked.has_source && checked.bad.is_empty())?;
    Some(Config { limits: LIMITS.get(), ..checked.config })
}

/// The home worker of the settings, if they have one.
pub fn configured_home() -> Option<i64> {
    let config = &CHECKED.get().filter(|checked| checked.has_source)?.config;
    (config.source == WorkerSource::Configured).then(|| config.workers.worker(0))
}

/// A value in the server's files that cannot be used. No IDs are generated until it is corrected.
#[derive(Debug)]
pub struct BadValue {
    pub name: &'static str,
    pub value: String,
    pub detail: String,
    /// How to correct it. The error adds that a restart must follow.
    pub hint: &'static str,
}

impl BadValue {
    fn new(name: &'static str, value: impl ToString, detail: impl ToString, hint: &'static str) -> Self {
        Self { name, value: value.to_string(), detail: detail.to_string(), hint }
    }
}

/// The values that keep the generator closed.
pub fn bad_values() -> &'static [BadValue] {
    CHECKED.get().map_or(&[], |checked| &checked.bad)
}

/// The bad value of one of these settings.
pub fn bad_value_of(names: &[&str]) -> Option<&'static BadValue> {
    bad_values().iter().find(|bad| names.contains(&bad.name))
}

/// The settings on which an ID's meaning depends.
pub const LAYOUT_NAMES: [&str; 4] =
    [LAYOUT_NAME, "snowflake_id.tick", "snowflake_id.epoch", "snowflake_id.datacenter_id"];
const LAYOUT_NAME: &str = "snowflake_id.layout";
pub const BACKUP_WORKERS_NAME: &str = "snowflake_id.backup_workers";
const WORKER_NAME: &str = "snowflake_id.worker_id";

/// The configured layout, if it can be used.
pub fn layout() -> Option<Layout> {
    get().filter(|_| bad_value_of(&LAYOUT_NAMES).is_none()).map(|settings| settings.layout)
}

/// Whether the server was started with a registry.
pub fn has_registry() -> bool {
    get().is_some_and(|settings| settings.source == WorkerSource::Registry)
}

/// The registry's connection string, as this process sees it; `None` without a registry.
pub fn registry() -> Option<CString> {
    REGISTRY.get().filter(|text| !text.to_bytes().trim_ascii().is_empty())
}

/// This server's name in the registry. Unless it is configured, the host's name with the server's port: a host may have
/// several servers, and both survive restarts.
pub fn node_name() -> String {
    let configured = NODE_NAME.get().unwrap_or_default();
    if !configured.is_empty() {
        return shown(configured.as_bytes()).into_owned();
    }
    // One more than the longest name, so that the text ends in a zero byte.
    let mut name = [0_u8; 65];
    // SAFETY: a buffer and its length.
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) };
    let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    // SAFETY: PostgreSQL sets it before it forks the process that reads it.
    let port = unsafe { pg_sys::PostPortNumber };
    format!("{}:{port}", shown(name.to_bytes()))
}

/// Defines the settings and checks them.
pub fn define() {
    // Before PostgreSQL replaces bad values by its defaults.
    let texts = SETTINGS.each_ref().map(Setting::configured_text);
    SETTINGS.iter().for_each(Setting::define);
    let found = zip(&SETTINGS, texts).filter_map(|(setting, text)| setting.find_bad_value(&text?)).collect();
    // SAFETY: the prefix is a static C string, and all settings under it are defined by now.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"snowflake_id".as_ptr()) };

    CHECKED.set(read(found)).expect("the library is loaded once");
}

/// Takes the default layout in pg_upgrade, into a cluster that does not preload the library (yet). It recreates indexes,
/// and evaluates the constants in them, but drops the values because it copies no rows. So any layout will do.
pub fn assume_defaults() {
    CHECKED.get_or_init(|| read(Vec::new()));
}

/// The settings as one value, checked against each other. `bad` has those that cannot be used by themselves, which
/// PostgreSQL has replaced by its defaults.
fn read(mut bad: Vec<BadValue>) -> Checked {
    let text = |setting: &GucSetting<Option<CString>>| {
        setting.get().map(|text| shown(text.as_bytes()).into_owned()).unwrap_or_default()
    };
    let is_bad = |bad: &[BadValue], names: &[&str]| bad.iter().any(|bad| names.contains(&bad.name));

    let layout_text = text(&LAYOUT);
    let tick = Tick::from_millis(TICK.get().into()).unwrap_or(Tick::Millisecond);
    let epoch_us = parse_epoch(&text(&EPOCH)).unwrap_or(Layout::default().epoch_us());
    let layout = layout_text.parse::<Bits>().and_then(|bits| Layout::new(bits, tick, epoch_us));
    let layout = layout.unwrap_or_else(|problem| {
        // The layout was checked with the shortest tick, so its time field is too wide for this tick.
        bad.push(BadValue::new(LAYOUT_NAME, layout_text, problem, LAYOUT_HINT));
        Layout::default()
    });

    // The other settings are not checked against the default that replaces a bad layout.
    let is_layout_known = !is_bad(&bad, &LAYOUT_NAMES);
    let (home, backups) = (WORKER_ID.get(), BACKUP_WORKERS.get());
    if is_layout_known && !is_bad(&bad, &[BACKUP_WORKERS_NAME]) {
        bad.extend(bad_workers(&layout, backups, home));
    }
    // Which server owns a worker does not depend on this server's own worker, so any home worker will do.
    let workers = [(home.max(0), backups), (0, backups), (0, 0)]
        .map(|(home, backups)| Workers::new(&layout, home.into(), backups as usize).ok());
    let workers = workers.into_iter().flatten().next().expect("any layout has a worker");
    let outside = bad_datacenter(&layout, backups, DATACENTER_ID.get());
    let datacenter = if outside.is_some() { 0 } else { DATACENTER_ID.get().into() };
    bad.extend(outside.filter(|_| is_layout_known));
    let has_registry = registry().is_some();
    if has_registry && home >= 0 {
        bad.push(BadValue::new(
            WORKER_NAME,
            home,
            "snowflake_id.registry is set, and the registry assigns this server's worker.",
            "Remove snowflake_id.worker_id. To generate IDs without the registry, remove snowflake_id.registry instead, \
             and use a number that the registry has reserved.",
        ));
    }
    let limits = LIMITS.get();
    let config = Config {
        layout,
        datacenter,
        workers,
        source: if has_registry { WorkerSource::Registry } else { WorkerSource::Configured },
        sequence_start: match SEQUENCE_START.get() {
            SequenceStartName::zero => SequenceStart::Zero,
            SequenceStartName::spread => SequenceStart::Spread,
        },
        ring_ticks: Config::ring_ticks(&layout, &limits),
        limits,
    };
    Checked { config, has_source: has_registry || workers.worker(0) == i64::from(home), bad }
}

/// Why a layout with this many workers cannot be used with this many backup workers.
pub fn too_few_workers(bits: Bits, workers: i64, backups: i32) -> String {
    let of_layout = if workers == 1 { "worker" } else { "workers" };
    let needed = i64::from(backups) + 1;
    format!("Layout {bits} has {workers} {of_layout}; backup_workers = {backups} needs {needed}.")
}

/// The error for numbers that cannot be used with the layout.
fn bad_workers(layout: &Layout, backups: i32, home: i32) -> Option<BadValue> {
    let bits = layout.bits();
    Some(match Workers::new(layout, home.max(0).into(), backups as usize).err()? {
        WorkersError::TooManyLanes(workers) => BadValue::new(
            BACKUP_WORKERS_NAME,
            backups,
            too_few_workers(bits, workers, backups),
            "Reduce snowflake_id.backup_workers, or use a layout with more worker bits.",
        ),
        WorkersError::HomeOutside(highest) => BadValue::new(
            WORKER_NAME,
            home,
            format!("With layout {bits} and {backups} backup workers, worker_id must be 0 to {highest}."),
            "Use a number in this range that no other server has. Fewer backup workers, the same number on all servers \
             of the fleet, leave room for more servers.",
        ),
    })
}

/// The error for a datacenter that the layout does not have. A layout without datacenter bits allows only 0: if another
/// number were ignored, servers of two datacenters could share a worker.
fn bad_datacenter(layout: &Layout, _backups: i32, datacenter: i32) -> Option<BadValue> {
    let (bits, highest) = (layout.bits(), layout.datacenters() - 1);
    (i64::from(datacenter) > highest).then(|| {
        let detail = format!("With layout {bits}, datacenter_id must be at most {highest}.");
        let hint = "Use a lower number, or a layout with more datacenter bits.";
        BadValue::new("snowflake_id.datacenter_id", datacenter, detail, hint)
    })
}
