//! Entries whose values lie in the value log: kept as handles, counted by segment.

use crate::files::*;
use std::collections::BTreeMap;
use terrace_base::MAX_SEQNO;
use terrace_base::key::pack_trailer;
use terrace_base::{
    Error, FileNumber, RangeTombstones, Rng, SegmentNumber, SeqNo, SplitMix64, ValueHandle,
    ValueKind, ValueRef,
};
use terrace_sst::{DumpDetail, SstOptions, SstWriter, dump};
use terrace_vfs::{OpenMode, SimVfs, Vfs};

const EXPIRY_MS: u64 = 1_800_000_000_000;

/// A handle as an entry of `kind` stores it.
fn stored(kind: ValueKind, handle: &ValueHandle) -> Vec<u8> {
    let expiry = if kind.expires() { EXPIRY_MS.to_le_bytes().to_vec() } else { Vec::new() };
    [&expiry[..], &handle.encode()].concat()
}

/// Entries of every kind, and what they refer to.
fn entries(rng: &mut SplitMix64, count: u64) -> (Model, Vec<ValueRef>) {
    let (mut model, mut refs) = (Model::new(), BTreeMap::<SegmentNumber, u64>::new());
    for at in 0..count {
        let key = format!("key {at:05}").into_bytes();
        let kind = [ValueKind::Put, ValueKind::PutHandle, ValueKind::PutTtlHandle][at as usize % 3];
        let handle = ValueHandle {
            segment: SegmentNumber::new(rng.below(5) + 7),
            offset: rng.below(1 << 30),
            len: rng.below(1 << 16) as u32,
            compression: rng.below(3) as u8,
        };
        let value = match kind.is_handle() {
            true => {
                *refs.entry(handle.segment).or_default() += handle.weight_bytes(key.len());
                stored(kind, &handle)
            }
            false => b"inline".to_vec(),
        };
        model.insert((key, !pack_trailer(SeqNo::new(at + 1), kind)), value);
    }
    (model, refs.into_iter().map(|(segment, bytes)| ValueRef { segment, bytes }).collect())
}

#[test]
fn handles_are_kept_and_counted_by_segment() {
    let vfs = SimVfs::new(0);
    let (model, refs) = entries(&mut SplitMix64::new(7), 2000);
    let options = SstOptions { block_size: 512, ..SstOptions::default() };
    let summary = write(&vfs, 12, options, &model, RangeTombstones::default()).unwrap();
    assert_eq!(summary.value_refs, refs);
    // Two entries in three expire at the same time, and their bytes are more than 30 % of all.
    assert_eq!(summary.ttl_due_ms, Some(EXPIRY_MS));
    let reader = open(&vfs, 12, &reader_options(1 << 20)).unwrap();
    assert_eq!(reader.properties().value_refs, refs);
    assert_eq!(reader.verify().unwrap().entries, 2000);
    for (key, _) in model.keys().step_by(97) {
        assert_eq!(
            got(&reader, key, MAX_SEQNO.get()).unwrap(),
            expected(&model, key, MAX_SEQNO.get())
        );
    }
}

#[test]
fn a_file_without_handles_says_nothing_of_them() {
    let vfs = SimVfs::new(0);
    let model = Model::from([(
        (b"k".to_vec(), !pack_trailer(SeqNo::new(1), ValueKind::Put)),
        b"v".to_vec(),
    )]);
    let summary = write(&vfs, 1, SstOptions::default(), &model, RangeTombstones::default());
    assert_eq!(summary.unwrap().value_refs, []);
    let reader = open(&vfs, 1, &reader_options(1 << 20)).unwrap();
    assert_eq!(reader.properties().value_refs, []);
}

#[test]
fn handles_of_another_length_are_refused() {
    let vfs = SimVfs::new(0);
    let mut writer =
        SstWriter::create(&vfs, &path(1), FileNumber::new(1), SstOptions::default()).unwrap();
    let handle = ValueHandle { segment: SegmentNumber::new(1), offset: 44, len: 9, compression: 0 };
    for kind in [ValueKind::PutHandle, ValueKind::PutTtlHandle] {
        let value = stored(kind, &handle);
        for wrong in [&value[1..], &[&value[..], b"x"].concat(), b""] {
            let refused = writer.add(b"k", pack_trailer(SeqNo::new(1), kind), wrong);
            assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{kind:?} {wrong:?}");
        }
    }
    writer.add(b"k", pack_trailer(SeqNo::new(1), ValueKind::PutHandle), &handle.encode()).unwrap();
    assert_eq!(
        writer.finish().unwrap().value_refs,
        [ValueRef { segment: SegmentNumber::new(1), bytes: 14 }]
    );
}

#[test]
fn a_dump_shows_where_values_lie() {
    let vfs = SimVfs::new(0);
    let plain =
        ValueHandle { segment: SegmentNumber::new(7), offset: 4711, len: 2048, compression: 0 };
    let packed =
        ValueHandle { segment: SegmentNumber::new(8), offset: 44, len: 100, compression: 1 };
    let entry = |key: &[u8], kind, handle| {
        ((key.to_vec(), !pack_trailer(SeqNo::new(1), kind)), stored(kind, handle))
    };
    let model = Model::from([
        entry(b"a", ValueKind::PutHandle, &plain),
        entry(b"b", ValueKind::PutTtlHandle, &packed),
    ]);
    write(&vfs, 12, SstOptions::default(), &model, RangeTombstones::default()).unwrap();
    let file = vfs.open(&path(12), OpenMode::default()).unwrap();
    let mut text = String::new();
    dump(&*file, Some(FileNumber::new(12)), DumpDetail::Entries, &mut text).unwrap();
    for line in [
        "\"a\" @ 1 PutHandle = 7:4711+2048\n",
        "\"b\" @ 1 PutTtlHandle = until 1800000000000 8:44+100 lz4\n",
        "value segment 7: 2053 bytes\n",
        "value segment 8: 105 bytes\n",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
