//! What a repair takes back from `lost/`, and which SSTs these are until it has ended: they fill gaps only ([`super::found`]), and
//! under their own names nothing tells them from what the store has written since.
//!
//! `lost/FOUND` is durable before the first of them has its name again: a line for each, its name and its bytes. It goes when a
//! repair has ended: then the manifest in force names every SST under such a name. That manifest makes it void ([`super::merged`]).
//! What stands in its place and is no file moves aside. A list that takes the place of one which cannot be read has a line that says so:
//! until a repair has told it, the next one would take what that list had for SSTs that were written since.

use super::Repair;
use super::base::is_loss;
use super::misplaced::MISPLACED;
use super::{check_key, unended};
use crate::error::Result;
use crate::open::orphans;
use std::collections::HashSet;
use std::path::Path;
use terrace_base::{Error, FileNumber};
use terrace_manifest::names::{self, FileName};
use terrace_vfs::{OpenMode, Vfs, is_no_file};

const NAME: &str = "FOUND";

/// Stands for what was in a list that cannot be read.
const UNREADABLE: &str = "an earlier list cannot be read";

/// What the list says.
#[derive(Debug, Default, PartialEq, Eq)]
struct List {
    /// The SSTs in it that stand in the store's directory again.
    known: HashSet<FileNumber>,
    /// Why that is not all, if it is not.
    unknown: Option<String>,
}

impl Repair<'_> {
    /// Reads which SSTs a repair that did not end has taken back.
    pub(super) fn recall_taken_back(&mut self) -> Result<()> {
        let List { known, unknown } = read(&*self.vfs, self.dir)?;
        (self.taken_back, self.taken_back_unknown) = (known, unknown);
        Ok(())
    }

    /// SSTs are taken in that may have been written since or taken back: tells, once, that the list which says it cannot be read.
    pub(super) fn tell_taken_back_unknown(&mut self) {
        if let Some(why) = self.taken_back_unknown.take() {
            self.lost(format!(
                "which SSTs a repair that did not end has taken back from lost/ ({why}): of keys that were written again since \
                 they were lost, the earlier values may show"
            ));
        }
    }

    /// Takes SSTs and segments from `lost/` back under their names, if these are free. Segments stay there too, unless there are
    /// neither hard links nor room for copies: an open deletes those that no SST turns out to refer to.
    pub(super) fn take_back(&mut self) -> Result<()> {
        use FileName::{Log, Sst, ValueLog};
        let lost = names::lost_dir(self.dir);
        if !self.vfs.exists(&lost)? {
            return Ok(());
        }
        let (mut found, mut is_any_sst) = (Vec::new(), false);
        for name in self.vfs.list(&lost)? {
            let parsed = names::parse(&name);
            let is_data = matches!(parsed, Sst(_) | Log(_) | ValueLog(_));
            if !is_data || self.vfs.exists(&self.dir.join(&name))? {
                continue;
            }
            // Before anything moves: with it in the store's directory no repair would begin without the key.
            check_key(&*self.vfs, &lost.join(&name))?;
            if let Sst(number) = parsed {
                self.taken_back.insert(number);
                is_any_sst = true;
            }
            found.push(name);
        }
        if is_any_sst {
            let is_whole = self.taken_back_unknown.is_none();
            write(&*self.vfs, self.dir, &self.taken_back, is_whole)?;
        }
        for name in found {
            let (from, to) = (lost.join(&name), self.dir.join(&name));
            let is_sst = matches!(names::parse(&name), Sst(_));
            if is_sst || !self.give_too(&from, &to)? {
                self.vfs.rename(&from, &to)?;
            }
            self.saved(format!("{name}: taken back from lost/"));
        }
        self.vfs.sync_dir(self.dir)?;
        Ok(self.vfs.sync_dir(&lost)?)
    }
}

fn name_of(number: FileNumber) -> String {
    format!("{number:06}.sst")
}

/// The bytes of a file; `None` if there is none.
pub(super) fn size_bytes(vfs: &dyn Vfs, path: &Path) -> Result<Option<u64>> {
    match vfs.len(path) {
        Err(error) if is_loss(&error) => Ok(None),
        size => Ok(Some(size?)),
    }
}

/// Reads the list, if there is one.
fn read(vfs: &dyn Vfs, dir: &Path) -> Result<List> {
    let path = names::lost_dir(dir).join(NAME);
    let unknown = |why: String| Ok(List { unknown: Some(why), ..List::default() });
    if !vfs.exists(&path)? {
        return Ok(List::default());
    }
    let bytes = match unended::content(vfs, &path) {
        Ok(bytes) => bytes,
        // A link to nothing.
        Err(error) if error.is_not_found() => return Ok(List::default()),
        // Its key may be gone while the store needs it no more.
        Err(error) if is_loss(&error) || matches!(error, Error::Unsupported { .. }) => {
            return unknown(error.to_string());
        }
        Err(error) => return Err(error.into()),
    };
    let mut list = List::default();
    for line in String::from_utf8_lossy(&bytes).lines() {
        if line == UNREADABLE {
            list.unknown = Some(format!("{NAME} in it: {UNREADABLE}"));
            continue;
        }
        let listed = line.split_once(' ').and_then(|(name, size)| match names::parse(name) {
            FileName::Sst(number) => Some((number, size.parse::<u64>().ok()?)),
            _ => None,
        });
        let Some((number, size)) = listed else {
            return unknown(format!("{NAME} in it is damaged"));
        };
        // One that never got its name back may have left it to another file.
        if size_bytes(vfs, &dir.join(name_of(number)))? == Some(size) {
            list.known.insert(number);
        }
    }
    Ok(list)
}

/// Puts a list of `numbers` in the place of an earlier one; durable when this returns. They are in `dir` or in `lost/`.
/// `is_whole`: the earlier one could be read, and what it had is among them.
fn write(vfs: &dyn Vfs, dir: &Path, numbers: &HashSet<FileNumber>, is_whole: bool) -> Result<()> {
    let folder = names::lost_dir(dir);
    let mut lines = Vec::new();
    if !is_whole {
        lines.push(format!("{UNREADABLE}\n"));
    }
    for number in numbers {
        let name = name_of(*number);
        let size = match size_bytes(vfs, &dir.join(&name))? {
            None => size_bytes(vfs, &folder.join(&name))?,
            size => size,
        };
        if let Some(size) = size {
            lines.push(format!("{name} {size}\n"));
        }
    }
    let temp = unended::write_temp(vfs, dir, lines)?;
    make_way(vfs, dir, NAME)?;
    vfs.rename(&temp, &folder.join(NAME))?;
    Ok(vfs.sync_dir(&folder)?)
}

/// Moves what stands in the place of list `name` and is no file to another name in `lost/`.
pub(super) fn make_way(vfs: &dyn Vfs, dir: &Path, name: &str) -> Result<()> {
    let folder = names::lost_dir(dir);
    let path = folder.join(name);
    if vfs.open(&path, OpenMode::default()).is_err_and(|error| is_no_file(&error)) {
        let aside = orphans::free_name(vfs, dir, &format!("{name}{MISPLACED}"))?;
        vfs.rename(&path, &aside)?;
        vfs.sync_dir(&folder)?;
    }
    Ok(())
}

/// Removes the list: the repair has ended.
pub(super) fn end(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let folder = names::lost_dir(dir);
    let path = folder.join(NAME);
    make_way(vfs, dir, NAME)?;
    if vfs.exists(&path)? {
        vfs.remove(&path)?;
        vfs.sync_dir(&folder)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_vfs::SimVfs;

    fn known(sim: &SimVfs, dir: &Path) -> HashSet<FileNumber> {
        let List { known, unknown } = read(sim, dir).unwrap();
        assert_eq!(unknown, None);
        known
    }

    #[test]
    fn what_is_listed_and_stands_there_was_taken_back() {
        let (sim, dir) = (SimVfs::new(1), Path::new("/db"));
        let folder = names::lost_dir(dir);
        sim.create_dir_all(&folder).unwrap();
        let numbers: HashSet<FileNumber> = (7..10).map(FileNumber::new).collect();
        assert!(sim.write_file(dir.join("000007.sst"), b"here by now"));
        assert!(sim.write_file(folder.join("000008.sst"), b"there still"));
        assert!(sim.write_file(folder.join("000009.sst"), b"there"));
        write(&sim, dir, &numbers, true).unwrap();
        assert!(sim.write_file(dir.join("000009.sst"), b"another file"));
        assert_eq!(known(&sim, dir), HashSet::from([FileNumber::new(7)]));
        sim.rename(&folder.join("000008.sst"), &dir.join("000008.sst")).unwrap();
        assert_eq!(known(&sim, dir).len(), 2);
        assert!(sim.write_file(folder.join(NAME), b"what is left of it"));
        assert!(read(&sim, dir).unwrap().unknown.unwrap().contains("damaged"));
        end(&sim, dir).unwrap();
        assert_eq!(read(&sim, dir).unwrap(), List::default());
        end(&sim, dir).unwrap();
    }

    #[test]
    fn what_an_unreadable_list_had_stays_unknown_beside_the_next() {
        let (sim, dir) = (SimVfs::new(1), Path::new("/db"));
        sim.create_dir_all(dir).unwrap();
        assert!(sim.write_file(dir.join("000007.sst"), b"here"));
        let numbers = HashSet::from([FileNumber::new(7)]);
        write(&sim, dir, &numbers, false).unwrap();
        let list = read(&sim, dir).unwrap();
        assert_eq!(list.known, numbers);
        assert!(list.unknown.unwrap().contains("cannot be read"));
    }

    #[test]
    fn what_stands_in_the_place_of_the_list_and_is_no_file_makes_way() {
        let (sim, dir) = (SimVfs::new(1), Path::new("/db"));
        let folder = names::lost_dir(dir);
        let number = FileNumber::new(7);
        assert!(sim.write_file(dir.join("000007.sst"), b"here"));
        for aside in ["FOUND.misplaced", "FOUND.misplaced.1"] {
            sim.create_dir_all(&folder.join(NAME).join("in it")).unwrap();
            assert!(read(&sim, dir).unwrap().unknown.is_some());
            match aside {
                "FOUND.misplaced" => end(&sim, dir).unwrap(),
                _ => write(&sim, dir, &HashSet::from([number]), true).unwrap(),
            }
            assert!(sim.exists(&folder.join(aside).join("in it")).unwrap(), "{aside}");
        }
        assert_eq!(known(&sim, dir), HashSet::from([number]));
    }
}
