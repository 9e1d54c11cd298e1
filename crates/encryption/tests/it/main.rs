//! The encrypted file system, alone and below the engine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod backups;
mod files;
mod forging;
mod frames;
mod repairing;
mod replacing;
mod rewriting;
mod store;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use terrace::vfs::{SimVfs, Vfs};
use terrace::{Db, Options};
use terrace_encryption::{EncryptedVfs, Key, KeyRing};

const DIR: &str = "/db";

/// A key that depends on `seed` alone.
fn key(seed: u8) -> Key {
    Key::new(std::array::from_fn(|at| {
        seed.wrapping_mul(37).wrapping_add((at as u8).wrapping_mul(11))
    }))
}

fn ring(ids: &[u32]) -> KeyRing {
    KeyRing::new(ids.iter().map(|id| (*id, key(*id as u8)))).unwrap()
}

fn encrypted(sim: &SimVfs, ids: &[u32]) -> Arc<EncryptedVfs> {
    Arc::new(EncryptedVfs::new(Arc::new(sim.clone()), ring(ids)))
}

/// Options of a small store over `vfs`: several files, separated values, a log that is kept for a while.
fn options(vfs: Arc<dyn Vfs>) -> Options {
    let mut options = Options::default();
    options.advanced.memtable_bytes = 64 << 10;
    options.default_family.value_separation_threshold = 512;
    options.advanced.vfs = vfs;
    options.advanced.segment_bytes = 64 << 10;
    options
}

fn open(sim: &SimVfs, ids: &[u32]) -> Db {
    Db::open(DIR, options(encrypted(sim, ids))).unwrap()
}

/// All entries, in order.
fn contents(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let entries = db.iter().unwrap().entries().map(|entry| entry.unwrap());
    entries.map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// The files of the store and everything below it, whole, all as of one moment: a store that is open deletes some.
fn raw_files(sim: &SimVfs) -> Vec<(String, Vec<u8>)> {
    let image = sim.kill_image();
    let files = image.files().into_iter();
    files.map(|(path, _)| (path.display().to_string(), image.read_file(&path).unwrap())).collect()
}

fn holds(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

fn path(name: &str) -> std::path::PathBuf {
    Path::new(DIR).join(name)
}

const BLOCK: usize = 4096;
const FRAME_HEADER: usize = 10;
const TAG: usize = 16;

/// The frames of an encrypted file that grows, as they are in `raw`: where the content of each begins, and its place.
fn frames(raw: &[u8]) -> Vec<(u64, Range<usize>)> {
    let mut found = Vec::new();
    let mut at = 128;
    while at < raw.len() {
        let room = BLOCK - at % BLOCK;
        let len = match raw.get(at..at + FRAME_HEADER) {
            Some(header) if room > FRAME_HEADER + TAG => {
                usize::from(u16::from_le_bytes([header[8], header[9]]))
            }
            _ => 0,
        };
        if len == 0 {
            at += room;
            continue;
        }
        let start = u64::from_le_bytes(raw[at..at + 8].try_into().unwrap());
        let end = at + FRAME_HEADER + len + TAG;
        found.push((start, at..end));
        at = end;
    }
    found
}
