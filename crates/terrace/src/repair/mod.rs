//! Repair: a manifest made of what there is, for a store that has lost or damaged files and does not open.
//!
//! 1. *Survey.* The manifest, or the newest that says anything, up to its first damage ([`base`]); what is not what its name
//!    says ([`misplaced`]); every SST, read whole, with the values that it refers to ([`ssts`], [`values`]); the log ([`log`]);
//!    every segment as a file ([`segments`]).
//! 2. *Plan* ([`plan`], [`operators`]). What the manifest names and is sound stays where it is. If edits of the manifest may be
//!    lost, SSTs that it does not name are taken in: their properties say whose they are. Their level is
//!    unknown, so all files of such a family are merged, by sequence number; those that the store went on without fill gaps
//!    only ([`found`]).
//! 3. *Write* ([`carry_out`]). Damaged SSTs are written anew without what is damaged, families are merged, and
//!    copies of what is about to be replaced go to `lost/`. Then the new manifest is put in force, in one step; the log is
//!    replayed as far as it is sound. Files with what is sound take the place of damaged segments that are needed still
//!    ([`mend`]).
//!
//! Until the new manifest is in force the store's own files are as they were; from then on it is a store like any other, but
//! that an open may refuse its log, as before, until that is replayed. A crash leaves the one or the other, so repair can be
//! run again; what the first run was about to tell stands in the store by then ([`unended`]), what it had taken back from
//! `lost/` ([`mod@taken_back`]), and what it had merged when its manifest was in force ([`mod@merged`]). A store in which nothing
//! is wrong is only opened and closed. What repair cannot know is said in `docs/repair.md`.

mod base;
mod carry_out;
mod found;
mod keep;
mod log;
mod mend;
mod merge;
mod merged;
mod misplaced;
mod operators;
mod plan;
mod segments;
mod ssts;
mod taken_back;
mod unended;
mod values;

use crate::admin::families::DEFAULT_FAMILY;
use crate::db::Db;
use crate::error::{Error, Result};
use crate::merge_operator::{MergeError, MergeOperator, builtin_merge_operator};
use crate::open::family_options;
use crate::open::orphans;
use crate::open::read_write;
use crate::options::{CfOptions, Options, StoredOptions};
use merged::MergedBefore;
use misplaced::Misplaced;
use plan::Plan;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use terrace_base::FileNumber;
use terrace_manifest::names;
use terrace_vfs::{OpenMode, Vfs, check_not_encrypted};
use values::Stated;

/// Bytes of a key in a sentence.
const SHOWN_BYTES: usize = 40;

/// How a store is repaired.
#[derive(Debug, Clone, Copy, Default)]
pub struct RepairOptions {
    /// Only tell what would be done. Nothing is written, and no right to write is needed.
    pub dry_run: bool,
    /// First take SSTs and segments back from `lost/`, and take in every SST whatever the manifest says.
    /// Keys that were deleted may come back.
    pub from_lost: bool,
    /// What tells the names of families of which only writes in the log are left.
    pub family_signs: &'static [FamilySign],
}

/// How a family is known by its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FamilySign {
    /// The family's name.
    pub name: &'static str,
    /// Its id, if it always has the same one.
    pub id: Option<u32>,
    /// What a key of it begins with; without an `id`, no key of another family does.
    pub key_prefix: &'static [u8],
}

impl FamilySign {
    fn is_of(&self, family: u32, key: &[u8]) -> bool {
        self.id.is_none_or(|id| id == family) && key.starts_with(self.key_prefix)
    }
}

/// What a repair did, in sentences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// Whether nothing was wrong.
    pub was_sound: bool,
    /// What was found and kept, or made anew.
    pub saved: Vec<String>,
    /// What could not be saved, or may be lost.
    pub lost: Vec<String>,
    /// What is worth knowing and no loss.
    pub notes: Vec<String>,
    /// SSTs that the store has now.
    pub sst_files: u64,
    /// Their bytes.
    pub sst_bytes: u64,
    /// Entries in them, tombstones included.
    pub entries: u64,
    /// Batches of the log that were replayed.
    pub log_batches: u64,
}

/// Makes the store in `dir` one that opens, out of what is sound of it, and says what is not.
///
/// `options` are as for [`Db::open`]; families that they name and the store does not have are not created.
/// The file system needs room for a copy of every family that is merged. Nothing is deleted: what is
/// replaced or cannot be read moves to `lost/` in `dir`. Value segments that the store may delete from then on, since what referred
/// to them is lost, are there as well, unless that takes a copy for which there is no room: the report says so.
///
/// # Errors
/// [`Error::Locked`] if a process has it open; [`Error::NotAStore`] if there is no file of a store;
/// [`Error::Unsupported`] for files of later builds; [`Error::Io`] and [`Error::DiskFull`]: the store is as it
/// was, or can be repaired again; [`Error::InvalidArgument`] if `options` give a family another merge operator than the one that it
/// has, or if `lost` in `dir` is no directory: the store is as it was.
///
/// The losses that a repair was about to tell which was killed are in the report of the next one. That counts as told what this
/// function returns: a program that may be killed before it has passed it on calls [`repair_telling`].
///
/// ```no_run
/// use terrace::{Options, RepairOptions, repair};
/// # fn main() -> terrace::Result<()> {
/// let report = repair("data", Options::default(), RepairOptions::default())?;
/// report.lost.iter().for_each(|loss| eprintln!("lost: {loss}"));
/// # Ok(()) }
/// ```
pub fn repair(dir: impl AsRef<Path>, options: Options, how: RepairOptions) -> Result<RepairReport> {
    repair_telling(dir, options, how, |_| Ok(()))
}

/// As [`repair`], and calls `tell` with the report when the store is repaired and closed. Unless that succeeds the losses are
/// told again by the next repair.
///
/// # Errors
/// Those of [`repair`], and that of `tell`.
pub fn repair_telling<E: From<Error>>(
    dir: impl AsRef<Path>,
    options: Options,
    how: RepairOptions,
    tell: impl FnOnce(&RepairReport) -> std::result::Result<(), E>,
) -> std::result::Result<RepairReport, E> {
    let vfs = options.advanced.vfs.clone();
    let dir = &vfs.absolute(dir.as_ref());
    let report = run(dir, options, how)?;
    tell(&report)?;
    if !how.dry_run {
        // If that fails the next repair tells the same again, which is no loss.
        let _ = unended::end(&*vfs, dir);
    }
    Ok(report)
}

fn run(dir: &Path, options: Options, how: RepairOptions) -> Result<RepairReport> {
    options.check()?;
    let vfs = options.advanced.vfs.clone();
    check_is_store(&*vfs, dir)?;
    check_lost(&*vfs, dir)?;
    let lock = match how.dry_run {
        true => lock_for_a_look(&*vfs, dir)?,
        false => Some(read_write::lock(&*vfs, dir)?),
    };
    let is_unlocked = lock.is_none() && vfs.exists(&names::lock_path(dir))?;
    let signs = how.family_signs;
    let (report, misplaced) = (RepairReport::default(), Misplaced::default());
    let (taken_back, taken_back_unknown) = (HashSet::new(), None);
    let mut repair = Repair {
        vfs: vfs.clone(),
        dir,
        options,
        signs,
        report,
        misplaced,
        taken_back,
        taken_back_unknown,
        merged_before: MergedBefore::default(),
        stated: Stated::default(),
    };
    if is_unlocked {
        repair.note(
            "the lock file cannot be read: if a process has the store open, this may be wrong"
                .into(),
        );
    }
    repair.settle_merged(how.dry_run)?;
    repair.recall_taken_back()?;
    if how.from_lost && !how.dry_run {
        repair.take_back()?;
    }
    let plan = repair.plan(how.from_lost)?;
    let told_again = repair.tell_again()?;
    repair.report.was_sound = plan.is_sound() && !told_again;
    if how.dry_run {
        return Ok(repair.report);
    }
    repair.be_quiet(&plan)?;
    // Before anything is merged with an operator that the operands are not for.
    for family in plan.state.families.values() {
        read_write::merge_operator(&repair.options, family)?;
    }
    let inner = match plan.is_sound() {
        true => {
            orphans::clear_names_of_removed(&*vfs, dir)?;
            read_write::recover_and_write(dir, &repair.options, 0)?
        }
        false => repair.carry_out(plan)?,
    };
    *inner.lock.lock() = lock;
    let mut report = repair.report;
    for family in inner.read.families.load().iter() {
        for (_, file) in family.state().version.all_files() {
            report.sst_files += 1;
            report.sst_bytes += file.size_bytes;
            report.entries += file.entry_count;
        }
    }
    let db = Db::start(inner)?;
    match db.verify() {
        Err(error @ Error::Corruption(_)) => {
            report.lost.push(format!("the repaired store is not whole: {error}"));
        }
        verified => drop(verified?),
    }
    // The manifest in force names what was taken back; while the store is open nobody repairs it.
    taken_back::end(&*vfs, dir)?;
    merged::end(&*vfs, dir)?;
    db.close()?;
    Ok(report)
}

/// Keeps processes out that write to the store in `dir`, without a right to write. `None` if there is no lock file, which a
/// process that has the store open has made, or it may not be read.
fn lock_for_a_look(vfs: &dyn Vfs, dir: &Path) -> Result<Option<Box<dyn Send + Sync>>> {
    let locked = vfs.lock_shared(&names::lock_path(dir));
    let kind = match &locked {
        Err(terrace_base::Error::Io { source, .. }) => Some(source.kind()),
        _ => None,
    };
    match kind {
        Some(ErrorKind::WouldBlock) => Err(Error::Locked(dir.to_path_buf())),
        Some(ErrorKind::NotFound | ErrorKind::PermissionDenied) => Ok(None),
        // There are no shared locks.
        Some(ErrorKind::Unsupported) => Ok(Some(read_write::lock(vfs, dir)?)),
        _ => Ok(Some(locked?)),
    }
}

/// Refuses a directory in which no file of a store is.
fn check_is_store(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    if !vfs.exists(dir)? {
        return Err(read_write::not_a_store(dir, "the directory does not exist"));
    }
    let mut names = vfs.list(dir)?;
    names.retain(|name| names::parse(name).has_content());
    if names.is_empty() {
        return Err(read_write::not_a_store(dir, "there is no file of a store in it"));
    }
    names.iter().try_for_each(|name| check_key(vfs, &dir.join(name)))
}

/// Refuses a file that cannot be read without a key: it is not lost.
fn check_key(vfs: &dyn Vfs, path: &Path) -> Result<()> {
    let opened = vfs.open(path, OpenMode::default());
    match opened.and_then(|file| check_not_encrypted(&*file)) {
        Err(error @ terrace_base::Error::Unsupported { .. }) => Err(error.into()),
        _ => Ok(()),
    }
}

/// Refuses what has the name of `lost/` and is no directory.
fn check_lost(vfs: &dyn Vfs, dir: &Path) -> Result<()> {
    let lost = names::lost_dir(dir);
    match vfs.exists(&lost)?.then(|| vfs.list(&lost)) {
        Some(Err(terrace_base::Error::Io { source, .. }))
            if matches!(source.kind(), ErrorKind::NotADirectory | ErrorKind::NotFound) =>
        {
            let why = "is no directory, and a repair puts there what it replaces: move it away";
            Err(Error::InvalidArgument(format!("{} {why}", lost.display())))
        }
        _ => Ok(()),
    }
}

struct Repair<'a> {
    vfs: Arc<dyn Vfs>,
    dir: &'a Path,
    options: Options,
    signs: &'static [FamilySign],
    report: RepairReport,
    misplaced: Misplaced,
    /// SSTs that were in `lost/`: this repair took them back, or one that did not end.
    taken_back: HashSet<FileNumber>,
    /// Why it is not known of which one that did not end, until that is reported.
    taken_back_unknown: Option<String>,
    merged_before: MergedBefore,
    /// The segments with values of the manifest.
    stated: Stated,
}

impl Repair<'_> {
    fn saved(&mut self, text: String) {
        self.report.saved.push(text);
    }

    fn note(&mut self, text: String) {
        self.report.notes.push(text);
    }

    fn lost(&mut self, text: String) {
        self.report.lost.push(text);
    }

    /// Tells what an earlier repair was about to tell that did not end. Gives whether there was one.
    fn tell_again(&mut self) -> Result<bool> {
        let earlier = unended::read(&*self.vfs, self.dir)?;
        if earlier.is_empty() {
            return Ok(false);
        }
        self.note(
            "an earlier repair did not end; this report has what it was about to tell".into(),
        );
        let found: HashSet<String> =
            self.report.lost.iter().map(|loss| unended::line(loss)).collect();
        self.report.lost.extend(earlier.into_iter().filter(|loss| !found.contains(loss)));
        Ok(true)
    }

    /// Options for an open that does nothing but recover: every family has its own, so that none gets what is meant for another.
    ///
    /// # Errors
    /// As [`family_options::in_force`].
    fn be_quiet(&mut self, plan: &Plan) -> Result<()> {
        let mut families = Vec::new();
        for family in plan.state.families.values() {
            let chosen = family_options::in_force(&self.options, family)?;
            let operator = family_options::given_operator(&self.options, family).cloned();
            let merge_operator = operator.or_else(|| stand_in(family.merge_operator.as_deref()?));
            families.push((family.name.clone(), CfOptions { merge_operator, ..chosen }));
        }
        self.options.column_families.clear();
        for (name, options) in families {
            match name == DEFAULT_FAMILY {
                true => self.options.default_family = options,
                false => self.options.column_families.push((name, options)),
            }
        }
        self.options.stored_options = StoredOptions::Replace;
        self.options.create_if_missing = false;
        self.options.advanced.compact_when_idle = false;
        Ok(())
    }
}

/// The merge operator that a store calls `name`, for a repair that was not given it.
fn stand_in(name: &str) -> Option<Arc<dyn MergeOperator>> {
    let unknown = || Arc::new(NotGiven { name: name.to_string() }) as Arc<dyn MergeOperator>;
    Some(builtin_merge_operator(name).unwrap_or_else(unknown))
}

/// Stands for a merge operator that the store names and that was not given: operands stay as they are.
struct NotGiven {
    name: String,
}

impl MergeOperator for NotGiven {
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(
        &self,
        _: &[u8],
        _: Option<&[u8]>,
        _: &[&[u8]],
    ) -> std::result::Result<Vec<u8>, MergeError> {
        Err(MergeError("the repair was not given this operator".into()))
    }
}

/// A key in a sentence.
fn shown(key: &[u8]) -> String {
    match key.len() <= SHOWN_BYTES {
        true => format!("\"{}\"", key.escape_ascii()),
        false => format!("\"{}\"...", key[..SHOWN_BYTES].escape_ascii()),
    }
}
