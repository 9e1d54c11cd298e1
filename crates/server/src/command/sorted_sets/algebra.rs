//! Unions, intersections and differences of sorted sets and sets, and what takes from several.

use super::super::list_moves::{count_to_take, keys_to_take_from};
use super::super::set_algebra::limit;
use super::{Rows, double};
use crate::command::{Call, Failure, Outcome};
use terrace_keyspace::{Aggregation, Error, Order, Scored, Weighted};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Algebra {
    Union,
    Intersection,
    Difference,
}

/// What the commands have in common.
struct Wanted {
    sets: Vec<Weighted>,
    aggregation: Aggregation,
    with_scores: bool,
}

/// The number of keys at argument number `at`, and what follows. The keys are looked up before the
/// options are read, as in Redis.
fn wanted(call: &mut Call<'_>, at: usize, algebra: Algebra) -> Result<Wanted, Failure> {
    let name = String::from_utf8_lossy(call.args.name()).to_lowercase();
    let count = call.integer(at)?;
    let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else {
        let text = format!("at least 1 input key is needed for '{name}' command");
        return Err(Failure::err(text));
    };
    if count > call.count() - at - 1 {
        return Err(Failure::SYNTAX);
    }
    let db = call.db();
    let mut sets = Vec::with_capacity(count);
    for key in call.args_from(at + 1).take(count) {
        sets.push(Weighted { set: call.batch.scored_set(db, key)?, weight: 1.0 });
    }
    let (mut aggregation, mut with_scores) = (Aggregation::Sum, false);
    let mut option = at + 1 + count;
    while option < call.count() {
        let left = call.count() - option - 1;
        match &call.arg(option).to_ascii_lowercase()[..] {
            b"weights" if algebra != Algebra::Difference && left >= count => {
                for (place, set) in sets.iter_mut().enumerate() {
                    let refused = Failure::line("ERR weight value is not a float");
                    set.weight = double(call.arg(option + 1 + place)).ok_or(refused)?;
                }
                option += count;
            }
            b"aggregate" if algebra != Algebra::Difference && left >= 1 => {
                aggregation = match &call.arg(option + 1).to_ascii_lowercase()[..] {
                    b"sum" => Aggregation::Sum,
                    b"min" => Aggregation::Min,
                    b"max" => Aggregation::Max,
                    _ => return Err(Failure::SYNTAX),
                };
                option += 1;
            }
            b"withscores" if at == 1 => with_scores = true,
            _ => return Err(Failure::SYNTAX),
        }
        option += 1;
    }
    Ok(Wanted { sets, aggregation, with_scores })
}

fn combine(call: &Call<'_>, wanted: &Wanted, algebra: Algebra) -> Result<Scored, Error> {
    let Wanted { sets, aggregation, .. } = wanted;
    let db = call.session.db;
    match algebra {
        Algebra::Union => call.batch.scored_union(db, sets, *aggregation),
        Algebra::Intersection => call.batch.scored_intersection(db, sets, *aggregation),
        Algebra::Difference => call.batch.scored_difference(db, sets),
    }
}

pub(super) fn show(call: &mut Call<'_>, algebra: Algebra) -> Outcome {
    let wanted = wanted(call, 1, algebra)?;
    let members = combine(call, &wanted, algebra)?;
    let mut rows = Rows::begin(&mut call.reply, wanted.with_scores);
    for (member, score) in members {
        rows.show(&mut call.reply, &member, score);
    }
    rows.finish(&mut call.reply);
    Ok(())
}

pub(super) fn store(call: &mut Call<'_>, algebra: Algebra) -> Outcome {
    let wanted = wanted(call, 2, algebra)?;
    let members = combine(call, &wanted, algebra)?;
    let count = call.batch.sorted_set_replace(call.session.db, call.arg(1), &members)?;
    call.reply.integer(count as i64);
    Ok(())
}

pub(super) fn zintercard(call: &mut Call<'_>) -> Outcome {
    let count = call.integer(1)?;
    let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else {
        return Err(Failure::line("ERR at least 1 input key is needed for 'zintercard' command"));
    };
    if count > call.count() - 2 {
        return Err(Failure::SYNTAX);
    }
    let db = call.db();
    let mut sets = Vec::with_capacity(count);
    for key in call.args_from(2).take(count) {
        sets.push(Weighted { set: call.batch.scored_set(db, key)?, weight: 1.0 });
    }
    let most = limit(call, 2 + count)?;
    let found = call.batch.scored_intersection_count(db, &sets, most)?;
    call.reply.integer(found as i64);
    Ok(())
}

pub(super) fn zmpop(call: &mut Call<'_>) -> Outcome {
    let keys = keys_to_take_from(call)?;
    let order = match &call.arg(2 + keys).to_ascii_lowercase()[..] {
        b"min" => Order::Up,
        b"max" => Order::Down,
        _ => return Err(Failure::SYNTAX),
    };
    let count = count_to_take(call, 3 + keys)?;
    let db = call.db();
    for key in call.args_from(2).take(keys) {
        let taken = call.batch.sorted_set_pop(db, key, order, count)?;
        if taken.is_empty() {
            continue;
        }
        call.reply.array(2);
        call.reply.bulk(key);
        call.reply.array(taken.len());
        for (member, score) in taken {
            call.reply.array(2);
            call.reply.bulk(member);
            call.reply.double(score);
        }
        return Ok(());
    }
    call.reply.null_array();
    Ok(())
}
