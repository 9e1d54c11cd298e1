//! The names of the files in a store's directory: the one place that makes and reads them.
//!
//! ```text
//! 000012.sst  000013.log  000015.vlog  000014.tmp  MANIFEST-000001  CURRENT  CURRENT.tmp  LOCK  RESERVE
//! READERS-000001  SYNCED-1  SYNCED-2  SYNCED-1.tmp  SYNCED-2.tmp  rewrite.tmp  filling.tmp  lost/  backup-work/
//! ```
//! Numbers are decimal, padded with zeros to six digits, and longer when they must be. SSTs, log
//! segments and temporary files share one number space; manifests and `READERS` count on their own.

use std::path::{Path, PathBuf};
use terrace_base::{FileNumber, SegmentNumber};
use terrace_vfs::PARTIAL_LOCK_NAME;

/// The directory in a store's where a backup has its checkpoint ([`crate::backup_work`]).
pub(crate) const BACKUP_WORK_DIR: &str = "backup-work";

/// The name of [`rewrite_path`].
const REWRITE_NAME: &str = "rewrite.tmp";

/// A number this far above the largest number of the store is foreign. The gaps that the store leaves
/// are the numbers that one job takes and a crash makes void: some thousands.
pub const MIN_FOREIGN_GAP: u64 = 1 << 20;

/// What a file name in a store's directory means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileName {
    /// Names the manifest in force.
    Current,
    /// Held by the process that has the store open.
    Lock,
    /// A manifest.
    Manifest(u64),
    /// An SST.
    Sst(FileNumber),
    /// A commit log segment, or a value segment that was one.
    Log(SegmentNumber),
    /// A value segment written by garbage collection.
    ValueLog(SegmentNumber),
    /// Half-written by a crash; to be removed.
    Temp,
    /// Room set aside for a full disk.
    Reserve,
    /// Locked, shared, by readers beside the writer.
    Readers(u64),
    /// What was synced, 1 or 2 ([`crate::evidence`]).
    Evidence(u64),
    /// Not one of the store's names.
    Other,
}

impl FileName {
    /// Whether the file has something of the store in it.
    pub fn has_content(self) -> bool {
        use FileName::{Current, Evidence, Log, Manifest, Sst, ValueLog};
        matches!(self, Current | Evidence(_) | Log(_) | Manifest(_) | Sst(_) | ValueLog(_))
    }
}

/// Whether a checkpoint of a store has files of this name, or has had them while it was made. No store has `LOCK` before it is
/// opened.
pub fn is_of_checkpoint(name: &str) -> bool {
    let name = parse(name);
    name.has_content() || name == FileName::Temp
}

/// `CURRENT` in `dir`.
pub fn current_path(dir: &Path) -> PathBuf {
    dir.join("CURRENT")
}

/// The file that becomes `CURRENT` by a rename.
pub fn current_temp_path(dir: &Path) -> PathBuf {
    dir.join("CURRENT.tmp")
}

/// `LOCK` in `dir`.
pub fn lock_path(dir: &Path) -> PathBuf {
    dir.join("LOCK")
}

/// `RESERVE` in `dir`.
pub fn reserve_path(dir: &Path) -> PathBuf {
    dir.join("RESERVE")
}

/// The file number `number` in `dir` that readers lock.
pub fn readers_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("READERS-{number:06}"))
}

/// Evidence file `number` (1 or 2) in `dir`.
pub fn evidence_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("SYNCED-{number}"))
}

/// The file that becomes evidence file `number` by a rename.
pub fn evidence_temp_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("SYNCED-{number}.tmp"))
}

/// Manifest `number` in `dir`.
pub fn manifest_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(manifest_name(number))
}

/// The name of manifest `number`.
pub fn manifest_name(number: u64) -> String {
    format!("MANIFEST-{number:06}")
}

/// SST `number` in `dir`.
pub fn sst_path(dir: &Path, number: FileNumber) -> PathBuf {
    dir.join(format!("{number:06}.sst"))
}

/// Log segment `number` in `dir`.
pub fn log_path(dir: &Path, number: SegmentNumber) -> PathBuf {
    dir.join(format!("{number:06}.log"))
}

/// The value segment `number` in `dir` that garbage collection wrote.
pub fn value_log_path(dir: &Path, number: SegmentNumber) -> PathBuf {
    dir.join(format!("{number:06}.vlog"))
}

/// Temporary file `number` in `dir`.
pub fn temp_path(dir: &Path, number: FileNumber) -> PathBuf {
    dir.join(format!("{number:06}.tmp"))
}

/// The file in `dir` that becomes one of its others, written anew, by a rename: under another key, or in `lost` the report
/// of a repair.
pub fn rewrite_path(dir: &Path) -> PathBuf {
    dir.join(REWRITE_NAME)
}

/// Where files go that look like data and that nothing names: `lost` in `dir`.
pub fn lost_dir(dir: &Path) -> PathBuf {
    dir.join("lost")
}

/// The number in the name of a temporary file, if it has one.
pub fn temp_number(name: &str) -> Option<FileNumber> {
    name.strip_suffix(".tmp").and_then(parse_number).map(FileNumber::new)
}

/// The number in the name of a file that shares the number space. Manifests count on their own.
pub fn number_of(name: &str) -> Option<FileNumber> {
    match parse(name) {
        FileName::Sst(number) => Some(number),
        FileName::Log(segment) | FileName::ValueLog(segment) => Some(segment.file()),
        FileName::Temp => temp_number(name),
        _ => None,
    }
}

/// Of the files in `listing`, of which the manifest says that numbers from `next` on are free: a number above all of the
/// store's own, and the others', ascending, which lie [`MIN_FOREIGN_GAP`] past them. A crash leaves files behind that no
/// manifest names.
pub fn foreign_numbers(listing: &[String], next: FileNumber) -> (FileNumber, Vec<FileNumber>) {
    let mut numbers: Vec<FileNumber> = listing.iter().filter_map(|name| number_of(name)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut next = next;
    let mut is_own = |number: &FileNumber| {
        let own = *number < next.saturating_add(MIN_FOREIGN_GAP);
        if own {
            next = next.max(number.next());
        }
        own
    };
    let own = numbers.iter().take_while(|number| is_own(number)).count();
    (next, numbers.split_off(own))
}

/// What `name` means. Only the exact spelling that this module makes is recognized.
pub fn parse(name: &str) -> FileName {
    match name {
        "CURRENT" => return FileName::Current,
        "LOCK" => return FileName::Lock,
        "RESERVE" => return FileName::Reserve,
        "SYNCED-1" => return FileName::Evidence(1),
        "SYNCED-2" => return FileName::Evidence(2),
        "CURRENT.tmp" | "SYNCED-1.tmp" | "SYNCED-2.tmp" | REWRITE_NAME | PARTIAL_LOCK_NAME => {
            return FileName::Temp;
        }
        _ => {}
    }
    if let Some(digits) = name.strip_prefix("MANIFEST-") {
        return parse_number(digits).map_or(FileName::Other, FileName::Manifest);
    }
    if let Some(digits) = name.strip_prefix("READERS-") {
        return parse_number(digits).map_or(FileName::Other, FileName::Readers);
    }
    let Some((digits, ending)) = name.rsplit_once('.') else { return FileName::Other };
    match (parse_number(digits), ending) {
        (Some(_), "tmp") => FileName::Temp,
        (Some(number), "sst") => FileName::Sst(FileNumber::new(number)),
        (Some(number), "vlog") => FileName::ValueLog(SegmentNumber::new(number)),
        (Some(number), "log") => FileName::Log(SegmentNumber::new(number)),
        _ => FileName::Other,
    }
}

fn parse_number(digits: &str) -> Option<u64> {
    let number = digits.parse().ok()?;
    (format!("{number:06}") == digits).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_exact_spelling_is_recognized() {
        for name in ["12.sst", "+00012.sst", "0000012.sst", "000012.sst ", "000012", "current"] {
            assert_eq!(parse(name), FileName::Other, "{name}");
        }
        for name in ["MANIFEST-", "MANIFEST-1", "99999999999999999999999.log", "a.log"] {
            assert_eq!(parse(name), FileName::Other, "{name}");
        }
        assert_eq!(parse("CURRENT"), FileName::Current);
        assert_eq!(parse("CURRENT.tmp"), FileName::Temp);
        assert_eq!(parse("LOCK"), FileName::Lock);
        assert_eq!(parse("RESERVE"), FileName::Reserve);
        assert_eq!(parse("SYNCED-2"), FileName::Evidence(2));
        assert_eq!(parse("SYNCED-2.tmp"), FileName::Temp);
        assert_eq!(parse("SYNCED-3"), FileName::Other);
        assert_eq!(temp_number("000012.tmp"), Some(FileNumber::new(12)));
        assert_eq!(temp_number("CURRENT.tmp"), None);
    }

    #[test]
    fn only_temporary_files_that_a_store_makes_are_its_own() {
        let dir = Path::new("store");
        let paths =
            [current_temp_path(dir), evidence_temp_path(dir, 1), evidence_temp_path(dir, 2)];
        for path in paths.iter().map(|path| path.file_name().unwrap().to_str().unwrap()) {
            assert_eq!(parse(path), FileName::Temp, "{path}");
        }
        for name in ["000012.tmp", "rewrite.tmp", "filling.tmp"] {
            assert_eq!(parse(name), FileName::Temp, "{name}");
        }
        for name in ["notes.tmp", ".tmp", "12.tmp", "a.000012.tmp", "SYNCED-3.tmp", "LOCK.tmp"] {
            assert_eq!(parse(name), FileName::Other, "{name}");
        }
    }

    proptest! {
        #[test]
        fn names_are_read_back(number: u64) {
            let dir = Path::new("store");
            let (file, segment) = (FileNumber::new(number), SegmentNumber::new(number));
            let read = |path: PathBuf| parse(path.file_name().unwrap().to_str().unwrap());
            prop_assert_eq!(read(sst_path(dir, file)), FileName::Sst(file));
            prop_assert_eq!(read(log_path(dir, segment)), FileName::Log(segment));
            prop_assert_eq!(read(value_log_path(dir, segment)), FileName::ValueLog(segment));
            prop_assert_eq!(read(manifest_path(dir, number)), FileName::Manifest(number));
            prop_assert_eq!(read(temp_path(dir, file)), FileName::Temp);
            prop_assert_eq!(read(readers_path(dir, number)), FileName::Readers(number));
        }
    }
}
