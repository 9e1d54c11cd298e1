//! The bytes of a simulated file: chunks that images share until one side changes them.

use std::sync::Arc;

/// Bytes of a full chunk; what a write after an image copies at most.
const CHUNK_BYTES: usize = 32 << 10;

/// Bytes in copy-on-write chunks. Invariant: every chunk but the last is full, none is empty.
#[derive(Clone, Default)]
pub(super) struct Content {
    chunks: Vec<Arc<Vec<u8>>>,
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        match self.chunks.split_last() {
            Some((last, full)) => (full.len() * CHUNK_BYTES + last.len()) as u64,
            None => 0,
        }
    }

    pub(super) fn append(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            match self.chunks.last_mut() {
                Some(last) if last.len() < CHUNK_BYTES => {
                    let (now, rest) = data.split_at(data.len().min(CHUNK_BYTES - last.len()));
                    Arc::make_mut(last).extend_from_slice(now);
                    data = rest;
                }
                _ => {
                    let (now, rest) = data.split_at(data.len().min(CHUNK_BYTES));
                    self.chunks.push(Arc::new(now.to_vec()));
                    data = rest;
                }
            }
        }
    }

    /// Copies what there is from `offset` on into `buf`; says how much that was.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let mut chunk = (offset / CHUNK_BYTES as u64) as usize;
        let mut from = (offset % CHUNK_BYTES as u64) as usize;
        let mut done = 0;
        while done < buf.len() {
            let Some(bytes) = self.chunks.get(chunk).and_then(|chunk| chunk.get(from..)) else {
                break;
            };
            let len = bytes.len().min(buf.len() - done);
            buf[done..done + len].copy_from_slice(&bytes[..len]);
            done += len;
            chunk += 1;
            from = 0;
        }
        done
    }

    pub(super) fn truncate(&mut self, len: u64) {
        if len >= self.len() {
            return;
        }
        let full = (len / CHUNK_BYTES as u64) as usize;
        let rest = (len % CHUNK_BYTES as u64) as usize;
        self.chunks.truncate(full + usize::from(rest > 0));
        if let (true, Some(last)) = (rest > 0, self.chunks.last_mut()) {
            *last = Arc::new(last[..rest].to_vec());
        }
    }

    /// Flips bits of one byte; says whether there is such a byte.
    pub(super) fn flip(&mut self, offset: u64, xor: u8) -> bool {
        let chunk = self.chunks.get_mut((offset / CHUNK_BYTES as u64) as usize);
        let at = (offset % CHUNK_BYTES as u64) as usize;
        match chunk {
            Some(chunk) if at < chunk.len() => {
                Arc::make_mut(chunk)[at] ^= xor;
                true
            }
            _ => false,
        }
    }

    /// Whether both share all their memory.
    #[cfg(test)]
    pub(super) fn shares_with(&self, other: &Self) -> bool {
        self.chunks.len() == other.chunks.len()
            && self.chunks.iter().zip(&other.chunks).all(|(a, b)| Arc::ptr_eq(a, b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn agrees_with_a_vector(
            steps in proptest::collection::vec((0u8..3, 0usize..100_000), 1..12),
            offset in 0usize..200_000,
            len in 0usize..100_000,
        ) {
            let (mut content, mut model) = (Content::default(), Vec::new());
            let mut images = Vec::new();
            for (step, size) in steps {
                match step {
                    0 => {
                        let data: Vec<u8> = (0..size).map(|i| (i * 7 + size) as u8).collect();
                        content.append(&data);
                        model.extend_from_slice(&data);
                    }
                    1 => {
                        content.truncate(size as u64);
                        model.truncate(size);
                    }
                    _ => {
                        prop_assert_eq!(content.flip(size as u64, 0x5a), size < model.len());
                        if let Some(byte) = model.get_mut(size) { *byte ^= 0x5a; }
                    }
                }
                images.push((content.clone(), model.clone()));
            }
            for (content, model) in images {
                prop_assert_eq!(content.len(), model.len() as u64);
                let mut buf = vec![0; len];
                let want = model.get(offset..).unwrap_or(&[]);
                let want = &want[..want.len().min(len)];
                let read = content.read(offset as u64, &mut buf);
                prop_assert_eq!(&buf[..read], want);
            }
        }
    }
}
