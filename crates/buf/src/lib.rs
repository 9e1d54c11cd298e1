//! Page memory: blocks of bytes with a reference count, from the slab.
//!
//! Floor 0: uses no other crate of the workspace. What is read from a file lives in a [`Buf`]; values leave
//! the engine as a [`Slice`] of one.
//!
//! ```text
//!            slot (64-byte aligned)
//! ┌──────────────────────────┬───────────────────────────────┬─────────┐
//! │ header, 64 bytes         │ data, `len` bytes             │ unused  │
//! │ refs │ mark │ len │ origin│ ▲ where Buf and BufMut point  │         │
//! └──────────────────────────┴───────────────────────────────┴─────────┘
//! ```
//!
//! A [`BufMut`] is the only owner of its slot. [`BufMut::freeze`] makes it a [`Buf`], which is
//! immutable from then on and shared by counting. All memory of a slot is initialised: fresh
//! chunks come zeroed from the kernel, reused slots hold what was last written to them. A *tight*
//! buffer whose size fits no class well lies in memory of the global allocator instead.

#![allow(unsafe_code, reason = "raw slots with a reference count; every block states its proof")]

pub mod ahead;
mod askers;
mod class;
mod map;
mod region;
mod slab;
mod slice;
mod thread_number;

#[cfg(test)]
mod tests;

pub use region::Region;
pub use slab::{SlabStats, slab_stats};
pub use slice::Slice;
pub use thread_number::thread_number;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

/// Bytes of the header in front of the data; also the alignment of the data.
const HEADER_BYTES: usize = 64;

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Owners up to which a buffer is moved ([`Buf::packed`]): with more of them it stays in memory all the same.
const MAX_PACKED_OWNERS: usize = 2;

#[repr(C, align(64))]
struct Header {
    refs: AtomicUsize,
    /// For the owners' use: [`Buf::mark`].
    marked: AtomicBool,
    /// Bytes of data in use.
    len: usize,
    /// What to tell the slab when the slot goes back.
    origin: slab::Origin,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

/// Takes a slot and writes its header; returns where the data starts.
fn take_slot(len: usize, zeroed: bool) -> NonNull<u8> {
    write_header(slab::allocate(len), len, zeroed)
}

fn write_header(slot: slab::Slot, len: usize, zeroed: bool) -> NonNull<u8> {
    // SAFETY: the slab returns at least HEADER_BYTES + len bytes, aligned to 64, owned by us.
    unsafe {
        if zeroed && !slot.fresh {
            slot.start.add(HEADER_BYTES).write_bytes(0, len);
        }
        let header = slot.start.cast::<Header>();
        let (refs, marked) = (AtomicUsize::new(1), AtomicBool::new(false));
        header.write(Header { refs, marked, len, origin: slot.origin });
        slot.start.add(HEADER_BYTES)
    }
}

/// The header of the slot whose data starts at `data`.
///
/// # Safety
/// `data` came from [`write_header`] and the slot has not been given back.
#[inline]
unsafe fn header_of<'a>(data: NonNull<u8>) -> &'a Header {
    // SAFETY: by contract the header lies HEADER_BYTES before the data and is initialised.
    unsafe { data.sub(HEADER_BYTES).cast::<Header>().as_ref() }
}

/// Gives a slot back.
///
/// # Safety
/// As [`header_of`], and nobody uses the slot any more.
#[cold]
#[inline(never)]
unsafe fn give_back(data: NonNull<u8>) {
    // SAFETY: by contract the slot is live and ours alone.
    unsafe {
        let origin = header_of(data).origin;
        slab::free(data.sub(HEADER_BYTES), origin);
    }
}

/// Bytes with one owner, to be filled and frozen.
pub struct BufMut {
    data: NonNull<u8>,
}

// SAFETY: a BufMut owns its slot alone; bytes have no thread affinity.
unsafe impl Send for BufMut {}
// SAFETY: shared access only reads.
unsafe impl Sync for BufMut {}

impl BufMut {
    /// `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        Self { data: take_slot(len, true) }
    }

    /// `len` bytes of unspecified content (zeros, or what an earlier buffer held), to be
    /// overwritten.
    pub fn for_overwrite(len: usize) -> Self {
        Self { data: take_slot(len, false) }
    }

    /// As [`BufMut::for_overwrite`], in memory that is no larger than needed (to 64 bytes), though
    /// perhaps not in huge pages: for what is kept long and counted to the byte.
    pub fn tight(len: usize) -> Self {
        Self { data: write_header(slab::allocate_tight(len), len, false) }
    }

    /// What [`Buf::charge_bytes`] will say of a [`BufMut::tight`] of `len` bytes.
    pub fn tight_charge_bytes(len: usize) -> usize {
        slab::tight_slot_bytes(len)
    }

    /// Makes the bytes immutable and shareable. Costs nothing.
    pub fn freeze(self) -> Buf {
        let data = self.data;
        std::mem::forget(self);
        Buf { data }
    }

    /// Forgets the bytes from `len` on; does nothing if there are no more than that.
    pub fn truncate(&mut self, len: usize) {
        // SAFETY: we own the slot alone, so a unique reference to its header is fine; the length
        // only shrinks.
        unsafe {
            let header = self.data.sub(HEADER_BYTES).cast::<Header>().as_mut();
            header.len = header.len.min(len);
        }
    }
}

impl Deref for BufMut {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the slot is live, holds `len` initialised bytes, and is ours.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), header_of(self.data).len) }
    }
}

impl DerefMut for BufMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), header_of(self.data).len) }
    }
}

impl Drop for BufMut {
    fn drop(&mut self) {
        // SAFETY: a BufMut is the only owner of its slot.
        unsafe { give_back(self.data) }
    }
}

impl fmt::Debug for BufMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufMut({} bytes)", self.len())
    }
}

/// Asks for the cache line at `address`, which may be any.
#[cfg(target_arch = "x86_64")]
#[inline]
fn prefetch_line(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: SSE is part of x86_64; a prefetch changes no state and faults on no address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn prefetch_line(address: *const u8) {
    // SAFETY: `prfm` is part of the base instruction set, changes no state and faults on no
    // address.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{address}]",
            address = in(reg) address,
            options(nostack, preserves_flags, readonly),
        );
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline]
fn prefetch_line(_address: *const u8) {}

/// Asks for the cache lines that a value begins and ends in, and waits for neither.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    prefetch_line(start);
    if size_of::<T>() > align_of::<T>() {
        prefetch_line(start.wrapping_add(size_of::<T>() - 1));
    }
}

/// Immutable shared bytes. One pointer wide; a clone is one relaxed increment.
pub struct Buf {
    data: NonNull<u8>,
}

// SAFETY: the bytes are immutable and the count is atomic.
unsafe impl Send for Buf {}
// SAFETY: as above.
unsafe impl Sync for Buf {}

impl Buf {
    /// Bytes of memory the buffer takes: its slot, header included.
    pub fn charge_bytes(&self) -> usize {
        // SAFETY: `self` keeps the slot alive.
        unsafe { header_of(self.data) }.origin.slot_bytes()
    }

    /// Whether both are the same buffer (not: equal bytes).
    pub fn ptr_eq(a: &Self, b: &Self) -> bool {
        a.data == b.data
    }

    /// Sets the mark that all clones share; whether it was unset. A store only then. What it means
    /// is the owners' affair.
    #[inline]
    pub fn mark(&self) -> bool {
        // SAFETY: `self` keeps the slot alive.
        let marked = &unsafe { header_of(self.data) }.marked;
        let first = !marked.load(Ordering::Relaxed);
        if first {
            marked.store(true, Ordering::Relaxed);
        }
        first
    }

    /// Unsets the mark; whether it was set.
    pub fn take_mark(&self) -> bool {
        // SAFETY: `self` keeps the slot alive.
        unsafe { header_of(self.data) }.marked.swap(false, Ordering::Relaxed)
    }

    /// A copy that takes the place of this buffer in less memory: there is one if what lies around this buffer is mostly
    /// free, and would be given back without it, and if it has no other owners than a cache and its slot. The mark is
    /// the same.
    pub fn packed(&self) -> Option<Self> {
        // SAFETY: `self` keeps the slot alive.
        let header = unsafe { header_of(self.data) };
        if header.refs.load(Ordering::Relaxed) > MAX_PACKED_OWNERS {
            return None;
        }
        let slot = slab::allocate_in_front(header.origin)?;
        // The slot is as large as that of this buffer.
        let mut copy = BufMut { data: write_header(slot, self.len(), false) };
        copy.copy_from_slice(self);
        let copy = copy.freeze();
        if header.marked.load(Ordering::Relaxed) {
            copy.mark();
        }
        Some(copy)
    }

    /// Asks for the cache lines of bytes `from..to`, and waits for none of them: not even for the length of the
    /// buffer, so the range may pass its end. Nothing happens on machines without such a hint.
    #[inline]
    pub fn prefetch(&self, from: usize, to: usize) {
        for offset in (from..to).step_by(LINE_BYTES) {
            prefetch_line(self.data.as_ptr().wrapping_add(offset));
        }
    }

    /// Asks for the cache line of the length and the count of owners, as [`Self::prefetch`].
    #[inline]
    pub fn prefetch_header(&self) {
        prefetch_line(self.data.as_ptr().wrapping_sub(HEADER_BYTES));
    }

    /// Where the data starts.
    #[inline]
    pub(crate) fn data(&self) -> NonNull<u8> {
        self.data
    }
}

// SAFETY: a Buf is one pointer to a counted slot. Cloning and dropping change the count by one each
// and cancel each other out; equal pointers are the same slot, since a slot is never empty and is
// given back only when its count is 0; neither panics; and a slot never moves.
unsafe impl arc_swap::RefCnt for Buf {
    type Base = u8;

    fn into_ptr(me: Self) -> *mut u8 {
        let data = me.data;
        std::mem::forget(me);
        data.as_ptr()
    }

    fn as_ptr(me: &Self) -> *mut u8 {
        me.data.as_ptr()
    }

    unsafe fn from_ptr(ptr: *const u8) -> Self {
        // SAFETY: by contract the pointer came from `into_ptr`, so it is not null.
        Self { data: unsafe { NonNull::new_unchecked(ptr.cast_mut()) } }
    }
}

impl Clone for Buf {
    #[inline]
    fn clone(&self) -> Self {
        // SAFETY: `self` keeps the slot alive.
        let before = unsafe { header_of(self.data) }.refs.fetch_add(1, Ordering::Relaxed);
        if before > isize::MAX as usize {
            // Only leaking 2^63 clones gets here; the count must not wrap (as std's Arc).
            std::process::abort();
        }
        Self { data: self.data }
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `self` keeps the slot alive until the decrement; the last owner synchronises
        // with every earlier release and then is alone.
        unsafe {
            if header_of(self.data).refs.fetch_sub(1, Ordering::Release) == 1 {
                fence(Ordering::Acquire);
                give_back(self.data);
            }
        }
    }
}

impl Deref for Buf {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the slot is live and its bytes are initialised and immutable.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), header_of(self.data).len) }
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for Buf {
    fn from(bytes: &[u8]) -> Self {
        let mut buf = BufMut::for_overwrite(bytes.len());
        buf.copy_from_slice(bytes);
        buf.freeze()
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len())
    }
}
