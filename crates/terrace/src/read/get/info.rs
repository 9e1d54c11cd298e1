//! What is known of a key without its value (get): a separated value is not read, or not decompressed.

use super::{Answer, Expiry, MAX_TRIES, Reading, check, fold, look_up, look_up_sampled};
use crate::error::Result;
use crate::metrics::{Sampled, sample};
use crate::version::family::Family;
use crate::version::read_env::ReadEnv;
use std::num::NonZeroU64;
use terrace_base::ValueHandle;
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

/// What is known of `key` without its value. Of one that is compressed by itself the length is read, if its stored form
/// has at most `read_bytes` and `reading` may wait for the device.
pub(crate) fn get_info(
    env: &ReadEnv,
    family: &Family,
    key: &[u8],
    reading: Reading<'_>,
    read_bytes: usize,
) -> Result<Option<EntryInfo>> {
    check(env, family)?;
    let reading = Reading { only_info: true, ..reading };
    let mut answer = match sample() {
        Sampled::Followed => look_up_sampled(env, family, key, reading)?,
        _ => look_up(env, family, key, reading, &mut ())?,
    };
    let info = |expiry: Expiry, value_bytes, stored_bytes| EntryInfo {
        expires_at_ms: expiry.map(NonZeroU64::get),
        value_bytes,
        stored_bytes,
    };
    let mut tries = 0;
    let found = loop {
        let settled = match answer {
            Answer::Operand => fold(env, family, key, reading)?,
            answer => answer,
        };
        match settled {
            Answer::Absent | Answer::Operand => break None,
            Answer::Value(value, expiry) => {
                break Some(info(expiry, Some(value.len()), value.len()));
            }
            Answer::Separated(handle, expiry) => {
                let is_plain = handle.compression == Compression::None as u8;
                let stored_bytes = handle.len as usize;
                if is_plain || reading.in_memory || stored_bytes > read_bytes {
                    break Some(info(expiry, is_plain.then_some(stored_bytes), stored_bytes));
                }
                if let Some(len) = length(env, family, key, reading, handle)? {
                    break Some(info(expiry, Some(len), stored_bytes));
                }
                // It was moved meanwhile.
                family.check_exists()?;
                tries += 1;
                if tries == MAX_TRIES {
                    return Err(env.value_log.missing(&handle).into());
                }
                answer = look_up(env, family, key, reading, &mut ())?;
            }
        }
    };
    env.base.counters.gets.add(1);
    env.base.counters.gets_found.add(u64::from(found.is_some()));
    Ok(found)
}

/// The length of the value at `handle`; `None` if its segment has left the store.
fn length(
    env: &ReadEnv,
    family: &Family,
    key: &[u8],
    reading: Reading<'_>,
    handle: ValueHandle,
) -> Result<Option<usize>> {
    Ok(match reading.snapshot.and_then(|snapshot| snapshot.view_of(family.id)) {
        Some((_, held)) => env.value_log.value_len_held(held, key, handle)?,
        None => env.value_log.value_len(key, handle)?,
    })
}
