//! What `terrace cluster status` prints: nodes and shards as two tables.

use crate::print::Grouped;
use std::fmt::Write;
use terrace_server::cluster::{ClusterStatus, NodeReport, NodeStatus, ShardStatus};

/// Digits of a node's id that are shown.
const ID_DIGITS: usize = 8;

/// Moves of a shard that are listed.
const MOST_MOVES: usize = 5;

/// The whole page.
pub fn page(status: &ClusterStatus) -> String {
    let mut page = String::new();
    let placement = status.placement.as_deref().unwrap_or("not created yet");
    let away = status.shards.iter().filter(|shard| !shard.is_served).count();
    let state = match (status.placement.is_some(), away) {
        (false, _) => "no key is served".to_string(),
        (true, 0) => "every shard is served".to_string(),
        (true, away) => format!("{away} of {} shards NOT served", status.shards.len()),
    };
    // Writing to a string does not fail. So below.
    let _ = writeln!(
        page,
        "cluster {}: {placement}, {state} (revision {})\n",
        status.name, status.revision
    );
    let nodes = status.nodes.iter().map(|node| node_row(status, node));
    page.push_str(&table(&NODE_COLUMNS, nodes.collect()));
    if !status.shards.is_empty() {
        page.push('\n');
        let shards = status.shards.iter().map(|shard| shard_row(status, shard));
        page.push_str(&table(&SHARD_COLUMNS, shards.collect()));
    }
    for shard in &status.shards {
        for step in shard.moves.iter().take(MOST_MOVES) {
            let _ = writeln!(page, "shard {}: move {step}", shard.id);
        }
    }
    page
}

const NODE_COLUMNS: [&str; 9] =
    ["node", "address", "state", "lease", "reads", "writes", "write amp.", "keys", "moved"];

const SHARD_COLUMNS: [&str; 8] =
    ["shard", "part", "instance", "owner", "epoch", "state", "away", "moves"];

fn node_row(status: &ClusterStatus, node: &NodeStatus) -> Vec<String> {
    let id = node.id.get(..ID_DIGITS).unwrap_or(&node.id).to_string();
    let Some(report) = &node.report else {
        let why = node.error.clone().unwrap_or_else(|| "not alive".into());
        return vec![id, node.redis_address.clone(), why];
    };
    let share = |of: fn(&NodeReport) -> u64| {
        let all: u64 = status.nodes.iter().filter_map(|node| node.report.as_ref()).map(of).sum();
        match all {
            0 => "-".to_string(),
            all => format!("{:.0} %", 100.0 * of(report) as f64 / all as f64),
        }
    };
    let amplification = match report.user_bytes {
        0 => "-".to_string(),
        bytes => format!("{:.2}", report.device_bytes as f64 / bytes as f64),
    };
    let state = match (report.is_draining, report.is_coordinator, report.leads_partitioner) {
        (true, _, _) => "draining",
        (_, false, _) => "instance only",
        (_, _, true) => "alive, plans",
        _ => "alive",
    };
    let seconds = |ms: u64| ms as f64 / 1000.0;
    vec![
        id,
        node.redis_address.clone(),
        state.to_string(),
        format!("{:.1} of {:.1} s", seconds(report.lease_age_ms), seconds(report.lease_ttl_ms)),
        share(|report| report.reads),
        share(|report| report.writes),
        amplification,
        Grouped(report.keys).to_string(),
        Grouped(report.moved_keys).to_string(),
    ]
}

fn shard_row(status: &ClusterStatus, shard: &ShardStatus) -> Vec<String> {
    let address = |id: &str| {
        let node = status.nodes.iter().find(|node| node.id == id);
        node.map_or_else(|| id.to_string(), |node| node.redis_address.clone())
    };
    let away = shard.exceptions.map_or("?".into(), |count| Grouped(count).to_string());
    let moves = match (shard.moves.len(), shard.waiting_moves) {
        (0, 0) => "-".to_string(),
        (running, waiting) => format!("{running} running, {waiting} keys wait"),
    };
    vec![
        shard.id.to_string(),
        shard.ranges.join(" "),
        address(&shard.instance),
        shard.owner.as_deref().map_or("-".into(), address),
        shard.epoch.to_string(),
        shard.state.clone(),
        away,
        moves,
    ]
}

/// Columns as wide as they need, two blanks apart.
fn table(columns: &[&str], rows: Vec<Vec<String>>) -> String {
    let head = columns.iter().map(|name| (*name).to_string()).collect();
    let all: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
    let wide = |at: usize| all.iter().filter_map(|row| Some(row.get(at)?.chars().count())).max();
    let widths: Vec<usize> = (0..columns.len()).map(|at| wide(at).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in all {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_what_is_served_and_what_is_not() {
        let report = |reads, writes| NodeReport {
            lease_age_ms: 400,
            lease_ttl_ms: 3000,
            is_coordinator: true,
            reads,
            writes,
            user_bytes: 1000,
            device_bytes: 2500,
            keys: 12_345,
            ..NodeReport::default()
        };
        let node = |id: &str, port: u16, report| NodeStatus {
            id: id.repeat(20),
            redis_address: format!("127.0.0.1:{port}"),
            is_alive: true,
            report: Some(report),
            ..NodeStatus::default()
        };
        let mut nodes = vec![node("ab", 7000, report(300, 1)), node("cd", 7001, report(100, 3))];
        nodes.push(NodeStatus {
            id: "ef".repeat(20),
            redis_address: "127.0.0.1:7002".into(),
            error: Some("the node is not alive".into()),
            ..NodeStatus::default()
        });
        let shard = |id, ranges: &str, owner: usize| ShardStatus {
            id,
            ranges: vec![ranges.into()],
            instance: nodes[owner].id.clone(),
            owner: Some(nodes[owner].id.clone()),
            epoch: 7,
            is_served: true,
            state: "serving".into(),
            exceptions: Some(3),
            ..ShardStatus::default()
        };
        let lost = ShardStatus {
            is_served: false,
            state: "no owner".into(),
            exceptions: None,
            ..shard(3, "10922-16383", 2)
        };
        let moving = ShardStatus {
            waiting_moves: 40,
            moves: vec!["7.1 exporting".into()],
            ..shard(1, "0-5460", 0)
        };
        let status = ClusterStatus {
            name: "terrace".into(),
            placement: Some("slots".into()),
            revision: 17,
            shards: vec![lost, moving, shard(2, "5461-10921", 1)],
            nodes,
            ..ClusterStatus::default()
        };
        let wanted = "\
cluster terrace: slots, 1 of 3 shards NOT served (revision 17)

node      address         state                  lease         reads  writes  write amp.  keys    moved
abababab  127.0.0.1:7000  alive                  0.4 of 3.0 s  75 %   25 %    2.50        12,345  0
cdcdcdcd  127.0.0.1:7001  alive                  0.4 of 3.0 s  25 %   75 %    2.50        12,345  0
efefefef  127.0.0.1:7002  the node is not alive

shard  part         instance        owner           epoch  state     away  moves
3      10922-16383  127.0.0.1:7002  127.0.0.1:7002  7      no owner  ?     -
1      0-5460       127.0.0.1:7000  127.0.0.1:7000  7      serving   3     1 running, 40 keys wait
2      5461-10921   127.0.0.1:7001  127.0.0.1:7001  7      serving   3     -
shard 1: move 7.1 exporting
";
        assert_eq!(page(&status), wanted);
        let new = ClusterStatus { name: "x".into(), ..ClusterStatus::default() };
        assert!(page(&new).starts_with("cluster x: not created yet, no key is served"));
    }
}
