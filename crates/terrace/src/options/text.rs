//! What an option can be, as text and back: numbers, sizes, words, lists. Whether it is in range is not said here, but by
//! the checks of what has it.

use super::refuse::unreadable;
use super::words::{Words, from_word, spelled};
use super::{CompactionStyle, Learning, SyncMode};
use crate::error::{Error, Result};
use crate::merge_operator::{MergeOperator, builtin_merge_operator};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use terrace_manifest::LEVEL_COUNT;
use terrace_sst::{Compression, FilterPolicy};

/// What stands for an option that has no value.
const NONE: &str = "none";

/// How values of type `T` are said.
pub(crate) trait Text<T> {
    /// The value that `text` says; the error names the option, `name`, and what it can be.
    fn parse(name: &str, text: &str) -> Result<T>;

    /// A text that [`Self::parse`] makes `value` of.
    fn print(value: &T) -> String;
}

/// A number as Rust writes it.
pub(crate) struct Number;

impl<T: FromStr + ToString> Text<T> for Number {
    fn parse(name: &str, text: &str) -> Result<T> {
        text.parse().map_err(|_| unreadable(name, text, "a number"))
    }

    fn print(value: &T) -> String {
        value.to_string()
    }
}

/// Bytes, as [`parse_size`] reads them.
pub(crate) struct Size;

impl<T: TryFrom<u64> + ToString> Text<T> for Size {
    fn parse(name: &str, text: &str) -> Result<T> {
        let bytes = parse_size(text).and_then(|bytes| T::try_from(bytes).ok());
        bytes.ok_or_else(|| unreadable(name, text, "a number of bytes, such as 65536 or 64MiB"))
    }

    fn print(value: &T) -> String {
        value.to_string()
    }
}

/// Bytes, or `none`.
pub(crate) struct SizeOrNone;

impl<T: TryFrom<u64> + ToString> Text<Option<T>> for SizeOrNone {
    fn parse(name: &str, text: &str) -> Result<Option<T>> {
        if text == NONE {
            return Ok(None);
        }
        let bytes = parse_size(text).and_then(|bytes| T::try_from(bytes).ok());
        let want = "a number of bytes, such as 65536 or 64MiB, or none";
        bytes.map(Some).ok_or_else(|| unreadable(name, text, want))
    }

    fn print(value: &Option<T>) -> String {
        value.as_ref().map_or_else(|| NONE.into(), T::to_string)
    }
}

/// Bytes; `none` is more than there can be.
pub(crate) struct Threshold;

impl Text<usize> for Threshold {
    fn parse(name: &str, text: &str) -> Result<usize> {
        let bytes: Option<usize> = SizeOrNone::parse(name, text)?;
        Ok(bytes.unwrap_or(usize::MAX))
    }

    fn print(value: &usize) -> String {
        SizeOrNone::print(&(*value != usize::MAX).then_some(*value))
    }
}

/// `true` or `false`.
pub(crate) struct Flag;

impl Text<bool> for Flag {
    fn parse(name: &str, text: &str) -> Result<bool> {
        match text {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(unreadable(name, text, "true or false")),
        }
    }

    fn print(value: &bool) -> String {
        value.to_string()
    }
}

/// One of a few words.
pub(crate) struct Word;

impl<T: Words> Text<T> for Word {
    fn parse(name: &str, text: &str) -> Result<T> {
        from_word(name, text)
    }

    fn print(value: &T) -> String {
        value.word().into()
    }
}

/// Several of them with commas, by level.
pub(crate) struct ByLevel<C>(PhantomData<C>);

impl<T, C: Text<T>> Text<Vec<T>> for ByLevel<C> {
    fn parse(name: &str, text: &str) -> Result<Vec<T>> {
        text.split(',').map(|entry| C::parse(name, entry.trim())).collect()
    }

    /// Entries beyond the last level say nothing.
    fn print(value: &Vec<T>) -> String {
        value.iter().take(LEVEL_COUNT).map(C::print).collect::<Vec<String>>().join(",")
    }
}

/// A filter.
pub(crate) struct Filter;

impl Text<FilterPolicy> for Filter {
    fn parse(name: &str, text: &str) -> Result<FilterPolicy> {
        text.parse().map_err(|error| Error::InvalidArgument(format!("{name}: {error}")))
    }

    fn print(value: &FilterPolicy) -> String {
        value.to_string()
    }
}

/// The name of a merge operator that is built in, or `none`.
pub(crate) struct Operator;

impl Text<Option<Arc<dyn MergeOperator>>> for Operator {
    fn parse(name: &str, text: &str) -> Result<Option<Arc<dyn MergeOperator>>> {
        if text == NONE {
            return Ok(None);
        }
        let want = "counter, max, append, append: and a separator, or none";
        builtin_merge_operator(text).map(Some).ok_or_else(|| unreadable(name, text, want))
    }

    fn print(value: &Option<Arc<dyn MergeOperator>>) -> String {
        value.as_ref().map_or(NONE, |operator| operator.name()).into()
    }
}

/// When writes are durable.
pub(crate) struct Durable;

impl Text<SyncMode> for Durable {
    fn parse(name: &str, text: &str) -> Result<SyncMode> {
        let ms = || text.strip_prefix("interval:")?.parse::<u64>().ok().filter(|ms| *ms > 0);
        match text {
            "buffered" => Ok(SyncMode::Buffered),
            "none" => Ok(SyncMode::None),
            "batch" => Ok(SyncMode::Batch),
            _ => match ms() {
                Some(ms) => Ok(SyncMode::Interval(Duration::from_millis(ms))),
                None => Err(unreadable(name, text, "none, batch, buffered or interval:<ms>")),
            },
        }
    }

    fn print(value: &SyncMode) -> String {
        value.to_string()
    }
}

impl fmt::Display for SyncMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffered => f.pad("buffered"),
            Self::None => f.pad("none"),
            Self::Batch => f.pad("batch"),
            Self::Interval(interval) => f.pad(&format!("interval:{}", interval.as_millis().max(1))),
        }
    }
}

/// `none`, `batch`, `buffered`, or `interval:` with milliseconds.
impl FromStr for SyncMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Durable::parse("sync", text)
    }
}

spelled!(CompactionStyle, "compaction", Leveled = "leveled", Tiered = "tiered");
spelled!(Learning, "learning", Build = "build", Analyze = "analyze", Off = "off");

impl Words for Compression {
    const ALL: &'static [Self] = &[Self::None, Self::Lz4, Self::Zstd];

    fn word(self) -> &'static str {
        self.name()
    }
}

/// Bytes: a number, or one with a unit of 1024 (`64MiB`, `64 MiB`). `None` if it is neither.
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [("7", 7), ("7B", 7), ("2 KiB", 2048), ("3TiB", 3 << 40)] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        for text in ["", "KiB", "1.5MiB", "1MB", "18446744073709551615KiB", "+1", " 1"] {
            assert_eq!(parse_size(text), None, "{text}");
        }
        let refused: Result<u8> = Size::parse("x", "256");
        assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    }

    #[test]
    fn every_sync_mode_round_trips_as_text() {
        let ms = Duration::from_millis;
        let all = [SyncMode::None, SyncMode::Batch, SyncMode::Buffered, SyncMode::Interval(ms(1))];
        for mode in all.into_iter().chain([SyncMode::Interval(ms(86_400_000))]) {
            assert_eq!(mode.to_string().parse::<SyncMode>().unwrap(), mode);
        }
        for text in ["", "interval", "interval:0", "interval:-1", "Batch", "always"] {
            let error = text.parse::<SyncMode>().unwrap_err().to_string();
            assert!(error.contains("none, batch, buffered"), "{error}");
        }
    }
}
