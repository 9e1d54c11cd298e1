//! `MEMORY DOCTOR`: whether the process keeps to its budget, where more memory would save most, and what
//! moves between the pools. `EXPLAIN` says the last two of a lookup that read the device.

use terrace::{MemoryShape, MemorySplit, PoolShape};

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
    format!("Memory is within its budget of {budget_mib} MiB. {}", of_pools(shape))
}

/// Where one more MiB would save the most and, where the budget moves, what was decided last.
pub(crate) fn of_pools(shape: &MemoryShape) -> String {
    let best = shape
        .pools
        .iter()
        .filter_map(|pool| Some((pool.name, pool.saved_reads_per_mib_s?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let worth = match best {
        Some((pool, saved)) if saved > 0.0 => format!(
            "One more MiB would save the most in the pool `{pool}`: about {saved:.1} device reads a second."
        ),
        _ => "More of it would save nothing now.".to_owned(),
    };
    worth + &of_loans(shape) + &of_moves(shape)
}

/// What pools lend to the block cache.
fn of_loans(shape: &MemoryShape) -> String {
    let lending = shape.pools.iter().filter(|pool| pool.lent_bytes > 0);
    let of_pool = |pool: &PoolShape| {
        let lent_mib = pool.lent_bytes as f64 / MIB;
        format!(" Blocks use up to {lent_mib:.1} MiB that `{}` do not need now.", pool.name)
    };
    lending.map(of_pool).collect()
}

/// What the arbiter has to say; nothing where the budget does not move.
fn of_moves(shape: &MemoryShape) -> String {
    let Some(decision) = shape.decision.as_ref().filter(|_| shape.split == MemorySplit::Auto)
    else {
        return String::new();
    };
    let mut text = format!(" Memory has moved {} times; at the last step {decision}.", shape.moves);
    if let Some(last) = shape.last_move.as_ref().filter(|last| !decision.contains(*last)) {
        text.push_str(&format!(" The last move: {last}."));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_compares_the_budget_with_what_the_process_holds() {
        let pool = |name, used_bytes, saved_reads_per_mib_s| PoolShape {
            name,
            used_bytes,
            limit_bytes: used_bytes,
            lent_bytes: 0,
            saved_reads_per_mib_s,
            saved_us_per_mib_s: None,
        };
        let mut shape = MemoryShape { budget_bytes: 64 << 20, ..MemoryShape::default() };
        let idle = of(&shape, 70 << 20);
        assert!(
            idle.contains("within its budget of 64 MiB") && idle.ends_with("save nothing now."),
            "{idle}"
        );
        shape.pools = vec![pool("memtables", 4 << 20, Some(2.5)), pool("blocks", 1 << 20, None)];
        let busy = of(&shape, 128 << 20);
        assert!(busy.contains("pool `memtables`: about 2.5 device reads"), "{busy}");
        assert!(!busy.contains("moved") && !busy.contains("do not need"), "{busy}");
        shape.pools[0].lent_bytes = 3 << 20;
        let lending = of(&shape, 128 << 20);
        assert!(lending.contains("up to 3.0 MiB that `memtables` do not need now."), "{lending}");
        shape.split = MemorySplit::Auto;
        shape.decision = Some("nothing moves: it is balanced".into());
        (shape.last_move, shape.moves) = (Some("4 KiB from filters to blocks".into()), 3);
        let moving = of(&shape, 128 << 20);
        assert!(
            moving.ends_with(
                "moved 3 times; at the last step nothing moves: it is balanced. \
                 The last move: 4 KiB from filters to blocks."
            ),
            "{moving}"
        );
        shape.decision = Some("moved 4 KiB from filters to blocks".into());
        let moved = of(&shape, 128 << 20);
        assert!(moved.ends_with("at the last step moved 4 KiB from filters to blocks."), "{moved}");
        let over = of(&shape, 129 << 20);
        assert!(
            over.contains("has 129 MiB in memory") && over.contains("memtables 4.0, blocks 1.0"),
            "{over}"
        );
    }
}
