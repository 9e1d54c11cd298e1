//! Which log segments have names in the directory that a power cut leaves. A segment is begun without: that takes a sync of the
//! directory, which is done beside the writers, or by the first who needs it.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_base::SegmentNumber;
use terrace_base::sync::Mutex;
use terrace_vfs::Vfs;

/// See the module. Numbers of segments ascend.
#[derive(Debug)]
pub(crate) struct SegmentNames {
    /// The newest segment that was begun.
    begun: AtomicU64,
    /// The newest one whose name is durable, and with it those of all before.
    durable: AtomicU64,
    /// Held during a sync: who waits for it finds that it is done.
    syncing: Mutex<()>,
}

impl SegmentNames {
    /// Those up to `begun`; of segments that an earlier process wrote it may not be known whether they `are_durable`.
    pub fn of(begun: SegmentNumber, are_durable: bool) -> Self {
        Self {
            begun: AtomicU64::new(begun.get()),
            durable: AtomicU64::new(if are_durable { begun.get() } else { 0 }),
            syncing: Mutex::new(()),
        }
    }

    /// The file of segment `number` is in the directory.
    pub fn begin(&self, number: SegmentNumber) {
        // Release: a sync of the directory after a load of it covers the name.
        self.begun.store(number.get(), Ordering::Release);
    }

    /// Makes the names of all segments durable that were begun before this, with one sync of `dir` if one of them is not.
    /// After a sync of it that failed, wherever that was, it fails for ever ([`crate::env::dir_syncs`]).
    pub fn make_durable(&self, vfs: &dyn Vfs, dir: &Path) -> terrace_base::Result<()> {
        let begun = self.begun.load(Ordering::Acquire);
        let is_done = || self.durable.load(Ordering::Acquire) >= begun;
        if is_done() {
            return Ok(());
        }
        let _turn = self.syncing.lock();
        if is_done() {
            return Ok(());
        }
        let begun = self.begun.load(Ordering::Acquire);
        vfs.sync_dir(dir)?;
        self.durable.store(begun, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::dir_syncs::DirSyncs;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use terrace_base::Error;
    use terrace_vfs::{BeforeCalls, Call, CreateOptions, Fault, FaultKind, SimVfs};

    #[test]
    fn a_name_is_made_durable_once_and_with_all_before_it() {
        let (sim, dir) = (SimVfs::new(1), Path::new("/db"));
        sim.create_dir_all(dir).unwrap();
        let names = SegmentNames::of(SegmentNumber::new(1), true);
        let begin = |number: u64| {
            let path = dir.join(format!("{number}.log"));
            drop(sim.create(&path, &CreateOptions::default()).unwrap());
            names.begin(SegmentNumber::new(number));
        };
        let left = |name: &str| {
            let is_there = |seed| sim.crash_image(seed).len(&dir.join(name)).is_ok();
            (0..32).filter(|seed| is_there(*seed)).count()
        };
        begin(4);
        begin(7);
        assert!(left("4.log") < 32 && left("7.log") < 32, "nobody has seen to it");
        names.make_durable(&sim, dir).unwrap();
        assert_eq!((left("4.log"), left("7.log")), (32, 32));
        let ops = sim.op_count();
        names.make_durable(&sim, dir).unwrap();
        assert_eq!(sim.op_count(), ops, "there is nothing to do");
        begin(9);
        let none_left =
            Fault { at_op: 0, kind: FaultKind::NoDescriptors, forever: true, filter: None };
        sim.set_fault(Some(none_left));
        names.make_durable(&sim, dir).unwrap_err();
        sim.set_fault(None);
        names.make_durable(&sim, dir).unwrap();
        assert_eq!(left("9.log"), 32, "a directory that could not be opened is synced later");
    }

    #[test]
    fn after_a_failed_sync_no_name_is_taken_for_durable() {
        let (sim, dir) = (SimVfs::new(1), Path::new("/db"));
        sim.create_dir_all(dir).unwrap();
        let files = DirSyncs::over(Arc::new(sim.clone()), dir);
        let names = SegmentNames::of(SegmentNumber::new(1), true);
        names.begin(SegmentNumber::new(2));
        let kind = FaultKind::SyncFails;
        sim.set_fault(Some(Fault { at_op: 0, kind, forever: false, filter: None }));
        assert!(names.make_durable(&files, dir).unwrap_err().is_failed_sync());
        assert_eq!(sim.executed_faults(), 1);
        // No fault strikes any more. A thread that waited for the sync comes here before the store is poisoned.
        assert!(names.make_durable(&files, dir).unwrap_err().is_failed_sync());
        // The next open has seen which names there are, and has a file system of its own.
        names.make_durable(&DirSyncs::over(Arc::new(sim), dir), dir).unwrap();
    }

    /// In a file system of the program, which may have met an error.
    #[test]
    fn after_a_sync_that_panicked_no_name_is_taken_for_durable() {
        let (sim, dir) = (SimVfs::new(1), Path::new("/db"));
        sim.create_dir_all(dir).unwrap();
        let has_struck = AtomicBool::new(false);
        let panicking = BeforeCalls::new(sim, move |call, _| {
            let strikes = matches!(call, Call::SyncDir) && !has_struck.swap(true, Ordering::SeqCst);
            assert!(!strikes, "a planted panic");
            Ok(())
        });
        let files = DirSyncs::over(Arc::new(panicking), dir);
        let names = SegmentNames::of(SegmentNumber::new(1), true);
        names.begin(SegmentNumber::new(2));
        let named = catch_unwind(AssertUnwindSafe(|| names.make_durable(&files, dir)));
        assert!(named.is_err());
        assert!(names.make_durable(&files, dir).unwrap_err().is_failed_sync());
    }

    /// The kernel tells that other sync of the error which the name met, and nobody else, and who made it has told nobody yet.
    #[test]
    fn beside_a_sync_elsewhere_that_fails_no_name_is_taken_for_durable() {
        let (sim, dir) = (SimVfs::new(1), Path::new("/db"));
        sim.create_dir_all(dir).unwrap();
        let (has_begun, is_held) = (AtomicBool::new(false), AtomicBool::new(true));
        let shared = Arc::new((has_begun, is_held));
        let first = shared.clone();
        let between = BeforeCalls::new(sim.clone(), move |call, path| {
            if !matches!(call, Call::SyncDir) || first.0.swap(true, Ordering::SeqCst) {
                return Ok(());
            }
            while first.1.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            Err(Error::io("sync directory", path, std::io::Error::other("planted")))
        });
        let files = DirSyncs::over(Arc::new(between), dir);
        let names = SegmentNames::of(SegmentNumber::new(1), true);
        names.begin(SegmentNumber::new(2));
        let (elsewhere, named) = std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| files.sync_dir(dir));
            while !shared.0.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let named = scope.spawn(|| names.make_durable(&files, dir));
            (0..1000).for_each(|_| std::thread::yield_now());
            shared.1.store(false, Ordering::SeqCst);
            (elsewhere.join().unwrap(), named.join().unwrap())
        });
        assert!(elsewhere.unwrap_err().is_failed_sync());
        assert!(named.unwrap_err().is_failed_sync());
    }
}
