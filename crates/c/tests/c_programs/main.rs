//! Programs in C against `terrace.h`, compiled by the C compiler and run: every function and the examples under valgrind,
//! what callers do wrong, and the code of the documents.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod pages;
#[path = "../program/mod.rs"]
mod program;

use program::run;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// How a program gets the library.
#[derive(Clone, Copy, PartialEq)]
enum Link {
    Static,
    Shared,
}

/// What cargo built beside this test.
fn library(name: &str) -> PathBuf {
    let path = std::env::current_exe().unwrap().with_file_name(name);
    assert!(path.exists(), "{} is not there", path.display());
    path
}

/// Puts the shared library into `dir` as it is installed: the loader looks for it by its own name.
fn install(dir: &Path) {
    let library = library("libterrace_c.so");
    for name in ["libterrace.so", "libterrace.so.0"] {
        let link = dir.join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(&library, link).unwrap();
        }
    }
}

/// Compiles `source`, strictly, into `dir`.
fn compile(compiler: &[&str], source: &Path, dir: &Path, link: Link) -> PathBuf {
    let program = dir.join(source.file_stem().unwrap());
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-g"]);
    command.arg("-I").arg(root().join("include")).arg(source).arg("-o").arg(&program);
    match link {
        Link::Static => {
            command.arg(library("libterrace_c.a"));
        }
        Link::Shared => {
            install(dir);
            command.arg("-L").arg(dir).arg("-lterrace");
        }
    }
    command.args(["-lpthread", "-ldl", "-lm"]);
    run(&mut command);
    program
}

/// `program` under valgrind, which ends with a failure if it finds one.
fn valgrind(program: &Path) -> Command {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--error-exitcode=99", "--leak-check=full", "--fair-sched=yes"]);
    valgrind.args(["--errors-for-leak-kinds=definite,indirect", "--show-leak-kinds=definite"]);
    let known = root().join("tests/c_programs/valgrind.supp");
    valgrind.arg(format!("--suppressions={}", known.display())).arg(program);
    valgrind
}

#[test]
#[ignore = "needs valgrind: run `cargo xtask test`"]
fn every_function_does_what_it_says_under_valgrind() {
    for (name, last) in [
        ("every_function.c", "every function was called"),
        ("encryption.c", "everything was encrypted"),
        ("own_bytes.c", "every seek found its key"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let source = root().join("tests/c_programs").join(name);
        let program = compile(&["cc", "-std=c11"], &source, dir.path(), Link::Static);
        let mut valgrind = valgrind(&program);
        valgrind.arg(dir.path().join("store"));
        let told = run(&mut valgrind);
        assert!(told.contains(last), "{told}");
    }
}

#[test]
fn what_is_encrypted_wants_its_keys() {
    let dir = tempfile::tempdir().unwrap();
    let source = root().join("tests/c_programs/encryption.c");
    let program = compile(&["cc", "-std=c11"], &source, dir.path(), Link::Static);
    run(Command::new(program).arg(dir.path().join("store")));
}

#[test]
fn what_callers_do_wrong_is_an_error_and_no_crash() {
    let dir = tempfile::tempdir().unwrap();
    let source = root().join("tests/c_programs/misuse.c");
    let program = compile(&["cc", "-std=c11"], &source, dir.path(), Link::Shared);
    let told =
        run(Command::new(program).arg(dir.path().join("store")).env("LD_LIBRARY_PATH", dir.path()));
    assert!(told.contains("all of it was refused"), "{told}");
}

#[test]
fn what_has_no_bytes_has_an_address() {
    let dir = tempfile::tempdir().unwrap();
    let source = root().join("tests/c_programs/no_bytes.c");
    let program = compile(&["cc", "-std=c11"], &source, dir.path(), Link::Static);
    let told = run(Command::new(program).arg(dir.path().join("store")));
    assert!(told.contains("all of it had an address"), "{told}");
}

#[test]
fn an_iterator_seeks_bytes_of_its_own_entry() {
    let dir = tempfile::tempdir().unwrap();
    let source = root().join("tests/c_programs/own_bytes.c");
    let program = compile(&["cc", "-std=c11"], &source, dir.path(), Link::Static);
    let told = run(Command::new(program).arg(dir.path().join("store")));
    assert!(told.contains("every seek found its key"), "{told}");
}

#[test]
fn the_header_is_one_for_cpp_too() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("cpp.cpp");
    let text = "#include <terrace.h>\n#include <cstdio>\n\
                int main() { std::puts(terrace_version()); return terrace_error_code(nullptr); }\n";
    std::fs::write(&source, text).unwrap();
    let program = compile(&["c++", "-std=c++11"], &source, dir.path(), Link::Static);
    assert_eq!(run(&mut Command::new(program)).trim(), env!("CARGO_PKG_VERSION"));
}

/// The examples, at least one.
fn examples() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("examples")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let examples: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|ending| ending == "c")).collect();
    assert!(!examples.is_empty());
    examples
}

/// They are run twice: on no store, and on the one that they left.
#[test]
fn the_examples_run() {
    for source in examples() {
        let dir = tempfile::tempdir().unwrap();
        let program = compile(&["cc", "-std=c99"], &source, dir.path(), Link::Shared);
        for _ in 0..2 {
            let mut command = Command::new(&program);
            run(command.arg(dir.path().join("store")).env("LD_LIBRARY_PATH", dir.path()));
        }
    }
}

#[test]
#[ignore = "needs valgrind: run `cargo xtask test`"]
fn the_examples_run_under_valgrind() {
    for source in examples() {
        let dir = tempfile::tempdir().unwrap();
        let program = compile(&["cc", "-std=c99"], &source, dir.path(), Link::Static);
        for _ in 0..2 {
            run(valgrind(&program).arg(dir.path().join("store")));
        }
    }
}

/// Builds the module in `module` with the library that is installed in `library`.
fn go_build(module: &Path, library: &Path, program: &Path) {
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(program).arg(".").current_dir(module);
    build.env("CGO_ENABLED", "1").env("GOFLAGS", "-mod=mod").env("GOPROXY", "off");
    build.env("CGO_CFLAGS", format!("-I{}", root().join("include").display()));
    build.env("CGO_LDFLAGS", format!("-L{} -lterrace", library.display()));
    run(&mut build);
}

#[test]
#[ignore = "needs Go: run `cargo xtask test`"]
fn the_example_in_go_runs() {
    let dir = tempfile::tempdir().unwrap();
    install(dir.path());
    let program = dir.path().join("queue");
    go_build(&root().join("../../bindings/go"), dir.path(), &program);
    let mut queue = Command::new(program);
    queue.arg(dir.path().join("store")).env("LD_LIBRARY_PATH", dir.path());
    let told = run(&mut queue);
    assert!(told.contains("200 jobs, each done once by 8 workers"), "{told}");
}
