//! Script tests: a file of cases, each a script, a line `----`, and what it must print; cases are
//! divided by lines `====`. `UPDATE=1` rewrites the expectations. Test code only.

use std::fs;
use std::path::Path;

/// Runs every case of every `.txt` file in `dir` through `run`.
pub(crate) fn check_all(dir: &Path, run: impl Fn(&str) -> String) {
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "txt"));
    paths.sort();
    assert!(!paths.is_empty(), "no scripts in {}", dir.display());
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let case = |case: &str| {
            let (script, _) = case.split_once("----\n").unwrap_or((case, ""));
            format!("{}\n----\n{}", script.trim_end(), run(script))
        };
        let got = text.split("====\n").map(case).collect::<Vec<_>>().join("====\n");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, got).unwrap();
        } else {
            assert_eq!(got, text, "{} (UPDATE=1 rewrites it)", path.display());
        }
    }
}
