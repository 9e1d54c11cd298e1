//! The code in C and Go of the documents, as a reader would try it: whole programs as they stand, and what else a page has
//! in one program, where a store is open.

use crate::program::run;
use crate::{Link, compile, go_build, install, root};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the pages leave out.
const BEFORE: &str = r#"#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <terrace.h>

static void check(terrace_error *error) {
    if (error) {
        fprintf(stderr, "%s\n", terrace_error_message(error));
        exit(1);
    }
}
"#;
const BEGIN: &str = r#"
int main(void) {
    terrace_db *db = NULL;
    uint64_t next = 1;
    check(terrace_open("store", NULL, &db));
    check(terrace_put(db, NULL, (const uint8_t *)"rice", 4, (const uint8_t *)"sown", 4));
    (void)next;
"#;
const END: &str = "    return 0;\n}\n";

/// Where a document is.
fn page(name: &str) -> PathBuf {
    root().join("../../docs").join(name)
}

/// The code in `language` of a document, at least one block.
fn code(name: &str, language: &str) -> Vec<String> {
    let text = std::fs::read_to_string(page(name)).unwrap();
    let (begin, mut blocks) = (format!("\n```{language}\n"), Vec::new());
    let mut rest = text.as_str();
    while let Some((_, after)) = rest.split_once(&begin) {
        let (block, after) = after.split_once("\n```\n").unwrap();
        blocks.push(format!("{block}\n"));
        rest = after;
    }
    assert!(!blocks.is_empty(), "{name} has no code in {language}");
    blocks
}

/// The programs of a page.
fn programs(name: &str) -> Vec<String> {
    let (whole, parts): (Vec<_>, Vec<_>) =
        code(name, "c").into_iter().partition(|block| block.starts_with("#include"));
    let (functions, lines): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|block| block.starts_with("static "));
    let mut programs = whole;
    if !lines.is_empty() {
        programs.push([BEFORE, &functions.concat(), BEGIN, &lines.concat(), END].concat());
    }
    programs
}

/// Compiles `text` and runs it in a folder of its own; what it prints.
fn tried(text: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("page.c");
    std::fs::write(&source, text).unwrap();
    let compiler = ["cc", "-std=c11", "-Wno-unused-parameter"];
    let program = compile(&compiler, &source, dir.path(), Link::Static);
    run(Command::new(program).current_dir(dir.path()))
}

#[test]
fn the_code_in_c_of_the_documents_runs() {
    let printed = |name: &str| programs(name).iter().map(|text| tried(text)).collect::<String>();
    assert_eq!(printed("c.md"), "rice is ripe\n");
    assert_eq!(printed("merge.md"), "");
    assert_eq!(printed("compaction-filter.md"), "");
    assert_eq!(printed("change-feed.md"), "1 of rice\n");
}

/// A module of its own finds the binding beside it.
fn go_module(dir: &Path) {
    let binding = std::fs::canonicalize(root().join("../../bindings/go")).unwrap();
    let text = format!(
        "module fields\n\ngo 1.19\n\nrequire terrace.example v0.0.0\n\nreplace terrace.example => {}\n",
        binding.display()
    );
    std::fs::write(dir.join("go.mod"), text).unwrap();
    std::fs::write(dir.join("main.go"), code("go.md", "go").concat()).unwrap();
}

#[test]
#[ignore = "needs Go: run `cargo xtask test`"]
fn the_program_in_go_of_the_documents_runs() {
    let dir = tempfile::tempdir().unwrap();
    install(dir.path());
    go_module(dir.path());
    let program = dir.path().join("fields");
    go_build(dir.path(), dir.path(), &program);
    let mut fields = Command::new(program);
    fields.arg(dir.path().join("store")).env("LD_LIBRARY_PATH", dir.path());
    assert_eq!(run(&mut fields), "rice/1 is sown, watered\nrice/2 is ripe\n");
}
