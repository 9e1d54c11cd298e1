//! How a job's process ends.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A process that tells progress for ever has its driver wait for ever.
#[test]
fn a_panic_of_a_job_ends_the_thread_that_tells_progress() {
    let observer = Observer::new(|_| {});
    let work = || -> u32 { panic!("as asked") };
    let panics = AssertUnwindSafe(|| telling_progress(&observer, work));
    assert!(catch_unwind(panics).is_err());
    assert_eq!(telling_progress(&observer, || 7), 7);
}
