//! The bytes of a segment. Writer and reader share this file and nothing else.
//!
//! ```text
//! segment   header (44 bytes), then records to the end of the file; preallocated room is zeros
//!
//! header    0  magic             8   "TERRALOG"
//!           8  format version    4   1
//!          12  segment number    8
//!          20  previous segment  8   0: this header names none
//!          28  previous end      8   where the previous segment's records end
//!          36  reserved          4   0
//!          40  checksum          4   crc32c of bytes 0..40
//!
//! record    0  checksum          4   crc32c of segment number (8), file offset of the record (8),
//!                                    and record bytes 4..9+length
//!           4  length            4   of the payload
//!           8  type              1   1 data, 2 sync marker, 3 value
//!           9  payload           length
//! ```
//!
//! All integers are little-endian. Offsets count from the start of the file, the header included.
//! Type 0 does not exist, so that nine zero bytes are never a record.

use crc32c::{crc32c, crc32c_append};
use terrace_base::SegmentNumber;
use terrace_base::codec::Decoder;

/// The first bytes of every segment.
pub const MAGIC: [u8; 8] = *b"TERRALOG";

/// The format version this build writes, and the only one it reads.
pub const FORMAT_VERSION: u32 = 1;

/// Bytes of the segment header: where the first record starts.
pub const HEADER_BYTES: u64 = 44;

/// Bytes in front of each payload.
pub const RECORD_HEADER_BYTES: usize = 9;

/// The longest payload: what the length field can say.
pub const MAX_PAYLOAD_BYTES: usize = u32::MAX as usize;

/// Bytes of a sync marker's payload: segment (8), offset (8).
pub const MARKER_PAYLOAD_BYTES: usize = 16;

/// The type byte of a record. The numbers are stored and never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordType {
    /// A payload of the log's user.
    Data = 1,
    /// States that everything up to a position is durable ([`LogPosition`]).
    SyncMarker = 2,
    /// A separated value by itself ([`crate::value`]); only in segments that garbage collection
    /// wrote.
    Value = 3,
}

impl RecordType {
    /// The type stored as `byte`.
    pub fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Data),
            2 => Some(Self::SyncMarker),
            3 => Some(Self::Value),
            _ => None,
        }
    }
}

/// A place in a log, between two records: how far it is durable, or where it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogPosition {
    /// The segment.
    pub segment: SegmentNumber,
    /// File offset of the first byte behind the place.
    pub offset: u64,
}

impl LogPosition {
    /// Before everything in every log.
    pub const START: Self = Self { segment: SegmentNumber::ZERO, offset: 0 };
}

/// What a segment header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The segment's own number.
    pub segment: SegmentNumber,
    /// The end of the log that this segment continues, if its writer was told.
    pub previous: Option<LogPosition>,
}

/// Why bytes are not a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderFault {
    /// Not what any writer leaves behind except in a crash, or damaged since.
    Damaged(String),
    /// A sound header of another format version.
    Version(u32),
}

/// The bytes of a header.
pub fn encode_header(header: &Header) -> [u8; HEADER_BYTES as usize] {
    let previous = header.previous.unwrap_or_default();
    let mut bytes = [0u8; HEADER_BYTES as usize];
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[12..20].copy_from_slice(&header.segment.get().to_le_bytes());
    bytes[20..28].copy_from_slice(&previous.segment.get().to_le_bytes());
    bytes[28..36].copy_from_slice(&previous.offset.to_le_bytes());
    let checksum = crc32c(&bytes[..40]);
    bytes[40..44].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Reads a header from the front of `bytes`.
pub fn decode_header(bytes: &[u8]) -> Result<Header, HeaderFault> {
    let Some(bytes) = bytes.first_chunk::<{ HEADER_BYTES as usize }>() else {
        let have = bytes.len();
        return Err(HeaderFault::Damaged(format!("the {HEADER_BYTES}-byte header ends at {have}")));
    };
    if bytes.iter().all(|byte| *byte == 0) {
        return Err(HeaderFault::Damaged("the header was never written (zeros)".into()));
    }
    let (Some(magic), version, Some(fields), stored) =
        (bytes.first_chunk::<8>(), le_u32(bytes, 8), bytes.get(12..36), le_u32(bytes, 40))
    else {
        return Err(HeaderFault::Damaged("the header is cut off".into()));
    };
    if *magic != MAGIC {
        return Err(HeaderFault::Damaged("the file does not start with TERRALOG".into()));
    }
    let computed = crc32c(&bytes[..40]);
    if stored != computed {
        let text = format!("the header checksum is {stored:08x}, its bytes give {computed:08x}");
        return Err(HeaderFault::Damaged(text));
    }
    if version != FORMAT_VERSION {
        return Err(HeaderFault::Version(version));
    }
    let mut decoder = Decoder::new(fields);
    let mut next = || decoder.u64().unwrap_or(0);
    let (segment, before, end) = (next(), next(), next());
    if before >= segment {
        let text = format!("the header of segment {segment} says that it continues {before}");
        return Err(HeaderFault::Damaged(text));
    }
    let previous = LogPosition { segment: SegmentNumber::new(before), offset: end };
    let segment = SegmentNumber::new(segment);
    Ok(Header { segment, previous: (before != 0).then_some(previous) })
}

fn le_u32(bytes: &[u8; HEADER_BYTES as usize], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The part of a record checksum that all records of a segment share: segment numbers are hashed
/// once, not per record.
pub fn segment_seed(segment: SegmentNumber) -> u32 {
    crc32c(&segment.get().to_le_bytes())
}

/// The nine bytes in front of `payload` when the record stands at `offset`; `segment_seed` is
/// [`segment_seed`] of the segment. The payload must be at most [`MAX_PAYLOAD_BYTES`].
#[inline]
pub fn record_header(
    segment_seed: u32,
    offset: u64,
    kind: RecordType,
    payload: &[u8],
) -> [u8; RECORD_HEADER_BYTES] {
    let mut bytes = [0u8; RECORD_HEADER_BYTES];
    bytes[4..8].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    bytes[8] = kind as u8;
    let start = checksum_start(segment_seed, offset, &bytes);
    bytes[0..4].copy_from_slice(&crc32c_append(start, payload).to_le_bytes());
    bytes
}

/// A record's checksum over everything but its payload; appending the payload completes it.
#[inline]
pub fn checksum_start(segment_seed: u32, offset: u64, header: &[u8; RECORD_HEADER_BYTES]) -> u32 {
    let mut fixed = [0u8; 13];
    fixed[..8].copy_from_slice(&offset.to_le_bytes());
    fixed[8..].copy_from_slice(&header[4..]);
    crc32c_append(segment_seed, &fixed)
}

/// The fields of a record header, not checked: checksum, payload length, type byte.
#[inline]
pub fn split_record_header(header: &[u8; RECORD_HEADER_BYTES]) -> (u32, u32, u8) {
    let [c0, c1, c2, c3, l0, l1, l2, l3, kind] = *header;
    (u32::from_le_bytes([c0, c1, c2, c3]), u32::from_le_bytes([l0, l1, l2, l3]), kind)
}

/// The payload of a sync marker.
pub fn encode_marker(through: LogPosition) -> [u8; MARKER_PAYLOAD_BYTES] {
    let mut bytes = [0u8; MARKER_PAYLOAD_BYTES];
    bytes[..8].copy_from_slice(&through.segment.get().to_le_bytes());
    bytes[8..].copy_from_slice(&through.offset.to_le_bytes());
    bytes
}

/// Reads the payload of a sync marker; `None` if it has another length.
pub fn decode_marker(payload: &[u8]) -> Option<LogPosition> {
    let mut decoder = Decoder::new(payload);
    let segment = SegmentNumber::new(decoder.u64()?);
    let through = LogPosition { segment, offset: decoder.u64()? };
    decoder.is_empty().then_some(through)
}
