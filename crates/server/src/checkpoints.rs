//! `BGSAVE` and `SAVE`: checkpoints of the store, in a folder beside it.
//!
//! A checkpoint is a store of its own, of hard links where possible. It lies in
//! `<store>-checkpoints/<ms since 1970>`; the newest few are kept. If the clock is set back, a name is by one higher than
//! the highest there is, so that names are in the order in which checkpoints were made.

use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;
use terrace::{Error, Result};
use terrace_keyspace::Keyspace;

/// Checkpoints that are kept.
const KEPT: usize = 2;

/// What is known of checkpoints.
pub struct Checkpoints {
    state: Arc<State>,
    /// Held while one is made.
    making: Arc<Mutex<()>>,
}

#[derive(Default)]
struct State {
    /// Who makes one, or waits to: one that was begun waits for the last one of a shutdown.
    makers: AtomicUsize,
    has_failed: AtomicBool,
    last_ms: AtomicU64,
    /// How many were made since the start.
    count: AtomicU64,
    /// How long the last one took, in ms.
    took_ms: AtomicU64,
    /// Since when one is being made; `None` if none is, or waits to be.
    begun: Mutex<Option<Instant>>,
}

impl Checkpoints {
    /// None was made since the start at this time, in ms since 1970.
    pub fn since(started_ms: u64) -> Self {
        let state = State { last_ms: AtomicU64::new(started_ms), ..State::default() };
        Self { state: Arc::new(state), making: Arc::default() }
    }

    /// Whether one is being made.
    pub fn is_running(&self) -> bool {
        self.state.makers.load(Ordering::Relaxed) > 0
    }

    /// For how long one has been made, in s, if one is being made.
    pub fn running_s(&self) -> Option<u64> {
        let begun = *self.state.begun.lock();
        self.is_running().then(|| begun.map_or(0, |begun| begun.elapsed().as_secs()))
    }

    /// Whether the last one could not be made.
    pub fn has_failed(&self) -> bool {
        self.state.has_failed.load(Ordering::Relaxed)
    }

    /// When the last one was finished, in ms since 1970; if none was, the time of the start, as in Redis.
    pub fn last_ms(&self) -> u64 {
        self.state.last_ms.load(Ordering::Relaxed)
    }

    /// How many were made since the start.
    pub fn count(&self) -> u64 {
        self.state.count.load(Ordering::Relaxed)
    }

    /// How long the last one took, in ms, if any was made since the start.
    pub fn took_ms(&self) -> Option<u64> {
        (self.count() > 0).then(|| self.state.took_ms.load(Ordering::Relaxed))
    }

    /// Begins one in the background; `false` if one is being made.
    pub fn begin(&self, space: &Arc<Keyspace>) -> bool {
        if !self.state.enter_alone() {
            return false;
        }
        let (state, making, space) = (self.state.clone(), self.making.clone(), space.clone());
        let work = move || {
            let _one_at_a_time = making.lock();
            // Said in the log and in INFO.
            let _told = state.make(&space);
        };
        let started = std::thread::Builder::new().name("checkpoint".into()).spawn(work);
        if let Err(error) = started {
            tracing::error!(%error, "no thread for a checkpoint");
            self.state.has_failed.store(true, Ordering::Relaxed);
            self.state.leave();
        }
        true
    }

    /// Makes one now, unless one is being made; gives whether.
    ///
    /// # Errors
    /// The engine's; nothing is left of it.
    pub fn make_unless_running(&self, space: &Keyspace) -> Result<bool> {
        if !self.state.enter_alone() {
            return Ok(false);
        }
        let _one_at_a_time = self.making.lock();
        self.state.make(space)?;
        Ok(true)
    }

    /// Makes one now, after one that is being made.
    ///
    /// # Errors
    /// The engine's; nothing is left of it.
    pub fn make(&self, space: &Keyspace) -> Result<()> {
        self.state.enter();
        let _one_at_a_time = self.making.lock();
        self.state.make(space)
    }
}

impl State {
    fn enter(&self) {
        self.makers.fetch_add(1, Ordering::AcqRel);
    }

    /// Unless somebody has entered, and not left; gives whether.
    fn enter_alone(&self) -> bool {
        self.makers.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn leave(&self) {
        self.makers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Makes one, and leaves.
    fn make(&self, space: &Keyspace) -> Result<()> {
        let (now_ms, begun) = (space.now_ms(), Instant::now());
        *self.begun.lock() = Some(begun);
        let folder = folder_of(space.db().path());
        let made = make_in(&folder, space, now_ms);
        match &made {
            Ok(path) => {
                self.last_ms.store(now_ms, Ordering::Relaxed);
                self.took_ms.store(begun.elapsed().as_millis() as u64, Ordering::Relaxed);
                self.count.fetch_add(1, Ordering::Relaxed);
                tracing::info!(path = %path.display(), "checkpoint made");
            }
            Err(error) => tracing::error!(%error, "no checkpoint"),
        }
        self.has_failed.store(made.is_err(), Ordering::Relaxed);
        *self.begun.lock() = None;
        self.leave();
        made.map(drop)
    }
}

/// Where the checkpoints of the store at `store` lie.
pub fn folder_of(store: &Path) -> PathBuf {
    // One without a name, such as `.`: the folder would be within the store.
    let found = match store.file_name() {
        Some(_) => None,
        None => store.canonicalize().ok(),
    };
    let store = found.as_deref().unwrap_or(store);
    let mut name = store.file_name().unwrap_or_default().to_os_string();
    name.push("-checkpoints");
    store.with_file_name(name)
}

fn make_in(folder: &Path, space: &Keyspace, now_ms: u64) -> Result<PathBuf> {
    let refused = |doing, error| refused(doing, folder, error);
    std::fs::create_dir_all(folder).map_err(|error| refused("create", error))?;
    remove_interrupted(folder);
    let mut old: Vec<(u64, PathBuf)> = std::fs::read_dir(folder)
        .map_err(|error| refused("list", error))?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let number = path.file_name()?.to_str()?.parse().ok()?;
            Some((number, path))
        })
        .collect();
    old.sort_unstable();
    let after_last = old.last().map_or(0, |(number, _)| number.saturating_add(1));
    let path = folder.join(now_ms.max(after_last).to_string());
    space.db().checkpoint(&path)?;
    // With the one that was made there are as many as are kept.
    let made_before = old.iter().rev().filter(|(_, path)| is_checkpoint(path));
    for (_, path) in made_before.skip(KEPT - 1) {
        if let Err(error) = std::fs::remove_dir_all(path) {
            tracing::warn!(path = %path.display(), %error, "an old checkpoint stays");
        }
    }
    Ok(path)
}

/// Whether a folder whose name is a number is a checkpoint, and not what somebody has put there.
fn is_checkpoint(path: &Path) -> bool {
    path.join("CURRENT").is_file()
}

/// Removes what checkpoints that were interrupted have linked: one is made at a time, and by who has the store open.
fn remove_interrupted(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".partial"));
        if number.is_some_and(|number| number.parse::<u64>().is_ok())
            && let Err(error) = std::fs::remove_dir_all(entry.path())
        {
            tracing::warn!(path = %entry.path().display(), %error, "an unfinished checkpoint stays");
        }
    }
}

fn refused(doing: &'static str, path: &Path, error: std::io::Error) -> Error {
    let text = format!("cannot {doing} {}: {error}", path.display());
    Error::InvalidArgument(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_lie_beside_the_store() {
        assert_eq!(folder_of(Path::new("/var/a/data")), Path::new("/var/a/data-checkpoints"));
        assert_eq!(folder_of(Path::new("data/")), Path::new("data-checkpoints"));
        let store = Path::new(".").canonicalize().unwrap();
        let mut beside = store.clone().into_os_string();
        beside.push("-checkpoints");
        assert_eq!(folder_of(Path::new(".")), Path::new(&beside), "not within {store:?}");
    }

    #[test]
    fn one_is_not_begun_while_another_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let space = Arc::new(Keyspace::open(dir.path().join("store"), Default::default()).unwrap());
        let checkpoints = Checkpoints::since(7);
        assert_eq!(checkpoints.last_ms(), 7);
        let being_made = checkpoints.making.lock();
        assert!(checkpoints.begin(&space));
        assert!(!checkpoints.begin(&space));
        assert_eq!(checkpoints.running_s(), Some(0), "it waits to be made");
        assert!(!checkpoints.make_unless_running(&space).unwrap());
        // Another one, of a shutdown, has its turn first.
        checkpoints.state.enter();
        checkpoints.state.make(&space).unwrap();
        assert!(checkpoints.is_running(), "the one that was begun waits");
        assert!(!checkpoints.begin(&space));
        drop(being_made);
        while checkpoints.is_running() {
            std::thread::yield_now();
        }
        checkpoints.make(&space).unwrap();
        assert!(checkpoints.make_unless_running(&space).unwrap());
        assert!(checkpoints.last_ms() > 7 && !checkpoints.is_running());
        assert_eq!(checkpoints.running_s(), None);
    }
}
