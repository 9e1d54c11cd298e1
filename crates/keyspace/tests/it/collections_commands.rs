//! Commands on collections, drawn at random, and what a keyspace answers to them.

use super::harness::{below, one_in};
use terrace_base::rng::SplitMix64;
use terrace_keyspace::{
    AddRule, CommandBatch, End, ExpireIf, Inserted, LongDouble, MemberEnd, Order, Range, Result,
    ScoreEnd, ranks,
};

type Bytes = Vec<u8>;

/// Two members whose hashes are equal: of XXH3 of 16 bytes, what is multiplied is 0 in both.
pub fn equal_hashes() -> [Bytes; 2] {
    const FIRST: u64 = 0x6782_737b_ea42_39b9;
    const SECOND: u64 = 0xaf56_bc3b_0996_523a;
    let number = 0x0123_4567_89ab_cdef_u64;
    let joined = |first: u64, second: u64| {
        [(first ^ FIRST).to_le_bytes(), (second ^ SECOND).to_le_bytes()].concat()
    };
    let both = [joined(0, number), joined(number.swap_bytes(), 0)];
    assert_eq!(xxhash_rust::xxh3::xxh3_64(&both[0]), xxhash_rust::xxh3::xxh3_64(&both[1]));
    both
}

#[derive(Debug, Clone)]
pub enum Command {
    HashSet(Vec<(Bytes, Bytes)>),
    HashSetAbsent(Bytes, Bytes),
    HashRemove(Vec<Bytes>),
    HashAdd(Bytes, i64),
    HashAddFloat(Bytes, &'static str),
    HashGet(Bytes),
    SetAdd(Vec<Bytes>),
    SetRemove(Vec<Bytes>),
    SetPop(u64),
    SetHas(Bytes),
    ScoreAdd(AddRule, Vec<(f64, Bytes)>),
    ScoreIncrement(AddRule, f64, Bytes),
    ScoreRemove(Vec<Bytes>),
    ScorePop(Order, u64),
    ScoreRank(Bytes, Order),
    ScoreRange(Span, Order),
    ScoreRemoveRange(Span),
    ListPush(End, bool, Vec<Bytes>),
    ListPop(End, u64),
    ListRange(i64, i64),
    ListGet(i64),
    ListSet(i64, Bytes),
    ListTrim(i64, i64),
    ListRemove(i64, Bytes),
    ListInsert(bool, Bytes, Bytes),
    Delete,
    Expire(u64),
    Type,
}

/// A range that owns its members.
#[derive(Debug, Clone)]
pub enum Span {
    Ranks(i64, i64),
    Scores(ScoreEnd, ScoreEnd),
    Members(bool, Bytes, bool, Bytes),
}

impl Span {
    fn draw(rng: &mut SplitMix64) -> Self {
        let end = |rng: &mut SplitMix64| ScoreEnd { score: number(rng), excluded: one_in(rng, 2) };
        match below(rng, 3) {
            0 => Self::Ranks(index(rng), index(rng)),
            1 => Self::Scores(end(rng), end(rng)),
            _ => Self::Members(one_in(rng, 2), member(rng), one_in(rng, 2), member(rng)),
        }
    }

    fn range(&self, count: u64) -> Option<Range<'_>> {
        fn end(excluded: bool, member: &Bytes) -> MemberEnd<'_> {
            if excluded { MemberEnd::Excluded(member) } else { MemberEnd::Included(member) }
        }
        match self {
            Self::Ranks(first, last) => ranks(*first, *last, count).map(Range::Ranks),
            Self::Scores(lower, upper) => Some(Range::Scores(*lower, *upper)),
            Self::Members(a, first, b, last) => Some(Range::Members(end(*a, first), end(*b, last))),
        }
    }
}

pub fn member(rng: &mut SplitMix64) -> Bytes {
    match below(rng, 40) {
        0 => Bytes::new(),
        1 => equal_hashes()[0].clone(),
        2 => equal_hashes()[1].clone(),
        3 => vec![0xFF; 3],
        4 => vec![0],
        5 if one_in(rng, 10) => vec![b'x'; 60 << 10],
        _ => format!("m{}", below(rng, 60)).into_bytes(),
    }
}

fn members(rng: &mut SplitMix64) -> Vec<Bytes> {
    let count = if one_in(rng, 20) { 60 } else { 1 + below(rng, 4) };
    (0..count).map(|_| member(rng)).collect()
}

/// Any score but NaN.
fn number(rng: &mut SplitMix64) -> f64 {
    const SPECIAL: &[f64] =
        &[f64::NEG_INFINITY, f64::INFINITY, -0.0, 0.0, f64::MIN_POSITIVE, f64::MAX, -1e-300];
    match below(rng, 3) {
        0 => SPECIAL[below(rng, SPECIAL.len() as u64) as usize],
        _ => below(rng, 9) as f64 - 4.0,
    }
}

fn score(rng: &mut SplitMix64) -> f64 {
    if one_in(rng, 50) { f64::NAN } else { number(rng) }
}

fn index(rng: &mut SplitMix64) -> i64 {
    match below(rng, 20) {
        0 => i64::MIN,
        1 => i64::MAX,
        _ => below(rng, 24) as i64 - 12,
    }
}

fn rule(rng: &mut SplitMix64) -> AddRule {
    let mut rule = AddRule::default();
    match below(rng, 8) {
        0 => rule.only_new = true,
        1 => rule.only_existing = true,
        2 => rule.only_greater = true,
        3 => rule.only_less = true,
        4 => (rule.only_existing, rule.only_greater) = (true, true),
        _ => {}
    }
    rule
}

impl Command {
    pub fn draw(rng: &mut SplitMix64) -> Self {
        let end = |rng: &mut SplitMix64| if one_in(rng, 2) { End::Front } else { End::Back };
        let order = |rng: &mut SplitMix64| if one_in(rng, 2) { Order::Up } else { Order::Down };
        let few = |rng: &mut SplitMix64| if one_in(rng, 6) { 1000 } else { below(rng, 4) };
        let value = |rng: &mut SplitMix64| match below(rng, 3) {
            0 => below(rng, 100).to_string().into_bytes(),
            1 => b"9223372036854775807".to_vec(),
            _ => member(rng),
        };
        match below(rng, 60) {
            0..=4 => Self::HashSet(members(rng).into_iter().map(|m| (m, value(rng))).collect()),
            5 => Self::HashSetAbsent(member(rng), value(rng)),
            6..=7 => Self::HashRemove(members(rng)),
            8 => Self::HashAdd(member(rng), index(rng)),
            9 => Self::HashAddFloat(member(rng), ["0.1", "-3", "1e4932"][below(rng, 3) as usize]),
            10..=11 => Self::HashGet(member(rng)),
            12..=15 => Self::SetAdd(members(rng)),
            16..=17 => Self::SetRemove(members(rng)),
            18..=19 => Self::SetPop(few(rng)),
            20 => Self::SetHas(member(rng)),
            21..=26 => {
                let pairs = members(rng).into_iter().map(|m| (score(rng), m)).collect();
                Self::ScoreAdd(rule(rng), pairs)
            }
            27..=28 => Self::ScoreIncrement(rule(rng), score(rng), member(rng)),
            29 => Self::ScoreRemove(members(rng)),
            30..=31 => Self::ScorePop(order(rng), few(rng)),
            32..=33 => Self::ScoreRank(member(rng), order(rng)),
            34..=37 => Self::ScoreRange(Span::draw(rng), order(rng)),
            38..=39 => loop {
                let span = Span::draw(rng);
                if !matches!(span, Span::Members(..)) {
                    break Self::ScoreRemoveRange(span);
                }
            },
            40..=44 => Self::ListPush(end(rng), one_in(rng, 4), members(rng)),
            45..=46 => Self::ListPop(end(rng), few(rng)),
            47..=48 => Self::ListRange(index(rng), index(rng)),
            49 => Self::ListGet(index(rng)),
            50 => Self::ListSet(index(rng), member(rng)),
            51 => Self::ListTrim(index(rng), index(rng)),
            52 => Self::ListRemove(below(rng, 5) as i64 - 2, member(rng)),
            53 => Self::ListInsert(one_in(rng, 2), member(rng), member(rng)),
            54..=56 => Self::Delete,
            57 => Self::Expire(below(rng, 60)),
            _ => Self::Type,
        }
    }

    /// What the keyspace answers.
    pub fn run(&self, turn: &mut CommandBatch, key: &[u8]) -> Result<String> {
        Ok(match self {
            Self::Delete => turn.delete(0, [key].into_iter())?.to_string(),
            Self::Expire(ms) => {
                let at_ms = turn.now_ms() + ms;
                turn.expire(0, key, at_ms, ExpireIf::default())?.to_string()
            }
            Self::Type => match turn.key_type(0, key)? {
                Some(kind) => kind.name().into(),
                None => "none".into(),
            },
            _ => return self.run_on_members(turn, key),
        })
    }

    fn run_on_members(&self, turn: &mut CommandBatch, key: &[u8]) -> Result<String> {
        Ok(match self {
            Self::HashSet(pairs) => {
                let pairs = pairs.iter().map(|(field, value)| (&field[..], &value[..]));
                turn.hash_set(0, key, pairs)?.to_string()
            }
            Self::HashSetAbsent(field, value) => {
                turn.hash_set_absent(0, key, field, value)?.to_string()
            }
            Self::HashRemove(fields) => turn.hash_remove(0, key, slices(fields))?.to_string(),
            Self::HashAdd(field, delta) => turn.hash_add(0, key, field, *delta)?.to_string(),
            Self::HashAddFloat(field, delta) => {
                let delta = LongDouble::parse(delta.as_bytes()).unwrap();
                turn.hash_add_float(0, key, field, delta)?
            }
            Self::HashGet(field) => match turn.hash(0, key)? {
                Some(hash) => {
                    format!("{:?}", turn.hash_field(0, &hash, field)?.map(|value| value.to_vec()))
                }
                None => "None".into(),
            },
            Self::SetAdd(members) => turn.set_add(0, key, slices(members))?.to_string(),
            Self::SetRemove(members) => turn.set_remove(0, key, slices(members))?.to_string(),
            Self::SetPop(count) => format!("{:?}", turn.set_pop(0, key, *count)?),
            Self::SetHas(member) => match turn.set(0, key)? {
                Some(set) => turn.set_has(0, &set, member)?.to_string(),
                None => "false".into(),
            },
            _ => return self.run_on_scores(turn, key),
        })
    }

    fn run_on_scores(&self, turn: &mut CommandBatch, key: &[u8]) -> Result<String> {
        Ok(match self {
            Self::ScoreAdd(rule, pairs) => {
                let pairs = pairs.iter().map(|(score, member)| (*score, &member[..]));
                let done = turn.sorted_set_add(0, key, *rule, pairs)?;
                format!("{} {}", done.added, done.changed)
            }
            Self::ScoreIncrement(rule, delta, member) => {
                format!("{:?}", turn.sorted_set_increment(0, key, *rule, *delta, member)?)
            }
            Self::ScoreRemove(members) => {
                turn.sorted_set_remove(0, key, slices(members))?.to_string()
            }
            Self::ScorePop(order, count) => {
                format!("{:?}", turn.sorted_set_pop(0, key, *order, *count)?)
            }
            Self::ScoreRank(member, order) => match turn.sorted_set(0, key)? {
                Some(set) => format!("{:?}", turn.sorted_set_rank(0, &set, member, *order)?),
                None => "None".into(),
            },
            Self::ScoreRange(span, order) => {
                let mut shown = Vec::new();
                if let Some(set) = turn.sorted_set(0, key)?
                    && let Some(range) = span.range(set.count)
                {
                    turn.sorted_set_each(0, &set, &range, *order, |member, score| {
                        shown.push((member.to_vec(), score));
                        Ok(true)
                    })?;
                }
                format!("{shown:?}")
            }
            Self::ScoreRemoveRange(span) => {
                let set = turn.sorted_set(0, key)?;
                match set.and_then(|set| span.range(set.count)) {
                    Some(range) => turn.sorted_set_remove_range(0, key, &range)?.to_string(),
                    None => "0".into(),
                }
            }
            _ => return self.run_on_list(turn, key),
        })
    }

    fn run_on_list(&self, turn: &mut CommandBatch, key: &[u8]) -> Result<String> {
        Ok(match self {
            Self::ListPush(end, only_existing, values) => {
                turn.list_push(0, key, *end, *only_existing, slices(values))?.to_string()
            }
            Self::ListPop(end, count) => {
                let popped = turn.list_pop(0, key, *end, *count)?;
                let popped =
                    popped.map(|all| all.iter().map(|one| one.to_vec()).collect::<Vec<_>>());
                format!("{popped:?}")
            }
            Self::ListRange(first, last) => {
                let mut shown = Vec::new();
                if let Some(list) = turn.list(0, key)?
                    && let Some(places) = ranks(*first, *last, list.count)
                {
                    let count = places.end() - places.start() + 1;
                    turn.list_each(0, &list, *places.start(), count, |value| {
                        shown.push(value.to_vec());
                        Ok(true)
                    })?;
                }
                format!("{shown:?}")
            }
            Self::ListGet(index) => match turn.list(0, key)? {
                Some(list) => {
                    format!("{:?}", turn.list_get(0, &list, *index)?.map(|value| value.to_vec()))
                }
                None => "None".into(),
            },
            Self::ListSet(index, value) => {
                let list = turn.list_to_set(0, key)?;
                turn.list_set(0, key, &list, *index, value)?;
                "OK".into()
            }
            Self::ListTrim(first, last) => {
                turn.list_trim(0, key, *first, *last)?;
                "OK".into()
            }
            Self::ListRemove(count, value) => turn.list_remove(0, key, *count, value)?.to_string(),
            Self::ListInsert(before, pivot, value) => {
                match turn.list_insert(0, key, *before, pivot, value)? {
                    Inserted::NoList => "0".into(),
                    Inserted::NoPivot => "-1".into(),
                    Inserted::Length(length) => length.to_string(),
                }
            }
            other => panic!("{other:?} is not on a list"),
        })
    }
}

fn slices(all: &[Bytes]) -> impl Iterator<Item = &[u8]> + Clone {
    all.iter().map(|one| &one[..])
}
