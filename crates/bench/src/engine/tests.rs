//! One contract for all engines that are at hand, and the lookup of libraries.

use super::*;
use crate::store::{Compression, Durability, FilterMemory, MetadataPlace};

fn config() -> EngineConfig {
    EngineConfig {
        cache_bytes: 8 << 20,
        write_bytes: 4 << 20,
        memtable_bytes: 1 << 20,
        filter: Some("blocked:10".parse().unwrap()),
        filter_memory: FilterMemory::AsMetadata,
        fill_cache: true,
        statistics: false,
        compression: Compression::None,
        sync: Durability::None,
        direct_io: false,
        background_jobs: 2,
        subcompactions: 1,
        block_size: 4096,
        metadata: MetadataPlace::Fastest,
        extra: Vec::new(),
    }
}

/// The polls that make sure of the calm are no part of the time to settled.
#[test]
fn an_engine_has_settled_when_its_calm_begins() {
    let mut asked = Vec::new();
    let settled = wait_until_idle(CALM_POLLS, || {
        asked.push(Instant::now());
        // A pause between two merges is not the end.
        Ok(asked.len() != 1 && asked.len() != 4)
    });
    let settled = settled.unwrap();
    assert_eq!(asked.len() as u32, 4 + CALM_POLLS);
    assert!(asked[3] < settled && settled <= asked[4], "{settled:?} of {asked:?}");
}

/// Tells [`one_engine_keeps_the_contract`] which.
const ENGINE_VARIABLE: &str = "TERRACE_TEST_ENGINE";

/// Every engine whose library is on this machine, each in a process of its own: RocksDB and Speedb
/// do not go together into one.
#[test]
fn every_engine_at_hand_keeps_the_contract() {
    let at_hand = Engine::ALL.into_iter().filter(|engine| engine.library(None).is_ok());
    for engine in at_hand {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--ignored", "engine::tests::one_engine_keeps_the_contract"])
            .env(ENGINE_VARIABLE, engine.name())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{engine}: {text}");
    }
}

#[test]
#[ignore = "run by every_engine_at_hand_keeps_the_contract, one engine a process"]
fn one_engine_keeps_the_contract() {
    let Ok(name) = std::env::var(ENGINE_VARIABLE) else { return };
    let engine: Engine = name.parse().unwrap();
    let library = engine.library(None).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let open = || engine.open(dir.path(), &config(), library.as_deref()).unwrap();
    let store = open();
    let key = |i: u32| format!("key{i:06}").into_bytes();
    for i in 0..5000 {
        store.put(&key(i), &i.to_le_bytes()).unwrap();
    }
    store.delete(&key(7)).unwrap();
    store.flush().unwrap();
    store.settle().unwrap();
    store.put(&key(8), b"new").unwrap();
    let get = |store: &dyn Store, i| {
        let mut value = None;
        let found = store.get(&key(i), &mut |bytes| value = Some(bytes.to_vec())).unwrap();
        assert_eq!(found, value.is_some());
        value
    };
    assert_eq!(get(&*store, 3).unwrap(), 3u32.to_le_bytes(), "{engine}");
    assert_eq!(get(&*store, 8).unwrap(), b"new", "{engine}");
    assert_eq!((get(&*store, 7), get(&*store, 5000)), (None, None), "{engine}");
    let keys: Vec<Vec<u8>> = [1, 7, 9, 9999].map(key).to_vec();
    let mut seen = 0;
    assert_eq!(store.multi_get(&keys, &mut |_| seen += 1).unwrap(), 2, "{engine}");
    assert_eq!(seen, 2);

    let mut cursor = store.cursor().unwrap();
    cursor.seek(&key(6)).unwrap();
    assert_eq!(cursor.entry().unwrap().0, key(6), "{engine}");
    cursor.next().unwrap();
    assert_eq!(cursor.entry().unwrap(), (&key(8)[..], &b"new"[..]), "{engine}");
    cursor.seek(b"key9").unwrap();
    assert!(cursor.entry().is_none(), "{engine}");
    drop(cursor);

    assert!(!store.options_text().is_empty() && !store.version().is_empty());
    store.close().unwrap();
    let store = open();
    assert_eq!(get(&*store, 8).unwrap(), b"new", "{engine} after reopening");
    store.merge_all().unwrap();
    let one_run = (!engine.is_tree()).then_some(1);
    assert_eq!(store.sorted_runs().unwrap(), one_run, "{engine} once merged");
    store.sort_values().unwrap();
    assert_eq!((get(&*store, 3).is_some(), get(&*store, 7)), (true, None), "{engine} once sorted");
    let metadata = store.metadata_bytes().unwrap();
    let filters_wanted = 5000 * 10 / 8 / 2;
    assert!(metadata.filters.is_none_or(|bytes| bytes > filters_wanted), "{engine} {metadata:?}");
    store.close().unwrap();
    values_apart_keep_the_contract(engine, library.as_deref());
    loads_and_backups_keep_the_contract(engine, library.as_deref());
}

/// What is loaded past the memtables is there, and is there again after a backup and a restore.
fn loads_and_backups_keep_the_contract(engine: Engine, library: Option<&Path>) {
    let key = |i: u64| (i * 7 % 2000).to_be_bytes();
    let dir = tempfile::tempdir().unwrap();
    let place = |name: &str| dir.path().join(name);
    let check = |store: &dyn Store, known: usize| {
        let found = (0..2500u64).filter(|i| store.get(&i.to_be_bytes(), &mut |_| {}).unwrap());
        assert_eq!(found.count(), known, "{engine}");
    };
    let store = engine.open(&place("bulk"), &config(), library).unwrap();
    assert_eq!(store.bulk_loader().is_ok(), engine.has_bulk_loader(), "{engine}");
    if engine.has_bulk_loader() {
        let mut loader = store.bulk_loader().unwrap();
        (0..2000).for_each(|i| loader.put(&key(i), b"value").unwrap());
        loader.finish().unwrap();
        check(&*store, 2000);
    }
    store.close().unwrap();
    let store = engine.open(&place("ingest"), &config(), library).unwrap();
    let can_ingest = store.ingester(dir.path()).is_ok();
    assert_eq!(can_ingest, engine.has_ingestion_and_backups(), "{engine}");
    if !can_ingest {
        return store.close().unwrap();
    }
    let mut loader = store.ingester(dir.path()).unwrap();
    (0..2000u64).for_each(|i| loader.put(&i.to_be_bytes(), b"value").unwrap());
    loader.finish().unwrap();
    check(&*store, 2000);
    std::fs::create_dir(place("backups")).unwrap();
    store.back_up(&place("backups")).unwrap();
    store.put(&2000u64.to_be_bytes(), b"later").unwrap();
    store.back_up(&place("backups")).unwrap();
    store.restore(&place("backups"), &place("restored")).unwrap();
    store.close().unwrap();
    let store = engine.open(&place("restored"), &config(), library).unwrap();
    check(&*store, 2001);
    store.close().unwrap();
}

/// Values that are kept apart are found, scanned, overwritten and sorted like others.
fn values_apart_keep_the_contract(engine: Engine, library: Option<&Path>) {
    use crate::catalog::large_values::{Variant, configure};
    let shape = crate::store_size::StoreSize { keys: 2000, key_size: 8, value_size: 2000 };
    let variant = if Variant::Blob.suits(engine) { Variant::Blob } else { Variant::Default };
    let mut config = config();
    configure(&mut config, engine, variant, shape);
    let dir = tempfile::tempdir().unwrap();
    let store = engine.open(dir.path(), &config, library).unwrap();
    let key = |i: u64| (i * 7 % 2000).to_be_bytes();
    let value = |i: u64, round: u8| vec![round + i as u8 % 100; 2000];
    for round in [1, 2] {
        for i in 0..2000 {
            store.put(&key(i), &value(i, round)).unwrap();
        }
    }
    store.flush().unwrap();
    store.settle().unwrap();
    let check = || {
        let mut seen = 0;
        for i in 0..2000 {
            let found = store.get(&key(i), &mut |bytes| seen += usize::from(bytes == value(i, 2)));
            assert!(found.unwrap(), "{engine}");
        }
        assert_eq!(seen, 2000, "{engine}");
        let mut cursor = store.cursor().unwrap();
        cursor.seek(&[]).unwrap();
        for place in 0..2000u64 {
            let (found, bytes) = cursor.entry().unwrap();
            assert_eq!((found, bytes.len()), (&place.to_be_bytes()[..], 2000), "{engine}");
            cursor.next().unwrap();
        }
        assert!(cursor.entry().is_none(), "{engine}");
    };
    check();
    store.sort_values().unwrap();
    check();
    let tickers = store.options_text().contains("statistics=tickers");
    assert!(tickers || engine != Engine::Rocksdb, "nothing is timed for what is only counted");
    let counts = store.value_counts().unwrap();
    let user_bytes = 2 * 2000 * 2008;
    assert!(counts.written_bytes.is_none_or(|bytes| bytes >= user_bytes), "{engine} {counts:?}");
    assert_eq!(counts.written_bytes.is_some(), engine.has_direct_io(), "{engine}");
    if matches!(engine, Engine::Rocksdb | Engine::Speedb) {
        let live = counts.value_live_bytes.unwrap();
        assert!((4_000_000..4_400_000).contains(&live), "{engine} {counts:?}");
        assert!(counts.moved_bytes.unwrap() >= 4_000_000, "{engine} {counts:?}");
    }
    store.close().unwrap();
}

#[test]
fn fjall_has_its_metadata_in_memory_and_hash_indexes_unless_told_otherwise() {
    let options = |hash_ratio: Option<&str>| {
        let dir = tempfile::tempdir().unwrap();
        let extra = hash_ratio.map(|ratio| ("hash_ratio".to_owned(), ratio.to_owned()));
        let config = EngineConfig { extra: extra.into_iter().collect(), ..config() };
        let store = Engine::Fjall.open(dir.path(), &config, None)?;
        let text = store.options_text();
        store.close().map(|()| text)
    };
    let text = options(None).unwrap();
    assert!(text.contains("filters_and_indexes=pinned,whole;data_block_hash_ratio=1.33"), "{text}");
    assert!(options(Some("0")).unwrap().contains("data_block_hash_ratio=0;"));
    let refused = options(Some("9")).unwrap_err().to_string();
    assert!(refused.contains("0 to 8"), "{refused}");
}

#[test]
fn engines_refuse_what_they_cannot_do() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |engine: Engine, config: EngineConfig| {
        engine.open(dir.path(), &config, None).map(drop).unwrap_err().to_string()
    };
    let direct = EngineConfig { direct_io: true, ..config() };
    assert!(refused(Engine::Fjall, direct).contains("direct I/O"));
    let with = |text: &str| EngineConfig { filter: Some(text.parse().unwrap()), ..config() };
    assert!(refused(Engine::Fjall, with("ribbon:10")).contains("ribbon:10"));
    assert!(refused(Engine::Rocksdb, with("paired:10")).contains("paired:10"));
    assert!(refused(Engine::Speedb, with("bloom:4x6")).contains("bloom:4x6"));
    assert!(refused(Engine::Rocksdb, config()).contains("cargo xtask peers"));
    let extra = vec![("no_such_thing".to_owned(), "1".to_owned())];
    for engine in [Engine::Terrace, Engine::Fjall, Engine::Lmdb, Engine::Redb] {
        let text = format!(
            "{:#}",
            engine
                .open(dir.path(), &EngineConfig { extra: extra.clone(), ..config() }, None)
                .map(drop)
                .unwrap_err()
        );
        assert!(text.contains("no"), "{text}");
    }
}

#[test]
fn names_are_checked_and_missing_libraries_explained() {
    let text = "cassandra".parse::<Engine>().unwrap_err().to_string();
    assert!(text.contains("terrace, rocksdb, speedb, leveldb, fjall, lmdb, redb"), "{text}");
    let text =
        format!("{:#}", Engine::Rocksdb.library(Some(Path::new("/no/such.so"))).unwrap_err());
    assert!(text.contains("/no/such.so"), "{text}");
}

#[test]
fn the_stated_versions_of_crates_are_those_linked() {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock"));
    let lock = lock.unwrap();
    for (name, stated) in [("fjall", fjall::VERSION), ("redb", redb::VERSION)] {
        let version = lock
            .split("[[package]]")
            .find(|package| package.contains(&format!("name = \"{name}\"")))
            .and_then(|package| package.lines().find_map(|line| line.strip_prefix("version = ")))
            .unwrap();
        assert_eq!(version.trim_matches('"'), stated, "{name}");
    }
}
