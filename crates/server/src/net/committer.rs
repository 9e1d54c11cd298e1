//! A thread that commits batches whose commit may wait for the device, so that the loop goes on serving the
//! clients that have no command in them.

use super::loop_handle::{BatchCommit, Committed, LoopHandle};
use super::thread;
use crate::dispatch;
use crate::server::Server;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

/// The committer of a loop. Ends when it is dropped, after what it was given.
pub(crate) struct Committer {
    batches: Option<Sender<BatchCommit>>,
    thread: Option<JoinHandle<()>>,
}

impl Committer {
    /// Starts one for the loop `home`, to which every committed batch is sent back.
    pub fn start(server: Arc<Server>, home: Arc<LoopHandle>, name: String) -> io::Result<Self> {
        let (sender, batches) = mpsc::channel();
        let thread = thread::spawn(name, move || commit_all(&batches, &server, &home))?;
        Ok(Self { batches: Some(sender), thread: Some(thread) })
    }

    /// Gives it a batch; comes back if there is nobody to take it.
    pub fn send(&self, commit: BatchCommit) -> Result<(), BatchCommit> {
        match &self.batches {
            Some(batches) => batches.send(commit).map_err(|refused| refused.0),
            None => Err(commit),
        }
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

fn commit_all(batches: &Receiver<BatchCommit>, server: &Server, home: &LoopHandle) {
    for mut commit in batches {
        let error = dispatch::commit(&mut commit.batch, server).err();
        home.committed(Committed { commit, error });
    }
}
