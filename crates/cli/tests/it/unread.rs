//! Commands whose reader goes away: what they found and what they had left to do does not depend on it.

use crate::process::Server;
use crate::program::{Program, corrupt};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use terrace_resp::test_client::{HANG_GUARD, until};

#[test]
fn a_dump_into_a_pipe_whose_reader_goes_is_an_error() {
    let program = Program::new();
    // More than a pipe holds, however well it is compressed.
    let mut lines = String::new();
    let mut noise = 1u64;
    for n in 0..20_000 {
        noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        writeln!(lines, "key{n:06}\t{noise:016x}{:016x}", noise.rotate_left(17) ^ n).unwrap();
    }
    let file = program.write("input.tsv", lines);
    program.ok(&["load", &file]);
    let pipe = program.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut command = program.command(&["dump", "terrace-data", "pipe"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    File::open(&pipe).unwrap().read_exact(&mut [0; 100]).unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!((ended.status.code(), ended.stdout.len()), (Some(1), 0), "{said}");
    assert!(said.starts_with("terrace: "), "{said}");
}

#[test]
fn damage_is_an_exit_code_also_if_nobody_reads_where() {
    let program = Program::with_store();
    program.ok(&["backup", "create", "terrace-data", "backups"]);
    let sst = program.live_sst();
    corrupt(&sst, 1000);
    let backup = fs::read_dir(program.path("backups/files")).unwrap().next().unwrap();
    corrupt(&backup.unwrap().path(), 0);
    let sst = sst.to_str().unwrap();
    for arguments in [
        &["verify"][..],
        &["inspect", "sst", sst],
        &["inspect", "sst", sst, "--keys"],
        &["backup", "verify", "backups"],
    ] {
        let ran = program.run_unread(arguments);
        assert_eq!(ran.code, 1, "{arguments:?}: {}", ran.err);
    }
}

#[test]
fn a_repair_with_losses_says_so_by_its_exit_code() {
    let program = Program::with_store();
    let is_manifest = |path: &std::path::PathBuf| path.to_string_lossy().contains("MANIFEST-");
    let path = program.files("").into_iter().find(is_manifest).unwrap();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 3]).unwrap();
    assert_eq!(program.run_unread(&["repair", "terrace-data", "--dry-run"]).code, 3);
    assert_eq!(program.run_unread(&["repair", "terrace-data"]).code, 3);
}

#[test]
fn a_load_goes_on_when_nobody_reads_its_reports() {
    let program = Program::new();
    let lines: String = (0..100).map(|n| format!("key{n:04}\tvalue {n}\n")).collect();
    let file = program.write("input.tsv", lines);
    let arguments = ["load", &file, "--sync", "--report-durable", "--batch", "10"];
    let ran = program.run_unread(&arguments);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(program.ok(&["scan"]).lines().count(), 100);
}

/// The engine's threads tell of flushes, and go on whatever becomes of that.
#[test]
fn a_load_whose_events_nobody_reads_loads_everything() {
    let program = Program::new();
    let line = |n| format!("key{n:06}\tvalue {n} of a record that takes some room\n");
    let file = program.write("input.tsv", (0..20_000).map(line).collect::<String>());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = program.command(&["-v", "load", &file, "--memory", "4M"]);
    let ended = command.stderr(writer).output().unwrap();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(program.ok(&["scan", "--keys-only"]).lines().count(), 20_000);
}

#[test]
fn a_backup_that_nobody_hears_of_removes_the_old_ones() {
    let program = Program::new();
    program.ok(&["put", "key", "1"]);
    program.ok(&["backup", "create", "terrace-data", "backups"]);
    let create = ["backup", "create", "terrace-data", "backups", "--keep", "1"];
    assert_eq!(program.run_unread(&create).code, 0);
    let listed = program.ok(&["backup", "list", "backups"]);
    assert!(listed.starts_with("2\t") && listed.lines().count() == 1, "{listed}");
}

fn it_serves_and_ends_well(server: &mut Server) {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    stream.set_read_timeout(Some(HANG_GUARD)).unwrap();
    stream.write_all(b"SET key value\r\nGET key\r\nSHUTDOWN\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "+OK\r\n$5\r\nvalue\r\n");
    server.end_well();
}

#[test]
fn a_server_that_nobody_reads_serves() {
    let program = Program::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut server = Server::terrace_to(writer.into(), program.command(&[]), &[]);
    it_serves_and_ends_well(&mut server);
}

#[test]
fn a_server_whose_output_has_no_room_serves_and_ends_well() {
    let program = Program::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut server = Server::terrace_to(full.into(), program.command(&[]), &[]);
    it_serves_and_ends_well(&mut server);
    until("it is logged", || server.log().contains("standard output cannot be written"));
}

/// What was asked for is not there.
#[test]
fn what_only_prints_and_finds_no_room_is_an_error() {
    let program = Program::with_store();
    for arguments in [&["scan"][..], &["get", "key000001"], &["stats"], &["completions", "bash"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended = program.command(arguments).stdout(full).output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.starts_with("terrace: standard output cannot be written: "), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn what_only_prints_ends_without_a_word() {
    let program = Program::with_store();
    for arguments in [&["scan"][..], &["get", "key000001"], &["stats"], &["completions", "bash"]] {
        let ran = program.run_unread(arguments);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{arguments:?}");
    }
}
