//! Writes the sorted entries of a bulk load as SSTs of the family's target size, to be ingested.

use super::Sorted;
use crate::background::env::JobEnv;
use crate::error::Result;
use crate::ingest::calls::check_runs;
use crate::ingest::sst_writer::SstWriter;
use crate::version::family::Family;
use terrace_base::FileNumber;
use terrace_manifest::names;

/// Writes `entries` to files with numbers by `take`, which do not overlap.
pub(super) fn write(
    env: &JobEnv,
    family: &Family,
    take: &dyn Fn() -> Result<FileNumber>,
    entries: &mut dyn Sorted,
) -> Result<Vec<FileNumber>> {
    let options = family.job_options(&env.base.dynamic);
    let target_bytes = options.target_file_bytes;
    let mut files = Vec::new();
    let mut writer: Option<SstWriter> = None;
    while let Some(entry) = entries.next()? {
        check_runs(env)?;
        if let Some(full) = writer.take_if(|writer| writer.estimated_bytes() >= target_bytes) {
            full.finish()?;
        }
        let writer = match &mut writer {
            Some(writer) => writer,
            none => {
                let number = take()?;
                files.push(number);
                let path = names::temp_path(&env.base.dir, number);
                none.insert(SstWriter::of_family(env.base.vfs.clone(), path, &options)?)
            }
        };
        writer.add(entry.key, entry.kind, entry.value)?;
    }
    if let Some(last) = writer {
        last.finish()?;
    }
    Ok(files)
}
