//! One contact with the registry that the connection string names, without a server around it. Prints the result as
//! JSON. A process of its own, because service files and passwords also come from the environment.

use snowflake_contact::{Lease, Request, contact};
use std::ffi::CString;
use std::path::Path;

fn main() {
    let connection_string = std::env::args().nth(1).expect("usage: contact CONNECTION_STRING");
    let request = Request {
        registry: None,
        node: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        node_name: "the first".to_owned(),
        number: 1,
        nonce: u128::MAX,
        lease: Some(Lease { worker: 3, floor: -1, until: i64::MAX }),
        clock_us: 1_800_000_000_123_456,
        layout: "41/10/12".to_owned(),
        tick_ms: 1,
        epoch_us: 1_704_067_200_000_000,
        backup_workers: 3,
        datacenter: 0,
        wanted_worker: None,
        in_recovery: true,
        version: "1.0.0".to_owned(),
        system_identifier: u64::MAX,
    };
    let connection_string = CString::new(connection_string).expect("no zero byte");
    let result = contact(&[Path::new("libpq.so.5")], &connection_string, None, &request, || ()).result;
    println!("{}", serde_json::to_string(&result).expect("plain data"));
}
