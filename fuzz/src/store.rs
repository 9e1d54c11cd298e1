//! The target for batches: the bytes are a record of the commit log that recovery applies.

use crate::manifest::DIR;
use crate::value::with_right_batch;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use terrace::{AdvancedOptions, CfOptions, Db, Options, WriteBatch};
use terrace_base::{FileNumber, SegmentNumber};
use terrace_inspect::batch::PayloadPlace;
use terrace_log::{LogOptions, LogPosition, LogReader, LogWriter, Step};
use terrace_manifest::names::{self, FileName};
use terrace_vfs::SimVfs;

/// More operations than a batch of the template has.
const MAX_OPS: u64 = 100;

/// A store made once: what its directory held when it was closed, and the batches in its log.
struct Template {
    files: Vec<(PathBuf, Vec<u8>)>,
    batches: Vec<Vec<u8>>,
    /// Where its log ends.
    end: Option<LogPosition>,
    next_number: FileNumber,
}

/// Opens a store whose newest log segment holds the bytes as one batch, and reads it all.
pub fn batch(data: &[u8]) -> bool {
    let vfs = template_image();
    let dir = Path::new(DIR);
    let segment = template().next_number.segment();
    let path = names::log_path(dir, segment);
    let (log, end) = (LogOptions::default(), template().end);
    let writer = LogWriter::create_after(&vfs, &path, segment, &log, end);
    let written = writer.and_then(|mut writer| {
        let place = PayloadPlace { segment, offset: writer.next_payload_offset() };
        writer.append(&[&with_right_batch(data, place)])?;
        writer.sync()
    });
    assert!(written.is_ok(), "{written:?}");
    let Ok(db) = Db::open(dir, options(&vfs)) else { return false };
    for name in db.column_families() {
        let Some(family) = db.column_family(&name) else { continue };
        let Ok(entries) = family.iter().map(|iter| iter.entries()) else { continue };
        for entry in entries {
            let Ok((key, value)) = entry else { break };
            let got = family.get(&key);
            let got = got.as_ref().map(|got| got.as_deref());
            assert!(matches!(got, Ok(Some(got)) if got == value), "a scan and a get disagree");
        }
    }
    let _ = db.close();
    true
}

/// A file system that holds the template store.
pub fn template_image() -> SimVfs {
    let vfs = SimVfs::new(0);
    for (path, bytes) in &template().files {
        vfs.write_file(path, bytes);
    }
    vfs
}

/// Batches as the engine wrote them to its log, numbered as those that come after them.
pub fn batches() -> Vec<Vec<u8>> {
    let mut batches = template().batches.clone();
    let number = |batch: &[u8]| batch.first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
    let newest = batches.iter().map(|batch| number(batch)).max().unwrap_or(0);
    for batch in &mut batches {
        let later = number(batch) + newest + MAX_OPS;
        if let Some(number) = batch.first_chunk_mut() {
            *number = later.to_le_bytes();
        }
    }
    batches
}

fn options(vfs: &SimVfs) -> Options {
    Options {
        memory_budget: terrace::MIN_MEMORY_BUDGET,
        background_jobs: 1,
        column_families: vec![("other".into(), CfOptions::default())],
        advanced: AdvancedOptions {
            vfs: Arc::new(vfs.clone()),
            memtable_bytes: 256 << 10,
            reserve_bytes: 0,
            ..AdvancedOptions::default()
        },
        ..Options::default()
    }
}

fn template() -> &'static Template {
    static TEMPLATE: OnceLock<Template> = OnceLock::new();
    TEMPLATE.get_or_init(|| make_template().expect("the engine makes a store"))
}

fn make_template() -> terrace::Result<Template> {
    let vfs = SimVfs::new(0);
    let db = Db::open(DIR, options(&vfs))?;
    let other = db.column_family("other").expect("named in the options");
    for at in 0..200u32 {
        db.put(format!("key{at:05}"), [at as u8; 20])?;
    }
    db.flush()?;
    large_values(&db)?;
    let mut batch = WriteBatch::new();
    batch.put(b"key00003", b"newer");
    batch.put_with_ttl(b"session", b"soon gone", Duration::from_secs(3600));
    batch.delete(b"key00004");
    batch.delete_range(b"key00010", b"key00020");
    batch.put_cf(&other, b"elsewhere", [7; 300]);
    db.write(batch)?;
    db.put(b"", b"")?;
    let mut large = WriteBatch::new();
    large.put(b"large", [b'l'; 2000]);
    large.put_with_ttl(b"large session", [b's'; 1500], Duration::from_secs(3600));
    db.write(large)?;
    other.delete(b"elsewhere")?;
    db.sync()?;
    // Before the close, which may leave no log behind.
    let image = vfs.kill_image();
    db.close()?;
    let read = |path: PathBuf| {
        let bytes = image.read_file(&path).unwrap_or_default();
        (path, bytes)
    };
    let files: Vec<_> = image.files().into_iter().map(|(path, _)| read(path)).collect();
    let kinds = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).map(names::parse);
    let number = |path: &PathBuf| match kinds(path) {
        Some(FileName::Sst(number)) => number,
        Some(FileName::Log(number) | FileName::ValueLog(number)) => number.file(),
        _ => FileNumber::ZERO,
    };
    let (mut batches, mut end) = (Vec::new(), None);
    for (path, _) in &files {
        if let Some(FileName::Log(number)) = kinds(path) {
            let (payloads, ends_at) = records(&image, path, number)?;
            batches.extend(payloads);
            end = end.max(Some(ends_at));
        }
    }
    let newest = files.iter().map(|(path, _)| number(path)).max();
    let next_number = newest.unwrap_or_default().next();
    Ok(Template { files, batches, end, next_number })
}

/// Leaves values in every kind of segment: one that garbage collection wrote, and one of the log
/// that an SST refers to.
fn large_values(db: &Db) -> terrace::Result<()> {
    for round in 0..3u8 {
        for at in (0..8).filter(|at| round == 0 || at % 2 == 0) {
            db.put(format!("value{at}"), [round + at; 1200])?;
        }
        db.flush()?;
        if round == 1 {
            db.collect_garbage(0.0)?;
        }
    }
    Ok(())
}

/// The payloads of a segment, and where they end.
fn records(
    vfs: &SimVfs,
    path: &Path,
    number: SegmentNumber,
) -> terrace::Result<(Vec<Vec<u8>>, LogPosition)> {
    let mut reader = LogReader::open(vfs, path, number)?;
    let mut payloads = Vec::new();
    while let Step::Record(record) = reader.next()? {
        payloads.push(record.payload.to_vec());
    }
    Ok((payloads, LogPosition { segment: number, offset: reader.position() }))
}
