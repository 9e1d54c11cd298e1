//! Which arguments of a command are keys.

use terrace_resp::{Command, parse_integer};

/// Which arguments are keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// None.
    None,
    /// The first argument.
    First,
    /// The first two arguments.
    FirstTwo,
    /// The one after the subcommand (`OBJECT`).
    AfterSubcommand,
    /// All arguments.
    All,
    /// All arguments after the first (`BITOP`).
    AfterFirst,
    /// The first argument and every second one after it (`MSET`).
    EverySecond,
    /// This many as the first argument says, after it (`ZUNION`).
    Counted,
    /// The first argument, and this many as the second one says, after that (`ZUNIONSTORE`).
    FirstAndCounted,
    /// The first argument, and the one after the last `STORE` (`SORT`).
    FirstAndStore,
    /// The first argument, and the same in another database (`MOVE`).
    FirstTwice,
    /// The first two arguments, the second one perhaps in another database (`COPY`).
    FirstTwoAcross,
}

impl Keys {
    /// The keys among the arguments of a command.
    pub fn of<'a>(self, args: &Command<'a>) -> impl Iterator<Item = &'a [u8]> + Clone + use<'a> {
        let (skip, take, step) = match self {
            Self::None => (1, 0, 1),
            Self::First | Self::FirstAndStore | Self::FirstTwice => (1, 1, 1),
            Self::FirstTwo | Self::FirstTwoAcross => (1, 2, 1),
            Self::AfterSubcommand => (2, 1, 1),
            Self::All => (1, usize::MAX, 1),
            Self::AfterFirst => (2, usize::MAX, 1),
            Self::EverySecond => (1, usize::MAX, 2),
            Self::Counted => (2, counted(args, 1), 1),
            Self::FirstAndCounted => (3, counted(args, 2), 1),
        };
        let apart = match self {
            Self::FirstAndCounted => args.get(1),
            Self::FirstAndStore => stored_under(args),
            _ => None,
        };
        // What is written comes first, or last.
        let (before, after) = match self {
            Self::FirstAndCounted => (apart, None),
            _ => (None, apart),
        };
        let row = args.iter().skip(skip).step_by(step).take(take);
        before.into_iter().chain(row).chain(after)
    }

    /// As [`Self::of`], with the database of each; `db` is that of the client.
    pub fn located<'a>(
        self,
        args: &Command<'a>,
        db: u8,
    ) -> impl Iterator<Item = (u8, &'a [u8])> + Clone + use<'a> {
        let other = match self {
            Self::FirstTwice => args.get(2),
            Self::FirstTwoAcross => other_database(args),
            _ => None,
        };
        // One that there is not is refused by the command; no key is that of a database above it.
        let other = other.and_then(parse_integer).and_then(|other| u8::try_from(other).ok());
        let other = other.filter(|other| usize::from(*other) < terrace_keyspace::MAX_DATABASES);
        let place = move |(at, key)| (if at > 0 { other.unwrap_or(db) } else { db }, key);
        let again = (self == Self::FirstTwice).then(|| args.get(1)).flatten();
        self.of(args).chain(again).enumerate().map(place)
    }

    /// Whether a key may be one of a database that the client has not selected.
    pub const fn may_be_elsewhere(self) -> bool {
        matches!(self, Self::FirstTwice | Self::FirstTwoAcross)
    }

    /// As `COMMAND` shows them: first, last (negative from the end), step.
    pub const fn positions(self) -> (i64, i64, i64) {
        match self {
            // Redis has them at the subcommands.
            Self::None | Self::AfterSubcommand | Self::Counted => (0, 0, 0),
            Self::First | Self::FirstTwice | Self::FirstAndCounted | Self::FirstAndStore => {
                (1, 1, 1)
            }
            Self::FirstTwo | Self::FirstTwoAcross => (1, 2, 1),
            Self::All => (1, -1, 1),
            Self::AfterFirst => (2, -1, 1),
            Self::EverySecond => (1, -1, 2),
        }
    }
}

/// How many keys the argument number `at` says that there are; 0 if they are not there, which the
/// command refuses.
fn counted(args: &Command<'_>, at: usize) -> usize {
    let wanted = args.get(at).and_then(parse_integer).and_then(|count| usize::try_from(count).ok());
    wanted.filter(|count| *count <= args.count().saturating_sub(at + 1)).unwrap_or(0)
}

fn stored_under<'a>(args: &Command<'a>) -> Option<&'a [u8]> {
    let (mut at, mut found) = (2, None);
    while at < args.count() {
        let word = args.get(at).unwrap_or_default();
        if word.eq_ignore_ascii_case(b"limit") {
            at += 2;
        } else if word.eq_ignore_ascii_case(b"get") || word.eq_ignore_ascii_case(b"by") {
            at += 1;
        } else if word.eq_ignore_ascii_case(b"store") && at + 1 < args.count() {
            found = args.get(at + 1);
            at += 1;
        }
        at += 1;
    }
    found
}

fn other_database<'a>(args: &Command<'a>) -> Option<&'a [u8]> {
    let mut words = args.iter().skip(3);
    let mut found = None;
    while let Some(word) = words.next() {
        if word.eq_ignore_ascii_case(b"db") {
            found = words.next();
        }
    }
    found
}
