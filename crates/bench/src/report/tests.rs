//! Report arithmetic, the JSON contract, the table and the plots, on rows made by hand.

use super::*;
use crate::phase::Tally;
use hdrhistogram::Histogram;
use median::summarize;

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
        variant: variant.to_owned(),
        options: "a=b".to_owned(),
        version: "1".to_owned(),
        machine: "m".to_owned(),
        commit: "c".to_owned(),
    };
    let usage =
        Usage { read_bytes: 8_192_000, written_bytes: 1500, cpu_s: 0.5, rss_bytes: 3 << 20 };
    let store = StoreState {
        keys: 7,
        live_bytes: Some(1000),
        dir_bytes: 1100,
        metadata: MetadataBytes { filters: Some(5), indexes: None },
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
        max_us bytes_written user_bytes write_amp space_amp device_reads_per_op wasted_reads_per_op \
        filter_bytes index_bytes rss_bytes cpu_s options version machine commit variant";
    assert_eq!(fields, documented.split_whitespace().collect());
    assert_eq!(value[1]["engine"], "fjall");
    assert!(value[1]["index_bytes"].is_null());
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
