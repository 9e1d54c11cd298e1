//! The report of a repair that has not ended. From the moment at which the new manifest is in force a repair finds a sound
//! store: what one was about to tell that is killed then stands in the store, and the next one tells it.
//!
//! `lost/REPORT` is durable before a file of the store is replaced. Once the caller has the report it becomes
//! `lost/REPORT.N`, for the user: the engine does not read it again.

use crate::error::Result;
use std::path::Path;
use terrace_base::Error;
use terrace_manifest::names;
use terrace_sst::is_damage;
use terrace_vfs::{CreateOptions, OpenMode, Vfs, check_not_encrypted};

const NAME: &str = "REPORT";

/// Reports of repairs that have ended are kept, the newest ones.
const KEPT: u64 = 16;

const HEAD: &str = "What a repair of this store could not save (REPORT: one that has not ended):\n";

/// What a line of the file begins with that tells a loss.
const LOST: &str = "LOST: ";

/// The losses that a repair was about to tell which has not ended. What cannot be read is one of them.
pub(super) fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<String>> {
    let path = names::lost_dir(dir).join(NAME);
    if !vfs.exists(&path)? {
        return Ok(Vec::new());
    }
    let unreadable = |why: &dyn std::fmt::Display| {
        vec![format!(
            "what an earlier repair told, which did not end: {NAME} cannot be read ({why})"
        )]
    };
    let bytes = match content(vfs, &path) {
        Ok(bytes) => bytes,
        // Its key may be gone while the store needs it no more.
        Err(error) if is_damage(&error) || matches!(error, Error::Unsupported { .. }) => {
            return Ok(unreadable(&error));
        }
        Err(error) => return Err(error.into()),
    };
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().filter_map(|line| line.strip_prefix(LOST));
    let lost: Vec<String> = lines.map(str::to_string).collect();
    Ok(if lost.is_empty() { unreadable(&"it tells no loss") } else { lost })
}

fn content(vfs: &dyn Vfs, path: &Path) -> terrace_base::Result<Vec<u8>> {
    let file = vfs.open(path, OpenMode::default())?;
    check_not_encrypted(&*file)?;
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// A loss as one line.
pub(super) fn line(loss: &str) -> String {
    loss.replace(['\n', '\r'], " ")
}

/// Puts `lost` in the place of what stood there; durable when this returns.
pub(super) fn write(vfs: &dyn Vfs, dir: &Path, lost: &[String]) -> Result<()> {
    let folder = names::lost_dir(dir);
    vfs.create_dir_all(&folder)?;
    vfs.sync_dir(dir)?;
    let temp = names::rewrite_path(&folder);
    if vfs.exists(&temp)? {
        vfs.remove(&temp)?;
    }
    let mut file = vfs.create(&temp, &CreateOptions::default())?;
    file.append(HEAD.as_bytes())?;
    for loss in lost {
        file.append(format!("{LOST}{}\n", line(loss)).as_bytes())?;
    }
    file.finish()?;
    file.sync()?;
    drop(file);
    vfs.rename(&temp, &folder.join(NAME))?;
    Ok(vfs.sync_dir(&folder)?)
}

/// Gives the report, if there is one, the name of those that have been told.
pub(super) fn end(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let folder = names::lost_dir(dir);
    let path = folder.join(NAME);
    if !vfs.exists(&path)? {
        return Ok(());
    }
    let name_of = |number: u64| format!("{NAME}.{number}");
    let number_of = |name: String| {
        let number = u64::from(name.strip_prefix(NAME)?.strip_prefix('.')?.parse::<u32>().ok()?);
        (name_of(number) == name).then_some(number)
    };
    let told: Vec<u64> = vfs.list(&folder)?.into_iter().filter_map(number_of).collect();
    let next = told.iter().max().map_or(1, |last| last + 1);
    vfs.rename(&path, &folder.join(name_of(next)))?;
    for old in told.into_iter().filter(|number| number + KEPT <= next) {
        vfs.remove(&folder.join(name_of(old)))?;
    }
    Ok(vfs.sync_dir(&folder)?)
}
