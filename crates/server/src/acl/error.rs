//! Refusals of access control, in Redis's words.

use super::log::Reason;
use thiserror::Error;

/// Why something about users was refused; as text it is for people, and [`Self::reply`] is what a client gets.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AclError {
    /// Unknown user, wrong password or user that is off: nobody learns which.
    #[error("invalid username-password pair or user is disabled.")]
    WrongPassword,
    /// A rule that cannot be applied. Passwords are not repeated.
    #[error("Error in ACL SETUSER modifier '{rule}': {why}")]
    Rule {
        /// The rule.
        rule: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The name of a user may not be this.
    #[error("Usernames can't contain spaces or null characters")]
    BadName,
    /// Nor this, although Redis allows it: users are written into a configuration that is text.
    #[error("Usernames can't be empty, and must be text in UTF-8 without control characters")]
    NameIsNoText,
    /// The default user is always there.
    #[error("The 'default' user cannot be removed")]
    DefaultStays,
    /// A line of a text of users cannot be understood; nothing has changed.
    #[error("line {line}: {why}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A user of the configuration cannot be as it says.
    #[error("[[user]] {name}: {why}")]
    Configured {
        /// The user.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// There is no category of this name.
    #[error("Unknown category '{0}'")]
    UnknownCategory(String),
    /// ACL GENPASS was asked for too much or nothing.
    #[error(
        "ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096"
    )]
    PasswordBits,
    /// The system gave no random bytes, or the file of users cannot be read or written.
    #[error("{0}")]
    System(String),
}

impl AclError {
    /// The error that the client gets: the text behind its code.
    pub fn reply(&self) -> String {
        let code = match self {
            Self::WrongPassword => "WRONGPASS",
            _ => "ERR",
        };
        format!("{code} {self}")
    }
}

/// Why a user may not run a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denial {
    /// The command itself.
    Command,
    /// This key, in the way the command would use it.
    Key(Vec<u8>),
    /// This channel.
    Channel(Vec<u8>),
}

impl Denial {
    /// The error that the client gets.
    pub fn reply(&self, command: &str) -> String {
        match self {
            Self::Command => {
                format!("NOPERM this user has no permissions to run the '{command}' command")
            }
            Self::Key(_) => {
                "NOPERM this user has no permissions to access one of the keys used as arguments".into()
            },
            Self::Channel(_) => {
                "NOPERM this user has no permissions to access one of the channels used as arguments"
                    .into()
            },
        }
    }

    /// The error that the client gets for a command that it was still allowed when it was queued.
    pub fn reply_in_exec(&self) -> String {
        let why = match self {
            Self::Command => "no permission to execute the command or subcommand",
            Self::Key(_) => "no permission to touch the specified keys",
            Self::Channel(_) => "no permission to access one of the channels used as arguments",
        };
        format!(
            "NOPERM ACLs rules changed between the moment the transaction was accumulated and the \
             EXEC call. This command is no longer allowed for the following reason: {why}"
        )
    }

    /// What ACL DRYRUN says.
    pub fn dry_run(&self, command: &str) -> String {
        match self {
            Self::Command => {
                format!("This user has no permissions to run the '{command}' command")
            }
            Self::Key(key) => format!(
                "This user has no permissions to access the '{}' key",
                String::from_utf8_lossy(key)
            ),
            Self::Channel(channel) => format!(
                "This user has no permissions to access the '{}' channel",
                String::from_utf8_lossy(channel)
            ),
        }
    }

    /// How ACL LOG calls it, and what it is about.
    pub fn logged<'a>(&'a self, command: &'a str) -> (Reason, &'a [u8]) {
        match self {
            Self::Command => (Reason::Command, command.as_bytes()),
            Self::Key(key) => (Reason::Key, key),
            Self::Channel(channel) => (Reason::Channel, channel),
        }
    }
}
