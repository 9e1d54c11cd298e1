//! Huge pages that the system has cleared before a buffer needs them. The first touch of one takes 0.1 to 5 milliseconds, for
//! which a read would wait whose block is the first in a chunk.
//!
//! The slab starts no threads. A program that has one to spare says how it is asked ([`ask_when_short`]), and that thread
//! calls [`provide`]. A few huge pages wait for any class in the reserve of the slab, as those do that were given back.

use crate::slab::{RESERVE_CHUNKS, SLAB, Slab};
use std::sync::Arc;

pub use crate::askers::Ask;

/// How much of the slab has one huge page more at hand.
const FOR_EACH_BYTES: usize = 64 << 20;

/// From now on `asker` is asked when few huge pages are at hand, as long as its owner keeps it. One of several is asked.
pub fn ask_when_short(asker: &Arc<Ask>) {
    SLAB.ask_when_short(asker);
}

/// Has the system clear as many huge pages as should be at hand: one for each 64 MiB of all buffers, four at most. A system that
/// has none to give is asked again at the next shortage.
pub fn provide() {
    SLAB.provide();
}

/// How many huge pages are at hand.
pub fn at_hand() -> usize {
    SLAB.idle_chunks()
}

impl Slab {
    /// Whether more should be at hand than are.
    fn is_short(&self) -> bool {
        let wanted = (self.chunk_bytes() / FOR_EACH_BYTES).min(RESERVE_CHUNKS);
        self.idle_chunks() < wanted
    }

    /// To be called without a lock, after a huge page was taken.
    #[cold]
    pub(super) fn ask_if_short(&self) {
        if self.is_short() {
            self.askers.ask();
        }
    }

    /// As [`provide`], for this slab.
    pub(super) fn provide(&self) {
        while self.is_short() && self.map_idle() {}
    }

    /// As [`ask_when_short`], for this slab.
    pub(super) fn ask_when_short(&self, asker: &Arc<Ask>) {
        self.askers.add(asker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::HUGE_PAGE_BYTES;
    use crate::slab::Slot;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    /// Takes buffers until the chunks have grown to `bytes`.
    fn fill(slab: &Slab, slots: &mut Vec<Slot>, bytes: usize) {
        while slab.chunk_bytes() < bytes {
            slots.push(slab.allocate(8 << 10));
        }
    }

    fn free(slab: &Slab, slots: Vec<Slot>) {
        for slot in slots {
            // SAFETY: each comes from this slab and is given back once.
            unsafe { slab.free(slot.start, slot.origin) }
        }
    }

    #[test]
    fn a_slab_that_grows_has_cleared_pages_at_hand_and_a_small_one_has_none() {
        let (slab, mut slots) = (Box::new(Slab::new()), Vec::new());
        fill(&slab, &mut slots, FOR_EACH_BYTES / 2);
        slab.provide();
        assert_eq!(slab.idle_chunks(), 0);
        for (times, wanted) in [(1, 1), (3, 3), (9, RESERVE_CHUNKS)] {
            fill(&slab, &mut slots, times * FOR_EACH_BYTES);
            slab.provide();
            slab.provide();
            assert_eq!(slab.idle_chunks(), wanted, "{times}");
        }
        let before = slab.chunk_bytes();
        while slab.idle_chunks() == RESERVE_CHUNKS {
            slots.push(slab.allocate(8 << 10));
        }
        // It was one of those at hand, and holds nothing yet.
        assert_eq!(slab.chunk_bytes(), before);
        let first = slots.last().unwrap();
        assert!(first.fresh);
        // SAFETY: the slot is ours and in memory that was mapped.
        let bytes = unsafe { std::slice::from_raw_parts(first.start.as_ptr(), 8 << 10) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        free(&slab, slots);
        assert!(slab.chunk_bytes() <= (RESERVE_CHUNKS + 2) * HUGE_PAGE_BYTES);
    }

    #[test]
    fn who_says_yes_is_asked_alone_and_who_has_gone_is_not_asked() {
        let (slab, mut slots) = (Box::new(Slab::new()), Vec::new());
        let asked = Arc::new([const { AtomicUsize::new(0) }; 4]);
        let asker = |at: usize, answer: bool| -> Arc<Ask> {
            let asked = asked.clone();
            Arc::new(move || {
                asked[at].fetch_add(1, SeqCst);
                answer
            })
        };
        let askers = [asker(0, true), asker(1, false), asker(2, true), asker(3, true)];
        askers.iter().for_each(|asker| slab.ask_when_short(asker));
        let [gone, _no, _yes, _late] = askers;
        drop(gone);
        fill(&slab, &mut slots, FOR_EACH_BYTES - HUGE_PAGE_BYTES);
        let counts = || asked.each_ref().map(|count| count.load(SeqCst));
        assert_eq!(counts(), [0; 4]);
        fill(&slab, &mut slots, FOR_EACH_BYTES + HUGE_PAGE_BYTES);
        let once = counts();
        assert!(once[0] == 0 && once[1] > 0 && once[2] == once[1] && once[3] == 0, "{once:?}");
        slab.provide();
        // Where enough is at hand nobody is asked, and each huge page that is taken leaves too few.
        let after = counts();
        while slab.idle_chunks() > 0 {
            slots.push(slab.allocate(8 << 10));
        }
        assert_eq!(counts()[2], after[2] + 1);
        free(&slab, slots);
    }
}
