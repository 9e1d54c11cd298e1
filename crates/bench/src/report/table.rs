//! The table of medians, and what follows it.

use crate::report::Row;
use crate::report::median::{first_peer, summarize};
use crate::report::{table_filters, table_learned, table_values};
use std::fmt::Write as _;

/// Medians as text: one line per workload and engine, then how much partitions gained, then what
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
            "reads/op",
            "RSS",
            "CPU s",
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
            format!("{:.3}", row.device_reads_per_op),
            bytes(row.rss_bytes),
            format!("{:.1}", row.cpu_s),
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
    parts.join("\n")
}

/// A workload and its variant in one word.
pub fn title(workload: &str, variant: &str) -> String {
    match variant {
        "" => workload.to_owned(),
        _ => format!("{workload} {variant}"),
    }
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

/// Columns padded to their widest cell: text to the left, numbers to the right.
pub(super) fn align<const N: usize>(lines: &[[String; N]]) -> String {
    const TEXT_COLUMNS: usize = 2;
    let mut widths = [0; N];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(widths).enumerate().map(|(column, (cell, width))| {
            if column < TEXT_COLUMNS {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A number with thousands apart.
pub fn count(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the largest unit that leaves a whole part.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let decimals = usize::from(unit > 0 && scaled < 100.0);
    format!("{scaled:.decimals$} {}", UNITS[unit])
}
