//! Order is kept for all keys; the fast projection is the one of the definition; damaged bytes.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use terrace_base::Decoder;

fn learn<K: AsRef<[u8]>>(keys: &[K]) -> Projection {
    let mut builder = ProjectionBuilder::new();
    keys.iter().for_each(|key| builder.add(key.as_ref()));
    builder.build()
}

fn sorted(keys: &[&str]) -> Vec<String> {
    let mut keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
    keys.sort();
    keys
}

fn reread(projection: &Projection) -> Projection {
    let mut bytes = Vec::new();
    projection.encode(&mut bytes);
    let mut decoder = Decoder::new(&bytes);
    let back = Projection::decode(&mut decoder).unwrap();
    assert!(decoder.is_empty());
    back
}

#[test]
fn decimals_become_the_numbers_they_spell() {
    let keys: Vec<String> = (0..1000).map(|i| format!("row{:05}:name", i * 7)).collect();
    let projection = learn(&keys);
    assert_eq!(projection.to_string(), "\"row0\" [0-6] [0-9]x3");
    for (i, key) in (0..).zip(&keys) {
        assert_eq!(projection.project(key.as_bytes()), i * 7);
    }
    assert_eq!(reread(&projection), projection);
}

#[test]
fn a_constant_position_between_others_costs_nothing() {
    let projection = learn(&["a0-00", "a1-99", "a7-42", "a9-10", "a3-57"]);
    assert_eq!(projection.to_string(), "\"a\" [0-1379] \"-\" [0-14-59] [0279]");
    assert!(projection.project(b"a1-42") < projection.project(b"a1-99"));
    let low = projection.project(b"a1+99");
    let high = projection.project(b"a1.00");
    assert_eq!(low, projection.project(b"a1-00"));
    assert_eq!(high, projection.project(b"a1-99"));
    assert!(high < projection.project(b"a3-00"));
}

#[test]
fn the_end_of_a_key_ranks_lowest() {
    let keys = sorted(&["k", "k1", "k10", "k100", "k2", "k9", "k99"]);
    let projection = learn(&keys);
    let numbers: Vec<u64> = keys.iter().map(|key| projection.project(key.as_bytes())).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    assert_eq!(projection.project(b"k"), 0);
    // Between the key that ends there and its extensions.
    let between = projection.project(b"k1!");
    assert!(projection.project(b"k1") < between && between < projection.project(b"k10"));
}

#[test]
fn no_key_and_one_key_and_one_key_twice() {
    for keys in [&[][..], &[&b"only"[..]], &[b"only", b"only"], &[b""], &[b"", b""]] {
        let projection = learn(keys);
        assert_eq!((projection.project(b"only"), projection.greatest()), (0, 0));
        assert_eq!(reread(&projection), projection);
    }
}

#[test]
fn all_big_endian_numbers_are_themselves() {
    let mut builder = ProjectionBuilder::new();
    for byte in 0..=255u8 {
        builder.add(&[byte; 8]);
    }
    let projection = builder.build();
    for number in [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, 0x0123_4567_89ab_cdef] {
        assert_eq!(projection.project(&number.to_be_bytes()), number);
    }
    assert_eq!(projection.greatest(), u64::MAX);
    assert_eq!(projection.to_string(), "[\\x00-\\xff]x8");
}

#[test]
fn positions_that_do_not_fit_are_left_out() {
    let mut builder = ProjectionBuilder::new();
    for byte in 0..=255u8 {
        builder.add(&[byte; 20]);
    }
    assert_eq!((builder.reach(), builder.build().greatest()), (8, u64::MAX));
    // With keys that end in the first position, 257 symbols there, one position less fits.
    builder.add(b"");
    assert_eq!(builder.build().greatest(), 257 * (1 << 48) - 1);
}

#[test]
fn a_long_common_part_is_not_looked_at_twice() {
    let front = vec![b'x'; 60_000];
    let keys: Vec<Vec<u8>> =
        (0..100u8).map(|i| [&front[..], &[i], &vec![b'y'; 5000], &[i]].concat()).collect();
    let projection = learn(&keys);
    assert_eq!((projection.prefix().len(), projection.greatest()), (60_000, 99));
    assert_eq!(projection.project(&keys[42]), 42);
    let mut builder = ProjectionBuilder::new();
    keys.iter().for_each(|key| builder.add(key));
    assert!(builder.reach() <= 60_000 + learn::MAX_POSITIONS);
}

fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0u8), Just(1), Just(b'a'), Just(b'c'), Just(254), Just(255), any::<u8>()]
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    (prop_oneof![Just(""), Just("pre"), Just("prefix")], vec(byte(), 0..12))
        .prop_map(|(front, back)| [front.as_bytes(), &back].concat())
}

/// Keys with runs of positions that share an alphabet: with one range, two, and more; some cut
/// short.
fn uniform_keys() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let alphabet = prop_oneof![
        Just(&b"01"[..]),
        Just(&b"12abc"[..]),
        Just(&b"059afz"[..]),
        Just(&[0, 127, 128, 255][..]),
        Just(&[254, 255][..]),
    ];
    (alphabet, vec((vec(any::<u8>(), 17), 0usize..40), 30..80)).prop_map(|(alphabet, rows)| {
        let byte = |seed: &u8| alphabet[usize::from(*seed) % alphabet.len()];
        rows.iter().map(|(row, len)| row.iter().take(len + 9).map(byte).collect()).collect()
    })
}

/// The projection by its definition, one symbol at a time; the end of a key is 0.
struct Definition(Vec<Vec<u32>>);

fn symbol(key: &[u8], at: usize) -> u32 {
    key.get(at).map_or(0, |byte| u32::from(*byte) + 1)
}

impl Definition {
    fn of(keys: &[Vec<u8>]) -> Self {
        let longest = keys.iter().map(Vec::len).max().unwrap_or(0);
        let (mut alphabets, mut product) = (Vec::new(), 1u128);
        for at in 0..=longest {
            let reaching = keys.iter().filter(|key| key.len() >= at);
            let mut alphabet: Vec<u32> = reaching.map(|key| symbol(key, at)).collect();
            alphabet.sort_unstable();
            alphabet.dedup();
            product *= alphabet.len() as u128;
            if product > 1 << 64 || alphabet == [0] {
                break;
            }
            alphabets.push(alphabet);
        }
        // What all keys agree on after the last difference does not count.
        while alphabets.last().is_some_and(|alphabet| alphabet.len() == 1) {
            alphabets.pop();
        }
        Self(alphabets)
    }

    fn project(&self, key: &[u8]) -> u128 {
        let (mut x, mut rest) = (0, None);
        for (at, alphabet) in self.0.iter().enumerate() {
            let last = alphabet.len() - 1;
            let wanted = symbol(key, at);
            let at_or_below = alphabet.partition_point(|symbol| *symbol <= wanted);
            let digit = match rest {
                Some(true) => last,
                Some(false) => 0,
                None => at_or_below.saturating_sub(1),
            };
            if rest.is_none() && (at_or_below == 0 || alphabet[at_or_below - 1] != wanted) {
                rest = Some(at_or_below > 0);
            }
            if rest.is_none() && wanted == 0 {
                rest = Some(false);
            }
            x = x * alphabet.len() as u128 + digit as u128;
        }
        x
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn order_is_kept_for_all_keys(keys in vec(key(), 0..40), probes in vec(key(), 0..40)) {
        let projection = reread(&learn(&keys));
        let mut all = [&keys[..], &probes].concat();
        all.sort();
        let numbers: Vec<u64> = all.iter().map(|key| projection.project(key)).collect();
        prop_assert!(numbers.is_sorted(), "{} {:?} {:?}", projection, all, numbers);
        prop_assert!(numbers.iter().all(|number| *number <= projection.greatest()));
    }

    #[test]
    fn projections_are_what_the_definition_says(
        keys in vec(key(), 1..30), probes in vec(key(), 0..30),
    ) {
        let (projection, definition) = (learn(&keys), Definition::of(&keys));
        for key in keys.iter().chain(&probes) {
            prop_assert_eq!(u128::from(projection.project(key)), definition.project(key));
        }
    }

    #[test]
    fn words_are_what_the_definition_says(
        keys in uniform_keys(), changes in vec((any::<usize>(), 0usize..20, byte()), 0..40),
    ) {
        let (projection, definition) = (learn(&keys), Definition::of(&keys));
        for key in &keys {
            prop_assert_eq!(u128::from(projection.project(key)), definition.project(key));
        }
        for (at, place, byte) in changes {
            let mut key = keys[at % keys.len()].clone();
            if let Some(there) = key.get_mut(place) {
                *there = byte;
            } else {
                key.truncate(place % 9);
            }
            prop_assert_eq!(u128::from(projection.project(&key)), definition.project(&key));
        }
        prop_assert_eq!(reread(&projection), projection);
    }

    #[test]
    fn sorted_keys_after_their_neighbours_teach_the_same(mut keys in vec(key(), 1..40)) {
        let any_order = learn(&keys);
        keys.sort();
        let mut builder = ProjectionBuilder::new();
        let mut before: Vec<u8> = Vec::new();
        for key in &keys {
            let shared = terrace_base::key::common_prefix(&before, key);
            builder.add_after(key, shared);
            before = key[..key.len().min(builder.reach())].to_vec();
        }
        prop_assert_eq!(builder.build(), any_order);
    }

    #[test]
    fn damaged_projections_never_panic(
        keys in vec(key(), 0..20), probe in key(), cut: usize,
        damage in vec((any::<usize>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = Vec::new();
        learn(&keys).encode(&mut bytes);
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(if cut % 3 == 0 { cut % bytes.len() } else { bytes.len() });
        if let Some(projection) = Projection::decode(&mut Decoder::new(&bytes)) {
            prop_assert!(projection.project(&probe) <= projection.greatest());
            prop_assert_eq!(reread(&projection), projection);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes: Vec<u8>, probe: Vec<u8>) {
        if let Some(projection) = Projection::decode(&mut Decoder::new(&bytes)) {
            prop_assert!(projection.project(&probe) <= projection.greatest());
        }
    }
}
