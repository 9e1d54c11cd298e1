//! What one MiB more would save in each kind of pool, in microseconds of device time per second.
//!
//! All of them are estimates from counters that an engine has anyway. Rates are per second.

/// Bytes of the unit in which gains are counted.
pub const MIB: f64 = (1 << 20) as f64;

/// Of a cache, from its ghost list: reads per second that a cache larger by `ghost_bytes` would have
/// spared, at `read_us` each. 0 as long as nothing was evicted; `None` where the list is empty although
/// something was.
pub fn of_cache(
    ghost_hits_per_s: f64,
    ghost_bytes: u64,
    evictions: u64,
    read_us: f64,
) -> Option<f64> {
    if evictions == 0 {
        return Some(0.0);
    }
    let mib = ghost_bytes as f64 / MIB;
    (ghost_bytes > 0).then(|| ghost_hits_per_s * read_us / mib)
}

/// Of filters, from the price of filter memory: `lambda` wasted lookups saved per lookup and byte, of
/// which `missed` (0 to 1) have to read their block from the device.
pub fn of_filters(lambda: f64, lookups_per_s: f64, missed: f64, read_us: f64) -> f64 {
    lambda * lookups_per_s * MIB * missed.clamp(0.0, 1.0) * read_us
}

/// Of write memory: the derivative of what merging costs over the memory that is flushed at once.
///
/// A leveled tree merges about `k * ln(L / M)` bytes per byte written, `L` being the bytes of the
/// largest level and `M` the write memory (Luo and Carey, "Breaking Down Memory Walls", VLDB 2021,
/// section 5). With `k` from what is measured, `merged_per_byte = k * ln(L / M)`, the derivative is
/// `written * merged_per_byte / (M * ln(L / M))`.
///
/// A tree that is hardly larger than the memory counts as e times as large: there the formula has a
/// pole, and one level less is all that more memory can save.
pub fn of_write_memory(flow: &WriteFlow) -> f64 {
    if flow.memory_bytes == 0 {
        return 0.0;
    }
    let memory = flow.memory_bytes as f64;
    let depth = (flow.largest_level_bytes as f64 / memory).max(1.0).ln().max(1.0);
    let merged_per_s = flow.written_bytes_per_s * flow.merged_per_byte;
    merged_per_s * flow.us_per_merged_byte * MIB / (memory * depth)
}

/// What a store writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WriteFlow {
    /// Bytes that flushes write.
    pub written_bytes_per_s: f64,
    /// Bytes that merges read and write for each of them.
    pub merged_per_byte: f64,
    /// Time that a byte of a merge takes.
    pub us_per_merged_byte: f64,
    /// Write memory.
    pub memory_bytes: u64,
    /// The largest level.
    pub largest_level_bytes: u64,
}

/// Relative standard error of a rate of which `events` were counted, each standing for `weight` of
/// them: that of a Poisson count.
pub fn counting_noise(events: f64, weight: f64) -> f64 {
    (weight / events.max(weight)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_gains_what_its_ghosts_say() {
        assert_eq!(of_cache(50.0, 2 << 20, 9, 80.0), Some(2000.0));
        assert_eq!(of_cache(50.0, 0, 0, 80.0), Some(0.0), "it never was full");
        assert_eq!(of_cache(50.0, 0, 3, 80.0), None);
    }

    #[test]
    fn filters_gain_the_price_times_the_lookups_that_miss() {
        assert_eq!(of_filters(1e-6, 1000.0, 0.25, 100.0), 1e-6 * 1000.0 * MIB * 0.25 * 100.0);
        assert_eq!(of_filters(0.0, 1000.0, 1.0, 100.0), 0.0);
    }

    #[test]
    fn write_memory_gains_as_the_derivative_of_the_cost_says() {
        let (k, level, written) = (5.0, 8u64 << 30, 1e6);
        let cost = |m: f64| written * k * (level as f64 / m).ln() * 0.01;
        let memory = 64u64 << 20;
        let m = memory as f64;
        let flow = WriteFlow {
            written_bytes_per_s: written,
            merged_per_byte: k * (level as f64 / m).ln(),
            us_per_merged_byte: 0.01,
            memory_bytes: memory,
            largest_level_bytes: level,
        };
        let saved = cost(m) - cost(m + MIB);
        let gain = of_write_memory(&flow);
        assert!((gain / saved - 1.0).abs() < 0.02, "{gain} {saved}");
        let small = WriteFlow { largest_level_bytes: memory, ..flow };
        assert!(of_write_memory(&small).is_finite());
        assert_eq!(of_write_memory(&WriteFlow { memory_bytes: 0, ..flow }), 0.0);
    }

    #[test]
    fn the_noise_of_a_count_falls_with_its_root() {
        assert_eq!(counting_noise(100.0, 1.0), 0.1);
        assert_eq!(counting_noise(800.0, 8.0), 0.1);
        assert_eq!(counting_noise(0.0, 8.0), 1.0);
    }
}
