//! Which separated values can be read.

use super::Repair;
use super::base::is_loss;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_base::{Result, SegmentNumber, ValueHandle};
use terrace_log::value::{ValueRead, read_values_within};
use terrace_manifest::{SegmentKind, names};
use terrace_vfs::{RandomFile, Vfs};

/// Bytes of values in memory at a time, besides one.
const VALUE_BYTES: usize = 1 << 20;

/// Files kept open.
const OPEN_FILES: usize = 128;

/// What the manifest says of the segments that it knows.
pub(super) type Stated = BTreeMap<SegmentNumber, SegmentKind>;

/// Where segment `number` can be, and what it is there: first as the manifest has `stated` it. What stands under the other
/// name counts only where that file is missing: it may be of another store.
pub(super) fn places(
    dir: &Path,
    number: SegmentNumber,
    stated: Option<SegmentKind>,
) -> [(SegmentKind, PathBuf); 2] {
    let moved = (SegmentKind::Values, names::value_log_path(dir, number));
    let written = (SegmentKind::CommitLog, names::log_path(dir, number));
    match stated {
        Some(SegmentKind::CommitLog) => [written, moved],
        Some(SegmentKind::Values) | None => [moved, written],
    }
}

impl Repair<'_> {
    /// The values of the store.
    pub(super) fn values(&self) -> Values {
        let (vfs, dir) = (self.vfs.clone(), self.dir.to_path_buf());
        Values { vfs, dir, stated: self.stated.clone(), open: HashMap::new() }
    }
}

/// The value segments of a directory, those too that the manifest does not know.
pub(super) struct Values {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    stated: Stated,
    /// None: there is no such file.
    open: HashMap<SegmentNumber, Option<Arc<dyn RandomFile>>>,
}

impl Values {
    /// What is wrong with each value.
    ///
    /// # Errors
    /// I/O that is no damage.
    pub fn check(&mut self, wanted: &[(&[u8], ValueHandle)]) -> Result<Vec<Option<String>>> {
        let mut files = Vec::with_capacity(wanted.len());
        for (_, handle) in wanted {
            files.push(self.file(handle.segment)?);
        }
        let reads: Vec<ValueRead<'_>> = wanted
            .iter()
            .zip(&files)
            .filter_map(|((key, handle), file)| {
                Some(ValueRead { file: &**file.as_ref()?, key, handle: *handle })
            })
            .collect();
        let mut results = Vec::with_capacity(reads.len());
        while results.len() < reads.len() {
            let values = read_values_within(&*self.vfs, &reads[results.len()..], VALUE_BYTES);
            results.extend(values.into_iter().map(|value| value.map(drop)));
        }
        let mut results = results.into_iter();
        let mut faults = Vec::with_capacity(wanted.len());
        for ((_, handle), file) in wanted.iter().zip(&files) {
            let result = file.as_ref().and_then(|_| results.next());
            faults.push(match result {
                Some(Ok(())) => None,
                Some(Err(error)) if is_loss(&error) => Some(error.to_string()),
                Some(Err(error)) => return Err(error),
                None => Some(format!("value segment {} is missing", handle.segment)),
            });
        }
        Ok(faults)
    }

    /// The open file of a segment; `None` if it does not exist.
    fn file(&mut self, segment: SegmentNumber) -> Result<Option<Arc<dyn RandomFile>>> {
        if let Some(file) = self.open.get(&segment) {
            return Ok(file.clone());
        }
        if self.open.len() == OPEN_FILES {
            self.open.clear();
        }
        let mut found = None;
        for (_, path) in places(&self.dir, segment, self.stated.get(&segment).copied()) {
            match self.vfs.open_around_loss(&path) {
                Ok(file) => {
                    found = Some(file);
                    break;
                }
                Err(error) if is_loss(&error) => {}
                Err(error) => return Err(error),
            }
        }
        self.open.insert(segment, found.clone());
        Ok(found)
    }
}
