//! An exporter of spans that logs when it fails and when it no longer does.

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;

#[derive(Debug)]
pub(crate) struct Reported<E> {
    /// Shared with what is being sent; alone when its resource is set.
    exporter: Arc<E>,
    endpoint: String,
    /// Where it is sent: the thread that has the spans is none of a runtime.
    runtime: Handle,
    is_failing: AtomicBool,
}

impl<E> Reported<E> {
    pub fn new(exporter: E, endpoint: &str, runtime: Handle) -> Self {
        let (exporter, endpoint) = (Arc::new(exporter), endpoint.to_string());
        Self { exporter, endpoint, runtime, is_failing: AtomicBool::new(false) }
    }

    /// Logs `sent` if it is another outcome than the last one.
    fn report(&self, sent: &OTelSdkResult) {
        let was_failing = self.is_failing.swap(sent.is_err(), Ordering::Relaxed);
        let endpoint = &self.endpoint;
        match sent {
            Err(error) if !was_failing => {
                tracing::warn!(%endpoint, %error, "traces are not received: they are dropped until they are");
            }
            Ok(()) if was_failing => tracing::info!(%endpoint, "traces are received again"),
            _ => {}
        }
    }
}

impl<E: SpanExporter + 'static> SpanExporter for Reported<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let exporter = self.exporter.clone();
        let sending = self.runtime.spawn(async move { exporter.export(batch).await });
        let failed =
            |error: tokio::task::JoinError| OTelSdkError::InternalFailure(error.to_string());
        let sent = sending.await.map_err(failed).and_then(|sent| sent);
        self.report(&sent);
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        if let Some(exporter) = Arc::get_mut(&mut self.exporter) {
            exporter.set_resource(resource);
        }
    }
}
