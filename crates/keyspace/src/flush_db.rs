//! Whole databases are removed by ranges: nothing of them is read. In a cluster the stores are flushed in two rounds,
//! and take part in no moves meanwhile (`terrace_cluster::Flushes`).

use crate::command_batch::CommandBatch;
use crate::error::Result;
use crate::key_layout::MAX_DATABASES;
use crate::move_records::RecordChange;
use terrace_cluster::FlushId;

const LAST_DATABASE: u8 = MAX_DATABASES as u8 - 1;

impl CommandBatch {
    /// Removes everything in a database. [`CommandBatch::lock_everything`] goes before. With placement
    /// `slots`, and if another database was ever written to, this looks at every slot.
    ///
    /// # Errors
    /// Those of the engine; nothing is removed then.
    pub fn flush(&mut self, db: u8) -> Result<()> {
        self.attempt(|turn| turn.flush_range(db, db))
    }

    /// Removes everything in all databases. [`CommandBatch::lock_everything`] goes before.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn flush_all(&mut self) -> Result<()> {
        self.attempt(|turn| turn.flush_range(0, LAST_DATABASE))
    }

    /// All stores of the cluster are about to be flushed: from the commit on, until this one has executed the flush, it
    /// takes part in no move. Gives whether none leaves a copy behind that may still be read elsewhere; if not, this is
    /// done again a little later. [`CommandBatch::lock_everything`] goes before.
    ///
    /// # Errors
    /// Those of the engine; nothing is announced then.
    pub fn announce_flush(&mut self, id: FlushId) -> Result<bool> {
        let homes = self.space().moves.homes();
        self.attempt(|turn| {
            turn.undo_open_moves(0, LAST_DATABASE)?;
            turn.change_in_memory(RecordChange::FlushAnnounced(id));
            Ok(!homes.iter().any(|(_, home)| home.has_left_a_copy()))
        })
    }

    /// Removes everything in one database, or in all of them, if this flush is announced; gives whether it is. With the
    /// commit it is over. [`CommandBatch::lock_everything`] goes before.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub fn execute_flush(&mut self, id: FlushId, db: Option<u8>) -> Result<bool> {
        if !self.space().moves.is_announced(id) {
            return Ok(false);
        }
        self.attempt(|turn| {
            turn.flush_range(db.unwrap_or(0), db.unwrap_or(LAST_DATABASE))?;
            turn.change_in_memory(RecordChange::FlushExecuted(id));
            Ok(true)
        })
    }
}
