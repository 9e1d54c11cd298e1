//! The table of what large values cost.

use crate::report::cells::{align, bytes, count, title};
use crate::report::figures::LargeValueFigures;
use crate::report::median::Summary;

/// One line per part, variant and engine; `None` without such rows.
pub fn large_values(summaries: &[Summary]) -> Option<String> {
    let mut lines = vec![
        [
            "large values",
            "engine",
            "engine's w-amp",
            "space max",
            "space end",
            "longest gap ms",
            "calls/op",
            "values/op",
            "entries/s",
            "MiB/s",
            "moved",
        ]
        .map(str::to_owned),
    ];
    for summary in summaries {
        let Some(figures) = &summary.median.large_values else { continue };
        // What was not settled has nothing of its own but its gap, which is the other row's.
        if !summary.workload.ends_with("-unsettled") {
            lines.push(line(summary, figures));
        }
    }
    (lines.len() > 1).then(|| align(&lines))
}

fn line(summary: &Summary, f: &LargeValueFigures) -> [String; 11] {
    let row = &summary.median;
    let decimals = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.2}"));
    let scaled = |value: Option<f64>, unit: f64| decimals(value.map(|v| v / unit));
    [
        title(&row.workload, &row.variant),
        row.engine.to_string(),
        decimals(f.engine_write_amp),
        decimals(f.space_amp_max),
        decimals(row.space_amp),
        scaled(f.longest_gap_us, 1000.0),
        decimals(f.read_calls_per_op),
        decimals(f.value_reads_per_op),
        f.entries_per_s.map_or("-".to_owned(), count),
        scaled(f.bytes_per_s, f64::from(1 << 20)),
        f.moved_bytes.map_or("-".to_owned(), bytes),
    ]
}
