//! The history of the dashboard in a file beside the store, so that a restart does not end it.
//!
//! A JSON document, replaced as a whole every few minutes and at the end of the server, and read at its
//! start. The history is for people: whatever is wrong with the file is a line in the log, and
//! the server goes on without it. `sampler.rs` reads and writes it.

use super::history::Kept;
use crate::{bounded_file, replace_file};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two writes while the server runs: what a crash may cost.
const SAVE_EVERY: Duration = Duration::from_secs(300);
/// A larger file is none of ours: a day takes less than a tenth of it.
const MAX_MIB: u64 = 8;
/// Raised when older builds would not understand the file.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Document<'k> {
    format: u32,
    history: Cow<'k, Kept>,
}

/// See the module.
pub(super) struct HistoryFile {
    path: PathBuf,
    /// Held while the file is written.
    state: Mutex<State>,
}

struct State {
    saved: Instant,
    /// The last write failed, and the log says so.
    has_failed: bool,
}

/// Where the history of the store at `store` lies; `None` for a path without a name.
pub fn file_of(store: &Path) -> Option<PathBuf> {
    let store = match store.file_name() {
        Some(_) => store.to_path_buf(),
        None => store.canonicalize().ok()?,
    };
    let mut name = store.file_name()?.to_os_string();
    name.push("-history.json");
    Some(store.with_file_name(name))
}

impl HistoryFile {
    pub fn new(path: PathBuf) -> Self {
        Self { path, state: Mutex::new(State { saved: Instant::now(), has_failed: false }) }
    }

    /// What earlier runs have left; nothing if that cannot be read. What they began to write and did not end goes.
    pub fn load(&self) -> Kept {
        // The store is open, so no other process writes the file. What cannot be removed costs room only.
        drop(replace_file::remove_leftovers(&self.path));
        match read(&self.path) {
            Ok(kept) => kept,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Kept::default(),
            Err(error) => {
                let path = self.path.display();
                tracing::warn!(%path, %error, "the history of the dashboard begins anew");
                Kept::default()
            }
        }
    }

    /// Whether the last write is long ago. Waits for one that is under way.
    pub fn is_due(&self) -> bool {
        self.state.lock().saved.elapsed() >= SAVE_EVERY
    }

    /// Puts what `kept` gives into the file. Only the first failure in a row is logged.
    pub fn save(&self, kept: impl FnOnce() -> Kept) {
        let mut state = self.state.lock();
        state.saved = Instant::now();
        let written = write(&self.path, &kept());
        if let Err(error) = &written
            && !state.has_failed
        {
            let path = self.path.display();
            tracing::warn!(%path, %error, "the history of the dashboard is not kept on disk");
        }
        state.has_failed = written.is_err();
    }
}

fn read(path: &Path) -> io::Result<Kept> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    // Before it is opened: a pipe would wait for a writer.
    check_kind(path)?;
    let text = bounded_file::read(path, MAX_MIB)?;
    let document: Document<'_> = serde_json::from_slice(&text)?;
    match document.format {
        FORMAT => Ok(document.history.into_owned()),
        other => Err(invalid(format!("it has the format {other}, not {FORMAT}"))),
    }
}

/// Refuses what is no file, and links: nobody has named this path, and others may write in its directory.
fn check_kind(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_file() {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "it is no file")),
    }
}

fn write(path: &Path, kept: &Kept) -> io::Result<()> {
    match check_kind(path) {
        // What another has put there does not decide who may read it.
        Ok(()) => fs::set_permissions(path, fs::Permissions::from_mode(0o600))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let document = Document { format: FORMAT, history: Cow::Borrowed(kept) };
    replace_file::replace(path, &serde_json::to_vec(&document)?)
}

#[cfg(test)]
mod tests {
    use super::super::json::{Mark, MarkKind};
    use super::*;

    fn some() -> Kept {
        let mut kept = Kept::default();
        kept.options.insert("maxmemory".into(), "64mb".into());
        let (version, options) = ("0.1.0".into(), vec!["maxmemory".into()]);
        kept.marks.push(Mark { t_ms: 5, kind: MarkKind::Options, version, options });
        kept
    }

    #[test]
    fn it_lies_beside_the_store() {
        assert_eq!(file_of(Path::new("/var/a/data")), Some("/var/a/data-history.json".into()));
        assert_eq!(file_of(Path::new("data/")), Some("data-history.json".into()));
        let here = file_of(Path::new(".")).unwrap();
        assert_ne!(here.parent().unwrap(), Path::new(".").canonicalize().unwrap(), "{here:?}");
        assert_eq!(file_of(Path::new("/")), None);
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let file = HistoryFile::new(folder.path().join("h.json"));
        assert_eq!(file.load().options.len(), 0, "no file is no history");
        file.save(some);
        let loaded = file.load();
        assert_eq!((loaded.options, loaded.marks), (some().options, some().marks));
        assert!(!file.is_due(), "just saved");
    }

    #[test]
    fn what_a_run_that_was_killed_had_begun_to_write_goes() {
        let folder = tempfile::tempdir().unwrap();
        let file = HistoryFile::new(folder.path().join("h.json"));
        file.save(some);
        fs::write(folder.path().join("h.json.4711.new"), "{\"format\":1,").unwrap();
        assert_eq!(file.load().marks, some().marks);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the history alone");
    }

    #[test]
    fn a_file_that_is_damaged_anywhere_is_an_empty_history_or_one_that_can_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.json");
        let file = HistoryFile::new(path.clone());
        file.save(some);
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            fs::write(&path, &whole[..at]).unwrap();
            assert!(file.load().marks.is_empty(), "cut at {at}");
            let mut other = whole.clone();
            other[at] ^= 0x81;
            fs::write(&path, &other).unwrap();
            // No UTF-8: refused wherever it is.
            assert!(file.load().marks.is_empty(), "changed at {at}");
        }
        let later = String::from_utf8(whole.clone()).unwrap();
        fs::write(&path, later.replace("\"format\":1", "\"format\":2")).unwrap();
        assert!(file.load().marks.is_empty(), "of a later build");
        let long = [&whole[..], &vec![b' '; (MAX_MIB << 20) as usize]].concat();
        fs::write(&path, long).unwrap();
        assert!(file.load().marks.is_empty(), "too large");
        fs::write(&path, &whole).unwrap();
        assert_eq!(file.load().marks.len(), 1);
    }

    #[test]
    fn a_place_that_cannot_be_written_is_tolerated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taken");
        fs::create_dir(&path).unwrap();
        let file = HistoryFile::new(path);
        assert!(file.load().marks.is_empty());
        file.save(some);
        file.save(some);
        assert!(file.state.lock().has_failed);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        // A link is another's, whatever it leads to.
        let (precious, link) = (folder.path().join("precious"), folder.path().join("link"));
        fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        let file = HistoryFile::new(link);
        assert!(file.load().marks.is_empty());
        file.save(some);
        assert!(file.state.lock().has_failed);
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
    }
}
