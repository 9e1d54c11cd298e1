//! Files to be ingested, copied into the store's directory under temporary names, each but for its end.
//! Dropped, they are removed again.

use crate::background::compaction::pick::Span;
use crate::background::env::JobEnv;
use crate::background::output::file_meta;
use crate::error::{Error, Result};
use crate::ingest::calls::check_runs;
use crate::version::family::Family;
use crate::version::unpublished::remove_unpublished;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_base::{FileNumber, SeqNo};
use terrace_manifest::{FileMeta, names};
use terrace_sst::{
    BlockCache, EXTERNAL_FILE_NUMBER, FilterMemory, Properties, ReadCounters, ReaderOptions,
    SstReader, Stamp, UnfinishedSst,
};

/// Bytes of cache for one file that is read once.
const CACHE_BYTES: usize = 1 << 20;

/// Past the page cache a file takes a mebibyte until it has its end: more files of one ingestion go through it.
const MOST_DIRECT_FILES: usize = 32;

/// The copies, in key order.
pub(super) struct Copied<'a> {
    env: &'a JobEnv,
    files: Vec<CopiedFile>,
    /// Numbers of files that go if nobody takes them over.
    started: Vec<FileNumber>,
}

struct CopiedFile {
    number: FileNumber,
    body: UnfinishedSst,
    source: PathBuf,
}

impl<'a> Copied<'a> {
    /// Checks and copies `sources`. Nothing is held meanwhile, and what was copied is durable.
    pub fn new(env: &'a JobEnv, family: &Family, sources: &[PathBuf]) -> Result<Self> {
        let mut copied = Self { env, files: Vec::new(), started: Vec::new() };
        let direct = family.options().direct_write && sources.len() <= MOST_DIRECT_FILES;
        for source in sources {
            check_runs(env)?;
            copied.copy(family, source, direct)?;
        }
        copied.sort()?;
        Ok(copied)
    }

    fn copy(&mut self, family: &Family, source: &Path, direct: bool) -> Result<()> {
        let base = &self.env.base;
        let reader = open_external(self.env, source)?;
        check_operator(family, source, reader.properties())?;
        let number = self.env.versions.next_file_number();
        self.started.push(number);
        let target = names::temp_path(&base.dir, number);
        let mut body = reader.copy_external(&*base.vfs, &target, number, direct)?;
        body.sync()?;
        base.limiter.request(reader.size_bytes(), &self.env.jobs.scheduler.cancel);
        self.files.push(CopiedFile { number, body, source: source.to_path_buf() });
        Ok(())
    }

    /// Orders the files by their keys.
    ///
    /// # Errors
    /// `InvalidArgument` if two of them overlap: which of two entries is the newer one nobody could tell.
    fn sort(&mut self) -> Result<()> {
        let smallest = |file: &CopiedFile| file.body.properties().smallest.clone();
        self.files.sort_by_cached_key(smallest);
        for pair in self.files.windows(2) {
            let [before, after] = pair else { continue };
            let (left, right) = (before.body.properties(), after.body.properties());
            let apart = left.largest < right.smallest
                || (left.largest_exclusive && left.largest == right.smallest);
            if !apart {
                let (one, other) = (before.source.display(), after.source.display());
                let text = format!("the key ranges of {one} and {other} overlap");
                return Err(Error::InvalidArgument(text));
            }
        }
        Ok(())
    }

    /// The key range of each file.
    pub fn spans(&self) -> impl Iterator<Item = Span<'_>> {
        self.files.iter().map(|file| {
            let properties = file.body.properties();
            let (start, end) = (&properties.smallest, &properties.largest);
            Span { start, end, end_exclusive: properties.largest_exclusive }
        })
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Writes the end of every file, with one of `seqnos` in it. From then on they are the caller's, and `install`
    /// removes them if it fails.
    pub fn finish(
        mut self,
        stamp: Stamp,
        seqnos: impl Iterator<Item = SeqNo>,
    ) -> Result<Vec<FileMeta>> {
        let mut metas = Vec::with_capacity(self.files.len());
        for (CopiedFile { number, body, .. }, seqno) in self.files.drain(..).zip(seqnos) {
            let end = body.finish(Some(Stamp { seqno, ..stamp.clone() }))?;
            metas.push(file_meta(number, stamp.created_ms, end));
        }
        self.started.clear();
        Ok(metas)
    }
}

impl Drop for Copied<'_> {
    fn drop(&mut self) {
        self.files.clear();
        let base = &self.env.base;
        remove_unpublished(&base.vfs, &base.dir, self.started.drain(..));
    }
}

/// Refuses operands that are not for the family's merge operator.
fn check_operator(family: &Family, source: &Path, properties: &Properties) -> Result<()> {
    let Some(needs) = &properties.merge_operator else { return Ok(()) };
    let has = family.merge_operator().map(|operator| operator.name());
    if has == Some(needs) {
        return Ok(());
    }
    let has = has.map_or("none".to_string(), |name| format!("`{name}`"));
    let (path, name) = (source.display(), &family.name);
    Err(Error::InvalidArgument(format!(
        "{path} has operands for the merge operator `{needs}`; the column family `{name}` has {has}"
    )))
}

fn open_external(env: &JobEnv, source: &Path) -> Result<Arc<SstReader>> {
    let options = ReaderOptions {
        cache: Arc::new(BlockCache::new(CACHE_BYTES)),
        filter_memory: FilterMemory::Cached,
        models: false,
        direct: false,
        counters: Arc::new(ReadCounters::new()),
    };
    let vfs = &env.base.vfs;
    let size_bytes = vfs.len(source)?;
    Ok(SstReader::open(vfs, source, EXTERNAL_FILE_NUMBER, size_bytes, &options)?)
}
