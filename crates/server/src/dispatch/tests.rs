//! Commands whose keys are found to have left when their locks are held.

use super::*;
use crate::command::Outcome;
use crate::config::Config;
use crate::session::{ConnectionCloser, Origin, Queued};
use crate::settle::UnderWay;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use tempfile::TempDir;
use terrace_cluster::{DbKey, Direction, Epoch, MoveId, ShardId};
use terrace_keyspace::{Keyspace, PutOptions};
use xxhash_rust::xxh3::xxh3_64_with_seed;

struct Nobody;

impl ConnectionCloser for Nobody {
    fn end(&self, _: usize, _: u64, _: UnderWay) {}
    fn settle(&self, _: usize, _: u64, _: UnderWay) {}
    fn settled(&self, _: usize, _: u64) {}
}

fn server(dir: &TempDir, cluster_enabled: &str) -> Server {
    let flags = [("cluster-enabled".to_string(), cluster_enabled.to_string())];
    let config = Config::load(None, [], flags).unwrap();
    let space = Keyspace::open(dir.path(), config.settings().engine_options()).unwrap();
    Server::new(space, config).unwrap()
}

fn session(server: &Server) -> Session {
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let origin =
        Origin { peer: here, local: here, is_tls: false, home: Arc::new(Nobody), token: 0 };
    Session::of(server.clients.describe(origin, server.space.now_ms()), None)
}

fn queued(commands: &[OwnedCommand]) -> Option<Queued> {
    Some(Queued { commands: commands.to_vec(), ..Queued::default() })
}

#[test]
fn a_transaction_gives_its_locks_back_before_it_executes_something_aside() {
    let dir = tempfile::tempdir().unwrap();
    let server = server(&dir, "no");
    let mut session = session(&server);
    session.queued = queued(&[&["GET", "k"][..], &["CLIENT", "GETNAME"]].map(OwnedCommand::of));

    // As where the move of the key is committed while its lock is waited for.
    let mut batch = server.space.command_batch(Mode::Device);
    batch.lock(0, std::iter::once(&b"k"[..])).unwrap();
    let (exec, mut output) = (OwnedCommand::of(&["EXEC"]), Vec::new());
    let (args, (_, spec)) = (exec.as_command(), table().find(b"exec").unwrap());
    let found = (&mut batch, false);
    let done = route_again(&args, spec, found, &mut session, &server, &mut output);
    assert!(matches!(done, Executed::Back) && output.is_empty());
    assert_eq!(batch.lock_count(), 0);
    let aside = session.queued.and_then(|queued| queued.aside);
    assert_eq!(aside, Some(vec![(1, b"$-1\r\n".to_vec())]));
}

/// Runs it as a thread does that waits for the locks.
fn run_patiently(command: &OwnedCommand, server: &Server, queued: Option<Queued>) -> Outcome {
    let (mut session, mut output) = (session(server), Vec::new());
    session.queued = queued;
    let mut batch = server.space.command_batch(Mode::Device);
    let args = command.as_command();
    let (_, spec) = table().find(args.name()).unwrap();
    let reply = ReplyWriter::new(&mut output, session.protocol);
    let mut call = Call { args, batch: &mut batch, session: &mut session, server, reply };
    command::run(&mut call, spec)
}

/// The first key of all that leaves this store does so while the lock of another key of the command is waited for.
fn is_refused_a_key_that_leaves_meanwhile(is_queued: bool) {
    let dir = tempfile::tempdir().unwrap();
    let server = server(&dir, "yes");
    let space = &server.space;
    // In the order in which their locks are taken.
    let mut keys = ["a", "b", "c"].map(str::as_bytes);
    keys.sort_unstable_by_key(|key| xxh3_64_with_seed(key, 0) % (1 << 15));
    let [first, second, third] = keys;
    let mut holder = space.command_batch(Mode::Memory);
    holder.lock(0, std::iter::once(third)).unwrap();
    holder.put(0, third, b"value", &PutOptions::default()).unwrap();
    holder.commit().unwrap();
    holder.lock(0, std::iter::once(second)).unwrap();
    let mset = OwnedCommand::of(&[&b"MSET"[..], first, b"1", second, b"2", third, b"3"]);
    let outcome = thread::scope(|scope| {
        let waiting = scope.spawn(|| match is_queued {
            true => run_patiently(
                &OwnedCommand::of(&["EXEC"]),
                &server,
                queued(std::slice::from_ref(&mset)),
            ),
            false => run_patiently(&mset, &server, None),
        });
        let mut other = space.command_batch(Mode::Memory);
        while other.lock(0, std::iter::once(first)).is_ok() {
            other.abandon();
            thread::yield_now();
        }
        let (key, id) = ([DbKey::new(0, third)], MoveId { epoch: Epoch(1), number: 1 });
        let begun = space.begin_move(ShardId(1), id, Direction::Out, ShardId(2), &key).unwrap();
        assert_eq!(begun, [Ok(())]);
        space.export_home(id, &key, 1 << 20).unwrap().unwrap();
        holder.abandon();
        waiting.join().unwrap()
    });
    assert!(matches!(outcome, Err(Failure::Moved)), "{outcome:?}");
}

#[test]
fn a_command_is_refused_a_key_that_leaves_while_it_waits_for_another_one() {
    is_refused_a_key_that_leaves_meanwhile(false);
}

#[test]
fn a_transaction_is_refused_a_key_that_leaves_while_it_waits_for_another_one() {
    is_refused_a_key_that_leaves_meanwhile(true);
}
