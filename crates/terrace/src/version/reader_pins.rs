//! How read-only stores, in this process or another, keep the files that they read, although the
//! writer needs them no more.
//!
//! A reader takes a shared lock on the newest `READERS-n` file of the directory *before* it reads
//! the manifest, and holds it as long as it reads what that manifest names. The writer removes a
//! file that no version names any more only when no such lock is held that may be older:
//!
//! ```text
//!   READERS-1 (closed, held by readers A, B)   files let go of while it was the newest wait for A, B
//!   READERS-2 (newest, held by reader C)       those let go of since wait for A, B and C
//! ```
//! The writer asks by trying the exclusive lock, without waiting. If the newest file is held, it
//! makes the next one, so that readers who come later cannot keep it waiting; there are never more
//! than two in use by one writer. A lock goes with its process. A writer that starts finds the
//! files of the one before, and with them its readers.
//!
//! A reader needs the right to read, no more. Where there is no such file (a store that was last
//! written by an older build) or no such lock, readers go without, and a file that they miss is
//! [`Error::Outdated`](crate::Error::Outdated).

use crate::event;
use crate::kill_point::kill_point;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use terrace_base::Result;
use terrace_base::sync::{Mutex, thread};
use terrace_manifest::names::{self, FileName};
use terrace_vfs::{CreateOptions, Vfs};

/// How often a reader tries to get a lock that the writer is just asking for.
const ENTER_ATTEMPTS: u32 = 1000;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(1);

/// Pinned bytes at which there is a warning first; then at every doubling.
const WARN_BYTES: u64 = 1 << 30;

/// A reader's hold on the files of the manifests that it reads from now on.
pub(crate) struct ReaderPin {
    _lock: Box<dyn Send + Sync>,
}

impl ReaderPin {
    /// Takes hold. To be called before the manifest is read. `None` where that is not possible.
    pub fn take(vfs: &dyn Vfs, dir: &Path) -> Result<Option<Self>> {
        for _ in 0..ENTER_ATTEMPTS {
            let Some(newest) = numbers(&vfs.list(dir)?).pop() else { return Ok(None) };
            let path = names::readers_path(dir, newest);
            match vfs.lock_shared(&path) {
                // The writer removes a file while it has the lock alone: one that is still there
                // was not removed before this lock was taken, and is not removed under it.
                Ok(lock) if vfs.exists(&path)? => return Ok(Some(Self { _lock: lock })),
                Ok(_) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) if is_held(&error) => thread::sleep(BETWEEN_ATTEMPTS),
                Err(_) => return Ok(None),
            }
        }
        Ok(None)
    }
}

fn is_held(error: &terrace_base::Error) -> bool {
    matches!(error, terrace_base::Error::Io { source, .. }
        if source.kind() == std::io::ErrorKind::WouldBlock)
}

/// The numbers of the `READERS` files among `listing`, ascending.
fn numbers(listing: &[String]) -> Vec<u64> {
    let number = |name: &String| match names::parse(name) {
        FileName::Readers(number) => Some(number),
        _ => None,
    };
    let mut numbers: Vec<u64> = listing.iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// A file that is to be removed when no reader needs it.
struct Waiting {
    path: PathBuf,
    /// The step that its removal is.
    step: &'static str,
    /// The newest `READERS` file when it was let go of.
    epoch: u64,
    /// Its length, once it has to wait.
    bytes: Option<u64>,
}

#[derive(Default)]
struct State {
    /// The newest file; none if none could be made.
    newest: Option<u64>,
    /// Older ones, ascending, until nobody holds them.
    closed: Vec<u64>,
    /// In the order in which they were let go of.
    waiting: Vec<Waiting>,
    /// Needed by nobody, but could not be removed: tried again by every call, and in the way of no other file.
    stuck: Vec<Waiting>,
    /// Pinned bytes at the next warning.
    warn_bytes: u64,
}

/// The writer's side: the files that are to be removed, and whether they may be.
pub(crate) struct ReaderPins {
    dir: PathBuf,
    /// Whether this process writes the store: nobody else removes its files.
    is_writer: bool,
    /// Pinned bytes above which the oldest files go although readers may need them.
    max_bytes: AtomicU64,
    state: Mutex<State>,
    files: AtomicU64,
    bytes: AtomicU64,
}

impl ReaderPins {
    /// Of a store that is open read-only: it removes nothing, whatever it is asked.
    pub fn none(dir: &Path) -> Self {
        let (files, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        let (dir, state) = (dir.to_path_buf(), Mutex::default());
        let max_bytes = AtomicU64::new(u64::MAX);
        Self { dir, is_writer: false, max_bytes, state, files, bytes }
    }

    /// Of a writer that has just locked the store; `listing` is what is in its directory. To be
    /// called before the writer lets go of any file. If no `READERS` file can be made (a full
    /// disk), readers go without.
    pub fn open(vfs: &dyn Vfs, dir: &Path, listing: &[String], max_bytes: Option<u64>) -> Self {
        let pins = Self { is_writer: true, ..Self::none(dir) };
        pins.set_max_bytes(max_bytes);
        {
            let mut state = pins.state.lock();
            state.warn_bytes = WARN_BYTES;
            state.closed = numbers(listing);
            state.newest = match state.closed.pop() {
                Some(newest) => Some(newest),
                None => pins.make(vfs, 1),
            };
        }
        pins
    }

    /// Changes what may be pinned, from the next removal on; `None` is no bound.
    pub fn set_max_bytes(&self, max_bytes: Option<u64>) {
        self.max_bytes.store(max_bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Makes the `READERS` file `number`; `None` if that fails.
    fn make(&self, vfs: &dyn Vfs, number: u64) -> Option<u64> {
        let path = names::readers_path(&self.dir, number);
        vfs.create(&path, &CreateOptions::default()).ok().map(|_| number)
    }

    /// Removes `paths`, which nothing in force names any more, and those of earlier calls that
    /// readers kept: each at once, or by a later call when no reader needs it; `step` is the kill point
    /// after each. With `regardless` all of them go. Gives which went, of all that were to go; the directory is not
    /// synced.
    ///
    /// The error is the first of those of files that could not be removed, which each call tries again.
    pub fn remove(
        &self,
        vfs: &dyn Vfs,
        paths: Vec<PathBuf>,
        step: &'static str,
        regardless: bool,
    ) -> (Vec<PathBuf>, Result<()>) {
        let mut removal = Removal { vfs, gone: Vec::new(), stuck: Vec::new(), outcome: Ok(()) };
        if !self.is_writer {
            return (removal.gone, removal.outcome);
        }
        let mut state = self.state.lock();
        let epoch = state.newest.unwrap_or(0);
        let fresh = state.unlisted(&paths).into_iter();
        let fresh = fresh.map(|path| Waiting { path, step, epoch, bytes: None });
        state.waiting.extend(fresh);
        std::mem::take(&mut state.stuck).into_iter().for_each(|file| removal.try_one(file));
        if !state.waiting.is_empty() {
            let free_below = match regardless {
                true => u64::MAX,
                false => self.free_below(vfs, &mut state),
            };
            removal.try_while(&mut state, |waiting, _| waiting.epoch < free_below);
            for waiting in &mut state.waiting {
                if waiting.bytes.is_none() {
                    waiting.bytes = Some(vfs.len(&waiting.path).unwrap_or(0));
                }
            }
            let max_bytes = self.max_bytes.load(Ordering::Relaxed);
            removal.try_while(&mut state, |_, pinned_bytes| pinned_bytes > max_bytes);
        }
        state.stuck = removal.stuck;
        self.note(&mut state);
        (removal.gone, removal.outcome)
    }

    /// Files that were let go of before the `READERS` file of the number returned was the newest are
    /// needed by nobody.
    fn free_below(&self, vfs: &dyn Vfs, state: &mut State) -> u64 {
        while let Some(oldest) = state.closed.first().copied() {
            let path = names::readers_path(&self.dir, oldest);
            // Whatever keeps the lock from us: somebody may hold it.
            let Ok(lock) = vfs.lock(&path) else { return oldest };
            // Under the lock, so that a reader who gets it next sees that the file is gone. One
            // that cannot be removed does no harm: readers take the newest.
            let _ = vfs.remove(&path);
            drop(lock);
            state.closed.remove(0);
        }
        let Some(newest) = state.newest else { return u64::MAX };
        if state.waiting.iter().all(|waiting| waiting.epoch < newest) {
            return newest;
        }
        // Who takes the lock from here on reads a manifest that does not name what waits now.
        if vfs.lock(&names::readers_path(&self.dir, newest)).is_ok() {
            return u64::MAX;
        }
        if let Some(next) = newest.checked_add(1).and_then(|next| self.make(vfs, next)) {
            state.closed.push(newest);
            state.newest = Some(next);
        }
        newest
    }

    fn note(&self, state: &mut State) {
        let (files, bytes) = (state.waiting.len() as u64, state.pinned_bytes());
        self.files.store(files, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        if bytes < WARN_BYTES {
            state.warn_bytes = WARN_BYTES;
        } else if bytes >= state.warn_bytes {
            state.warn_bytes = bytes.saturating_mul(2);
            event::readers_pin(files, bytes);
        }
    }

    /// Files that wait for readers.
    pub fn pinned(&self) -> PinnedFiles {
        let (files, bytes) =
            (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        PinnedFiles { files, bytes }
    }
}

/// Files that are not needed any more and wait for readers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PinnedFiles {
    pub files: u64,
    pub bytes: u64,
}

impl State {
    /// Those of `paths` that are not to be removed already, each once. There may be a hundred thousand of both.
    fn unlisted(&self, paths: &[PathBuf]) -> Vec<PathBuf> {
        if paths.is_empty() {
            return Vec::new();
        }
        let listed = self.waiting.iter().chain(&self.stuck);
        let mut known: HashSet<&OsStr> = listed.map(|waiting| waiting.path.as_os_str()).collect();
        paths.iter().filter(|path| known.insert(path.as_os_str())).cloned().collect()
    }

    fn pinned_bytes(&self) -> u64 {
        self.waiting.iter().filter_map(|waiting| waiting.bytes).sum()
    }
}

/// Files that are being removed.
struct Removal<'a> {
    vfs: &'a dyn Vfs,
    gone: Vec<PathBuf>,
    /// Those that could not be removed, and the first error.
    stuck: Vec<Waiting>,
    outcome: Result<()>,
}

impl Removal<'_> {
    fn try_one(&mut self, file: Waiting) {
        match self.vfs.remove(&file.path) {
            Err(error) if !error.is_not_found() => {
                self.outcome = std::mem::replace(&mut self.outcome, Ok(())).and(Err(error));
                self.stuck.push(file);
            }
            _ => {
                kill_point(file.step);
                self.gone.push(file.path);
            }
        }
    }

    /// Takes files from the front of the queue on, as long as `go` says so of the first one and the bytes of all.
    fn try_while(&mut self, state: &mut State, go: impl Fn(&Waiting, u64) -> bool) {
        let mut bytes = state.pinned_bytes();
        let goes = |waiting: &&Waiting| {
            let goes = go(waiting, bytes);
            bytes -= waiting.bytes.unwrap_or(0);
            goes
        };
        let count = state.waiting.iter().take_while(goes).count();
        state.waiting.drain(..count).for_each(|file| self.try_one(file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_base::FileNumber;
    use terrace_vfs::{Fault, FaultKind, OpClass, SimVfs};

    const DIR: &str = "/db";
    const STEP: &str = "purge:sst_removed";

    fn store() -> (SimVfs, ReaderPins) {
        let sim = SimVfs::new(1);
        sim.create_dir_all(DIR.as_ref()).unwrap();
        let pins = open(&sim, None);
        (sim, pins)
    }

    fn open(sim: &SimVfs, max_bytes: Option<u64>) -> ReaderPins {
        ReaderPins::open(sim, DIR.as_ref(), &sim.list(DIR.as_ref()).unwrap(), max_bytes)
    }

    fn pin(sim: &SimVfs) -> ReaderPin {
        ReaderPin::take(sim, DIR.as_ref()).unwrap().expect("a lock")
    }

    fn file(sim: &SimVfs, number: u64) -> PathBuf {
        let path = names::sst_path(DIR.as_ref(), FileNumber::new(number));
        assert!(sim.write_file(&path, [0; 100]));
        path
    }

    fn let_go(sim: &SimVfs, pins: &ReaderPins, number: u64) {
        let path = file(sim, number);
        pins.remove(sim, vec![path], STEP, false).1.unwrap();
    }

    /// The numbers of the SSTs, and how many `READERS` files there are.
    fn left(sim: &SimVfs) -> (Vec<u64>, usize) {
        let listing = sim.list(DIR.as_ref()).unwrap();
        let sst = |name: &String| match names::parse(name) {
            FileName::Sst(number) => Some(number.get()),
            _ => None,
        };
        (listing.iter().filter_map(sst).collect(), numbers(&listing).len())
    }

    #[test]
    fn a_file_waits_for_the_readers_that_were_there_and_for_no_others() {
        let (sim, pins) = store();
        let_go(&sim, &pins, 1);
        assert_eq!(left(&sim), (vec![], 1), "without readers files go at once");
        let (early, also_early) = (pin(&sim), pin(&sim));
        let_go(&sim, &pins, 2);
        assert_eq!(left(&sim), (vec![2], 2));
        // Readers come and go without end: they hold the newest file only.
        let mut late = pin(&sim);
        for number in 3..20 {
            let_go(&sim, &pins, number);
            late = pin(&sim);
        }
        assert_eq!(left(&sim).1, 2, "a file nobody can take does not pile up");
        assert_eq!(pins.pinned(), PinnedFiles { files: 18, bytes: 1800 });
        drop(early);
        pins.remove(&sim, Vec::new(), STEP, false).1.unwrap();
        assert_eq!(pins.pinned().files, 18);
        drop(also_early);
        pins.remove(&sim, Vec::new(), STEP, false).1.unwrap();
        assert!(!left(&sim).0.contains(&2), "its readers are gone");
        assert!(pins.pinned().files > 0, "late readers hold the rest");
        drop(late);
        pins.remove(&sim, Vec::new(), STEP, false).1.unwrap();
        assert_eq!((left(&sim), pins.pinned()), ((vec![], 1), PinnedFiles::default()));
    }

    #[test]
    fn the_next_writer_minds_the_readers_of_the_one_before() {
        let (sim, pins) = store();
        let reader = pin(&sim);
        let_go(&sim, &pins, 1);
        let later = pin(&sim);
        drop(pins);
        let pins = open(&sim, None);
        let_go(&sim, &pins, 2);
        drop(later);
        pins.remove(&sim, Vec::new(), STEP, false).1.unwrap();
        assert_eq!(left(&sim).0, [1, 2], "1 is nobody's now, 2 waits for the first reader");
        drop(reader);
        pins.remove(&sim, Vec::new(), STEP, false).1.unwrap();
        assert_eq!(left(&sim), (vec![1], 1));
    }

    #[test]
    fn a_store_that_is_open_read_only_removes_nothing() {
        let (sim, _) = store();
        let path = file(&sim, 1);
        let removed = ReaderPins::none(DIR.as_ref()).remove(&sim, vec![path], STEP, true);
        assert!(removed.1.is_ok());
        assert_eq!((removed.0.len(), left(&sim).0), (0, vec![1]));
    }

    #[test]
    fn a_file_that_is_named_twice_waits_and_goes_once() {
        let (sim, pins) = store();
        let reader = pin(&sim);
        let path = file(&sim, 1);
        for paths in [vec![path.clone(), path.clone()], vec![path.clone()]] {
            pins.remove(&sim, paths, STEP, false).1.unwrap();
            assert_eq!(pins.pinned(), PinnedFiles { files: 1, bytes: 100 });
        }
        drop(reader);
        let (gone, outcome) = pins.remove(&sim, vec![file(&sim, 2)], STEP, false);
        outcome.unwrap();
        assert_eq!((gone.len(), left(&sim).0), (2, vec![]));
    }

    #[test]
    fn a_bound_and_a_full_disk_go_before_readers() {
        let (sim, _) = store();
        let pins = open(&sim, Some(250));
        let _reader = pin(&sim);
        (1..=5).for_each(|number| let_go(&sim, &pins, number));
        assert_eq!((left(&sim).0, pins.pinned().bytes), (vec![4, 5], 200), "the oldest went");
        pins.remove(&sim, Vec::new(), STEP, true).1.unwrap();
        assert_eq!((left(&sim).0, pins.pinned()), (vec![], PinnedFiles::default()));
    }

    #[test]
    fn a_file_that_cannot_be_removed_is_in_the_way_of_no_other_and_is_tried_again() {
        let (sim, _) = store();
        let pins = open(&sim, Some(150));
        let fails = || {
            let (at_op, filter) = (sim.op_count(), Some(OpClass::Remove));
            sim.set_fault(Some(Fault { at_op, kind: FaultKind::Eio, forever: false, filter }));
        };
        let paths: Vec<PathBuf> = (1..=3).map(|number| file(&sim, number)).collect();
        for regardless in [false, true] {
            fails();
            let (gone, outcome) = pins.remove(&sim, paths.clone(), STEP, regardless);
            assert!(matches!(outcome, Err(terrace_base::Error::Io { .. })), "{outcome:?}");
            assert_eq!((left(&sim).0, pins.pinned()), (vec![1], PinnedFiles::default()));
            // Those that were there no more count as gone.
            assert_eq!(gone, paths[1..]);
        }
        // It is not what readers pin, and takes nothing away from what they may.
        let reader = pin(&sim);
        fails();
        let path = file(&sim, 4);
        assert!(pins.remove(&sim, vec![path], STEP, false).1.is_err());
        assert_eq!(
            (left(&sim).0, pins.pinned()),
            (vec![1, 4], PinnedFiles { files: 1, bytes: 100 })
        );
        let (gone, outcome) = pins.remove(&sim, Vec::new(), STEP, false);
        outcome.unwrap();
        assert_eq!((gone, left(&sim).0), (paths[..1].to_vec(), vec![4]));
        drop(reader);
        let (gone, outcome) = pins.remove(&sim, Vec::new(), STEP, false);
        outcome.unwrap();
        assert_eq!((gone.len(), left(&sim).0), (1, vec![]));
    }

    #[test]
    fn a_store_without_the_file_is_read_without_a_lock() {
        let sim = SimVfs::new(1);
        sim.create_dir_all(DIR.as_ref()).unwrap();
        assert!(ReaderPin::take(&sim, DIR.as_ref()).unwrap().is_none());
    }
}
