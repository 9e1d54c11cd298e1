//! Zeroed memory straight from the kernel, committed as it is touched.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;

/// The size and alignment of a huge page on the machines this runs on.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The page size of the machines this runs on; where it is larger, small mappings waste some.
pub(crate) const PAGE_BYTES: usize = 4096;

/// No machine has larger ordinary pages: the ends of a mapping of huge pages are given back at multiples of this.
const LARGEST_PAGE_BYTES: usize = 64 << 10;

/// What [`reserve`] leaves mapped for `len` bytes, whatever the size of a page. Below a huge page it gives nothing back,
/// and the kernel rounds.
fn mapped_bytes(len: usize) -> Option<usize> {
    match len < HUGE_PAGE_BYTES {
        true => Some(len),
        false => len.checked_next_multiple_of(LARGEST_PAGE_BYTES),
    }
}

/// Maps `len` bytes of zeros aligned to `align`, a power of two of at least a page. `len` is a
/// multiple of the page size. With `huge`, asks for huge pages, best effort.
pub(crate) fn reserve(len: usize, align: usize, huge: bool) -> io::Result<NonNull<u8>> {
    // Over-reserves by the alignment and gives the ends back; address space costs nothing.
    let slack = if align > PAGE_BYTES { align } else { 0 };
    let len = mapped_bytes(len).ok_or(io::ErrorKind::OutOfMemory)?;
    let padded = len.checked_add(slack).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: a new private mapping at an address of the kernel's choice aliases nothing.
    let base = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            padded,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )?
    };
    let lead = (base as usize).next_multiple_of(align) - base as usize;
    // SAFETY: the three parts lie inside the mapping; the ends are unmapped once and never used.
    unsafe {
        let start = base.byte_add(lead);
        if lead > 0 {
            let _ = munmap(base, lead);
        }
        if slack > lead {
            let _ = munmap(start.byte_add(len), slack - lead);
        }
        if huge {
            let _ = madvise(start, len, Advice::LinuxHugepage);
        }
        NonNull::new(start.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

/// Has the kernel clear and commit memory now: by a fault of each page and not by a call, for a call would keep all other
/// threads from changing the map of the process meanwhile, and allocators do that.
///
/// # Safety
/// `start` and `len` are those of a [`reserve`] that nobody uses yet.
pub(crate) unsafe fn populate(start: NonNull<u8>, len: usize) {
    for at in (0..len).step_by(PAGE_BYTES) {
        // SAFETY: by contract. Volatile, for nobody here reads the zero that is there already.
        unsafe { start.as_ptr().add(at).write_volatile(0) }
    }
}

/// Returns memory to the kernel.
///
/// # Safety
/// `start` and `len` are those of a [`reserve`], and nobody uses the memory any more.
pub(crate) unsafe fn release(start: NonNull<u8>, len: usize) {
    let len = mapped_bytes(len).unwrap_or(len);
    // SAFETY: by contract. A failure leaks the range, which is harmless.
    let _ = unsafe { munmap(start.as_ptr().cast(), len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else the kernel refuses to take them back where a page is larger than 4 KiB.
    #[test]
    fn the_ends_of_a_large_mapping_are_multiples_of_every_page_size() {
        for len in [HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + PAGE_BYTES, 5 * HUGE_PAGE_BYTES - PAGE_BYTES]
        {
            let mapped = mapped_bytes(len).unwrap();
            assert!(mapped >= len && mapped < len + LARGEST_PAGE_BYTES, "{len}: {mapped}");
            for page_bytes in [4 << 10, 16 << 10, 64 << 10] {
                assert!(mapped.is_multiple_of(page_bytes), "{len}: {mapped}");
            }
        }
        assert_eq!(mapped_bytes(3 * PAGE_BYTES), Some(3 * PAGE_BYTES));
        assert_eq!(mapped_bytes(usize::MAX), None);
    }
}
