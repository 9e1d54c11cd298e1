//! The keys that files are encrypted with, each known by a number that stands in the files.

use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use terrace_base::hex::{self, Hex};
use zeroize::Zeroizing;

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;

/// Bytes by which a file tells which key it needs.
pub(crate) const FINGERPRINT_BYTES: usize = 8;

/// The `info` of HKDF for a fingerprint, so that no file key is ever derived alike.
const FINGERPRINT_INFO: &[u8] = b"terrace key fingerprint";

/// A key file is longer than this only by mistake.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Why there is no key ring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The key file could not be read.
    #[error("key file {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A key file is longer than any of keys.
    #[error("key file {}: it is longer than 1 MiB", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// A line of a key file is not a number and a key. The line itself may be a secret and is not shown.
    #[error("line {line} of the keys: {why}")]
    Line {
        /// The line, from 1 on.
        line: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no key.
    #[error("there is no key")]
    Empty,
    /// A key cannot be used.
    #[error("key {id}: {why}")]
    Key {
        /// Its number.
        id: u32,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The system gave no random bytes.
    #[error("the system gives no random bytes")]
    NoRandomness,
}

/// 32 secret bytes, wiped when they are dropped, and never printed.
#[derive(Clone)]
pub struct Key(Zeroizing<[u8; KEY_BYTES]>);

impl Key {
    /// A key of these bytes, which should be random: nothing is done to make a password strong.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// A new key from the system's randomness.
    ///
    /// # Errors
    /// [`KeyError::NoRandomness`].
    pub fn generate() -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        SystemRandom::new().fill(&mut *bytes).map_err(|_| KeyError::NoRandomness)?;
        Ok(Self(bytes))
    }

    /// The line of a key file for this key as number `id`.
    pub fn to_line(&self, id: u32) -> Zeroizing<String> {
        Zeroizing::new(format!("{id} {}\n", Hex(&*self.0)))
    }

    /// Bytes derived from this key for `salt` and `info` (HKDF-SHA-256).
    pub(crate) fn derive<const N: usize>(&self, salt: &[u8], info: &[u8]) -> Zeroizing<[u8; N]> {
        struct Length(usize);
        impl KeyType for Length {
            fn len(&self) -> usize {
                self.0
            }
        }
        let mut bytes = Zeroizing::new([0; N]);
        let secret = Salt::new(HKDF_SHA256, salt).extract(&*self.0);
        // Both fail only for more than 255 hashes of output; N is at most one hash.
        let filled = secret.expand(&[info], Length(N)).and_then(|okm| okm.fill(&mut *bytes));
        assert!(filled.is_ok(), "HKDF-SHA-256 gives 255 hashes");
        bytes
    }

    /// By what a file tells this key from others of the same number.
    pub(crate) fn fingerprint(&self) -> [u8; FINGERPRINT_BYTES] {
        *self.derive(&[], FINGERPRINT_INFO)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The keys that there are. The one with the largest number is *active*: new files are encrypted with it. The
/// others are for files that were written before it came.
#[derive(Debug, Clone)]
pub struct KeyRing {
    keys: BTreeMap<u32, Key>,
    active: u32,
}

impl KeyRing {
    /// A ring of these keys, each with its number, at least 1.
    ///
    /// # Errors
    /// [`KeyError::Empty`]; [`KeyError::Key`] for a number that is 0 or there twice, and for a key whose bytes are all
    /// the same.
    pub fn new(keys: impl IntoIterator<Item = (u32, Key)>) -> Result<Self, KeyError> {
        let mut ring = BTreeMap::new();
        for (id, key) in keys {
            let refuse = |why| Err(KeyError::Key { id, why });
            if id == 0 {
                return refuse("numbers begin at 1");
            }
            if key.0.iter().all(|byte| *byte == key.0[0]) {
                return refuse("its bytes are all the same");
            }
            if ring.insert(id, key).is_some() {
                return refuse("it is there twice");
            }
        }
        let active = *ring.last_key_value().ok_or(KeyError::Empty)?.0;
        Ok(Self { keys: ring, active })
    }

    /// Reads the text of a key file: a number, blanks and 64 hexadecimal digits on each line. Empty lines, and those that
    /// begin with `#`, are left out.
    ///
    /// # Errors
    /// [`KeyError::Line`], and those of [`Self::new`].
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut keys = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line_error = |why| KeyError::Line { line: at + 1, why };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (id, digits) = line
                .split_once(|c: char| c.is_ascii_whitespace())
                .ok_or(line_error("it needs a number and a key"))?;
            let is_number = id.bytes().all(|byte| byte.is_ascii_digit());
            let id = id.parse().ok().filter(|_| is_number);
            let id: u32 = id.ok_or(line_error("it must begin with a number below 2^32"))?;
            let bytes =
                Zeroizing::new(hex::decode(digits.trim_start().as_bytes()).unwrap_or_default());
            let bytes: [u8; KEY_BYTES] = bytes
                .as_slice()
                .try_into()
                .map_err(|_| line_error("a key has 64 hexadecimal digits"))?;
            keys.push((id, Key::new(bytes)));
        }
        Self::new(keys)
    }

    /// Reads a key file; see [`Self::parse`].
    ///
    /// # Errors
    /// Those of [`read_key_file`] and of [`Self::parse`].
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        Self::parse(&read_key_file(path)?)
    }

    /// The number of the key for new files.
    pub fn active(&self) -> u32 {
        self.active
    }

    /// The numbers of all keys, ascending.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.keys.keys().copied()
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Key> {
        self.keys.get(&id)
    }

    /// Whether key `id` is here the same as in `other`.
    pub(crate) fn has_as(&self, other: &Self, id: u32) -> bool {
        let keys = self.get(id).zip(other.get(id));
        keys.is_some_and(|(key, other)| key.fingerprint() == other.fingerprint())
    }

    pub(crate) fn active_key(&self) -> &Key {
        &self.keys[&self.active]
    }
}

/// The text of a key file, for [`KeyRing::parse`]. It is wiped when it is dropped, and no part of it is left in memory that is
/// free again. Of a device without an end no more is read than a key file may have.
///
/// # Errors
/// [`KeyError::Io`], of kind `NotFound` if there is no such file, and [`KeyError::TooLong`].
pub fn read_key_file(path: &Path) -> Result<Zeroizing<String>, KeyError> {
    let failed = |source| KeyError::Io { path: path.to_path_buf(), source };
    let file = std::fs::File::open(path).map_err(failed)?;
    // Room for all of it: text that grows would leave keys in memory that is free again.
    let mut text = Zeroizing::new(String::with_capacity(MAX_FILE_BYTES as usize + 1));
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    match text.len() as u64 > MAX_FILE_BYTES {
        true => Err(KeyError::TooLong { path: path.to_path_buf() }),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `terrace keys new` tells a file that is missing from one that cannot be read, and says of a long one what it is.
    #[test]
    fn a_key_file_is_read_as_far_as_one_may_go() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let missing = read_key_file(&path).unwrap_err();
        assert!(
            matches!(&missing, KeyError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound),
            "{missing}"
        );
        let longest = "#".repeat(MAX_FILE_BYTES as usize);
        std::fs::write(&path, &longest).unwrap();
        assert!(*read_key_file(&path).unwrap() == longest);
        std::fs::write(&path, longest + "#").unwrap();
        for path in [path.as_path(), Path::new("/dev/zero")] {
            let said = format!("key file {}: it is longer than 1 MiB", path.display());
            assert_eq!(KeyRing::load(path).unwrap_err().to_string(), said);
            assert!(matches!(read_key_file(path), Err(KeyError::TooLong { .. })));
        }
    }

    fn key(byte: u8) -> Key {
        Key::new(std::array::from_fn(|at| byte + at as u8))
    }

    #[test]
    fn a_key_file_is_read_as_it_was_written_and_the_largest_number_is_active() {
        let text = format!("# keys\n\n{}  7\t{}", *key(1).to_line(3), &key(2).to_line(7)[2..]);
        let ring = KeyRing::parse(&text).unwrap();
        assert_eq!((ring.active(), ring.ids().collect::<Vec<_>>()), (7, vec![3, 7]));
        assert_eq!(ring.get(3).unwrap().fingerprint(), key(1).fingerprint());
        assert_eq!(ring.active_key().fingerprint(), key(2).fingerprint());
        assert!(ring.get(4).is_none());
    }

    #[test]
    fn what_is_no_key_file_says_where_and_shows_no_secret() {
        let good = key(9).to_line(1);
        let digits = &good[2..66];
        let bad = [
            ("", "there is no key"),
            ("# only a remark\n", "there is no key"),
            (digits, "line 1 of the keys: it needs a number and a key"),
            (&format!("x {digits}"), "line 1 of the keys: it must begin with a number below 2^32"),
            (&format!("+1 {digits}"), "line 1 of the keys: it must begin with a number below 2^32"),
            (
                &format!("4294967296 {digits}"),
                "line 1 of the keys: it must begin with a number below 2^32",
            ),
            (
                &format!("\n2 {}", &digits[1..]),
                "line 2 of the keys: a key has 64 hexadecimal digits",
            ),
            (&format!("2 {digits}00"), "line 1 of the keys: a key has 64 hexadecimal digits"),
            (&format!("2 {digits} x"), "line 1 of the keys: a key has 64 hexadecimal digits"),
            (&format!("0 {digits}"), "key 0: numbers begin at 1"),
            (&format!("2 {digits}\n2 {digits}"), "key 2: it is there twice"),
            (&format!("2 {}", "ab".repeat(32)), "key 2: its bytes are all the same"),
        ];
        for (text, want) in bad {
            let error = KeyRing::parse(text).unwrap_err().to_string();
            assert_eq!(error, want, "{text:?}");
            assert!(!error.contains(digits));
        }
        assert_eq!(format!("{:?}", key(1)), "Key(..)");
    }

    #[test]
    fn derived_bytes_depend_on_the_key_the_salt_and_the_purpose() {
        let derived: [Zeroizing<[u8; 32]>; 4] = [
            key(1).derive(b"salt", b"info"),
            key(2).derive(b"salt", b"info"),
            key(1).derive(b"other", b"info"),
            key(1).derive(b"salt", b"other"),
        ];
        for (at, one) in derived.iter().enumerate() {
            assert!(derived[at + 1..].iter().all(|other| one != other));
        }
        assert_ne!(*Key::generate().unwrap().0, *Key::generate().unwrap().0);
    }

    /// Against the definition in RFC 5869, section 2, over HMAC.
    #[test]
    fn derivation_is_hkdf() {
        use ring::hmac::{self, HMAC_SHA256};
        let sign = |key: &[u8], data: &[u8]| hmac::sign(&hmac::Key::new(HMAC_SHA256, key), data);
        let secret = key(11);
        let prk = sign(b"salt", &*secret.0);
        let okm = sign(prk.as_ref(), b"info\x01");
        assert_eq!(&secret.derive::<32>(b"salt", b"info")[..], okm.as_ref());
    }
}
