//! LevelDB's C interface: a program in C runs against it, its header is what cbindgen makes of the code, and
//! the library exports every function of LevelDB's header and no other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../../../c/tests/program/mod.rs"]
mod program;

use program::run;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What only the interface for C++ uses.
const BRIDGE: [&str; 2] = ["terrace_leveldb_get", "terrace_leveldb_write"];

/// The functions of LevelDB 1.23's `leveldb/c.h`, without `leveldb_`.
const FUNCTIONS: &str = "approximate_sizes cache_create_lru cache_destroy close compact_range \
    comparator_create comparator_destroy create_default_env create_iterator create_snapshot delete \
    destroy_db env_destroy env_get_test_directory filterpolicy_create filterpolicy_create_bloom \
    filterpolicy_destroy free get iter_destroy iter_get_error iter_key iter_next iter_prev iter_seek \
    iter_seek_to_first iter_seek_to_last iter_valid iter_value major_version minor_version open \
    options_create options_destroy options_set_block_restart_interval options_set_block_size \
    options_set_cache options_set_comparator options_set_compression options_set_create_if_missing \
    options_set_env options_set_error_if_exists options_set_filter_policy options_set_info_log \
    options_set_max_file_size options_set_max_open_files options_set_paranoid_checks \
    options_set_write_buffer_size property_value put readoptions_create readoptions_destroy \
    readoptions_set_fill_cache readoptions_set_snapshot readoptions_set_verify_checksums \
    release_snapshot repair_db write writebatch_append writebatch_clear writebatch_create \
    writebatch_delete writebatch_destroy writebatch_iterate writebatch_put writeoptions_create \
    writeoptions_destroy writeoptions_set_sync";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn header_path() -> PathBuf {
    root().join("include/leveldb/c.h")
}

/// The header is what cbindgen makes of the code. `UPDATE=1` writes it.
#[test]
fn the_header_is_up_to_date() {
    let config = cbindgen::Config::from_file(root().join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(root(), config).unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(header_path(), &made).unwrap();
    }
    let there = std::fs::read_to_string(header_path()).unwrap_or_default();
    assert!(there == made, "UPDATE=1 cargo test -p terrace-leveldb header writes c.h anew");
}

/// A macro would replace what a program calls so.
#[test]
fn the_header_defines_no_names_but_leveldbs() {
    let header = std::fs::read_to_string(header_path()).unwrap();
    let defined = header.lines().filter_map(|line| line.trim_start().strip_prefix("#define "));
    let defined: Vec<_> = defined.collect();
    let is_ours = |name: &str| name.starts_with("leveldb_") || name.starts_with("STORAGE_LEVELDB_");
    assert!(!defined.is_empty() && defined.iter().all(|name| is_ours(name)), "{defined:?}");
}

#[test]
fn the_library_exports_every_function_of_leveldb_and_nothing_else() {
    let library = std::env::current_exe().unwrap().with_file_name("libterrace_leveldb.so");
    let nm = Command::new("nm").args(["--dynamic", "--defined-only"]).arg(&library).output();
    let listed = String::from_utf8(nm.expect("nm is part of binutils").stdout).unwrap();
    let exported: BTreeSet<_> = listed.lines().filter_map(|line| line.rsplit(' ').next()).collect();
    let expected = FUNCTIONS.split_whitespace().map(|name| format!("leveldb_{name}"));
    let expected: BTreeSet<_> = expected.chain(BRIDGE.map(String::from)).collect();
    assert_eq!(exported, expected.iter().map(String::as_str).collect());
}

#[test]
fn a_program_for_leveldb_runs() {
    let dir = tempfile::tempdir().unwrap();
    let (program, library) = (dir.path().join("program"), dir.path().join("libterrace_leveldb.so"));
    let built = std::env::current_exe().unwrap().with_file_name("libterrace_leveldb.so");
    std::os::unix::fs::symlink(built, library).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-g"]);
    cc.arg("-I").arg(root().join("include")).arg(root().join("tests/it/program.c"));
    cc.arg("-L").arg(dir.path()).arg("-lterrace_leveldb").arg("-o").arg(&program);
    run(&mut cc);
    let mut command = Command::new(program);
    command.arg(dir.path().join("store")).env("LD_LIBRARY_PATH", dir.path());
    command.env("TEST_TMPDIR", "");
    let told = run(&mut command);
    assert!(told.contains("as LevelDB does"), "{told}");
}
