//! Which C library a program needs: the newest version that one of its symbols asks for.

use anyhow::{Context, Result, ensure};

/// The start of names of symbols' versions in the C library.
const PREFIX: &[u8] = b"GLIBC_";

/// The newest that anything in a package may need, as `docs/install.md` says: Debian 12, Ubuntu 22.04 and RHEL 9 have it.
const OLDEST: (u32, u32) = (2, 34);

/// The same for packages of Python.
pub const MANYLINUX: &str = "manylinux_2_34";

/// The version that `program` needs; none if it names none.
pub fn needed(program: &[u8]) -> Option<(u32, u32)> {
    let places = program.windows(PREFIX.len()).enumerate().filter(|(_, bytes)| *bytes == PREFIX);
    let version = |at: usize| {
        let rest = &program[at + PREFIX.len()..];
        let is_part = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
        let end = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        let mut parts = std::str::from_utf8(&rest[..end]).ok()?.split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    places.filter_map(|(at, _)| version(at)).max()
}

/// Refuses a program that needs a newer one than is promised.
pub fn check(name: &str, program: &[u8]) -> Result<()> {
    let needed = needed(program).with_context(|| format!("{name} does not name its libc"))?;
    let ((major, minor), (most_major, most_minor)) = (needed, OLDEST);
    ensure!(
        needed <= OLDEST,
        "{name} needs glibc {major}.{minor}, and {most_major}.{most_minor} is promised: build it on a system with \
         an older one, or say --any-glibc"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_decides_which_libc_is_needed() {
        let program = b"x\0GLIBC_2.4\0GLIBC_2.34\0GLIBC_2.3.4\0GLIBC_PRIVATE\0GLIBC_";
        assert_eq!(needed(program), Some((2, 34)));
        assert_eq!(needed(b"static"), None);
    }

    #[test]
    fn what_needs_more_than_is_promised_is_refused() {
        check("it", b"GLIBC_2.34\0").unwrap();
        let refused = check("it", b"GLIBC_2.34\0GLIBC_2.35\0").unwrap_err().to_string();
        assert!(refused.starts_with("it needs glibc 2.35, and 2.34 is promised"), "{refused}");
        assert!(check("it", b"").is_err());
        assert_eq!(MANYLINUX, format!("manylinux_{}_{}", OLDEST.0, OLDEST.1));
    }
}
