//! `--set NAME=VALUE`, and numbers of bytes.

use crate::catalog::skew::exponents::Exponents;
use crate::catalog::skew::layout::Layouts;
use crate::engine::Engine;
use crate::job::Settings;
use crate::store::EngineConfig;
use anyhow::{Context, Result, bail, ensure};

/// Applies a setting of the workloads; false if there is none of that name.
pub(super) fn set_workload(settings: &mut Settings, name: &str, value: &str) -> Result<bool> {
    match name {
        "seed" => settings.seed = number(name, value)?,
        "merged" => settings.merged = number(name, value)?,
        "seek_nexts" => settings.seek_nexts = number(name, value)?,
        "multi_get" => {
            settings.multi_get = number(name, value)?;
            ensure!((1..=4096).contains(&settings.multi_get), "--set multi_get must be 1 to 4096");
        }
        "average_bits" => {
            settings.average_bits = number(name, value)?;
            let sane = (0.0..=64.0).contains(&settings.average_bits);
            ensure!(sane, "--set average_bits must be 0 to 64");
        }
        "write_rate" => settings.write_rate = parse_bytes(value)? as u64,
        "passes" => {
            settings.passes = number(name, value)?;
            ensure!((0.0..=100.0).contains(&settings.passes), "--set passes must be 0 to 100");
        }
        "scan_length" => {
            settings.scan_length = number(name, value)?;
            ensure!(settings.scan_length >= 1, "--set scan_length must be at least 1");
        }
        "sample_ms" => {
            settings.sample_ms = number(name, value)?;
            let sane = (1..=3_600_000).contains(&settings.sample_ms);
            ensure!(sane, "--set sample_ms must be 1 to 3600000");
        }
        "rounds" => {
            settings.rounds = number(name, value)?;
            ensure!((1..=1000).contains(&settings.rounds), "--set rounds must be 1 to 1000");
        }
        "level_wait" => {
            settings.level_wait_s = number(name, value)?;
            let sane = (0.0..=3600.0).contains(&settings.level_wait_s);
            ensure!(sane, "--set level_wait must be 0 to 3600 seconds");
        }
        "slice" => {
            settings.slice_puts = number(name, value)?;
            ensure!(
                (1..=1_000_000).contains(&settings.slice_puts),
                "--set slice must be 1 to 1000000"
            );
        }
        "zipf" => settings.zipf = Exponents::parse(value)?,
        "layouts" => settings.layouts = Layouts::parse(value)?,
        "rate" => settings.rate = parse_bytes(value)? as u64,
        "plan_after" => {
            settings.plan_after = number(name, value)?;
            ensure!((0.0..=1.0).contains(&settings.plan_after), "--set plan_after must be 0 to 1");
        }
        "top" => {
            settings.exact_top = match value {
                "sketch" => false,
                "exact" => true,
                _ => bail!("--set top={value}: known are sketch, exact"),
            }
        }
        "tiny_load" => {
            settings.tiny_cache_random_load = match value {
                "seq" => false,
                "random" => true,
                _ => bail!("--set tiny_load={value}: known are seq, random"),
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Applies a setting of all engines, or keeps one of this engine for its adapter.
pub(super) fn set_engine(
    config: &mut EngineConfig,
    engine: Engine,
    name: &str,
    value: &str,
) -> Result<()> {
    match name {
        "compression" => config.compression = value.parse()?,
        "sync" => config.sync = value.parse()?,
        "background_jobs" => config.background_jobs = number(name, value)?,
        "subcompactions" => config.subcompactions = number(name, value)?,
        "block_size" => config.block_size = parse_bytes(value)?,
        "memtable" => {
            config.memtable_bytes = parse_bytes(value)?;
            config.write_bytes = config.write_bytes.max(2 * config.memtable_bytes);
        }
        _ => {
            let (owner, option) = name.split_once('.').with_context(|| {
                format!(
                    "--set {name}={value}: there is no such setting; see --help for all of them"
                )
            })?;
            if owner.parse::<Engine>()? == engine {
                config.extra.push((option.to_owned(), value.to_owned()));
            }
        }
    }
    let sane = (1..=64).contains(&config.background_jobs)
        && (1..=64).contains(&config.subcompactions)
        && (128..=4 << 20).contains(&config.block_size)
        && config.memtable_bytes >= 64 << 10;
    ensure!(sane, "--set {name}={value} is out of range");
    Ok(())
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    value.parse().with_context(|| format!("--set {name}={value}"))
}

/// Bytes with an optional unit: `4096`, `64KiB`, `8M`, `1.5GiB`.
pub(super) fn parse_bytes(text: &str) -> Result<usize> {
    let bad = || format!("`{text}` is no number of bytes; write it like 4096, 64KiB, 8MiB, 2GiB");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => bail!(bad()),
    };
    let value: f64 = digits.parse().with_context(bad)?;
    let bytes = value * f64::from(1u32 << shift);
    // Less than one byte would be none, which some settings take for no bound.
    ensure!(value == 0.0 || (bytes >= 1.0 && bytes < (1u64 << 48) as f64), bad());
    Ok(bytes as usize)
}
