//! The operands of one key that lie on top of each other, gathered newest first.
//!
//! A version is there once, but a repair may gather files of before and after a compaction. So each
//! operand knows which sequence numbers it stands for, and what is in a newer one already, or in the
//! value below, is left out:
//!
//! ```text
//!   9 merge         9
//!   8 merged 5..8       8..5
//!   7 merge                        in 5..8 already
//!   4 merge                 4      in the value of 4 already
//!   4 put                   4
//! ```

use super::operator::{MergeError, MergeOperator};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use terrace_base::caught::message_of;
use terrace_base::key::{MAX_VALUE_BYTES, OLDEST_SEQNO_BYTES, pack_trailer};
use terrace_base::{Error, SeqNo, ValueKind};

/// One operand.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Operand {
    newest: SeqNo,
    oldest: SeqNo,
    /// In `Operands::bytes`.
    place: Range<usize>,
}

/// What an offered version is to the operands above it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    /// One more of them, or a part of one; older versions count.
    Operand,
    /// What they are folded onto; older versions do not count.
    Base,
    /// Not what it should be.
    Malformed,
}

/// The operands of a key, without what lies below them.
#[derive(Debug, Default)]
pub(crate) struct Operands {
    /// Newest first.
    list: Vec<Operand>,
    bytes: Vec<u8>,
}

/// Takes a trailer and a stored value.
type Write<'a, E> = dyn FnMut(u64, &[u8]) -> Result<(), E> + 'a;

/// Memory above this is given back when a key is done.
const KEPT_BYTES: usize = 1 << 20;

impl Operands {
    /// Forgets all; keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes = Vec::new();
        }
        if self.list.capacity() > KEPT_BYTES / size_of::<Operand>() {
            self.list = Vec::new();
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The sequence number of the newest.
    pub fn newest(&self) -> SeqNo {
        self.list.first().map_or(SeqNo::ZERO, |operand| operand.newest)
    }

    /// Takes the next older version in.
    pub fn offer(&mut self, seqno: SeqNo, kind: ValueKind, stored: &[u8]) -> Offered {
        let (oldest, operand) = match kind {
            ValueKind::Merge => (seqno, stored),
            ValueKind::Merged => match stored.split_first_chunk::<OLDEST_SEQNO_BYTES>() {
                Some((oldest, operand)) if u64::from_le_bytes(*oldest) <= seqno.get() => {
                    (SeqNo::new(u64::from_le_bytes(*oldest)), operand)
                }
                _ => return Offered::Malformed,
            },
            _ => {
                self.list.pop_if(|last| last.newest <= seqno);
                return Offered::Base;
            }
        };
        if self.list.last().is_none_or(|last| seqno < last.oldest) {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(operand);
            self.list.push(Operand { newest: seqno, oldest, place: start..self.bytes.len() });
        }
        Offered::Operand
    }

    fn oldest_first(&self) -> Vec<&[u8]> {
        let bytes = |operand: &Operand| self.bytes.get(operand.place.clone()).unwrap_or_default();
        self.list.iter().rev().map(bytes).collect()
    }

    /// The value of `key`: the operands on top of `existing`.
    ///
    /// # Errors
    /// `MergeFailed` if there is no operator, or it refuses them.
    pub fn fold(
        &self,
        operator: Option<&dyn MergeOperator>,
        key: &[u8],
        existing: Option<&[u8]>,
    ) -> Result<Vec<u8>, Error> {
        if let (true, Some(existing)) = (self.list.is_empty(), existing) {
            return Ok(existing.to_vec());
        }
        Self::merge(operator, key, existing, &self.oldest_first())
    }

    /// As [`Self::fold`], with operands that are at hand, oldest first.
    pub fn merge(
        operator: Option<&dyn MergeOperator>,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, Error> {
        let operator = operator.ok_or_else(no_operator)?;
        let merged = caught(|| operator.full_merge(key, existing, operands));
        let merged = merged.unwrap_or_else(Err);
        merged.map_err(|why| refused(operator, key, &why))
    }

    /// Gives the operands to `write`, newest first, as trailer and stored value: as one if the
    /// operator can make one of them, else as they were.
    pub fn write_combined<E>(
        &self,
        operator: Option<&dyn MergeOperator>,
        key: &[u8],
        write: &mut Write<'_, E>,
    ) -> Result<(), E> {
        if let (Some(operator), [newest, .., oldest]) = (operator, self.list.as_slice())
            && let Ok(Some(combined)) = caught(|| operator.partial_merge(key, &self.oldest_first()))
            && combined.len() <= MAX_VALUE_BYTES
        {
            let stored = [&oldest.oldest.get().to_le_bytes(), combined.as_slice()].concat();
            return write(pack_trailer(newest.newest, ValueKind::Merged), &stored);
        }
        for operand in &self.list {
            let bytes = self.bytes.get(operand.place.clone()).unwrap_or_default();
            if operand.newest == operand.oldest {
                write(pack_trailer(operand.newest, ValueKind::Merge), bytes)?;
            } else {
                let stored = [&operand.oldest.get().to_le_bytes(), bytes].concat();
                write(pack_trailer(operand.newest, ValueKind::Merged), &stored)?;
            }
        }
        Ok(())
    }
}

/// A call of an operator; a panic, also one in recovery, is its refusal.
fn caught<T>(call: impl FnOnce() -> T) -> Result<T, MergeError> {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    outcome.map_err(|panic| MergeError(format!("it panicked: {}", message_of(panic))))
}

#[cold]
fn no_operator() -> Error {
    Error::MergeFailed(
        "the key has merge operands, and its column family no merge operator to fold them with; open the \
         store with the one that wrote them"
            .into(),
    )
}

#[cold]
fn refused(operator: &dyn MergeOperator, key: &[u8], why: &MergeError) -> Error {
    let key = key.get(..64).unwrap_or(key).escape_ascii();
    Error::MergeFailed(format!("merge operator `{}` refused key `{key}`: {why}", operator.name()))
}

#[cfg(test)]
mod tests {
    use super::super::builtin::AppendOperator;
    use super::super::operator::associative;
    use super::*;

    fn seqno(n: u64) -> SeqNo {
        SeqNo::new(n)
    }

    fn merged(oldest: u64, operand: &[u8]) -> Vec<u8> {
        [&oldest.to_le_bytes(), operand].concat()
    }

    #[test]
    fn operands_that_are_in_another_one_or_in_the_value_count_once() {
        let append = AppendOperator::new("+");
        let mut operands = Operands::default();
        assert_eq!(operands.offer(seqno(9), ValueKind::Merge, b"9"), Offered::Operand);
        operands.offer(seqno(8), ValueKind::Merged, &merged(5, b"5+6+7+8"));
        operands.offer(seqno(8), ValueKind::Merge, b"8");
        operands.offer(seqno(7), ValueKind::Merged, &merged(6, b"6+7"));
        operands.offer(seqno(5), ValueKind::Merge, b"5");
        operands.offer(seqno(4), ValueKind::Merge, b"4");
        assert_eq!(operands.offer(seqno(4), ValueKind::Put, b"1+2+3+4"), Offered::Base);
        let folded = operands.fold(Some(&append), b"k", Some(b"1+2+3+4")).unwrap();
        assert_eq!(folded, b"1+2+3+4+5+6+7+8+9");
        assert_eq!(operands.newest(), seqno(9));
    }

    #[test]
    fn one_operand_is_written_as_it_was_and_several_as_one_if_the_operator_can() {
        let append = AppendOperator::new("+");
        let stubborn = associative("stubborn", |_, _, _| Err(MergeError("no".into())));
        let mut operands = Operands::default();
        let written = |operands: &Operands, operator: &dyn MergeOperator| {
            let mut written = Vec::new();
            let mut write = |trailer, stored: &[u8]| {
                written.push((trailer, stored.to_vec()));
                Ok::<_, ()>(())
            };
            operands.write_combined(Some(operator), b"k", &mut write).unwrap();
            written
        };
        operands.offer(seqno(9), ValueKind::Merge, b"9");
        let nine = (pack_trailer(seqno(9), ValueKind::Merge), b"9".to_vec());
        assert_eq!(written(&operands, &append), std::slice::from_ref(&nine));
        let older = merged(3, b"3+8");
        operands.offer(seqno(8), ValueKind::Merged, &older);
        let eight = (pack_trailer(seqno(8), ValueKind::Merged), older);
        assert_eq!(written(&operands, &*stubborn), [nine, eight]);
        let all = (pack_trailer(seqno(9), ValueKind::Merged), merged(3, b"3+8+9"));
        assert_eq!(written(&operands, &append), [all]);
    }

    #[test]
    fn what_is_malformed_or_refused_is_an_error() {
        let mut operands = Operands::default();
        assert_eq!(operands.offer(seqno(9), ValueKind::Merged, b"short"), Offered::Malformed);
        assert_eq!(
            operands.offer(seqno(9), ValueKind::Merged, &merged(10, b"")),
            Offered::Malformed
        );
        operands.offer(seqno(9), ValueKind::Merge, b"x");
        let none = operands.fold(None, b"k", None).unwrap_err();
        assert!(none.to_string().contains("no merge operator"), "{none}");
        let stubborn = associative("stubborn", |_, _, _| Err(MergeError("never".into())));
        let error = operands.fold(Some(&*stubborn), b"a\xff", None).unwrap_err();
        let text = "merge operator `stubborn` refused key `a\\xff`: never";
        assert_eq!(error.to_string(), text);
    }
}
