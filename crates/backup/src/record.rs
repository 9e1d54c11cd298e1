//! The record of one backup: a text with a checksum.
//!
//! ```text
//! terrace backup 1
//! id 7
//! created_ms 1795506151000
//! file 0123456789abcdef0123456789abcdef 4096 000012.sst
//! ...
//! checksum 0123456789abcdef
//! ```
//! A `file` has the XXH3 (128 bits) of its content, its length in bytes and its name in the store. The
//! checksum is the XXH3 (64 bits) of all lines before it, their ends included.

use std::fmt::Write;
use xxhash_rust::xxh3::xxh3_64;

const HEAD: &str = "terrace backup 1";

/// Hexadecimal digits of a hash in the name of content.
pub(crate) const HASH_DIGITS: usize = 32;

/// What one backup consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Its number: later ones are larger.
    pub id: u64,
    /// When it was made, in ms since 1970.
    pub created_ms: u64,
    /// The files of the store, in the order of their names.
    pub files: Vec<BackupFile>,
}

/// One file of a backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupFile {
    /// Its name in the store.
    pub name: String,
    /// Its length.
    pub size_bytes: u64,
    /// XXH3 of its content.
    pub hash: u128,
}

impl BackupFile {
    /// The name of the content, which backups share.
    pub(crate) fn content_name(&self) -> String {
        format!("{:0HASH_DIGITS$x}-{}", self.hash, self.size_bytes)
    }
}

impl Backup {
    /// The length of all files: what a restore writes. A record may say more than a number holds.
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).fold(0, u64::saturating_add)
    }

    pub(crate) fn encode(&self) -> String {
        let mut text = format!("{HEAD}\nid {}\ncreated_ms {}\n", self.id, self.created_ms);
        for BackupFile { name, size_bytes, hash } in &self.files {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "file {hash:032x} {size_bytes} {name}");
        }
        let checksum = xxh3_64(text.as_bytes());
        let _ = writeln!(text, "checksum {checksum:016x}");
        text
    }

    /// Reads a record. The error says what is wrong.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is no text")?;
        let body = text.strip_suffix('\n').ok_or("its end is missing")?;
        let (_, last) = body.rsplit_once('\n').ok_or("it has one line")?;
        let body = &text[..body.len() - last.len()];
        let checksum = last.strip_prefix("checksum ").ok_or("its checksum is missing")?;
        if checksum != format!("{:016x}", xxh3_64(body.as_bytes())) {
            return Err("its checksum does not fit");
        }
        let mut lines = body.lines();
        if lines.next() != Some(HEAD) {
            return Err("it is of a version that this build does not read");
        }
        let mut number = |name: &str| {
            let line = lines.next()?.strip_prefix(name)?;
            line.strip_prefix(' ')?.parse::<u64>().ok()
        };
        let id = number("id").ok_or("it has no id")?;
        let created_ms = number("created_ms").ok_or("it has no time")?;
        let files = lines.map(file).collect::<Option<Vec<_>>>().ok_or("a file's line is wrong")?;
        Ok(Self { id, created_ms, files })
    }
}

fn file(line: &str) -> Option<BackupFile> {
    let mut words = line.strip_prefix("file ")?.splitn(3, ' ');
    let hash = words.next().filter(|hash| hash.len() == 32)?;
    let hash = u128::from_str_radix(hash, 16).ok()?;
    let size_bytes = words.next()?.parse().ok()?;
    let name = words.next().filter(|name| is_plain_name(name))?;
    Some(BackupFile { name: name.into(), size_bytes, hash })
}

/// Whether a restore may write a file of this name: it lies in the target and nowhere else.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    !name.is_empty() && !name.starts_with('.') && name.len() <= 255 && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup() -> Backup {
        let file =
            |name: &str, size_bytes, hash| BackupFile { name: name.into(), size_bytes, hash };
        Backup {
            id: 7,
            created_ms: 1_795_506_151_000,
            files: vec![
                file("000012.sst", 4096, u128::MAX),
                file("CURRENT", 16, 1),
                file("MANIFEST-000003", u64::MAX, 0),
            ],
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for files in [backup().files, Vec::new()] {
            let backup = Backup { files, ..backup() };
            assert_eq!(Backup::decode(backup.encode().as_bytes()), Ok(backup));
        }
    }

    #[test]
    fn files_of_more_bytes_than_a_number_holds_have_a_length() {
        assert_eq!(backup().size_bytes(), u64::MAX);
    }

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let text = backup().encode().into_bytes();
        for at in 0..text.len() {
            assert!(Backup::decode(&text[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut changed = text.clone();
                changed[at] ^= 1 << bit;
                assert!(Backup::decode(&changed).is_err(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn names_that_leave_the_target_are_refused() {
        for name in ["../x", "/etc/passwd", "a/b", ".", "..", ".hidden", "", "a b", "a\0", "ä"] {
            assert!(!is_plain_name(name), "{name}");
            let mut evil = backup();
            evil.files[0].name = name.into();
            assert!(Backup::decode(evil.encode().as_bytes()).is_err(), "{name}");
        }
    }
}
