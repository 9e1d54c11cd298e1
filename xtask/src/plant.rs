//! `cargo xtask plant`: faults are planted one at a time in a copy of the project, and the simulation and the long-lived crash
//! test are run on each. The end of the output says which of them found it, and how soon.
//!
//! The copy lies in `target/planted` and is compiled there; the project itself is left alone. A fault that neither finds is
//! no failure of the command: what finds it is written down in `docs/reliability.md`.

mod faults;

use crate::output::run_watched;
use crate::steps::{cargo, target_dir};
use anyhow::{Context, Result, bail, ensure};
use faults::{ALL, Fault};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Where the copy lies, below the target directory.
const COPY: &str = "planted/source";
/// Where it is compiled.
const BUILT: &str = "planted/built";

/// A test binary that is run on every fault.
struct Suite {
    name: &'static str,
    /// What selects it in `cargo test`.
    select: &'static [&'static str],
    /// Arguments of the tests.
    tests: &'static [&'static str],
    /// How the line begins that says what failed.
    finding: &'static str,
}

static SUITES: [Suite; 2] = [
    Suite {
        name: "simulation",
        select: &["-p", "terrace", "--features", "simulation", "--test", "sim"],
        tests: &["r9"],
        finding: "SEED=",
    },
    Suite {
        name: "crash",
        select: &["-p", "terrace", "--test", "crash"],
        tests: &[],
        finding: "round ",
    },
];

/// What a suite did with a fault.
enum Verdict {
    Found { seconds: f64, by: String },
    Missed { seconds: f64 },
}

impl Fault {
    /// `text` with the fault in it.
    fn plant(&self, text: &str) -> Result<String> {
        let count = text.matches(self.right).count();
        let Fault { name, path, .. } = self;
        ensure!(count == 1, "{path} has the place of `{name}` {count} times, not once");
        Ok(text.replacen(self.right, self.wrong, 1))
    }
}

/// Plants the faults, and runs the suites, that `wanted` names; all, and a control without a fault first, if it names none of
/// them.
pub fn run(root: &Path, wanted: &[String]) -> Result<()> {
    let (suites, faults) = chosen(wanted)?;
    let copy = target_dir(root).join(COPY);
    copy_project(root, &copy)?;
    let mut rows = Vec::new();
    if faults.len() == ALL.len() {
        for suite in &suites {
            if let Verdict::Found { by, .. } = try_suite(root, &copy, suite)? {
                bail!("{} fails without a fault: {by}", suite.name);
            }
        }
    }
    for fault in faults {
        println!("\n=== {}: {}", fault.name, fault.what);
        let path = copy.join(fault.path);
        let right = fs::read_to_string(&path).with_context(|| format!("read {}", fault.path))?;
        fs::write(&path, fault.plant(&right)?)?;
        let verdicts: Result<Vec<Verdict>> =
            suites.iter().map(|suite| try_suite(root, &copy, suite)).collect();
        fs::write(&path, right)?;
        rows.push(row(fault, &suites, &verdicts?));
    }
    println!("\n{}", rows.join("\n"));
    Ok(())
}

/// The suites and the faults that are named: all of a kind of which none is.
fn chosen(wanted: &[String]) -> Result<(Vec<&'static Suite>, Vec<&'static Fault>)> {
    let is_wanted = |name: &str| wanted.iter().any(|wanted| wanted == name);
    let mut suites: Vec<&Suite> = SUITES.iter().filter(|suite| is_wanted(suite.name)).collect();
    let mut faults: Vec<&Fault> = ALL.iter().filter(|fault| is_wanted(fault.name)).collect();
    if suites.len() + faults.len() < wanted.len() {
        let suites = SUITES.iter().map(|suite| suite.name);
        let all: Vec<&str> = suites.chain(ALL.iter().map(|fault| fault.name)).collect();
        bail!("each name is given once, and is one of {}", all.join(", "));
    }
    if suites.is_empty() {
        suites = SUITES.iter().collect();
    }
    if faults.is_empty() {
        faults = ALL.iter().collect();
    }
    Ok((suites, faults))
}

/// Makes `copy` what the project at `root` is. Files that are the same are not written, so that they are not compiled anew.
fn copy_project(root: &Path, copy: &Path) -> Result<()> {
    let mut list = Command::new("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root);
    let list = list.output().context("list the files of the project with git")?;
    ensure!(list.status.success(), "git ls-files: {}", list.status);
    let names = String::from_utf8(list.stdout).context("the name of a file")?;
    for name in names.split_terminator('\0') {
        let (from, to) = (root.join(name), copy.join(name));
        // One that was removed and is not committed yet.
        let Ok(bytes) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        let parent = to.parent().context("a file lies in a directory")?;
        fs::create_dir_all(parent).with_context(|| format!("make {}", parent.display()))?;
        fs::write(&to, bytes).with_context(|| format!("write {}", to.display()))?;
    }
    Ok(())
}

/// Compiles a suite in the copy and runs it, of which only the latter is timed.
fn try_suite(root: &Path, copy: &Path, suite: &Suite) -> Result<Verdict> {
    let test = |more: &[&str]| {
        let mut command = cargo(&[&["test"], suite.select, more].concat());
        command.current_dir(copy).env("CARGO_TARGET_DIR", target_dir(root).join(BUILT));
        // What a fault leaves unused is no reason to stop, and a plan that fails need not be shrunk.
        command.env("RUSTFLAGS", "--cap-lints warn").env("TERRACE_SIM_RAW", "1");
        command
    };
    let built = run_watched(test(&["--no-run"]), |_| {})?;
    ensure!(built.success(), "{} does not compile", suite.name);
    let mut by = None;
    let start = Instant::now();
    let tests = [&["--"], suite.tests].concat();
    let status = run_watched(test(&tests), |line| {
        if line.starts_with(suite.finding) {
            by.get_or_insert_with(|| line.to_string());
        }
    })?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(match status.success() {
        true => Verdict::Missed { seconds },
        false => Verdict::Found { seconds, by: by.unwrap_or_else(|| status.to_string()) },
    })
}

/// A line of the table in `docs/reliability.md`.
fn row(fault: &Fault, suites: &[&Suite], verdicts: &[Verdict]) -> String {
    let cells = suites.iter().zip(verdicts).map(|(suite, verdict)| match verdict {
        Verdict::Found { seconds, by } => format!("{}: {by}, {seconds:.0} s", suite.name),
        Verdict::Missed { seconds } => format!("{}: not found in {seconds:.0} s", suite.name),
    });
    format!("| {} | {} |", fault.what, cells.collect::<Vec<_>>().join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_fault_fits_the_project_in_one_place() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for fault in &ALL {
            let text = fs::read_to_string(root.join(fault.path)).unwrap();
            assert_ne!(fault.plant(&text).unwrap(), text, "{}", fault.name);
        }
        let names: BTreeSet<&str> = ALL.iter().map(|fault| fault.name).collect();
        assert_eq!(names.len(), ALL.len());
    }

    #[test]
    fn a_fault_whose_place_is_gone_or_not_the_only_one_is_refused() {
        let fault = Fault { name: "f", what: "w", path: "p", right: "a < b", wrong: "a <= b" };
        assert_eq!(fault.plant("if a < b {").unwrap(), "if a <= b {");
        assert!(fault.plant("if b > a {").unwrap_err().to_string().contains("0 times"));
        assert!(fault.plant("a < b; a < b").unwrap_err().to_string().contains("2 times"));
    }

    #[test]
    fn suites_and_faults_are_chosen_by_name() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            chosen(&names).map(|(suites, faults)| (suites.len(), faults.len()))
        };
        assert_eq!(of(&[]).unwrap(), (2, ALL.len()));
        assert_eq!(of(&["crash"]).unwrap(), (1, ALL.len()));
        assert_eq!(of(&["crash", "directory", "replay"]).unwrap(), (1, 2));
        assert_eq!(of(&["directory"]).unwrap(), (2, 1));
        assert!(of(&["no such fault"]).is_err());
    }

    #[test]
    fn a_row_says_what_found_a_fault_and_when() {
        let suites: Vec<&Suite> = SUITES.iter().collect();
        let by = "SEED=19 cargo test".to_string();
        let found = Verdict::Found { seconds: 2.4, by };
        let text = row(&ALL[0], &suites, &[found, Verdict::Missed { seconds: 300.0 }]);
        assert!(text.contains("simulation: SEED=19 cargo test, 2 s"), "{text}");
        assert!(text.contains("crash: not found in 300 s"), "{text}");
    }
}
