//! What the texts of the metrics say.

use super::*;

#[test]
fn the_text_carries_the_figures() {
    let mut metrics = Metrics { gets: 7, user_bytes: 100, log_bytes: 250, ..Metrics::default() };
    metrics.levels[6].file_count = 3;
    metrics.levels[6].size_bytes = 3 << 20;
    metrics.levels[6].filter_stopped = 40;
    metrics.levels[6].filter_vain = 2;
    metrics.filter_lambda = 1.5e-9;
    (metrics.models_refused, metrics.models_refused_ties) = (3, 2);
    (metrics.reads.lookups_by_model, metrics.levels[6].model_files) = (11, 2);
    metrics.model_errors[8] = 5;
    metrics.stalls[2] = StallMetrics { slowdowns: 0, stops: 4, stall_us: 2_500_000 };
    let text = metrics.to_string();
    assert!(text.contains("7 gets") && text.contains("amplification 2.50"), "{text}");
    assert!(text.contains("L6") && text.contains("3.0 MiB"), "{text}");
    assert!(text.contains("lambda 1.50e-9") && text.contains("L6            42"), "{text}");
    assert!(text.contains("11 lookups by model") && text.contains("3 refused (2 ties"), "{text}");
    assert!(text.contains("2 of 3 files have a model"), "{text}");
    assert!(text.contains("memtables wait for their flush: 0 slowdowns, 4 stops, 2.500 s"));
    assert!(!text.contains("too many L0 files"), "{text}");
}
