//! Read sets of a read-only store that was refreshed since. Its writer minds none of its snapshots, so that sequence
//! numbers do not tell what the refresh has changed: what is read is compared.

use crate::error::Result;
use crate::read::get::{Found, Reading, get_entry};
use crate::read::scan::{self, ReadOptions};
use crate::version::read_env::ReadEnv;
use crate::version::snapshots::Snapshot;
use crate::write::read_set::{ReadSet, Watched};

/// Whether a refresh has changed something that `reads` watches. Costs little where it has changed nothing in the
/// families, else a read of every key at both moments.
pub(super) fn has_changed(env: &ReadEnv, reads: &ReadSet) -> Result<bool> {
    let snapshot = reads.snapshot();
    for watched in reads.watched().iter() {
        let then = snapshot.view_of(watched.family.id);
        if then.is_some_and(|(then, _)| !then.has_same_data(&watched.family.state()))
            && differs(env, watched, snapshot)?
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether anything that is watched of one family reads otherwise now than at `snapshot`.
fn differs(env: &ReadEnv, watched: &Watched, snapshot: &Snapshot) -> Result<bool> {
    let family = &watched.family;
    if family.is_dropped() {
        return Ok(true);
    }
    // That a time to live ends is no change.
    let now_ms = Some(env.base.clock.wall_ms());
    for key in watched.keys.keys() {
        let read = |snapshot| {
            get_entry(env, family, key, Reading { snapshot, now_ms, ..Reading::default() })
        };
        let parts = |found: Option<Found>| found.map(|found| (found.value, found.expires_at_ms));
        if parts(read(Some(snapshot))?) != parts(read(None)?) {
            return Ok(true);
        }
    }
    for (range, _) in &watched.ranges {
        let read = |snapshot| {
            let lower_bound = Some(range.start.to_vec());
            let upper_bound = range.end.as_ref().map(|end| end.to_vec());
            let bounds = ReadOptions { lower_bound, upper_bound, ..ReadOptions::default() };
            scan::iter(env, family, &ReadOptions { snapshot, now_ms, ..bounds })
        };
        let (mut then, mut now) = (read(Some(snapshot.clone()))?, read(None)?);
        then.seek_to_first()?;
        now.seek_to_first()?;
        while then.valid() && now.valid() {
            if then.key() != now.key()
                || then.value() != now.value()
                || then.expires_at_ms() != now.expires_at_ms()
            {
                return Ok(true);
            }
            then.next()?;
            now.next()?;
        }
        if then.valid() || now.valid() {
            return Ok(true);
        }
    }
    Ok(false)
}
