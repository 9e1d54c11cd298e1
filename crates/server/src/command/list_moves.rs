//! Elements that go from list to list, and the places of elements.

use super::lists::pop_several;
use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};
use terrace_keyspace::End;
use terrace_resp::Aggregate;

const MOVE: Flags = Flags::WRITE.with(Flags::READS_LATE);

/// What most rows have.
const ROW: CommandSpec = CommandSpec {
    name: "",
    arity: 3,
    flags: MOVE,
    keys: Keys::FirstTwo,
    group: Group::List,
    arguments: "",
    summary: "",
    complexity: "O(1)",
    since: "1.2.0",
    run: rpoplpush,
};

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "lmove",
        arity: 5,
        arguments: "source destination LEFT | RIGHT LEFT | RIGHT",
        summary: "Takes an element from an end of a list and adds it at an end of a list.",
        since: "6.2.0",
        run: lmove,
        ..ROW
    },
    CommandSpec {
        name: "rpoplpush",
        arguments: "source destination",
        summary: "Takes the last element of a list and adds it at the front of a list.",
        ..ROW
    },
    CommandSpec {
        name: "lmpop",
        arity: -4,
        flags: MOVE.with(Flags::MOVABLE_KEYS),
        keys: Keys::Counted,
        arguments: "numkeys key [key ...] LEFT | RIGHT [COUNT count]",
        summary: "Takes elements from the first list that has any.",
        complexity: "O(keys + elements taken)",
        since: "7.0.0",
        run: lmpop,
        ..ROW
    },
    CommandSpec {
        name: "lpos",
        arity: -3,
        flags: Flags::READ,
        keys: Keys::First,
        arguments: "key element [RANK rank] [COUNT count] [MAXLEN length]",
        summary: "Gives the places of elements that are equal to one.",
        complexity: "O(elements walked by)",
        since: "6.0.6",
        run: lpos,
        ..ROW
    },
];

fn end(word: &[u8]) -> Result<End, Failure> {
    match word {
        _ if word.eq_ignore_ascii_case(b"left") => Ok(End::Front),
        _ if word.eq_ignore_ascii_case(b"right") => Ok(End::Back),
        _ => Err(Failure::SYNTAX),
    }
}

fn move_element(call: &mut Call<'_>, from: End, to: End) -> Outcome {
    let (db, source, destination) = (call.db(), call.arg(1), call.arg(2));
    let moved = call.batch.list_move(db, (source, from), (destination, to))?;
    call.bulk_or_null(moved);
    Ok(())
}

fn lmove(call: &mut Call<'_>) -> Outcome {
    let (from, to) = (end(call.arg(3))?, end(call.arg(4))?);
    move_element(call, from, to)
}

fn rpoplpush(call: &mut Call<'_>) -> Outcome {
    move_element(call, End::Back, End::Front)
}

/// How many elements `COUNT` in the arguments from number `at` on wants; 1 without it.
pub(super) fn count_to_take(call: &Call<'_>, at: usize) -> Result<u64, Failure> {
    match call.count() - at {
        0 => Ok(1),
        more if more > 1 && call.arg(at).eq_ignore_ascii_case(b"count") => {
            let count = terrace_resp::parse_integer(call.arg(at + 1));
            let count =
                count.and_then(|count| u64::try_from(count).ok()).filter(|count| *count > 0);
            // As in Redis, before what follows it is looked at.
            let count = count.ok_or(Failure::line("ERR count should be greater than 0"))?;
            if more == 2 { Ok(count) } else { Err(Failure::SYNTAX) }
        }
        _ => Err(Failure::SYNTAX),
    }
}

/// How many keys LMPOP and ZMPOP have; something follows them.
pub(super) fn keys_to_take_from(call: &Call<'_>) -> Result<usize, Failure> {
    let count = terrace_resp::parse_integer(call.arg(1)).and_then(|n| usize::try_from(n).ok());
    let count = count.filter(|count| *count > 0);
    let count = count.ok_or(Failure::line("ERR numkeys should be greater than 0"))?;
    if count < call.count() - 2 { Ok(count) } else { Err(Failure::SYNTAX) }
}

fn lmpop(call: &mut Call<'_>) -> Outcome {
    let keys = keys_to_take_from(call)?;
    let end = end(call.arg(2 + keys))?;
    let count = count_to_take(call, 3 + keys)?;
    for key in call.args_from(2).take(keys) {
        if pop_several(call, key, end, count, true)? {
            return Ok(());
        }
    }
    call.reply.null_array();
    Ok(())
}

fn lpos(call: &mut Call<'_>) -> Outcome {
    let (mut rank, mut count, mut walk, mut at) = (1, None, 0, 3);
    while at < call.count() {
        if at + 1 == call.count() {
            return Err(Failure::SYNTAX);
        }
        let not_negative = |what: &str| {
            let number = terrace_resp::parse_integer(call.arg(at + 1));
            let number = number.and_then(|number| u64::try_from(number).ok());
            number.ok_or_else(|| Failure::err(format_args!("{what} can't be negative")))
        };
        match &call.arg(at).to_ascii_lowercase()[..] {
            b"rank" => {
                rank = call.integer(at + 1)?;
                if rank == 0 {
                    return Err(Failure::line(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the \
                         second ... or use negative to start from the end of the list",
                    ));
                }
                if rank == i64::MIN {
                    return Err(Failure::line(
                        "ERR value is out of range, value must between -9223372036854775807 and \
                         9223372036854775807",
                    ));
                }
            }
            b"count" => count = Some(not_negative("COUNT")?),
            b"maxlen" => walk = not_negative("MAXLEN")?,
            _ => return Err(Failure::SYNTAX),
        }
        at += 2;
    }
    let all = |number| if number == 0 { u64::MAX } else { number };
    let from = if rank < 0 { End::Back } else { End::Front };
    let wanted = (rank.unsigned_abs() - 1, all(count.unwrap_or(1)), all(walk));
    let (db, element) = (call.db(), call.arg(2));
    let list = call.batch.list(db, call.arg(1))?;
    let reply = &mut call.reply;
    let begun = count.map(|_| reply.begin(Aggregate::Array, 0));
    let (mut first, mut shown) = (None, 0);
    if let Some(list) = list {
        call.batch.list_each_place(db, &list, from, wanted, element, |place| {
            first = first.or(Some(place));
            if count.is_some() {
                shown += 1;
                reply.integer(place as i64);
            }
            !reply.is_over()
        })?;
    }
    match (begun, first) {
        (Some(begun), _) => reply.finish(begun, shown),
        (None, Some(place)) => reply.integer(place as i64),
        (None, None) => reply.null(),
    }
    Ok(())
}
