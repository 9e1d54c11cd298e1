//! Checking one SST: sound in itself, what the manifest says it is, and the values that it refers
//! to.

use super::Counts;
use super::values::ValueChecker;
use crate::problem::Problem;
use crate::sst::count_problems;
use crate::text::Abridged;
use crate::tree::Tree;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_base::{InternalIter, Result};
use terrace_manifest::{FileMeta, names};
use terrace_sst::{BlockCache, FilterMemory, ReadCounters, ReaderOptions, ScanOptions, SstReader};
use terrace_vfs::Vfs;

/// Verification reads past the cache; this is for the little that does not.
const CACHE_BYTES: usize = 1 << 20;

/// Bytes of a key in a message.
const SHOWN_BYTES: usize = 40;

pub(super) struct SstChecker<'a> {
    vfs: &'a Arc<dyn Vfs>,
    dir: &'a Path,
    options: ReaderOptions,
    values: ValueChecker<'a>,
}

impl<'a> SstChecker<'a> {
    pub fn new(vfs: &'a Arc<dyn Vfs>, dir: &'a Path, tree: &Tree) -> Self {
        let options = ReaderOptions {
            cache: Arc::new(BlockCache::new(CACHE_BYTES)),
            filter_memory: FilterMemory::Cached,
            models: true,
            direct: false,
            counters: Arc::new(ReadCounters::new()),
        };
        Self { vfs, dir, options, values: ValueChecker::new(vfs, dir, tree) }
    }

    /// What is wrong with `file`; adds what was found sound to `counts`.
    pub fn check(&mut self, file: &FileMeta, counts: &mut Counts) -> Vec<Problem> {
        let path = names::sst_path(self.dir, file.number);
        match self.verify(file, &path, counts) {
            Ok(problems) => problems,
            Err(error) => {
                let mut problem = Problem::from_error(&error, &path);
                if error.is_not_found() {
                    problem.detail = "the manifest names this SST and it does not exist".into();
                } else if error.is_corruption() {
                    let more = count_problems(&**self.vfs, &path).saturating_sub(1);
                    if more > 0 {
                        problem.detail.push_str(&format!(
                            " (and {more} more; see `terrace inspect sst {}`)",
                            path.display()
                        ));
                    }
                }
                vec![problem]
            }
        }
    }

    fn verify(
        &mut self,
        file: &FileMeta,
        path: &Path,
        counts: &mut Counts,
    ) -> Result<Vec<Problem>> {
        let reader = SstReader::open(self.vfs, path, file.number, file.size_bytes, &self.options)?;
        let verified = reader.verify()?;
        let mut problems = Problems { path: path.to_path_buf(), list: Vec::new() };
        compare(file, &reader, &mut problems);
        bounds(file, &reader, &mut problems)?;
        if problems.list.is_empty() {
            counts.ssts += 1;
            counts.sst_bytes += file.size_bytes;
            counts.data_blocks += verified.data_blocks;
            counts.entries += verified.entries;
            counts.index_partitions += verified.index_partitions;
            counts.filter_partitions += verified.filter_partitions;
            counts.index_bytes += reader.properties().index_bytes;
            counts.filter_bytes += reader.properties().filter_bytes;
        }
        problems.list.extend(self.values.check(&reader, counts)?);
        Ok(problems.list)
    }
}

struct Problems {
    path: PathBuf,
    list: Vec<Problem>,
}

impl Problems {
    fn add(&mut self, detail: String) {
        self.list.push(Problem::of(&self.path, detail));
    }
}

/// What the manifest says of the file against its properties.
fn compare(file: &FileMeta, reader: &SstReader, problems: &mut Problems) {
    let properties = reader.properties();
    let raw_bytes = properties.raw_key_bytes.saturating_add(properties.raw_value_bytes);
    let numbers = [
        ("entries", file.entry_count, properties.entry_count),
        ("tombstones", file.tombstone_count, properties.tombstone_count),
        ("range tombstones", file.range_tombstone_count, properties.range_tombstone_count),
        ("bytes of keys and values", file.raw_bytes, raw_bytes),
        ("ms since 1970 as the time of its making", file.created_ms, properties.created_ms),
    ];
    for (what, stated, found) in numbers {
        if stated != found {
            problems.add(format!("the manifest states {stated} {what}, the file has {found}"));
        }
    }
    if file.value_refs != properties.value_refs {
        problems.add("the manifest states other references to values than the file has".into());
    }
    if properties.smallest_seqno < file.smallest_seqno
        || properties.largest_seqno > file.largest_seqno
    {
        problems.add(format!(
            "the manifest states seqnos {}-{}, the file has {}-{}",
            file.smallest_seqno,
            file.largest_seqno,
            properties.smallest_seqno,
            properties.largest_seqno,
        ));
    }
}

/// Every key and range tombstone of the file lies within the bounds of the manifest.
fn bounds(file: &FileMeta, reader: &Arc<SstReader>, problems: &mut Problems) -> Result<()> {
    let mut outside = |what: &str, key: &[u8]| {
        let shown = Abridged(key, SHOWN_BYTES);
        problems.add(format!("{what} `{shown}` lies outside the bounds in the manifest"));
    };
    let mut iter = reader.iter(ScanOptions { fill_cache: false, ..ScanOptions::default() });
    iter.seek_to_first()?;
    if iter.valid() && !file.contains(iter.user_key()) {
        outside("the first key", iter.user_key());
    }
    iter.seek_to_last()?;
    if iter.valid() && !file.contains(iter.user_key()) {
        outside("the last key", iter.user_key());
    }
    let mut fragments = reader.range_tombstones().fragments();
    if let Some(first) = fragments.clone().next()
        && first.start < file.smallest.as_slice()
    {
        outside("a range tombstone from", first.start);
    }
    // Its end is exclusive, so it may be the largest key of the file either way.
    if let Some(last) = fragments.next_back()
        && last.end > file.largest.as_slice()
    {
        outside("a range tombstone up to", last.end);
    }
    Ok(())
}
