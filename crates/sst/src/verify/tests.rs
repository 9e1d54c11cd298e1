//! Files that say something else of themselves than what is in them, under right checksums.

use super::*;
use crate::test_files::{NUMBER, open, path};
use crate::{SstOptions, SstWriter};
use terrace_base::checksum::block_checksum;
use terrace_base::codec::put_varint;
use terrace_base::key::pack_trailer;
use terrace_base::{RangeTombstone, RangeTombstones};
use terrace_compression::Compression;
use terrace_vfs::SimVfs;

/// A file of keys `key 100` to `key 199`, with a range tombstone if one is given.
fn file(tombstone: Option<(&str, &str)>) -> SimVfs {
    let sim = SimVfs::new(1);
    let options = SstOptions { compression: Compression::None, ..SstOptions::default() };
    let mut writer = SstWriter::create(&sim, path(), NUMBER, options).unwrap();
    for n in 100..200 {
        let trailer = pack_trailer(SeqNo::new(7), ValueKind::Put);
        writer.add(format!("key {n}").as_bytes(), trailer, b"value").unwrap();
    }
    let tombstone = tombstone.map(|(start, end)| RangeTombstone {
        start: start.into(),
        end: end.into(),
        seqno: SeqNo::new(8),
    });
    writer.set_range_tombstones(RangeTombstones::new(tombstone));
    writer.finish().unwrap();
    open(&sim).unwrap().verify().unwrap();
    sim
}

/// Replaces bytes in a block that is not compressed, and gives it the checksum that fits.
fn replace(sim: &SimVfs, handle: BlockHandle, from: &[u8], to: &[u8]) -> SimVfs {
    assert_eq!(from.len(), to.len());
    let mut bytes = sim.read_file(path()).unwrap();
    let stored = &mut bytes[handle.offset as usize..][..handle.stored_len as usize];
    let (content, trailer) = stored.split_at_mut(handle.stored_len as usize - 5);
    let at = content.windows(from.len()).position(|window| window == from);
    let at = at.unwrap_or_else(|| panic!("{} is not there", from.escape_ascii()));
    content[at..at + to.len()].copy_from_slice(to);
    let sum = block_checksum(content, trailer[0], NUMBER, handle.offset);
    trailer[1..].copy_from_slice(&sum.to_le_bytes());
    let image = sim.kill_image();
    assert!(image.write_file(path(), bytes));
    image
}

#[test]
fn bounds_that_are_not_those_of_the_entries_are_damage() {
    let refuse = |sim: &SimVfs, from: &str, to: &str| {
        let properties = open(sim).unwrap().footer.properties;
        let image = replace(sim, properties, from.as_bytes(), to.as_bytes());
        let error = open(&image).unwrap().verify().unwrap_err();
        assert!(error.is_corruption(), "{error}");
    };
    let sim = file(None);
    for (from, to) in [("key 100", "key 099"), ("key 100", "key 101")] {
        refuse(&sim, from, to);
    }
    for (from, to) in [("key 199", "key 198"), ("key 199", "key 200")] {
        refuse(&sim, from, to);
    }
    // A tombstone that reaches over the entries is in the bounds.
    let sim = file(Some(("key 050", "key 250")));
    for (from, to) in [("key 050", "key 049"), ("key 050", "key 100")] {
        refuse(&sim, from, to);
    }
    for (from, to) in [("key 250", "key 251"), ("key 250", "key 199")] {
        refuse(&sim, from, to);
    }
}

#[test]
fn filters_of_an_unknown_kind_are_no_damage() {
    let sim = file(None);
    let reader = open(&sim).unwrap();
    let [place] = reader.top.filters() else { panic!("one filter partition") };
    let mut listed = Vec::new();
    put_varint(&mut listed, place.offset);
    listed.extend([place.shape.kind as u8, place.shape.seed, place.shape.unit_count]);
    let mut unknown = listed.clone();
    let kind = unknown.len() - 3;
    unknown[kind] = 99;
    let image = replace(&sim, reader.footer.top_level, &listed, &unknown);
    let reader = open(&image).unwrap();
    assert!(reader.top.filters().is_empty());
    let report = reader.verify().unwrap();
    assert_eq!((report.entries, report.filter_partitions), (100, 0));
}
