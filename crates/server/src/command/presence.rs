//! In a cluster, the store's own word on whether the keys of a command are here.
//!
//! A move of a key is committed in the store a moment before the owner's routes follow, and an owner may have
//! sent a command before it knew. So what the records of moves say is asked under the locks of the keys, and
//! nothing has happened yet when a command is refused: it is routed again.

use super::{Call, CommandSpec, Failure, Flags, Outcome};
use terrace_resp::Command;

/// A key of a command, with its database, and whether the command writes.
pub(super) type KeyUsed<'a> = (u8, &'a [u8], bool);

/// Whether there is anything to ask.
pub(super) fn is_asked(call: &Call<'_>) -> bool {
    call.server.cluster.is_some() && (call.session.at_copy || call.batch.space().has_moved_keys())
}

/// The keys of a command.
pub(super) fn keys_of<'a>(
    spec: &CommandSpec,
    args: &Command<'a>,
    db: u8,
) -> impl Iterator<Item = KeyUsed<'a>> + use<'a> {
    let writes = spec.flags.has(Flags::WRITE);
    spec.keys.located(args, db).map(move |(db, key)| (db, key, writes))
}

/// Before the locks are taken: keys that were just brought here are so for good from now on.
///
/// # Errors
/// [`Failure::Moved`] if a key is not here, or may not be written now.
pub(super) fn enter<'a>(call: &Call<'_>, keys: impl Iterator<Item = KeyUsed<'a>>) -> Outcome {
    for key in keys {
        if call.session.at_copy {
            call.batch.call_copy(key.0, key.1)?.map_err(|_| Failure::Moved)?;
        }
        check_one(call, key)?;
    }
    Ok(())
}

/// Under the locks: of keys that are written, and of those that [`needs_lock`]. Also if there was nothing to ask before: the
/// first key of all may have left while the locks were waited for.
///
/// # Errors
/// As [`enter`].
pub(super) fn check<'a>(call: &Call<'_>, mut keys: impl Iterator<Item = KeyUsed<'a>>) -> Outcome {
    match is_asked(call) {
        true => keys.try_for_each(|key| check_one(call, key)),
        false => Ok(()),
    }
}

fn check_one(call: &Call<'_>, (db, key, writes): KeyUsed<'_>) -> Outcome {
    let checked = match call.session.at_copy {
        true => call.batch.check_copy(db, key, writes),
        false => call.batch.check_home(db, key, writes),
    };
    checked.map_err(|_| Failure::Moved)
}

/// Whether a key that is only read must not be taken away meanwhile.
pub(super) fn needs_lock(call: &Call<'_>, (db, key, _): KeyUsed<'_>) -> bool {
    !call.session.at_copy && call.batch.is_leaving_home(db, key)
}
