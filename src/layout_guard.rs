//! Whether IDs may be generated and read by this server's layout: it must be the one of the server's state and the one
//! of the database's IDs.
//!
//! A process compares once, before its first ID or reading, and remembers only that nothing speaks against it: so a
//! call costs nothing for it, and a refusal ends as soon as its reason does. A process has one database all its life,
//! and the postmaster, from which all inherit what they know, has none.

use crate::database;
use crate::messages::Error;
use crate::settings::{self, BACKUP_WORKERS_NAME, LAYOUT_NAMES, Settings};
use crate::shmem::{self, SharedGenerator};
use snowflake_core::{ClosedReason, Layout};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

// ---- reading ----

/// Nothing speaks against reading by this server's layout.
static MAY_READ: AtomicBool = AtomicBool::new(false);

/// The settings, for reading an ID: only with the layout with which IDs were generated, on a standby too, and only with
/// the layout of this database's IDs.
#[inline]
pub fn for_reading() -> Result<&'static Settings, Error> {
    let settings = settings::get().ok_or(Error::NotPreloaded)?;
    if !MAY_READ.load(Ordering::Relaxed) {
        check(settings)?;
    }
    Ok(settings)
}

/// The settings, for reading an ID, where this process knows already that nothing speaks against it. Calls nothing of
/// PostgreSQL.
#[inline]
pub fn known_for_reading() -> Option<&'static Settings> {
    if MAY_READ.load(Ordering::Relaxed) { settings::get() } else { None }
}

/// As `for_reading`, for an answer that depends on the number of backups too.
pub fn for_owners() -> Result<&'static Settings, Error> {
    let settings = for_reading()?;
    settings::bad_value_of(&[BACKUP_WORKERS_NAME]).map_or(Ok(settings), |bad| Err(Error::Setting(bad)))
}

#[cold]
fn check(settings: &Settings) -> Result<(), Error> {
    if let Some(bad) = settings::bad_value_of(&LAYOUT_NAMES) {
        return Err(Error::Setting(bad));
    }
    if let Some(layout) = unadopted_layout() {
        return Err(Error::Closed(ClosedReason::OtherLayout(layout)));
    }
    database::differs(&settings.layout).map_or(Ok(()), Err)?;
    MAY_READ.store(true, Ordering::Relaxed);
    Ok(())
}

/// The layout with which IDs were generated, where it is another and the configured one has not been adopted.
pub fn unadopted_layout() -> Option<Layout> {
    let is_adopted = || shmem::generator().is_some_and(|generator| generator.is_open());
    let configured = settings::layout()?;
    shmem::recorded_layout_before().filter(|recorded| *recorded != configured && !is_adopted())
}

// ---- generating ----

/// The generator, once nothing speaks against generating IDs for this process's database.
static GENERATOR: AtomicPtr<SharedGenerator> = AtomicPtr::new(std::ptr::null_mut());

/// The generator, where this process may generate IDs with it. Calls nothing of PostgreSQL.
#[inline]
pub fn known_for_generating() -> Option<&'static SharedGenerator> {
    // SAFETY: null, or what `for_generating` was given, which lives as long as the process.
    unsafe { GENERATOR.load(Ordering::Relaxed).as_ref() }
}

/// Compares the database's layout with that of the generator.
#[cold]
pub fn for_generating(generator: &'static SharedGenerator) -> Result<(), Error> {
    if let Some(differs) = database_differs() {
        // What the state has against it comes first: until that is settled, the database cannot be brought to it.
        return Err(for_reading().err().unwrap_or(differs));
    }
    GENERATOR.store(std::ptr::from_ref(generator).cast_mut(), Ordering::Relaxed);
    Ok(())
}

/// The error that says that the IDs of this database have another layout than the generator's, where they have.
pub fn database_differs() -> Option<Error> {
    database::differs(&settings::get()?.layout)
}
