//! What collections should hold and answer: maps and rows, changed in the plainest way.

use super::collections_commands::{Command, Span};
use std::collections::{BTreeMap, BTreeSet};
use terrace_keyspace::{AddRule, End, Error, LongDouble, Order};

type Bytes = Vec<u8>;

#[derive(Debug, Clone)]
pub enum Data {
    Hash(BTreeMap<Bytes, Bytes>),
    Set(BTreeSet<Bytes>),
    Scores(BTreeMap<Bytes, f64>),
    List(Vec<Bytes>),
}

impl PartialEq for Data {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Hash(a), Self::Hash(b)) => a == b,
            (Self::Set(a), Self::Set(b)) => a == b,
            (Self::Scores(a), Self::Scores(b)) => a == b,
            (Self::List(a), Self::List(b)) => a == b,
            _ => false,
        }
    }
}

impl Data {
    fn is_empty(&self) -> bool {
        match self {
            Self::Hash(hash) => hash.is_empty(),
            Self::Set(set) => set.is_empty(),
            Self::Scores(set) => set.is_empty(),
            Self::List(list) => list.is_empty(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Hash(_) => "hash",
            Self::Set(_) => "set",
            Self::Scores(_) => "zset",
            Self::List(_) => "list",
        }
    }

    /// What a command would begin with.
    fn for_command(command: &Command) -> Option<Self> {
        use Command as C;
        Some(match command {
            C::HashSet(..)
            | C::HashSetAbsent(..)
            | C::HashRemove(..)
            | C::HashAdd(..)
            | C::HashAddFloat(..)
            | C::HashGet(..) => Self::Hash(BTreeMap::new()),
            C::SetAdd(..) | C::SetRemove(..) | C::SetPop(..) | C::SetHas(..) => {
                Self::Set(BTreeSet::new())
            }
            C::ScoreAdd(..)
            | C::ScoreIncrement(..)
            | C::ScoreRemove(..)
            | C::ScorePop(..)
            | C::ScoreRank(..)
            | C::ScoreRange(..)
            | C::ScoreRemoveRange(..) => Self::Scores(BTreeMap::new()),
            C::ListPush(..)
            | C::ListPop(..)
            | C::ListRange(..)
            | C::ListGet(..)
            | C::ListSet(..)
            | C::ListTrim(..)
            | C::ListRemove(..)
            | C::ListInsert(..) => Self::List(Vec::new()),
            C::Delete | C::Expire(_) | C::Type => return None,
        })
    }
}

/// One database.
#[derive(Debug, Clone, Default)]
pub struct Model {
    items: BTreeMap<Bytes, (Data, Option<u64>)>,
}

impl Model {
    pub fn data(&self, key: &[u8], now_ms: u64) -> Option<Data> {
        let (data, expires_at_ms) = self.items.get(key)?;
        expires_at_ms.is_none_or(|at| at > now_ms).then(|| data.clone())
    }

    /// What a command should answer. What it takes at random is believed, if it could be.
    pub fn answer(&mut self, key: &[u8], command: &Command, reply: &str, now_ms: u64) -> String {
        if self.data(key, now_ms).is_none() {
            self.items.remove(key);
        }
        match command {
            Command::Delete => return self.items.remove(key).map_or("0", |_| "1").into(),
            Command::Type => {
                return self.data(key, now_ms).map_or("none", |data| data.name()).into();
            }
            Command::Expire(ms) => {
                let found = self.items.get_mut(key).map(|item| item.1 = Some(now_ms + ms));
                return found.is_some().to_string();
            }
            _ => {}
        }
        // A refusal of an argument comes before a look at the key.
        if let Command::ScoreAdd(_, pairs) = command
            && pairs.iter().any(|(score, _)| score.is_nan())
        {
            return Error::ScoreNotANumber.to_string();
        }
        let empty = Data::for_command(command).unwrap();
        let exists = self.items.contains_key(key);
        let (data, expires_at_ms) = self.items.remove(key).unwrap_or((empty.clone(), None));
        let mut after = data.clone();
        let answer = match &mut after {
            other if other.name() != empty.name() => Error::WrongType.to_string(),
            Data::Hash(hash) => on_hash(hash, command),
            Data::Set(set) => on_set(set, command, reply),
            Data::Scores(set) => on_scores(set, command, reply),
            Data::List(list) => on_list(list, command, exists),
        };
        if !after.is_empty() {
            self.items.insert(key.to_vec(), (after, expires_at_ms));
        }
        answer
    }
}

fn on_hash(hash: &mut BTreeMap<Bytes, Bytes>, command: &Command) -> String {
    match command {
        Command::HashSet(pairs) => {
            let before = hash.len();
            hash.extend(pairs.iter().cloned());
            (hash.len() - before).to_string()
        }
        Command::HashSetAbsent(field, value) => {
            let absent = !hash.contains_key(field);
            hash.entry(field.clone()).or_insert_with(|| value.clone());
            absent.to_string()
        }
        Command::HashRemove(fields) => {
            fields.iter().filter(|field| hash.remove(*field).is_some()).count().to_string()
        }
        Command::HashAdd(field, delta) => {
            let text = hash.get(field).map_or("0".into(), |value| String::from_utf8_lossy(value));
            let number = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
            let Some(number) = number else { return Error::HashValueNotAnInteger.to_string() };
            let Some(sum) = number.checked_add(*delta) else { return Error::Overflow.to_string() };
            hash.insert(field.clone(), sum.to_string().into_bytes());
            sum.to_string()
        }
        Command::HashAddFloat(field, delta) => {
            let number = LongDouble::parse(hash.get(field).map_or(b"0", |value| &value[..]));
            let Some(number) = number else { return Error::HashValueNotAFloat.to_string() };
            let sum = number.plus(LongDouble::parse(delta.as_bytes()).unwrap()).unwrap();
            if !sum.is_finite() {
                return Error::NotFinite.to_string();
            }
            hash.insert(field.clone(), sum.to_string().into_bytes());
            sum.to_string()
        }
        Command::HashGet(field) => format!("{:?}", hash.get(field)),
        other => panic!("{other:?} on a hash"),
    }
}

fn on_set(set: &mut BTreeSet<Bytes>, command: &Command, reply: &str) -> String {
    match command {
        Command::SetAdd(members) => {
            members.iter().filter(|member| set.insert((*member).clone())).count().to_string()
        }
        Command::SetRemove(members) => {
            members.iter().filter(|member| set.remove(*member)).count().to_string()
        }
        Command::SetHas(member) => set.contains(member).to_string(),
        Command::SetPop(count) => {
            let before = set.len();
            set.retain(|member| {
                let shown = format!("{member:?}");
                !reply.contains(&format!("[{shown}")) && !reply.contains(&format!(" {shown}"))
            });
            match (before - set.len()) as u64 == (*count).min(before as u64) {
                true => reply.into(),
                false => format!("{count} members of {before}"),
            }
        }
        other => panic!("{other:?} on a set"),
    }
}

/// As `ZADD` has it, written down anew.
fn allowed(rule: &AddRule, before: Option<f64>, score: f64) -> bool {
    match before {
        None => !rule.only_existing,
        Some(_) if rule.only_new => false,
        Some(before) if rule.only_greater => score > before,
        Some(before) if rule.only_less => score < before,
        Some(_) => true,
    }
}

fn in_order(set: &BTreeMap<Bytes, f64>, order: Order) -> Vec<(Bytes, f64)> {
    let mut row: Vec<_> = set.iter().map(|(member, score)| (member.clone(), *score)).collect();
    row.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
    if order == Order::Down {
        row.reverse();
    }
    row
}

fn within(set: &BTreeMap<Bytes, f64>, span: &Span, order: Order) -> Option<Vec<(Bytes, f64)>> {
    let row = in_order(set, order);
    Some(match span {
        Span::Ranks(first, last) => slice(&row, *first, *last).to_vec(),
        Span::Scores(lower, upper) => row
            .into_iter()
            .filter(|(_, score)| {
                (*score > lower.score || *score == lower.score && !lower.excluded)
                    && (*score < upper.score || *score == upper.score && !upper.excluded)
            })
            .collect(),
        Span::Members(a, first, b, last) => {
            if set.values().any(|score| Some(score) != set.values().next()) {
                return None;
            }
            row.into_iter()
                .filter(|(member, _)| {
                    (member > first || member == first && !a)
                        && (member < last || member == last && !b)
                })
                .collect()
        }
    })
}

/// `row[first..=last]` as Redis counts.
fn slice<T>(row: &[T], first: i64, last: i64) -> &[T] {
    let count = row.len() as i128;
    let place = |at: i64| if at < 0 { count + i128::from(at) } else { i128::from(at) };
    let (first, end) = (place(first).max(0), (place(last) + 1).min(count));
    if first >= end { &[] } else { &row[first as usize..end as usize] }
}

fn on_scores(set: &mut BTreeMap<Bytes, f64>, command: &Command, reply: &str) -> String {
    match command {
        Command::ScoreAdd(rule, pairs) => {
            let (mut added, mut changed) = (0, 0);
            for (score, member) in pairs {
                let before = set.get(member).copied();
                if allowed(rule, before, *score) && before != Some(*score) {
                    set.insert(member.clone(), score + 0.0);
                    *(if before.is_none() { &mut added } else { &mut changed }) += 1;
                }
            }
            format!("{added} {changed}")
        }
        Command::ScoreIncrement(rule, delta, member) => {
            let before = set.get(member).copied();
            if before.is_none() && rule.only_existing && set.is_empty()
                || before.is_some() && rule.only_new
            {
                return "None".into();
            }
            let sum = before.map_or(*delta, |before| before + delta);
            if sum.is_nan() {
                return Error::ScoreNotANumber.to_string();
            }
            if !allowed(rule, before, sum) {
                return "None".into();
            }
            set.insert(member.clone(), sum + 0.0);
            format!("{:?}", Some(sum))
        }
        Command::ScoreRemove(members) => {
            members.iter().filter(|member| set.remove(*member).is_some()).count().to_string()
        }
        Command::ScorePop(order, count) => {
            let mut popped = in_order(set, *order);
            popped.truncate(*count as usize);
            for (member, _) in &popped {
                set.remove(member);
            }
            format!("{popped:?}")
        }
        Command::ScoreRank(member, order) => {
            let row = in_order(set, *order);
            let found = row.iter().position(|(other, _)| other == member);
            format!("{:?}", found.map(|at| (at, row[at].1)))
        }
        Command::ScoreRange(span, order) => match within(set, span, *order) {
            Some(row) => format!("{row:?}"),
            // Says nothing useful by definition.
            None => reply.into(),
        },
        Command::ScoreRemoveRange(span) => {
            let row = within(set, span, Order::Up).expect("drawn for equal scores only");
            for (member, _) in &row {
                set.remove(member);
            }
            row.len().to_string()
        }
        other => panic!("{other:?} on a sorted set"),
    }
}

fn on_list(list: &mut Vec<Bytes>, command: &Command, exists: bool) -> String {
    let place = |at: i64, count: usize| {
        let place = if at < 0 { count as i128 + i128::from(at) } else { i128::from(at) };
        usize::try_from(place).ok().filter(|place| *place < count)
    };
    match command {
        Command::ListPush(end, only_existing, values) => {
            if exists || !only_existing {
                for value in values {
                    let at = if *end == End::Front { 0 } else { list.len() };
                    list.insert(at, value.clone());
                }
            }
            list.len().to_string()
        }
        Command::ListPop(end, count) => {
            if !exists {
                return "None".into();
            }
            let count = (*count as usize).min(list.len());
            let popped: Vec<Bytes> = match end {
                End::Front => list.drain(..count).collect(),
                End::Back => list.drain(list.len() - count..).rev().collect(),
            };
            format!("{:?}", Some(popped))
        }
        Command::ListRange(first, last) => format!("{:?}", slice(list, *first, *last)),
        Command::ListGet(index) => format!("{:?}", place(*index, list.len()).map(|at| &list[at])),
        Command::ListSet(index, value) => match place(*index, list.len()) {
            _ if !exists => Error::NoSuchKey.to_string(),
            None => Error::IndexOutOfRange.to_string(),
            Some(at) => {
                list[at] = value.clone();
                "OK".into()
            }
        },
        Command::ListTrim(first, last) => {
            *list = slice(list, *first, *last).to_vec();
            "OK".into()
        }
        Command::ListRemove(count, value) => {
            let mut places: Vec<usize> = (0..list.len()).filter(|at| list[*at] == *value).collect();
            if *count < 0 {
                places.reverse();
            }
            if *count != 0 {
                places.truncate(count.unsigned_abs() as usize);
            }
            places.sort_unstable();
            for at in places.iter().rev() {
                list.remove(*at);
            }
            places.len().to_string()
        }
        Command::ListInsert(before, pivot, value) => {
            if !exists {
                return "0".into();
            }
            let Some(at) = list.iter().position(|other| other == pivot) else { return "-1".into() };
            list.insert(if *before { at } else { at + 1 }, value.clone());
            list.len().to_string()
        }
        other => panic!("{other:?} on a list"),
    }
}
