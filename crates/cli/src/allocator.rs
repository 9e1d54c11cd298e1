//! The C library's allocator, set for a process that is one server.
//!
//! glibc serves large blocks with `mmap` and gives them back when they are freed, but raises the size from
//! which it does so to that of the largest block that was ever freed, up to 32 MiB. From then on the
//! buffers of flushes, compactions and reads come from the arenas of the threads, which keep what is freed:
//! seven arenas of 10 MB each where the store uses 64 MiB. A size that was set stays.

#![allow(unsafe_code, reason = "one call into the C library")]

/// Blocks of this many bytes and more are mapped; the top of an arena is given back from there on.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: libc::c_int = 128 << 10;

/// Sets the sizes above. Where the allocator is another, nothing happens.
pub fn give_back_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `mallopt` takes two numbers and locks what it changes; it is called before other threads are
    // started all the same.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, MAPPED_BYTES);
    }
}
