//! Options that are looked at for each decision, so that another value needs nothing but to be there: when and how merges are
//! picked, when writes are slowed, what is kept on disk.

use crate::env::reserve;
use crate::error::Result;
use crate::inner::Inner;
use crate::options::refuse::refusal;
use crate::options::{AdvancedOptions, Options};
use std::str::FromStr;

/// Changes option `name`; false if it is none of these. Everything else is as it was at open, so that what is refused
/// is what an open refuses.
///
/// # Errors
/// `InvalidArgument` for a value that no store opens with: nothing has changed.
pub(super) fn change(inner: &Inner, name: &str, value: &str) -> Result<bool> {
    // Families are made under it.
    let _manifest = inner.versions.manifest.lock();
    let mut options = inner.base.dynamic.options();
    if !set(&mut options, name, value)? {
        return Ok(false);
    }
    options.check()?;
    for family in inner.read.families.load().iter() {
        family.choose(&options, family.chosen());
    }
    let AdvancedOptions { max_reader_pinned_bytes, reserve_bytes, .. } = options.advanced;
    inner.versions.reader_pins.set_max_bytes(max_reader_pinned_bytes);
    if name == "max_open_files" {
        let (sst_files, value_files) = options.open_files();
        inner.read.table_cache.set_max_open(sst_files);
        inner.read.value_log.set_max_open(value_files);
    }
    inner.base.dynamic.set_options(options);
    if name == "reserve_bytes" {
        fit_reserve(inner, reserve_bytes);
    }
    // Writers that wait for fewer files, and threads that wait for work, look again.
    inner.jobs.scheduler.job_ended();
    Ok(true)
}

/// What option `name` is; `None` if it is none of these.
pub(super) fn get(inner: &Inner, name: &str) -> Option<String> {
    let options = inner.base.dynamic.options();
    match name {
        "max_open_files" => return Some(options.max_open_files.to_string()),
        "background_jobs" => return Some(options.background_jobs.to_string()),
        _ => {}
    }
    let options = options.advanced;
    Some(match name {
        "l0_compaction_trigger" => options.l0_compaction_trigger.to_string(),
        "l0_slowdown" => options.l0_slowdown.to_string(),
        "l0_stop" => options.l0_stop.to_string(),
        "level_base_bytes" => options.level_base_bytes.to_string(),
        "level_multiplier" => options.level_multiplier.to_string(),
        "target_file_bytes" => options.target_file_bytes.to_string(),
        "max_subcompactions" => options.max_subcompactions.to_string(),
        "compact_when_idle" => options.compact_when_idle.to_string(),
        "pending_compaction_slowdown_bytes" => {
            options.pending_compaction_slowdown_bytes.to_string()
        }
        "level_model_files" => options.level_model_files.to_string(),
        "reserve_bytes" => options.reserve_bytes.to_string(),
        "max_reader_pinned_bytes" => {
            options.max_reader_pinned_bytes.map_or("none".into(), |bytes| bytes.to_string())
        }
        _ => return None,
    })
}

fn set(options: &mut Options, name: &str, value: &str) -> Result<bool> {
    let Options { max_open_files, background_jobs, advanced: options, .. } = options;
    match name {
        "max_open_files" => *max_open_files = number(name, value)?,
        "background_jobs" => *background_jobs = number(name, value)?,
        "l0_compaction_trigger" => options.l0_compaction_trigger = number(name, value)?,
        "l0_slowdown" => options.l0_slowdown = number(name, value)?,
        "l0_stop" => options.l0_stop = number(name, value)?,
        "level_base_bytes" => options.level_base_bytes = number(name, value)?,
        "level_multiplier" => options.level_multiplier = number(name, value)?,
        "target_file_bytes" => options.target_file_bytes = number(name, value)?,
        "max_subcompactions" => options.max_subcompactions = number(name, value)?,
        "compact_when_idle" => {
            options.compact_when_idle = match value {
                "true" | "1" => true,
                "false" | "0" => false,
                _ => return Err(refusal(name, &value, "true or false")),
            };
        }
        "pending_compaction_slowdown_bytes" => {
            options.pending_compaction_slowdown_bytes = number(name, value)?;
        }
        "level_model_files" => options.level_model_files = number(name, value)?,
        "reserve_bytes" => options.reserve_bytes = number(name, value)?,
        "max_reader_pinned_bytes" => {
            options.max_reader_pinned_bytes = match value {
                "none" => None,
                bytes => Some(number(name, bytes)?),
            };
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// The number that `value` is.
pub(super) fn number<T: FromStr>(name: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| refusal(name, &value, "a number"))
}

/// Makes the reserve file as large as it is to be. Best effort: where there is no room for a larger one, or the disk is full,
/// the house thread sees to it when there is.
fn fit_reserve(inner: &Inner, bytes: u64) {
    let (vfs, dir) = (&*inner.base.vfs, &*inner.base.dir);
    if inner.base.read_only || inner.base.health.check_writable().is_err() {
        return;
    }
    let is_larger = reserve::kept_bytes(vfs, dir).is_ok_and(|kept| kept > bytes);
    if is_larger {
        let _best_effort = reserve::release(vfs, dir);
    }
    if bytes > 0 {
        let _best_effort = reserve::take(vfs, dir, bytes);
    }
}
