//! BITFIELD: integers of 1 to 64 bits, with a sign or without, anywhere in a string.

use super::bit_offset::offset as bit_offset;
use super::{Call, Failure, Outcome};

/// What an integer is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Encoding {
    is_signed: bool,
    bits: u32,
}

/// What becomes of a number that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Get,
    Set(i64),
    Add(i64),
}

struct Step {
    encoding: Encoding,
    place: u64,
    action: Action,
    overflow: Overflow,
}

impl Encoding {
    fn of(text: &[u8]) -> Option<Self> {
        let (is_signed, digits, most) = match text {
            [b'i', digits @ ..] => (true, digits, 64),
            [b'u', digits @ ..] => (false, digits, 63),
            _ => return None,
        };
        let bits = terrace_resp::parse_integer(digits)?;
        (1..=most).contains(&bits).then_some(Self { is_signed, bits: bits as u32 })
    }

    fn range(self) -> (i128, i128) {
        match self.is_signed {
            true => (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1),
            false => (0, (1 << self.bits) - 1),
        }
    }

    /// The number that the lowest bits of `number` are.
    fn wrapped(self, number: i128) -> i64 {
        let low = number & ((1 << self.bits) - 1);
        let is_negative = self.is_signed && low >> (self.bits - 1) & 1 == 1;
        (if is_negative { low - (1 << self.bits) } else { low }) as i64
    }

    /// What a number becomes; `None` if it fails.
    fn fitted(self, number: i128, overflow: Overflow) -> Option<i64> {
        let (lowest, highest) = self.range();
        match overflow {
            _ if (lowest..=highest).contains(&number) => Some(number as i64),
            Overflow::Wrap => Some(self.wrapped(number)),
            Overflow::Saturate => Some(number.clamp(lowest, highest) as i64),
            Overflow::Fail => None,
        }
    }

    fn read(self, bytes: &[u8], place: u64) -> i64 {
        let number = (place..place + u64::from(self.bits)).fold(0, |number: i128, place| {
            let byte = bytes.get((place / 8) as usize).copied().unwrap_or(0);
            number << 1 | i128::from(byte >> (7 - place % 8) & 1)
        });
        self.wrapped(number)
    }

    /// The bytes are there.
    fn write(self, bytes: &mut [u8], place: u64, number: i64) {
        for at in 0..u64::from(self.bits) {
            let (place, from) = (place + at, u64::from(self.bits) - 1 - at);
            let mask = 0x80 >> (place % 8);
            let Some(byte) = bytes.get_mut((place / 8) as usize) else { return };
            *byte = if number >> from & 1 == 1 { *byte | mask } else { *byte & !mask };
        }
    }
}

impl Step {
    /// The answer.
    fn take(&self, bytes: &mut [u8]) -> Option<i64> {
        let before = self.encoding.read(bytes, self.place);
        let (number, answer) = match self.action {
            Action::Get => return Some(before),
            Action::Set(value) => {
                let number = match self.encoding.is_signed {
                    true => i128::from(value),
                    // As Redis, which takes a number below 0 for a very large one.
                    false => i128::from(value as u64),
                };
                (self.encoding.fitted(number, self.overflow)?, before)
            }
            Action::Add(delta) => {
                let sum = i128::from(before) + i128::from(delta);
                let number = self.encoding.fitted(sum, self.overflow)?;
                (number, number)
            }
        };
        self.encoding.write(bytes, self.place, number);
        Some(answer)
    }

    fn writes(&self) -> bool {
        !matches!(self.action, Action::Get)
    }
}

fn steps(call: &Call<'_>, read_only: bool) -> Result<Vec<Step>, Failure> {
    let (mut steps, mut overflow, mut at) = (Vec::new(), Overflow::Wrap, 2);
    while at < call.count() {
        let left = call.count() - at - 1;
        let word = call.arg(at).to_ascii_lowercase();
        let length = match &word[..] {
            b"get" if left >= 2 => 3,
            b"set" | b"incrby" if left >= 3 => 4,
            b"overflow" if left >= 1 => {
                overflow = match &call.arg(at + 1).to_ascii_lowercase()[..] {
                    b"wrap" => Overflow::Wrap,
                    b"sat" => Overflow::Saturate,
                    b"fail" => Overflow::Fail,
                    _ => return Err(Failure::line("ERR Invalid OVERFLOW type specified")),
                };
                at += 2;
                continue;
            }
            _ => return Err(Failure::SYNTAX),
        };
        let encoding = Encoding::of(call.arg(at + 1)).ok_or(Failure::line(
            "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported \
             but i64 is.",
        ))?;
        let place = bit_offset(call, at + 2, Some(u64::from(encoding.bits)))?;
        let action = match &word[..] {
            b"get" => Action::Get,
            b"set" => Action::Set(call.integer(at + 3)?),
            _ => Action::Add(call.integer(at + 3)?),
        };
        steps.push(Step { encoding, place, action, overflow });
        at += length;
    }
    match read_only && steps.iter().any(Step::writes) {
        true => Err(Failure::line("ERR BITFIELD_RO only supports the GET subcommand")),
        false => Ok(steps),
    }
}

pub(super) fn bitfield(call: &mut Call<'_>, read_only: bool) -> Outcome {
    let steps = steps(call, read_only)?;
    let (db, key) = (call.db(), call.arg(1));
    let last_bit = |step: &Step| step.place + u64::from(step.encoding.bits) - 1;
    let answers: Vec<Option<i64>> =
        match steps.iter().filter(|step| step.writes()).map(last_bit).max() {
            None => {
                let value = call.batch.get(db, key)?;
                let bytes = value.as_deref().unwrap_or_default();
                steps.iter().map(|step| Some(step.encoding.read(bytes, step.place))).collect()
            }
            Some(last) => call.batch.edit_string(db, key, (last / 8) as usize + 1, |bytes| {
                let before = bytes.len();
                bytes.resize(before.max((last / 8) as usize + 1), 0);
                let mut answers = Vec::new();
                // A step that changes nothing must not touch watched keys.
                let mut is_changed = bytes.len() > before;
                for step in &steps {
                    let old = step.encoding.read(bytes, step.place);
                    answers.push(step.take(bytes));
                    is_changed |= step.encoding.read(bytes, step.place) != old;
                }
                Ok((is_changed, answers))
            })?,
        };
    call.reply.array(answers.len());
    for answer in answers {
        match answer {
            Some(number) => call.reply.integer(number),
            None => call.reply.null(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_its_neighbours_stay() {
        for bits in 1..=64 {
            for is_signed in [true, false] {
                let encoding = Encoding { is_signed, bits };
                let (lowest, highest) = encoding.range();
                for place in [0, 1, 7, 8, 13] {
                    let mut bytes = vec![0xA5; 12];
                    let before = bytes.clone();
                    for number in [lowest, highest, highest / 3] {
                        let number = encoding.fitted(number, Overflow::Wrap).unwrap();
                        encoding.write(&mut bytes, place, number);
                        assert_eq!(encoding.read(&bytes, place), number, "{bits} bits at {place}");
                    }
                    let one = Encoding { is_signed: false, bits: 1 };
                    let own = place..place + u64::from(bits);
                    for at in (0..96).filter(|at| !own.contains(at)) {
                        assert_eq!(one.read(&bytes, at), one.read(&before, at), "bit {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_that_do_not_fit_wrap_stop_or_fail() {
        let small = Encoding { is_signed: true, bits: 4 };
        assert_eq!(small.fitted(9, Overflow::Wrap), Some(-7));
        assert_eq!(small.fitted(9, Overflow::Saturate), Some(7));
        assert_eq!(small.fitted(-9, Overflow::Saturate), Some(-8));
        assert_eq!(small.fitted(9, Overflow::Fail), None);
        assert_eq!(Encoding::of(b"u64"), None);
        assert_eq!(Encoding::of(b"i65"), None);
        assert_eq!(Encoding::of(b"i0"), None);
    }
}
