//! The bytes of a file that grows. Writer and reader share this file and nothing else.

use crate::header::HEADER_BYTES;
use ring::aead::{Aad, LessSafeKey, Nonce};
use std::ops::ControlFlow;

/// No frame goes past a multiple of this in the file.
pub(super) const BLOCK_BYTES: usize = 4096;

/// Place and length.
const FRAME_HEADER_BYTES: usize = 10;

const TAG_BYTES: usize = 16;

/// What a frame takes beside its content.
pub(super) const FRAME_BYTES: usize = FRAME_HEADER_BYTES + TAG_BYTES;

/// The most content of a block.
pub(super) const BLOCK_CONTENT_BYTES: u64 = (BLOCK_BYTES - FRAME_BYTES) as u64;

/// The nonce of the frame at a place.
pub(super) fn nonce(place: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&place.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Where block `block` begins in the file.
pub(super) fn start_of(block: u64) -> u64 {
    block * BLOCK_BYTES as u64
}

/// The blocks of a file of `file_bytes`.
pub(super) fn blocks_in(file_bytes: u64) -> u64 {
    file_bytes.div_ceil(BLOCK_BYTES as u64)
}

/// The most content that frames can have between two places of the file.
pub(super) fn most_content(from: u64, to: u64) -> u64 {
    let (mut at, mut content) = (from, 0);
    while at < to {
        let end = start_of(at / BLOCK_BYTES as u64 + 1).min(to);
        content += (end - at).saturating_sub(FRAME_BYTES as u64);
        at = end;
    }
    content
}

/// A frame whose tag is right.
pub(super) struct Frame<'a> {
    /// Where its content begins in the content of the file.
    pub place: u64,
    pub content: &'a [u8],
    /// Where it ends in the file.
    pub file_end: u64,
}

impl Frame<'_> {
    /// Where its content ends in the content of the file.
    pub fn end(&self) -> u64 {
        self.place + self.content.len() as u64
    }
}

/// Calls `each` with the frames of a block, which `sealed` has, until it breaks. Bytes that are no frame are passed: a
/// damaged one costs itself.
pub(super) fn each_frame<B>(
    key: &LessSafeKey,
    block: u64,
    sealed: &[u8],
    scratch: &mut Vec<u8>,
    each: &mut dyn FnMut(&Frame<'_>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let start = start_of(block);
    let mut at = if block == 0 { HEADER_BYTES } else { 0 };
    while let Some((header, rest)) =
        sealed.get(at..).and_then(<[u8]>::split_first_chunk::<FRAME_HEADER_BYTES>)
    {
        let [p0, p1, p2, p3, p4, p5, p6, p7, l0, l1] = *header;
        let place = u64::from_le_bytes([p0, p1, p2, p3, p4, p5, p6, p7]);
        let len = usize::from(u16::from_le_bytes([l0, l1]));
        // There is less content than file before it.
        let is_likely = len > 0 && place < start + at as u64;
        if is_likely && let Some(ciphertext) = rest.get(..len + TAG_BYTES) {
            scratch.clear();
            scratch.extend_from_slice(ciphertext);
            if let Ok(content) = key.open_in_place(nonce(place), Aad::empty(), scratch) {
                at += FRAME_BYTES + len;
                each(&Frame { place, content, file_end: start + at as u64 })?;
                continue;
            }
        }
        at += 1;
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_content_than_blocks_have_room_for() {
        let block = BLOCK_BYTES as u64;
        assert_eq!(most_content(block, 2 * block), BLOCK_CONTENT_BYTES);
        assert_eq!(most_content(0, 3 * block), 3 * BLOCK_CONTENT_BYTES);
        // The rest of a block, and one that has only begun.
        assert_eq!(most_content(block - 100, 2 * block + 30), 74 + BLOCK_CONTENT_BYTES + 4);
        assert_eq!(most_content(block - 26, block + 26), 0);
        assert_eq!(most_content(block, block), 0);
    }
}
