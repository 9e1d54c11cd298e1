//! Exceptions, intents and copies as bytes, for the store that keeps them. All numbers are little-endian.
//!
//! ```text
//! exception  1 | at u32 | epoch u64 | number u64                                       21 bytes
//! intent     1 | epoch u64 | number u64 | direction u8 | state u8 | other u32          23 bytes
//! copy       1 | epoch u64 | number u64 | state u8 | leaving: epoch u64 | number u64   34 bytes
//! ```
//! The first byte is the version. What a key, a database and a shard are called is in the store's key.

use crate::exceptions::Exception;
use crate::id::{Epoch, ShardId};
use crate::key::MoveId;
use crate::moves::copy::{CopyState, KeyCopy};
use crate::moves::intent::{Direction, Intent, IntentState};
use std::fmt;

const VERSION: u8 = 1;

/// Bytes that are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordError;

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("damaged record of a key move")
    }
}

impl std::error::Error for RecordError {}

/// Takes numbers off the front.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(RecordError)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, RecordError> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn shard(&mut self) -> Result<ShardId, RecordError> {
        self.take().map(|bytes| ShardId(u32::from_le_bytes(bytes)))
    }

    fn move_id(&mut self) -> Result<MoveId, RecordError> {
        let epoch = Epoch(u64::from_le_bytes(self.take()?));
        Ok(MoveId { epoch, number: u64::from_le_bytes(self.take()?) })
    }

    fn end(self) -> Result<(), RecordError> {
        if self.0.is_empty() { Ok(()) } else { Err(RecordError) }
    }
}

fn reader(bytes: &[u8]) -> Result<Reader<'_>, RecordError> {
    let mut reader = Reader(bytes);
    if reader.u8()? == VERSION { Ok(reader) } else { Err(RecordError) }
}

fn put_move_id(out: &mut Vec<u8>, id: MoveId) {
    out.extend(id.epoch.0.to_le_bytes());
    out.extend(id.number.to_le_bytes());
}

impl Exception {
    /// See the module.
    pub fn encode(self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend(self.at.0.to_le_bytes());
        put_move_id(&mut out, self.move_id);
        out
    }

    /// The reverse of [`Self::encode`].
    ///
    /// # Errors
    /// The bytes are no exception.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = reader(bytes)?;
        let exception = Self { at: reader.shard()?, move_id: reader.move_id()? };
        reader.end()?;
        Ok(exception)
    }
}

impl Intent {
    /// See the module.
    pub fn encode(self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_move_id(&mut out, self.id);
        out.push(match self.direction {
            Direction::Out => 0,
            Direction::Home => 1,
        });
        out.push(match self.state {
            IntentState::Open => 0,
            IntentState::Committed => 1,
            IntentState::Undone => 2,
        });
        out.extend(self.other.0.to_le_bytes());
        out
    }

    /// The reverse of [`Self::encode`].
    ///
    /// # Errors
    /// The bytes are no intent.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = reader(bytes)?;
        let id = reader.move_id()?;
        let direction = match reader.u8()? {
            0 => Direction::Out,
            1 => Direction::Home,
            _ => return Err(RecordError),
        };
        let state = match reader.u8()? {
            0 => IntentState::Open,
            1 => IntentState::Committed,
            2 => IntentState::Undone,
            _ => return Err(RecordError),
        };
        let other = reader.shard()?;
        reader.end()?;
        Ok(Self { id, direction, other, state })
    }
}

impl KeyCopy {
    /// See the module.
    pub fn encode(self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_move_id(&mut out, self.id);
        let (state, leaving) = match self.state {
            CopyState::Hidden => (0, MoveId::default()),
            CopyState::Live => (1, MoveId::default()),
            CopyState::Leaving(by) => (2, by),
        };
        out.push(state);
        put_move_id(&mut out, leaving);
        out
    }

    /// The reverse of [`Self::encode`].
    ///
    /// # Errors
    /// The bytes are no copy.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let mut reader = reader(bytes)?;
        let id = reader.move_id()?;
        let state = reader.u8()?;
        let by = reader.move_id()?;
        reader.end()?;
        let state = match state {
            0 => CopyState::Hidden,
            1 => CopyState::Live,
            2 => CopyState::Leaving(by),
            _ => return Err(RecordError),
        };
        Ok(Self { id, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> [MoveId; 3] {
        [(0, 0), (7, 1 << 40), (u64::MAX, u64::MAX)]
            .map(|(epoch, number)| MoveId { epoch: Epoch(epoch), number })
    }

    /// Every record is read as it was written; cut, longer, or of another version it is refused.
    fn check<T: PartialEq + fmt::Debug>(
        value: &T,
        bytes: &[u8],
        length: usize,
        decode: impl Fn(&[u8]) -> Result<T, RecordError>,
    ) {
        assert_eq!(bytes.len(), length);
        assert_eq!(decode(bytes).as_ref(), Ok(value));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), Err(RecordError));
        }
        assert_eq!(decode(&[bytes, &[0]].concat()), Err(RecordError));
        assert_eq!(decode(&[&[2], &bytes[1..]].concat()), Err(RecordError));
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        for id in ids() {
            let exception = Exception { at: ShardId(0x0102_0304), move_id: id };
            check(&exception, &exception.encode(), 21, Exception::decode);
            for direction in [Direction::Out, Direction::Home] {
                for state in [IntentState::Open, IntentState::Committed, IntentState::Undone] {
                    let intent = Intent { id, direction, other: ShardId(9), state };
                    check(&intent, &intent.encode(), 23, Intent::decode);
                }
            }
            for state in [CopyState::Hidden, CopyState::Live, CopyState::Leaving(ids()[1])] {
                let copy = KeyCopy { id, state };
                check(&copy, &copy.encode(), 34, KeyCopy::decode);
            }
        }
        let mut wrong = Intent::encode(Intent {
            id: ids()[1],
            direction: Direction::Out,
            other: ShardId(1),
            state: IntentState::Open,
        });
        (wrong[17], wrong[18]) = (2, 0);
        assert_eq!(Intent::decode(&wrong), Err(RecordError));
        (wrong[17], wrong[18]) = (0, 3);
        assert_eq!(Intent::decode(&wrong), Err(RecordError));
    }
}
