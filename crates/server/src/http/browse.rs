//! Keys by prefix, and what is under one of them: for `/api/v1/keys` and `/api/v1/value`. Each answer is
//! of one moment, bounded in number and bytes, and may wait for the device.

use super::json::{Element, Key, KeyList, KeyRow, KeyValue};
use std::sync::Arc;
use terrace_base::hex::Hex;
use terrace_keyspace::{
    CommandBatch, KeyPage, KeyRange, Keyspace, Kind, Meta, Mode, Order, Range, Result, Type,
};
use terrace_resp::append_double;

/// Keys of an answer.
const MAX_KEYS: usize = 100;
/// Deleted and expired keys that were not merged away yet, and that an answer steps over: some tenths of a second. It has
/// fewer keys then, or none, and says behind which key to go on.
const MAX_STEPS: u64 = 1 << 18;
/// Elements of a collection that are shown.
pub(super) const MAX_ELEMENTS: u64 = 100;
/// Bytes of a string that are shown.
const MAX_STRING_BYTES: usize = 4096;
/// Nothing is shown of a longer string: it is read as a whole, as its checksum is that of the whole. Behind elements of
/// more bytes than this together no more are shown.
pub(super) const MAX_READ_BYTES: usize = 1 << 20;
/// The same of a string that is compressed by itself, in its compressed form, which says how long it is.
pub(super) const MAX_COMPRESSED_BYTES: usize = 64 << 10;
/// The longest key that a list goes on behind: it has to fit into a request.
const MAX_NEXT_BYTES: usize = 4096;

/// Which keys are wanted.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub db: u8,
    /// What they begin with.
    pub prefix: Vec<u8>,
    /// Only those behind this one.
    pub after: Option<Vec<u8>>,
}

/// The first keys that are wanted, in order, as many as are found in a bounded time.
pub(super) fn keys(space: &Arc<Keyspace>, wanted: &Wanted) -> Result<KeyList> {
    let mut batch = space.command_batch(Mode::Device);
    batch.next_command();
    let start = wanted.after.as_ref().map(|after| [&after[..], &[0]].concat());
    let (start, prefix) = (start.as_deref().unwrap_or_default(), &wanted.prefix[..]);
    let range = KeyRange { start, end: None, prefix };
    let KeyPage { keys, next } = batch.page_of_keys(wanted.db, range, MAX_KEYS, MAX_STEPS)?;
    let has_more = next.is_some();
    let next = next.filter(|key| key.len() <= MAX_NEXT_BYTES);
    Ok(KeyList {
        db: wanted.db,
        prefix: Key::of(prefix),
        next: next.map(|key| Hex(&key).to_string()),
        has_more,
        keys: keys
            .iter()
            .map(|(key, kind)| KeyRow { key: Key::of(key), kind: kind.name() })
            .collect(),
    })
}

/// What is under `key`; a collection with its first elements, a sorted set with its lowest. The length of a string is
/// known without reading it, unless it is compressed by itself: then the compressed form says it, or it is unknown if
/// that is long.
pub(super) fn value(space: &Arc<Keyspace>, db: u8, key: &[u8]) -> Result<KeyValue> {
    let mut batch = space.command_batch(Mode::Device);
    batch.next_command();
    batch.pin_now();
    let kind = batch.key_type(db, key)?;
    let mut told = KeyValue {
        db,
        key: Key::of(key),
        kind: kind.map(Type::name),
        expires_at_ms: batch.expiry(db, key)?.flatten(),
        size: Some(0),
        text: None,
        elements: Vec::new(),
    };
    match kind {
        None => {}
        Some(Type::String) => {
            let unread = batch.unread_len(db, key, MAX_COMPRESSED_BYTES)?;
            let bytes = unread.and_then(|unread| unread.bytes);
            told.size = bytes.map(|bytes| bytes as u64);
            if bytes.is_some_and(|bytes| bytes <= MAX_READ_BYTES) {
                let text = batch.get(db, key)?;
                told.text = text.map(|text| Key::cut(&text, MAX_STRING_BYTES));
                told.size = told.text.as_ref().map(|text| text.len);
            }
        }
        Some(Type::Collection(kind)) => {
            let found = match kind {
                Kind::Hash => batch.hash(db, key)?,
                Kind::Set => batch.set(db, key)?,
                Kind::SortedSet => batch.sorted_set(db, key)?,
                Kind::List => batch.list(db, key)?,
            };
            if let Some(meta) = found {
                told.size = Some(meta.count);
                told.elements = elements(&batch, db, &meta)?;
            }
        }
    }
    Ok(told)
}

/// The first elements of a collection.
fn elements(batch: &CommandBatch, db: u8, meta: &Meta) -> Result<Vec<Element>> {
    let mut elements: Vec<Element> = Vec::new();
    let mut read_bytes = 0;
    let mut enter = |name: Option<&[u8]>, value: Option<&[u8]>, score: Option<f64>| {
        read_bytes += name.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
        elements.push(Element {
            name: name.map(Key::of),
            value: value.map(Key::of),
            score: score.map(score_text),
        });
        Ok((elements.len() as u64) < MAX_ELEMENTS && read_bytes <= MAX_READ_BYTES)
    };
    match meta.kind {
        Kind::Hash => {
            batch.hash_each(db, meta, |field, value| enter(Some(field), Some(value), None))?;
        }
        Kind::Set => batch.set_each(db, meta, |member| enter(Some(member), None, None))?,
        Kind::List => {
            batch.list_each(db, meta, 0, MAX_ELEMENTS, |value| enter(None, Some(value), None))?;
        }
        Kind::SortedSet => {
            let lowest = Range::Ranks(0..=MAX_ELEMENTS - 1);
            batch.sorted_set_each(db, meta, &lowest, Order::Up, |member, score| {
                enter(Some(member), None, Some(score))
            })?;
        }
    }
    Ok(elements)
}

/// As `ZSCORE` gives it: infinite ones are no numbers of JSON, and others have hundreds of digits without an exponent.
fn score_text(score: f64) -> String {
    let mut text = Vec::new();
    append_double(&mut text, score);
    String::from_utf8_lossy(&text).into_owned()
}
