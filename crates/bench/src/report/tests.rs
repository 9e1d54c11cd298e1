//! Report arithmetic, the JSON contract, the table and the plots, on rows made by hand.

use super::*;
use hdrhistogram::Histogram;
use median::summarize;
use terrace_workload::phase::Tally;

fn row(workload: &str, variant: &str, engine: Engine, repeat: u32, ops_per_s: f64) -> Row {
    let mut latencies = Histogram::new(3).unwrap();
    (1..=1000u64).for_each(|n| latencies.record(n * 1000).unwrap());
    let outcome = Outcome {
        ops: 1000,
        seconds: 1000.0 / ops_per_s,
        latencies,
        tally: Tally { found: 0, missed: 1000, user_bytes: 500 },
    };
    let facts = Facts {
        engine,
        repeat,
        repeats: 3,
        variant: variant.to_owned(),
        merged: false,
        options: "a=b".to_owned(),
        version: "1".to_owned(),
        library: Some("lib/a.so".to_owned()),
        machine: "m".to_owned(),
        commit: "c".to_owned(),
    };
    let usage = Usage {
        read_bytes: 8_192_000,
        read_calls: 2000,
        written_bytes: 1500,
        cpu_s: 0.5,
        rss_bytes: 3 << 20,
    };
    let store = StoreState {
        keys: 7,
        live_bytes: Some(1000),
        dir_bytes: 1100,
        metadata: MetadataBytes { filters: Some(5), indexes: None },
        sorted_runs: Some(4),
    };
    Row::new(workload, &facts, 2, &outcome, usage, store)
}

#[test]
fn a_row_derives_its_ratios() {
    let row = row("readmissing", "", Engine::Terrace, 1, 500.0);
    assert_eq!((row.ops, row.ops_per_s, row.threads, row.keys), (1000, 500.0, 2, 7));
    assert_eq!((row.write_amp, row.space_amp), (Some(3.0), Some(1.1)));
    assert_eq!((row.device_reads_per_op, row.wasted_reads_per_op), (2.0, Some(2.0)));
    assert!((495.0..=505.0).contains(&row.p50_us), "{}", row.p50_us);
    assert!((990.0..=1001.0).contains(&row.p99_us) && row.max_us >= 1000.0);
}

#[test]
fn json_has_the_documented_fields_and_comes_back_equal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.json");
    let rows =
        vec![row("fillseq", "", Engine::Terrace, 1, 3.5), row("x", "v", Engine::Fjall, 2, 1.0)];
    write_json(&path, &rows).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Row>>(&text).unwrap(), rows);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let fields: std::collections::BTreeSet<&str> =
        value[0].as_object().unwrap().keys().map(String::as_str).collect();
    let documented = "workload engine repeat threads keys ops seconds ops_per_s p50_us p99_us p999_us \
        p9999_us max_us bytes_written user_bytes write_amp space_amp device_reads_per_op wasted_reads_per_op \
        filter_bytes index_bytes rss_bytes cpu_s options version machine commit variant library repeats \
        failed sorted_runs merged";
    assert_eq!(fields, documented.split_whitespace().collect());
    assert_eq!(value[1]["engine"], "fjall");
    assert!(value[1]["index_bytes"].is_null());
}

fn filters_row(engine: Engine, fpr: f64) -> Row {
    let figures = FilterFigures {
        fpr,
        model_fpr: None,
        probes: 1000,
        bits_per_key: 10.0,
        keys_per_filter: Some(3000),
        build_ns_per_key: Some(12.5),
        query_hot_ns: Some(4.0),
        query_hot_positive_ns: Some(5.0),
        query_cold_ns: Some(40.0),
        hash_ns: Some(2.0),
    };
    Row { filters: Some(figures), ..row("filters-blocked-10", "", engine, 1, 500.0) }
}

fn shift_row(variant: &str, wasted: f64, recovery_ops: Option<u64>) -> Row {
    let elastic = ElasticFigures {
        law: "zipf-0.99".to_owned(),
        filter_budget_bytes: 4_000_000,
        filter_disk_bytes: Some(10_000_000),
        wasted_reads_by_engine: Some(wasted),
        index_reads_per_op: None,
        unit_loads_per_op: Some(0.01),
    };
    let shift = ShiftFigures {
        series: vec![wasted, wasted * 5.0, wasted],
        series_step_ops: 10_000,
        shift_after_ops: 10_000,
        steady_wasted_reads: wasted,
        recovery_ops,
    };
    let row = row("elastic-shift", variant, Engine::Terrace, 1, 1e4);
    Row { wasted_reads_per_op: Some(wasted), elastic: Some(elastic), shift: Some(shift), ..row }
}

fn values_row(variant: &str, engine: Engine, repeat: u32, most: f64) -> Row {
    let figures = LargeValueFigures {
        value_bytes: 4096,
        engine_write_amp: Some(1.25),
        longest_gap_us: Some(most * 1e6),
        space_amp_max: Some(most),
        series_seconds: vec![0.0, 1.0, 2.0],
        space_series: vec![1.0, most, 1.1],
        rate_series: vec![0.0, 500.0, 600.0],
        ..LargeValueFigures::default()
    };
    let row = row("large-values-update", variant, engine, repeat, 500.0);
    Row { large_values: Some(figures), ..row }
}

fn learned_row(variant: &str, repeat: u32, ops_per_s: f64, speedup: Option<f64>) -> Row {
    let figures = LearnedFigures {
        key_set: "linear".to_owned(),
        speedup,
        model_share: Some(0.875),
        ..LearnedFigures::default()
    };
    let row = row("learned-linear", variant, Engine::Terrace, repeat, ops_per_s);
    Row { learned: Some(figures), ..row }
}

#[test]
fn large_values_and_learned_keep_their_figures_through_json_and_medians() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.json");
    let rows = vec![
        values_row("", Engine::Terrace, 1, 1.5),
        values_row("", Engine::Terrace, 2, 1.25),
        learned_row("", 1, 300.0, Some(1.5)),
        learned_row("", 2, 400.0, Some(2.0)),
    ];
    write_json(&path, &rows).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Row>>(&text).unwrap(), rows);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value[0]["space_amp_max"], &value[2]["speedup"]), (&1.5.into(), &1.5.into()));
    assert!(value[0].get("speedup").is_none() && value[2].get("space_series").is_none());
    let summaries = summarize(&rows);
    let values = summaries[0].median.large_values.as_ref().unwrap();
    assert_eq!((values.space_amp_max, values.longest_gap_us), (Some(1.5), Some(1.5e6)));
    assert_eq!(values.space_series, [1.0, 1.5, 1.1]);
    let learned = summaries[1].median.learned.as_ref().unwrap();
    assert_eq!((learned.speedup, learned.models_built), (Some(1.75), None));
}

#[test]
fn large_values_and_learned_have_tables_and_charts_of_their_own() {
    let rows = vec![
        values_row("", Engine::Terrace, 1, 1.5),
        values_row("blob", Engine::Rocksdb, 1, 2.75),
        learned_row("", 1, 300.0, Some(1.25)),
        learned_row("off", 1, 240.0, None),
    ];
    let text = table::render(&rows);
    assert!(text.contains("longest gap ms") && text.contains("2750.00"), "{text}");
    assert!(text.contains("1.250x") && text.contains("87.5 %"), "{text}");
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("a.svg");
    plot::draw(&svg, &rows).unwrap();
    let drawn = std::fs::read_to_string(svg).unwrap();
    for want in ["Directory over live bytes", "Puts per second", "rocksdb blob", "terrace default"]
    {
        assert!(drawn.contains(want), "{want}");
    }
    assert!(!drawn.contains("hot range"), "a chart without lines");
    plot::draw(&dir.path().join("a.png"), &rows).unwrap();
}

#[test]
fn figures_of_some_workloads_lie_beside_the_others_in_json() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.json");
    let rows = vec![
        filters_row(Engine::Terrace, 0.01),
        shift_row("", 0.02, None),
        row("fillseq", "", Engine::Terrace, 1, 3.5),
    ];
    write_json(&path, &rows).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Row>>(&text).unwrap(), rows);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value[0]["fpr"], &value[0]["query_cold_ns"]), (&0.01.into(), &40.0.into()));
    assert!(value[0]["model_fpr"].is_null() && value[0].get("series").is_none());
    assert_eq!(value[1]["series"].as_array().unwrap().len(), 3);
    assert!(value[1]["recovery_ops"].is_null() && value[1].get("fpr").is_none());
    assert!(value[2].get("law").is_none() && value[2].get("model_fpr").is_none());
}

#[test]
fn filters_and_elastic_have_tables_of_their_own() {
    let rows = vec![
        filters_row(Engine::Terrace, 0.0),
        filters_row(Engine::Rocksdb, 0.008),
        shift_row("", 0.02, Some(30_000)),
        shift_row("uniform-bloom:4", 0.4, None),
    ];
    let text = table::render(&rows);
    assert!(
        text.contains("> 1,000") && text.contains("8.000e-3") && text.contains("   125 "),
        "{text}"
    );
    assert!(text.contains("20.00x") && text.contains("30,000") && text.contains("never"), "{text}");
    assert!(text.contains("op/s") && text.contains("elastic-shift"), "{text}");
    let only_filters = table::render(&rows[..2]);
    assert!(!only_filters.contains("op/s"), "{only_filters}");
}

#[test]
fn medians_keep_what_only_some_workloads_have() {
    let rows: Vec<Row> = [(0.01, Some(20_000)), (0.03, None), (0.02, Some(50_000))]
        .into_iter()
        .map(|(wasted, recovery)| shift_row("", wasted, recovery))
        .collect();
    let summaries = summarize(&rows);
    let shift = summaries[0].median.shift.as_ref().unwrap();
    assert_eq!(shift.recovery_ops, Some(50_000));
    assert!((summaries[0].median.wasted_reads_per_op.unwrap() - 0.02).abs() < 1e-12);
    assert_eq!(shift.series, rows[0].shift.as_ref().unwrap().series);
    assert!(summaries[0].median.filters.is_none());
}

#[test]
fn a_series_is_drawn_below_the_bars() {
    let dir = tempfile::tempdir().unwrap();
    let rows = vec![shift_row("", 0.02, Some(30_000)), shift_row("uniform-bloom:4", 0.4, None)];
    let svg = dir.path().join("a.svg");
    plot::draw(&svg, &rows).unwrap();
    let text = std::fs::read_to_string(svg).unwrap();
    assert!(text.contains("terrace uniform-bloom:4") && text.contains("terrace default"), "{text}");
    assert!(text.contains("lookups after the jump"), "{text}");
    plot::draw(&dir.path().join("a.png"), &rows).unwrap();
}

#[test]
fn medians_and_ratios_are_over_repeats_and_the_first_peer() {
    let mut rows = Vec::new();
    for (repeat, (ours, theirs, other)) in
        [(300.0, 100.0, 50.0), (100.0, 90.0, 45.0), (200.0, 1000.0, 200.0)].into_iter().enumerate()
    {
        let repeat = repeat as u32 + 1;
        for workload in ["fillseq", "readrandom"] {
            rows.push(row(workload, "", Engine::Terrace, repeat, ours));
            rows.push(row(workload, "", Engine::Rocksdb, repeat, theirs));
            rows.push(row(workload, "", Engine::Fjall, repeat, other));
        }
    }
    let summaries = summarize(&rows);
    assert_eq!(summaries.len(), 6);
    let names: Vec<&str> = summaries.iter().map(|s| s.workload.as_str()).collect();
    assert_eq!(names[..3], ["fillseq"; 3]);
    let ours = &summaries[0];
    assert_eq!((ours.engine, ours.repeats), (Engine::Terrace, 3));
    assert!((ours.median.ops_per_s - 200.0).abs() < 1e-9);
    assert!((ours.ratio.unwrap() - 2.0).abs() < 1e-9);
    assert_eq!(summaries[1].ratio, None);
    assert!((summaries[2].ratio.unwrap() - 0.5).abs() < 1e-9);
    let alone = summarize(&rows[..1]);
    assert_eq!(alone[0].ratio, None);
}

/// What a job measured before it failed is kept, but it is not a result.
#[test]
fn rows_of_failed_jobs_are_in_no_median_and_what_is_missing_is_said() {
    let mut rows: Vec<Row> =
        (1..=3).map(|repeat| row("fillseq", "", Engine::Terrace, repeat, 100.0)).collect();
    rows[1] = Row { failed: true, ..row("fillseq", "", Engine::Terrace, 2, 9000.0) };
    rows.push(Row { failed: true, ..row("readrandom", "", Engine::Rocksdb, 1, 1.0) });
    let summaries = summarize(&rows);
    assert_eq!(summaries.len(), 1);
    assert_eq!((summaries[0].repeats, summaries[0].asked), (2, 3));
    assert!((summaries[0].median.ops_per_s - 100.0).abs() < 1e-9);
    let text = table::render(&rows);
    assert!(text.contains("2 of 3") && !text.contains("rocksdb"), "{text}");
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("a.svg");
    plot::draw(&svg, &rows).unwrap();
    let drawn = std::fs::read_to_string(svg).unwrap();
    assert!(drawn.contains("(2 of 3)") && !drawn.contains("readrandom"), "{drawn}");
    let whole: Vec<Row> =
        (1..=3).map(|repeat| row("fillseq", "", Engine::Terrace, repeat, 100.0)).collect();
    assert!(table::render(&whole).contains("3 of 3"));
}

#[test]
fn the_writer_beside_reads_has_figures_of_its_own() {
    let writer = |bytes_per_s| WriterFigures {
        writer_bytes: 1000,
        writer_bytes_per_s: bytes_per_s,
        writer_asked_bytes_per_s: 2 << 20,
    };
    let rows: Vec<Row> = [3.0, 1.0, 2.0]
        .into_iter()
        .map(|rate| Row {
            writer: Some(writer(rate)),
            ..row("readwhilewriting", "", Engine::Terrace, 1, 100.0)
        })
        .collect();
    assert_eq!(summarize(&rows)[0].median.writer, Some(writer(2.0)));
    let json = serde_json::to_string(&rows).unwrap();
    assert!(json.contains("\"writer_asked_bytes_per_s\":2097152"), "{json}");
    assert_eq!(serde_json::from_str::<Vec<Row>>(&json).unwrap(), rows);
}

#[test]
fn the_table_shows_every_engine_and_the_gain_of_partitions() {
    let rows = vec![
        row("tiny-cache-hit", "partitions-on", Engine::Terrace, 1, 9000.0),
        row("tiny-cache-hit", "partitions-off", Engine::Terrace, 1, 900.0),
        row("tiny-cache-hit", "partitions-on", Engine::Rocksdb, 1, 4500.0),
        row("fillseq", "", Engine::Rocksdb, 1, 1_234_567.0),
    ];
    let text = table::render(&rows);
    assert!(text.contains("vs rocksdb") && text.contains("2.00x"), "{text}");
    assert!(text.contains("1,234,567"), "{text}");
    assert!(text.contains("tiny-cache-hit, partitions on over off: terrace 10.0x\n"), "{text}");
    assert_eq!(text.lines().count(), 6, "{text}");
}

#[test]
fn plots_are_drawn_in_both_formats() {
    let dir = tempfile::tempdir().unwrap();
    let rows = vec![
        row("readrandom", "", Engine::Terrace, 1, 2e6),
        row("readrandom", "", Engine::Rocksdb, 1, 1e6),
    ];
    let svg = dir.path().join("a.svg");
    plot::draw(&svg, &rows).unwrap();
    let text = std::fs::read_to_string(svg).unwrap();
    assert!(text.contains("readrandom") && text.contains("2.00x"), "{text}");
    let png_path = dir.path().join("a.png");
    plot::draw(&png_path, &rows).unwrap();
    let file = std::io::BufReader::new(std::fs::File::open(png_path).unwrap());
    let mut reader = png::Decoder::new(file).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    reader.next_frame(&mut pixels).unwrap();
    assert!(pixels.chunks(3).any(|pixel| pixel == [46, 125, 80]), "no bar of Terrace's colour");
    assert!(plot::draw(&dir.path().join("a.gif"), &rows).is_err());
    assert!(plot::draw(&dir.path().join("b.svg"), &[]).is_err());
}

fn skew_row(engine: Engine, variant: &str, zipf: f64, tables: u64) -> Row {
    let figures = SkewFigures {
        zipf,
        table_bytes: Some(tables),
        log_bytes: Some(1000),
        table_write_amp: Some(tables as f64 / 1000.0),
        total_write_amp: Some(tables as f64 / 1000.0 + 1.0),
        hot_keys: Some(3),
        run_count: Some(5),
        moved_keys: Some(7),
        mean_instance_write_amp: Some(2.5),
        instance_write_amps: vec![2.0, 3.0],
        instance_shares: vec![0.25, 0.75],
    };
    let row = row(&format!("skew-{zipf}"), variant, engine, 1, 500.0);
    Row { skew: Some(figures), ..row }
}

#[test]
fn skew_has_a_table_with_the_gain_of_the_hot_table_and_a_curve() {
    let rows = vec![
        skew_row(Engine::Terrace, "", 0.9, 4000),
        skew_row(Engine::Terrace, "hot", 0.9, 3000),
        skew_row(Engine::Rocksdb, "", 0.9, 9000),
        skew_row(Engine::Terrace, "hot", 1.2, 1500),
    ];
    let text = table::render(&rows);
    assert!(text.contains("skewed writes") && text.contains("0.750x"), "{text}");
    let json = serde_json::to_string(&rows).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Row>>(&json).unwrap(), rows);
    let dir = tempfile::tempdir().unwrap();
    let svg = dir.path().join("a.svg");
    plot::draw(&svg, &rows).unwrap();
    let drawn = std::fs::read_to_string(svg).unwrap();
    assert!(drawn.contains("exponent of Zipf") && drawn.contains("terrace hot"), "{drawn}");
    assert!(!drawn.contains("terrace default"), "a line of one point");
}
