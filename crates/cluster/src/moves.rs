//! Moves of single keys between instances (decision 0020): `Mover` and `KeyMove` run at the owner of the
//! keys' shard, `HomeKey` are the rules of that shard's instance, `KeyCopy` those of the other one.

mod copy;
mod flushes;
mod intent;
mod key_move;
mod key_queue;
mod mover;
mod record;
#[cfg(test)]
mod tests;

pub use copy::{CopyChange, CopyState, KeyCopy};
pub use flushes::{FlushId, Flushes};
pub use intent::{Direction, HomeKey, Intent, IntentState, Refusal};
pub use key_move::{Effect, KeyMove, MoveAnswer, MoveCall, MoveEvent, Outcome, Site};
pub use mover::{FinishedMove, MoveEffects, MoveLimits, Mover};
pub use record::RecordError;
