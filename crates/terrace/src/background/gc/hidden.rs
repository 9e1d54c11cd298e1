//! How much garbage is hidden: values whose newer version lies in a file that no compaction has
//! merged with the older one yet. Of every file that is not in its family's deepest level a sample
//! of keys is looked up in the files below it; the values found are garbage, and stand for the rest.
//! A file is sampled once: what is below it changes little while it lives.
//!
//! Deletes in ranges are not looked for; compactions of theirs come early anyway.

use crate::background::env::JobEnv;
use crate::version::family::Family;
use std::collections::{HashMap, HashSet};
use terrace_base::MAX_SEQNO;
use terrace_base::key::{trailer_kind, trailer_seqno};
use terrace_base::{FileNumber, InternalIter, Result, ValueHandle};
use terrace_manifest::{FileMeta, LEVEL_COUNT, Version};
use terrace_sst::{Lookup, ScanOptions};

/// Keys looked up per file.
const SAMPLES: usize = 24;
/// Files sampled in one look; the rest waits for the next.
const MAX_FILES: usize = 8;

/// What is estimated to be hidden.
pub(super) struct Estimate {
    /// Garbage that merging a file down reveals, by file number.
    pub files: HashMap<FileNumber, u64>,
    /// Garbage per byte of values written, as in the newest files.
    pub newest_share: f64,
}

/// Estimates for the current files; `known` are those of the last time. No merge brings anything down from `unreadable` files, or
/// past them: who waited for what is hidden there would wait for ever.
pub(super) fn estimate(
    env: &JobEnv,
    known: &HashMap<FileNumber, u64>,
    unreadable: &HashSet<FileNumber>,
) -> Estimate {
    let mut files = HashMap::new();
    let mut sampled = 0;
    let (mut hidden, mut written) = (0, 0);
    for family in env.read.families.load().iter().filter(|family| !family.is_dropped()) {
        let state = family.hold_state();
        let version = &state.version;
        let deepest = (0..LEVEL_COUNT).rev().find(|level| !version.level(*level).is_empty());
        let mut newest = true;
        for level in 0..deepest.map_or(0, |level| level.max(1)) {
            for (at, file) in version.level(level).files().iter().enumerate() {
                if unreadable.contains(&file.number) {
                    continue;
                }
                let bytes = match known.get(&file.number) {
                    Some(bytes) => *bytes,
                    None if sampled < MAX_FILES => {
                        sampled += 1;
                        // Damage is reported by reads and compactions, not by a sample.
                        let below = Below { env, version, unreadable, level, at };
                        sample(&below, family, file).unwrap_or(0)
                    }
                    None => continue,
                };
                files.insert(file.number, bytes);
                if std::mem::take(&mut newest) {
                    hidden += bytes;
                    written += file.value_refs.iter().map(|r| r.bytes).sum::<u64>();
                }
            }
        }
    }
    let newest_share = if written == 0 { 0.0 } else { (hidden as f64 / written as f64).min(1.0) };
    Estimate { files, newest_share }
}

/// The files below one, which is file `at` of `level`.
struct Below<'a> {
    env: &'a JobEnv,
    version: &'a Version,
    unreadable: &'a HashSet<FileNumber>,
    level: usize,
    at: usize,
}

/// Bytes of values `below` that `file` hides, estimated.
fn sample(below: &Below<'_>, family: &Family, file: &FileMeta) -> Result<u64> {
    if family.is_dropped() || file.entry_count == 0 {
        return Ok(0);
    }
    let reader = below.env.read.table_cache.reader_for_work(file)?;
    let mut iter = reader.iter(ScanOptions { fill_cache: false, ..ScanOptions::default() });
    let cuts = reader.index_separators(SAMPLES)?;
    let (mut asked, mut found) = (0, 0);
    let mut ask = |key: &[u8], trailer: u64| -> Result<()> {
        asked += 1;
        found += below.hidden_bytes(key, trailer)?;
        Ok(())
    };
    if cuts.len() >= SAMPLES / 2 {
        for cut in &cuts {
            iter.seek(cut, u64::MAX)?;
            if iter.valid() {
                ask(iter.user_key(), iter.trailer())?;
            }
        }
    } else {
        // Few blocks: entries at even distance.
        let step = (file.entry_count / SAMPLES as u64).max(1);
        iter.seek_to_first()?;
        let mut n = 0;
        while iter.valid() {
            if n % step == 0 {
                ask(iter.user_key(), iter.trailer())?;
            }
            n += 1;
            iter.next()?;
        }
    }
    Ok(found.saturating_mul(file.entry_count) / asked.max(1))
}

impl Below<'_> {
    /// What the newest older version of `key` counts for in its segment's stats; 0 without one, and where it may lie in a file
    /// that cannot be read, or below that.
    fn hidden_bytes(&self, key: &[u8], trailer: u64) -> Result<u64> {
        let older = MAX_SEQNO.min(trailer_seqno(trailer).previous());
        let lookup = Lookup { fill_cache: false, ..Lookup::new(key, older) };
        for (n, files) in self.version.levels().iter().enumerate().skip(self.level) {
            let skip = match n == self.level {
                true if n == 0 => self.at + 1,
                true => continue,
                false => 0,
            };
            for file in files.files().iter().skip(skip).filter(|file| file.contains(key)) {
                if self.unreadable.contains(&file.number) {
                    return Ok(0);
                }
                let reader = self.env.read.table_cache.reader_for_work(file)?;
                if let Some(entry) = reader.get(&lookup)? {
                    let kind = trailer_kind(entry.trailer);
                    let handle = kind.and_then(|kind| ValueHandle::of_entry(kind, &entry.value));
                    return Ok(handle.map_or(0, |handle| handle.weight_bytes(key.len())));
                }
            }
        }
        Ok(0)
    }
}
