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
