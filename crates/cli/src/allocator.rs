//! The C library's allocator, set for a process that is one server.
//!
//! glibc serves large blocks with `mmap` and gives them back when they are freed, but raises the size from
//! which it does so to that of the largest block that was ever freed, up to 32 MiB. From then on the
//! buffers of flushes, compactions and reads come from the arenas of the threads, which keep what is freed:
//! seven arenas of 10 MB each where the store uses 64 MiB. A size that was set stays. Small blocks lie in arenas whatever the
//! size: what a command over 100,000 elements has freed stays there, once for every thread that ever carried one out, until
//! somebody asks for it back.

#![allow(unsafe_code, reason = "two calls into the C library")]

use std::time::Duration;

/// Blocks of this many bytes and more are mapped; the top of an arena is given back from there on.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: libc::c_int = 128 << 10;
/// How often the memory of the process is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// What it grows by before free pages are given back. It costs a walk over all free blocks, under the locks of the arenas.
const GROWTH_BYTES: u64 = 16 << 20;

/// Sets the sizes above, and has free pages given back again and again. Where the allocator is another, nothing happens.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `mallopt` takes two numbers and locks what it changes; it is called before other threads are
    // started all the same.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, MAPPED_BYTES);
    }
    // Without it the server works as well.
    let _ = std::thread::Builder::new().name("allocator".into()).spawn(watch);
}

/// Gives free pages back whenever the process has grown.
fn watch() {
    let mut least_bytes = u64::MAX;
    while let Some(resident_bytes) = terrace_server::resident_bytes() {
        least_bytes = least_bytes.min(resident_bytes);
        if resident_bytes - least_bytes >= GROWTH_BYTES {
            give_back_free_pages();
            least_bytes = terrace_server::resident_bytes().unwrap_or(resident_bytes);
        }
        std::thread::sleep(LOOK);
    }
}

/// Gives the pages of all arenas that hold nothing back to the system; false if there are none.
fn give_back_free_pages() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `malloc_trim` takes a number and locks each arena that it walks through.
    let given_back = unsafe { libc::malloc_trim(0) } != 0;
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let given_back = false;
    given_back
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::give_back_free_pages;

    #[test]
    fn what_a_thread_has_freed_is_given_back() {
        let given_back = std::thread::spawn(|| {
            let mut blocks: Vec<Vec<u8>> = (0..20_000).map(|_| vec![1; 1000]).collect();
            // The last one keeps the top of the arena from falling to where it was.
            blocks.swap(0, 19_999);
            blocks.truncate(1);
            (give_back_free_pages(), blocks)
        });
        assert!(given_back.join().unwrap().0);
    }
}
