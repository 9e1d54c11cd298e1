//! A small store on a simulated file system, made of the floors below the engine: two families,
//! three SSTs in two levels, range tombstones, expiries, a log of two segments.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use terrace_base::codec::{put_bytes, put_varint};
use terrace_base::key::pack_trailer;
use terrace_base::{FileNumber, RangeTombstone, RangeTombstones, SegmentNumber, SeqNo, ValueKind};
use terrace_log::{LogOptions, LogPosition, LogWriter};
use terrace_manifest::{FamilyEdit, FileMeta, Manifest, VersionEdit, names};
use terrace_sst::{Compression, SstOptions, SstSummary, SstWriter};
use terrace_vfs::{BeforeCalls, Call, SimVfs, Vfs};

pub const DIR: &str = "/store";

const FOUR: SegmentNumber = SegmentNumber::new(4);
const FIVE: SegmentNumber = SegmentNumber::new(5);

pub struct Store {
    pub vfs: SimVfs,
}

pub fn batch(first: u64, ops: &[(ValueKind, u32, &[u8], &[u8])]) -> Vec<u8> {
    let mut out = first.to_le_bytes().to_vec();
    out.extend_from_slice(&(ops.len() as u32).to_le_bytes());
    for (kind, family, key, value) in ops {
        out.push(*kind as u8);
        put_varint(&mut out, u64::from(*family));
        put_bytes(&mut out, key);
        put_bytes(&mut out, value);
    }
    out
}

pub fn sst(vfs: &SimVfs, number: u64, keys: std::ops::Range<u32>, seqno: u64) -> FileMeta {
    let options =
        SstOptions { block_size: 512, compression: Compression::Lz4, ..Default::default() };
    let file_number = FileNumber::new(number);
    let path = names::sst_path(Path::new(DIR), file_number);
    let mut writer = SstWriter::create(vfs, &path, file_number, options).unwrap();
    for key in keys {
        let kind = if key % 10 == 3 { ValueKind::Delete } else { ValueKind::Put };
        let value = if kind == ValueKind::Put { format!("value of {key}") } else { String::new() };
        let name = format!("key{key:05}");
        writer
            .add(name.as_bytes(), pack_trailer(SeqNo::new(seqno), kind), value.as_bytes())
            .unwrap();
    }
    if number == 2 {
        let tombstone = RangeTombstone {
            start: b"key00950".to_vec(),
            end: b"key01100".to_vec(),
            seqno: SeqNo::new(seqno),
        };
        writer.set_range_tombstones(RangeTombstones::new([tombstone]));
    }
    file_meta(file_number, writer.finish().unwrap())
}

/// What a manifest says of a file just written.
pub fn file_meta(number: FileNumber, summary: SstSummary) -> FileMeta {
    FileMeta {
        number,
        size_bytes: summary.size_bytes,
        smallest: summary.smallest,
        largest: summary.largest,
        largest_exclusive: summary.largest_exclusive,
        smallest_seqno: summary.smallest_seqno,
        largest_seqno: summary.largest_seqno,
        entry_count: summary.entry_count,
        tombstone_count: summary.tombstone_count,
        range_tombstone_count: summary.range_tombstone_count,
        raw_bytes: summary.raw_bytes,
        created_ms: 0,
        ttl_due_ms: summary.ttl_due_ms,
        value_refs: summary.value_refs,
    }
}

impl Store {
    pub fn new() -> Self {
        let vfs = SimVfs::new(1);
        let dir = Path::new(DIR);
        vfs.create_dir_all(dir).unwrap();
        let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
        let (mut manifest, mut state) = Manifest::create(shared, dir, 0xfeed).unwrap();
        let deep = vec![(6, sst(&vfs, 1, 0..900, 5)), (6, sst(&vfs, 2, 900..1000, 5))];
        let fresh = vec![(0, sst(&vfs, 3, 100..200, 7))];
        let default = FamilyEdit { added: deep, min_log_segment: Some(FOUR), ..Default::default() };
        let other = FamilyEdit {
            id: 1,
            create: Some("other".into()),
            added: fresh,
            min_log_segment: Some(FOUR),
            ..Default::default()
        };
        let edit = VersionEdit {
            next_file_number: Some(FileNumber::new(6)),
            last_seqno: Some(SeqNo::new(20)),
            families: vec![default, other],
            ..VersionEdit::default()
        };
        manifest.append(&mut state, &edit).unwrap();
        let store = Self { vfs };
        store.log_segments();
        store
    }

    fn log_segments(&self) {
        let options = LogOptions::default();
        let path = |number| names::log_path(Path::new(DIR), number);
        let mut first = LogWriter::create(&self.vfs, &path(FOUR), FOUR, &options).unwrap();
        first.append(&[&batch(8, &[(ValueKind::Put, 0, b"alpha", b"one")])]).unwrap();
        first.sync().unwrap();
        first.append(&[&batch(9, &[(ValueKind::Delete, 1, b"beta", b"")])]).unwrap();
        first.finish().unwrap();
        let end = Some(first.end());
        let mut second =
            LogWriter::create_after(&self.vfs, &path(FIVE), FIVE, &options, end).unwrap();
        let range = (ValueKind::RangeDelete, 0, &b"gamma"[..], &b"omega"[..]);
        second.append(&[&batch(10, &[range, (ValueKind::Put, 0, b"delta", b"two")])]).unwrap();
        second.sync().unwrap();
    }

    pub fn shared(&self) -> Arc<dyn Vfs> {
        Arc::new(self.vfs.clone())
    }

    /// Begins a further log segment, with room set aside, in which there is nothing yet. A writer appends some records to it,
    /// and syncs each, right before the read of it that `nth` have come before.
    pub fn beside_writer(&self, nth: usize) -> Arc<dyn Vfs> {
        let (path, number) = (self.path("000006.log"), SegmentNumber::new(6));
        let offset = self.vfs.len(&self.path("000005.log")).unwrap();
        let end = Some(LogPosition { segment: FIVE, offset });
        let options = LogOptions { preallocate_bytes: 1 << 20, ..LogOptions::default() };
        let writer = LogWriter::create_after(&self.vfs, &path, number, &options, end).unwrap();
        let (writer, reads) = (Mutex::new(writer), AtomicUsize::new(0));
        let value = vec![7_u8; 100_000];
        Arc::new(BeforeCalls::with_reads(self.vfs.clone(), move |call, at: &Path| {
            let is_read = matches!(call, Call::Read(..)) && at == path.as_path();
            if is_read && reads.fetch_add(1, Ordering::Relaxed) == nth {
                let mut writer = writer.lock().unwrap();
                // More than is read at once.
                for seqno in 12..17 {
                    let put = (ValueKind::Put, 0, &b"key"[..], &value[..]);
                    writer.append(&[&batch(seqno, &[put])])?;
                    writer.sync()?;
                }
            }
            Ok(())
        }))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        Path::new(DIR).join(name)
    }

    /// The name of the manifest in force.
    pub fn manifest(&self) -> String {
        let number = terrace_manifest::current::read(&self.vfs, Path::new(DIR)).unwrap();
        names::manifest_name(number)
    }
}
