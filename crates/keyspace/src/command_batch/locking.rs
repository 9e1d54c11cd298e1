//! The locks that a batch takes before its commands write: those of their keys, or all of them.

use super::{CommandBatch, Mode};
use crate::error::{Error, Result, Wait};
use crate::locks::{Locks, STRIPES};

impl CommandBatch {
    /// Whether a command in [`Mode::Device`] waits for keys that another batch is writing, as it does at first. If not, it is
    /// to be run again when one is free ([`Keyspace::on_release`](crate::Keyspace::on_release)), as in [`Mode::Memory`].
    pub fn wait_for_keys(&mut self, waits: bool) {
        self.waits_for_keys = waits;
    }

    /// Whether it waits for them.
    pub fn waits_for_keys(&self) -> bool {
        self.mode == Mode::Device && self.waits_for_keys
    }

    /// Whether the current command was refused a key, since another batch was writing it; once.
    pub fn take_held_up(&mut self) -> bool {
        std::mem::take(&mut self.is_held_up)
    }

    /// Takes the locks of keys that a command is going to write. In [`Mode::Device`], once per batch
    /// and for all its keys.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] if another batch has one of them, and this one does not wait for it.
    pub fn lock<'k>(&mut self, db: u8, keys: impl Iterator<Item = &'k [u8]>) -> Result<()> {
        self.lock_in(keys.map(|key| (db, key)))
    }

    /// As [`Self::lock`], for keys of several databases.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn lock_in<'k>(&mut self, keys: impl Iterator<Item = (u8, &'k [u8])>) -> Result<()> {
        self.took_part.set(true);
        let stripes = keys.map(|(db, key)| Locks::stripe(db, key));
        if self.waits_for_keys() {
            self.take_in_order(&mut stripes.collect());
            return Ok(());
        }
        self.take_or_refuse(stripes)
    }

    /// Takes all locks, and waits for those that others have: for what changes a whole database. Only in [`Mode::Device`].
    pub fn lock_everything(&mut self) {
        self.took_part.set(true);
        let mut stripes: Vec<u16> = (0..STRIPES as u16).collect();
        self.take_in_order(&mut stripes);
    }

    /// As [`Self::lock_everything`], but waits only as [`Self::lock`] does.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn try_lock_everything(&mut self) -> Result<()> {
        if self.waits_for_keys() {
            self.lock_everything();
            return Ok(());
        }
        self.took_part.set(true);
        self.take_or_refuse(0..STRIPES as u16)
    }

    /// Takes locks that nobody else has, or none of them.
    fn take_or_refuse(&mut self, stripes: impl Iterator<Item = u16>) -> Result<()> {
        let before = self.held.list.len();
        for stripe in stripes {
            if self.held.has(stripe) {
                continue;
            }
            if !self.space.locks.take_or_want(stripe) {
                for stripe in self.held.list.split_off(before) {
                    self.held.forget(stripe);
                    self.space.locks.give_back(stripe);
                }
                self.is_held_up = true;
                return Err(Error::Elsewhere(Wait::Key));
            }
            self.held.add(stripe);
        }
        Ok(())
    }

    fn take_in_order(&mut self, stripes: &mut Vec<u16>) {
        assert!(self.mode == Mode::Device && self.held.list.is_empty(), "a turn locks once");
        stripes.sort_unstable();
        stripes.dedup();
        for stripe in stripes {
            self.space.locks.take(*stripe);
            self.held.add(*stripe);
        }
        // That may have taken long, and what is read is of now.
        self.look_at_the_clock();
    }
}
