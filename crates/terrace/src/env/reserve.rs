//! The reserve file: room that is given back when the disk is full, so that deletions, the manifest,
//! and flushes and compactions that free room can be written, and a full disk can be opened. Best
//! effort: a store works without it. But an open of a store that has no room for all of it lets through
//! only what removes: other writes would use up the rest, and then nothing could be removed any more.
//!
//! While the disk is full a part of it stays: background jobs would use up all that is given back,
//! and then no deletion could begin a log segment. Only the log and the manifest release that part.

use std::path::Path;
use terrace_base::Result;
use terrace_manifest::names;
use terrace_vfs::{CreateOptions, Vfs};

/// One part in this many of the reserve is for the log and the manifest alone.
const LOG_PART: u64 = 4;

/// Sets `bytes` of disk space aside as far as it is not done already, if there is room for all of them.
/// False if there is not: a file system that cannot set anything aside, and has the room, is not short of it.
pub(crate) fn take(vfs: &dyn Vfs, dir: &Path, bytes: u64) -> Result<bool> {
    let kept = kept_bytes(vfs, dir)?;
    if kept >= bytes {
        return Ok(true);
    }
    if kept.saturating_add(vfs.free_space_bytes(dir)?) < bytes {
        return Ok(false);
    }
    set_aside(vfs, dir, bytes)?;
    // What the file system says is free may be more than what can be had, as under a quota.
    if kept > 0 && kept_bytes(vfs, dir)? < kept {
        set_aside(vfs, dir, kept)?;
    }
    Ok(kept_bytes(vfs, dir)?.saturating_add(vfs.free_space_bytes(dir)?) >= bytes)
}

/// Sets `bytes` aside in the place of what is, if there is room and the file system can; else nothing.
fn set_aside(vfs: &dyn Vfs, dir: &Path, bytes: u64) -> Result<()> {
    release(vfs, dir)?;
    let options = CreateOptions { preallocate_bytes: bytes, ..CreateOptions::default() };
    match vfs.create(&names::reserve_path(dir), &options) {
        // The log, the house thread and jobs all set it aside again: another one may have been faster.
        Err(error) if !error.is_no_space() && !error.is_already_there() => Err(error),
        _ => Ok(()),
    }
}

/// What is set aside.
pub(crate) fn kept_bytes(vfs: &dyn Vfs, dir: &Path) -> Result<u64> {
    match vfs.len(&names::reserve_path(dir)) {
        Err(error) if error.is_not_found() => Ok(0),
        kept => kept,
    }
}

/// Free bytes, with what is set aside; `u64::MAX` if it is unknown how much is free.
pub(crate) fn room_bytes(vfs: &dyn Vfs, dir: &Path) -> u64 {
    let free = vfs.free_space_bytes(dir).unwrap_or(u64::MAX);
    free.saturating_add(kept_bytes(vfs, dir).unwrap_or(0))
}

/// Gives back what background jobs may use of a reserve of `reserve_bytes`. Of a reserve that the log
/// or the manifest has used, half of the room that is left is set aside for them again.
pub(crate) fn keep_for_log(vfs: &dyn Vfs, dir: &Path, reserve_bytes: u64) -> Result<()> {
    let part_bytes = reserve_bytes / LOG_PART;
    if (1..=part_bytes).contains(&kept_bytes(vfs, dir)?) {
        return Ok(());
    }
    release(vfs, dir)?;
    take(vfs, dir, part_bytes.min(vfs.free_space_bytes(dir)? / 2)).map(drop)
}

/// As `write`; if there is no room for it, once more with the room of the reserve.
pub(crate) fn with_reserve<T>(
    vfs: &dyn Vfs,
    dir: &Path,
    reserve_bytes: u64,
    mut write: impl FnMut() -> Result<T>,
) -> Result<T> {
    match write() {
        Err(error) if error.is_no_space() && !error.is_failed_sync() && release(vfs, dir)? => {
            let written = write();
            // What was written stays written without a reserve.
            let _best_effort = keep_for_log(vfs, dir, reserve_bytes);
            written
        }
        written => written,
    }
}

/// Gives the space back; false if there was none.
pub(crate) fn release(vfs: &dyn Vfs, dir: &Path) -> Result<bool> {
    match vfs.remove(&names::reserve_path(dir)) {
        Ok(()) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use terrace_vfs::SimVfs;

    const DIR: &str = "/db";
    const RESERVE: u64 = 8000;

    fn full_disk(used_bytes: u64) -> SimVfs {
        let sim = SimVfs::new(1);
        sim.create_dir_all(Path::new(DIR)).unwrap();
        take(&sim, Path::new(DIR), RESERVE).unwrap();
        sim.write_file(path("data"), vec![1; used_bytes as usize]);
        sim.set_capacity_bytes(Some(used_bytes + RESERVE));
        sim
    }

    fn path(name: &str) -> PathBuf {
        Path::new(DIR).join(name)
    }

    fn free(sim: &SimVfs) -> u64 {
        sim.free_space_bytes(Path::new(DIR)).unwrap()
    }

    fn eat(sim: &SimVfs, name: &str, bytes: u64) -> Result<()> {
        let mut file = sim.create(&path(name), &CreateOptions::default())?;
        file.append(&vec![0; bytes as usize]).inspect_err(|_| sim.remove(&path(name)).unwrap())
    }

    #[test]
    fn jobs_get_most_of_the_reserve_and_the_log_the_rest() {
        let sim = full_disk(1000);
        assert_eq!(free(&sim), 0);
        // As often as somebody looks for room.
        for _ in 0..3 {
            keep_for_log(&sim, Path::new(DIR), RESERVE).unwrap();
            assert_eq!(free(&sim), RESERVE * 3 / 4);
        }
        eat(&sim, "job", RESERVE * 3 / 4).unwrap();
        assert!(eat(&sim, "another job", 1).unwrap_err().is_no_space());
        keep_for_log(&sim, Path::new(DIR), RESERVE).unwrap();
        // The log gets what it needs, again and again, and half of the rest is kept each time.
        for (name, left) in [("1.log", 1900), ("2.log", 1800)] {
            let mut tries = 0;
            let written = with_reserve(&sim, Path::new(DIR), RESERVE, || {
                tries += 1;
                eat(&sim, name, 100)
            });
            written.unwrap();
            if name == "1.log" {
                assert_eq!((tries, free(&sim)), (2, left / 2));
            }
        }
        assert!(with_reserve(&sim, Path::new(DIR), RESERVE, || eat(&sim, "3.log", 9000)).is_err());
    }

    #[test]
    fn without_room_nothing_is_set_aside_until_there_is_some() {
        let sim = full_disk(0);
        release(&sim, Path::new(DIR)).unwrap();
        eat(&sim, "job", RESERVE).unwrap();
        keep_for_log(&sim, Path::new(DIR), RESERVE).unwrap();
        assert!(!take(&sim, Path::new(DIR), RESERVE).unwrap());
        sim.remove(&path("job")).unwrap();
        keep_for_log(&sim, Path::new(DIR), RESERVE).unwrap();
        assert_eq!(free(&sim), RESERVE * 3 / 4);
        assert!(keep_for_log(&sim, Path::new(DIR), 0).is_ok());
    }

    #[test]
    fn a_reserve_that_is_short_is_made_whole_when_there_is_room() {
        let (sim, dir) = (full_disk(1000), Path::new(DIR));
        keep_for_log(&sim, dir, RESERVE).unwrap();
        eat(&sim, "job", RESERVE / 2).unwrap();
        assert!(!take(&sim, dir, RESERVE).unwrap());
        // What was kept is not given up for that.
        assert_eq!(kept_bytes(&sim, dir).unwrap(), RESERVE / LOG_PART);
        sim.remove(&path("job")).unwrap();
        for _ in 0..2 {
            assert!(take(&sim, dir, RESERVE).unwrap());
            assert_eq!((kept_bytes(&sim, dir).unwrap(), free(&sim)), (RESERVE, 0));
        }
        assert!(take(&sim, dir, 0).unwrap());
        assert!(!take(&sim, dir, RESERVE + 1).unwrap());
    }

    /// As under a quota: what is free is not what can be had.
    #[test]
    fn what_is_kept_stays_where_more_cannot_be_had() {
        let (sim, dir) = (full_disk(1000), Path::new(DIR));
        keep_for_log(&sim, dir, RESERVE).unwrap();
        eat(&sim, "job", RESERVE / 2).unwrap();
        sim.hide_free_space();
        for _ in 0..2 {
            take(&sim, dir, RESERVE).unwrap();
            assert_eq!(kept_bytes(&sim, dir).unwrap(), RESERVE / LOG_PART);
        }
        sim.remove(&path("job")).unwrap();
        assert!(take(&sim, dir, RESERVE).unwrap());
        assert_eq!(kept_bytes(&sim, dir).unwrap(), RESERVE);
    }
}
