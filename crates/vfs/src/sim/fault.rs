//! Faults that a [`super::SimVfs`] injects: which operation, what happens, once or for ever.

/// What a file-system operation is, for choosing the ones a fault applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpClass {
    /// Opening a file, listing a directory, asking for a length or for existence.
    Open,
    /// Reading from a file.
    Read,
    /// Creating a file or directory, taking a lock.
    Create,
    /// Appending to a file, finishing or cutting one.
    Append,
    /// Syncing a file.
    Sync,
    /// Syncing a directory.
    SyncDir,
    /// Renaming a file.
    Rename,
    /// Removing a file.
    Remove,
    /// Giving a file a second name.
    Link,
}

/// What happens to the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// It fails with an input/output error and changes nothing.
    Eio,
    /// It fails because the device is full. Operations that need no room are not affected.
    Enospc,
    /// An append writes a part of its bytes, then fails with an input/output error; a read
    /// fails. Other operations are not affected.
    ShortWrite,
    /// It is interrupted and retried inside: no error, the fault only counts as executed.
    Eintr,
    /// A sync (of a file or directory) fails; what is durable is unknown. Other operations are
    /// not affected.
    SyncFails,
    /// The process has no descriptor left (`EMFILE`): what opens, creates or lists fails and does
    /// nothing, and so does a sync of a directory, which has to be opened for it.
    NoDescriptors,
}

/// A fault to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The first operation (as counted by [`super::SimVfs::op_count`]) that may fail. The fault
    /// strikes the first operation from there on that it applies to.
    pub at_op: u64,
    /// What happens.
    pub kind: FaultKind,
    /// Whether it strikes every such operation from then on, or one.
    pub forever: bool,
    /// Restricts the fault to one class of operations.
    pub filter: Option<OpClass>,
}

impl Fault {
    /// Whether it strikes operations of `class`.
    pub(super) fn applies_to(&self, class: OpClass) -> bool {
        use OpClass::{Append, Create, Link, Open, Read, Rename, Sync, SyncDir};
        let affected = match self.kind {
            FaultKind::Eio | FaultKind::Eintr => true,
            FaultKind::Enospc => matches!(class, Create | Append | Sync | Rename | Link),
            FaultKind::ShortWrite => matches!(class, Append | Read),
            FaultKind::SyncFails => matches!(class, Sync | SyncDir),
            FaultKind::NoDescriptors => matches!(class, Open | Create | SyncDir),
        };
        affected && self.filter.is_none_or(|wanted| wanted == class)
    }
}
