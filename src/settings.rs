//! The settings: defined, checked, and read as one typed value. Reloads are published to shared memory.
//!
//! PostgreSQL only warns when a value in its files does not pass the check of an extension's setting, and
//! goes on with the default: another layout or number of backups would be another meaning of every ID. So
//! each value is read here first. A bad one stops neither the server nor its start: it keeps the generator closed.

use crate::display::shown;
use pgrx::prelude::*;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum};
use snowflake_core::layout::parse_epoch;
use snowflake_core::workers::{MAX_LANES, WorkersError};
use snowflake_core::{Bits, Config, Layout, Limits, Policy, SequenceStart, Tick, Workers};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
#[allow(non_camel_case_types, reason = "the names of the values in SQL")]
enum RollbackPolicy {
    hold,
    replay,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PostgresGucEnum)]
#[allow(non_camel_case_types, reason = "the names of the values in SQL")]
enum SequenceStartName {
    zero,
    spread,
}

static WORKER_ID: GucSetting<i32> = GucSetting::<i32>::new(-1);
static DATACENTER_ID: GucSetting<i32> = GucSetting::<i32>::new(0);
static BACKUP_WORKERS: GucSetting<i32> = GucSetting::<i32>::new(7);
static LAYOUT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"41/10/12"));
static TICK: GucSetting<i32> = GucSetting::<i32>::new(1);
static EPOCH: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c"2024-01-01T00:00:00Z"));
static ROLLBACK_POLICY: GucSetting<RollbackPolicy> = GucSetting::<RollbackPolicy>::new(RollbackPolicy::hold);
static MAX_AHEAD: GucSetting<i32> = GucSetting::<i32>::new(2_000);
static MAX_WAIT: GucSetting<i32> = GucSetting::<i32>::new(5);
static RESERVE: GucSetting<i32> = GucSetting::<i32>::new(500);
static SEQUENCE_START: GucSetting<SequenceStartName> =
    GucSetting::<SequenceStartName>::new(SequenceStartName::zero);

/// Ten minutes: beyond it a ring would cost more memory than any clock's fault is worth.
const LONGEST_MS: i32 = 600_000;

// The least and the greatest value of each integer; that of a worker and of a datacenter depends on the layout.
const WORKER_IDS: (i32, i32) = (-1, i32::MAX);
const DATACENTER_IDS: (i32, i32) = (0, i32::MAX);
const NUMBERS_OF_BACKUPS: (i32, i32) = (0, MAX_LANES as i32 - 1);
const LENGTHS: (i32, i32) = (0, LONGEST_MS);
const RESERVES: (i32, i32) = (1, LONGEST_MS);

/// The settings that are fixed while the server runs, checked.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub layout: Layout,
    pub datacenter: i64,
    /// With home worker 0 where none is configured, for what needs only the fleet's numbers.
    pub workers: Workers,
    pub has_worker: bool,
    sequence_start: SequenceStart,
    ring_ticks: usize,
}

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The settings; `None` where the library was not preloaded. Defaults stand in for values that cannot be used.
#[inline]
pub fn get() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// A value in the server's files that cannot be used: no IDs are made until it is corrected.
#[derive(Debug)]
pub struct BadValue {
    pub name: &'static str,
    pub value: String,
    pub detail: String,
    /// What to write. Errors add the restart that follows.
    pub hint: &'static str,
}

static BAD_VALUES: OnceLock<Vec<BadValue>> = OnceLock::new();

/// The values that keep the generator closed.
pub fn bad_values() -> &'static [BadValue] {
    BAD_VALUES.get().map_or(&[], Vec::as_slice)
}

/// The bad value of one of these settings.
pub fn bad_value_of(names: &[&str]) -> Option<&'static BadValue> {
    bad_values().iter().find(|bad| names.contains(&bad.name))
}

/// The settings that an ID is read by.
pub const LAYOUT_NAMES: [&str; 4] =
    [LAYOUT_NAME, "snowflake_id.tick", "snowflake_id.epoch", "snowflake_id.datacenter_id"];
const LAYOUT_NAME: &str = "snowflake_id.layout";
pub const BACKUP_WORKERS_NAME: &str = "snowflake_id.backup_workers";
const WORKER_NAME: &str = "snowflake_id.worker_id";

/// The configured layout, where it can be used.
pub fn layout() -> Option<Layout> {
    let is_usable = bad_value_of(&LAYOUT_NAMES).is_none();
    get().filter(|_| is_usable).map(|settings| settings.layout)
}

impl Settings {
    /// What the generator is made from; `None` while no worker is configured, or a value cannot be used.
    pub fn config(&self) -> Option<Config> {
        (self.has_worker && bad_values().is_empty()).then_some(Config {
            layout: self.layout,
            datacenter: self.datacenter,
            workers: self.workers,
            sequence_start: self.sequence_start,
            ring_ticks: self.ring_ticks,
            limits: Limits::default(),
        })
    }
}

/// The settings that a reload may change, as this process sees them.
pub fn limits() -> Limits {
    Limits {
        policy: policy(ROLLBACK_POLICY.get()),
        max_ahead_us: i64::from(MAX_AHEAD.get()) * 1_000,
        max_wait_us: i64::from(MAX_WAIT.get()) * 1_000,
        reserve_us: i64::from(RESERVE.get()) * 1_000,
    }
}

fn policy(name: RollbackPolicy) -> Policy {
    match name {
        RollbackPolicy::hold => Policy::Hold,
        RollbackPolicy::replay => Policy::Replay,
    }
}

/// Defines the settings and checks them.
pub fn define() {
    // Before PostgreSQL puts its defaults in their place.
    let found = find_bad_values();
    // SAFETY: the hooks have the types that PostgreSQL calls, and cannot unwind into it: they are guarded.
    unsafe {
        GucRegistry::define_int_guc_with_hooks(
            c"snowflake_id.worker_id",
            c"This server's worker number; -1 disables ID generation.",
            c"",
            &WORKER_ID,
            WORKER_IDS.0,
            WORKER_IDS.1,
            GucContext::Postmaster,
            GucFlags::default(),
            Some(check_worker),
            None,
            None,
        );
        GucRegistry::define_int_guc_with_hooks(
            c"snowflake_id.datacenter_id",
            c"Datacenter of this server, where the layout has datacenter bits.",
            c"",
            &DATACENTER_ID,
            DATACENTER_IDS.0,
            DATACENTER_IDS.1,
            GucContext::Postmaster,
            GucFlags::default(),
            Some(check_datacenter),
            None,
            None,
        );
        GucRegistry::define_string_guc_with_hooks(
            c"snowflake_id.layout",
            c"Bits of time/worker/sequence, or of time/datacenter+worker/sequence.",
            c"",
            &LAYOUT,
            GucContext::Postmaster,
            GucFlags::default(),
            Some(check_layout),
            None,
            None,
        );
        GucRegistry::define_int_guc_with_hooks(
            c"snowflake_id.tick",
            c"Time unit of the IDs: 1ms, 10ms or 1s.",
            c"",
            &TICK,
            1,
            1_000,
            GucContext::Postmaster,
            GucFlags::UNIT_MS,
            Some(check_tick),
            None,
            None,
        );
        GucRegistry::define_string_guc_with_hooks(
            c"snowflake_id.epoch",
            c"Start of the time field: a date and time with an explicit offset.",
            c"",
            &EPOCH,
            GucContext::Postmaster,
            GucFlags::default(),
            Some(check_epoch),
            None,
            None,
        );
        GucRegistry::define_enum_guc_with_hooks(
            c"snowflake_id.rollback_policy",
            c"What a step back of the clock beyond max_ahead leads to: IDs hold their order, or replay.",
            c"",
            &ROLLBACK_POLICY,
            GucContext::Sighup,
            GucFlags::default(),
            None,
            Some(assign_policy),
            None,
        );
        GucRegistry::define_int_guc_with_hooks(
            c"snowflake_id.max_ahead",
            c"How far IDs may run ahead of the wall clock.",
            c"",
            &MAX_AHEAD,
            LENGTHS.0,
            LENGTHS.1,
            GucContext::Sighup,
            GucFlags::UNIT_MS,
            None,
            Some(assign_max_ahead),
            None,
        );
        GucRegistry::define_int_guc_with_hooks(
            c"snowflake_id.max_wait",
            c"How long a call may wait for the clock before it rotates to a backup worker.",
            c"",
            &MAX_WAIT,
            LENGTHS.0,
            LENGTHS.1,
            GucContext::Sighup,
            GucFlags::UNIT_MS,
            None,
            Some(assign_max_wait),
            None,
        );
        GucRegistry::define_int_guc_with_hooks(
            c"snowflake_id.reserve",
            c"How far ahead of use the durable reservation is written.",
            c"",
            &RESERVE,
            RESERVES.0,
            RESERVES.1,
            GucContext::Sighup,
            GucFlags::UNIT_MS,
            None,
            Some(assign_reserve),
            None,
        );
    }
    GucRegistry::define_int_guc(
        c"snowflake_id.backup_workers",
        c"Workers that a server owns besides its home worker; the same on every server of a fleet.",
        c"",
        &BACKUP_WORKERS,
        NUMBERS_OF_BACKUPS.0,
        NUMBERS_OF_BACKUPS.1,
        GucContext::Postmaster,
        GucFlags::default(),
    );
    GucRegistry::define_enum_guc(
        c"snowflake_id.sequence_start",
        c"Where the sequence of a tick starts: at zero, or spread over the lowest 1/64 of the field.",
        c"",
        &SEQUENCE_START,
        GucContext::Postmaster,
        GucFlags::default(),
    );
    // SAFETY: the prefix is a static C string, and all settings under it are defined by now.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"snowflake_id".as_ptr()) };

    let (settings, bad) = read(found);
    SETTINGS.set(settings).expect("the library is loaded once");
    BAD_VALUES.set(bad).expect("the library is loaded once");
}

/// For pg_upgrade, into a cluster that does not preload the library (yet): it recreates indexes, with constants
/// that are evaluated and thrown away, for it brings no row. Any layout does for that.
pub fn assume_defaults() {
    SETTINGS.get_or_init(|| read(Vec::new()).0);
}

/// The settings as one value, checked against each other; `bad` has those that cannot be used by themselves, for
/// which PostgreSQL has put its default.
fn read(mut bad: Vec<BadValue>) -> (Settings, Vec<BadValue>) {
    let text = |setting: &GucSetting<Option<CString>>| {
        setting.get().map(|text| shown(text.as_bytes()).into_owned()).unwrap_or_default()
    };
    let is_bad = |bad: &[BadValue], names: &[&str]| bad.iter().any(|bad| names.contains(&bad.name));

    let layout_text = text(&LAYOUT);
    let tick = Tick::from_millis(TICK.get().into()).unwrap_or(Tick::Millisecond);
    let epoch_us = parse_epoch(&text(&EPOCH)).unwrap_or(Layout::default().epoch_us());
    let layout = layout_text.parse::<Bits>().and_then(|bits| Layout::new(bits, tick, epoch_us));
    let layout = layout.unwrap_or_else(|problem| {
        // By itself it can be used: so this is its time field with this tick.
        bad.push(BadValue {
            name: LAYOUT_NAME,
            value: layout_text,
            detail: problem.to_string(),
            hint: LAYOUT_HINT,
        });
        Layout::default()
    });

    // A default that stands in for a bad layout says nothing about the other settings.
    let is_layout_known = !is_bad(&bad, &LAYOUT_NAMES);
    let (home, backups) = (WORKER_ID.get(), BACKUP_WORKERS.get());
    let workers = Workers::new(&layout, home.max(0).into(), backups as usize).unwrap_or_else(|error| {
        if is_layout_known && !is_bad(&bad, &[BACKUP_WORKERS_NAME]) {
            bad.push(bad_workers(error, &layout, home, backups));
        }
        // The owners of workers do not depend on which worker is this server's.
        let of_nobody = Workers::new(&layout, 0, backups as usize).or_else(|_| Workers::new(&layout, 0, 0));
        of_nobody.expect("any layout has a worker")
    });
    let mut datacenter = DATACENTER_ID.get();
    if let Some(outside) = bad_datacenter(&layout, datacenter) {
        bad.push(outside);
        datacenter = 0;
    }
    let has_datacenter = layout.bits().datacenter > 0;
    let settings = Settings {
        layout,
        datacenter: if has_datacenter { datacenter.into() } else { 0 },
        workers,
        has_worker: workers.worker(0) == i64::from(home),
        sequence_start: match SEQUENCE_START.get() {
            SequenceStartName::zero => SequenceStart::Zero,
            SequenceStartName::spread => SequenceStart::Spread,
        },
        ring_ticks: Config::ring_ticks(&layout, &limits()),
    };
    (settings, bad)
}

/// Why these numbers cannot be used with the layout.
fn bad_workers(error: WorkersError, layout: &Layout, home: i32, backups: i32) -> BadValue {
    let bits = layout.bits();
    match error {
        WorkersError::TooManyLanes(workers) => BadValue {
            name: BACKUP_WORKERS_NAME,
            value: backups.to_string(),
            detail: format!(
                "The layout {bits} has {workers} {}; backup_workers = {backups} needs {}.",
                if workers == 1 { "worker" } else { "workers" },
                backups + 1
            ),
            hint: "Configure fewer backup workers, or a layout with more bits for the worker.",
        },
        WorkersError::HomeOutside(highest) => BadValue {
            name: WORKER_NAME,
            value: home.to_string(),
            detail: format!(
                "With the layout {bits} and {backups} backup workers, home workers are 0 to {highest}."
            ),
            hint: "Choose a number in this range that no other server has. Fewer backup workers leave room for \
                   more servers; all servers of a fleet must have the same number.",
        },
    }
}

/// A datacenter that the layout does not have. Where it has none at all, the setting does nothing.
fn bad_datacenter(layout: &Layout, datacenter: i32) -> Option<BadValue> {
    let is_outside = layout.bits().datacenter > 0 && i64::from(datacenter) >= layout.datacenters();
    is_outside.then(|| BadValue {
        name: "snowflake_id.datacenter_id",
        value: datacenter.to_string(),
        detail: format!(
            "With the layout {}, datacenters are 0 to {}.",
            layout.bits(),
            layout.datacenters() - 1
        ),
        hint: "Choose a number in this range, or a layout with more bits for the datacenter.",
    })
}

const TICKS: &str = "A tick is 1ms, 10ms or 1s.";
const TICK_HINT: &str = "Set one of these three.";
const EPOCH_HINT: &str = "Write a date and a time with an explicit offset, for example 2024-01-01T00:00:00Z.";
const LAYOUT_HINT: &str =
    "Write the bits of time/worker/sequence, for example 41/10/12, with a sum of at most 63.";
const OTHER_HINT: &str = "Correct the value, or remove the line for the default.";

fn check_epoch_text(text: &str) -> Result<(), String> {
    parse_epoch(text).map(drop).map_err(|problem| problem.to_string())
}

/// A layout by itself: with the shortest tick, for which the time field may be widest.
fn check_layout_text(text: &str) -> Result<(), String> {
    let layout = text.parse::<Bits>().and_then(|bits| Layout::new(bits, Tick::Millisecond, 0));
    layout.map(drop).map_err(|error| error.to_string())
}

fn check_tick_millis(millis: i32) -> Result<(), String> {
    Tick::from_millis(millis.into()).map(drop).ok_or_else(|| TICKS.to_owned())
}

// ---- values in the server's files, before the setting is defined ----

/// The text that the server's files, or its command line, give for a setting that is not yet defined.
fn given(name: &CStr) -> Option<String> {
    // SAFETY: a static name; the text is copied before anything can change it.
    unsafe {
        let text = pg_sys::GetConfigOption(name.as_ptr(), true, false);
        (!text.is_null()).then(|| shown(CStr::from_ptr(text).to_bytes()).into_owned())
    }
}

/// Each value that cannot be used by itself.
fn find_bad_values() -> Vec<BadValue> {
    let ms = GucFlags::UNIT_MS;
    let plain = GucFlags::default();
    let found = [
        find_bad(c"snowflake_id.worker_id", OTHER_HINT, |text| check_integer(text, WORKER_IDS, plain)),
        find_bad(c"snowflake_id.datacenter_id", OTHER_HINT, |text| {
            check_integer(text, DATACENTER_IDS, plain)
        }),
        find_bad(c"snowflake_id.backup_workers", OTHER_HINT, |text| {
            check_integer(text, NUMBERS_OF_BACKUPS, plain)
        }),
        find_bad(c"snowflake_id.layout", LAYOUT_HINT, check_layout_text),
        find_bad(c"snowflake_id.tick", TICK_HINT, |text| {
            check_tick_millis(parse_integer(text, ms).unwrap_or_default())
        }),
        find_bad(c"snowflake_id.epoch", EPOCH_HINT, check_epoch_text),
        find_bad(c"snowflake_id.rollback_policy", OTHER_HINT, |text| check_name(text, &["hold", "replay"])),
        find_bad(c"snowflake_id.sequence_start", OTHER_HINT, |text| check_name(text, &["zero", "spread"])),
        find_bad(c"snowflake_id.max_ahead", OTHER_HINT, |text| check_integer(text, LENGTHS, ms)),
        find_bad(c"snowflake_id.max_wait", OTHER_HINT, |text| check_integer(text, LENGTHS, ms)),
        find_bad(c"snowflake_id.reserve", OTHER_HINT, |text| check_integer(text, RESERVES, ms)),
    ];
    found.into_iter().flatten().collect()
}

fn find_bad(
    name: &'static CStr,
    hint: &'static str,
    check: impl Fn(&str) -> Result<(), String>,
) -> Option<BadValue> {
    let value = given(name)?;
    let detail = check(&value).err()?;
    Some(BadValue { name: name.to_str().expect("ASCII"), value, detail, hint })
}

fn check_integer(text: &str, (lowest, highest): (i32, i32), flags: GucFlags) -> Result<(), String> {
    match parse_integer(text, flags) {
        Some(value) if (lowest..=highest).contains(&value) => Ok(()),
        Some(value) => Err(format!("{value} is outside the range {lowest} to {highest}.")),
        None if flags.contains(GucFlags::UNIT_MS) => {
            Err("It is no length of time: a whole number, with a unit such as ms or s.".to_owned())
        }
        None => Err("It is no integer.".to_owned()),
    }
}

fn check_name(text: &str, names: &[&str]) -> Result<(), String> {
    let is_known = names.iter().any(|name| name.eq_ignore_ascii_case(text));
    if is_known { Ok(()) } else { Err(format!("Available values: {}.", names.join(", "))) }
}

/// Reads an integer as PostgreSQL reads the value of a setting.
fn parse_integer(text: &str, flags: GucFlags) -> Option<i32> {
    let text = CString::new(text).ok()?;
    let mut value = 0;
    // SAFETY: a valid text and a place for the result; the hint is not wanted.
    let is_integer =
        unsafe { pg_sys::parse_int(text.as_ptr(), &mut value, flags.bits(), std::ptr::null_mut()) };
    is_integer.then_some(value)
}

// ---- hooks: ALTER SYSTEM and reloads ----

/// Accepts the value, or says why not in PostgreSQL's own words for it: the message names the setting.
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
/// `value` is what PostgreSQL passes to a check hook: a place that holds a text, or null.
unsafe fn text_of<'a>(value: *mut *mut c_char) -> std::borrow::Cow<'a, str> {
    // SAFETY: by the contract of this function.
    unsafe {
        let text = *value;
        if text.is_null() { "".into() } else { shown(CStr::from_ptr(text).to_bytes()) }
    }
}

/// Whether a statement sets the value: ALTER SYSTEM, the only one that can. PostgreSQL tells a hook the same source
/// where it reads its files, at the start and, between two statements, at a reload.
fn is_set_by_statement() -> bool {
    // SAFETY: plain reads of variables of this process.
    unsafe {
        pg_sys::MyBackendType == pg_sys::BackendType::B_BACKEND && !pg_sys::debug_query_string.is_null()
    }
}

/// The layout and the number of backups that the next start would find, where they can be used. They come from the
/// files, because ALTER SYSTEM may have changed them since the start.
fn at_next_start() -> Option<(Layout, i32)> {
    let mut texts = [None, None];
    // SAFETY: a backend may read the server's files at any time, as the view pg_file_settings does. Errors in them
    // are left out of the list, or are items without a name; what is kept is copied, and the list is freed.
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
        // Of the command line, or the default.
        None => layout()?,
    };
    let backups = match backups_text {
        Some(text) => parse_integer(&text, GucFlags::default())?,
        None => BACKUP_WORKERS.get(),
    };
    Some((layout, backups))
}

#[pg_guard]
extern "C-unwind" fn check_worker(
    value: *mut c_int,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: called by PostgreSQL as a check hook, with a place that holds the new value.
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
        // With too many backups, no worker is right.
        Ok(_) | Err(WorkersError::TooManyLanes(_)) => true,
    }
}

#[pg_guard]
extern "C-unwind" fn check_datacenter(
    value: *mut c_int,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: called by PostgreSQL as a check hook, with a place that holds the new value.
    let datacenter = unsafe { *value };
    if !is_set_by_statement() {
        return true;
    }
    let bad = at_next_start().and_then(|(layout, _)| bad_datacenter(&layout, datacenter));
    bad.is_none_or(|bad| verdict(Err(bad.detail), &format!("{} {SET_FIRST}", bad.hint)))
}

const SET_FIRST: &str = "If layout or backup_workers change as well, set those first.";

#[pg_guard]
extern "C-unwind" fn check_layout(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: called by PostgreSQL as a check hook.
    let text = unsafe { text_of(value) };
    verdict(check_layout_text(&text), LAYOUT_HINT)
}

#[pg_guard]
extern "C-unwind" fn check_epoch(
    value: *mut *mut c_char,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: called by PostgreSQL as a check hook.
    let text = unsafe { text_of(value) };
    verdict(check_epoch_text(&text), EPOCH_HINT)
}

#[pg_guard]
extern "C-unwind" fn check_tick(
    value: *mut c_int,
    _extra: *mut *mut c_void,
    _source: pg_sys::GucSource::Type,
) -> bool {
    // SAFETY: called by PostgreSQL as a check hook, with a place that holds the new value.
    let millis = unsafe { *value };
    verdict(check_tick_millis(millis), TICK_HINT)
}

/// Changes the limits in shared memory, where they lie.
type Publish = fn(&dyn Fn(Limits) -> Limits);

static PUBLISH: OnceLock<Publish> = OnceLock::new();

/// From now on reloads are published so.
pub fn publish_reloads_with(publish: Publish) {
    PUBLISH.set(publish).expect("called once");
}

/// Publishes a reload. Processes read their files at different moments, so the one value that counts lies
/// in shared memory, and the postmaster, which reads first, is the one that writes it.
fn publish(change: impl Fn(Limits) -> Limits) {
    // SAFETY: a plain flag.
    let is_postmaster = unsafe { !pg_sys::IsUnderPostmaster };
    if is_postmaster && let Some(publish) = PUBLISH.get() {
        publish(&change);
    }
}

#[pg_guard]
extern "C-unwind" fn assign_policy(value: c_int, _extra: *mut c_void) {
    let replay = value == RollbackPolicy::replay as c_int;
    let policy = if replay { Policy::Replay } else { Policy::Hold };
    publish(|limits| Limits { policy, ..limits });
}

#[pg_guard]
extern "C-unwind" fn assign_max_ahead(value: c_int, _extra: *mut c_void) {
    publish(|limits| Limits { max_ahead_us: i64::from(value) * 1_000, ..limits });
}

#[pg_guard]
extern "C-unwind" fn assign_max_wait(value: c_int, _extra: *mut c_void) {
    publish(|limits| Limits { max_wait_us: i64::from(value) * 1_000, ..limits });
}

#[pg_guard]
extern "C-unwind" fn assign_reserve(value: c_int, _extra: *mut c_void) {
    publish(|limits| Limits { reserve_us: i64::from(value) * 1_000, ..limits });
}
