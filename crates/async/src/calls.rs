//! Calls that may wait for the device: on blocking threads, no more than a number of them at a time.

use std::sync::Arc;
use terrace::{Error, Result};
use tokio::sync::Semaphore;

/// The bound on the calls under way; clones share it.
#[derive(Clone)]
pub(crate) struct Calls(Arc<Semaphore>);

impl Calls {
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))))
    }

    /// Runs `call` on a blocking thread when its turn comes. A panic of it goes on here. The turn is given back
    /// when the call returns, whether somebody still waits for it or not.
    ///
    /// # Errors
    /// What `call` returns; `Closed` if the runtime shuts down before it runs.
    pub async fn run<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let turn = self.0.clone().acquire_owned().await.map_err(|_| Error::Closed)?;
        let task = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            call()
        });
        match task.await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Error::Closed),
            },
        }
    }
}
