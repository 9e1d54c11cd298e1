//! Records of key moves, changed together with the keys.

use super::CommandBatch;
use crate::error::Result;
use crate::move_records::RecordChange;
use terrace_cluster::{CopyState, DbKey, Direction, HomeKey, IntentState, Refusal};

/// Whether a move ends with this at home, and brings no value there.
fn ends_move(home: &HomeKey) -> bool {
    home.intent.is_some_and(|intent| match intent.state {
        IntentState::Open => false,
        IntentState::Committed => intent.direction == Direction::Out,
        IntentState::Undone => true,
    })
}

impl CommandBatch {
    /// Changes a record in this batch. The lock of its key is held.
    pub(crate) fn change_record(&mut self, change: RecordChange) -> Result<()> {
        let family = self.space.moves.family(&self.space.db)?;
        match &change {
            // Without an owner nobody could delete anything.
            RecordChange::Fence(..) => self.batch.use_reserve(),
            // Nor the keys of a move that does not end. None begins with it.
            RecordChange::Home(_, home) if ends_move(home) => self.batch.use_reserve(),
            // Nor a key that was to leave and stays; and one that has come would not be shown.
            RecordChange::Copy(_, Some(copy)) if copy.state == CopyState::Live => {
                self.batch.use_reserve();
            }
            _ => {}
        }
        for (key, value) in self.space.moves.encode(&change) {
            match value {
                Some(value) => self.batch.put_cf(family, key, value),
                None => self.batch.delete_cf(family, key),
            }
        }
        self.record_changes.push(change);
        Ok(())
    }

    /// While the disk is full this batch may use the reserve, if it has few bytes.
    pub(crate) fn use_reserve(&mut self) {
        self.batch.use_reserve();
    }

    /// As [`Self::change_record`], in memory only.
    pub(crate) fn change_in_memory(&mut self, change: RecordChange) {
        self.record_changes.push(change);
    }

    /// Whether a command, in the name of the key's shard, may read or write a key of this instance.
    /// Before a write, under the lock of the key.
    ///
    /// # Errors
    /// It is elsewhere, or being moved.
    pub fn check_home(
        &self,
        db: u8,
        key: &[u8],
        is_write: bool,
    ) -> std::result::Result<(), Refusal> {
        if !self.space.moves.has_keys() {
            return Ok(());
        }
        let home = self.space.moves.home(&DbKey::new(db, key));
        if is_write { home.may_write() } else { home.may_read() }
    }

    /// Whether the move of a key away from here may be committed at any moment: then reads, too, are done
    /// under the lock of the key, after [`Self::check_home`].
    pub fn is_leaving_home(&self, db: u8, key: &[u8]) -> bool {
        let home = || self.space.moves.home(&DbKey::new(db, key));
        self.space.moves.has_keys() && home().intent.is_some_and(|it| it.state == IntentState::Open)
    }

    /// As [`Self::check_home`], for a key that is here although its shard is not.
    /// [`Self::call_copy`] goes before.
    ///
    /// # Errors
    /// It is not here, or it leaves.
    pub fn check_copy(
        &self,
        db: u8,
        key: &[u8],
        is_write: bool,
    ) -> std::result::Result<(), Refusal> {
        let copy = self.space.moves.copy(&DbKey::new(db, key));
        terrace_cluster::KeyCopy::call(copy, is_write).map(drop)
    }

    /// For a flush of these databases: moves that are under way do not go on.
    pub(crate) fn undo_open_moves(&mut self, first: u8, last: u8) -> Result<()> {
        for (key, home) in self.space.moves.homes() {
            let next = home.flush();
            if (first..=last).contains(&key.db) && next != home {
                self.change_record(RecordChange::Home(key, next))?;
            }
        }
        Ok(())
    }
}
