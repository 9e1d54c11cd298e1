//! Who may see what at this moment. The guard asks for every request, and the stream again before every
//! event: users, passwords and protected mode may change while it lasts.

use super::ServerStatus;
use super::api_error::ApiError;
use axum::http::StatusCode;
use std::net::IpAddr;

/// Who asks.
#[derive(Clone)]
pub(super) struct Asker {
    /// The other end of the connection.
    pub peer: Option<IpAddr>,
    /// User and password, if the request has them.
    pub login: Option<(String, Vec<u8>)>,
}

/// What is asked for: see [`Rights`](super::Rights).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// Everything but the options.
    Store,
    /// The options.
    Options,
}

/// Why it is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// By protected mode.
    Protected,
    /// A login is needed.
    NoLogin,
    /// There is no such user, or with another password.
    WrongLogin,
    /// The user may see less.
    NoRight(Subject),
}

impl Asker {
    /// Whether `subject` is shown now.
    pub fn check(&self, subject: Subject, status: &dyn ServerStatus) -> Result<(), Refusal> {
        if self.peer.is_some_and(|peer| status.is_protected_from(peer)) {
            return Err(Refusal::Protected);
        }
        if !status.needs_login() {
            return Ok(());
        }
        let (user, password) = self.login.as_ref().ok_or(Refusal::NoLogin)?;
        let rights = status.authenticate(user, password).ok_or(Refusal::WrongLogin)?;
        let may = match subject {
            Subject::Store => rights.read,
            Subject::Options => rights.admin,
        };
        may.then_some(()).ok_or(Refusal::NoRight(subject))
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let (status, why) = match refusal {
            Refusal::Protected => (
                StatusCode::FORBIDDEN,
                "protected-mode: without a password only clients on this machine are served",
            ),
            Refusal::NoLogin | Refusal::WrongLogin => {
                (StatusCode::UNAUTHORIZED, "log in as a user of the ACL")
            }
            Refusal::NoRight(Subject::Store) => {
                (StatusCode::FORBIDDEN, "this needs a user with @read, on all keys")
            }
            Refusal::NoRight(Subject::Options) => {
                (StatusCode::FORBIDDEN, "this needs a user with @admin")
            }
        };
        Self::new(status, why)
    }
}
