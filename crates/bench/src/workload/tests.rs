//! Every workload at a tiny size on the engines that are always there.

mod fake_store;

use super::*;
use crate::catalog::mix::Mix;
use crate::catalog::tiny_cache::TinyCache;
use crate::catalog::{self, Workload};
use crate::engine::Engine;
use crate::job::{Limit, Settings};
use crate::store::{Compression, Durability, FilterMemory, MetadataPlace};
use std::path::Path;
use std::sync::{Arc, Mutex};

fn job(engine: Engine, store: StoreKind, workloads: &[Workload], dir: &Path) -> Job {
    Job {
        engine,
        library: None,
        repeat: 1,
        repeats: 1,
        dir: dir.to_owned(),
        config: EngineConfig {
            cache_bytes: 8 << 20,
            write_bytes: 4 << 20,
            memtable_bytes: 1 << 20,
            filter: Some("blocked:10".parse().unwrap()),
            filter_memory: match store {
                StoreKind::TinyCache(TinyCache::Default) | StoreKind::BudgetCurve => {
                    FilterMemory::Default
                }
                _ => FilterMemory::AsMetadata,
            },
            fill_cache: true,
            statistics: false,
            compression: Compression::None,
            sync: Durability::None,
            direct_io: false,
            background_jobs: 2,
            subcompactions: 1,
            block_size: 4096,
            metadata: match store {
                StoreKind::TinyCache(tiny) => {
                    MetadataPlace::InCache { partitioned: tiny != TinyCache::Whole }
                }
                _ => MetadataPlace::Fastest,
            },
            extra: Vec::new(),
        },
        sides: Vec::new(),
        store,
        workloads: workloads.to_vec(),
        variants: Vec::new(),
        shape: StoreSize { keys: 3000, key_size: 16, value_size: 100 },
        distribution: None,
        missing: None,
        threads: 2,
        limit: Limit { ops: Some(2000), duration_s: None },
        settings: Settings::default(),
        machine: "m".to_owned(),
        commit: "c".to_owned(),
        stats: true,
    }
}

/// The kernel counts reads of the whole process: one workload at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn rows_of(job: &Job) -> Vec<Row> {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = events.clone();
    run(job, &Observer::new(move |event| sink.lock().unwrap().push(event))).unwrap();
    let events = std::mem::take(&mut *events.lock().unwrap());
    assert!(matches!(events[0], Event::Options(_)));
    let tells_stats = events.iter().any(|event| matches!(event, Event::Stats(_)));
    assert!(tells_stats, "{:?}", job.workloads);
    let row = |event| if let Event::Row(row) = event { Some(*row) } else { None };
    events.into_iter().filter_map(row).collect()
}

fn run_all(engine: Engine, store: StoreKind) -> Vec<Row> {
    let dir = tempfile::tempdir().unwrap();
    let workloads: Vec<Workload> =
        Workload::ALL.into_iter().filter(|w| w.stores().contains(&store)).collect();
    let second_fill = |w: &Workload| *w != Workload::Fillseq;
    let workloads: Vec<Workload> = workloads.into_iter().filter(second_fill).collect();
    rows_of(&job(engine, store, &workloads, dir.path()))
}

fn names(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.workload.as_str()).collect()
}

fn check(rows: &[Row]) {
    for row in rows {
        assert!(row.ops > 0 && row.seconds > 0.0 && row.ops_per_s > 0.0, "{row:?}");
        assert!(row.rss_bytes > 0 && row.p50_us <= row.max_us, "{row:?}");
        assert!(row.write_amp.is_some() == (row.user_bytes > 0), "{row:?}");
    }
}

#[test]
fn the_basic_workloads_run() {
    for engine in [Engine::Terrace, Engine::Fjall, Engine::Lmdb, Engine::Redb] {
        let rows = run_all(engine, StoreKind::Basic);
        check(&rows);
        assert_eq!(
            names(&rows),
            [
                "fillrandom",
                "fillrandom-unsettled",
                "readrandom",
                "readmissing",
                "seekrandom",
                "scan",
                "readwhilewriting",
                "overwrite",
                "overwrite-unsettled",
                "deleterandom",
                "deleterandom-unsettled",
            ],
            "{engine}"
        );
        assert_eq!((rows[0].ops, rows[0].user_bytes), (3000, 3000 * 116));
        assert!(
            rows[0].seconds > rows[1].seconds && rows[0].bytes_written >= rows[1].bytes_written
        );
        assert_eq!((rows[2].ops, rows[2].user_bytes), (2000, 0));
        assert!(rows.iter().all(|row| row.sorted_runs.is_some() != engine.is_tree()), "{rows:?}");
        assert!(rows.iter().all(|row| row.writer.is_some() == (row.workload == names(&rows)[6])));
        assert_eq!(rows[2].wasted_reads_per_op, None);
        assert!(rows[3].wasted_reads_per_op.is_some());
    }
}

/// Only what reads is read from a store that was merged.
#[test]
fn with_merged_reads_find_one_sorted_run() {
    for engine in [Engine::Terrace, Engine::Fjall] {
        let dir = tempfile::tempdir().unwrap();
        let workloads = [Workload::Fillrandom, Workload::Readrandom, Workload::Overwrite];
        let mut job = job(engine, StoreKind::Basic, &workloads, dir.path());
        job.settings.merged = true;
        let rows = rows_of(&job);
        check(&rows);
        for row in &rows {
            let reads = row.workload == "readrandom";
            assert_eq!(row.merged, reads, "{row:?}");
            assert!(!reads || row.sorted_runs == Some(1), "{row:?}");
        }
    }
    for (store, workload) in [
        (StoreKind::Ycsb, Workload::Ycsb(Mix::C)),
        (StoreKind::TinyCache(TinyCache::Partitioned), Workload::TinyCache),
        (StoreKind::Packages, Workload::Packages),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut job = job(Engine::Terrace, store, &[workload], dir.path());
        job.settings.merged = true;
        let rows = rows_of(&job);
        let last = rows.last().unwrap();
        assert_eq!((last.merged, last.sorted_runs), (true, Some(1)), "{last:?}");
    }
}

#[test]
fn loads_and_backups_run_where_the_engine_has_them() {
    for (workload, store, expected) in [
        (Workload::Bulkload, StoreKind::BulkLoad, &["bulkload", "bulkload-unsettled"][..]),
        (Workload::Ingest, StoreKind::Ingest, &["ingest", "ingest-unsettled"][..]),
        (Workload::Backup, StoreKind::Backup, &["backup", "backup-again", "restore"][..]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let rows = rows_of(&job(Engine::Terrace, store, &[workload], dir.path()));
        check(&rows);
        assert_eq!(names(&rows), expected);
        assert_eq!((rows[0].ops, rows[0].user_bytes), (3000, 3000 * 116));
        assert!(store.suits(Engine::Terrace).is_ok() && store.suits(Engine::Fjall).is_err());
    }
}

#[test]
fn two_stores_with_different_settings_take_turns() {
    for engine in [Engine::Terrace, Engine::Redb] {
        let dir = tempfile::tempdir().unwrap();
        let mut job = job(engine, StoreKind::Paired, &[Workload::Paired], dir.path());
        // 37 turns, and 40 keys that fill none.
        (job.threads, job.settings.slice_puts) = (1, 40);
        job.sides = vec![job.config.clone(); 2];
        job.sides[1].memtable_bytes = 2 << 20;
        let rows = rows_of(&job);
        assert_eq!(names(&rows), ["paired"]);
        let figures = rows[0].paired.as_ref().unwrap();
        assert_eq!(
            (figures.turns, rows[0].ops, rows[0].user_bytes),
            (37, 37 * 160, 37 * 160 * 116)
        );
        for ratio in [figures.wall_ratio, figures.cpu_ratio, figures.wall_typical] {
            assert!(0.0 < ratio.low && ratio.low <= ratio.ratio && ratio.ratio <= ratio.high);
        }
        assert!(rows[0].options.contains("; b: "), "{}", rows[0].options);
        let table = crate::report::table::render(&rows);
        assert!(table.contains("paired, processor") && table.contains("95 % interval"), "{table}");
    }
}

#[test]
fn fillseq_runs_alone() {
    let dir = tempfile::tempdir().unwrap();
    let rows = rows_of(&job(Engine::Terrace, StoreKind::Basic, &[Workload::Fillseq], dir.path()));
    check(&rows);
    assert_eq!(names(&rows), ["fillseq", "fillseq-unsettled"]);
}

#[test]
fn the_ycsb_mixes_run() {
    for engine in [Engine::Terrace, Engine::Fjall] {
        let rows = run_all(engine, StoreKind::Ycsb);
        check(&rows);
        let order = ["ycsb-c", "ycsb-b", "ycsb-a", "ycsb-f", "ycsb-d", "ycsb-e"];
        assert_eq!(names(&rows), order, "{engine}");
        let written: Vec<u64> = rows.iter().map(|row| row.user_bytes / 116).collect();
        assert!(written[0] == 0 && (50..200).contains(&written[1]), "{written:?}");
        assert!(
            (850..1150).contains(&written[2]) && (850..1150).contains(&written[3]),
            "{written:?}"
        );
        assert!(rows[5].keys > 3000, "mix d inserted nothing");
    }
}

#[test]
fn tiny_cache_runs_with_and_without_partitions() {
    for (tiny, variant) in [
        (TinyCache::Partitioned, "partitions-on"),
        (TinyCache::Whole, "partitions-off"),
        (TinyCache::Default, ""),
    ] {
        let rows = run_all(Engine::Terrace, StoreKind::TinyCache(tiny));
        check(&rows);
        assert_eq!(names(&rows), ["tiny-cache-hit", "tiny-cache-miss", "tiny-cache-mixed"]);
        assert!(rows.iter().all(|row| row.variant == variant));
    }
}

#[test]
fn the_budget_curve_has_all_reads_at_every_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut job =
        job(Engine::Terrace, StoreKind::BudgetCurve, &[Workload::BudgetCurve], dir.path());
    // Of 32 MiB a tenth is less than the least memory, and a fifth is more.
    (job.shape.keys, job.shape.value_size) = (4096, 8192 - 16);
    let rows = rows_of(&job);
    check(&rows);
    let expected = ["budget-curve-hit", "budget-curve-miss", "budget-curve-mixed"].repeat(2);
    assert_eq!(names(&rows), expected);
    let variants: Vec<&str> = rows.iter().map(|row| row.variant.as_str()).collect();
    assert_eq!(variants, ["12.5%", "12.5%", "12.5%", "20%", "20%", "20%"]);
    let memories = rows.iter().map(|row| row.budget.unwrap().memory_bytes);
    assert!(memories.is_sorted_by(|one, other| one <= other && *one >= 4 << 20));
}

#[test]
fn packages_run() {
    for engine in [Engine::Terrace, Engine::Fjall] {
        let rows = run_all(engine, StoreKind::Packages);
        check(&rows);
        assert_eq!(names(&rows), ["packages-load", "packages-load-unsettled", "packages"]);
        assert_eq!(rows[2].keys, 1500);
    }
}

#[test]
fn elastic_runs_under_every_law_and_through_a_shift() {
    let dir = tempfile::tempdir().unwrap();
    let store = StoreKind::Elastic(catalog::elastic::Variant::UniformBloom);
    let workloads = [Workload::Elastic, Workload::ElasticShift];
    let mut job = job(Engine::Terrace, store, &workloads, dir.path());
    job.threads = 1;
    job.shape.keys = 1000;
    job.limit.ops = Some(500);
    catalog::elastic::configure(
        &mut job.config,
        true,
        catalog::elastic::Variant::UniformBloom,
        job.shape,
        4.0,
    )
    .unwrap();
    let rows = rows_of(&job);
    check(&rows);
    assert_eq!(
        names(&rows),
        ["elastic-uniform", "elastic-zipf-0.99", "elastic-zipf-1.1", "elastic-shift"]
    );
    for row in &rows {
        let figures = row.elastic.as_ref().unwrap();
        let budget = 625 + 130 * 1024;
        assert_eq!(
            (row.variant.as_str(), figures.filter_budget_bytes),
            ("uniform-bloom:4", budget)
        );
        let wasted = row.wasted_reads_per_op.unwrap();
        assert!((0.0..3.0).contains(&wasted) && row.sorted_runs.unwrap() > 0, "{row:?}");
        assert!(row.filter_bytes.is_some_and(|bytes| bytes <= budget), "{row:?}");
    }
    let shift = rows[3].shift.as_ref().unwrap();
    assert_eq!((shift.series.len(), shift.series_step_ops, shift.shift_after_ops), (80, 100, 2000));
}

#[test]
fn large_values_are_loaded_read_scanned_sorted_and_overwritten() {
    for (engine, variant, store_variant) in [
        (Engine::Terrace, "", catalog::large_values::Variant::Default),
        (Engine::Terrace, "inline", catalog::large_values::Variant::Inline),
        (Engine::Fjall, "blob", catalog::large_values::Variant::Blob),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = StoreKind::LargeValues(store_variant);
        let mut job = job(engine, store, &[Workload::LargeValues], dir.path());
        job.shape.value_size = 4096;
        job.settings.sample_ms = 5;
        job.settings.passes = 1.5;
        job.limit.ops = Some(400);
        catalog::large_values::configure(&mut job.config, engine, store_variant, job.shape);
        let rows = rows_of(&job);
        check(&rows);
        let reads = [
            "large-values-read",
            "large-values-scan",
            "large-values-sort",
            "large-values-scan-sorted",
        ];
        let load = ["large-values-load", "large-values-load-unsettled"];
        let update = ["large-values-update", "large-values-update-unsettled"];
        let reads = if engine == Engine::Terrace { &reads[..] } else { &[] };
        assert_eq!(names(&rows), [&load[..], reads, &update[..]].concat());
        for row in &rows {
            let figures = row.large_values.as_ref().unwrap();
            assert_eq!((row.variant.as_str(), figures.value_bytes), (variant, 4096), "{row:?}");
            let writes = row.user_bytes > 0;
            let gap = figures.longest_gap_us;
            assert_eq!(gap.is_some(), writes, "{row:?}");
            assert!(gap.is_none_or(|gap| gap >= row.p50_us), "{row:?}");
            // Its reads may go through an io_uring, which the kernel's count leaves out.
            assert_eq!(figures.read_calls_per_op, None, "{row:?}");
            if row.workload.contains("scan") {
                let rate = figures.entries_per_s.unwrap() / row.ops_per_s;
                assert!((99.0..101.0).contains(&rate), "{rate} entries a scan");
            }
        }
        let last = &rows[rows.len() - 2];
        let figures = last.large_values.as_ref().unwrap();
        assert_eq!((last.ops, last.user_bytes), (4500, 4500 * 4112));
        assert!(figures.space_amp_max.unwrap() >= last.space_amp.unwrap() * 0.99, "{last:?}");
        assert!(figures.space_amp_max.unwrap() >= 1.0 && figures.space_series.len() > 2);
        assert_eq!(figures.series_seconds.len(), figures.rate_series.len());
        assert!(last.write_amp.unwrap() > 1.0, "{last:?}");
        if engine == Engine::Terrace {
            assert!(figures.engine_write_amp.unwrap() >= 1.0, "{figures:?}");
        }
    }
}

fn learned_job(set: catalog::key_set::KeySet, dir: &Path) -> Job {
    let mut job = job(Engine::Terrace, StoreKind::Learned(set), &[Workload::Learned], dir);
    job.variants = catalog::learned::Variant::of(Engine::Terrace, false);
    job.shape.value_size = 64;
    job.threads = 1;
    job.limit.ops = Some(500);
    job.settings.rounds = 2;
    job.settings.level_wait_s = 0.0;
    job
}

#[test]
fn learned_lets_variants_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let mut job = learned_job(catalog::key_set::KeySet::Ycsb, dir.path());
    job.repeat = 2;
    let rows = rows_of(&job);
    check(&rows);
    let seen: Vec<(&str, &str, u32)> =
        rows.iter().map(|row| (row.workload.as_str(), row.variant.as_str(), row.repeat)).collect();
    let (fill, unsettled, reads) =
        ("learned-ycsb-fill", "learned-ycsb-fill-unsettled", "learned-ycsb");
    let fills = [(fill, "off", 2), (unsettled, "off", 2), (fill, "", 2), (unsettled, "", 2)];
    // Another variant first in each round.
    let turns = [(reads, "", 3), (reads, "off", 3), (reads, "off", 4), (reads, "", 4)];
    assert_eq!(seen, [fills, turns].concat());
    for row in rows.iter().filter(|row| row.workload == reads) {
        let figures = row.learned.as_ref().unwrap();
        assert_eq!((figures.key_set.as_str(), row.ops, row.keys), ("ycsb", 500, 3000));
        assert_eq!(figures.speedup.is_some(), row.variant.is_empty(), "{row:?}");
    }
    let rate = |variant: &str, repeat: u32| {
        let row = rows.iter().find(|r| {
            (r.workload.as_str(), r.variant.as_str(), r.repeat) == (reads, variant, repeat)
        });
        row.unwrap().ops_per_s
    };
    let speedup = rows[7].learned.as_ref().unwrap().speedup.unwrap();
    assert!((speedup - rate("", 4) / rate("off", 4)).abs() < 1e-9);
}

#[test]
fn learned_runs_with_every_kind_of_keys() {
    for set in catalog::key_set::KeySet::ALL {
        let dir = tempfile::tempdir().unwrap();
        let mut job = learned_job(set, dir.path());
        job.variants = vec![catalog::learned::Variant::Build];
        job.settings.rounds = 1;
        let rows = rows_of(&job);
        check(&rows);
        assert_eq!(rows.len(), 3, "{set}");
        assert_eq!(rows[2].workload, format!("learned-{set}"));
        assert_eq!(rows[2].keys, 3000);
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}

#[test]
fn filters_are_measured_without_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let mut job = job(Engine::Terrace, StoreKind::Filters, &[Workload::Filters], dir.path());
    job.config.filter = Some("blocked:10".parse().unwrap());
    job.shape.keys = 20_000;
    let rows = rows_of(&job);
    check(&rows);
    assert_eq!(names(&rows), ["filters-blocked-10"]);
    let figures = rows[0].filters.as_ref().unwrap();
    assert_eq!((figures.probes, figures.keys_per_filter), (80_000, Some(2857)));
    assert!((0.006..0.014).contains(&figures.fpr), "{figures:?}");
    assert!((10.0..10.5).contains(&figures.bits_per_key), "{figures:?}");
    assert!(figures.query_hot_ns > Some(0.0) && figures.query_cold_ns > Some(0.0));
    assert!(figures.hash_ns.is_some());
}

/// As those of peers are: with the engine's own counts.
#[test]
fn filters_of_a_store_are_measured_by_what_it_counts() {
    let dir = tempfile::tempdir().unwrap();
    let mut job = job(Engine::Terrace, StoreKind::Filters, &[Workload::Filters], dir.path());
    job.shape.keys = 20_000;
    let rows = Arc::new(Mutex::new(Vec::new()));
    let told = rows.clone();
    let observer = Observer::new(move |event| {
        if let Event::Row(row) = event {
            told.lock().unwrap().push(*row);
        }
    });
    let spec = "blocked:10".parse().unwrap();
    filters::in_store::measure(&job, &observer, spec, "filters-blocked-10").unwrap();
    let rows = rows.lock().unwrap();
    let figures = rows[0].filters.as_ref().unwrap();
    assert_eq!((rows.len(), figures.probes, figures.build_ns_per_key), (1, 80_000, None));
    assert!((0.006..0.014).contains(&figures.fpr), "{figures:?}");
    assert!((10.0..11.5).contains(&figures.bits_per_key), "{figures:?}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the store is removed");
}

#[test]
fn batched_lookups_are_a_variant_that_counts_keys() {
    let dir = tempfile::tempdir().unwrap();
    let mut job = job(
        Engine::Terrace,
        StoreKind::Basic,
        &[Workload::Readrandom, Workload::Readmissing],
        dir.path(),
    );
    job.settings.multi_get = 16;
    job.missing = Some(0.25);
    job.limit.ops = Some(100);
    let rows = rows_of(&job);
    assert_eq!((rows[0].variant.as_str(), rows[0].ops), ("multi_get-16", 1600));
    assert_eq!(rows[1].workload, "readmissing");
}

#[test]
fn a_job_survives_its_trip_to_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let job = job(Engine::Speedb, StoreKind::Ycsb, &[Workload::Ycsb(Mix::F)], dir.path());
    let text = serde_json::to_string(&job).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
}

fn skew_job(workload: Workload, hot: bool, dir: &Path) -> Job {
    let variant = if hot { catalog::skew::Variant::Hot } else { catalog::skew::Variant::Default };
    let mut job = job(Engine::Terrace, StoreKind::Skew(variant), &[workload], dir);
    job.shape = StoreSize { keys: 20_000, key_size: 8, value_size: 200 };
    job.limit.ops = None;
    catalog::skew::configure(&mut job.config, Engine::Terrace, variant, job.shape);
    job
}

#[test]
fn skew_counts_what_writes_cost_for_every_exponent() {
    let mut amps = Vec::new();
    for hot in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut job = skew_job(Workload::Skew, hot, dir.path());
        job.settings.zipf = catalog::skew::exponents::Exponents::parse("0.5,1.4").unwrap();
        // Merges keep up, however slow they are: fewer of them would cost less without a hot table.
        let stop = ["l0_slowdown", "l0_stop"].map(|name| (name.to_owned(), "5".to_owned()));
        job.config.extra.extend(stop);
        let rows = rows_of(&job);
        check(&rows);
        let expected = ["skew-0.5", "skew-0.5-unsettled", "skew-1.4", "skew-1.4-unsettled"];
        assert_eq!(names(&rows), expected);
        for row in &rows {
            let figures = row.skew.as_ref().unwrap();
            assert_eq!((row.ops, row.user_bytes), (20_000, 20_000 * 208));
            assert!(row.keys < 20_000, "keys are drawn with repeats: {}", row.keys);
            let log = figures.log_bytes.unwrap();
            assert!(log > row.user_bytes && log < row.user_bytes * 6 / 5, "{figures:?}");
        }
        // A key can be admitted at 0.5 too, when a memtable's life happens to be long.
        let hot_keys = |row: usize| rows[row].skew.as_ref().unwrap().hot_keys.unwrap();
        assert_eq!(hot_keys(2) > 0, hot, "at 1.4: {}", hot_keys(2));
        assert!(hot_keys(0) == 0 || hot_keys(0) < hot_keys(2), "{} {}", hot_keys(0), hot_keys(2));
        amps.push(rows[2].skew.as_ref().unwrap().table_write_amp.unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "stores are removed");
    }
    assert!(amps[1] < amps[0], "without and with a hot table: {amps:?}");
}

#[test]
fn cluster_skew_moves_the_most_written_keys_and_finds_every_key_where_it_is() {
    for exact in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut job = skew_job(Workload::ClusterSkew, false, dir.path());
        job.settings.exact_top = exact;
        let rows = rows_of(&job);
        check(&rows);
        let settled: Vec<&Row> =
            rows.iter().filter(|row| !row.workload.ends_with("-unsettled")).collect();
        let layouts: Vec<String> = catalog::skew::layout::Layout::ALL
            .iter()
            .map(|layout| format!("cluster-skew-{}", layout.name()))
            .collect();
        assert!(settled.iter().map(|row| &row.workload).eq(&layouts));
        for row in &settled {
            let figures = row.skew.as_ref().unwrap();
            assert_eq!(figures.instance_write_amps.len(), 3);
            assert!((figures.instance_shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            assert_eq!(row.ops, 20_000);
        }
        // Metadata is that of all instances: of one alone it would be a third.
        let bits = settled[0].filter_bytes.unwrap() * 8;
        assert!(bits > 6 * settled[0].keys, "{bits} bits for {} keys", settled[0].keys);
        // A two-hundredth of the 1,000 and 5,000 keys; a third of them is there already. Without a hot
        // table nothing is to be absorbed.
        let moved = |at: usize| settled[at].skew.as_ref().unwrap().moved_keys;
        assert_eq!((moved(0), moved(1), moved(5)), (None, None, Some(0)));
        assert!((1..=5).contains(&moved(2).unwrap()) && (8..=25).contains(&moved(3).unwrap()));
        let share = |at: usize| settled[at].skew.as_ref().unwrap().instance_shares[0];
        assert!(share(3) > share(0) + 0.05, "{} {}", share(3), share(0));
    }
}
