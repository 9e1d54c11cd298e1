//! What is known of a key without its value (get): a separated value is not read.

use super::{Answer, Expiry, Reading, check, fold, look_up, look_up_sampled};
use crate::error::Result;
use crate::metrics::{Sampled, sample};
use crate::version::family::Family;
use crate::version::read_env::ReadEnv;
use std::num::NonZeroU64;
use terrace_compression::Compression;

/// What is known of an entry without its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryInfo {
    /// As [`Found::expires_at_ms`](crate::Found::expires_at_ms).
    pub expires_at_ms: Option<u64>,
    /// The length of the value; `None` if only the value itself shows it, being compressed by itself.
    pub value_bytes: Option<usize>,
    /// What a read of the value reads of it: its length, or that of its compressed form.
    pub stored_bytes: usize,
}

/// What is known of `key` without its value.
pub(crate) fn get_info(
    env: &ReadEnv,
    family: &Family,
    key: &[u8],
    reading: Reading<'_>,
) -> Result<Option<EntryInfo>> {
    check(env, family)?;
    let reading = Reading { only_info: true, ..reading };
    let answer = match sample() {
        Sampled::Followed => look_up_sampled(env, family, key, reading)?,
        _ => look_up(env, family, key, reading, &mut ())?,
    };
    let answer = match answer {
        Answer::Operand => fold(env, family, key, reading)?,
        answer => answer,
    };
    let info = |expiry: Expiry, value_bytes, stored_bytes| EntryInfo {
        expires_at_ms: expiry.map(NonZeroU64::get),
        value_bytes,
        stored_bytes,
    };
    let found = match answer {
        Answer::Absent | Answer::Operand => None,
        Answer::Value(value, expiry) => Some(info(expiry, Some(value.len()), value.len())),
        Answer::Separated(handle, expiry) => {
            let is_plain = handle.compression == Compression::None as u8;
            let stored_bytes = handle.len as usize;
            Some(info(expiry, is_plain.then_some(stored_bytes), stored_bytes))
        }
    };
    env.base.counters.gets.add(1);
    env.base.counters.gets_found.add(u64::from(found.is_some()));
    Ok(found)
}
