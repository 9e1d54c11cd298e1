//! Garbage collection as a whole, simulated, and what its steps find in a store.

mod simulation;

use super::*;
use crate::error::Error;
use crate::{Db, Options};
use std::path::Path;
use terrace_vfs::SimVfs;

#[test]
fn the_house_thread_rests_the_longer_the_longer_a_step_takes_it() {
    let ms = Duration::from_millis;
    assert_eq!([ms(0), ms(2), ms(40)].map(rest_after), [ms(0), ms(40), ms(800)]);
    assert_eq!(rest_after(Duration::MAX), LONGEST_LOOK_REST);
    let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
    options.advanced.vfs = Arc::new(SimVfs::new(1));
    let db = Db::open("/store", options).unwrap();
    let env = &db.inner().background;
    let mut steps = 0;
    let later = || NextStep { at: Instant::now() + Duration::from_secs(600) };
    // While there is no value nobody is slowed for garbage.
    later().take(env, || steps += 1);
    assert_eq!(steps, 1);
    db.put(b"key", [1; 2000]).unwrap();
    later().take(env, || steps += 1);
    assert_eq!(steps, 1);
    NextStep::now().take(env, || steps += 1);
    assert_eq!(steps, 2);
    db.close().unwrap();
}

/// A file that is damaged stays where it is while the store is open, and so does what it hides, and what is hidden in it.
#[test]
fn what_is_hidden_by_a_damaged_file_or_in_one_is_waited_for_by_nobody() {
    for is_newest in [true, false] {
        let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
        options.advanced.vfs = Arc::new(SimVfs::new(1));
        options.advanced.compact_when_idle = false;
        // No merge begins for garbage.
        options.advanced.gc_garbage_ratio = 1.0;
        let db = Db::open("/store", options).unwrap();
        let overwrite = |round: u8| {
            (0..50u8).for_each(|n| db.put([n], [round; 2000]).unwrap());
            db.flush().unwrap();
        };
        overwrite(0);
        db.compact_range::<&[u8]>(..).unwrap();
        overwrite(1);
        let env = &db.inner().background;
        let family = db.inner().read.family_named("default").unwrap();
        let version = family.state().version.clone();
        let newest = version.level(0).files()[0].number;
        // The house thread may be at it.
        let becomes = |hides: bool| {
            (0..60_000).any(|_| {
                step(env);
                std::thread::sleep(Duration::from_millis(1));
                let bytes = env.garbage.hidden_by(newest);
                (bytes > 0) == hides
            })
        };
        assert!(becomes(true));
        let mut numbers = version.files().map(|(_, file)| file.number);
        let damaged = numbers.find(|number| (*number == newest) == is_newest).unwrap();
        let damage = terrace_base::Error::corruption(Path::new("/store/x.sst"), 0, "a checksum");
        let pause_us = env.jobs.errors.quarantine(damaged, &Error::from(damage), 0);
        assert_eq!(pause_us, None);
        assert!(becomes(false), "{is_newest}");
        db.close().unwrap();
    }
}
