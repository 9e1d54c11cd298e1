//! What a leader holds while it writes for others, so that a panic below it (of a file system that the program has given, or a
//! fault of this one) leaves nobody waiting: the store takes no more writes, and who waits gets the reason. Called by the commit, and
//! by who syncs the log beside it.

use crate::env::BaseEnv;
use crate::error::{Error, Result};
use crate::write::env::CommitEnv;
use crate::write::queue::{InsertTurn, LogState, Waiter, WriteQueue};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use terrace_base::caught::message_of;

/// The queue of writers over `log`. Who leads without a batch, for a checkpoint or a sync say, may panic between two changes that
/// belong together: records that the kernel has would be handed over once more. Then the store is poisoned before another one leads.
pub(crate) fn queue(log: LogState, base: Arc<BaseEnv>) -> WriteQueue {
    WriteQueue::new(log, move || {
        // The leader of a group has said more.
        if base.health.is_poisoned() || base.health.is_closed() {
            return;
        }
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("of the program");
        let why =
            io::Error::other(format!("the thread {name} panicked while others waited to write"));
        let error = terrace_base::Error::io("write to", &base.dir, why);
        base.health.poison("write to the log", error);
    })
}

/// Outlives a panic of the leader.
#[derive(Default)]
pub(crate) struct Held<'q> {
    /// The turn to insert. What a panic has left half inserted is found by nobody before the store takes no more writes.
    pub turn: Option<InsertTurn<'q>>,
    /// The writers whose batches the leader has, as far as they do not know yet what became of them; none for its own.
    pub waiters: Vec<Option<Arc<Waiter>>>,
}

impl Held<'_> {
    /// Tells all who wait how it went.
    pub fn tell(&mut self, result: &Result<()>) {
        for waiter in self.waiters.drain(..).flatten() {
            waiter.done(result.clone());
        }
    }
}

/// Does the work of a leader. Of one that panics it is unknown what of its group is in the log, in the memtables and on the
/// device: the store is poisoned, the others of the group get the error, and the panic goes on.
pub(crate) fn or_poison<'q>(
    env: &CommitEnv,
    work: impl FnOnce(&mut Held<'q>) -> Result<()>,
) -> Result<()> {
    let mut held = Held::default();
    let done = catch_unwind(AssertUnwindSafe(|| work(&mut held)));
    done.unwrap_or_else(|panic| {
        let said = message_of(panic);
        let error = poison(env, "wrote for a group of writers", &said);
        if let Some(turn) = &mut held.turn {
            // A group that is in the log already waits for it.
            turn.state.failed = true;
        }
        held.tell(&Err(error));
        drop(held);
        resume_unwind(Box::new(said))
    })
}

/// Does `work`, a sync without the lead. Of one that panics it is unknown what the device has, as of one that fails: the store is
/// poisoned before another thread may sync, and the panic goes on.
pub(crate) fn sync_or_poison<T>(env: &CommitEnv, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = message_of(panic);
        poison(env, "synced the log", &said);
        resume_unwind(Box::new(said))
    })
}

/// What the thread did that panicked is `doing`.
#[cold]
fn poison(env: &CommitEnv, doing: &str, said: &str) -> Error {
    let why = format!("the thread that {doing} panicked: {said}");
    let error = terrace_base::Error::io("write to", &env.base.dir, io::Error::other(why));
    env.base.health.poison("write to the log", error)
}
