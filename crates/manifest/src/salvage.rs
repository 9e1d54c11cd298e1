//! What is left of a manifest that cannot be read to its end, and putting another one in its place: for
//! `terrace repair`. A store is opened with [`Manifest::recover`], which never takes a part for the whole.

use crate::codec::{self, Malformed};
use crate::manifest::Manifest;
use crate::names;
use crate::state::{ManifestState, Replay};
use std::path::Path;
use std::sync::Arc;
use terrace_base::{Error, Result, SegmentNumber};
use terrace_log::{LogReader, RecordKind, Step};
use terrace_vfs::{Vfs, is_unreadable};

/// What is left of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Salvaged {
    /// The sum of the records before the damage.
    pub state: ManifestState,
    /// Where they end.
    pub end_bytes: u64,
    /// What is wrong there; `None` if the file ends.
    pub damage: Option<String>,
}

/// What manifest `number` in `dir` says up to its first damage, which may be a page that the device does not give; `None` if
/// that is nothing.
///
/// # Errors
/// I/O that is no damage; `Unsupported` for what only a later build can read.
pub fn salvage(vfs: &dyn Vfs, dir: &Path, number: u64) -> Result<Option<Salvaged>> {
    let path = names::manifest_path(dir, number);
    let (mut replay, end_bytes, end) = match read(vfs, &path, number, u64::MAX) {
        Err(error) if is_damage(&error) => return Ok(None),
        read => read?,
    };
    let damage = match end {
        End::Clean => None,
        End::Damaged(why) => Some(why),
        // Half of the record may be in the sum.
        End::Misfit(why) => {
            (replay, _, _) = read(vfs, &path, number, end_bytes)?;
            Some(why)
        }
    };
    let state = replay.finish().ok().flatten();
    Ok(state.map(|state| Salvaged { state, end_bytes, damage }))
}

/// Why the sum of a manifest ends.
enum End {
    /// Nothing follows.
    Clean,
    /// There is no sound record.
    Damaged(String),
    /// A sound record does not fit to those before it.
    Misfit(String),
}

/// Adds up the records before `until`, or before the first damage; says where they end, and why.
fn read(vfs: &dyn Vfs, path: &Path, number: u64, until: u64) -> Result<(Replay, u64, End)> {
    let mut reader = LogReader::open_around_loss(vfs, path, SegmentNumber::new(number))?;
    let mut replay = Replay::default();
    loop {
        let at = reader.position();
        if at >= until {
            return Ok((replay, at, End::Clean));
        }
        let record = match reader.next() {
            Ok(Step::Record(record)) if record.kind == RecordKind::Data => record,
            Ok(Step::Record(_)) => continue,
            Ok(Step::End { offset, torn }) => {
                return Ok((replay, offset, torn.map_or(End::Clean, End::Damaged)));
            }
            Err(error) if is_damage(&error) => {
                return Ok((replay, at, End::Damaged(error.to_string())));
            }
            Err(error) => return Err(error),
        };
        match codec::decode_record(record.payload) {
            Ok(record) => {
                if let Err(why) = replay.add(record) {
                    return Ok((replay, at, End::Misfit(why)));
                }
            }
            Err(malformed @ Malformed::Unknown(..)) => {
                let detail = format!("the record at offset {at} has an {malformed}");
                return Err(Error::Unsupported { path: path.to_path_buf(), detail });
            }
            Err(malformed) => return Ok((replay, at, End::Damaged(malformed.to_string()))),
        }
    }
}

fn is_damage(error: &Error) -> bool {
    error.is_corruption() || is_unreadable(error)
}

/// Puts a new manifest that says `state` in force, under the first free number from `number` on, whatever
/// there was. Manifests before it are removed: copy them first if you want them.
///
/// # Errors
/// I/O: then the store is as it was before.
pub fn replace(
    vfs: Arc<dyn Vfs>,
    dir: &Path,
    number: u64,
    state: &ManifestState,
) -> Result<Manifest> {
    Manifest::start(vfs, dir, number, state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::{FamilyEdit, VersionEdit};
    use terrace_base::{FileNumber, SeqNo};
    use terrace_log::{LogOptions, LogWriter};
    use terrace_vfs::SimVfs;

    /// Cut wherever, a manifest gives the state after some number of its edits, and never more.
    #[test]
    fn a_cut_manifest_says_what_stands_before_the_cut() {
        let dir = Path::new("/db");
        let sim = SimVfs::new(1);
        sim.create_dir_all(dir).unwrap();
        let (mut manifest, mut state) = Manifest::create(Arc::new(sim.clone()), dir, 7).unwrap();
        let mut states = vec![state.clone()];
        for id in 1..20 {
            let name = Some(format!("family {id}"));
            let family = FamilyEdit { id, create: name, ..FamilyEdit::default() };
            let edit = VersionEdit { families: vec![family], ..VersionEdit::default() };
            manifest.append(&mut state, &edit).unwrap();
            states.push(state.clone());
        }
        let number = manifest.number();
        let path = names::manifest_path(dir, number);
        let mut seen = 0;
        for cut in 0..=manifest.len_bytes() {
            let image = sim.kill_image();
            assert!(image.truncate(&path, cut));
            let Some(salvaged) = salvage(&image, dir, number).unwrap() else {
                assert_eq!(seen, 0, "cut at {cut}");
                continue;
            };
            assert!(salvaged.end_bytes <= cut);
            let edits = salvaged.state.families.len() - 1;
            assert_eq!(salvaged.state, states[edits], "cut at {cut}");
            assert!(edits == seen || edits == seen + 1 || seen == 0, "cut at {cut}");
            seen = edits;
        }
        assert_eq!(seen, 19);
        let found = salvage(&sim, dir, number).unwrap().unwrap();
        assert_eq!((found.damage, found.end_bytes), (None, manifest.len_bytes()));
    }

    /// A manifest of more than one sector gives what stands before the one that cannot be read.
    #[test]
    fn a_sector_that_cannot_be_read_costs_what_stands_in_it_and_behind() {
        let dir = Path::new("/db");
        let sim = SimVfs::new(1);
        sim.create_dir_all(dir).unwrap();
        let (mut manifest, mut state) = Manifest::create(Arc::new(sim.clone()), dir, 7).unwrap();
        for id in 1..600 {
            let name = Some(format!("family {id} with a name of some length"));
            let family = FamilyEdit { id, create: name, ..FamilyEdit::default() };
            let edit = VersionEdit { families: vec![family], ..VersionEdit::default() };
            manifest.append(&mut state, &edit).unwrap();
        }
        let number = manifest.number();
        let path = names::manifest_path(dir, number);
        let sectors = manifest.len_bytes() / 4096;
        assert!(sectors > 3);
        for sector in 1..=sectors {
            let image = sim.kill_image();
            assert!(image.lose_sector(&path, sector * 4096..(sector + 1) * 4096));
            let salvaged =
                salvage(&image, dir, number).unwrap().expect("the first sector is sound");
            let end = salvaged.end_bytes;
            assert!(end > sector * 4096 - 200 && end <= sector * 4096, "{sector}: {end}");
            assert!(salvaged.damage.is_some() && salvaged.state.families.len() > 30);
        }
        assert!(sim.lose_sector(&path, 0..4096));
        assert_eq!(salvage(&sim, dir, number).unwrap(), None);
    }

    /// An edit of which one half fits and the other does not counts for nothing.
    #[test]
    fn an_edit_that_does_not_fit_leaves_nothing_behind() {
        let dir = Path::new("/db");
        let sim = SimVfs::new(1);
        sim.create_dir_all(dir).unwrap();
        let state = ManifestState::fresh(7);
        let fits = VersionEdit { next_file_number: Some(FileNumber::new(9)), ..Default::default() };
        let half = VersionEdit {
            last_seqno: Some(SeqNo::new(77)),
            keeps_evidence: true,
            families: vec![
                FamilyEdit { id: 1, create: Some("half".into()), ..FamilyEdit::default() },
                FamilyEdit { id: 5, flushed_seqno: Some(SeqNo::new(3)), ..FamilyEdit::default() },
            ],
            ..VersionEdit::default()
        };
        let path = names::manifest_path(dir, 1);
        let options = LogOptions::default();
        let mut writer = LogWriter::create(&sim, &path, SegmentNumber::new(1), &options).unwrap();
        let mut payload = Vec::new();
        state.encode_snapshot(&mut payload);
        writer.append(&[&payload]).unwrap();
        for edit in [&fits, &half, &fits] {
            payload.clear();
            codec::encode_edit(edit, &mut payload);
            writer.append(&[&payload]).unwrap();
        }
        let salvaged = salvage(&sim, dir, 1).unwrap().unwrap();
        assert!(salvaged.damage.is_some());
        let want = ManifestState { next_file_number: FileNumber::new(9), ..state };
        assert_eq!(salvaged.state, want);
    }
}
