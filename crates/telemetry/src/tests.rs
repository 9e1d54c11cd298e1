//! Spans as an exporter gets them.

use super::*;
use opentelemetry::Value;
use opentelemetry::trace::{SpanKind, Status};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SpanData};
use std::time::SystemTime;
use terrace::{Db, Options, StallCondition};
use terrace_server::command_observer::{CommandObserver, ObservedCommand};

fn spans() -> (InMemorySpanExporter, Arc<Spans>) {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    (exporter, Arc::new(Spans::of(&provider)))
}

fn finished(exporter: &InMemorySpanExporter) -> Vec<SpanData> {
    exporter.get_finished_spans().unwrap()
}

fn value(span: &SpanData, name: &str) -> Option<Value> {
    let found = span.attributes.iter().find(|attribute| attribute.key.as_str() == name);
    found.map(|attribute| attribute.value.clone())
}

fn took(span: &SpanData) -> Duration {
    span.end_time.duration_since(span.start_time).unwrap()
}

#[test]
fn a_command_becomes_a_span_as_long_as_it_took() {
    let (exporter, spans) = spans();
    let command = ObservedCommand {
        name: "hset",
        took: Duration::from_micros(1500),
        failed: true,
        is_slow: true,
        database: 3,
        client: 77,
        peer: "[::1]:5000".parse().unwrap(),
    };
    spans.observe(&command);
    spans.observe(&ObservedCommand { failed: false, is_slow: false, ..command });
    let seen = finished(&exporter);
    assert_eq!(seen.len(), 2);
    let span = &seen[0];
    assert_eq!((span.name.as_ref(), span.span_kind.clone()), ("HSET", SpanKind::Server));
    assert_eq!(took(span), Duration::from_micros(1500));
    assert!(span.end_time <= SystemTime::now());
    assert!(matches!(span.status, Status::Error { .. }) && seen[1].status == Status::Unset);
    assert_eq!(value(span, "db.operation.name"), Some("HSET".into()));
    assert_eq!(value(span, "db.namespace"), Some("3".into()));
    assert_eq!(value(span, "client.address"), Some("::1".into()));
    assert_eq!(value(span, "client.port"), Some(Value::I64(5000)));
    assert_eq!(value(span, "terrace.client.id"), Some(Value::I64(77)));
    assert_eq!(value(span, "terrace.is_slow"), Some(true.into()));
    assert_eq!(value(&seen[1], "terrace.is_slow"), Some(false.into()));
    // Both are roots of traces of their own.
    assert_ne!(span.span_context.trace_id(), seen[1].span_context.trace_id());
}

#[test]
fn flushes_and_compactions_of_a_store_become_spans() {
    let (exporter, spans) = spans();
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.advanced.event_listeners.push(Arc::new(work::Listener::new(spans)));
    let db = Db::open(dir.path(), options).unwrap();
    for round in 0..2u8 {
        for key in 0..100u8 {
            db.put([key], [round; 100]).unwrap();
        }
        db.flush().unwrap();
    }
    db.compact_range::<&[u8]>(..).unwrap();
    // Everything has been told then.
    db.close().unwrap();
    let seen = finished(&exporter);
    let named = |name: &str| seen.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let (flushes, compactions) = (named("flush"), named("compaction"));
    assert_eq!(flushes.len(), 2, "{seen:?}");
    for flush in flushes {
        assert_eq!(value(flush, "terrace.family"), Some("default".into()));
        assert_eq!(value(flush, "terrace.entries"), Some(Value::I64(100)));
        assert_eq!(value(flush, "terrace.files"), Some(Value::I64(1)));
        assert!(took(flush) > Duration::ZERO && flush.status == Status::Unset);
    }
    let last = compactions.last().unwrap();
    assert_eq!(value(last, "terrace.entries"), Some(Value::I64(100)));
    assert!(matches!(value(last, "terrace.read_bytes"), Some(Value::I64(bytes)) if bytes > 0));
}

#[test]
fn a_stall_becomes_a_span_when_it_changes() {
    use StallCondition::{Normal, Slowed, Stopped};
    let (exporter, spans) = spans();
    let listener = work::Listener::new(spans);
    let change = |family, before, now, cause| listener.stall_changed(family, before, now, cause);
    change("a", Normal, Slowed, Some("l0"));
    change("b", Normal, Stopped, Some("memory"));
    assert!(finished(&exporter).is_empty());
    change("a", Slowed, Stopped, Some("memtables"));
    change("a", Stopped, Normal, None);
    change("a", Normal, Normal, None);
    let seen: Vec<_> = finished(&exporter)
        .iter()
        .map(|span| {
            ["family", "condition", "cause"].map(|name| value(span, &format!("terrace.{name}")))
        })
        .collect();
    let want = |family: &'static str, condition: &'static str, cause: &'static str| {
        [family, condition, cause].map(|text| Some(text.into()))
    };
    assert_eq!(seen, [want("a", "slowed", "l0"), want("a", "stopped", "memtables")]);
}

#[test]
fn an_address_that_is_none_is_refused() {
    for endpoint in ["", "nonsense with spaces", "http://"] {
        let refused = Telemetry::connect(endpoint).err();
        let text = refused.map(|error| error.to_string());
        assert!(
            text.as_ref().is_some_and(|text| text.contains("cannot be sent")),
            "{endpoint}: {text:?}"
        );
    }
}
