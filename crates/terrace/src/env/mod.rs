//! What every part of an open store needs. The parts that do something take an environment of their
//! own, made of this one and of what they work on: reads a [`crate::version::read_env::ReadEnv`], changes of
//! the file set a [`crate::version::version_set::VersionSet`], commits a `write::env::CommitEnv`, background work a
//! `background::env::JobEnv`.

pub(crate) mod dir_syncs;
pub(crate) mod health;
pub(crate) mod notify;
pub(crate) mod rate_limit;
pub(crate) mod reserve;

use crate::error::ErrorSeverity;
use crate::event;
use crate::metrics::written_keys::WrittenKeys;
use crate::metrics::{Counters, add};
use crate::options::Options;
use crate::options::dynamic_options::DynamicOptions;
use health::Health;
use notify::Events;
use rate_limit::RateLimiter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use terrace_base::{Clock, Error, Result};
use terrace_vfs::Vfs;

/// Where a store is, how it was opened, whether it may write, and what it counts.
pub(crate) struct BaseEnv {
    /// Differs between all stores that this process has opened, so that a handle of one is not taken for
    /// one of another.
    pub open_id: u64,
    pub dir: PathBuf,
    pub options: Options,
    /// Those of the options that can change, as they are now.
    pub dynamic: DynamicOptions,
    pub vfs: Arc<dyn Vfs>,
    pub clock: Arc<dyn Clock>,
    pub read_only: bool,
    pub health: Health,
    /// The listeners.
    pub events: Arc<Events>,
    pub limiter: Arc<RateLimiter>,
    pub counters: Counters,
    pub written: WrittenKeys,
}

impl BaseEnv {
    /// Poisons the store if `error` is that of a sync of its directory: what the kernel has told that one it may not tell those
    /// who need the names of log segments. Gives the error to report.
    pub fn poison_if_of_dir(&self, doing: &str, error: terrace_base::Error) -> crate::Error {
        match error.is_failed_sync() && error.path() == Some(&*self.dir) {
            true => self.health.poison(doing, error),
            false => error.into(),
        }
    }

    /// The environment of a store that is being opened.
    ///
    /// # Errors
    /// The system has no thread for the listeners.
    pub fn new(
        dir: &Path,
        options: Options,
        limiter: Arc<RateLimiter>,
        read_only: bool,
    ) -> Result<Self> {
        static NEXT_OPEN_ID: AtomicU64 = AtomicU64::new(0);
        let events = Events::start(&options.advanced.event_listeners);
        let events = Arc::new(events.map_err(|error| Error::io("start a thread for", dir, error))?);
        Ok(Self {
            open_id: NEXT_OPEN_ID.fetch_add(1, Ordering::Relaxed),
            dir: dir.to_path_buf(),
            dynamic: DynamicOptions::new(&options),
            vfs: options.advanced.vfs.clone(),
            clock: options.advanced.clock.clone(),
            read_only,
            health: Health::new(events.clone()),
            events,
            limiter,
            counters: Counters::default(),
            written: WrittenKeys::new(
                &options.advanced.write_tracking,
                options.advanced.clock.monotonic_us(),
            ),
            options,
        })
    }

    /// Counts and reports background work that failed.
    pub fn report(&self, doing: &str, error: &crate::Error) {
        if !matches!(error, crate::Error::Closed) {
            add(&self.counters.background_errors, 1);
            event::background_error(doing, error);
            // What stops writes has been told when it did.
            if error.severity() == ErrorSeverity::Soft {
                self.health.tell(doing, error);
            }
        }
    }
}
