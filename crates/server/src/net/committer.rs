//! A thread that commits turns which may have to wait for the device, while their loop goes on
//! with everybody who has no part in them.

use super::event_loop::LoopHandle;
use super::thread;
use crate::dispatch;
use crate::server::Server;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use terrace_keyspace::CommandBatch;

/// A turn, and who waits for it: tokens and ids.
pub(crate) struct Handed {
    pub turn: Box<CommandBatch>,
    pub clients: Vec<(usize, u64)>,
}

/// A turn that was committed, or not: then with what its clients are told.
pub(crate) struct Committed {
    pub handed: Handed,
    pub error: Option<String>,
}

/// The committer of a loop. Ends when it is dropped, after what it was given.
pub(crate) struct Committer {
    turns: Option<Sender<Handed>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    /// Starts one for the loop `home`, which hears of every turn.
    pub fn start(server: Arc<Server>, home: Arc<LoopHandle>, name: String) -> io::Result<Self> {
        let (sender, turns) = mpsc::channel();
        let thread = thread::spawn(name, move || commit_all(&turns, &server, &home))?;
        Ok(Self { turns: Some(sender), thread: Some(thread) })
    }

    /// Gives it a turn; comes back if there is nobody to take it.
    pub fn send(&self, handed: Handed) -> Result<(), Handed> {
        match &self.turns {
            Some(turns) => turns.send(handed).map_err(|refused| refused.0),
            None => Err(handed),
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.turns = None;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

fn commit_all(turns: &Receiver<Handed>, server: &Server, home: &LoopHandle) {
    for mut handed in turns {
        let error = dispatch::commit(&mut handed.turn, server).err();
        home.committed(Committed { handed, error });
    }
}
