//! Bits of strings: the highest bit of the first byte is bit 0.

use super::bit_offset::offset;
use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome, bitfield};
use std::collections::BTreeMap;
use terrace_keyspace::PutOptions;

/// What most rows have.
const ROW: CommandSpec = CommandSpec {
    name: "",
    arity: -2,
    flags: Flags::READ,
    keys: Keys::First,
    group: Group::Bitmap,
    arguments: "",
    summary: "",
    complexity: "O(length)",
    since: "2.6.0",
    run: bitcount,
};

const FIELDS: &str = "key [GET encoding offset | [OVERFLOW WRAP | SAT | FAIL] SET encoding offset value | \
                      INCRBY encoding offset increment] ...";

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "setbit",
        arity: 4,
        flags: Flags::WRITE,
        arguments: "key offset value",
        summary: "Sets a bit, and gives what it was.",
        since: "2.2.0",
        run: setbit,
        ..ROW
    },
    CommandSpec {
        name: "getbit",
        arity: 3,
        flags: Flags::READ.with(Flags::FAST),
        arguments: "key offset",
        summary: "Gives a bit.",
        since: "2.2.0",
        run: getbit,
        ..ROW
    },
    CommandSpec {
        name: "bitcount",
        arguments: "key [start end [BYTE | BIT]]",
        summary: "Counts the bits that are set.",
        ..ROW
    },
    CommandSpec {
        name: "bitpos",
        arity: -3,
        arguments: "key bit [start [end [BYTE | BIT]]]",
        summary: "Gives the place of the first bit that is set, or is not.",
        since: "2.8.7",
        run: bitpos,
        ..ROW
    },
    CommandSpec {
        name: "bitop",
        arity: -4,
        flags: Flags::WRITE.with(Flags::READS_LATE),
        keys: Keys::AfterFirst,
        arguments: "AND | OR | XOR | NOT destkey key [key ...]",
        summary: "Combines strings bit by bit, and stores the result.",
        complexity: "O(length of all)",
        run: bitop,
        ..ROW
    },
    CommandSpec {
        name: "bitfield",
        flags: Flags::WRITE,
        arguments: FIELDS,
        summary: "Reads and changes integers of any number of bits in a string.",
        since: "3.2.0",
        run: |call| bitfield::bitfield(call, false),
        ..ROW
    },
    CommandSpec {
        name: "bitfield_ro",
        flags: Flags::READ.with(Flags::FAST),
        arguments: "key [GET encoding offset [GET encoding offset ...]]",
        summary: "Reads integers of any number of bits in a string.",
        since: "6.0.0",
        run: |call| bitfield::bitfield(call, true),
        ..ROW
    },
];

/// The bit at a place: 0 behind the end.
fn bit(bytes: &[u8], place: u64) -> u8 {
    let byte = usize::try_from(place / 8).ok().and_then(|at| bytes.get(at));
    byte.map_or(0, |byte| byte >> (7 - place % 8) & 1)
}

fn setbit(call: &mut Call<'_>) -> Outcome {
    let place = offset(call, 2, None)?;
    let is_set = match terrace_resp::parse_integer(call.arg(3)) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(Failure::line("ERR bit is not an integer or out of range")),
    };
    let (at, mask) = ((place / 8) as usize, 0x80 >> (place % 8));
    let before = call.batch.edit_string(call.session.db, call.arg(1), at + 1, |bytes| {
        let grows = bytes.len() <= at;
        bytes.resize(bytes.len().max(at + 1), 0);
        let before = bit(bytes, place);
        bytes[at] = if is_set { bytes[at] | mask } else { bytes[at] & !mask };
        // Who watches the key hears nothing of a bit that stays as it was.
        Ok((grows || before != u8::from(is_set), before))
    })?;
    call.reply.integer(i64::from(before));
    Ok(())
}

fn getbit(call: &mut Call<'_>) -> Outcome {
    let place = offset(call, 2, None)?;
    let value = call.batch.get(call.session.db, call.arg(1))?;
    call.reply.integer(i64::from(value.map_or(0, |value| bit(&value, place))));
    Ok(())
}

/// A part of a string, in bits: from the first to the last, both included.
struct Part {
    first: i64,
    last: i64,
}

/// Two ends, which count from the end below 0, among `count`; `None` if nothing is between.
fn ends(mut first: i64, mut last: i64, count: i64) -> Option<(i64, i64)> {
    for end in [&mut first, &mut last] {
        if *end < 0 {
            *end = end.saturating_add(count).max(0);
        }
    }
    last = last.min(count - 1);
    (first <= last).then_some((first, last))
}

/// Whether argument number `at` says that places are bits.
fn is_in_bits(call: &Call<'_>, at: usize) -> Result<bool, Failure> {
    match call.arg(at) {
        _ if at >= call.count() => Ok(false),
        unit if unit.eq_ignore_ascii_case(b"bit") => Ok(true),
        unit if unit.eq_ignore_ascii_case(b"byte") => Ok(false),
        _ => Err(Failure::SYNTAX),
    }
}

fn part(bytes: &[u8], (first, last): (i64, i64), in_bits: bool) -> Option<Part> {
    let count = if in_bits { bytes.len() as i64 * 8 } else { bytes.len() as i64 };
    let (first, last) = ends(first, last, count)?;
    Some(match in_bits {
        true => Part { first, last },
        false => Part { first: first * 8, last: last * 8 + 7 },
    })
}

/// The bytes of a part, with the bits before and behind it replaced by those of `fill`.
fn masked<'b>(bytes: &'b [u8], part: &Part, fill: u8) -> impl Iterator<Item = u8> + use<'b> {
    let (first, last) = ((part.first / 8) as usize, (part.last / 8) as usize);
    let head = !(0xFF_u8 >> (part.first % 8));
    let tail = (0x7F_u32 >> (part.last % 8)) as u8;
    bytes[first..=last].iter().enumerate().map(move |(at, byte)| {
        let outside = if at == 0 { head } else { 0 } | if at == last - first { tail } else { 0 };
        byte & !outside | fill & outside
    })
}

fn bitcount(call: &mut Call<'_>) -> Outcome {
    let (db, key) = (call.db(), call.arg(1));
    // As Redis, which looks at the other arguments only if there is a string.
    let Some(value) = call.batch.get(db, key)? else {
        call.reply.integer(0);
        return Ok(());
    };
    call.batch.allow_bytes(value.len())?;
    let part = match call.count() {
        2 => part(&value, (0, -1), false),
        4 | 5 => {
            let wanted = (call.integer(2)?, call.integer(3)?);
            // As Redis, which does not look at the unit of what is nothing in any.
            let is_nothing = wanted.0 < 0 && wanted.1 < 0 && wanted.0 > wanted.1;
            match is_nothing {
                true => None,
                false => part(&value, wanted, is_in_bits(call, 4)?),
            }
        }
        _ => return Err(Failure::SYNTAX),
    };
    let count =
        |part: Part| masked(&value, &part, 0).map(|byte| u64::from(byte.count_ones())).sum();
    call.reply.integer(part.map_or(0_u64, count) as i64);
    Ok(())
}

fn bitpos(call: &mut Call<'_>) -> Outcome {
    let is_set = match call.integer(2)? {
        0 => false,
        1 => true,
        _ => return Err(Failure::line("ERR The bit argument must be 1 or 0.")),
    };
    let Some(value) = call.batch.get(call.session.db, call.arg(1))? else {
        call.reply.integer(if is_set { -1 } else { 0 });
        return Ok(());
    };
    call.batch.allow_bytes(value.len())?;
    let (wanted, in_bits) = match call.count() {
        3 => ((0, -1), false),
        4 => ((call.integer(3)?, -1), false),
        5 | 6 => {
            let first = call.integer(3)?;
            let in_bits = is_in_bits(call, 5)?;
            ((first, call.integer(4)?), in_bits)
        }
        _ => return Err(Failure::SYNTAX),
    };
    let Some(part) = part(&value, wanted, in_bits) else {
        call.reply.integer(-1);
        return Ok(());
    };
    let none = if is_set { 0 } else { 0xFF };
    let found = masked(&value, &part, none).enumerate().find(|(_, byte)| *byte != none);
    call.reply.integer(match found {
        Some((at, byte)) => {
            let zeros = if is_set { byte.leading_zeros() } else { byte.leading_ones() };
            (part.first / 8 + at as i64) * 8 + i64::from(zeros)
        }
        // Behind a string without an end all bits are 0.
        None if !is_set && call.count() < 5 => value.len() as i64 * 8,
        None => -1,
    });
    Ok(())
}

fn bitop(call: &mut Call<'_>) -> Outcome {
    let combine: fn(u8, u8) -> u8 = match &call.arg(1).to_ascii_lowercase()[..] {
        b"and" => |a, b| a & b,
        b"or" => |a, b| a | b,
        b"xor" => |a, b| a ^ b,
        // Of the one source nothing is combined.
        b"not" if call.count() == 4 => |a, _| a,
        b"not" => {
            return Err(Failure::line("ERR BITOP NOT must be called with a single source key."));
        }
        _ => return Err(Failure::SYNTAX),
    };
    let db = call.db();
    let is_xor = call.arg(1).eq_ignore_ascii_case(b"xor");
    // Equal keys make no difference to the result, or take each other away from it.
    let mut times: BTreeMap<&[u8], usize> = BTreeMap::new();
    call.args_from(3).for_each(|key| *times.entry(key).or_default() += 1);
    let (mut result, mut bytes): (Option<Vec<u8>>, usize) = (None, 0);
    for (key, times) in times {
        let source = call.batch.get(db, key)?;
        let source = source.as_deref().unwrap_or_default();
        bytes = bytes.saturating_add(source.len());
        call.batch.allow_bytes(bytes)?;
        let only_counts_as_long = is_xor && times % 2 == 0;
        match &mut result {
            None if only_counts_as_long => result = Some(vec![0; source.len()]),
            None => result = Some(source.to_vec()),
            Some(result) => {
                result.resize(result.len().max(source.len()), 0);
                if !only_counts_as_long {
                    fold(result, source, combine);
                }
            }
        }
    }
    let mut result = result.unwrap_or_default();
    if call.arg(1).eq_ignore_ascii_case(b"not") {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    let length = result.len();
    match length {
        0 => drop(call.batch.delete(db, std::iter::once(call.arg(2)))?),
        _ => drop(call.batch.put(db, call.arg(2), &result, &PutOptions::default())?),
    }
    call.reply.integer(length as i64);
    Ok(())
}

/// Combines bytes with those of `source`, behind whose end there are zeros.
fn fold(bytes: &mut [u8], source: &[u8], combine: fn(u8, u8) -> u8) {
    let (both, behind) = bytes.split_at_mut(source.len().min(bytes.len()));
    both.iter_mut().zip(source).for_each(|(byte, other)| *byte = combine(*byte, *other));
    behind.iter_mut().for_each(|byte| *byte = combine(*byte, 0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_no_bits_of_its_neighbours() {
        let bytes = [0xFF; 3];
        for (first, last, count) in [(0, 23, 24), (3, 3, 1), (3, 8, 6), (7, 16, 10), (8, 15, 8)] {
            let part = Part { first, last };
            let ones: u32 = masked(&bytes, &part, 0).map(u8::count_ones).sum();
            assert_eq!(ones, count, "{first} to {last}");
            let zeros: u32 = masked(&[0; 3], &part, 0xFF).map(u8::count_zeros).sum();
            assert_eq!(zeros, count, "{first} to {last}");
        }
        assert_eq!(bit(&[0b0100_0000], 1), 1);
        assert_eq!(bit(&[0xFF], 8), 0);
        assert_eq!(ends(-3, -1, 5), Some((2, 4)));
        assert_eq!(ends(5, 9, 5), None);
        assert_eq!(ends(i64::MIN, i64::MAX, 5), Some((0, 4)));
        assert_eq!(ends(0, -1, 0), None);
    }
}
