//! One user: what it may do, compiled so that a command costs one bit and a key its patterns.

use super::catalog::Catalog;
use super::command_rule::{CommandRule, Target};
use super::error::Denial;
use super::password::PasswordHash;
use std::collections::HashMap;

/// The name of the user that connections start with.
pub const DEFAULT_USER: &str = "default";

/// How a command uses a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access(u8);

impl Access {
    /// Asks for something about it that is not its value.
    pub const ANY: Self = Self(0);
    /// Reads its value.
    pub const READ: Self = Self(1);
    /// Changes it.
    pub const WRITE: Self = Self(2);
    /// Both.
    pub const READ_WRITE: Self = Self(3);

    const fn includes(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

/// Keys that match, and what may be done with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyPattern {
    pub access: Access,
    pub glob: Vec<u8>,
}

/// A user. It never changes: a change of its rules makes another one.
#[derive(Debug, Clone)]
pub struct User {
    pub(super) name: String,
    pub(super) is_on: bool,
    pub(super) needs_no_password: bool,
    pub(super) passwords: Vec<PasswordHash>,
    /// What was said last of payloads, if anything was: only shown.
    pub(super) sanitizes: Option<bool>,
    pub(super) all_keys: bool,
    pub(super) keys: Vec<KeyPattern>,
    pub(super) all_channels: bool,
    pub(super) channels: Vec<Vec<u8>>,
    /// What holds for commands that no rule names.
    pub(super) all_commands: bool,
    pub(super) rules: Vec<CommandRule>,
    /// A bit for every command, from `all_commands` and `rules`.
    allowed: Box<[u64]>,
    /// First arguments with a rule of their own, by command.
    subcommands: HashMap<u16, HashMap<String, bool>>,
}

impl User {
    /// A user who is off and may do nothing.
    pub(super) fn nobody(name: &str, catalog: &Catalog) -> Self {
        let mut user = Self {
            name: name.to_string(),
            is_on: false,
            needs_no_password: false,
            passwords: Vec::new(),
            sanitizes: None,
            all_keys: false,
            keys: Vec::new(),
            all_channels: false,
            channels: Vec::new(),
            all_commands: false,
            rules: Vec::new(),
            allowed: Box::default(),
            subcommands: HashMap::new(),
        };
        user.compile(catalog);
        user
    }

    /// The default user as it is without configuration: everybody, for everything.
    pub(super) fn everybody(catalog: &Catalog) -> Self {
        let mut user = Self::nobody(DEFAULT_USER, catalog);
        user.is_on = true;
        user.needs_no_password = true;
        user.all_keys = true;
        user.all_channels = true;
        user.all_commands = true;
        user.compile(catalog);
        user
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it may log in.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether any password is right.
    pub fn needs_no_password(&self) -> bool {
        self.needs_no_password
    }

    /// Whether it may run every command on every key and channel: then nothing else need be asked.
    #[inline]
    pub fn may_do_everything(&self) -> bool {
        self.all_commands && self.rules.is_empty() && self.all_keys && self.all_channels
    }

    /// Whether it may run the command of this number. `first_argument` matters for rules such as
    /// `+config|get`. Cost: one bit, and a lookup if there is such a rule about the command.
    #[inline]
    pub fn may_run(&self, command: u16, first_argument: Option<&[u8]>) -> bool {
        if !self.subcommands.is_empty()
            && let Some(argument) = first_argument
            && let Some(allowed) = self.subcommand_rule(command, argument)
        {
            return allowed;
        }
        let word = self.allowed.get(usize::from(command / 64)).copied().unwrap_or(0);
        word >> (command % 64) & 1 == 1
    }

    fn subcommand_rule(&self, command: u16, argument: &[u8]) -> Option<bool> {
        let rules = self.subcommands.get(&command)?;
        // Names of subcommands are short; whatever is longer has no rule.
        let argument = std::str::from_utf8(argument.get(..argument.len().min(256))?).ok()?;
        rules.get(argument.to_ascii_lowercase().as_str()).copied()
    }

    /// Whether it may use `key` so: one pattern must allow all of it, as in Redis. Cost: the
    /// patterns, each at most pattern × key.
    #[inline]
    pub fn may_access(&self, key: &[u8], access: Access) -> bool {
        self.all_keys
            || self
                .keys
                .iter()
                .any(|p| p.access.includes(access) && crate::glob::matches(&p.glob, key))
    }

    /// Whether it may use every key so.
    pub fn may_access_all(&self, access: Access) -> bool {
        let is_all = |p: &KeyPattern| p.access.includes(access) && p.glob == b"*";
        self.all_keys || self.keys.iter().any(is_all)
    }

    /// Whether it may use a channel.
    pub fn may_use_channel(&self, channel: &[u8]) -> bool {
        self.all_channels || self.channels.iter().any(|glob| crate::glob::matches(glob, channel))
    }

    /// Whether it may run a command on these keys.
    ///
    /// # Errors
    /// What it may not do first.
    pub fn check<'a>(
        &self,
        command: u16,
        first_argument: Option<&[u8]>,
        keys: impl IntoIterator<Item = (&'a [u8], Access)>,
    ) -> Result<(), Denial> {
        if !self.may_run(command, first_argument) {
            return Err(Denial::Command);
        }
        if self.all_keys {
            return Ok(());
        }
        let mut keys = keys.into_iter();
        match keys.find(|(key, access)| !self.may_access(key, *access)) {
            Some((key, _)) => Err(Denial::Key(key.to_vec())),
            None => Ok(()),
        }
    }

    /// Whether `password` is one of its own; it takes the same time for each.
    pub(super) fn knows(&self, password: PasswordHash) -> bool {
        let matching = self.passwords.iter().filter(|own| **own == password).count();
        matching > 0 || self.needs_no_password
    }

    /// Derives what commands may run from the rules.
    pub(super) fn compile(&mut self, catalog: &Catalog) {
        let words = catalog.len().div_ceil(64);
        self.allowed = vec![if self.all_commands { u64::MAX } else { 0 }; words].into();
        self.subcommands.clear();
        for CommandRule { allow, target } in &self.rules {
            match target {
                Target::Category(category) => {
                    for number in catalog.numbers_in(*category) {
                        put(&mut self.allowed, number, *allow);
                        self.subcommands.remove(&number);
                    }
                    for (number, name) in catalog.subcommands_in(*category) {
                        let rules = self.subcommands.entry(number).or_default();
                        rules.insert(name.to_string(), *allow);
                    }
                }
                Target::Command(number) => {
                    put(&mut self.allowed, *number, *allow);
                    self.subcommands.remove(number);
                }
                Target::Subcommand(number, argument) => {
                    let rules = self.subcommands.entry(*number).or_default();
                    rules.insert(argument.clone(), *allow);
                }
            }
        }
    }
}

fn put(bits: &mut [u64], number: u16, set: bool) {
    if let Some(word) = bits.get_mut(usize::from(number / 64)) {
        let bit = 1 << (number % 64);
        *word = if set { *word | bit } else { *word & !bit };
    }
}
