//! LSM shapes as text: what `Display` prints, and a parser for tests that draw the tree they
//! start from.
//!
//! ```text
//! L0:  12:[apple-melon] 3.1MB  11:[a-c) 512B
//! L6:  4:[a-c) 64.0MB
//! ```
//! A file is its number, its bounds (`]` if the largest key is in it, `)` if not) and its length.
//! Bytes of a key that are not printable, or that mean something here, are written `\xNN`. Levels
//! without files are left out. The parser also takes, after a file's length, any of
//! `tombstones=50%` (or a count), `range_tombstones=3`, `entries=1000`, `seqnos=5-9`, `raw=10MB`,
//! `created=99`, `ttl_due=100`; what is not given is made up: an entry per 100 bytes, raw bytes as
//! many as the length, sequence numbers equal to the file number.

use crate::edit::FamilyEdit;
use crate::file_meta::FileMeta;
use crate::version::{LEVEL_COUNT, Version};
use std::fmt::{self, Display, Write as _};
use terrace_base::SeqNo;

/// A key as the shapes print it.
pub struct ShapeKey<'a>(pub &'a [u8]);

/// A number of bytes as the shapes print it.
pub struct ShapeBytes(pub u64);

impl Display for ShapeKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            if byte.is_ascii_graphic() && !b"-[]()\\".contains(byte) {
                f.write_char(char::from(*byte))?;
            } else {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

const UNITS: [(&str, u64); 4] =
    [("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)];

impl Display for ShapeBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().find(|(_, unit)| self.0 >= *unit) {
            Some((name, unit)) => write!(f, "{:.1}{name}", self.0 as f64 / *unit as f64),
            None => write!(f, "{}B", self.0),
        }
    }
}

/// The number, bounds and length of a file.
impl Display for FileMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let close = if self.largest_exclusive { ')' } else { ']' };
        let (smallest, largest) = (ShapeKey(&self.smallest), ShapeKey(&self.largest));
        let size = ShapeBytes(self.size_bytes);
        write!(f, "{}:[{smallest}-{largest}{close} {size}", self.number)
    }
}

impl Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, level) in self.levels().iter().enumerate().filter(|(_, level)| !level.is_empty()) {
            write!(f, "L{n}:")?;
            for file in level.files() {
                write!(f, "  {file}")?;
            }
            f.write_char('\n')?;
        }
        if !self.hot().is_empty() {
            write!(f, "hot:")?;
            self.hot().files().iter().try_for_each(|file| write!(f, "  {file}"))?;
            f.write_char('\n')?;
        }
        Ok(())
    }
}

impl Version {
    /// Reads a shape; for tests. Empty lines are skipped.
    pub fn parse_shape(text: &str) -> Result<Self, String> {
        let mut edit = FamilyEdit::default();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let in_line = |why: String| format!("{why} in `{line}`");
            let level = line.split_once(':').and_then(|(level, rest)| {
                Some((level.strip_prefix('L')?.parse::<u8>().ok()?, rest))
            });
            let (level, rest) = level.ok_or_else(|| in_line("no level `Ln:`".into()))?;
            if usize::from(level) >= LEVEL_COUNT {
                return Err(in_line(format!("there is no level L{level}")));
            }
            for word in rest.split_whitespace() {
                if let Some((number, bounds)) = word.split_once(":[") {
                    let file = parse_file(number, bounds).ok_or("bad file number or bounds");
                    edit.added.push((level, file.map_err(|why| in_line(why.into()))?));
                    continue;
                }
                let file = edit.added.last_mut().filter(|(at, _)| *at == level);
                let known = file.and_then(|(_, file)| parse_attribute(word, file));
                known.ok_or_else(|| in_line(format!("`{word}` is out of place")))?;
            }
        }
        Self::empty().apply(&edit)
    }
}

fn parse_file(number: &str, bounds: &str) -> Option<FileMeta> {
    let number = number.parse().ok()?;
    let (bounds, largest_exclusive) = match bounds.strip_suffix(')') {
        Some(bounds) => (bounds, true),
        None => (bounds.strip_suffix(']')?, false),
    };
    let (smallest, largest) = bounds.split_once('-')?;
    Some(FileMeta {
        number,
        smallest: parse_key(smallest)?,
        largest: parse_key(largest)?,
        largest_exclusive,
        smallest_seqno: SeqNo::new(number.get()),
        largest_seqno: SeqNo::new(number.get()),
        entry_count: 1,
        ..FileMeta::default()
    })
}

fn parse_key(text: &str) -> Option<Vec<u8>> {
    let mut key = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte == b'\\' {
            let (escape, after) = rest.split_at_checked(3)?;
            let digits = std::str::from_utf8(escape.strip_prefix(b"x")?).ok()?;
            key.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after;
        } else {
            key.push(*byte);
        }
    }
    Some(key)
}

/// Reads a length (without `=`) or an attribute of the file before it.
fn parse_attribute(word: &str, file: &mut FileMeta) -> Option<()> {
    let Some((name, value)) = word.split_once('=') else {
        file.size_bytes = parse_bytes(word)?;
        file.raw_bytes = file.size_bytes;
        file.entry_count = (file.size_bytes / 100).max(1);
        return Some(());
    };
    match name {
        "tombstones" => {
            file.tombstone_count = match value.strip_suffix('%') {
                Some(percent) => file.entry_count * percent.parse::<u64>().ok()? / 100,
                None => value.parse().ok()?,
            }
        }
        "range_tombstones" => file.range_tombstone_count = value.parse().ok()?,
        "entries" => file.entry_count = value.parse().ok()?,
        "seqnos" => {
            let (smallest, largest) = value.split_once('-')?;
            file.smallest_seqno = smallest.parse().ok()?;
            file.largest_seqno = largest.parse().ok()?;
        }
        "raw" => file.raw_bytes = parse_bytes(value)?,
        "created" => file.created_ms = value.parse().ok()?,
        "ttl_due" => file.ttl_due_ms = Some(value.parse().ok()?),
        _ => return None,
    }
    Some(())
}

fn parse_bytes(text: &str) -> Option<u64> {
    for (name, unit) in UNITS {
        if let Some(amount) = text.strip_suffix(name) {
            let amount: f64 = amount.parse().ok()?;
            return (amount >= 0.0).then_some((amount * unit as f64).round() as u64);
        }
    }
    text.strip_suffix('B')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use terrace_base::FileNumber;

    const SHAPE: &str = "\
L0:  12:[apple-melon] 3.1MB  11:[a-b) 512B
L6:  4:[a-c) 64.0MB  5:[c-c] 1.5KB
";

    #[test]
    fn a_shape_is_printed_as_it_was_drawn() {
        let version = Version::parse_shape(SHAPE).unwrap();
        assert_eq!(version.to_string(), SHAPE);
        assert_eq!(version.level(6).size_bytes(), (64 << 20) + 1536);
        assert_eq!(version.file_count(), 4);
        assert_eq!(Version::empty().to_string(), "");
    }

    #[test]
    fn attributes_follow_the_length() {
        let text = "L1: 5:[a-f] 10MB tombstones=50% entries=10 seqnos=3-9 raw=1KB created=7 \
                    ttl_due=8 range_tombstones=2 6:[g-h] 1B tombstones=1";
        let version = Version::parse_shape(text).unwrap();
        let want = FileMeta {
            number: FileNumber::new(5),
            size_bytes: 10 << 20,
            smallest: b"a".into(),
            largest: b"f".into(),
            largest_exclusive: false,
            smallest_seqno: SeqNo::new(3),
            largest_seqno: SeqNo::new(9),
            entry_count: 10,
            tombstone_count: (10 << 20) / 200,
            range_tombstone_count: 2,
            raw_bytes: 1024,
            created_ms: 7,
            ttl_due_ms: Some(8),
            value_refs: Vec::new(),
        };
        assert_eq!(*version.level(1).files()[0], want);
        assert_eq!(version.level(1).files()[1].tombstone_count, 1);
    }

    #[test]
    fn what_is_no_shape_is_refused_with_the_reason() {
        for (text, why) in [
            ("1:[a-b] 1MB", "no level"),
            ("L7: 1:[a-b] 1MB", "no level L7"),
            ("L1: 1:[b-a] 1MB", "not in order"),
            ("L1: 1:[a-c] 1MB 2:[b-d] 1MB", "overlap"),
            ("L1: 1:[a-b 1MB", "bounds"),
            ("L1: 1MB", "out of place"),
            ("L1: 1:[a-b] 1MB color=red", "out of place"),
            ("L0: 1:[a-b] 1MB\nL1: 1:[a-b] 1MB", "added twice"),
        ] {
            let error = Version::parse_shape(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_key_is_printed_and_read_back(key: Vec<u8>) {
            prop_assert_eq!(parse_key(&ShapeKey(&key).to_string()), Some(key));
        }
    }
}
