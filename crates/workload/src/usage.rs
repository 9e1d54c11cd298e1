//! What a stretch of work cost this process, from the kernel's counters.
//!
//! Bytes are `/proc/self/io`'s `read_bytes` (fetched from a device) and `write_bytes` (handed to
//! the page cache for a device, or written past it), read calls its `syscr` (`read`, `pread` and
//! their like; reads submitted through an `io_uring` are not among them); processor time is that of all threads; memory
//! is the peak of the resident set since the stretch began. Each engine and repeat runs in a
//! process of its own, so none of this is another engine's.

use anyhow::{Context, Result};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::path::Path;

/// A device read is counted in units of this many bytes.
pub const DEVICE_READ_BYTES: f64 = 4096.0;

/// The counters since the process began.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    /// Bytes fetched from devices.
    pub read_bytes: u64,
    /// Read calls.
    pub read_calls: u64,
    /// Bytes written towards devices.
    pub written_bytes: u64,
    /// Processor seconds, user and system, of all threads.
    pub cpu_s: f64,
}

impl Totals {
    /// Reads the counters.
    pub fn now() -> Result<Self> {
        let io = std::fs::read_to_string("/proc/self/io").context("reading /proc/self/io")?;
        let field =
            |name| number_after(&io, name).with_context(|| format!("{name} in /proc/self/io"));
        Ok(Self {
            read_bytes: field("read_bytes:")?,
            read_calls: field("syscr:")?,
            written_bytes: field("write_bytes:")?,
            cpu_s: cpu_seconds(),
        })
    }
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What a stretch of work cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// Bytes fetched from devices.
    pub read_bytes: u64,
    /// Read calls.
    pub read_calls: u64,
    /// Bytes written towards devices.
    pub written_bytes: u64,
    /// Processor seconds of all threads.
    pub cpu_s: f64,
    /// Peak resident bytes.
    pub rss_bytes: u64,
}

/// A stretch of work under way.
#[derive(Debug)]
pub struct Window(Totals);

impl Window {
    /// Begins a stretch; the memory peak starts anew (where the kernel lets a process do so,
    /// else it is the peak since the process began).
    pub fn open() -> Result<Self> {
        // "5" resets the peak; see proc_pid_clear_refs(5).
        std::fs::write("/proc/self/clear_refs", "5").ok();
        Ok(Self(Totals::now()?))
    }

    /// The cost so far.
    pub fn usage(&self) -> Result<Usage> {
        let now = Totals::now()?;
        let status = std::fs::read_to_string("/proc/self/status")?;
        let peak_kib = number_after(&status, "VmHWM:").context("VmHWM in /proc/self/status")?;
        Ok(Usage {
            read_bytes: now.read_bytes - self.0.read_bytes,
            read_calls: now.read_calls - self.0.read_calls,
            written_bytes: now.written_bytes - self.0.written_bytes,
            cpu_s: now.cpu_s - self.0.cpu_s,
            rss_bytes: peak_kib * 1024,
        })
    }
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes that the files below `dir` occupy on their file system.
pub fn dir_bytes(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        // A compaction may remove a file between the listing and here.
        let entry = entry?;
        let Ok(metadata) = entry.metadata() else { continue };
        bytes +=
            if metadata.is_dir() { dir_bytes(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}

/// Has the kernel write what it holds for the file system of `dir`.
pub fn sync_file_system(dir: &Path) -> Result<()> {
    rustix::fs::syncfs(std::fs::File::open(dir)?)?;
    Ok(())
}

/// Free bytes of the file system that `dir` is on.
pub fn free_bytes(dir: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// Lets this process, and what it starts, open as many files as the system allows.
pub fn raise_open_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).ok();
}

/// The machine in a line: processor, cores, memory, kernel.
pub fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or(std::env::consts::ARCH, |(_, model)| model.trim());
    let memory_gib = memory_bytes() as f64 / (1u64 << 30) as f64;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{model}, {cores} cores, {memory_gib:.0} GiB, Linux {}",
        read("/proc/sys/kernel/osrelease").trim()
    )
}

/// The machine's memory; 0 if unknown.
pub fn memory_bytes() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    number_after(&meminfo, "MemTotal:").unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_sees_processor_time_memory_and_writes() {
        let dir = tempfile::tempdir_in(std::env::temp_dir()).unwrap();
        let window = Window::open().unwrap();
        let block = vec![1u8; 32 << 20];
        std::fs::write(dir.path().join("f"), &block).unwrap();
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        let usage = window.usage().unwrap();
        assert_eq!(sum, 32 << 20);
        assert!(usage.cpu_s > 0.0 && usage.rss_bytes > 32 << 20, "{usage:?}");
        assert!(dir_bytes(dir.path()).unwrap() >= 32 << 20);
        assert!(free_bytes(dir.path()).unwrap() > 0);
        sync_file_system(dir.path()).unwrap();
    }

    #[test]
    fn read_calls_are_counted_one_by_one() {
        use std::os::unix::fs::FileExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, [7; 4096]).unwrap();
        let file = std::fs::File::open(path).unwrap();
        let window = Window::open().unwrap();
        for _ in 0..500 {
            file.read_exact_at(&mut [0; 16], 100).unwrap();
        }
        let calls = window.usage().unwrap().read_calls;
        // Other tests of this process read meanwhile.
        assert!(calls >= 500, "{calls} calls");
    }

    #[test]
    fn numbers_are_found_by_name() {
        assert_eq!(number_after("rchar: 1\nread_bytes: 42\n", "read_bytes:"), Some(42));
        assert_eq!(number_after("VmHWM:\t  8 kB\n", "VmHWM:"), Some(8));
        assert_eq!(number_after("x", "y"), None);
        assert!(machine().contains("cores"));
    }
}
