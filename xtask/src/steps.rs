//! Running commands one after another, each with its time; the first that fails ends it.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A run of named steps.
pub struct Steps {
    root: PathBuf,
    done: Vec<(String, Duration)>,
}

impl Steps {
    /// Steps that run in the project's root.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf(), done: Vec::new() }
    }

    /// The project's root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where `cargo` puts what the steps build.
    pub fn target_dir(&self) -> PathBuf {
        match std::env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => self.root.join(dir),
            None => self.root.join("target"),
        }
    }

    /// Runs `cargo` with `arguments` as the step `name`.
    pub fn cargo(&mut self, name: &str, arguments: &[&str]) -> Result<()> {
        self.cargo_with(name, arguments, &[])
    }

    /// As [`Steps::cargo`], with environment variables.
    pub fn cargo_with(
        &mut self,
        name: &str,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<()> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(arguments).envs(variables.iter().copied());
        let assignments = variables.iter().map(|(key, value)| format!("{key}={value:?} "));
        let shown = format!("{}cargo {}", assignments.collect::<String>(), arguments.join(" "));
        self.run(name, &shown, command)
    }

    /// Runs `command`, shown as `shown`, as the step `name`.
    pub fn run(&mut self, name: &str, shown: &str, mut command: Command) -> Result<()> {
        self.step(name, shown, |root| {
            let status =
                command.current_dir(root).status().with_context(|| format!("start {shown}"))?;
            if status.success() { Ok(()) } else { bail!("{shown}: {status}") }
        })
    }

    /// Does `work`, shown as `shown`, as the step `name`.
    pub fn step(
        &mut self,
        name: &str,
        shown: &str,
        work: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        println!("\n=== {name}: {shown}");
        let start = Instant::now();
        let outcome = work(&self.root);
        let took = start.elapsed();
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("=== {name}: {verdict} in {:.1} s", took.as_secs_f64());
        self.done.push((name.to_string(), took));
        outcome.with_context(|| format!("step `{name}` failed"))
    }

    /// Prints what ran and how long it took.
    pub fn summary(&self) {
        println!("\n{} steps, all passed:", self.done.len());
        for (name, took) in &self.done {
            println!("  {:>7.1} s  {name}", took.as_secs_f64());
        }
        let total: Duration = self.done.iter().map(|(_, took)| *took).sum();
        println!("  {:>7.1} s  in all", total.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_step_fails_and_says_its_name() {
        let mut steps = Steps::new(Path::new("."));
        steps.step("fine", "nothing", |_| Ok(())).unwrap();
        let error = steps.step("broken", "nothing", |_| bail!("no")).unwrap_err();
        assert!(error.to_string().contains("broken"), "{error}");
        assert!(steps.run("absent", "absent", Command::new("./no-such-program")).is_err());
    }
}
