//! Errors as clients see them: a code in capitals, a blank, a text.

use crate::cluster::AdminRequest;
use crate::session::{Caller, Session};
use std::borrow::Cow;
use terrace_keyspace::{Error, Wait};

const STOPPING: &str = "ERR the server is stopping";
const EXEC_STOPPING: &str = "EXECABORT Transaction discarded because the server is stopping";

/// The client's command is refused with this. If that is since the server is to end, so does the connection: what the client has
/// sent behind the command may rely on it, and is not executed.
pub(crate) fn close_if_stopping(session: &mut Session, refusal: &str) {
    let is_client = session.caller == Caller::Client;
    session.closes |= is_client && (refusal == STOPPING || refusal == EXEC_STOPPING);
}

/// What a command's function gives.
pub type Outcome = Result<(), Failure>;

/// Why a command was not executed.
#[derive(Debug, Clone)]
pub enum Failure {
    /// It is to be executed by a thread that may wait.
    Elsewhere(Wait),
    /// The cluster has to do this first; then the command is executed again.
    Admin(Box<AdminRequest>),
    /// The error reply, with its code.
    Reply(Cow<'static, str>),
    /// In a cluster: a key is being moved, or has just been. It is to be routed again.
    Moved,
    /// A `CLIENT PAUSE` has begun that holds for it. Nothing has happened yet.
    Paused,
}

impl Failure {
    /// Redis's words for arguments that make no sense.
    pub const SYNTAX: Self = Self::Reply(Cow::Borrowed("ERR syntax error"));
    /// For an argument that should be an integer.
    pub const NOT_AN_INTEGER: Self =
        Self::Reply(Cow::Borrowed("ERR value is not an integer or out of range"));
    /// For an argument that should be a number.
    pub const NOT_A_FLOAT: Self = Self::Reply(Cow::Borrowed("ERR value is not a valid float"));

    /// For what takes long, and has not come to its end when the server is to.
    pub const STOPPING: Self = Self::line(STOPPING);
    /// For a transaction that has not.
    pub const EXEC_STOPPING: Self = Self::line(EXEC_STOPPING);

    /// For a write while the disk is full.
    pub const DISK_FULL: Self = Self::line(
        "MISCONF the disk is full: DEL, UNLINK, FLUSHDB and FLUSHALL go on, other writes wait for room",
    );

    /// An error with the code `ERR`.
    pub fn err(text: impl std::fmt::Display) -> Self {
        Self::Reply(format!("ERR {text}").into())
    }

    /// For a command with too many or too few arguments.
    pub fn wrong_count(command: &str) -> Self {
        Self::Reply(super::wrong_count(command).into())
    }

    /// For a subcommand that `command`, here in capitals, does not have, or not with this many
    /// arguments.
    pub fn unknown_subcommand(command: &str, name: &[u8]) -> Self {
        let name = String::from_utf8_lossy(name);
        Self::err(format_args!(
            "unknown subcommand or wrong number of arguments for '{name}'. Try {command} HELP."
        ))
    }

    /// An error whose text has its code.
    pub const fn line(text: &'static str) -> Self {
        Self::Reply(Cow::Borrowed(text))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Elsewhere(wait) => Self::Elsewhere(wait),
            Error::WrongType => Self::Reply(format!("WRONGTYPE {error}").into()),
            Error::Engine(error) => error.into(),
            other => Self::err(other),
        }
    }
}

impl From<terrace::Error> for Failure {
    fn from(error: terrace::Error) -> Self {
        use terrace::Error as E;
        let code = match &error {
            E::NotInMemory => return Self::Elsewhere(Wait::Device),
            // Redis refuses writes with this code when it cannot persist them.
            E::DiskFull(_) | E::Poisoned(_) | E::WriteStopped(_) | E::Io(_) => "MISCONF",
            E::ReadOnly(_) => "READONLY",
            _ => "ERR",
        };
        Self::Reply(format!("{code} {error}").into())
    }
}
