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
use terrace_vfs::Vfs;

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

/// What manifest `number` in `dir` says up to its first damage; `None` if that is nothing.
///
/// # Errors
/// I/O; `Unsupported` for what only a later build can read.
pub fn salvage(vfs: &dyn Vfs, dir: &Path, number: u64) -> Result<Option<Salvaged>> {
    let path = names::manifest_path(dir, number);
    let mut reader = match LogReader::open(vfs, &path, SegmentNumber::new(number)) {
        Err(error) if error.is_corruption() => return Ok(None),
        opened => opened?,
    };
    let mut replay = Replay::default();
    let (end_bytes, damage) = loop {
        let at = reader.position();
        let record = match reader.next() {
            Ok(Step::Record(record)) if record.kind == RecordKind::Data => record,
            Ok(Step::Record(_)) => continue,
            Ok(Step::End { offset, torn }) => break (offset, torn),
            Err(error) if error.is_corruption() => break (at, Some(error.to_string())),
            Err(error) => return Err(error),
        };
        let why = match codec::decode_record(record.payload) {
            Ok(record) => match replay.add(record) {
                Ok(()) => continue,
                Err(why) => why,
            },
            Err(malformed @ Malformed::Unknown(..)) => {
                let detail = format!("the record at offset {at} has an {malformed}");
                return Err(Error::Unsupported { path, detail });
            }
            Err(malformed) => malformed.to_string(),
        };
        break (at, Some(why));
    };
    let state = replay.finish().ok().flatten();
    Ok(state.map(|state| Salvaged { state, end_bytes, damage }))
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
}
