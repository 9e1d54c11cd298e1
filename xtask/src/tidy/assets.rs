//! What a published crate is compiled with lies in its folder: other files are not in its package.

use super::{Finding, Tree, is_test_path};

const MACROS: [&str; 2] = ["include_bytes!(", "include_str!("];

/// Before an include that only documentation tests have.
const DOCTEST: &str = "#[cfg(doctest)]";

/// No file of `crates/*/src` includes one outside of its crate.
pub fn assets(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust().filter(|(path, _)| !is_test_path(path)) {
        let parts: Vec<&str> = path.split('/').collect();
        let ["crates", _, "src", rest @ ..] = parts.as_slice() else { continue };
        // From the file's folder up to that of the crate.
        let most_up = rest.len();
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(included) = included(line) else { continue };
            let is_of_tests = at > 0 && lines[at - 1].trim() == DOCTEST;
            // A path that is put together begins at the crate's folder.
            let most_up = if included.contains("CARGO_MANIFEST_DIR") { 0 } else { most_up };
            if !is_of_tests && included.matches("../").count() > most_up {
                let what = "it includes a file outside of its crate".to_string();
                findings.push(Finding { path: path.to_string(), line: at + 1, what });
            }
        }
    }
    findings
}

/// What stands in the brackets of an include, up to the end of the line.
fn included(line: &str) -> Option<&str> {
    MACROS.iter().find_map(|name| line.split_once(name)).map(|(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::super::testing::found;
    use super::*;

    #[test]
    fn only_files_of_the_crate_are_included() {
        let path = "crates/a/src/http/page.rs";
        for fine in [
            "include_bytes!(\"../../page/index.html\")",
            "include_str!(\"words.txt\")",
            "include_bytes!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/data/x\"))",
            "#[cfg(doctest)]\n#[doc = include_str!(\"../../../../docs/x.md\")]",
        ] {
            assert_eq!(found(assets, path, &format!("{fine}\n")), [""; 0], "{fine}");
        }
        for bad in [
            "include_bytes!(\"../../../b/index.html\")",
            "#[doc = include_str!(\"../../../../docs/x.md\")]",
            "include_bytes!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/../../data/x\"))",
        ] {
            assert_eq!(found(assets, path, &format!("{bad}\n")).len(), 1, "{bad}");
            assert_eq!(found(assets, "crates/a/src/tests.rs", bad), [""; 0], "of a test");
        }
    }
}
