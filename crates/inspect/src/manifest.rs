//! `terrace inspect manifest`: the edits of a manifest, one after the other.

use crate::directory::{ATTEMPTS, Listing, is_directory, number_of};
use std::cell::Cell;
use std::io;
use std::path::Path;
use terrace_base::{Error, Result, SegmentNumber};
use terrace_log::dump::{Detail, PayloadPlace};
use terrace_manifest::{codec, current, dump};
use terrace_vfs::Vfs;

/// Prints the manifest at `path`, or what `CURRENT` says and every manifest in directory `path`;
/// returns the number of problems.
///
/// # Errors
/// I/O, printing included.
pub fn manifest(
    vfs: &dyn Vfs,
    path: &Path,
    detail: Detail,
    out: &mut dyn io::Write,
) -> Result<u64> {
    if !is_directory(vfs, path)? {
        return one(vfs, path, detail, out);
    }
    let print = |source| Error::io("print", path, source);
    let (listing, current) = look(vfs, path)?;
    let mut problems = 0;
    let in_force = match current {
        Ok(number) => {
            writeln!(out, "CURRENT names manifest {number}").map_err(print)?;
            if !listing.manifests.contains_key(&number) {
                problems += 1;
                writeln!(out, "DAMAGE: manifest {number} does not exist").map_err(print)?;
            }
            Some(number)
        }
        Err(error) => {
            problems += 1;
            writeln!(out, "DAMAGE: {error}").map_err(print)?;
            None
        }
    };
    for (number, manifest_path) in &listing.manifests {
        let force = if in_force == Some(*number) { ", in force" } else { "" };
        writeln!(out, "\n{}{force}", manifest_path.display()).map_err(print)?;
        match one(vfs, manifest_path, detail, out) {
            Ok(found) => problems += found,
            // A writer removes the old one when it moves on.
            Err(error) if error.is_not_found() => writeln!(out, "gone").map_err(print)?,
            Err(error) => return Err(error),
        }
    }
    Ok(problems)
}

/// The files in `dir`, and the manifest that `CURRENT` names. A writer may move on to a manifest that was not among them, or
/// from one that is not any more.
fn look(vfs: &dyn Vfs, dir: &Path) -> Result<(Listing, Result<u64>)> {
    let mut attempt = 1;
    loop {
        let (listing, current) = (Listing::read(vfs, dir)?, current::read(vfs, dir));
        let is_lost = current.as_ref().is_ok_and(|number| !listing.manifests.contains_key(number));
        if !is_lost || attempt == ATTEMPTS {
            return Ok((listing, current));
        }
        attempt += 1;
    }
}

fn one(vfs: &dyn Vfs, path: &Path, detail: Detail, out: &mut dyn io::Write) -> Result<u64> {
    let not_edits = Cell::new(0);
    let describe = |payload: &[u8], _: PayloadPlace| {
        not_edits.set(not_edits.get() + u64::from(codec::decode_record(payload).is_err()));
        dump::describe(payload)
    };
    let number = SegmentNumber::new(number_of(path));
    match terrace_log::dump::dump(vfs, path, number, detail, &describe, out) {
        Ok(dumped) => Ok(dumped.damaged + not_edits.get()),
        Err(error @ (Error::Unsupported { .. } | Error::Corruption { .. })) => {
            writeln!(out, "{error}").map_err(|source| Error::io("print", path, source))?;
            Ok(1 + not_edits.get())
        }
        Err(error) => Err(error),
    }
}
