//! The cluster's metadata as entries, and the topology that they say.
//!
//! ```text
//! /terrace/<cluster>/1/config                 slots | range
//!                      member/<node>          redis address, rpc address
//!                      part/<node>            what its store has, once it was served: see `part`
//!                      node/<node>            coordinator | instance | draining; lease: alive
//!                      shard/<id>/instance    node
//!                      shard/<id>/owner       node; its revision is the epoch
//!                      shard/<id>/claim       node; lease
//!                      map/<range>            shard
//!                      leader/<role>          node; lease
//!                      passed                 an epoch: written for the revisions only, see `epochs`
//! /terrace/<cluster>/passing                  the same, while they are made
//! ```
//! A range is two slot numbers of five digits, or two keys in hexadecimal, joined by `-`; the last
//! range of keys has no end.

use crate::part::{Part, range_of, range_text};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use terrace_cluster::{
    Epoch, KeyRange, Node, NodeId, Owner, Placement, Revision, Shard, ShardId, Topology,
};
use terrace_metadata::{Change, Changes, Entry, LeaseId, Snapshot, Transaction};

/// The most shards that a cluster is created with: etcd refuses larger transactions.
pub const MAX_CREATED_SHARDS: usize = 40;

/// Where entries are.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    cluster: String,
    prefix: String,
}

impl Layout {
    /// `None` if the name is empty, longer than 64 bytes, or has other than letters, digits, `-`, `_`, `.`.
    pub fn new(cluster: &str) -> Option<Self> {
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_fine = (1..=64).contains(&cluster.len()) && cluster.bytes().all(is_fine);
        let (cluster, prefix) = (cluster.to_string(), format!("/terrace/{cluster}/1/"));
        is_fine.then_some(Self { cluster, prefix })
    }

    pub fn prefix(&self) -> &[u8] {
        self.prefix.as_bytes()
    }

    pub fn config(&self) -> String {
        format!("{}config", self.prefix)
    }

    pub fn member(&self, node: NodeId) -> String {
        format!("{}member/{node}", self.prefix)
    }

    pub fn alive(&self, node: NodeId) -> String {
        format!("{}node/{node}", self.prefix)
    }

    pub fn instance(&self, shard: ShardId) -> String {
        format!("{}shard/{shard}/instance", self.prefix)
    }

    pub fn owner(&self, shard: ShardId) -> String {
        format!("{}shard/{shard}/owner", self.prefix)
    }

    pub fn claim(&self, shard: ShardId) -> String {
        format!("{}shard/{shard}/claim", self.prefix)
    }

    pub fn leader(&self, role: &str) -> String {
        format!("{}leader/{role}", self.prefix)
    }

    pub fn passed(&self) -> String {
        format!("{}passed", self.prefix)
    }

    /// Where nothing is that nodes watch.
    pub fn passing(&self) -> String {
        format!("/terrace/{}/passing", self.cluster)
    }

    pub fn part(&self, node: NodeId) -> String {
        format!("{}part/{node}", self.prefix)
    }

    fn map(&self, range: &KeyRange) -> String {
        format!("{}map/{}", self.prefix, range_text(range))
    }

    /// Creates the cluster, unless it exists.
    pub fn create(
        &self,
        placement: Placement,
        shards: &[(ShardId, NodeId, Vec<KeyRange>)],
    ) -> Transaction {
        let config = Transaction::new().when(self.config(), 0);
        let mut transaction = config.put(self.config(), placement.to_string());
        for (shard, instance, ranges) in shards {
            transaction = transaction.put(self.instance(*shard), instance.to_string());
            for range in ranges {
                transaction = transaction.put(self.map(range), shard.to_string());
            }
        }
        transaction
    }
}

/// What a node that is alive does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeState {
    /// Owns shards.
    Coordinator,
    /// Owns none, by its configuration.
    Instance,
    /// Gives its shards up.
    Draining,
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Coordinator => "coordinator",
            Self::Instance => "instance",
            Self::Draining => "draining",
        })
    }
}

impl FromStr for NodeState {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let all = [Self::Coordinator, Self::Instance, Self::Draining];
        all.into_iter().find(|state| state.to_string() == text).ok_or(())
    }
}

/// A claim of a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub node: Option<NodeId>,
    pub lease: Option<LeaseId>,
    pub mod_revision: u64,
}

/// All entries at one revision.
#[derive(Debug, Clone)]
pub(crate) struct Directory {
    layout: Layout,
    entries: BTreeMap<String, Entry>,
    pub revision: u64,
}

impl Directory {
    pub fn new(layout: Layout, snapshot: Snapshot) -> Self {
        let mut this = Self { layout, entries: BTreeMap::new(), revision: snapshot.revision };
        snapshot.entries.into_iter().for_each(|entry| this.put(entry));
        this
    }

    fn put(&mut self, entry: Entry) {
        // What is no text is no entry of this layout.
        if let Ok(key) = String::from_utf8(entry.key.clone()) {
            self.entries.insert(key, entry);
        }
    }

    pub fn apply(&mut self, changes: Changes) {
        for change in changes.changes {
            match change {
                Change::Put(entry) => self.put(entry),
                Change::Deleted { key, .. } => {
                    if let Ok(key) = String::from_utf8(key) {
                        self.entries.remove(&key);
                    }
                }
            }
        }
        self.revision = self.revision.max(changes.revision);
    }

    /// The value of an entry, if it has this form.
    pub fn value<T: FromStr>(&self, key: &str) -> Option<T> {
        std::str::from_utf8(&self.entries.get(key)?.value).ok()?.parse().ok()
    }

    /// The revision of an entry; 0 if it does not exist.
    pub fn mod_revision(&self, key: &str) -> u64 {
        self.entries.get(key).map_or(0, |entry| entry.mod_revision)
    }

    /// What an entry ends with.
    pub fn lease(&self, key: &str) -> Option<LeaseId> {
        self.entries.get(key)?.lease
    }

    pub fn claim(&self, shard: ShardId) -> Option<Claim> {
        let key = self.layout.claim(shard);
        let entry = self.entries.get(&key)?;
        let (lease, mod_revision) = (entry.lease, entry.mod_revision);
        Some(Claim { node: self.value(&key), lease, mod_revision })
    }

    pub fn is_alive(&self, node: NodeId) -> bool {
        self.entries.contains_key(&self.layout.alive(node))
    }

    /// What a node does; `None` if it is not alive.
    pub fn state_of(&self, node: NodeId) -> Option<NodeState> {
        self.value(&self.layout.alive(node))
    }

    /// Names of entries below a folder, with what is behind the folder's name.
    fn below(&self, folder: &str) -> impl Iterator<Item = (String, &Entry)> {
        let prefix = format!("{}{folder}/", self.layout.prefix);
        let from = self.entries.range(prefix.clone()..);
        from.map_while(move |(key, entry)| Some((key.strip_prefix(&prefix)?.to_string(), entry)))
    }

    fn member(&self, name: &str, entry: &Entry) -> Option<Node> {
        let id: NodeId = name.parse().ok()?;
        let (redis, rpc) = std::str::from_utf8(&entry.value).ok()?.split_once(' ')?;
        let (redis_address, rpc_address) = (redis.to_string(), rpc.to_string());
        Some(Node { id, redis_address, rpc_address, is_alive: self.is_alive(id) })
    }

    /// All nodes whose entries are not damaged, in the order of their ids.
    pub fn members(&self) -> Vec<Node> {
        self.below("member").filter_map(|(name, entry)| self.member(&name, entry)).collect()
    }

    /// What the stores of nodes have, as far as they told and it is no damaged entry.
    pub fn parts(&self) -> BTreeMap<NodeId, Part> {
        let part = |(name, _): (String, &Entry)| {
            let node = name.parse().ok()?;
            Some((node, self.value(&self.layout.part(node))?))
        };
        self.below("part").filter_map(part).collect()
    }

    /// What the entries say.
    ///
    /// # Errors
    /// The cluster was not created, or its entries are damaged; the text says which.
    pub fn topology(&self) -> Result<Topology, String> {
        let config = self.value::<String>(&self.layout.config());
        let placement = match config.ok_or("the cluster was not created yet")?.as_str() {
            "slots" => Placement::Slots,
            "range" => Placement::Range,
            other => return Err(format!("unknown placement \"{}\"", other.escape_debug())),
        };
        let member = |(name, entry): (String, &Entry)| {
            let damaged = || format!("the entry of node {name} is damaged");
            self.member(&name, entry).ok_or_else(damaged)
        };
        let nodes: Vec<Node> = self.below("member").map(member).collect::<Result<_, _>>()?;
        let mut shards: BTreeMap<ShardId, Shard> = BTreeMap::new();
        for (name, _) in self.below("shard") {
            let Some(id) = name.strip_suffix("/instance") else { continue };
            let id = ShardId(id.parse().map_err(|_| format!("no shard is called {id}"))?);
            let instance = self.value(&self.layout.instance(id));
            let instance = instance.ok_or_else(|| format!("shard {id} has no instance"))?;
            let owner_key = self.layout.owner(id);
            let owner = self.value::<NodeId>(&owner_key).map(|node| {
                let claim = self.claim(id);
                let is_claimed = claim.is_some_and(|claim| claim.node == Some(node));
                Owner { node, epoch: Epoch(self.mod_revision(&owner_key)), is_claimed }
            });
            shards.insert(id, Shard { id, instance, owner, ranges: Vec::new() });
        }
        for (name, entry) in self.below("map") {
            let damaged = || format!("the range {name} is damaged");
            let range = range_of(&name).ok_or_else(damaged)?;
            let shard = std::str::from_utf8(&entry.value).ok().and_then(|id| id.parse().ok());
            let shard = shards.get_mut(&ShardId(shard.ok_or_else(damaged)?)).ok_or_else(damaged)?;
            shard.ranges.push(range);
        }
        let shards = shards.into_values();
        Topology::new(Revision(self.revision), placement, nodes, shards).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> NodeId {
        NodeId([number; 20])
    }

    fn put(key: String, value: &str, mod_revision: u64) -> Change {
        let (key, value) = (key.into_bytes(), value.as_bytes().to_vec());
        Change::Put(Entry { key, value, mod_revision, lease: Some(LeaseId(3)) })
    }

    fn created(placement: Placement, ranges: [KeyRange; 2]) -> (Layout, Directory) {
        let layout = Layout::new("test").unwrap();
        let [first, second] = ranges;
        let shards = [(ShardId(1), id(1), vec![first]), (ShardId(2), id(2), vec![second])];
        let writes = layout.create(placement, &shards).writes;
        let changes = writes.into_iter().map(|write| match write {
            terrace_metadata::Write::Put { key, value, lease } => {
                Change::Put(Entry { key, value, mod_revision: 5, lease })
            }
            terrace_metadata::Write::Delete { .. } => panic!(),
        });
        let snapshot = Snapshot { entries: Vec::new(), revision: 4 };
        let mut directory = Directory::new(layout.clone(), snapshot);
        assert!(directory.topology().unwrap_err().contains("not created"));
        directory.apply(Changes { revision: 5, changes: changes.collect() });
        let members = [1, 2].map(|n| put(layout.member(id(n)), "a:1 b:2", 6)).to_vec();
        directory.apply(Changes { revision: 6, changes: members });
        (layout, directory)
    }

    #[test]
    fn a_topology_is_what_its_entries_say() {
        let ranges = [KeyRange::Slots(0, 99), KeyRange::Slots(100, 16_383)];
        let (layout, mut directory) = created(Placement::Slots, ranges.clone());
        let topology = directory.topology().unwrap();
        assert_eq!((topology.revision, topology.placement), (Revision(6), Placement::Slots));
        let shard = &topology.shards[&ShardId(1)];
        assert_eq!((shard.instance, shard.owner, &shard.ranges[..]), (id(1), None, &ranges[..1]));
        let node = &topology.nodes[&id(1)];
        assert_eq!(
            (&*node.redis_address, &*node.rpc_address, node.is_alive),
            ("a:1", "b:2", false)
        );
        let changes = vec![
            put(layout.owner(ShardId(1)), &id(2).to_string(), 7),
            put(layout.claim(ShardId(1)), &id(2).to_string(), 7),
            put(layout.alive(id(1)), "a:1 b:2", 7),
        ];
        directory.apply(Changes { revision: 7, changes });
        let topology = directory.topology().unwrap();
        let owner = Owner { node: id(2), epoch: Epoch(7), is_claimed: true };
        assert_eq!(topology.shards[&ShardId(1)].owner, Some(owner));
        assert!(topology.nodes[&id(1)].is_alive);
        let claim = directory.claim(ShardId(1)).unwrap();
        assert_eq!((claim.node, claim.lease), (Some(id(2)), Some(LeaseId(3))));
        let key = layout.claim(ShardId(1)).into_bytes();
        let gone = Change::Deleted { key, mod_revision: 8 };
        directory.apply(Changes { revision: 8, changes: vec![gone] });
        let topology = directory.topology().unwrap();
        let owner = Owner { is_claimed: false, ..owner };
        assert_eq!(topology.shards[&ShardId(1)].owner, Some(owner), "the epoch stays");
    }

    #[test]
    fn ranges_of_keys_are_read_as_they_are_written() {
        let (start, middle) = (Vec::new(), b"m-\xFF\x00".to_vec());
        let first = KeyRange::Keys { start, end: Some(middle.clone()) };
        let second = KeyRange::Keys { start: middle, end: None };
        let (_, directory) = created(Placement::Range, [first, second]);
        let topology = directory.topology().unwrap();
        assert_eq!(topology.shard_of(b"m-"), ShardId(1));
        assert_eq!(topology.shard_of(b"m-\xFF\x00"), ShardId(2));
        for damaged in ["", "k", "kzz-", "k0-", "1", "1-x", "70000-70001"] {
            assert_eq!(range_of(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn damaged_entries_are_reported() {
        let slots = [KeyRange::Slots(0, 99), KeyRange::Slots(100, 16_383)];
        let (layout, whole) = created(Placement::Slots, slots);
        let with = |key: String, value: &str| {
            let mut directory = whole.clone();
            directory.apply(Changes { revision: 9, changes: vec![put(key, value, 9)] });
            directory.topology().unwrap_err()
        };
        assert!(with(layout.config(), "other").contains("placement"));
        assert!(with(layout.instance(ShardId(1)), "nobody").contains("shard 1"));
        assert!(with(layout.instance(ShardId(1)), &id(9).to_string()).contains("no node"));
        assert!(with(layout.map(&KeyRange::Slots(5, 9)), "2").contains("overlap"));
        assert!(with(layout.map(&KeyRange::Slots(5, 9)), "7").contains("damaged"));
        for bad in ["", "a/b", "a b", &"x".repeat(65)] {
            assert!(Layout::new(bad).is_none(), "{bad}");
        }
    }
}
