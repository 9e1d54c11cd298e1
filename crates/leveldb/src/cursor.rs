//! A cursor over a store: over the engine's keys, over the tree's, or over both, which have no key in common.

use crate::tree;
use terrace::{Iter, MAX_KEY_BYTES};
use terrace_binding::Outcome;

/// Which part the cursor's entry is of.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Nowhere,
    Engine,
    Tree,
}

/// Where the part is that the cursor's entry is not of: at the next key after it, or at the one before.
#[derive(Clone, Copy, PartialEq)]
enum Other {
    After,
    Before,
}

pub struct Cursor {
    engine: Option<Iter>,
    tree: Option<tree::Cursor>,
    at: At,
    other: Other,
}

impl Cursor {
    /// Over what there is of both.
    pub fn new(engine: Option<Iter>, tree: Option<tree::Cursor>) -> Self {
        Self { engine, tree, at: At::Nowhere, other: Other::After }
    }

    pub fn valid(&self) -> bool {
        self.at != At::Nowhere
    }

    /// The key; empty if not valid.
    pub fn key(&self) -> &[u8] {
        match self.at {
            At::Nowhere => &[],
            At::Engine => self.engine.as_ref().map_or(&[], Iter::key),
            At::Tree => self.tree.as_ref().map_or(&[], tree::Cursor::key),
        }
    }

    /// The value; empty if not valid.
    pub fn value(&self) -> &[u8] {
        match self.at {
            At::Nowhere => &[],
            At::Engine => self.engine.as_ref().map_or(&[], Iter::value),
            At::Tree => self.tree.as_ref().map_or(&[], tree::Cursor::value),
        }
    }

    pub fn seek_to_first(&mut self) -> Outcome<()> {
        self.at = At::Nowhere;
        if let Some(engine) = &mut self.engine {
            engine.seek_to_first()?;
        }
        if let Some(tree) = &mut self.tree {
            tree.seek_to_first()?;
        }
        self.choose(Other::After);
        Ok(())
    }

    pub fn seek_to_last(&mut self) -> Outcome<()> {
        self.at = At::Nowhere;
        if let Some(engine) = &mut self.engine {
            engine.seek_to_last()?;
        }
        if let Some(tree) = &mut self.tree {
            tree.seek_to_last()?;
        }
        self.choose(Other::Before);
        Ok(())
    }

    /// Moves to the first key that is not before `key`.
    pub fn seek(&mut self, key: &[u8]) -> Outcome<()> {
        self.at = At::Nowhere;
        if let Some(engine) = &mut self.engine {
            seek_engine(engine, key)?;
        }
        if let Some(tree) = &mut self.tree {
            tree.seek(key)?;
        }
        self.choose(Other::After);
        Ok(())
    }

    pub fn next(&mut self) -> Outcome<()> {
        self.turn(Other::After)?;
        self.step(Iter::next, tree::Cursor::next)?;
        self.choose(Other::After);
        Ok(())
    }

    pub fn prev(&mut self) -> Outcome<()> {
        self.turn(Other::Before)?;
        self.step(Iter::prev, tree::Cursor::prev)?;
        self.choose(Other::Before);
        Ok(())
    }

    /// Moves the part that the entry is of. After an error the cursor is nowhere.
    fn step(
        &mut self,
        engine: fn(&mut Iter) -> terrace::Result<()>,
        tree: fn(&mut tree::Cursor) -> Outcome<()>,
    ) -> Outcome<()> {
        match (std::mem::replace(&mut self.at, At::Nowhere), &mut self.engine, &mut self.tree) {
            (At::Engine, Some(iter), _) => Ok(engine(iter)?),
            (At::Tree, _, Some(cursor)) => tree(cursor),
            _ => Ok(()),
        }
    }

    /// Puts the part that the entry is not of to where it has to be for a move to `to`.
    fn turn(&mut self, to: Other) -> Outcome<()> {
        if self.other == to {
            return Ok(());
        }
        let (Some(engine), Some(tree)) = (&mut self.engine, &mut self.tree) else { return Ok(()) };
        let outcome = match (self.at, to) {
            (At::Nowhere, _) => Ok(()),
            (At::Engine, Other::After) => tree.seek(engine.key()),
            (At::Engine, Other::Before) => tree.seek_before(engine.key()),
            (At::Tree, Other::After) => seek_engine(engine, tree.key()),
            (At::Tree, Other::Before) => seek_engine_before(engine, tree.key()),
        };
        if outcome.is_err() {
            self.at = At::Nowhere;
        }
        outcome
    }

    /// Stands on the nearer of both parts.
    fn choose(&mut self, other: Other) {
        self.other = other;
        let engine = self.engine.as_ref().filter(|iter| iter.valid());
        let tree = self.tree.as_ref().filter(|cursor| cursor.valid());
        self.at = match (engine, tree) {
            (None, None) => At::Nowhere,
            (Some(_), None) => At::Engine,
            (None, Some(_)) => At::Tree,
            // Both have keys only if the order is that of bytes.
            (Some(engine), Some(tree)) => {
                match (engine.key() < tree.key()) == (other == Other::After) {
                    true => At::Engine,
                    false => At::Tree,
                }
            }
        };
    }
}

/// Moves to the first key that is not before `key`, which may be longer than the engine's can be.
fn seek_engine(engine: &mut Iter, key: &[u8]) -> Outcome<()> {
    let Some(cut) = key.get(..MAX_KEY_BYTES).filter(|cut| cut.len() < key.len()) else {
        return Ok(engine.seek(key)?);
    };
    engine.seek(cut)?;
    // It is a part of the longer key and therefore before it.
    if engine.valid() && engine.key() == cut {
        engine.next()?;
    }
    Ok(())
}

/// Moves to the last key that is before `key`, which the engine does not have.
fn seek_engine_before(engine: &mut Iter, key: &[u8]) -> Outcome<()> {
    Ok(engine.seek_for_prev(&key[..key.len().min(MAX_KEY_BYTES)])?)
}
