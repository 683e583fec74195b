//! The core's platform in PostgreSQL: clocks, waits, the keeper, the disk and the log.

pub mod host_lock;
pub mod lightweight_lock;
mod state_file;
pub mod waiting;

use crate::messages::log;
use crate::postgres::time::clock_us;
use crate::postgres::wakeup::{self, BackgroundProcess};
use snowflake_core::{Disk, Event, Platform};
use state_file::StateFile;
use std::time::Duration;
use waiting::Awaited;

/// The platform of the generator in shared memory.
pub struct PgPlatform;

impl Platform for PgPlatform {
    #[inline]
    fn wall_us(&self) -> i64 {
        clock_us(libc::CLOCK_REALTIME)
    }

    fn boot_us(&self) -> i64 {
        clock_us(libc::CLOCK_BOOTTIME)
    }

    fn wait(&self, micros: i64) {
        waiting::nap(Duration::from_micros(micros.max(0) as u64), Awaited::Clock);
    }

    fn ask_keeper(&self) -> bool {
        wakeup::wake(BackgroundProcess::Keeper)
    }

    fn wait_for_keeper(&self, micros: i64) {
        waiting::nap(Duration::from_micros(micros.max(0) as u64), Awaited::State);
    }

    fn disk(&self) -> &dyn Disk {
        &StateFile
    }

    fn report(&self, event: Event) {
        log::event(event);
    }
}
