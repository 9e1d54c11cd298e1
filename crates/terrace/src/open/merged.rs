//! SSTs that no longer count, since the manifest of a repair is in force that has merged them or written them anew.
//!
//! `lost/MERGED` lists them from before that manifest is in force until they have moved to `lost/`. Its first line has the name of
//! the manifest and a checksum; of the lines behind it each has the name of an SST, its bytes, and what is added to the name in
//! `lost/`. While the manifest is in force what is listed and stands in the store's directory has nothing to add: taken in again, it
//! would bring back what was deleted. It moves before a next manifest is written, by an open for writing or by a repair; by a store
//! that was opened on a disk without room for that, when there is some. Beside any other manifest the list says nothing: the repair
//! was cut short before its own was in force. Where CURRENT is lost, that is known if its own is not there and never was in force.

use crate::event;
use crate::open::orphans;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;
use terrace_base::checksum::crc32c;
use terrace_base::{Error, FileNumber, Result};
use terrace_manifest::names::{self, FileName};
use terrace_manifest::{Manifest, current, evidence};
use terrace_sst::is_damage;
use terrace_vfs::{OpenMode, Vfs, check_not_encrypted, is_no_file};

pub(crate) const NAME: &str = "MERGED";

/// What the list says of the store as it stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Merged {
    /// There is none.
    NoList,
    /// Nothing: its manifest is not in force.
    Void,
    /// Why that is not known.
    Unknown(String),
    /// These SSTs do not count and have not moved.
    Left(Vec<Listed>),
}

/// An SST in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub number: FileNumber,
    pub size_bytes: u64,
    /// What is added to its name in `lost/`.
    pub suffix: String,
}

/// The list that goes with manifest `manifest`.
pub(crate) fn encode(manifest: u64, files: &[Listed]) -> String {
    let line = |file: &Listed| {
        let Listed { number, size_bytes, suffix } = file;
        format!("{number:06}.sst {size_bytes} {suffix}\n")
    };
    let lines = files.iter().map(line).collect::<Vec<_>>().concat();
    let name = names::manifest_name(manifest);
    format!("{name} {}\n{lines}", checksum(&name, &lines))
}

/// The manifest that a list goes with, and what is listed; `None` if it is not as it was written.
fn decode(bytes: &[u8]) -> Option<(u64, Vec<Listed>)> {
    let (head, lines) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
    let (name, sum) = head.split_once(' ')?;
    let FileName::Manifest(manifest) = names::parse(name) else { return None };
    if sum != checksum(name, lines) {
        return None;
    }
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let FileName::Sst(number) = names::parse(words.next()?) else { return None };
        let size_bytes = words.next()?.parse().ok()?;
        Some(Listed { number, size_bytes, suffix: words.next()?.to_string() })
    };
    let files: Option<Vec<Listed>> = lines.lines().map(parse).collect();
    Some((manifest, files?))
}

fn checksum(name: &str, lines: &str) -> String {
    format!("{:08x}", crc32c(&[name.as_bytes(), lines.as_bytes()]))
}

/// Looks at the list, and at what stands in `dir` of it. Writes nothing.
pub(crate) fn look(vfs: &dyn Vfs, dir: &Path) -> Result<Merged> {
    let bytes = match content(vfs, dir) {
        Ok(None) => return Ok(Merged::NoList),
        Err(error) if says_nothing(&error) || is_denied(&error) => {
            return Ok(Merged::Unknown(error.to_string()));
        }
        Ok(Some(bytes)) => bytes,
        Err(error) => return Err(error),
    };
    let Some((manifest, files)) = decode(&bytes) else {
        return Ok(Merged::Unknown(format!("{NAME} in it is damaged")));
    };
    match current::read(vfs, dir) {
        Ok(number) if number == manifest => {}
        Ok(_) => return Ok(Merged::Void),
        Err(error) if says_nothing(&error) && may_have_been_in_force(vfs, dir, manifest)? => {
            return Ok(Merged::Unknown(error.to_string()));
        }
        Err(error) if says_nothing(&error) => return Ok(Merged::Void),
        Err(error) => return Err(error),
    }
    let state = match Manifest::read(vfs, dir) {
        Ok(state) => state,
        Err(error) if says_nothing(&error) => return Ok(Merged::Unknown(error.to_string())),
        Err(error) => return Err(error),
    };
    let named = state.families.values().flat_map(|family| family.version.all_files());
    let named: HashSet<FileNumber> = named.map(|(_, file)| file.number).collect();
    let mut left = Vec::new();
    for file in files.into_iter().filter(|file| !named.contains(&file.number)) {
        let stands = match vfs.len(&names::sst_path(dir, file.number)) {
            Ok(size_bytes) => size_bytes == file.size_bytes,
            Err(error) if says_nothing(&error) => false,
            Err(error) => return Err(error),
        };
        if stands {
            left.push(file);
        }
    }
    Ok(Merged::Left(left))
}

/// Whether manifest `number` is there, or may have been: the evidence says that it or a newer one was in force, or cannot be read.
fn may_have_been_in_force(vfs: &dyn Vfs, dir: &Path, number: u64) -> Result<bool> {
    if vfs.exists(&names::manifest_path(dir, number))? {
        return Ok(true);
    }
    let is_older = |found: evidence::Evidence| found.claims.manifest.segment.get() < number;
    Ok(!evidence::read(vfs, dir).is_ok_and(is_older))
}

/// The bytes of the list, if there is one.
fn content(vfs: &dyn Vfs, dir: &Path) -> Result<Option<Vec<u8>>> {
    let path = names::lost_dir(dir).join(NAME);
    match vfs.exists(&path) {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        // What has the name of `lost/` is none.
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotADirectory => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    let file = match vfs.open(&path, OpenMode::default()) {
        // A link to nothing.
        Err(error) if error.is_not_found() => return Ok(None),
        file => file?,
    };
    check_not_encrypted(&*file)?;
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(0, &mut bytes)?;
    Ok(Some(bytes))
}

/// Whether a file is not there, is none, is damaged, or its key is gone.
fn says_nothing(error: &Error) -> bool {
    let is_locked = matches!(error, Error::Unsupported { .. });
    error.is_not_found() || is_no_file(error) || is_damage(error) || is_locked
}

/// Whether the rights are missing.
fn is_denied(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied)
}

/// Moves `left` to `lost/`; durable when this returns.
pub(crate) fn set_aside(vfs: &dyn Vfs, dir: &Path, left: &[Listed]) -> Result<()> {
    for Listed { number, suffix, .. } in left {
        let name = format!("{number:06}.sst");
        let target = orphans::free_name(vfs, dir, &format!("{name}{suffix}"))?;
        vfs.rename(&dir.join(&name), &target)?;
        event::set_aside(&name, &target, "a repair that did not end has written it anew");
    }
    if !left.is_empty() {
        vfs.sync_dir(&names::lost_dir(dir))?;
        vfs.sync_dir(dir)?;
    }
    Ok(())
}

/// Removes the list, if there is one.
pub(crate) fn end(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let lost = names::lost_dir(dir);
    let path = lost.join(NAME);
    if vfs.exists(&path)? {
        vfs.remove(&path)?;
        vfs.sync_dir(&lost)?;
    }
    Ok(())
}

/// Does what a repair has left to do that was cut short, before a store is opened for writing. What cannot be read is left to the
/// next repair.
pub(crate) fn settle(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    match look(vfs, dir)? {
        Merged::NoList | Merged::Unknown(_) => Ok(()),
        Merged::Void => end(vfs, dir),
        Merged::Left(left) => {
            set_aside(vfs, dir, &left)?;
            end(vfs, dir)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use terrace_base::SegmentNumber;
    use terrace_log::LogPosition;
    use terrace_manifest::evidence::{Claims, EvidenceFile};
    use terrace_vfs::SimVfs;

    const SST: &[u8] = b"of an SST";

    fn listed(number: u64) -> Listed {
        let number = FileNumber::new(number);
        Listed { number, size_bytes: SST.len() as u64, suffix: ".merged".into() }
    }

    /// A store that names no SST, with a list of 7 and 8 that goes with manifest `manifest`; the one in force is 1.
    fn store(manifest: u64) -> (SimVfs, &'static Path) {
        let (sim, dir) = (SimVfs::new(1), Path::new("/db"));
        sim.create_dir_all(dir).unwrap();
        drop(Manifest::create(Arc::new(sim.clone()), dir, 7).unwrap());
        let list = encode(manifest, &[listed(7), listed(8)]);
        assert!(sim.write_file(names::lost_dir(dir).join(NAME), list));
        (sim, dir)
    }

    #[test]
    fn what_is_listed_has_moved_when_the_list_has_gone_whenever_that_is_cut_short() {
        let (mut calls, mut ended) = (0, false);
        while !ended {
            let (sim, dir) = store(1);
            for number in [7, 9] {
                assert!(sim.write_file(names::sst_path(dir, FileNumber::new(number)), SST));
            }
            // Another file has that name by now.
            assert!(sim.write_file(names::sst_path(dir, FileNumber::new(8)), b"longer than it"));
            assert_eq!(look(&sim, dir).unwrap(), Merged::Left(vec![listed(7)]));
            sim.crash_after(sim.op_count() + calls);
            ended = settle(&sim, dir).is_ok();
            for (left, is_killed) in [(sim.kill_image(), true), (sim.crash_image(calls), false)] {
                let is_left = left.exists(&names::sst_path(dir, FileNumber::new(7))).unwrap();
                let has_list = left.exists(&names::lost_dir(dir).join(NAME)).unwrap();
                assert!(has_list || !is_left, "call {calls}");
                settle(&left, dir).unwrap();
                assert_eq!(look(&left, dir).unwrap(), Merged::NoList, "call {calls}");
                let stand = [7, 8, 9].map(|n| names::sst_path(dir, FileNumber::new(n)));
                let stand = stand.map(|path| left.exists(&path).unwrap());
                assert_eq!(stand, [false, true, true], "call {calls}");
                let aside = names::lost_dir(dir).join("000007.sst.merged");
                assert!(
                    !is_killed || left.read_file(aside).as_deref() == Some(SST),
                    "call {calls}"
                );
            }
            calls += 1;
        }
        assert!(calls > 3, "{calls}");
    }

    #[test]
    fn a_list_of_a_manifest_that_is_not_in_force_says_nothing_and_goes() {
        let (sim, dir) = store(2);
        let path = names::sst_path(dir, FileNumber::new(7));
        assert!(sim.write_file(&path, SST));
        assert_eq!(look(&sim, dir).unwrap(), Merged::Void);
        settle(&sim, dir).unwrap();
        assert_eq!(look(&sim, dir).unwrap(), Merged::NoList);
        assert!(sim.exists(&path).unwrap());
    }

    #[test]
    fn a_list_of_a_manifest_that_never_was_in_force_says_nothing_where_current_is_lost() {
        let without_current = |manifest| {
            let (sim, dir) = store(manifest);
            sim.remove(&names::current_path(dir)).unwrap();
            (sim, dir)
        };
        let (sim, dir) = without_current(2);
        assert_eq!(look(&sim, dir).unwrap(), Merged::Void);
        // It is lost as well.
        let manifest = LogPosition { segment: SegmentNumber::new(2), offset: 1 };
        let claims = Claims { store_id: 7, manifest, ..Claims::default() };
        drop(EvidenceFile::create(&sim, dir, 1, &claims).unwrap());
        assert!(matches!(look(&sim, dir).unwrap(), Merged::Unknown(_)));
        let (sim, dir) = without_current(1);
        assert!(matches!(look(&sim, dir).unwrap(), Merged::Unknown(_)));
    }

    #[test]
    fn a_list_in_which_any_byte_is_wrong_is_not_taken_for_another() {
        let (sim, dir) = store(1);
        let path = names::lost_dir(dir).join(NAME);
        let list = sim.read_file(&path).unwrap();
        assert_eq!(decode(&list), Some((1, vec![listed(7), listed(8)])));
        for at in 0..list.len() {
            let mut wrong = list.clone();
            wrong[at] ^= 1;
            assert_eq!(decode(&wrong), None, "byte {at}");
            assert_eq!(decode(&list[..at]), None, "cut at {at}");
        }
        assert!(sim.write_file(&path, &list[1..]));
        settle(&sim, dir).unwrap();
        assert!(matches!(look(&sim, dir).unwrap(), Merged::Unknown(_)));
    }
}
