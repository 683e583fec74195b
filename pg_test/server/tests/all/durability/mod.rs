//! Crashes and disks.

mod crashes;
mod slow_disk;
mod state_file;
