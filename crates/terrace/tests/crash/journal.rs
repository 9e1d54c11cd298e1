//! What a thread of the child has begun and what was acknowledged: a file per thread that only
//! grows, written before and after each operation and handed to the kernel at once, so that it
//! survives the process as the store must. The driver reads it, also while the child runs.
//!
//! ```text
//!   record, 16 bytes: u64  number of the operation * 2, plus 1 if it was acknowledged
//!                     u64  ticket, drawn from one counter of all threads
//! ```
//! Tickets say what happened before what: an operation that was acknowledged with a smaller ticket
//! than another began with was over before.

use crate::script::THREADS;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use terrace::SyncMode;

/// Bytes of a record.
const RECORD: usize = 16;

static TICKETS: AtomicU64 = AtomicU64::new(1);

/// The journal of one thread, as the child writes it.
pub struct Journal {
    file: File,
    next: u64,
}

fn path(dir: &Path, thread: usize) -> PathBuf {
    dir.join(format!("journal-{thread}"))
}

impl Journal {
    pub fn create(dir: &Path, thread: usize) -> Self {
        let file = OpenOptions::new().append(true).create(true).open(path(dir, thread)).unwrap();
        Self { file, next: 0 }
    }

    fn note(&mut self, acknowledged: bool) {
        let ticket = TICKETS.fetch_add(1, Ordering::SeqCst);
        let mut record = [0; RECORD];
        record[..8].copy_from_slice(&(self.next * 2 + u64::from(acknowledged)).to_le_bytes());
        record[8..].copy_from_slice(&ticket.to_le_bytes());
        self.file.write_all(&record).unwrap();
    }

    /// The next operation begins; gives its number.
    pub fn begin(&mut self) -> u64 {
        self.note(false);
        self.next
    }

    /// The operation that began was acknowledged.
    pub fn acknowledge(&mut self) {
        self.note(true);
        self.next += 1;
    }
}

/// What a journal says: the tickets of its operations by number.
#[derive(Debug, Clone, Default)]
pub struct Done {
    pub begun: Vec<u64>,
    pub acknowledged: Vec<u64>,
}

impl Done {
    /// What the journal of `thread` in `dir` says now; nothing if there is none.
    pub fn read(dir: &Path, thread: usize) -> Self {
        let bytes = std::fs::read(path(dir, thread)).unwrap_or_default();
        let mut done = Self::default();
        for record in bytes.chunks_exact(RECORD) {
            let word = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
            let (head, ticket) = (word(0), word(8));
            let list = if head % 2 == 1 { &mut done.acknowledged } else { &mut done.begun };
            assert_eq!(list.len() as u64, head / 2, "the journal of thread {thread} has a hole");
            list.push(ticket);
        }
        done
    }

    /// What the journals of all threads in `dir` say now.
    pub fn read_all(dir: &Path) -> Vec<Self> {
        (0..THREADS).map(|thread| Self::read(dir, thread)).collect()
    }

    /// How many operations are there for others, or after a kill, if the log was written in mode
    /// `sync`: a buffered one promises nothing but what was synced.
    pub fn handed_over(&self, sync: SyncMode) -> usize {
        match sync {
            SyncMode::Buffered => 0,
            _ => self.acknowledged.len(),
        }
    }

    /// How many operations were acknowledged before the ticket `before`.
    pub fn acknowledged_before(&self, before: u64) -> usize {
        self.acknowledged.partition_point(|ticket| *ticket < before)
    }

    /// How many operations began before the ticket `before`.
    pub fn begun_before(&self, before: u64) -> usize {
        self.begun.partition_point(|ticket| *ticket < before)
    }
}

/// Removes the journals of the round before.
pub fn clear(dir: &Path) {
    for thread in 0..THREADS {
        let _ = std::fs::remove_file(path(dir, thread));
    }
}
