//! Named steps, run one after another. A step that fails does not end the run: the others go on,
//! but for those that need what it should have left. At the end stands what failed, and the
//! commands that run just that.

use anyhow::{Context, Error, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Why a step failed.
pub struct Failure {
    error: Error,
    /// Commands that run just what failed; none if that is the whole step.
    rerun: Vec<String>,
}

impl Failure {
    /// A failure of a part of a step, which `rerun` runs again.
    pub fn of_part(error: Error, rerun: Vec<String>) -> Self {
        Self { error, rerun }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, rerun: Vec::new() }
    }
}

type Work = Box<dyn FnOnce(&Path) -> Result<(), Failure>>;

/// The step that builds everything: most others need it.
pub const BUILD: &str = "build";

/// Something to do, and what is said of it.
pub struct Step {
    name: String,
    /// The command that does just this.
    shown: String,
    needs: Vec<String>,
    work: Work,
}

impl Step {
    /// Without these steps, each before this one, it makes no sense.
    pub fn needs(&mut self, names: &[&str]) {
        self.needs.extend(names.iter().map(|name| name.to_string()));
    }
}

/// The steps of one `cargo xtask` command.
pub struct Steps {
    root: PathBuf,
    command: &'static str,
    steps: Vec<Step>,
}

/// What came of a step.
enum Verdict {
    Passed,
    Failed(Failure),
    /// Not run, since this step before it failed or was not run.
    NotRun {
        needs: String,
    },
}

struct Done {
    name: String,
    shown: String,
    took: Duration,
    verdict: Verdict,
}

impl Steps {
    /// No steps yet; those of `cargo xtask COMMAND`, which run in the project's root.
    pub fn new(root: &Path, command: &'static str) -> Self {
        Self { root: root.to_path_buf(), command, steps: Vec::new() }
    }

    /// The project's root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where `cargo` puts what the steps build.
    pub fn target_dir(&self) -> PathBuf {
        target_dir(&self.root)
    }

    /// Adds `cargo` with `arguments`.
    pub fn cargo(&mut self, name: &str, arguments: &[&str]) -> &mut Step {
        self.cargo_with(name, arguments, &[])
    }

    /// As [`Steps::cargo`], with environment variables.
    pub fn cargo_with(
        &mut self,
        name: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> &mut Step {
        let mut command = cargo(arguments);
        command.envs(variables.iter().copied());
        let assignments = variables.iter().map(|(key, value)| format!("{key}={value:?} "));
        let shown = format!("{}cargo {}", assignments.collect::<String>(), arguments.join(" "));
        self.command(name, &shown, command)
    }

    /// Adds `command`, which a person would type as `shown`.
    pub fn command(&mut self, name: &str, shown: &str, mut command: Command) -> &mut Step {
        let words = shown.to_string();
        self.add(name, shown, move |root| {
            let status = command.current_dir(root).status();
            let status = status.with_context(|| format!("start {words}"))?;
            if status.success() { Ok(()) } else { Err(anyhow::anyhow!("{words}: {status}"))? }
        })
    }

    /// Adds `work`, for which there is no command but that of the steps.
    pub fn check(
        &mut self,
        name: &str,
        work: impl FnOnce(&Path) -> Result<()> + 'static,
    ) -> &mut Step {
        let shown = format!("cargo xtask {} {name}", self.command);
        self.add(name, &shown, move |root| Ok(work(root)?))
    }

    /// Adds `work`, which a person would do with `shown`.
    pub fn add(
        &mut self,
        name: &str,
        shown: &str,
        work: impl FnOnce(&Path) -> Result<(), Failure> + 'static,
    ) -> &mut Step {
        self.steps.push(Step {
            name: name.to_string(),
            shown: shown.to_string(),
            needs: Vec::new(),
            work: Box::new(work),
        });
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }

    /// Runs the steps named in `only`, all if it is empty, and fails if one of them did. A step
    /// that is left out counts as one that has passed.
    pub fn run(mut self, only: &[String]) -> Result<()> {
        self.check_names(only)?;
        self.steps.retain(|step| only.is_empty() || only.contains(&step.name));
        let (start, count) = (Instant::now(), self.steps.len());
        let mut done: Vec<Done> = Vec::new();
        for (at, step) in self.steps.into_iter().enumerate() {
            let Step { name, shown, needs, work } = step;
            let since = words_of(start.elapsed());
            println!("\n=== step {} of {count}, after {since}: {name}: {shown}", at + 1);
            let begin = Instant::now();
            let verdict = match needs.into_iter().find(|needed| is_lacking(&done, needed)) {
                Some(needs) => Verdict::NotRun { needs },
                None => work(&self.root).map_or_else(Verdict::Failed, |()| Verdict::Passed),
            };
            let took = begin.elapsed();
            println!("=== {name}: {} in {}", verdict.line(), words_of(took));
            done.push(Done { name, shown, took, verdict });
        }
        println!("\n{}", summary(&done, self.command));
        let bad = done.iter().filter(|done| !matches!(done.verdict, Verdict::Passed)).count();
        if bad == 0 { Ok(()) } else { bail!("{bad} of {count} steps failed or were not run") }
    }

    /// Names are given once, needs name steps before, and whatever is wanted exists.
    fn check_names(&self, only: &[String]) -> Result<()> {
        let names: Vec<&str> = self.steps.iter().map(|step| step.name.as_str()).collect();
        for (at, step) in self.steps.iter().enumerate() {
            let (before, own) = (&names[..at], &step.name);
            ensure!(!before.contains(&own.as_str()), "two steps are called `{own}`");
            for needed in &step.needs {
                let known = before.contains(&needed.as_str());
                ensure!(known, "`{own}` needs `{needed}`, which does not come before it");
            }
        }
        for name in only {
            let all = names.join(", ");
            ensure!(names.contains(&name.as_str()), "there is no step `{name}`, but {all}");
        }
        Ok(())
    }
}

/// Where `cargo` puts what it builds of the project at `root`.
pub fn target_dir(root: &Path) -> PathBuf {
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// The cargo that runs this program, with `arguments`.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// Whether the step `name` was to leave something, and did not.
fn is_lacking(done: &[Done], name: &str) -> bool {
    done.iter().any(|done| done.name == name && !matches!(done.verdict, Verdict::Passed))
}

impl Verdict {
    fn line(&self) -> String {
        match self {
            Self::Passed => "ok".to_string(),
            Self::Failed(failure) => format!("FAILED ({:#})", failure.error),
            Self::NotRun { needs } => format!("not run, since `{needs}` failed"),
        }
    }
}

/// What ran, how long it took, and how to run what failed.
fn summary(done: &[Done], command: &str) -> String {
    let count = |wanted: fn(&Verdict) -> bool| done.iter().filter(|d| wanted(&d.verdict)).count();
    let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    let not_run = count(|verdict| matches!(verdict, Verdict::NotRun { .. }));
    let passed = done.len() - failed - not_run;
    let total = words_of(done.iter().map(|done| done.took).sum());
    let mut lines = vec![format!(
        "{} steps in {total}: {passed} passed, {failed} failed, {not_run} not run",
        done.len()
    )];
    for Done { name, took, verdict, .. } in done {
        lines.push(format!("  {:>8.1} s  {name}: {}", took.as_secs_f64(), verdict.line()));
    }
    if failed > 0 {
        lines.push("\nTo run just what failed:".to_string());
    }
    for Done { shown, verdict, .. } in done {
        if let Verdict::Failed(Failure { rerun, .. }) = verdict {
            let whole = if rerun.is_empty() { std::slice::from_ref(shown) } else { &rerun[..] };
            lines.extend(whole.iter().map(|command| format!("  {command}")));
        }
    }
    if not_run > 0 {
        let was_not = |done: &&Done| matches!(done.verdict, Verdict::NotRun { .. });
        let names: Vec<&str> = done.iter().filter(was_not).map(|d| d.name.as_str()).collect();
        lines.push(format!("Then what was not run:\n  cargo xtask {command} {}", names.join(" ")));
    }
    lines.join("\n")
}

/// `3 min 7 s`, or `7.1 s`.
fn words_of(took: Duration) -> String {
    match took.as_secs() {
        0..60 => format!("{:.1} s", took.as_secs_f64()),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests;
