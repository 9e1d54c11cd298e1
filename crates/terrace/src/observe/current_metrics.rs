//! The metrics of an open store, gathered from where they are counted.

use crate::inner::Inner;
use crate::metrics::Metrics;
use crate::options::MemorySplit;
use crate::version::read_state::ReadState;

/// The state of the store and what it did since the open.
pub(crate) fn of(inner: &Inner) -> Metrics {
    let mut m = Metrics::default();
    m.fill(&inner.base.counters);
    m.reads = inner.read.table_cache.counters().snapshot();
    m.seeks = inner.read.table_cache.seeks().get();
    inner.read.filters.fill(&mut m);
    inner.read.table_cache.trainings().fill(&mut m);
    (m.value_reads, m.value_read_bytes, m.value_cache_hits) = inner.read.value_log.reads();
    for segment in inner.read.value_log.segment_stats() {
        m.value_segments += 1;
        m.value_segment_bytes += segment.size_bytes;
    }
    m.value_live_bytes = inner.read.value_log.live_bytes();
    m.gc_victim_segments = inner.read.value_log.victims().len() as u64;
    m.gc_excluded_segments = inner.read.value_log.excluded_count() as u64;
    {
        let arbiter = inner.background.arbiter.lock();
        m.memory_moves = arbiter.moves;
        m.memory_moved_bytes = arbiter.moved_bytes;
        m.memory_turns = arbiter.policy.turns();
        if inner.base.dynamic.memory_split() == MemorySplit::Auto {
            m.memory_gains_us = std::array::from_fn(|pool| arbiter.policy.gain(pool));
        }
    }
    m.memtable_limit_bytes = inner.base.dynamic.memtables_bytes() as u64;
    m.cache_used_bytes = inner.read.table_cache.cache().used_bytes() as u64;
    m.cache_capacity_bytes = inner.read.table_cache.cache().capacity_bytes() as u64;
    m.pinned_bytes = inner.read.table_cache.pinned_bytes() as u64;
    m.memtable_lent_bytes = inner.read.table_cache.memtable_loan_bytes() as u64;
    m.open_files = inner.read.table_cache.open_count() as u64;
    let pinned = inner.versions.reader_pins.pinned();
    (m.reader_pinned_files, m.reader_pinned_bytes) = (pinned.files, pinned.bytes);
    m.snapshots = inner.read.snapshots.list().len() as u64;
    m.disk_full = inner.base.health.is_disk_full();
    m.poisoned = inner.base.health.is_poisoned();
    m.quarantined_files = inner.jobs.errors.unreadable().len() as u64;
    m.evidence_stale = inner.versions.evidence.is_stale();
    m.live_log_bytes = inner.commit.queue.as_ref().and_then(|q| q.try_log_bytes()).unwrap_or(0);
    m.retained_log_bytes = inner.versions.log_history.kept_bytes();
    for family in inner.read.families.load().iter() {
        m.memtable_bytes += family.memtable_bytes() as u64;
        if let Some(hot) = &family.state().hot {
            m.hot_keys += hot.table.key_count() as u64;
            m.hot_bytes += hot.table.size_bytes() as u64;
        }
        m.hot_bytes += family.hot_keys.lock().size_bytes() as u64;
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
