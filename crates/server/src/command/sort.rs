//! `SORT`: the elements of a list, set or sorted set by number or by bytes, perhaps those of other
//! keys, shown or stored.

use super::arguments::strtod;
use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};
use crate::acl::Access;
use std::cmp::Ordering;
use terrace_keyspace::{Kind, Meta, Order, Range, ResultSize, Type, Value};

/// What both rows have.
const ROW: CommandSpec = CommandSpec {
    name: "sort",
    arity: -2,
    flags: Flags::WRITE.with(Flags::DANGEROUS).with(Flags::MOVABLE_KEYS).with(Flags::READS_LATE),
    keys: Keys::FirstAndStore,
    group: Group::Generic,
    arguments: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA] \
                [STORE destination]",
    summary: "Gives the elements of a list, set or sorted set in order.",
    complexity: "O(elements log elements + elements times patterns)",
    since: "1.0.0",
    run: |call| sort(call, true),
};

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    ROW,
    CommandSpec {
        name: "sort_ro",
        flags: Flags::READ.with(Flags::DANGEROUS).with(Flags::MOVABLE_KEYS),
        keys: Keys::First,
        arguments: "key [BY pattern] [LIMIT offset count] [GET pattern [GET pattern ...]] [ASC | DESC] [ALPHA]",
        since: "7.0.0",
        run: |call| sort(call, false),
        ..ROW
    },
];

#[derive(Default)]
struct Options<'a> {
    by: Option<&'a [u8]>,
    /// A pattern without a place for the element says that there is no order, also if another one follows.
    leaves_order: bool,
    gets: Vec<&'a [u8]>,
    limit: Option<(i64, i64)>,
    is_down: bool,
    by_bytes: bool,
    store: Option<&'a [u8]>,
}

impl<'a> Options<'a> {
    fn of(call: &Call<'a>, may_store: bool) -> Result<Self, Failure> {
        let (mut options, mut at) = (Self::default(), 2);
        let reads_all = call
            .session
            .user
            .as_ref()
            .is_some_and(|user| user.may_do_everything() || user.may_access_all(Access::READ));
        // Keys that patterns name may be other nodes'.
        let is_in_cluster = call.server.cluster.is_some();
        let check = |option: &str| match (is_in_cluster, reads_all) {
            (true, _) => {
                Err(Failure::err(format_args!("{option} option of SORT denied in cluster mode.")))
            }
            (false, true) => Ok(()),
            (false, false) => Err(Failure::err(format_args!(
                "{option} option of SORT denied due to insufficient ACL permissions."
            ))),
        };
        while at < call.count() {
            let left = call.count() - at - 1;
            match &call.arg(at).to_ascii_lowercase()[..] {
                b"asc" => options.is_down = false,
                b"desc" => options.is_down = true,
                b"alpha" => options.by_bytes = true,
                b"limit" if left >= 2 => {
                    options.limit = Some((call.integer(at + 1)?, call.integer(at + 2)?));
                    at += 2;
                }
                b"store" if left >= 1 && may_store => {
                    options.store = Some(call.arg(at + 1));
                    at += 1;
                }
                b"by" if left >= 1 => {
                    options.by = Some(call.arg(at + 1));
                    match call.arg(at + 1).contains(&b'*') {
                        true => check("BY")?,
                        false => options.leaves_order = true,
                    }
                    at += 1;
                }
                b"get" if left >= 1 => {
                    check("GET")?;
                    options.gets.push(call.arg(at + 1));
                    at += 1;
                }
                _ => return Err(Failure::SYNTAX),
            }
            at += 1;
        }
        Ok(options)
    }

    /// The first of `count` elements that is shown, and how many are.
    fn shown(&self, count: usize) -> (usize, usize) {
        let Some((first, most)) = self.limit else { return (0, count) };
        let first = usize::try_from(first.max(0)).unwrap_or(usize::MAX).min(count);
        let most = if most < 0 { count } else { usize::try_from(most).unwrap_or(usize::MAX) };
        (first, most.min(count - first))
    }
}

/// An element, and what it is sorted by.
struct Row {
    element: Vec<u8>,
    number: f64,
    bytes: Option<Vec<u8>>,
}

fn sort(call: &mut Call<'_>, may_store: bool) -> Outcome {
    let mut options = Options::of(call, may_store)?;
    let db = call.db();
    let found = collection(call)?;
    if let Some(Meta { kind: Kind::Set, .. }) = found
        && options.leaves_order
        && options.store.is_some()
    {
        // What is stored must not hang on the order of a set.
        (options.by, options.leaves_order, options.by_bytes) = (None, false, true);
    }
    let elements = match &found {
        Some(meta) => elements(call, meta, &options)?,
        None => Vec::new(),
    };
    let elements = match options.leaves_order {
        true => elements,
        false => sorted(call, elements, &options)?,
    };
    let (first, count) = match options.leaves_order {
        true => (0, elements.len()),
        false => options.shown(elements.len()),
    };
    let elements = elements.into_iter().skip(first).take(count);
    call.batch.allow_walk((count as u64).saturating_mul(1 + options.gets.len() as u64))?;
    let Some(destination) = options.store else {
        call.reply.array(count * options.gets.len().max(1));
        let begin = call.reply.len_bytes();
        return each_shown(call, elements, &options, |call, value| {
            call.bulk_or_null(value);
            call.batch.allow_bytes(call.reply.len_bytes().saturating_sub(begin))?;
            Ok(!call.reply.is_over())
        });
    };
    let (mut values, mut size, mut bytes) = (Vec::new(), ResultSize::default(), 0);
    each_shown(call, elements, &options, |call, value| {
        let value = value.unwrap_or_default();
        size.add(value.len())?;
        bytes += value.len();
        call.batch.allow_bytes(bytes)?;
        values.push(value.to_vec());
        Ok(true)
    })?;
    let length = call.batch.list_replace(db, destination, &values)?;
    call.reply.integer(length as i64);
    Ok(())
}

/// Shows what is to be shown of each element, until `seen` says no more.
fn each_shown(
    call: &mut Call<'_>,
    elements: impl Iterator<Item = Vec<u8>>,
    options: &Options<'_>,
    mut seen: impl FnMut(&mut Call<'_>, Option<&[u8]>) -> Result<bool, Failure>,
) -> Outcome {
    for element in elements {
        if options.gets.is_empty() && !seen(call, Some(&element))? {
            return Ok(());
        }
        for pattern in &options.gets {
            let value = lookup(call, pattern, &element)?;
            if !seen(call, value.as_deref())? {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// The list, set or sorted set under the first argument.
fn collection(call: &mut Call<'_>) -> Result<Option<Meta>, Failure> {
    let (db, key) = (call.db(), call.arg(1));
    call.batch.pin_now();
    Ok(match call.batch.key_type(db, key)? {
        None => None,
        Some(Type::Collection(Kind::List)) => call.batch.list(db, key)?,
        Some(Type::Collection(Kind::Set | Kind::SortedSet)) => call.batch.scored_set(db, key)?,
        Some(_) => return Err(terrace_keyspace::Error::WrongType.into()),
    })
}

/// The elements: all of them if they are to be sorted, else those that are shown, in the order that they have.
fn elements(call: &Call<'_>, meta: &Meta, options: &Options<'_>) -> Result<Vec<Vec<u8>>, Failure> {
    let (mut elements, mut size, mut bytes) = (Vec::new(), ResultSize::default(), 0);
    let db = call.session.db;
    let all = usize::try_from(meta.count).unwrap_or(usize::MAX);
    let (first, count) = if options.leaves_order { options.shown(all) } else { (0, all) };
    if count == 0 {
        return Ok(elements);
    }
    let (mut skip, first, count) = (first, first as u64, count as u64);
    let mut keep = |element: &[u8]| {
        size.add(element.len())?;
        bytes += element.len();
        call.batch.allow_bytes(bytes)?;
        elements.push(element.to_vec());
        Ok((elements.len() as u64) < count)
    };
    let is_down = options.leaves_order && options.is_down;
    match meta.kind {
        Kind::List => {
            let first = if is_down { meta.count - first - count } else { first };
            call.batch.list_each(db, meta, first, count, keep)?;
        }
        Kind::Set => call.batch.set_each(db, meta, |member| match skip {
            0 => keep(member),
            _ => {
                skip -= 1;
                Ok(true)
            }
        })?,
        _ => {
            let shown = Range::Ranks(first..=first + count - 1);
            let order = if is_down { Order::Down } else { Order::Up };
            call.batch.sorted_set_each(db, meta, &shown, order, |member, _| keep(member))?;
        }
    }
    if meta.kind == Kind::List && is_down {
        elements.reverse();
    }
    Ok(elements)
}

fn sorted(
    call: &mut Call<'_>,
    elements: Vec<Vec<u8>>,
    options: &Options<'_>,
) -> Result<Vec<Vec<u8>>, Failure> {
    let lookups = if options.by.is_some() { elements.len() } else { 0 };
    call.batch.allow_walk(lookups as u64)?;
    let mut rows = Vec::with_capacity(elements.len());
    let (mut size, mut bytes) = (ResultSize::default(), 0);
    for element in elements {
        let by = match options.by {
            Some(pattern) => lookup(call, pattern, &element)?.map(|value| value.to_vec()),
            None => Some(element.clone()),
        };
        bytes += by.as_ref().map_or(0, Vec::len);
        call.batch.allow_bytes(bytes)?;
        let number = match &by {
            Some(text) if options.by_bytes => {
                // Of other keys, of any size.
                if options.by.is_some() {
                    size.add(text.len())?;
                }
                0.0
            }
            Some(text) => strtod(text)
                .ok_or(Failure::line("ERR One or more scores can't be converted into double"))?,
            None => 0.0,
        };
        rows.push(Row { element, number, bytes: if options.by_bytes { by } else { None } });
    }
    rows.sort_by(|a, b| {
        let order = match options.by_bytes {
            true => a.bytes.cmp(&b.bytes),
            false => {
                let order = a.number.partial_cmp(&b.number).unwrap_or(Ordering::Equal);
                order.then_with(|| a.element.cmp(&b.element))
            }
        };
        if options.is_down { order.reverse() } else { order }
    });
    Ok(rows.into_iter().map(|row| row.element).collect())
}

/// What a pattern means for an element: itself for `#`, else the string under the key, or the field
/// of a hash behind `->`, with the element in the place of the first `*`.
fn lookup(call: &mut Call<'_>, pattern: &[u8], element: &[u8]) -> Result<Option<Value>, Failure> {
    if pattern == b"#" {
        return Ok(Some(Value::Written(element.into())));
    }
    let Some(star) = pattern.iter().position(|byte| *byte == b'*') else { return Ok(None) };
    let (before, after) = (&pattern[..star], &pattern[star + 1..]);
    let arrow = after.windows(2).position(|pair| pair == b"->");
    let (after, field) = match arrow.filter(|at| at + 2 < after.len()) {
        Some(at) => (&after[..at], Some(&after[at + 2..])),
        None => (after, None),
    };
    let key = [before, element, after].concat();
    let db = call.db();
    match (call.batch.key_type(db, &key)?, field) {
        (Some(Type::String), None) => Ok(call.batch.get(db, &key)?),
        (Some(Type::Collection(Kind::Hash)), Some(field)) => {
            let Some(hash) = call.batch.hash(db, &key)? else { return Ok(None) };
            Ok(call.batch.hash_field(db, &hash, field)?)
        }
        _ => Ok(None),
    }
}
