//! The format, pinned: a small file and its annotated dump. `UPDATE=1` rewrites the dump; a
//! difference without a new format version is a mistake.

use crate::files::*;
use std::path::PathBuf;
use terrace_base::key::pack_trailer;
use terrace_base::{FileNumber, RangeTombstone, RangeTombstones, SeqNo, ValueKind};
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

fn golden_dump(compression: Compression) -> String {
    let vfs = SimVfs::new(1);
    write(&vfs, 12, golden_options(compression), &golden_model(), golden_tombstones()).unwrap();
    let file = vfs.open(&path(12), OpenMode::default()).unwrap();
    let mut text = String::new();
    dump(&*file, Some(FileNumber::new(12)), DumpDetail::Entries, &mut text).unwrap();
    assert!(!text.contains('!'), "{text}");
    text
}

#[test]
fn the_format_is_what_the_golden_dumps_say() {
    for compression in [Compression::None, Compression::Lz4] {
        let text = golden_dump(compression);
        let name = format!("tests/golden/small-{}.sst.txt", compression.name());
        let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&golden, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&golden).unwrap();
        assert!(text == expected, "the dump differs from {}:\n{text}", golden.display());
    }
}
