//! Buffers and the slab: content, counting, return of memory, bounds on fragmentation.

use super::slab::{Slab, Slot};
use super::*;
use proptest::prelude::*;
use std::collections::HashMap;
use terrace_base::{Rng, SplitMix64};

#[test]
fn asking_for_lines_past_the_end_does_no_harm() {
    let buf = Buf::from(&[7; 100][..]);
    buf.prefetch_header();
    for (from, to) in [(0, 100), (64, 5000), (usize::MAX / 2, usize::MAX / 2 + 64), (9, 3)] {
        buf.prefetch(from, to);
    }
    assert_eq!(*buf, [7; 100]);
}

#[test]
fn buffers_are_aligned_zeroed_and_counted() {
    assert_eq!(size_of::<Buf>(), size_of::<usize>());
    assert_eq!(size_of::<Option<Buf>>(), size_of::<usize>());
    for len in [0, 1, 63, 64, 447, 448, 449, 4096, 8128, 8129, 100_000, 600_000, 5 << 20] {
        let mut stale = BufMut::for_overwrite(len);
        stale.fill(0xab);
        drop(stale);
        let mut buf = BufMut::zeroed(len);
        assert_eq!((buf.len(), buf.as_ptr() as usize % 64), (len, 0));
        assert!(buf.iter().all(|byte| *byte == 0), "{len}");
        buf.fill(7);
        let buf = buf.freeze();
        let other = buf.clone();
        assert!(Buf::ptr_eq(&buf, &other) && !Buf::ptr_eq(&buf, &Buf::from(&[7u8; 3][..])));
        drop(buf);
        assert!(other.len() == len && other.iter().all(|byte| *byte == 7));
        assert!(other.charge_bytes() >= len + 64);
        assert!(other.charge_bytes() <= (len + 64) * 9 / 8 + 512.max(len / 100), "{len}");
    }
    let mut buf = BufMut::for_overwrite(10);
    buf.truncate(4);
    buf.truncate(6);
    assert_eq!(buf.freeze().len(), 4);
}

#[test]
fn threads_share_and_free_each_others_buffers() {
    let (sender, receiver) = std::sync::mpsc::channel::<(Buf, u8)>();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let sender = sender.clone();
            scope.spawn(move || {
                let mut rng = SplitMix64::new(u64::from(thread));
                let mut kept: Vec<(Buf, u8)> = Vec::new();
                for step in 0..3000 {
                    let len = rng.below(if step % 50 == 0 { 300_000 } else { 9000 }) as usize;
                    let mark = rng.next_u64() as u8;
                    let mut buf = BufMut::for_overwrite(len);
                    buf.fill(mark);
                    let buf = buf.freeze();
                    sender.send((buf.clone(), mark)).unwrap();
                    kept.push((buf, mark));
                    if kept.len() > 100 {
                        let (buf, mark) = kept.swap_remove(rng.below(100) as usize);
                        assert!(buf.iter().all(|byte| *byte == mark));
                    }
                }
            });
        }
        drop(sender);
        for (buf, mark) in receiver {
            assert!(buf.iter().all(|byte| *byte == mark));
        }
    });
}

/// A slab with an account of its slots.
struct Audit {
    slab: Box<Slab>,
    live: HashMap<usize, Slot>,
    next: usize,
}

impl Audit {
    fn new() -> Self {
        Self { slab: Box::new(Slab::new()), live: HashMap::new(), next: 0 }
    }

    fn allocate(&mut self, len: usize) -> usize {
        let slot = self.slab.allocate(len);
        // SAFETY: the slot was just handed out for `len` bytes and a header.
        unsafe {
            if slot.fresh {
                assert_eq!(slot.start.add(HEADER_BYTES + len / 2).read(), 0);
            }
            slot.start.write_bytes(0xcd, HEADER_BYTES + len);
        }
        self.next += 1;
        self.live.insert(self.next, slot);
        self.next
    }

    fn free(&mut self, id: usize) {
        let slot = self.live.remove(&id).unwrap();
        // SAFETY: handed out by this slab, freed once.
        unsafe { self.slab.free(slot.start, slot.origin) }
    }

    /// Moves what lies in slot `id` to the front, if that leaves chunks to give back.
    fn is_moved(&mut self, id: usize) -> bool {
        let Some(slot) = self.slab.allocate_in_front(self.live[&id].origin) else { return false };
        // SAFETY: the slot was just handed out, and is as large as it says.
        unsafe { slot.start.write_bytes(0xcd, slot.origin.slot_bytes()) };
        let before = self.live.insert(id, slot).unwrap();
        // SAFETY: handed out by this slab, freed once.
        unsafe { self.slab.free(before.start, before.origin) }
        true
    }

    fn check(&self) {
        let mut ranges: Vec<(usize, usize)> = self
            .live
            .values()
            .map(|slot| (slot.start.as_ptr() as usize, slot.origin.slot_bytes()))
            .collect();
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "slots overlap");
        }
        let used: usize = ranges.iter().map(|(_, bytes)| bytes).sum();
        assert_eq!(self.slab.stats().used_bytes, used);
        assert!(self.slab.stats().reserved_bytes >= used);
    }
}

#[test]
fn a_small_cache_holds_little_more_than_its_blocks() {
    let mut audit = Audit::new();
    let mut rng = SplitMix64::new(1);
    let mut ids = Vec::new();
    let mut peak = 0;
    for step in 0..60_000 {
        // Mostly blocks, some metadata, some read-ahead.
        let len = match rng.below(200) {
            0 => 262_144,
            1..20 => 500 + rng.below(60_000) as usize,
            _ => 3500 + rng.below(1200) as usize,
        };
        ids.push(audit.allocate(len));
        while audit.slab.stats().used_bytes > 8 << 20 {
            let at = rng.below(ids.len() as u64) as usize;
            audit.free(ids.swap_remove(at));
        }
        if step % 10_000 == 0 {
            audit.check();
        }
        peak = peak.max(audit.slab.stats().reserved_bytes);
    }
    assert!(peak < 32 << 20, "{peak} bytes reserved for 8 MiB of blocks");
    for id in ids {
        audit.free(id);
    }
    audit.check();
    let left = audit.slab.stats().reserved_bytes;
    assert!(left <= 16 << 20, "{left} bytes kept after everything was freed");
}

#[test]
fn a_large_class_lives_in_huge_pages_and_goes_back() {
    let mut audit = Audit::new();
    let ids: Vec<usize> = (0..20_000).map(|_| audit.allocate(4096)).collect();
    audit.check();
    let stats = audit.slab.stats();
    assert!(stats.reserved_bytes < stats.used_bytes + stats.used_bytes / 20 + (2 << 20));
    let huge = audit.live.values().filter(|slot| {
        // Chunks of one huge page are aligned to it: their first slot shows.
        (slot.start.as_ptr() as usize).is_multiple_of(2 << 20)
    });
    assert!(huge.count() > 30);
    for (at, id) in ids.iter().enumerate() {
        if at % 100 != 0 {
            audit.free(*id);
        }
    }
    audit.check();
    // The freed slots serve again before the slab grows.
    let before = audit.slab.stats().reserved_bytes;
    let again: Vec<usize> = (0..19_000).map(|_| audit.allocate(4096)).collect();
    assert_eq!(audit.slab.stats().reserved_bytes, before);
    for id in again.into_iter().chain(ids.into_iter().step_by(100)) {
        audit.free(id);
    }
    assert!(audit.slab.stats().reserved_bytes <= 10 << 20, "{:?}", audit.slab.stats());
}

#[test]
fn what_one_thread_has_freed_serves_others_before_the_slab_grows() {
    let mut audit = Audit::new();
    let ids: Vec<usize> = (0..20_000).map(|_| audit.allocate(4096)).collect();
    for id in ids.iter().step_by(2) {
        audit.free(*id);
    }
    let before = audit.slab.stats().reserved_bytes;
    // Of four threads in a row most have another shard than this one.
    for _ in 0..4 {
        let slab = &audit.slab;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let slots: Vec<Slot> = (0..9_000).map(|_| slab.allocate(4096)).collect();
                assert_eq!(slab.stats().reserved_bytes, before);
                for slot in slots {
                    // SAFETY: handed out by this slab, freed once.
                    unsafe { slab.free(slot.start, slot.origin) }
                }
            });
        });
    }
    audit.check();
    ids.into_iter().skip(1).step_by(2).for_each(|id| audit.free(id));
}

#[test]
fn chunks_that_are_not_needed_go_back_once_their_slots_have_moved() {
    let mut audit = Audit::new();
    let mut ids: Vec<usize> = (0..20_000).map(|_| audit.allocate(4096)).collect();
    let full = audit.slab.stats().reserved_bytes;
    assert!(ids.iter().all(|id| !audit.is_moved(*id)), "all of them are needed");
    let mut rng = SplitMix64::new(3);
    while ids.len() > 5_000 {
        let at = rng.below(ids.len() as u64) as usize;
        audit.free(ids.swap_remove(at));
    }
    let cut_up = audit.slab.stats();
    assert!(cut_up.reserved_bytes > full / 10 * 9, "{cut_up:?}: hardly a chunk is empty");
    let moved = ids.iter().filter(|id| audit.is_moved(**id)).count();
    assert!((2_500..5_000).contains(&moved), "{moved}");
    audit.check();
    let packed = audit.slab.stats();
    assert_eq!(packed.used_bytes, cut_up.used_bytes);
    // One chunk that is not full, one that is kept empty, and those for any class.
    assert!(packed.reserved_bytes <= packed.used_bytes + (13 << 20), "{packed:?}");
    assert!(ids.iter().all(|id| !audit.is_moved(*id)), "there is nothing left to move");
    for id in ids {
        audit.free(id);
    }
    audit.check();
}

#[test]
fn a_buffer_that_is_moved_is_the_same() {
    // No other test has buffers of this class, of which four lie in a chunk.
    let make = |byte: u8| Buf::from(&[byte; 500_000][..]);
    let others: Vec<Buf> = (0..64).map(|_| make(0)).collect();
    let bufs: Vec<Buf> = (1..=8).map(make).collect();
    assert!(bufs.iter().all(|buf| buf.packed().is_none()));
    let kept: Vec<Buf> = others.into_iter().step_by(4).collect();
    assert!(bufs[0].mark());
    for (buf, byte) in bufs.iter().zip(1..) {
        let copy = buf.packed().unwrap();
        assert!(!Buf::ptr_eq(buf, &copy) && copy.iter().all(|b| *b == byte));
        assert_eq!((copy.len(), copy.charge_bytes()), (buf.len(), buf.charge_bytes()));
        assert_eq!(copy.take_mark(), byte == 1);
        let slice = Slice::of(buf.clone(), 7, 100);
        let moved = slice.packed().unwrap();
        assert!(moved == slice && moved.pinned_bytes() == slice.pinned_bytes());
        let holder = buf.clone();
        assert!(buf.packed().is_none(), "it stays in memory all the same");
        drop(holder);
    }
    drop(kept);
    assert!(Slice::empty().packed().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn slots_never_overlap(
        steps in proptest::collection::vec((prop::bool::weighted(0.6), 0usize..700_000, 0u32..6), 1..300),
    ) {
        let mut audit = Audit::new();
        let mut ids = Vec::new();
        for (allocate, number, shift) in steps {
            if allocate || ids.is_empty() {
                ids.push(audit.allocate(number >> (2 * shift)));
            } else {
                audit.free(ids.swap_remove(number % ids.len()));
            }
        }
        audit.check();
        for id in ids {
            audit.free(id);
        }
        prop_assert_eq!(audit.slab.stats().used_bytes, 0);
        prop_assert!(audit.slab.stats().reserved_bytes <= 32 << 20);
    }
}

#[test]
fn tight_buffers_take_what_they_say_and_little_more_than_they_hold() {
    for len in (0..20_000).step_by(37).chain([4096 - 64, 100_000, 700_000]) {
        let mut buf = BufMut::tight(len);
        assert_eq!(buf.len(), len);
        assert_eq!(buf.as_ptr() as usize % 64, 0);
        buf.fill(len as u8);
        let buf = buf.freeze();
        let copy = buf.clone();
        assert!(copy.iter().all(|byte| *byte == len as u8));
        assert_eq!(buf.charge_bytes(), BufMut::tight_charge_bytes(len));
        let most = (len + 64) + (len + 64) / 31 + 80;
        assert!(buf.charge_bytes() >= len + 64 && buf.charge_bytes() <= most, "{len}");
    }
}

#[test]
fn a_slot_for_swapping_keeps_buffers_alive_and_frees_them_once() {
    let slot = arc_swap::ArcSwapAny::<Option<Buf>>::new(None);
    let make = |byte: u8| Buf::from(&[byte; 700][..]);
    let first = make(1);
    slot.store(Some(first.clone()));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    if let Some(buf) = &*slot.load() {
                        assert!(buf.iter().all(|byte| *byte == buf[0]));
                    }
                }
            });
        }
        for round in 0..2000u32 {
            slot.store((!round.is_multiple_of(7)).then(|| make(round as u8)));
        }
    });
    let kept = make(9);
    slot.store(Some(kept.clone()));
    assert!(slot.compare_and_swap(&Some(first.clone()), None).is_some());
    assert!(slot.load().as_ref().is_some_and(|buf| Buf::ptr_eq(buf, &kept)));
    slot.compare_and_swap(&Some(kept.clone()), None);
    assert!(slot.load().is_none());
    assert!(first.mark() && !first.clone().mark() && first.take_mark() && !first.take_mark());
}
