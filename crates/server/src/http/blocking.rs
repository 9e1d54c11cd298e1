//! Work that may take long, on other threads than the one that serves all connections.

use super::api_error::ApiError;
use axum::body::Bytes;
use serde::Serialize;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};

/// Runs `work` elsewhere. A panic in it is an error of this request only. If nobody waits for it any more, it is
/// not begun; begun, it runs to its end.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    // Dropped with what awaits this, it has a thread pass over the work if it has not begun.
    let mut only = JoinSet::new();
    only.spawn_blocking(work);
    match only.join_next().await {
        Some(Ok(done)) => Ok(done),
        _ => Err(ApiError::failed("the server has failed here")),
    }
}

/// Work that nobody waits for, one at a time.
#[derive(Debug, Default)]
pub(super) struct Aside(Option<JoinHandle<()>>);

impl Aside {
    /// Whether what was begun last has not ended.
    pub fn is_busy(&self) -> bool {
        self.0.as_ref().is_some_and(|work| !work.is_finished())
    }

    /// Begins `work` elsewhere, which runs to its end; not while it is busy.
    pub fn begin(&mut self, work: impl FnOnce() + Send + 'static) {
        if !self.is_busy() {
            self.0 = Some(spawn_blocking(work));
        }
    }
}

/// `value` as JSON, for an answer that may be long.
pub(super) fn to_json(value: &impl Serialize) -> Result<Bytes, ApiError> {
    serde_json::to_vec(value).map(Bytes::from).map_err(ApiError::failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, mpsc};
    use std::task::Poll;
    use tokio::runtime::Builder;

    #[test]
    fn work_whose_asker_is_gone_is_not_begun() {
        let runtime = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let begun = Arc::new(AtomicUsize::new(0));
        let counts = || {
            let begun = begun.clone();
            move || begun.fetch_add(1, Ordering::SeqCst)
        };
        runtime.block_on(async {
            let (go_on, waits) = mpsc::channel::<()>();
            let mut first = Box::pin(blocking(move || waits.recv()));
            let mut gone = Box::pin(blocking(counts()));
            let mut stays = Box::pin(blocking(counts()));
            poll_fn(|cx| {
                assert!(first.as_mut().poll(cx).is_pending());
                assert!(gone.as_mut().poll(cx).is_pending());
                assert!(stays.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            drop(gone);
            go_on.send(()).unwrap();
            first.await.unwrap().unwrap();
            stays.await.unwrap();
        });
        assert_eq!(begun.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn of_work_that_nobody_waits_for_one_is_under_way_at_a_time() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let begun = Arc::new(AtomicUsize::new(0));
        let counts = || {
            let begun = begun.clone();
            move || {
                begun.fetch_add(1, Ordering::SeqCst);
            }
        };
        runtime.block_on(async {
            let mut aside = Aside::default();
            assert!(!aside.is_busy());
            let (go_on, waits) = mpsc::channel::<()>();
            aside.begin(move || {
                let _ = waits.recv();
            });
            assert!(aside.is_busy(), "it has begun, and is not waited for");
            aside.begin(counts());
            go_on.send(()).unwrap();
            while aside.is_busy() {
                tokio::task::yield_now().await;
            }
            assert_eq!(begun.load(Ordering::SeqCst), 0);
            aside.begin(counts());
            while aside.is_busy() {
                tokio::task::yield_now().await;
            }
        });
        assert_eq!(begun.load(Ordering::SeqCst), 1);
    }
}
