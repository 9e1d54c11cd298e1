//! The check behind `terrace verify`: every checksum and every invariant of a store.
//!
//! 1. `CURRENT` and the manifest; of a damaged manifest, what can be read.
//! 2. What the manifest says: numbers, bounds, sequence numbers, levels disjoint.
//! 3. Every SST it names ([`sst`]): there, of the stated length, sound in itself, and what the
//!    manifest says it is; and every value that it refers to ([`values`]).
//! 4. The value segments ([`segments`]): there, of the stated length.
//! 5. The commit log ([`log`]): readable as a recovery reads it, its batches sound.
//! 6. Files that belong to nothing: told, but no problem; the next open removes them, or moves them to
//!    `lost/` if they look like data.
//! 7. Directories with the name of a file that is still to be written, or of a segment of the log in force: they are in its way,
//!    unless the log has passed over their number.
//!
//! Takes no lock. Another process may have the store open, add, merge and remove files meanwhile:
//! what looks wrong is looked at again under the newest manifest before it is called a problem.

mod log;
mod segments;
mod sst;
mod values;

use crate::directory::{ATTEMPTS, Listing};
use crate::problem::Problem;
use crate::salvage;
use crate::text::SizeBytes;
use crate::tree::Tree;
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use terrace_base::{Error, FileNumber, Result, SegmentNumber};
use terrace_log::Links;
use terrace_manifest::FileMeta;
use terrace_manifest::evidence::{self, Claims, Evidence};
use terrace_manifest::names::{self, FileName};
use terrace_vfs::Vfs;

/// What a check went through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Column families.
    pub families: u64,
    /// SSTs found sound.
    pub ssts: u64,
    /// Bytes of these.
    pub sst_bytes: u64,
    /// Data blocks in them.
    pub data_blocks: u64,
    /// Entries in them.
    pub entries: u64,
    /// Index partitions in them.
    pub index_partitions: u64,
    /// Filter partitions in them.
    pub filter_partitions: u64,
    /// Bytes of the index partitions: what an unpartitioned index would hold in memory.
    pub index_bytes: u64,
    /// Bytes of the filter partitions.
    pub filter_bytes: u64,
    /// Value segments.
    pub value_segments: u64,
    /// Bytes of these.
    pub value_segment_bytes: u64,
    /// Separated values that SSTs refer to and that were found sound.
    pub values: u64,
    /// Their stored bytes.
    pub value_bytes: u64,
    /// Log segments that a recovery would read.
    pub log_segments: u64,
    /// Records that it would replay.
    pub log_records: u64,
    /// Writes in these.
    pub log_ops: u64,
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// What is wrong.
    pub problems: Vec<Problem>,
    /// What is worth knowing and not wrong: unfinished log tails, files that belong to nothing.
    pub notes: Vec<String>,
    /// What was checked.
    pub counts: Counts,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "{}: {problem}", problem.heading())?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        let c = &self.counts;
        writeln!(
            f,
            "{} SSTs ({}): {} data blocks, {} entries, {} index and {} filter partitions",
            c.ssts,
            SizeBytes(c.sst_bytes),
            c.data_blocks,
            c.entries,
            c.index_partitions,
            c.filter_partitions,
        )?;
        if c.value_segments > 0 || c.values > 0 {
            writeln!(
                f,
                "{} separated values ({}); {} value segments ({})",
                c.values,
                SizeBytes(c.value_bytes),
                c.value_segments,
                SizeBytes(c.value_segment_bytes),
            )?;
        }
        writeln!(
            f,
            "{} column families; commit log: {} segments, {} records, {} writes",
            c.families, c.log_segments, c.log_records, c.log_ops,
        )?;
        match self.problems.len() {
            0 => write!(f, "sound"),
            1 => write!(f, "1 problem"),
            n => write!(f, "{n} problems"),
        }
    }
}

/// How far a check is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes checked of SSTs and of the values that they refer to.
    pub done_bytes: u64,
    /// Bytes of all of them.
    pub total_bytes: u64,
}

/// Checks everything in the store in `dir`.
///
/// # Errors
/// I/O that keeps the check from starting, with `is_not_found()` if `dir` holds no store. What is
/// wrong with a store is in the report.
pub fn check_store(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<Report> {
    check_store_with(vfs, dir, &mut |_| {})
}

/// As [`check_store`], telling how far it is after every SST.
pub fn check_store_with(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    let mut report = Report::default();
    // Before the manifest and the log: a writer meanwhile only adds to what it says.
    let evidence = match evidence::read(&**vfs, dir) {
        Ok(evidence) => evidence,
        Err(error @ Error::Io { .. }) => return Err(error),
        Err(error) => {
            report.problems.push(Problem::from_error(&error, dir));
            Evidence::default()
        }
    };
    let claims = evidence.claims;
    let Some(tree) = salvage::load(&**vfs, dir, &mut report.problems)? else {
        return Ok(report);
    };
    report.problems.extend(tree.faults(dir));
    report.counts.families = tree.families.len() as u64;
    if tree.keeps_evidence {
        let told = |(path, why): (PathBuf, String)| {
            format!("{}: {why}; the next open writes it anew", path.display())
        };
        report.notes.extend(evidence.problems.into_iter().map(told));
    }
    let mut checker = Checker { vfs, dir, report, claims, newest: None };
    checker.ssts(&tree, progress);
    checker.segments_and_log(tree)?;
    checker.unclaimed()?;
    Ok(checker.report)
}

struct Checker<'a> {
    vfs: &'a Arc<dyn Vfs>,
    dir: &'a Path,
    report: Report,
    /// What is known to have been durable.
    claims: Claims,
    /// The tree that the check last saw, if it changed.
    newest: Option<Tree>,
}

impl Checker<'_> {
    fn ssts(&mut self, tree: &Tree, progress: &mut dyn FnMut(Progress)) {
        let mut files: Vec<&Arc<FileMeta>> = tree.files().collect();
        files.sort_by_key(|file| file.number);
        let bytes = |file: &FileMeta| {
            let values = file.value_refs.iter().map(|value_ref| value_ref.bytes);
            values.fold(file.size_bytes, u64::saturating_add)
        };
        let sizes = files.iter().map(|file| bytes(file));
        let total_bytes = sizes.fold(0, u64::saturating_add);
        let mut done_bytes = 0u64;
        let mut checker = sst::SstChecker::new(self.vfs, self.dir, tree);
        for file in files {
            let problems = checker.check(file, &mut self.report.counts);
            if !problems.is_empty() {
                match self.is_live(file.number) {
                    true => self.report.problems.extend(problems),
                    false => self.note(format!("SST {} was merged away meanwhile", file.number)),
                }
            }
            done_bytes = done_bytes.saturating_add(bytes(file));
            progress(Progress { done_bytes, total_bytes });
        }
    }

    /// Whether the newest manifest still names SST `number`. A store whose manifest cannot be
    /// read has no newer one.
    fn is_live(&mut self, number: FileNumber) -> bool {
        match salvage::load(&**self.vfs, self.dir, &mut Vec::new()) {
            Ok(Some(tree)) => {
                let live = tree.files().any(|file| file.number == number);
                self.newest = Some(tree);
                live
            }
            _ => true,
        }
    }

    fn segments_and_log(&mut self, tree: Tree) -> Result<()> {
        let tree = self.newest.take().unwrap_or(tree);
        let (segments, tree) = self.settled(
            tree,
            |listing, tree| segments::check(&**self.vfs, self.dir, listing, tree),
            |found| found.problems.is_empty(),
        )?;
        let (log, _) = self.settled(
            tree,
            |listing, tree| log::check(&**self.vfs, self.dir, &self.claims, listing, tree),
            |found| found.problems.is_empty(),
        )?;
        let report = &mut self.report;
        report.problems.extend(segments.problems.into_iter().chain(log.problems));
        report.notes.extend(segments.notes.into_iter().chain(log.notes));
        let counts = &mut report.counts;
        (counts.value_segments, counts.value_segment_bytes) = (segments.segments, segments.bytes);
        (counts.log_segments, counts.log_records) = (log.segments, log.records);
        counts.log_ops = log.ops;
        Ok(())
    }

    /// Runs `check` until it finds nothing wrong, or what it finds is not due to a store that
    /// changed meanwhile. Returns the tree it ran under, too.
    fn settled<T>(
        &self,
        mut tree: Tree,
        check: impl Fn(&Listing, &Tree) -> T,
        is_sound: impl Fn(&T) -> bool,
    ) -> Result<(T, Tree)> {
        let mut attempt = 1;
        loop {
            let listing = Listing::read(&**self.vfs, self.dir)?;
            let found = check(&listing, &tree);
            let newer = match is_sound(&found) || attempt == ATTEMPTS {
                true => None,
                false => self.changed_since(&tree, &listing),
            };
            let Some(newer) = newer else { return Ok((found, tree)) };
            tree = newer;
            attempt += 1;
        }
    }

    /// The tree now, if manifest or segments are not what they were.
    fn changed_since(&self, tree: &Tree, listing: &Listing) -> Option<Tree> {
        let now = salvage::load(&**self.vfs, self.dir, &mut Vec::new()).ok()??;
        let files = Listing::read(&**self.vfs, self.dir).ok()?;
        let same = files.logs == listing.logs && files.value_logs == listing.value_logs;
        (now != *tree || !same).then_some(now)
    }

    /// Files in the directory that nothing names. The names are listed before the manifest is
    /// read, so that a file made meanwhile is not among them.
    fn unclaimed(&mut self) -> Result<()> {
        let files = self.vfs.list(self.dir)?;
        let listing = Listing::of(self.dir, files.clone());
        let Some(tree) = salvage::load(&**self.vfs, self.dir, &mut Vec::new())? else {
            return Ok(());
        };
        let live: HashSet<FileNumber> = tree.files().map(|file| file.number).collect();
        let oldest_log = tree.oldest_log_segment();
        let ssts = listing.ssts.iter().filter(|(number, _)| !live.contains(number));
        let is_unclaimed = |number: &SegmentNumber| !tree.segments.contains_key(number);
        for (_, path) in listing.logs.range(..oldest_log).filter(|(n, _)| is_unclaimed(n)) {
            self.note(format!(
                "{} is before the log that is needed: kept for change feeds, or a crash left it",
                path.display()
            ));
        }
        let foreign = listing.foreign(tree.next_file_number);
        let is_foreign = |number: &SegmentNumber| foreign.binary_search(&number.file()).is_ok();
        let in_log = listing.logs.range(oldest_log..).filter(|(n, _)| is_unclaimed(n));
        for (_, path) in in_log.filter(|(number, _)| is_foreign(number)) {
            self.note(format!(
                "{} is no segment of the log: its number is far past all others, and an open does not read it",
                path.display()
            ));
        }
        let logs = listing.value_logs.iter().filter(|(number, _)| is_unclaimed(number));
        let current = terrace_manifest::current::read(&**self.vfs, self.dir).ok();
        let manifests = listing.manifests.iter().filter(|(number, _)| Some(**number) < current);
        let ssts = ssts.map(|(_, path)| path);
        for path in ssts.chain(logs.map(|(_, path)| path)).chain(manifests.map(|(_, path)| path)) {
            self.note(format!(
                "{} is needed by nothing: a crash left it, or another process is just at work",
                path.display()
            ));
        }
        for name in listing.temps.iter().chain(&listing.others) {
            self.note(format!("{} is not a file of the store", self.dir.join(name).display()));
        }
        self.directories(files, &listing, &tree)
    }

    /// Directories that have the name of a file which is still to be written: no list of files has them, so an open or a job takes
    /// their numbers, and cannot write the files. Those with smaller numbers are in nobody's way, unless they stand where a
    /// segment of the log may have been: the links of those that are there do not pass over the number. One that the manifest
    /// names is a value segment, and looked at as such. `files` are the names of the files in the directory, and `listing` what
    /// they mean.
    fn directories(&mut self, files: Vec<String>, listing: &Listing, tree: &Tree) -> Result<()> {
        let others = self.vfs.list_others(self.dir)?;
        let (free, _) = names::foreign_numbers(&files, tree.next_file_number);
        let all = [files, others.clone()].concat();
        // Nor are those far past all numbers of the store.
        let (_, foreign) = names::foreign_numbers(&all, tree.next_file_number);
        let oldest = tree.oldest_log_segment();
        let vfs = self.vfs;
        let read_links = || Links::read(&**vfs, &tree.log_in_force(listing));
        // Read for the first directory that needs them.
        let mut links: Option<Links> = None;
        for name in others {
            let Some(number) = names::number_of(&name) else { continue };
            let is_in_the_way = match names::parse(&name) {
                _ if foreign.contains(&number) => false,
                _ if number >= free => true,
                FileName::Log(log) if log >= oldest && !tree.segments.contains_key(&log) => {
                    !links.get_or_insert_with(read_links).passed_over(log)
                }
                _ => false,
            };
            if is_in_the_way {
                let detail = "it is a directory with the name of a file of the store; move it away, or let `terrace repair` \
                              move it to lost/";
                self.report.problems.push(Problem::of(&self.dir.join(name), detail));
            }
        }
        Ok(())
    }

    fn note(&mut self, note: String) {
        self.report.notes.push(note);
    }
}
