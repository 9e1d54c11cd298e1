//! Sorted sets: members with scores under one key. Commands on members and ends are here, those on
//! ranges in `sorted_sets/ranges.rs`; the rows in `sorted_sets/rows.rs`.

mod algebra;
mod ranges;
mod rows;
mod rows_of_several;

pub use rows::COMMANDS;
pub use rows_of_several::COMMANDS as COMMANDS_OF_SEVERAL;

use super::arguments::{Sample, ScanOptions, double, empty_page, show_page};
use super::{Call, Failure, Outcome};
use terrace_keyspace::{AddRule, Order};
use terrace_resp::{Aggregate, Protocol, ReplyWriter, append_double};

/// The options of ZADD.
#[derive(Default)]
struct AddOptions {
    rule: AddRule,
    count_changed: bool,
    increment: bool,
}

impl AddOptions {
    /// And the number of the first argument that is none.
    fn of(call: &Call<'_>) -> Result<(Self, usize), Failure> {
        let mut options = Self::default();
        let mut at = 2;
        while at < call.count() {
            let mut lower = [0; 4];
            let word = call.arg(at);
            let Some(lower) = lower.get_mut(..word.len()) else { break };
            lower.copy_from_slice(word);
            lower.make_ascii_lowercase();
            match &*lower {
                b"nx" => options.rule.only_new = true,
                b"xx" => options.rule.only_existing = true,
                b"gt" => options.rule.only_greater = true,
                b"lt" => options.rule.only_less = true,
                b"ch" => options.count_changed = true,
                b"incr" => options.increment = true,
                _ => break,
            }
            at += 1;
        }
        let rest = call.count() - at;
        if rest == 0 || rest % 2 == 1 {
            return Err(Failure::SYNTAX);
        }
        let AddRule { only_new, only_existing, only_greater, only_less } = options.rule;
        let refused = if only_new && only_existing {
            "ERR XX and NX options at the same time are not compatible"
        } else if only_greater && only_less || only_new && (only_greater || only_less) {
            "ERR GT, LT, and/or NX options at the same time are not compatible"
        } else if options.increment && rest > 2 {
            "ERR INCR option supports a single increment-element pair"
        } else {
            return Ok((options, at));
        };
        Err(Failure::line(refused))
    }
}

fn zadd(call: &mut Call<'_>) -> Outcome {
    let (options, first) = AddOptions::of(call)?;
    let scores: Option<Vec<f64>> = call.args_from(first).step_by(2).map(double).collect();
    let scores = scores.ok_or(Failure::NOT_A_FLOAT)?;
    let (db, key) = (call.db(), call.arg(1));
    if options.increment {
        let delta = scores.first().copied().unwrap_or(0.0);
        let member = call.arg(first + 1);
        match call.batch.sorted_set_increment(db, key, options.rule, delta, member)? {
            Some(sum) => call.reply.double(sum),
            None => call.reply.null(),
        }
        return Ok(());
    }
    let members = call.args_from(first + 1).step_by(2);
    let pairs = scores.iter().copied().zip(members);
    let outcome = call.batch.sorted_set_add(db, key, options.rule, pairs)?;
    let changed = if options.count_changed { outcome.changed } else { 0 };
    call.reply.integer((outcome.added + changed) as i64);
    Ok(())
}

fn zincrby(call: &mut Call<'_>) -> Outcome {
    let delta = call.double(2)?;
    let (db, key, member) = (call.db(), call.arg(1), call.arg(3));
    let sum = call.batch.sorted_set_increment(db, key, AddRule::default(), delta, member)?;
    call.reply.double(sum.unwrap_or(delta));
    Ok(())
}

fn zrem(call: &mut Call<'_>) -> Outcome {
    let removed = call.batch.sorted_set_remove(call.session.db, call.arg(1), call.args_from(2))?;
    call.reply.integer(removed as i64);
    Ok(())
}

fn zcard(call: &mut Call<'_>) -> Outcome {
    let set = call.batch.sorted_set(call.session.db, call.arg(1))?;
    call.reply.integer(set.map_or(0, |set| set.count) as i64);
    Ok(())
}

fn zscore(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    let score = match call.batch.sorted_set(db, call.arg(1))? {
        Some(set) => call.batch.sorted_set_score(db, &set, call.arg(2))?,
        None => None,
    };
    score_or_null(&mut call.reply, score);
    Ok(())
}

fn zmscore(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    let set = call.batch.sorted_set(db, call.arg(1))?;
    let members = call.args_from(2);
    call.reply.array(members.len());
    for member in members {
        let score = match &set {
            Some(set) => call.batch.sorted_set_score(db, set, member)?,
            None => None,
        };
        score_or_null(&mut call.reply, score);
    }
    Ok(())
}

fn score_or_null(reply: &mut ReplyWriter<'_>, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

fn rank(call: &mut Call<'_>, order: Order) -> Outcome {
    let with_score = match call.count() {
        3 => false,
        4 if call.arg(3).eq_ignore_ascii_case(b"withscore") => true,
        _ => return Err(Failure::SYNTAX),
    };
    let db = call.db();
    let found = match call.batch.sorted_set(db, call.arg(1))? {
        Some(set) => call.batch.sorted_set_rank(db, &set, call.arg(2), order)?,
        None => None,
    };
    match (found, with_score) {
        (Some((rank, _)), false) => call.reply.integer(rank as i64),
        (Some((rank, score)), true) => {
            call.reply.array(2);
            call.reply.integer(rank as i64);
            call.reply.double(score);
        }
        (None, false) => call.reply.null(),
        (None, true) => call.reply.null_array(),
    }
    Ok(())
}

fn zrank(call: &mut Call<'_>) -> Outcome {
    rank(call, Order::Up)
}

fn zrevrank(call: &mut Call<'_>) -> Outcome {
    rank(call, Order::Down)
}

fn pop(call: &mut Call<'_>, order: Order) -> Outcome {
    let count = match call.count() {
        2 => None,
        3 => Some(call.positive(2)?),
        _ => return Err(Failure::SYNTAX),
    };
    let (db, key) = (call.db(), call.arg(1));
    let popped = call.batch.sorted_set_pop(db, key, order, count.unwrap_or(1))?;
    let mut rows = Rows::begin(&mut call.reply, true);
    // Without a count there is one member at most, and Redis does not wrap it.
    rows.nested &= count.is_some();
    for (member, score) in popped {
        rows.show(&mut call.reply, &member, score);
    }
    rows.finish(&mut call.reply);
    Ok(())
}

fn zpopmin(call: &mut Call<'_>) -> Outcome {
    pop(call, Order::Up)
}

fn zpopmax(call: &mut Call<'_>) -> Outcome {
    pop(call, Order::Down)
}

fn zrandmember(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    if call.count() == 2 {
        let mut found = None;
        if let Some(set) = call.batch.sorted_set(db, call.arg(1))? {
            call.batch.sorted_set_random(db, &set, 1, |member, _| {
                found = Some(member.to_vec());
                Ok(true)
            })?;
        }
        call.bulk_or_null(found);
        return Ok(());
    }
    let sample = call.sample(2)?;
    let with_scores = call.count() == 4 && call.arg(3).eq_ignore_ascii_case(b"withscores");
    if call.count() > 3 && !with_scores {
        return Err(Failure::SYNTAX);
    }
    sample.check_pairs(with_scores)?;
    let Some(set) = call.batch.sorted_set(db, call.arg(1))? else {
        call.reply.array(0);
        return Ok(());
    };
    let reply = &mut call.reply;
    let mut rows = Rows::begin(reply, with_scores);
    let show = |member: &[u8], score: f64| {
        rows.show(reply, member, score);
        Ok(!reply.is_over())
    };
    match sample {
        Sample::Different(count) => call.batch.sorted_set_sample(db, &set, count, show)?,
        Sample::Repeated(times) => call.batch.sorted_set_random(db, &set, times, show)?,
    }
    rows.finish(&mut call.reply);
    Ok(())
}

/// Of few members Redis keeps scores that are whole numbers as such, and `ZSCAN` shows them so.
const MOST_IN_LISTPACK: u64 = 128;

/// A score as a whole number, if it is one that Redis takes for one.
fn whole(score: f64) -> Option<i64> {
    let number = score as i64;
    (score.abs() <= (i64::MAX / 2) as f64 && number as f64 == score).then_some(number)
}

fn zscan(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    let cursor = call.cursor(2)?;
    let Some(set) = call.batch.sorted_set(db, call.arg(1))? else {
        empty_page(call);
        return Ok(());
    };
    let options = ScanOptions::of(call, 3)?;
    let most_bytes = call.reply.left_bytes();
    let page = call.batch.sorted_set_page(db, &set, cursor, options.count, most_bytes)?;
    let is_small = set.count <= MOST_IN_LISTPACK;
    let shown = options.shown(call, &page.items, |(member, _)| &member[..])?;
    let mut text = Vec::new();
    show_page(call, page.cursor, 2, shown.into_iter(), |reply, (member, score)| {
        reply.bulk(member);
        // A string in both protocols.
        text.clear();
        match is_small.then(|| whole(*score)).flatten() {
            Some(number) => text.extend_from_slice(number.to_string().as_bytes()),
            None => append_double(&mut text, *score),
        }
        reply.bulk(&text);
    });
    Ok(())
}

/// Members, with scores or without, that are written as they come.
struct Rows {
    begun: terrace_resp::Deferred,
    with_scores: bool,
    /// Whether a member and its score are an array of their own.
    nested: bool,
    shown: usize,
}

impl Rows {
    fn begin(reply: &mut ReplyWriter<'_>, with_scores: bool) -> Self {
        let nested = with_scores && reply.protocol() == Protocol::Resp3;
        Self { begun: reply.begin(Aggregate::Array, 0), with_scores, nested, shown: 0 }
    }

    fn show(&mut self, reply: &mut ReplyWriter<'_>, member: &[u8], score: f64) {
        if self.nested {
            reply.array(2);
        }
        reply.bulk(member);
        if self.with_scores {
            reply.double(score);
        }
        self.shown += if self.with_scores && !self.nested { 2 } else { 1 };
    }

    fn finish(self, reply: &mut ReplyWriter<'_>) {
        reply.finish(self.begun, self.shown);
    }
}
