//! Heat through bytes and back.

use super::*;
use proptest::prelude::*;
use terrace_base::FileNumber;

proptest! {
    #[test]
    fn rates_come_back_about_as_they_were(
        files in prop::collection::btree_map(
            (0u64..1000).prop_map(FileNumber::new),
            prop::collection::vec(prop_oneof![Just(0.0), 1e-9f64..1.0], 0..20),
            0..10,
        ),
    ) {
        let rates: Rates = files.clone().into_iter().collect();
        let mut restored = Restored::decode(&encode(rates));
        for (number, rates) in files {
            let back = restored.take(number, rates.len()).unwrap();
            for (rate, back) in rates.into_iter().zip(back) {
                match back {
                    None => prop_assert_eq!(rate, 0.0),
                    Some(back) => prop_assert!((back / rate).log2().abs() < 0.1),
                }
            }
            prop_assert_eq!(restored.take(number, 3), None);
        }
    }

    #[test]
    fn nonsense_is_ignored(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let _ = Restored::decode(&bytes).hottest_first();
    }
}

#[test]
fn many_partitions_share_codes_and_many_files_are_cut() {
    let one = |number| (FileNumber::new(number), vec![1e-3; 100]);
    let rates: Rates = (0..20_000).map(one).collect();
    let bytes = encode(rates);
    assert!(bytes.len() < 300 << 10, "{}", bytes.len());
    let mut restored = Restored::decode(&bytes);
    assert_eq!(restored.files.len(), MAX_FILES);
    let number = *restored.files.keys().next().unwrap();
    assert!((restored.take(number, 100).unwrap()[99].unwrap() / 1e-3).log2().abs() < 0.1);
}

#[test]
fn the_hottest_file_comes_first_and_a_file_that_changed_is_not_known() {
    let [five, seven, nine] = [5, 7, 9].map(FileNumber::new);
    let bytes = encode(vec![(five, vec![1e-6, 1e-4]), (nine, vec![1e-2]), (seven, vec![0.0])]);
    let mut restored = Restored::decode(&bytes);
    assert_eq!(restored.hottest_first(), [nine, five, seven]);
    assert_eq!(restored.take(five, 3), None);
    restored.retain(|number| number == nine);
    assert_eq!(restored.hottest_first(), [nine]);
    assert_eq!(Restored::decode(&[2, 0, 0]), Restored::default());
}
