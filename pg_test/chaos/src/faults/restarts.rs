//! Restarts of the host: what it remembers of the cluster is gone.

use super::Fault;
use crate::act::{Act, Down};
use snowflake_server_tests::ms;

pub fn reboot(act: &mut Act, fault: &Fault) {
    act.stop(fault.down);
    act.primary.forget();
    act.start();
}

/// Deletes the lock file of a server that runs, as a clean-up of shared memory does. The server makes it again.
pub fn delete_lock_file(act: &mut Act, fault: &Fault) {
    act.primary.forget();
    std::thread::sleep(ms(fault.variant % 500));
    if fault.crashes {
        act.restart(if fault.down == Down::Smart { Down::Fast } else { fault.down });
    }
}
