//! The key ring of a file system while others open and create files: read at each of these, replaced as a whole.
//!
//! A file that is being written may have nothing on the disk yet that tells its key. So a writer holds a *use* of the ring that it
//! was created with, and a key is given up only when no such writer is left.

use crate::header;
use crate::keys::KeyRing;
use std::path::Path;
use std::sync::{Arc, Weak};
use terrace_base::sync::Mutex;
use terrace_base::{Error, Result};
use terrace_manifest::names;
use terrace_vfs::{OpenMode, Vfs, is_no_file, is_unreadable};

/// How often a directory is listed again since files of it were renamed or removed meanwhile.
const MAX_LISTINGS: usize = 100;

/// What keeps the keys of a ring: held by the writers of files that were created with it.
pub(crate) struct Use {
    /// The key of these files.
    active: u32,
}

/// A ring, and what its writers hold.
#[derive(Clone)]
struct Current {
    keys: Arc<KeyRing>,
    used: Arc<Use>,
}

/// A key ring that can be replaced.
pub(crate) struct SharedRing {
    /// Held for a moment.
    current: Mutex<Current>,
    /// The uses of rings before, held while the ring is replaced.
    former: Mutex<Vec<Weak<Use>>>,
}

impl SharedRing {
    pub fn new(keys: KeyRing) -> Self {
        let used = Arc::new(Use { active: keys.active() });
        let current = Current { keys: Arc::new(keys), used };
        Self { current: Mutex::new(current), former: Mutex::default() }
    }

    /// The keys to read a file with.
    pub fn keys(&self) -> Arc<KeyRing> {
        self.current.lock().keys.clone()
    }

    /// The keys to create a file with, and what its writer is to hold.
    pub fn keys_to_write(&self) -> (Arc<KeyRing>, Arc<Use>) {
        let Current { keys, used } = self.current.lock().clone();
        (keys, used)
    }

    /// Replaces the ring, unless `keys` lack one that the present ring has and that the store in `dir` needs.
    pub fn replace(&self, below: &dyn Vfs, dir: &Path, keys: KeyRing) -> Result<()> {
        let mut former = self.former.lock();
        let before = self.current.lock().clone();
        let refused = |what: &str, id: u32| {
            let detail = format!("{what} key {id}, which is not among the new keys");
            Error::Unsupported { path: dir.to_path_buf(), detail }
        };
        let active = before.keys.active();
        if !keys.has_as(&before.keys, active) {
            // At any moment.
            return Err(refused("files are created with", active));
        }
        former.retain(|used| used.strong_count() > 0);
        for used in former.iter().filter_map(Weak::upgrade) {
            if !keys.has_as(&before.keys, used.active) {
                return Err(refused("a file is being written with", used.active));
            }
        }
        let rings = (&*before.keys, &keys);
        // A file of the store may be read again; what is in `lost/` is needed by nobody.
        let lacks_keys = before.keys.ids().any(|id| !keys.has_as(&before.keys, id));
        check_folder(below, dir, rings, lacks_keys)?;
        check_folder(below, &names::lost_dir(dir), rings, false)?;
        let used = Arc::new(Use { active: keys.active() });
        *self.current.lock() = Current { keys: Arc::new(keys), used };
        former.push(Arc::downgrade(&before.used));
        Ok(())
    }
}

/// Refuses keys that cannot read a file in `folder`, whatever its name, that the keys `before` can. Files that these cannot read
/// either are no reason, nor is what is no file; one whose first bytes the device does not give is one if `counts_unknown`, and
/// `after` lack a key.
fn check_folder(
    below: &dyn Vfs,
    folder: &Path,
    (before, after): (&KeyRing, &KeyRing),
    counts_unknown: bool,
) -> Result<()> {
    if !below.exists(folder)? {
        return Ok(());
    }
    for _ in 0..MAX_LISTINGS {
        let mut has_missed = false;
        for name in below.list(folder)? {
            let path = folder.join(name);
            let file = match below.open(&path, OpenMode::default()) {
                Ok(file) => file,
                // A socket, or a named pipe.
                Err(error) if is_no_file(&error) => continue,
                // To nothing.
                Err(error) if error.is_not_found() && below.is_link(&path)? => continue,
                // It may have another name since.
                Err(error) if error.is_not_found() => {
                    has_missed = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let bytes = &match header::first_bytes(&*file) {
                Err(error) if is_unreadable(&error) && !counts_unknown => continue,
                bytes => bytes?,
            };
            let Some(id) = header::key_id(bytes).filter(|_| header::names_key_of(bytes, before))
            else {
                continue;
            };
            if !header::names_key_of(bytes, after) {
                let detail =
                    format!("it is encrypted with key {id}, which is not among the new keys");
                return Err(Error::Unsupported { path: file.path().to_path_buf(), detail });
            }
        }
        if !has_missed {
            return Ok(());
        }
    }
    let why = "its files change all the time; try again";
    Err(Error::io("list", folder, std::io::Error::other(why)))
}
