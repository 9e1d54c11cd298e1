//! The format, pinned: small files and their annotated dumps. `UPDATE=1` rewrites the dumps; a
//! difference without a new format version is a mistake.

use crate::files::*;
use std::path::PathBuf;
use terrace_base::key::pack_trailer;
use terrace_base::{
    FileNumber, RangeTombstone, RangeTombstones, SegmentNumber, SeqNo, ValueHandle, ValueKind,
};
use terrace_sst::{Compression, DumpDetail, SstOptions, dump};
use terrace_vfs::{OpenMode, SimVfs, Vfs};

/// Length of the last value.
const WIDE_BYTES: usize = 3229;

pub fn golden_model() -> Model {
    let mut model = Model::new();
    let mut add = |key: &str, seqno, kind, value: &[u8]| {
        model.insert((key.as_bytes().to_vec(), !pack_trailer(seqno, kind)), value.to_vec());
    };
    add("", SeqNo::new(3), ValueKind::Put, b"the empty key");
    add("fig", SeqNo::ZERO, ValueKind::Put, b"no trailer differs");
    for at in 0..12u64 {
        add(
            &format!("terrace/{at:02}"),
            SeqNo::new(at + 10),
            ValueKind::Put,
            format!("field {at}").as_bytes(),
        );
    }
    add("terrace/05", SeqNo::new(40), ValueKind::Delete, b"");
    let expiring = [&1_700_000_000_000u64.to_le_bytes()[..], b"water"].concat();
    add("terrace/05", SeqNo::new(30), ValueKind::PutTtl, &expiring);
    add("terrace/valley", SeqNo::new(50), ValueKind::Put, &[b'v'; 300]);
    // Its block reaches nearly to the end of a page, uncompressed.
    add("terrace/wide", SeqNo::new(51), ValueKind::Put, &[b'w'; WIDE_BYTES]);
    model
}

pub fn golden_tombstones() -> RangeTombstones {
    let (start, end) = (b"terrace/03".to_vec(), b"terrace/07".to_vec());
    RangeTombstones::new([RangeTombstone { start, end, seqno: SeqNo::new(25) }])
}

pub fn golden_options(compression: Compression) -> SstOptions {
    SstOptions {
        block_size: 200,
        metadata_block_size: 200,
        compression,
        created_ms: 1_700_000_000_000,
        ..SstOptions::default()
    }
}

/// Separated values that all readers see, of which blocks store no trailers since version 4.
fn bare_handles() -> Model {
    let entry = |at: u32| {
        let handle = ValueHandle {
            segment: SegmentNumber::new(7 + u64::from(at / 4)),
            offset: 44 + 3000 * u64::from(at),
            len: 2048 + at,
            compression: (at % 3) as u8,
        };
        let trailer = pack_trailer(SeqNo::ZERO, ValueKind::PutHandle);
        ((format!("terrace/{at:02}").into_bytes(), !trailer), handle.encode().to_vec())
    };
    (0..6).map(entry).collect()
}

/// Writes file 12; its dump.
fn written(
    vfs: &SimVfs,
    compression: Compression,
    model: &Model,
    tombstones: RangeTombstones,
) -> String {
    write(vfs, 12, golden_options(compression), model, tombstones).unwrap();
    let file = vfs.open(&path(12), OpenMode::default()).unwrap();
    let mut text = String::new();
    dump(&*file, Some(FileNumber::new(12)), DumpDetail::Entries, &mut text).unwrap();
    assert!(!text.contains('!'), "{text}");
    text
}

/// Compares a dump with the one that is kept under `name`, or keeps it.
fn check_golden(name: &str, text: &str) {
    let name = format!("tests/golden/{name}.sst.txt");
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&golden, text).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap();
    assert!(text == expected, "the dump differs from {}:\n{text}", golden.display());
}

#[test]
fn the_format_is_what_the_golden_dumps_say() {
    for compression in [Compression::None, Compression::Lz4] {
        let text = written(&SimVfs::new(1), compression, &golden_model(), golden_tombstones());
        check_golden(&format!("small-{}", compression.name()), &text);
    }
}

#[test]
fn a_block_of_separated_values_without_trailers_is_what_the_golden_dump_says() {
    const FLAGS_AT: usize = 6;
    let vfs = SimVfs::new(1);
    let text = written(&vfs, Compression::None, &bare_handles(), RangeTombstones::default());
    assert_eq!(vfs.read_file(path(12)).unwrap()[FLAGS_AT], 4, "{text}");
    check_golden("handles-none", &text);
}
