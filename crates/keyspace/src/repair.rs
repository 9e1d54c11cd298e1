//! The repair of a store that may be a server's: its families get their names, and what such a store says of itself is searched
//! for anew if something is lost. The engine's repair knows nothing of servers. The command line and the bindings call this.

use crate::error::Result;
use crate::store_kind::StoreKind;
use crate::store_marks::{FAMILY_SIGNS, doubt_notes};
use std::path::Path;
use terrace::{Db, Options, RepairOptions, RepairReport};

/// As [`repair_telling`], with nobody to tell but the caller.
///
/// # Errors
/// Those of [`terrace::repair`].
pub fn repair(
    dir: &Path,
    options: Options,
    how: RepairOptions,
) -> std::result::Result<RepairReport, terrace::Error> {
    repair_telling(dir, options, how, |_| Ok(()))
}

/// As [`terrace::repair_telling`], with the signs of a server's families. What is lost of a server's store is no more than the
/// report says, since its notes are doubted before the losses count as told; where that fails, a note says so.
///
/// # Errors
/// Those of [`terrace::repair_telling`].
pub fn repair_telling<E: From<terrace::Error>>(
    dir: &Path,
    options: Options,
    how: RepairOptions,
    tell: impl FnOnce(&RepairReport) -> std::result::Result<(), E>,
) -> std::result::Result<RepairReport, E> {
    repair_doubting(dir, options, how, doubt, tell)
}

fn repair_doubting<E: From<terrace::Error>>(
    dir: &Path,
    options: Options,
    how: RepairOptions,
    doubt: impl FnOnce(&Path, &Options) -> Result<()>,
    tell: impl FnOnce(&RepairReport) -> std::result::Result<(), E>,
) -> std::result::Result<RepairReport, E> {
    let dir: &Path = &options.advanced.vfs.absolute(dir);
    let how = RepairOptions { family_signs: FAMILY_SIGNS, ..how };
    let mut told = None;
    let tell_all = |report: &RepairReport| -> std::result::Result<(), E> {
        let mut report = report.clone();
        // Also when an earlier repair was killed before it came to this.
        let has_lost = !report.lost.is_empty() || dir.join("lost").exists();
        if has_lost
            && !how.dry_run
            && let Err(error) = doubt(dir, &options)
        {
            let note = format!("before a server writes to the store, repair it again: {error}");
            report.notes.push(note);
        }
        tell(&report)?;
        told = Some(report);
        Ok(())
    };
    let report = terrace::repair_telling(dir, options.clone(), how, tell_all)?;
    Ok(told.unwrap_or(report))
}

/// What a server's store says of itself may be older than its data: the next open searches for what is in use.
fn doubt(dir: &Path, options: &Options) -> Result<()> {
    // A family that the store does not have is not to be created.
    let options =
        Options { create_if_missing: false, column_families: Vec::new(), ..options.clone() };
    let is_served = match Db::open_read_only(dir, options.clone()) {
        Ok(db) => StoreKind::of(&db)? == StoreKind::Keyspace,
        // It has a merge operator of a program's, which no server's store has.
        Err(terrace::Error::InvalidArgument(_)) => false,
        Err(error) => return Err(error.into()),
    };
    if is_served {
        let db = Db::open(dir, options)?;
        doubt_notes(&db)?;
        db.close()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::ELEMENTS;
    use crate::error::Error;
    use crate::keyspace::Keyspace;
    use crate::store_kind::MARK;
    use std::sync::Arc;
    use terrace::{MergeError, MergeOperator};
    use terrace_cluster::Placement;

    /// A store in which all is there, and which an earlier repair has been at.
    fn repaired_before(is_served: bool) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        if is_served {
            let space = Keyspace::open_placed(dir.path(), Options::default(), Placement::Range);
            space.unwrap().close().unwrap();
        } else {
            let db = Db::open(dir.path(), Options::default()).unwrap();
            db.put(b"key", b"value").unwrap();
            db.close().unwrap();
        }
        std::fs::create_dir(dir.path().join("lost")).unwrap();
        dir
    }

    fn is_doubted(dir: &Path) -> bool {
        let db = Db::open_read_only(dir, Options::default()).unwrap();
        let elements = db.column_family(ELEMENTS);
        elements.is_some_and(|elements| elements.get(MARK).unwrap().is_none())
    }

    #[test]
    fn the_notes_of_a_servers_store_are_doubted_and_those_of_no_other() {
        let dry = RepairOptions { dry_run: true, ..RepairOptions::default() };
        let (served, plain) = (repaired_before(true), repaired_before(false));
        for (dir, how, doubted) in [
            (&served, dry, false),
            (&plain, RepairOptions::default(), false),
            (&served, RepairOptions::default(), true),
        ] {
            let report = repair(dir.path(), Options::default(), how).unwrap();
            assert!(report.was_sound, "{report:?}");
            assert_eq!(is_doubted(dir.path()), doubted);
        }
    }

    #[test]
    fn notes_that_cannot_be_doubted_are_told() {
        let dir = repaired_before(true);
        let failing = |_: &Path, _: &Options| Err(Error::OtherStore("no room".into()));
        let mut told = Vec::new();
        let tell = |report: &RepairReport| -> std::result::Result<(), terrace::Error> {
            told.extend(report.notes.iter().cloned());
            Ok(())
        };
        let how = RepairOptions::default();
        let report = repair_doubting(dir.path(), Options::default(), how, failing, tell).unwrap();
        assert!(report.notes.iter().any(|note| note.ends_with("repair it again: no room")));
        assert_eq!(report.notes, told);
    }

    /// Only programs have merge operators: their stores have no notes of a server.
    #[test]
    fn a_store_with_an_operator_of_a_program_is_no_servers() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.default_family.merge_operator = Some(Arc::new(Theirs));
        Db::open(dir.path(), options).unwrap().close().unwrap();
        std::fs::create_dir(dir.path().join("lost")).unwrap();
        let report = repair(dir.path(), Options::default(), RepairOptions::default()).unwrap();
        assert!(!report.notes.iter().any(|note| note.contains("repair it again")), "{report:?}");
    }

    struct Theirs;

    impl MergeOperator for Theirs {
        fn name(&self) -> &str {
            "theirs"
        }

        fn full_merge(
            &self,
            _: &[u8],
            _: Option<&[u8]>,
            _: &[&[u8]],
        ) -> std::result::Result<Vec<u8>, MergeError> {
            Ok(Vec::new())
        }
    }
}
