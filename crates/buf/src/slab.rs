//! The slab: slots for buffers, cut from chunks of memory that each serve one size class.
//!
//! - A class is split into [`SHARDS`]; a thread allocates from the shard of its number, and from others before that
//!   grows: a thread that has filled a cache may have ended. A slot goes back to the shard it came from. Each shard of
//!   each class has its own lock; under it only the lock of the reserve is ever taken.
//! - A shard starts with a chunk of [`SMALL_CHUNK_BYTES`] (or one slot) and grows by chunks as
//!   large as what it holds, up to one huge page: reserved memory stays within about twice the
//!   peak use of each class, and a busy class lives in huge pages.
//! - Slots are taken from the oldest chunk that has one, so that younger chunks run empty. An
//!   empty chunk goes back to the kernel, except for one per shard that is no larger than what
//!   the shard has in use (or small), and a few huge pages kept for any class.
//! - What is freed here and there leaves no chunk empty. Owners who move what lies in chunks that are not needed
//!   for the slots in use ([`allocate_in_front`]) give these back.
//! - While a large cache fills, the kernel has cleared some of these huge pages ahead ([`crate::ahead`]).
//! - A chunk is committed as its slots are touched for the first time. Free slots keep their
//!   bytes; nothing in them is read before it is written, or else the slot is zeroed.

use crate::HEADER_BYTES;
use crate::askers::Askers;
use crate::class::{CLASS_COUNT, class_of, slot_bytes};
use crate::map::{HUGE_PAGE_BYTES, PAGE_BYTES, populate, release, reserve};
use crate::thread_number::thread_number;
use parking_lot::Mutex;
use std::alloc::{Layout, handle_alloc_error};
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const SHARDS: usize = 4;

/// The first chunk of a shard, unless one slot needs more.
const SMALL_CHUNK_BYTES: usize = 64 << 10;

/// Empty huge-page chunks kept for any class.
pub(super) const RESERVE_CHUNKS: usize = 4;

/// How much memory buffers take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlabStats {
    /// Bytes of address space reserved for buffers; what was never touched is not committed.
    pub reserved_bytes: usize,
    /// Bytes of the slots in use, headers and rounding included.
    pub used_bytes: usize,
}

/// Where a slot came from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Origin {
    /// A chunk of a shard.
    Chunk { class: u8, shard: u8, chunk: u32, slot: u32 },
    /// A mapping of its own.
    Mapping { bytes: usize },
    /// The global allocator, to the byte.
    Heap { bytes: usize },
}

/// What the global allocator adds to an aligned allocation, about.
const HEAP_OVERHEAD_BYTES: usize = 16;

impl Origin {
    /// Bytes of memory that the slot takes.
    pub(super) fn slot_bytes(self) -> usize {
        match self {
            Self::Chunk { class, .. } => slot_bytes(usize::from(class)),
            Self::Mapping { bytes } => bytes,
            Self::Heap { bytes } => bytes + HEAP_OVERHEAD_BYTES,
        }
    }
}

/// Bytes of memory that a slot of [`allocate_tight`] for `len` bytes of data takes.
pub(super) fn tight_slot_bytes(len: usize) -> usize {
    let bytes = len.saturating_add(HEADER_BYTES);
    match class_of(bytes).map(slot_bytes) {
        Some(slot) if is_tight(bytes, slot) => slot,
        _ => bytes.next_multiple_of(HEADER_BYTES) + HEAP_OVERHEAD_BYTES,
    }
}

/// Whether at most 1/32 of a slot is waste.
fn is_tight(bytes: usize, slot: usize) -> bool {
    slot - bytes <= slot / 32
}

/// A slot handed out.
pub(super) struct Slot {
    pub(super) start: NonNull<u8>,
    pub(super) origin: Origin,
    /// Nothing was ever written to it: all zeros.
    pub(super) fresh: bool,
}

struct Chunk {
    start: NonNull<u8>,
    bytes: usize,
    /// Slots in the chunk.
    capacity: u32,
    /// Slots from here on were never used.
    next_fresh: u32,
    /// Slots given back, reused last in first out.
    free: Vec<u32>,
    live: u32,
    /// The memory served before: no slot is zeros.
    stale: bool,
}

// SAFETY: a chunk is memory owned by the slab, used under its shard's lock.
unsafe impl Send for Chunk {}

impl Chunk {
    fn take(&mut self) -> Option<(u32, bool)> {
        let taken = match self.free.pop() {
            Some(slot) => (slot, false),
            None if self.next_fresh < self.capacity => {
                self.next_fresh += 1;
                (self.next_fresh - 1, !self.stale)
            }
            None => return None,
        };
        self.live += 1;
        Some(taken)
    }
}

/// A slot of a chunk that starts at `start`.
struct Taken {
    start: NonNull<u8>,
    chunk: u32,
    slot: u32,
    fresh: bool,
}

impl Taken {
    fn slot(self, class: usize, shard: usize) -> Slot {
        let Self { start, chunk, slot, fresh } = self;
        // SAFETY: `slot` is below the capacity of the chunk.
        let start = unsafe { start.add(slot as usize * slot_bytes(class)) };
        let origin = Origin::Chunk { class: class as u8, shard: shard as u8, chunk, slot };
        Slot { start, origin, fresh }
    }
}

/// How many of the oldest chunks have room for all slots in use, as long as these are more than `above` and no more than
/// `upto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Needed {
    chunks: usize,
    above: usize,
    upto: usize,
}

impl Needed {
    fn count(chunks: &[Option<Chunk>], slots: usize) -> Self {
        let mut needed = Self { chunks: 0, above: 0, upto: 0 };
        for chunk in chunks {
            if needed.upto >= slots {
                break;
            }
            let room = chunk.as_ref().map_or(0, |chunk| chunk.capacity as usize);
            let (chunks, above) = (needed.chunks + 1, needed.upto);
            needed = Self { chunks, above, upto: above + room };
        }
        needed
    }
}

/// One class for some of the threads.
struct Shard {
    /// By number; numbers of returned chunks are used again.
    chunks: Vec<Option<Chunk>>,
    vacant: Vec<u32>,
    /// Chunks with a slot to give.
    usable: BTreeSet<u32>,
    /// The one of them that is empty, kept against back-and-forth; used last.
    spare: Option<u32>,
    held_bytes: usize,
    live_slots: usize,
    /// As it was counted last, of the chunks that are there.
    needed: Option<Needed>,
}

impl Shard {
    const NEW: Self = Self {
        chunks: Vec::new(),
        vacant: Vec::new(),
        usable: BTreeSet::new(),
        spare: None,
        held_bytes: 0,
        live_slots: 0,
        needed: None,
    };

    fn chunk_mut(&mut self, number: u32) -> Option<&mut Chunk> {
        self.chunks.get_mut(number as usize)?.as_mut()
    }

    /// A slot of a chunk that is there.
    fn take(&mut self) -> Option<Taken> {
        let mut oldest = self.usable.iter().copied();
        let mut number = oldest.next()?;
        if Some(number) == self.spare {
            number = oldest.next().unwrap_or(number);
        }
        self.take_from(number)
    }

    /// A slot for what lies in chunk `number`, if all slots in use find room in the chunks before it.
    fn take_in_front(&mut self, class: usize, number: u32) -> Option<Taken> {
        let front = *self.usable.first()?;
        // No chunk has more slots, so that most calls count no chunks.
        let most_slots = HUGE_PAGE_BYTES / slot_bytes(class);
        if front >= number
            || (number as usize) < self.live_slots.div_ceil(most_slots)
            || (number as usize) < self.needed_chunks()
        {
            return None;
        }
        self.take_from(front)
    }

    /// How many of the oldest chunks have room for all slots in use. Not counted for each slot that is to be moved: there may
    /// be thousands of chunks, and of those that went none has been replaced.
    fn needed_chunks(&mut self) -> usize {
        let slots = self.live_slots;
        let known = self.needed.filter(|known| known.above < slots && slots <= known.upto);
        let needed = known.unwrap_or_else(|| Needed::count(&self.chunks, slots));
        self.needed = Some(needed);
        needed.chunks
    }

    /// A slot of chunk `number`, if it has one.
    fn take_from(&mut self, number: u32) -> Option<Taken> {
        let chunk = self.chunk_mut(number)?;
        let start = chunk.start;
        let (slot, fresh) = chunk.take()?;
        if chunk.live == chunk.capacity {
            self.usable.remove(&number);
        }
        if Some(number) == self.spare {
            self.spare = None;
        }
        self.live_slots += 1;
        Some(Taken { start, chunk: number, slot, fresh })
    }

    fn add(&mut self, chunk: Chunk) {
        self.needed = None;
        self.held_bytes += chunk.bytes;
        let number = match self.vacant.pop() {
            Some(number) => {
                self.chunks[number as usize] = Some(chunk);
                number
            }
            None => {
                self.chunks.push(Some(chunk));
                (self.chunks.len() - 1) as u32
            }
        };
        self.usable.insert(number);
    }

    /// Takes a slot back; returns the chunks to give up.
    fn put(&mut self, class: usize, number: u32, slot: u32) -> [Option<Chunk>; 2] {
        self.live_slots -= 1;
        let Some(chunk) = self.chunk_mut(number) else { return [None, None] };
        chunk.free.push(slot);
        chunk.live -= 1;
        let (live, capacity) = (chunk.live, chunk.capacity);
        if live + 1 == capacity {
            self.usable.insert(number);
        }
        if live > 0 {
            return [None, None];
        }
        let slot = slot_bytes(class);
        let affordable = SMALL_CHUNK_BYTES.max(slot).max(self.live_slots * slot);
        let mut given_up = [None, None];
        for (place, empty) in given_up.iter_mut().zip([self.spare.take(), Some(number)]) {
            let Some(number) = empty else { continue };
            let fits = self.chunk_mut(number).is_some_and(|chunk| chunk.bytes <= affordable);
            if fits && self.spare.is_none() {
                self.spare = Some(number);
            } else {
                *place = self.remove(number);
            }
        }
        given_up
    }

    fn remove(&mut self, number: u32) -> Option<Chunk> {
        let chunk = self.chunks.get_mut(number as usize)?.take()?;
        self.needed = None;
        self.usable.remove(&number);
        self.vacant.push(number);
        self.held_bytes -= chunk.bytes;
        Some(chunk)
    }
}

/// A chunk of one huge page that nobody uses.
struct Idle {
    start: NonNull<u8>,
    /// It served before: no slot is zeros.
    stale: bool,
}

// SAFETY: memory owned by the slab.
unsafe impl Send for Idle {}

#[repr(align(128))]
struct Padded(Mutex<Shard>);

/// All slots of a process. Tests make their own.
pub(super) struct Slab {
    shards: [[Padded; SHARDS]; CLASS_COUNT],
    idle: Mutex<Vec<Idle>>,
    pub(super) askers: Askers,
    reserved_bytes: AtomicUsize,
    /// Of mappings of their own.
    mapped_bytes: AtomicUsize,
}

pub(super) static SLAB: Slab = Slab::new();

/// The memory of all buffers of this process. Takes every lock of the slab in turn: for reports.
pub fn slab_stats() -> SlabStats {
    SLAB.stats()
}

/// A slot for `len` bytes of data. Aborts when memory is exhausted, as allocations do.
pub(super) fn allocate(len: usize) -> Slot {
    SLAB.allocate(len)
}

/// A slot for `len` bytes of data that wastes next to nothing: one of the slab if its class fits,
/// else memory of the global allocator. For what is many, long-lived, and of any size. Aborts when
/// memory is exhausted, as allocations do.
pub(super) fn allocate_tight(len: usize) -> Slot {
    let Some(bytes) = len.checked_add(HEADER_BYTES) else { exhausted(len) };
    if class_of(bytes).is_some_and(|class| is_tight(bytes, slot_bytes(class))) {
        return SLAB.allocate(len);
    }
    let bytes = bytes.next_multiple_of(HEADER_BYTES);
    let Ok(layout) = Layout::from_size_align(bytes, HEADER_BYTES) else { exhausted(bytes) };
    // SAFETY: the layout is not empty: it holds a header.
    let start = unsafe { std::alloc::alloc_zeroed(layout) };
    let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
    Slot { start, origin: Origin::Heap { bytes }, fresh: true }
}

/// A slot as large as that of `origin`, which is in use, if its chunk could be given back were what lies there moved to
/// free slots of older chunks: one of these.
pub(super) fn allocate_in_front(origin: Origin) -> Option<Slot> {
    SLAB.allocate_in_front(origin)
}

/// Takes a slot back.
///
/// # Safety
/// `start` and `origin` are those of one [`allocate`], and nobody uses the slot any more.
pub(super) unsafe fn free(start: NonNull<u8>, origin: Origin) {
    // SAFETY: by contract.
    unsafe { SLAB.free(start, origin) }
}

fn exhausted(bytes: usize) -> ! {
    handle_alloc_error(Layout::from_size_align(bytes, HEADER_BYTES).unwrap_or(Layout::new::<u8>()))
}

impl Slab {
    pub(super) const fn new() -> Self {
        Self {
            shards: [const { [const { Padded(Mutex::new(Shard::NEW)) }; SHARDS] }; CLASS_COUNT],
            idle: Mutex::new(Vec::new()),
            askers: Askers::new(),
            reserved_bytes: AtomicUsize::new(0),
            mapped_bytes: AtomicUsize::new(0),
        }
    }

    pub(super) fn stats(&self) -> SlabStats {
        let mapped = self.mapped_bytes.load(Relaxed);
        let used = |(class, shards): (usize, &[Padded; SHARDS])| {
            let slots: usize = shards.iter().map(|shard| shard.0.lock().live_slots).sum();
            slots * slot_bytes(class)
        };
        SlabStats {
            reserved_bytes: self.reserved_bytes.load(Relaxed) + mapped,
            used_bytes: self.shards.iter().enumerate().map(used).sum::<usize>() + mapped,
        }
    }

    pub(super) fn allocate(&self, len: usize) -> Slot {
        let Some(bytes) = len.checked_add(HEADER_BYTES) else { exhausted(len) };
        let Some(class) = class_of(bytes) else { return self.map(bytes) };
        let own = thread_number() % SHARDS;
        for shard in (own..SHARDS).chain(0..own) {
            let taken = self.shards[class][shard].0.lock().take();
            if let Some(taken) = taken {
                return taken.slot(class, shard);
            }
        }
        let mut state = self.shards[class][own].0.lock();
        let mut took_huge = false;
        let slot = loop {
            if let Some(taken) = state.take() {
                break taken.slot(class, own);
            }
            let chunk = self.map_chunk(class, state.held_bytes);
            took_huge |= chunk.bytes == HUGE_PAGE_BYTES;
            state.add(chunk);
        };
        drop(state);
        if took_huge {
            self.ask_if_short();
        }
        slot
    }

    /// As [`allocate_in_front`], for a slot of this slab.
    pub(super) fn allocate_in_front(&self, origin: Origin) -> Option<Slot> {
        let Origin::Chunk { class, shard, chunk, .. } = origin else { return None };
        let (class, shard) = (usize::from(class), usize::from(shard));
        let taken = self.shards[class][shard].0.lock().take_in_front(class, chunk)?;
        Some(taken.slot(class, shard))
    }

    fn map(&self, bytes: usize) -> Slot {
        let Some(bytes) = bytes.checked_next_multiple_of(PAGE_BYTES) else { exhausted(bytes) };
        let huge = bytes >= HUGE_PAGE_BYTES;
        let align = if huge { HUGE_PAGE_BYTES } else { PAGE_BYTES };
        let Ok(start) = reserve(bytes, align, huge) else { exhausted(bytes) };
        self.mapped_bytes.fetch_add(bytes, Relaxed);
        Slot { start, origin: Origin::Mapping { bytes }, fresh: true }
    }

    fn map_chunk(&self, class: usize, held_bytes: usize) -> Chunk {
        let slot = slot_bytes(class);
        let grown = held_bytes.checked_ilog2().map_or(0, |log| 1 << log);
        let bytes =
            grown.clamp(SMALL_CHUNK_BYTES, HUGE_PAGE_BYTES).max(slot.next_multiple_of(PAGE_BYTES));
        let huge = bytes == HUGE_PAGE_BYTES;
        let idle = if huge { self.idle.lock().pop() } else { None };
        let (start, stale) = match idle {
            Some(Idle { start, stale }) => (start, stale),
            None => {
                let align = if huge { HUGE_PAGE_BYTES } else { PAGE_BYTES };
                let Ok(start) = reserve(bytes, align, huge) else { exhausted(bytes) };
                self.reserved_bytes.fetch_add(bytes, Relaxed);
                (start, false)
            }
        };
        let capacity = (bytes / slot) as u32;
        Chunk { start, bytes, capacity, next_fresh: 0, free: Vec::new(), live: 0, stale }
    }

    /// Bytes of all chunks, the reserve among them.
    pub(super) fn chunk_bytes(&self) -> usize {
        self.reserved_bytes.load(Relaxed)
    }

    pub(super) fn idle_chunks(&self) -> usize {
        self.idle.lock().len()
    }

    /// Puts one more chunk of cleared memory into the reserve; whether that could be done.
    pub(super) fn map_idle(&self) -> bool {
        let Ok(start) = reserve(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES, true) else { return false };
        // SAFETY: the mapping is ours alone.
        unsafe { populate(start, HUGE_PAGE_BYTES) }
        let mut idle = self.idle.lock();
        if idle.len() < RESERVE_CHUNKS {
            idle.push(Idle { start, stale: false });
            self.reserved_bytes.fetch_add(HUGE_PAGE_BYTES, Relaxed);
            return true;
        }
        drop(idle);
        // SAFETY: as above, and nobody has seen it.
        unsafe { release(start, HUGE_PAGE_BYTES) }
        false
    }

    /// As [`free`], for a slot of this slab.
    pub(super) unsafe fn free(&self, start: NonNull<u8>, origin: Origin) {
        match origin {
            Origin::Chunk { class, shard, chunk, slot } => {
                let class = usize::from(class);
                let state = &self.shards[class][usize::from(shard)].0;
                let given_up = state.lock().put(class, chunk, slot);
                for chunk in given_up.into_iter().flatten() {
                    self.give_up(chunk);
                }
            }
            Origin::Mapping { bytes } => {
                self.mapped_bytes.fetch_sub(bytes, Relaxed);
                // SAFETY: by contract the mapping is ours alone.
                unsafe { release(start, bytes) }
            }
            Origin::Heap { bytes } => {
                // SAFETY: `allocate_tight` got the memory with this layout, which was valid then;
                // by contract it is ours alone.
                unsafe {
                    let layout = Layout::from_size_align_unchecked(bytes, HEADER_BYTES);
                    std::alloc::dealloc(start.as_ptr(), layout);
                }
            }
        }
    }

    fn give_up(&self, chunk: Chunk) {
        if chunk.bytes == HUGE_PAGE_BYTES {
            let mut idle = self.idle.lock();
            if idle.len() < RESERVE_CHUNKS {
                idle.push(Idle { start: chunk.start, stale: true });
                return;
            }
        }
        self.reserved_bytes.fetch_sub(chunk.bytes, Relaxed);
        // SAFETY: the chunk was removed from its shard with no slot in use.
        unsafe { release(chunk.start, chunk.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chunk of no memory, for shards that hand out no slot of it.
    fn chunk(capacity: u32) -> Chunk {
        let start = NonNull::dangling();
        let (bytes, free) = (SMALL_CHUNK_BYTES, Vec::new());
        Chunk { start, bytes, capacity, next_fresh: 0, free, live: 0, stale: false }
    }

    #[test]
    fn how_many_chunks_are_needed_is_counted_anew_only_where_that_is_another_number() {
        const CLASS: usize = 0;
        let mut shard = Shard::NEW;
        (0..40).for_each(|_| shard.add(chunk(8)));
        let mut slots: Vec<(u32, u32)> = Vec::new();
        while let Some(taken) = shard.take() {
            slots.push((taken.chunk, taken.slot));
        }
        assert_eq!((slots.len(), shard.needed_chunks()), (320, 40));
        // The oldest half goes, and one slot of each other chunk.
        let (gone, mut left): (Vec<_>, Vec<_>) =
            slots.into_iter().partition(|(number, slot)| *number < 20 || *slot == number % 8);
        for (number, slot) in gone {
            shard.put(CLASS, number, slot);
        }
        let (mut moved, mut counted) = (0, 0);
        for place in &mut left {
            let before = shard.needed;
            let taken = shard.take_in_front(CLASS, place.0);
            counted += usize::from(shard.needed != before);
            let anew = Needed::count(&shard.chunks, shard.live_slots);
            assert_eq!(shard.needed_chunks(), anew.chunks, "after {moved}");
            let Some(taken) = taken else { continue };
            let (number, slot) = std::mem::replace(place, (taken.chunk, taken.slot));
            shard.put(CLASS, number, slot);
            moved += 1;
        }
        // What lay in three chunks, of which one stays for a while; each that went was a reason to count.
        assert_eq!((left.len(), moved), (140, 21));
        assert!(counted <= 3, "{counted} times");
    }

    #[test]
    fn what_was_counted_is_taken_as_long_as_it_holds() {
        let mut shard = Shard::NEW;
        (0..3).for_each(|_| shard.add(chunk(8)));
        // A number that no count gives.
        let known = Some(Needed { chunks: 77, above: 8, upto: 16 });
        for (slots, chunks) in [(0, 0), (8, 1), (9, 77), (16, 77), (17, 3), (24, 3)] {
            (shard.live_slots, shard.needed) = (slots, known);
            assert_eq!(shard.needed_chunks(), chunks, "{slots} slots");
        }
        shard.needed = known;
        shard.add(chunk(8));
        assert_eq!(shard.needed, None, "a chunk has come");
        shard.needed = known;
        assert!(shard.remove(3).is_some());
        assert_eq!(shard.needed, None, "a chunk has gone");
    }
}
