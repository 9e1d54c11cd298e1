//! Damaged, misplaced and truncated files: an error or the right answer, never a wrong one.

use crate::files::*;
use std::ops::Range;
use std::sync::Arc;
use terrace_base::key::pack_trailer;
use terrace_base::{
    Error, InternalIter, RangeTombstone, RangeTombstones, Result, Rng, SeqNo, SplitMix64, ValueKind,
};
use terrace_sst::{
    DumpDetail, FilterPolicy, Lookup, ReaderOptions, ScanOptions, SstOptions, SstReader, dump,
};
use terrace_vfs::{Fault, FaultKind, OpClass, OpenMode, SimVfs, Vfs};

fn small_model() -> Model {
    let mut rng = SplitMix64::new(3);
    let put = |seqno| !pack_trailer(seqno, ValueKind::Put);
    let key = |at: u64| format!("user{:06}", at * 37).into_bytes();
    (0..30).map(|at| ((key(at), put(SeqNo::new(rng.below(50)))), vec![at as u8; 12])).collect()
}

fn small_tombstones() -> RangeTombstones {
    let (start, end) = (b"user0001".to_vec(), b"user0002".to_vec());
    RangeTombstones::new([RangeTombstone { start, end, seqno: SeqNo::new(9) }])
}

fn small_options() -> SstOptions {
    SstOptions { block_size: 200, metadata_block_size: 128, ..SstOptions::default() }
}

/// Reads everything in every way; the first error, or the assertion that all is right.
fn read_all(reader: &Arc<SstReader>, model: &Model) -> Result<()> {
    assert_eq!(*reader.range_tombstones(), small_tombstones());
    for (key, _) in model.keys() {
        let want = expected(model, key, 60);
        let lookup = Lookup::new(key, SeqNo::new(60));
        let found = reader.get(&lookup)?;
        assert_eq!(found.map(|e| (e.trailer, e.value.to_vec())), want);
        let mut absent = key.clone();
        absent.push(b'!');
        assert_eq!(got(reader, &absent, 60)?, None);
    }
    let lookups: Vec<Lookup<'_>> =
        model.keys().map(|(key, _)| Lookup::new(key, SeqNo::new(60))).collect();
    for (lookup, found) in lookups.iter().zip(reader.multi_get(&lookups)?) {
        let want = expected(model, lookup.user_key, 60);
        assert_eq!(found.map(|e| (e.trailer, e.value.to_vec())), want);
    }
    for options in [ScanOptions::default(), ScanOptions::compaction()] {
        let mut iter = reader.iter(options);
        iter.seek_to_first()?;
        for ((key, inverted), value) in model {
            assert!(iter.valid());
            assert_eq!((iter.user_key(), iter.trailer()), (&key[..], !inverted));
            assert_eq!(iter.value(), value);
            iter.next()?;
        }
        assert!(!iter.valid());
    }
    Ok(())
}

/// Where filters and models lie in a file: they are advisory.
fn advisory(reader: &SstReader) -> [Range<u64>; 2] {
    let properties = reader.properties();
    let index = properties.data_bytes + properties.filter_bytes;
    let model = index + properties.index_bytes;
    [properties.data_bytes..index, model..model + properties.model_bytes]
}

fn is_refusal(error: &Error) -> bool {
    error.is_corruption() || matches!(error, Error::Unsupported { .. })
}

#[test]
fn every_changed_byte_is_detected_or_harmless() {
    for compression in COMPRESSIONS {
        let vfs = SimVfs::new(1);
        let (model, options) = (small_model(), SstOptions { compression, ..small_options() });
        let size = write(&vfs, 1, options, &model, small_tombstones()).unwrap().size_bytes;
        let sound = open_at(&vfs, &path(1), 1, size).unwrap();
        read_all(&sound, &model).unwrap();
        let advisory = advisory(&sound);
        assert!(!advisory[0].is_empty());
        let mut rng = SplitMix64::new(4);
        for offset in 0..size {
            let xor = [1, 0x80, rng.below(255) as u8 + 1][offset as usize % 3];
            assert!(vfs.corrupt(path(1), offset, xor));
            let outcome = open_at(&vfs, &path(1), 1, size).and_then(|reader| {
                let read = read_all(&reader, &model);
                // Whatever reads tolerate, verification does not.
                assert!(is_refusal(&reader.verify().unwrap_err()), "byte {offset} unseen");
                read
            });
            if let Err(error) = outcome {
                assert!(is_refusal(&error), "byte {offset}: {error}");
                assert!(!advisory.iter().any(|range| range.contains(&offset)), "byte {offset}");
            }
            let file = vfs.open(&path(1), OpenMode::default()).unwrap();
            dump(&*file, None, DumpDetail::Entries, &mut String::new()).unwrap();
            assert!(vfs.corrupt(path(1), offset, xor));
        }
    }
}

/// A cold reader for each step, so that nothing is known from before.
#[test]
fn filters_and_models_that_cannot_be_read_cost_only_time() {
    let vfs = SimVfs::new(1);
    let put = !pack_trailer(SeqNo::new(1), ValueKind::Put);
    let key = |at: u32| format!("{:016}", at * 3).into_bytes();
    let model: Model = (0..700).map(|at| ((key(at), put), vec![at as u8; 12])).collect();
    let none = RangeTombstones::default();
    let summary = write(&vfs, 1, small_options(), &model, none).unwrap();
    let sound = open(&vfs, 1, &reader_options(1 << 20)).unwrap();
    let [filters, models] = advisory(&sound);
    assert!(!filters.is_empty() && !models.is_empty(), "{summary:?}");
    for range in [filters, models] {
        for damage in [SimVfs::lose_sector, SimVfs::know_damage] {
            let image = vfs.kill_image();
            assert!(damage(&image, path(1), range.clone()));
            for models in [true, false] {
                let options = || ReaderOptions { models, ..reader_options(1 << 20) };
                for (key, _) in model.keys().step_by(7) {
                    let lookup = Lookup::new(key, SeqNo::new(9));
                    let want = expected(&model, key, 9);
                    let shared = options();
                    let reader = open(&image, 1, &shared).unwrap();
                    let found = reader.get(&lookup).unwrap();
                    assert_eq!(found.map(|e| (e.trailer, e.value.to_vec())), want);
                    // What is known to be damaged is not read a second time.
                    let damages = shared.counters.snapshot().filter_unit_damages;
                    assert!(reader.get(&lookup).unwrap().is_some());
                    assert_eq!(shared.counters.snapshot().filter_unit_damages, damages);
                    let reader = open(&image, 1, &options()).unwrap();
                    let found = reader.multi_get(&[lookup]).unwrap().remove(0);
                    assert_eq!(found.map(|e| (e.trailer, e.value.to_vec())), want);
                }
            }
        }
    }
}

/// For a key that is not there the model may name another block than the index does.
#[test]
fn a_lookup_by_model_fails_only_where_one_by_the_index_does() {
    let vfs = SimVfs::new(1);
    let put = !pack_trailer(SeqNo::new(1), ValueKind::Put);
    let key = |at: u64| format!("{at:016}").into_bytes();
    let model: Model = (0..500).map(|at| ((key(at * 7), put), vec![at as u8; 12])).collect();
    // Filters would keep most lookups of absent keys away from the blocks.
    let filter = FilterPolicy::None;
    let options = SstOptions { block_size: 200, filter, ..SstOptions::default() };
    write(&vfs, 1, options, &model, RangeTombstones::default()).unwrap();
    let sound = open(&vfs, 1, &reader_options(1 << 20)).unwrap();
    assert!(sound.has_model());
    let (mut failed, mut saved) = (0, 0);
    for sector in 0..sound.properties().data_bytes / 200 {
        let image = vfs.kill_image();
        assert!(image.lose_sector(path(1), sector * 200..sector * 200 + 1));
        let by_model = open(&image, 1, &reader_options(1 << 20)).unwrap();
        let options = ReaderOptions { models: false, ..reader_options(1 << 20) };
        let by_index = open(&image, 1, &options).unwrap();
        for at in 0..3500 {
            let user_key = key(at);
            let alone = got(&by_model, &user_key, 9);
            let together = by_model.multi_get(&[Lookup::new(&user_key, SeqNo::new(9))]);
            match (&alone, together) {
                (Ok(alone), Ok(mut together)) => {
                    let found = together.remove(0).map(|e| (e.trailer, e.value.to_vec()));
                    assert_eq!(found, *alone, "{at} without sector {sector}");
                }
                (Err(_), Err(_)) => {}
                outcome => panic!("{at} without sector {sector}, alone and not: {outcome:?}"),
            }
            match (alone, got(&by_index, &user_key, 9)) {
                (Ok(found), Ok(want)) => assert_eq!(found, want),
                (Err(_), Err(_)) => failed += 1,
                // The model may know that the key is not there.
                (Ok(None), Err(_)) => saved += 1,
                outcome => panic!("{at} without sector {sector}: {outcome:?}"),
            }
        }
    }
    assert!(failed > 0 && saved < failed);
}

#[test]
fn a_file_of_another_number_or_length_is_refused() {
    let vfs = SimVfs::new(1);
    let model = small_model();
    let size = write(&vfs, 1, small_options(), &model, small_tombstones()).unwrap().size_bytes;
    let refused = |outcome: Result<Arc<SstReader>>| is_refusal(&outcome.err().unwrap());
    assert!(refused(open_at(&vfs, &path(1), 2, size)));
    assert!(refused(open_at(&vfs, &path(1), 1, size - 1)));
    assert!(refused(open_at(&vfs, &path(1), 1, size + 1)));
    for len in (0..size).rev() {
        assert!(vfs.truncate(path(1), len));
        assert!(refused(open_at(&vfs, &path(1), 1, size)));
        assert!(refused(open_at(&vfs, &path(1), 1, len)), "cut at {len}");
    }
}

#[test]
fn a_block_in_the_wrong_place_is_detected() {
    let vfs = SimVfs::new(1);
    let mut model = Model::new();
    for at in 0..200u32 {
        let trailer = !pack_trailer(SeqNo::new(1), ValueKind::Put);
        model.insert((format!("{at:04}").into_bytes(), trailer), vec![at as u8; 16]);
    }
    let options = SstOptions { compression: terrace_sst::Compression::None, ..small_options() };
    let none = RangeTombstones::default();
    let size = write(&vfs, 1, options.clone(), &model, none.clone()).unwrap().size_bytes;
    write(&vfs, 2, options, &model, none).unwrap();
    let intact = vfs.read_file(path(1)).unwrap();
    let reader = open_at(&vfs, &path(1), 1, size).unwrap();
    let middle = reader.approximate_offset(b"0100") as usize;

    // A data block of the same file moved over its neighbour.
    let mut moved = intact.clone();
    moved.copy_within(0..150, 150);
    assert!(vfs.write_file(path(1), &moved));
    let reader = open_at(&vfs, &path(1), 1, size).unwrap();
    assert!(reader.verify().unwrap_err().is_corruption());

    // The same place of another file with the same keys.
    let other = vfs.read_file(path(2)).unwrap();
    assert_eq!(other.len(), intact.len());
    let mut foreign = intact.clone();
    foreign[..middle].copy_from_slice(&other[..middle]);
    assert!(vfs.write_file(path(1), &foreign));
    let reader = open_at(&vfs, &path(1), 1, size).unwrap();
    assert!(got(&reader, b"0000", 5).unwrap_err().is_corruption());
    assert!(reader.verify().unwrap_err().is_corruption());
    // The rest of the file is as good as before.
    assert_eq!(got(&reader, b"0199", 5).unwrap(), expected(&model, b"0199", 5));
}

#[test]
fn a_failed_read_is_an_error_and_passes() {
    let vfs = SimVfs::new(1);
    let model = small_model();
    write(&vfs, 1, small_options(), &model, small_tombstones()).unwrap();
    for at in 0..12 {
        let reader = open(&vfs, 1, &reader_options(1 << 20)).unwrap();
        let kind = FaultKind::Eio;
        let at_op = vfs.op_count() + at;
        vfs.set_fault(Some(Fault { at_op, kind, forever: false, filter: Some(OpClass::Read) }));
        let mut failed = 0;
        for (key, _) in model.keys() {
            match got(&reader, key, 60) {
                Ok(answer) => assert_eq!(answer, expected(&model, key, 60)),
                Err(error) => {
                    assert!(!error.is_corruption());
                    failed += 1;
                }
            }
        }
        assert!(failed <= 1);
        vfs.set_fault(None);
        read_all(&reader, &model).unwrap();
    }
}

#[test]
fn a_full_disk_fails_the_writer() {
    let vfs = SimVfs::new(1);
    vfs.set_capacity_bytes(Some(500));
    let error = write(&vfs, 1, small_options(), &small_model(), small_tombstones()).unwrap_err();
    assert!(error.is_no_space());
}

#[test]
fn a_damaged_block_that_is_read_ahead_is_an_error_only_when_the_scan_comes_to_it() {
    let vfs = SimVfs::new(1);
    let put = !pack_trailer(SeqNo::new(1), ValueKind::Put);
    let key = |at: u32| format!("user{at:06}").into_bytes();
    let model: Model = (0..400).map(|at| ((key(at), put), vec![at as u8; 12])).collect();
    let options = SstOptions { compression: terrace_sst::Compression::None, ..small_options() };
    let size = write(&vfs, 1, options, &model, RangeTombstones::default()).unwrap().size_bytes;
    for offset in [600, 2000, 4000] {
        assert!(vfs.corrupt(path(1), offset, 1));
        let reader = open_at(&vfs, &path(1), 1, size).unwrap();
        let shown = |prefetch_blocks| {
            let scan = ScanOptions { fill_cache: false, prefetch_blocks, ..ScanOptions::default() };
            let mut iter = reader.iter(scan);
            let mut outcome = iter.seek_to_first();
            let mut shown = 0;
            while outcome.is_ok() && iter.valid() {
                assert_eq!(iter.user_key(), key(shown));
                shown += 1;
                outcome = iter.next();
            }
            assert!(outcome.is_err_and(|error| error.is_corruption()));
            shown
        };
        let without = shown(0);
        assert!(without > 5, "{without} entries come before the damage");
        for prefetch_blocks in [2, 8, 16] {
            assert_eq!(shown(prefetch_blocks), without);
        }
        assert!(vfs.corrupt(path(1), offset, 1));
    }
}
