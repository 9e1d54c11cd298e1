//! `RepairDB`: the engine's repair, and then that of the tree, of which the engine knows nothing.
//!
//! The engine's report counts as told only when the tree is whole: after a repair that is killed in between, or that needs
//! another comparator, the next one begins with the same losses.

use crate::order::Order;
use crate::tree::{self, FAMILY};
use std::path::Path;
use terrace::{Db, FamilySign, Options, RepairOptions};
use terrace_binding::{Failure, Outcome};

/// How the family of the tree is known if nothing but the log is left. A store makes it before any other, and every
/// write to it has the record `m`.
const FAMILY_SIGNS: &[FamilySign] =
    &[FamilySign { name: FAMILY, id: Some(1), key_prefix: tree::META }];

/// Repairs the store in `dir`, whose keys have this order.
///
/// # Errors
/// Those of [`terrace::repair`]; `InvalidArgument` if the keys have another order: with nothing changed if that can be
/// read as the store is, else with the tree unchanged.
pub fn repair(dir: &Path, options: Options, order: &Order) -> Outcome<()> {
    let dir = &options.advanced.vfs.absolute(dir);
    refuse_other_order(dir, &options, order)?;
    let how = RepairOptions { family_signs: FAMILY_SIGNS, ..RepairOptions::default() };
    let reopens = Options { create_if_missing: false, ..options.clone() };
    terrace::repair_telling(dir, options, how, |_| mend_tree(dir, reopens, order)).map(drop)
}

/// Looks at the order before anything is changed. A store that does not open does not tell it.
fn refuse_other_order(dir: &Path, options: &Options, order: &Order) -> Outcome<()> {
    match Db::open_read_only(dir, options.clone()) {
        Ok(db) => tree::refuse_other_order(&db, order),
        Err(_) => Ok(()),
    }
}

fn mend_tree(dir: &Path, options: Options, order: &Order) -> Result<(), Failure> {
    let db = Db::open(dir, options)?;
    match db.column_family(FAMILY) {
        Some(family) => tree::mend(&db, &family, order)?,
        None => {
            tree::refuse_other_order(&db, order)?;
            // Else an open takes the numbers of lost writes to the tree for those of keys in the order of bytes.
            if !order.is_bytes() && db.latest_seqno() > 0 {
                tree::create_family(&db)?;
            }
        }
    }
    Ok(db.close()?)
}

#[cfg(test)]
mod tests;
