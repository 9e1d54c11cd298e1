//! The operators that every build has, and that need not be given at an open: their names say all.

use super::operator::{MAX_OPERATOR_NAME_BYTES, MergeError, MergeOperator};
use std::sync::Arc;

/// Adds integers: values and operands are `i64`, 8 bytes little-endian, and a key that is absent counts as
/// 0. A sum that leaves the range wraps around, as in two's complement: the result never depends on the order
/// or the grouping in which operands are added. Name: `counter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CounterOperator;

impl CounterOperator {
    /// The bytes of a value or operand.
    pub fn encode(number: i64) -> [u8; 8] {
        number.to_le_bytes()
    }

    /// The number in a value or operand; `None` if it has not 8 bytes.
    pub fn decode(bytes: &[u8]) -> Option<i64> {
        bytes.try_into().ok().map(i64::from_le_bytes)
    }
}

fn number(what: &str, bytes: &[u8]) -> Result<i64, MergeError> {
    CounterOperator::decode(bytes)
        .ok_or_else(|| MergeError(format!("{what} has {} bytes instead of 8", bytes.len())))
}

fn sum(from: i64, operands: &[&[u8]]) -> Result<i64, MergeError> {
    operands
        .iter()
        .try_fold(from, |sum, operand| Ok(sum.wrapping_add(number("an operand", operand)?)))
}

impl MergeOperator for CounterOperator {
    fn name(&self) -> &str {
        "counter"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        let from = existing.map_or(Ok(0), |value| number("the value", value))?;
        Ok(sum(from, operands)?.to_le_bytes().to_vec())
    }

    fn partial_merge(&self, _key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        sum(0, operands).ok().map(|sum| sum.to_le_bytes().to_vec())
    }
}

/// Appends operands to the value, with a separator between them; the first operand of an absent key stands
/// alone. Name: `append`, or `append:` and the separator. A separator of the bytes of no text has a
/// name with `\xNN` for each byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendOperator {
    separator: Vec<u8>,
    name: String,
}

impl Default for AppendOperator {
    fn default() -> Self {
        Self::new("")
    }
}

impl AppendOperator {
    /// With this separator, which may be empty.
    pub fn new(separator: impl Into<String>) -> Self {
        let separator = separator.into();
        let name = match separator.is_empty() {
            true => "append".to_string(),
            false => format!("append:{separator}"),
        };
        Self { separator: separator.into_bytes(), name }
    }

    /// The one called `name`.
    pub(super) fn named(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("append")?;
        let separator = match rest {
            "" => "",
            _ => rest.strip_prefix(':').filter(|separator| !separator.is_empty())?,
        };
        (name.len() <= MAX_OPERATOR_NAME_BYTES).then(|| Self::new(separator))
    }

    fn join(&self, parts: &[&[u8]]) -> Vec<u8> {
        parts.join(&self.separator[..])
    }
}

impl MergeOperator for AppendOperator {
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(
        &self,
        _key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        let parts: Vec<&[u8]> = existing.iter().chain(operands).copied().collect();
        Ok(self.join(&parts))
    }

    fn partial_merge(&self, _key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        Some(self.join(operands))
    }
}

/// Keeps the largest of all values and operands, in the order of their bytes. For numbers, write them with the
/// most significant byte first. Name: `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MaxOperator;

impl MergeOperator for MaxOperator {
    fn name(&self) -> &str {
        "max"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Result<Vec<u8>, MergeError> {
        Ok(existing.iter().chain(operands).copied().max().unwrap_or_default().to_vec())
    }

    fn partial_merge(&self, _key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        operands.iter().copied().max().map(<[u8]>::to_vec)
    }
}

/// The built-in operator called `name`, as options in text and in the manifest name it: `counter`,
/// `max`, `append`, or `append:` and a separator.
///
/// ```
/// let append = terrace::builtin_merge_operator("append:, ").unwrap();
/// assert_eq!(append.full_merge(b"k", Some(b"a"), &[b"b"]).unwrap(), b"a, b");
/// ```
pub fn builtin_merge_operator(name: &str) -> Option<Arc<dyn MergeOperator>> {
    match name {
        "counter" => Some(Arc::new(CounterOperator)),
        "max" => Some(Arc::new(MaxOperator)),
        _ => AppendOperator::named(name).map(|append| Arc::new(append) as Arc<dyn MergeOperator>),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_say_which_operator_it_is_and_others_are_none() {
        for name in ["counter", "max", "append", "append:,", "append::"] {
            assert_eq!(builtin_merge_operator(name).unwrap().name(), name);
        }
        for name in ["", "count", "append:", "appends", "counter "] {
            assert!(builtin_merge_operator(name).is_none(), "{name}");
        }
        assert!(builtin_merge_operator(&format!("append:{}", "x".repeat(250))).is_none());
    }

    #[test]
    fn a_counter_wraps_around_and_refuses_what_is_no_number() {
        let counter = CounterOperator;
        let (max, two) = (CounterOperator::encode(i64::MAX), CounterOperator::encode(2));
        let merged = counter.full_merge(b"k", Some(&max), &[&two]).unwrap();
        assert_eq!(CounterOperator::decode(&merged), Some(i64::MIN + 1));
        let error = counter.full_merge(b"k", Some(b"abc"), &[&two]).unwrap_err();
        assert_eq!(error.to_string(), "the value has 3 bytes instead of 8");
        assert!(counter.full_merge(b"k", None, &[&two, b""]).is_err());
        assert_eq!(counter.partial_merge(b"k", &[&two, b""]), None);
    }

    fn operators() -> impl Strategy<Value = Arc<dyn MergeOperator>> {
        let name = prop_oneof![Just("counter"), Just("max"), Just("append"), Just("append:, ")];
        name.prop_map(|name| builtin_merge_operator(name).unwrap())
    }

    proptest! {
        /// What compaction relies on: however operands are grouped, and wherever the value is folded in.
        #[test]
        fn grouping_changes_nothing(
            operator in operators(),
            existing: Option<[u8; 8]>,
            operands in proptest::collection::vec(any::<[u8; 8]>(), 2..8),
            cut in 1usize..8,
        ) {
            let existing = existing.as_ref().map(|bytes| &bytes[..]);
            let operands: Vec<&[u8]> = operands.iter().map(|bytes| &bytes[..]).collect();
            let cut = cut.min(operands.len() - 1);
            let (older, newer) = operands.split_at(cut);
            let whole = operator.full_merge(b"k", existing, &operands).unwrap();
            let first = operator.full_merge(b"k", existing, older).unwrap();
            prop_assert_eq!(&operator.full_merge(b"k", Some(&first), newer).unwrap(), &whole);
            if newer.len() > 1 {
                let combined = operator.partial_merge(b"k", newer).unwrap();
                let parts = [older, &[&combined]].concat();
                prop_assert_eq!(operator.full_merge(b"k", existing, &parts).unwrap(), whole);
            }
        }
    }
}
