//! What an instance keeps of a key of another shard that was brought to it, and the rules by which that
//! changes. Pure: the caller applies what is returned in one batch with the key, under the key's lock.
//!
//! ```text
//! none --import--> Hidden --finish, or a call--> Live --export--> Leaving --drop--> none
//!                    \--drop--> none               ^---release------/
//! ```
//! Messages may be lost, come twice, or come late. So every record has the id of the latest move that it
//! is of, and a message of an earlier move changes nothing. The epoch of the sender was checked before.

use crate::key::MoveId;
use crate::moves::intent::Refusal;

/// How far the copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CopyState {
    /// Imported, and the move is not known to be committed: scans do not see it.
    Hidden,
    /// The key is here.
    Live,
    /// The key is here, and exported by this move: it is read, not written.
    Leaving(MoveId),
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyCopy {
    /// The latest move that is settled in it, or brought it.
    pub id: MoveId,
    /// How far it is.
    pub state: CopyState,
}

/// What becomes of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CopyChange {
    /// Nothing: it is as it shall be.
    Keep,
    /// This is the record now.
    Put(KeyCopy),
    /// The record and the key are deleted.
    Remove,
}

impl KeyCopy {
    fn newest(self) -> MoveId {
        match self.state {
            CopyState::Leaving(by) => by.max(self.id),
            CopyState::Hidden | CopyState::Live => self.id,
        }
    }

    /// Step 4 of a move out. With `Put`, what was at the key here is replaced by the value that came along
    /// (or deleted, if there is none); with `Keep`, it is not touched.
    ///
    /// # Errors
    /// `Late` if a later move of the key is known.
    pub fn import(current: Option<Self>, id: MoveId) -> Result<CopyChange, Refusal> {
        match current {
            Some(copy) if copy.newest() == id => Ok(CopyChange::Keep),
            Some(copy) if copy.newest() > id => Err(Refusal::Late),
            _ => Ok(CopyChange::Put(Self { id, state: CopyState::Hidden })),
        }
    }

    /// Step 7 of a move out. A late one changes nothing.
    pub fn finish(current: Option<Self>, id: MoveId) -> CopyChange {
        match current {
            Some(copy) if copy.id == id && copy.state == CopyState::Hidden => copy.live(id),
            _ => CopyChange::Keep,
        }
    }

    /// A call of a client, in the name of the key's shard. The first one finishes a move: the owner sends
    /// none before the commit.
    ///
    /// # Errors
    /// `NotHere`, or `Held` for a write of a key that leaves.
    pub fn call(current: Option<Self>, is_write: bool) -> Result<CopyChange, Refusal> {
        let copy = current.ok_or(Refusal::NotHere)?;
        match copy.state {
            CopyState::Hidden => Ok(copy.live(copy.id)),
            CopyState::Leaving(_) if is_write => Err(Refusal::Held),
            CopyState::Live | CopyState::Leaving(_) => Ok(CopyChange::Keep),
        }
    }

    /// Step 3 of a move home: the value may be read and sent once the change is durable.
    ///
    /// # Errors
    /// `NotHere`; `Late` if the move is over, or a later one began.
    pub fn export(current: Option<Self>, id: MoveId) -> Result<CopyChange, Refusal> {
        let copy = current.ok_or(Refusal::NotHere)?;
        if copy.state == CopyState::Leaving(id) {
            return Ok(CopyChange::Keep);
        }
        match copy.newest() < id {
            true => Ok(CopyChange::Put(Self { state: CopyState::Leaving(id), ..copy })),
            false => Err(Refusal::Late),
        }
    }

    /// The move home `id` was undone: the key stays. From now on its late messages are refused.
    pub fn release(current: Option<Self>, id: MoveId) -> CopyChange {
        match current {
            Some(copy) if copy.newest() <= id && copy != (Self { id, state: CopyState::Live }) => {
                copy.live(id)
            }
            _ => CopyChange::Keep,
        }
    }

    /// The key is not here any more: the move `id` brought it and was undone, or took it home and was committed. What
    /// an earlier move brought stays. A move that home did not let begin, since the key is here already, is undone as well
    /// if nobody heard of that.
    pub fn drop(current: Option<Self>, id: MoveId) -> CopyChange {
        match current {
            Some(copy) if copy.newest() == id => CopyChange::Remove,
            _ => CopyChange::Keep,
        }
    }

    fn live(self, id: MoveId) -> CopyChange {
        CopyChange::Put(Self { id, state: CopyState::Live })
    }
}
