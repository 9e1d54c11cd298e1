//! Medians over repeats, and ratios to the first peer.

use crate::engine::Engine;
use crate::report::Row;
use crate::report::figures::{
    ElasticFigures, FilterFigures, LargeValueFigures, LearnedFigures, PairedFigures, ShiftFigures,
    SkewFigures, WriterFigures, middle,
};

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
    /// How many were asked for.
    pub asked: usize,
    /// Median rate over that of the first peer; `None` without a peer, and for the peer itself.
    pub ratio: Option<f64>,
}

impl Summary {
    /// `2 of 3`: how many of the repeats the medians are of.
    pub fn share(&self) -> String {
        format!("{} of {}", self.repeats, self.asked)
    }
}

/// Medians by workload, variant and engine, each in the order in which they first appear, of the rows whose job did
/// not fail. The first peer is the first engine other than Terrace; a variant it does not have is compared with its
/// first.
pub fn summarize(rows: &[Row]) -> Vec<Summary> {
    let rows: Vec<&Row> = rows.iter().filter(|row| !row.failed).collect();
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows.iter().copied() {
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
    let mut workloads: Vec<&str> = Vec::new();
    let mut variants: Vec<&str> = Vec::new();
    let note = |name, names: &mut Vec<_>| {
        if !names.contains(&name) {
            names.push(name);
        }
    };
    for row in rows.iter().copied() {
        note(row.workload.as_str(), &mut workloads);
        note(row.variant.as_str(), &mut variants);
    }
    let mut summaries: Vec<Summary> = groups.iter().filter_map(|group| medians(group)).collect();
    let place = |name: &str, names: &[&str]| names.iter().position(|known| *known == name);
    summaries.sort_by_key(|s| (place(&s.workload, &workloads), place(&s.variant, &variants)));
    if let Some(peer) = first_peer(rows.iter().copied()) {
        let rates: Vec<(String, String, f64)> = summaries
            .iter()
            .filter(|s| s.engine == peer)
            .map(|s| (s.workload.clone(), s.variant.clone(), s.median.ops_per_s))
            .collect();
        for summary in summaries.iter_mut().filter(|s| s.engine != peer) {
            let workload =
                |rate: &&(String, String, f64)| rate.0 == summary.workload && rate.2 > 0.0;
            let same = rates.iter().filter(workload).find(|rate| rate.1 == summary.variant);
            let any = same.or_else(|| rates.iter().find(workload));
            summary.ratio = any.map(|rate| summary.median.ops_per_s / rate.2);
        }
    }
    summaries
}

/// The engine that ratios are over: the first other than Terrace of whose rows some are whole.
pub fn first_peer<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Option<Engine> {
    let whole = rows.into_iter().filter(|row| !row.failed);
    whole.map(|row| row.engine).find(|engine| *engine != Engine::Terrace)
}

fn medians(rows: &[&Row]) -> Option<Summary> {
    let first = rows.first()?;
    let of = |field: fn(&Row) -> f64| middle(rows.iter().map(|row| field(row)).collect());
    let known = |field: fn(&Row) -> Option<f64>| {
        let values: Vec<f64> = rows.iter().filter_map(|row| field(row)).collect();
        (!values.is_empty()).then(|| middle(values))
    };
    let median = Row {
        keys: of(|row| row.keys as f64) as u64,
        ops: of(|row| row.ops as f64) as u64,
        seconds: of(|row| row.seconds),
        ops_per_s: of(|row| row.ops_per_s),
        p50_us: of(|row| row.p50_us),
        p99_us: of(|row| row.p99_us),
        p999_us: of(|row| row.p999_us),
        p9999_us: known(|row| row.p9999_us),
        max_us: of(|row| row.max_us),
        bytes_written: of(|row| row.bytes_written as f64) as u64,
        user_bytes: of(|row| row.user_bytes as f64) as u64,
        write_amp: known(|row| row.write_amp),
        space_amp: known(|row| row.space_amp),
        device_reads_per_op: of(|row| row.device_reads_per_op),
        wasted_reads_per_op: known(|row| row.wasted_reads_per_op),
        filter_bytes: known(|row| row.filter_bytes.map(|n| n as f64)).map(|n| n as u64),
        index_bytes: known(|row| row.index_bytes.map(|n| n as f64)).map(|n| n as u64),
        sorted_runs: known(|row| row.sorted_runs.map(|n| n as f64)).map(|n| n as u64),
        rss_bytes: of(|row| row.rss_bytes as f64) as u64,
        cpu_s: of(|row| row.cpu_s),
        writer: WriterFigures::median(rows),
        filters: FilterFigures::median(rows),
        elastic: ElasticFigures::median(rows),
        shift: ShiftFigures::median(rows),
        large_values: LargeValueFigures::median(rows),
        learned: LearnedFigures::median(rows),
        skew: SkewFigures::median(rows),
        paired: PairedFigures::median(rows),
        ..(*first).clone()
    };
    Some(Summary {
        workload: first.workload.clone(),
        variant: first.variant.clone(),
        engine: first.engine,
        median,
        repeats: rows.len(),
        asked: first.repeats as usize,
        ratio: None,
    })
}
