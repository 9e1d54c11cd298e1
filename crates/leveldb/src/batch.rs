//! Batches, as the bytes that LevelDB has for them, so that those of programs in C++ are the same:
//!
//! ```text
//! batch := sequence:u64le  count:u32le  op*          (LevelDB 1.23, db/write_batch.cc)
//! op    := 1  key_len:varint  key  value_len:varint  value
//!        | 0  key_len:varint  key
//! ```

use crate::memory::{bytes, free, handle, shown};
use crate::tree::Op;
use libc::{c_char, c_void, size_t};
use std::ops::Range;
use terrace_base::codec::{Decoder, put_bytes};
use terrace_binding::{Code, Failure, Outcome};

const HEADER_BYTES: usize = 12;
const COUNT: Range<usize> = 8..12;
const DELETE: u8 = 0;
const PUT: u8 = 1;

/// Writes that become visible together.
pub struct Batch {
    bytes: Vec<u8>,
}

impl Batch {
    fn new() -> Self {
        Self { bytes: vec![0; HEADER_BYTES] }
    }

    fn count(&self) -> u32 {
        count(&self.bytes).unwrap_or(0)
    }

    fn set_count(&mut self, count: u32) {
        self.bytes[COUNT].copy_from_slice(&count.to_le_bytes());
    }

    fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.set_count(self.count() + 1);
        self.bytes.push(if value.is_some() { PUT } else { DELETE });
        put_bytes(&mut self.bytes, key);
        if let Some(value) = value {
            put_bytes(&mut self.bytes, value);
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn count(batch: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(batch.get(COUNT)?.try_into().ok()?))
}

/// The operations of a batch that was looked through by [`ops`].
#[derive(Clone)]
pub struct Ops<'a> {
    reader: Decoder<'a>,
}

impl<'a> Iterator for Ops<'a> {
    type Item = Op<'a>;

    fn next(&mut self) -> Option<Op<'a>> {
        // What is no operation stays where it is.
        let mut reader = self.reader;
        let kind = reader.u8()?;
        let key = reader.bytes()?;
        let value = match kind {
            PUT => Some(reader.bytes()?),
            DELETE => None,
            _ => return None,
        };
        self.reader = reader;
        Some((key, value))
    }
}

/// The operations of a batch.
///
/// # Errors
/// The bytes are no batch, or not as many operations as they say.
pub fn ops(batch: &[u8]) -> Outcome<Ops<'_>> {
    let damaged = |what: &str| Failure { code: Code::Corruption, message: what.to_string() };
    let (Some(said), Some(rest)) = (count(batch), batch.get(HEADER_BYTES..)) else {
        return Err(damaged("malformed WriteBatch (too small)"));
    };
    let ops = Ops { reader: Decoder::new(rest) };
    let mut walk = ops.clone();
    let found = walk.by_ref().count();
    if !walk.reader.is_empty() || found != said as usize {
        return Err(damaged("WriteBatch has wrong count or an operation that is none"));
    }
    Ok(ops)
}

#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writebatch_create() -> *mut Batch {
    handle(Batch::new())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_destroy(batch: *mut Batch) {
    // SAFETY: the rules of LevelDB.
    unsafe { free(batch) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_clear(batch: *mut Batch) {
    // SAFETY: the rules of LevelDB.
    if let Some(batch) = unsafe { batch.as_mut() } {
        *batch = Batch::new();
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_put(
    batch: *mut Batch,
    key: *const c_char,
    klen: size_t,
    val: *const c_char,
    vlen: size_t,
) {
    // SAFETY: the rules of LevelDB.
    let (batch, key, value) = unsafe { (batch.as_mut(), bytes(key, klen), bytes(val, vlen)) };
    if let Some(batch) = batch {
        batch.push(key, Some(value));
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_delete(
    batch: *mut Batch,
    key: *const c_char,
    klen: size_t,
) {
    // SAFETY: the rules of LevelDB.
    let (batch, key) = unsafe { (batch.as_mut(), bytes(key, klen)) };
    if let Some(batch) = batch {
        batch.push(key, None);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_iterate(
    batch: *const Batch,
    state: *mut c_void,
    put: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t, *const c_char, size_t)>,
    deleted: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t)>,
) {
    // SAFETY: the rules of LevelDB.
    let Some(Ok(ops)) = (unsafe { batch.as_ref() }).map(|batch| ops(&batch.bytes)) else { return };
    for (key, value) in ops {
        let (k, klen) = (shown(key), key.len());
        match (value, put, deleted) {
            (Some(value), Some(put), _) => {
                // SAFETY: the caller's function takes its state and bytes that live for the call.
                unsafe { put(state, k, klen, shown(value), value.len()) };
            }
            (None, _, Some(deleted)) => {
                // SAFETY: as above.
                unsafe { deleted(state, k, klen) };
            }
            _ => {}
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writebatch_append(destination: *mut Batch, source: *const Batch) {
    // SAFETY: the rules of LevelDB. Read as a whole first: both may be the same batch.
    unsafe {
        let Some(source) = source.as_ref() else { return };
        let (count, ops) = (source.count(), source.bytes[HEADER_BYTES..].to_vec());
        let Some(destination) = destination.as_mut() else { return };
        destination.set_count(destination.count() + count);
        destination.bytes.extend(ops);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_the_bytes_of_leveldb() {
        let mut batch = Batch::new();
        batch.push(b"foo", Some(b"bar"));
        batch.push(b"box", None);
        let expected = b"\0\0\0\0\0\0\0\0\x02\0\0\0\x01\x03foo\x03bar\0\x03box";
        assert_eq!(batch.as_bytes(), expected);
        let found: Vec<_> = ops(expected).unwrap().collect();
        assert_eq!(found, [(&b"foo"[..], Some(&b"bar"[..])), (b"box", None)]);
    }

    #[test]
    fn bytes_that_are_no_batch_are_refused() {
        let mut batch = Batch::new();
        batch.push(b"foo", Some(b"bar"));
        batch.push(b"box", None);
        let bytes = batch.as_bytes();
        for len in 0..bytes.len() {
            assert!(ops(&bytes[..len]).is_err(), "{len}");
        }
        let more = [bytes, &[0]].concat();
        assert!(ops(&more).is_err());
        let mut kind = bytes.to_vec();
        kind[HEADER_BYTES] = 7;
        assert!(ops(&kind).is_err());
    }
}
