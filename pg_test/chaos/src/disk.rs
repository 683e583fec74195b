//! Tools to break the state file beside those of the tests on servers: its rights, and damage to the file.

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use snowflake_server_tests::Server;
use snowflake_server_tests::disk::write_anew;
pub use snowflake_server_tests::disk::{SLOT, state_file, state_folder};
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};

/// Makes room for mounts that nobody else sees and that go away with this process. Has to come before
/// any thread is started. Whether it worked: it takes root.
pub fn prepare_mounts() -> bool {
    let private = || {
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
    };
    nix::unistd::Uid::effective().is_root() && private().is_ok()
}

/// Takes or gives back the server's right to write to its state, where there is no disk to remount.
pub fn protect(server: &Server, yes: bool) {
    let (folder, file) = if yes { (0o500, 0o400) } else { (0o700, 0o600) };
    let _ = std::fs::set_permissions(state_file(server), Permissions::from_mode(file));
    let _ = std::fs::set_permissions(state_folder(server), Permissions::from_mode(folder));
}

/// Writes over a part of the state file, which stays the same file.
pub fn overwrite(server: &Server, at: usize, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(state_file(server)).expect("the state file is there");
    file.write_all_at(bytes, at as u64).expect("the state file can be written");
}

/// Puts a new file with this content in the place of the state file.
pub fn replace(server: &Server, bytes: &[u8]) {
    let (file, new) = (state_file(server), state_folder(server).join("restored"));
    write_anew(&new, bytes);
    std::fs::rename(new, file).expect("a file can be renamed");
}

pub fn truncate(server: &Server, size: u64) {
    let file = OpenOptions::new().write(true).open(state_file(server)).expect("the state file is there");
    file.set_len(size).expect("the state file can be truncated");
}

/// A record in a slot, as far as damage needs to know it. Read anew here, from the description of the
/// format: a JSON document with a version, a CRC-32C over version and record, and the record.
pub struct Slot {
    version: u32,
    record: String,
}

impl Slot {
    /// The slots of a state file; `None` for one that holds no whole record.
    pub fn all(bytes: &[u8]) -> Vec<Option<Slot>> {
        bytes.chunks(SLOT).map(Slot::read).collect()
    }

    fn read(bytes: &[u8]) -> Option<Slot> {
        let text = std::str::from_utf8(bytes).ok()?.trim_end();
        let after = |name: &str| text.find(name).map(|at| &text[at + name.len()..]);
        let version = after("\"version\":")?.split([',', '}']).next()?.parse().ok()?;
        let crc = after("\"crc32c\":\"")?.split('"').next()?;
        let record = after("\"record\":")?.strip_suffix('}')?.to_owned();
        let slot = Slot { version, record };
        (slot.crc() == crc).then_some(slot)
    }

    fn crc(&self) -> String {
        let crc = crc32c::crc32c(&self.version.to_le_bytes());
        format!("{:08x}", crc32c::crc32c_append(crc, self.record.as_bytes()))
    }

    pub fn generation(&self) -> u64 {
        let digits = self.record.split("\"generation\":").nth(1).expect("a record has a generation");
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().expect("a number")
    }

    /// The same record as a later version of the extension would have written it.
    pub fn newer(&self) -> Vec<u8> {
        Slot { version: self.version + 1, record: self.record.clone() }.bytes()
    }

    /// The same record as another cluster would have written it.
    pub fn foreign(&self) -> Vec<u8> {
        let key = "\"system_identifier\":";
        let at = self.record.find(key).expect("a record names its cluster") + key.len();
        let end = at + self.record[at..].find([',', '}']).expect("a number ends");
        let other: u64 = self.record[at..end].parse::<u64>().expect("a number") ^ 0xabcdef;
        let record = format!("{}{other}{}", &self.record[..at], &self.record[end..]);
        Slot { version: self.version, record }.bytes()
    }

    fn bytes(&self) -> Vec<u8> {
        let text = format!(
            "{{\"version\":{},\"crc32c\":\"{}\",\"record\":{}}}\n",
            self.version,
            self.crc(),
            self.record
        );
        let mut bytes = text.into_bytes();
        bytes.resize(SLOT, b' ');
        bytes
    }
}

/// The slot that the next write goes to first, which is the one that a torn write damages: the one that
/// holds the older record, or none. Where both hold the same, either will do.
pub fn older_slot(bytes: &[u8], either: usize) -> usize {
    let slots = Slot::all(bytes);
    let generation = |at: usize| slots.get(at).and_then(Option::as_ref).map(Slot::generation);
    match generation(0).cmp(&generation(1)) {
        std::cmp::Ordering::Less => 0,
        std::cmp::Ordering::Equal => either % 2,
        std::cmp::Ordering::Greater => 1,
    }
}
