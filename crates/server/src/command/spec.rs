//! What is known of a command beside its function.

use super::{Call, Failure, Outcome};
use crate::acl::{Access, Categories, Denial, User, category};
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

    /// Whether all of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
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

/// Which arguments are keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// None.
    None,
    /// The first argument.
    First,
    /// The one after the subcommand (`OBJECT`).
    AfterSubcommand,
    /// All arguments.
    All,
    /// The first argument and every second one after it (`MSET`).
    EverySecond,
}

impl Keys {
    /// The keys among the arguments of a command.
    pub fn of<'a>(self, args: &Command<'a>) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let (skip, take, step) = match self {
            Self::None => (1, 0, 1),
            Self::First => (1, 1, 1),
            Self::AfterSubcommand => (2, 1, 1),
            Self::All => (1, usize::MAX, 1),
            Self::EverySecond => (1, usize::MAX, 2),
        };
        args.iter().skip(skip).step_by(step).take(take)
    }

    /// As `COMMAND` shows them: first, last (negative from the end), step.
    pub const fn positions(self) -> (i64, i64, i64) {
        match self {
            // Redis has them at the subcommands.
            Self::None | Self::AfterSubcommand => (0, 0, 0),
            Self::First => (1, 1, 1),
            Self::All => (1, -1, 1),
            Self::EverySecond => (1, -1, 2),
        }
    }
}

/// What a command belongs to: also a category of access control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Keys of any type.
    Generic,
    /// Strings.
    String,
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
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "sorted-set",
            Self::Transactions => "transactions",
            Self::Connection => "connection",
            Self::Server => "server",
        }
    }

    /// As a heading.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Generic => "Keys of any type",
            Self::String => "Strings",
            Self::Hash => "Hashes",
            Self::List => "Lists",
            Self::Set => "Sets",
            Self::SortedSet => "Sorted sets",
            Self::Transactions => "Transactions",
            Self::Connection => "Connection",
            Self::Server => "Server",
        }
    }

    /// The category of access control.
    const fn category(self) -> Categories {
        match self {
            Self::Generic => category::KEYSPACE,
            Self::String => category::STRING,
            Self::Hash => category::HASH,
            Self::List => category::LIST,
            Self::Set => category::SET,
            Self::SortedSet => category::SORTEDSET,
            Self::Transactions => category::TRANSACTION,
            Self::Connection => category::CONNECTION,
            Self::Server => Categories::NONE,
        }
    }
}

/// One row of the table.
pub struct CommandSpec {
    /// In lower case.
    pub name: &'static str,
    /// Arguments with the name: exactly so many, or at least so many if negative.
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
    /// What it does with its keys, in the words of access control: a command that writes may also
    /// tell what was there, unless it is known not to.
    pub fn access(&self) -> Access {
        /// Commands that write and tell nothing of what was there.
        const ONLY_WRITE: &[&str] =
            &["del", "mset", "msetnx", "psetex", "setex", "setnx", "unlink", "hmset", "ltrim"];
        match self.flags.has(Flags::WRITE) {
            true if ONLY_WRITE.contains(&self.name) => Access::WRITE,
            true => Access::READ_WRITE,
            false => Access::READ,
        }
    }

    /// Whether a turn of this mode may execute it; else it has to be executed elsewhere.
    pub(crate) fn may_run_in(&self, mode: Mode) -> Outcome {
        let waits = self.flags.has(Flags::WAITS) || self.flags.has(Flags::LOCKS_ALL);
        match waits && mode == Mode::Memory {
            true => Err(Failure::Elsewhere(Wait::Device)),
            false => Ok(()),
        }
    }

    /// Whether a user may execute this command, of this number, with these arguments.
    ///
    /// # Errors
    /// What it may not do first.
    pub fn check(&self, number: u16, args: &Command<'_>, user: &User) -> Result<(), Denial> {
        let access = self.access();
        let keys = self.keys.of(args).map(|key| (key, access));
        user.check(number, args.get(1), keys)?;
        match self.flags.has(Flags::SHOWS_ALL) && !user.may_access_all(access) {
            true => Err(Denial::Key(args.get(1).unwrap_or_default().to_vec())),
            false => Ok(()),
        }
    }

    /// The categories of access control that it belongs to.
    pub const fn categories(&self) -> Categories {
        let mut categories = self.group.category();
        let speed = if self.flags.has(Flags::FAST) { category::FAST } else { category::SLOW };
        categories = categories.with(speed);
        if self.flags.has(Flags::WRITE) {
            categories = categories.with(category::WRITE);
        }
        if self.flags.has(Flags::READ) {
            categories = categories.with(category::READ);
        }
        if self.flags.has(Flags::ADMIN) {
            categories = categories.with(category::ADMIN).with(category::DANGEROUS);
        }
        if self.flags.has(Flags::DANGEROUS) {
            categories = categories.with(category::DANGEROUS);
        }
        categories
    }

    /// Whether so many arguments, the name included, are right.
    pub fn takes(&self, count: usize) -> bool {
        let most = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { count >= most } else { count == most }
    }
}
