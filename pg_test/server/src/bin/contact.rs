//! One contact with the registry that the connection string names, without a server around it. Prints the result as
//! JSON. A process of its own, because service files and passwords also come from the environment.

use snowflake_contact::{Request, contact};
use snowflake_core::{Contact, Layout, Lease};
use std::cell::Cell;
use std::ffi::CString;
use std::path::Path;
use uuid::Uuid;

fn main() {
    let connection_string = std::env::args().nth(1).expect("usage: contact CONNECTION_STRING");
    let lease = Some(Lease { home: 3, floor: -1, until: i64::MAX });
    let node = Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10);
    let request = Request {
        contact: Contact { registry: None, node, number: 1, nonce: Uuid::max(), lease },
        system_identifier: i64::MIN,
        // As long as it may be.
        node_name: "one of 64 bytes".repeat(5)[..64].to_owned(),
        layout: Layout::default(),
        backup_workers: 3,
        datacenter: 0,
        in_recovery: true,
        version: "1.0.0",
    };
    let connection_string = CString::new(connection_string).expect("no zero byte");
    let libraries = [Path::new("libpq.so.5")];
    let is_connected = Cell::new(false);
    let clock = || if is_connected.get() { 1_800_000_000_123_456 } else { 0 };
    let result = contact(&libraries, &connection_string, &request, || is_connected.set(true), clock);
    println!("{}", serde_json::to_string(&result).expect("plain data"));
}
