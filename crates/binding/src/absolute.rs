//! Paths from the root on, for what stays open: a program may change its working directory meanwhile.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `path` from the root of the file system on. A relative one would be another place as soon as the program changes its
/// working directory, where files of the same names may be those of another store. It stays as it is if the working
/// directory cannot be reached from the root on, as where a directory above it must not be passed.
pub fn absolute_path(path: &Path) -> PathBuf {
    match std::env::current_dir() {
        Ok(here) if path.is_relative() && is_same(&here, Path::new(".")) => {
            here.join(path).components().collect()
        }
        _ => path.to_path_buf(),
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
            assert_eq!(absolute_path(Path::new(path)), here.join(whole));
        }
        for path in ["", "."] {
            assert_eq!(absolute_path(Path::new(path)), here);
        }
        assert_eq!(absolute_path(Path::new("/a/../b")), Path::new("/a/../b"));
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
