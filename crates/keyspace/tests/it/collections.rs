//! Random commands on hashes, sets, sorted sets and lists beside a model: members that are empty,
//! long, or have equal hashes, scores of all kinds, attempts that fail, turns that are abandoned or
//! have to wait, keys that expire and come again as something else.

use crate::collections_model::{Data, Model};
use crate::harness::{FakeClock, below, one_in, small_options, store};
use std::collections::BTreeSet;
use std::sync::Arc;
use terrace::vfs::SimVfs;
use terrace_base::rng::SplitMix64;
use terrace_keyspace::{
    AddRule, End, Error, ExpireIf, Inserted, Keyspace, LongDouble, MAX_MEMBER_BYTES, MemberEnd,
    Mode, Order, Range, Result, ScoreEnd, Turn, ranks,
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
    fn draw(rng: &mut SplitMix64) -> Self {
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
    fn run(&self, turn: &mut Turn, key: &[u8]) -> Result<String> {
        fn slices(all: &[Bytes]) -> impl Iterator<Item = &[u8]> + Clone {
            all.iter().map(|one| &one[..])
        }
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
            Self::Delete => turn.delete(0, [key].into_iter())?.to_string(),
            Self::Expire(ms) => {
                let at_ms = turn.now_ms() + ms;
                turn.expire(0, key, at_ms, ExpireIf::default())?.to_string()
            }
            Self::Type => match turn.key_type(0, key)? {
                Some(kind) => kind.name().into(),
                None => "none".into(),
            },
        })
    }
}

struct Run {
    rng: SplitMix64,
    clock: FakeClock,
    space: Arc<Keyspace>,
    model: Model,
    executed: u64,
    elsewhere: u64,
}

const KEYS: u64 = 6;

fn key_of(at: u64) -> Bytes {
    format!("key {at}").into_bytes()
}

impl Run {
    /// Executes one command in both; false if it has to be executed elsewhere.
    fn execute(
        &mut self,
        turn: &mut Turn,
        model: &mut Model,
        key: &[u8],
        command: &Command,
    ) -> bool {
        turn.next_command();
        let reply = match command.run(turn, key) {
            Err(Error::Elsewhere(_)) if turn.mode() == Mode::Memory => return false,
            Err(error) => error.to_string(),
            Ok(reply) => reply,
        };
        let wanted = model.answer(key, command, &reply, self.clock.now_ms());
        assert_eq!(reply, wanted, "{command:?}");
        self.executed += 1;
        true
    }

    fn turn(&mut self) {
        let commands: Vec<(Bytes, Command)> = (0..1 + below(&mut self.rng, 8))
            .map(|_| (key_of(below(&mut self.rng, KEYS)), Command::draw(&mut self.rng)))
            .collect();
        let mode = if one_in(&mut self.rng, 2) { Mode::Memory } else { Mode::Device };
        self.turn_of(&commands, mode);
    }

    fn turn_of(&mut self, commands: &[(Bytes, Command)], mode: Mode) {
        let mut turn = self.space.turn(mode);
        turn.lock(0, commands.iter().map(|(key, _)| &key[..])).unwrap();
        let mut model = self.model.clone();
        let mut rest = commands;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(1 + below(&mut self.rng, rest.len() as u64) as usize);
            let fails = one_in(&mut self.rng, 6);
            let before = model.clone();
            let mut waits = false;
            let _ = turn.attempt(|turn| {
                for (key, command) in now {
                    if !self.execute(turn, &mut model, key, command) {
                        waits = true;
                    }
                    if waits {
                        return Err(());
                    }
                }
                if fails { Err(()) } else { Ok(()) }
            });
            if fails || waits {
                model = before;
            }
            if waits {
                self.elsewhere += 1;
                turn.commit().unwrap();
                self.model = model;
                return self.turn_of(rest, Mode::Device);
            }
            rest = later;
        }
        match below(&mut self.rng, 8) {
            0 => turn.abandon(),
            1 => drop(turn),
            _ => {
                turn.commit().unwrap();
                self.model = model;
            }
        }
    }

    fn compare(&mut self) {
        let now_ms = self.clock.now_ms();
        for at in 0..KEYS {
            let key = key_of(at);
            let mut turn = self.space.turn(Mode::Device);
            assert_eq!(stored(&mut turn, &key).unwrap(), self.model.data(&key, now_ms), "{at}");
        }
    }
}

/// Everything under a key, read in two ways.
fn stored(turn: &mut Turn, key: &[u8]) -> Result<Option<Data>> {
    let kind = turn.key_type(0, key)?.map_or("none", |kind| kind.name());
    let mut walked = BTreeSet::new();
    let mut paged = BTreeSet::new();
    let mut cursor = 0;
    let data = match kind {
        "hash" => {
            let hash = turn.hash(0, key)?.unwrap();
            turn.hash_each(0, &hash, |field, value| {
                Ok(walked.insert((field.to_vec(), value.to_vec())))
            })?;
            loop {
                let page = turn.hash_page(0, &hash, cursor, 3)?;
                paged.extend(page.items);
                cursor = page.cursor;
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!((&walked, walked.len() as u64), (&paged, hash.count));
            Data::Hash(walked.into_iter().collect())
        }
        "set" => {
            let set = turn.set(0, key)?.unwrap();
            turn.set_each(0, &set, |member| Ok(walked.insert((member.to_vec(), Vec::new()))))?;
            loop {
                let page = turn.set_page(0, &set, cursor, 3)?;
                paged.extend(page.items.into_iter().map(|member| (member, Vec::new())));
                cursor = page.cursor;
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!((&walked, walked.len() as u64), (&paged, set.count));
            Data::Set(walked.into_iter().map(|(member, _)| member).collect())
        }
        "zset" => {
            let set = turn.sorted_set(0, key)?.unwrap();
            let mut ordered = Vec::new();
            turn.sorted_set_each(
                0,
                &set,
                &Range::Ranks(0..=u64::MAX),
                Order::Up,
                |member, score| {
                    ordered.push((member.to_vec(), score));
                    Ok(true)
                },
            )?;
            let mut paged = Vec::new();
            loop {
                let page = turn.sorted_set_page(0, &set, cursor, 3)?;
                paged.extend(page.items);
                cursor = page.cursor;
                if cursor == 0 {
                    break;
                }
            }
            paged.sort_by(|a, b| a.1.total_cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
            assert_eq!((&ordered, ordered.len() as u64), (&paged, set.count));
            Data::Scores(ordered.into_iter().collect())
        }
        "list" => {
            let list = turn.list(0, key)?.unwrap();
            let mut values = Vec::new();
            turn.list_each(0, &list, 0, u64::MAX, |value| {
                values.push(value.to_vec());
                Ok(true)
            })?;
            assert_eq!(values.len() as u64, list.count);
            Data::List(values)
        }
        _ => return Ok(None),
    };
    Ok(Some(data))
}

#[test]
fn collections_answer_as_a_model_does() {
    let seeds = match std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..6,
    };
    let mut elsewhere = 0;
    for seed in seeds {
        let (vfs, clock) = (SimVfs::new(seed), FakeClock::new());
        let space = Keyspace::open_unswept("/db", small_options(&vfs, &clock)).unwrap();
        let (rng, model) = (SplitMix64::new(seed), Model::default());
        let mut run = Run { rng, clock, space, model, executed: 0, elsewhere: 0 };
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while run.executed < 2_000 {
                run.turn();
                match below(&mut run.rng, 40) {
                    0..=5 => run.clock.advance(below(&mut run.rng, 30)),
                    6 => run.space.db().flush().unwrap(),
                    7 => while run.space.sweep().unwrap().notes > 0 {},
                    8..=9 => run.compare(),
                    _ => {}
                }
            }
            run.compare();
        }));
        if let Err(panic) = caught {
            eprintln!("replay with SEED={seed}");
            std::panic::resume_unwind(panic);
        }
        elsewhere += run.elsewhere;
    }
    assert!(elsewhere > 10, "only {elsewhere} commands had to wait");
}

#[test]
fn members_of_one_hash_are_on_one_page() {
    let (space, _, _) = store();
    let mut turn = space.turn(Mode::Device);
    turn.lock(0, [&b"s"[..]].into_iter()).unwrap();
    let both = equal_hashes();
    turn.set_add(0, b"s", both.iter().map(|member| &member[..])).unwrap();
    let set = turn.set(0, b"s").unwrap().unwrap();
    let page = turn.set_page(0, &set, 0, 1).unwrap();
    assert_eq!((page.cursor, page.items.len()), (0, 2));
}

#[test]
fn what_is_there_all_the_time_is_scanned_whatever_comes_and_goes() {
    let (space, _, _) = store();
    let mut turn = space.turn(Mode::Device);
    turn.lock(0, [&b"s"[..]].into_iter()).unwrap();
    let lasting: BTreeSet<Bytes> = (0..200).map(|at| format!("stays {at}").into_bytes()).collect();
    turn.set_add(0, b"s", lasting.iter().map(|member| &member[..])).unwrap();
    let (mut seen, mut cursor, mut round) = (BTreeSet::new(), 0, 0);
    loop {
        let (came, gone) = (format!("comes {round}"), format!("comes {}", round / 2));
        turn.set_add(0, b"s", [came.as_bytes()].into_iter()).unwrap();
        turn.set_remove(0, b"s", [gone.as_bytes()].into_iter()).unwrap();
        let set = turn.set(0, b"s").unwrap().unwrap();
        let page = turn.set_page(0, &set, cursor, 7).unwrap();
        seen.extend(page.items);
        (cursor, round) = (page.cursor, round + 1);
        if cursor == 0 {
            break;
        }
    }
    assert!(round > 20 && seen.is_superset(&lasting));
}

#[test]
fn random_members_are_members_and_samples_have_none_twice() {
    let (space, _, _) = store();
    let mut turn = space.turn(Mode::Device);
    turn.lock(0, [&b"s"[..]].into_iter()).unwrap();
    for size in [1_u64, 5, 128, 129, 2000] {
        turn.delete(0, [&b"s"[..]].into_iter()).unwrap();
        let all: BTreeSet<Bytes> = (0..size).map(|at| at.to_be_bytes().to_vec()).collect();
        turn.set_add(0, b"s", all.iter().map(|member| &member[..])).unwrap();
        let set = turn.set(0, b"s").unwrap().unwrap();
        for count in [1, 3, size / 2, size, size + 9] {
            let mut sample = Vec::new();
            turn.set_sample(0, &set, count, |member| {
                sample.push(member.to_vec());
                Ok(())
            })
            .unwrap();
            let different: BTreeSet<Bytes> = sample.iter().cloned().collect();
            assert_eq!((sample.len(), different.len()), (count.min(size) as usize, sample.len()));
            assert!(different.is_subset(&all), "{count} of {size}");
        }
        let mut repeated = BTreeSet::new();
        turn.set_random(0, &set, 2000, |member| {
            repeated.insert(member.to_vec());
            Ok(())
        })
        .unwrap();
        assert!(repeated.is_subset(&all) && repeated.len() as u64 >= size.min(400), "of {size}");
    }
}

#[test]
fn members_that_do_not_fit_are_refused_and_change_nothing() {
    let (space, _, _) = store();
    let mut turn = space.turn(Mode::Device);
    turn.lock(0, [&b"k"[..]].into_iter()).unwrap();
    let (fits, too_long) = (vec![7; MAX_MEMBER_BYTES], vec![7; MAX_MEMBER_BYTES + 1]);
    let both = [(1.0, &fits[..]), (2.0, &too_long[..])];
    let refused = turn.sorted_set_add(0, b"k", AddRule::default(), both.into_iter());
    assert!(matches!(refused, Err(Error::TooLong(_))), "{refused:?}");
    assert_eq!(turn.key_type(0, b"k").unwrap(), None);
    turn.sorted_set_add(0, b"k", AddRule::default(), both.into_iter().take(1)).unwrap();
    turn.commit().unwrap();
    let set = turn.sorted_set(0, b"k").unwrap().unwrap();
    assert_eq!(turn.sorted_set_score(0, &set, &fits).unwrap(), Some(1.0));
}
