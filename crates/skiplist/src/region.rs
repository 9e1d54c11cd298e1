//! The memory under one arena: a contiguous zeroed range of fixed length that never moves.
//!
//! On Linux an anonymous mapping without swap reservation, so that only touched pages cost memory:
//! ordinary pages in the first [`HUGE_PAGE_BYTES`] (an almost empty list stays small), huge pages
//! after them (a search in a large list misses the TLB at every hop otherwise). Elsewhere, and
//! under miri and loom, zeroed memory of the global allocator. Called by the arena only.
#![allow(unsafe_code)] // maps and unmaps memory

use std::io;
use std::ptr::NonNull;

/// The size and alignment of a huge page.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;
/// The size of an ordinary page.
const PAGE_BYTES: usize = 4 << 10;

/// No machine has larger ordinary pages: the ends of a mapping are given back at multiples of this.
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
const LARGEST_PAGE_BYTES: usize = 64 << 10;

/// Zeroed memory, returned when dropped.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a region is plain memory with no tie to a thread; what may be done with it from several
// threads is the arena's business.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// The first byte; aligned to a page at least.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// What the first `used` bytes being touched commits: whole pages.
    pub(crate) fn committed_bytes(&self, used: usize) -> usize {
        let page = if used <= HUGE_PAGE_BYTES { PAGE_BYTES } else { HUGE_PAGE_BYTES };
        used.next_multiple_of(page).min(self.len)
    }
}

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod mapped {
    use super::{HUGE_PAGE_BYTES, LARGEST_PAGE_BYTES, NonNull, PAGE_BYTES, Region, io};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    impl Region {
        /// Reserves at least `bytes` bytes.
        pub(crate) fn reserve(bytes: usize) -> io::Result<Self> {
            let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
            // Beyond a huge page the kernel gets ends back, which it takes at multiples of its pages only.
            let grain = if bytes > HUGE_PAGE_BYTES { LARGEST_PAGE_BYTES } else { PAGE_BYTES };
            let len = bytes.max(1).checked_next_multiple_of(grain).ok_or_else(too_large)?;
            let align = if len > HUGE_PAGE_BYTES { HUGE_PAGE_BYTES } else { PAGE_BYTES };
            let mapped = len.checked_add(align - PAGE_BYTES).ok_or_else(too_large)?;
            // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
            let start = unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    mapped,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE | MapFlags::NORESERVE,
                )?
            }
            .cast::<u8>();
            let skipped = start.align_offset(align);
            // SAFETY: skipped <= align - PAGE_BYTES, so base..base + len lies in the mapping; what
            // is unmapped before and after it is ours and unused. The lengths are page multiples.
            let base = unsafe {
                let base = start.add(skipped);
                if skipped > 0 {
                    munmap(start.cast(), skipped)?;
                }
                let tail = mapped - skipped - len;
                if tail > 0 {
                    munmap(base.add(len).cast(), tail)?;
                }
                base
            };
            let small = len.min(HUGE_PAGE_BYTES);
            // SAFETY: advice on our own mapping; it changes page sizes, not contents. Kernels
            // without transparent huge pages refuse it, which costs speed only.
            unsafe {
                let _ = madvise(base.cast(), small, Advice::LinuxNoHugepage);
                if len > small {
                    let _ = madvise(base.add(small).cast(), len - small, Advice::LinuxHugepage);
                }
            }
            let base = NonNull::new(base).ok_or_else(too_large)?;
            Ok(Self { base, len })
        }
    }

    impl Drop for Region {
        fn drop(&mut self) {
            // SAFETY: exactly the range that `reserve` left mapped, and nothing uses it any more.
            let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
mod allocated {
    use super::{NonNull, PAGE_BYTES, Region, io};
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    fn layout(len: usize) -> io::Result<Layout> {
        Layout::from_size_align(len, PAGE_BYTES)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))
    }

    impl Region {
        /// Reserves at least `bytes` bytes.
        pub(crate) fn reserve(bytes: usize) -> io::Result<Self> {
            let len = bytes.max(1);
            // SAFETY: the length is not 0.
            let base = NonNull::new(unsafe { alloc_zeroed(layout(len)?) })
                .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
            Ok(Self { base, len })
        }
    }

    impl Drop for Region {
        fn drop(&mut self) {
            if let Ok(layout) = layout(self.len) {
                // SAFETY: allocated in `reserve` with this layout.
                unsafe { dealloc(self.base.as_ptr(), layout) }
            }
        }
    }
}
