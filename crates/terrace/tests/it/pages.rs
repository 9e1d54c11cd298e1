//! Files with padded blocks in the hands of everything that works on files: flush, compaction, ingestion,
//! checkpoint, repair, verification.

use std::collections::BTreeMap;
use std::path::Path;
use terrace::{
    CfOptions, Compression, Db, IngestOptions, Options, RepairOptions, SstWriter, repair,
};
use terrace_base::rng::{Rng, SplitMix64};

type Contents = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(compression: Compression) -> Options {
    let mut options = Options { memory_budget: 16 << 20, ..Options::default() };
    options.default_family = CfOptions {
        compression: vec![compression],
        value_separation_threshold: usize::MAX,
        ..CfOptions::default()
    };
    options.advanced.reserve_bytes = 0;
    options.advanced.target_file_bytes = 256 << 10;
    options.advanced.compact_when_idle = false;
    options
}

/// Entries of sizes that leave little and much of a page.
fn drawn(seed: u64, keys: std::ops::Range<u64>) -> Contents {
    let mut rng = SplitMix64::new(seed);
    let mut contents = Contents::new();
    for key in keys {
        let most = [10, 100, 1400, 5000][rng.below(4) as usize];
        let len = rng.below(most) as usize;
        let value = (0..len).map(|at| if at % 3 == 0 { b'.' } else { rng.next_u64() as u8 });
        contents.insert(format!("key{key:06}").into_bytes(), value.collect());
    }
    contents
}

fn write(db: &Db, contents: &Contents) {
    for (key, value) in contents {
        db.put(key, value).unwrap();
    }
    db.flush().unwrap();
}

fn check(db: &Db, want: &Contents) {
    let found = db.iter().unwrap().entries().map(|entry| entry.unwrap());
    assert!(found.eq(want.iter().map(|(key, value)| (key.clone(), value.clone()))), "a scan");
    for (key, value) in want {
        assert_eq!(db.get(key).unwrap().as_deref(), Some(&value[..]));
    }
    let keys: Vec<_> = want.keys().step_by(7).collect();
    let many = db.multi_get(&keys).unwrap();
    for (key, value) in keys.iter().zip(many) {
        assert_eq!(value.as_deref(), Some(&want[*key][..]));
    }
    db.verify().unwrap();
}

fn remove_manifest(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "CURRENT" || name.starts_with("MANIFEST") {
            std::fs::remove_file(&path).unwrap();
        }
    }
}

#[test]
fn padded_files_are_merged_ingested_copied_and_repaired() {
    for compression in [Compression::None, Compression::Lz4] {
        let dir = tempfile::tempdir().unwrap();
        let (home, copy) = (dir.path().join("home"), dir.path().join("copy"));
        let db = Db::open(&home, options(compression)).unwrap();
        let mut want = drawn(1, 0..1000);
        write(&db, &want);
        let newer = drawn(2, 300..600);
        write(&db, &newer);
        want.extend(newer);
        check(&db, &want);
        db.compact_range::<&[u8]>(..).unwrap();
        check(&db, &want);

        let outside = drawn(3, 2000..2300);
        let path = dir.path().join("outside.sst");
        let family = options(compression).default_family;
        let mut writer = SstWriter::create(&path, &family).unwrap();
        for (key, value) in &outside {
            writer.put(key, value).unwrap();
        }
        let file = writer.finish().unwrap();
        db.ingest(&[&file.path], &IngestOptions::default()).unwrap();
        want.extend(outside);
        check(&db, &want);

        db.checkpoint(&copy).unwrap();
        db.close().unwrap();
        check(&Db::open(&home, options(compression)).unwrap(), &want);
        check(&Db::open(&copy, options(compression)).unwrap(), &want);
        remove_manifest(&copy);
        let report = repair(&copy, options(compression), RepairOptions::default()).unwrap();
        let [lost] = &report.lost[..] else { panic!("{report:?}") };
        assert!(lost.starts_with("the manifest"), "{lost}");
        assert_eq!(report.entries, want.len() as u64);
        check(&Db::open(&copy, options(compression)).unwrap(), &want);
    }
}
