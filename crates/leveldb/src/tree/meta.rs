//! What a tree is: which order it has, where its root is.
//!
//! ```text
//! meta := version:u8 (2)  root:u64le (0: empty)  next_id:u64le  order's name
//! ```
//! Version 1 is the same of a tree that has no records `k`. It is read, and what is written is version 2: a build that knows
//! version 1 alone refuses the tree, and deletes no key of it without the record of that.

use super::damaged;
use crate::order::Order;
use terrace_base::codec::Decoder;
use terrace_binding::{Code, Failure, Outcome};

const VERSION: u8 = 2;

/// The first version, which is read, too.
const OLDEST_VERSION: u8 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// The root's id; 0 if the tree is empty.
    pub root: u64,
    /// The next id to be given to a node or a value; never 0.
    pub next_id: u64,
    /// The name of the order, which is that of every open.
    pub order: Vec<u8>,
}

impl Meta {
    pub fn new(order: &[u8]) -> Self {
        Self { root: 0, next_id: 1, order: order.to_vec() }
    }

    /// Refuses another order than the tree's.
    pub fn check_order(&self, order: &Order) -> Outcome<()> {
        if self.order == order.name() {
            return Ok(());
        }
        let name = String::from_utf8_lossy(&self.order);
        let message = format!("{order:?} does not match existing comparator {name}");
        Err(Failure { code: Code::InvalidArgument, message })
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend(self.root.to_le_bytes());
        out.extend(self.next_id.to_le_bytes());
        out.extend_from_slice(&self.order);
        out
    }

    pub fn decode(bytes: &[u8]) -> Outcome<Self> {
        let mut reader = Decoder::new(bytes);
        let mut parse = || {
            let version = reader.u8()?;
            let (root, next_id) = (reader.u64()?, reader.u64()?);
            let order = reader.rest().to_vec();
            let is_known = (OLDEST_VERSION..=VERSION).contains(&version);
            (is_known && root < next_id).then_some(Self { root, next_id, order })
        };
        parse().ok_or_else(|| damaged("what it is was written by a later version, or damaged"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_of_an_earlier_version_is_read_and_one_of_a_later_is_refused() {
        let meta = Meta { root: 3, next_id: 9, order: b"an order".to_vec() };
        let mut bytes = meta.encode();
        assert_eq!(bytes[..2], [2, 3]);
        for (version, is_read) in [(0, false), (1, true), (2, true), (3, false), (255, false)] {
            bytes[0] = version;
            assert_eq!(Meta::decode(&bytes).ok().as_ref(), is_read.then_some(&meta), "{version}");
        }
    }
}
