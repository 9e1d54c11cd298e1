//! The history of the page across restarts.

use super::api::{check, types};
use super::*;
use std::path::Path;
use terrace_resp::test_client::until;

fn begin(file: &Path) -> Served {
    let history_file = Some(file.to_path_buf());
    let made = Made { history_file, ..Made::over(small()) };
    let before_ms = made.db.options().advanced.clock.wall_ms();
    let served = Served::of(made, HttpOptions::default());
    // The sampler has begun, and a second is over.
    let is_new = |t: &&u64| **t > before_ms;
    while times(&served, 600).iter().filter(is_new).count() < 3 {
        std::thread::sleep(Duration::from_millis(50));
    }
    served
}

fn times(served: &Served, seconds: u32) -> Vec<u64> {
    let history = served.json(&format!("/api/v1/history?seconds={seconds}"));
    check(&types(), "History", &history);
    history["t_ms"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap()).collect()
}

/// Ends a server. It does not wait long for a slow device, which still gets the history: waits until that is there, in
/// the place of what was, and alone.
fn end(served: Served, file: &Path) -> Vec<u8> {
    let text = || std::fs::read(file).unwrap_or_default();
    let before = text();
    served.handle.stop();
    until("the history is not kept", || text() != before);
    let folder = file.parent().unwrap();
    until("more than the history is left", || std::fs::read_dir(folder).unwrap().count() == 1);
    text()
}

fn starts(served: &Served) -> usize {
    let history = served.json("/api/v1/history?seconds=0");
    let marks = history["marks"].as_array().unwrap();
    marks.iter().filter(|mark| mark["kind"] == "start").count()
}

#[test]
fn a_restart_does_not_end_the_history() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store-history.json");
    let first = begin(&file);
    let before = times(&first, 600);
    assert_eq!(starts(&first), 1);
    assert!(!file.exists(), "it is not written every second");
    end(first, &file);
    let second = begin(&file);
    let after = times(&second, 600);
    assert!(before.iter().all(|t| after.contains(t)), "{before:?} {after:?}");
    assert!(after.len() > before.len());
    // The step under way was ended with the server.
    assert!(!times(&second, 86_400).is_empty());
    assert_eq!(starts(&second), 2);
    let whole = end(second, &file);
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let third = begin(&file);
    let anew = times(&third, 600);
    assert!(starts(&third) == 1 && !before.iter().any(|t| anew.contains(t)), "{anew:?}");
    end(third, &file);
}
