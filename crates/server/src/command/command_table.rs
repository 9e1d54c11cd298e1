//! All commands, found by name in any case.

use super::spec::CommandSpec;
use crate::acl::Catalog;
use crate::config::Config;
use crate::server::{Server, ServerError};
use std::sync::Arc;
use std::sync::OnceLock;
use terrace_keyspace::Keyspace;

/// Names are no longer.
const MAX_NAME_BYTES: usize = 24;

/// Places of the hash table: several times as many as there are commands.
const SLOTS: usize = 1024;

/// No command.
const NONE: u16 = u16::MAX;

/// All rows of all groups.
pub struct Table {
    specs: Vec<&'static CommandSpec>,
    /// Numbers by the hash of the name, in the next free place.
    slots: Box<[u16; SLOTS]>,
}

/// Where the search for a name in lower case begins. Names are ours, nobody can make them collide.
fn first_slot(name: &[u8]) -> usize {
    // FNV-1a.
    let hash = name.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    (hash >> 54) as usize % SLOTS
}

/// The table.
pub fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| Table::of(super::GROUPS))
}

impl Server {
    /// Over an open keyspace, with all commands.
    ///
    /// # Errors
    /// A user's rules make no sense, most likely.
    pub fn new(space: Arc<Keyspace>, config: Config) -> Result<Self, ServerError> {
        let commands = table().all().iter().map(|spec| (spec.name, spec.categories()));
        let subcommands = table().all().iter().flat_map(|spec| {
            spec.subcommands().iter().map(|one| (spec.name, one.name, one.categories()))
        });
        let catalog = Catalog::new(commands).with_subcommands(subcommands);
        Self::with_commands(space, config, catalog)
    }
}

impl Table {
    fn of(groups: &[&'static [CommandSpec]]) -> Self {
        let specs: Vec<&CommandSpec> = groups.iter().flat_map(|group| group.iter()).collect();
        let mut slots = Box::new([NONE; SLOTS]);
        for (number, spec) in specs.iter().enumerate() {
            let mut at = first_slot(spec.name.as_bytes());
            while slots[at] != NONE {
                at = (at + 1) % SLOTS;
            }
            slots[at] = number as u16;
        }
        Self { specs, slots }
    }

    /// The command of this name, and its number.
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<(u16, &'static CommandSpec)> {
        let mut lower = [0; MAX_NAME_BYTES];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let mut at = first_slot(lower);
        loop {
            let number = self.slots[at];
            // An empty place ends the search: there are more places than commands.
            let spec = self.specs.get(usize::from(number))?;
            if spec.name.as_bytes() == &*lower {
                return Some((number, spec));
            }
            at = (at + 1) % SLOTS;
        }
    }

    /// All commands; a command's number is its place.
    pub fn all(&self) -> &[&'static CommandSpec] {
        &self.specs
    }

    /// The command of this number.
    pub fn at(&self, number: u16) -> Option<&'static CommandSpec> {
        self.specs.get(number as usize).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Flags, Keys};

    #[test]
    fn every_command_is_found_by_its_name_alone() {
        let table = table();
        for (number, spec) in table.all().iter().enumerate() {
            assert!(spec.name.len() <= MAX_NAME_BYTES, "{}", spec.name);
            assert_eq!(spec.name, spec.name.to_ascii_lowercase());
            let found = table.find(spec.name.to_ascii_uppercase().as_bytes());
            assert_eq!(found.map(|(at, _)| at as usize), Some(number), "{} twice", spec.name);
        }
        assert!(table.find(b"").is_none());
        assert!(table.find(&[b'x'; 500]).is_none());
    }

    #[test]
    fn rows_are_whole() {
        for spec in table().all() {
            assert!(spec.arity != 0, "{}", spec.name);
            assert!(spec.summary.ends_with('.'), "{}", spec.name);
            assert!(!spec.complexity.is_empty() && !spec.since.is_empty(), "{}", spec.name);
            let (read, write) = (spec.flags.has(Flags::READ), spec.flags.has(Flags::WRITE));
            assert!(!(read && write), "{} reads or writes", spec.name);
            let parts = super::super::spec::subcommands(spec.name);
            assert_eq!(spec.flags.has(Flags::SUBCOMMANDS), !parts.is_empty(), "{}", spec.name);
            // Redis does not say that WATCH reads.
            let has_none = spec.keys == Keys::None || spec.name == "watch";
            assert!(has_none || read || write, "{} has keys", spec.name);
        }
    }
}
