//! The table of two stores that took turns.

use crate::estimate::Ratio;
use crate::report::cells::{align, title};
use crate::report::figures::PairedFigures;
use crate::report::median::Summary;

/// Two lines per row, of the clock of the wall and of the processor; `None` without such rows.
pub fn paired(summaries: &[Summary]) -> Option<String> {
    let mut lines = vec![
        [
            "in turns",
            "engine",
            "a ns/put",
            "b ns/put",
            "b/a",
            "95 % interval",
            "typical turn",
            "95 % interval",
        ]
        .map(str::to_owned),
    ];
    for summary in summaries {
        let Some(figures) = &summary.median.paired else { continue };
        lines.extend(both(summary, figures));
    }
    (lines.len() > 1).then(|| align(&lines))
}

fn both(summary: &Summary, f: &PairedFigures) -> [[String; 8]; 2] {
    let line = |what: &str, ns: [f64; 2], all: Ratio, typical: Ratio| {
        [
            format!("{}, {what}", title(&summary.workload, &summary.variant)),
            summary.engine.to_string(),
            format!("{:.0}", ns[0]),
            format!("{:.0}", ns[1]),
            format!("{:.4}", all.ratio),
            interval(all),
            format!("{:.4}", typical.ratio),
            interval(typical),
        ]
    };
    [
        line("wall", f.wall_ns, f.wall_ratio, f.wall_typical),
        line("processor", f.cpu_ns, f.cpu_ratio, f.cpu_typical),
    ]
}

fn interval(of: Ratio) -> String {
    format!("{:.4} to {:.4}", of.low, of.high)
}
