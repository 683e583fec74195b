//! `snowflake_id`: unique, time-ordered 64-bit IDs for PostgreSQL, generated from state in shared memory. The generator
//! itself is `snowflake_core`; this crate is its PostgreSQL side. ARCHITECTURE.md shows which module uses which.

// Calling PostgreSQL is unsafe throughout; a `SAFETY` comment at each block justifies it.
#![allow(unsafe_code)]

use pgrx::prelude::*;

mod background;
mod functions;
mod messages;
mod platform;
mod postgres;
mod session;
mod settings;
mod shmem;

pgrx::pg_module_magic!(name, version);

/// Called once when the library is loaded: by the postmaster, or in a session, where only the functions work that need
/// neither settings nor shared memory.
#[pg_guard]
pub extern "C-unwind" fn _PG_init() {
    // SAFETY: both are plain flags that PostgreSQL sets before it loads a library.
    let (preloading, binary_upgrade) =
        unsafe { (pg_sys::process_shared_preload_libraries_in_progress, pg_sys::IsBinaryUpgrade) };
    if !preloading {
        if binary_upgrade {
            settings::assume_defaults();
        }
        return;
    }
    settings::define();
    if !binary_upgrade {
        shmem::install_hooks();
        session::hooks::install();
        session::layout_guard::install_callback();
        background::keeper::register();
        background::registrar::register();
    }
}

#[cfg(any(test, feature = "pg_test"))]
#[path = "../pg_test/in_server/mod.rs"]
mod in_server;

/// The functions that `cargo pgrx test` expects in the crate that it tests.
#[cfg(test)]
pub mod pg_test {
    /// Called once, before the server starts.
    pub fn setup(_options: Vec<&str>) {}

    /// Settings of the server that runs the tests.
    #[must_use]
    pub fn postgresql_conf_options() -> Vec<&'static str> {
        vec!["shared_preload_libraries = 'snowflake_id'", "snowflake_id.worker_id = 5"]
    }
}
