//! What is refused and why, what is counted, and the heads of blocks.

use super::*;

fn train(keys: &[Vec<u8>], options: ModelOptions) -> Training {
    let mut builder = ModelBuilder::new(options);
    for (position, key) in (0..).zip(keys) {
        builder.push(key, position);
    }
    builder.finish()
}

fn numbered(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|at| format!("key{at:08}").into_bytes()).collect()
}

#[test]
fn no_keys_is_no_model() {
    assert_eq!(train(&[], ModelOptions::default()).model, Err(NoModel::Empty));
}

#[test]
fn keys_and_positions_must_be_in_order() {
    for pushes in [
        &[(&b"b"[..], 0), (b"a", 1)][..],
        &[(b"ab", 0), (b"a", 1)],
        &[(b"a", 0), (b"b", 2)],
        &[(b"a", 1), (b"b", 0)],
        &[(b"a", u32::MAX)],
    ] {
        let mut builder = ModelBuilder::new(ModelOptions::default());
        for (key, position) in pushes {
            builder.push(key, *position);
        }
        assert_eq!(builder.finish().model, Err(NoModel::OutOfOrder), "{pushes:?}");
    }
}

#[test]
fn a_full_buffer_is_given_up_and_freed() {
    let mut builder =
        ModelBuilder::new(ModelOptions { max_buffer_bytes: 1 << 10, ..ModelOptions::default() });
    let mut most = 0;
    for (position, key) in (0..).zip(numbered(10_000)) {
        builder.push(&key, position);
        most = most.max(builder.memory_bytes());
    }
    assert!(most <= 1 << 10 && builder.memory_bytes() == 0, "{most}");
    assert_eq!(builder.finish().model, Err(NoModel::BufferFull));
}

#[test]
fn keys_that_tie_beyond_the_first_64_bits_do_not_pay() {
    let keys: Vec<Vec<u8>> = (0..256u32)
        .flat_map(|front| {
            (0..20u32).map(move |back| [vec![front as u8; 9], vec![back as u8]].concat())
        })
        .collect();
    let training = train(&keys, ModelOptions::default());
    assert_eq!(training.model, Err(NoModel::TooManyTies));
    assert_eq!(training.stats.longest_tie, 20);
    assert!(training.block_heads.is_empty());
    let patient = ModelOptions {
        max_run_percent: 100,
        max_segments_per_1000_keys: 100,
        ..ModelOptions::default()
    };
    let training = train(&keys, patient);
    assert_eq!((training.stats.run_count, training.stats.run_key_count), (256, 5120));
    assert_eq!((training.stats.tie_count, training.stats.longest_tie), (5120 - 256, 20));
    let model = Model::decode(&training.model.unwrap()).unwrap();
    for (position, key) in (0..).zip(&keys) {
        let range = model.search_range_of(key);
        assert_eq!((range.low, range.high), (position / 20 * 20, position / 20 * 20 + 20));
    }
}

#[test]
fn hard_keys_do_not_pay() {
    // Gaps that double: nothing is linear for long.
    let keys: Vec<Vec<u8>> = (0..3000u64)
        .map(|at| (((at / 6) << 40) + (1 << (at % 6 * 6))).to_be_bytes().to_vec())
        .collect();
    let strict = ModelOptions { delta: 1, ..ModelOptions::default() };
    let training = train(&keys, strict);
    assert_eq!(training.model, Err(NoModel::TooManySegments));
    assert!(training.stats.segments_per_1000_keys() > 32.0);
    assert!(train(&keys, ModelOptions { delta: 64, ..strict }).model.is_ok());
}

#[test]
fn a_prefix_longer_than_all_keys_are_worth_does_not_pay() {
    let keys: Vec<Vec<u8>> = (0..100u8).map(|at| [&vec![7; 60_000][..], &[at]].concat()).collect();
    assert_eq!(train(&keys, ModelOptions::default()).model, Err(NoModel::TooManyBytes));
}

#[test]
fn heads_of_blocks_have_numbers_and_say_when_they_tie() {
    let mut builder = ModelBuilder::new(ModelOptions::default());
    let keys = [b"a", b"b", b"b", b"b", b"c", b"d"];
    for (at, key) in (0..).zip(keys) {
        if at % 2 == 0 {
            builder.start_block();
        }
        builder.push(key, at);
    }
    let head = |x, ties_before| BlockHead { x, ties_before };
    assert_eq!(builder.finish().block_heads, [head(0, false), head(1, true), head(2, false)]);
}

#[test]
fn statistics_count_every_key() {
    let training = train(&numbered(10_000), ModelOptions::default());
    let stats = training.stats;
    assert_eq!((stats.key_count, stats.segment_count, stats.tie_count), (10_000, 1, 0));
    assert_eq!((stats.errors.count(), stats.longest_tie), (10_000, 1));
    assert_eq!(stats.bytes, training.model.as_ref().map_or(0, Vec::len) as u64);
    assert!(stats.errors.max <= 1 && stats.bytes < 100, "{stats}");
    let model = Model::decode(&training.model.unwrap()).unwrap();
    assert_eq!(*model.stats(), stats);
    assert!(
        model.to_string().starts_with("projection: \"key0000\" [0-9]x4 (13.3 bits)\n"),
        "{model}"
    );
}
