//! Passwords: kept as their SHA-256 only, compared in constant time, made from the system's
//! randomness.

use super::error::AclError;
use sha2::{Digest as _, Sha256};
use std::fmt;
use terrace_base::hex::{self, Hex};

/// The SHA-256 of a password. Comparing takes the same time wherever the first difference is.
#[derive(Clone, Copy)]
pub struct PasswordHash([u8; 32]);

impl PasswordHash {
    /// That of a password.
    pub fn of(password: &[u8]) -> Self {
        Self(Sha256::digest(password).into())
    }

    /// Reads 64 hexadecimal digits in lower case, as `#` rules have them.
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        if text.iter().any(u8::is_ascii_uppercase) {
            return None;
        }
        hex::decode(text)?.try_into().ok().map(Self)
    }
}

impl PartialEq for PasswordHash {
    fn eq(&self, other: &Self) -> bool {
        let differing = self.0.iter().zip(&other.0).fold(0, |bits, (a, b)| bits | (a ^ b));
        std::hint::black_box(differing) == 0
    }
}

impl Eq for PasswordHash {}

impl fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Hex(&self.0))
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// ACL GENPASS: a random password of at least `bits` bits, as hexadecimal digits.
///
/// # Errors
/// [`AclError::PasswordBits`] unless `bits` is 1 to 4096.
pub fn generate(bits: i64) -> Result<String, AclError> {
    let digits = match bits {
        1..=4096 => (bits as usize).div_ceil(4),
        _ => return Err(AclError::PasswordBits),
    };
    let mut random = vec![0; digits.div_ceil(2)];
    let mut filled = 0;
    while filled < random.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut random[filled..], flags) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(AclError::System(error.to_string())),
        }
    }
    let mut text = Hex(&random).to_string();
    text.truncate(digits);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_standard() {
        let hash = PasswordHash::of(b"abc");
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_string(), hex);
        assert_eq!(PasswordHash::from_hex(hex.as_bytes()), Some(hash));
        assert_ne!(hash, PasswordHash::of(b"abd"));
        assert!(!format!("{hash:?}").contains("ba78"));
        let upper = hex.to_uppercase();
        for text in ["", &hex[1..], &upper, &format!("{hex}0"), &hex.replace('b', "g")] {
            assert_eq!(PasswordHash::from_hex(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn generated_passwords_have_the_length_asked_for() {
        for (bits, digits) in [(1, 1), (4, 1), (5, 2), (256, 64), (4096, 1024)] {
            let password = generate(bits).unwrap();
            assert_eq!(password.len(), digits);
            assert!(password.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        assert_ne!(generate(256).unwrap(), generate(256).unwrap());
        for bits in [0, -1, 4097, i64::MAX, i64::MIN] {
            assert_eq!(generate(bits), Err(AclError::PasswordBits));
        }
    }
}
