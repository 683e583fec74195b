//! Every acknowledged ID of a run, kept outside the databases: as intervals in memory, and with the
//! circumstances of each in a file per client.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Consecutive IDs that one call acknowledged, and its circumstances.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    pub first: i64,
    pub last: i64,
    pub client: u16,
    pub server: u16,
    /// The number of the fault that was drawn last when the answer came.
    pub fault: u32,
    /// The client's count of its calls.
    pub call: u32,
    /// When the call began and when its answer came, in microseconds since the start of the run.
    pub began_us: u64,
    pub ended_us: u64,
}

const NOTE_BYTES: usize = 44;

impl Note {
    fn to_bytes(self) -> [u8; NOTE_BYTES] {
        let mut bytes = [0; NOTE_BYTES];
        bytes[0..8].copy_from_slice(&self.first.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.last.to_le_bytes());
        bytes[16..18].copy_from_slice(&self.client.to_le_bytes());
        bytes[18..20].copy_from_slice(&self.server.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.fault.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.call.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.began_us.to_le_bytes());
        bytes[36..44].copy_from_slice(&self.ended_us.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; NOTE_BYTES]) -> Self {
        fn part<const N: usize>(bytes: &[u8; NOTE_BYTES], at: usize) -> [u8; N] {
            bytes[at..at + N].try_into().expect("N bytes")
        }
        Self {
            first: i64::from_le_bytes(part(bytes, 0)),
            last: i64::from_le_bytes(part(bytes, 8)),
            client: u16::from_le_bytes(part(bytes, 16)),
            server: u16::from_le_bytes(part(bytes, 18)),
            fault: u32::from_le_bytes(part(bytes, 20)),
            call: u32::from_le_bytes(part(bytes, 24)),
            began_us: u64::from_le_bytes(part(bytes, 28)),
            ended_us: u64::from_le_bytes(part(bytes, 36)),
        }
    }
}

#[derive(Default)]
struct Whole {
    /// Sorted, disjoint, and with a gap between any two.
    intervals: Vec<(i64, i64)>,
    /// IDs that came twice, as intervals; the first of them only.
    twice: Vec<(i64, i64)>,
    twice_count: u64,
}

pub struct Tally {
    files: Vec<(PathBuf, Mutex<BufWriter<File>>)>,
    fresh: Mutex<Vec<(i64, i64)>>,
    whole: Mutex<Whole>,
    count: AtomicU64,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    /// Keeps its files in `folder`.
    pub fn new(folder: &Path, clients: usize) -> Self {
        let file = |client| {
            let path = folder.join(format!("acknowledged.{client}"));
            let file = File::options().create_new(true).append(true).open(&path);
            let file = file.unwrap_or_else(|e| panic!("cannot make {}: {e}", path.display()));
            (path, Mutex::new(BufWriter::new(file)))
        };
        Self {
            files: (0..clients).map(file).collect(),
            fresh: Mutex::default(),
            whole: Mutex::default(),
            count: AtomicU64::new(0),
        }
    }

    /// Acknowledged IDs of one call.
    pub fn add(&self, notes: &[Note]) {
        let Some(one) = notes.first() else { return };
        let count: i64 = notes.iter().map(|note| note.last - note.first + 1).sum();
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        {
            let mut file = lock(&self.files[usize::from(one.client)].1);
            for note in notes {
                file.write_all(&note.to_bytes()).expect("the log of acknowledged IDs can be written");
            }
        }
        lock(&self.fresh).extend(notes.iter().map(|note| (note.first, note.last)));
    }

    /// How many IDs were acknowledged.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// How many intervals have not been compared yet.
    pub fn fresh(&self) -> usize {
        lock(&self.fresh).len()
    }

    /// Compares all that is new with all that there was. How many IDs of the run came twice so far.
    pub fn compare(&self) -> u64 {
        let mut fresh = std::mem::take(&mut *lock(&self.fresh));
        fresh.sort_unstable();
        let mut whole = lock(&self.whole);
        let old = std::mem::take(&mut whole.intervals);
        let mut merged: Vec<(i64, i64)> = Vec::with_capacity(old.len() + fresh.len() / 2);
        let (mut old, mut fresh) = (old.into_iter().peekable(), fresh.into_iter().peekable());
        loop {
            let next = match (old.peek(), fresh.peek()) {
                (Some(a), Some(b)) if a <= b => old.next(),
                (_, Some(_)) => fresh.next(),
                (Some(_), None) => old.next(),
                (None, None) => None,
            };
            let Some((first, last)) = next else { break };
            match merged.last_mut() {
                Some((_, end)) if first <= *end + 1 => {
                    if first <= *end {
                        let common = (first, last.min(*end));
                        whole.twice_count += (common.1 - common.0 + 1) as u64;
                        if whole.twice.len() < 100 {
                            whole.twice.push(common);
                        }
                    }
                    *end = last.max(*end);
                }
                _ => merged.push((first, last)),
            }
        }
        whole.intervals = merged;
        whole.twice_count
    }

    /// How many IDs came twice, of those that were compared.
    pub fn twice(&self) -> u64 {
        lock(&self.whole).twice_count
    }

    /// The lowest and the highest ID, of those that were compared.
    pub fn range(&self) -> Option<(i64, i64)> {
        let whole = lock(&self.whole);
        Some((whole.intervals.first()?.0, whole.intervals.last()?.1))
    }

    /// Up to `most` of the IDs that came twice, each with the calls that it came from.
    pub fn duplicates(&self, most: usize) -> Vec<(i64, Vec<Note>)> {
        let mut found: Vec<(i64, Vec<Note>)> =
            lock(&self.whole).twice.iter().take(most).map(|(first, _)| (*first, Vec::new())).collect();
        for (path, file) in &self.files {
            lock(file).flush().expect("the log of acknowledged IDs can be written");
            if found.is_empty() {
                continue;
            }
            let mut bytes = Vec::new();
            let read = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
            read.expect("the log of acknowledged IDs can be read");
            for note in bytes.as_chunks::<NOTE_BYTES>().0.iter().map(Note::from_bytes) {
                for (id, notes) in &mut found {
                    if (note.first..=note.last).contains(id) {
                        notes.push(note);
                    }
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(first: i64, last: i64, client: u16) -> Note {
        Note { first, last, client, server: 3, fault: 7, call: 9, began_us: 5, ended_us: 6 }
    }

    #[test]
    fn what_comes_twice_is_found_with_the_calls_it_came_from() {
        let folder = snowflake_server_tests::faults::new_folder();
        let tally = Tally::new(&folder, 2);
        tally.add(&[note(10, 19, 0), note(30, 30, 0)]);
        tally.add(&[note(20, 29, 1)]);
        assert_eq!(tally.compare(), 0);
        assert_eq!(tally.range(), Some((10, 30)));
        tally.add(&[note(28, 32, 1)]);
        assert_eq!(tally.compare(), 3);
        assert_eq!(tally.range(), Some((10, 32)));
        assert_eq!(tally.count(), 26);
        let found = tally.duplicates(5);
        let (id, notes) = &found[0];
        assert_eq!((*id, notes.len()), (28, 2));
        assert_eq!((notes[1].first, notes[1].call, notes[1].ended_us), (28, 9, 6));
    }

    #[test]
    fn equal_new_ones_are_found_too() {
        let tally = Tally::new(&snowflake_server_tests::faults::new_folder(), 1);
        tally.add(&[note(5, 5, 0)]);
        tally.add(&[note(5, 5, 0), note(1, 4, 0), note(6, 6, 0)]);
        assert_eq!(tally.compare(), 1);
        assert_eq!(tally.compare(), 1);
    }
}
