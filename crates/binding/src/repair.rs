//! A repair as the command line does it: the families of a server's store get their names, and what such a store says of itself
//! is searched for anew if something is lost. The engine knows nothing of servers; the bindings say what there is to know.

use crate::failure::{Code, Failure, Outcome};
use std::path::Path;
use terrace::{Db, Error, FamilySign, Options, RepairOptions, RepairReport};

/// What a repair is to know of the stores of servers.
#[derive(Debug, Clone, Copy)]
pub struct ServedStores {
    /// How their families are known.
    pub family_signs: &'static [FamilySign],
    /// Whether a store is one; or says why it does not show.
    pub is_one: fn(&Db) -> Result<bool, String>,
    /// Has the next server that opens it search for what is in use; or says why that failed.
    pub doubt_notes: fn(&Db) -> Result<(), String>,
}

/// As [`terrace::repair_telling`]; what is lost of a server's store is no more than the report says, since its notes are doubted
/// before the losses count as told.
///
/// # Errors
/// Those of [`terrace::repair`].
pub fn repair(
    dir: &Path,
    options: Options,
    how: RepairOptions,
    served: &ServedStores,
) -> Outcome<RepairReport> {
    let dir = &options.advanced.vfs.absolute(dir);
    let how = RepairOptions { family_signs: served.family_signs, ..how };
    let mut doubted = Ok(());
    let tell = |report: &RepairReport| -> Outcome<()> {
        // Also when an earlier repair was killed before it came to this.
        let has_lost = !report.lost.is_empty() || dir.join("lost").exists();
        if has_lost && !how.dry_run {
            doubted = doubt_notes(dir, &options, served);
        }
        Ok(())
    };
    let mut report = terrace::repair_telling(dir, options.clone(), how, tell)?;
    if let Err(failure) = doubted {
        let note = format!("before a server writes to the store, repair it again: {failure}");
        report.notes.push(note);
    }
    Ok(report)
}

fn doubt_notes(dir: &Path, options: &Options, served: &ServedStores) -> Outcome<()> {
    // A family that the store does not have is not to be created.
    let options =
        Options { create_if_missing: false, column_families: Vec::new(), ..options.clone() };
    let other = |message| Failure { code: Code::Other, message };
    let is_served = match Db::open_read_only(dir, options.clone()) {
        Ok(db) => (served.is_one)(&db).map_err(other)?,
        // It has a merge operator of a program's, which no server's store has.
        Err(Error::InvalidArgument(_)) => false,
        Err(error) => return Err(error.into()),
    };
    if is_served {
        let db = Db::open(dir, options)?;
        (served.doubt_notes)(&db).map_err(other)?;
        db.close()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use terrace::{MergeError, MergeOperator};

    /// A store in which all is there, and which an earlier repair has been at.
    fn repaired_before() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), Options::default()).unwrap();
        db.put(b"key", b"value").unwrap();
        db.close().unwrap();
        std::fs::create_dir(dir.path().join("lost")).unwrap();
        dir
    }

    fn is_doubted(dir: &Path) -> bool {
        let db = Db::open_read_only(dir, Options::default()).unwrap();
        assert!(db.get(b"key").unwrap().is_some());
        db.get(b"doubted").unwrap().is_some()
    }

    const SERVED: ServedStores = ServedStores {
        family_signs: &[],
        is_one: |db| match db.get(b"key") {
            Ok(value) => Ok(value.is_some()),
            Err(error) => Err(error.to_string()),
        },
        doubt_notes: |db| db.put(b"doubted", b"").map_err(|error| error.to_string()),
    };

    #[test]
    fn the_notes_of_a_servers_store_are_doubted_and_those_of_no_other() {
        let dry = RepairOptions { dry_run: true, ..RepairOptions::default() };
        let other = ServedStores { is_one: |_| Ok(false), ..SERVED };
        let dir = repaired_before();
        for (how, served, doubted) in [
            (dry, SERVED, false),
            (RepairOptions::default(), other, false),
            (RepairOptions::default(), SERVED, true),
        ] {
            let report = repair(dir.path(), Options::default(), how, &served).unwrap();
            assert!(report.was_sound, "{report:?}");
            assert_eq!(is_doubted(dir.path()), doubted);
        }
    }

    #[test]
    fn notes_that_cannot_be_doubted_are_told() {
        let dir = repaired_before();
        let failing = ServedStores { doubt_notes: |_| Err("no room".into()), ..SERVED };
        // Nor is a store that cannot be looked at taken for one without notes.
        let unreadable = ServedStores { is_one: |_| Err("no room".into()), ..SERVED };
        for served in [failing, unreadable] {
            let how = RepairOptions::default();
            let report = repair(dir.path(), Options::default(), how, &served).unwrap();
            let told = report.notes.iter().any(|note| note.ends_with("repair it again: no room"));
            assert!(told, "{report:?}");
        }
    }

    /// Only programs have merge operators: their stores have no notes of a server.
    #[test]
    fn a_store_with_an_operator_of_a_program_is_no_servers() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.default_family.merge_operator = Some(Arc::new(Theirs));
        Db::open(dir.path(), options).unwrap().close().unwrap();
        std::fs::create_dir(dir.path().join("lost")).unwrap();
        let how = RepairOptions::default();
        let report = repair(dir.path(), Options::default(), how, &SERVED).unwrap();
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
        ) -> Result<Vec<u8>, MergeError> {
            Ok(Vec::new())
        }
    }
}
