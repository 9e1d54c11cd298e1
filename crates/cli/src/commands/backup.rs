//! `terrace backup`: incremental backups, and stores made of them.

use crate::arguments;
use crate::files;
use crate::outcome::Outcome;
use crate::print::{self, Grouped};
use crate::standard_output;
use crate::store::{self, IfMissing, StoreArgs};
use crate::target_store;
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use terrace_backup::Backups;
use terrace_inspect::SizeBytes;

/// Arguments of `backup`.
#[derive(Debug, clap::Args)]
pub struct BackupArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Back a store up; no other process may have it open
    Create {
        /// Directory of the store
        dir: PathBuf,
        /// Directory of the backups: of earlier ones, or new
        backups: PathBuf,
        /// Remove all but this many of the latest backups afterwards
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        keep: Option<u32>,
        /// Also if SSTs of the store are damaged: the backup has them as they are
        #[arg(long)]
        as_is: bool,
        /// Memory that the store may take, such as 64M or 2G
        #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = arguments::size)]
        memory: usize,
    },
    /// List the backups
    List {
        /// Directory of the backups
        backups: PathBuf,
    },
    /// Read every byte of a backup, or of all, and compare it with what was written
    Verify {
        /// Directory of the backups
        backups: PathBuf,
        /// Which one
        id: Option<u64>,
    },
    /// Make a store of a backup
    Restore {
        /// Directory of the backups
        backups: PathBuf,
        /// Which one; `latest` is the one with the largest number
        id: String,
        /// Directory of the store: new or empty
        dir: PathBuf,
    },
    /// Remove a backup, and the files that no other one has
    Remove {
        /// Directory of the backups
        backups: PathBuf,
        /// Which one
        id: u64,
    },
}

/// Does what was asked for, and tells what it was.
pub fn run(args: &BackupArgs) -> Result<Outcome> {
    match &args.action {
        Action::Create { dir, backups, keep, as_is, memory } => {
            let store = StoreArgs { dir: dir.into(), memory: *memory };
            create(&store, backups, *keep, *as_is)
        }
        Action::List { backups } => list(&open(backups)?),
        Action::Verify { backups, id } => verify(&open(backups)?, *id),
        Action::Restore { backups, id, dir } => restore(&open(backups)?, id, dir),
        Action::Remove { backups, id } => {
            let freed = open(backups)?.remove(*id)?;
            writeln!(
                standard_output::until_unread(),
                "removed backup {id} ({} freed)",
                SizeBytes(freed)
            )?;
            Ok(Outcome::Done)
        }
    }
}

/// Opens backups that are there: only `create` makes the directory.
fn open(dir: &Path) -> Result<Backups> {
    store::check_directory(dir, "that of the backups")?;
    if !dir.join("backups").is_dir() {
        bail!("{} holds no backups", dir.display());
    }
    Ok(Backups::open_with(files::vfs(), dir)?)
}

fn create(store: &StoreArgs, backups: &Path, keep: Option<u32>, as_is: bool) -> Result<Outcome> {
    let dir = store.dir.display();
    if is_inside(backups, &store.dir) {
        bail!(
            "{} is inside of the store {dir}, with which its backups would be lost; name another directory",
            backups.display()
        );
    }
    store::check_directory(backups, "that of the backups, or a new one")?;
    let db = store.open(store.options(), IfMissing::Fail)?;
    let backups = Backups::open_with(files::vfs(), backups)?;
    let bar = print::bytes_bar(0, "backing up");
    let mut progress = |bytes| bar.set_position(bytes);
    let created = match as_is {
        true => backups.create_as_is(&db, &mut progress),
        false => backups.create(&db, &mut progress),
    };
    bar.finish_and_clear();
    let created = created.with_context(|| format!("{dir} was not backed up"))?;
    db.close()?;
    writeln!(
        standard_output::read_or_not(),
        "backup {} of {dir}: {} files ({}), {} of them new ({})",
        created.backup.id,
        Grouped(created.backup.files.len() as u64),
        SizeBytes(created.backup.size_bytes()),
        Grouped(created.copied_files as u64),
        SizeBytes(created.copied_bytes),
    )?;
    if let Some(keep) = keep {
        let freed = backups.keep_latest(keep as usize)?;
        writeln!(
            standard_output::read_or_not(),
            "kept the latest {keep} ({} freed)",
            SizeBytes(freed)
        )?;
    }
    Ok(Outcome::Done)
}

/// Whether `path`, of which the end may be missing, is in the directory `dir` or is it.
fn is_inside(path: &Path, dir: &Path) -> bool {
    let Ok(dir) = dir.canonicalize() else { return false };
    let Ok(path) = std::path::absolute(path) else { return false };
    path.ancestors()
        .find_map(|there| there.canonicalize().ok())
        .is_some_and(|there| there.starts_with(dir))
}

fn list(backups: &Backups) -> Result<Outcome> {
    let mut out = standard_output::read_or_not();
    let mut outcome = Outcome::Done;
    for listed in backups.list()? {
        match listed.backup {
            Ok(backup) => writeln!(
                out,
                "{}\t{}\t{} files\t{}",
                backup.id,
                time_of(backup.created_ms),
                backup.files.len(),
                SizeBytes(backup.size_bytes()),
            )?,
            Err(error) => {
                writeln!(out, "{}\t{error}", listed.id)?;
                outcome = Outcome::Negative;
            }
        }
    }
    Ok(outcome)
}

/// The time as people write it; as a number where that has no year for it, from 10000 on.
fn time_of(unix_ms: u64) -> String {
    let time = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(unix_ms));
    let mut text = String::new();
    match write!(text, "{time}") {
        Ok(()) => text,
        Err(_) => format!("{unix_ms} ms since 1970"),
    }
}

fn verify(backups: &Backups, id: Option<u64>) -> Result<Outcome> {
    let all = backups.list()?;
    let ids: Vec<u64> = match id {
        Some(id) => vec![id],
        None => all.iter().map(|listed| listed.id).collect(),
    };
    if ids.is_empty() {
        writeln!(standard_output::read_or_not(), "there is no backup yet: nothing was verified")?;
    }
    let mut outcome = Outcome::Done;
    for id in ids {
        let bar = print::bytes_bar(0, "verifying");
        let verified = backups.verify(id, &mut |bytes| bar.set_position(bytes));
        bar.finish_and_clear();
        match verified {
            Ok(()) => writeln!(standard_output::read_or_not(), "backup {id} is sound")?,
            Err(error) if is_of_this_one(&error) => {
                writeln!(standard_output::read_or_not(), "backup {id}: {error}")?;
                outcome = Outcome::Negative;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(outcome)
}

/// Whether an error says nothing about other backups: it is damaged, which an encrypted file says by itself, its key is not
/// given, or the device does not give it.
fn is_of_this_one(error: &terrace_backup::Error) -> bool {
    use terrace::Error::{Corruption, Io, Unsupported};
    use terrace_backup::Error::{Damaged, Store};
    matches!(error, Damaged { .. } | Store(Corruption(_) | Unsupported(_) | Io(_)))
}

fn restore(backups: &Backups, id: &str, dir: &Path) -> Result<Outcome> {
    let id = match id {
        "latest" => match backups.list()?.last() {
            Some(latest) => latest.id,
            None => bail!("there is no backup yet"),
        },
        number => match number.parse() {
            Ok(id) => id,
            Err(_) => bail!("`{number}` is no number of a backup; give one, or `latest`"),
        },
    };
    let size_bytes = backups.get(id)?.size_bytes();
    target_store::remove_left(dir)?;
    let bar = print::bytes_bar(size_bytes, "restoring");
    let restored = backups.restore(id, dir, &mut |bytes| bar.set_position(bytes));
    bar.finish_and_clear();
    restored.with_context(|| format!("backup {id} was not restored"))?;
    writeln!(standard_output::until_unread(), "backup {id} is the store {}", dir.display())?;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record can say so, and to print such a time must not end the list.
    #[test]
    fn times_without_a_year_of_four_digits_are_numbers() {
        assert_eq!(time_of(1_795_506_151_000), "2026-11-24T07:42:31Z");
        assert_eq!(time_of(253_402_300_799_999), "9999-12-31T23:59:59Z");
        for unix_ms in [253_402_300_800_000, u64::MAX] {
            assert_eq!(time_of(unix_ms), format!("{unix_ms} ms since 1970"));
        }
    }
}
