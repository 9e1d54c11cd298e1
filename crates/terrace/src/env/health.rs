//! Whether writes are allowed: healthy, waiting for disk room, or poisoned until the next open.

use crate::env::notify::Events;
use crate::error::{Error, Result};
use crate::event;
use crate::listener::{BackgroundError, Event};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use terrace_base::sync::Mutex;

const HEALTHY: u8 = 0;
const DISK_FULL: u8 = 1;
const POISONED: u8 = 2;
const CLOSED: u8 = 3;

/// The state of the write path. Reads go on in every state but `Closed`.
#[derive(Debug, Default)]
pub(crate) struct Health {
    state: AtomicU8,
    cause: Mutex<Option<Arc<terrace_base::Error>>>,
    /// While the disk is full: the whole reserve is given back, and only merges may use it.
    merges_only: AtomicBool,
    /// While the disk is full: there is room again, and writes resume once nothing runs.
    makes_way: AtomicBool,
    /// While the disk is full: nothing has met that, there was only too little room for the reserve.
    wants_reserve_only: AtomicBool,
    events: Arc<Events>,
}

impl Health {
    /// Healthy; failures are reported to `events`.
    pub fn new(events: Arc<Events>) -> Self {
        Self { events, ..Self::default() }
    }

    /// Tells that background work failed.
    pub fn tell(&self, doing: &str, error: &Error) {
        self.events.tell(|| {
            let severity = error.severity();
            let (doing, error) = (doing.to_string(), error.clone());
            Event::BackgroundError(BackgroundError { doing, error, severity })
        });
    }

    /// `Ok` while writes are allowed. One relaxed load on the healthy path.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        match self.state.load(Ordering::Relaxed) {
            HEALTHY => Ok(()),
            _ => self.check_under_lock(),
        }
    }

    /// `Ok` while what frees room may be written: as [`Self::check_writable`], and while the disk
    /// is full.
    #[inline]
    pub fn check_may_free(&self) -> Result<()> {
        match self.state.load(Ordering::Relaxed) {
            HEALTHY | DISK_FULL => Ok(()),
            _ => self.check_under_lock(),
        }
    }

    /// `Ok` until the store is closed.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        match self.state.load(Ordering::Relaxed) {
            CLOSED => Err(Error::Closed),
            _ => Ok(()),
        }
    }

    /// State and cause change together under the lock, so that a store which has just resumed is
    /// not taken for a closed one.
    #[cold]
    fn check_under_lock(&self) -> Result<()> {
        let cause = self.cause.lock();
        match (self.state.load(Ordering::Relaxed), &*cause) {
            (HEALTHY, _) => Ok(()),
            (DISK_FULL, Some(cause)) => Err(Error::DiskFull(cause.clone())),
            (POISONED, Some(cause)) => Err(Error::Poisoned(cause.clone())),
            _ => Err(Error::Closed),
        }
    }

    /// Records a failure of the write path: a full disk can pass, a shortage of descriptors or the
    /// like has changed nothing, anything else poisons: also a sync of the directory for which there was no room, since
    /// it is not known which names are lost with that. Gives the error to report.
    pub fn fail(&self, doing: &str, error: terrace_base::Error) -> Error {
        if error.is_transient() {
            return error.into();
        }
        if !error.is_no_space() || is_failed_sync_of_dir(&error) {
            return self.poison(doing, error);
        }
        self.full(doing, Arc::new(error))
    }

    /// There is no room for what `doing` says: what has met that before, or meets it now, is `cause`. Gives the error to
    /// report.
    pub fn full(&self, doing: &str, cause: Arc<terrace_base::Error>) -> Error {
        let mut held = self.cause.lock();
        let state = self.state.load(Ordering::Relaxed);
        if state > DISK_FULL {
            return Error::Poisoned(cause);
        }
        self.wants_reserve_only.store(false, Ordering::Relaxed);
        if state == HEALTHY {
            event::disk_full(&cause);
            self.tell(doing, &Error::DiskFull(cause.clone()));
        }
        *held = Some(cause.clone());
        self.state.store(DISK_FULL, Ordering::Relaxed);
        Error::DiskFull(cause)
    }

    /// Records that a sync failed: what the device holds is unknown, whatever the reason, so that
    /// nothing but a new open helps. Gives the error to report.
    pub fn poison(&self, doing: &str, error: terrace_base::Error) -> Error {
        let cause = Arc::new(error);
        let mut held = self.cause.lock();
        if self.state.load(Ordering::Relaxed) < POISONED {
            *held = Some(cause.clone());
            self.state.store(POISONED, Ordering::Relaxed);
        }
        let error = Error::Poisoned(cause);
        event::background_error(doing, &error);
        self.tell(doing, &error);
        error
    }

    /// There is no room on the disk, as the open has found out.
    pub fn disk_is_full(&self, cause: Arc<terrace_base::Error>) {
        event::disk_full(&cause);
        self.tell("open", &Error::DiskFull(cause.clone()));
        *self.cause.lock() = Some(cause);
        self.state.store(DISK_FULL, Ordering::Relaxed);
    }

    /// The open has found too little room for the reserve: as [`Self::disk_is_full`], until there is
    /// enough for that.
    pub fn reserve_is_short(&self, cause: terrace_base::Error) {
        self.wants_reserve_only.store(true, Ordering::Relaxed);
        self.disk_is_full(Arc::new(cause));
    }

    /// Whether the disk counts as full only since there is too little room for the reserve.
    pub fn wants_reserve_only(&self) -> bool {
        self.wants_reserve_only.load(Ordering::Relaxed)
    }

    /// Whether the disk is really full: something has met that.
    pub fn has_no_room(&self) -> bool {
        self.is_disk_full() && !self.wants_reserve_only()
    }

    /// Whether writes wait for disk room.
    pub fn is_disk_full(&self) -> bool {
        self.state.load(Ordering::Relaxed) == DISK_FULL
    }

    /// Whether the disk is full and only merges may write in the background.
    pub fn merges_only(&self) -> bool {
        self.is_disk_full() && self.merges_only.load(Ordering::Relaxed)
    }

    /// Sets what [`Self::merges_only`] says while the disk is full; under the scheduler's lock.
    pub fn set_merges_only(&self, merges_only: bool) {
        self.merges_only.store(merges_only, Ordering::Relaxed);
    }

    /// Whether the disk was full, has room, and writes wait for the jobs that run: none begins.
    pub fn makes_way(&self) -> bool {
        self.is_disk_full() && self.makes_way.load(Ordering::Relaxed)
    }

    /// Sets what [`Self::makes_way`] says while the disk is full; under the scheduler's lock.
    pub fn set_makes_way(&self, makes_way: bool) {
        self.makes_way.store(makes_way, Ordering::Relaxed);
    }

    /// Whether a flush may begin, as far as room goes.
    pub fn may_flush(&self) -> bool {
        !self.merges_only() && !self.makes_way()
    }

    /// Whether only a reopen helps.
    pub fn is_poisoned(&self) -> bool {
        self.state.load(Ordering::Relaxed) == POISONED
    }

    /// Whether the store was closed.
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Relaxed) == CLOSED
    }

    /// There is room on the disk again.
    pub fn resume(&self) {
        let mut held = self.cause.lock();
        if self.state.load(Ordering::Relaxed) == DISK_FULL {
            *held = None;
            self.makes_way.store(false, Ordering::Relaxed);
            self.state.store(HEALTHY, Ordering::Relaxed);
        }
    }

    /// The store is closed; nothing is allowed any more. False if it was closed before. Where there is a
    /// write queue its leader says so ([`crate::write::log_segments::end`]).
    pub fn close(&self) -> bool {
        let _held = self.cause.lock();
        self.state.swap(CLOSED, Ordering::Relaxed) != CLOSED
    }
}

/// Whether the names of files are unknown, and not the content of one.
fn is_failed_sync_of_dir(error: &terrace_base::Error) -> bool {
    matches!(error, terrace_base::Error::Io { op, .. } if op.starts_with("sync directory"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::path::Path;

    fn io_error(kind: io::ErrorKind) -> terrace_base::Error {
        terrace_base::Error::io("append", Path::new("x.log"), kind.into())
    }

    #[test]
    fn a_full_disk_passes_a_failed_sync_does_not() {
        let health = Health::default();
        assert!(matches!(
            health.fail("log", io_error(io::ErrorKind::StorageFull)),
            Error::DiskFull(_)
        ));
        assert!(matches!(health.check_writable(), Err(Error::DiskFull(_))));
        health.set_makes_way(true);
        assert!(health.makes_way() && !health.may_flush());
        health.resume();
        assert!(health.check_writable().is_ok());
        assert!(!health.makes_way() && health.may_flush());
        health.poison("sync", io_error(io::ErrorKind::StorageFull));
        health.fail("log", io_error(io::ErrorKind::StorageFull));
        health.resume();
        assert!(matches!(health.check_writable(), Err(Error::Poisoned(_))));
        assert!(health.check_open().is_ok());
        assert!(health.close() && !health.close());
        assert!(matches!(health.check_open(), Err(Error::Closed)));
    }

    #[test]
    fn a_sync_of_the_directory_for_which_there_was_no_room_does_not_pass() {
        let health = Health::default();
        let no_room = io::ErrorKind::StorageFull.into();
        let error = terrace_base::Error::io("sync directory", Path::new("/db"), no_room);
        assert!(matches!(health.fail("name files", error), Error::Poisoned(_)));
        health.resume();
        assert!(matches!(health.check_may_free(), Err(Error::Poisoned(_))));
    }
}
