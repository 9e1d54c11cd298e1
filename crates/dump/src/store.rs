//! A store into a dump, and a dump into a store.

use crate::error::{Error, Result};
use crate::family::DumpedFamily;
use crate::record_reader::{Record, RecordReader};
use crate::record_writer::{Counts, RecordWriter};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use terrace::{
    CfOptions, ColumnFamily, Db, MergeError, MergeOperator, Options, ReadOptions, WriteBatch,
    associative, builtin_merge_operator,
};

/// The name of the family that every store has.
const DEFAULT_FAMILY: &str = "default";

/// Bytes read ahead in each column family.
const READAHEAD_BYTES: usize = 256 << 10;

/// A batch is written when it has this many bytes, or this many entries.
const BATCH_BYTES: usize = 4 << 20;
const BATCH_ENTRIES: usize = 10_000;

/// How many entries pass between two reports of progress.
const REPORT_ENTRIES: u64 = 1000;

/// Writes all column families of `db`, as of now, to `out`; `progress` is called as it goes. Gives
/// `out` back, which has been flushed.
///
/// # Errors
/// The store cannot be read, or `out` not written: then what `out` has is no whole dump, and
/// [`restore`] will say so.
pub fn dump<W: Write>(db: &Db, out: W, progress: &mut dyn FnMut(Counts)) -> Result<(W, Counts)> {
    let snapshot = db.snapshot();
    let now_ms = db.options().advanced.clock.wall_ms();
    let mut names = db.column_families();
    names.sort();
    let family = |name: String| {
        let family = db.column_family(&name);
        family.ok_or_else(|| Error::from(terrace::Error::NoSuchFamily(name)))
    };
    let families = names.into_iter().map(family).collect::<Result<Vec<_>>>()?;
    let described: Vec<_> = families.iter().map(DumpedFamily::of).collect();
    let mut records = RecordWriter::start_for(out, &described)?;
    for (family, described) in families.iter().zip(&described) {
        records.described_family(described)?;
        let mut iter = family.iter_with(&ReadOptions {
            snapshot: Some(snapshot.clone()),
            // One time for all families, so that all of them show what had not expired by then.
            now_ms: Some(now_ms),
            fill_cache: false,
            readahead_bytes: READAHEAD_BYTES,
            ..ReadOptions::default()
        })?;
        iter.seek_to_first()?;
        while iter.valid() {
            records.entry(iter.key(), iter.value(), iter.expires_at_ms())?;
            if records.counts().entries.is_multiple_of(REPORT_ENTRIES) {
                progress(records.counts());
            }
            iter.next()?;
        }
    }
    records.finish()
}

/// Puts what `records` hold into `db`, which is empty; `progress` is called as it goes. Column
/// families that are not there are created with the options of the default one, and those that the dump says. When the
/// store is closed, [`finish_families`] does the rest.
///
/// # Errors
/// The dump is cut off or damaged, or the store cannot be written: then a part of the dump is in the
/// store, which must not be used.
pub fn restore<R: Read>(
    records: &mut RecordReader<R>,
    db: &Db,
    progress: &mut dyn FnMut(Counts),
) -> Result<Counts> {
    let mut batch = WriteBatch::new();
    let mut family = db.default_family();
    while let Some(record) = records.next()? {
        match record {
            Record::Family(dumped) => family = open_family(db, dumped)?,
            Record::Entry { key, value, expires_at_ms } => {
                // A large value is written alone.
                let is_full = batch.size_bytes() + key.len() + value.len() > BATCH_BYTES;
                if (is_full && !batch.is_empty()) || batch.len() >= BATCH_ENTRIES {
                    db.write(std::mem::take(&mut batch))?;
                }
                match expires_at_ms {
                    Some(at) => batch.put_until_cf(&family, key, value, at),
                    None => batch.put_cf(&family, key, value),
                }
            }
        }
        let counts = records.counts();
        if counts.entries.is_multiple_of(REPORT_ENTRIES) {
            progress(counts);
        }
    }
    if !batch.is_empty() {
        db.write(batch)?;
    }
    Ok(records.counts())
}

/// How a family that is there is merged stays; [`finish_families`] changes it.
fn open_family(db: &Db, dumped: &DumpedFamily) -> Result<ColumnFamily> {
    let options = dumped.options_over(db.options().default_family.clone())?;
    let Some(family) = db.column_family(&dumped.name) else {
        return Ok(db.create_column_family(&dumped.name, options)?);
    };
    if dumped.options.is_some() {
        let CfOptions { compaction, .. } = family.options();
        family.set_options(&CfOptions { compaction, ..options })?;
    }
    Ok(family)
}

/// Gives the column families of the store in `dir`, which [`restore`] has made and which is closed, what the dump says of
/// them and only an open gives: how they are merged, and their merge operators. The store opens with no other operators from
/// then on. The operators need not be there.
///
/// # Errors
/// The store does not open, or has other operators already; `DiskFull` if what is to be stored may have found no room.
pub fn finish_families(dir: &Path, mut options: Options, families: &[DumpedFamily]) -> Result<()> {
    if families.iter().all(|family| family.merge_operator.is_none() && family.options.is_none()) {
        return Ok(());
    }
    // Every family is named: only so it gets an operator, and options of its own.
    options.column_families.clear();
    let unmerged = CfOptions { merge_operator: None, ..options.default_family.clone() };
    for dumped in families {
        let merge_operator = dumped.merge_operator.as_deref().map(named);
        let family = CfOptions { merge_operator, ..dumped.options_over(unmerged.clone())? };
        match dumped.name == DEFAULT_FAMILY {
            true => options.default_family = family,
            false => options.column_families.push((dumped.name.clone(), family)),
        }
    }
    let db = Db::open(dir, options)?;
    // A store opens on a full disk: what is to be written then waits in memory for room.
    let is_full = db.is_disk_full();
    db.close()?;
    if is_full {
        let why = "there is no room for what is stored of column families";
        let source = io::Error::new(io::ErrorKind::StorageFull, why);
        let error = terrace_base::Error::io("write the manifest in", dir, source);
        return Err(terrace::Error::from(error).into());
    }
    Ok(())
}

/// The built-in operator of this name, or one that stands for it in a store without operands.
fn named(name: &str) -> Arc<dyn MergeOperator> {
    let unknown = |_: &[u8], _: Option<&[u8]>, _: &[u8]| {
        Err(MergeError("only the name of this operator is known".into()))
    };
    builtin_merge_operator(name).unwrap_or_else(|| associative(name, unknown))
}
