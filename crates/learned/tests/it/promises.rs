//! Every key is in its range, and every absent key's place too; bytes from anywhere are answered.

use proptest::collection::vec;
use proptest::prelude::*;
use terrace_learned::{Fit, Model, ModelBuilder, ModelOptions, NoModel};

/// Builds whatever it costs.
fn options(delta: u32, fit: Fit) -> ModelOptions {
    ModelOptions {
        delta,
        fit,
        max_segments_per_1000_keys: 1000,
        max_run_percent: 100,
        ..ModelOptions::default()
    }
}

/// Bytes of the model over `keys`, every `per_position` of which have one position.
fn bytes_of(
    keys: &[Vec<u8>],
    per_position: usize,
    options: ModelOptions,
) -> Result<Vec<u8>, NoModel> {
    let mut builder = ModelBuilder::new(options);
    for (at, key) in keys.iter().enumerate() {
        builder.push(key, (at / per_position) as u32);
    }
    builder.finish().model
}

/// The promise, by brute force, for the keys and for `probes`.
fn check(model: &Model, keys: &[Vec<u8>], per_position: usize, probes: &[Vec<u8>]) {
    let end = (keys.len() - 1) / per_position + 1;
    assert_eq!(model.end() as usize, end);
    for probe in keys.iter().chain(probes) {
        let range = model.search_range_of(probe);
        let (low, high) = (range.low as usize, range.high as usize);
        let first = keys.partition_point(|key| key < probe);
        let after = keys.partition_point(|key| key <= probe);
        // Wherever a version of the key would be.
        for at in first..=after {
            let position = if at == keys.len() { end } else { at / per_position };
            assert!(low <= position && position <= high, "{probe:?}: {position} not in {range:?}");
        }
        assert!(low <= high && high <= end);
        let width = 2 * model.delta() as usize + 2;
        assert!(high - low < width || model.stats().run_count > 0, "{range:?}");
    }
}

/// All the ways to be near the keys.
fn near(keys: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut near = vec![Vec::new(), vec![255; 300]];
    for key in keys {
        near.push([&key[..], &[0]].concat());
        near.push([&key[..], &[255]].concat());
        near.push(key[..key.len().saturating_sub(1)].to_vec());
        for at in [0, key.len() / 2, key.len().saturating_sub(1)] {
            for step in [1u8, 255] {
                let mut changed = key.clone();
                if let Some(byte) = changed.get_mut(at) {
                    *byte = byte.wrapping_add(step);
                }
                near.push(changed);
            }
        }
    }
    near
}

fn check_all(mut keys: Vec<Vec<u8>>) {
    keys.sort();
    let probes = near(&keys[..keys.len().min(300)]);
    for (delta, fit) in [(8, Fit::Greedy), (8, Fit::Optimal), (1, Fit::Optimal), (64, Fit::Greedy)]
    {
        for per_position in [1, 7] {
            match bytes_of(&keys, per_position, options(delta, fit)) {
                Ok(bytes) => check(&Model::decode(&bytes).unwrap(), &keys, per_position, &probes),
                // Long prefixes of few keys.
                Err(why) => assert_eq!(why, NoModel::TooManyBytes),
            }
        }
    }
}

#[test]
fn one_key_and_the_empty_key() {
    check_all(vec![b"one".to_vec()]);
    check_all(vec![Vec::new()]);
    check_all(vec![Vec::new(), vec![0], vec![0, 0], vec![255; 9]]);
}

#[test]
fn one_key_many_times() {
    check_all(vec![b"versions".to_vec(); 500]);
    check_all(vec![Vec::new(); 20]);
}

#[test]
fn extremes_of_u64() {
    let mut numbers: Vec<u64> = (0..200).map(|at| u64::MAX - at).collect();
    numbers.extend(0..200);
    numbers.extend((0..64).map(|shift| 1u64 << shift));
    numbers.extend((0..256).map(|byte| byte * 0x0101_0101_0101_0101));
    check_all(numbers.iter().map(|number| number.to_be_bytes().to_vec()).collect());
}

#[test]
fn dense_ties() {
    let keys = (0..2000u32).map(|at| {
        let front = [(at / 400) as u8 * 50; 12];
        [&front[..], &at.to_be_bytes()].concat()
    });
    check_all(keys.collect());
    let keys = (0..3000u32).map(|at| [vec![(at % 256) as u8; 8], vec![(at / 512) as u8]].concat());
    check_all(keys.collect());
}

#[test]
fn keys_of_64_kib() {
    let keys = (0..150u32).map(|at| {
        let mut key = vec![b'k'; 64 << 10];
        let place = (at as usize * 7919) % key.len();
        key[place] = b'a' + (at % 26) as u8;
        key
    });
    let mut keys: Vec<Vec<u8>> = keys.collect();
    keys.sort();
    for fit in [Fit::Greedy, Fit::Optimal] {
        match bytes_of(&keys, 1, options(8, fit)) {
            Ok(bytes) => check(&Model::decode(&bytes).unwrap(), &keys, 1, &near(&keys[..5])),
            Err(why) => assert_eq!(why, NoModel::TooManyBytes),
        }
    }
}

#[test]
fn all_prefixes_of_one_key() {
    check_all((0..1500).map(|len| vec![b'p'; len]).collect());
    check_all((0..40).flat_map(|len| [vec![0; len], vec![255; len]]).collect());
}

#[test]
fn strings_of_decimal_hashes() {
    let hash = |at: u64| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at.rotate_left(29);
    check_all((1..20_000).map(|at| format!("user{}", hash(at)).into_bytes()).collect());
    check_all((1..3000).map(|at| format!("{:x}-{}", hash(at) >> 40, at).into_bytes()).collect());
}

fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0u8), Just(1), Just(b'0'), Just(b'9'), Just(255), any::<u8>()]
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => (prop_oneof![Just(""), Just("table/"), Just("table/row")], vec(byte(), 0..14))
            .prop_map(|(front, back)| [front.as_bytes(), &back].concat()),
        4 => (0u32..64, any::<u64>()).prop_map(|(shift, x)| (x >> shift).to_be_bytes().to_vec()),
        4 => any::<u16>().prop_map(|x| format!("{x}").into_bytes()),
        1 => (vec(byte(), 0..3), 200usize..400).prop_map(|(back, len)| {
            let mut key = vec![b'z'; len];
            key.extend(back);
            key
        }),
    ]
}

fn fits() -> impl Strategy<Value = Fit> {
    prop_oneof![Just(Fit::Greedy), Just(Fit::Optimal)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_key_is_in_its_range(
        mut keys in vec(key(), 1..300), probes in vec(key(), 0..50), fit in fits(),
        delta in prop_oneof![Just(1u32), Just(3), Just(8)], per_position in 1usize..4,
        repeats in 0usize..30,
    ) {
        keys.extend_from_within(..repeats.min(keys.len()));
        keys.sort();
        match bytes_of(&keys, per_position, options(delta, fit)) {
            Ok(bytes) => {
                let model = Model::decode(&bytes).unwrap();
                check(&model, &keys, per_position, &probes);
                prop_assert_eq!(model.stats().key_count, keys.len() as u64);
                prop_assert!(model.stats().errors.max <= delta);
            }
            Err(why) => prop_assert_eq!(why, NoModel::TooManyBytes),
        }
    }

    #[test]
    fn damaged_models_never_panic(
        mut keys in vec(key(), 1..100), probes in vec(key(), 1..20), cut: usize,
        damage in vec((any::<usize>(), any::<u8>()), 1..5), fit in fits(),
    ) {
        keys.sort();
        let mut bytes = bytes_of(&keys, 1, options(8, fit)).unwrap_or_default();
        prop_assume!(!bytes.is_empty());
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(if cut % 3 == 0 { cut % bytes.len() } else { bytes.len() });
        if let Ok(model) = Model::decode(&bytes) {
            for probe in keys.iter().chain(&probes) {
                let range = model.search_range_of(probe);
                prop_assert!(range.low <= range.high && range.high <= model.end());
            }
            for x in [0, 1, u64::MAX / 2, u64::MAX] {
                model.search_range(x);
            }
            prop_assert!(model.to_string().contains("projection"));
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>, probe: Vec<u8>) {
        for bytes in [bytes.clone(), [&[1, 8], &bytes[..]].concat(), [&[1, 8, 0], &bytes[..]].concat()] {
            if let Ok(model) = Model::decode(&bytes) {
                model.search_range_of(&probe);
            }
        }
    }
}
