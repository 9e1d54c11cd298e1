//! The first bytes of an encrypted file: how it is laid out and which key it needs.
//!
//! ```text
//!   0  magic            8   0x93 "TERCRY" 0x1a
//!   8  format version   4   1
//!  12  layout           4   1 pages, 3 frames
//!  16  key number       4
//!  20  key fingerprint  8   HKDF-SHA-256 of the key for "terrace key fingerprint"
//!  28  salt            32   random; with the key it gives the keys of this file alone
//!  60  checksum         4   crc32c of bytes 0..60: tells damage from a key that is missing
//!  64  reserved        48   0
//! 112  tag             16   AES-256-GCM of no bytes, with bytes 0..112 as associated data
//! ```
//! Integers are little-endian.

use crate::keys::{FINGERPRINT_BYTES, Key, KeyRing};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use std::path::Path;
use terrace_base::{Error, Result};
use terrace_vfs::RandomFile;
use zeroize::Zeroizing;

/// The first bytes of every encrypted file.
pub(crate) use terrace_vfs::ENCRYPTED_MAGIC as MAGIC;

/// Bytes before the content.
pub(crate) const HEADER_BYTES: usize = 128;

const FORMAT_VERSION: u32 = 1;
const CHECKSUM_AT: usize = 60;
const TAG_AT: usize = 112;
const SALT_BYTES: usize = 32;

/// The nonce of the header's tag; those of pages and frames end in zeros.
const HEADER_NONCE: [u8; 12] = [0xff; 12];

/// The `info` of HKDF for the key of a file.
const KEY_INFO: &[u8] = b"terrace file, AES-256-GCM";

/// The numbers of layouts, which are stored and never reused.
const PAGES: u32 = 1;
/// AES-256-CTR without tags, in development versions; refused.
const STREAM: u32 = 2;
const FRAMES: u32 = 3;

/// How the content of a file is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// In sealed pages; for files that are read once they are whole.
    Pages,
    /// In sealed frames, one or more of each append; for files that are read while they grow.
    Frames,
}

/// The key of one file: of the header's tag, and of its pages or frames.
fn file_key(key: &Key, salt: &[u8]) -> LessSafeKey {
    let derived: Zeroizing<[u8; 32]> = key.derive(salt, KEY_INFO);
    let unbound = UnboundKey::new(&AES_256_GCM, &*derived);
    // It fails for a key of another length only, and the type says 32.
    #[expect(clippy::expect_used, reason = "AES-256 takes every key of 32 bytes")]
    LessSafeKey::new(unbound.expect("AES-256 has keys of 32 bytes"))
}

fn tag(key: &LessSafeKey, fields: &[u8]) -> Option<Tag> {
    let nonce = Nonce::assume_unique_for_key(HEADER_NONCE);
    key.seal_in_place_separate_tag(nonce, Aad::from(fields), &mut []).ok()
}

/// What the first bytes of a file say.
#[expect(clippy::large_enum_variant, reason = "it lives as long as the call that asks")]
pub(crate) enum Found {
    /// An encrypted file.
    Encrypted { layout: Layout, key: LessSafeKey },
    /// Its writer was interrupted before the header was whole: nothing has been written.
    Unwritten,
    /// A file that is not encrypted.
    Plain,
}

/// A new header and the key of its file.
///
/// # Errors
/// I/O, if the system gives no random bytes.
pub(crate) fn create(
    ring: &KeyRing,
    layout: Layout,
    path: &Path,
) -> Result<([u8; HEADER_BYTES], LessSafeKey)> {
    let refused = || Error::io("create", path, std::io::Error::other("no random bytes"));
    let mut salt = [0; SALT_BYTES];
    SystemRandom::new().fill(&mut salt).map_err(|_| refused())?;
    let key = file_key(ring.active_key(), &salt);
    let number = match layout {
        Layout::Pages => PAGES,
        Layout::Frames => FRAMES,
    };
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&number.to_le_bytes());
    bytes[16..20].copy_from_slice(&ring.active().to_le_bytes());
    bytes[20..28].copy_from_slice(&ring.active_key().fingerprint());
    bytes[28..60].copy_from_slice(&salt);
    let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_le_bytes());
    let tag = tag(&key, &bytes[..TAG_AT]).ok_or_else(refused)?;
    bytes[TAG_AT..].copy_from_slice(tag.as_ref());
    Ok((bytes, key))
}

/// The number of the key that the file with these first bytes needs, if it is encrypted.
pub(crate) fn key_id(bytes: &[u8]) -> Option<u32> {
    let is_whole = bytes.len() >= HEADER_BYTES && bytes.starts_with(&MAGIC);
    is_whole.then(|| le_u32(bytes, 16))
}

/// Whether the key that the file with these first bytes needs is in the ring.
pub(crate) fn names_key_of(bytes: &[u8], ring: &KeyRing) -> bool {
    let key = key_id(bytes).and_then(|id| ring.get(id));
    key.is_some_and(|key| key.fingerprint()[..] == bytes[20..20 + FINGERPRINT_BYTES])
}

/// The first bytes of a file as it is stored: [`HEADER_BYTES`], or all it has.
pub(crate) fn first_bytes(file: &dyn RandomFile) -> Result<Vec<u8>> {
    let mut bytes = vec![0; file.len().min(HEADER_BYTES as u64) as usize];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// The number of the key that a file needs; `None` if it is not encrypted.
pub(crate) fn key_id_of(file: &dyn RandomFile) -> Result<Option<u32>> {
    Ok(key_id(&first_bytes(file)?))
}

/// Reads the first bytes of the file `path`: [`HEADER_BYTES`], or all it has.
///
/// # Errors
/// `Unsupported` if the ring lacks the key, or the file is of a later version; `Corruption` if the header is damaged.
pub(crate) fn read(bytes: &[u8], ring: &KeyRing, path: &Path) -> Result<Found> {
    let unsupported = |detail: String| Error::Unsupported { path: path.to_path_buf(), detail };
    let start = &bytes[..bytes.len().min(MAGIC.len())];
    let is_ours = MAGIC.starts_with(start);
    if bytes.iter().all(|byte| *byte == 0) || is_ours && bytes.len() < HEADER_BYTES {
        return Ok(Found::Unwritten);
    }
    if !is_ours {
        // A file that is not encrypted has nothing in common with the magic; a damaged one most of it.
        let same = start.iter().zip(MAGIC).filter(|(byte, want)| **byte == *want).count();
        return match same >= MAGIC.len() / 2 {
            true => Err(Error::corruption(path, 0, "the magic of an encrypted file is damaged")),
            false => Ok(Found::Plain),
        };
    }
    let id = le_u32(bytes, 16);
    let version = le_u32(bytes, 8);
    let damaged = || Error::corruption(path, 0, "the header of an encrypted file is damaged");
    let key = ring.get(id).filter(|key| key.fingerprint()[..] == bytes[20..20 + FINGERPRINT_BYTES]);
    let Some(key) = key else {
        let checksum = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        if checksum != le_u32(bytes, CHECKSUM_AT) || is_under_another(bytes, ring) {
            return Err(damaged());
        }
        return Err(unsupported(match ring.get(id) {
            None => format!("it is encrypted with key {id}, which is not among the keys given"),
            Some(_) => format!("it is encrypted with another key {id} than the one given"),
        }));
    };
    let key = file_key(key, &bytes[28..28 + SALT_BYTES]);
    let tag = tag(&key, &bytes[..TAG_AT]);
    if tag.is_none_or(|tag| tag.as_ref() != &bytes[TAG_AT..HEADER_BYTES]) {
        return Err(damaged());
    }
    // Authentic, so what is not known comes from a later build.
    let layout = match (version, le_u32(bytes, 12)) {
        (FORMAT_VERSION, PAGES) => Layout::Pages,
        (FORMAT_VERSION, FRAMES) => Layout::Frames,
        (FORMAT_VERSION, STREAM) => {
            return Err(unsupported(
                "it is encrypted as a development version did, so that changes are not noticed; \
                 decrypt the store with the version that wrote it, and encrypt it again"
                    .into(),
            ));
        }
        (version, layout) => {
            return Err(unsupported(format!(
                "it is encrypted in version {version}, layout {layout}; this build reads version \
                 {FORMAT_VERSION}, layouts {PAGES} and {FRAMES}"
            )));
        }
    };
    Ok(Found::Encrypted { layout, key })
}

/// Whether the header is authentic with one of the keys once their number and fingerprint are put in: then these are
/// what is damaged.
fn is_under_another(bytes: &[u8], ring: &KeyRing) -> bool {
    ring.ids().filter_map(|id| Some((id, ring.get(id)?))).any(|(id, key)| {
        let mut fields = bytes[..TAG_AT].to_vec();
        fields[16..20].copy_from_slice(&id.to_le_bytes());
        fields[20..28].copy_from_slice(&key.fingerprint());
        let tag = tag(&file_key(key, &bytes[28..28 + SALT_BYTES]), &fields);
        tag.is_some_and(|tag| tag.as_ref() == &bytes[TAG_AT..HEADER_BYTES])
    })
}

fn le_u32(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    field.map_or(0, |field| u32::from_le_bytes(*field))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(id: u32, first: u8) -> KeyRing {
        let key = Key::new(std::array::from_fn(|at| first + at as u8));
        KeyRing::new([(id, key)]).unwrap()
    }

    fn path() -> &'static Path {
        Path::new("/db/file")
    }

    #[test]
    fn a_header_is_read_as_it_was_made_and_no_two_are_alike() {
        let ring = ring(5, 1);
        for layout in [Layout::Pages, Layout::Frames] {
            let (bytes, key) = create(&ring, layout, path()).unwrap();
            let Found::Encrypted { layout: found, key: again } =
                read(&bytes, &ring, path()).unwrap()
            else {
                panic!("it is encrypted");
            };
            let sealed = |key| tag(key, b"anything").unwrap();
            assert_eq!(found, layout);
            assert_eq!(sealed(&again).as_ref(), sealed(&key).as_ref());
            assert_eq!(key_id(&bytes), Some(5));
            let (other, others) = create(&ring, layout, path()).unwrap();
            assert_ne!(bytes[28..], other[28..]);
            assert_ne!(sealed(&key).as_ref(), sealed(&others).as_ref());
        }
    }

    #[test]
    fn every_changed_bit_of_a_header_is_noticed() {
        let ring = ring(5, 1);
        let (bytes, _) = create(&ring, Layout::Pages, path()).unwrap();
        for bit in 0..HEADER_BYTES * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            let Err(error) = read(&changed, &ring, path()) else { panic!("bit {bit}") };
            assert!(error.is_corruption(), "bit {bit}: {error}");
        }
    }

    /// Nothing of what the tag covers is left, so no key can tell.
    #[test]
    fn a_header_of_random_bytes_is_damaged_and_needs_no_other_key() {
        let ring = ring(5, 1);
        let (bytes, _) = create(&ring, Layout::Pages, path()).unwrap();
        for (from, to) in [(8, 40), (16, 64), (20, HEADER_BYTES), (16, 17)] {
            let mut changed = bytes;
            changed[from..to].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(73) ^ 0x5a);
            let Err(error) = read(&changed, &ring, path()) else { panic!("{from}") };
            assert!(error.is_corruption(), "{from}: {error}");
        }
    }

    #[test]
    fn streams_of_development_versions_are_refused_and_told_apart() {
        let ring = ring(5, 1);
        for (layout, why) in [(2_u32, "a development version"), (4, "layout 4; this build")] {
            let (mut bytes, key) = create(&ring, Layout::Frames, path()).unwrap();
            bytes[12..16].copy_from_slice(&layout.to_le_bytes());
            let sealed = tag(&key, &bytes[..TAG_AT]).unwrap();
            bytes[TAG_AT..].copy_from_slice(sealed.as_ref());
            let Err(error) = read(&bytes, &ring, path()) else { panic!("{why}") };
            assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains(why));
        }
    }

    #[test]
    fn what_was_cut_off_was_never_written() {
        let ring = ring(5, 1);
        let (bytes, _) = create(&ring, Layout::Pages, path()).unwrap();
        for len in 0..HEADER_BYTES {
            assert!(matches!(read(&bytes[..len], &ring, path()), Ok(Found::Unwritten)), "{len}");
            let mut zeros = [0; HEADER_BYTES];
            zeros[..len.min(8)].copy_from_slice(&bytes[..len.min(8)]);
            assert!(matches!(read(&zeros[..len], &ring, path()), Ok(Found::Unwritten)), "{len}");
        }
        assert!(matches!(read(&[0; HEADER_BYTES], &ring, path()), Ok(Found::Unwritten)));
    }

    #[test]
    fn other_files_are_told_from_encrypted_ones_and_other_keys_from_damage() {
        let given = ring(5, 1);
        for plain in [&b"MANIFEST-000001 01234567\n"[..], b"TERRALOG and more", &[1; 500]] {
            let first = &plain[..plain.len().min(HEADER_BYTES)];
            assert!(matches!(read(first, &given, path()), Ok(Found::Plain)));
        }
        for (made, why) in [(ring(4, 1), "key 4, which is not"), (ring(5, 2), "another key 5")] {
            let (bytes, _) = create(&made, Layout::Frames, path()).unwrap();
            let Err(error) = read(&bytes, &given, path()) else { panic!("{why}") };
            assert!(matches!(error, Error::Unsupported { .. }) && error.to_string().contains(why));
        }
    }
}
