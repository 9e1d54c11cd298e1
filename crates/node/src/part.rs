//! The part of the key space that a store has: the shards whose instance its node is. It never changes; a store remembers
//! it from before it is first served on, since the metadata that say it may be lost.
//!
//! ```text
//! slots 2:05461-10922                        placement, then shards with their ranges
//! range 1:k-67 3:k71-7a,k7e-                 keys in hexadecimal; the last range has no end
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use terrace_cluster::{KeyRange, Node, NodeId, Placement, Revision, Shard, ShardId, Topology};

/// See the module. Its text is what is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    placement: Placement,
    /// With their ranges, in order.
    shards: BTreeMap<ShardId, Vec<KeyRange>>,
}

impl Part {
    /// What a node has in a cluster of these shards; `None` if that is nothing.
    pub fn of(
        placement: Placement,
        shards: &[(ShardId, NodeId, Vec<KeyRange>)],
        node: NodeId,
    ) -> Option<Self> {
        let own = shards.iter().filter(|(_, instance, _)| *instance == node);
        let shards: BTreeMap<_, _> = own.map(|(id, _, ranges)| (*id, sorted(ranges))).collect();
        (!shards.is_empty()).then_some(Self { placement, shards })
    }

    /// What a node has in a cluster; `None` if that is nothing.
    pub fn in_topology(topology: &Topology, node: NodeId) -> Option<Self> {
        let own = topology.shards.values().filter(|shard| shard.instance == node);
        let shards: BTreeMap<_, _> = own.map(|shard| (shard.id, sorted(&shard.ranges))).collect();
        (!shards.is_empty()).then_some(Self { placement: topology.placement, shards })
    }

    /// Its first shard: parts in this order are in the order in which their cluster was created.
    pub fn first_shard(&self) -> Option<ShardId> {
        self.shards.keys().next().copied()
    }

    /// What belongs to it.
    pub fn ranges(&self) -> impl Iterator<Item = &KeyRange> {
        self.shards.values().flatten()
    }

    /// Whether it is the whole key space.
    pub fn is_everything(&self) -> bool {
        let instance = NodeId([0; 20]);
        let node = Node {
            id: instance,
            redis_address: String::new(),
            rpc_address: String::new(),
            is_alive: true,
        };
        let shards = self.shards.iter().map(|(id, ranges)| Shard {
            id: *id,
            instance,
            owner: None,
            ranges: ranges.clone(),
        });
        Topology::new(Revision(0), self.placement, [node], shards).is_ok()
    }

    /// For people.
    pub fn describe(&self) -> String {
        let key = |key: &[u8]| format!("\"{}\"", key.escape_ascii());
        let range = |range: &KeyRange| match range {
            KeyRange::Slots(first, last) => format!("{first}-{last}"),
            KeyRange::Keys { start, end } => {
                format!("{}..{}", key(start), end.as_deref().map(key).unwrap_or_default())
            }
        };
        let shards = self.shards.iter().map(|(shard, ranges)| {
            let ranges: Vec<String> = ranges.iter().map(range).collect();
            format!("{} as shard {shard}", ranges.join(", "))
        });
        let what = match self.placement {
            Placement::Slots => "slots",
            Placement::Range => "keys",
        };
        format!("{what} {}", shards.collect::<Vec<_>>().join(", "))
    }
}

fn sorted(ranges: &[KeyRange]) -> Vec<KeyRange> {
    let mut ranges = ranges.to_vec();
    ranges.sort();
    ranges
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.placement)?;
        for (shard, ranges) in &self.shards {
            let ranges: Vec<String> = ranges.iter().map(range_text).collect();
            write!(f, " {shard}:{}", ranges.join(","))?;
        }
        Ok(())
    }
}

/// A text that is not a [`Part`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParsePartError;

impl FromStr for Part {
    type Err = ParsePartError;

    fn from_str(text: &str) -> Result<Self, ParsePartError> {
        let mut words = text.split(' ');
        let placement = match words.next() {
            Some("slots") => Placement::Slots,
            Some("range") => Placement::Range,
            _ => return Err(ParsePartError),
        };
        let shard = |word: &str| {
            let (shard, ranges) = word.split_once(':')?;
            let ranges = ranges.split(',').map(range_of).collect::<Option<Vec<_>>>()?;
            Some((ShardId(shard.parse().ok()?), ranges))
        };
        let shards = words.map(shard).collect::<Option<BTreeMap<_, _>>>();
        let shards = shards.filter(|shards| !shards.is_empty()).ok_or(ParsePartError)?;
        Ok(Self { placement, shards })
    }
}

/// A range as it stands in names of entries: two slot numbers of five digits, or two keys in hexadecimal.
pub(crate) fn range_text(range: &KeyRange) -> String {
    let hex = |key: &[u8]| key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    match range {
        KeyRange::Slots(first, last) => format!("{first:05}-{last:05}"),
        KeyRange::Keys { start, end } => {
            format!("k{}-{}", hex(start), end.as_deref().map(hex).unwrap_or_default())
        }
    }
}

/// The other way round; `None` if it is no range.
pub(crate) fn range_of(text: &str) -> Option<KeyRange> {
    let unhex = |digits: &str| {
        let digits = digits.as_bytes();
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let pair = |pair: &[u8]| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8);
        digits.chunks(2).map(pair).collect::<Option<Vec<u8>>>()
    };
    match text.strip_prefix('k') {
        Some(keys) => {
            let (start, end) = keys.split_once('-')?;
            let end = if end.is_empty() { None } else { Some(unhex(end)?) };
            Some(KeyRange::Keys { start: unhex(start)?, end })
        }
        None => {
            let (first, last) = text.split_once('-')?;
            Some(KeyRange::Slots(first.parse().ok()?, last.parse().ok()?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_as_they_are_written() {
        let (first, second) = (NodeId([1; 20]), NodeId([2; 20]));
        let keys = |start: &[u8], end: Option<&[u8]>| {
            vec![KeyRange::Keys { start: start.into(), end: end.map(Into::into) }]
        };
        let slots = [
            (ShardId(1), first, vec![KeyRange::Slots(200, 16_383), KeyRange::Slots(0, 99)]),
            (ShardId(2), second, vec![KeyRange::Slots(100, 199)]),
        ];
        let ranges = [
            (ShardId(1), first, keys(b"", Some(b"g\xFF"))),
            (ShardId(2), second, keys(b"g\xFF", Some(b"q"))),
            (ShardId(3), first, keys(b"q", None)),
        ];
        let parts = [
            (Part::of(Placement::Slots, &slots, first), "slots 1:00000-00099,00200-16383"),
            (Part::of(Placement::Slots, &slots, second), "slots 2:00100-00199"),
            (Part::of(Placement::Range, &ranges, first), "range 1:k-67ff 3:k71-"),
        ];
        for (part, text) in parts {
            let part = part.unwrap();
            assert_eq!((part.to_string().as_str(), text.parse()), (text, Ok(part)));
        }
        assert_eq!(Part::of(Placement::Slots, &slots, NodeId([3; 20])), None);
        for (text, is_everything) in [
            ("slots 1:00000-16383", true),
            ("slots 1:00000-00099,00200-16383 2:00100-00199", true),
            ("slots 1:00000-00099,00200-16383", false),
            ("range 1:k-", true),
            ("range 1:k-67 2:k67-", true),
            ("range 1:k-67", false),
            ("range 1:k67-", false),
        ] {
            let part: Part = text.parse().unwrap();
            assert_eq!(part.is_everything(), is_everything, "{text}");
        }
        for wrong in
            ["", "slots", "slots 1", "slots 1:", "slots x:1-2", "hash 1:1-2", "range 1:kz-"]
        {
            assert_eq!(wrong.parse::<Part>(), Err(ParsePartError), "{wrong}");
        }
    }
}
