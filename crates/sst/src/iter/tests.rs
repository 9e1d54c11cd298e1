//! What a cursor reads at the ends of a file, what it keeps, and what it refuses.

use super::*;
use crate::block_handle::TRAILER_BYTES;
use crate::test_files::{KEYS, NUMBER, file, file_in_memory, key, open, path};
use crate::{SstOptions, SstWriter, Stamp};
use terrace_base::checksum::block_checksum;
use terrace_base::key::{pack_trailer, seek_trailer};
use terrace_base::{Rng, SeqNo, SplitMix64, ValueKind};
use terrace_vfs::SimVfs;

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

#[test]
fn a_cursor_that_has_passed_a_large_block_keeps_no_buffer_of_it() {
    const LARGE: usize = 8 << 20;
    // Content that is compressed, and content that is not, behind one that is.
    let noise: Vec<u8> = {
        let mut rng = SplitMix64::new(1);
        (0..3000).map(|_| rng.next_u64() as u8).collect()
    };
    for (compression, small) in [
        (Compression::None, &noise),
        (Compression::Lz4, &noise),
        (Compression::Lz4, &vec![7; 3000]),
    ] {
        let sim = SimVfs::new(1);
        let options = SstOptions { compression, ..SstOptions::default() };
        let mut writer = SstWriter::create(&sim, path(), NUMBER, options).unwrap();
        let large = vec![7; LARGE];
        for at in 0..40 {
            let value = if at == 1 { &large } else { small };
            writer.add(&key(at), pack_trailer(SeqNo::new(7), ValueKind::Put), value).unwrap();
        }
        writer.finish().unwrap();
        let readahead_bytes = 16 << 10;
        let options = ScanOptions { readahead_bytes, ..ScanOptions::compaction() };
        let mut iter = open(&sim).unwrap().iter(options);
        let held = |iter: &SstIter| iter.window.bytes.capacity() + iter.unpacked.capacity();
        iter.seek(&key(1), u64::MAX).unwrap();
        assert!(iter.value().len() == LARGE && held(&iter) >= LARGE);
        // Whatever was read with the large block has been left behind by then.
        for at in 2..40 {
            iter.next().unwrap();
            assert!(iter.valid() && iter.value() == small.as_slice(), "{at}");
        }
        let most = readahead_bytes + MAX_KEPT_UNPACKED_BYTES;
        assert!(held(&iter) <= most, "{compression:?}: {}", held(&iter));
    }
}

/// A file of some blocks, none of them compressed, without a learned index.
fn small_blocks() -> SimVfs {
    let sim = SimVfs::new(1);
    let (compression, learning) = (Compression::None, false);
    let options = SstOptions { block_size: 512, compression, learning, ..SstOptions::default() };
    let mut writer = SstWriter::create(&sim, path(), NUMBER, options).unwrap();
    for at in 0..200 {
        writer.add(&key(at), pack_trailer(SeqNo::new(7), ValueKind::Put), b"value").unwrap();
    }
    writer.finish().unwrap();
    sim
}

fn place_of(handle: BlockHandle) -> Range<usize> {
    let start = handle.offset as usize;
    start..start + handle.stored_len as usize
}

/// Gives a block the checksum that fits.
fn seal(bytes: &mut [u8], handle: BlockHandle) {
    let stored = &mut bytes[place_of(handle)];
    let (content, trailer) = stored.split_at_mut(handle.stored_len as usize - TRAILER_BYTES);
    let sum = block_checksum(content, trailer[0], NUMBER, handle.offset);
    trailer[1..].copy_from_slice(&sum.to_le_bytes());
}

/// The file of [`small_blocks`] with other bytes.
fn changed(change: impl FnOnce(&SstReader, &mut Vec<u8>)) -> Arc<SstReader> {
    let sim = small_blocks();
    let mut bytes = sim.read_file(path()).unwrap();
    change(&open(&sim).unwrap(), &mut bytes);
    let image = sim.kill_image();
    assert!(image.write_file(path(), bytes));
    open(&image).unwrap()
}

/// What a cursor that goes on gets at last.
fn error_of(iter: &mut SstIter, step: fn(&mut SstIter) -> Result<()>) -> Error {
    for _ in 0..1000 {
        match step(iter) {
            Ok(()) => assert!(iter.valid(), "the end of the file"),
            Err(error) => return error,
        }
    }
    panic!("it goes on for ever");
}

#[test]
fn blocks_that_have_changed_places_are_damage_from_both_sides() {
    let reader = changed(|reader, bytes| {
        let index = reader.index_partition(0, OnMiss::Read).unwrap();
        let pair = |at: usize| [index.handle(at), index.handle(at + 1)];
        let [left, right] = (1..index.count() - 2)
            .map(pair)
            .find(|[left, right]| left.stored_len == right.stored_len)
            .unwrap();
        let (in_left, in_right) = (bytes[place_of(left)].to_vec(), bytes[place_of(right)].to_vec());
        bytes[place_of(left)].copy_from_slice(&in_right);
        bytes[place_of(right)].copy_from_slice(&in_left);
        seal(bytes, left);
        seal(bytes, right);
    });
    for options in [ScanOptions::default(), ScanOptions::compaction()] {
        let mut iter = reader.iter(options);
        iter.seek_to_first().unwrap();
        let error = error_of(&mut iter, SstIter::next);
        assert!(error.is_corruption() && !iter.valid(), "{error}");
        iter.seek_to_last().unwrap();
        let error = error_of(&mut iter, SstIter::prev);
        assert!(error.is_corruption() && !iter.valid(), "{error}");
        iter.seek(&key(1), u64::MAX).unwrap();
        assert_eq!(iter.user_key(), key(1));
    }
}

/// The cursor would come to a stand behind where it was to be.
#[test]
fn a_separator_below_keys_of_its_block_is_damage_for_a_seek_backward() {
    let reader = changed(|reader, bytes| {
        let handle = reader.top.index()[0].handle;
        let index = reader.index_partition(0, OnMiss::Read).unwrap();
        let (separator, skipped) = (index.separator(0), index.prefix().len());
        // The head of a separator is a number; where it is shorter, it is padded with zeros.
        let kept = (separator.len() - skipped).min(HEAD_BYTES);
        let head = |key: &[u8]| {
            let mut head = [0; HEAD_BYTES];
            head[..kept].copy_from_slice(&key[skipped..skipped + kept]);
            u32::from_be_bytes(head).to_le_bytes()
        };
        let (before, after) = (head(&separator), head(&key(2)));
        let stored = &mut bytes[place_of(handle)];
        let at = stored.windows(HEAD_BYTES).position(|window| window == before).unwrap();
        stored[at..at + HEAD_BYTES].copy_from_slice(&after);
        seal(bytes, handle);
    });
    let mut iter = reader.iter(ScanOptions::default());
    let error = iter.seek_before(&key(5), u64::MAX).unwrap_err();
    assert!(error.is_corruption() && !iter.valid(), "{error}");
}

/// A merge of such a file with others would wait for ever for the seek that comes to its target.
#[test]
fn a_seek_passes_all_versions_of_an_ingested_key_that_are_too_new() {
    let sim = SimVfs::new(1);
    let mut writer = SstWriter::create(&sim, path(), NUMBER, SstOptions::default()).unwrap();
    // Nothing but ingestion itself refuses a file with several.
    for kind in [ValueKind::Merge, ValueKind::Put, ValueKind::Delete] {
        writer.add(b"k", pack_trailer(SeqNo::ZERO, kind), b"").unwrap();
    }
    writer.add(b"m", pack_trailer(SeqNo::ZERO, ValueKind::Put), b"").unwrap();
    let (seqno, flushed_seqno) = (SeqNo::new(9), SeqNo::ZERO);
    let stamp = Stamp { seqno, flushed_seqno, family: None, created_ms: 0 };
    writer.finish_body().unwrap().finish(Some(stamp)).unwrap();
    let mut iter = open(&sim).unwrap().iter(ScanOptions::default());
    for (seqno, key) in [(8, b"m"), (9, b"k")] {
        iter.seek(b"k", seek_trailer(SeqNo::new(seqno))).unwrap();
        assert_eq!(iter.user_key(), key, "{seqno}");
    }
}
