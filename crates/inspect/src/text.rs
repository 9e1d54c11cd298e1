//! Keys, values and sizes as text. Keys and values are any bytes: what is not printable is
//! written `\xNN` (or `\t`, `\n`, `\r`, `\\`), so the text says exactly which bytes they are.

use std::fmt::{self, Display, Write as _};

/// Bytes as text, whole.
pub struct Escaped<'a>(pub &'a [u8]);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => f.write_str("\\\\")?,
                    '\t' => f.write_str("\\t")?,
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    c if c.is_control() => {
                        let mut bytes = [0; 4];
                        for byte in c.encode_utf8(&mut bytes).bytes() {
                            write!(f, "\\x{byte:02x}")?;
                        }
                    }
                    c => f.write_char(c)?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// At most this many of the bytes as text, and how many more there are.
pub struct Abridged<'a>(pub &'a [u8], pub usize);

impl Display for Abridged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes, most) = *self;
        match bytes.get(..most) {
            Some(start) if most < bytes.len() => {
                write!(f, "{}... ({} bytes)", Escaped(start), bytes.len())
            }
            _ => write!(f, "{}", Escaped(bytes)),
        }
    }
}

/// A number of bytes with a binary unit; honours width and alignment.
#[derive(Debug, Clone, Copy)]
pub struct SizeBytes(pub u64);

impl Display for SizeBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        f.pad(&match unit {
            0 => format!("{} B", self.0),
            _ => format!("{value:.1} {}", UNITS[unit]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_have_one_text_and_no_control_characters() {
        let all: Vec<u8> = (0..=255).collect();
        let text = Escaped(&all).to_string();
        assert!(!text.chars().any(char::is_control), "{text}");
        assert!(text.starts_with("\\x00") && text.contains("\\t\\n") && text.contains("\\\\"));
        assert!(text.ends_with("\\xff"));
        assert_eq!(Escaped("naïve \u{7f}".as_bytes()).to_string(), "naïve \\x7f");
    }

    #[test]
    fn long_bytes_are_cut_and_say_so() {
        assert_eq!(Abridged(b"abcdef", 6).to_string(), "abcdef");
        assert_eq!(Abridged(b"abcdefg", 3).to_string(), "abc... (7 bytes)");
        assert_eq!(Abridged("é".as_bytes(), 1).to_string(), "\\xc3... (2 bytes)");
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(SizeBytes(1023).to_string(), "1023 B");
        assert_eq!(format!("{:>9}", SizeBytes(3 << 19)), "  1.5 MiB");
    }
}
