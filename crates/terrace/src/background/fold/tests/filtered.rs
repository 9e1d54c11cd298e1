//! Behind a compaction filter: snapshots see what they saw, every other reader what the filter decided about the newest
//! version among the inputs; and a filter that fails loses nothing.

use super::*;
use crate::background::filter::{FilterCounts, Filtering};
use crate::compaction_filter::{
    CompactionFilter, FilterContext, FilterEntry, FilterError, FilterJob, ReadSeparated,
};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_base::Error;

fn context() -> FilterContext {
    FilterContext {
        family: "f".into(),
        job: FilterJob::Compaction,
        start_level: 0,
        output_level: 1,
        is_full: false,
        is_manual: false,
    }
}

/// Runs the inputs through the stage as a job does, and says what the filter did.
fn filter_all(
    inputs: &[Entry],
    tombstones: &RangeTombstones,
    snapshots: &[SeqNo],
    below: &mut Below,
    filter: &dyn CompactionFilter,
    read_value: &ReadSeparated<'_>,
) -> Result<(Output, FilterCounts)> {
    let append = AppendOperator::default();
    let filtering = Filtering::begin(filter, context()).unwrap();
    let retain = Retain::new(snapshots, tombstones, NOW_MS, below, false);
    let folding = Folding { operator: Some(&append), read_value: &|_, _| None };
    let filter = Filter { filtering: &filtering, read_value };
    let mut fold = Fold::new(retain, folding).with_filter(Some(filter));
    let mut output = Output::default();
    for entry in inputs {
        fold.next(&entry.key, entry.trailer, &entry.value, &mut output)?;
    }
    fold.finish(&mut output)?;
    Ok((output, filtering.counts()))
}

fn unreadable(_: &[u8], _: ValueHandle) -> Result<Slice> {
    Err(Error::corruption(Path::new("/v"), 0, "a test"))
}

/// Decides by the number in a value `<17>`.
struct ByNumber {
    ignores_snapshots: bool,
}

fn decide(value: &[u8]) -> FilterDecision {
    let digits = value.strip_prefix(b"<").and_then(|rest| rest.strip_suffix(b">"));
    let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u64>().ok());
    match number.map(|number| number % 3) {
        Some(0) => FilterDecision::Remove,
        Some(1) => FilterDecision::Change([b"changed", value].concat()),
        _ => FilterDecision::Keep,
    }
}

impl CompactionFilter for ByNumber {
    fn name(&self) -> &str {
        "by number"
    }

    fn filter(
        &self,
        _: &FilterContext,
        entry: &FilterEntry<'_>,
    ) -> std::result::Result<FilterDecision, FilterError> {
        Ok(decide(entry.value()?))
    }

    fn ignores_snapshots(&self) -> bool {
        self.ignores_snapshots
    }
}

/// The inputs as they would be if the filter's decisions had been written.
fn decided(inputs: &[Entry], snapshots: &[SeqNo], ignores_snapshots: bool) -> Vec<Entry> {
    let mut entries = inputs.to_vec();
    for key in 0..KEYS {
        let of_key = entries.iter_mut().filter(|e| e.key == [key]);
        let Some(newest) = of_key.max_by_key(|e| e.trailer) else { continue };
        let head = match newest.kind() {
            ValueKind::Put => 0,
            ValueKind::PutTtl => EXPIRY_BYTES,
            _ => continue,
        };
        if !ignores_snapshots && snapshots.iter().any(|at| newest.seqno() <= *at) {
            continue;
        }
        match decide(&newest.value[head..]) {
            FilterDecision::Keep => {}
            FilterDecision::Remove => {
                *newest = Entry::new(key, newest.seqno().get(), ValueKind::Delete, b"");
            }
            FilterDecision::Change(value) => {
                newest.value.truncate(head);
                newest.value.extend(value);
            }
        }
    }
    entries
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn readers_see_what_the_filter_decided_and_snapshots_what_they_saw(
        bands in bands(),
        ignores_snapshots: bool,
    ) {
        let Bands { snapshots, points, tombstones, files, set, survivors } = &bands;
        let mut below = Below::files(files);
        let filter = ByNumber { ignores_snapshots };
        let filtered = filter_all(&points[1], set, snapshots, &mut below, &filter, &unreadable);
        let (out, counts) = filtered.unwrap();

        let wanted = decided(&points[1], snapshots, ignores_snapshots);
        let (before, before_t) = (points.concat(), tombstones.concat());
        let wanted = [&points[0][..], &wanted, &points[2]].concat();
        let (after, after_t) = bands.with_output(&out.kept, survivors);
        for key in 0..KEYS {
            for at in snapshots.iter().copied().chain([MAX_SEQNO]) {
                for now_ms in [NOW_MS, NOW_MS + 1] {
                    let seen = read(&after, &after_t, &[key], at, now_ms);
                    let want = read(&wanted, &before_t, &[key], at, now_ms);
                    prop_assert_eq!(&seen, &want, "key {} at {} and {} ms", key, at, now_ms);
                    if at < MAX_SEQNO && !ignores_snapshots {
                        let want = read(&before, &before_t, &[key], at, now_ms);
                        prop_assert_eq!(seen, want, "key {} at snapshot {}", key, at);
                    }
                }
            }
        }
        prop_assert!(out.kept.windows(2).all(|pair| {
            (&pair[0].key, pair[1].trailer) < (&pair[1].key, pair[0].trailer)
        }), "out of order: {:?}", out.kept);
        let changed = |e: &&Entry| e.value.windows(7).any(|part| part == b"changed");
        prop_assert_eq!(out.kept.iter().filter(changed).count() as u64, counts.changed);
        prop_assert_eq!(counts.failures, 0);
    }
}

/// A filter that is a function of the number of the call.
struct Calls<F> {
    count: AtomicU64,
    filter: F,
}

impl<F> CompactionFilter for Calls<F>
where
    F: Fn(u64, &FilterEntry<'_>) -> std::result::Result<FilterDecision, FilterError> + Send + Sync,
{
    fn name(&self) -> &str {
        "calls"
    }

    fn filter(
        &self,
        _: &FilterContext,
        entry: &FilterEntry<'_>,
    ) -> std::result::Result<FilterDecision, FilterError> {
        (self.filter)(self.count.fetch_add(1, Ordering::Relaxed), entry)
    }
}

fn calls<F>(filter: F) -> Calls<F>
where
    F: Fn(u64, &FilterEntry<'_>) -> std::result::Result<FilterDecision, FilterError> + Send + Sync,
{
    Calls { count: AtomicU64::new(0), filter }
}

fn puts(count: u8) -> Vec<Entry> {
    (1..=count).map(|key| Entry::new(key, u64::from(key), ValueKind::Put, b"v")).collect()
}

#[test]
fn an_error_keeps_its_entry_and_the_next_one_is_asked_about() {
    let filter = calls(|call, _| match call {
        1 => Err(FilterError("planted".into())),
        _ => Ok(FilterDecision::Remove),
    });
    let below = &mut Below::files([]);
    let (out, counts) = filter_all(&puts(3), &none(), &[], below, &filter, &unreadable).unwrap();
    assert_eq!(out.kept, puts(3)[1..2]);
    assert_eq!(counts, FilterCounts { removed: 2, changed: 0, failures: 1 });
}

#[test]
fn a_panic_keeps_its_entry_and_all_that_follow() {
    let filter = calls(|call, _| match call {
        1 => panic!("a planted panic"),
        _ => Ok(FilterDecision::Remove),
    });
    let below = &mut Below::files([]);
    let (out, counts) = filter_all(&puts(4), &none(), &[], below, &filter, &unreadable).unwrap();
    assert_eq!(out.kept, puts(4)[1..]);
    assert_eq!(counts, FilterCounts { removed: 1, changed: 0, failures: 1 });
    assert_eq!(filter.count.into_inner(), 2);
}

#[test]
fn a_separated_value_is_read_only_if_the_filter_asks() {
    let handle = ValueHandle { segment: SegmentNumber::new(3), offset: 7, len: 5, compression: 0 };
    let separated = |key: u8, kind: ValueKind, head: &[u8]| {
        Entry::new(key, u64::from(key), kind, &[head, &handle.encode()].concat())
    };
    let expiry = (NOW_MS + 5).to_le_bytes();
    let inputs = [
        separated(1, ValueKind::PutHandle, b""),
        separated(2, ValueKind::PutHandle, b""),
        separated(3, ValueKind::PutTtlHandle, &expiry),
    ];
    let filter = calls(|call, entry| {
        assert!(entry.is_separated());
        assert_eq!(entry.expires_at_ms(), (call == 2).then_some(NOW_MS + 5));
        match call {
            0 => Ok(FilterDecision::Remove),
            1 => Ok(FilterDecision::Keep),
            _ => Ok(FilterDecision::Change([entry.value()?, entry.value()?].concat())),
        }
    });
    let reads = std::cell::Cell::new(0);
    let read_value = |key: &[u8], _: ValueHandle| {
        reads.set(reads.get() + 1);
        Ok(Slice::from([key, b"v"].concat()))
    };
    let below = &mut Below::files([]);
    let (out, _) = filter_all(&inputs, &none(), &[], below, &filter, &read_value).unwrap();
    assert_eq!(reads.get(), 1);
    let changed = Entry::new(3, 3, ValueKind::PutTtl, &[&expiry[..], b"\x03v\x03v"].concat());
    assert_eq!(out.kept, [inputs[1].clone(), changed]);
    // What the log's garbage is counted from.
    assert_eq!(out.dropped, [inputs[0].clone(), inputs[2].clone()]);
}

#[test]
fn a_damaged_value_keeps_its_entry_and_a_refused_read_fails_the_job() {
    let handle = ValueHandle { segment: SegmentNumber::new(3), offset: 7, len: 5, compression: 0 };
    let inputs = [Entry::new(1, 1, ValueKind::PutHandle, &handle.encode())];
    // Whatever it decides then.
    let filter =
        calls(|_, entry| Ok(entry.value().map_or(FilterDecision::Remove, |_| unreachable!())));
    let below = &mut Below::files([]);
    let (out, counts) = filter_all(&inputs, &none(), &[], below, &filter, &unreadable).unwrap();
    assert_eq!(out.kept, inputs);
    assert_eq!(counts, FilterCounts { removed: 0, changed: 0, failures: 1 });
    let refused = |_: &[u8], _: ValueHandle| {
        Err(Error::io("read", Path::new("/v"), std::io::Error::other("planted")))
    };
    let failed = filter_all(&inputs, &none(), &[], below, &filter, &refused);
    assert!(failed.is_err_and(|error| !error.is_corruption()));
}
