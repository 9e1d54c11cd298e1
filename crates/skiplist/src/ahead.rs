//! Memory of a list that will soon be needed, for a thread that waits for the system in place of the one that inserts.

use std::ops::Range;
use std::sync::Arc;

use crate::list::Skiplist;
use crate::region::Region;

/// Where in a list it lies.
#[derive(Debug, Clone, Copy)]
enum Part {
    Arena,
    Index,
}

/// A piece of a list's memory, of 2 MiB at most, that nobody has touched yet. It keeps the list alive.
#[derive(Debug)]
pub struct MemoryAhead {
    list: Arc<Skiplist>,
    part: Part,
    page: Range<usize>,
}

impl MemoryAhead {
    /// Has the system provide it: some 0.1 to 5 milliseconds, without which an insert would wait for as long. Changes nothing
    /// that is seen.
    pub fn touch(&self) {
        self.list.memory(self.part).0.touch(&self.page);
    }
}

impl Skiplist {
    /// The next piece of memory, if the list has come near its end; each is given once. Costs a few loads if there is none.
    #[inline]
    pub fn memory_ahead(self: &Arc<Self>) -> Option<MemoryAhead> {
        [Part::Arena, Part::Index].into_iter().find_map(|part| {
            let (region, used_bytes) = self.memory(part);
            region.next_page(used_bytes).map(|page| MemoryAhead { list: self.clone(), part, page })
        })
    }

    #[inline]
    fn memory(&self, part: Part) -> (&Region, usize) {
        match part {
            Part::Arena => self.arena.memory(),
            Part::Index => self.index.direct(),
        }
    }
}
