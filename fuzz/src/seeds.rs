//! What the mutator starts from: bytes that the crates' own writers make, for every target.
//!
//! A target takes every seed of its own for sound (a test says so): a mutant of a seed gets past
//! the first checks, where arbitrary bytes would not.

use crate::log::SEGMENT;
use crate::manifest::{DIR, NUMBER, first_record, write_manifest};
use crate::samples::{file_meta, large_ssts, small_ssts};
use crate::sst_parts::{Parts, learned_index, one_block_model};
use crate::value::with_right_batch;
use crate::{dump, inspect, resp, server, store};
use std::path::Path;
use terrace_base::{FileNumber, SegmentNumber, SeqNo, SplitMix64, ValueHandle};
use terrace_inspect::batch::PayloadPlace;
use terrace_log::value::ValueWriter;
use terrace_log::{LogOptions, LogPosition, LogWriter};
use terrace_manifest::codec::{decode_record, encode_edit};
use terrace_manifest::{FamilyEdit, SegmentKind, SegmentMeta, VersionEdit, current, names};
use terrace_sst::Compression;
use terrace_vfs::SimVfs;

/// The seeds of the target called `name`; none if there is no such target.
pub fn of(name: &str) -> Vec<Vec<u8>> {
    let parts = |part: fn(Parts) -> Option<Vec<u8>>| {
        let split = small_ssts().into_iter().filter_map(|file| part(Parts::split(&file)?));
        split.collect()
    };
    match name {
        "log_segment" => segments(),
        "inspect_log" => vec![batch_segment()],
        "log_recovery" => two_segments(),
        "value_segment" => vec![value_segment().0],
        "value_read" => value_reads(),
        "sst_file" | "inspect_sst" => [small_ssts(), large_ssts()].concat(),
        "sst_block" => parts(|parts| Some([&[parts.block.0], &parts.block.1[..]].concat())),
        "index_partition" => parts(|parts| Some(parts.index)),
        "learned_index" => parts(|parts: Parts| {
            let model = one_block_model();
            let whole = learned_index(&model, parts.stored_block_bytes());
            Some([&[0], &whole[..]].concat())
        })
        .into_iter()
        .chain([[&[1], &one_block_model()[..]].concat()])
        .collect(),
        "filter_partition" => parts(|parts| parts.filter),
        "range_tombstones" => parts(|parts| parts.tombstones),
        "top_level" => parts(|parts| Some(parts.top_level)),
        "properties" => parts(|parts| Some(parts.properties)),
        "footer" => parts(|parts| Some(parts.footer)),
        "manifest_file" | "inspect_manifest" => vec![manifest()],
        "version_edit" => edits(),
        "current_file" => vec![current::encode(NUMBER).into_bytes()],
        // The newest ones: the others are alike.
        "batch" | "inspect_batch" => store::batches().into_iter().rev().take(6).collect(),
        "inspect_store" => vec![template_manifest()],
        "dump" => dump::seeds(),
        "resp_request" => resp::request_seeds(),
        "resp_reply" => resp::reply_seeds(),
        "server" => server::command_seeds(),
        "canary" => vec![b"TERRACE\n".to_vec()],
        _ => Vec::new(),
    }
}

fn segment(
    number: SegmentNumber,
    payloads: &[&[u8]],
    synced: bool,
    preallocate_bytes: u64,
) -> Vec<u8> {
    let vfs = SimVfs::new(0);
    let path = Path::new("segment");
    let options = LogOptions { preallocate_bytes, ..LogOptions::default() };
    let written = LogWriter::create(&vfs, path, number, &options).and_then(|mut writer| {
        for (at, payload) in payloads.iter().enumerate() {
            if synced && at % 2 == 1 {
                let offset = writer.len_bytes();
                writer.note_synced(LogPosition { segment: number, offset });
            }
            // A payload that is no batch stays as it is.
            let place = PayloadPlace { segment: number, offset: writer.next_payload_offset() };
            writer.append(&[&with_right_batch(payload, place)])?;
        }
        writer.sync()
    });
    assert!(written.is_ok(), "{written:?}");
    vfs.read_file(path).unwrap_or_default()
}

fn segments() -> Vec<Vec<u8>> {
    let long = [b'x'; 300];
    vec![
        segment(SEGMENT, &[], false, 0),
        segment(SEGMENT, &[b"one", b"", b"three"], false, 0),
        segment(SEGMENT, &[b"a", &long, b"b", &long, b"c"], true, 0),
        segment(SEGMENT, &[b"in reserved room", b"more"], true, 4096),
    ]
}

/// A segment of the commit log: the inspector knows what its payloads mean.
fn batch_segment() -> Vec<u8> {
    let batches = store::batches();
    let last: Vec<_> = batches.iter().rev().take(6).rev().map(Vec::as_slice).collect();
    segment(SEGMENT, &last, true, 0)
}

/// A segment of values in every compression, their keys and their handles.
fn value_segment() -> (Vec<u8>, Vec<(Vec<u8>, ValueHandle)>) {
    let vfs = SimVfs::new(0);
    let path = Path::new("values");
    let mut handles = Vec::new();
    let written = ValueWriter::create(&vfs, path, SEGMENT, 0).and_then(|mut writer| {
        for (at, compression) in
            [Compression::None, Compression::Lz4, Compression::Zstd].into_iter().enumerate()
        {
            for len in [0, 1, 300] {
                let (key, mut stored) = (format!("key{at}").into_bytes(), Vec::new());
                let stored_as =
                    terrace_compression::compress(&vec![at as u8; len], compression, &mut stored);
                let handle = writer.add(&key, &stored, stored_as as u8)?;
                handles.push((key, handle));
            }
        }
        writer.finish()
    });
    assert!(written.is_ok(), "{written:?}");
    (vfs.read_file(path).unwrap_or_default(), handles)
}

/// Handle, key length, key, file: what `value::read` takes.
fn value_reads() -> Vec<Vec<u8>> {
    let (file, handles) = value_segment();
    let seed = |(key, handle): &(Vec<u8>, ValueHandle)| {
        [&handle.encode()[..], &[key.len() as u8], key, &file].concat()
    };
    handles.iter().map(seed).collect()
}

/// Cut, previous end, first segment, second segment: what `log::recovery` takes.
fn two_segments() -> Vec<Vec<u8>> {
    let first = segment(SEGMENT, &[b"one", b"two", b"three"], true, 0);
    let second = segment(SEGMENT.next(), &[b"four", b"five"], true, 0);
    let len = (first.len() as u32).to_le_bytes();
    vec![[&len, &len, &first[..], &second[..]].concat()]
}

/// Edits that fit the state that [`first_record`] makes.
fn edits() -> Vec<Vec<u8>> {
    let mut rng = SplitMix64::new(2);
    let default = FamilyEdit {
        id: 0,
        min_log_segment: Some(SegmentNumber::new(6)),
        flushed_seqno: Some(SeqNo::new(200)),
        added: vec![
            (6, file_meta(&mut rng, 8, b"a", b"f")),
            (6, file_meta(&mut rng, 9, b"g", b"z")),
        ],
        removed: vec![(6, FileNumber::new(5))],
        ..FamilyEdit::default()
    };
    let created = FamilyEdit { id: 2, create: Some("third".into()), ..FamilyEdit::default() };
    let dropped = FamilyEdit { id: 1, drop: true, ..FamilyEdit::default() };
    let options = Some("filter=ribbon:16;learning=off".into());
    let optioned = FamilyEdit { id: 1, options, ..FamilyEdit::default() };
    let edits = [
        VersionEdit::default(),
        VersionEdit {
            next_file_number: Some(FileNumber::new(30)),
            last_seqno: Some(SeqNo::new(2000)),
            families: vec![default],
            filter_heat: Some(vec![1, 0, 1, 9, 2, 200, 100].into()),
            segments_added: vec![segment_meta(2, SegmentKind::CommitLog)],
            ..VersionEdit::default()
        },
        VersionEdit {
            segments_added: vec![segment_meta(12, SegmentKind::Values)],
            ..VersionEdit::default()
        },
        VersionEdit { families: vec![optioned], ..VersionEdit::default() },
        VersionEdit { families: vec![dropped, created], ..VersionEdit::default() },
    ];
    let encode = |edit: &VersionEdit| {
        let mut payload = Vec::new();
        encode_edit(edit, &mut payload);
        payload
    };
    edits.iter().map(encode).collect()
}

fn segment_meta(number: u64, kind: SegmentKind) -> SegmentMeta {
    SegmentMeta { number: SegmentNumber::new(number), kind, size_bytes: 64 << 20 }
}

fn manifest() -> Vec<u8> {
    let vfs = SimVfs::new(0);
    let dir = Path::new(DIR);
    let (first, edits) = (first_record(), edits());
    let mut records = vec![&first[..]];
    records.extend(edits.iter().filter(|edit| decode_record(edit).is_ok()).map(Vec::as_slice));
    write_manifest(&vfs, dir, &records);
    vfs.read_file(names::manifest_path(dir, NUMBER)).unwrap_or_default()
}

/// The manifest in force of the template store.
fn template_manifest() -> Vec<u8> {
    let vfs = store::template_image();
    let dir = Path::new(DIR);
    let number = inspect::in_force(&vfs, dir).unwrap_or(NUMBER);
    vfs.read_file(names::manifest_path(dir, number)).unwrap_or_default()
}
