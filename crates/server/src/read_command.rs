//! Commands that only read, executed for the page: by nobody's connection, on a thread that may wait for the device.

use crate::acl::User;
use crate::command::{CommandSpec, Flags, table};
use crate::dispatch::{self, Executed};
use crate::http::Unread;
use crate::server::Server;
use crate::session::{Caller, ConnectionCloser, Origin, Session};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use terrace_keyspace::Mode;
use terrace_resp::{Command, OwnedCommand, Protocol};

/// What a command must not be.
const OTHERS: [Flags; 4] = [Flags::WRITE, Flags::ADMIN, Flags::DANGEROUS, Flags::NOT_QUEUED];

/// There is no connection to be ended.
struct NoConnection;

impl ConnectionCloser for NoConnection {
    fn end(&self, _: usize, _: u64) {}
}

impl Server {
    /// Executes a command that only reads, as this user, and gives its reply in RESP3, errors among them.
    ///
    /// # Errors
    /// It does not only read, or not here: why. Nothing was executed.
    pub(crate) fn read_command(
        &self,
        user: Arc<User>,
        peer: IpAddr,
        db: u8,
        command: &OwnedCommand,
    ) -> Result<Vec<u8>, Unread> {
        let args = command.as_command();
        if let Some((_, spec)) = table().find(args.name())
            && !only_reads(spec, &args)
        {
            let name = spec.name.to_ascii_uppercase();
            let why = format!("{name} does not only read; use the Redis port, with redis-cli");
            return Err(Unread::Refused(why));
        }
        if self.cluster.is_some() {
            let why = "in a cluster commands go to the Redis port, with redis-cli";
            return Err(Unread::Refused(why.into()));
        }
        let peer = SocketAddr::from((peer, 0));
        let home = Arc::new(NoConnection);
        let origin = Origin { peer, local: peer, is_tls: false, home, token: usize::MAX };
        let info = self.clients.describe(origin, self.space.now_ms());
        let mut session = Session::of(info, Some(user));
        (session.caller, session.protocol) = (Caller::Page, Protocol::Resp3);
        session.select(db);
        let mut batch = self.space.command_batch(Mode::Device);
        let mut reply = Vec::new();
        let clock = &mut Instant::now();
        match dispatch::execute(args, &mut batch, &mut session, self, &mut reply, clock) {
            Executed::Replied => Ok(reply),
            Executed::Elsewhere(_)
            | Executed::Away(_)
            | Executed::Back
            | Executed::AfterCommit
            | Executed::Paused
            | Executed::Close => Err(Unread::Busy),
        }
    }
}

/// Whether a command reads keys and does nothing else. One that has subcommands is what its subcommand is.
fn only_reads(spec: &CommandSpec, args: &Command<'_>) -> bool {
    let flags = spec.subcommand(args).map_or(spec.flags, |part| part.flags);
    flags.has(Flags::READ) && !OTHERS.iter().any(|other| flags.has(*other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commands_that_read_are_executed() {
        let reads = |words: &[&str]| {
            let command = OwnedCommand::of(words);
            let (_, spec) = table().find(words[0].as_bytes()).unwrap();
            only_reads(spec, &command.as_command())
        };
        for words in [&["get", "k"][..], &["hgetall", "k"], &["scan", "0"], &["ttl", "k"]] {
            assert!(reads(words), "{words:?}");
        }
        for words in [
            &["set", "k", "v"][..],
            &["getdel", "k"],
            &["getex", "k"],
            &["sort", "k", "store", "l"],
            &["keys", "*"],
            &["multi"],
            &["exec"],
            &["watch", "k"],
            &["config", "get", "*"],
            &["config", "set", "timeout", "1"],
            &["debug", "sleep", "9"],
            &["shutdown"],
            &["acl", "list"],
            &["client", "list"],
            &["select", "1"],
            &["auth", "x"],
        ] {
            assert!(!reads(words), "{words:?}");
        }
        // Whatever is added: what writes has the flag.
        for spec in table().all() {
            let command = OwnedCommand::of(&[spec.name]);
            let is_other = OTHERS.iter().any(|other| spec.flags.has(*other));
            assert!(!is_other || !only_reads(spec, &command.as_command()), "{}", spec.name);
        }
    }
}
