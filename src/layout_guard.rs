//! Decides whether IDs may be generated and read by this server's layout: it must be the layout of the server's state
//! and of the database's IDs.
//!
//! A process compares once, before its first ID or reading, and remembers only success, and only with a row that no
//! transaction of its own can take back. So later calls pay nothing, and a refusal ends as soon as its cause does. This
//! is sound because a process has one database all its life, the postmaster, whose memory all processes inherit, has
//! none, and a layout changes only while the server is stopped.

use crate::database::{self, Holds};
use crate::messages::{Error, gate};
use crate::settings::{self, BACKUP_WORKERS_NAME, LAYOUT_NAMES, Settings};
use crate::shmem::{self, SharedGenerator};
use snowflake_core::{ClosedReason, Layout};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

// ---- reading ----

/// This process has compared the layouts, and IDs may be read.
static MAY_READ: AtomicBool = AtomicBool::new(false);

/// The settings, for reading an ID: an error unless the state, on a standby too, and this database's IDs have their
/// layout.
#[inline]
pub fn for_reading() -> Result<&'static Settings, Error> {
    let settings = settings::get().ok_or_else(gate::not_preloaded)?;
    if !MAY_READ.load(Ordering::Relaxed) {
        check(settings)?;
    }
    Ok(settings)
}

/// The settings, for reading an ID, if this process has compared the layouts before. Does not call PostgreSQL.
#[inline]
pub fn known_for_reading() -> Option<&'static Settings> {
    if MAY_READ.load(Ordering::Relaxed) { settings::get() } else { None }
}

/// As `for_reading`, for an answer that also depends on the number of backup workers.
pub fn for_owners() -> Result<&'static Settings, Error> {
    let settings = for_reading()?;
    settings::bad_value_of(&[BACKUP_WORKERS_NAME]).map_or(Ok(settings), |bad| Err(gate::bad_value(bad)))
}

#[cold]
fn check(settings: &Settings) -> Result<(), Error> {
    if let Some(bad) = settings::bad_value_of(&LAYOUT_NAMES) {
        return Err(gate::bad_value(bad));
    }
    if let Some(layout) = unadopted_layout() {
        return Err(gate::closed(ClosedReason::OtherLayout(layout)));
    }
    if database::compare(&settings.layout)? == Holds::InThisProcess {
        MAY_READ.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// The layout with which IDs were generated, if another is configured and has not been adopted.
pub fn unadopted_layout() -> Option<Layout> {
    let is_adopted = || shmem::generator().is_some_and(|generator| generator.is_open());
    let configured = settings::layout()?;
    shmem::recorded_layout_before().filter(|recorded| *recorded != configured && !is_adopted())
}

// ---- generating ----

/// The generator, once this process has compared the layouts and may generate IDs.
static GENERATOR: AtomicPtr<SharedGenerator> = AtomicPtr::new(std::ptr::null_mut());

/// The generator, if this process may generate IDs with it. Does not call PostgreSQL.
#[inline]
pub fn known_for_generating() -> Option<&'static SharedGenerator> {
    // SAFETY: null, or the argument of `for_generating`, which lives as long as the process.
    unsafe { GENERATOR.load(Ordering::Relaxed).as_ref() }
}

/// Compares the database's layout with the generator's.
#[cold]
pub fn for_generating(generator: &'static SharedGenerator) -> Result<(), Error> {
    let Some(settings) = settings::get() else { return Err(gate::not_preloaded()) };
    // The first ID marks the database's row, or stores one: an error undoes that, and with another layout in the state
    // there is no ID.
    if unadopted_layout().is_none() {
        database::store_use(&settings.layout);
    }
    // An error about the state comes first, because the database cannot be converted before it is gone.
    let compared =
        database::compare(&settings.layout).map_err(|differs| for_reading().err().unwrap_or(differs))?;
    if compared == Holds::InThisProcess {
        GENERATOR.store(std::ptr::from_ref(generator).cast_mut(), Ordering::Relaxed);
    }
    Ok(())
}

/// The error for a database whose IDs have another layout than the generator's, if they have.
pub fn database_differs() -> Option<Error> {
    database::compare(&settings::get()?.layout).err()
}
