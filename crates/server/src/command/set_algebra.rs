//! Intersections, unions and differences of sets: shown, stored, counted.

use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};
use terrace_keyspace::{CommandBatch, Error, Meta, ResultSize, Weighted};
use terrace_resp::Aggregate;

const OF_INTERSECTION: &str = "O(members of the smallest set times sets)";
const OF_UNION: &str = "O(members of all sets)";
const OF_DIFFERENCE: &str =
    "O(members of the first set times sets), or O(members of all sets) if less";

/// What the rows that show have.
const SHOW: CommandSpec = CommandSpec {
    name: "",
    arity: -2,
    flags: Flags::READ,
    keys: Keys::All,
    group: Group::Set,
    arguments: "key [key ...]",
    summary: "",
    complexity: OF_INTERSECTION,
    since: "1.0.0",
    run: |call| show(call, Algebra::Intersection),
};

/// What the rows that store have.
const STORE: CommandSpec = CommandSpec {
    arity: -3,
    flags: Flags::WRITE,
    arguments: "destination key [key ...]",
    run: |call| store(call, Algebra::Intersection),
    ..SHOW
};

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec { name: "sinter", summary: "Gives what is in all sets.", ..SHOW },
    CommandSpec {
        name: "sunion",
        summary: "Gives what is in any of the sets.",
        complexity: OF_UNION,
        run: |call| show(call, Algebra::Union),
        ..SHOW
    },
    CommandSpec {
        name: "sdiff",
        summary: "Gives what is in the first set and in no other.",
        complexity: OF_DIFFERENCE,
        run: |call| show(call, Algebra::Difference),
        ..SHOW
    },
    CommandSpec { name: "sinterstore", summary: "Stores what is in all sets.", ..STORE },
    CommandSpec {
        name: "sunionstore",
        summary: "Stores what is in any of the sets.",
        complexity: OF_UNION,
        run: |call| store(call, Algebra::Union),
        ..STORE
    },
    CommandSpec {
        name: "sdiffstore",
        summary: "Stores what is in the first set and in no other.",
        complexity: OF_DIFFERENCE,
        run: |call| store(call, Algebra::Difference),
        ..STORE
    },
    CommandSpec {
        name: "sintercard",
        arity: -3,
        flags: Flags::READ.with(Flags::MOVABLE_KEYS),
        keys: Keys::Counted,
        arguments: "numkeys key [key ...] [LIMIT limit]",
        summary: "Counts what is in all sets, up to a limit.",
        since: "7.0.0",
        run: sintercard,
        ..SHOW
    },
    CommandSpec {
        name: "smove",
        arity: 4,
        flags: Flags::WRITE.with(Flags::FAST).with(Flags::READS_LATE),
        keys: Keys::FirstTwo,
        arguments: "source destination member",
        summary: "Moves a member from one set to another.",
        complexity: "O(1)",
        run: smove,
        ..SHOW
    },
];

#[derive(Clone, Copy)]
enum Algebra {
    Intersection,
    Union,
    Difference,
}

/// The sets under the arguments from number `at` on.
fn sets(call: &mut Call<'_>, at: usize) -> Result<Vec<Option<Meta>>, Failure> {
    let db = call.db();
    let mut sets = Vec::with_capacity(call.count() - at);
    for key in call.args_from(at) {
        sets.push(call.batch.set(db, key)?);
    }
    Ok(sets)
}

/// Shows the result to `seen`, each member once.
fn walk(
    batch: &CommandBatch,
    db: u8,
    algebra: Algebra,
    sets: &[Option<Meta>],
    seen: impl FnMut(&[u8]) -> Result<bool, Error>,
) -> Outcome {
    match algebra {
        Algebra::Intersection => batch.set_intersection(db, sets, seen)?,
        Algebra::Union => batch.set_union(db, sets, seen)?,
        Algebra::Difference => batch.set_difference(db, sets, seen)?,
    }
    Ok(())
}

fn show(call: &mut Call<'_>, algebra: Algebra) -> Outcome {
    let sets = sets(call, 1)?;
    let db = call.db();
    let reply = &mut call.reply;
    let begun = reply.begin(Aggregate::Set, 0);
    let mut shown = 0;
    walk(call.batch, db, algebra, &sets, |member| {
        shown += 1;
        reply.bulk(member);
        Ok(!reply.is_over())
    })?;
    call.reply.finish(begun, shown);
    Ok(())
}

fn store(call: &mut Call<'_>, algebra: Algebra) -> Outcome {
    let sets = sets(call, 2)?;
    let db = call.db();
    let (mut members, mut result_size) = (Vec::new(), ResultSize::default());
    walk(call.batch, db, algebra, &sets, |member| {
        result_size.add(member.len())?;
        members.push(member.to_vec());
        Ok(true)
    })?;
    let count = call.batch.set_replace(db, call.arg(1), &members)?;
    call.reply.integer(count as i64);
    Ok(())
}

/// How many keys argument number `at` says that there are, for `command`; at least one.
fn key_count(call: &Call<'_>, at: usize) -> Result<usize, Failure> {
    let count = terrace_resp::parse_integer(call.arg(at)).and_then(|n| usize::try_from(n).ok());
    let count = count.filter(|count| *count > 0);
    let count = count.ok_or(Failure::line("ERR numkeys should be greater than 0"))?;
    match count < call.count() - at {
        true => Ok(count),
        false => Err(Failure::line("ERR Number of keys can't be greater than number of args")),
    }
}

/// `LIMIT` among the arguments from number `at` on: the most to be counted.
pub(super) fn limit(call: &Call<'_>, mut at: usize) -> Result<u64, Failure> {
    let mut limit = u64::MAX;
    while at < call.count() {
        if !call.arg(at).eq_ignore_ascii_case(b"limit") || at + 1 == call.count() {
            return Err(Failure::SYNTAX);
        }
        let most =
            terrace_resp::parse_integer(call.arg(at + 1)).and_then(|n| u64::try_from(n).ok());
        limit = match most.ok_or(Failure::line("ERR LIMIT can't be negative"))? {
            0 => u64::MAX,
            most => most,
        };
        at += 2;
    }
    Ok(limit)
}

fn sintercard(call: &mut Call<'_>) -> Outcome {
    let count = key_count(call, 1)?;
    let most = limit(call, 2 + count)?;
    let db = call.db();
    let mut sets = Vec::with_capacity(count);
    for key in call.args_from(2).take(count) {
        sets.push(Weighted { set: call.batch.set(db, key)?, weight: 1.0 });
    }
    let found = call.batch.scored_intersection_count(db, &sets, most)?;
    call.reply.integer(found as i64);
    Ok(())
}

fn smove(call: &mut Call<'_>) -> Outcome {
    let moved = call.batch.set_move(call.session.db, call.arg(1), call.arg(2), call.arg(3))?;
    call.reply.integer(i64::from(moved));
    Ok(())
}
