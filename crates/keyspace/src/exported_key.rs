//! A key with everything under it as bytes that can be sent to another instance.
//!
//! ```text
//! 1 | db u8 | key | kind u8 | expires_at_ms u64 | count u64 | count elements | XXH3-64 of all before
//! kind      0 nothing   1 string   2 hash           3 set     4 sorted set              5 list
//! elements  -           value      field, value     member    score (8 bytes), member   value
//! ```
//! Keys and parts of elements are a length (u32) and the bytes; numbers are little-endian, a score is its
//! bits as an IEEE 754 double. The first byte is the version. Elements of a list are in order.

use crate::encode::Kind;
use crate::key_layout::MAX_DATABASES;
use std::fmt;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 8;

/// See the module. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ExportedKey(Arc<[u8]>);

/// Bytes that are no exported key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("damaged bytes of an exported key")]
pub struct DamagedExport;

/// What is under an exported key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExportedKind {
    Nothing,
    Text,
    Collection(Kind),
}

/// An exported key, taken apart.
pub(crate) struct Parts<'a> {
    pub db: u8,
    pub key: &'a [u8],
    pub kind: ExportedKind,
    /// 0: never.
    pub expires_at_ms: u64,
    pub count: u64,
    elements: &'a [u8],
}

/// Writes an exported key.
pub(crate) struct Exporter {
    bytes: Vec<u8>,
    count_at: usize,
    count: u64,
}

impl ExportedKey {
    /// What [`Self::as_bytes`] gave.
    ///
    /// # Errors
    /// They are not that, or damaged.
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<Self, DamagedExport> {
        let exported = Self(bytes.into());
        let checked = exported.0.split_last_chunk::<CHECKSUM_BYTES>().ok_or(DamagedExport)?;
        if xxh3_64(checked.0) != u64::from_le_bytes(*checked.1) {
            return Err(DamagedExport);
        }
        exported.parts()?.each_element(|_, _| Ok(()))?;
        Ok(exported)
    }

    /// Of a key that does not exist.
    pub fn nothing(db: u8, key: &[u8]) -> Self {
        Exporter::new(db, key, ExportedKind::Nothing, 0).finish()
    }

    /// To be sent.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The database and the key.
    pub fn name(&self) -> (u8, &[u8]) {
        self.parts().map_or((0, &[]), |parts| (parts.db, parts.key))
    }

    /// Whether there is anything under the key.
    pub fn exists(&self) -> bool {
        self.parts().is_ok_and(|parts| parts.kind != ExportedKind::Nothing)
    }

    pub(crate) fn parts(&self) -> Result<Parts<'_>, DamagedExport> {
        let whole = self.0.len().checked_sub(CHECKSUM_BYTES).ok_or(DamagedExport)?;
        let mut reader = Reader(&self.0[..whole]);
        let [version, db] = *reader.take_chunk::<2>()?;
        let key = reader.take_bytes()?;
        let [kind] = *reader.take_chunk::<1>()?;
        let kind = match kind {
            0 => ExportedKind::Nothing,
            1 => ExportedKind::Text,
            2 => ExportedKind::Collection(Kind::Hash),
            3 => ExportedKind::Collection(Kind::Set),
            4 => ExportedKind::Collection(Kind::SortedSet),
            5 => ExportedKind::Collection(Kind::List),
            _ => return Err(DamagedExport),
        };
        if version != VERSION || usize::from(db) >= MAX_DATABASES {
            return Err(DamagedExport);
        }
        let expires_at_ms = u64::from_le_bytes(*reader.take_chunk()?);
        let count = u64::from_le_bytes(*reader.take_chunk()?);
        Ok(Parts { db, key, kind, expires_at_ms, count, elements: reader.0 })
    }
}

impl fmt::Debug for ExportedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (db, key) = self.name();
        write!(f, "ExportedKey({db}:{}, {} bytes)", key.escape_ascii(), self.0.len())
    }
}

impl Parts<'_> {
    /// Shows all elements: those with one part with an empty second one, scores first.
    ///
    /// # Errors
    /// They are not as many as are said, or not whole.
    pub fn each_element<E: From<DamagedExport>>(
        &self,
        mut seen: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut reader = Reader(self.elements);
        for _ in 0..self.count {
            match self.kind {
                ExportedKind::Nothing => return Err(DamagedExport.into()),
                ExportedKind::Text => seen(reader.take_bytes()?, &[])?,
                ExportedKind::Collection(Kind::Set | Kind::List) => {
                    seen(reader.take_bytes()?, &[])?;
                }
                ExportedKind::Collection(Kind::Hash) => {
                    let field = reader.take_bytes()?;
                    seen(field, reader.take_bytes()?)?;
                }
                ExportedKind::Collection(Kind::SortedSet) => {
                    let score = *reader.take_chunk::<8>()?;
                    if f64::from_bits(u64::from_le_bytes(score)).is_nan() {
                        return Err(DamagedExport.into());
                    }
                    seen(&score, reader.take_bytes()?)?;
                }
            }
        }
        let is_fitting = match self.kind {
            ExportedKind::Nothing => self.count == 0,
            ExportedKind::Text => self.count == 1,
            ExportedKind::Collection(_) => self.count > 0,
        };
        match reader.0.is_empty() && is_fitting {
            true => Ok(()),
            false => Err(DamagedExport.into()),
        }
    }
}

impl Exporter {
    pub fn new(db: u8, key: &[u8], kind: ExportedKind, expires_at_ms: u64) -> Self {
        let mut bytes = vec![VERSION, db];
        put_bytes(&mut bytes, key);
        bytes.push(match kind {
            ExportedKind::Nothing => 0,
            ExportedKind::Text => 1,
            ExportedKind::Collection(Kind::Hash) => 2,
            ExportedKind::Collection(Kind::Set) => 3,
            ExportedKind::Collection(Kind::SortedSet) => 4,
            ExportedKind::Collection(Kind::List) => 5,
        });
        bytes.extend_from_slice(&expires_at_ms.to_le_bytes());
        let count_at = bytes.len();
        bytes.extend_from_slice(&[0; 8]);
        Self { bytes, count_at, count: 0 }
    }

    pub fn size_bytes(&self) -> usize {
        self.bytes.len() + CHECKSUM_BYTES
    }

    /// An element of these parts follows.
    pub fn element(&mut self, parts: &[&[u8]]) {
        self.count += 1;
        parts.iter().for_each(|part| put_bytes(&mut self.bytes, part));
    }

    /// A member of a sorted set follows.
    pub fn scored(&mut self, score: f64, member: &[u8]) {
        self.count += 1;
        self.bytes.extend_from_slice(&score.to_bits().to_le_bytes());
        put_bytes(&mut self.bytes, member);
    }

    pub fn finish(mut self) -> ExportedKey {
        let count = self.count.to_le_bytes();
        self.bytes[self.count_at..self.count_at + 8].copy_from_slice(&count);
        let checksum = xxh3_64(&self.bytes);
        self.bytes.extend_from_slice(&checksum.to_le_bytes());
        ExportedKey(self.bytes.into())
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // Keys, members and values are far below 4 GiB.
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take_chunk<const N: usize>(&mut self) -> Result<&'a [u8; N], DamagedExport> {
        let (chunk, rest) = self.0.split_first_chunk::<N>().ok_or(DamagedExport)?;
        self.0 = rest;
        Ok(chunk)
    }

    fn take_bytes(&mut self) -> Result<&'a [u8], DamagedExport> {
        let len = u32::from_le_bytes(*self.take_chunk()?) as usize;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(DamagedExport)?;
        self.0 = rest;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn zset() -> ExportedKey {
        let kind = ExportedKind::Collection(Kind::SortedSet);
        let mut exporter = Exporter::new(3, b"key", kind, 77);
        exporter.scored(1.5, b"a");
        exporter.scored(f64::INFINITY, b"");
        exporter.finish()
    }

    #[test]
    fn an_exported_key_is_read_as_it_was_written() {
        let read = ExportedKey::from_bytes(zset().as_bytes()).unwrap();
        assert_eq!((read.name(), read.exists()), ((3, &b"key"[..]), true));
        let parts = read.parts().unwrap();
        assert_eq!((parts.expires_at_ms, parts.count), (77, 2));
        let mut seen = Vec::new();
        parts
            .each_element(|score, member| {
                let score = f64::from_bits(u64::from_le_bytes(score.try_into().unwrap()));
                seen.push((score, member.to_vec()));
                Ok::<_, DamagedExport>(())
            })
            .unwrap();
        assert_eq!(seen, [(1.5, b"a".to_vec()), (f64::INFINITY, Vec::new())]);
        let nothing = ExportedKey::nothing(3, b"k");
        let read = ExportedKey::from_bytes(nothing.as_bytes()).unwrap();
        assert_eq!((read.name(), read.exists()), ((3, &b"k"[..]), false));
    }

    #[test]
    fn every_changed_or_missing_byte_is_noticed() {
        let whole = zset();
        for at in 0..whole.as_bytes().len() {
            let mut damaged = whole.as_bytes().to_vec();
            damaged[at] ^= 0x40;
            assert_eq!(ExportedKey::from_bytes(damaged), Err(DamagedExport), "byte {at}");
            assert_eq!(ExportedKey::from_bytes(&whole.as_bytes()[..at]), Err(DamagedExport));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_with_a_right_checksum_cause_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..80), count in 0_u64..4) {
            // A plausible beginning, so that more than the version is looked at.
            if bytes.len() > 24 {
                let kind = bytes[7] % 7;
                bytes[..8].copy_from_slice(&[VERSION, 0, 1, 0, 0, 0, b'k', kind]);
                bytes[16..24].copy_from_slice(&count.to_le_bytes());
            }
            let checksum = xxh3_64(&bytes).to_le_bytes();
            bytes.extend_from_slice(&checksum);
            if let Ok(exported) = ExportedKey::from_bytes(bytes) {
                prop_assert!(exported.parts().is_ok());
            }
        }
    }
}
