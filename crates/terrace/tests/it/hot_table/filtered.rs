//! Families with a compaction filter have no hot table.

use super::{Store, check, draw, options};
use crate::harness::{DIR, HANG_GUARD};
use std::sync::Arc;
use std::time::Instant;
use terrace::vfs::SimVfs;
use terrace::{
    CompactionFilter, Db, FilterContext, FilterDecision, FilterEntry, FilterError, HotTableMode,
};
use terrace_base::rng::SplitMix64;

/// A filter that keeps everything.
struct KeepAll;

impl CompactionFilter for KeepAll {
    fn name(&self) -> &str {
        "keep all"
    }

    fn filter(
        &self,
        _: &FilterContext,
        _: &FilterEntry<'_>,
    ) -> Result<FilterDecision, FilterError> {
        Ok(FilterDecision::Keep)
    }
}

/// What recovery replays for a hot table is older than what a filter has made of the SSTs. A store without a filter
/// gets the same writes, so that it is known to be enough of them.
#[test]
fn a_family_with_a_compaction_filter_has_no_hot_table() {
    let mut with_filter = options(&SimVfs::new(1), HotTableMode::Auto);
    with_filter.default_family.compaction_filter = Some(Arc::new(KeepAll));
    let mut filtered = Store::of(Db::open(DIR, with_filter).unwrap());
    let mut other = Store::open(&SimVfs::new(1), HotTableMode::Auto);
    let mut rng = SplitMix64::new(7);
    let start = Instant::now();
    while other.db.metrics().hot_checkpoints < 2 || filtered.db.metrics().flushes < 20 {
        for _ in 0..200 {
            let n = draw(&mut rng);
            filtered.put(n, 100);
            other.put(n, 100);
        }
        assert!(start.elapsed() < HANG_GUARD, "nothing becomes hot: {}", other.db.metrics());
        let metrics = filtered.db.metrics();
        assert_eq!((metrics.hot_keys, metrics.hot_checkpoints), (0, 0));
    }
    check(&filtered.db, &filtered.contents, None);
}
