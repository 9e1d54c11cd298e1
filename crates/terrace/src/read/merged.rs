//! Point reads where the newest version of a key is an operand of a merge (get): what a scan shows of the
//! keys, since all their versions count that are not compacted yet.

use super::scan::{self, Moment, ReadOptions};
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
    env.base.health.check_open()?;
    let moment = scan::moment(env, family, options.snapshot.as_ref())?;
    get_at(env, family, key, options, moment)
}

/// As [`get`], at a moment that was taken before.
pub(crate) fn get_at(
    env: &ReadEnv,
    family: &Family,
    key: &[u8],
    options: ReadOptions,
    moment: Moment,
) -> Result<Option<(Slice, Option<u64>)>> {
    // Nothing of other keys is folded or read.
    let mut end = key.to_vec();
    end.push(0);
    let (lower_bound, upper_bound) = (Some(key.to_vec()), Some(end));
    let options = ReadOptions { lower_bound, upper_bound, ..options };
    let mut iter = scan::iter_at(env, family, &options, moment)?;
    iter.seek(key)?;
    let found = || (Slice::from(iter.value()), iter.expires_at_ms());
    Ok(iter.valid().then(found))
}
