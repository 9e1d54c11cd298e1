//! Commands for random tests: drawn, executed in a turn, and executed on a model. Both executions
//! give a text, the same one if the keyspace is right.

use super::harness::{below, one_in};
use super::model::{Data, Model};
use super::walks::{shown, stored, walked};
use std::collections::BTreeMap;
use terrace_base::rng::{Rng, SplitMix64};
use terrace_keyspace::{
    CommandBatch, Error, ExpireIf, KeyRange, KeyScan, Lifetime, PutOptions, Result, Type, When,
};

const KEYS: u64 = 12;

type Bytes = Vec<u8>;

/// One command.
#[derive(Debug, Clone)]
pub enum Command {
    Get(Bytes),
    GetMany(Vec<Bytes>),
    Put(Bytes, Bytes, PutOptions),
    PutMany(Vec<(Bytes, Bytes)>),
    PutManyAbsent(Vec<(Bytes, Bytes)>),
    Take(Bytes),
    GetAndExpire(Bytes, Lifetime),
    Append(Bytes, Bytes),
    Range(Bytes, i64, i64),
    PutRange(Bytes, u64, Bytes),
    Add(Bytes, i64),
    Delete(Vec<Bytes>),
    Exists(Vec<Bytes>),
    Type(Bytes),
    Expire(Bytes, u64, ExpireIf),
    Persist(Bytes),
    Expiry(Bytes),
    Walk(KeyBounds),
    Scan {
        count: u64,
        prefix: Bytes,
    },
    Count,
    HashSet(Bytes, Vec<(Bytes, Bytes)>),
    HashRemove(Bytes, Vec<Bytes>),
    HashGet(Bytes, Bytes),
    /// Only where all locks are held.
    Flush,
    FlushAll,
    /// Executes all and then fails: nothing has happened.
    Failing(Vec<Command>),
}

/// Of a walk: start, end and prefix.
type KeyBounds = (Bytes, Option<Bytes>, Bytes);

fn key(rng: &mut SplitMix64) -> Bytes {
    match below(rng, KEYS) {
        0 => b"key:".to_vec(),
        1 => vec![b'k'; 300],
        2 => vec![0xFF, 0xFF],
        // Of one slot.
        number @ 3..=5 => format!("{{key:}}{number}").into_bytes(),
        number => format!("key:{number}").into_bytes(),
    }
}

fn prefix(rng: &mut SplitMix64, of_keys: &[u8]) -> Bytes {
    match below(rng, 4) {
        0 => b"{key:}".to_vec(),
        1 => of_keys.to_vec(),
        _ => Vec::new(),
    }
}

fn value(rng: &mut SplitMix64) -> Bytes {
    match below(rng, 6) {
        0 => Vec::new(),
        1 => below(rng, 1000).to_string().into_bytes(),
        2 => i64::MAX.to_string().into_bytes(),
        3 => vec![b'x'; below(rng, 3000) as usize],
        _ => format!("value {}", rng.next_u64()).into_bytes(),
    }
}

fn some<T>(rng: &mut SplitMix64, draw: impl Fn(&mut SplitMix64) -> T) -> Vec<T> {
    (0..1 + below(rng, 4)).map(|_| draw(rng)).collect()
}

fn pair(rng: &mut SplitMix64) -> (Bytes, Bytes) {
    (key(rng), value(rng))
}

/// A time near now, perhaps past.
fn time(rng: &mut SplitMix64, now_ms: u64) -> u64 {
    now_ms + below(rng, 120) - 20
}

fn lifetime(rng: &mut SplitMix64, now_ms: u64) -> Lifetime {
    match below(rng, 4) {
        0 => Lifetime::Kept,
        1 => Lifetime::Until(time(rng, now_ms)),
        _ => Lifetime::Unlimited,
    }
}

fn field(rng: &mut SplitMix64) -> Bytes {
    // More than what is deleted one by one.
    format!("field {}", below(rng, 60)).into_bytes()
}

impl Command {
    pub fn draw(rng: &mut SplitMix64, now_ms: u64) -> Self {
        let bit = |rng: &mut SplitMix64| one_in(rng, 4);
        match below(rng, 40) {
            0..=3 => Self::Get(key(rng)),
            4..=5 => Self::GetMany(some(rng, key)),
            6..=10 => {
                let when = match below(rng, 4) {
                    0 => When::Absent,
                    1 => When::Present,
                    _ => When::Always,
                };
                let options = PutOptions { when, lifetime: lifetime(rng, now_ms), get: bit(rng) };
                Self::Put(key(rng), value(rng), options)
            }
            11 => Self::PutMany(some(rng, pair)),
            12 => Self::PutManyAbsent(some(rng, pair)),
            13 => Self::Take(key(rng)),
            14 => Self::GetAndExpire(key(rng), lifetime(rng, now_ms)),
            15 => Self::Append(key(rng), value(rng)),
            16 => Self::Range(key(rng), below(rng, 20) as i64 - 10, below(rng, 20) as i64 - 10),
            17 => Self::PutRange(key(rng), below(rng, 40), value(rng)),
            18..=19 => Self::Add(key(rng), below(rng, 100) as i64 - 50),
            20..=21 => Self::Delete(some(rng, key)),
            22 => Self::Exists(some(rng, key)),
            23 => Self::Type(key(rng)),
            24..=25 => {
                let condition = ExpireIf {
                    unlimited: bit(rng),
                    limited: bit(rng),
                    later: bit(rng),
                    earlier: bit(rng),
                };
                Self::Expire(key(rng), time(rng, now_ms), condition)
            }
            26 => Self::Persist(key(rng)),
            27 => Self::Expiry(key(rng)),
            28 => {
                let end = one_in(rng, 2).then(|| key(rng));
                let start = if one_in(rng, 2) { key(rng) } else { Vec::new() };
                let prefix = prefix(rng, b"key:1");
                Self::Walk((start, end, prefix))
            }
            29 => {
                let prefix = prefix(rng, b"key:");
                Self::Scan { count: 1 + below(rng, 6), prefix }
            }
            30 => Self::Count,
            31..=34 => Self::HashSet(key(rng), some(rng, |rng| (field(rng), value(rng)))),
            35 => {
                let fields = (0..45).map(|n| (format!("field {n}").into_bytes(), value(rng)));
                let fields = fields.collect();
                Self::HashSet(key(rng), fields)
            }
            36 => Self::HashRemove(key(rng), some(rng, field)),
            37 => Self::HashGet(key(rng), field(rng)),
            38 if one_in(rng, 2) => Self::Failing(some(rng, |rng| Self::draw(rng, now_ms))),
            38 if one_in(rng, 6) => Self::FlushAll,
            38 if one_in(rng, 3) => Self::Flush,
            _ => Self::Get(key(rng)),
        }
    }

    /// Whether it needs all locks.
    pub fn flushes(&self) -> bool {
        match self {
            Self::Flush | Self::FlushAll => true,
            Self::Failing(commands) => commands.iter().any(Self::flushes),
            _ => false,
        }
    }

    /// The keys whose locks it needs.
    pub fn written_keys(&self) -> Vec<&[u8]> {
        match self {
            Self::Put(key, ..)
            | Self::Take(key)
            | Self::GetAndExpire(key, _)
            | Self::Append(key, _)
            | Self::PutRange(key, ..)
            | Self::Add(key, _)
            | Self::Expire(key, ..)
            | Self::Persist(key)
            | Self::HashSet(key, _)
            | Self::HashRemove(key, _) => vec![key],
            Self::PutMany(pairs) | Self::PutManyAbsent(pairs) => {
                pairs.iter().map(|(key, _)| &key[..]).collect()
            }
            Self::Delete(keys) => keys.iter().map(Vec::as_slice).collect(),
            Self::Failing(commands) => commands.iter().flat_map(Self::written_keys).collect(),
            _ => Vec::new(),
        }
    }

    /// Executes it; the locks are held.
    pub fn run(&self, turn: &mut CommandBatch, db: u8) -> Result<String> {
        match self.run_or_fail(turn, db) {
            Err(error @ (Error::WrongType | Error::NotAnInteger | Error::Overflow)) => {
                Ok(error.to_string())
            }
            outcome => outcome,
        }
    }

    fn run_or_fail(&self, turn: &mut CommandBatch, db: u8) -> Result<String> {
        let value = |value: Option<terrace_keyspace::Value>| match value {
            Some(value) => shown(&value),
            None => "nothing".into(),
        };
        Ok(match self {
            Self::Get(key) => value(turn.get(db, key)?),
            Self::GetMany(keys) => {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let values = turn.get_many(db, &keys)?;
                values.into_iter().map(value).collect::<Vec<_>>().join(",")
            }
            Self::Put(key, bytes, options) => {
                let outcome = turn.put(db, key, bytes, options)?;
                format!("{} {}", outcome.is_set, value(outcome.before))
            }
            Self::PutMany(pairs) => {
                turn.put_many(db, pairs.iter().map(|(k, v)| (&k[..], &v[..])))?;
                "done".into()
            }
            Self::PutManyAbsent(pairs) => {
                turn.put_many_absent(db, pairs.iter().map(|(k, v)| (&k[..], &v[..])))?.to_string()
            }
            Self::Take(key) => value(turn.take_string(db, key)?),
            Self::GetAndExpire(key, lifetime) => value(turn.get_and_expire(db, key, *lifetime)?),
            Self::Append(key, tail) => turn.append(db, key, tail)?.to_string(),
            Self::Range(key, first, last) => match turn.get_range(db, key, *first, *last)? {
                Some((value, range)) => shown(&value[range]),
                None => shown(b""),
            },
            Self::PutRange(key, offset, bytes) => {
                turn.put_range(db, key, *offset, bytes)?.to_string()
            }
            Self::Add(key, delta) => turn.add(db, key, *delta)?.to_string(),
            Self::Delete(keys) => turn.delete(db, keys.iter().map(Vec::as_slice))?.to_string(),
            Self::Exists(keys) => turn.exists(db, keys.iter().map(Vec::as_slice))?.to_string(),
            Self::Type(key) => turn.key_type(db, key)?.map_or("none", Type::name).into(),
            Self::Expire(key, at_ms, condition) => {
                turn.expire(db, key, *at_ms, *condition)?.to_string()
            }
            Self::Persist(key) => turn.persist(db, key)?.to_string(),
            Self::Expiry(key) => format!("{:?}", turn.expiry(db, key)?),
            Self::Walk((start, end, prefix)) => {
                walked(turn, db, KeyRange { start, end: end.as_deref(), prefix })?
            }
            Self::Scan { count, prefix } => {
                let (mut keys, mut cursor) = (Vec::new(), 0);
                loop {
                    let scan = KeyScan { cursor, prefix, kind: None, count: *count };
                    let page = turn.scan_keys(db, &scan, |_| true)?;
                    assert!(page.items.len() as u64 <= *count);
                    keys.extend(page.items);
                    cursor = page.cursor;
                    if cursor == 0 {
                        assert!(keys.iter().map(|key| stored(db, key)).is_sorted_by(|a, b| a < b));
                        keys.sort();
                        break keys.iter().map(|key| format!("{};", shown(key))).collect();
                    }
                }
            }
            Self::Count => turn.count_keys(db)?.to_string(),
            Self::HashSet(key, pairs) => {
                let fresh = turn.hash_set(db, key, pairs.iter().map(|(k, v)| (&k[..], &v[..])))?;
                fresh.to_string()
            }
            Self::HashRemove(key, fields) => {
                turn.hash_remove(db, key, fields.iter().map(Vec::as_slice))?.to_string()
            }
            Self::HashGet(key, field) => match turn.hash(db, key)? {
                Some(hash) => value(turn.hash_field(db, &hash, field)?),
                None => "nothing".into(),
            },
            Self::Flush => {
                turn.flush(db).unwrap();
                "done".into()
            }
            Self::FlushAll => {
                turn.flush_all().unwrap();
                "done".into()
            }
            Self::Failing(commands) => {
                let failed = turn.attempt(|turn| {
                    for command in commands {
                        command.run(turn, db)?;
                    }
                    Err::<(), _>(Error::IndexOutOfRange)
                });
                match failed {
                    Err(Error::IndexOutOfRange) => "failed".into(),
                    other => return other.map(|()| String::new()),
                }
            }
        })
    }

    /// Executes it on the model.
    pub fn expect(&self, model: &mut Model, db: u8, now_ms: u64) -> String {
        let mut model = On { model, db, now_ms };
        self.expect_on(&mut model).unwrap_or_else(|error| error.to_string())
    }

    fn expect_on(&self, on: &mut On<'_>) -> Result<String> {
        let value = |value: Option<Bytes>| value.map_or("nothing".into(), |value| shown(&value));
        Ok(match self {
            Self::Get(key) => value(on.text(key)?),
            Self::GetMany(keys) => {
                let values = keys.iter().map(|key| value(on.text(key).unwrap_or(None)));
                values.collect::<Vec<_>>().join(",")
            }
            Self::Put(key, bytes, options) => on.put(key, bytes, options)?,
            Self::PutMany(pairs) => {
                pairs.iter().for_each(|(key, value)| on.store(key, value.clone(), None));
                "done".into()
            }
            Self::PutManyAbsent(pairs) => {
                let absent = pairs.iter().all(|(key, _)| !on.exists(key));
                if absent {
                    pairs.iter().for_each(|(key, value)| on.store(key, value.clone(), None));
                }
                absent.to_string()
            }
            Self::Take(key) => {
                let before = on.text(key)?;
                on.model.remove(on.db, key);
                value(before)
            }
            Self::GetAndExpire(key, lifetime) => {
                let Some(before) = on.text(key)? else { return Ok("nothing".into()) };
                match lifetime {
                    Lifetime::Kept => {}
                    Lifetime::Unlimited => on.store(key, before.clone(), None),
                    Lifetime::Until(at) => on.store(key, before.clone(), Some(*at)),
                }
                shown(&before)
            }
            Self::Append(key, tail) => {
                let mut text = on.text(key)?.unwrap_or_default();
                text.extend_from_slice(tail);
                let len = text.len();
                on.store(key, text, on.expiry(key));
                len.to_string()
            }
            Self::Range(key, first, last) => {
                let text = on.text(key)?.unwrap_or_default();
                let len = text.len() as i64;
                let backwards = *first < 0 && *last < 0 && first > last;
                let place = |at: &i64| if *at < 0 { (len + at).max(0) } else { *at };
                let wanted = place(first)..=place(last);
                let part = (0..len).filter(|at| !backwards && wanted.contains(at));
                shown(&part.map(|at| text[at as usize]).collect::<Bytes>())
            }
            Self::PutRange(key, offset, bytes) => {
                let mut text = on.text(key)?.unwrap_or_default();
                if bytes.is_empty() {
                    return Ok(text.len().to_string());
                }
                let end = *offset as usize + bytes.len();
                text.resize(text.len().max(end), 0);
                text[*offset as usize..end].copy_from_slice(bytes);
                let len = text.len();
                on.store(key, text, on.expiry(key));
                len.to_string()
            }
            Self::Add(key, delta) => {
                let number: i64 = match on.text(key)? {
                    None => 0,
                    Some(text) => String::from_utf8(text)
                        .ok()
                        .and_then(|text| text.parse().ok())
                        .ok_or(Error::NotAnInteger)?,
                };
                let sum = number.checked_add(*delta).ok_or(Error::Overflow)?.to_string();
                on.store(key, sum.clone().into_bytes(), on.expiry(key));
                sum
            }
            _ => self.expect_on_any(on)?,
        })
    }

    /// The part about keys of any type, hashes and databases.
    fn expect_on_any(&self, on: &mut On<'_>) -> Result<String> {
        let value = |value: Option<Bytes>| value.map_or("nothing".into(), |value| shown(&value));
        Ok(match self {
            Self::Delete(keys) => {
                let mut count = 0;
                for key in keys {
                    count += u64::from(on.exists(key));
                    on.model.remove(on.db, key);
                }
                count.to_string()
            }
            Self::Exists(keys) => keys.iter().filter(|key| on.exists(key)).count().to_string(),
            Self::Type(key) => {
                let item = on.model.get(on.db, key, on.now_ms);
                item.map_or("none", |item| item.data.type_name()).into()
            }
            Self::Expire(key, at_ms, condition) => on.expire(key, *at_ms, *condition),
            Self::Persist(key) => {
                let limited = on.expiry(key).is_some();
                if limited {
                    on.limit(key, None);
                }
                limited.to_string()
            }
            Self::Expiry(key) => {
                let expiry = on.exists(key).then(|| on.expiry(key));
                format!("{expiry:?}")
            }
            Self::Walk((start, end, prefix)) => on.keys(|key| {
                key >= &start[..]
                    && end.as_deref().is_none_or(|end| key < end)
                    && key.starts_with(prefix)
            }),
            Self::Scan { prefix, .. } => {
                let all = on.model.live(on.now_ms).map(|(place, _)| place);
                let keys = all.filter(|(db, key)| *db == on.db && key.starts_with(prefix));
                keys.map(|(_, key)| format!("{};", shown(key))).collect()
            }
            Self::Count => {
                let all = on.model.live(on.now_ms);
                all.filter(|((db, _), _)| *db == on.db).count().to_string()
            }
            Self::HashSet(key, pairs) => {
                let mut hash = on.hash(key)?;
                let before = hash.len();
                hash.extend(pairs.iter().cloned());
                let fresh = hash.len() - before;
                on.model.put(on.db, key, Data::Hash(hash), on.expiry(key));
                fresh.to_string()
            }
            Self::HashRemove(key, fields) => {
                let mut hash = on.hash(key)?;
                let removed = fields.iter().filter(|field| hash.remove(*field).is_some()).count();
                let expiry = on.expiry(key);
                if hash.is_empty() {
                    on.model.remove(on.db, key);
                } else {
                    on.model.put(on.db, key, Data::Hash(hash), expiry);
                }
                removed.to_string()
            }
            Self::HashGet(key, field) => value(on.hash(key)?.get(field).cloned()),
            Self::Flush => {
                on.model.flush(Some(on.db));
                "done".into()
            }
            Self::FlushAll => {
                on.model.flush(None);
                "done".into()
            }
            Self::Failing(_) => "failed".into(),
            other => unreachable!("{other:?} is a command on strings"),
        })
    }
}

/// A database of a model at a time.
struct On<'m> {
    model: &'m mut Model,
    db: u8,
    now_ms: u64,
}

impl On<'_> {
    fn text(&self, key: &[u8]) -> Result<Option<Bytes>> {
        match self.model.get(self.db, key, self.now_ms).map(|item| &item.data) {
            None => Ok(None),
            Some(Data::Text(text)) => Ok(Some(text.clone())),
            Some(_) => Err(Error::WrongType),
        }
    }

    fn hash(&self, key: &[u8]) -> Result<BTreeMap<Bytes, Bytes>> {
        match self.model.get(self.db, key, self.now_ms).map(|item| &item.data) {
            None => Ok(BTreeMap::new()),
            Some(Data::Hash(hash)) => Ok(hash.clone()),
            Some(_) => Err(Error::WrongType),
        }
    }

    fn exists(&self, key: &[u8]) -> bool {
        self.model.get(self.db, key, self.now_ms).is_some()
    }

    fn expiry(&self, key: &[u8]) -> Option<u64> {
        self.model.get(self.db, key, self.now_ms).and_then(|item| item.expires_at_ms)
    }

    fn store(&mut self, key: &[u8], text: Bytes, expires_at_ms: Option<u64>) {
        self.model.put(self.db, key, Data::Text(text), expires_at_ms);
    }

    fn limit(&mut self, key: &[u8], expires_at_ms: Option<u64>) {
        if let Some(item) = self.model.get(self.db, key, self.now_ms) {
            let data = item.data.clone();
            self.model.put(self.db, key, data, expires_at_ms);
        }
    }

    fn put(&mut self, key: &[u8], bytes: &[u8], options: &PutOptions) -> Result<String> {
        let before = if options.get { self.text(key)? } else { None };
        let exists = self.exists(key);
        let is_set = match options.when {
            When::Always => true,
            When::Absent => !exists,
            When::Present => exists,
        };
        let expiry = match options.lifetime {
            Lifetime::Kept => self.expiry(key),
            Lifetime::Unlimited => None,
            Lifetime::Until(at) => Some(at),
        };
        if is_set {
            self.store(key, bytes.to_vec(), expiry);
        }
        let before = before.map_or("nothing".into(), |before| shown(&before));
        Ok(format!("{is_set} {before}"))
    }

    fn expire(&mut self, key: &[u8], at_ms: u64, condition: ExpireIf) -> String {
        let now = self.expiry(key);
        let allowed = self.exists(key)
            && !(condition.unlimited && now.is_some())
            && !(condition.limited && now.is_none())
            && !(condition.later && now.unwrap_or(u64::MAX) >= at_ms)
            && !(condition.earlier && now.unwrap_or(u64::MAX) <= at_ms);
        if allowed {
            self.limit(key, Some(at_ms));
        }
        allowed.to_string()
    }

    fn keys(&self, wanted: impl Fn(&[u8]) -> bool) -> String {
        let all = self.model.live(self.now_ms);
        let here = all.filter(|((db, key), _)| *db == self.db && wanted(key));
        let show = |((_, key), item): (&(u8, Bytes), &super::model::Item)| match &item.data {
            Data::Text(text) => format!("{}={};", shown(key), shown(text)),
            other => format!("{}={};", shown(key), other.type_name()),
        };
        here.map(show).collect()
    }
}
