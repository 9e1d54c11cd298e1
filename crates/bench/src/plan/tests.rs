//! What is accepted, what is refused and with which words, and which stores are shared.

use super::*;
use crate::catalog::key_set::KeySet;
use crate::catalog::learned::Variant;
use crate::engine::Engine;
use crate::store::FilterMemory;
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: BenchArgs,
}

fn plan(line: &str) -> Result<Plan> {
    let words = std::iter::once("bench").chain(line.split_whitespace());
    Plan::new(&Line::try_parse_from(words)?.bench)
}

fn refusal(line: &str) -> String {
    format!("{:#}", plan(line).unwrap_err())
}

#[test]
fn workloads_share_a_store_and_run_reads_before_writes() {
    let plan =
        plan("overwrite readrandom fillrandom ycsb-a fillseq --keys 1000 --repeat 1").unwrap();
    let stores: Vec<Vec<&str>> = plan
        .jobs
        .iter()
        .map(|job| job.workloads.iter().map(|workload| workload.name()).collect())
        .collect();
    assert_eq!(
        stores,
        [vec!["fillseq"], vec!["fillrandom", "readrandom", "overwrite"], vec!["ycsb-a"]]
    );
}

#[test]
fn engines_take_turns_repeat_by_repeat() {
    let plan = plan("fillseq tiny-cache --keys 1000 --engine terrace,fjall --repeat 2").unwrap();
    let order: Vec<(u32, &str, &str)> =
        plan.jobs.iter().map(|job| (job.repeat, job.engine.name(), job.store.variant())).collect();
    let once = |repeat, fills: [&'static str; 2]| {
        [
            (repeat, fills[0], ""),
            (repeat, fills[1], ""),
            (repeat, "terrace", "partitions-on"),
            (repeat, "terrace", "partitions-off"),
            (repeat, "terrace", ""),
        ]
    };
    // Another engine is first in each repeat of a store.
    let expected = [once(1, ["terrace", "fjall"]), once(2, ["fjall", "terrace"])];
    assert_eq!(order, expected.concat());
    assert!(plan.jobs.iter().all(|job| job.repeats == 2));
    assert!(plan.notes.iter().any(|note| note.starts_with("fjall is left out")));
}

#[test]
fn defaults_are_the_documented_ones() {
    let plan = plan("readrandom ycsb-c tiny-cache --repeat 1 --set write_rate=1M").unwrap();
    let shapes: Vec<(u64, usize, usize)> =
        plan.jobs.iter().map(|j| (j.shape.keys, j.shape.key_size, j.shape.value_size)).collect();
    assert_eq!(shapes[..2], [(10_000_000, 16, 100), (2_000_000, 16, 1000)]);
    assert!(plan.jobs[2].shape.raw_bytes() >= 5_000_000_000);
    assert_eq!(plan.jobs[2].config.cache_bytes, 8 << 20);
    assert!(plan.jobs[2].config.direct_io && !plan.jobs[0].config.direct_io);
    assert_eq!(plan.jobs[0].settings.write_rate, 1 << 20);
    for job in &plan.jobs[..2] {
        let fits = job.config.cache_bytes as u64 > job.shape.raw_bytes() * 5 / 4;
        assert!(fits || usage::memory_bytes() < 8 << 30, "{:?}", job.config);
    }
}

#[test]
fn bad_input_is_refused_with_the_way_out() {
    for (line, want) in [
        ("fillsec", "known are fillseq"),
        ("elastic --set variants=lru", "mq-bloom:4x6"),
        ("large-values --set variants=rocksdb-inline", "terrace-inline"),
        ("skew --set variants=rocksdb-hot", "terrace-hot"),
        ("skew --set zipf=0.95", "0.5, 0.6"),
        ("skew --set rate=0.5", "write it like"),
        ("skew --duration 5", "skew is bounded by the number of its puts"),
        ("cluster-skew --duration 5", "use --ops or --keys"),
        ("elastic --set merged=true", "elastic has no reads of a store as a load left it"),
        ("readrandom --set merged=perhaps", "--set merged=perhaps"),
        ("cluster-skew --set layouts=best", "top-5000"),
        ("learned --set variants=terrace-inline", "terrace-level, rocksdb"),
        ("elastic learned --set variants=lru", "terrace-off"),
        ("fillseq --set variants=terrace", "no variant of these workloads"),
        ("learned --set keysets=linear,cubic", "segmented-10"),
        ("learned --set rounds=0", "1 to 1000"),
        ("large-values --set passes=-1", "0 to 100"),
        ("large-values --set scan_length=0", "at least 1"),
        ("large-values --set value_bytes=big", "write it like"),
        ("elastic --engine fjall", "fjall is left out of elastic: it has no direct I/O"),
        ("filters --engine fjall", "left out of filters"),
        ("fillseq fillseq", "named twice"),
        ("fillseq --engine mongo", "known are terrace"),
        ("fillseq --engine terrace,terrace", "twice"),
        ("fillseq --keys 0", "--keys"),
        ("fillseq --key-size 2", "at least 4 bytes"),
        ("fillseq --missing 1.5", "--missing"),
        ("fillseq --threads 0", "--threads"),
        ("fillseq --repeat 0", "--repeat"),
        ("fillseq --memory 12parsecs", "write it like"),
        ("fillseq --memory 1M", "at least 4MiB"),
        ("fillseq --filter cuckoo:9", "is no filter"),
        ("fillseq --filter ribbon:9 --engine fjall", "no such filter"),
        ("fillseq --filter bloom:4x6 --engine fjall", "no such filter"),
        ("fillseq --filter ribbon:1", "2 to 32"),
        ("fillseq --distribution bell", "known are uniform"),
        ("fillseq --set nonsense=1", "no such setting"),
        ("fillseq --set nonsense", "KEY=VALUE"),
        ("fillseq --set sync=maybe", "known are buffered"),
        ("fillseq --set compression=rar", "known are none"),
        ("fillseq --set background_jobs=0", "out of range"),
        ("fillseq --direct-io --engine fjall", "fjall cannot bypass"),
        ("tiny-cache --engine fjall", "left out of tiny-cache"),
        ("fillseq --dir /no/such/dir", "no such directory"),
        ("fillseq --json /no/such/dir/f.json", "no such directory"),
        ("fillseq --plot x.gif", ".svg or .png"),
        ("fillseq --keys 100000000000", "free"),
        ("fillseq --ops 5 --duration 5", "cannot be used with"),
        ("", "required"),
    ] {
        let text = refusal(line);
        assert!(text.contains(want), "`{line}`: {text}");
    }
}

#[test]
fn sizes_are_read_with_units() {
    for (text, bytes) in [
        ("4096", 4096),
        ("64KiB", 64 << 10),
        ("8m", 8 << 20),
        ("1.5GiB", 3 << 29),
        ("2GB", 2 << 30),
    ] {
        assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
    }
    assert_eq!(parse_bytes("0").unwrap(), 0);
    for bad in ["", "-1", "MiB", "1e30", "5 TiB", "nan", "0.5", "-0.5k"] {
        assert!(parse_bytes(bad).is_err(), "{bad} was accepted");
    }
}

#[test]
fn the_commit_is_that_of_the_build_with_what_is_checked_out_if_it_differs() {
    assert_eq!(commit_text("abc", Some("abc")), "abc");
    assert_eq!(commit_text("abc-dirty", Some("abc")), "abc-dirty");
    assert_eq!(commit_text("abc-dirty", Some("def")), "abc-dirty (checked out: def)");
    assert_eq!(commit_text("unknown", None), "unknown");
    assert_eq!(commit_text("abc", None), "abc");
}

#[test]
fn the_room_that_a_store_needs_depends_on_what_is_done_with_it() {
    let needed = |line: &str| {
        let plan = plan(&format!("{line} --keys 1000 --repeat 1")).unwrap();
        let job = &plan.jobs[0];
        needed_bytes(job) as f64 / job.shape.raw_bytes() as f64
    };
    let plain = needed("readrandom");
    assert!(needed("backup") > plain + 1.5 && needed("large-values") > plain + 1.5);
    assert!(needed("readrandom --set merged=true") > plain);
    assert!(needed("packages") < 1.0);
}

#[test]
fn settings_of_an_engine_reach_only_it() {
    let plan = plan("fillseq --keys 10 --engine terrace,fjall --set terrace.l0_stop=50").unwrap();
    for job in &plan.jobs {
        assert_eq!(job.config.extra.len(), usize::from(job.engine == Engine::Terrace));
    }
}

#[test]
fn settings_of_a_side_reach_only_it() {
    let sets = "--set b.terrace.log_retention_bytes=1000000 --set a.memtable=8MiB --set sync=batch";
    let paired = plan(&format!("paired --keys 100000 --repeat 1 {sets}")).unwrap();
    let [a, b] = &paired.jobs[0].sides[..] else { panic!("{:?}", paired.jobs) };
    assert_eq!((a.memtable_bytes, a.extra.len()), (8 << 20, 0));
    assert_eq!(b.extra, [("log_retention_bytes".to_owned(), "1000000".to_owned())]);
    assert!(a.sync == b.sync && a.sync == crate::store::Durability::Batch);
    assert!(
        refusal("fillrandom --keys 1000 --set a.memtable=8MiB").contains("only paired has sides")
    );
    assert!(refusal("paired --keys 100000 --threads 2").contains("one thread"));
    assert!(refusal("paired --keys 100000 --set a.no_such=1").contains("no such setting"));
}

#[test]
fn elastic_has_a_load_for_each_variant_and_shares_it() {
    let plan = plan("elastic elastic-shift --keys 100000 --repeat 1").unwrap();
    let variants: Vec<&str> = plan.jobs.iter().map(|job| job.store.variant()).collect();
    let all = ["", "budget-bloom:4x6", "mq-bloom:4x6", "uniform-bloom:4", "uniform-ribbon:4"];
    assert_eq!(variants, all);
    for job in &plan.jobs {
        assert_eq!(job.workloads, [Workload::Elastic, Workload::ElasticShift]);
        assert!(job.config.direct_io && !job.config.fill_cache && job.config.statistics);
        assert_eq!(job.shape.value_size, 1024);
    }
    let memory = |at: usize| plan.jobs[at].config.filter_memory;
    assert_eq!(memory(0), FilterMemory::Budget(50_000));
    assert_eq!(memory(2), FilterMemory::Queues(50_000));
    assert_eq!(memory(3), FilterMemory::Budget(62_500 + 130 * 1024));
    assert_eq!(plan.jobs[0].config.filter, None);
}

#[test]
fn some_variants_of_elastic_can_be_asked_for() {
    let line = "elastic --keys 1000 --repeat 1 --set variants=default,uniform-bloom:4";
    let variants: Vec<&str> =
        plan(line).unwrap().jobs.iter().map(|job| job.store.variant()).collect();
    assert_eq!(variants, ["", "uniform-bloom:4"]);
}

#[test]
fn the_default_filter_is_the_one_comparable_with_rocksdbs() {
    for line in ["fillseq", "tiny-cache", "ycsb-c"] {
        let plan = plan(&format!("{line} --keys 1000 --repeat 1")).unwrap();
        let config = &plan.jobs[0].config;
        assert_eq!(config.filter.unwrap().to_string(), "blocked:10", "{line}");
        assert_eq!((config.filter_memory, config.fill_cache), (FilterMemory::AsMetadata, true));
    }
    let plan = plan("tiny-cache --keys 1000 --repeat 1").unwrap();
    let elastic = &plan.jobs[2].config;
    assert_eq!((elastic.filter, elastic.filter_memory), (None, FilterMemory::Default));
    // All of its memory is what the others have for the cache.
    assert_eq!(elastic.cache_bytes + elastic.write_bytes, plan.jobs[0].config.cache_bytes);
}

#[test]
fn large_values_have_a_store_for_each_variant_that_an_engine_has() {
    let line = "large-values --keys 20000 --repeat 1 --engine terrace,fjall";
    let whole = plan(line).unwrap();
    let stores = |plan: &Plan| -> Vec<(Engine, &'static str)> {
        plan.jobs.iter().map(|job| (job.engine, job.store.variant())).collect()
    };
    let (terrace, fjall) = (Engine::Terrace, Engine::Fjall);
    assert_eq!(stores(&whole), [(terrace, ""), (fjall, ""), (terrace, "inline"), (fjall, "blob")]);
    assert!(whole.notes.iter().any(|note| note.starts_with("fjall has no direct I/O")));
    for job in &whole.jobs {
        assert_eq!(job.shape.value_size, 4096);
        assert_eq!(job.config.direct_io, job.engine == terrace);
        assert_eq!(job.config.cache_bytes, 8 << 20);
        assert!(job.config.memtable_bytes < 3 << 20, "{:?}", job.config);
    }
    let set = |at: usize, name: &str| {
        let found = whole.jobs[at].config.extra.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(set(0, "value_separation_threshold"), None);
    assert_eq!(set(2, "value_separation_threshold"), Some("off"));
    assert_eq!(
        (set(1, "separation_threshold"), set(3, "separation_threshold")),
        (None, Some("1024"))
    );

    let some =
        plan(&format!("{line} --set variants=terrace-inline --set value_bytes=2KiB")).unwrap();
    assert_eq!(stores(&some), [(fjall, ""), (terrace, "inline"), (fjall, "blob")]);
    assert_eq!(some.jobs[1].shape.value_size, 2048);
    let full = plan("large-values --repeat 1").unwrap();
    assert!(full.jobs[0].shape.raw_bytes() > 2 << 30);
    assert_eq!(
        (full.jobs[0].config.memtable_bytes, full.jobs[0].config.cache_bytes >> 20),
        (64 << 20, 32)
    );
}

#[test]
fn learned_has_a_store_for_each_kind_of_keys_and_variants_take_turns_on_it() {
    let line = "learned --keys 1000 --repeat 2 --engine terrace,fjall";
    let plan_of = |more: &str| plan(&format!("{line} {more}")).unwrap();
    let whole = plan_of("");
    assert_eq!(whole.jobs.len(), 2 * 2 * KeySet::ALL.len());
    assert_eq!(whole.jobs[0].store, StoreKind::Learned(KeySet::Linear));
    assert_eq!(whole.jobs[0].variants, [Variant::Build, Variant::Off, Variant::Level]);
    assert_eq!(whole.jobs[1].variants, [Variant::Binary]);
    assert_eq!(whole.jobs[0].shape.value_size, 64);
    let some =
        plan_of("--set keysets=ycsb,normal --set variants=terrace,terrace-off --set rounds=5");
    let kinds: Vec<StoreKind> = some.jobs.iter().map(|job| job.store).collect();
    let once = [KeySet::Normal, KeySet::Normal, KeySet::Ycsb, KeySet::Ycsb].map(StoreKind::Learned);
    assert_eq!(kinds, [once, once].concat());
    assert_eq!(some.jobs[0].variants, [Variant::Build, Variant::Off]);
    assert_eq!((some.jobs[1].variants.len(), some.jobs[1].settings.rounds), (1, 5));
    let config = &plan("learned --repeat 1").unwrap().jobs[0].config;
    assert!(config.cache_bytes > 400_000_000 || usage::memory_bytes() < 8 << 30, "{config:?}");
    let set = |name: &str| {
        let found = config.extra.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.parse::<u64>().unwrap())
    };
    assert_eq!(set("target_file_bytes"), Some(5_000_000 * 80 / 6));
    assert_eq!(set("level_base_bytes"), set("target_file_bytes").map(|bytes| 4 * bytes));
    let small = &whole.jobs[0].config;
    assert_eq!(small.memtable_bytes, 1 << 20);
}
