//! What the kernel has noted of this process.

/// The most that was ever resident of this process, in bytes.
pub fn peak() -> u64 {
    noted("VmHWM:")
}

/// What is resident of this process now, in bytes.
pub fn now() -> u64 {
    noted("VmRSS:")
}

fn noted(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}
