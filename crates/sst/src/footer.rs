//! The footer: the last bytes of every SST, the only ones whose place is known beforehand.
//!
//! ```text
//! ┌──────────────────┬──────────────────┬──────────────────┬────────┬────────┬────────┬────────┐
//! │ range tombstones │ top-level index  │ properties       │ file   │ version│checksum│ magic  │
//! │ u64 offset, u32  │ u64 offset, u32  │ u64 offset, u32  │ u64    │ u32    │ u32    │ u64    │
//! └──────────────────┴──────────────────┴──────────────────┴────────┴────────┴────────┴────────┘
//! ```
//! A length of 0 means that there is no such block (range tombstones only). The checksum covers
//! everything before it and the footer's place ([`block_checksum`]).

use crate::block_handle::{BlockHandle, MAX_STORED_BYTES, Place, TRAILER_BYTES};
use std::path::Path;
use terrace_base::checksum::block_checksum;
use terrace_base::{Decoder, Error, FileNumber, Result};

/// Length of the footer.
pub const FOOTER_BYTES: usize = 60;

/// The format version of new files: blocks of handles may have no trailers.
pub const FORMAT_VERSION: u32 = 4;

/// The first format version.
const FIRST_VERSION: u32 = 1;

/// The format version that files had before version 3 if their entries have one sequence number, which
/// only the properties say: to builds that do not know it they would look old.
const GLOBAL_SEQNO_VERSION: u32 = 2;

/// The file number of an SST that belongs to no store yet. Stores count from 1.
pub const EXTERNAL_FILE_NUMBER: FileNumber = FileNumber::ZERO;

/// The last eight bytes of every SST: "TerraSST" read as bytes.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TerraSST");

/// Stands for the compression type in the footer's checksum.
const CHECKSUM_KIND: u8 = 0xff;

/// Bytes covered by the checksum: all but checksum and magic.
const CHECKED_BYTES: usize = FOOTER_BYTES - 12;

/// Where the file number stands, behind three handles.
const FILE_NUMBER_AT: usize = 36;

/// The handles of the blocks at the end of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    /// [`FIRST_VERSION`] to [`FORMAT_VERSION`].
    pub version: u32,
    /// `None` if the file has no range tombstones.
    pub range_tombstones: Option<BlockHandle>,
    pub top_level: BlockHandle,
    pub properties: BlockHandle,
}

impl Footer {
    /// The footer of file `file_number` at `offset`.
    pub fn encode(&self, file_number: FileNumber, offset: u64) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        let none = BlockHandle::default();
        for handle in [self.range_tombstones.unwrap_or(none), self.top_level, self.properties] {
            out.extend_from_slice(&handle.offset.to_le_bytes());
            out.extend_from_slice(&handle.stored_len.to_le_bytes());
        }
        out.extend_from_slice(&file_number.get().to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        let checksum = block_checksum(&out, CHECKSUM_KIND, file_number, offset);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&MAGIC.to_le_bytes());
        let mut footer = [0; FOOTER_BYTES];
        footer.copy_from_slice(&out);
        footer
    }

    /// Decodes and checks the footer of file `file_number` found at `offset`.
    pub fn decode(bytes: &[u8; FOOTER_BYTES], place: &Place<'_>) -> Result<Self> {
        let cut_off = || place.corrupt("the footer is malformed");
        let mut decoder = Decoder::new(bytes);
        let mut handle =
            || Some(BlockHandle { offset: decoder.u64()?, stored_len: decoder.u32()? });
        let range_tombstones = handle().ok_or_else(cut_off)?;
        let top_level = handle().ok_or_else(cut_off)?;
        let properties = handle().ok_or_else(cut_off)?;
        let file_number = decoder.u64().map(FileNumber::new).ok_or_else(cut_off)?;
        let version = decoder.u32().ok_or_else(cut_off)?;
        let checksum = decoder.u32().ok_or_else(cut_off)?;
        if decoder.u64() != Some(MAGIC) {
            return Err(place.corrupt("the file does not end with the magic number of an SST"));
        }
        let found =
            block_checksum(&bytes[..CHECKED_BYTES], CHECKSUM_KIND, place.file_number, place.offset);
        if found != checksum {
            let whose = match file_number == place.file_number {
                true => String::new(),
                false => format!(" (it names file {file_number}, not {})", place.file_number),
            };
            let detail = format!("footer checksum is {found:08x}, stored is {checksum:08x}{whose}");
            return Err(place.corrupt(detail));
        }
        if !(FIRST_VERSION..=FORMAT_VERSION).contains(&version) {
            return Err(unsupported(place.path, version));
        }
        let footer = Self {
            version,
            range_tombstones: (range_tombstones.stored_len != 0).then_some(range_tombstones),
            top_level,
            properties,
        };
        let fits = |handle: &BlockHandle| {
            let len = handle.stored_len as usize;
            len > TRAILER_BYTES
                && len <= MAX_STORED_BYTES
                && handle.end().is_some_and(|end| end <= place.offset)
        };
        if !fits(&top_level) || !fits(&properties) || !footer.range_tombstones.iter().all(fits) {
            return Err(place.corrupt("the footer names blocks outside the file"));
        }
        Ok(footer)
    }

    /// Whether a file of this version may have one sequence number for all entries (`true`), or may lack it.
    pub fn allows_global_seqno(&self, global: bool) -> bool {
        match self.version {
            FIRST_VERSION => !global,
            GLOBAL_SEQNO_VERSION => global,
            _ => true,
        }
    }

    /// Bytes of the blocks that are read at opening. They lie side by side before the footer.
    pub fn tail_bytes(&self) -> u64 {
        let blocks = [Some(self.top_level), Some(self.properties), self.range_tombstones];
        blocks.iter().flatten().map(|handle| u64::from(handle.stored_len)).sum()
    }

    /// Where the blocks that are read at opening start.
    pub fn tail_offset(&self) -> u64 {
        let tombstones = self.range_tombstones.map_or(u64::MAX, |handle| handle.offset);
        tombstones.min(self.top_level.offset).min(self.properties.offset)
    }
}

/// The number that a footer says its file has, if it is one.
pub(crate) fn stated_number(bytes: &[u8; FOOTER_BYTES]) -> FileNumber {
    let number = Decoder::new(&bytes[FILE_NUMBER_AT..]).u64();
    number.map_or(EXTERNAL_FILE_NUMBER, FileNumber::new)
}

fn unsupported(path: &Path, version: u32) -> Error {
    let detail = format!(
        "SST format version {version}; this build reads {FIRST_VERSION} to {FORMAT_VERSION}"
    );
    Error::Unsupported { path: path.to_path_buf(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place(offset: u64) -> Place<'static> {
        Place { path: Path::new("000003.sst"), file_number: FileNumber::new(3), offset }
    }

    proptest! {
        #[test]
        fn round_trips_and_damage_is_seen(
            parts in proptest::collection::vec((0u64..5000, 6u32..1000), 3), tombstones: bool,
            at in 0..FOOTER_BYTES, flip in 1u8.., version in FIRST_VERSION..=FORMAT_VERSION,
        ) {
            let handle = |at: usize| BlockHandle { offset: parts[at].0, stored_len: parts[at].1 };
            let footer = Footer {
                version,
                range_tombstones: tombstones.then_some(handle(0)),
                top_level: handle(1),
                properties: handle(2),
            };
            let bytes = footer.encode(FileNumber::new(3), 6000);
            prop_assert_eq!(Footer::decode(&bytes, &place(6000)).unwrap(), footer);
            prop_assert_eq!(stated_number(&bytes), FileNumber::new(3));
            prop_assert!(Footer::decode(&bytes, &place(6001)).is_err());
            let mut damaged = bytes;
            damaged[at] ^= flip;
            prop_assert!(Footer::decode(&damaged, &place(6000)).unwrap_err().is_corruption());
        }
    }

    #[test]
    fn blocks_must_lie_before_the_footer() {
        let handle = BlockHandle { offset: 900, stored_len: 101 };
        let version = FORMAT_VERSION;
        let footer =
            Footer { version, range_tombstones: None, top_level: handle, properties: handle };
        let bytes = footer.encode(FileNumber::new(3), 1000);
        assert!(Footer::decode(&bytes, &place(1000)).unwrap_err().is_corruption());
    }

    #[test]
    fn a_version_of_another_build_is_unsupported() {
        let handle = BlockHandle { offset: 0, stored_len: 101 };
        for version in [0, FORMAT_VERSION + 1] {
            let footer =
                Footer { version, range_tombstones: None, top_level: handle, properties: handle };
            let bytes = footer.encode(FileNumber::new(3), 1000);
            let error = Footer::decode(&bytes, &place(1000)).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        }
    }

    #[test]
    fn only_versions_before_3_say_whether_all_entries_have_one_sequence_number() {
        let allowed = [1, 2, 3].map(|version| {
            let handle = BlockHandle::default();
            let footer =
                Footer { version, range_tombstones: None, top_level: handle, properties: handle };
            [false, true].map(|global| footer.allows_global_seqno(global))
        });
        assert_eq!(allowed, [[true, false], [false, true], [true, true]]);
    }
}
