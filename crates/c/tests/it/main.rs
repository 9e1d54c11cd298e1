//! The header is that of the code, and the shared library exports what is in it and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The header in the tree.
fn header_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include/terrace.h")
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string(header_path()).unwrap();
    let code: String = header.lines().filter(|line| !line.starts_with("//")).collect();
    let calls = code.split('(').filter_map(|before| before.rsplit([' ', '*']).next());
    // What ends with a parenthesis is the type of a callback.
    let calls = calls.filter(|name| name.starts_with("terrace_") && !name.ends_with(')'));
    calls.map(str::to_string).collect()
}

/// The header is what cbindgen makes of the code. `UPDATE=1` writes it.
#[test]
fn the_header_is_up_to_date() {
    let root = env!("CARGO_MANIFEST_DIR");
    let config = cbindgen::Config::from_file(Path::new(root).join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(root, config).unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(header_path(), &made).unwrap();
    }
    let there = std::fs::read_to_string(header_path()).unwrap_or_default();
    assert!(there == made, "UPDATE=1 cargo test -p terrace-c header writes include/terrace.h anew");
}

#[test]
fn the_library_exports_the_functions_of_the_header_and_nothing_else() {
    let library = std::env::current_exe().unwrap().with_file_name("libterrace_c.so");
    let nm = Command::new("nm").args(["--dynamic", "--defined-only"]).arg(&library).output();
    let listed = String::from_utf8(nm.expect("nm is part of binutils").stdout).unwrap();
    let exported: BTreeSet<String> =
        listed.lines().filter_map(|line| line.rsplit(' ').next()).map(str::to_string).collect();
    let declared = declared();
    assert!(declared.len() > 60, "{declared:?}");
    assert_eq!(exported, declared);
}

/// What is installed has versions of the symbols too: a test of `cargo xtask c-library` looks for them.
#[test]
fn the_library_has_a_name_for_the_loader() {
    let library = std::env::current_exe().unwrap().with_file_name("libterrace_c.so");
    let read = Command::new("readelf").arg("--dynamic").arg(&library).output();
    let listed = String::from_utf8(read.expect("readelf is part of binutils").stdout).unwrap();
    assert!(listed.contains("soname: [libterrace.so.0]"), "{listed}");
}

/// Every function is called by a program of the tests, those of `tests/c_programs`.
#[test]
fn every_function_is_tried() {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c_programs");
    let read = |name| std::fs::read_to_string(programs.join(name)).unwrap();
    let text = read("every_function.c") + &read("encryption.c") + &read("check.h");
    let missing: Vec<_> =
        declared().into_iter().filter(|name| !text.contains(&format!("{name}("))).collect();
    assert!(missing.is_empty(), "not called: {missing:?}");
}

/// What is written above a function of the header.
fn comment_of(function: &str) -> String {
    let header = std::fs::read_to_string(header_path()).unwrap();
    let (before, _) = header.split_once(&format!("{function}(")).unwrap();
    let mut lines: Vec<_> = before.lines().rev().skip(1).collect();
    let above = lines.iter().take_while(|line| line.starts_with("//")).count();
    lines.truncate(above);
    lines.reverse();
    lines.join("\n")
}

#[test]
fn the_options_of_an_open_store_are_those_that_it_takes() {
    let comment = comment_of("terrace_set_option");
    // Every second part of what quotes divide stands between two.
    let named: Vec<_> = comment.split('"').skip(1).step_by(2).collect();
    assert_eq!(named, terrace::LIVE_OPTIONS, "{comment}");
}
