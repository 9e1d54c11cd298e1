//! Executes a call of one short command at once, on the thread that brings it.
//!
//! An event loop gathers what many clients send into one batch; a single command on its way from a client of another
//! node gains nothing by that, and to wake the loop and be woken by its answer takes longer than the command.
//! Nothing here waits: what would have to (for the device, for a key that is locked, for a sync, for the cluster, for this
//! lane itself) is left to a loop, and nothing of it has happened then. What holds for commands of a loop holds here:
//! a guard is taken before the route and held until the commit, the store is asked under the key's lock, and
//! nothing is answered that the lease does not cover.

use super::client_state::ClientState;
use super::loop_handle::LoopHandle;
use super::open_call::OpenCall;
use crate::cluster::Cluster;
use crate::command::{Flags, Keys, table};
use crate::dispatch;
use crate::server::Server;
use crate::session::Origin;
use parking_lot::Mutex;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use terrace_keyspace::{CommandBatch, Mode};
use terrace_resp::{Command, Limits, RequestParser};

/// A call with more bytes goes to a loop.
const MAX_REQUEST_BYTES: usize = 4 << 10;

/// Quick here, though Redis says otherwise of them: what a key had before is not freed piece by piece.
const ALSO_QUICK: [&str; 3] = ["set", "setex", "psetex"];

/// See the module.
pub(super) struct CallLane {
    server: Arc<Server>,
    home: Arc<LoopHandle>,
    place: Mutex<Place>,
}

struct Place {
    batch: CommandBatch,
    state: ClientState,
    parser: RequestParser,
}

impl CallLane {
    /// `home`: the loop that connections of calls belong to.
    pub fn new(server: &Arc<Server>, home: &Arc<LoopHandle>) -> Self {
        let batch = server.space.command_batch(Mode::Memory);
        let parser = RequestParser::new(Limits::default());
        let place = Mutex::new(Place { batch, state: begin(server, home), parser });
        Self { server: server.clone(), home: home.clone(), place }
    }

    /// Executes the call and ends it, or gives it back as it was.
    pub fn execute(&self, call: OpenCall) -> Option<OpenCall> {
        let server = &*self.server;
        let Some(mut place) = self.place.try_lock() else { return Some(call) };
        let Place { batch, state, parser } = &mut *place;
        let Some(command) = short_command(parser, &call.requests) else { return Some(call) };
        if server.space.db().write_may_wait() {
            return Some(call);
        }
        // Before the route, until after the commit.
        let guard = server.cluster.as_ref().and_then(Cluster::guard);
        state.begin_session_of(&call);
        state.begin_batch();
        if !state.execute_one(command, batch, server) {
            batch.abandon();
            *state = begin(&self.server, &self.home);
            return Some(call);
        }
        if let Err(error) = dispatch::commit(batch, server) {
            let _of_no_client = state.fail_batch(&error);
        }
        let may_reply = !state.session.is_guarded || guard.is_none_or(|guard| guard.may_reply());
        let replies = std::mem::take(&mut state.output);
        drop(place);
        server.stats.calls.add(1);
        server.stats.calls_at_once.add(1);
        match may_reply {
            true => call.end(replies),
            // Another owner may have answered meanwhile: dropped, it has an unknown outcome.
            false => server.stats.unsure_closed.add(1),
        }
        None
    }
}

fn begin(server: &Server, home: &Arc<LoopHandle>) -> ClientState {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    // At no place: nobody can end it.
    let token = usize::MAX;
    ClientState::begin_call(
        server,
        Origin { peer: here, local: here, is_tls: false, home: home.clone(), token },
    )
}

/// The requests, if they are one command on one key whose cost does not grow with what is stored.
fn short_command<'a>(parser: &'a mut RequestParser, requests: &'a [u8]) -> Option<Command<'a>> {
    if requests.len() > MAX_REQUEST_BYTES {
        return None;
    }
    let command = parser.whole(requests)?;
    let (_, spec) = table().find(command.name())?;
    let waits = spec.flags.has(Flags::WAITS) || spec.flags.has(Flags::LOCKS_ALL);
    let is_short = (spec.flags.has(Flags::FAST) || ALSO_QUICK.contains(&spec.name))
        && !waits
        && spec.keys != Keys::None
        && spec.keys.of(&command).count() == 1;
    is_short.then_some(command)
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_resp::write_request;

    fn requests(commands: &[&[&str]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|words| write_request(&mut bytes, words));
        bytes
    }

    fn is_short(requests: &[u8]) -> bool {
        short_command(&mut RequestParser::new(Limits::default()), requests).is_some()
    }

    #[test]
    fn only_one_quick_command_on_one_key_is_short() {
        for short in [&["get", "k"][..], &["SET", "k", "v"], &["incr", "k"], &["hget", "h", "f"]] {
            assert!(is_short(&requests(&[short])), "{short:?}");
        }
        let large = "v".repeat(MAX_REQUEST_BYTES);
        for long in [
            &["ping"][..],
            &["mget", "a", "b"],
            &["hgetall", "h"],
            &["lrange", "l", "0", "-1"],
            &["multi"],
            &["exec"],
            &["watch", "k"],
            &["flushall"],
            &["nosuch", "k"],
            &["patient"],
            &["set", "k", &large],
        ] {
            assert!(!is_short(&requests(&[long])), "{long:?}");
        }
        assert!(!is_short(&requests(&[&["get", "a"], &["get", "b"]])), "two");
        let whole = requests(&[&["get", "a"]]);
        assert!(!is_short(&whole[..whole.len() - 1]) && !is_short(b"") && !is_short(b"get a\r\n"));
    }
}
