//! What is known of a command beside its function.

mod key_use;
mod keys;
mod subcommands;

pub use key_use::KeyUse;
pub use keys::Keys;
pub use subcommands::{Subcommand, subcommands};

use super::{Call, Failure, Outcome};
use crate::acl::{Access, Categories, Denial, User, category};
use std::borrow::Cow;
use std::ops::BitOr;
use terrace_keyspace::{Mode, Wait};
use terrace_resp::Command;

/// Properties of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(u32);

impl Flags {
    /// None.
    pub const NONE: Self = Self(0);
    /// Changes data; the locks of its keys are taken.
    pub const WRITE: Self = Self(1);
    /// Reads data.
    pub const READ: Self = Self(1 << 1);
    /// Constant or logarithmic time.
    pub const FAST: Self = Self(1 << 2);
    /// For administrators.
    pub const ADMIN: Self = Self(1 << 3);
    /// Can take long, lose data or show what others do.
    pub const DANGEROUS: Self = Self(1 << 4);
    /// Allowed before authentication.
    pub const NO_AUTH: Self = Self(1 << 5);
    /// Writes before it has read everything: what it wrote is taken back if it fails.
    pub const READS_LATE: Self = Self(1 << 6);
    /// Always executed by a thread that may wait.
    pub const WAITS: Self = Self(1 << 7);
    /// Takes the locks of all keys there are; executed by a thread that may wait.
    pub const LOCKS_ALL: Self = Self(1 << 8);
    /// Not queued by `MULTI`, but executed at once.
    pub const NOT_QUEUED: Self = Self(1 << 9);
    /// Shows what is under keys that are not among its arguments: for those who may read all.
    pub const SHOWS_ALL: Self = Self(1 << 10);

    /// Only removes: executed while the disk is full.
    pub const REMOVES: Self = Self(1 << 11);
    /// Where its keys are hangs on its arguments.
    pub const MOVABLE_KEYS: Self = Self(1 << 12);
    /// Refused between `MULTI` and `EXEC`.
    pub const NO_MULTI: Self = Self(1 << 13);
    /// Made of subcommands, see [`CommandSpec::subcommands`].
    pub const SUBCOMMANDS: Self = Self(1 << 14);

    /// Whether all of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The categories of access control that follow from these.
    fn categories(self) -> Categories {
        [
            (Self::WRITE, category::WRITE),
            (Self::READ, category::READ),
            (Self::ADMIN, category::ADMIN.with(category::DANGEROUS)),
            (Self::DANGEROUS, category::DANGEROUS),
        ]
        .iter()
        .filter(|(flag, _)| self.has(*flag))
        .fold(Categories::NONE, |all, (_, category)| all.with(*category))
    }

    /// These and `other`.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

/// What a command belongs to: also a category of access control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Keys of any type.
    Generic,
    /// Strings.
    String,
    /// Bits of strings.
    Bitmap,
    /// Hashes.
    Hash,
    /// Lists.
    List,
    /// Sets.
    Set,
    /// Sorted sets.
    SortedSet,
    /// `MULTI` and what goes with it.
    Transactions,
    /// Scripts and functions, of which there are none.
    Scripting,
    /// The connection.
    Connection,
    /// The server.
    Server,
}

impl Group {
    /// As `COMMAND DOCS` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generic => "generic",
            Self::String => "string",
            Self::Bitmap => "bitmap",
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "sorted-set",
            Self::Transactions => "transactions",
            Self::Scripting => "scripting",
            Self::Connection => "connection",
            Self::Server => "server",
        }
    }

    /// As a heading.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Generic => "Keys of any type",
            Self::String => "Strings",
            Self::Bitmap => "Bits of strings",
            Self::Hash => "Hashes",
            Self::List => "Lists",
            Self::Set => "Sets",
            Self::SortedSet => "Sorted sets",
            Self::Transactions => "Transactions",
            Self::Scripting => "Scripts and functions",
            Self::Connection => "Connection",
            Self::Server => "Server",
        }
    }

    /// The category of access control.
    const fn category(self) -> Categories {
        match self {
            Self::Generic => category::KEYSPACE,
            Self::String => category::STRING,
            Self::Bitmap => category::BITMAP,
            Self::Hash => category::HASH,
            Self::List => category::LIST,
            Self::Set => category::SET,
            Self::SortedSet => category::SORTEDSET,
            Self::Transactions => category::TRANSACTION,
            Self::Scripting => category::SCRIPTING,
            Self::Connection => category::CONNECTION,
            Self::Server => Categories::NONE,
        }
    }
}

/// One row of the table.
pub struct CommandSpec {
    /// In lower case.
    pub name: &'static str,
    /// Arguments with the name: exactly this many, or at least this many if negative.
    pub arity: i32,
    /// Properties.
    pub flags: Flags,
    /// Which arguments are keys.
    pub keys: Keys,
    /// What it belongs to.
    pub group: Group,
    /// The arguments, as documentation shows them.
    pub arguments: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// What it costs.
    pub complexity: &'static str,
    /// The version of Redis that had it first, or `terrace`.
    pub since: &'static str,
    /// What is executed.
    pub run: fn(&mut Call<'_>) -> Outcome,
}

impl CommandSpec {
    /// Its keys, and what it does with each.
    pub fn key_uses<'a>(
        &self,
        args: &Command<'a>,
    ) -> impl Iterator<Item = (&'a [u8], KeyUse)> + Clone + use<'a> {
        let (first, rest) = self.uses(args);
        let with = move |(at, key)| (key, if at == 0 { first } else { rest });
        self.keys.of(args).enumerate().map(with)
    }

    /// What it does with its first key, and with the others.
    pub(crate) fn uses(&self, args: &Command<'_>) -> (KeyUse, KeyUse) {
        key_use::uses(self.name, self.flags.has(Flags::WRITE), args)
    }

    /// Whether a batch of this mode may execute it; else it has to be executed elsewhere.
    pub(crate) fn may_run_in(&self, mode: Mode) -> Outcome {
        let waits = self.flags.has(Flags::WAITS) || self.flags.has(Flags::LOCKS_ALL);
        match waits && mode == Mode::Memory {
            // One that always waits and only reads looks at very much, as KEYS does.
            true if self.flags.has(Flags::READ) => Err(Failure::Elsewhere(Wait::Walk)),
            true => Err(Failure::Elsewhere(Wait::Device)),
            false => Ok(()),
        }
    }

    /// Whether a user may execute this command, of this number, with these arguments.
    ///
    /// # Errors
    /// What it may not do first.
    pub fn check(&self, number: u16, args: &Command<'_>, user: &User) -> Result<(), Denial> {
        let keys = self.key_uses(args).map(|(key, one)| (key, one.access));
        user.check(number, args.get(1), keys)?;
        match self.flags.has(Flags::SHOWS_ALL) && !user.may_access_all(Access::READ) {
            true => Err(Denial::Key(args.get(1).unwrap_or_default().to_vec())),
            false => Ok(()),
        }
    }

    /// Whether the keys that it looks for are hits and misses of INFO: it only reads them.
    pub(crate) fn counts_lookups(&self) -> bool {
        self.flags.has(Flags::READ) && !self.flags.has(Flags::WRITE)
    }

    /// The categories of access control that it belongs to, apart from its subcommands.
    pub fn categories(&self) -> Categories {
        if self.flags.has(Flags::SUBCOMMANDS) {
            return match self.name {
                "command" => category::SLOW.with(category::CONNECTION),
                _ => category::SLOW,
            };
        }
        let speed = if self.flags.has(Flags::FAST) { category::FAST } else { category::SLOW };
        let group = match self.name {
            "sort" | "sort_ro" => category::SET.with(category::SORTEDSET).with(category::LIST),
            // Not for everybody, although Redis does not call them commands for administrators.
            "lastsave" | "role" => category::ADMIN,
            _ => self.group.category(),
        };
        group.with(speed).with(self.flags.categories())
    }

    /// What it is made of, if it is.
    pub fn subcommands(&self) -> &'static [Subcommand] {
        match self.flags.has(Flags::SUBCOMMANDS) {
            true => subcommands(self.name),
            false => &[],
        }
    }

    /// The subcommand that is named; `None` if it has none, or not this one.
    pub fn subcommand(&self, args: &Command<'_>) -> Option<&'static Subcommand> {
        let name = args.get(1)?;
        self.subcommands().iter().find(|one| name.eq_ignore_ascii_case(one.name.as_bytes()))
    }

    /// Its name, with that of the subcommand.
    pub fn full_name(&self, args: &Command<'_>) -> Cow<'static, str> {
        match self.subcommand(args) {
            Some(one) => format!("{}|{}", self.name, one.name).into(),
            None => self.name.into(),
        }
    }

    /// Whether there is such a subcommand, if one is named and it is made of some.
    pub fn has_form(&self, args: &Command<'_>) -> bool {
        args.count() == 1 || !self.flags.has(Flags::SUBCOMMANDS) || self.subcommand(args).is_some()
    }

    /// Whether there is such a command with this many arguments.
    ///
    /// # Errors
    /// The reply.
    pub fn check_form(&self, args: &Command<'_>) -> Result<(), String> {
        if args.count() > 1 && self.flags.has(Flags::SUBCOMMANDS) {
            let Some(one) = self.subcommand(args) else {
                let name = args.get(1).unwrap_or_default();
                let name = String::from_utf8_lossy(&name[..name.len().min(128)]);
                let command = self.name.to_uppercase();
                return Err(format!("ERR unknown subcommand '{name}'. Try {command} HELP."));
            };
            return match takes(one.arity, args.count()) {
                true => Ok(()),
                false => Err(super::wrong_count(&self.full_name(args))),
            };
        }
        match self.takes(args.count()) {
            true => Ok(()),
            false => Err(super::wrong_count(self.name)),
        }
    }

    /// Whether this many arguments, the name included, are right.
    pub fn takes(&self, count: usize) -> bool {
        takes(self.arity, count)
    }
}

fn takes(arity: i32, count: usize) -> bool {
    let most = arity.unsigned_abs() as usize;
    if arity < 0 { count >= most } else { count == most }
}
