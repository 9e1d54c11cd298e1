//! Point reads where the newest version of a key is an operand of a merge (get): what a scan shows of the
//! keys, since all their versions count that are not compacted yet.

use super::scan::{self, ReadOptions};
use crate::error::Result;
use crate::version::family::Family;
use crate::version::read_env::ReadEnv;
use terrace_buf::Slice;

/// The value of `key` and when it expires, in Unix milliseconds; `options` say at which snapshot and how to read.
pub(crate) fn get(
    env: &ReadEnv,
    family: &Family,
    key: &[u8],
    options: ReadOptions,
) -> Result<Option<(Slice, Option<u64>)>> {
    let mut end = key.to_vec();
    end.push(0);
    let (lower_bound, upper_bound) = (Some(key.to_vec()), Some(end));
    let mut iter = scan::iter(env, family, &ReadOptions { lower_bound, upper_bound, ..options })?;
    iter.seek(key)?;
    let found = || (Slice::from(iter.value()), iter.expires_at_ms());
    Ok(iter.valid().then(found))
}

/// The values of `keys`, all as of one moment.
pub(crate) fn multi_get(
    env: &ReadEnv,
    family: &Family,
    keys: &[&[u8]],
    options: &ReadOptions,
) -> Result<Vec<Option<Slice>>> {
    let mut iter = scan::iter(env, family, options)?;
    let value = |key: &&[u8]| {
        iter.seek(key)?;
        let is_there = iter.valid() && iter.key() == *key;
        Ok(is_there.then(|| Slice::from(iter.value())))
    };
    keys.iter().map(value).collect()
}
