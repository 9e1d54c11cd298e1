//! Inheritance from drawn inputs, and that heat is neither lost nor made.

use super::*;
use proptest::prelude::*;

/// A run of partitions `start-end=rate` in a line such as `a-c=0.5 c-f=0.1`; a `(` in front
/// leaves the start out.
fn stretches(line: &str) -> Vec<(Stretch<'_>, f64)> {
    line.split_whitespace()
        .map(|text| {
            let (span, number) = text.split_once('=').unwrap();
            let (start, end) = span.split_once('-').unwrap();
            let from_start = !start.starts_with('(');
            let start = start.trim_start_matches('(').as_bytes();
            let stretch = Stretch { start, from_start, end: end.as_bytes() };
            (stretch, number.parse().unwrap())
        })
        .collect()
}

fn run(line: &str) -> Vec<Source<'_>> {
    let source = |(stretch, rate)| Source { stretch, rate };
    stretches(line).into_iter().map(source).collect()
}

fn rates(runs: &[&str], heirs: &str) -> String {
    let runs: Vec<_> = runs.iter().map(|line| run(line)).collect();
    let heir = |(stretch, keys)| Heir { stretch, key_count: keys as u64 };
    let heirs: Vec<_> = stretches(heirs).into_iter().map(heir).collect();
    let text = |rate: &Option<f64>| rate.map_or("-".to_string(), |rate| format!("{rate:.3}"));
    inherit(&runs, &heirs).iter().map(text).collect::<Vec<_>>().join(" ")
}

#[test]
fn drawn_inputs() {
    // One to one; and shared out by keys where cuts differ.
    assert_eq!(rates(&["a-c=0.4 (c-f=0.1"], "a-c=10 (c-f=10"), "0.400 0.100");
    assert_eq!(rates(&["a-c=0.4 (c-f=0.1"], "a-f=20"), "0.500");
    assert_eq!(rates(&["a-f=0.5"], "a-b=10 (b-f=40"), "0.100 0.400");
    assert_eq!(rates(&["a-c=0.4 (c-f=0.1"], "a-b=10 (b-d=10 (d-f=10"), "0.200 0.250 0.050");
    // The deepest run counts where it has a partition, else the one above.
    assert_eq!(rates(&["a-z=0.8", "a-c=0.1"], "a-c=10 (c-z=10"), "0.100 0.400");
    assert_eq!(rates(&["a-z=0.8", "m-p=0"], "a-c=10 n-o=10"), "0.400 0.000");
    // Where nothing was, nothing is known.
    assert_eq!(rates(&["a-c=0.4"], "a-c=1 d-e=1"), "0.400 -");
    assert_eq!(rates(&[], "a-c=1"), "-");
    assert_eq!(rates(&["a-c=0.4"], ""), "");
    // A start that is not part of a stretch does not touch the end before it.
    assert_eq!(rates(&["a-c=0.4"], "a-c=1 (c-e=1"), "0.400 -");
    assert_eq!(rates(&["c-c=0.4"], "a-c=1 (c-e=1"), "0.400 -");
}

proptest! {
    /// Nothing is lost or made: what one run wasted is wasted by heirs that cover it.
    #[test]
    fn heat_is_conserved(
        cuts in prop::collection::btree_set(0u16..1000, 1..20),
        others in prop::collection::btree_set(0u16..1000, 1..20),
        rates in prop::collection::vec(0.0f64..1.0, 21),
    ) {
        let key = |n: &u16| n.to_be_bytes().to_vec();
        let ends = |cuts: &std::collections::BTreeSet<u16>| {
            let mut ends: Vec<Vec<u8>> = cuts.iter().map(key).collect();
            ends.push(vec![9; 3]);
            ends
        };
        let (source_ends, heir_ends) = (ends(&cuts), ends(&others));
        let stretch = |ends: &'_ [Vec<u8>], at: usize| -> (Vec<u8>, bool, Vec<u8>) {
            let start = at.checked_sub(1).map_or(Vec::new(), |before| ends[before].clone());
            (start, at == 0, ends[at].clone())
        };
        let owned = |ends: &[Vec<u8>]| -> Vec<_> {
            (0..ends.len()).map(|at| stretch(ends, at)).collect()
        };
        let (sources, heirs) = (owned(&source_ends), owned(&heir_ends));
        fn of(part: &(Vec<u8>, bool, Vec<u8>)) -> Stretch<'_> {
            Stretch { start: &part.0, from_start: part.1, end: &part.2 }
        }
        let run: Vec<Source<'_>> = sources
            .iter()
            .zip(&rates)
            .map(|(part, rate)| Source { stretch: of(part), rate: *rate })
            .collect();
        let all: Vec<Heir<'_>> = heirs
            .iter()
            .map(|part| Heir { stretch: of(part), key_count: 7 })
            .collect();
        let sum: f64 = run.iter().map(|source| source.rate).sum();
        let got: f64 = inherit(&[run], &all).into_iter().flatten().sum();
        prop_assert!((sum - got).abs() < 1e-9);
    }
}
