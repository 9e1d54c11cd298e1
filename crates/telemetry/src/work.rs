//! Spans of what the store does in the background.

use crate::Spans;
use opentelemetry::KeyValue;
use opentelemetry::trace::{Span, SpanBuilder, Status};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use terrace::{
    BackgroundError, CompactionEnded, Error, EventListener, FilesIngested, FlushEnded, SstInfo,
    StallChanged, StallCondition,
};

/// Makes spans of work that has ended.
pub(crate) struct Listener {
    spans: Arc<Spans>,
    /// Families whose writes are slowed or stopped: since when, and why.
    stalls: Mutex<HashMap<String, (SystemTime, Option<&'static str>)>>,
}

impl Listener {
    pub fn new(spans: Arc<Spans>) -> Self {
        Self { spans, stalls: Mutex::default() }
    }

    /// Writes to a family go on in another way than before.
    pub fn stall_changed(
        &self,
        family: &str,
        before: StallCondition,
        now: StallCondition,
        cause: Option<&'static str>,
    ) {
        let begun = {
            let mut stalls = self.stalls.lock();
            match now {
                StallCondition::Normal => stalls.remove(family),
                _ => stalls.insert(family.to_string(), (SystemTime::now(), cause)),
            }
        };
        let Some((since, cause)) = begun else { return };
        let condition = match before {
            StallCondition::Slowed => "slowed",
            StallCondition::Stopped => "stopped",
            _ => return,
        };
        let mut attributes = vec![
            KeyValue::new("terrace.family", family.to_string()),
            KeyValue::new("terrace.condition", condition),
        ];
        attributes.extend(cause.map(|cause| KeyValue::new("terrace.cause", cause)));
        self.ended("write stall", since.elapsed().unwrap_or_default(), None, attributes);
    }

    /// A span of work that took so long and ended just now.
    fn ended(
        &self,
        name: &'static str,
        took: Duration,
        error: Option<&Error>,
        attributes: Vec<KeyValue>,
    ) {
        let ended = SystemTime::now();
        let builder = SpanBuilder::from_name(name)
            .with_start_time(ended.checked_sub(took).unwrap_or(ended))
            .with_attributes(attributes);
        let mut span = self.spans.make(builder);
        if let Some(error) = error {
            span.set_status(Status::error(error.to_string()));
        }
        span.end_with_timestamp(ended);
    }
}

impl EventListener for Listener {
    fn on_flush_ended(&self, event: &FlushEnded) {
        let mut attributes = of_files(&event.family, &event.files);
        attributes.push(number("terrace.written_bytes", bytes_of(&event.files)));
        self.ended("flush", event.took, event.error.as_ref(), attributes);
    }

    fn on_compaction_ended(&self, event: &CompactionEnded) {
        let mut attributes = of_files(&event.family, &event.outputs);
        attributes.extend([
            KeyValue::new("terrace.reason", event.reason),
            number("terrace.read_bytes", event.read_bytes),
            number("terrace.written_bytes", event.written_bytes),
        ]);
        if let Some(output) = event.outputs.first() {
            attributes.push(number("terrace.output_level", output.level as u64));
        }
        self.ended("compaction", event.took, event.error.as_ref(), attributes);
    }

    fn on_stall_changed(&self, event: &StallChanged) {
        self.stall_changed(&event.family, event.before, event.now, event.cause);
    }

    fn on_background_error(&self, event: &BackgroundError) {
        let attributes = vec![
            KeyValue::new("terrace.doing", event.doing.clone()),
            KeyValue::new("terrace.severity", event.severity.name()),
        ];
        self.ended("background error", Duration::ZERO, Some(&event.error), attributes);
    }

    fn on_files_ingested(&self, event: &FilesIngested) {
        let attributes = vec![
            KeyValue::new("terrace.family", event.family.clone()),
            number("terrace.files", event.files as u64),
            number("terrace.entries", event.entry_count),
            number("terrace.ingested_bytes", event.size_bytes),
        ];
        self.ended("ingestion", event.took, None, attributes);
    }
}

fn of_files(family: &str, files: &[SstInfo]) -> Vec<KeyValue> {
    let entries = files.iter().map(|file| file.entry_count).sum();
    vec![
        KeyValue::new("terrace.family", family.to_string()),
        number("terrace.files", files.len() as u64),
        number("terrace.entries", entries),
    ]
}

fn bytes_of(files: &[SstInfo]) -> u64 {
    files.iter().map(|file| file.size_bytes).sum()
}

fn number(name: &'static str, value: u64) -> KeyValue {
    KeyValue::new(name, i64::try_from(value).unwrap_or(i64::MAX))
}
