//! What stands under the name of a file of the store and is something else: a directory, a named pipe, a link to nothing, a segment
//! with the number of another one, or one with which the log of another store begins. The repair goes on as if it were not there, and
//! moves it to `lost/`.
//!
//! A segment that the log in force may need stays until the log is replayed, which passes over it: an open refuses it until
//! then, and would else take the hole for the end of the log. Everything else goes before that.

use super::base::Proof;
use super::{Repair, unended};
use crate::error::Result;
use crate::open::recover;
use crate::version::file_numbers::FileNumbers;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use terrace_base::{Error, SegmentNumber};
use terrace_log::Links;
use terrace_manifest::ManifestState;
use terrace_manifest::evidence::Claims;
use terrace_manifest::names::{self, FileName};
use terrace_manifest::renamed::{is_missing_log, is_renamed};
use terrace_vfs::{OpenMode, is_no_file};

pub(super) use crate::open::orphans::MISPLACED;

/// The names of such files.
#[derive(Default)]
pub(super) struct Misplaced {
    /// Nothing reads them.
    pub absent: BTreeSet<String>,
    /// Segments of the log in force that are other segments: the replay passes over them.
    pub in_log: BTreeSet<String>,
}

/// What stands under a name.
enum Standing {
    NoFile(&'static str),
    Segment(SegmentNumber),
    OfAnotherStore,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile(what) => f.write_str(what),
            Self::Segment(number) => write!(f, "segment {number}"),
            Self::OfAnotherStore => f.write_str("a segment of another store"),
        }
    }
}

/// What stands under a name that is in the directory, if that cannot be opened since it is no file.
fn no_file(error: &Error) -> Option<Standing> {
    match error {
        error if is_no_file(error) => Some(Standing::NoFile("no regular file")),
        error if error.is_not_found() => Some(Standing::NoFile("a link to nothing")),
        _ => None,
    }
}

impl Repair<'_> {
    /// Looks for such files among the files of the directory, `listing`, and the `others` in it; tells of them. Unless the
    /// manifest is whole nothing tells with which segment the log begins.
    pub(super) fn find_misplaced(
        &mut self,
        (listing, others): (&[String], &[String]),
        (state, proof): (&ManifestState, Proof),
        numbers: &FileNumbers,
    ) {
        let oldest = state.oldest_log_segment();
        let is_own = |name: &&String| {
            let is_other = matches!(names::parse(name), FileName::Other | FileName::Lock);
            !is_other && !numbers.is_foreign_name(name)
        };
        let directories = others.iter().map(|name| (name, Standing::NoFile("a directory")));
        let directories = directories.filter(|(name, _)| is_own(name));
        let files = listing.iter().filter(is_own);
        let files = files.filter_map(|name| Some((name, self.standing(name)?)));
        // Neither does one that a repair has put in force which did not end.
        let reported = unended::read(&*self.vfs, self.dir);
        let is_whole = proof == Proof::Whole && reported.is_ok_and(|lost| lost.is_empty());
        let segments = match is_whole {
            true => recover::segments_in(self.dir, listing, state, numbers),
            false => Vec::new(),
        };
        let strays: Vec<String> = recover::of_another_store(&*self.vfs, &segments, state)
            .into_iter()
            .map(|number| format!("{number:06}.log"))
            .collect();
        let strays = strays.iter().map(|name| (name, Standing::OfAnotherStore));
        let found: Vec<(&String, Standing)> = directories.chain(files).chain(strays).collect();
        if found.is_empty() {
            return;
        }
        let found_names: BTreeSet<&String> = found.iter().map(|(name, _)| *name).collect();
        let left: Vec<String> =
            listing.iter().filter(|name| !found_names.contains(name)).cloned().collect();
        let left = recover::segments_in(self.dir, &left, state, numbers);
        let links = Links::read(&*self.vfs, &left);
        for (name, standing) in found {
            let in_log = match names::parse(name) {
                FileName::Log(number) if number >= oldest => {
                    Some(number).filter(|number| !state.segments.contains_key(number))
                }
                _ => None,
            };
            let is_segment = matches!(standing, Standing::Segment(_));
            let text = format!("{name} is {standing}, and moves to lost/ as {name}{MISPLACED}");
            match (in_log, &standing) {
                // A segment that is another one is a gap of the log, and told with it.
                (Some(number), Standing::NoFile(_)) if !links.passed_over(number) => {
                    self.lost(format!("log segment {number}: {text}"));
                }
                _ => self.note(text),
            }
            let Misplaced { absent, in_log: passed_over } = &mut self.misplaced;
            let names = if is_segment && in_log.is_some() { passed_over } else { absent };
            names.insert(name.clone());
        }
    }

    /// Sets temporary files of `listing` aside that have the number of a file which is missing: one that `state` names, or the segment
    /// of the log of which `claims` tell. The next open would take them for unfinished.
    pub(super) fn set_renamed_aside(
        &mut self,
        (state, claims): (&ManifestState, &Claims),
        listing: &[String],
        aside: &mut Vec<(String, &'static str)>,
    ) {
        let (vfs, dir) = (self.vfs.clone(), self.dir);
        let proven = claims.log.segment;
        let lacks_proven =
            proven >= state.oldest_log_segment() && is_missing_log(&*vfs, dir, proven);
        for name in listing {
            let is_proven = lacks_proven && names::temp_number(name) == Some(proven.file());
            if is_proven || is_renamed(&*vfs, dir, state, name) {
                self.note(format!(
                    "{name} has the number of a file that is missing: give it its name back if it is that one; it moves to \
                     lost/ as {name}{MISPLACED}"
                ));
                self.misplaced.absent.insert(name.clone());
                aside.push((name.clone(), MISPLACED));
            }
        }
    }

    /// What stands under the name of a file, if that is something else. What cannot be read is met by those who need it.
    fn standing(&self, name: &str) -> Option<Standing> {
        let path = self.dir.join(name);
        let (FileName::Log(number) | FileName::ValueLog(number)) = names::parse(name) else {
            return no_file(&self.vfs.open(&path, OpenMode::default()).err()?);
        };
        match terrace_log::read_header_around_loss(&*self.vfs, &path) {
            Ok(Ok(header)) if header.segment != number => Some(Standing::Segment(header.segment)),
            Err(error) => no_file(&error),
            _ => None,
        }
    }

    /// Whether the file at `path` is there, and is what its name says.
    pub(super) fn is_there(&self, path: &Path) -> Result<bool> {
        Ok(!self.is_misplaced(path) && self.vfs.exists(path)?)
    }

    /// Whether the file at `path` is something else.
    pub(super) fn is_misplaced(&self, path: &Path) -> bool {
        let Misplaced { absent, in_log } = &self.misplaced;
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| absent.contains(name) || in_log.contains(name))
    }

    /// Whether the new manifest cannot be put in force before the file `name` is moved: it is in the way, or, if the repair is cut
    /// short then, an open takes it for an unfinished one, since no manifest names the file any more that it is.
    pub(super) fn is_in_the_way(&self, name: &str) -> bool {
        let kind = names::parse(name);
        self.misplaced.absent.contains(name) && matches!(kind, FileName::Current | FileName::Temp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write::log_segments::next_segment;
    use crate::{Db, Options, RepairOptions};
    use std::sync::Arc;
    use terrace_vfs::{SimVfs, Vfs};

    const KEYS: [&str; 3] = ["first", "second", "third"];

    fn options(sim: &SimVfs) -> Options {
        let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
        options.advanced.vfs = Arc::new(sim.clone());
        options.advanced.reserve_bytes = 0;
        options.advanced.compact_when_idle = false;
        options
    }

    #[test]
    fn a_directory_with_a_number_that_the_log_passed_over_is_no_loss() {
        let (sim, dir) = (SimVfs::new(1), Path::new("/store"));
        let db = Db::open(dir, options(&sim)).unwrap();
        let env = &db.inner().commit;
        let next = env.versions.file_numbers.next().get();
        let [passed, begun, last] = [next, next + 1, next + 2].map(SegmentNumber::new);
        sim.create_dir_all(&names::log_path(dir, passed)).unwrap();
        for key in KEYS {
            db.put(key, "value").unwrap();
            if key != KEYS[2] {
                let lead = env.queue().unwrap().lead();
                next_segment(env, &mut lead.log()).unwrap();
            }
        }
        db.sync().unwrap();
        // Nor for those who open the store as it is.
        let image = sim.kill_image();
        for opened in [Db::open_read_only(dir, options(&image)), Db::open(dir, options(&image))] {
            let opened = opened.unwrap();
            for key in KEYS {
                assert_eq!(opened.get(key).unwrap().as_deref(), Some(&b"value"[..]), "{key}");
            }
        }
        let repair =
            |image: &SimVfs| crate::repair(dir, options(image), RepairOptions::default()).unwrap();
        let image = sim.kill_image();
        let report = repair(&image);
        assert!(report.lost.is_empty(), "{report:?}");
        let is_told = |note: &String| note.contains("is a directory, and moves to lost/");
        assert!(report.notes.iter().any(is_told), "{report:?}");
        assert!(!image.exists(&names::log_path(dir, passed)).unwrap());
        let after = Db::open(dir, options(&image)).unwrap();
        for key in KEYS {
            assert_eq!(after.get(key).unwrap().as_deref(), Some(&b"value"[..]), "{key}");
        }
        // In the place of one that the next one continues, or behind all that are left.
        for number in [begun, last] {
            let (image, path) = (sim.kill_image(), names::log_path(dir, number));
            image.remove(&path).unwrap();
            image.create_dir_all(&path).unwrap();
            let report = repair(&image);
            let told = format!("log segment {number}: {number:06}.log is a directory");
            assert!(report.lost.iter().any(|line| line.starts_with(&told)), "{report:?}");
        }
        // The header of the last one does not tell anything, and that of the one before it does.
        let image = sim.kill_image();
        assert!(image.corrupt(names::log_path(dir, last), 30, 0xff));
        let report = repair(&image);
        let is_named = |line: &String| line.contains(&format!("{passed:06}.log is a directory"));
        assert!(!report.lost.iter().any(is_named), "{report:?}");
        assert!(report.notes.iter().any(is_named), "{report:?}");
    }
}
