//! The encrypted file system, alone and below the engine.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

mod files;
mod rewriting;
mod store;

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

/// The files of the store and everything below it, whole.
fn raw_files(sim: &SimVfs) -> Vec<(String, Vec<u8>)> {
    let files = sim.files().into_iter();
    files.map(|(path, _)| (path.display().to_string(), sim.read_file(&path).unwrap())).collect()
}

fn holds(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}

fn path(name: &str) -> std::path::PathBuf {
    Path::new(DIR).join(name)
}
