//! What the system says of this process.

/// Bytes of it in memory (its resident set), where the system says it.
pub fn resident_bytes() -> Option<u64> {
    // Second field: pages (proc(5)).
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Bytes of memory that the machine has, where the system says it.
pub fn system_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = total.split_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Seconds that it has computed, by itself and in the kernel.
pub fn cpu_seconds() -> Option<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // After the name, which may contain anything.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    Some((ticks(11)? / per_second, ticks(12)? / per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_takes_some_memory_and_time() {
        if cfg!(target_os = "linux") {
            assert!(resident_bytes().unwrap() > 1 << 20);
            assert!(system_memory_bytes().unwrap() >= resident_bytes().unwrap());
            let (user, system) = cpu_seconds().unwrap();
            assert!(user >= 0.0 && system >= 0.0);
        }
    }
}
