//! Whole databases are removed by ranges: nothing of them is read.

use crate::command_batch::CommandBatch;
use crate::encode::MAX_DATABASES;

impl CommandBatch {
    /// Removes everything in a database. [`CommandBatch::lock_everything`] goes before.
    pub fn flush(&mut self, db: u8) {
        self.flush_range(db, db);
    }

    /// Removes everything in all databases. [`CommandBatch::lock_everything`] goes before.
    pub fn flush_all(&mut self) {
        self.flush_range(0, MAX_DATABASES as u8 - 1);
    }
}
