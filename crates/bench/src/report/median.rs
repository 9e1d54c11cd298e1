//! Medians over repeats, and ratios to the first peer.

use crate::engine::Engine;
use crate::report::Row;

/// The medians of one workload and variant for one engine.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// The workload.
    pub workload: String,
    /// The variant, empty for the default.
    pub variant: String,
    /// The engine.
    pub engine: Engine,
    /// Medians, field by field; text fields are those of the first repeat.
    pub median: Row,
    /// How many repeats the medians are of.
    pub repeats: usize,
    /// Median rate over that of the first peer; `None` without a peer, and for the peer itself.
    pub ratio: Option<f64>,
}

/// Medians in the order in which workloads, variants and engines first appear. The first peer is
/// the first engine other than Terrace.
pub fn summarize(rows: &[Row]) -> Vec<Summary> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let same = |group: &&mut Vec<&Row>| {
            group.first().is_some_and(|first| {
                (&first.workload, &first.variant, first.engine)
                    == (&row.workload, &row.variant, row.engine)
            })
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    // Rows arrive store by store; a table reads workload by workload.
    let mut order: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let name = (row.workload.as_str(), row.variant.as_str());
        if !order.contains(&name) {
            order.push(name);
        }
    }
    let mut summaries: Vec<Summary> = groups.iter().filter_map(|group| medians(group)).collect();
    summaries.sort_by_key(|s| {
        order.iter().position(|name| *name == (s.workload.as_str(), s.variant.as_str()))
    });
    if let Some(peer) = first_peer(rows) {
        let rates: Vec<(String, String, f64)> = summaries
            .iter()
            .filter(|s| s.engine == peer)
            .map(|s| (s.workload.clone(), s.variant.clone(), s.median.ops_per_s))
            .collect();
        for summary in summaries.iter_mut().filter(|s| s.engine != peer) {
            let same = |rate: &&(String, String, f64)| {
                rate.0 == summary.workload && rate.1 == summary.variant && rate.2 > 0.0
            };
            summary.ratio = rates.iter().find(same).map(|rate| summary.median.ops_per_s / rate.2);
        }
    }
    summaries
}

/// The engine that ratios are over.
pub fn first_peer(rows: &[Row]) -> Option<Engine> {
    rows.iter().map(|row| row.engine).find(|engine| *engine != Engine::Terrace)
}

fn medians(rows: &[&Row]) -> Option<Summary> {
    let first = rows.first()?;
    let of = |field: fn(&Row) -> f64| median(rows.iter().map(|row| field(row)).collect());
    let known = |field: fn(&Row) -> Option<f64>| {
        let values: Vec<f64> = rows.iter().filter_map(|row| field(row)).collect();
        (!values.is_empty()).then(|| median(values))
    };
    let median = Row {
        keys: of(|row| row.keys as f64) as u64,
        ops: of(|row| row.ops as f64) as u64,
        seconds: of(|row| row.seconds),
        ops_per_s: of(|row| row.ops_per_s),
        p50_us: of(|row| row.p50_us),
        p99_us: of(|row| row.p99_us),
        p999_us: of(|row| row.p999_us),
        max_us: of(|row| row.max_us),
        bytes_written: of(|row| row.bytes_written as f64) as u64,
        user_bytes: of(|row| row.user_bytes as f64) as u64,
        write_amp: known(|row| row.write_amp),
        space_amp: known(|row| row.space_amp),
        device_reads_per_op: of(|row| row.device_reads_per_op),
        wasted_reads_per_op: known(|row| row.wasted_reads_per_op),
        filter_bytes: known(|row| row.filter_bytes.map(|n| n as f64)).map(|n| n as u64),
        index_bytes: known(|row| row.index_bytes.map(|n| n as f64)).map(|n| n as u64),
        rss_bytes: of(|row| row.rss_bytes as f64) as u64,
        cpu_s: of(|row| row.cpu_s),
        ..(*first).clone()
    };
    Some(Summary {
        workload: first.workload.clone(),
        variant: first.variant.clone(),
        engine: first.engine,
        median,
        repeats: rows.len(),
        ratio: None,
    })
}

/// The middle value, or the mean of the two middle ones; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (len, middle) if len % 2 == 1 => values[middle],
        (_, middle) => (values[middle - 1] + values[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_middle_value_is_the_median() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![7.0]), 7.0);
        assert_eq!(median(vec![]), 0.0);
    }
}
