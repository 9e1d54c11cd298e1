//! The directories in a store's in which a backup has its checkpoint, and what is removed from them: by the next backup, and by
//! an open for writing, for a kill may have left it.
//!
//! Somebody may have put files of their own there, a store, or a link to another directory. So only what has the name of a
//! file of a checkpoint goes, out of a directory of this user's that is no symbolic link, and nothing if there is a `LOCK`: a store that was
//! opened has one.

use crate::names::{self, BACKUP_WORK_DIR, FileName};
use std::path::{Path, PathBuf};
use terrace_base::Result;
use terrace_vfs::{PARTIAL_PROBE_NAME, Vfs, partial_path};

/// Where a backup of the store in `store` has its checkpoint, and where that is filled.
pub fn dirs(store: &Path) -> [PathBuf; 2] {
    let work = store.join(BACKUP_WORK_DIR);
    let partial = partial_path(&work);
    [work, partial]
}

/// Removes what a backup has left in `dir`, one of [`dirs`]; the directory stays. Gives what else is there, or `dir` itself if it is
/// no directory of this user's, and not empty.
///
/// # Errors
/// I/O.
pub fn clear(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<PathBuf>> {
    if !vfs.exists(dir)? {
        return Ok(Vec::new());
    }
    if !vfs.is_own_dir(dir)? {
        // An empty one of another user's is in nobody's way.
        let is_empty = vfs.list(dir).is_ok_and(|names| names.is_empty())
            && vfs.list_others(dir).is_ok_and(|names| names.is_empty());
        return Ok(if is_empty { Vec::new() } else { vec![dir.to_path_buf()] });
    }
    let (names, mut others) = (vfs.list(dir)?, vfs.list_others(dir)?);
    others.retain(|name| name != PARTIAL_PROBE_NAME);
    if is_slip(&names, &others) {
        // Those that are not empty stay.
        others.retain(|name| vfs.remove(&dir.join(name)).is_err());
        if others.is_empty() {
            names.iter().try_for_each(|name| vfs.remove(&dir.join(name)))?;
            return Ok(Vec::new());
        }
    }
    let is_opened = names.iter().any(|name| names::parse(name) == FileName::Lock);
    let is_ours = |name: &String| !is_opened && names::is_of_checkpoint(name);
    let (ours, foreign): (Vec<String>, Vec<String>) = names.into_iter().partition(is_ours);
    ours.iter().try_for_each(|name| vfs.remove(&dir.join(name)))?;
    Ok(foreign.into_iter().chain(others).map(|name| dir.join(name)).collect())
}

/// Whether a directory looks as one that was named for backups by mistake: earlier builds have made their folders there before they
/// found that no backup could be made.
fn is_slip(names: &[String], others: &[String]) -> bool {
    let is_folder = |name: &String| name == "files" || name == "backups";
    !others.is_empty() && others.iter().all(is_folder) && names.iter().all(|name| name == "LOCK")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use terrace_vfs::{PosixVfs, SimVfs};

    const STORE: &str = "/store";

    fn at(name: &str) -> PathBuf {
        Path::new(STORE).join(name)
    }

    fn left(sim: &SimVfs) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = sim.files().into_iter().map(|(path, _)| path).collect();
        paths.sort();
        paths
    }

    #[test]
    fn what_a_backup_has_left_goes_and_nothing_else() {
        let sim = SimVfs::new(1);
        let [work, partial] = dirs(Path::new(STORE));
        let ours = ["000001.sst", "000002.log", "000003.vlog", "MANIFEST-000001", "CURRENT"];
        for dir in [&work, &partial] {
            assert!(clear(&sim, dir).unwrap().is_empty());
            for name in ours.iter().chain(&["SYNCED-1", "filling.tmp", "CURRENT.tmp", "mine"]) {
                assert!(sim.write_file(dir.join(name), b"x"));
            }
            sim.create_dir_all(&dir.join("folder")).unwrap();
        }
        sim.create_dir_all(&partial.join("probe")).unwrap();
        for dir in [&work, &partial] {
            for _ in 0..2 {
                assert_eq!(clear(&sim, dir).unwrap(), [dir.join("mine"), dir.join("folder")]);
            }
        }
        assert_eq!(left(&sim), [at("backup-work/mine"), at("backup-work.partial/mine")]);
    }

    #[test]
    fn a_store_that_was_opened_there_stays() {
        let sim = SimVfs::new(1);
        let [work, _] = dirs(Path::new(STORE));
        for name in ["LOCK", "CURRENT", "000001.sst"] {
            assert!(sim.write_file(work.join(name), b"x"));
        }
        assert_eq!(clear(&sim, &work).unwrap().len(), 3);
        assert_eq!(left(&sim).len(), 3);
    }

    #[test]
    fn folders_for_backups_go_if_they_are_empty() {
        let sim = SimVfs::new(1);
        let [work, _] = dirs(Path::new(STORE));
        let folders = ["files", "backups"].map(|name| work.join(name));
        for content in [None, Some(folders[0].join("00-1"))] {
            folders.iter().for_each(|folder| sim.create_dir_all(folder).unwrap());
            assert!(sim.write_file(work.join("LOCK"), b""));
            if let Some(content) = &content {
                assert!(sim.write_file(content, b"x"));
            }
            assert_eq!(clear(&sim, &work).unwrap().is_empty(), content.is_none());
            assert!(content.is_none_or(|content| sim.exists(&content).unwrap()));
            assert!(sim.exists(&work).unwrap());
        }
    }

    #[test]
    fn no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (store, elsewhere) = (dir.path().join("store"), dir.path().join("elsewhere"));
        [&store, &elsewhere].iter().for_each(|dir| fs::create_dir(dir).unwrap());
        fs::write(elsewhere.join("000001.sst"), b"theirs").unwrap();
        for path in dirs(&store) {
            for linked in [&elsewhere, &dir.path().join("nothing")] {
                symlink(linked, &path).unwrap();
                assert_eq!(clear(&PosixVfs, &path).unwrap(), std::slice::from_ref(&path));
                fs::remove_file(&path).unwrap();
            }
            // A link among the files goes, and what it links to stays.
            fs::create_dir(&path).unwrap();
            symlink(elsewhere.join("000001.sst"), path.join("000001.sst")).unwrap();
            assert!(clear(&PosixVfs, &path).unwrap().is_empty());
            assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        }
        assert_eq!(fs::read(elsewhere.join("000001.sst")).unwrap(), b"theirs");
    }
}
