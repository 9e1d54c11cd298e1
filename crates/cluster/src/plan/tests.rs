//! Plans as text: `testdata/plan/*.txt` hold scripts with what they print; `UPDATE=1` rewrites that.
//!
//! ```text
//! slots 3                      three shards, 1 to 3, with equal numbers of slots
//! range g p                    three shards, 1 to 3, divided at these keys
//! list 1 writes=9 bytes=900 memtable=300 hot=100
//!   0:key count error bytes    a line per key; bytes 0: unknown
//! keys 1 x 300 10 0 100        keys x000 to x299 of database 0 in list 1, count error bytes
//! plan absorb                  prints the plan, and how many keys
//! check 1 0:a>2                whether a part of shard 1 with these assignments is accepted
//! ```

use super::*;
use crate::id::{NodeId, Revision, ShardId};
use crate::key::DbKey;
use crate::slot::SLOT_COUNT;
use crate::topology::{KeyRange, Node, Placement, Shard};
use std::fmt::Write as _;
use std::path::Path;

fn topology(placement: Placement, ranges: Vec<KeyRange>) -> Topology {
    let node = Node {
        id: NodeId([1; 20]),
        redis_address: String::new(),
        rpc_address: String::new(),
        is_alive: true,
    };
    let shards = ranges.into_iter().zip(1..).map(|(range, id)| Shard {
        id: ShardId(id),
        instance: node.id,
        owner: None,
        ranges: vec![range],
    });
    let shards: Vec<Shard> = shards.collect();
    Topology::new(Revision(1), placement, [node.clone()], shards).unwrap()
}

fn by_slots(shards: u16) -> Topology {
    let bound = |at: u16| (u32::from(SLOT_COUNT) * u32::from(at) / u32::from(shards)) as u16;
    let ranges = (0..shards).map(|at| KeyRange::Slots(bound(at), bound(at + 1) - 1));
    topology(Placement::Slots, ranges.collect())
}

fn by_range(bounds: &[&str]) -> Topology {
    let mut starts = vec![Vec::new()];
    starts.extend(bounds.iter().map(|bound| bound.as_bytes().to_vec()));
    let ends = starts[1..].iter().cloned().map(Some).chain([None]);
    let ranges = starts.iter().cloned().zip(ends);
    topology(Placement::Range, ranges.map(|(start, end)| KeyRange::Keys { start, end }).collect())
}

fn key(text: &str) -> DbKey {
    let (db, key) = text.split_once(':').unwrap();
    DbKey::new(db.parse().unwrap(), key)
}

/// The numbers behind `name=`.
fn field(words: &[&str], name: &str) -> u64 {
    let word = words.iter().find_map(|word| word.strip_prefix(name)).unwrap();
    word.strip_prefix('=').unwrap().parse().unwrap()
}

fn print_plan(plan: &Plan, out: &mut String) {
    for (shard, part) in &plan.parts {
        let shown = part.iter().take(8).map(|it| format!(" {}>{}", it.key, it.at));
        let shown: String = shown.collect();
        let more = if part.len() > 8 { " ..." } else { "" };
        writeln!(out, "part {shard}: {} keys{shown}{more}", part.len()).unwrap();
    }
}

fn run(script: &str) -> String {
    let mut out = String::new();
    let mut topology = None;
    let mut lists: Vec<TopList> = Vec::new();
    for line in script.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "slots" => topology = Some(by_slots(words[1].parse().unwrap())),
            "range" => topology = Some(by_range(&words[1..])),
            "list" => lists.push(TopList {
                shard: ShardId(words[1].parse().unwrap()),
                writes: field(&words, "writes"),
                write_bytes: field(&words, "bytes"),
                memtable_bytes: field(&words, "memtable"),
                hot_bytes: field(&words, "hot"),
                keys: Vec::new(),
            }),
            "keys" => {
                let number = |at: usize| words[at].parse::<u64>().unwrap();
                let list = lists.iter_mut().find(|list| u64::from(list.shard.0) == number(1));
                let name = |at| DbKey::new(0, format!("{}{at:03}", words[2]));
                let keys = (0..number(3)).map(|at| TopKey {
                    key: name(at),
                    count: number(4),
                    error: number(5),
                    entry_bytes: number(6),
                });
                list.unwrap().keys.extend(keys);
            }
            "plan" => match words[1].parse().and_then(|spec: PlanSpec| {
                assert_eq!(spec.to_string().parse(), Ok(spec.clone()));
                make_plan(&spec, topology.as_ref().unwrap(), &lists)
            }) {
                Ok(plan) => print_plan(&plan, &mut out),
                Err(error) => writeln!(out, "refused: {error}").unwrap(),
            },
            "check" => {
                let part = words[2..].iter().map(|word| {
                    let (name, at) = word.split_once('>').unwrap();
                    Assignment { key: key(name), at: ShardId(at.parse().unwrap()) }
                });
                let part = (ShardId(words[1].parse().unwrap()), part.collect());
                match (Plan { parts: [part].into() }).check(topology.as_ref().unwrap()) {
                    Ok(()) => writeln!(out, "accepted").unwrap(),
                    Err(error) => writeln!(out, "refused: {error}").unwrap(),
                }
            }
            _ => {
                let number = |at: usize| words[at].parse::<u64>().unwrap();
                lists.last_mut().unwrap().keys.push(TopKey {
                    key: key(words[0]),
                    count: number(1),
                    error: number(2),
                    entry_bytes: number(3),
                });
            }
        }
    }
    out
}

#[test]
fn plans_are_what_the_scripts_say() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/plan");
    let mut paths: Vec<_> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let case = |case: &str| {
            let (script, _) = case.split_once("----\n").unwrap_or((case, ""));
            format!("{}\n----\n{}", script.trim_end(), run(script))
        };
        let got = text.split("====\n").map(case).collect::<Vec<_>>().join("====\n");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, got).unwrap();
        } else {
            assert_eq!(got, text, "{} (UPDATE=1 rewrites it)", path.display());
        }
    }
}

#[test]
fn a_plan_with_a_million_keys_is_refused() {
    let topology = by_range(&["m"]);
    let part: Vec<Assignment> = (0..1_000_000)
        .map(|at| Assignment { key: DbKey::new(0, format!("a{at}")), at: ShardId(2) })
        .collect();
    let plan = Plan { parts: [(ShardId(1), part)].into() };
    assert_eq!(plan.check(&topology), Err(PlanError::TooManyKeys(1_000_000)));
    let spec: Result<PlanSpec, PlanError> = "top-n-to-one:1000000".parse();
    assert_eq!(spec, Err(PlanError::TooManyKeys(1_000_000)));
    let spec: Result<PlanSpec, PlanError> = "top-n-tiered:60000,60000".parse();
    assert_eq!(spec, Err(PlanError::TooManyKeys(120_000)));
    let spec = "top-n-tiered:18446744073709551615,1".parse::<PlanSpec>();
    assert!(matches!(spec, Err(PlanError::TooManyKeys(_))), "{spec:?}");
}

#[test]
fn a_key_that_is_too_long_is_refused() {
    let topology = by_range(&["m"]);
    let long = vec![b'a'; MAX_MOVED_KEY_BYTES + 1];
    let part = vec![Assignment { key: DbKey::new(0, long.clone()), at: ShardId(2) }];
    let error = Plan { parts: [(ShardId(1), part)].into() }.check(&topology).unwrap_err();
    assert!(error.to_string().len() < 200, "{error}");
    assert!(matches!(error, PlanError::KeyTooLong(_, bytes) if bytes == long.len()), "{error}");
}

#[test]
fn keys_that_are_too_long_are_left_out_of_plans() {
    let topology = by_range(&["m"]);
    let top =
        |key: &[u8], count| TopKey { key: DbKey::new(0, key), count, error: 0, entry_bytes: 9 };
    let long = [b"b".to_vec(), vec![b'x'; MAX_MOVED_KEY_BYTES]].concat();
    let list = TopList {
        shard: ShardId(1),
        writes: 100,
        write_bytes: 10_000,
        memtable_bytes: 1_000,
        hot_bytes: 0,
        keys: vec![top(&long, 50), top(b"a", 40), top(b"z", 30), top(b"c", 20)],
    };
    let assigned = |spec: &str| {
        let plan = make_plan(&spec.parse().unwrap(), &topology, std::slice::from_ref(&list));
        let plan = plan.unwrap();
        plan.check(&topology).unwrap();
        let all = plan.parts.into_values().flatten();
        all.map(|it| (it.key.key, it.at.0)).collect::<Vec<_>>()
    };
    assert_eq!(assigned("top-n-to-one:1:2"), [(b"a".to_vec(), 2)]);
    assert_eq!(assigned("top-n-tiered:2,1"), [(b"c".to_vec(), 2), (b"z".to_vec(), 1)]);
}

/// Counts that two instances made of the same keys while they moved, as Space-Saving bounds them.
#[test]
fn merged_counts_bound_the_true_ones() {
    let topology = by_range(&["m"]);
    let list = |shard, counts: &[(&str, u64, u64)]| TopList {
        shard: ShardId(shard),
        writes: 100,
        write_bytes: 10_000,
        memtable_bytes: 1_000,
        hot_bytes: 0,
        keys: counts
            .iter()
            .map(|&(key, count, error)| TopKey {
                key: DbKey::new(0, key),
                count,
                error,
                entry_bytes: 0,
            })
            .collect(),
    };
    let lists = [list(1, &[("a", 50, 2), ("b", 20, 0)]), list(2, &[("a", 60, 1), ("c", 20, 5)])];
    let merged = merge(&topology, &lists).unwrap();
    let seen: Vec<_> = merged
        .iter()
        .map(|it| (it.key.key.as_slice(), it.count, it.least_count(), it.at.0, it.entry_bytes))
        .collect();
    let expected =
        [(&b"a"[..], 110, 107, 2, 100), (&b"b"[..], 20, 20, 1, 100), (&b"c"[..], 20, 15, 2, 100)];
    assert_eq!(seen, expected);
    let twice = [list(1, &[]), list(1, &[])];
    assert_eq!(merge(&topology, &twice), Err(PlanError::ListTwice(ShardId(1))));
    assert_eq!(merge(&topology, &[list(9, &[])]), Err(PlanError::UnknownShard(ShardId(9))));
}
