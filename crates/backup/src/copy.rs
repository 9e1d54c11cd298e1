//! Files read in pieces, hashed, and copied.

use crate::error::{Error, Result};
use std::path::Path;
use terrace_vfs::{AppendFile, CreateOptions, OpenMode, Vfs};
use xxhash_rust::xxh3::Xxh3;

/// Bytes read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Length and hash of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    pub size_bytes: u64,
    pub hash: u128,
}

/// Hashes a file.
pub(crate) fn content_of(vfs: &dyn Vfs, path: &Path) -> Result<Content> {
    read(vfs, path, |_| Ok(()))
}

/// Copies a file, durably but for the directory entry of `to`, which must not exist. On an error `to`
/// may exist.
pub(crate) fn copy(from: (&dyn Vfs, &Path), to: (&dyn Vfs, &Path)) -> Result<Content> {
    let mut copy = to.0.create(to.1, &CreateOptions::default())?;
    let content = read(from.0, from.1, |piece| Ok(copy.append(piece)?))?;
    finish(&mut *copy)?;
    Ok(content)
}

/// Writes a small file, durably but for its directory entry.
pub(crate) fn write(vfs: &dyn Vfs, to: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = vfs.create(to, &CreateOptions::default())?;
    file.append(bytes)?;
    finish(&mut *file)
}

fn finish(file: &mut dyn AppendFile) -> Result<()> {
    file.finish()?;
    Ok(file.sync()?)
}

fn read(vfs: &dyn Vfs, path: &Path, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<Content> {
    let file = vfs.open(path, OpenMode::default())?;
    let size_bytes = file.len();
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; PIECE_BYTES.min(usize::try_from(size_bytes).unwrap_or(PIECE_BYTES))];
    let mut offset = 0;
    while offset < size_bytes {
        let left = usize::try_from(size_bytes - offset).unwrap_or(usize::MAX);
        let piece = &mut buffer[..left.min(PIECE_BYTES)];
        file.read_at(offset, piece)?;
        hash.update(piece);
        each(piece)?;
        offset += piece.len() as u64;
    }
    Ok(Content { size_bytes, hash: hash.digest128() })
}

/// The error for a file whose content is not what its record says.
pub(crate) fn check(path: &Path, found: Content, expected: Content) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    let what = if found.size_bytes == expected.size_bytes {
        "its content has changed".into()
    } else {
        format!("it has {} bytes, not {}", found.size_bytes, expected.size_bytes)
    };
    Err(Error::Damaged { path: path.into(), what })
}
