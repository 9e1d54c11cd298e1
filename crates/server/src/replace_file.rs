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
    fn a_failure_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("taken");
        fs::create_dir(&path).unwrap();
        assert!(replace(&path, b"x").is_err());
        assert!(replace(&folder.path().join("no/such"), b"x").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
