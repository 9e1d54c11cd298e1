//! Files that somebody names, read only as far as such a file can go: a device such as `/dev/zero` has no end.
//!
//! Used for the configuration, users, certificates and keys, and the history of the dashboard.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The most that is read of a file of users, certificates or keys: all authorities that browsers know take some 200 KiB.
pub const MAX_MIB: u64 = 16;

/// The bytes of the file at `path`: this many MiB at most.
///
/// # Errors
/// Those of the device; of kind `InvalidData` if the file is longer.
pub fn read(path: &Path, max_mib: u64) -> io::Result<Vec<u8>> {
    let (max_bytes, mut bytes) = (max_mib << 20, Vec::new());
    File::open(path)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        let what = format!("it is too long, more than {max_mib} MiB");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_a_file_may_have() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for bytes in [0, 1 << 20] {
            std::fs::write(&path, vec![7; bytes]).unwrap();
            assert_eq!(read(&path, 1).unwrap().len(), bytes);
        }
        std::fs::write(&path, vec![7; (1 << 20) + 1]).unwrap();
        for path in [path.as_path(), Path::new("/dev/zero")] {
            let said = read(path, 1).unwrap_err().to_string();
            assert_eq!(said, "it is too long, more than 1 MiB");
        }
    }
}
