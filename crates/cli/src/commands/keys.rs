//! `terrace keys`, `terrace encrypt` and `terrace decrypt`: encryption at rest.

use crate::files;
use crate::outcome::{Outcome, tell};
use crate::output_file::OutputFile;
use crate::print::{self, Grouped};
use crate::standard_output;
use crate::store;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use terrace::vfs::PosixVfs;
use terrace_encryption::{
    Key, KeyError, KeyRing, Target, UsedKeys, read_key_file, rewrite, used_keys,
};
use terrace_inspect::SizeBytes;

/// Arguments of `keys`.
#[derive(Debug, clap::Args)]
pub struct KeysArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Add a new key to a key file, which is made if it is missing; new files are encrypted with it
    New {
        /// The key file
        file: PathBuf,
    },
    /// Print which keys the files of a store need; no key is needed for that
    Used {
        /// Directory of the store
        dir: PathBuf,
    },
}

/// Arguments of `encrypt` and `decrypt`.
#[derive(Debug, clap::Args)]
pub struct RewriteArgs {
    /// Directory of the store, which nobody may have open
    dir: PathBuf,
}

/// Adds a key, or tells which are used.
pub fn run(args: &KeysArgs) -> Result<Outcome> {
    match &args.action {
        Action::New { file } => add(file),
        Action::Used { dir } => tell_used(dir),
    }
}

fn add(named: &Path) -> Result<Outcome> {
    // Of a link, the place that it leads to: that is where another call may write.
    let file = &named.canonicalize().unwrap_or_else(|_| named.to_path_buf());
    // Of two that add a key at a time, the second one sees the key of the first.
    let folder = match file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => folder,
        None => Path::new("."),
    };
    let held = File::open(folder).and_then(|folder| folder.lock().map(|()| folder));
    let _held = held.with_context(|| format!("cannot lock {}", folder.display()))?;
    let old = match read_key_file(file) {
        Err(KeyError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Default::default()
        }
        Err(KeyError::Io { source, .. }) => {
            return Err(source).with_context(|| format!("cannot read {}", file.display()));
        }
        Err(KeyError::TooLong { path }) => {
            bail!("{} is longer than any key file", path.display())
        }
        old => old?,
    };
    let id = match KeyRing::parse(&old) {
        Ok(ring) => ring.active().checked_add(1).context("there is no larger number for a key")?,
        Err(KeyError::Empty) => 1,
        Err(error) => bail!("{}: {error}", file.display()),
    };
    let mut output = OutputFile::create(file)?;
    output.write_all(old.as_bytes())?;
    if !old.is_empty() && !old.ends_with('\n') {
        output.write_all(b"\n")?;
    }
    output.write_all(Key::generate()?.to_line(id).as_bytes())?;
    output.finish().with_context(|| format!("cannot write {}", file.display()))?;
    writeln!(
        standard_output::until_unread(),
        "key {id} is in {}; without this file nothing that is encrypted with it can be read",
        named.display()
    )?;
    Ok(Outcome::Done)
}

fn tell_used(dir: &Path) -> Result<Outcome> {
    store::check_directory(dir, "that of a store, or of backups")?;
    let found = used_keys(&*PosixVfs::shared(), dir)?;
    tell_found(found, &mut standard_output::read_or_not())
}

/// What is not known of some files is no answer to the question which keys may go.
fn tell_found(found: UsedKeys, out: &mut dyn Write) -> Result<Outcome> {
    for (id, used) in found.keys {
        let key = id.map_or("not encrypted".into(), |id| format!("key {id}"));
        let (files, bytes) = (Grouped(used.files), SizeBytes(used.bytes));
        writeln!(out, "{key}: {files} files, {bytes}")?;
    }
    for error in &found.unreadable {
        writeln!(out, "unknown key: {error}")?;
    }
    Ok(outcome(&found.unreadable))
}

/// How a command ends that could not read some files.
fn outcome(unreadable: &[terrace_base::Error]) -> Outcome {
    match unreadable.is_empty() {
        true => Outcome::Done,
        false => Outcome::Partial,
    }
}

/// Writes the files of a store anew that are not under the active key.
pub fn encrypt(args: &RewriteArgs) -> Result<Outcome> {
    convert(args, "encrypting", Target::Encrypted)
}

/// Writes the files of a store anew that are encrypted.
pub fn decrypt(args: &RewriteArgs) -> Result<Outcome> {
    convert(args, "decrypting", Target::Plain)
}

fn convert(args: &RewriteArgs, doing: &str, target: fn(KeyRing) -> Target) -> Result<Outcome> {
    let Some(key_file) = files::key_file() else {
        bail!("name the key file with --key-file or {}", files::KEY_FILE_VARIABLE)
    };
    let target = target(files::load_keys(key_file)?);
    store::check_directory(&args.dir, "that of a store")?;
    let bar = print::bytes_bar(0, doing);
    let below = PosixVfs::shared();
    let done = rewrite(&(below as _), &args.dir, &target, &mut |bytes| bar.inc(bytes));
    bar.finish_and_clear();
    let dir = args.dir.display();
    let done = done.with_context(|| format!("{doing} {dir} did not end"))?;
    let (written, bytes) = (Grouped(done.files), SizeBytes(done.bytes));
    writeln!(
        standard_output::until_unread(),
        "{written} files of {dir} are written anew ({bytes}), {} stay as they were",
        Grouped(done.kept)
    )?;
    for error in &done.unreadable {
        tell(&format!("as it was: {error}"));
    }
    Ok(outcome(&done.unreadable))
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_base::Error;
    use terrace_encryption::UsedKey;

    #[test]
    fn keys_are_not_all_told_if_those_of_a_file_are_unknown() {
        let told = |unreadable: Vec<Error>| {
            let keys = [(Some(2), UsedKey { files: 1, bytes: 5 })].into();
            let mut out = Vec::new();
            let outcome = tell_found(UsedKeys { keys, unreadable }, &mut out).unwrap();
            (outcome, String::from_utf8(out).unwrap())
        };
        let (outcome, text) = told(Vec::new());
        assert!(outcome == Outcome::Done && text.starts_with("key 2: 1 files"), "{text}");
        let lost = Error::io("read", Path::new("a.sst"), std::io::Error::other("lost"));
        let (outcome, text) = told(vec![lost]);
        assert_eq!(outcome, Outcome::Partial);
        assert!(text.contains("key 2: ") && text.contains("unknown key: "), "{text}");
    }
}
