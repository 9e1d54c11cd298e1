//! ZRANGE and its relatives: by rank, by score, by member, in both orders.

use super::Rows;
use crate::command::arguments::hexadecimal;
use crate::command::{Call, Failure, Outcome};
use terrace_keyspace::{
    CommandBatch, Error, MemberEnd, Meta, Order, Range, ResultSize, ScoreEnd, ranks,
};

/// What the two ends of a range are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// Which of a range are shown.
struct Limit {
    offset: i64,
    /// Below 0 all.
    count: i64,
}

/// The two ends as a command has them.
#[derive(Debug)]
enum Ends<'a> {
    Ranks(i64, i64),
    Found(Range<'a>),
}

impl<'a> Ends<'a> {
    /// `lower` and `upper` are the numbers of two arguments.
    fn of(call: &Call<'a>, by: By, lower: usize, upper: usize) -> Result<Self, Failure> {
        Ok(match by {
            By::Rank => Self::Ranks(call.integer(lower)?, call.integer(upper)?),
            By::Score => {
                let ends = score_end(call.arg(lower)).zip(score_end(call.arg(upper)));
                let (lower, upper) = ends.ok_or(Failure::line("ERR min or max is not a float"))?;
                Self::Found(Range::Scores(lower, upper))
            }
            By::Member => {
                let ends = member_end(call.arg(lower)).zip(member_end(call.arg(upper)));
                let refused = Failure::line("ERR min or max not valid string range item");
                let (lower, upper) = ends.ok_or(refused)?;
                Self::Found(Range::Members(lower, upper))
            }
        })
    }

    /// The range in a sorted set; `None` if it is empty.
    fn within(self, set: &Meta) -> Option<Range<'a>> {
        match self {
            Self::Ranks(first, last) => ranks(first, last, set.count).map(Range::Ranks),
            Self::Found(range) => Some(range),
        }
    }
}

/// A score, with `(` before it if it is outside. As Redis does with C's `strtod`: blanks may come
/// first, too large is infinite, and nothing is 0.
fn score_end(text: &[u8]) -> Option<ScoreEnd> {
    let (excluded, number) = match text {
        [b'(', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let score = match std::str::from_utf8(number).ok()? {
        "" => 0.0,
        text => match hexadecimal(text.trim_ascii_start().as_bytes()) {
            Some(number) => number?,
            None => text.trim_ascii_start().parse::<f64>().ok()?,
        },
    };
    (!score.is_nan()).then_some(ScoreEnd { score, excluded })
}

fn member_end(text: &[u8]) -> Option<MemberEnd<'_>> {
    match text {
        b"-" => Some(MemberEnd::Lowest),
        b"+" => Some(MemberEnd::Highest),
        [b'[', member @ ..] => Some(MemberEnd::Included(member)),
        [b'(', member @ ..] => Some(MemberEnd::Excluded(member)),
        _ => None,
    }
}

/// What one of the commands takes as options, and has without them.
#[derive(Default)]
struct Form {
    by: Option<By>,
    order: Option<Order>,
    /// Whether the result is stored under the first argument.
    stores: bool,
}

fn range(call: &mut Call<'_>, form: Form) -> Outcome {
    let (mut by, mut order) = (form.by, form.order);
    let (mut with_scores, mut limit) = (false, None);
    let key = if form.stores { 2 } else { 1 };
    let mut at = key + 3;
    while at < call.count() {
        let word = call.arg(at);
        if word.eq_ignore_ascii_case(b"withscores") && !form.stores {
            with_scores = true;
        } else if word.eq_ignore_ascii_case(b"limit") && at + 2 < call.count() {
            limit = Some(Limit { offset: call.integer(at + 1)?, count: call.integer(at + 2)? });
            at += 2;
        } else if word.eq_ignore_ascii_case(b"rev") && order.is_none() {
            order = Some(Order::Down);
        } else if word.eq_ignore_ascii_case(b"byscore") && by.is_none() {
            by = Some(By::Score);
        } else if word.eq_ignore_ascii_case(b"bylex") && by.is_none() {
            by = Some(By::Member);
        } else {
            return Err(Failure::SYNTAX);
        }
        at += 1;
    }
    let (by, order) = (by.unwrap_or(By::Rank), order.unwrap_or(Order::Up));
    // By rank a limit that limits nothing is allowed, whatever its offset, and ignored.
    if by == By::Rank && limit.take().is_some_and(|limit: Limit| limit.count != -1) {
        return Err(Failure::line(
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
        ));
    }
    if with_scores && by == By::Member {
        return Err(Failure::line(
            "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
        ));
    }
    // Going down, the upper end comes first; but ranks count from where the walk starts.
    let down = order == Order::Down && by != By::Rank;
    let (lower, upper) = if down { (key + 2, key + 1) } else { (key + 1, key + 2) };
    let ends = Ends::of(call, by, lower, upper)?;
    let db = call.db();
    let found = call.batch.sorted_set(db, call.arg(key))?;
    let found = found.and_then(|set| Some((set, ends.within(&set)?)));
    if form.stores {
        let (mut members, mut result_size) = (Vec::new(), ResultSize::default());
        each(call.batch, db, found, order, limit, |member, score| {
            result_size.add(member.len())?;
            members.push((member.to_vec(), score));
            Ok(true)
        })?;
        let count = call.batch.sorted_set_replace(db, call.arg(1), &members)?;
        call.reply.integer(count as i64);
        return Ok(());
    }
    let reply = &mut call.reply;
    let mut rows = Rows::begin(reply, with_scores);
    each(call.batch, db, found, order, limit, |member, score| {
        rows.show(reply, member, score);
        Ok(!reply.is_over())
    })?;
    rows.finish(reply);
    Ok(())
}

fn each(
    batch: &CommandBatch,
    db: u8,
    found: Option<(Meta, Range<'_>)>,
    order: Order,
    limit: Option<Limit>,
    mut seen: impl FnMut(&[u8], f64) -> Result<bool, Error>,
) -> Outcome {
    let Limit { offset, count } = limit.unwrap_or(Limit { offset: 0, count: -1 });
    let found = found.filter(|_| offset >= 0 && count != 0);
    let Some((set, range)) = found else { return Ok(()) };
    let (mut skip, mut left) = (offset, if count < 0 { i64::MAX } else { count });
    batch.sorted_set_each(db, &set, &range, order, |member, score| {
        if skip > 0 {
            skip -= 1;
            return Ok(true);
        }
        left -= 1;
        Ok(seen(member, score)? && left > 0)
    })?;
    Ok(())
}

pub(super) fn zrange(call: &mut Call<'_>) -> Outcome {
    range(call, Form::default())
}

pub(super) fn zrangestore(call: &mut Call<'_>) -> Outcome {
    range(call, Form { stores: true, ..Form::default() })
}

pub(super) fn zrevrange(call: &mut Call<'_>) -> Outcome {
    range(call, Form { by: Some(By::Rank), order: Some(Order::Down), stores: false })
}

pub(super) fn zrangebyscore(call: &mut Call<'_>) -> Outcome {
    range(call, Form { by: Some(By::Score), order: Some(Order::Up), stores: false })
}

pub(super) fn zrevrangebyscore(call: &mut Call<'_>) -> Outcome {
    range(call, Form { by: Some(By::Score), order: Some(Order::Down), stores: false })
}

pub(super) fn zrangebylex(call: &mut Call<'_>) -> Outcome {
    range(call, Form { by: Some(By::Member), order: Some(Order::Up), stores: false })
}

pub(super) fn zrevrangebylex(call: &mut Call<'_>) -> Outcome {
    range(call, Form { by: Some(By::Member), order: Some(Order::Down), stores: false })
}

fn count(call: &mut Call<'_>, by: By) -> Outcome {
    let ends = Ends::of(call, by, 2, 3)?;
    let db = call.db();
    let set = call.batch.sorted_set(db, call.arg(1))?;
    let mut count = 0;
    if let Some((set, range)) = set.and_then(|set| Some((set, ends.within(&set)?))) {
        call.batch.sorted_set_each(db, &set, &range, Order::Up, |_, _| {
            count += 1;
            Ok(true)
        })?;
    }
    call.reply.integer(count);
    Ok(())
}

pub(super) fn zcount(call: &mut Call<'_>) -> Outcome {
    count(call, By::Score)
}

pub(super) fn zlexcount(call: &mut Call<'_>) -> Outcome {
    count(call, By::Member)
}

fn remove(call: &mut Call<'_>, by: By) -> Outcome {
    let ends = Ends::of(call, by, 2, 3)?;
    let (db, key) = (call.db(), call.arg(1));
    let set = call.batch.sorted_set(db, key)?;
    let removed = match set.and_then(|set| ends.within(&set)) {
        Some(range) => call.batch.sorted_set_remove_range(db, key, &range)?,
        None => 0,
    };
    call.reply.integer(removed as i64);
    Ok(())
}

pub(super) fn zremrangebyrank(call: &mut Call<'_>) -> Outcome {
    remove(call, By::Rank)
}

pub(super) fn zremrangebyscore(call: &mut Call<'_>) -> Outcome {
    remove(call, By::Score)
}

pub(super) fn zremrangebylex(call: &mut Call<'_>) -> Outcome {
    remove(call, By::Member)
}
