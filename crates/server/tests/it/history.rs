//! The history of the dashboard over a whole server: kept beside the store, with marks.

use crate::client::{ok, until};
use crate::served::Served;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const HTTP: (&str, &str) = ("http-port", "free");

/// The history without samples: its marks.
fn marks(served: &Served) -> String {
    let mut stream = TcpStream::connect(served.running().http_addresses()[0]).unwrap();
    let request =
        "GET /api/v1/history?seconds=0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{answer}");
    body.to_string()
}

/// Waits until there are `count` marks of this kind.
fn marks_with(served: &Served, kind: &str, count: usize) -> String {
    let wanted = format!("\"kind\":\"{kind}\"");
    for _ in 0..600 {
        let marks = marks(served);
        if marks.matches(&wanted).count() >= count {
            return marks;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("no {count} marks of {kind} in {}", marks(served));
}

/// Waits until the file is as it should be: a server that ends does not wait long for a slow device, which gets it
/// later.
fn until_kept(dir: &TempDir, is_kept: impl Fn(&str) -> bool) {
    let file = dir.path().join("store-history.json");
    until("it is not kept", || fs::read_to_string(&file).is_ok_and(|text| is_kept(&text)));
}

#[test]
fn starts_and_changed_options_are_marked_across_restarts_by_name_only() {
    let served = Served::with(&[HTTP, ("cluster-secret", "hush-hush")]);
    let mut client = served.client();
    marks_with(&served, "start", 1);
    assert_eq!(client.call(&["CONFIG", "SET", "maxclients", "4711", "timeout", "99"]), ok());
    let changed = marks_with(&served, "options", 1);
    assert!(changed.contains("\"options\":[\"maxclients\",\"timeout\"]"), "{changed}");
    drop(client);
    let dir = served.end();
    until_kept(&dir, |text| text.contains("\"4711\""));
    // Ports are others, too.
    let flags = [HTTP, ("maxclients", "4711"), ("reader-threads", "3")];
    let served = Served::again(dir, &flags);
    let started = marks_with(&served, "start", 2);
    assert!(started.contains("\"reader-threads\",\"timeout\"]"), "{started}");
    assert!(!started.contains("\"4711\""), "values are for administrators: {started}");
    let text = fs::read_to_string(served.dir.path().join("store-history.json")).unwrap();
    assert!(text.contains("\"4711\"") && !text.contains("hush-hush"), "{text}");
}

#[test]
fn no_history_stops_a_server() {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let file = dir.path().join("store-history.json");
    fs::write(&file, "{\"format\":1,\"history\":").unwrap();
    let again = |dir: Arc<TempDir>, flags: &[(&str, &str)]| {
        let served = Served::again(dir, &[&[HTTP], flags].concat());
        marks_with(&served, "start", 1);
        served.end()
    };
    let dir = again(dir, &[]);
    // Replaced at the end.
    until_kept(&dir, |text| text.ends_with('}'));
    // Where it cannot be written, nor read.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let dir = again(dir, &[]);
    assert!(file.is_dir());
    fs::remove_dir(&file).unwrap();
    again(dir, &[("http-history", "no")]);
    assert!(!file.exists(), "switched off");
}
