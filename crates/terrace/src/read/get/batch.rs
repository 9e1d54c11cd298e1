//! Many point reads at once: the keys that the memtables do not answer go down run by run, and
//! what one run must read from the device for all of them is read in one batch, or ends the call if it may not read.

use super::{Answer, MAX_TRIES, Reading};
use crate::error::{Error, Result};
use crate::read::merged;
use crate::read::scan::{self, Moment};
use crate::values::value_log::SegmentMap;
use crate::version::family::Family;
use crate::version::read_env::ReadEnv;
use crate::version::read_state::ReadState;
use open_keys::OpenKeys;
use reached::Reached;
use terrace_base::{SeqNo, ValueHandle};
use terrace_buf::{BufMut, Slice};
use terrace_sst::Lookup;

/// Bytes of data blocks that may be read for one run at a time, about, beside the memory budget and in each of many threads:
/// some times what the device is asked for together. And how many keys that is at least, and at most.
const BYTES_AT_ONCE: usize = 4 << 20;
const LEAST_AT_ONCE: usize = 16;
const MOST_AT_ONCE: usize = 4096;

/// As many answers of a call may keep the blocks that they lie in. Later ones are copied if they are shorter than one
/// part in [`KEPT_PART`] of what they would keep.
const KEEPING_ANSWERS: usize = 64;
const KEPT_PART: usize = 4;

/// The values of `keys`, all as of one moment. Reads of one SST are batched.
pub(crate) fn multi_get(
    env: &ReadEnv,
    family: &Family,
    keys: &[&[u8]],
    reading: Reading<'_>,
) -> Result<Vec<Option<Slice>>> {
    super::check(env, family)?;
    let mut tries = 0;
    let found = loop {
        let view = reading.snapshot.and_then(|snapshot| snapshot.view_of(family.id));
        let now;
        let state = match view {
            Some((held, _)) => held,
            None => {
                now = family.state();
                &*now
            }
        };
        let seqno = reading.seqno(env, state);
        if reading.in_memory {
            match from_memory((env, family, state), (keys, seqno), reading)? {
                Some(found) => break found,
                None => break with_operands(env, family, keys, reading)?,
            }
        }
        let answers = search((env, family, state), (keys, seqno), reading, &mut Vec::new())?;
        if answers.iter().any(|answer| matches!(answer, Answer::Operand)) {
            break with_operands(env, family, keys, reading)?;
        }
        let held = view.map_or_else(|| env.value_log.hold(), |(_, held)| held.clone());
        // If a value was collected meanwhile, all keys are looked up again, at a moment of their
        // own: no snapshot keeps what the last moment showed.
        match fetch(env, &held, keys, answers)? {
            Ok(found) => break found,
            Err(_) if family.is_dropped() => {
                return Err(Error::NoSuchFamily(family.name.clone()));
            }
            Err(handle) if tries == MAX_TRIES => {
                return Err(env.value_log.missing(&handle).into());
            }
            Err(_) => tries += 1,
        }
    };
    // One that was dropped meanwhile is empty.
    family.check_exists()?;
    env.base.counters.gets.add(keys.len() as u64);
    env.base.counters.gets_found.add(found.iter().flatten().count() as u64);
    Ok(found)
}

/// As [`multi_get`], of keys of which some have operands of merges: each of those is folded by itself.
#[cold]
fn with_operands(
    env: &ReadEnv,
    family: &Family,
    keys: &[&[u8]],
    reading: Reading<'_>,
) -> Result<Vec<Option<Slice>>> {
    let moment = scan::moment(env, family, reading.snapshot)?;
    let fold = |key: &[u8]| {
        let folded = merged::get_at(env, family, key, reading.options(), moment.clone())?;
        Ok(folded.map(|(value, _)| value))
    };
    if reading.in_memory {
        return keys.iter().map(|key| fold(key)).collect();
    }
    let Moment { state, seqno, held } = &moment;
    let answers = search((env, family, state), (keys, *seqno), reading, &mut Vec::new())?;
    let operands: Vec<usize> =
        (0..keys.len()).filter(|at| matches!(answers[*at], Answer::Operand)).collect();
    // The moment holds the segments of all values.
    let found = fetch(env, held, keys, answers)?;
    let mut found = found.map_err(|handle| env.value_log.missing(&handle))?;
    for at in operands {
        found[at] = fold(keys[at])?;
    }
    Ok(found)
}

/// The answers' values; those in the log are read in one batch. An answer whose segment has left
/// the store ends it.
fn fetch(
    env: &ReadEnv,
    held: &SegmentMap,
    keys: &[&[u8]],
    answers: Vec<Answer>,
) -> Result<std::result::Result<Vec<Option<Slice>>, ValueHandle>> {
    let wanted: Vec<(&[u8], ValueHandle)> = keys
        .iter()
        .zip(&answers)
        .filter_map(|(key, answer)| match answer {
            Answer::Separated(handle, _) => Some((*key, *handle)),
            _ => None,
        })
        .collect();
    if let Some((_, gone)) = wanted.iter().find(|(_, h)| !held.contains_key(&h.segment)) {
        return Ok(Err(*gone));
    }
    let mut values = match wanted.is_empty() {
        true => Vec::new(),
        false => env.value_log.read_held(held, &wanted, usize::MAX),
    }
    .into_iter();
    let value = |answer| match answer {
        Answer::Absent | Answer::Operand => Ok(None),
        Answer::Value(value, _) => Ok(Some(value)),
        Answer::Separated(handle, _) => {
            let missing = || Err(env.value_log.missing(&handle));
            Ok(values.next().unwrap_or_else(missing).map(Some)?)
        }
    };
    answers.into_iter().map(value).collect::<Result<_>>().map(Ok)
}

/// The values of `keys` in `state` as of `seqno` without any reads. If one would need a read, that is the error, and what
/// was counted is taken back. `None` if a key has operands of merges.
fn from_memory(
    (env, family, state): (&ReadEnv, &Family, &ReadState),
    (keys, seqno): (&[&[u8]], SeqNo),
    reading: Reading<'_>,
) -> Result<Option<Vec<Option<Slice>>>> {
    let mut reached = Vec::with_capacity(keys.len());
    let answers = search((env, family, state), (keys, seqno), reading, &mut reached);
    let values = answers.and_then(|answers| values_in_memory(env, keys, answers));
    if matches!(values, Err(Error::NotInMemory)) {
        for (key, reached) in keys.iter().zip(reached) {
            reached.take_back(state, &Lookup::new(key, seqno));
        }
    }
    values
}

/// The values of `keys` by their answers, of separated ones those that the cache has. `None` if one is an operand.
fn values_in_memory(
    env: &ReadEnv,
    keys: &[&[u8]],
    answers: Vec<Answer>,
) -> Result<Option<Vec<Option<Slice>>>> {
    let mut values = Vec::with_capacity(answers.len());
    for (key, answer) in keys.iter().zip(answers) {
        values.push(match answer {
            Answer::Operand => return Ok(None),
            Answer::Separated(handle, _) => {
                Some(env.value_log.get_in_memory(key, &handle).ok_or(Error::NotInMemory)?)
            }
            answer => answer.value(),
        });
    }
    Ok(Some(values))
}

/// What is known of `keys` in `state` as of `seqno`. As many are asked for at a time as take little memory
/// for the blocks that have to be read for them. If nothing may be read, `reached` says how far the first keys, up to those
/// with an error, were looked for.
fn search(
    (env, family, state): (&ReadEnv, &Family, &ReadState),
    (keys, seqno): (&[&[u8]], SeqNo),
    reading: Reading<'_>,
    reached: &mut Vec<Reached>,
) -> Result<Vec<Answer>> {
    let mut found = Vec::with_capacity(keys.len());
    for some in keys.chunks(keys_at_once(family.options().block_size)) {
        let before = reached.len();
        if reading.in_memory {
            reached.resize(before + some.len(), Reached::NONE);
        }
        let reached = &mut reached[before..];
        let mut answers = OpenKeys::search(env, state, some, seqno, reading, reached)?;
        let keeping = KEEPING_ANSWERS.saturating_sub(found.len()).min(answers.len());
        answers[keeping..].iter_mut().for_each(loosen);
        found.extend(answers);
    }
    Ok(found)
}

fn keys_at_once(block_size: usize) -> usize {
    (BYTES_AT_ONCE / block_size.max(1)).clamp(LEAST_AT_ONCE, MOST_AT_ONCE)
}

/// Copies a short value out of the block that it keeps.
fn loosen(answer: &mut Answer) {
    if let Answer::Value(value, _) = answer {
        let most = value.pinned_bytes() / KEPT_PART;
        if value.len() < most && BufMut::tight_charge_bytes(value.len()) <= most {
            let mut copy = BufMut::tight(value.len());
            copy.copy_from_slice(value);
            *value = copy.freeze().into();
        }
    }
}

mod open_keys;
mod reached;
#[cfg(test)]
mod tests;
