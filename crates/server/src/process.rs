//! What the system says of this process.

/// Bytes of it in memory (its resident set), where the system says it.
pub fn resident_bytes() -> Option<u64> {
    // Second field: pages (proc(5)).
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
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
            let (user, system) = cpu_seconds().unwrap();
            assert!(user >= 0.0 && system >= 0.0);
        }
    }
}
