//! What a read needs.

use crate::env::BaseEnv;
use crate::memory::filter_budget::FilterBudget;
use crate::memory::table_cache::TableCache;
use crate::values::value_log::ValueLog;
use crate::version::family::Family;
use crate::version::snapshots::Snapshots;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_base::sync;
use terrace_base::{AtomicSeqNo, SeqNo};

/// The open column families, by id.
pub(crate) type Families = Vec<Arc<Family>>;

/// The family of this id among `families`, which are in the order of their ids. There may be ten thousand.
#[inline]
pub(crate) fn family_of(families: &[Arc<Family>], id: u32) -> Option<&Arc<Family>> {
    let at = families.binary_search_by_key(&id, |family| family.id).ok()?;
    families.get(at)
}

/// What a read needs: the families with their read states, the open files and values, and up to where
/// writes are visible.
pub(crate) struct ReadEnv {
    pub base: Arc<BaseEnv>,
    pub families: ArcSwap<Families>,
    pub table_cache: Arc<TableCache>,
    pub filters: Arc<FilterBudget>,
    pub value_log: Arc<ValueLog>,
    pub snapshots: Arc<Snapshots>,
    /// Writes up to here are readable.
    pub visible_seqno: AtomicSeqNo,
}

impl ReadEnv {
    /// The sequence number a read without a snapshot reads at. Take the read state first: what
    /// is in it is then never older than what the number promises.
    #[inline]
    pub fn visible_seqno(&self) -> SeqNo {
        sync::interleave();
        // Acquire: pairs with the commit's Release; entries up to the number are in memtables.
        self.visible_seqno.load(Ordering::Acquire)
    }

    /// Bytes of the memtables of all families, hot tables among them.
    pub fn memtable_bytes(&self) -> usize {
        self.table_cache.totals().memtables().all
    }

    /// Bytes that are charged to the block cache's share a tick later than they come, as no write, flush or merge waits for
    /// that: memtables that only iterators and snapshots hold, and what grows with the data whether files are open or not, which is
    /// the references of files to value segments and the registry of their filters.
    pub fn bytes_to_pin(&self) -> usize {
        let held = self.table_cache.left_memtables().held_bytes();
        held + self.value_log.reference_bytes() + self.filters.own_bytes()
    }

    /// Bytes of a memtable, as the hot table of `family` is measured by them: all families that have one share what the only
    /// one may have.
    pub fn hot_memtable_bytes(&self, family: &Family) -> usize {
        let hot = self.table_cache.totals().hot.load();
        let others = hot.len() - usize::from(hot.binary_search(&family.id).is_ok());
        self.base.dynamic.memtable_bytes() / (1 + others)
    }

    /// The family with this id, if it is open.
    pub fn family(&self, id: u32) -> Option<Arc<Family>> {
        family_of(&self.families.load(), id).cloned()
    }

    /// The family with this name, if there is one.
    pub fn family_named(&self, name: &str) -> Option<Arc<Family>> {
        self.families.load().iter().find(|family| family.name == name).cloned()
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::HANG_GUARD;
    use crate::{Db, Options};
    use std::sync::Arc;
    use std::time::Instant;
    use terrace_vfs::SimVfs;

    #[test]
    fn references_to_value_segments_and_the_registry_of_filters_are_taken_from_the_cache() {
        let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
        options.advanced.vfs = Arc::new(SimVfs::new(1));
        options.advanced.segment_bytes = 16 << 10;
        options.default_family.value_separation_threshold = 100;
        let db = Db::open("/db", options).unwrap();
        let read = &db.inner().read;
        for n in 0..1000_u32 {
            db.put(n.to_be_bytes(), [7; 1000]).unwrap();
        }
        db.flush().unwrap();
        // Opens the files, which makes their filters known.
        assert!(db.get(999_u32.to_be_bytes()).unwrap().is_some());
        // Merges, which come meanwhile, change both.
        let owed = || (read.value_log.reference_bytes(), read.filters.own_bytes());
        let start = Instant::now();
        let charged = || read.table_cache.bytes_pinned_beside_readers();
        loop {
            let (references, registry) = owed();
            // There is something to be charged, unless a merge has just taken it away.
            if references >= 16 && registry > 0 && charged() >= references + registry {
                break;
            }
            assert!(start.elapsed() < HANG_GUARD, "{} are charged of {:?}", charged(), owed());
            std::thread::yield_now();
        }
        db.close().unwrap();
    }
}
