//! The files of a package, and their archive: POSIX ustar, compressed with gzip.
//!
//! ```text
//! for each file   name 100 | mode 8 | uid 8 | gid 8 | size 12 | time 12 | checksum 8 | kind 1 | link 100 |
//!                 "ustar\0" "00" | user 32 | group 32 | zeros, 512 bytes in all; numbers are octal text
//!                 content, padded with zeros to a multiple of 512
//! end             1024 zeros
//! ```
//! The same files give the same bytes: sorted by path, owned by root, with one time for all.

use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const BLOCK_BYTES: usize = 512;

/// The longest name that fits into a header without its prefix field.
const MAX_NAME_BYTES: usize = 100;

const FOLDER_MODE: u32 = 0o755;

/// What stands under a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Content {
    Folder,
    File(Vec<u8>),
    Link(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    mode: u32,
    content: Content,
}

/// Files by their paths, which do not begin with `/`.
#[derive(Debug, Default)]
pub struct Files {
    entries: BTreeMap<String, Entry>,
}

impl Files {
    /// Adds a file, and the folders that it is in.
    pub fn add(&mut self, path: &str, mode: u32, bytes: impl Into<Vec<u8>>) {
        self.insert(path, Entry { mode, content: Content::File(bytes.into()) });
    }

    /// Adds everything in the folder `dir` below `path`.
    pub fn add_folder(&mut self, path: &str, dir: &Path) -> Result<()> {
        for entry in fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))? {
            let from = entry?.path();
            let name = from.file_name().context("a file without a name")?.to_string_lossy();
            let to = format!("{path}/{name}");
            let metadata = fs::symlink_metadata(&from)?;
            if metadata.is_dir() {
                self.add_folder(&to, &from)?;
            } else if metadata.is_symlink() {
                let target = fs::read_link(&from)?.to_string_lossy().into_owned();
                self.insert(&to, Entry { mode: 0o777, content: Content::Link(target) });
            } else {
                let bytes = read(&from)?;
                self.add(&to, metadata.permissions().mode() & 0o777, bytes);
            }
        }
        Ok(())
    }

    fn insert(&mut self, path: &str, entry: Entry) {
        for (slash, _) in path.match_indices('/') {
            let folder = Entry { mode: FOLDER_MODE, content: Content::Folder };
            self.entries.entry(path[..slash].to_string()).or_insert(folder);
        }
        self.entries.insert(path.to_string(), entry);
    }

    /// Bytes of all contents.
    pub fn size_bytes(&self) -> usize {
        let size = |entry: &Entry| match &entry.content {
            Content::File(bytes) => bytes.len(),
            _ => 0,
        };
        self.entries.values().map(size).sum()
    }

    /// The archive, compressed. Every name in it begins with `top`, which ends with `/`; `time_s` is when
    /// the files were changed, in seconds since 1970.
    pub fn tar_gz(&self, top: &str, time_s: u64) -> Result<Vec<u8>> {
        gzip(&self.tar(top, time_s)?)
    }

    fn tar(&self, top: &str, time_s: u64) -> Result<Vec<u8>> {
        let mut out = header(top, FOLDER_MODE, 0, time_s, b'5', "")?.to_vec();
        for (path, Entry { mode, content }) in &self.entries {
            let name = format!("{top}{path}");
            let (header, bytes) = match content {
                Content::Folder => {
                    (header(&format!("{name}/"), *mode, 0, time_s, b'5', "")?, &[][..])
                }
                Content::Link(to) => (header(&name, *mode, 0, time_s, b'2', to)?, &[][..]),
                Content::File(bytes) => {
                    (header(&name, *mode, bytes.len(), time_s, b'0', "")?, &bytes[..])
                }
            };
            out.extend_from_slice(&header);
            out.extend_from_slice(bytes);
            out.resize(out.len().next_multiple_of(BLOCK_BYTES), 0);
        }
        out.resize(out.len() + 2 * BLOCK_BYTES, 0);
        Ok(out)
    }
}

/// The bytes of a file.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// `bytes` compressed, the same whenever it is done.
pub fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut writer = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    writer.write_all(bytes)?;
    Ok(writer.finish()?)
}

fn header(
    name: &str,
    mode: u32,
    size: usize,
    time_s: u64,
    kind: u8,
    link: &str,
) -> Result<[u8; BLOCK_BYTES]> {
    for text in [name, link] {
        ensure!(text.len() <= MAX_NAME_BYTES, "{text} is too long for a tar archive");
    }
    let mut block = [0; BLOCK_BYTES];
    put(&mut block, 0, name);
    put(&mut block, 100, &format!("{mode:07o}"));
    put(&mut block, 108, "0000000");
    put(&mut block, 116, "0000000");
    put(&mut block, 124, &format!("{size:011o}"));
    put(&mut block, 136, &format!("{time_s:011o}"));
    // The checksum counts its own field as blanks.
    put(&mut block, 148, "        ");
    block[156] = kind;
    put(&mut block, 157, link);
    put(&mut block, 257, "ustar\x0000");
    put(&mut block, 265, "root");
    put(&mut block, 297, "root");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut block, 148, &format!("{sum:06o}\0 "));
    Ok(block)
}

fn put(block: &mut [u8; BLOCK_BYTES], at: usize, text: &str) {
    block[at..at + text.len()].copy_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn tar_unpacks_what_was_packed() {
        let dir = std::env::temp_dir().join(format!("xtask-tar-{}", std::process::id()));
        fs::create_dir_all(dir.join("from/lib")).unwrap();
        fs::write(dir.join("from/lib/data.1"), [7; 513]).unwrap();
        std::os::unix::fs::symlink("data.1", dir.join("from/lib/data")).unwrap();
        let mut files = Files::default();
        files.add("bin/run", 0o755, "#!/bin/sh\n");
        files.add("empty", 0o640, "");
        files.add_folder("lib", &dir.join("from/lib")).unwrap();
        let packed = files.tar_gz("top-1/", 1_700_000_000).unwrap();
        assert_eq!(packed, files.tar_gz("top-1/", 1_700_000_000).unwrap());
        let archive = dir.join("a.tar.gz");
        fs::write(&archive, packed).unwrap();
        let output = Command::new("tar").arg("-xzf").arg(&archive).current_dir(&dir).output();
        let output = output.unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let run = dir.join("top-1/bin/run");
        assert_eq!(fs::read(&run).unwrap(), b"#!/bin/sh\n");
        assert_eq!(fs::metadata(&run).unwrap().permissions().mode() & 0o777, 0o755);
        let time = fs::metadata(&run).unwrap().modified().unwrap();
        let since = time.duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(since.as_secs(), 1_700_000_000);
        assert_eq!(fs::read(dir.join("top-1/empty")).unwrap(), b"");
        assert_eq!(fs::read(dir.join("top-1/lib/data")).unwrap(), [7; 513], "by its link");
        assert!(fs::symlink_metadata(dir.join("top-1/lib/data")).unwrap().is_symlink());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_long_name_is_an_error() {
        let mut files = Files::default();
        files.add(&"x".repeat(MAX_NAME_BYTES), 0o644, "");
        assert!(files.tar_gz("", 0).is_ok());
        assert!(files.tar_gz("./", 0).is_err());
    }
}
