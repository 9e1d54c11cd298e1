//! Traces of the server, if this program is built with them and `otlp-endpoint` says where they go.

#[cfg(feature = "opentelemetry")]
pub use sent::Traces;
#[cfg(not(feature = "opentelemetry"))]
pub use unsent::Traces;

#[cfg(feature = "opentelemetry")]
mod sent {
    use anyhow::Result;
    use std::sync::Arc;
    use terrace::Options;
    use terrace_server::command_observer::CommandObserver;
    use terrace_server::config::Settings;
    use terrace_telemetry::Telemetry;

    /// What sends them.
    pub struct Traces(Option<Telemetry>);

    impl Traces {
        /// Sends them where the options say, if they do.
        pub fn of(settings: &Settings) -> Result<Self> {
            let endpoint = Some(&settings.otlp_endpoint).filter(|endpoint| !endpoint.is_empty());
            Ok(Self(endpoint.map(|endpoint| Telemetry::connect(endpoint)).transpose()?))
        }

        /// Of the work of a store that is to be opened with these options.
        pub fn of_store(&self, options: &mut Options) {
            let listener = self.0.as_ref().map(Telemetry::listener);
            options.advanced.event_listeners.extend(listener);
        }

        /// What makes those of commands.
        pub fn observer(&self) -> Option<Arc<dyn CommandObserver>> {
            self.0.as_ref().map(Telemetry::observer)
        }

        /// Sends the last ones.
        pub fn end(self) {
            if let Some(telemetry) = self.0 {
                telemetry.end();
            }
        }
    }
}

#[cfg(not(feature = "opentelemetry"))]
mod unsent {
    use anyhow::{Result, bail};
    use std::sync::Arc;
    use terrace::Options;
    use terrace_server::command_observer::CommandObserver;
    use terrace_server::config::Settings;

    /// None.
    pub struct Traces;

    impl Traces {
        /// Refuses to send them.
        pub fn of(settings: &Settings) -> Result<Self> {
            if !settings.otlp_endpoint.is_empty() {
                bail!(
                    "otlp-endpoint: this program sends no traces; build it with `--features opentelemetry`"
                );
            }
            Ok(Self)
        }

        /// Nothing.
        pub fn of_store(&self, _options: &mut Options) {}

        /// None.
        pub fn observer(&self) -> Option<Arc<dyn CommandObserver>> {
            None
        }

        /// Nothing.
        pub fn end(self) {}
    }
}
