//! Checking the values that an SST refers to: every handle is resolved, every checksum compared,
//! every compressed value decompressed.

use super::Counts;
use crate::problem::Problem;
use crate::segments;
use crate::text::Abridged;
use crate::tree::Tree;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use terrace_base::key::trailer_kind;
use terrace_base::{InternalIter, Result, SegmentNumber, ValueHandle};
use terrace_log::value::{ValueRead, read_values_within};
use terrace_manifest::SegmentMeta;
use terrace_sst::{ScanOptions, SstReader};
use terrace_vfs::{OpenMode, RandomFile, Vfs};

/// Values are read together until they have this many bytes.
const BATCH_BYTES: usize = 4 << 20;

/// The most values that are read together.
const BATCH_VALUES: usize = 1024;

/// Files kept open.
const OPEN_FILES: usize = 128;

/// The most damaged values of one SST that are reported one by one.
const TOLD_PROBLEMS: usize = 20;

/// Bytes of a key in a message.
const SHOWN_BYTES: usize = 40;

pub(super) struct ValueChecker<'a> {
    vfs: &'a Arc<dyn Vfs>,
    dir: &'a Path,
    segments: BTreeMap<SegmentNumber, SegmentMeta>,
    open: HashMap<SegmentNumber, Arc<dyn RandomFile>>,
}

/// What the check of one SST's values has found.
#[derive(Default)]
struct Found {
    problems: Vec<Problem>,
    untold: u64,
    values: u64,
    bytes: u64,
}

impl Found {
    fn note(&mut self, read: &ValueRead<'_>, result: Result<()>) {
        match result {
            Ok(()) => {
                self.values += 1;
                self.bytes += u64::from(read.handle.len);
            }
            Err(_) if self.problems.len() == TOLD_PROBLEMS => self.untold += 1,
            Err(error) => {
                let mut problem = Problem::from_error(&error, read.file.path());
                let key = Abridged(read.key, SHOWN_BYTES);
                problem.detail.push_str(&format!(" (the value of `{key}`)"));
                self.problems.push(problem);
            }
        }
    }
}

/// Values to read together.
#[derive(Default)]
struct Batch {
    entries: Vec<(Vec<u8>, ValueHandle)>,
    bytes: usize,
}

impl<'a> ValueChecker<'a> {
    pub fn new(vfs: &'a Arc<dyn Vfs>, dir: &'a Path, tree: &Tree) -> Self {
        Self { vfs, dir, segments: tree.segments.clone(), open: HashMap::new() }
    }

    /// What is wrong with the values that the SST of `reader`, a sound one, refers to. Adds those
    /// found sound to `counts`. A segment that does not exist is not told here: [`super::segments`]
    /// does so once.
    pub fn check(&mut self, reader: &Arc<SstReader>, counts: &mut Counts) -> Result<Vec<Problem>> {
        let mut found = Found::default();
        if reader.properties().value_refs.is_empty() {
            return Ok(found.problems);
        }
        let mut batch = Batch::default();
        let mut iter = reader.iter(ScanOptions::compaction());
        iter.seek_to_first()?;
        while iter.valid() {
            let kind = trailer_kind(iter.trailer());
            if let Some(handle) = kind.and_then(|kind| ValueHandle::of_entry(kind, iter.value())) {
                batch.bytes += handle.len as usize;
                batch.entries.push((iter.user_key().to_vec(), handle));
                if batch.bytes >= BATCH_BYTES || batch.entries.len() == BATCH_VALUES {
                    self.read(std::mem::take(&mut batch), &mut found)?;
                }
            }
            iter.next()?;
        }
        self.read(batch, &mut found)?;
        counts.values += found.values;
        counts.value_bytes += found.bytes;
        if let (Some(last), 1..) = (found.problems.last_mut(), found.untold) {
            last.detail.push_str(&format!(" (and {} more of this SST)", found.untold));
        }
        Ok(found.problems)
    }

    fn read(&mut self, batch: Batch, found: &mut Found) -> Result<()> {
        let mut files = Vec::with_capacity(batch.entries.len());
        for (_, handle) in &batch.entries {
            files.push(self.file(handle.segment)?);
        }
        let reads: Vec<ValueRead<'_>> = batch
            .entries
            .iter()
            .zip(&files)
            .filter_map(|((key, handle), file)| {
                Some(ValueRead { file: &**file.as_ref()?, key, handle: *handle })
            })
            .collect();
        let mut rest = &reads[..];
        while !rest.is_empty() {
            let results = read_values_within(&**self.vfs, rest, BATCH_BYTES);
            let (done, others) = rest.split_at(results.len().min(rest.len()));
            rest = others;
            let results = results.into_iter().map(|value| value.map(drop));
            done.iter().zip(results).for_each(|(read, result)| found.note(read, result));
        }
        Ok(())
    }

    /// The open file of a segment; `None` if it does not exist.
    fn file(&mut self, number: SegmentNumber) -> Result<Option<Arc<dyn RandomFile>>> {
        if let Some(file) = self.open.get(&number) {
            return Ok(Some(Arc::clone(file)));
        }
        if self.open.len() == OPEN_FILES {
            self.open.clear();
        }
        let path = segments::path(self.dir, number, self.segments.get(&number));
        match self.vfs.open(&path, OpenMode::default()) {
            Ok(file) => {
                self.open.insert(number, Arc::clone(&file));
                Ok(Some(file))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }
}
