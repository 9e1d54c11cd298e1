//! A region of bytes of fixed size, in huge pages where the kernel grants them: fences, tables
//! and other long-lived arrays that are read at random live here.

use crate::map::{HUGE_PAGE_BYTES, PAGE_BYTES, release, reserve};
use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A fixed number of bytes, committed as they are touched. Aligned to at least a page.
pub struct Region {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the region owns its memory alone.
unsafe impl Send for Region {}
// SAFETY: shared access only reads.
unsafe impl Sync for Region {}

impl Region {
    /// `len` zeros. Aborts when the address space is exhausted, as allocations do.
    pub fn zeroed(len: usize) -> Self {
        if len == 0 {
            return Self { start: NonNull::dangling(), len };
        }
        let huge = len >= HUGE_PAGE_BYTES;
        let align = if huge { HUGE_PAGE_BYTES } else { PAGE_BYTES };
        match reserve(len.next_multiple_of(PAGE_BYTES), align, huge) {
            Ok(start) => Self { start, len },
            Err(_) => handle_alloc_error(Layout::array::<u8>(len).unwrap_or(Layout::new::<u8>())),
        }
    }
}

impl Default for Region {
    fn default() -> Self {
        Self::zeroed(0)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: reserved with this length, and nobody can hold a borrow any more.
            unsafe { release(self.start, self.len.next_multiple_of(PAGE_BYTES)) }
        }
    }
}

impl Deref for Region {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping holds `len` bytes, zeros from the start; for 0 any address will do.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Region {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_zero_writable_and_aligned() {
        for len in [0, 1, 4096, 4097, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 5] {
            let mut region = Region::zeroed(len);
            assert_eq!(region.len(), len);
            assert!(region.iter().all(|byte| *byte == 0));
            region.fill(1);
            let align = if len >= HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { PAGE_BYTES };
            assert!(len == 0 || (region.as_ptr() as usize).is_multiple_of(align));
        }
    }
}
