//! One sampler for all pages. Every second it reads the counters, so that a page that is just opened
//! sees what was before, also before a restart; as long as somebody listens to the stream it also looks at the store
//! and makes one event for all listeners. `wire.rs` runs it, `api.rs` asks it.

use super::access::{Asker, Subject};
use super::api_error::ApiError;
use super::blocking::{Aside, blocking};
use super::history::{Past, Reading};
use super::history_file::HistoryFile;
use super::json::{FinishedJob, History, Live, Summary};
use super::store_view::{FRESH, StoreView};
use super::stream::{self, Listener, Listeners};
use super::{MAX_LISTENERS, ServerStatus};
use crate::process::resident_bytes;
use axum::body::Bytes;
use axum::http::StatusCode;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{MissedTickBehavior, interval};

/// Between two samples.
const PERIOD: Duration = Duration::from_secs(1);
/// Finished jobs of one event.
const MAX_FINISHED: usize = 64;

/// Samples of a store.
pub(super) struct Sampler {
    status: Arc<dyn ServerStatus>,
    began: Instant,
    past: Mutex<Past>,
    file: Option<HistoryFile>,
    look: Arc<tokio::sync::Mutex<Option<Arc<StoreView>>>>,
    listeners: Listeners,
    /// Ids of finished jobs that an event has told, as long as the engine lists them.
    told: Mutex<HashSet<u64>>,
}

impl Sampler {
    /// A sampler that knows what earlier runs have kept. Reads that file.
    pub fn new(status: Arc<dyn ServerStatus>) -> Self {
        let file = status.history_file().map(HistoryFile::new);
        let now_ms = status.engine().options().advanced.clock.wall_ms();
        let past = file.as_ref().map(|file| Past::restored(file.load(), now_ms));
        Self {
            status,
            began: Instant::now(),
            past: Mutex::new(past.unwrap_or_default()),
            file,
            look: Arc::default(),
            listeners: Listeners::default(),
            told: Mutex::default(),
        }
    }

    /// Samples until it is aborted.
    pub async fn run(self: Arc<Self>) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut saving = Aside::default();
        loop {
            ticks.tick().await;
            let sampler = self.clone();
            let sampled = blocking(move || sampler.sample()).await;
            // A device that hangs keeps nobody from seeing that.
            if !saving.is_busy() && self.file.as_ref().is_some_and(HistoryFile::is_due) {
                let sampler = self.clone();
                saving.begin(move || sampler.save());
            }
            self.forget_stale_look();
            if self.listeners.count() == 0 {
                continue;
            }
            let event = match sampled {
                Ok(()) => self.event().await,
                Err(error) => Err(error),
            };
            let may_see = |asker: &Asker| asker.check(Subject::Store, &*self.status).is_ok();
            self.listeners.send(&event.unwrap_or(stream::COMMENT), may_see);
        }
    }

    /// Gives back the memory of a look that nobody will be shown any more.
    fn forget_stale_look(&self) {
        if let Ok(mut held) = self.look.try_lock() {
            let _stale = held.take_if(|look| look.at.elapsed() >= FRESH);
        }
    }

    /// Enters a second. Costs what [`terrace::Db::memory`] does.
    fn sample(&self) {
        let engine = self.status.engine();
        let figures = self.status.figures();
        let (metrics, memory) = (engine.metrics(), engine.memory());
        let reading = Reading {
            now_ms: engine.options().advanced.clock.wall_ms(),
            at_us: self.began.elapsed().as_micros() as u64,
            figures,
            timings: self.status.timings(),
            key_count: self.status.key_count_estimate(),
            rss_bytes: resident_bytes(),
            budget_bytes: memory.budget_bytes,
            used_bytes: memory.pools.iter().map(|pool| pool.used_bytes).sum(),
            engine: metrics,
        };
        let options = self.status.config().into_iter();
        let options = options.map(|option| (option.name, option.value)).collect();
        let now_ms = reading.now_ms;
        let mut past = self.past.lock();
        past.enter(reading);
        past.note_options(now_ms, options);
    }

    /// Keeps what was sampled. Waits for the device, and for another who does this.
    fn save(&self) {
        if let Some(file) = &self.file {
            file.save(|| self.past.lock().kept());
        }
    }

    /// Keeps what was sampled for the next run. Nothing is sampled any more.
    pub async fn end(self: &Arc<Self>) {
        let sampler = self.clone();
        let ended = blocking(move || {
            sampler.past.lock().end();
            sampler.save();
        });
        // A panic in it has been told.
        let _told = ended.await;
    }

    /// The last second.
    pub async fn summary(self: &Arc<Self>) -> Result<Summary, ApiError> {
        if let Some(summary) = self.past.lock().summary() {
            return Ok(summary);
        }
        let sampler = self.clone();
        blocking(move || sampler.sample()).await?;
        let summary = self.past.lock().summary();
        summary.ok_or_else(|| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "no sample yet"))
    }

    /// The last `seconds` seconds, as far as they are kept, one by one or in steps.
    pub fn history(&self, seconds: usize) -> History {
        self.past.lock().history(seconds)
    }

    /// The store as it was at most [`FRESH`] ago. Requests that come meanwhile wait for the same one,
    /// also if those who asked first are gone.
    pub async fn look(&self) -> Result<Arc<StoreView>, ApiError> {
        let mut held = self.look.clone().lock_owned().await;
        if let Some(look) = &*held
            && look.at.elapsed() < FRESH
        {
            return Ok(look.clone());
        }
        let status = self.status.clone();
        blocking(move || held.insert(Arc::new(StoreView::take(&*status))).clone()).await
    }

    /// `Live` without finished jobs, as JSON.
    pub async fn live(self: &Arc<Self>) -> Result<String, ApiError> {
        let (summary, look) = (self.summary().await?, self.look().await?);
        blocking(move || live(&summary, &look, &[])).await?
    }

    /// The event of this second, with the jobs that ended since the last one.
    async fn event(self: &Arc<Self>) -> Result<Bytes, ApiError> {
        let (summary, look) = (self.summary().await?, self.look().await?);
        let finished = self.untold(&look.ended);
        let json = blocking(move || live(&summary, &look, &finished)).await??;
        Ok(stream::event(&json))
    }

    fn untold(&self, ended: &[FinishedJob]) -> Vec<FinishedJob> {
        let mut told = self.told.lock();
        let is_untold = |ended: &&FinishedJob| !told.contains(&ended.job.id);
        let untold = ended.iter().filter(is_untold).take(MAX_FINISHED).cloned().collect();
        *told = ended.iter().map(|ended| ended.job.id).collect();
        untold
    }

    /// A listener, which begins with what is now, and ends when `asker` may not see it any more; an error if there
    /// are enough.
    pub async fn listen(self: &Arc<Self>, asker: Asker) -> Result<Listener, ApiError> {
        let enough =
            || ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "enough pages are listening");
        let listener = self.listeners.add(MAX_LISTENERS, asker).ok_or_else(enough)?;
        let now = self.live().await?;
        Ok(listener.beginning_with(stream::event(&now)))
    }

    /// How many listen.
    pub fn listeners(&self) -> usize {
        self.listeners.count()
    }

    /// Ends all streams.
    pub fn hang_up(&self) {
        self.listeners.hang_up();
    }
}

fn live(summary: &Summary, look: &StoreView, finished: &[FinishedJob]) -> Result<String, ApiError> {
    let (shape, memory, jobs) = (&look.brief(), &look.memory, &look.jobs[..]);
    serde_json::to_string(&Live { summary, shape, memory, jobs, finished })
        .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error))
}
