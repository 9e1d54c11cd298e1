//! Whether the history of one key is linearizable: a register whose writes all have different values.
//!
//! Source: Gibbons and Korach, "Testing Shared Memories", SIAM J. Comput. 26(4), 1997, section 4. The
//! operations of one value span a zone, from the first end to the last begin. If that runs forwards, the
//! value was in the register during all of it, so such zones do not overlap; if it runs backwards, the
//! value was in the register at some moment of it, so it does not lie within a zone that runs forwards.

use crate::instance::{Op, Value};
use std::collections::BTreeMap;

/// An operation. Moments are numbers, all different.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    pub begin: u64,
    /// `None`: its outcome is not known.
    pub end: Option<u64>,
    pub op: Op,
    /// What was read.
    pub value: Value,
}

#[derive(Default)]
struct Zone {
    write: Option<(u64, u64)>,
    is_read: bool,
    first_end: u64,
    last_begin: u64,
}

impl Zone {
    fn add(&mut self, begin: u64, end: u64) {
        self.first_end = self.first_end.min(end);
        self.last_begin = self.last_begin.max(begin);
    }
}

/// What is wrong with a history that begins with this value.
pub fn check(initial: Value, history: &[Recorded]) -> Result<(), String> {
    let new = || Zone { first_end: u64::MAX, ..Zone::default() };
    let mut zones: BTreeMap<Value, Zone> = BTreeMap::new();
    let first = zones.entry(initial).or_insert_with(new);
    first.write = Some((0, 0));
    first.add(0, 0);
    for it in history {
        if let Op::Write(value) = it.op {
            let zone = zones.entry(Some(value)).or_insert_with(new);
            let end = it.end.unwrap_or(u64::MAX);
            if zone.write.replace((it.begin, end)).is_some() {
                return Err(format!("{value} was written twice"));
            }
            zone.add(it.begin, end);
        }
    }
    for it in history.iter().filter(|it| it.op == Op::Read) {
        let Some(end) = it.end else { continue };
        let zone = zones.entry(it.value).or_insert_with(new);
        match zone.write {
            None => return Err(format!("{:?} was read and never written", it.value)),
            Some((begin, _)) if end < begin => {
                return Err(format!("{:?} was read before it was written", it.value));
            }
            Some(_) => {}
        }
        zone.is_read = true;
        zone.add(it.begin, end);
    }
    // A write without an end that nobody read may not have happened.
    zones.retain(|_, zone| zone.is_read || zone.first_end != u64::MAX);
    let mut forward: Vec<(&Value, &Zone)> =
        zones.iter().filter(|(_, zone)| zone.first_end < zone.last_begin).collect();
    forward.sort_by_key(|(_, zone)| zone.first_end);
    for pair in forward.windows(2) {
        if pair[1].1.first_end < pair[0].1.last_begin {
            return Err(format!("{:?} and {:?} were there at a time", pair[0].0, pair[1].0));
        }
    }
    for (value, zone) in zones.iter().filter(|(_, zone)| zone.first_end > zone.last_begin) {
        let around = forward.iter().find(|(_, around)| {
            around.first_end < zone.last_begin && zone.first_end < around.last_begin
        });
        if let Some((other, _)) = around {
            return Err(format!("{value:?} was there while {other:?} was"));
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
        Recorded { begin, end: Some(end), op: Op::Write(value), value: None }
    }

    fn read(begin: u64, end: u64, value: u32) -> Recorded {
        Recorded { begin, end: Some(end), op: Op::Read, value: Some(value) }
    }

    #[test]
    fn histories_that_must_be_refused_are_refused() {
        let lost = Recorded { end: None, ..write(1, 0, 1) };
        let accepted: [&[Recorded]; 5] = [
            &[write(1, 2, 1), read(3, 4, 1)],
            &[write(1, 6, 1), read(2, 3, 0), read(4, 5, 1)],
            &[lost, read(2, 3, 0), read(4, 5, 1)],
            &[lost, read(2, 3, 0)],
            &[write(1, 5, 1), write(2, 6, 2), read(3, 4, 2), read(7, 8, 1)],
        ];
        for history in accepted {
            assert_eq!(check(Some(0), history), Ok(()), "{history:?}");
        }
        let refused: [(&str, &[Recorded]); 7] = [
            ("a lost write", &[write(1, 2, 1), read(3, 4, 0)]),
            ("a stale read after a new one", &[write(1, 6, 1), read(2, 3, 1), read(4, 5, 0)]),
            ("a read of nothing written", &[read(1, 2, 7)]),
            ("a read of the future", &[read(1, 2, 1), write(3, 4, 1)]),
            ("a write twice", &[write(1, 2, 1), write(3, 4, 1)]),
            ("back and forth", &[lost, write(2, 3, 2), read(4, 5, 1), read(6, 7, 2)]),
            ("overwritten and back", &[write(1, 2, 1), write(3, 4, 2), read(5, 6, 1)]),
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
            let mut tester = LinearizabilityTester::new(Register(0u32));
            let mut history: Vec<Recorded> = Vec::new();
            let mut running: [Option<usize>; 4] = [None; 4];
            let (mut moment, mut written) = (0, 0);
            for _ in 0..10 {
                moment += 1;
                let client = rng.below(4) as usize;
                let Some(at) = running[client].take() else {
                    let is_write = rng.below(2) == 0;
                    let op = if is_write { Op::Write(written + 1) } else { Op::Read };
                    let invoked = if is_write {
                        written += 1;
                        RegisterOp::Write(written)
                    } else {
                        RegisterOp::Read
                    };
                    tester.on_invoke(client, invoked).unwrap();
                    running[client] = Some(history.len());
                    history.push(Recorded { begin: moment, end: None, op, value: None });
                    continue;
                };
                let it = &mut history[at];
                it.end = Some(moment);
                let returned = match it.op {
                    Op::Write(_) => RegisterRet::WriteOk,
                    Op::Read => {
                        let value = rng.below(u64::from(written) + 1) as u32;
                        it.value = Some(value);
                        RegisterRet::ReadOk(value)
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
