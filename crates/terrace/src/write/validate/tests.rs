//! What a group writes, against a list of all of it.

use super::*;
use terrace_base::rng::{Rng, SplitMix64};

fn key(rng: &mut SplitMix64) -> Vec<u8> {
    (0..rng.below(3)).map(|_| b'a' + rng.below(4) as u8).collect()
}

#[test]
fn keys_and_ranges_of_a_group_are_found_as_in_a_list_of_them() {
    for seed in 0..2000 {
        let mut rng = SplitMix64::new(seed);
        let keys: Vec<(u32, Vec<u8>)> =
            (0..rng.below(5)).map(|_| (rng.below(2) as u32, key(&mut rng))).collect();
        let ranges: Vec<(u32, Vec<u8>, Vec<u8>)> = (0..rng.below(5))
            .map(|_| (rng.below(2) as u32, key(&mut rng), key(&mut rng)))
            .collect();
        let mut written = Written { in_order: Some(BTreeSet::new()), ..Written::default() };
        for (family, key) in &keys {
            written.keys.insert((*family, key));
            written.in_order.as_mut().unwrap().insert((*family, key));
        }
        ranges.iter().for_each(|(family, start, end)| written.add_range(*family, start, end));
        for _ in 0..20 {
            let (family, start, end) = (rng.below(2) as u32, key(&mut rng), key(&mut rng));
            let is_covered = |key: &[u8]| {
                ranges.iter().any(|(of, s, e)| *of == family && **s <= *key && *key < **e)
            };
            let has = keys.iter().any(|(of, key)| *of == family && *key == start);
            assert_eq!(written.contains(family, &start), has || is_covered(&start), "seed {seed}");
            let range = match rng.one_in(4) {
                true => KeyRange { start: start.into(), end: None },
                false if start < end => KeyRange { start: start.into(), end: Some(end.into()) },
                false => continue,
            };
            let touches = keys.iter().any(|(of, key)| *of == family && range.contains(key))
                || ranges.iter().any(|(of, s, e)| *of == family && s < e && range.overlaps(s, e));
            assert_eq!(written.touches(family, &range), touches, "seed {seed}: {range:?}");
        }
    }
}
