//! The smoke runner: `cargo run -p terrace-fuzz -- --seconds 2`. Needs no nightly and no clang.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use terrace_fuzz::smoke::{self, Finding};
use terrace_fuzz::{CANARY, TARGETS, Target, seeds};

const USAGE: &str = "\
terrace-fuzz [--seconds N] [--target NAME] [--iteration I | --input FILE] [--list]

  --seconds N    how long each target is tried (1); TERRACE_TEST_EFFORT multiplies it
  --target NAME  only this target
  --iteration I  only mutant number I of the target
  --input FILE   only the bytes of FILE
  --list         the names of the targets

SEED=N in the environment chooses other mutants; a finding prints how to replay it.
";

/// The seed if the environment names none.
const DEFAULT_SEED: u64 = 0x7e22_ace0;

/// How long the canary may stay unfound.
const CANARY_SECONDS: u64 = 60;

/// Resident memory that no target may reach.
const MAX_RESIDENT_KIB: u64 = 1 << 20;

struct Arguments {
    seconds: f64,
    target: Option<String>,
    iteration: Option<u64>,
    input: Option<PathBuf>,
}

fn main() -> Result<()> {
    let Some(arguments) = arguments()? else { return Ok(()) };
    let seed = number_from("SEED", DEFAULT_SEED)?;
    smoke::watch_panics();
    if arguments.iteration.is_some() || arguments.input.is_some() {
        return replay(&arguments, seed);
    }
    let effort = effort()?;
    let duration = Duration::from_secs_f64(arguments.seconds * effort);
    println!("{} targets, {:.1} s each, SEED={seed}", TARGETS.len(), duration.as_secs_f64());
    let mut findings = 0;
    for (name, target) in TARGETS {
        if arguments.target.as_deref().is_none_or(|wanted| wanted == *name) {
            findings += u64::from(!try_target(name, *target, seed, duration)?);
        }
    }
    if arguments.target.as_deref().is_none_or(|wanted| wanted == CANARY.0) {
        try_canary(seed)?;
    }
    ensure!(findings == 0, "{findings} targets failed");
    Ok(())
}

/// Prints what a hunt went through; false if it found something.
fn try_target(name: &str, target: Target, seed: u64, duration: Duration) -> Result<bool> {
    let tally = match smoke::hunt(name, target, seed, duration) {
        Ok(tally) => tally,
        Err(finding) => {
            report(name, seed, &finding)?;
            return Ok(false);
        }
    };
    let resident = resident_kib()?;
    println!(
        "{name:<18} {:>8} inputs, {:>3} % sound, slowest {:>6.1} ms (mutant {}), {:>4} MiB",
        tally.inputs,
        tally.accepted * 100 / tally.inputs.max(1),
        tally.slowest.0.as_secs_f64() * 1e3,
        tally.slowest.1,
        resident >> 10
    );
    if resident > MAX_RESIDENT_KIB {
        println!("{name}: resident memory passed {} MiB", MAX_RESIDENT_KIB >> 10);
        return Ok(false);
    }
    Ok(true)
}

/// The canary must be found: a rig that sees nothing proves nothing.
fn try_canary(seed: u64) -> Result<()> {
    let (name, target) = CANARY;
    match smoke::hunt(name, target, seed, Duration::from_secs(CANARY_SECONDS)) {
        Ok(tally) => bail!("the canary was not found in {} inputs: the rig is blind", tally.inputs),
        Err(finding) => {
            let at = finding.iteration.unwrap_or(0);
            println!("{name:<18} found by mutant {at}, as it must be");
            Ok(())
        }
    }
}

fn report(name: &str, seed: u64, finding: &Finding) -> Result<()> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("artifacts");
    fs::create_dir_all(&dir)?;
    let file = match finding.iteration {
        Some(iteration) => format!("{name}-{seed}-{iteration}"),
        None => format!("{name}-seed"),
    };
    let path = dir.join(file);
    fs::write(&path, &finding.input).with_context(|| format!("write {}", path.display()))?;
    println!("{name}: FAILED on {} bytes, kept as {}", finding.input.len(), path.display());
    println!("{}", finding.what);
    println!("replay: cargo run -p terrace-fuzz -- --target {name} --input {}", path.display());
    if let Some(iteration) = finding.iteration {
        println!(
            "or:     SEED={seed} cargo run -p terrace-fuzz -- --target {name} \
             --iteration {iteration}"
        );
    }
    Ok(())
}

fn replay(arguments: &Arguments, seed: u64) -> Result<()> {
    let name = arguments.target.as_deref().context("which target? name it with --target")?;
    let target = terrace_fuzz::target(name).with_context(|| format!("no target `{name}`"))?;
    let input = match (&arguments.input, arguments.iteration) {
        (Some(path), _) => fs::read(path).with_context(|| format!("read {}", path.display()))?,
        (None, iteration) => {
            smoke::input(seed, name, &seeds::of(name), iteration.unwrap_or_default())
        }
    };
    match smoke::check(target, &input) {
        Ok((sound, took)) => {
            println!("{name}: {} bytes, sound: {sound}, {took:?}", input.len());
            Ok(())
        }
        Err(what) => bail!("{name} fails on {} bytes\n{what}", input.len()),
    }
}

fn arguments() -> Result<Option<Arguments>> {
    let mut parsed = Arguments { seconds: 1.0, target: None, iteration: None, input: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value\n\n{USAGE}"));
        match word.as_str() {
            "--seconds" => parsed.seconds = value()?.parse()?,
            "--target" => parsed.target = Some(value()?),
            "--iteration" => parsed.iteration = Some(value()?.parse()?),
            "--input" => parsed.input = Some(value()?.into()),
            "--list" => {
                TARGETS.iter().for_each(|(name, _)| println!("{name}"));
                return Ok(None);
            }
            "--help" | "-h" => {
                print!("{USAGE}");
                return Ok(None);
            }
            other => bail!("what is `{other}`?\n\n{USAGE}"),
        }
    }
    if let Some(name) = &parsed.target {
        ensure!(terrace_fuzz::target(name).is_some(), "there is no target `{name}`; see --list");
    }
    ensure!((0.0..1e6).contains(&parsed.seconds), "--seconds is out of range");
    Ok(Some(parsed))
}

fn number_from(variable: &str, default: u64) -> Result<u64> {
    match std::env::var(variable) {
        Ok(text) => text.parse().with_context(|| format!("{variable}={text} is no number")),
        Err(_) => Ok(default),
    }
}

/// What `TERRACE_TEST_EFFORT` multiplies.
fn effort() -> Result<f64> {
    match std::env::var("TERRACE_TEST_EFFORT") {
        Ok(text) => {
            text.parse().with_context(|| format!("TERRACE_TEST_EFFORT={text} is no number"))
        }
        Err(_) => Ok(1.0),
    }
}

/// The most memory that was resident so far.
fn resident_kib() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status").context("read the process status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.context("the process status names no VmHWM")
}
