//! Redis's values as people and programs read them: what `get` and `scan` print of a server's store.
//!
//! ```text
//! hash     [["field","value"],...]        set    ["member",...]
//! zset     [["member",1.5],...]           list   ["element",...]
//! ```
//! That is JSON in one line, in the order in which the store has them: sorted sets by score, lists from
//! the first element. Bytes that are UTF-8 are a string, others `{"hex":"0x00ff"}`. Scores that JSON has
//! no number for are the strings `inf` and `-inf`.

use crate::print::Hex;
use anyhow::Result;
use std::io::{self, Write};
use terrace_inspect::Escaped;
use terrace_keyspace::{CommandBatch, Kind, Order, Range, Type};

/// A part of an element.
#[derive(Clone, Copy)]
enum Part<'a> {
    Bytes(&'a [u8]),
    Score(f64),
}

/// How an element of a collection is shown.
type Show<'s> = &'s mut dyn FnMut(&[Part<'_>]) -> io::Result<()>;

/// Writes bytes as a JSON value.
pub fn write_bytes(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(serde_json::to_writer(out, text)?),
        Err(_) => write!(out, "{{\"hex\":\"{}\"}}", Hex(bytes)),
    }
}

/// Writes the collection under `key` as a JSON array.
pub fn write_json(
    out: &mut impl Write,
    turn: &mut CommandBatch,
    db: u8,
    key: &[u8],
    kind: Kind,
) -> Result<()> {
    let mut is_first = true;
    out.write_all(b"[")?;
    each(turn, db, key, kind, &mut |parts| {
        if !std::mem::take(&mut is_first) {
            out.write_all(b",")?;
        }
        match parts {
            [only] => write_part(out, *only),
            parts => {
                for (at, part) in parts.iter().enumerate() {
                    out.write_all(if at == 0 { b"[" } else { b"," })?;
                    write_part(out, *part)?;
                }
                out.write_all(b"]")
            }
        }
    })?;
    Ok(out.write_all(b"]")?)
}

fn write_part(out: &mut impl Write, part: Part<'_>) -> io::Result<()> {
    match part {
        Part::Bytes(bytes) => write_bytes(out, bytes),
        Part::Score(score) if score.is_finite() => write!(out, "{score}"),
        Part::Score(score) => write!(out, "\"{score}\""),
    }
}

/// Writes the collection under `key` with an element a line and tabs between its parts.
pub fn write_lines(
    out: &mut impl Write,
    turn: &mut CommandBatch,
    db: u8,
    key: &[u8],
    kind: Kind,
    hex: bool,
) -> Result<()> {
    each(turn, db, key, kind, &mut |parts| {
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                out.write_all(b"\t")?;
            }
            match part {
                Part::Bytes(bytes) if hex => write!(out, "{}", Hex(bytes))?,
                Part::Bytes(bytes) => write!(out, "{}", Escaped(bytes))?,
                Part::Score(score) => write!(out, "{score}")?,
            }
        }
        out.write_all(b"\n")
    })
}

/// The heading of a collection: its type and how many elements it has.
pub fn heading(turn: &mut CommandBatch, db: u8, key: &[u8], kind: Kind) -> Result<String> {
    let meta = match kind {
        Kind::Hash => turn.hash(db, key)?,
        Kind::Set => turn.set(db, key)?,
        Kind::SortedSet => turn.sorted_set(db, key)?,
        Kind::List => turn.list(db, key)?,
    };
    let (name, count) = (Type::Collection(kind).name(), meta.map_or(0, |meta| meta.count));
    Ok(format!("{name} of {count}"))
}

/// Shows the elements of the collection under `key`; an error of `show` ends it.
fn each(turn: &mut CommandBatch, db: u8, key: &[u8], kind: Kind, show: Show<'_>) -> Result<()> {
    let mut failed = None;
    let mut shown = |parts: &[Part<'_>]| match show(parts) {
        Ok(()) => Ok(true),
        Err(error) => {
            failed = Some(error);
            Ok(false)
        }
    };
    match kind {
        Kind::Hash => {
            if let Some(hash) = turn.hash(db, key)? {
                turn.hash_each(db, &hash, |field, value| {
                    shown(&[Part::Bytes(field), Part::Bytes(value)])
                })?;
            }
        }
        Kind::Set => {
            if let Some(set) = turn.set(db, key)? {
                turn.set_each(db, &set, |member| shown(&[Part::Bytes(member)]))?;
            }
        }
        Kind::SortedSet => {
            if let Some(set) = turn.sorted_set(db, key)? {
                let all = Range::Ranks(0..=u64::MAX);
                turn.sorted_set_each(db, &set, &all, Order::Up, |member, score| {
                    shown(&[Part::Bytes(member), Part::Score(score)])
                })?;
            }
        }
        Kind::List => {
            if let Some(list) = turn.list(db, key)? {
                turn.list_each(db, &list, 0, u64::MAX, |value| shown(&[Part::Bytes(value)]))?;
            }
        }
    }
    match failed {
        None => Ok(()),
        Some(error) => Err(error.into()),
    }
}
