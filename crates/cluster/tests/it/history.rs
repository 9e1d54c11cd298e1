//! Whether the history of one key is linearizable: a register that is read and written, also with the same value
//! again and again, as flushes do.
//!
//! Source: Lowe, "Testing for linearizability", Concurrency and Computation 29(4), 2017, section 4: go through the
//! begins and ends in their order, and keep everything that can be the case. When an operation ends, what remains is
//! that in which it has happened by then, after any of the others that have begun.

use crate::instance::Value;
use std::collections::BTreeSet;

/// An operation. Moments are numbers, all different.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    pub begin: u64,
    /// `None`: its outcome is not known.
    pub end: Option<u64>,
    /// What was written; `None`: it is a read.
    pub wrote: Option<Value>,
    /// What was read.
    pub value: Value,
}

/// What can be the case: the value in the register, and which of the operations that have begun have happened; a bit for
/// each by its place in [`Checker::open`].
type Case = (Value, u128);

/// Operations that have begun, and have not ended.
struct Checker<'h> {
    open: Vec<Option<&'h Recorded>>,
    cases: BTreeSet<Case>,
}

impl<'h> Checker<'h> {
    fn begin(&mut self, one: &'h Recorded) {
        let place = match self.open.iter().position(Option::is_none) {
            Some(free) => free,
            None => {
                self.open.push(None);
                self.open.len() - 1
            }
        };
        assert!(place < 128, "too many operations of unknown outcome");
        self.open[place] = Some(one);
        let cases = std::mem::take(&mut self.cases);
        self.cases = cases.into_iter().map(|case| self.read(case)).collect();
    }

    /// Lets what is open read the value, if it is the one that it read: that changes nothing for others.
    fn read(&self, (value, mut happened): Case) -> Case {
        for (place, one) in self.open.iter().enumerate() {
            if one.is_some_and(|one| one.wrote.is_none() && one.value == value) {
                happened |= 1 << place;
            }
        }
        (value, happened)
    }

    /// What can come of a case by one write.
    fn writes(&self, happened: u128) -> impl Iterator<Item = Case> {
        // Of flushes that may come at any time one is like the other.
        let mut has_flush = false;
        let may_happen = move |(place, one): (usize, &Option<&'h Recorded>)| {
            let one = (*one)?;
            let value = one.wrote.filter(|_| happened & (1 << place) == 0)?;
            let is_late_flush = one.end.is_none() && value.is_none();
            let is_more_of_it = is_late_flush && std::mem::replace(&mut has_flush, true);
            (!is_more_of_it).then_some((value, happened | 1 << place))
        };
        self.open.iter().enumerate().filter_map(may_happen).map(|case| self.read(case))
    }

    /// An operation ends: whether that can be.
    fn end(&mut self, one: &Recorded) -> bool {
        let is_it = |open: &Option<&Recorded>| open.is_some_and(|open| open.begin == one.begin);
        let Some(place) = self.open.iter().position(is_it) else { return false };
        let mut left = BTreeSet::new();
        let mut seen = std::mem::take(&mut self.cases);
        let mut next: Vec<Case> = seen.iter().copied().collect();
        while let Some((value, happened)) = next.pop() {
            if happened & (1 << place) != 0 {
                left.insert((value, happened & !(1 << place)));
                continue;
            }
            next.extend(self.writes(happened).filter(|case| seen.insert(*case)));
        }
        (self.open[place], self.cases) = (None, left);
        !self.cases.is_empty()
    }
}

/// What is wrong with a history that begins with this value.
pub fn check(initial: Value, history: &[Recorded]) -> Result<(), String> {
    let read: BTreeSet<Value> = history
        .iter()
        .filter(|it| it.wrote.is_none() && it.end.is_some())
        .map(|it| it.value)
        .collect();
    // A write without an end whose value nobody read may not have happened.
    let matters =
        |it: &&Recorded| it.end.is_some() || it.wrote.is_some_and(|value| read.contains(&value));
    let mut moments: Vec<(u64, &Recorded, bool)> = Vec::new();
    for it in history.iter().filter(matters) {
        moments.push((it.begin, it, false));
        moments.extend(it.end.map(|end| (end, it, true)));
    }
    moments.sort_by_key(|(moment, ..)| *moment);
    let mut checker = Checker { open: Vec::new(), cases: BTreeSet::from([(initial, 0)]) };
    for (_, it, is_end) in moments {
        match is_end {
            false => checker.begin(it),
            true if checker.end(it) => {}
            true => return Err(format!("{it:?} does not follow from what was before")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stateright::semantics::register::{Register, RegisterOp, RegisterRet};
    use stateright::semantics::{ConsistencyTester, LinearizabilityTester};
    use terrace_cluster_rng::Rng;

    /// A small generator, so that the histories are the same everywhere.
    mod terrace_cluster_rng {
        pub struct Rng(pub u64);

        impl Rng {
            pub fn below(&mut self, bound: u64) -> u64 {
                self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (self.0 >> 33) % bound
            }
        }
    }

    fn write(begin: u64, end: u64, value: u32) -> Recorded {
        Recorded { begin, end: Some(end), wrote: Some(Some(value)), value: None }
    }

    fn flush(begin: u64, end: Option<u64>) -> Recorded {
        Recorded { begin, end, wrote: Some(None), value: None }
    }

    fn read(begin: u64, end: u64, value: u32) -> Recorded {
        Recorded { begin, end: Some(end), wrote: None, value: Some(value) }
    }

    fn read_none(begin: u64, end: u64) -> Recorded {
        Recorded { value: None, ..read(begin, end, 0) }
    }

    #[test]
    fn histories_that_must_be_refused_are_refused() {
        let lost = Recorded { end: None, ..write(1, 0, 1) };
        let accepted: [&[Recorded]; 8] = [
            &[write(1, 2, 1), read(3, 4, 1)],
            &[write(1, 6, 1), read(2, 3, 0), read(4, 5, 1)],
            &[lost, read(2, 3, 0), read(4, 5, 1)],
            &[lost, read(2, 3, 0)],
            &[write(1, 5, 1), write(2, 6, 2), read(3, 4, 2), read(7, 8, 1)],
            &[flush(1, Some(4)), write(2, 3, 1), read(5, 6, 1)],
            &[flush(1, None), read_none(2, 3), write(4, 5, 1), read(6, 7, 1)],
            &[flush(1, None), write(2, 3, 1), read(4, 5, 1), read_none(6, 7)],
        ];
        for history in accepted {
            assert_eq!(check(Some(0), history), Ok(()), "{history:?}");
        }
        let refused: [(&str, &[Recorded]); 9] = [
            ("a lost write", &[write(1, 2, 1), read(3, 4, 0)]),
            ("a stale read after a new one", &[write(1, 6, 1), read(2, 3, 1), read(4, 5, 0)]),
            ("a read of nothing written", &[read(1, 2, 7)]),
            ("a read of the future", &[read(1, 2, 1), write(3, 4, 1)]),
            ("back and forth", &[lost, write(2, 3, 2), read(4, 5, 1), read(6, 7, 2)]),
            ("overwritten and back", &[write(1, 2, 1), write(3, 4, 2), read(5, 6, 1)]),
            ("what outlives a flush", &[write(1, 2, 1), flush(3, Some(4)), read(5, 6, 1)]),
            (
                "what a flush of before removes",
                &[flush(1, Some(2)), write(3, 4, 1), read_none(5, 6)],
            ),
            (
                "a flush that happens twice",
                &[flush(1, None), read_none(2, 3), write(4, 5, 1), read(6, 7, 1), read_none(8, 9)],
            ),
        ];
        for (what, history) in refused {
            assert!(check(Some(0), history).is_err(), "{what}");
        }
    }

    /// Random histories of four clients, against a search over all orders.
    #[test]
    fn the_checker_agrees_with_a_search_over_all_orders() {
        let (mut good, mut bad) = (0, 0);
        for seed in 0..6_000 {
            let mut rng = Rng(seed);
            let mut tester = LinearizabilityTester::new(Register(Some(0u32)));
            let mut history: Vec<Recorded> = Vec::new();
            let mut running: [Option<usize>; 4] = [None; 4];
            let (mut moment, mut written) = (0, 0);
            for _ in 0..10 {
                moment += 1;
                let client = rng.below(4) as usize;
                let Some(at) = running[client].take() else {
                    let wrote = match rng.below(8) {
                        0..4 => None,
                        4 | 5 => Some(None),
                        _ => {
                            written += 1;
                            Some(Some(written))
                        }
                    };
                    let invoked = wrote.map_or(RegisterOp::Read, RegisterOp::Write);
                    tester.on_invoke(client, invoked).unwrap();
                    running[client] = Some(history.len());
                    history.push(Recorded { begin: moment, end: None, wrote, value: None });
                    continue;
                };
                let it = &mut history[at];
                it.end = Some(moment);
                let returned = match it.wrote {
                    Some(_) => RegisterRet::WriteOk,
                    None => {
                        let value = rng.below(u64::from(written) + 2) as u32;
                        it.value = (value <= written).then_some(value);
                        RegisterRet::ReadOk(it.value)
                    }
                };
                tester.on_return(client, returned).unwrap();
            }
            let expected = tester.is_consistent();
            assert_eq!(check(Some(0), &history).is_ok(), expected, "{seed}: {history:?}");
            if expected { good += 1 } else { bad += 1 }
        }
        assert!(good > 500 && bad > 500, "{good} {bad}");
    }
}
