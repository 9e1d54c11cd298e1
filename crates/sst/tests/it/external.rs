//! Files written outside a store: copied under a number of their own, with one sequence number for all.

use crate::files::*;
use crate::model::{check_iterator, check_lookups, random_options, random_scan, random_tombstones};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use terrace_base::key::{pack_trailer, seek_trailer, trailer_kind};
use terrace_base::{
    Error, FileNumber, InternalIter, MAX_SEQNO, RangeTombstone, RangeTombstones, Result,
    SegmentNumber, SeqNo, SplitMix64, ValueHandle, ValueKind,
};
use terrace_sst::{
    EXTERNAL_FILE_NUMBER, ScanOptions, SstOptions, SstReader, SstSummary, SstWriter, Stamp,
};
use terrace_vfs::{SimVfs, Vfs};

pub const GLOBAL: SeqNo = SeqNo::new(110);

/// The newest version of each key, with `seqno`.
pub fn with_seqno(model: &Model, seqno: SeqNo) -> Model {
    let mut keys = BTreeSet::new();
    let newest = model.iter().filter(|((key, _), _)| keys.insert(key.clone()));
    let stamped = newest.map(|((key, inverted), value)| {
        let kind = trailer_kind(!inverted).unwrap();
        ((key.clone(), !pack_trailer(seqno, kind)), value.clone())
    });
    stamped.collect()
}

pub fn tombstones_at(tombstones: &RangeTombstones, seqno: SeqNo) -> RangeTombstones {
    let moved = tombstones.iter().map(|tombstone| RangeTombstone { seqno, ..tombstone });
    RangeTombstones::new(moved.collect::<Vec<_>>())
}

fn stamp(seqno: SeqNo) -> Stamp {
    let family = Some((5, "five".to_string()));
    Stamp { seqno, flushed_seqno: SeqNo::ZERO, family, created_ms: 77 }
}

fn external() -> &'static Path {
    Path::new("/external.sst")
}

fn open_external(vfs: &SimVfs) -> Result<Arc<SstReader>> {
    let vfs: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let size = vfs.len(external())?;
    SstReader::open(&vfs, external(), EXTERNAL_FILE_NUMBER, size, &reader_options(1 << 20))
}

fn copied(vfs: &SimVfs, number: u64, stamp: Stamp) -> Result<SstSummary> {
    let mut body =
        open_external(vfs)?.copy_external(vfs, &path(number), FileNumber::new(number), false)?;
    body.sync()?;
    body.finish(Some(stamp))
}

/// Copies an external file of these bytes, with the entries of `model`, as file `number`.
pub fn check_copy(bytes: &[u8], number: u64, model: &Model) -> SimVfs {
    let vfs = SimVfs::new(1);
    assert!(vfs.write_file(external(), bytes));
    assert_eq!(open_external(&vfs).unwrap().verify().unwrap().entries, model.len() as u64);
    copied(&vfs, number, stamp(GLOBAL)).unwrap();
    vfs
}

fn write_external(
    vfs: &SimVfs,
    options: SstOptions,
    model: &Model,
    tombstones: RangeTombstones,
) -> SstSummary {
    let mut writer = SstWriter::create(vfs, external(), EXTERNAL_FILE_NUMBER, options).unwrap();
    for ((key, inverted), value) in model {
        writer.add(key, !inverted, value).unwrap();
    }
    writer.set_range_tombstones(tombstones);
    writer.finish().unwrap()
}

#[test]
fn a_copy_reads_as_if_all_had_been_written_with_its_sequence_number() {
    for seed in 0..60 {
        let mut rng = SplitMix64::new(seed);
        let vfs = SimVfs::new(seed);
        let drawn = random_model(&mut rng, [20, 400, 1500][seed as usize % 3]);
        let options = random_options(&mut rng);
        let ranges = random_tombstones(&mut rng);
        let before = tombstones_at(&ranges, SeqNo::ZERO);
        let outside =
            write_external(&vfs, options, &with_seqno(&drawn, SeqNo::ZERO), before.clone());
        let number = seed + 1;
        let summary = copied(&vfs, number, stamp(GLOBAL)).unwrap();
        assert_eq!((summary.smallest_seqno, summary.largest_seqno), (GLOBAL, GLOBAL));
        assert_eq!(
            (&summary.smallest, &summary.largest, summary.entry_count),
            (&outside.smallest, &outside.largest, outside.entry_count)
        );
        let model = with_seqno(&drawn, GLOBAL);
        let reader = open(&vfs, number, &reader_options(100_000)).unwrap();
        assert_eq!(reader.size_bytes(), summary.size_bytes);
        assert_eq!(*reader.range_tombstones(), tombstones_at(&before, GLOBAL));
        let properties = reader.properties();
        assert_eq!(properties.global_seqno, Some(GLOBAL));
        assert_eq!(properties.family, Some((5, "five".to_string())));
        assert_eq!(properties.created_ms, 77);
        check_lookups(&mut rng, &reader, &model);
        for _ in 0..3 {
            let scan = random_scan(&mut rng);
            check_iterator(&mut rng, reader.iter(scan), &model);
        }
        check_iterator(&mut rng, reader.iter(ScanOptions::compaction()), &model);
        reader.verify().unwrap();
        let mut salvaged = Model::new();
        let unreadable = reader.salvage(&mut |key, trailer, value| {
            salvaged.insert((key.to_vec(), !trailer), value.to_vec());
            Ok(())
        });
        assert!(unreadable.unwrap().is_empty());
        assert_eq!(salvaged, model);
    }
}

#[test]
fn seeks_by_the_model_of_a_copy_go_by_its_sequence_number() {
    let key = |at: u64| format!("{:016}", at * 7).into_bytes();
    let stored = !pack_trailer(SeqNo::ZERO, ValueKind::Put);
    let model: Model = (0..2000).map(|at| ((key(at), stored), vec![at as u8; 3])).collect();
    let vfs = SimVfs::new(1);
    let options = SstOptions { block_size: 512, ..SstOptions::default() };
    write_external(&vfs, options, &model, RangeTombstones::default());
    copied(&vfs, 9, stamp(GLOBAL)).unwrap();
    let shared = reader_options(64 << 20);
    let reader = open(&vfs, 9, &shared).unwrap();
    assert!(reader.has_model());
    // Until every block is in its slot.
    for _ in 0..4 {
        for at in 0..2000 {
            assert!(got(&reader, &key(at), GLOBAL.get()).unwrap().is_some());
        }
    }
    let index_uses = || {
        let counts = shared.counters.snapshot();
        counts.index_hits + counts.index_misses
    };
    let before = index_uses();
    let visible = pack_trailer(GLOBAL, ValueKind::Put);
    for at in 0..1999u64 {
        let too_old = SeqNo::new(GLOBAL.get() - 1);
        for (seqno, to) in [(MAX_SEQNO, at), (GLOBAL, at), (too_old, at + 1)] {
            // Each with its own cursor, for a cursor uses the partition it was in unseen.
            let mut iter = reader.iter(ScanOptions::default());
            if at.is_multiple_of(2) {
                iter.prepare_seek(&key(at));
            }
            iter.seek(&key(at), seek_trailer(seqno)).unwrap();
            assert!(iter.valid());
            assert_eq!((iter.user_key(), iter.trailer()), (&key(to)[..], visible));
        }
    }
    let used = index_uses() - before;
    assert!(used < 3 * 1999 / 5, "{used} of {} seeks", 3 * 1999);
}

#[test]
fn a_copy_below_existing_data_keeps_the_sequence_number_0() {
    let vfs = SimVfs::new(1);
    let mut rng = SplitMix64::new(4);
    let model = with_seqno(&random_model(&mut rng, 300), SeqNo::ZERO);
    write_external(&vfs, SstOptions::default(), &model, RangeTombstones::default());
    let summary = copied(&vfs, 9, stamp(SeqNo::ZERO)).unwrap();
    assert_eq!(summary.largest_seqno, SeqNo::ZERO);
    let reader = open(&vfs, 9, &reader_options(100_000)).unwrap();
    check_lookups(&mut rng, &reader, &model);
    check_iterator(&mut rng, reader.iter(ScanOptions::default()), &model);
    reader.verify().unwrap();
}

#[test]
fn no_damaged_byte_is_copied() {
    let vfs = SimVfs::new(1);
    let mut model = Model::new();
    for at in 0..40u64 {
        let trailer = !pack_trailer(SeqNo::ZERO, ValueKind::Put);
        model.insert((format!("key{at:03}").into_bytes(), trailer), vec![at as u8; 9]);
    }
    let range = RangeTombstone { start: b"a".to_vec(), end: b"b".to_vec(), seqno: SeqNo::ZERO };
    let options = SstOptions { block_size: 256, ..SstOptions::default() };
    write_external(&vfs, options, &model, RangeTombstones::new([range]));
    let sound = vfs.read_file(external()).unwrap();
    for at in 0..sound.len() {
        let damaged = SimVfs::new(2);
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (at % 8);
        assert!(damaged.write_file(external(), &bytes));
        let error = copied(&damaged, 3, stamp(GLOBAL)).unwrap_err();
        assert!(error.is_corruption(), "byte {at}: {error}");
    }
}

#[test]
fn only_a_file_that_belongs_to_no_store_is_copied() {
    let put = |seqno| !pack_trailer(SeqNo::new(seqno), ValueKind::Put);
    let refused = |model: Model, tombstones: RangeTombstones| {
        let vfs = SimVfs::new(1);
        write_external(&vfs, SstOptions::default(), &model, tombstones);
        let error = copied(&vfs, 3, stamp(GLOBAL)).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        error.to_string()
    };
    let numbered = Model::from([((b"a".to_vec(), put(4)), vec![])]);
    assert!(refused(numbered, RangeTombstones::default()).contains("sequence numbers"));
    let range = RangeTombstone { start: b"a".to_vec(), end: b"b".to_vec(), seqno: SeqNo::new(1) };
    assert!(refused(Model::new(), RangeTombstones::new([range])).contains("sequence numbers"));
    assert!(refused(Model::new(), RangeTombstones::default()).contains("empty"));
    let handle = ValueHandle { segment: SegmentNumber::new(3), offset: 50, len: 4, compression: 0 };
    let trailer = !pack_trailer(SeqNo::ZERO, ValueKind::PutHandle);
    let referring = Model::from([((b"a".to_vec(), trailer), handle.encode().to_vec())]);
    assert!(refused(referring, RangeTombstones::default()).contains("log of a store"));
    // One that was copied belongs to the store, whatever its name.
    let vfs = SimVfs::new(1);
    let model = Model::from([((b"a".to_vec(), put(0)), vec![])]);
    write_external(&vfs, SstOptions::default(), &model, RangeTombstones::default());
    copied(&vfs, 3, stamp(GLOBAL)).unwrap();
    let bytes = vfs.read_file(path(3)).unwrap();
    vfs.remove(external()).unwrap();
    assert!(vfs.write_file(external(), &bytes));
    let error = copied(&vfs, 4, stamp(GLOBAL)).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("it names file 3"), "{error}");
}

#[test]
fn operands_and_versions_that_one_sequence_number_cannot_order_are_not_copied() {
    let trailer = |kind| pack_trailer(SeqNo::ZERO, kind);
    let expiry = [0xff; 8];
    let of = |entries: &[(u64, &[u8])], operator: Option<&str>| {
        let vfs = SimVfs::new(1);
        let options =
            SstOptions { merge_operator: operator.map(String::from), ..SstOptions::default() };
        let mut writer =
            SstWriter::create(&vfs, external(), EXTERNAL_FILE_NUMBER, options).unwrap();
        for (trailer, value) in entries {
            writer.add(b"key", *trailer, value).unwrap();
        }
        writer.finish().unwrap();
        copied(&vfs, 3, stamp(GLOBAL)).map(|_| vfs)
    };
    let twice = of(&[(trailer(ValueKind::PutTtl), &expiry), (trailer(ValueKind::Put), b"1")], None);
    assert!(twice.err().unwrap().to_string().contains("a key is there twice"));
    let unnamed = of(&[(trailer(ValueKind::Merge), b"1")], None);
    assert!(unnamed.err().unwrap().to_string().contains("does not name the merge operator"));
    let folded = of(&[(trailer(ValueKind::Merged), &[0; 9])], Some("append"));
    assert!(folded.err().unwrap().to_string().contains("sequence numbers of its own"));
    let vfs = of(&[(trailer(ValueKind::Merge), b"1")], Some("append")).unwrap();
    let reader = open(&vfs, 3, &reader_options(100_000)).unwrap();
    assert_eq!(reader.properties().merge_operator.as_deref(), Some("append"));
    assert_eq!(reader.verify().unwrap().operands, 1);
    // Whose operator a file without operands has does not matter.
    let vfs = of(&[(trailer(ValueKind::Put), b"1")], Some("append")).unwrap();
    let reader = open(&vfs, 3, &reader_options(100_000)).unwrap();
    assert_eq!(reader.properties().merge_operator, None);
    assert_eq!(reader.verify().unwrap().operands, 0);
}
