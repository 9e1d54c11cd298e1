//! `terrace repair` on stores that do not open.

use crate::program::Program;

fn manifest(program: &Program) -> std::path::PathBuf {
    let is_one = |path: &std::path::PathBuf| path.to_string_lossy().contains("MANIFEST-");
    program.files("").into_iter().find(is_one).unwrap()
}

#[test]
fn a_cut_manifest_is_made_anew() {
    let program = Program::with_store();
    let before = program.ok(&["scan"]);
    let path = manifest(&program);
    let bytes = std::fs::read(&path).unwrap();
    // The file that a clean close leaves: the cut takes the edit that names the SSTs of the last open.
    std::fs::write(&path, &bytes[..bytes.len() / 3]).unwrap();
    let said = program.fails(1, &["get", "key000001"]);
    assert!(said.contains("terrace repair"), "{said}");
    let dry = program.run(&["repair", "terrace-data", "--dry-run"]);
    assert!(dry.code == 3 && dry.out.contains("dry run"), "{}{}", dry.out, dry.err);
    assert_eq!(std::fs::read(&path).unwrap().len(), bytes.len() / 3);
    let ran = program.run(&["repair", "terrace-data"]);
    assert!(ran.code == 3 && ran.out.contains("LOST: "), "{}{}", ran.out, ran.err);
    assert_eq!(program.ok(&["scan"]), before);
    assert!(program.ok(&["verify"]).ends_with("sound\n"));
    assert!(program.store().join("lost").join(path.file_name().unwrap()).exists());
}

#[test]
fn a_sound_store_stays_as_it_is() {
    let program = Program::with_store();
    let before = program.ok(&["scan"]);
    let out = program.ok(&["repair", "terrace-data"]);
    assert!(out.contains("the store is sound"), "{out}");
    assert_eq!(program.ok(&["scan"]), before);
}

#[test]
fn what_is_no_store_is_refused() {
    let program = Program::new();
    program.fails(2, &["repair", "nowhere"]);
    std::fs::create_dir(program.path("empty")).unwrap();
    program.fails(2, &["repair", "empty"]);
}
