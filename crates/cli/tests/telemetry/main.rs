//! Traces of the real program, as a collector receives them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests fail by panicking"
)]

#[path = "../process/mod.rs"]
mod process;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use process::Server;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use terrace_resp::test_client::{Client, free_port, ok, until};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// What a collector has received.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<(String, Span)>>>);

#[tonic::async_trait]
impl TraceService for Received {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut all = self.0.lock().unwrap();
        for of_resource in request.into_inner().resource_spans {
            let attributes = of_resource.resource.unwrap().attributes;
            let service = attributes.iter().find(|at| at.key == "service.name").unwrap();
            let Some(Value::StringValue(service)) = service.value.clone().unwrap().value else {
                panic!("{service:?}");
            };
            let spans = of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans);
            all.extend(spans.map(|span| (service.clone(), span)));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Received {
    fn named(&self, name: &str) -> Vec<Span> {
        let all = self.0.lock().unwrap();
        let named = all.iter().filter(|(_, span)| span.name == name);
        named.map(|(_, span)| span.clone()).collect()
    }
}

/// A collector on this port, as long as the runtime lives.
fn collect(runtime: &tokio::runtime::Runtime, port: u16) -> Received {
    let received = Received::default();
    let service = TraceServiceServer::new(received.clone());
    let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", port))).unwrap();
    runtime.spawn(async move {
        let served = tonic::transport::Server::builder().add_service(service);
        served.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
    });
    received
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap()
}

fn serve(dir: &Path, flags: &[&str]) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.current_dir(dir);
    Server::terrace(command, flags)
}

/// Every command becomes a span, and none since it took long.
fn flags(endpoint: &str) -> [&str; 6] {
    let slow = "--slowlog-log-slower-than";
    ["--otlp-endpoint", endpoint, "--trace-sample-every", "1", slow, "-1"]
}

fn client(server: &Server) -> Client {
    Client::connect(SocketAddr::from(([127, 0, 0, 1], server.port)))
}

#[test]
fn commands_and_work_reach_the_collector_the_last_ones_at_the_end() {
    let (runtime, dir, port) = (runtime(), tempfile::tempdir().unwrap(), free_port());
    let received = collect(&runtime, port);
    let endpoint = format!("http://127.0.0.1:{port}");
    let flags = flags(&endpoint);
    let mut server = serve(dir.path(), &flags);
    let mut client = client(&server);
    assert_eq!(client.say("SET secret-key secret-value"), ok());
    client.say("LPUSH secret-key 1");
    for _ in 0..10 {
        client.say("GET secret-key");
    }
    assert_eq!(client.say("CONFIG SET trace-sample-every 0"), ok());
    client.say("GET secret-key");
    // Those of nobody's command arrive by themselves.
    until("the spans arrive", || !received.named("GET").is_empty());
    assert_eq!(client.say("CONFIG SET trace-sample-every 1"), ok());
    client.send_words(&["SHUTDOWN"]);
    server.end_well();
    assert_eq!(received.named("GET").len(), 10, "one was not sampled");
    assert_eq!(received.named("SET").len(), 1);
    let failed = &received.named("LPUSH")[0];
    assert_eq!(failed.status.as_ref().unwrap().code, 2);
    let all = received.0.lock().unwrap();
    assert!(all.iter().all(|(service, _)| service == "terrace"));
    let text = format!("{all:?}");
    assert!(!text.contains("secret"), "keys and values are not sent");
}

#[test]
fn a_server_without_its_collector_serves_and_says_so_once() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let endpoint = format!("http://127.0.0.1:{port}");
    let flags = flags(&endpoint);
    let mut server = serve(dir.path(), &flags);
    let mut client = client(&server);
    // More than the queue takes.
    for at in 0..5_000 {
        assert_eq!(client.say(&format!("SET key{at} value")), ok());
    }
    until("it is said", || server.log().contains("traces are not received"));
    // One that comes late is sent what is sampled then.
    let runtime = runtime();
    let received = collect(&runtime, port);
    until("spans arrive", || {
        client.say("PING");
        !received.named("PING").is_empty()
    });
    client.send_words(&["SHUTDOWN"]);
    server.end_well();
    let log = server.log();
    assert_eq!(log.matches("traces are not received").count(), 1, "{log}");
    assert_eq!(log.matches("traces are received again").count(), 1, "{log}");
}

#[test]
fn an_end_without_a_collector_is_a_good_one() {
    let dir = tempfile::tempdir().unwrap();
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let flags = flags(&endpoint);
    let mut server = serve(dir.path(), &flags);
    let mut client = client(&server);
    assert_eq!(client.say("SET key value"), ok());
    client.send_words(&["SHUTDOWN"]);
    server.end_well();
}

#[test]
fn an_address_that_is_none_ends_the_start() {
    let dir = tempfile::tempdir().unwrap();
    for (endpoint, why) in [
        ("https://127.0.0.1:4317", "not spoken to with TLS"),
        ("127.0.0.1:4317", "http://HOST:4317"),
        ("http://", "cannot be sent"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
        command.args(["serve", "--port", "0", "--http-port", "0", "--otlp-endpoint", endpoint]);
        let output = command.current_dir(dir.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{endpoint}: {said}");
    }
}
