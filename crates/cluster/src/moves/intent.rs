//! What the instance of a shard keeps of a move of one of its keys, in the same store as the key, and the
//! rules by which it changes. Pure: the caller applies what is returned in one batch with the key, under
//! the key's lock.
//!
//! ```text
//! none --begin--> Open --commit--> Committed --forget--> none
//!                   \-----undo---> Undone -----forget--> none
//! ```
//! *Begin* says that a move is coming. From *export* on, or from a restart on, writes of the key are
//! refused (`is_held`): a late message of a write that its sender gave up must not change what was
//! exported, since reads of the key go on. *Commit* is the commit point of the move; *undo* is the other
//! way out. Either way the copy at the other instance is settled before the intent is forgotten.

use crate::exceptions::Exception;
use crate::id::ShardId;
use crate::key::MoveId;
use std::fmt;

/// Which way a key is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From home to another instance.
    Out,
    /// From another instance home.
    Home,
}

/// How far a move is, as far as its home knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IntentState {
    /// It can still be undone.
    Open,
    /// It has happened; the copy at the other instance is to be finished (out) or dropped (home).
    Committed,
    /// It did not happen; the copy at the other instance is to be dropped (out) or released (home).
    Undone,
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Intent {
    /// The move.
    pub id: MoveId,
    /// Which way.
    pub direction: Direction,
    /// The shard of the other instance.
    pub other: ShardId,
    /// How far it is.
    pub state: IntentState,
}

/// Why an instance did not do what a message of a move, or a call of a client, asked for. Nothing
/// happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// The message is of a move that is over here: it came late, or twice.
    Late,
    /// Another move of the key is not over.
    Busy,
    /// The key is not at this instance.
    NotHere,
    /// The key is being moved; writes of it wait.
    Held,
    /// The value is larger than what is moved.
    TooLarge,
    /// The key was used in a transaction with others lately, and stays with them.
    Tied,
    /// All keys are about to be removed ([`Flushes`](crate::Flushes)).
    Flushing,
    /// The instance's disk has no room for what was asked.
    Full,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Late => "the move is over",
            Self::Busy => "another move of the key is not over",
            Self::NotHere => "the key is not at this instance",
            Self::Held => "the key is being moved",
            Self::TooLarge => "the value is too large to be moved",
            Self::Tied => "the key is used in transactions with others",
            Self::Flushing => "all keys are being removed",
            Self::Full => "the disk of one of the two stores is full",
        })
    }
}

/// What home keeps of a key: both parts are durable, but for `is_held`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct HomeKey {
    /// Where it is, if not here.
    pub exception: Option<Exception>,
    /// The move that is not settled.
    pub intent: Option<Intent>,
    /// Whether writes are refused. In memory; true for every open intent after a restart.
    pub is_held: bool,
}

impl HomeKey {
    /// What is read from the store after a restart.
    pub fn recovered(exception: Option<Exception>, intent: Option<Intent>) -> Self {
        let is_held = intent.is_some_and(|intent| intent.state == IntentState::Open);
        Self { exception, intent, is_held }
    }

    /// Step 1. `last` is the largest id that ever began in this shard; it becomes `id` in the same batch, also if
    /// the move is refused. `may_move` is what [`Flushes::may_move`](crate::Flushes::may_move) says.
    ///
    /// # Errors
    /// `Late` if a later move began; `Busy`; `NotHere` if a key that goes out is away, or one that comes
    /// home is not at `other`; `Flushing`.
    pub fn begin(
        self,
        last: MoveId,
        id: MoveId,
        direction: Direction,
        other: ShardId,
        may_move: Result<(), Refusal>,
    ) -> Result<Self, Refusal> {
        let is_mine = self.intent.is_some_and(|intent| intent.id == id);
        match (id.cmp(&last), self.intent) {
            (_, Some(_)) if is_mine => return Ok(self),
            (std::cmp::Ordering::Greater, None) => {}
            (std::cmp::Ordering::Greater, Some(_)) => return Err(Refusal::Busy),
            _ => return Err(Refusal::Late),
        }
        let is_there = match direction {
            Direction::Out => self.exception.is_none(),
            Direction::Home => self.exception.is_some_and(|exception| exception.at == other),
        };
        may_move?;
        let intent = Intent { id, direction, other, state: IntentState::Open };
        match is_there {
            true => Ok(Self { intent: Some(intent), ..self }),
            false => Err(Refusal::NotHere),
        }
    }

    /// Step 3, of a move out: the value may be read and sent; writes are refused from now on.
    ///
    /// # Errors
    /// `Late` if the move is over.
    pub fn export(self, id: MoveId) -> Result<Self, Refusal> {
        let intent = self.intent_of(id)?;
        match intent.state == IntentState::Open && intent.direction == Direction::Out {
            true => Ok(Self { is_held: true, ..self }),
            false => Err(Refusal::Late),
        }
    }

    /// Step 5, the commit point: a key that goes out is deleted in the same batch, one that comes home is
    /// put. `Ok(None)` if it happened before, and nothing is to be done.
    ///
    /// # Errors
    /// `Late` if the move was undone or is over.
    pub fn commit(self, id: MoveId) -> Result<Option<Self>, Refusal> {
        let intent = self.intent_of(id)?;
        match intent.state {
            IntentState::Open => {}
            IntentState::Committed => return Ok(None),
            IntentState::Undone => return Err(Refusal::Late),
        }
        let exception = match intent.direction {
            Direction::Out => Some(Exception { at: intent.other, move_id: id }),
            Direction::Home => None,
        };
        let intent = Some(Intent { state: IntentState::Committed, ..intent });
        Ok(Some(Self { exception, intent, is_held: false }))
    }

    /// The way out before the commit point. Nothing to do for a move that never began; the `last` of
    /// [`Self::begin`] becomes at least `id` in the same batch, so that it does not begin later.
    ///
    /// # Errors
    /// `Late` if the move was committed: then no key of it is undone.
    pub fn undo(self, id: MoveId) -> Result<Self, Refusal> {
        match self.intent {
            Some(intent) if intent.id == id => match intent.state {
                IntentState::Committed => Err(Refusal::Late),
                IntentState::Open | IntentState::Undone => {
                    let intent = Some(Intent { state: IntentState::Undone, ..intent });
                    Ok(Self { intent, is_held: false, ..self })
                }
            },
            _ => Ok(self),
        }
    }

    /// A flush of all stores is announced, or all keys are removed: a move that is not committed is undone. A key
    /// that is away stays away; the store that has it is flushed as well.
    pub fn flush(self) -> Self {
        match self.intent {
            Some(intent) if intent.state == IntentState::Open => {
                let intent = Some(Intent { state: IntentState::Undone, ..intent });
                Self { intent, is_held: false, ..self }
            }
            _ => self,
        }
    }

    /// Whether calls that were routed before the key came home may still find the copy that is to be dropped.
    pub fn has_left_a_copy(self) -> bool {
        let is_settled =
            |it: Intent| it.direction == Direction::Out || it.state != IntentState::Committed;
        !self.intent.is_none_or(is_settled)
    }

    /// The copy at the other instance is settled. Does nothing for a move that is open or gone.
    pub fn forget(self, id: MoveId) -> Self {
        match self.intent {
            Some(intent) if intent.id == id && intent.state != IntentState::Open => {
                Self { intent: None, ..self }
            }
            _ => self,
        }
    }

    /// Whether a call of a client, in the name of the shard, may read the key here.
    ///
    /// # Errors
    /// `NotHere` if it is away.
    pub fn may_read(self) -> Result<(), Refusal> {
        match self.exception {
            None => Ok(()),
            Some(_) => Err(Refusal::NotHere),
        }
    }

    /// As [`Self::may_read`], for writes.
    ///
    /// # Errors
    /// `NotHere`, or `Held`.
    pub fn may_write(self) -> Result<(), Refusal> {
        self.may_read()?;
        match self.is_held {
            true => Err(Refusal::Held),
            false => Ok(()),
        }
    }

    fn intent_of(self, id: MoveId) -> Result<Intent, Refusal> {
        self.intent.filter(|intent| intent.id == id).ok_or(Refusal::Late)
    }
}
