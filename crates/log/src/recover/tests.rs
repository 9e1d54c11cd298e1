//! Crash images, damage at every byte, truncation at every length, misplaced records.

use super::*;
use crate::format::{RecordType, encode_marker, record_header, segment_seed};
use crate::{LogOptions, LogWriter};
use std::sync::Arc;
use terrace_base::{Rng, SegmentNumber, SplitMix64};
use terrace_vfs::{Fault, FaultKind, SimVfs};

const DIR: &str = "/log";

const ONE: SegmentNumber = SegmentNumber::new(1);
const TWO: SegmentNumber = SegmentNumber::new(2);
const THREE: SegmentNumber = SegmentNumber::new(3);
const FOUR: SegmentNumber = SegmentNumber::new(4);
const NINE: SegmentNumber = SegmentNumber::new(9);

fn path(segment: SegmentNumber) -> PathBuf {
    Path::new(DIR).join(format!("{segment:06}.log"))
}

fn vfs() -> SimVfs {
    let vfs = SimVfs::new(1);
    vfs.create_dir_all(Path::new(DIR)).unwrap();
    vfs
}

fn listed(vfs: &SimVfs) -> Vec<SegmentFile> {
    let mut names = vfs.list(Path::new(DIR)).unwrap();
    names.sort();
    names
        .iter()
        .map(|name| SegmentFile {
            number: name.trim_end_matches(".log").parse().unwrap(),
            path: Path::new(DIR).join(name),
        })
        .collect()
}

/// Recovers all segments that exist: what was found, and the payloads.
fn replay(vfs: &SimVfs) -> Result<(Recovered, Vec<Vec<u8>>)> {
    let mut payloads = Vec::new();
    let recovered = recover(vfs, &listed(vfs), &mut |_, _, payload| {
        payloads.push(payload.to_vec());
        Ok(())
    })?;
    assert_eq!(recovered.records as usize, payloads.len());
    Ok((recovered, payloads))
}

/// The payload of record `number`: recognizable, and of a length that varies.
fn payload(number: u64) -> Vec<u8> {
    let mut rng = SplitMix64::new(number);
    let len = if rng.one_in(40) { 5000 } else { rng.below(120) } as usize;
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend((0..len).map(|_| rng.next_u64() as u8));
    bytes
}

/// What a run of the log's user believes.
#[derive(Default)]
struct Model {
    appended: u64,
    synced: u64,
    /// Set when an operation failed: from there nothing is promised.
    failed: bool,
}

/// A user of the log: appends, syncs, rotates, all at random, from record `model.appended` on.
/// Follows the rules of the log: directory synced after a create, the old segment synced before
/// the first sync of the new one, links.
fn run(
    vfs: &SimVfs,
    rng: &mut SplitMix64,
    model: &mut Model,
    first: SegmentNumber,
    after: Option<LogPosition>,
) {
    let options = LogOptions {
        preallocate_bytes: rng.below(3) * 4096,
        buffered: rng.one_in(3),
        ..LogOptions::default()
    };
    let mut segment = first;
    let mut outcome = || -> Result<()> {
        let mut writer = LogWriter::create_after(vfs, &path(segment), segment, &options, after)?;
        vfs.sync_dir(Path::new(DIR))?;
        for _ in 0..rng.below(60) {
            match rng.below(10) {
                0..6 => {
                    let payloads: Vec<_> =
                        (0..1 + rng.below(3)).map(|at| payload(model.appended + at)).collect();
                    let slices: Vec<_> = payloads.iter().map(Vec::as_slice).collect();
                    // Counted before it is known to have worked: any part of it may survive.
                    model.appended += slices.len() as u64;
                    writer.append(&slices)?;
                }
                6..8 => {
                    writer.sync()?;
                    model.synced = model.appended;
                }
                8 => writer.flush()?,
                _ => {
                    // The rotation syncs, or leaves the old segment to the link.
                    if rng.one_in(2) {
                        writer.sync()?;
                        model.synced = model.appended;
                        writer.append(&[])?;
                    }
                    writer.finish()?;
                    let end = writer.end();
                    let mut old = writer;
                    segment += 1 + rng.below(3);
                    writer =
                        LogWriter::create_after(vfs, &path(segment), segment, &options, Some(end))?;
                    vfs.sync_dir(Path::new(DIR))?;
                    if rng.one_in(2) {
                        old.sync()?;
                        writer.note_synced(end);
                    } else {
                        // Unsynced for good: nothing after it may be called durable.
                        for _ in 0..rng.below(4) {
                            model.appended += 1;
                            writer.append(&[&payload(model.appended - 1)])?;
                        }
                        old.sync()?;
                    }
                }
            }
        }
        Ok(())
    };
    model.failed = outcome().is_err();
}

fn check_prefix(payloads: &[Vec<u8>], model: &Model, context: &str) {
    for (at, found) in payloads.iter().enumerate() {
        assert_eq!(*found, payload(at as u64), "{context}: record {at}");
    }
    let count = payloads.len() as u64;
    assert!(count >= model.synced, "{context}: {count} recovered, {} synced", model.synced);
    assert!(count <= model.appended, "{context}: {count} recovered of {}", model.appended);
}

#[test]
fn after_a_crash_at_any_operation_a_prefix_with_all_that_was_synced_is_recovered() {
    let mut torn = 0;
    for seed in 0..250 {
        let whole = vfs();
        run(&whole, &mut SplitMix64::new(seed), &mut Model::default(), ONE, None);
        let mut pick = SplitMix64::new(!seed);
        for _ in 0..4 {
            let vfs = vfs();
            let start = vfs.op_count();
            vfs.crash_after(start + pick.below(whole.op_count() - start + 1));
            let mut model = Model::default();
            run(&vfs, &mut SplitMix64::new(seed), &mut model, SegmentNumber::new(1), None);
            for image_seed in 0..3 {
                let image = vfs.crash_image(image_seed);
                let context = format!("seed {seed} image {image_seed}");
                let (recovered, payloads) = replay(&image).expect(&context);
                check_prefix(&payloads, &model, &context);
                torn += u64::from(recovered.torn.is_some());
            }
            let (_, payloads) = replay(&vfs.kill_image()).unwrap();
            check_prefix(&payloads, &model, "kill");
        }
    }
    assert!(torn > 100, "only {torn} images were torn: the test shows little");
}

/// Crashes again and again; each life continues where recovery ended, with a new segment, after
/// making what it recovered durable as the engine does.
#[test]
fn a_log_continued_after_recovery_survives_the_next_crash() {
    for seed in 0..150 {
        let mut rng = SplitMix64::new(seed);
        let mut vfs = vfs();
        let mut model = Model::default();
        let mut after = None;
        let mut segment = 1;
        for life in 0..5 {
            vfs.crash_after(vfs.op_count() + rng.below(80));
            run(&vfs, &mut rng, &mut model, SegmentNumber::new(segment), after);
            vfs = vfs.crash_image(rng.next_u64());
            let context = format!("seed {seed} life {life}");
            let (recovered, payloads) = replay(&vfs).expect(&context);
            check_prefix(&payloads, &model, &context);
            model = Model { appended: payloads.len() as u64, ..model };
            after = recovered.end;
            // A crash image holds nothing unsynced, so that what was recovered is durable.
            model.synced = model.appended;
            segment = listed(&vfs).last().map_or(ONE.get(), |file| file.number.next().get());
        }
    }
}

#[test]
fn the_log_goes_on_in_a_new_segment_after_a_failed_append() {
    for kind in [FaultKind::ShortWrite, FaultKind::Enospc, FaultKind::Eio] {
        let vfs = vfs();
        let mut writer = LogWriter::create(&vfs, &path(ONE), ONE, &LogOptions::default()).unwrap();
        writer.append(&[b"one"]).unwrap();
        let fault = Fault { at_op: vfs.op_count(), kind, forever: false, filter: None };
        vfs.set_fault(Some(fault));
        assert!(writer.append(&[&[7; 3000]]).is_err());
        assert!(writer.append(&[b"never"]).is_err(), "half a record may precede it");
        assert!(writer.sync().is_err() && writer.finish().is_err() && writer.flush().is_err());
        let options = LogOptions::default();
        assert_eq!(writer.sync_to_end().unwrap(), writer.end());
        let mut next =
            LogWriter::create_after(&vfs, &path(TWO), TWO, &options, Some(writer.end())).unwrap();
        vfs.sync_dir(Path::new(DIR)).unwrap();
        next.append(&[b"two"]).unwrap();
        next.sync().unwrap();
        let vfs = vfs.crash_image(1);
        let (recovered, payloads) = replay(&vfs).unwrap();
        assert_eq!(payloads, [b"one".to_vec(), b"two".to_vec()]);
        assert_eq!(recovered.torn, None);
    }
}

/// Three segments: synced in the middle of each, with markers, an unsynced tail, preallocation.
fn small_log() -> (SimVfs, Vec<LogPosition>, Vec<LogPosition>) {
    let vfs = vfs();
    let mut places = Vec::new();
    let mut proven = Vec::new();
    let mut after = None;
    for segment in [THREE, FOUR, NINE] {
        let options = LogOptions { preallocate_bytes: 700, ..Default::default() };
        let mut writer =
            LogWriter::create_after(&vfs, &path(segment), segment, &options, after).unwrap();
        for at in 0..4 {
            if at == 2 {
                writer.sync().unwrap();
                proven.push(LogPosition { segment, offset: writer.len_bytes() });
            }
            let offset = writer.append(&[&payload(places.len() as u64 % 7)]).unwrap();
            places.push(LogPosition { segment, offset });
        }
        if segment != NINE {
            writer.finish().unwrap();
        }
        after = Some(writer.end());
    }
    vfs.sync_dir(Path::new(DIR)).unwrap();
    (vfs, places, proven)
}

/// Damage at `(segment, offset)` must end in an error, or lose only what no marker proves.
fn check_damaged(vfs: &SimVfs, clean: &[Vec<u8>], places: &[LogPosition], proven: &[LogPosition]) {
    match replay(vfs) {
        Err(error) => {
            assert!(error.is_corruption(), "{error}");
            assert!(error.to_string().contains(".log"), "{error}");
        }
        Ok((recovered, payloads)) => {
            assert!(clean.starts_with(&payloads), "not a prefix");
            if payloads.len() < clean.len() {
                let lost = places[payloads.len()];
                assert!(proven.iter().all(|through| *through <= lost), "lost {lost:?} silently");
                // Cut between two records, the last segment looks like one that ends there.
                let plain_end =
                    lost.segment == NINE && recovered.end.is_some_and(|end| end.segment == NINE);
                assert!(recovered.torn.is_some() || plain_end);
            }
        }
    }
}

#[test]
fn every_flipped_byte_is_detected_or_drops_only_what_is_not_proven() {
    let (vfs, places, proven) = small_log();
    let (_, clean) = replay(&vfs).unwrap();
    assert_eq!(clean.len(), 12);
    let (mut errors, mut mutants) = (0, 0);
    for (file, len) in vfs.files() {
        for offset in 0..len {
            for xor in [0x01, 0x80, 0xff] {
                if !vfs.corrupt(&file, offset, xor) {
                    continue; // Preallocated.
                }
                check_damaged(&vfs, &clean, &places, &proven);
                errors += u64::from(replay(&vfs).is_err());
                mutants += 1;
                vfs.corrupt(&file, offset, xor);
            }
        }
    }
    assert!(errors > mutants / 4, "{errors} of {mutants} were errors");
    assert_eq!(replay(&vfs).unwrap().1, clean);
}

#[test]
fn a_flipped_bit_in_proven_records_is_always_an_error() {
    let (vfs, places, proven) = small_log();
    // The last marker covers everything before it.
    let last = proven.iter().max().unwrap();
    for LogPosition { segment, offset } in places.iter().filter(|place| *place < last) {
        vfs.corrupt(path(*segment), offset + 9, 4);
        let error = replay(&vfs).unwrap_err().to_string();
        let name = format!("{segment:06}.log is damaged at offset {offset}");
        assert!(error.contains(&name) && error.contains("checkpoint"), "{error}");
        vfs.corrupt(path(*segment), offset + 9, 4);
    }
}

#[test]
fn every_truncation_is_a_torn_tail_or_an_error() {
    let (vfs, places, proven) = small_log();
    let (_, clean) = replay(&vfs).unwrap();
    for (file, len) in vfs.files() {
        let whole = vfs.read_file(&file).unwrap();
        for cut in 0..len {
            vfs.truncate(&file, cut);
            // Each marker of this log stands right where its statement ends. What it proves is
            // known only while it is there.
            let stands = |through: &&LogPosition| {
                path(through.segment) != file || through.offset + 9 + 16 <= cut
            };
            let proven: Vec<_> = proven.iter().filter(stands).copied().collect();
            check_damaged(&vfs, &clean, &places, &proven);
            // The same length, with zeros for the lost part.
            let mut zeroed = whole[..cut as usize].to_vec();
            zeroed.resize(whole.len() + 600, 0);
            vfs.write_file(&file, &zeroed);
            check_damaged(&vfs, &clean, &places, &proven);
        }
        vfs.write_file(&file, &whole);
    }
    assert_eq!(replay(&vfs).unwrap().1, clean);
}

#[test]
fn a_missing_segment_is_an_error_if_a_marker_proves_it_and_a_gap_is_not() {
    let (vfs, ..) = small_log();
    let (_, clean) = replay(&vfs).unwrap();
    vfs.remove(&path(THREE)).unwrap();
    let (recovered, rest) = replay(&vfs).unwrap();
    assert_eq!((rest, recovered.torn), (clean[4..].to_vec(), None), "obsolete ones may be gone");
    let (vfs, ..) = small_log();
    vfs.remove(&path(FOUR)).unwrap();
    let error = replay(&vfs).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("missing"), "{error}");
    // Without a marker behind the gap it is where the log ends.
    let bare = small_vfs_without_markers();
    bare.remove(&path(FOUR)).unwrap();
    let (recovered, payloads) = replay(&bare).unwrap();
    assert_eq!(payloads, [b"a".to_vec()]);
    assert!(recovered.torn.unwrap().contains("missing") && recovered.dropped_bytes > 0);
    assert_eq!(recovered.end, Some(LogPosition { segment: THREE, offset: HEADER_BYTES + 10 }));
}

fn small_vfs_without_markers() -> SimVfs {
    let vfs = vfs();
    let mut after = None;
    for (segment, payload) in [(THREE, b"a"), (FOUR, b"b"), (NINE, b"c")] {
        let mut writer =
            LogWriter::create_after(&vfs, &path(segment), segment, &LogOptions::default(), after)
                .unwrap();
        writer.append(&[payload]).unwrap();
        after = Some(writer.end());
    }
    vfs
}

#[test]
fn a_marker_that_names_a_missing_segment_proves_its_loss_without_links() {
    let vfs = vfs();
    for segment in [ONE, TWO, THREE] {
        let mut writer =
            LogWriter::create(&vfs, &path(segment), segment, &LogOptions::default()).unwrap();
        if segment == THREE {
            writer.note_synced(LogPosition { segment: TWO, offset: HEADER_BYTES + 10 });
        }
        writer.append(&[b"x"]).unwrap();
    }
    assert_eq!(replay(&vfs).unwrap().0.records, 3);
    vfs.remove(&path(TWO)).unwrap();
    assert!(replay(&vfs).unwrap_err().to_string().contains("log segment 2"));
    vfs.remove(&path(ONE)).unwrap();
    assert_eq!(replay(&vfs).unwrap().0.records, 1);
}

#[test]
fn a_misplaced_record_is_refused() {
    let vfs = vfs();
    let mut writer = LogWriter::create(&vfs, &path(ONE), ONE, &LogOptions::default()).unwrap();
    let first = writer.append(&[b"twin one"]).unwrap() as usize;
    let second = writer.append(&[b"twin two"]).unwrap() as usize;
    let record = second - first;
    let mut other = LogWriter::create(&vfs, &path(TWO), TWO, &LogOptions::default()).unwrap();
    other.append(&[b"twin one"]).unwrap();
    let bytes = vfs.read_file(path(ONE)).unwrap();
    // A record copied over its neighbour, as a misdirected write would.
    let mut moved = bytes.clone();
    moved.copy_within(first..second, second);
    vfs.write_file(path(ONE), &moved);
    let reader_end = |segment| {
        let mut reader = LogReader::open(&vfs, &path(segment), segment).unwrap();
        let mut records = 0;
        loop {
            match reader.next().unwrap() {
                Step::Record(_) => records += 1,
                Step::End { torn, .. } => break (records, torn.is_some()),
            }
        }
    };
    assert_eq!(reader_end(ONE), (1, true));
    // The same offset of another segment.
    let mut stale = vfs.read_file(path(TWO)).unwrap();
    stale[first..second].copy_from_slice(&bytes[first..second]);
    vfs.write_file(path(TWO), &stale);
    assert_eq!(reader_end(TWO), (0, true));
    assert_eq!(record, 9 + 8);
    // A whole segment under another's name.
    vfs.write_file(path(TWO), &bytes);
    let error = LogReader::open(&vfs, &path(TWO), TWO).err().unwrap();
    assert!(error.is_corruption() && error.to_string().contains("segment 1"), "{error}");
}

#[test]
fn marker_bytes_inside_a_payload_prove_nothing() {
    let vfs = vfs();
    let mut writer = LogWriter::create(&vfs, &path(ONE), ONE, &LogOptions::default()).unwrap();
    let first = writer.append(&[b"damaged below"]).unwrap();
    // A copy of a marker as it would stand elsewhere, inside a user's value.
    let marker = encode_marker(LogPosition { segment: ONE, offset: 70 });
    let head = record_header(segment_seed(ONE), 4096, RecordType::SyncMarker, &marker);
    writer.append(&[&[&head[..], &marker[..], b"end"].concat()]).unwrap();
    vfs.corrupt(path(ONE), first + 10, 1);
    let (recovered, payloads) = replay(&vfs).unwrap();
    assert!(payloads.is_empty() && recovered.torn.is_some());
    assert_eq!(recovered.dropped_bytes, writer.len_bytes() - first);
}

#[test]
fn unfinished_segments_chain_even_when_their_header_was_lost() {
    let vfs = vfs();
    let options = LogOptions::default();
    let mut one = LogWriter::create(&vfs, &path(ONE), ONE, &options).unwrap();
    one.append(&[b"a"]).unwrap();
    vfs.write_file(path(TWO), [0u8; 500]);
    let (recovered, _) = replay(&vfs).unwrap();
    assert_eq!(recovered.end, Some(one.end()), "a segment without a header holds nothing");
    assert!(recovered.torn.unwrap().contains("000002.log"));
    let mut three =
        LogWriter::create_after(&vfs, &path(THREE), THREE, &options, recovered.end).unwrap();
    three.append(&[b"b"]).unwrap();
    assert_eq!(replay(&vfs).unwrap().1, [b"a".to_vec(), b"b".to_vec()]);
}

#[test]
fn a_lone_segment_without_a_header_can_be_continued() {
    let vfs = vfs();
    vfs.write_file(path(ONE), b"");
    let (recovered, _) = replay(&vfs).unwrap();
    assert_eq!(recovered.end, Some(LogPosition { segment: ONE, offset: 0 }));
    let options = LogOptions::default();
    let mut two = LogWriter::create_after(&vfs, &path(TWO), TWO, &options, recovered.end).unwrap();
    two.append(&[b"b"]).unwrap();
    assert_eq!(replay(&vfs).unwrap().1, [b"b".to_vec()]);
}

#[test]
fn nothing_is_recovered_from_nothing_and_disorder_is_refused() {
    let vfs = vfs();
    assert_eq!(replay(&vfs).unwrap().0, Recovered::default());
    let file = |number| SegmentFile { number, path: path(number) };
    let disorder = [file(TWO), file(ONE)];
    let error = recover(&vfs, &disorder, &mut |_, _, _| Ok(())).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    let gone = [file(ONE)];
    assert!(recover(&vfs, &gone, &mut |_, _, _| Ok(())).unwrap_err().is_not_found());
}

#[test]
fn an_error_of_the_apply_function_stops_the_replay() {
    let (vfs, ..) = small_log();
    let mut calls = 0;
    let outcome = recover(&vfs, &listed(&vfs), &mut |_, _, _| {
        calls += 1;
        if calls == 3 { Err(Error::InvalidArgument("enough".into())) } else { Ok(()) }
    });
    assert_eq!((outcome.unwrap_err().to_string(), calls), ("enough".to_string(), 3));
}

#[test]
fn recovery_works_through_a_trait_object() {
    let (vfs, ..) = small_log();
    let segments = listed(&vfs);
    let shared: Arc<dyn Vfs> = Arc::new(vfs);
    assert_eq!(recover(&*shared, &segments, &mut |_, _, _| Ok(())).unwrap().records, 12);
}

/// A segment with reserved room, to which the writer appends when its first record is replayed.
fn replay_while_it_grows(setting: Setting) -> Result<(Recovered, u64)> {
    let vfs = vfs();
    let options = LogOptions { preallocate_bytes: 4 << 20, ..LogOptions::default() };
    let mut writer = LogWriter::create(&vfs, &path(ONE), ONE, &options)?;
    writer.append(&[b"first"])?;
    let (mut writer, mut seen) = (Some(writer), 0);
    let recovered = recover_with(&vfs, &listed(&vfs), setting, &mut |_, _, _| {
        seen += 1;
        if let Some(mut writer) = writer.take() {
            // Past what the reader has in its buffer, with markers that prove it.
            for _ in 0..10 {
                writer.append(&[&[7; 100_000]])?;
                writer.sync()?;
            }
        }
        Ok(())
    })?;
    Ok((recovered, seen))
}

const BESIDE_WRITER: Setting = Setting { proven: None, beside_writer: true };

#[test]
fn an_append_that_is_half_seen_is_neither_damage_nor_the_end() {
    let (recovered, seen) = replay_while_it_grows(BESIDE_WRITER).unwrap();
    assert_eq!((recovered.records, seen, recovered.torn), (11, 11, None));
    // Without a writer beside it, the same reads are damage.
    assert!(replay_while_it_grows(Setting::default()).unwrap_err().is_corruption());
}

#[test]
fn damage_beside_a_writer_is_damage() {
    let vfs = vfs();
    let mut writer = LogWriter::create(&vfs, &path(ONE), ONE, &LogOptions::default()).unwrap();
    for n in 0..5 {
        writer.append(&[&payload(n)]).unwrap();
        writer.sync().unwrap();
    }
    assert!(vfs.corrupt(path(ONE), HEADER_BYTES + 4, 1));
    let found = recover_with(&vfs, &listed(&vfs), BESIDE_WRITER, &mut |_, _, _| Ok(()));
    assert!(found.unwrap_err().is_corruption());
}

#[test]
fn segments_behind_the_first_that_name_none_before_them_are_unlinked() {
    let vfs = vfs();
    let end = |segment| Some(LogPosition { segment, offset: HEADER_BYTES });
    let headers = [(ONE, None), (TWO, end(ONE)), (THREE, None), (FOUR, None), (NINE, end(FOUR))];
    for (segment, previous) in headers {
        let options = LogOptions::default();
        drop(LogWriter::create_after(&vfs, &path(segment), segment, &options, previous).unwrap());
    }
    // What a damaged header says is not known.
    assert!(vfs.corrupt(path(FOUR), 20, 1));
    let segments = listed(&vfs);
    let unlinked = |segments: &[SegmentFile], oldest| {
        LogSegments::open(&vfs, segments).unwrap().unlinked(oldest)
    };
    for oldest in [SegmentNumber::ZERO, ONE] {
        assert_eq!(unlinked(&segments, oldest), BTreeSet::from([THREE]));
    }
    for oldest in [SegmentNumber::ZERO, THREE] {
        assert_eq!(unlinked(&segments[2..], oldest), BTreeSet::new(), "the log begins with it");
    }
    assert_eq!(unlinked(&segments[2..], TWO), BTreeSet::from([THREE]), "that one is lost");
}
