//! Running the binary in a directory of its own.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_resp::test_client::HANG_GUARD;

/// A directory, and the binary run in it.
pub struct Program {
    home: TempDir,
}

/// What a run left.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Program {
    pub fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The store's directory if no other is named.
    pub fn store(&self) -> PathBuf {
        self.path("terrace-data")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
        command.args(arguments).current_dir(self.home.path());
        command.env_remove("TERRACE_DIR").stdin(Stdio::null());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(arguments, self.command(arguments).output().unwrap())
    }

    /// As [`Program::run`], with this on standard input.
    pub fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Ran {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A program that refuses its input closes it early.
        let _ = child.stdin.take().unwrap().write_all(input);
        Ran::of(arguments, child.wait_with_output().unwrap())
    }

    /// As [`Program::run`], with a standard output whose reader has gone.
    pub fn run_unread(&self, arguments: &[&str]) -> Ran {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Ran::of(arguments, self.command(arguments).stdout(writer).output().unwrap())
    }

    /// Runs, must succeed; returns standard output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{arguments:?}");
        ran.out
    }

    /// Runs, must end with `code` and one line on standard error; returns that.
    pub fn fails(&self, code: i32, arguments: &[&str]) -> String {
        self.run(arguments).failed(code)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_string()
    }

    /// Names of the files in the store that end so.
    pub fn files(&self, ending: &str) -> Vec<PathBuf> {
        files(&self.store(), ending)
    }

    /// The first SST that the manifest names.
    pub fn live_sst(&self) -> PathBuf {
        let ran = self.run(&["inspect", "lsm"]);
        let first_words = ran.out.lines().filter_map(|line| line.split_whitespace().next());
        let mut numbers = first_words.filter(|word| word.len() == 6);
        let number = numbers.find(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
        self.store().join(format!("{}.sst", number.expect("no file in `inspect lsm`")))
    }

    /// A store of some SSTs.
    pub fn with_store() -> Self {
        let program = Self::new();
        let mut lines = String::new();
        for n in 0..20_000 {
            writeln!(lines, "key{n:06}\tvalue {n} of a record that takes some room").unwrap();
        }
        let file = program.write("input.tsv", lines);
        program.ok(&["load", &file, "--memory", "4M"]);
        program
    }
}

pub fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.to_str().unwrap().ends_with(ending)).collect();
    paths.sort();
    paths
}

impl Ran {
    pub fn of(arguments: &[&str], output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code();
        let code = code.unwrap_or_else(|| panic!("{arguments:?} ended by {}", output.status));
        Self { code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// Must have ended with `code` and one line on standard error; returns that.
    pub fn failed(self, code: i32) -> String {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.out, self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.starts_with("terrace: "), "{}", self.err);
        self.err
    }
}

/// The other end of a named pipe that a process is to read: it waits for what never comes.
pub fn holds_up(child: &mut Child, pipe: &Path) -> File {
    let mut for_writing = File::options();
    for_writing.write(true).custom_flags(libc::O_NONBLOCK);
    loop {
        match for_writing.open(pipe) {
            Ok(writer) => return writer,
            // Nobody reads it yet.
            Err(_) => assert_eq!(child.try_wait().unwrap(), None, "it ended before"),
        }
        std::thread::yield_now();
    }
}

/// How a process ends, which it must.
pub fn end_of(mut child: Child) -> ExitStatus {
    let end = Instant::now() + HANG_GUARD;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() >= end {
            child.kill().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Flips bits of one byte of a file.
pub fn corrupt(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x5a;
    std::fs::write(path, bytes).unwrap();
}
