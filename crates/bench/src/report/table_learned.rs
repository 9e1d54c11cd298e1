//! The table of what models gain and cost.

use crate::report::Row;
use crate::report::cells::{align, bytes, title};
use crate::report::figures::LearnedFigures;
use crate::report::median::Summary;

/// One line per kind of keys, variant and engine; `None` without such rows.
pub fn learned(summaries: &[Summary]) -> Option<String> {
    let mut lines = vec![
        [
            "learned",
            "engine",
            "speedup",
            "median speedup",
            "by p50",
            "by model",
            "by level",
            "models",
            "indexes",
            "built",
            "refused",
            "levels",
            "training ns/key",
        ]
        .map(str::to_owned),
    ];
    for summary in summaries {
        let Some(figures) = &summary.median.learned else { continue };
        lines.push(line(summary, figures, baseline(summaries, summary)));
    }
    if lines.len() == 1 {
        return None;
    }
    let mut text = align(&lines);
    text.push_str(
        "speedup: median rate over the engine's without models (of peers: with binary search; of \
         fills: of the store without); median speedup: of those within rounds; by p50: the ratio of \
         median latencies, which other work on the machine disturbs least\n",
    );
    Some(text)
}

/// Whether the rows of this variant have what others are compared with.
fn is_baseline(summary: &Summary) -> bool {
    match summary.engine {
        crate::engine::Engine::Terrace => summary.variant == "off",
        _ => summary.variant.is_empty(),
    }
}

/// The same engine without models.
fn baseline<'a>(summaries: &'a [Summary], of: &Summary) -> Option<&'a Row> {
    let same = |s: &&Summary| s.workload == of.workload && s.engine == of.engine && is_baseline(s);
    summaries.iter().find(same).filter(|_| !is_baseline(of)).map(|s| &s.median)
}

fn line(summary: &Summary, f: &LearnedFigures, baseline: Option<&Row>) -> [String; 13] {
    let row = &summary.median;
    let over = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
    let or_dash = |text: Option<String>| text.unwrap_or("-".to_owned());
    let times = |value: Option<f64>| or_dash(value.map(|v| format!("{v:.3}x")));
    let percent = |share: Option<f64>| or_dash(share.map(|s| format!("{:.1} %", s * 100.0)));
    let number = |value: Option<u64>| or_dash(value.map(|n| n.to_string()));
    [
        title(&row.workload, &row.variant),
        row.engine.to_string(),
        times(baseline.and_then(|base| over(row.ops_per_s, base.ops_per_s))),
        times(f.speedup),
        times(baseline.and_then(|base| over(base.p50_us, row.p50_us))),
        percent(f.model_share),
        percent(f.level_share),
        or_dash(f.model_bytes.map(bytes)),
        or_dash(row.index_bytes.map(bytes)),
        number(f.models_built),
        number(f.models_refused),
        number(f.level_models),
        or_dash(f.training_ns_per_key.map(|ns| format!("{ns:.1}"))),
    ]
}
