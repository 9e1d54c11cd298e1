//! The C library's allocator, set for a process that is one server.
//!
//! glibc serves large blocks with `mmap` and gives them back when they are freed, but raises the size from
//! which it does so to that of the largest block that was ever freed, up to 32 MiB. From then on the
//! buffers of flushes, compactions and reads come from the arenas of the threads, which keep what is freed:
//! seven arenas of 10 MB each where the store uses 64 MiB. A size that was set stays. Small blocks lie in arenas whatever the
//! size: what a command over 100,000 elements has freed stays there, once for every thread that ever carried one out, until
//! somebody asks for it back.

#![allow(unsafe_code, reason = "two calls into the C library")]

use std::time::{Duration, Instant};

/// Blocks of this many bytes and more are mapped; the top of an arena is given back from there on.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_BYTES: libc::c_int = 128 << 10;
/// How often the memory of the process is looked at.
const LOOK: Duration = Duration::from_secs(2);
/// What it grows by before free pages are given back. It costs a walk over all free blocks, under the locks of the arenas.
const GROWTH_BYTES: u64 = 16 << 20;
/// After how many looks free pages are given back once more, without growth: what was in use the last time may be free by
/// now. Twice as many each time that gave little back, up to an hour: so what is freed stays for about as long as it
/// was in use, at most.
const FIRST_PAUSE: u32 = 5;
const LAST_PAUSE: u32 = 1800;
/// More than this given back is not little: commands that free as much again and again let the process shrink and grow,
/// but not above what it had, and what they leave would stay for the longest pause.
const MUCH_BYTES: u64 = 4 << 20;
/// For this many times as long as that took nothing is given back, whatever the process has grown by: threads wait for an arena
/// that is walked through, half a second where five million blocks are free.
const RESTS: u32 = 50;

/// Sets the sizes above, and has free pages given back again and again. Where the allocator is another, nothing happens.
pub fn give_back_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `mallopt` takes two numbers and locks what it changes; it is called before other threads are
    // started all the same.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, MAPPED_BYTES);
    }
    if cfg!(all(target_os = "linux", target_env = "gnu")) {
        // Without it the server works as well.
        let _ = std::thread::Builder::new().name("allocator".into()).spawn(watch);
    }
}

/// Gives free pages back whenever the process has grown, and some time after that.
fn watch() {
    let mut growth = Growth::default();
    while let Some(resident_bytes) = terrace_server::resident_bytes() {
        if growth.note(resident_bytes) {
            let begun = Instant::now();
            give_back_free_pages();
            let took = begun.elapsed();
            let after = terrace_server::resident_bytes().unwrap_or(resident_bytes);
            growth.note_given((resident_bytes, after), took);
        }
        std::thread::sleep(LOOK);
    }
}

/// What is known of the memory of the process.
struct Growth {
    /// The least since free pages were given back.
    least_bytes: u64,
    /// Looks until they are given back without growth, and how many these were at first.
    looks_left: u32,
    pause: u32,
    /// Looks that come too soon after the last time.
    rest: u32,
}

impl Default for Growth {
    fn default() -> Self {
        Self { least_bytes: u64::MAX, looks_left: FIRST_PAUSE, pause: FIRST_PAUSE, rest: 0 }
    }
}

impl Growth {
    /// The process has this much in memory: whether free pages are to be given back.
    fn note(&mut self, resident_bytes: u64) -> bool {
        self.least_bytes = self.least_bytes.min(resident_bytes);
        self.looks_left = self.looks_left.saturating_sub(1);
        if self.rest > 0 {
            self.rest -= 1;
            return false;
        }
        let has_grown = resident_bytes - self.least_bytes >= GROWTH_BYTES;
        if has_grown || self.looks_left == 0 {
            self.pause = if has_grown { FIRST_PAUSE } else { LAST_PAUSE.min(2 * self.pause) };
            self.looks_left = self.pause;
            return true;
        }
        false
    }

    /// Free pages were given back, which `took` so long: the process had `before` bytes in memory, and has `after`.
    fn note_given(&mut self, (before, after): (u64, u64), took: Duration) {
        self.least_bytes = after;
        let looks = took.saturating_mul(RESTS).as_millis() / LOOK.as_millis();
        self.rest = u32::try_from(looks).unwrap_or(u32::MAX);
        if before.saturating_sub(after) >= MUCH_BYTES {
            self.pause = FIRST_PAUSE;
            self.looks_left = FIRST_PAUSE;
        }
    }
}

/// Gives the pages of all arenas that hold nothing back to the system, if the allocator has arenas.
pub fn give_back_free_pages() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `malloc_trim` takes a number and locks each arena that it walks through.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is given back while it is in use is not; a process that does not grow any more gives it back later.
    #[test]
    fn pages_are_given_back_when_the_process_has_grown_and_some_time_after_that() {
        const START: u64 = 100 << 20;
        let mut growth = Growth::default();
        let mut looks_until = |resident_bytes: u64| {
            let looks = 1 + (0..10_000).take_while(|_| !growth.note(resident_bytes)).count();
            growth.note_given((resident_bytes, resident_bytes), Duration::ZERO);
            looks
        };
        assert_eq!(looks_until(START), 5);
        let grown = START + GROWTH_BYTES;
        assert_eq!(looks_until(grown), 1);
        for looks in [5, 10, 20, 40, 80, 160, 320, 640, 1280, 1800, 1800] {
            assert_eq!(looks_until(grown), looks);
        }
        assert_eq!(looks_until(grown + GROWTH_BYTES), 1);
        assert_eq!(looks_until(grown), 5);
    }

    /// Commands that take and free as much again and again: the process does not grow, and what they have freed goes soon.
    #[test]
    fn pages_are_given_back_soon_again_while_many_are_free() {
        const START: u64 = 100 << 20;
        const FREE: u64 = 12 << 20;
        let mut growth = Growth::default();
        let mut looks_until = |resident_bytes: u64, free_bytes: u64| {
            let looks = 1 + (0..10_000).take_while(|_| !growth.note(resident_bytes)).count();
            growth.note_given((resident_bytes, resident_bytes - free_bytes), Duration::ZERO);
            looks
        };
        for _ in 0..100 {
            assert_eq!(looks_until(START, FREE), 5);
        }
        // In use for some time.
        for looks in [5, 10, 20] {
            assert_eq!(looks_until(START, 0), looks);
        }
        assert_eq!(looks_until(START, FREE), 40);
        assert_eq!(looks_until(START, FREE), 5);
    }

    #[test]
    fn pages_are_given_back_seldom_where_that_takes_long() {
        let mut growth = Growth::default();
        let mut resident_bytes = 100 << 20;
        let mut looks_until = |took_ms| {
            resident_bytes += GROWTH_BYTES;
            let looks = 1 + (0..10_000).take_while(|_| !growth.note(resident_bytes)).count();
            growth.note_given((resident_bytes, resident_bytes), Duration::from_millis(took_ms));
            looks
        };
        // It is not known at first that the process has grown.
        assert_eq!(looks_until(39), 5);
        assert_eq!(looks_until(400), 1);
        assert_eq!(looks_until(0), 11);
        assert_eq!(looks_until(0), 1);
    }

    /// In a process of its own: in this one other tests allocate meanwhile.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[test]
    fn what_a_thread_has_freed_is_given_back() {
        const IS_ALONE: &str = "TERRACE_TEST_IS_ALONE";
        if std::env::var_os(IS_ALONE).is_none() {
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            alone.env(IS_ALONE, "1").arg("--exact");
            alone.arg("allocator::tests::what_a_thread_has_freed_is_given_back");
            let output = alone.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
            return;
        }
        let (before, after) = std::thread::spawn(|| {
            let mut blocks: Vec<Vec<u8>> = (0..100_000).map(|_| vec![1; 1000]).collect();
            // The last one keeps the top of the arena from falling to where it was.
            blocks.swap(0, 99_999);
            blocks.truncate(1);
            let before = terrace_server::resident_bytes().unwrap();
            give_back_free_pages();
            let after = terrace_server::resident_bytes().unwrap();
            assert_eq!(blocks.len(), 1);
            (before, after)
        })
        .join()
        .unwrap();
        assert!(after + (50 << 20) < before, "{before} bytes before, {after} after");
    }
}
