//! `MEMORY DOCTOR`: whether the process keeps to its budget, and where more memory would save most.

use terrace::MemoryShape;

/// What a process may have in memory besides the budget of its store: code, stacks, connections, buffers of
/// flushes and compactions.
const PROCESS_BYTES: u64 = 64 << 20;
const MIB: f64 = (1 << 20) as f64;

/// What to say of a store with this memory in a process with this many bytes resident.
pub(crate) fn of(shape: &MemoryShape, resident_bytes: u64) -> String {
    let budget_mib = shape.budget_bytes >> 20;
    if resident_bytes > shape.budget_bytes + PROCESS_BYTES {
        let pools: Vec<String> = shape
            .pools
            .iter()
            .map(|pool| format!("{} {:.1}", pool.name, pool.used_bytes as f64 / MIB))
            .collect();
        return format!(
            "The process has {} MiB in memory, with a budget of {budget_mib} MiB for the store and {} MiB \
             for everything else. The pools of the store hold, in MiB: {}. What is above that are buffers of \
             connections, flushes and compactions, and memory that the allocator has not given back.",
            resident_bytes >> 20,
            PROCESS_BYTES >> 20,
            pools.join(", ")
        );
    }
    let best = shape
        .pools
        .iter()
        .filter_map(|pool| Some((pool.name, pool.saved_reads_per_mib_s?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    match best {
        Some((pool, saved)) if saved > 0.0 => format!(
            "Memory is within its budget of {budget_mib} MiB. One more MiB would save the most in the \
             pool `{pool}`: about {saved:.1} device reads a second."
        ),
        _ => format!(
            "Memory is within its budget of {budget_mib} MiB, and more of it would save nothing now."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace::PoolShape;

    #[test]
    fn the_advice_compares_the_budget_with_what_the_process_holds() {
        let pool = |name, used_bytes, saved_reads_per_mib_s| PoolShape {
            name,
            used_bytes,
            limit_bytes: used_bytes,
            saved_reads_per_mib_s,
        };
        let mut shape = MemoryShape { budget_bytes: 64 << 20, pools: Vec::new() };
        let idle = of(&shape, 70 << 20);
        assert!(
            idle.contains("within its budget of 64 MiB") && idle.contains("save nothing"),
            "{idle}"
        );
        shape.pools = vec![pool("memtables", 4 << 20, Some(2.5)), pool("blocks", 1 << 20, None)];
        let busy = of(&shape, 128 << 20);
        assert!(busy.contains("pool `memtables`: about 2.5 device reads"), "{busy}");
        let over = of(&shape, 129 << 20);
        assert!(
            over.contains("has 129 MiB in memory") && over.contains("memtables 4.0, blocks 1.0"),
            "{over}"
        );
    }
}
