//! Commands whose keys are found to have left when their locks are held.

use super::*;
use crate::config::Config;
use crate::session::{ConnectionCloser, Origin, Queued};
use crate::settle::UnderWay;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use terrace_keyspace::Keyspace;

struct Nobody;

impl ConnectionCloser for Nobody {
    fn end(&self, _: usize, _: u64, _: UnderWay) {}
    fn settle(&self, _: usize, _: u64, _: UnderWay) {}
    fn settled(&self, _: usize, _: u64) {}
}

#[test]
fn a_transaction_gives_its_locks_back_before_it_executes_something_aside() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::load(None, [], []).unwrap();
    let space = Keyspace::open(dir.path(), config.settings().engine_options()).unwrap();
    let server = Server::new(space, config).unwrap();
    let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let origin =
        Origin { peer: here, local: here, is_tls: false, home: Arc::new(Nobody), token: 0 };
    let info = server.clients.describe(origin, server.space.now_ms());
    let mut session = Session::of(info, None);
    let commands = [&["GET", "k"][..], &["CLIENT", "GETNAME"]].map(OwnedCommand::of);
    session.queued = Some(Queued { commands: commands.to_vec(), ..Queued::default() });

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
