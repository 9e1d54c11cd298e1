//! What lies in a directory: a store, the remains of one, something else, nothing.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use terrace_base::{Error, FileNumber, Result, SegmentNumber};
use terrace_log::SegmentFile;
use terrace_manifest::names::{self, FileName};
use terrace_vfs::Vfs;

/// How often a look at files starts over because the store changed under it.
pub(crate) const ATTEMPTS: u32 = 5;

/// What a directory holds, by the names in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// It does not exist, or is not a directory.
    Missing,
    /// Nothing, or what a crash leaves of a store that was just being made.
    Empty,
    /// A `CURRENT`: a store, sound or not.
    Store,
    /// SSTs or segments, but no `CURRENT`.
    Remains,
    /// Nothing of that; the name of a file that is there.
    Foreign(String),
}

/// Says what `dir` holds. Reads names only.
///
/// # Errors
/// It cannot be read: that says nothing about what is there.
pub fn contents(vfs: &dyn Vfs, dir: &Path) -> Result<Contents> {
    if !is_directory(vfs, dir)? {
        return Ok(Contents::Missing);
    }
    let listing = Listing::read(vfs, dir)?;
    let foreign = listing.others.first().cloned();
    Ok(match (listing.current, listing.has_writes(), foreign) {
        (true, ..) => Contents::Store,
        (false, true, _) => Contents::Remains,
        (false, false, Some(name)) => Contents::Foreign(name),
        (false, false, None) => Contents::Empty,
    })
}

/// Whether `path` is a directory; one that is there must be readable.
pub(crate) fn is_directory(vfs: &dyn Vfs, path: &Path) -> Result<bool> {
    match vfs.list(path) {
        Ok(_) => Ok(true),
        Err(Error::Io { source, .. })
            if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The files of a directory by what their names mean.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub current: bool,
    pub manifests: BTreeMap<u64, PathBuf>,
    pub ssts: BTreeMap<FileNumber, PathBuf>,
    pub logs: BTreeMap<SegmentNumber, PathBuf>,
    /// Value segments that garbage collection wrote.
    pub value_logs: BTreeMap<SegmentNumber, PathBuf>,
    /// What says what was synced.
    pub evidence: Vec<PathBuf>,
    pub temps: Vec<String>,
    pub others: Vec<String>,
}

impl Listing {
    /// Whether there is anything that a store could be read from.
    pub fn has_data(&self) -> bool {
        self.has_writes() || !self.manifests.is_empty()
    }

    /// Whether there are files that hold writes, or say that there were. A manifest alone, without `CURRENT`, is what a
    /// crash leaves of a store that was just being made.
    fn has_writes(&self) -> bool {
        let segments = self.logs.len() + self.value_logs.len();
        !self.ssts.is_empty() || segments > 0 || !self.evidence.is_empty()
    }

    /// The log segments from number `first` on, in order.
    pub fn segments_from(&self, first: SegmentNumber) -> impl Iterator<Item = SegmentFile> {
        let from = self.logs.range(first..);
        from.map(|(number, path)| SegmentFile { number: *number, path: path.clone() })
    }

    /// The numbers, ascending, of files that are not the store's, as they are far past all others: an open does not read them. The
    /// manifest says that numbers from `next` on are free; 0: it does not say.
    pub fn foreign(&self, next: FileNumber) -> Vec<FileNumber> {
        if next == FileNumber::ZERO {
            return Vec::new();
        }
        let segments = self.logs.values().chain(self.value_logs.values());
        let paths = self.ssts.values().chain(segments);
        let numbered = paths.filter_map(|path| path.file_name()?.to_str());
        let names: Vec<String> =
            numbered.map(String::from).chain(self.temps.iter().cloned()).collect();
        names::foreign_numbers(&names, next).1
    }

    pub fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Self> {
        Ok(Self::of(dir, vfs.list(dir)?))
    }

    /// Of the files of `dir` with these names.
    pub fn of(dir: &Path, mut names: Vec<String>) -> Self {
        let mut listing = Self::default();
        names.sort();
        for name in names {
            let path = dir.join(&name);
            match names::parse(&name) {
                FileName::Current => listing.current = true,
                FileName::Manifest(number) => {
                    listing.manifests.insert(number, path);
                }
                FileName::Sst(number) => {
                    listing.ssts.insert(number, path);
                }
                FileName::Log(number) => {
                    listing.logs.insert(number, path);
                }
                FileName::ValueLog(number) => {
                    listing.value_logs.insert(number, path);
                }
                FileName::Lock | FileName::Reserve | FileName::Readers(_) => {}
                FileName::Evidence(_) => listing.evidence.push(path),
                FileName::Temp => listing.temps.push(name),
                FileName::Other => listing.others.push(name),
            }
        }
        listing
    }
}

/// The number in the name of the file at `path`, if it is one of a store's; 0 otherwise, which
/// stands in no file.
pub(crate) fn number_of(path: &Path) -> u64 {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match names::parse(name) {
        FileName::Manifest(number) | FileName::Evidence(number) => number,
        FileName::Sst(number) => number.get(),
        FileName::Log(segment) | FileName::ValueLog(segment) => segment.get(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_vfs::{BeforeCalls, Call, SimVfs};

    #[test]
    fn what_cannot_be_read_is_not_said_to_be_missing() {
        let sim = SimVfs::new(1);
        let dir = Path::new("/dir");
        sim.create_dir_all(dir).unwrap();
        assert_eq!(contents(&sim, dir).unwrap(), Contents::Empty);
        assert!(sim.write_file("/file", b"x"));
        for missing in ["/file", "/nowhere"] {
            assert_eq!(contents(&sim, Path::new(missing)).unwrap(), Contents::Missing);
        }
        // Directories that their owner keeps to himself.
        let unreadable = BeforeCalls::new(sim, |call, path| match call {
            Call::List => Err(Error::io("list", path, ErrorKind::PermissionDenied.into())),
            _ => Ok(()),
        });
        let error = contents(&unreadable, dir).unwrap_err();
        assert!(error.to_string().contains("permission denied"), "{error}");
    }
}
