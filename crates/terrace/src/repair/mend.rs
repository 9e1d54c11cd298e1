//! Segments that cannot be read as a whole, or have no sound header: a copy takes their place in which everything that can be
//! read stands where it stood, with zeros for the rest.
//!
//! Records, and the values in them, say by their checksums where they stand, so no handle changes. What nothing refers to any
//! more is mended as well: a file that cannot be read to its end is refused by backups, and by whatever makes the store an
//! encrypted or a plain one.
//!
//! In a log that is still to be replayed an open may take zeros for the end, where it would have refused what cannot be read.
//! So a copy takes the place of a segment when no open replays that any more.

use super::Repair;
use crate::error::Result;
use std::ops::Range;
use std::path::Path;
use terrace_base::SegmentNumber;
use terrace_log::format::{HEADER_BYTES, Header, HeaderFault, decode_header, encode_header};
use terrace_log::unsupported_version;
use terrace_manifest::names;
use terrace_sst::is_damage;
use terrace_vfs::{CreateOptions, LOST_SECTOR_BYTES, RandomFile};

/// Bytes of a segment that are read at once.
const PIECE_BYTES: usize = 64 << 10;

/// What can be read of a segment.
#[derive(Default)]
pub(super) struct Left {
    /// Why not all of it.
    pub damage: Option<String>,
    /// Its length, with what is missing at its end as far as that is known.
    pub len_bytes: u64,
    has_header: bool,
    /// Whether there is more than room for a header.
    has_room: bool,
    /// Whether anything is there but zeros.
    has_content: bool,
}

impl Left {
    /// Whether it needs another file in its place.
    pub fn is_to_be_mended(&self) -> bool {
        // A header before nothing is of no use.
        self.has_content && self.has_room && (self.damage.is_some() || !self.has_header)
    }

    /// Whether nothing can be read of it although there was something.
    pub fn is_lost(&self) -> bool {
        self.damage.is_some() && !self.is_to_be_mended()
    }
}

impl Repair<'_> {
    /// Reads segment `number`.
    ///
    /// # Errors
    /// I/O; `Unsupported` for a segment of a later build.
    pub(super) fn left_of(&self, number: SegmentNumber, path: &Path) -> Result<Left> {
        let mut left = Left::default();
        let file = match self.vfs.open_around_loss(path) {
            Err(error) if is_damage(&error) => {
                left.damage = Some(error.to_string());
                return Ok(left);
            }
            file => file?,
        };
        left.len_bytes = file.len();
        left.has_room = file.len() > HEADER_BYTES;
        each_piece(&*file, |offset, piece, lost| {
            if offset == 0 {
                left.has_header = has_header(number, path, piece, lost)?;
            }
            left.has_content |= piece.iter().any(|byte| *byte != 0);
            if left.damage.is_none() {
                let first = lost.first();
                left.damage = first.map(|at| format!("it cannot be read at offset {}", at.start));
            }
            Ok(())
        })?;
        Ok(left)
    }

    /// Puts a copy of what can be read of a segment in its place.
    pub(super) fn mend(&self, number: SegmentNumber, path: &Path) -> Result<()> {
        let temp = names::temp_path(self.dir, number.file());
        if self.vfs.exists(&temp)? {
            self.vfs.remove(&temp)?;
        }
        let source = self.vfs.open_around_loss(path)?;
        let grows = path == names::log_path(self.dir, number);
        let mut copy = self.vfs.create(&temp, &CreateOptions { grows, ..Default::default() })?;
        each_piece(&*source, |offset, piece, lost| {
            if offset > 0 || has_header(number, path, piece, lost)? {
                return copy.append(piece);
            }
            copy.append(&encode_header(&Header { segment: number, previous: None }))?;
            copy.append(piece.get(HEADER_BYTES as usize..).unwrap_or_default())
        })?;
        copy.finish()?;
        copy.sync()?;
        self.vfs.rename(&temp, path)?;
        Ok(self.vfs.sync_dir(self.dir)?)
    }
}

/// Calls `each` with the pieces of a file: where they begin, their bytes, with zeros for those that cannot be read, and which
/// these are.
fn each_piece(
    file: &dyn RandomFile,
    mut each: impl FnMut(u64, &[u8], &[Range<u64>]) -> terrace_base::Result<()>,
) -> terrace_base::Result<()> {
    let (mut buffer, mut offset) = (vec![0; PIECE_BYTES], 0);
    while offset < file.len() {
        let len = (PIECE_BYTES as u64).min(file.len() - offset) as usize;
        let (piece, mut lost) = (&mut buffer[..len], Vec::new());
        // A value that was found to be whole may stand beside a lost sector.
        file.read_around_loss(offset, piece, &mut lost, LOST_SECTOR_BYTES)?;
        for range in &lost {
            piece[(range.start - offset) as usize..(range.end - offset) as usize].fill(0);
        }
        each(offset, piece, &lost)?;
        offset += len as u64;
    }
    Ok(())
}

/// Whether `piece`, the beginning of a segment of which ranges are `lost`, has the header of segment `number`.
///
/// # Errors
/// `Unsupported` for one of a later build.
fn has_header(
    number: SegmentNumber,
    path: &Path,
    piece: &[u8],
    lost: &[Range<u64>],
) -> terrace_base::Result<bool> {
    if lost.first().is_some_and(|range| range.start < HEADER_BYTES) {
        return Ok(false);
    }
    match decode_header(piece) {
        Err(HeaderFault::Version(version)) => Err(unsupported_version(path, version)),
        header => Ok(header.is_ok_and(|header| header.segment == number)),
    }
}
