//! A disk and a host without a memory, for threads and for loom: writes succeed, and nothing is found again.

use snowflake_core::Errno;
use snowflake_core::platform::{Disk, FileIdentity, HostLock, Loaded, Locked, WriteError};
use uuid::Uuid;

pub struct NoDisk;

impl Disk for NoDisk {
    fn load(&self) -> Result<Option<Loaded>, Errno> {
        Ok(None)
    }

    fn write(&self, _: FileIdentity, _: usize, _: &[u8]) -> Result<(), WriteError> {
        Ok(())
    }

    fn sync_name(&self) -> Result<(), Errno> {
        Ok(())
    }

    fn create(&self) -> Result<FileIdentity, Errno> {
        Ok(FileIdentity { inode: 1, born_ns: 1 })
    }

    fn install(&self, _: &[u8]) -> Result<(), Errno> {
        Ok(())
    }

    fn host_lock(&self) -> &dyn HostLock {
        self
    }
}

impl HostLock for NoDisk {
    fn lock(&self, _: u64, _: &[i64]) -> Locked {
        Locked::Unavailable
    }

    fn sign(&self, _: &[i64], _: Uuid) -> bool {
        false
    }
}
