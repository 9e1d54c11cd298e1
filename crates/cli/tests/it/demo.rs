//! `terrace demo`: it ends, and its figures are there and plausible.

use crate::program::{Program, Ran};
use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[test]
fn the_demo_shows_one_screen_of_figures() {
    let program = Program::new();
    let screen = program.ok(&["demo", "--seconds", "0.1", "--dir", "kept"]);
    for part in
        ["226,889 package names", "Levels", "L6", "lookups/s", "2 threads", "filters", "Try next"]
    {
        assert!(screen.contains(part), "no `{part}` in:\n{screen}");
    }
    let (figures, commands) = screen.split_once("Try next").unwrap();
    assert!(figures.lines().all(|line| line.chars().count() <= 100), "{screen}");
    assert!(screen.lines().count() < 45 && commands.contains("get semver --dir kept"), "{screen}");
    assert!(!screen.contains('\x1b'), "colours although this is no terminal");
    assert!(program.ok(&["verify", "--dir", "kept"]).contains("226889 entries"));
}

#[test]
fn the_figures_come_as_json_too() {
    let program = Program::new();
    let arguments = ["demo", "--seconds", "1", "--json"];
    let mut command = program.command(&arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let dir = temporary_dir(&mut child);
    let ran = Ran::of(&arguments, child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(!dir.exists(), "{} is left", dir.display());
    let text = ran.out;
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["load"]["records"], 226_889);
    assert!(json["load"]["write_amp"].as_f64().unwrap() > 1.0);
    for shape in ["scarce", "cached"] {
        let stretches = json[shape]["stretches"].as_array().unwrap();
        assert_eq!(stretches.len(), 2);
        for stretch in stretches {
            let number = |name: &str| stretch[name].as_f64().unwrap();
            assert!(number("ops_per_s") > 0.0, "{stretch}");
            assert!(number("p50_us") <= number("p99_us") && number("p99_us") <= number("p999_us"));
            let absent = number("absent") / number("lookups");
            // Each lookup tosses a coin; a slow device gives few of them. Six standard deviations.
            let slack = 0.05_f64.max(3.0 / number("lookups").sqrt());
            assert!((absent - 0.5).abs() < slack, "half of the names are absent, not {absent}");
        }
    }
    let reads = |shape: &str| json[shape]["stretches"][0]["device_reads_per_op"].as_f64().unwrap();
    assert!(reads("scarce") > reads("cached") && reads("cached") < 0.001, "{text}");
}

/// The directory of a demo that is temporary, if this open file of its process is in it.
fn temporary(open: io::Result<DirEntry>) -> Option<PathBuf> {
    let file = fs::read_link(open.ok()?.path()).ok()?;
    let is_it = |dir: &&Path| {
        let name = dir.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("terrace-demo-"))
    };
    file.ancestors().find(is_it).map(Path::to_path_buf)
}

/// The directory in which a demo that runs has its store, once it has one.
fn temporary_dir(child: &mut Child) -> PathBuf {
    let open_files = format!("/proc/{}/fd", child.id());
    loop {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before");
        if let Some(dir) = fs::read_dir(&open_files).unwrap().find_map(temporary) {
            return dir;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing() {
    let program = Program::new();
    let mut command = program.command(&["demo"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let dir = temporary_dir(&mut child);
    let sent = Command::new("kill").args(["-s", "INT", &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGINT));
    assert!(!dir.exists(), "{} is left", dir.display());
}
