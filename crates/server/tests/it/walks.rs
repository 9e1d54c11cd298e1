//! Commands that look at very many bytes: any number of them leaves threads to others.

use crate::client::{array, bulk, hears_nothing, int, ok, until};
use crate::gate::{Gated, GatedVfs};
use crate::offloads::{self, value};

const WALKS: u64 = 5;

#[test]
fn walks_leave_a_thread_to_reads_of_the_device() {
    let vfs = GatedVfs::new(Gated::SstRead);
    let served = offloads::served(&vfs, &[("server-threads", "1"), ("reader-threads", "2")]);
    let mut reader = served.client();
    // Whether the pattern matches is known after a billion steps.
    let (key, pattern) = ("a".repeat(60_000), format!("*{}b", "a".repeat(30_000)));
    assert_eq!(reader.call(&["SET", &key, "v"]), ok());
    let mut walkers = [(); WALKS as usize].map(|()| served.client());
    for walker in &mut walkers {
        walker.send_words(&[&format!("KEYS {pattern}")]);
    }
    let stats = &served.server().stats;
    // The thread of the loop may execute one itself.
    until("they are not left to the executor", || stats.offloads.get() >= WALKS - 1);
    for n in [500, 1000, 1500] {
        assert_eq!(reader.say(&format!("GET key:{n:05}")), bulk(&value(n)));
    }
    assert!(walkers.iter().all(hears_nothing), "a read has waited until a walk was over");
    // Also those that have not begun.
    assert_eq!(reader.say("CLIENT KILL TYPE normal SKIPME yes"), int(WALKS as i64));
    assert_eq!(reader.say("KEYS key:0123[45]"), array([bulk("key:01234"), bulk("key:01235")]));
}
