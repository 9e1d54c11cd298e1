//! Blocked Bloom filter.

const BLOCK: usize = 64;

pub(crate) fn build(hashes: &[u64], bits_per_key: f64, out: &mut Vec<u8>) {
    let blocks = ((hashes.len() as f64 * bits_per_key / 512.0).ceil() as usize).max(1);
    let start = out.len();
    out.resize(start + blocks * BLOCK, 0);
    for hash in hashes {
        let block = block_of(blocks, *hash) * BLOCK;
        for probe in positions(*hash) {
            out[start + block + probe / 8] |= 1 << (probe % 8);
        }
    }
}

fn block_of(blocks: usize, hash: u64) -> usize {
    ((hash >> 32).wrapping_mul(blocks as u64) >> 32) as usize
}

fn positions(hash: u64) -> impl Iterator<Item = usize> {
    let low = hash as u32;
    (0..6u32).map(move |n| (low.wrapping_mul(0x9e37_79b9u32.wrapping_mul(2 * n + 1)) >> 23) as usize)
}

pub(crate) fn may_contain(bytes: &[u8], hash: u64) -> bool {
    if bytes.is_empty() || !bytes.len().is_multiple_of(BLOCK) {
        return true;
    }
    let block = block_of(bytes.len() / BLOCK, hash) * BLOCK;
    positions(hash).all(|probe| bytes[block + probe / 8] & (1 << (probe % 8)) != 0)
}

pub(crate) fn prefetch(bytes: &[u8], hash: u64) {
    crate::machine::prefetch_read(bytes, block_of(bytes.len() / BLOCK, hash) * BLOCK);
}

pub(crate) fn theoretical_fpr(bits_per_key: f64) -> f64 {
    0.62f64.powf(bits_per_key)
}
