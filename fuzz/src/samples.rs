//! SSTs, and metadata of files, as the crates' own writers make them: what targets and their seeds are made of.

use crate::sst_parts::FILE_NUMBER;
use std::path::Path;
use terrace_base::key::pack_trailer;
use terrace_base::{
    FileNumber, RangeTombstone, RangeTombstones, Rng, SegmentNumber, SeqNo, ValueHandle, ValueKind,
    ValueRef,
};
use terrace_manifest::FileMeta;
use terrace_sst::{Compression, FilterPolicy, SstOptions, SstWriter};
use terrace_vfs::SimVfs;

/// A file's metadata with the bounds `smallest` and `largest`.
pub fn file_meta(rng: &mut impl Rng, number: u64, smallest: &[u8], largest: &[u8]) -> FileMeta {
    let smallest_seqno = rng.below(500);
    FileMeta {
        number: FileNumber::new(number),
        size_bytes: 4096 + rng.below(1 << 20),
        smallest: smallest.to_vec(),
        largest: largest.to_vec(),
        largest_exclusive: false,
        smallest_seqno: SeqNo::new(smallest_seqno),
        largest_seqno: SeqNo::new(smallest_seqno + rng.below(100)),
        entry_count: 1000,
        tombstone_count: rng.below(10),
        range_tombstone_count: 0,
        raw_bytes: 10_000,
        created_ms: 1_700_000_000_000,
        ttl_due_ms: rng.one_in(2).then_some(1_800_000_000_000),
        value_refs: match rng.one_in(2) {
            true => vec![
                ValueRef { segment: SegmentNumber::new(2), bytes: rng.below(1 << 20) },
                ValueRef { segment: SegmentNumber::new(12), bytes: 4096 },
            ],
            false => Vec::new(),
        },
    }
}

/// SSTs of one block, with every feature of the format that one block can have.
pub fn small_ssts() -> Vec<Vec<u8>> {
    let mut files = Vec::new();
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let options = SstOptions { compression, ..SstOptions::default() };
        files.push(sst(&options, 40, 30, true));
    }
    let no_filter = SstOptions { filter: FilterPolicy::None, ..plain() };
    files.push(sst(&no_filter, 12, 7, false));
    files.push(sst(&plain(), 1, 9000, false));
    // A block that is padded to the end of a page.
    files.push(sst(&plain(), 1, 4030, false));
    files.push(bare_sst());
    files.push(bare_handles_sst());
    files
}

/// SSTs of many blocks and partitions.
pub fn large_ssts() -> Vec<Vec<u8>> {
    let small_blocks =
        SstOptions { block_size: 300, metadata_block_size: 200, ..SstOptions::default() };
    let one_partition = SstOptions { partitioned: false, ..small_blocks.clone() };
    let mut files = vec![sst(&small_blocks, 300, 20, true), sst(&one_partition, 200, 20, false)];
    let units = FilterPolicy::Bloom { bits_per_unit: 4.0, units: 3 };
    let paired = FilterPolicy::PairedBloom { bits_per_unit: 8.5, units: 2 };
    for filter in [FilterPolicy::Ribbon { columns: 5 }, units, paired] {
        files.push(sst(
            &SstOptions { filter, prefix_len: 4, ..small_blocks.clone() },
            120,
            20,
            false,
        ));
    }
    files
}

fn plain() -> SstOptions {
    SstOptions { compression: Compression::None, ..SstOptions::default() }
}

/// An SST with `keys` keys, some of them with several versions of every kind.
fn sst(options: &SstOptions, keys: usize, value_bytes: usize, tombstones: bool) -> Vec<u8> {
    write_sst(options, |writer| {
        for at in 0..keys {
            let key = format!("key{at:05}{}", if at % 5 == 0 { "-long" } else { "" });
            let value = vec![at as u8; value_bytes];
            if at % 4 == 1 {
                writer.add(
                    key.as_bytes(),
                    pack_trailer(SeqNo::new(900), ValueKind::Delete),
                    b"",
                )?;
            }
            if at % 4 == 2 {
                let expiring = [&1_900_000_000_000u64.to_le_bytes()[..], &value].concat();
                writer.add(
                    key.as_bytes(),
                    pack_trailer(SeqNo::new(800), ValueKind::PutTtl),
                    &expiring,
                )?;
            }
            let handle = ValueHandle {
                segment: SegmentNumber::new(at as u64 / 7),
                offset: 44,
                len: 99,
                compression: 1,
            };
            let handle = handle.encode();
            if at % 4 == 3 {
                let expiring = [&1_900_000_000_000u64.to_le_bytes()[..], &handle].concat();
                let trailer = pack_trailer(SeqNo::new(850), ValueKind::PutTtlHandle);
                writer.add(key.as_bytes(), trailer, &expiring)?;
                writer.add(
                    key.as_bytes(),
                    pack_trailer(SeqNo::new(840), ValueKind::PutHandle),
                    &handle,
                )?;
            }
            writer.add(
                key.as_bytes(),
                pack_trailer(SeqNo::new(at as u64), ValueKind::Put),
                &value,
            )?;
        }
        if tombstones {
            let tombstone = |start: &str, end: &str, seqno| RangeTombstone {
                start: start.into(),
                end: end.into(),
                seqno,
            };
            let list = [
                tombstone("key00003", "key00009", SeqNo::new(700)),
                tombstone("key00005", "key00007", SeqNo::new(750)),
                tombstone("zebra", "zoo", SeqNo::new(3)),
            ];
            writer.set_range_tombstones(RangeTombstones::new(list));
        }
        Ok(())
    })
}

fn write_sst(
    options: &SstOptions,
    fill: impl FnOnce(&mut SstWriter) -> terrace_base::Result<()>,
) -> Vec<u8> {
    let vfs = SimVfs::new(0);
    let path = Path::new("sst");
    let writer = SstWriter::create(&vfs, path, FILE_NUMBER, options.clone());
    let written = writer.and_then(|mut writer| {
        fill(&mut writer)?;
        writer.finish()
    });
    assert!(written.is_ok(), "{written:?}");
    vfs.read_file(path).unwrap_or_default()
}

/// An SST whose entries all have sequence number 0, with keys shorter than their heads.
fn bare_sst() -> Vec<u8> {
    write_sst(&plain(), |writer| {
        for key in
            [&b""[..], b"a", b"aa", b"aaaa", b"aaaab", b"b", b"\xff", b"\xff\xff\xff\xff\xff"]
        {
            writer.add(key, pack_trailer(SeqNo::ZERO, ValueKind::Put), key)?;
        }
        Ok(())
    })
}

/// An SST of separated values that all have sequence number 0: its block stores no trailers.
fn bare_handles_sst() -> Vec<u8> {
    write_sst(&plain(), |writer| {
        for at in 0..20u64 {
            let handle = ValueHandle {
                segment: SegmentNumber::new(at / 7),
                offset: 44 + 100 * at,
                len: 99,
                compression: 0,
            };
            let trailer = pack_trailer(SeqNo::ZERO, ValueKind::PutHandle);
            writer.add(format!("key{at:05}").as_bytes(), trailer, &handle.encode())?;
        }
        Ok(())
    })
}
