//! Whether the lookups of a thread mostly find their key (get): then the entry is asked for while the filters are.
//!
//! A thread only goes by its own lookups, so that no two write the same memory.

use std::cell::Cell;

/// The most that the count comes to.
const MOST: u8 = 16;
/// From here on lookups are expected to find their key.
const LIKELY: u8 = 12;
/// What a key that is absent takes off: where more than one in five are, the count sinks.
const ABSENT: u8 = 4;

thread_local! {
    static COUNT: Cell<u8> = const { Cell::new(0) };
}

/// Whether the next lookup is likely to find its key.
#[inline]
pub(super) fn are_mostly_found() -> bool {
    COUNT.get() >= LIKELY
}

/// A lookup of SSTs has come to its end.
#[inline]
pub(super) fn note(found: bool) {
    let count = COUNT.get();
    COUNT.set(if found { (count + 1).min(MOST) } else { count.saturating_sub(ABSENT) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_expects_what_it_has_met() {
        std::thread::spawn(|| {
            assert!(!are_mostly_found());
            (0..LIKELY).for_each(|_| note(true));
            assert!(are_mostly_found());
            assert!(!std::thread::spawn(are_mostly_found).join().unwrap());
            (0..300).for_each(|n| note(n % 10 != 0));
            assert!(are_mostly_found(), "one in ten is absent");
            (0..300).for_each(|n| note(n % 2 != 0));
            assert!(!are_mostly_found(), "every other one is");
        })
        .join()
        .unwrap();
    }
}
