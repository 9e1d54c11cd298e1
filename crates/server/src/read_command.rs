//! Commands that only read, executed for the page: by nobody's connection, on a thread that may wait for the device.

use crate::acl::User;
use crate::cluster::Cluster;
use crate::command::{CommandSpec, Flags, table};
use crate::dispatch::{self, Executed};
use crate::http::Unread;
use crate::place::{self, Away, Place};
use crate::server::Server;
use crate::session::{Caller, ConnectionCloser, Origin, Session};
use crate::settle::UnderWay;
use crate::unknown_command::is_of_http;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;
use terrace_cluster::{CallTarget, NodeId};
use terrace_keyspace::Mode;
use terrace_resp::{Command, OwnedCommand, Protocol};

/// What a command must not be.
const OTHERS: [Flags; 4] = [Flags::WRITE, Flags::ADMIN, Flags::DANGEROUS, Flags::NOT_QUEUED];

/// There is no connection to be ended.
struct NoConnection;

impl ConnectionCloser for NoConnection {
    fn end(&self, _: usize, _: u64, _: UnderWay) {}
    fn settle(&self, _: usize, _: u64, _: UnderWay) {}
    fn settled(&self, _: usize, _: u64) {}
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
        if is_of_http(args.name()) {
            // A connection of the Redis port would end, and the log says why.
            return Err(Unread::Refused("there is no such command".into()));
        }
        if let Some((_, spec)) = table().find(args.name())
            && !only_reads(spec, &args)
        {
            let name = spec.name.to_ascii_uppercase();
            let why = format!("{name} does not only read; use the Redis port, with redis-cli");
            return Err(Unread::Refused(why));
        }
        let peer = SocketAddr::from((peer, 0));
        let home = Arc::new(NoConnection);
        let origin = Origin { peer, local: peer, is_tls: false, home, token: usize::MAX };
        let info = self.clients.describe(origin, self.space.now_ms());
        let mut session = Session::of(info, Some(user));
        (session.caller, session.protocol) = (Caller::Page, Protocol::Resp3);
        session.select(db);
        // Before the route, until what was read may be shown.
        let uses_no_key = dispatch::uses_no_key(&args, &session);
        let guard = self.cluster.as_ref().and_then(|cluster| cluster.guard_of(uses_no_key));
        if let Some(cluster) = &self.cluster {
            check_place(cluster, &args, &session)?;
        }
        let mut batch = self.space.command_batch(Mode::Device);
        let mut reply = Vec::new();
        let clock = &mut Instant::now();
        let executed = dispatch::execute(args, &mut batch, &mut session, self, &mut reply, clock);
        let may_reply = !session.is_guarded || guard.is_none_or(|guard| guard.may_reply());
        match executed {
            // A key that left meanwhile is found where it is now by the next try.
            Executed::Replied if session.has_moved || !may_reply => Err(Unread::Busy),
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

/// In a cluster the page executes what this node has in its own store, and sends nothing to others.
///
/// # Errors
/// The command belongs elsewhere: where. What else is wrong with it, its execution says.
fn check_place(cluster: &Cluster, args: &Command<'_>, session: &Session) -> Result<(), Unread> {
    let Some((_, spec)) = table().find(args.name()) else { return Ok(()) };
    if spec.check_form(args).is_err() {
        return Ok(());
    }
    let topology = cluster.coordinator().and_then(|one| one.topology());
    let at = |node: NodeId| match topology.as_ref().and_then(|known| known.nodes.get(&node)) {
        Some(known) => format!("node {node}, {}", known.redis_address),
        None => format!("node {node}"),
    };
    let why = match place::place(cluster, spec, args, session) {
        Place::Here(_) | Place::Refused(_) | Place::Aborted => return Ok(()),
        Place::Away(Away::Wait(_)) => return Err(Unread::Busy),
        Place::Away(Away::Send(CallTarget::Owner(node)) | Away::Exec(CallTarget::Owner(node))) => {
            format!("what it reads is served by {}", at(node))
        }
        Place::Away(
            Away::Send(CallTarget::Instance(call)) | Away::Exec(CallTarget::Instance(call)),
        ) => {
            format!("what it reads lies in the store of {}", at(call.instance))
        }
        Place::Away(Away::Split(_)) => "it reads at several nodes of the cluster".to_string(),
    };
    Err(Unread::Refused(format!("{why}; use the page there, or the Redis port, with redis-cli")))
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
