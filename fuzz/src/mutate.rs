//! Changes bytes as disks, crashes and liars do: flipped bits, edge values in numbers, cut ends,
//! pieces lost, doubled, zeroed, and taken from another file.

use terrace_base::Rng;

/// No input gets longer.
pub const MAX_BYTES: usize = 64 << 10;

/// Most changes to one input.
const MAX_CHANGES: u64 = 6;

/// Longest piece that is inserted, removed or zeroed.
const MAX_PIECE: u64 = 64;

/// Numbers at which arithmetic on lengths and offsets breaks.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];

/// A changed copy of one of `seeds`; a function of `rng` and them alone.
pub fn mutant(rng: &mut impl Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = pick(rng, seeds).cloned().unwrap_or_default();
    for _ in 0..=rng.below(MAX_CHANGES) {
        change(rng, &mut bytes, seeds);
    }
    bytes.truncate(MAX_BYTES);
    bytes
}

fn change(rng: &mut impl Rng, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    match rng.below(12) {
        0..=2 => {
            if let Some(byte) = at(rng, bytes) {
                *byte ^= 1 << rng.below(8);
            }
        }
        3 | 4 => {
            if let Some(byte) = at(rng, bytes) {
                *byte = rng.next_u64() as u8;
            }
        }
        5 | 6 => write_edge(rng, bytes),
        7 => bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize),
        8 => {
            let (start, end) = piece(rng, bytes);
            bytes.drain(start..end);
        }
        9 => {
            let (start, end) = piece(rng, bytes);
            if rng.one_in(2) {
                bytes[start..end].fill(0);
            } else {
                let copy = bytes[start..end].to_vec();
                bytes.splice(start..start, copy);
            }
        }
        10 => {
            let start = rng.below(bytes.len() as u64 + 1) as usize;
            let count = rng.below(MAX_PIECE) as usize;
            let noise: Vec<u8> = (0..count).map(|_| rng.next_u64() as u8).collect();
            bytes.splice(start..start, noise);
        }
        _ => {
            let Some(other) = pick(rng, seeds) else { return };
            let keep = rng.below(bytes.len() as u64 + 1) as usize;
            let from = rng.below(other.len() as u64 + 1) as usize;
            bytes.truncate(keep);
            bytes.extend_from_slice(&other[from..]);
        }
    }
}

/// Puts an edge value, or one beside it, where a number may stand.
fn write_edge(rng: &mut impl Rng, bytes: &mut [u8]) {
    let edge = EDGES[rng.below(EDGES.len() as u64) as usize];
    let value = edge.wrapping_add(rng.below(3)).wrapping_sub(1);
    let width = 1 << rng.below(4);
    let start = rng.below(bytes.len() as u64 + 1) as usize;
    let room = &mut bytes[start..];
    let width = room.len().min(width);
    room[..width].copy_from_slice(&value.to_le_bytes()[..width]);
}

/// The bounds of a short piece of `bytes`.
fn piece(rng: &mut impl Rng, bytes: &[u8]) -> (usize, usize) {
    let start = rng.below(bytes.len() as u64 + 1) as usize;
    let len = rng.below(MAX_PIECE) as usize;
    (start, (start + len).min(bytes.len()))
}

fn at<'a>(rng: &mut impl Rng, bytes: &'a mut [u8]) -> Option<&'a mut u8> {
    let at = rng.below(bytes.len().max(1) as u64) as usize;
    bytes.get_mut(at)
}

fn pick<'a>(rng: &mut impl Rng, seeds: &'a [Vec<u8>]) -> Option<&'a Vec<u8>> {
    seeds.get(rng.below(seeds.len().max(1) as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use terrace_base::SplitMix64;

    #[test]
    fn mutants_differ_and_replay() {
        let seeds = [b"a seed of some length".to_vec(), b"another".to_vec(), Vec::new()];
        let make = |seed| mutant(&mut SplitMix64::new(seed), &seeds);
        let made: HashSet<_> = (0..1000).map(make).collect();
        assert!(made.len() > 600, "{}", made.len());
        assert_eq!(make(7), make(7));
        assert!(made.iter().any(|bytes| bytes.len() > 40));
        assert!(made.iter().any(|bytes| !bytes.is_empty() && bytes.len() < 5));
    }

    #[test]
    fn nothing_to_start_from_is_no_obstacle() {
        for seed in 0..200 {
            mutant(&mut SplitMix64::new(seed), &[]);
            mutant(&mut SplitMix64::new(seed), &[Vec::new()]);
            assert!(mutant(&mut SplitMix64::new(seed), &[vec![1; MAX_BYTES]]).len() <= MAX_BYTES);
        }
    }
}
