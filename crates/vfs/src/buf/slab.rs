//! Slots for buffers. (Plain allocations for now.)

use super::HEADER_BYTES;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Where a slot came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    bytes: usize,
}

impl Origin {
    pub(crate) fn slot_bytes(self, _len: usize) -> usize {
        self.bytes
    }
}

/// A slot handed out.
pub(crate) struct Slot {
    pub(crate) start: NonNull<u8>,
    pub(crate) origin: Origin,
}

/// How much memory the slab holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlabStats {
    /// Bytes reserved from the system.
    pub reserved_bytes: usize,
    /// Bytes of slots that are in use.
    pub used_bytes: usize,
}

/// The memory of all buffers of this process.
pub fn slab_stats() -> SlabStats {
    SlabStats::default()
}

pub(crate) fn allocate(len: usize, _zeroed: bool) -> Slot {
    let bytes = (HEADER_BYTES + len).next_multiple_of(64);
    let layout = Layout::from_size_align(bytes, 64).unwrap_or(Layout::new::<u8>());
    // SAFETY: the layout is not empty.
    let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
        handle_alloc_error(layout)
    };
    Slot { start, origin: Origin { bytes } }
}

pub(crate) unsafe fn free(start: NonNull<u8>, origin: Origin, _len: usize) {
    // SAFETY: allocated in `allocate` with this layout.
    unsafe { dealloc(start.as_ptr(), Layout::from_size_align_unchecked(origin.bytes, 64)) }
}
