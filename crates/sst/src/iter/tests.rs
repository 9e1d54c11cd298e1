//! What a cursor reads at the ends of a file, and what it keeps.

use super::*;
use crate::SstOptions;
use crate::test_files::{KEYS, file, file_in_memory, key};
use terrace_base::Error;

/// A file of [`KEYS`] keys with its model and all blocks in memory, and no index partition.
fn file_with_model() -> Arc<SstReader> {
    let reader = file_in_memory(b"");
    for place in reader.top.index() {
        reader.cache.remove(&reader.cache_key(place.handle));
    }
    assert!(reader.resident_model().is_some());
    reader
}

#[test]
fn a_step_off_either_end_reads_nothing_after_a_seek_by_the_model() {
    let reader = file_with_model();
    let options = ScanOptions { in_memory: true, ..ScanOptions::default() };
    let mut by_model = 0;
    for far in 0..8 {
        for (from, forward) in [(far, false), (KEYS - 1 - far, true)] {
            let mut iter = reader.iter(options);
            match iter.seek(&key(from), u64::MAX) {
                Ok(()) => by_model += 1,
                // The model does not prove where the first key of a block is.
                Err(Error::NotInMemory) => continue,
                Err(error) => panic!("{error}"),
            }
            for _ in 0..=far {
                assert!(iter.valid());
                let step = if forward { iter.next() } else { iter.prev() };
                step.unwrap();
            }
            assert!(!iter.valid(), "{far} from an end, forward: {forward}");
        }
    }
    assert!(by_model >= 10, "{by_model} of 16 seeks went by the model");
}

#[test]
fn a_seek_to_an_end_forgets_what_was_prepared() {
    let reader = file_with_model();
    let mut iter = reader.iter(ScanOptions::default());
    for seek in [SstIter::seek_to_first, SstIter::seek_to_last] {
        iter.prepare_seek(&key(KEYS / 2));
        assert!(iter.expected.guess.is_some());
        seek(&mut iter).unwrap();
        assert!(iter.valid() && iter.expected.guess.is_none());
    }
}

#[test]
fn a_cursor_that_moves_on_keeps_no_buffer_of_a_large_block() {
    const LARGE: usize = 8 << 20;
    for compression in [Compression::None, Compression::Lz4] {
        let options = SstOptions { compression, ..SstOptions::default() };
        let large = file(options.clone(), 1, &vec![7u8; LARGE]);
        let small = file(options, 3, b"small");
        let readahead_bytes = 16 << 10;
        let mut iter = large.iter(ScanOptions { readahead_bytes, ..ScanOptions::compaction() });
        let held = |iter: &SstIter| iter.window.bytes.capacity() + iter.unpacked.capacity();
        iter.seek_to_first().unwrap();
        assert!(iter.value().len() == LARGE && held(&iter) >= LARGE);
        let mut iter = iter.moved_to(small);
        assert!(held(&iter) <= readahead_bytes + MAX_KEPT_UNPACKED_BYTES);
        iter.seek_to_first().unwrap();
        assert_eq!(iter.value(), b"small");
    }
}
