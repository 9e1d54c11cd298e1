//! The tables of what filters are like and of what elastic ones spare.

use crate::report::cells::{align, bytes, count, title};
use crate::report::figures::{ElasticFigures, FilterFigures};
use crate::report::median::Summary;

/// One line per kind, size and engine; `None` without such rows.
pub fn filters(summaries: &[Summary]) -> Option<String> {
    let mut lines = vec![
        [
            "filter",
            "engine",
            "bits/key",
            "FPR",
            "1 in",
            "model",
            "build ns",
            "hot ns",
            "hot hit ns",
            "cold ns",
            "hashing ns",
            "repeats",
        ]
        .map(str::to_owned),
    ];
    let mut last = String::new();
    for summary in summaries {
        let Some(figures) = &summary.median.filters else { continue };
        let name = if summary.workload == last { "" } else { &summary.workload };
        lines.push(filter_line(name, summary, figures));
        last.clone_from(&summary.workload);
    }
    (lines.len() > 1).then(|| align(&lines))
}

fn filter_line(name: &str, summary: &Summary, f: &FilterFigures) -> [String; 12] {
    let ns = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    let rate = |value: f64| format!("{value:.3e}");
    [
        name.to_owned(),
        summary.engine.to_string(),
        format!("{:.2}", f.bits_per_key),
        rate(f.fpr),
        if f.fpr > 0.0 { count(1.0 / f.fpr) } else { format!("> {}", count(f.probes as f64)) },
        f.model_fpr.map_or("-".to_owned(), rate),
        ns(f.build_ns_per_key),
        ns(f.query_hot_ns),
        ns(f.query_hot_positive_ns),
        ns(f.query_cold_ns),
        ns(f.hash_ns),
        summary.share(),
    ]
}

/// One line per law, variant and engine; `None` without such rows.
pub fn elastic(summaries: &[Summary]) -> Option<String> {
    let mut lines = vec![
        [
            "elastic",
            "engine",
            "wasted/op",
            "fewer",
            "engine's count",
            "index/op",
            "loads/op",
            "filters",
            "budget",
            "runs",
            "back after",
        ]
        .map(str::to_owned),
    ];
    for summary in summaries {
        let Some(figures) = &summary.median.elastic else { continue };
        lines.push(elastic_line(summary, figures, uniform(summaries, summary)));
    }
    if lines.len() == 1 {
        return None;
    }
    let mut text = align(&lines);
    text.push_str("fewer: wasted reads of Terrace's uniform-bloom:4 over these\n");
    Some(text)
}

/// Wasted reads per lookup of Terrace's uniform Bloom filters under the same law.
fn uniform(summaries: &[Summary], of: &Summary) -> Option<f64> {
    let same = |s: &&Summary| s.workload == of.workload && s.variant == "uniform-bloom:4";
    summaries.iter().find(same)?.median.wasted_reads_per_op
}

fn elastic_line(summary: &Summary, f: &ElasticFigures, uniform: Option<f64>) -> [String; 11] {
    let row = &summary.median;
    let decimals = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.4}"));
    let fewer = uniform.zip(row.wasted_reads_per_op).filter(|(_, own)| *own > 0.0);
    let back = row.shift.as_ref().map_or("-".to_owned(), |shift| {
        shift.recovery_ops.map_or("never".to_owned(), |ops| count(ops as f64))
    });
    [
        title(&row.workload, &row.variant),
        row.engine.to_string(),
        decimals(row.wasted_reads_per_op),
        fewer.map_or("-".to_owned(), |(uniform, own)| format!("{:.2}x", uniform / own)),
        decimals(f.wasted_reads_by_engine),
        decimals(f.index_reads_per_op),
        decimals(f.unit_loads_per_op),
        row.filter_bytes.map_or("-".to_owned(), bytes),
        bytes(f.filter_budget_bytes),
        row.sorted_runs.map_or("-".to_owned(), |runs| runs.to_string()),
        back,
    ]
}
