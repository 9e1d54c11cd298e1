//! Paths from the root on, for what stays open: a program may change its working directory meanwhile.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A longer path leaves too little room for the names of files in it: the kernel takes 4,095 bytes.
const MAX_BYTES: usize = 3840;

/// `path` from the root of the file system on. It stays as it is where that would lead to another place or to none: the working
/// directory is gone, a directory above it must not be passed, or the whole path is too long for the kernel.
pub(super) fn absolute(path: &Path) -> PathBuf {
    let whole = match std::env::current_dir() {
        Ok(here) if path.is_relative() && is_same(&here, Path::new(".")) => here.join(path),
        _ => return path.to_path_buf(),
    };
    match whole.as_os_str().len() <= MAX_BYTES {
        // Without `.` and what a `/` at the end adds.
        true => whole.components().collect(),
        false => path.to_path_buf(),
    }
}

/// Whether both are the same directory.
fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    id(one).is_some_and(|one| Some(one) == id(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_path_is_one_from_the_root_on() {
        let here = std::env::current_dir().unwrap();
        for (path, whole) in [("a", "a"), ("./a/./b/", "a/b"), ("../a", "../a")] {
            assert_eq!(absolute(Path::new(path)), here.join(whole));
        }
        for path in ["", "."] {
            assert_eq!(absolute(Path::new(path)), here);
        }
        assert_eq!(absolute(Path::new("/a/../b")), Path::new("/a/../b"));
    }

    /// It could be opened so, and could not be from the root on.
    #[test]
    fn a_path_that_becomes_too_long_stays() {
        let long = "directory/".repeat(MAX_BYTES / 10);
        assert_eq!(absolute(Path::new(&long)), Path::new(&long));
    }

    #[test]
    fn only_one_directory_is_the_same() {
        let temp = tempfile::tempdir().unwrap();
        let (place, link, absent) =
            (temp.path().join("place"), temp.path().join("link"), temp.path().join("absent"));
        fs::create_dir(&place).unwrap();
        std::os::unix::fs::symlink(&place, &link).unwrap();
        assert!(is_same(&place, &place) && is_same(&link, &place));
        assert!(!is_same(temp.path(), &place) && !is_same(&absent, &absent));
    }
}
