//! The nouns gathered: everything an open store consists of, each part with its own lock.
//!
//! Lock order, outermost first; a thread that holds one may take only those after it:
//!
//! 1. the lead of the write queue, with the log state
//! 2. the manifest
//! 3. a family's `change`
//! 4. the scheduler
//! 5. the purge of obsolete files
//! 6. the family list, snapshots, table cache slots, the value log's map and books, what garbage
//!    collection remembers, health, background errors,
//!    latency histograms
//! 7. the table cache's turn, then the filter budget's ledger
//! 8. the evidence: its files, then its claims

use crate::error::{Error, Result};
use crate::jobs::background_errors::BackgroundErrors;
use crate::jobs::job_list::JobList;
use crate::jobs::scheduler::Scheduler;
use crate::memory::filter_budget::FilterBudget;
use crate::memory::table_cache::{Pinned, TableCache};
use crate::metrics::trends::Trends;
use crate::metrics::{Counters, Metrics};
use crate::options::Options;
use crate::options::dynamic_options::LiveOptions;
use crate::store::health::Health;
use crate::store::rate_limit::RateLimiter;
use crate::values::garbage::Garbage;
use crate::values::value_log::ValueLog;
use crate::version::evidence::Evidence;
use crate::version::family::Family;
use crate::version::file_numbers::FileNumbers;
use crate::version::read_state::ReadState;
use crate::version::reader_pins::ReaderPins;
use crate::version::snapshots::{Snapshot, Snapshots, View};
use crate::write::queue::WriteQueue;
use arc_swap::ArcSwap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use terrace_base::sync::{self, Mutex};
use terrace_base::{Clock, SeqNo};
use terrace_log::LogEnd;
use terrace_manifest::{FileMeta, Manifest, ManifestState};
use terrace_vfs::Vfs;

/// The open column families, by id.
pub(crate) type Families = Vec<Arc<Family>>;

/// The manifest (none in a read-only store) and the state it describes.
pub(crate) struct ManifestLog {
    pub manifest: Option<Manifest>,
    pub state: ManifestState,
    /// Whether the last append failed and its edit may or may not be on disk.
    pub torn: bool,
    /// Files that go once it is known that the manifest does not name them.
    pub undecided: Vec<PathBuf>,
}

/// Files that left their version and go when nobody reads them any more.
pub(crate) struct Obsolete {
    pub number: u64,
    pub file: Weak<FileMeta>,
}

/// A number for [`Inner::open_id`].
pub(crate) fn next_open_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A look at the directory of a store that another process may be writing to.
#[derive(Default)]
pub(crate) struct Look {
    /// The manifest that was in force, and its length.
    pub manifest: (u64, u64),
    /// Numbers from here on were free, as the manifest said.
    pub next_file_number: u64,
    /// The newest log segment that there was.
    pub newest_log: Option<u64>,
    /// Where the log ended.
    pub log_end: Option<LogEnd>,
    /// What replayed memtables take beyond the share of memtables.
    pub _memory: Option<Pinned>,
}

/// An open store.
pub(crate) struct Inner {
    /// No other store that this process has opened has it: tells handles of other stores.
    pub open_id: u64,
    pub dir: PathBuf,
    pub options: Options,
    pub vfs: Arc<dyn Vfs>,
    pub clock: Arc<dyn Clock>,
    pub read_only: bool,
    pub families: ArcSwap<Families>,
    pub table_cache: Arc<TableCache>,
    pub filters: Arc<FilterBudget>,
    pub value_log: Arc<ValueLog>,
    pub gc: Garbage,
    pub snapshots: Arc<Snapshots>,
    /// Writes up to here are readable.
    pub visible_seqno: AtomicU64,
    pub file_numbers: FileNumbers,
    /// `None` in a read-only store.
    pub write_queue: Option<WriteQueue>,
    pub manifest: Mutex<ManifestLog>,
    /// What was synced, written down beside it.
    pub evidence: Evidence,
    pub scheduler: Scheduler,
    /// What runs, for whoever looks.
    pub jobs: JobList,
    /// How counters grew lately, for whoever looks.
    pub trends: Trends,
    pub limiter: Arc<RateLimiter>,
    pub live: LiveOptions,
    pub health: Health,
    pub background_errors: BackgroundErrors,
    pub counters: Counters,
    pub obsolete: Mutex<Vec<Obsolete>>,
    /// Files that nobody in this process needs, until no reader does.
    pub reader_pins: ReaderPins,
    /// In a read-only store: what the last look at the directory found. Held during a refresh.
    pub last_look: Mutex<Option<Look>>,
    /// Held while obsolete files are removed: who waits for it finds them gone.
    pub purging: Mutex<()>,
    /// While above 0, no file is deleted (a checkpoint links them).
    pub deletions_held: AtomicU64,
    /// Held until the store is closed.
    pub lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

impl Inner {
    /// The sequence number a read without a snapshot reads at. Take the read state first: what
    /// is in it is then never older than what the number promises.
    #[inline]
    pub fn visible_seqno(&self) -> SeqNo {
        sync::interleave();
        // Acquire: pairs with the commit's Release; entries up to the number are in memtables.
        self.visible_seqno.load(Ordering::Acquire)
    }

    /// A snapshot of what is visible now.
    pub fn snapshot(&self) -> Snapshot {
        if !self.read_only {
            return self.snapshots.take(&self.visible_seqno);
        }
        // A refresh changes what is shown under this lock.
        let _shown = self.manifest.lock();
        let families = self.families.load();
        let states = families.iter().map(|family| (family.id, family.hold_state())).collect();
        let view = View { states, segments: self.value_log.hold() };
        self.snapshots.take_of(&self.visible_seqno, Some(view))
    }

    /// Every write of family `id` up to here is in its SSTs.
    pub fn flushed_seqno(&self, id: u32) -> SeqNo {
        self.manifest.lock().state.families.get(&id).map_or(0, |family| family.flushed_seqno)
    }

    /// A number for a file that is about to be created.
    pub fn next_file_number(&self) -> u64 {
        self.file_numbers.take()
    }

    /// The write queue, or the reason why there is none.
    pub fn write_queue(&self) -> Result<&WriteQueue> {
        self.write_queue.as_ref().ok_or_else(|| Error::ReadOnly(self.dir.clone()))
    }

    /// The family with this id, if it is open.
    pub fn family(&self, id: u32) -> Option<Arc<Family>> {
        self.families.load().iter().find(|family| family.id == id).cloned()
    }

    /// The family with this name, if there is one.
    pub fn family_named(&self, name: &str) -> Option<Arc<Family>> {
        self.families.load().iter().find(|family| family.name == name).cloned()
    }

    /// How many memtables of one family may wait for their flush before writes stop.
    pub fn max_immutables(&self) -> usize {
        (self.live.memtables_bytes() / self.live.memtable_bytes()).saturating_sub(1).max(1)
    }

    /// The state of the store and what it did since the open.
    pub fn metrics(&self) -> Metrics {
        let mut m = Metrics::default();
        m.fill(&self.counters);
        let reads = self.table_cache.counters().snapshot();
        m.filter_checks = reads.filter_checks;
        m.filter_negatives = reads.filter_negatives;
        m.filter_false_positives = reads.filter_false_positives;
        m.data_block_hits = reads.data_block_hits;
        m.data_block_misses = reads.data_block_misses;
        m.index_hits = reads.index_hits;
        m.index_misses = reads.index_misses;
        m.filter_hits = reads.filter_hits;
        m.filter_misses = reads.filter_misses;
        m.filters_absent = reads.filters_absent;
        m.filter_unit_damages = reads.filter_unit_damages;
        m.wasted_lookups = reads.wasted_lookups;
        self.filters.fill(&mut m);
        self.table_cache.trainings().fill(&mut m);
        m.lookups_by_model = reads.lookups_by_model;
        m.lookups_by_index = reads.lookups_by_index;
        m.lookups_by_level_model = reads.lookups_by_level_model;
        m.models_damaged = reads.model_damages;
        (m.value_reads, m.value_read_bytes, m.value_cache_hits) = self.value_log.reads();
        for book in self.value_log.books() {
            m.value_segments += 1;
            m.value_segment_bytes += book.size_bytes;
        }
        m.value_live_bytes = self.value_log.live_bytes();
        m.gc_doomed_segments = self.value_log.doomed().len() as u64;
        m.device_reads = reads.device_reads;
        m.device_read_bytes = reads.device_read_bytes;
        m.cache_used_bytes = self.table_cache.cache().used_bytes() as u64;
        m.cache_capacity_bytes = self.table_cache.cache().capacity_bytes() as u64;
        m.pinned_bytes = self.table_cache.pinned_bytes() as u64;
        m.open_files = self.table_cache.open_count() as u64;
        (m.reader_pinned_files, m.reader_pinned_bytes) = self.reader_pins.pinned();
        m.snapshots = self.snapshots.list().len() as u64;
        m.disk_full = self.health.is_disk_full();
        m.poisoned = self.health.is_poisoned();
        m.quarantined_files = self.background_errors.unreadable().len() as u64;
        m.evidence_stale = self.evidence.is_stale();
        m.live_log_bytes = self.write_queue.as_ref().and_then(|q| q.try_log_bytes()).unwrap_or(0);
        for family in self.families.load().iter() {
            m.memtable_bytes += family.memtable_bytes() as u64;
            fill_models(&mut m, &family.state());
            for (row, level) in m.levels.iter_mut().zip(family.state().version.levels()) {
                row.file_count += level.files().len() as u64;
                for file in level.files() {
                    row.size_bytes += file.size_bytes;
                    row.entry_count += file.entry_count;
                    row.tombstone_count += file.tombstone_count;
                    row.raw_bytes += file.raw_bytes;
                }
            }
        }
        m
    }
}

/// Enters the models that lookups in `state` use.
fn fill_models(m: &mut Metrics, state: &ReadState) {
    for (number, level) in state.version.levels().iter().enumerate() {
        for index in 0..level.len() {
            if let Some(reader) = &*state.slots.at(number, index).open_reader() {
                m.levels[number].model_files += u64::from(reader.has_model());
                m.model_bytes += reader.model_memory_bytes() as u64;
            }
        }
        if let Some(model) = &state.level_models[number] {
            m.level_models += 1;
            m.levels[number].level_models += 1;
            m.model_bytes += model.memory_bytes() as u64;
        }
    }
}
