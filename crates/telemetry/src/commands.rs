//! Spans of commands.

use crate::Spans;
use opentelemetry::KeyValue;
use opentelemetry::trace::{Span, SpanBuilder, SpanKind, Status};
use std::time::SystemTime;
use terrace_server::command_observer::{CommandObserver, ObservedCommand};

impl CommandObserver for Spans {
    fn observe(&self, command: &ObservedCommand) {
        let ended = SystemTime::now();
        let name = command.name.to_ascii_uppercase();
        let attributes = [
            KeyValue::new("db.system.name", "terrace"),
            KeyValue::new("db.namespace", command.database.to_string()),
            KeyValue::new("db.operation.name", name.clone()),
            KeyValue::new("client.address", command.peer.ip().to_string()),
            KeyValue::new("client.port", i64::from(command.peer.port())),
            KeyValue::new("terrace.client.id", i64::try_from(command.client).unwrap_or(i64::MAX)),
            KeyValue::new("terrace.is_slow", command.is_slow),
        ];
        let builder = SpanBuilder::from_name(name)
            .with_kind(SpanKind::Server)
            .with_start_time(ended.checked_sub(command.took).unwrap_or(ended))
            .with_attributes(attributes);
        let mut span = self.make(builder);
        if command.failed {
            span.set_status(Status::error(""));
        }
        span.end_with_timestamp(ended);
    }
}
