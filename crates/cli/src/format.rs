//! Which format an input of `load` has: what the user says, else what its name says, else what its
//! first bytes say. What is no text is refused.

use std::path::Path;

/// How the records of an input are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Tab-separated columns
    Tsv,
    /// Comma-separated columns, with quotes (RFC 4180)
    Csv,
    /// A JSON object a line
    Json,
    /// What `terrace scan --json` prints
    Scan,
}

/// First bytes of files that hold records in no way that is read here, and what to do with them.
const FOREIGN: [(&[u8], &str); 5] = [
    (terrace_dump::MAGIC, "a dump; `terrace restore` makes a store of it"),
    (b"BZh", "compressed with bzip2; pipe what `bzip2 -dc` prints into `terrace load -`"),
    (b"\xfd7zXZ\0", "compressed with xz; pipe what `xz -dc` prints into `terrace load -`"),
    (b"\x04\x22\x4d\x18", "compressed with lz4; pipe what `lz4 -dc` prints into `terrace load -`"),
    (b"PK\x03\x04", "a ZIP archive; pipe what `unzip -p` prints into `terrace load -`"),
];

/// Refuses bytes that are no text; `ahead` is what is known of the beginning.
pub fn check_text(ahead: &[u8]) -> Result<(), String> {
    let foreign = FOREIGN.iter().find(|(magic, _)| {
        ahead.starts_with(magic) && (*magic != b"BZh" || ahead.get(4..7) == Some(b"1AY"))
    });
    if let Some((_, what)) = foreign {
        return Err(format!("it is {what}"));
    }
    let control =
        |byte: u8| byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0x1b);
    match ahead.iter().position(|byte| control(*byte)) {
        None => Ok(()),
        Some(at) => Err(format!(
            "it is no text: byte {at} is {:#04x}; if it is, say --format",
            ahead.get(at).copied().unwrap_or_default()
        )),
    }
}

/// What the name of the file says, whatever compresses it.
pub fn of_name(file: &Path) -> Option<Format> {
    let ending = |path: &Path| Some(path.extension()?.to_str()?.to_ascii_lowercase());
    let packed = matches!(ending(file)?.as_str(), "zst" | "gz");
    let inner = if packed { file.with_extension("") } else { file.to_path_buf() };
    match ending(&inner)?.as_str() {
        "jsonl" | "ndjson" | "json" => Some(Format::Json),
        "csv" => Some(Format::Csv),
        "tsv" | "tab" => Some(Format::Tsv),
        _ => None,
    }
}

/// What the first line says, which is not blank.
pub fn of_line(line: &[u8]) -> Option<Format> {
    match line {
        line if line.trim_ascii_start().starts_with(b"{") => Some(Format::Json),
        line if line.contains(&b'\t') => Some(Format::Tsv),
        line if line.contains(&b',') => Some(Format::Csv),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_the_format() {
        for (name, want) in [
            ("a.tsv.zst", Some(Format::Tsv)),
            ("a.CSV.gz", Some(Format::Csv)),
            ("a.jsonl", Some(Format::Json)),
            ("dir.json/a.ndjson.zst", Some(Format::Json)),
            ("dir.json/a", None),
            ("a", None),
            (".csv", None),
            ("-", None),
        ] {
            assert_eq!(of_name(Path::new(name)), want, "{name}");
        }
    }

    #[test]
    fn the_first_line_tells_the_format() {
        for (line, want) in [
            ("a\tb,c", Some(Format::Tsv)),
            ("a,b", Some(Format::Csv)),
            (" {\"a\":\t1}", Some(Format::Json)),
            ("words and words", None),
        ] {
            assert_eq!(of_line(line.as_bytes()), want, "{line}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused_with_what_to_do() {
        for (bytes, want) in [
            (&b"PK\x03\x04\x14"[..], "unzip"),
            (b"BZh91AY&SY", "bzip2"),
            (b"\x89PNG\r\n\x1a\n", "byte 6 is 0x1a"),
            (b"a\x00b", "byte 1 is 0x00"),
        ] {
            assert!(check_text(bytes).unwrap_err().contains(want), "{bytes:?}");
        }
        for text in ["", "BZh\t1\n", "a\tü\u{1b}[0m\r\n", "é"] {
            assert_eq!(check_text(text.as_bytes()), Ok(()), "{text}");
        }
        assert_eq!(check_text(b"latin1 \xe9"), Ok(()));
    }
}
