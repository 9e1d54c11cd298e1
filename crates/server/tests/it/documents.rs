//! `docs/server.md` has the options and commands that there are. `UPDATE=1` rewrites it.

use std::path::Path;

/// The text between the comments of this name.
fn section<'a>(text: &'a str, name: &str) -> &'a str {
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let start_at = text.find(&start).unwrap_or_else(|| panic!("no {start}")) + start.len();
    let end_at = text.find(&end).unwrap_or_else(|| panic!("no {end}"));
    &text[start_at..end_at]
}

#[test]
fn the_document_has_every_option_and_command() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/server.md");
    let mut text = std::fs::read_to_string(&path).unwrap();
    let current = [
        ("options", terrace_server::config::documentation()),
        ("commands", terrace_server::command::documentation()),
    ];
    for (name, wanted) in &current {
        let wanted = format!("{}\n", wanted.trim_matches('\n'));
        let stands = section(&text, name).to_string();
        if stands != wanted {
            assert!(std::env::var_os("UPDATE").is_some(), "run with UPDATE=1: {name} have changed");
            let comment = format!("<!-- {name} -->\n");
            text = text.replace(&format!("{comment}{stands}"), &format!("{comment}{wanted}"));
        }
    }
    std::fs::write(&path, &text).unwrap();
    for (name, wanted) in &current {
        assert_eq!(section(&text, name).trim_matches('\n'), wanted.trim_matches('\n'));
    }
}
