//! Whole databases are removed by ranges: nothing of them is read.

use crate::command_batch::CommandBatch;
use crate::error::Result;
use crate::key_layout::MAX_DATABASES;

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
        self.attempt(|turn| turn.flush_range(0, MAX_DATABASES as u8 - 1))
    }
}
