//! A node of the tree, and the bytes it is stored as.
//!
//! ```text
//! node  := kind:u8 (0 leaf, 1 inner)  count:u32le  entry*
//! entry := key_len:u32le  id:u64le  key
//! ```
//! In a leaf `id` is that of the key's value, in an inner node that of the child which has the keys from `key`
//! on, up to the next entry's. The first key of an inner node is empty and stands for no bound.

use super::damaged;
use terrace_base::codec::Decoder;
use terrace_binding::Outcome;

/// From which size on a node is split.
const SPLIT_BYTES: usize = 4096;

/// The fewest entries of a node that is split: a node of long keys may be larger than [`SPLIT_BYTES`].
const SPLIT_ENTRIES: usize = 4;

const HEADER_BYTES: usize = 5;
const ENTRY_BYTES: usize = 12;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: Vec<u8>,
    pub id: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub is_leaf: bool,
    pub entries: Vec<Entry>,
}

impl Node {
    fn size_bytes(&self) -> usize {
        let entries = self.entries.iter().map(|entry| ENTRY_BYTES + entry.key.len());
        HEADER_BYTES + entries.sum::<usize>()
    }

    pub fn must_split(&self) -> bool {
        self.entries.len() >= SPLIT_ENTRIES && self.size_bytes() > SPLIT_BYTES
    }

    /// Keeps the first half by bytes, of at least one entry, and gives the rest, of at least one entry.
    pub fn split(&mut self) -> Self {
        let half = self.size_bytes() / 2;
        let mut before = HEADER_BYTES;
        let at = self.entries.iter().position(|entry| {
            before += ENTRY_BYTES + entry.key.len();
            before > half
        });
        let last = self.entries.len().saturating_sub(1).max(1);
        let entries = self.entries.split_off(at.unwrap_or(last).clamp(1, last));
        Self { is_leaf: self.is_leaf, entries }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size_bytes());
        out.push(u8::from(!self.is_leaf));
        out.extend((self.entries.len() as u32).to_le_bytes());
        for entry in &self.entries {
            out.extend((entry.key.len() as u32).to_le_bytes());
            out.extend(entry.id.to_le_bytes());
            out.extend_from_slice(&entry.key);
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Outcome<Self> {
        Self::parse(bytes).ok_or_else(|| damaged("a node does not have the form of one"))
    }

    /// None if `bytes` are no node, or one without entries, which is never stored.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = Decoder::new(bytes);
        let is_leaf = match reader.u8()? {
            0 => true,
            1 => false,
            _ => return None,
        };
        let count = reader.u32()? as usize;
        // Every entry has at least its lengths, so a wrong count allocates no more than the node has.
        if count == 0 || count > reader.rest().len() / ENTRY_BYTES {
            return None;
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let len = reader.u32()? as usize;
            let id = reader.u64()?;
            entries.push(Entry { key: reader.take(len)?.to_vec(), id });
        }
        reader.is_empty().then_some(Self { is_leaf, entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node() -> impl Strategy<Value = Node> {
        let entry = (prop::collection::vec(any::<u8>(), 0..40), any::<u64>());
        let entries = prop::collection::vec(entry.prop_map(|(key, id)| Entry { key, id }), 1..20);
        (any::<bool>(), entries).prop_map(|(is_leaf, entries)| Node { is_leaf, entries })
    }

    proptest! {
        #[test]
        fn a_node_is_read_as_it_was_written(node in node()) {
            let bytes = node.encode();
            prop_assert_eq!(bytes.len(), node.size_bytes());
            prop_assert_eq!(Node::decode(&bytes).unwrap(), node);
            for len in 0..bytes.len() {
                prop_assert!(Node::decode(&bytes[..len]).is_err());
            }
        }

        #[test]
        fn no_bytes_are_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Ok(node) = Node::decode(&bytes) {
                prop_assert_eq!(node.encode(), bytes);
            }
        }

        #[test]
        fn a_split_loses_nothing_and_leaves_no_half_empty(node in node()) {
            prop_assume!(node.entries.len() >= 2);
            let (mut left, all) = (node.clone(), node.entries);
            let right = left.split();
            prop_assert!(!left.entries.is_empty() && !right.entries.is_empty());
            prop_assert_eq!([left.entries, right.entries].concat(), all);
        }
    }
}
