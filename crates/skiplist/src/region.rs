//! The memory under one arena: a contiguous zeroed range of fixed length that never moves.
//!
//! On Linux an anonymous mapping without swap reservation, so that only touched pages cost memory:
//! ordinary pages in the first [`HUGE_PAGE_BYTES`] (an almost empty list stays small), huge pages
//! after them (a search in a large list misses the TLB at every hop otherwise). Elsewhere, and
//! under miri and loom, zeroed memory of the global allocator. Called by the arena and the index.
//!
//! The first touch of a huge page waits until the system has cleared it, some milliseconds where it has to find it first. So
//! the next one is given out ahead of use, and [`Region::touch`] waits in place of the thread that fills the list.
#![allow(unsafe_code)] // maps and unmaps memory

use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    /// What lies behind was not given out to be touched. Beside the memory, so any order of its changes will do.
    given: AtomicUsize,
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

    /// The huge page that will be needed next, if the first `used` bytes come near it; the caller touches it. Each is given once.
    /// Near is an eighth of what is used: many short lists would else have more of what they do not use than of what they do.
    #[inline]
    pub(crate) fn next_page(&self, used: usize) -> Option<Range<usize>> {
        let given = self.given.load(Ordering::Relaxed);
        let near = used + (used / 8).min(HUGE_PAGE_BYTES);
        if near <= given || given >= self.len {
            return None;
        }
        let start = given.max(used.next_multiple_of(HUGE_PAGE_BYTES));
        let end = (start + HUGE_PAGE_BYTES).min(self.len);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        let is_ours = self.given.compare_exchange(given, end, success, failure).is_ok();
        (is_ours && start < end).then_some(start..end)
    }

    /// What the first `used` bytes being touched commits: whole pages.
    pub(crate) fn committed_bytes(&self, used: usize) -> usize {
        let page = if used <= HUGE_PAGE_BYTES { PAGE_BYTES } else { HUGE_PAGE_BYTES };
        used.next_multiple_of(page).min(self.len)
    }
}

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod mapped {
    use super::{
        AtomicUsize, HUGE_PAGE_BYTES, LARGEST_PAGE_BYTES, NonNull, PAGE_BYTES, Range, Region, io,
    };
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
            Ok(Self { base, len, given: AtomicUsize::new(HUGE_PAGE_BYTES) })
        }

        /// Has the system clear what [`Self::next_page`] gave, which changes nothing that is seen: by a fault of each of its
        /// pages and not by a call, for a call would keep all other threads from changing the map of the process meanwhile,
        /// and allocators do that.
        #[cfg(target_arch = "x86_64")]
        pub(crate) fn touch(&self, page: &Range<usize>) {
            debug_assert!(page.start <= page.end && page.end <= self.len);
            for at in page.clone().step_by(PAGE_BYTES) {
                // SAFETY: the byte lies in our own mapping. The instruction leaves its value as it is, in one step also beside
                // threads that have come here meanwhile and write: neither they nor the compiler can tell that it ran.
                unsafe {
                    let byte = self.base.as_ptr().add(at);
                    std::arch::asm!("lock or byte ptr [{}], 0", in(reg) byte, options(nostack));
                }
            }
        }

        /// The same by a call, which kernels before 5.14 refuse; then the first write there waits.
        #[cfg(not(target_arch = "x86_64"))]
        pub(crate) fn touch(&self, page: &Range<usize>) {
            debug_assert!(page.start <= page.end && page.end <= self.len);
            // SAFETY: the range lies in our own mapping and starts at one of its pages; its contents stay what they are,
            // also those that others write meanwhile.
            unsafe {
                let at = self.base.as_ptr().add(page.start);
                let _ = madvise(at.cast(), page.len(), Advice::LinuxPopulateWrite);
            }
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
    use super::{AtomicUsize, NonNull, PAGE_BYTES, Range, Region, io};
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
            // All of it is cleared.
            Ok(Self { base, len, given: AtomicUsize::new(len) })
        }

        pub(crate) fn touch(&self, _page: &Range<usize>) {}
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

#[cfg(all(test, target_os = "linux", not(miri), not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_given_once_and_before_it_is_reached() {
        let page = HUGE_PAGE_BYTES;
        let region = Region::reserve(4 * page + 5).unwrap();
        assert_eq!(region.next_page(page / 2), None, "what is almost empty stays small");
        assert_eq!(region.next_page(page - 1), Some(page..2 * page));
        assert_eq!(region.next_page(page), None);
        assert_eq!(region.next_page(page + page / 2), None, "no more than is needed soon");
        assert_eq!(region.next_page(2 * page - page / 8), Some(2 * page..3 * page));
        // One entry filled what was given and more.
        assert_eq!(region.next_page(3 * page + 1), Some(4 * page..region.len));
        for used in [3 * page + 1, 4 * page, region.len] {
            assert_eq!(region.next_page(used), None);
        }
        let last = 4 * page..region.len;
        // SAFETY: within the region, which nobody else has.
        let byte = |at: usize| unsafe { &mut *region.base.as_ptr().add(at) };
        *byte(last.start) = 7;
        region.touch(&last);
        assert_eq!((*byte(last.start), *byte(last.end - 1)), (7, 0));
    }

    #[test]
    fn a_small_region_gives_nothing() {
        for len in [1, 4096, HUGE_PAGE_BYTES] {
            let region = Region::reserve(len).unwrap();
            assert_eq!(region.next_page(len), None);
        }
    }

    /// Also of a thread that comes there at the same time.
    #[test]
    fn what_is_written_stays_when_a_page_is_touched() {
        for _ in 0..20 {
            let region = Region::reserve(2 * HUGE_PAGE_BYTES).unwrap();
            let page = HUGE_PAGE_BYTES..2 * HUGE_PAGE_BYTES;
            let words = |at: usize| {
                // SAFETY: aligned, in the region, and only accessed as an atomic.
                unsafe { AtomicUsize::from_ptr(region.base().as_ptr().add(at).cast()) }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| region.touch(&page));
                for at in page.clone().step_by(8).rev() {
                    words(at).store(at, Ordering::Relaxed);
                }
            });
            region.touch(&page);
            assert!(page.clone().step_by(8).all(|at| words(at).load(Ordering::Relaxed) == at));
            assert!((0..page.start).step_by(8).all(|at| words(at).load(Ordering::Relaxed) == 0));
        }
    }
}
