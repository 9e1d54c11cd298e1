//! The table of what skewed writes cost.

use crate::report::cells::{align, bytes, title};
use crate::report::figures::SkewFigures;
use crate::report::median::Summary;

/// One line per exponent or placement, variant and engine; `None` without such rows.
pub fn skew(summaries: &[Summary]) -> Option<String> {
    let mut lines = vec![
        [
            "skewed writes",
            "engine",
            "w-amp without log",
            "with log",
            "vs off",
            "tables",
            "log",
            "hot keys",
            "runs",
            "moved keys",
            "mean of instances",
        ]
        .map(str::to_owned),
    ];
    for summary in summaries {
        let Some(figures) = &summary.median.skew else { continue };
        lines.push(line(summary, figures, without_hot_table(summaries, summary)));
    }
    (lines.len() > 1).then(|| align(&lines))
}

/// The same store without a hot table.
fn without_hot_table<'a>(summaries: &'a [Summary], of: &Summary) -> Option<&'a SkewFigures> {
    let variant = match of.variant.as_str() {
        "hot" => "",
        other => other.strip_suffix("-hot")?,
    };
    let same = |s: &&Summary| {
        (&s.workload, s.engine, s.variant.as_str()) == (&of.workload, of.engine, variant)
    };
    summaries.iter().find(same)?.median.skew.as_ref()
}

fn line(summary: &Summary, f: &SkewFigures, off: Option<&SkewFigures>) -> [String; 11] {
    let row = &summary.median;
    let or_dash = |text: Option<String>| text.unwrap_or("-".to_owned());
    let decimals = |value: Option<f64>| or_dash(value.map(|v| format!("{v:.2}")));
    let number = |value: Option<u64>| or_dash(value.map(|n| n.to_string()));
    let over_off = f.table_bytes.zip(off.and_then(|off| off.table_bytes));
    let over_off = over_off.map(|(on, off)| format!("{:.3}x", on as f64 / off.max(1) as f64));
    [
        title(&row.workload, &row.variant),
        row.engine.to_string(),
        decimals(f.table_write_amp),
        decimals(f.total_write_amp),
        or_dash(over_off),
        or_dash(f.table_bytes.map(bytes)),
        or_dash(f.log_bytes.map(bytes)),
        number(f.hot_keys),
        number(f.run_count),
        number(f.moved_keys),
        decimals(f.mean_instance_write_amp),
    ]
}
