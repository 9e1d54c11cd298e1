//! Sets: members under one key.

use super::arguments::{Sample, ScanOptions, empty_page, show_page};
use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};
use terrace_keyspace::Meta;
use terrace_resp::Aggregate;

const READ: Flags = Flags::READ.with(Flags::FAST);
const WRITE: Flags = Flags::WRITE.with(Flags::FAST);
const PER_MEMBER: &str = "O(members named)";

/// What most rows have.
const ROW: CommandSpec = CommandSpec {
    name: "",
    arity: -3,
    flags: READ,
    keys: Keys::First,
    group: Group::Set,
    arguments: "key member [member ...]",
    summary: "",
    complexity: "O(1)",
    since: "1.0.0",
    run: scard,
};

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "sadd",
        flags: WRITE,
        summary: "Adds members, and gives how many are new.",
        complexity: PER_MEMBER,
        run: sadd,
        ..ROW
    },
    CommandSpec {
        name: "srem",
        flags: WRITE,
        summary: "Removes members, and gives how many were there.",
        complexity: PER_MEMBER,
        run: srem,
        ..ROW
    },
    CommandSpec {
        name: "smembers",
        arity: 2,
        flags: Flags::READ,
        arguments: "key",
        summary: "Gives all members.",
        complexity: "O(members)",
        run: smembers,
        ..ROW
    },
    CommandSpec {
        name: "sismember",
        arity: 3,
        arguments: "key member",
        summary: "Says whether a member is there.",
        run: sismember,
        ..ROW
    },
    CommandSpec {
        name: "smismember",
        summary: "Says which members are there.",
        complexity: PER_MEMBER,
        since: "6.2.0",
        run: smismember,
        ..ROW
    },
    CommandSpec {
        name: "scard",
        arity: 2,
        arguments: "key",
        summary: "Gives the number of members.",
        run: scard,
        ..ROW
    },
    CommandSpec {
        name: "spop",
        arity: -2,
        flags: WRITE,
        arguments: "key [count]",
        summary: "Takes out random members.",
        complexity: "O(members taken), or O(members) if more than a third of them",
        run: spop,
        ..ROW
    },
    CommandSpec {
        name: "srandmember",
        arity: -2,
        flags: Flags::READ,
        arguments: "key [count]",
        summary: "Gives random members.",
        complexity: "O(members asked for), or O(members) if more than a third of them",
        run: srandmember,
        ..ROW
    },
    CommandSpec {
        name: "sscan",
        flags: Flags::READ,
        arguments: "key cursor [MATCH pattern] [COUNT count]",
        summary: "Gives some members, and the cursor of the next ones.",
        complexity: "O(members looked at)",
        since: "2.8.0",
        run: sscan,
        ..ROW
    },
];

fn sadd(call: &mut Call<'_>) -> Outcome {
    let added = call.batch.set_add(call.session.db, call.arg(1), call.args_from(2))?;
    call.reply.integer(added as i64);
    Ok(())
}

fn srem(call: &mut Call<'_>) -> Outcome {
    let removed = call.batch.set_remove(call.session.db, call.arg(1), call.args_from(2))?;
    call.reply.integer(removed as i64);
    Ok(())
}

fn smembers(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    let Some(set) = call.batch.set(db, call.arg(1))? else {
        call.reply.aggregate(Aggregate::Set, 0);
        return Ok(());
    };
    let reply = &mut call.reply;
    let begun = reply.begin(Aggregate::Set, set.count as usize);
    let mut shown = 0;
    call.batch.set_each(db, &set, |member| {
        shown += 1;
        reply.bulk(member);
        Ok(!reply.is_over())
    })?;
    reply.finish(begun, shown);
    Ok(())
}

fn has(call: &mut Call<'_>, set: Option<&Meta>, member: &[u8]) -> Result<i64, Failure> {
    let Some(set) = set else { return Ok(0) };
    Ok(i64::from(call.batch.set_has(call.session.db, set, member)?))
}

fn sismember(call: &mut Call<'_>) -> Outcome {
    let set = call.batch.set(call.session.db, call.arg(1))?;
    let answer = has(call, set.as_ref(), call.arg(2))?;
    call.reply.integer(answer);
    Ok(())
}

fn smismember(call: &mut Call<'_>) -> Outcome {
    let set = call.batch.set(call.session.db, call.arg(1))?;
    let members = call.args_from(2);
    call.reply.array(members.len());
    for member in members {
        let answer = has(call, set.as_ref(), member)?;
        call.reply.integer(answer);
    }
    Ok(())
}

fn scard(call: &mut Call<'_>) -> Outcome {
    let set = call.batch.set(call.session.db, call.arg(1))?;
    call.reply.integer(set.map_or(0, |set| set.count) as i64);
    Ok(())
}

fn spop(call: &mut Call<'_>) -> Outcome {
    let (db, key) = (call.db(), call.arg(1));
    match call.count() {
        2 => {
            let taken = call.batch.set_pop(db, key, 1)?;
            call.bulk_or_null(taken.first());
        }
        3 => {
            let count = call.positive(2)?;
            let popped = call.batch.set_pop(db, key, count)?;
            call.reply.aggregate(Aggregate::Set, popped.len());
            for member in popped {
                call.reply.bulk(member);
            }
        }
        _ => return Err(Failure::SYNTAX),
    }
    Ok(())
}

fn srandmember(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    if call.count() == 2 {
        let mut found = None;
        if let Some(set) = call.batch.set(db, call.arg(1))? {
            call.batch.set_random(db, &set, 1, |member| {
                found = Some(member.to_vec());
                Ok(true)
            })?;
        }
        call.bulk_or_null(found);
        return Ok(());
    }
    if call.count() > 3 {
        return Err(Failure::SYNTAX);
    }
    let sample = call.sample(2)?;
    let Some(set) = call.batch.set(db, call.arg(1))? else {
        call.reply.array(0);
        return Ok(());
    };
    let reply = &mut call.reply;
    let begun = reply.begin(Aggregate::Array, 0);
    let mut shown = 0;
    let show = |member: &[u8]| {
        shown += 1;
        reply.bulk(member);
        Ok(!reply.is_over())
    };
    match sample {
        Sample::Different(count) => call.batch.set_sample(db, &set, count, show)?,
        Sample::Repeated(times) => call.batch.set_random(db, &set, times, show)?,
    }
    call.reply.finish(begun, shown);
    Ok(())
}

fn sscan(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    let cursor = call.cursor(2)?;
    let Some(set) = call.batch.set(db, call.arg(1))? else {
        empty_page(call);
        return Ok(());
    };
    let options = ScanOptions::of(call, 3)?;
    let most_bytes = call.reply.left_bytes();
    let page = call.batch.set_page(db, &set, cursor, options.count, most_bytes)?;
    let shown = options.shown(call, &page.items, |member| &member[..])?;
    show_page(call, page.cursor, 1, shown.into_iter(), |reply, member| reply.bulk(member));
    Ok(())
}
