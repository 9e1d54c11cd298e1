//! Traces of a server for OpenTelemetry.
//!
//! Commands and background work become spans, which are sent to a collector by OTLP over gRPC. A span is made when
//! what it tells of is over, of facts that the server has anyway: nothing is traced while it runs, and a command
//! that is not sampled costs a counter.
//!
//! | span | of what | attributes |
//! |---|---|---|
//! | the command's name, `GET` | one command of `trace-sample-every`, and all that get into SLOWLOG | `db.system.name`, `db.namespace` (the database's number), `db.operation.name`, `client.address`, `client.port`, `terrace.client.id`, `terrace.is_slow` |
//! | `flush`, `compaction`, `ingestion` | every one | `terrace.family`, `terrace.files`, and what was read and written |
//! | `write stall` | from when writes are slowed or stopped until that changes | `terrace.family`, `terrace.condition`, `terrace.cause` |
//! | `background error` | every one | `terrace.severity`, and the error as the status |
//!
//! Keys and values are in none of them. Names of attributes with `db.` and `client.` are those of OpenTelemetry's
//! semantic conventions for databases, 1.27 and later.

#![forbid(unsafe_code)]

mod commands;
mod reported;
mod work;

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanBuilder, Tracer, TracerProvider};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use reported::Reported;
use std::sync::Arc;
use std::time::Duration;
use terrace::EventListener;
use tokio::runtime::Runtime;

/// How long one attempt to send spans may take.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the end of the server waits for the last spans.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);
/// The name of the service, unless `OTEL_SERVICE_NAME` or `OTEL_RESOURCE_ATTRIBUTES` says another one.
const SERVICE: &str = "terrace";

/// Why there are no traces.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The address is none.
    #[error("traces cannot be sent to {endpoint}: {why}")]
    Endpoint {
        /// As it was given.
        endpoint: String,
        /// What is wrong with it.
        why: String,
    },
    /// The threads that send were not started.
    #[error("traces cannot be sent: {0}")]
    Io(#[from] std::io::Error),
}

/// What makes spans and sends them.
pub struct Telemetry {
    spans: Arc<Spans>,
    provider: SdkTracerProvider,
    /// Where they are sent. Dropped last.
    runtime: Runtime,
}

impl Telemetry {
    /// Sends spans to the collector at `endpoint`, `http://HOST:PORT`. It need not be there: what cannot be sent is
    /// dropped, with a warning when that begins, and so is what comes while 2048 spans wait. The
    /// variables `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_EXPORTER_OTLP_HEADERS` and `OTEL_BSP_*` of OpenTelemetry are heeded.
    ///
    /// # Errors
    /// `endpoint` is no address; the machine gives no threads.
    pub fn connect(endpoint: &str) -> Result<Self, TelemetryError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("telemetry")
            .enable_all()
            .build()?;
        if endpoint.is_empty() {
            let (endpoint, why) = (String::new(), "it is empty".into());
            return Err(TelemetryError::Endpoint { endpoint, why });
        }
        let exporter = {
            let _inside = runtime.enter();
            SpanExporter::builder()
                .with_tonic()
                .with_endpoint(endpoint)
                .with_timeout(SEND_TIMEOUT)
                .build()
        };
        let exporter = exporter.map_err(|error| TelemetryError::Endpoint {
            endpoint: endpoint.to_string(),
            why: error.to_string(),
        })?;
        let exporter = Reported::new(exporter, endpoint, runtime.handle().clone());
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource())
            .build();
        Ok(Self { spans: Arc::new(Spans::of(&provider)), provider, runtime })
    }

    /// What makes spans of background work; for
    /// [`AdvancedOptions::event_listeners`](terrace::AdvancedOptions::event_listeners).
    pub fn listener(&self) -> Arc<dyn EventListener> {
        Arc::new(work::Listener::new(self.spans.clone()))
    }

    /// What makes spans of commands; for [`Server::observe_commands`](terrace_server::Server::observe_commands).
    pub fn observer(&self) -> Arc<dyn terrace_server::command_observer::CommandObserver> {
        self.spans.clone()
    }

    /// Sends what has not been sent yet, if that takes no longer than two seconds.
    pub fn end(self) {
        if let Err(error) = self.provider.shutdown_with_timeout(LAST_TIMEOUT) {
            tracing::warn!(%error, "the last traces were not sent");
        }
        self.runtime.shutdown_background();
    }
}

/// Says who sends.
fn resource() -> Resource {
    let named = Resource::builder().build();
    let name = named.get(&"service.name".into()).map(|name| name.to_string());
    let attributes = [
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("process.pid", i64::from(std::process::id())),
    ];
    let builder = Resource::builder().with_attributes(attributes);
    match name {
        // What the variables say.
        Some(name) if !name.starts_with("unknown_service") => builder.build(),
        _ => builder.with_service_name(SERVICE).build(),
    }
}

/// Makes spans that have no parent.
struct Spans {
    tracer: SdkTracer,
}

impl Spans {
    fn of(provider: &SdkTracerProvider) -> Self {
        Self { tracer: provider.tracer(SERVICE) }
    }

    /// A span that ends now; it is sent when it is dropped.
    fn make(&self, builder: SpanBuilder) -> opentelemetry_sdk::trace::Span {
        self.tracer.build_with_context(builder, &opentelemetry::Context::new())
    }
}

#[cfg(test)]
mod tests;
