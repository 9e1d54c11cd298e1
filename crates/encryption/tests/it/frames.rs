//! Files that grow: no byte of another one is read, damage costs what it hits, and what is wanted is found with few reads.

use super::files::{content, new, read, read_all};
use super::{BLOCK, FRAME_HEADER, TAG, frames, path};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace::vfs::{SimVfs, Vfs};
use terrace_encryption::EncryptedVfs;
use terrace_vfs::{
    AppendFile, BeforeCalls, CUTTABLE_APPENDS, Call, CreateOptions, EIO, Error, LOST_PAGE_BYTES,
    OpenMode, RandomFile, ReadRequest, is_unreadable,
};

const NAME: &str = "000001.log";

/// Lengths of appends that fill parts of blocks, and several blocks; two are alike.
const APPENDS: [usize; 9] = [44, 100, 700, 1, 700, 5000, 3, 4070, 600];

fn create(vfs: &dyn Vfs, name: &str) -> Box<dyn AppendFile> {
    vfs.create(&path(name), &CreateOptions { grows: true, ..Default::default() }).unwrap()
}

/// A file of [`APPENDS`]; its content.
fn write(vfs: &dyn Vfs, name: &str, change: u8) -> Vec<u8> {
    let mut all = content(APPENDS.iter().sum());
    all.iter_mut().for_each(|byte| *byte ^= change);
    let mut file = create(vfs, name);
    let mut rest = &all[..];
    for len in APPENDS {
        let (now, later) = rest.split_at(len);
        file.append(now).unwrap();
        rest = later;
    }
    all
}

/// Reads a file in both ways, whole and byte by byte, and gives what is damaged. No other byte than those of `want` is
/// read.
fn damage(vfs: &dyn Vfs, name: &str, want: &[u8], what: &str) -> BTreeSet<u64> {
    let file = vfs.open(&path(name), OpenMode::default()).unwrap();
    let (mut bytes, mut ranges) = (vec![1; file.len() as usize], Vec::<Range<u64>>::new());
    file.read_around_damage(0, &mut bytes, &mut ranges).unwrap();
    assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{what}: {ranges:?}");
    let damaged: BTreeSet<u64> = ranges.into_iter().flatten().collect();
    for (at, byte) in bytes.iter().enumerate() {
        match damaged.contains(&(at as u64)) {
            true => assert_eq!(*byte, 0, "{what}: byte {at}"),
            false => assert_eq!(Some(byte), want.get(at), "{what}: byte {at}"),
        }
    }
    for at in (0..file.len()).step_by(211) {
        match read(&*file, at, 1) {
            Ok(byte) => assert_eq!(byte[0], want[at as usize], "{what}: byte {at} alone"),
            Err(error) => assert!(error.is_corruption(), "{what}: {error}"),
        }
    }
    assert_eq!(read_all(vfs, name).is_err(), !damaged.is_empty(), "{what}");
    damaged
}

fn content_of(frame: &(u64, Range<usize>)) -> Range<u64> {
    frame.0..frame.0 + (frame.1.len() - FRAME_HEADER - TAG) as u64
}

#[test]
fn every_changed_byte_costs_its_frame_and_no_other() {
    let (sim, vfs) = new(1);
    let want = write(&*vfs, NAME, 0);
    let raw = sim.read_file(path(NAME)).unwrap();
    let frames = frames(&raw);
    assert!(frames.len() >= APPENDS.len() + 2, "some cross blocks");
    assert_eq!(damage(&*vfs, NAME, &want, "as written"), BTreeSet::new());
    let last = frames.last().unwrap();
    for at in 128..raw.len() {
        let hit = frames.iter().find(|(_, place)| place.contains(&at));
        let is_inside = hit.is_some_and(|(_, place)| place.start + 16 < at && at + 20 < place.end);
        if is_inside && at % 16 != 0 {
            continue;
        }
        let (what, mask) = (format!("byte {at}"), 1 << (at % 8));
        assert!(sim.corrupt(path(NAME), at as u64, mask));
        let damaged = damage(&*vfs, NAME, &want, &what);
        let len = vfs.len(&path(NAME)).unwrap();
        let lost: BTreeSet<u64> = match hit {
            // The content ends before it.
            Some(frame) if frame == last => {
                assert_eq!(len, frame.0, "{what}");
                BTreeSet::new()
            }
            hit => {
                assert_eq!(len, want.len() as u64, "{what}");
                hit.into_iter().flat_map(content_of).collect()
            }
        };
        assert_eq!(damaged, lost, "{what}");
        assert!(sim.corrupt(path(NAME), at as u64, mask));
    }
}

#[test]
fn frames_are_bound_to_their_place_and_to_their_file() {
    let (sim, vfs) = new(1);
    let want = write(&*vfs, NAME, 0);
    write(&*vfs, "000002.log", 0x55);
    let raw = sim.read_file(path(NAME)).unwrap();
    let other = sim.read_file(path("000002.log")).unwrap();
    let frames = frames(&raw);
    let mut tries = 0;
    let mut is_told = |forged: &[u8], what: &str| {
        sim.write_file(path(NAME), forged);
        let damaged = damage(&*vfs, NAME, &want, what);
        let len = vfs.len(&path(NAME)).unwrap();
        tries += 1;
        !damaged.is_empty() || len < want.len() as u64
    };
    for (at, (_, from)) in frames.iter().enumerate() {
        let mut forged = raw.clone();
        forged[from.clone()].copy_from_slice(&other[from.clone()]);
        assert!(is_told(&forged, &format!("frame {at} of another file")));
        for (to_at, (_, to)) in frames.iter().enumerate().filter(|(to_at, _)| *to_at != at) {
            let what = format!("frame {at} in the place of {to_at}");
            let len = from.len().min(to.len());
            let mut forged = raw.clone();
            forged[to.start..to.start + len].copy_from_slice(&raw[from.start..from.start + len]);
            assert!(is_told(&forged, &what));
            // Under the other's place and length, too.
            forged[to.start..to.start + FRAME_HEADER]
                .copy_from_slice(&raw[to.start..to.start + FRAME_HEADER]);
            assert!(is_told(&forged, &what));
        }
    }
    for one in 1..raw.len() / BLOCK {
        for another in 1..one {
            let mut forged = raw.clone();
            forged[one * BLOCK..][..BLOCK].copy_from_slice(&raw[another * BLOCK..][..BLOCK]);
            assert!(is_told(&forged, &format!("block {another} twice")));
            forged[another * BLOCK..][..BLOCK].copy_from_slice(&raw[one * BLOCK..][..BLOCK]);
            assert!(is_told(&forged, &format!("blocks {one} and {another} exchanged")));
        }
        let mut forged = raw.clone();
        forged[one * BLOCK..][..BLOCK].fill(0);
        assert!(is_told(&forged, &format!("block {one} zeroed")));
        forged = [&raw[..one * BLOCK], &raw[(one + 1) * BLOCK..]].concat();
        assert!(is_told(&forged, &format!("block {one} taken out")));
    }
    assert!(tries > 150, "{tries}");
}

/// Whatever a crash, or an append under way, leaves at the end: what stands before it is there.
#[test]
fn a_file_that_was_cut_has_what_was_whole() {
    let (sim, vfs) = new(1);
    let want = write(&*vfs, NAME, 0);
    let raw = sim.read_file(path(NAME)).unwrap();
    let frames = frames(&raw);
    for cut in 128..raw.len() {
        let whole = frames.iter().rfind(|(_, place)| place.end <= cut);
        let end = whole.map_or(0, |frame| content_of(frame).end);
        // Not by chance what was cut off.
        for rest in [vec![], vec![!raw[cut]; 5000]] {
            sim.write_file(path(NAME), [&raw[..cut], &rest].concat());
            let file = vfs.open(&path(NAME), OpenMode::default()).unwrap();
            assert_eq!(file.len(), end, "cut at {cut}");
            assert_eq!(file.current_len().unwrap(), end);
            assert!(read_all(&*vfs, NAME).unwrap() == want[..end as usize], "cut at {cut}");
        }
    }
}

/// A long file of short appends, and a reader that was there from the start.
fn long_file(sim: &SimVfs, vfs: &Arc<EncryptedVfs>) -> (Arc<dyn RandomFile>, Vec<u8>) {
    let all = content(6 << 20);
    let mut file = create(&**vfs, NAME);
    file.append(&all[..44]).unwrap();
    let reader = vfs.open(&path(NAME), OpenMode::default()).unwrap();
    let mut at = 44;
    // Parts of short and of long appends, so that places are not spread evenly.
    for turn in 0.. {
        let len = if turn / 3000 % 2 == 0 { 20 + turn % 200 } else { 4000 };
        let to = (at + len).min(all.len());
        file.append(&all[at..to]).unwrap();
        at = to;
        if at == all.len() {
            break;
        }
    }
    assert!(sim.len(&path(NAME)).unwrap() > 6 << 20);
    (reader, all)
}

#[test]
fn what_is_wanted_is_found_with_few_reads() {
    let (sim, vfs) = new(1);
    let (early, all) = long_file(&sim, &vfs);
    let late = vfs.open(&path(NAME), OpenMode::default()).unwrap();
    for (file, who) in [(&early, "before it grew"), (&late, "later")] {
        let mut total = 0;
        for n in 0..2000_u64 {
            let at = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (all.len() as u64 - 3000);
            let before = sim.op_count();
            let found = read(&**file, at, 3000).unwrap();
            let reads = sim.op_count() - before;
            assert!(found == all[at as usize..at as usize + 3000], "{who}, at {at}");
            assert!(reads <= 20, "{who}, at {at}: {reads} reads");
            total += reads;
        }
        println!("{who}: {total} reads for 2000 values");
        assert!(total <= 2000 * 2, "{who}: {total}");
    }
    // From front to back.
    let (mut at, before) = (0, sim.op_count());
    while at < all.len() {
        let len = (256 << 10).min(all.len() - at);
        assert!(read(&*late, at as u64, len).unwrap() == all[at..at + len]);
        at += len;
    }
    let reads = sim.op_count() - before;
    println!("{reads} reads from front to back");
    assert!(reads <= 24 * 4, "{reads}");
}

/// Much damage costs one look at each block of it.
#[test]
fn much_damage_is_passed_with_few_reads() {
    let (sim, vfs) = new(1);
    let (_, all) = long_file(&sim, &vfs);
    let mut raw = sim.read_file(path(NAME)).unwrap();
    let (from, to) = (raw.len() / 4, raw.len() / 4 * 3);
    raw[from..to].fill(9);
    sim.write_file(path(NAME), &raw);
    let file = vfs.open(&path(NAME), OpenMode::default()).unwrap();
    let before = sim.op_count();
    let (mut at, mut damaged) = (0, Vec::new());
    while at < file.len() as usize {
        let mut piece = vec![0; (256 << 10).min(file.len() as usize - at)];
        file.read_around_damage(at as u64, &mut piece, &mut damaged).unwrap();
        at += piece.len();
    }
    let bytes: u64 = damaged.iter().map(|range| range.end - range.start).sum();
    assert!(bytes > all.len() as u64 / 3, "{bytes}");
    let reads = sim.op_count() - before;
    println!("{reads} reads, {} blocks", raw.len() / BLOCK);
    assert!(reads < 4 * (raw.len() / BLOCK) as u64, "{reads}");
}

/// A file of several blocks; its content.
fn write_blocks(vfs: &dyn Vfs) -> Vec<u8> {
    let all = content(40_000);
    let mut file = create(vfs, NAME);
    let mut rest = &all[..];
    for len in APPENDS.into_iter().cycle() {
        let (now, later) = rest.split_at(len.min(rest.len()));
        file.append(now).unwrap();
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    all
}

#[test]
fn a_block_that_the_device_does_not_give_costs_its_content_and_no_other() {
    let (sim, vfs) = new(1);
    let want = write_blocks(&*vfs);
    let raw = sim.read_file(path(NAME)).unwrap();
    let frames = frames(&raw);
    let blocks = raw.len().div_ceil(BLOCK);
    assert!(blocks > 8);
    for lost in 0..blocks {
        let image = sim.kill_image();
        let at = (lost * BLOCK + 700).min(raw.len() - 1) as u64;
        assert!(image.lose_sector(path(NAME), at..at + 1));
        let vfs = super::encrypted(&image, &[3]);
        let file = vfs.open(&path(NAME), OpenMode::default()).unwrap();
        let content_before = |block: usize| {
            let behind = frames.iter().find(|(_, place)| place.start >= block * BLOCK);
            behind.map(|(start, _)| *start)
        };
        let start = if lost == 0 { 0 } else { content_before(lost).unwrap() };
        let range = match content_before(lost + 1) {
            Some(end) => {
                assert_eq!(file.len(), want.len() as u64, "block {lost}");
                start..end
            }
            // As much as there may be.
            None => {
                let end = file.len();
                assert!(end >= want.len() as u64 && end - start <= BLOCK as u64, "block {lost}");
                start..end
            }
        };
        assert_eq!(file.current_len().unwrap(), file.len());
        assert_eq!(vfs.len(&path(NAME)).unwrap(), file.len());
        let (mut bytes, mut damaged) = (vec![1; file.len() as usize], Vec::new());
        let around = file.read_around_damage(0, &mut bytes, &mut damaged);
        assert!(is_unreadable(&around.unwrap_err()) && damaged.is_empty(), "block {lost}");
        file.read_around_loss(0, &mut bytes, &mut damaged, LOST_PAGE_BYTES).unwrap();
        assert_eq!(damaged, std::slice::from_ref(&range), "block {lost}");
        for (at, byte) in bytes.iter().enumerate() {
            let is_lost = range.contains(&(at as u64));
            assert_eq!(*byte, if is_lost { 0 } else { want[at] }, "block {lost}, byte {at}");
        }
        for at in (0..file.len()).step_by(97).chain([file.len() - 1]) {
            let mut alone = [0];
            let mut requests = [ReadRequest::new(&*file, at, &mut alone)];
            vfs.read_batch(&mut requests);
            let [request] = requests;
            match (request.result.unwrap(), read(&*file, at, 1)) {
                (Ok(()), Ok(byte)) => {
                    assert!(byte == alone && byte[0] == want[at as usize], "block {lost}, {at}");
                    assert!(!range.contains(&at), "block {lost}, {at}");
                }
                (Err(one), Err(other)) => {
                    assert!(is_unreadable(&one) && is_unreadable(&other), "block {lost}, {at}");
                    assert!(range.contains(&at), "block {lost}, {at}");
                }
                outcomes => panic!("block {lost}, {at}: {outcomes:?}"),
            }
        }
        let past = read(&*file, file.len(), 1).unwrap_err();
        let mut past_loss = [0];
        let end = file.len();
        let refused = file.read_around_loss(end, &mut past_loss, &mut damaged, LOST_PAGE_BYTES);
        assert!(!is_unreadable(&refused.unwrap_err()), "block {lost}: {past}");
    }
}

/// A sector may be given at the second try: a reader that asked for the length before was promised more than there is.
#[test]
fn a_last_block_that_the_device_gives_later_ends_where_it_ends() {
    let (sim, vfs) = new(1);
    let want = content(10_074);
    let mut file = create(&*vfs, NAME);
    let mut rest = &want[..];
    // Of several frames in the last block less is content than of one.
    for len in [44, 5000, 5000, 10, 10, 10] {
        let (now, later) = rest.split_at(len);
        file.append(now).unwrap();
        rest = later;
    }
    let last = (sim.len(&path(NAME)).unwrap() - 1) / BLOCK as u64 * BLOCK as u64;
    let fails = Arc::new(AtomicBool::new(true));
    let of_device = fails.clone();
    let below = BeforeCalls::with_reads(sim, move |call, path| match call {
        Call::Read(offset, len)
            if offset + len as u64 > last && of_device.load(Ordering::SeqCst) =>
        {
            Err(Error::io("read", path, std::io::Error::from_raw_os_error(EIO)))
        }
        _ => Ok(()),
    });
    let vfs = EncryptedVfs::new(Arc::new(below), super::ring(&[3]));
    let file = vfs.open(&path(NAME), OpenMode::default()).unwrap();
    let (len, end) = (file.len(), want.len() as u64);
    assert!(len > end, "{len}");
    fails.store(false, Ordering::SeqCst);
    let (mut bytes, mut damaged) = (vec![1; len as usize], Vec::new());
    file.read_around_loss(0, &mut bytes, &mut damaged, LOST_PAGE_BYTES).unwrap();
    assert_eq!(damaged.len(), 1);
    assert_eq!(damaged[0], end..len);
    assert!(bytes[..want.len()] == want[..] && bytes[want.len()..].iter().all(|byte| *byte == 0));
    // For others it is as a file that was cut meanwhile: they open it again.
    let error = read(&*file, 0, len as usize).unwrap_err();
    let is_end =
        matches!(&error, Error::Io { source, .. } if source.kind() == ErrorKind::UnexpectedEof);
    assert!(is_end, "{error}");
    assert!(read(&*file, 0, want.len()).unwrap() == want);
    assert_eq!(vfs.open(&path(NAME), OpenMode::default()).unwrap().len(), end);
}

/// A device takes its time before it says that it does not give a block.
#[test]
fn many_lost_blocks_are_asked_for_a_few_times_each() {
    let (sim, vfs) = new(1);
    let (_, all) = long_file(&sim, &vfs);
    let blocks = sim.len(&path(NAME)).unwrap() / BLOCK as u64;
    let lost = blocks / 4..blocks / 4 * 3;
    let range = lost.start * BLOCK as u64..lost.end * BLOCK as u64;
    assert!(sim.lose_sector(path(NAME), range));
    let file = vfs.open(&path(NAME), OpenMode::default()).unwrap();
    let before = sim.op_count();
    let (mut at, mut damaged) = (0, Vec::new());
    while at < all.len() {
        let mut piece = vec![0; (256 << 10).min(all.len() - at)];
        file.read_around_loss(at as u64, &mut piece, &mut damaged, LOST_PAGE_BYTES).unwrap();
        at += piece.len();
    }
    let bytes: u64 = damaged.iter().map(|range| range.end - range.start).sum();
    assert!(damaged.len() == 1 && bytes > all.len() as u64 / 3, "{damaged:?}");
    let reads = sim.op_count() - before;
    println!("{reads} reads, {blocks} blocks, {} of them lost", lost.end - lost.start);
    assert!(reads < 2 * blocks, "{reads}");
    // The others are read as ever.
    for at in [0, damaged[0].start - 3000, damaged[0].end, all.len() as u64 - 3000] {
        let before = sim.op_count();
        assert!(read(&*file, at, 3000).unwrap() == all[at as usize..at as usize + 3000], "{at}");
        let reads = sim.op_count() - before;
        assert!(reads <= 30, "at {at}: {reads} reads");
    }
}

/// An append that fails leaves whole frames, and cannot be told from one that does not.
#[test]
fn what_a_failed_append_has_left_is_cut_off() {
    for (first, second) in [(44, 100), (44, 9000), (4070, 5000), (1, 3 << 20)] {
        let (sim, vfs) = new(1);
        let want = content(first + second);
        let mut file = create(&*vfs, NAME);
        file.append(&want[..first]).unwrap();
        let whole = sim.len(&path(NAME)).unwrap();
        sim.set_capacity_bytes(Some(whole + second as u64));
        assert!(file.append(&want[first..]).unwrap_err().is_no_space());
        assert_eq!(sim.len(&path(NAME)).unwrap(), whole + second as u64);
        file.cut(first as u64).unwrap();
        assert_eq!(sim.len(&path(NAME)).unwrap(), whole);
        assert_eq!(file.len(), first as u64);
        assert!(read_all(&*vfs, NAME).unwrap() == want[..first]);
        file.sync().unwrap();
        file.finish().unwrap();
        sim.set_capacity_bytes(None);
        file.append(b"x").unwrap_err();
    }
}

#[test]
fn a_growing_file_is_cut_where_one_of_its_last_appends_began() {
    let (sim, vfs) = new(1);
    let want = content(100 * (CUTTABLE_APPENDS + 2));
    let mut file = create(&*vfs, NAME);
    want.chunks(100).for_each(|piece| file.append(piece).unwrap());
    for len in [0, 100, want.len() as u64 - 150, want.len() as u64 + 1] {
        assert!(file.cut(len).is_err(), "{len}");
    }
    let before = sim.len(&path(NAME)).unwrap();
    file.cut(want.len() as u64).unwrap();
    assert_eq!(sim.len(&path(NAME)).unwrap(), before);
    file.append(b"x").unwrap_err();
    file.cut(200).unwrap();
    assert!(read_all(&*vfs, NAME).unwrap() == want[..200]);
}

#[test]
fn a_growing_file_can_be_synced_beside_who_appends() {
    let (sim, vfs) = new(1);
    let mut file = create(&*vfs, NAME);
    file.append(&content(100)).unwrap();
    file.sync_handle().unwrap().sync().unwrap();
    sim.sync_dir(path(NAME).parent().unwrap()).unwrap();
    for seed in 0..8 {
        assert_eq!(sim.crash_image(seed).read_file(path(NAME)), sim.read_file(path(NAME)));
    }
}
