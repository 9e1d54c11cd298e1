//! Files replaced at once: a reader, or a start after a crash, finds the old text or the new one.
//!
//! Used for `terrace.toml`, the file of ACL users and the history of the dashboard. The paths are the server's own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Puts `text` in the place of the file at `path`, durably; its permissions stay, a file that was
/// not there can be read by its owner only. A link is followed.
///
/// # Errors
/// Those of the device; then the old file is as it was.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let path = match path.canonicalize() {
        Ok(resolved) => resolved,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_path_buf(),
        Err(error) => return Err(error),
    };
    let beside = beside(&path)?;
    let written = write(&path, &beside, text).and_then(|()| fs::rename(&beside, &path));
    if written.is_err() {
        // The first error is the one to tell.
        drop(fs::remove_file(&beside));
    }
    written?;
    File::open(folder(&path))?.sync_all()
}

/// Removes what processes have left beside the file at `path` that were killed while they replaced it. No process may be
/// replacing it now.
///
/// # Errors
/// Those of the device; what is left then stays.
pub fn remove_leftovers(path: &Path) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.as_encoded_bytes();
    for entry in fs::read_dir(folder(path))? {
        let other = entry?.file_name();
        let rest = other.as_encoded_bytes().strip_prefix(name);
        let process = rest.and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(b".new"));
        if process.is_some_and(|id| !id.is_empty() && id.iter().all(u8::is_ascii_digit)) {
            fs::remove_file(folder(path).join(other))?;
        }
    }
    Ok(())
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A name in the same folder that no other process uses.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut name = name.to_os_string();
    name.push(format!(".{}.new", std::process::id()));
    Ok(folder(path).join(name))
}

fn write(path: &Path, beside: &Path, text: &[u8]) -> io::Result<()> {
    // What an earlier process of this number may have left.
    drop(fs::remove_file(beside));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(beside)?;
    if let Ok(old) = fs::metadata(path) {
        file.set_permissions(old.permissions())?;
    }
    file.write_all(text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_replaced_with_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.toml");
        replace(&path, b"secret").unwrap();
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        replace(&path, b"other").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"other".to_vec(), 0o640));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("x"), folder.path().join("link"));
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        replace(&link, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn what_processes_that_were_killed_have_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("h.json");
        let others = [
            "h.json",
            "h.json..new",
            "h.json.1.new2",
            "h.json.x.new",
            "i.json.1.new",
            "xh.json.1.new",
        ];
        for name in others.iter().chain(&["h.json.1.new", "h.json.4711.new"]) {
            fs::write(folder.path().join(name), "x").unwrap();
        }
        remove_leftovers(&path).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string();
        let mut left: Vec<String> =
            fs::read_dir(folder.path()).unwrap().map(|entry| name(entry).unwrap()).collect();
        left.sort_unstable();
        assert_eq!(left, others);
        assert!(remove_leftovers(&folder.path().join("no/such")).is_err());
    }

    #[test]
    fn a_failure_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taken");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, b"x").is_err());
        assert!(replace(&folder.path().join("no/such"), b"x").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
