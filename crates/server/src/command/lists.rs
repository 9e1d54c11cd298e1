//! Lists: values in a row under one key.

use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};
use terrace_keyspace::{End, Inserted, ranks};
use terrace_resp::{Aggregate, ReplyWriter};

const READ: Flags = Flags::READ;
const WRITE: Flags = Flags::WRITE.with(Flags::FAST);

/// What most rows have.
const ROW: CommandSpec = CommandSpec {
    name: "",
    arity: -3,
    flags: WRITE,
    keys: Keys::First,
    group: Group::List,
    arguments: "key element [element ...]",
    summary: "",
    complexity: "O(elements named)",
    since: "1.0.0",
    run: llen,
};

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec { name: "lpush", summary: "Adds elements at the front.", run: lpush, ..ROW },
    CommandSpec { name: "rpush", summary: "Adds elements at the end.", run: rpush, ..ROW },
    CommandSpec {
        name: "lpushx",
        summary: "Adds elements at the front of a list that exists.",
        since: "2.2.0",
        run: lpushx,
        ..ROW
    },
    CommandSpec {
        name: "rpushx",
        summary: "Adds elements at the end of a list that exists.",
        since: "2.2.0",
        run: rpushx,
        ..ROW
    },
    CommandSpec {
        name: "lpop",
        arity: -2,
        arguments: "key [count]",
        summary: "Takes elements from the front.",
        complexity: "O(elements taken)",
        run: lpop,
        ..ROW
    },
    CommandSpec {
        name: "rpop",
        arity: -2,
        arguments: "key [count]",
        summary: "Takes elements from the end.",
        complexity: "O(elements taken)",
        run: rpop,
        ..ROW
    },
    CommandSpec {
        name: "llen",
        arity: 2,
        flags: READ.with(Flags::FAST),
        arguments: "key",
        summary: "Gives the number of elements.",
        complexity: "O(1)",
        run: llen,
        ..ROW
    },
    CommandSpec {
        name: "lrange",
        arity: 4,
        flags: READ,
        arguments: "key start stop",
        summary: "Gives the elements between two indices.",
        complexity: "O(elements shown)",
        run: lrange,
        ..ROW
    },
    CommandSpec {
        name: "lindex",
        arity: 3,
        flags: READ,
        arguments: "key index",
        summary: "Gives the element at an index.",
        complexity: "O(1)",
        run: lindex,
        ..ROW
    },
    CommandSpec {
        name: "lset",
        arity: 4,
        flags: Flags::WRITE,
        arguments: "key index element",
        summary: "Replaces the element at an index.",
        complexity: "O(1)",
        run: lset,
        ..ROW
    },
    CommandSpec {
        name: "ltrim",
        arity: 4,
        flags: Flags::WRITE,
        arguments: "key start stop",
        summary: "Keeps only the elements between two indices.",
        complexity: "O(elements removed), for more than 512 at an end O(1)",
        run: ltrim,
        ..ROW
    },
    CommandSpec {
        name: "lrem",
        arity: 4,
        flags: Flags::WRITE,
        arguments: "key count element",
        summary: "Removes elements that are equal to one.",
        complexity: "O(elements): those on the shorter side of the removed ones are written anew",
        run: lrem,
        ..ROW
    },
    CommandSpec {
        name: "linsert",
        arity: 5,
        flags: Flags::WRITE,
        arguments: "key BEFORE | AFTER pivot element",
        summary: "Inserts an element beside another one.",
        complexity: "O(elements): those on the shorter side of the new one are written anew",
        since: "2.2.0",
        run: linsert,
        ..ROW
    },
];

fn push(call: &mut Call<'_>, end: End, only_existing: bool) -> Outcome {
    let (db, key, values) = (call.db(), call.arg(1), call.args_from(2));
    let length = call.batch.list_push(db, key, end, only_existing, values)?;
    call.reply.integer(length as i64);
    Ok(())
}

fn lpush(call: &mut Call<'_>) -> Outcome {
    push(call, End::Front, false)
}

fn rpush(call: &mut Call<'_>) -> Outcome {
    push(call, End::Back, false)
}

fn lpushx(call: &mut Call<'_>) -> Outcome {
    push(call, End::Front, true)
}

fn rpushx(call: &mut Call<'_>) -> Outcome {
    push(call, End::Back, true)
}

fn pop(call: &mut Call<'_>, end: End, name: &str) -> Outcome {
    let count = match call.count() {
        2 => None,
        3 => Some(call.positive(2)?),
        _ => return Err(Failure::wrong_count(name)),
    };
    let Some(count) = count else {
        let popped = call.batch.list_pop(call.session.db, call.arg(1), end, 1)?;
        call.bulk_or_null(popped.and_then(|mut elements| elements.pop()));
        return Ok(());
    };
    if !pop_several(call, call.arg(1), end, count, false)? {
        call.reply.null_array();
    }
    Ok(())
}

/// Takes elements from an end of a list and answers with them, one after the other as they are read, `with_key` behind
/// its key; `false` if there is no list, and nothing is answered.
pub(super) fn pop_several(
    call: &mut Call<'_>,
    key: &[u8],
    end: End,
    count: u64,
    with_key: bool,
) -> Result<bool, Failure> {
    let db = call.db();
    let Call { batch, reply, .. } = call;
    let mut has_begun = false;
    let mut begin = |reply: &mut ReplyWriter<'_>, count: u64| {
        if !std::mem::replace(&mut has_begun, true) {
            if with_key {
                reply.array(2);
                reply.bulk(key);
            }
            reply.array(count as usize);
        }
    };
    let taken = batch.list_pop_each(db, key, end, count, |count, element| {
        begin(reply, count);
        reply.bulk(element);
        !reply.is_over()
    })?;
    if let Some(count) = taken {
        begin(reply, count);
    }
    Ok(taken.is_some())
}

fn lpop(call: &mut Call<'_>) -> Outcome {
    pop(call, End::Front, "lpop")
}

fn rpop(call: &mut Call<'_>) -> Outcome {
    pop(call, End::Back, "rpop")
}

fn llen(call: &mut Call<'_>) -> Outcome {
    let list = call.batch.list(call.session.db, call.arg(1))?;
    call.reply.integer(list.map_or(0, |list| list.count) as i64);
    Ok(())
}

fn lrange(call: &mut Call<'_>) -> Outcome {
    let (first, last) = (call.integer(2)?, call.integer(3)?);
    let db = call.db();
    let list = call.batch.list(db, call.arg(1))?;
    let range = list.and_then(|list| Some((list, ranks(first, last, list.count)?)));
    let Some((list, places)) = range else {
        call.reply.array(0);
        return Ok(());
    };
    let (first, count) = (*places.start(), places.end() - places.start() + 1);
    let reply = &mut call.reply;
    let begun = reply.begin(Aggregate::Array, count as usize);
    let mut shown = 0;
    call.batch.list_each(db, &list, first, count, |element| {
        shown += 1;
        reply.bulk(element);
        Ok(!reply.is_over())
    })?;
    reply.finish(begun, shown);
    Ok(())
}

fn lindex(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    let element = match call.batch.list(db, call.arg(1))? {
        Some(list) => call.batch.list_get(db, &list, call.integer(2)?)?,
        None => None,
    };
    call.bulk_or_null(element);
    Ok(())
}

fn lset(call: &mut Call<'_>) -> Outcome {
    let (db, key) = (call.db(), call.arg(1));
    let list = call.batch.list_to_set(db, key)?;
    let index = call.integer(2)?;
    call.batch.list_set(db, key, &list, index, call.arg(3))?;
    call.reply.ok();
    Ok(())
}

fn ltrim(call: &mut Call<'_>) -> Outcome {
    let (first, last) = (call.integer(2)?, call.integer(3)?);
    call.batch.list_trim(call.session.db, call.arg(1), first, last)?;
    call.reply.ok();
    Ok(())
}

fn lrem(call: &mut Call<'_>) -> Outcome {
    let count = call.integer(2)?;
    let removed = call.batch.list_remove(call.session.db, call.arg(1), count, call.arg(3))?;
    call.reply.integer(removed as i64);
    Ok(())
}

fn linsert(call: &mut Call<'_>) -> Outcome {
    let before = match call.arg(2) {
        place if place.eq_ignore_ascii_case(b"before") => true,
        place if place.eq_ignore_ascii_case(b"after") => false,
        _ => return Err(Failure::SYNTAX),
    };
    let (db, key) = (call.db(), call.arg(1));
    let inserted = call.batch.list_insert(db, key, before, call.arg(3), call.arg(4))?;
    call.reply.integer(match inserted {
        Inserted::NoList => 0,
        Inserted::NoPivot => -1,
        Inserted::Length(length) => length as i64,
    });
    Ok(())
}
