//! Content round-trips, saves an eighth or is left alone, and lies about nothing it gets away with.

use super::*;
use proptest::prelude::*;

const ALL: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

/// The codecs of this build.
fn codecs() -> impl Iterator<Item = Compression> {
    ALL[1..].iter().copied().filter(|compression| compression.is_built_in())
}

/// Bytes no codec shrinks.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u8
    };
    (0..len).map(next).collect()
}

#[test]
fn numbers_and_names_are_those_on_disk() {
    for (byte, compression) in ALL.into_iter().enumerate() {
        assert_eq!(Compression::from_byte(byte as u8), Some(compression));
        assert_eq!(compression as usize, byte);
    }
    assert_eq!(Compression::from_byte(3), None);
    assert_eq!(ALL.map(Compression::name), ["none", "lz4", "zstd"]);
}

#[test]
fn what_does_not_shrink_by_an_eighth_is_stored_as_it_is() {
    let (noise, zeros) = (noise(2000), [0; 2000]);
    for compression in codecs() {
        let mut out = b"before".to_vec();
        assert_eq!(compress(&noise, compression, &mut out), Compression::None);
        assert_eq!(out.strip_prefix(b"before"), Some(&noise[..]));
        out.clear();
        assert_eq!(compress(&zeros, compression, &mut out), compression);
        assert!(out.len() < 100, "{}", out.len());
        assert_eq!(decompress(&out, compression, 2000), Ok(zeros.to_vec()));
        assert!(matches!(
            decompress(&out, compression, 1999),
            Err(Fault::TooLong { declared: 2000, .. })
        ));
    }
}

#[test]
fn a_declared_length_over_the_limit_is_refused_before_allocation() {
    let mut content = u32::MAX.to_le_bytes().to_vec();
    content.extend_from_slice(&[0; 100]);
    for compression in codecs() {
        let most = if compression == Compression::Lz4 { 25_600 } else { 3_276_800 };
        let declared = u32::MAX as usize;
        assert_eq!(
            payload_len(&content, compression, 1 << 30),
            Err(Fault::TooLong { declared, most })
        );
        assert_eq!(payload_len(&content[..3], compression, 1 << 30), Err(Fault::NoLength));
    }
}

/// What a codec makes of one byte over and over is as long as anything of as few bytes can be.
#[test]
fn the_most_that_content_can_hold_is_no_lie() {
    let payload = vec![7; 8 << 20];
    for compression in codecs() {
        let mut out = Vec::new();
        assert_eq!(compress(&payload, compression, &mut out), compression);
        assert!(decompress(&out, compression, 1 << 30).unwrap() == payload);
    }
}

#[test]
fn a_large_payload_leaves_no_large_memory_behind() {
    let kept = || COMPRESSOR.with_borrow(|compressor| compressor.content.capacity());
    for (compression, len) in codecs().flat_map(|codec| [(codec, 300 << 10), (codec, 4 << 20)]) {
        let mut out = Vec::new();
        assert_eq!(compress(&vec![7; len], compression, &mut out), compression);
        assert!(kept() <= THREAD_KEEPS_BYTES, "{compression:?}, {len}: {}", kept());
        out.clear();
        compress(&noise(len), compression, &mut out);
        assert!(kept() <= THREAD_KEEPS_BYTES, "{compression:?}, {len}: {}", kept());
    }
}

#[test]
fn a_compressor_keeps_no_memory_of_a_large_payload_for_small_ones() {
    for compression in codecs() {
        let mut compressor = Compressor::default();
        assert!(compressor.compress(&vec![7; 4 << 20], compression).is_some());
        assert!(compressor.content.capacity() > KEEP_BYTES);
        assert!(compressor.compress(&[7; 2000], compression).is_some());
        assert!(compressor.content.capacity() <= KEEP_BYTES);
    }
}

/// Whatever is built in: content of a codec that is not is named, not taken for damage or memory.
#[test]
fn a_codec_that_is_not_built_in_is_named() {
    let zeros = [0; 2000];
    for compression in ALL {
        let mut out = Vec::new();
        let stored_as = compress(&zeros, compression, &mut out);
        if compression.is_built_in() {
            assert_eq!(stored_as, compression);
            continue;
        }
        assert_eq!((stored_as, &out[..]), (Compression::None, &zeros[..]));
        let content = [&2000u32.to_le_bytes()[..], &[1, 2, 3]].concat();
        let fault = Fault::NotBuiltIn(compression);
        assert_eq!(payload_len(&content, compression, 4096), Err(fault));
        assert_eq!(decompress_into(&content, compression, &mut [0; 2000]), Err(fault));
        let text = fault.to_string();
        assert!(text.contains(&format!("feature `{}`", compression.name())), "{text}");
    }
    assert!(Compression::default().is_built_in());
}

proptest! {
    #[test]
    fn payloads_round_trip(part: Vec<u8>, repeat in 1usize..40, kind in 0usize..3) {
        let payload = part.repeat(repeat);
        let mut out = Vec::new();
        let stored_as = compress(&payload, ALL[kind], &mut out);
        prop_assert!(stored_as == ALL[kind] || stored_as == Compression::None);
        prop_assert!(out.len() <= payload.len());
        prop_assert_eq!(decompress(&out, stored_as, payload.len()), Ok(payload));
    }

    #[test]
    fn arbitrary_content_never_panics_and_stays_under_the_limit(content: Vec<u8>, kind in 0usize..3) {
        if let Ok(payload) = decompress(&content, ALL[kind], 4096) {
            prop_assert!(payload.len() <= 4096);
        }
    }
}
