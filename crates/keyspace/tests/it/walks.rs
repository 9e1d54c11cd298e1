//! Walks by the keys of a range, in every order and with every bound, held against each other.

use super::harness::PLACEMENT;
use terrace_keyspace::{CommandBatch, KeyLayout, KeyRange, Result, SeenKey};

/// The keys of a range, which are the same in the order of the store and in their own.
pub fn walked(turn: &mut CommandBatch, db: u8, range: KeyRange<'_>) -> Result<String> {
    let mut keys = Vec::new();
    let show = |seen: SeenKey<'_>| {
        let value = seen.value.map_or(seen.kind.name().into(), shown);
        (seen.key.to_vec(), format!("{}={value};", shown(seen.key)))
    };
    turn.walk_keys(db, range, true, |seen| {
        keys.push(show(seen));
        true
    })?;
    assert!(keys.iter().map(|(key, _)| stored(db, key)).is_sorted_by(|a, b| a < b));
    keys.sort();
    for limit in [0, 1, 3, usize::MAX] {
        let mut least = Vec::new();
        let is_wanted = |key: &[u8]| key.len() % 4 != 1;
        turn.walk_keys_in_order(db, range, true, limit, is_wanted, |seen| {
            least.push(show(seen));
        })?;
        let wanted = keys.iter().filter(|(key, _)| is_wanted(key)).take(limit);
        assert!(least.iter().eq(wanted), "{least:?}");
    }
    for most_bytes in [1, 25] {
        let (mut least, mut bytes) = (Vec::new(), 0);
        let most = (usize::MAX, most_bytes);
        turn.walk_keys_in_order_within(
            db,
            range,
            true,
            most,
            |_| Some(true),
            |seen| {
                bytes += seen.key.len() + seen.value.map_or(0, <[u8]>::len);
                least.push(show(seen));
                bytes < most_bytes
            },
        )?;
        assert!(bytes >= most_bytes || least.len() == keys.len());
        assert!(keys.starts_with(&least), "{least:?}");
    }
    // Nor does it go on where nobody knows whether a key is wanted.
    let (asked, most) = (std::cell::Cell::new(0), (usize::MAX, usize::MAX));
    let ends = |_: &[u8]| {
        asked.set(asked.get() + 1);
        None
    };
    turn.walk_keys_in_order_within(db, range, false, most, ends, |_| panic!("none is wanted"))?;
    assert_eq!(asked.get(), keys.len().min(1));
    Ok(keys.into_iter().map(|(_, shown)| shown).collect())
}

/// Where a key is in the store: walks show keys in that order.
pub fn stored(db: u8, key: &[u8]) -> Vec<u8> {
    KeyLayout::of(PLACEMENT).user_key(db, key)
}

/// Bytes in a reply.
pub fn shown(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}
