//! All commands, found by name in any case.

use super::spec::{CommandSpec, Flags, Subcommand};
use crate::acl::Catalog;
use crate::config::Config;
use crate::server::{Server, ServerError};
use std::sync::Arc;
use std::sync::OnceLock;
use terrace_keyspace::Keyspace;
use terrace_resp::Command;

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
    /// By the number of a command, what its first subcommand is counted under.
    first_parts: Vec<u16>,
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
        let mut next = specs.len() as u16;
        let first_of = |spec: &&CommandSpec| {
            let first = next;
            next += spec.subcommands().len() as u16;
            first
        };
        let first_parts = specs.iter().map(first_of).collect();
        Self { specs, slots, first_parts }
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

    /// What an executed command is counted under: its own number, or one of its subcommand.
    #[inline]
    pub fn counted_as(&self, number: u16, spec: &CommandSpec, args: &Command<'_>) -> u16 {
        match spec.flags.has(Flags::SUBCOMMANDS) {
            true => self.counted_as_part(number, spec, args).unwrap_or(number),
            false => number,
        }
    }

    fn counted_as_part(&self, number: u16, spec: &CommandSpec, args: &Command<'_>) -> Option<u16> {
        let name = args.get(1)?;
        let is_it = |one: &Subcommand| name.eq_ignore_ascii_case(one.name.as_bytes());
        let at = spec.subcommands().iter().position(is_it)?;
        Some(self.first_parts.get(usize::from(number))? + at as u16)
    }

    /// The number of the command that is counted under this, and its subcommand.
    pub fn counted(&self, under: u16) -> Option<(u16, Option<&'static Subcommand>)> {
        if usize::from(under) < self.specs.len() {
            return Some((under, None));
        }
        // Those without subcommands begin where the next one does.
        let number = self.first_parts.partition_point(|first| *first <= under).checked_sub(1)?;
        let at = under - self.first_parts.get(number)?;
        let part = self.specs.get(number)?.subcommands().get(usize::from(at))?;
        Some((number as u16, Some(part)))
    }

    /// The name of what is counted under this: `get`, `client|id`.
    pub fn counted_name(&self, under: u16) -> Option<String> {
        let (number, part) = self.counted(under)?;
        let name = self.at(number)?.name;
        Some(part.map_or(name.to_string(), |part| format!("{name}|{}", part.name)))
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
    fn subcommands_are_counted_apart() {
        use terrace_resp::OwnedCommand;
        let table = table();
        let mut seen = std::collections::BTreeSet::new();
        for (number, spec) in table.all().iter().enumerate() {
            let parts = spec.subcommands().iter().map(|part| part.name).chain(["nonsense"]);
            for part in parts {
                let args = OwnedCommand::of(&[spec.name, part]);
                let under = table.counted_as(number as u16, spec, &args.as_command());
                let name = table.counted_name(under).unwrap();
                match spec.subcommands().iter().any(|one| one.name == part) {
                    true => assert_eq!(name, format!("{}|{part}", spec.name)),
                    false => assert_eq!(name, spec.name),
                }
                assert!(seen.insert(under), "{name} twice");
            }
        }
        assert_eq!(table.counted_name(seen.len() as u16), None);
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
