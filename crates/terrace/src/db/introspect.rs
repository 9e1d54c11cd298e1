//! [`Db`] and [`ColumnFamily`] as people and dashboards look at them: thin over `shape`, `memory`,
//! `estimate` and `get/explain`.

use super::{ColumnFamily, Db, lower, upper};
use crate::error::{Error, Result};
use crate::metrics::written_keys::TopWritten;
use crate::observe::memory_pools::{self, MemoryShape};
use crate::observe::store_shape::{self, FilterHeat, ModelShape, Shape};
use crate::read::estimate::{self, Estimate};
use crate::read::get::explain::{self, Explanation};
use crate::read::get::{self, EntryInfo};
use crate::read::scan::ReadOptions;
use crate::version::read_env::family_of;
use crate::write::count_log;
use std::ops::RangeBounds;
use terrace_base::FileNumber;

/// An SST that could not be read when a compaction last tried, so that compactions are picked around
/// it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct QuarantinedFile {
    /// Its number: file `000012.sst` has 12.
    pub number: u64,
    /// The column family that it belongs to.
    pub family: String,
    /// Its level.
    pub level: usize,
    /// What went wrong. After damage ([`Error::Corruption`]) it is not tried again before the next
    /// open, after other errors it is, with growing pauses.
    pub error: Error,
}

impl Db {
    /// Bytes at which a memtable is full, as of now.
    pub fn memtable_bytes(&self) -> usize {
        self.inner().base.dynamic.memtable_bytes()
    }

    /// Whether a write would be taken now.
    ///
    /// # Errors
    /// What a write would give: `Closed`, `ReadOnly`, `DiskFull`, or the error that has stopped writes.
    pub fn check_writable(&self) -> Result<()> {
        self.inner().commit.check_writable()
    }

    /// The SSTs that could not be read when a compaction last tried, by number. Reads of other files
    /// and compactions around them go on; restore them from a checkpoint.
    pub fn quarantined_files(&self) -> Vec<QuarantinedFile> {
        let inner = self.inner();
        let place = |number: FileNumber| {
            inner.read.families.load().iter().find_map(|family| {
                let state = family.state();
                let mut files = state.version.files();
                let (level, _) = files.find(|(_, file)| file.number == number)?;
                Some((family.name.clone(), usize::from(level)))
            })
        };
        let unreadable = inner.jobs.errors.unreadable().into_iter();
        unreadable
            .filter_map(|(number, error)| {
                let (family, level) = place(number)?;
                Some(QuarantinedFile { number: number.get(), family, level, error })
            })
            .collect()
    }

    /// The `n` keys that are written most, if [`AdvancedOptions::write_tracking`] is on; else none. What is in
    /// memtables still is not counted yet: [`Self::count_written`] does that.
    ///
    /// [`AdvancedOptions::write_tracking`]: crate::AdvancedOptions::write_tracking
    pub fn top_written(&self, n: usize) -> TopWritten {
        let inner = self.inner();
        let families = inner.read.families.load();
        let name_of = |id| {
            let family = family_of(&families, id).filter(|family| !family.is_dropped())?;
            Some(family.name.clone())
        };
        inner.base.written.top(n, name_of)
    }

    /// Counts what was written before this call and is in the log still, for [`Self::top_written`]. Each write is counted
    /// once. Reads what the log has since the last call, as a rule from the page cache, and begins a segment of it.
    ///
    /// # Errors
    /// The log cannot go on: the disk is full, the store is poisoned, or open for reading only.
    pub fn count_written(&self) -> Result<()> {
        count_log::count_log(&self.inner().commit)
    }

    /// What the store looks like now: families, levels, files, and the jobs that run. Reads nothing
    /// from the device; costs a walk over all files and the filter partitions of open ones.
    pub fn shape(&self) -> Shape {
        store_shape::of(self.inner())
    }

    /// The filter partitions of at most `most_files` files, those first that most lookups reach in
    /// vain. Reads nothing from the device.
    pub fn filter_heat(&self, most_files: usize) -> Vec<FilterHeat> {
        store_shape::filter_heat(self.inner(), most_files)
    }

    /// The learned index of SST `file`; `None` if it has none, or is not a file of this store. Reads
    /// it from the device if it is not in memory.
    ///
    /// # Errors
    /// I/O, and corruption of the file.
    pub fn model_shape(&self, file: u64) -> Result<Option<ModelShape>> {
        store_shape::model(self.inner(), FileNumber::new(file))
    }

    /// Where the memory budget is, and what a little more would save in each pool. The rates behind
    /// that are of the time since an earlier call, or the open: see [`MemoryShape`].
    pub fn memory(&self) -> MemoryShape {
        memory_pools::of(self.inner())
    }
}

impl ColumnFamily {
    /// As [`ColumnFamily::get_info`], also with the length of a value that is compressed by itself, if its compressed form
    /// has at most `read_bytes`: that is read, and not decompressed. With [`ReadOptions::in_memory`] it is not read.
    ///
    /// # Errors
    /// As [`ColumnFamily::get_info`].
    pub fn get_info_within(
        &self,
        key: impl AsRef<[u8]>,
        options: &ReadOptions,
        read_bytes: usize,
    ) -> Result<Option<EntryInfo>> {
        let (env, reading) = (&self.inner().read, self.reading(options)?);
        get::get_info(env, &self.family, key.as_ref(), reading, read_bytes)
    }

    /// Looks `key` up as [`ColumnFamily::get`] does, and tells every step: what was asked, what it
    /// answered, how long that took, and how often it read the device. It is a real lookup: it
    /// fills the cache, so a second one may go another way. Costs some microseconds more than a
    /// `get`.
    ///
    /// # Errors
    /// As [`ColumnFamily::get`].
    pub fn explain(&self, key: impl AsRef<[u8]>) -> Result<Explanation> {
        explain::explain(&self.inner().read, &self.family, key.as_ref())
    }

    /// About how many keys `range` holds, and bytes on the device and in memtables. Of files
    /// that an end of the range cuts it may read an index partition, else nothing.
    ///
    /// # Errors
    /// `NoSuchFamily` if the family was dropped; I/O; corruption.
    pub fn estimate<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<Estimate> {
        let (start, end) = (lower(range.start_bound()), upper(range.end_bound()));
        estimate::of(&self.inner().read, &self.family, start.as_deref(), end.as_deref())
    }
}
