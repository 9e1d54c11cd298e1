//! Checking the value segments as files: there, as long as the manifest says, with the number of
//! their name. The values in them are [`super::values`]' affair. That SSTs refer to more bytes than a segment has is
//! no problem: after a recovery two of them may have the same entry.

use crate::directory::Listing;
use crate::problem::Problem;
use crate::segments;
use crate::tree::Tree;
use std::path::Path;
use terrace_base::Result;
use terrace_log::format::HeaderFault;
use terrace_manifest::SegmentMeta;
use terrace_vfs::Vfs;

#[derive(Debug, Default)]
pub(super) struct Found {
    pub problems: Vec<Problem>,
    pub notes: Vec<String>,
    pub segments: u64,
    pub bytes: u64,
}

/// Looks at every value segment of `tree`, and at every other segment that its SSTs refer to.
pub(super) fn check(vfs: &dyn Vfs, dir: &Path, listing: &Listing, tree: &Tree) -> Found {
    let mut found = Found::default();
    for (number, segment) in segments::of(tree) {
        let path = segments::path(dir, number, segment.meta.as_ref());
        let mut problem = |detail: String| found.problems.push(Problem::of(&path, detail));
        let files = segment.files;
        let Some(meta) = segment.meta else {
            if !listing.logs.contains_key(&number) {
                problem(format!("{files} SSTs refer to values in it and it does not exist"));
            } else if number < tree.oldest_log_segment() {
                problem(format!(
                    "{files} SSTs refer to values in it, and it is neither a value segment of the \
                     manifest nor part of the commit log"
                ));
            }
            continue;
        };
        found.segments += 1;
        found.bytes = found.bytes.saturating_add(meta.size_bytes);
        if number.file() >= tree.next_file_number {
            problem(format!("the next file number is only {}", tree.next_file_number));
        }
        match file_fault(vfs, &path, &meta) {
            Ok(Fault::Problem(detail)) => problem(detail),
            Ok(Fault::Note(note)) => found.notes.push(format!("{} {note}", path.display())),
            Ok(Fault::None) => {}
            Err(error) if error.is_not_found() => {
                problem("the manifest names this value segment and it does not exist".into());
            }
            Err(error) => found.problems.push(Problem::from_error(&error, &path)),
        }
    }
    found
}

enum Fault {
    None,
    Note(String),
    Problem(String),
}

/// What is wrong with the file of a value segment, its records aside.
fn file_fault(vfs: &dyn Vfs, path: &Path, meta: &SegmentMeta) -> Result<Fault> {
    let (len, stated) = (vfs.len(path)?, meta.size_bytes);
    match terrace_log::read_header_around_loss(vfs, path)? {
        Ok(header) if header.segment != meta.number => {
            return Ok(Fault::Problem(format!("its header is that of segment {}", header.segment)));
        }
        Err(HeaderFault::Damaged(why)) => return Ok(Fault::Problem(why)),
        Err(HeaderFault::Version(version)) => {
            return Ok(Fault::Problem(format!("it has log format version {version}")));
        }
        Ok(_) => {}
    }
    Ok(match len.cmp(&stated) {
        std::cmp::Ordering::Less => {
            Fault::Problem(format!("the manifest states {stated} bytes, the file has {len}"))
        }
        std::cmp::Ordering::Greater => {
            Fault::Note(format!("has {} bytes that the manifest does not count", len - stated))
        }
        std::cmp::Ordering::Equal => Fault::None,
    })
}
