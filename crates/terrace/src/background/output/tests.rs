//! Cuts, clipped tombstones, alignment and the removal of unfinished files, on a simulated disk.

use super::*;
use crate::metrics::training::TrainingTally;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use std::sync::atomic::AtomicU64;
use terrace_base::key::pack_trailer;
use terrace_base::{RangeTombstone, ValueKind};
use terrace_vfs::{Fault, FaultKind, SimVfs};

const DIR: &str = "/store";

struct Disk {
    sim: SimVfs,
    vfs: Arc<dyn Vfs>,
    limiter: RateLimiter,
    next: AtomicU64,
    max_writer_bytes: usize,
    max_tombstone_bytes: usize,
}

impl Disk {
    fn new() -> Self {
        let sim = SimVfs::new(1);
        let vfs: Arc<dyn Vfs> = Arc::new(sim.clone());
        vfs.create_dir_all(Path::new(DIR)).unwrap();
        Self {
            sim,
            vfs,
            limiter: RateLimiter::new(0),
            next: AtomicU64::new(1),
            max_writer_bytes: usize::MAX,
            max_tombstone_bytes: MAX_TOMBSTONE_BYTES,
        }
    }

    /// Writes `entries` (all at sequence number 7) with `tombstones`.
    fn write(
        &self,
        target_file_bytes: u64,
        tombstones: &[(&str, &str)],
        grandparents: &[Arc<FileMeta>],
        entries: impl Iterator<Item = (Vec<u8>, u64, usize)>,
    ) -> Result<Vec<FileMeta>> {
        let next = || FileNumber::new(self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let context = OutputContext {
            vfs: &self.vfs,
            dir: Path::new(DIR),
            next_file_number: &next,
            sst_options: SstOptions {
                compression: terrace_sst::Compression::None,
                ..SstOptions::default()
            },
            target_file_bytes,
            max_writer_bytes: self.max_writer_bytes,
            limiter: &self.limiter,
            trainings: &TrainingTally::default(),
            progress: &JobProgress::default(),
        };
        let set = RangeTombstones::new(tombstones.iter().map(|(start, end)| RangeTombstone {
            start: start.as_bytes().to_vec(),
            end: end.as_bytes().to_vec(),
            seqno: SeqNo::new(9),
        }));
        let mut output = Output::new(context, set).aligned_to(grandparents);
        output.tombstone_cuts = tombstone_cuts(&output.tombstones, self.max_tombstone_bytes);
        for (key, seqno, len) in entries {
            output.add(&key, pack_trailer(SeqNo::new(seqno), ValueKind::Put), &vec![7; len])?;
        }
        output.finish()
    }

    fn file_count(&self) -> usize {
        self.sim.files().len()
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("{n:06}").into_bytes()
}

fn plain(count: u64) -> impl Iterator<Item = (Vec<u8>, u64, usize)> {
    (0..count).map(|n| (key(n), 7, 1000))
}

fn check_disjoint(files: &[FileMeta]) {
    for pair in files.windows(2) {
        assert!(pair[0].precedes(&pair[1]), "{:?} {:?}", pair[0], pair[1]);
    }
}

/// Entries that take few bytes of a file take many in its index, filters and models.
#[test]
fn a_file_ends_when_its_writer_holds_too_much_memory() {
    let mut disk = Disk::new();
    disk.max_writer_bytes = 64 << 10;
    let entries = || (0..300_000).map(|n| (key(n / 5), 20 - n % 5, 0));
    let files = disk.write(1 << 30, &[], &[], entries()).unwrap();
    assert!(files.len() > 2, "{}", files.len());
    check_disjoint(&files);
    assert!(files.iter().all(|f| f.entry_count % 5 == 0));
    assert_eq!(disk.write(u64::MAX, &[], &[], entries()).unwrap().len(), 1, "L0 wants one file");
}

#[test]
fn files_are_cut_near_their_target_and_between_user_keys() {
    // A file may become full after any version of a key.
    for versions in [3, 5, 11] {
        let disk = Disk::new();
        let entries = 6600 / versions * versions;
        let all = (0..entries).map(|n| (key(n / versions), 20 - n % versions, 333));
        let files = disk.write(100 << 10, &[], &[], all).unwrap();
        assert!(files.len() > 10);
        check_disjoint(&files);
        assert_eq!(files.iter().map(|f| f.entry_count).sum::<u64>(), entries);
        assert!(files.iter().all(|f| f.entry_count % versions == 0));
        for file in &files[..files.len() - 1] {
            assert!((100 << 10..140 << 10).contains(&file.size_bytes), "{}", file.size_bytes);
        }
        assert_eq!(disk.file_count(), files.len());
    }
}

#[test]
fn tombstones_are_clipped_at_cuts() {
    let disk = Disk::new();
    let tombstones = [("000000", "000050"), ("000040", "000960x"), ("2", "3")];
    let files = disk.write(100 << 10, &tombstones, &[], plain(1000)).unwrap();
    assert!(files.len() > 5);
    check_disjoint(&files);
    assert!(files.iter().all(|f| f.range_tombstone_count > 0));
    let last = files.last().unwrap();
    assert_eq!((last.largest.as_slice(), last.largest_exclusive), (&b"3"[..], true));
    let ends_by_tombstone = files.iter().filter(|f| f.largest_exclusive).count();
    assert!(ends_by_tombstone >= files.len() - 1, "{ends_by_tombstone}");
}

#[test]
fn tombstones_alone_make_a_file_and_nothing_makes_none() {
    let disk = Disk::new();
    let files = disk.write(1 << 20, &[("b", "d")], &[], plain(0)).unwrap();
    assert_eq!(files.len(), 1);
    assert_eq!((files[0].entry_count, files[0].range_tombstone_count), (0, 1));
    assert_eq!(files[0].smallest, b"b");
    assert_eq!(disk.write(1 << 20, &[], &[], plain(0)).unwrap(), []);
    assert_eq!(disk.file_count(), 1);
}

fn grandparent(first: u64, last: u64, size_bytes: u64) -> Arc<FileMeta> {
    Arc::new(FileMeta {
        smallest: key(first),
        largest: key(last),
        size_bytes,
        ..FileMeta::default()
    })
}

#[test]
fn files_end_where_grandparents_end() {
    let disk = Disk::new();
    let grandparents: Vec<_> = (0..20).map(|n| grandparent(n * 70, n * 70 + 69, 1000)).collect();
    let files = disk.write(100 << 10, &[], &grandparents, plain(1400)).unwrap();
    assert!(files.len() > 10);
    for file in &files[1..] {
        let first: u64 = String::from_utf8_lossy(&file.smallest).parse().unwrap();
        assert_eq!(first % 70, 0, "{first}");
    }
}

#[test]
fn a_file_overlaps_a_bounded_part_of_the_grandparents() {
    let disk = Disk::new();
    let target = 1 << 20;
    let grandparents: Vec<_> = (0..100).map(|n| grandparent(n * 2, n * 2 + 1, target)).collect();
    let files = disk.write(target, &[], &grandparents, plain(200)).unwrap();
    assert_eq!(files.len(), 10);
    assert!(files.iter().all(|f| f.entry_count == 20));
}

/// Also where there are no entries, so that what deletes much can be merged down piece by piece.
#[test]
fn range_tombstones_alone_overlap_a_bounded_part_of_the_grandparents() {
    let disk = Disk::new();
    let target = 1 << 20;
    let grandparents: Vec<_> = (0..100).map(|n| grandparent(n * 2, n * 2 + 1, target)).collect();
    let tombstones = [("000000", "000100"), ("000150", "000160")];
    let entry = || std::iter::once((key(120), 7, 10));
    for (entries, count) in [(1, 7), (0, 6)] {
        let files = disk.write(target, &tombstones, &grandparents, entry().take(entries)).unwrap();
        assert_eq!(files.len(), count, "{files:?}");
        check_disjoint(&files);
        assert_eq!(files.iter().map(|f| f.entry_count).sum::<u64>(), entries as u64);
        let met = |f: &FileMeta| {
            grandparents.iter().filter(|g| g.overlaps(f.start_bound(), f.end_bound())).count()
        };
        assert!(files.iter().all(|f| (1..=10).contains(&met(f))), "{files:?}");
        // Nothing is lost between them.
        let deletes: Vec<&FileMeta> =
            files.iter().filter(|f| f.range_tombstone_count > 0).collect();
        let (first, last) = (deletes[0], deletes[deletes.len() - 1]);
        assert_eq!((&first.smallest, &last.largest), (&key(0), &key(160)));
        let gaps = deletes.windows(2).filter(|pair| pair[0].largest != pair[1].smallest);
        assert_eq!(gaps.count(), 1);
    }
}

/// Each file that overlaps a large one below is merged with it, so there is one for each.
#[test]
fn range_tombstones_over_one_large_grandparent_are_not_cut_before_an_entry_in_it() {
    let disk = Disk::new();
    let target = 1 << 20;
    let grandparents = [grandparent(0, 9, 30 * target), grandparent(10, 19, 30 * target)];
    let entries = std::iter::once((key(15), 7, 10));
    let files = disk.write(target, &[("000002", "000018")], &grandparents, entries).unwrap();
    check_disjoint(&files);
    let bounds: Vec<_> = files.iter().map(|f| (f.smallest.clone(), f.largest.clone())).collect();
    assert_eq!(bounds, [(key(2), key(10)), (key(10), key(18))]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// A merge that divides a file along those that it meets below is chosen again until it has: one that did not would be for ever.
    #[test]
    fn no_file_overlaps_many_bytes_of_several_grandparents(
        sizes in vec(prop_oneof![Just(1), Just(6), Just(30)], 2..5),
        ranges in vec((0_u64..20, 1_u64..20), 0..3),
        keys in btree_set(0_u64..20, 0..4),
        max_tombstone_bytes in prop_oneof![Just(40_usize), Just(MAX_TOMBSTONE_BYTES)],
    ) {
        let (disk, target) = (Disk { max_tombstone_bytes, ..Disk::new() }, 1 << 10);
        // They end at 3, 7, 11 and 15, with a key between two of them.
        let below = sizes.iter().enumerate();
        let below = below.map(|(n, size)| (n as u64 * 4 + 1, size * target));
        let grandparents: Vec<_> =
            below.map(|(first, bytes)| grandparent(first, first + 2, bytes)).collect();
        let text = |n: u64| String::from_utf8(key(n)).unwrap();
        let ranges: Vec<_> =
            ranges.iter().map(|(start, len)| (text(*start), text(start + len))).collect();
        let tombstones: Vec<_> = ranges.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let entries = keys.iter().map(|n| (key(*n), 7, 10));
        let files = disk.write(target, &tombstones, &grandparents, entries).unwrap();
        check_disjoint(&files);
        prop_assert_eq!(files.iter().map(|f| f.entry_count).sum::<u64>(), keys.len() as u64);
        for file in &files {
            let is_met = |g: &&Arc<FileMeta>| g.overlaps(file.start_bound(), file.end_bound());
            let met: Vec<_> = grandparents.iter().filter(is_met).collect();
            let bytes: u64 = met.iter().map(|g| g.size_bytes).sum();
            prop_assert!(met.len() <= 1 || bytes <= MAX_GRANDPARENT_FILES * target, "{:?}", files);
        }
    }
}

/// A file has them in one block, of which the length is bounded.
#[test]
fn a_file_ends_before_it_has_more_range_tombstones_than_fit() {
    let mut disk = Disk::new();
    // Five of them.
    disk.max_tombstone_bytes = 200;
    let bounds = (0..60).map(|n| (format!("{:06}", n * 10), format!("{:06}", n * 10 + 5)));
    let bounds: Vec<(String, String)> = bounds.collect();
    let tombstones: Vec<(&str, &str)> =
        bounds.iter().map(|(start, end)| (&**start, &**end)).collect();
    let target = 1 << 20;
    let below: Vec<_> = (0..20).map(|n| grandparent(n * 30 + 7, n * 30 + 36, target)).collect();
    for grandparents in [Vec::new(), below] {
        for entries in [0, 600] {
            let files = disk.write(target, &tombstones, &grandparents, plain(entries)).unwrap();
            assert!(files.len() >= 12, "{files:?}");
            check_disjoint(&files);
            assert_eq!(files.iter().map(|f| f.entry_count).sum::<u64>(), entries);
            assert!(files.iter().all(|f| (1..=5).contains(&f.range_tombstone_count)), "{files:?}");
            assert_eq!(files.iter().map(|f| f.range_tombstone_count).sum::<u64>(), 60);
        }
    }
}

/// What was passed before such a cut counts for the file behind it, as far as that overlaps it.
#[test]
fn a_file_that_begins_for_its_range_tombstones_overlaps_a_bounded_part_of_the_grandparents() {
    let mut disk = Disk::new();
    // One of them.
    disk.max_tombstone_bytes = 40;
    let target = 1 << 20;
    let below: Vec<_> = (0..4).map(|n| grandparent(n * 10, n * 10 + 9, 5 * target)).collect();
    let tombstones = [("000002", "000005"), ("000006", "000038")];
    let entries = std::iter::once((key(18), 7, 10));
    let files = disk.write(target, &tombstones, &below, entries).unwrap();
    check_disjoint(&files);
    let bounds: Vec<_> = files.iter().map(|f| (f.smallest.clone(), f.largest.clone())).collect();
    let wanted = [(2, 5), (6, 20), (20, 38)];
    assert_eq!(bounds, wanted.map(|(first, last)| (key(first), key(last))));
}

#[test]
fn whatever_fails_no_file_is_left() {
    let clean = {
        let disk = Disk::new();
        let before = disk.sim.op_count();
        disk.write(100 << 10, &[("0", "1")], &[], plain(500)).unwrap();
        before..disk.sim.op_count()
    };
    let mut failed = 0;
    for at_op in clean {
        let disk = Disk::new();
        let fault = Fault { at_op, kind: FaultKind::Eio, forever: false, filter: None };
        disk.sim.set_fault(Some(fault));
        if disk.write(100 << 10, &[("0", "1")], &[], plain(500)).is_err() {
            failed += 1;
            assert_eq!(disk.file_count(), 0, "fault at operation {at_op}");
        }
    }
    assert!(failed > 5, "{failed}");
}
