//! What all requests to the HTTP server share: the status and samples that they show, and how many may do
//! expensive work at a time.

use super::api_error::ApiError;
use super::blocking::blocking;
use super::sampler::Sampler;
use super::{MAX_EXPENSIVE, ServerStatus};
use axum::http::StatusCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The one route that needs `@admin`.
pub(super) const CONFIG: &str = "/api/v1/config";

/// How long an explanation, a model or a list of keys waits for those before it.
const TURN_WAIT: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Shared {
    pub status: Arc<dyn ServerStatus>,
    pub sampler: Arc<Sampler>,
    expensive: Arc<Semaphore>,
    pub connections: AtomicU64,
    pub refused: AtomicU64,
    pub requests: AtomicU64,
}

impl Shared {
    pub fn new(status: Arc<dyn ServerStatus>) -> Self {
        Self {
            sampler: Arc::new(Sampler::new(status.clone())),
            status,
            expensive: Arc::new(Semaphore::new(MAX_EXPENSIVE)),
            connections: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        }
    }

    pub fn count_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Runs `work`, which may wait for the device, when one of [`MAX_EXPENSIVE`] permits is free.
    pub async fn expensive<T: Send + 'static, E: ToString + Send + 'static>(
        &self,
        work: impl FnOnce(&dyn ServerStatus) -> Result<T, E> + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = timeout(TURN_WAIT, self.expensive.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            let why = "others are asking this, too: try again";
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why));
        };
        let status = self.status.clone();
        let done = blocking(move || {
            // Kept until the work is done, also if nobody waits for it any more; or until it is its turn
            // and it is not begun for that reason.
            let _permit = permit;
            work(&*status)
        });
        done.await?.map_err(ApiError::failed)
    }
}
