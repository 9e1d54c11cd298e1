//! Reading the manifest in force, and what is left of it if it is damaged: every edit that still
//! decodes is applied, whatever stands between.

use crate::directory::{Listing, number_of};
use crate::problem::Problem;
use crate::tree::{FamilyTree, Tree};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use terrace_base::{Error, FileNumber, Result, SegmentNumber};
use terrace_log::{LogReader, RecordKind, Step};
use terrace_manifest::codec::{self, ManifestRecord};
use terrace_manifest::{FamilyEdit, FileMeta, HOT_LEVEL, LEVEL_COUNT, Manifest, current, names};
use terrace_vfs::Vfs;

/// The tree of the store in `dir`; `None` if no manifest says anything. What is wrong with
/// `CURRENT` or the manifest goes to `problems`.
///
/// # Errors
/// I/O, with `is_not_found()` if nothing in `dir` looks like a store.
pub(crate) fn load(vfs: &dyn Vfs, dir: &Path, problems: &mut Vec<Problem>) -> Result<Option<Tree>> {
    let error = match Manifest::read(vfs, dir) {
        Ok(state) => return Ok(Some(state.into())),
        Err(error) => error,
    };
    let Ok(listing) = Listing::read(vfs, dir) else { return Err(error) };
    let nothing_here = error.is_not_found() && !listing.has_data();
    if nothing_here || matches!(error, Error::InvalidArgument(_)) {
        return Err(error);
    }
    problems.push(Problem::from_error(&error, dir));
    let named = current::read(vfs, dir).ok().filter(|n| listing.manifests.contains_key(n));
    let newest = listing.manifests.last_key_value().map(|(number, _)| *number);
    match named.or(newest) {
        Some(number) => salvage(vfs, &names::manifest_path(dir, number), problems),
        None => Ok(None),
    }
}

/// Adds up what can be read of the manifest at `path`.
fn salvage(vfs: &dyn Vfs, path: &Path, problems: &mut Vec<Problem>) -> Result<Option<Tree>> {
    let number = SegmentNumber::new(number_of(path));
    let mut reader = match LogReader::open_around_loss(vfs, path, number) {
        Ok(reader) => reader,
        Err(error @ Error::Io { .. }) => return Err(error),
        Err(error) => {
            problems.push(Problem::from_error(&error, path));
            return Ok(None);
        }
    };
    let mut salvaged = Salvaged::default();
    loop {
        let at = reader.position();
        let why = match reader.next() {
            Ok(Step::Record(record)) => {
                if record.kind == RecordKind::Data {
                    match codec::decode_record(record.payload) {
                        Ok(decoded) => salvaged.apply(decoded),
                        Err(why) => problems.push(at_offset(path, record.offset, why.to_string())),
                    }
                }
                continue;
            }
            Ok(Step::End { torn: None, .. }) => break,
            Ok(Step::End { torn: Some(why), .. }) => why,
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(error) => error.to_string(),
        };
        problems.push(at_offset(path, at, why));
        if reader.resync()?.is_none() {
            break;
        }
    }
    Ok(salvaged.finish())
}

fn at_offset(path: &Path, offset: u64, detail: String) -> Problem {
    Problem { offset: Some(offset), ..Problem::of(path, detail) }
}

#[derive(Default)]
struct Salvaged {
    records: u64,
    tree: Tree,
    /// Live files per family, with their level.
    files: BTreeMap<u32, BTreeMap<FileNumber, (u8, FileMeta)>>,
}

impl Salvaged {
    fn apply(&mut self, record: ManifestRecord) {
        self.records += 1;
        if let Some(head) = record.snapshot {
            self.tree = Tree { store_id: head.store_id, ..Tree::default() };
            self.files.clear();
        }
        let tree = &mut self.tree;
        raise(&mut tree.next_file_number, record.edit.next_file_number);
        raise(&mut tree.last_seqno, record.edit.last_seqno);
        for segment in record.edit.segments_added {
            raise(&mut tree.next_file_number, Some(segment.number.file().next()));
            tree.segments.insert(segment.number, segment);
        }
        for number in record.edit.segments_removed {
            tree.segments.remove(&number);
        }
        for edit in record.edit.families {
            self.apply_family(edit);
        }
    }

    fn apply_family(&mut self, edit: FamilyEdit) {
        if edit.drop {
            self.tree.families.remove(&edit.id);
            self.files.remove(&edit.id);
            return;
        }
        let family = self.tree.families.entry(edit.id).or_default();
        if let Some(name) = edit.create {
            family.name = name;
        }
        raise(&mut family.min_log_segment, edit.min_log_segment);
        raise(&mut family.flushed_seqno, edit.flushed_seqno);
        let files = self.files.entry(edit.id).or_default();
        for (_, number) in edit.removed {
            files.remove(&number);
        }
        for (level, file) in edit.added {
            raise(&mut self.tree.next_file_number, Some(file.number.next()));
            raise(&mut self.tree.last_seqno, Some(file.largest_seqno));
            files.insert(file.number, (level, file));
        }
    }

    fn finish(mut self) -> Option<Tree> {
        for (id, files) in self.files {
            let family: &mut FamilyTree = self.tree.families.entry(id).or_default();
            for (level, file) in files.into_values() {
                match family.levels.get_mut(usize::from(level)) {
                    Some(level) => level.push(Arc::new(file)),
                    None if level == HOT_LEVEL => family.hot.push(Arc::new(file)),
                    None => {}
                }
            }
            let (l0, sorted) = family.levels.split_at_mut(1);
            l0[0].sort_by_key(|file| Reverse((file.largest_seqno, file.number)));
            debug_assert_eq!(sorted.len(), LEVEL_COUNT - 1);
            for level in sorted {
                level.sort_by(|a, b| a.smallest.cmp(&b.smallest));
            }
        }
        (self.records > 0).then_some(self.tree)
    }
}

fn raise<N: Copy + Ord + Default>(value: &mut N, to: Option<N>) {
    *value = (*value).max(to.unwrap_or_default());
}
