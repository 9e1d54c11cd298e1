//! Whole databases are removed by ranges: nothing of them is read.

use crate::encode::MAX_DATABASES;
use crate::turn::Turn;

impl Turn {
    /// Removes everything in a database. [`Turn::lock_everything`] goes before.
    pub fn flush(&mut self, db: u8) {
        self.flush_range(db, db);
    }

    /// Removes everything in all databases. [`Turn::lock_everything`] goes before.
    pub fn flush_all(&mut self) {
        self.flush_range(0, MAX_DATABASES as u8 - 1);
    }
}
