//! What nodes and shards are called, and the epochs and revisions that order what happens to them.

use std::fmt;
use std::str::FromStr;

/// A process of the cluster: 20 random bytes, drawn when its store is created and kept there.
/// Written as 40 hexadecimal digits, as Redis Cluster does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub [u8; 20]);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not a [`NodeId`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseNodeIdError;

impl fmt::Display for ParseNodeIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a node id has 40 hexadecimal digits")
    }
}

impl std::error::Error for ParseNodeIdError {}

impl FromStr for NodeId {
    type Err = ParseNodeIdError;

    fn from_str(text: &str) -> Result<Self, ParseNodeIdError> {
        let digits = text.as_bytes();
        if digits.len() != 40 {
            return Err(ParseNodeIdError);
        }
        let digit = |byte: u8| (byte as char).to_digit(16).ok_or(ParseNodeIdError);
        let mut id = [0; 20];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Ok(Self(id))
    }
}

/// A part of the key space, with one instance and one owner at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u32);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A term of ownership of one shard: the revision of the transaction that claimed it. A later owner
/// has a larger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A state of the cluster's metadata; later ones are larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Revision(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_ids_are_read_as_they_are_written() {
        let id = NodeId(std::array::from_fn(|at| (at * 13) as u8));
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().len(), 40);
        for wrong in ["", "00", &"g".repeat(40), &"0".repeat(41), &"é".repeat(20)] {
            assert_eq!(wrong.parse::<NodeId>(), Err(ParseNodeIdError), "{wrong}");
        }
    }
}
