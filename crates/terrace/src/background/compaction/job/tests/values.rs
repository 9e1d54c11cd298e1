//! Jobs that move values out of victim segments.

use super::*;
use crate::version::unpublished::publish_segments;
use std::collections::HashMap;
use terrace_base::key::{trailer_kind, trailer_seqno};
use terrace_base::{HANDLE_BYTES, SegmentNumber, ValueHandle};
use terrace_log::value::ValueWriter;
use terrace_manifest::{SegmentKind, SegmentMeta};

/// The segments that inputs refer to.
const SEGMENTS: usize = 5;

impl Store {
    fn writer(&self) -> ValueWriter {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let number = SegmentNumber::new(number);
        let path = names::value_log_path(Path::new(DIR), number);
        ValueWriter::create(&*self.vfs, &path, number, 0).unwrap()
    }

    /// Writes segments with the values of most of `entries`; gives the entries with handles in
    /// place of values.
    fn separate(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        let mut writers: Vec<ValueWriter> = (0..SEGMENTS).map(|_| self.writer()).collect();
        let mut out = Vec::new();
        for (n, (key, trailer, value)) in entries.into_iter().enumerate() {
            let kind = match trailer_kind(trailer) {
                Some(ValueKind::Put) if n % 4 > 0 => ValueKind::PutHandle,
                Some(ValueKind::PutTtl) => ValueKind::PutTtlHandle,
                _ => {
                    out.push((key, trailer, value));
                    continue;
                }
            };
            let writer = &mut writers[n % SEGMENTS];
            let handle = writer.add(&key, &long_value(&key, trailer_seqno(trailer)), 0).unwrap();
            let mut stored = match kind {
                ValueKind::PutTtlHandle => value[..8].to_vec(),
                _ => Vec::new(),
            };
            stored.extend_from_slice(&handle.encode());
            out.push((key, pack_trailer(trailer_seqno(trailer), kind), stored));
        }
        for writer in writers {
            let number = writer.segment();
            let size_bytes = writer.finish().unwrap();
            self.log.seal(&[SegmentMeta { number, kind: SegmentKind::Values, size_bytes }]);
        }
        out
    }

    /// As [`Store::random`], with most values in the log; the even segments are victims.
    fn random_with_values(seed: u64) -> Self {
        let mut store = Self::new();
        let mut rng = SplitMix64::new(seed);
        let keys = 50 + rng.below(300);
        let mut seqno = 0;
        for (level, input) in [(6, false), (5, true), (0, true), (0, true)] {
            let mut entries = Vec::new();
            for _ in 0..rng.below(400) {
                seqno += 1;
                let key = if input { rng.below(keys) } else { rng.below(keys / 3) };
                let key = format!("key{key:05}").into_bytes();
                let (kind, value) = match rng.below(8) {
                    0 => (ValueKind::Delete, Vec::new()),
                    1 => (ValueKind::PutTtl, (NOW_MS - 1 + rng.below(3)).to_le_bytes().into()),
                    _ => (ValueKind::Put, vec![seqno as u8; 9]),
                };
                entries.push((key, pack_trailer(SeqNo::new(seqno), kind), value));
            }
            let entries = store.separate(entries);
            store.add_run(level, entries, Vec::new(), input);
        }
        store.snapshots.extend((0..rng.below(3)).map(|_| SeqNo::new(rng.below(seqno + 1))));
        store.snapshots.sort_unstable();
        store.snapshots.dedup();
        store.inputs.sort_by_key(|(level, _)| *level);
        store.inputs.retain(|(_, files)| !files.is_empty());
        store.victims =
            store.log.hold().keys().filter(|number| number.get() % 2 == 0).copied().collect();
        store
    }

    /// The entries with their values in place of their handles.
    fn resolved(&self, entries: &[Entry]) -> Vec<Entry> {
        let held = self.log.hold();
        let resolve = |(key, trailer, value): &Entry| {
            let kind = trailer_kind(*trailer).unwrap();
            let Some(handle) = ValueHandle::of_entry(kind, value) else {
                return (key.clone(), *trailer, value.clone());
            };
            let found = self.log.read_held(&held, &[(key, handle)], usize::MAX).remove(0).unwrap();
            let head = &value[..value.len() - HANDLE_BYTES];
            (key.clone(), *trailer, [head, &found].concat())
        };
        entries.iter().map(resolve).collect()
    }
}

/// A value that tells whose it is.
fn long_value(key: &[u8], seqno: SeqNo) -> Vec<u8> {
    let mut value = key.repeat(3 + seqno.get() as usize % 40);
    value.extend_from_slice(&seqno.get().to_le_bytes());
    value
}

fn references(files: &[(u8, FileMeta)]) -> HashMap<SegmentNumber, u64> {
    let mut sum = HashMap::new();
    for reference in files.iter().flat_map(|(_, file)| &file.value_refs) {
        *sum.entry(reference.segment).or_default() += reference.bytes;
    }
    sum
}

#[test]
fn values_of_victim_segments_move_and_everything_reads_as_before() {
    let (mut moved, mut kept, mut segments) = (0, 0, 0);
    for seed in 0..30 {
        let mut store = Store::random_with_values(seed);
        store.options.max_subcompactions = 1 + seed as usize % 3;
        if store.inputs.is_empty() {
            continue;
        }
        let compaction = store.compaction(5);
        let (want, _) = store.expected(&compaction);
        let want = store.resolved(&want);
        let output = store.run(&compaction, &AtomicBool::new(false)).unwrap().unwrap();
        publish_segments(&*store.vfs, Path::new(DIR), &output.segments).unwrap();
        store.log.seal(&output.segments);
        let (entries, _) = store.read(&output.edit.added);
        assert_eq!(store.resolved(&entries), want, "seed {seed}");
        let references = references(&output.edit.added);
        assert!(!references.keys().any(|number| store.victims.contains(number)), "seed {seed}");
        for segment in &output.segments {
            assert!(references[&segment.number] < segment.size_bytes);
            let path = names::value_log_path(Path::new(DIR), segment.number);
            assert_eq!(store.vfs.len(&path).unwrap(), segment.size_bytes);
        }
        // Only what a segment does not hold whole is beyond its size.
        assert!(output.segments.iter().all(|s| s.size_bytes < 6 << 10));
        moved += output.stats.moved_values;
        kept += references.len();
        segments += output.segments.len();
    }
    assert!(moved > 1000 && kept > 50 && segments > 60, "{moved} {kept} {segments}");
}

#[test]
fn values_move_in_the_order_of_their_keys() {
    let mut moved = 0;
    for seed in 0..8 {
        let mut store = Store::random_with_values(seed);
        store.victims = store.log.hold().keys().copied().collect();
        store.options.max_subcompactions = 1;
        if store.inputs.is_empty() {
            continue;
        }
        let output = store.run(&store.compaction(5), &AtomicBool::new(false)).unwrap().unwrap();
        let (entries, _) = store.read(&output.edit.added);
        let handle = |e: &Entry| ValueHandle::of_entry(trailer_kind(e.1).unwrap(), &e.2);
        let handles = entries.iter().filter_map(handle);
        let places: Vec<(SegmentNumber, u64)> = handles.map(|h| (h.segment, h.offset)).collect();
        assert!(places.is_sorted(), "seed {seed}");
        moved += places.len();
    }
    assert!(moved > 300, "{moved}");
}

#[test]
fn a_fault_anywhere_leaves_no_segment_behind() {
    let (failed, operations) = fail_every_operation(|| Store::random_with_values(7));
    assert!(failed > 30, "{failed} of {operations}");
    let store = Store::random_with_values(7);
    let before = store.file_names();
    assert!(store.run(&store.compaction(5), &AtomicBool::new(true)).unwrap().is_none());
    assert_eq!(store.file_names(), before);
}

#[test]
fn a_segment_that_is_missing_is_named_and_nothing_is_lost() {
    let store = Store::random_with_values(7);
    let compaction = store.compaction(5);
    let gone = compaction.files().flat_map(|f| &f.value_refs).next().unwrap().segment;
    store.log.remove(&[gone]);
    let before = store.file_names();
    let error = store.run(&compaction, &AtomicBool::new(false)).unwrap_err();
    assert!(
        error.is_corruption() && error.to_string().contains(&format!("{gone:06}.log")),
        "{error}"
    );
    assert_eq!(store.file_names(), before);
}

#[test]
fn references_that_do_not_balance_stop_the_job() {
    let store = Store::random_with_values(7);
    let mut compaction = store.compaction(5);
    let file = &mut compaction.inputs[0].1[0];
    let mut changed = FileMeta::clone(file);
    changed.value_refs[0].bytes += 1;
    *file = Arc::new(changed);
    let before = store.file_names();
    let error = store.run(&compaction, &AtomicBool::new(false)).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("lost count"), "{error}");
    assert_eq!(store.file_names(), before);
}

#[test]
fn a_job_that_comes_by_moves_no_next_to_nothing() {
    let mut store = Store::random_with_values(7);
    let mut compaction = store.compaction(5);
    compaction.reason = Reason::L0Files;
    let held = |victims: &HashSet<SegmentNumber>| -> u64 {
        let refs = compaction.files().flat_map(|f| &f.value_refs);
        refs.filter(|r| victims.contains(&r.segment)).map(|r| r.bytes).sum()
    };
    store.victims.retain(|number| held(&HashSet::from([*number])) > 0);
    let victims_live_bytes = 2 * held(&store.victims);
    let mut moving = Moving {
        log: &store.log,
        held: store.log.hold(),
        victims: Arc::new(store.victims.clone()),
        victims_live_bytes,
        segment_bytes: 8 * held(&store.victims),
        of_try: store.log.begin_try(),
    };
    assert!(moving.moves(&compaction));
    moving.segment_bytes += 8;
    assert!(!moving.moves(&compaction), "less than an eighth of a segment");
    moving.victims_live_bytes = held(&store.victims);
    assert!(moving.moves(&compaction), "it is all there is");
    moving.victims_live_bytes *= 2;
    compaction.reason = Reason::Values;
    assert!(moving.moves(&compaction), "it is what the job is for");
    moving.victims = Arc::default();
    assert!(!moving.moves(&compaction));
}
