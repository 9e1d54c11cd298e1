//! The report of a repair that has not ended. From the moment at which the new manifest is in force a repair finds a sound
//! store: what one was about to tell that is killed then stands in the store, and the next one tells it.
//!
//! `lost/REPORT` is durable before a file of the store is replaced. Once the caller has the report it becomes
//! `lost/REPORT.N`, for the user: the engine does not read it again.

use crate::admin::checkpoint;
use crate::error::Result;
use std::path::{Path, PathBuf};
use terrace_base::Error;
use terrace_manifest::names;
use terrace_sst::is_damage;
use terrace_vfs::{CreateOptions, OpenMode, Vfs, check_not_encrypted, is_no_file};

const NAME: &str = "REPORT";

/// Reports of repairs that have ended are kept, the newest ones.
const KEPT: u64 = 16;

const HEAD: &str = "What a repair of this store could not save (REPORT: one that has not ended):\n";

/// What a line of the file begins with that tells a loss.
const LOST: &str = "LOST: ";

/// The losses that a repair was about to tell which has not ended. What cannot be read is one of them.
pub(super) fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Vec<String>> {
    Ok(match losses(vfs, dir)? {
        None => Vec::new(),
        Some(Ok(lost)) => lost,
        Some(Err(why)) => {
            vec![format!(
                "what an earlier repair told, which did not end: {NAME} cannot be read ({why})"
            )]
        }
    })
}

/// What the report says, if there is one, or why it says nothing.
fn losses(vfs: &dyn Vfs, dir: &Path) -> Result<Option<std::result::Result<Vec<String>, String>>> {
    let path = names::lost_dir(dir).join(NAME);
    if !vfs.exists(&path)? {
        return Ok(None);
    }
    let bytes = match content(vfs, &path) {
        Ok(bytes) => bytes,
        // A link to nothing.
        Err(error) if error.is_not_found() => return Ok(None),
        // Its key may be gone while the store needs it no more.
        Err(error)
            if is_damage(&error)
                || is_no_file(&error)
                || matches!(error, Error::Unsupported { .. }) =>
        {
            return Ok(Some(Err(error.to_string())));
        }
        Err(error) => return Err(error.into()),
    };
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().filter_map(|line| line.strip_prefix(LOST));
    let lost: Vec<String> = lines.map(str::to_string).collect();
    Ok(Some(if lost.is_empty() { Err("it tells no loss".into()) } else { Ok(lost) }))
}

/// The bytes of a file in `lost/` that a repair has written.
pub(super) fn content(vfs: &dyn Vfs, path: &Path) -> terrace_base::Result<Vec<u8>> {
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

/// Puts `lost` in the place of what stood there, which tells nothing else; durable when this returns. A report of which that is
/// not known, since it cannot be read, stays under another name.
pub(super) fn write(vfs: &dyn Vfs, dir: &Path, lost: &[String]) -> Result<()> {
    let folder = names::lost_dir(dir);
    let lines = lost.iter().map(|loss| format!("{LOST}{}\n", line(loss)));
    let temp = write_temp(vfs, dir, std::iter::once(HEAD.to_string()).chain(lines))?;
    if let Some(Err(_)) = losses(vfs, dir)? {
        // It keeps its name until the next one takes it: while there is none, a repair says that the store is sound.
        put_by(vfs, &folder, |from, to| match vfs.open(from, OpenMode::default()) {
            // What is no report protects nothing, and keeps the next one from the name.
            Err(error) if is_no_file(&error) => Ok(vfs.rename(from, to)?),
            _ => checkpoint::link_around_loss(vfs, from, to),
        })?;
    }
    vfs.rename(&temp, &folder.join(NAME))?;
    Ok(vfs.sync_dir(&folder)?)
}

/// Writes a file in `lost/` that is about to get its name, durable but for that; gives its path.
pub(super) fn write_temp(
    vfs: &dyn Vfs,
    dir: &Path,
    lines: impl IntoIterator<Item = String>,
) -> Result<PathBuf> {
    let folder = names::lost_dir(dir);
    vfs.create_dir_all(&folder)?;
    vfs.sync_dir(dir)?;
    let temp = names::rewrite_path(&folder);
    if vfs.exists(&temp)? {
        vfs.remove(&temp)?;
    }
    let mut file = vfs.create(&temp, &CreateOptions::default())?;
    for line in lines {
        file.append(line.as_bytes())?;
    }
    file.finish()?;
    file.sync()?;
    Ok(temp)
}

/// Gives the report, if there is one, the name of those that have been told.
pub(super) fn end(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let folder = names::lost_dir(dir);
    match vfs.exists(&folder.join(NAME))? {
        true => put_by(vfs, &folder, |from, to| Ok(vfs.rename(from, to)?)),
        false => Ok(()),
    }
}

/// Gives the report, as `give` does it, a number that nothing has, behind those of earlier ones, of which only the newest stay.
fn put_by(
    vfs: &dyn Vfs,
    folder: &Path,
    give: impl FnOnce(&Path, &Path) -> Result<()>,
) -> Result<()> {
    let name_of = |number: u64| format!("{NAME}.{number}");
    let number_of = |name: String| {
        let number = u64::from(name.strip_prefix(NAME)?.strip_prefix('.')?.parse::<u32>().ok()?);
        (name_of(number) == name).then_some(number)
    };
    let told: Vec<u64> = vfs.list(folder)?.into_iter().filter_map(number_of).collect();
    let mut next = told.iter().max().map_or(1, |last| last + 1);
    // Of a directory, or past all numbers that are read.
    while vfs.exists(&folder.join(name_of(next)))? {
        next += 1;
    }
    give(&folder.join(NAME), &folder.join(name_of(next)))?;
    for old in told.into_iter().filter(|number| number + KEPT <= next) {
        vfs.remove(&folder.join(name_of(old)))?;
    }
    Ok(vfs.sync_dir(folder)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_vfs::SimVfs;

    fn path(name: &str) -> std::path::PathBuf {
        names::lost_dir(Path::new("/db")).join(name)
    }

    #[test]
    fn a_report_that_cannot_be_read_stays_beside_the_next() {
        let (sim, dir) = (SimVfs::new(1), Path::new("/db"));
        sim.create_dir_all(dir).unwrap();
        write(&sim, dir, &["one".into()]).unwrap();
        write(&sim, dir, &["one".into(), "two".into()]).unwrap();
        assert_eq!(sim.list(&names::lost_dir(dir)).unwrap(), [NAME]);
        assert!(sim.write_file(path(NAME), b"what is left of it"));
        write(&sim, dir, &["three".into()]).unwrap();
        assert_eq!(read(&sim, dir).unwrap(), ["three"]);
        assert_eq!(sim.read_file(path("REPORT.1")).unwrap(), b"what is left of it");
    }

    #[test]
    fn a_report_that_cannot_be_read_is_told_of_until_the_next_has_its_place() {
        let dir = Path::new("/db");
        let (mut calls, mut ended) = (0, false);
        while !ended {
            let sim = SimVfs::new(1);
            sim.create_dir_all(dir).unwrap();
            write(&sim, dir, &["one".into()]).unwrap();
            assert!(sim.write_file(path(NAME), b"what is left of it"));
            sim.crash_after(sim.op_count() + calls);
            ended = write(&sim, dir, &["two".into()]).is_ok();
            let told = read(&sim.kill_image(), dir).unwrap();
            assert_eq!(told.len(), 1, "killed at call {calls}: {told:?}");
            assert_eq!(told == ["two"], !told[0].contains("cannot be read"), "{told:?}");
            calls += 1;
        }
        assert!(calls > 8, "{calls}");
    }

    #[test]
    fn a_directory_in_the_place_of_a_report_makes_way() {
        let (sim, dir) = (SimVfs::new(1), Path::new("/db"));
        sim.create_dir_all(&path(NAME).join("in it")).unwrap();
        let told = read(&sim, dir).unwrap();
        assert!(told.len() == 1 && told[0].contains("cannot be read"), "{told:?}");
        write(&sim, dir, &["one".into()]).unwrap();
        assert_eq!(read(&sim, dir).unwrap(), ["one"]);
        assert!(sim.exists(&path("REPORT.1").join("in it")).unwrap());
    }

    #[test]
    fn no_report_takes_the_place_of_something_else() {
        let (sim, dir) = (SimVfs::new(1), Path::new("/db"));
        sim.create_dir_all(&path("REPORT.1")).unwrap();
        assert!(sim.write_file(path("REPORT.4294967295"), b"the last one"));
        let told = ["one", "two", "three"];
        for loss in told {
            write(&sim, dir, &[loss.into()]).unwrap();
            end(&sim, dir).unwrap();
            assert_eq!(read(&sim, dir).unwrap(), [""; 0]);
        }
        for (loss, number) in told.iter().zip(4_294_967_296_u64..) {
            let kept = sim.read_file(path(&format!("REPORT.{number}"))).unwrap();
            assert!(String::from_utf8(kept).unwrap().contains(loss), "{number}");
        }
        assert!(sim.exists(&path("REPORT.4294967295")).unwrap());
        sim.remove(&path("REPORT.4294967295")).unwrap();
        write(&sim, dir, &["four".into()]).unwrap();
        end(&sim, dir).unwrap();
        assert!(sim.exists(&path("REPORT.2")).unwrap(), "a directory has the first name");
    }
}
