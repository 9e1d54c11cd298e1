//! Damaged files: `verify` finds them and says where, `inspect` shows the rest, nothing panics.

use crate::program::{Program, corrupt};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_string()
}

fn name(path: &Path) -> String {
    text(Path::new(path.file_name().unwrap()))
}

/// `verify` must find damage in the file `name`.
fn verify_finds(program: &Program, name: &str) -> String {
    let ran = program.run(&["verify"]);
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    let line = ran.out.lines().find(|line| line.starts_with("DAMAGE") && line.contains(name));
    line.unwrap_or_else(|| panic!("no damage of {name} in:\n{}", ran.out)).to_string()
}

#[test]
fn an_sst() {
    let program = Program::with_store();
    let sst = program.live_sst();
    corrupt(&sst, 1000);
    assert!(verify_finds(&program, &name(&sst)).contains("at offset"));
    let ran = program.run(&["inspect", "sst", &text(&sst), "--keys"]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("DAMAGE: ") && ran.out.contains("entry 0"), "{}", ran.out);
    assert!(ran.out.contains("footer") && ran.err.contains("found 1 problem"), "{}", ran.err);
    // Reads of what is damaged fail; they do not answer wrongly.
    let said = program.fails(1, &["scan"]);
    assert!(said.contains("is damaged at offset") && said.contains(&name(&sst)), "{said}");
}

#[test]
fn a_truncated_or_missing_sst() {
    let program = Program::with_store();
    let sst = program.live_sst();
    let bytes = std::fs::read(&sst).unwrap();
    std::fs::write(&sst, &bytes[..bytes.len() - 10]).unwrap();
    assert!(verify_finds(&program, &name(&sst)).contains("bytes, not"));
    assert_eq!(program.run(&["inspect", "sst", &text(&sst)]).code, 1);
    std::fs::remove_file(&sst).unwrap();
    assert!(verify_finds(&program, &name(&sst)).contains("does not exist"));
    program.fails(2, &["inspect", "sst", &text(&sst)]);
    assert_eq!(program.run(&["inspect", "lsm"]).code, 0, "the manifest is sound");
}

#[test]
fn the_manifest() {
    let program = Program::with_store();
    let manifest = program.files("").into_iter().find(|p| name(p).starts_with("MANIFEST")).unwrap();
    corrupt(&manifest, 60);
    verify_finds(&program, &name(&manifest));
    for arguments in [
        vec!["inspect", "manifest", manifest.to_str().unwrap()],
        vec!["inspect", "manifest", "terrace-data"],
        vec!["inspect", "lsm", "terrace-data"],
    ] {
        let ran = program.run(&arguments);
        assert_eq!(ran.code, 1, "{arguments:?}: {}", ran.out);
        assert!(ran.out.contains("DAMAGE"), "{}", ran.out);
    }
    let said = program.fails(1, &["get", "key000001"]);
    assert!(said.contains(&name(&manifest)), "{said}");
}

#[test]
fn current() {
    let program = Program::with_store();
    corrupt(&program.store().join("CURRENT"), 12);
    verify_finds(&program, "CURRENT");
    let ran = program.run(&["inspect", "lsm"]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("key019999"), "the levels are still shown: {}", ran.out);
    assert!(program.fails(1, &["put", "k", "v"]).contains("CURRENT"));
}

/// A log of 100 synced writes that are in no SST: the process waits for more input when it is
/// killed.
fn with_log() -> Program {
    let program = Program::new();
    let arguments = ["load", "-", "--sync", "--report-durable", "--batch", "10"];
    let mut command = program.command(&arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines: String = (0..100).map(|n| format!("key{n:04}\tvalue {n}\n")).collect();
    let mut input = child.stdin.take().unwrap();
    input.write_all(lines.as_bytes()).unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line != "durable 100\n" {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    program
}

#[test]
fn the_log() {
    let program = with_log();
    assert_eq!(program.run(&["verify"]).code, 0);
    let log = program.files(".log").last().unwrap().clone();
    let shown = program.ok(&["inspect", "log", &text(&log)]);
    assert!(shown.contains("put key0000 = value 0") && shown.contains("key0099"), "{shown}");
    corrupt(&log, 100);
    verify_finds(&program, &name(&log));
    for path in [text(&log), "terrace-data".into()] {
        let ran = program.run(&["inspect", "log", &path]);
        assert_eq!(ran.code, 1);
        assert!(ran.out.contains("DAMAGE at 44") && ran.out.contains("key0099"), "{}", ran.out);
    }
    let said = program.fails(1, &["get", "key0050"]);
    assert!(said.contains(&name(&log)) && said.contains("synced writes would be lost"), "{said}");
}

#[test]
fn a_file_of_another_kind() {
    let program = Program::with_store();
    let sst = text(&program.files(".sst")[0]);
    let log = text(&program.files(".log")[0]);
    let noise =
        program.write("noise", (0..5000u32).map(|n| ((n * n) >> 3) as u8).collect::<Vec<_>>());
    for (what, file) in
        [("sst", &log), ("log", &sst), ("manifest", &sst), ("sst", &noise), ("log", &noise)]
    {
        let ran = program.run(&["inspect", what, file]);
        assert_eq!(ran.code, 1, "{what} {file}: {}", ran.err);
        assert!(!ran.out.is_empty() && ran.err.lines().count() == 1, "{}", ran.err);
    }
}

/// Code 2 would say that there is no store.
#[test]
fn a_manifest_that_cannot_be_read_is_an_error() {
    let program = Program::new();
    program.ok(&["put", "k", "v"]);
    let manifest = program.files("").into_iter().find(|path| name(path).starts_with("MANIFEST-"));
    let manifest = manifest.unwrap();
    std::fs::remove_file(&manifest).unwrap();
    assert!(Command::new("mkfifo").arg(&manifest).status().unwrap().success());
    let said = program.fails(1, &["verify"]);
    assert!(said.contains(&name(&manifest)), "{said}");
}
