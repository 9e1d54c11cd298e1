//! One ordered cursor over many: a tournament tree of losers (Knuth, TAOCP 3, 5.4.1) over the
//! children, newest first.
//!
//! ```text
//!            tree[0]          the child that stands on the current entry
//!            tree[1]          each inner node keeps the loser of its match;
//!           /       \         after a step only the path from the moved
//!      tree[2]     tree[3]    leaf to the root is played again
//!      /    \      /    \
//!     c0    c1    c2    c3    heads[i]: first eight bytes of child i's key
//! ```
//!
//! Matches are decided by the cached heads; full keys are compared only where heads are equal.
//! With one child there is no tree and no head: every call goes straight through.
//!
//! Invariant, forward: the winner stands on the current entry and every other child on its first
//! entry after it in merged order (not valid: it has none), but for entries skipped as covered by
//! a range tombstone. Backward: on its last entry before it. So the direction is switched by one
//! step per child as a rule, without a copy of the key.
//!
//! Used by `scan` and by compaction jobs.

use crate::iter::ScanCursor;
use std::cmp::Ordering;
use terrace_base::key::{compare_internal, head};
use terrace_base::{InternalIter, Result, SeqNo};

/// Steps of a child before it is moved by a seek.
const MAX_STEPS: usize = 8;

/// Children merged into one cursor. They are given newest first: of two entries with the very same
/// internal key the one of the lower child comes first; both are returned.
pub(crate) struct MergingIter<I> {
    children: Vec<I>,
    /// Per child, what its match is decided by at first: the smaller wins. The key's head, inverted
    /// when moving backward; `u64::MAX` if the child is not valid.
    heads: Vec<u64>,
    /// `tree[0]` is the winner, `tree[1..n]` the losers of the inner nodes.
    tree: Vec<u32>,
    /// The winners of a tree being built; kept so that a seek does not allocate.
    winners: Vec<u32>,
    backward: bool,
    valid: bool,
}

impl<I: InternalIter> MergingIter<I> {
    /// Merges `children`, newest first. The cursor is not valid until the first seek.
    pub fn new(children: Vec<I>) -> Self {
        let count = children.len();
        Self {
            children,
            heads: vec![u64::MAX; count],
            tree: vec![0; count.max(1)],
            winners: vec![0; 2 * count],
            backward: false,
            valid: false,
        }
    }

    #[inline]
    fn winner(&self) -> usize {
        self.tree[0] as usize
    }

    #[inline(always)]
    fn refresh_head(&mut self, child: usize) {
        let iter = &self.children[child];
        self.heads[child] = match iter.valid() {
            true if self.backward => !head(iter.user_key()),
            true => head(iter.user_key()),
            false => u64::MAX,
        };
    }

    /// Whether child `a` comes before child `b` in the direction of travel.
    #[inline(always)]
    fn beats(&self, a: usize, b: usize) -> bool {
        match self.heads[a].cmp(&self.heads[b]) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.beats_by_full_key(a, b),
        }
    }

    /// The same where the heads are equal: a second word decides for most keys, without a call.
    fn beats_by_full_key(&self, a: usize, b: usize) -> bool {
        let (left, right) = (&self.children[a], &self.children[b]);
        if !left.valid() || !right.valid() {
            return left.valid();
        }
        let second = |iter: &I| iter.user_key().get(8..16).map(head);
        let order = match (second(left), second(right)) {
            (Some(left), Some(right)) if left != right => left.cmp(&right),
            _ => self.order(a, b),
        };
        (order == Ordering::Less) != self.backward
    }

    /// The merged order of the entries on which two distinct, valid children stand.
    fn order(&self, a: usize, b: usize) -> Ordering {
        let (left, right) = (&self.children[a], &self.children[b]);
        compare_internal(left.user_key(), left.trailer(), right.user_key(), right.trailer())
            .then(a.cmp(&b))
    }

    /// Plays every match anew after any number of children moved.
    fn build(&mut self) {
        let count = self.children.len();
        if count > 1 {
            for child in 0..count {
                self.refresh_head(child);
                self.winners[count + child] = child as u32;
            }
            for node in (1..count).rev() {
                let (a, b) = (self.winners[2 * node], self.winners[2 * node + 1]);
                let a_wins = self.beats(a as usize, b as usize);
                self.winners[node] = if a_wins { a } else { b };
                self.tree[node] = if a_wins { b } else { a };
            }
            self.tree[0] = self.winners[1];
        }
        self.valid = self.children.get(self.winner()).is_some_and(I::valid);
    }

    /// Plays the matches from the winner's leaf to the root after the winner moved.
    #[inline(always)]
    fn replay(&mut self) {
        let count = self.children.len();
        let mut winner = self.winner();
        if count > 1 {
            self.refresh_head(winner);
            let mut node = (winner + count) / 2;
            while node > 0 {
                let loser = self.tree[node] as usize;
                if self.beats(loser, winner) {
                    self.tree[node] = winner as u32;
                    winner = loser;
                }
                node /= 2;
            }
            self.tree[0] = winner as u32;
        }
        self.valid = self.children[winner].valid();
    }

    /// Positions every child by `seek` and plays all matches.
    fn seek_each(&mut self, backward: bool, seek: impl Fn(&mut I) -> Result<()>) -> Result<()> {
        self.valid = false;
        self.backward = backward;
        for child in &mut self.children {
            seek(child)?;
        }
        self.build();
        Ok(())
    }

    /// From backward to forward: every loser moves from its last entry before the current one to
    /// its first after it. It is there at once unless a memtable grew meanwhile or covered entries were
    /// skipped, which may be many: they are passed by a seek.
    fn turn_forward(&mut self) -> Result<()> {
        let winner = self.winner();
        for child in (0..self.children.len()).filter(|child| *child != winner) {
            match self.children[child].valid() {
                true => self.children[child].next()?,
                false => self.children[child].seek_to_first()?,
            }
            let mut steps = 0;
            while self.children[child].valid() && self.order(child, winner) == Ordering::Less {
                if steps == MAX_STEPS {
                    self.seek_after_winner(child)?;
                    break;
                }
                self.children[child].next()?;
                steps += 1;
            }
        }
        self.backward = false;
        Ok(())
    }

    /// The mirror image of [`Self::turn_forward`].
    fn turn_backward(&mut self) -> Result<()> {
        let winner = self.winner();
        for child in (0..self.children.len()).filter(|child| *child != winner) {
            match self.children[child].valid() {
                true => self.children[child].prev()?,
                false => self.children[child].seek_to_last()?,
            }
            let mut steps = 0;
            while self.children[child].valid() && self.order(child, winner) == Ordering::Greater {
                if steps == MAX_STEPS {
                    self.seek_before_winner(child)?;
                    break;
                }
                self.children[child].prev()?;
                steps += 1;
            }
        }
        self.backward = true;
        Ok(())
    }

    /// Moves a child to its first entry after the winner's.
    #[cold]
    fn seek_after_winner(&mut self, child: usize) -> Result<()> {
        let winner = self.winner();
        let (key, trailer) = self.entry_of(winner);
        self.children[child].seek(&key, trailer)?;
        // Of the very same entries that of the lower child comes first.
        match child < winner && self.stands_on(child, &key, trailer) {
            true => self.children[child].next(),
            false => Ok(()),
        }
    }

    /// Moves a child to its last entry before the winner's.
    #[cold]
    fn seek_before_winner(&mut self, child: usize) -> Result<()> {
        let winner = self.winner();
        let (key, trailer) = self.entry_of(winner);
        if child < winner {
            self.children[child].seek(&key, trailer)?;
            if self.stands_on(child, &key, trailer) {
                return Ok(());
            }
        }
        self.children[child].seek_before(&key, trailer)
    }

    fn entry_of(&self, child: usize) -> (Vec<u8>, u64) {
        (self.children[child].user_key().to_vec(), self.children[child].trailer())
    }

    fn stands_on(&self, child: usize, key: &[u8], trailer: u64) -> bool {
        let child = &self.children[child];
        child.valid() && child.user_key() == key && child.trailer() == trailer
    }

    /// One step; `self.valid` is false while children move, so an error leaves it so.
    fn turn_and_step(&mut self, backward: bool) -> Result<()> {
        let winner = self.winner();
        if backward {
            self.turn_backward()?;
            self.children[winner].prev()?;
        } else {
            self.turn_forward()?;
            self.children[winner].next()?;
        }
        self.build();
        Ok(())
    }
}

impl<I: InternalIter> InternalIter for MergingIter<I> {
    #[inline]
    fn valid(&self) -> bool {
        self.valid
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.seek_each(false, I::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.seek_each(true, I::seek_to_last)
    }

    fn seek(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        if self.children.len() > 1 {
            self.valid = false;
            self.children.iter_mut().for_each(|child| child.prepare_seek(user_key));
        }
        self.seek_each(false, |child| child.seek(user_key, trailer))
    }

    fn seek_before(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        self.seek_each(true, |child| child.seek_before(user_key, trailer))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        debug_assert!(self.valid, "next on a cursor that is not valid");
        if !std::mem::take(&mut self.valid) {
            return Ok(());
        }
        if self.backward {
            return self.turn_and_step(false);
        }
        let winner = self.winner();
        self.children[winner].next()?;
        self.replay();
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        debug_assert!(self.valid, "prev on a cursor that is not valid");
        if !std::mem::take(&mut self.valid) {
            return Ok(());
        }
        if !self.backward {
            return self.turn_and_step(true);
        }
        let winner = self.winner();
        self.children[winner].prev()?;
        self.replay();
        Ok(())
    }

    #[inline]
    fn user_key(&self) -> &[u8] {
        self.children[self.winner()].user_key()
    }

    #[inline]
    fn trailer(&self) -> u64 {
        self.children[self.winner()].trailer()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.children[self.winner()].value()
    }
}

impl<I: ScanCursor> ScanCursor for MergingIter<I> {
    /// Moves only the children that stand before the target.
    fn seek_onward(&mut self, user_key: &[u8], trailer: u64) -> Result<()> {
        if self.backward || !self.valid {
            return self.seek(user_key, trailer);
        }
        while self.valid
            && compare_internal(self.user_key(), self.trailer(), user_key, trailer).is_lt()
        {
            self.valid = false;
            let winner = self.winner();
            self.children[winner].seek_onward(user_key, trailer)?;
            self.replay();
        }
        Ok(())
    }

    fn skip_covered(&mut self, end: &[u8], seqno: SeqNo) -> Result<()> {
        debug_assert!(self.valid && !self.backward, "skip_covered follows a forward move");
        if self.backward || !std::mem::take(&mut self.valid) {
            return Ok(());
        }
        for child in &mut self.children {
            if child.valid() && child.user_key() < end {
                child.skip_covered(end, seqno)?;
            }
        }
        self.build();
        Ok(())
    }

    fn skip_covered_back(&mut self, start: &[u8], seqno: SeqNo) -> Result<()> {
        debug_assert!(self.valid && self.backward, "skip_covered_back follows a backward move");
        if !self.backward || !std::mem::take(&mut self.valid) {
            return Ok(());
        }
        for child in &mut self.children {
            if child.valid() && child.user_key() >= start {
                child.skip_covered_back(start, seqno)?;
            }
        }
        self.build();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
