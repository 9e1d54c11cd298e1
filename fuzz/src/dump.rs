//! The target for dumps of stores.

use terrace_dump::{ChunkWriter, DumpedFamily, RecordReader, RecordWriter};

/// Reads the bytes as a dump, and as the records in one.
pub fn records(data: &[u8]) -> bool {
    let chunked = || {
        // The version that has all kinds of records.
        let mut chunks = ChunkWriter::start_as(Vec::new(), 3).ok()?;
        chunks.push(data).ok()?;
        chunks.finish().ok()
    };
    read(data) | chunked().is_some_and(|dump| read(&dump))
}

fn read(dump: &[u8]) -> bool {
    let Ok(mut records) = RecordReader::start(dump) else { return false };
    loop {
        match records.next() {
            Ok(Some(record)) => drop(std::hint::black_box(record)),
            Ok(None) => return true,
            Err(error) => {
                let _said = error.to_string();
                return false;
            }
        }
    }
}

/// A small dump, and the records in one.
pub fn seeds() -> Vec<Vec<u8>> {
    let write = || {
        let mut records = RecordWriter::start(Vec::new())?;
        records.family("default")?;
        for n in 0..20_u8 {
            records.entry(&[b'k', n], &vec![n; usize::from(n) * 17], None)?;
        }
        records.family("other")?;
        records.entry(b"late", b"value", Some(4_102_444_800_000))?;
        Ok::<_, terrace_dump::Error>(records.finish()?.0)
    };
    let describe = || {
        let described = |name: &str, merge_operator: &str, options: &str| DumpedFamily {
            name: name.into(),
            merge_operator: (!merge_operator.is_empty()).then(|| merge_operator.into()),
            options: (!options.is_empty()).then(|| options.into()),
        };
        let families = [
            described("a", "counter", ""),
            described("b", "", "compaction=tiered"),
            described("c", "max", "learning=off"),
        ];
        let mut records = RecordWriter::start_for(Vec::new(), &families)?;
        families.iter().try_for_each(|family| records.described_family(family))?;
        Ok::<_, terrace_dump::Error>(records.finish()?.0)
    };
    // One without families has no checksum to be made right: that of nothing is 0.
    let empty = [&[4][..], &[0; 36]].concat();
    write().into_iter().chain(describe()).chain([empty]).collect()
}
