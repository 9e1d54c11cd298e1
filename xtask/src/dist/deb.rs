//! A package for Debian, as `deb(5)` says: an `ar` archive of three members.
//!
//! ```text
//! "!<arch>\n"
//! debian-binary    "2.0\n"
//! control.tar.gz   control, conffiles, scripts of the maintainer
//! data.tar.gz      what is installed, from the root on
//! each: name 16 | time 12 | uid 6 | gid 6 | mode 8 | size 10 | "`\n", content, "\n" if its size is odd
//! ```

use super::files::Files;
use super::glibc;
use anyhow::{Context, Result, bail};
use std::fmt::Write;

/// What a package is made of.
pub struct Deb<'a> {
    /// The version of the program.
    pub version: &'a str,
    /// What is installed, from the root on.
    pub files: &'a Files,
    /// What dpkg keeps the administrator's changes of: absolute paths.
    pub conffiles: &'a [&'a str],
    /// Scripts of the maintainer, by name.
    pub scripts: &'a [(&'a str, String)],
    /// The program, which says what it needs of the C library.
    pub program: &'a [u8],
    /// Time of all files, in seconds since 1970.
    pub time_s: u64,
}

impl Deb<'_> {
    /// The bytes of the package.
    pub fn build(&self) -> Result<Vec<u8>> {
        let mut control = Files::default();
        control.add("control", 0o644, self.control()?);
        let lines: String = self.conffiles.iter().map(|path| format!("{path}\n")).collect();
        control.add("conffiles", 0o644, lines);
        for (name, text) in self.scripts {
            control.add(name, 0o755, text.as_str());
        }
        let mut out = b"!<arch>\n".to_vec();
        self.member(&mut out, "debian-binary", b"2.0\n");
        self.member(&mut out, "control.tar.gz", &control.tar_gz("./", self.time_s)?);
        self.member(&mut out, "data.tar.gz", &self.files.tar_gz("./", self.time_s)?);
        Ok(out)
    }

    fn member(&self, out: &mut Vec<u8>, name: &str, content: &[u8]) {
        let (time, size) = (self.time_s, content.len());
        let header = format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 100_644);
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(content);
        if size % 2 == 1 {
            out.push(b'\n');
        }
    }

    fn control(&self) -> Result<String> {
        let (major, minor) =
            glibc::needed(self.program).context("the program does not name its libc")?;
        let mut text = String::new();
        let fields = [
            ("Package", "terrace".to_string()),
            ("Version", self.version.to_string()),
            ("Architecture", architecture()?.to_string()),
            ("Maintainer", "The Terrace developers".to_string()),
            ("Installed-Size", self.files.size_bytes().div_ceil(1024).to_string()),
            ("Depends", format!("adduser, libc6 (>= {major}.{minor}), libgcc-s1")),
            ("Section", "database".to_string()),
            ("Priority", "optional".to_string()),
            ("Description", "key-value store on disk that speaks the Redis protocol".to_string()),
        ];
        for (name, value) in fields {
            writeln!(text, "{name}: {value}")?;
        }
        text.push_str(
            " Terrace keeps sorted keys and values in an LSM tree and serves them to Redis clients,\n \
             with Prometheus metrics and a dashboard. This package has the program `terrace` and a\n \
             service of systemd.\n",
        );
        Ok(text)
    }
}

/// Debian's name of the architecture that this program was built for.
pub fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("Debian's name of {other} is not known"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_member_is_padded() {
        let mut files = Files::default();
        files.add("usr/bin/terrace", 0o755, "x");
        let program = b"GLIBC_2.36\0";
        let mut deb =
            Deb { version: "1.2", files: &files, conffiles: &[], scripts: &[], program, time_s: 7 };
        let mut out = Vec::new();
        deb.member(&mut out, "a", b"123");
        assert_eq!(out.len(), 64);
        assert_eq!(&out[..60], b"a               7           0     0     100644  3         `\n");
        let bytes = deb.build().unwrap();
        assert!(bytes.starts_with(b"!<arch>\ndebian-binary   7 "), "{}", bytes.escape_ascii());
        deb.program = b"";
        assert!(deb.build().is_err());
    }
}
