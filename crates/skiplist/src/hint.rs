//! The memory of a previous insert, which makes the next one cheap if it is near.

use crate::arena::MAX_HEIGHT;
use crate::search::Gap;

/// The place of the previous insert into one list.
///
/// Belongs to a writer, not to a list: used with another list it starts over.
///
/// Invariant: on every level below `height`, the gap's left side is a node of the list `list` more
/// than that level high (or its head), and lies at or before the left side of the level below. So
/// what lies after the left side on one level does on all levels above. Right sides promise nothing:
/// they only tell how far to climb.
#[derive(Debug, Default)]
pub struct Hint {
    /// The list the gaps are of; 0 is none.
    pub(crate) list: u64,
    pub(crate) height: usize,
    pub(crate) gaps: [Gap; MAX_HEIGHT],
}
