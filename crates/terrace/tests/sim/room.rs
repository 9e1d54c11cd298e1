//! What a store takes of the device: every byte and every file of a closed store is accounted for, the log
//! keeps to its bound, and a store from which all is deleted gives all of its room back.
//!
//! What a store has of live data is not bounded by itself: L0, levels that are not full and versions that a
//! snapshot saw stay until a merge comes to them. So whatever it holds is first taken away. What is left then
//! has no data to excuse it.

use crate::disk::Disk;
use crate::harness::{DIR, Store};
use crate::left_over::left_over;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use terrace::vfs::SimVfs;
use terrace::{Options, SyncMode};
use terrace_base::sync::{simulation, thread};
use terrace_manifest::manifest::MIN_ROTATE_BYTES;
use terrace_manifest::names::{self, FileName};
use terrace_manifest::{Manifest, ManifestState};

/// The log as a whole has this many times the memory of memtables at most, when nothing is running.
const MAX_LOG_SHARES: u64 = 4;
/// Seconds in which the log comes to keep to that.
const SETTLING_S: u64 = 60;
/// What is written to the log between a look at it and the end of the store.
const BETWEEN_BYTES: u64 = 4 << 10;
/// An edit of the manifest, or a note of evidence: a file may be longer by one of them.
const ONE_MORE_BYTES: u64 = 64 << 10;
/// The longest a file of evidence becomes.
const EVIDENCE_BYTES: u64 = 1 << 20;
/// `CURRENT`, a manifest, two of evidence, `LOCK`, `RESERVE`, two `READERS`; and segments of the log.
const MAX_FILES: usize = 8 + 2;
/// Log of a store that was emptied: the deletions, and headers.
const EMPTIED_LOG_BYTES: u64 = 8 << 10;
/// Keys of all families lie between these.
const ALL_KEYS: [&[u8]; 2] = [b"key", b"kez"];

/// The files of the store itself with their lengths: not what was set aside, and no checkpoints.
fn files(image: &SimVfs) -> Vec<(FileName, PathBuf, u64)> {
    let own = image.files().into_iter().filter(|(path, _)| path.parent() == Some(Path::new(DIR)));
    own.map(|(path, len)| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        (names::parse(&name.unwrap_or_default()), path, len)
    })
    .collect()
}

/// Log segments that are no value segments.
fn log_bytes(image: &SimVfs, state: &ManifestState) -> u64 {
    let is_log = |name: &FileName| match name {
        FileName::Log(number) => !state.segments.contains_key(number),
        _ => false,
    };
    files(image).iter().filter(|(name, ..)| is_log(name)).map(|(.., len)| len).sum()
}

/// What the last segment of the log has set aside for records to come; a close leaves it so.
fn set_aside_bytes(options: &Options) -> u64 {
    match (options.sync, options.advanced.memtable_bytes) {
        (SyncMode::None | SyncMode::Buffered, _) => 0,
        (_, 0) => options.memory_budget as u64,
        (_, bytes) => bytes as u64,
    }
}

/// Waits until the log of an idle store keeps to its bound; gives the bytes that the store knows it to have.
/// `None`: something was made to fail meanwhile, or the store was too busy to say.
pub fn settled_log_bytes(store: &Store, disk: &Disk) -> Option<u64> {
    let look = || {
        let memtables = store.db.memory().pools[0].limit_bytes;
        (store.db.metrics().live_log_bytes, MAX_LOG_SHARES * memtables)
    };
    for _ in 0..SETTLING_S {
        let (bytes, most) = look();
        // Every log has a header: 0 says that somebody held it.
        if (1..=most).contains(&bytes) || disk.is_troubled() {
            break;
        }
        thread::sleep(Duration::from_secs(1));
    }
    let (bytes, most) = look();
    if disk.is_troubled() {
        return None;
    }
    assert!(bytes <= most, "the log of an idle store has {bytes} bytes, {most} are its bound");
    (bytes > 0).then_some(bytes)
}

/// A closed store in which nothing failed: each file has the length that it should, and the log has no more than `log`.
pub fn check_closed(image: &SimVfs, options: &Options, log: Option<u64>) -> Result<(), String> {
    let state = Manifest::read(image, Path::new(DIR)).map_err(|error| error.to_string())?;
    let families = state.families.values();
    let named = families.flat_map(|family| family.version.all_files().collect::<Vec<_>>());
    let ssts: BTreeMap<_, u64> = named.map(|(_, file)| (file.number, file.size_bytes)).collect();
    for (name, path, len) in files(image) {
        let (least, most) = match name {
            FileName::Sst(number) => match ssts.get(&number) {
                Some(size) => (*size, *size),
                None => return Err(format!("{} is named by nothing", path.display())),
            },
            FileName::Manifest(_) => (1, MIN_ROTATE_BYTES + ONE_MORE_BYTES),
            FileName::Evidence(_) => (0, EVIDENCE_BYTES + ONE_MORE_BYTES),
            FileName::Reserve => (0, options.advanced.reserve_bytes),
            FileName::Current | FileName::Lock | FileName::Readers(_) => (0, BETWEEN_BYTES),
            _ => (0, u64::MAX),
        };
        if !(least..=most).contains(&len) {
            return Err(format!("{} has {len} bytes, not {least} to {most}", path.display()));
        }
    }
    let there = log_bytes(image, &state);
    let more = BETWEEN_BYTES + set_aside_bytes(options);
    match log.is_none_or(|known| there <= known + more) {
        true => Ok(()),
        false => Err(format!("{there} bytes of log are there, {log:?} were known of")),
    }
}

/// Opens what is on a device, deletes everything, lets it be merged and collected, and closes it. What is left is the
/// same whatever the store has lived through: no SST, no value, and hardly any log.
pub fn check_emptied(image: SimVfs, options: impl FnOnce(&Disk) -> Options) -> Result<(), String> {
    let disk = Disk::new(image, None, Vec::new(), |_| {});
    let options = options(&disk);
    simulation::begin_call("the end of everything that is left".into());
    empty(options.clone()).map_err(|error| format!("deleting everything: {error}"))?;
    simulation::end_call();
    check_nothing_left(&disk.image(), &options)
}

fn empty(options: Options) -> terrace::Result<()> {
    let store = Store::open(options)?;
    let names = store.db.column_families();
    let families: Vec<_> = names.iter().filter_map(|name| store.db.column_family(name)).collect();
    let [start, end] = ALL_KEYS;
    families.iter().try_for_each(|family| family.delete_range(start, end))?;
    // A single file of a tiered family is moved to the last level first, and merged with nothing then.
    for _ in 0..2 {
        families.iter().try_for_each(|family| family.compact_range::<&[u8]>(..))?;
    }
    store.db.collect_garbage(0.0)?;
    store.db.wait_idle()?;
    store.db.close()
}

/// A closed store without data has the same few files as any other, and nothing in them.
fn check_nothing_left(image: &SimVfs, options: &Options) -> Result<(), String> {
    check_closed(image, options, None)?;
    let left_over = left_over(image, Path::new(DIR)).map_err(|error| error.to_string())?;
    if !left_over.is_empty() {
        return Err(format!("left over: {left_over:?}"));
    }
    let files = files(image);
    let shown = || files.iter().map(|(_, path, len)| format!("{}: {len}", path.display()));
    let has_data =
        |(name, ..): &(FileName, _, _)| matches!(name, FileName::Sst(_) | FileName::ValueLog(_));
    let state = Manifest::read(image, Path::new(DIR)).map_err(|error| error.to_string())?;
    let most_log_bytes = EMPTIED_LOG_BYTES + set_aside_bytes(options);
    let too_much = files.len() > MAX_FILES || log_bytes(image, &state) > most_log_bytes;
    if too_much || files.iter().any(has_data) || !state.segments.is_empty() {
        let files = shown().collect::<Vec<_>>().join(", ");
        return Err(format!("an empty store has {files}; value segments {:?}", state.segments));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
