//! The table of medians, and what follows it.

use crate::report::Row;
use crate::report::cells::{align, bytes, count, title};
use crate::report::median::{first_peer, summarize};
use crate::report::{table_filters, table_learned, table_paired, table_skew, table_values};
use std::fmt::Write as _;

/// Medians as text: one line per workload and engine, with the number of repeats that they are of, then how much partitions gained, then what
/// filters are like (which have no line in the first table), what elastic ones spare, what large values
/// cost and what models gain.
pub fn render(rows: &[Row]) -> String {
    let ratio_title = first_peer(rows).map_or("ratio".to_owned(), |peer| format!("vs {peer}"));
    let mut lines = vec![
        [
            "workload",
            "engine",
            "op/s",
            &ratio_title,
            "p50 us",
            "p99 us",
            "p99.9 us",
            "max us",
            "written",
            "w-amp",
            "space",
            "runs",
            "reads/op",
            "RSS",
            "CPU s",
            "repeats",
        ]
        .map(str::to_owned),
    ];
    let summaries = summarize(rows);
    let mut last = String::new();
    for summary in summaries.iter().filter(|s| s.median.filters.is_none()) {
        let row = &summary.median;
        let name = title(&row.workload, &row.variant);
        let shown = if name == last { String::new() } else { name.clone() };
        last = name;
        let decimals = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
        lines.push([
            shown,
            row.engine.to_string(),
            count(row.ops_per_s),
            summary.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}x")),
            format!("{:.2}", row.p50_us),
            format!("{:.2}", row.p99_us),
            format!("{:.1}", row.p999_us),
            format!("{:.0}", row.max_us),
            bytes(row.bytes_written),
            decimals(row.write_amp),
            decimals(row.space_amp),
            row.sorted_runs.map_or("-".to_owned(), |runs| runs.to_string()),
            format!("{:.3}", row.device_reads_per_op),
            bytes(row.rss_bytes),
            format!("{:.1}", row.cpu_s),
            summary.share(),
        ]);
    }
    let mut parts = Vec::new();
    if lines.len() > 1 {
        let mut text = align(&lines);
        for gain in partition_gains(rows) {
            writeln!(text, "{gain}").ok();
        }
        parts.push(text);
    }
    parts.extend(table_filters::elastic(&summaries));
    parts.extend(table_filters::filters(&summaries));
    parts.extend(table_values::large_values(&summaries));
    parts.extend(table_learned::learned(&summaries));
    parts.extend(table_skew::skew(&summaries));
    parts.extend(table_paired::paired(&summaries));
    parts.join("\n")
}

/// For each workload that was run with partitions on and off: on over off, by engine.
fn partition_gains(rows: &[Row]) -> Vec<String> {
    let summaries = summarize(rows);
    let with = |variant: &'static str| summaries.iter().filter(move |s| s.variant == variant);
    let mut gains: Vec<(String, Vec<String>)> = Vec::new();
    for on in with("partitions-on") {
        let off = with("partitions-off")
            .find(|off| (&off.workload, off.engine) == (&on.workload, on.engine))
            .filter(|off| off.median.ops_per_s > 0.0);
        let Some(off) = off else { continue };
        let gain = format!("{} {:.1}x", on.engine, on.median.ops_per_s / off.median.ops_per_s);
        match gains.iter_mut().find(|(workload, _)| *workload == on.workload) {
            Some((_, engines)) => engines.push(gain),
            None => gains.push((on.workload.clone(), vec![gain])),
        }
    }
    gains
        .into_iter()
        .map(|(workload, engines)| {
            format!("{workload}, partitions on over off: {}", engines.join(", "))
        })
        .collect()
}
