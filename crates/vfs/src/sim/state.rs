//! The simulated device: a tree of nodes, what of it is durable, and the count of operations.
//!
//! A file node knows how many of its bytes have been synced. A directory node holds its entries
//! twice, as they are and as they were last synced, and the operations between the two in order,
//! so that a power cut can keep any plausible part of them. Removed nodes stay until no durable
//! state names them.

use super::content::Content;
use super::fault::{Fault, FaultKind, OpClass};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use terrace_base::SplitMix64;

pub(super) type NodeId = u64;
pub(super) type Name = Arc<str>;
pub(super) const ROOT: NodeId = 0;
/// One holds the lock, and nobody else may.
pub(super) const EXCLUSIVE: u64 = u64::MAX;

#[derive(Clone, Default)]
pub(super) struct FileNode {
    pub(super) content: Content,
    /// Ranges that reads report as damaged, ascending.
    pub(super) known_damage: Vec<Range<u64>>,
    /// Ranges that the device does not give.
    pub(super) unreadable: Vec<Range<u64>>,
    /// Bytes of `content` that survive a power cut.
    pub(super) synced_bytes: u64,
    /// Room reserved; what lies past `content` reads as zeros.
    pub(super) allocated_bytes: u64,
    /// The reservation as it was at the last sync.
    pub(super) synced_allocated_bytes: u64,
    /// Names in live directories.
    pub(super) links: u32,
    /// Open handles.
    pub(super) open: u32,
}

impl FileNode {
    pub(super) fn len(&self) -> u64 {
        self.content.len().max(self.allocated_bytes)
    }

    /// Fills `buf` from `offset` on; false if the file is shorter.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> bool {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.len()) {
            return false;
        }
        let done = self.content.read(offset, buf);
        buf[done..].fill(0);
        true
    }

    /// Whether the device gives none of `len` bytes at `offset`.
    pub(super) fn is_unreadable(&self, offset: u64, len: usize) -> bool {
        let end = offset.saturating_add(len as u64);
        self.unreadable.iter().any(|range| range.start < end && offset < range.end)
    }

    /// Cuts or replaces what lies past `offset` by `data`.
    pub(super) fn write_end(&mut self, offset: u64, data: &[u8]) {
        self.content.truncate(offset);
        self.content.append(data);
        self.synced_bytes = self.synced_bytes.min(offset);
    }
}

/// A change of a directory that is not durable yet.
#[derive(Clone)]
pub(super) enum DirOp {
    Put { name: Name, node: NodeId },
    Remove { name: Name },
    Rename { from: Name, to: Name, node: NodeId },
}

impl DirOp {
    pub(super) fn touches(&self, other: &DirOp) -> bool {
        let names = |op: &DirOp| match op {
            DirOp::Put { name, .. } | DirOp::Remove { name } => [name.clone(), name.clone()],
            DirOp::Rename { from, to, .. } => [from.clone(), to.clone()],
        };
        let theirs = names(other);
        names(self).iter().any(|name| theirs.contains(name))
    }

    pub(super) fn apply(&self, entries: &mut BTreeMap<Name, NodeId>) {
        match self {
            DirOp::Put { name, node } => {
                entries.insert(name.clone(), *node);
            }
            DirOp::Remove { name } => {
                entries.remove(name);
            }
            DirOp::Rename { from, to, node } => {
                entries.remove(from);
                entries.insert(to.clone(), *node);
            }
        }
    }
}

#[derive(Clone, Default)]
pub(super) struct DirNode {
    pub(super) live: BTreeMap<Name, NodeId>,
    pub(super) durable: Arc<BTreeMap<Name, NodeId>>,
    pub(super) pending: Vec<DirOp>,
}

impl DirNode {
    fn change(&mut self, op: DirOp) {
        op.apply(&mut self.live);
        self.pending.push(op);
    }

    pub(super) fn sync(&mut self) {
        if !self.pending.is_empty() {
            self.durable = Arc::new(self.live.clone());
            self.pending.clear();
        }
    }
}

#[derive(Clone)]
pub(super) enum Node {
    File(Arc<FileNode>),
    Dir(Arc<DirNode>),
}

/// Everything behind the lock of a `SimVfs`.
pub(super) struct State {
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) next_node: NodeId,
    /// Unlinked nodes that may still be open or named by durable state.
    pub(super) unlinked: Vec<NodeId>,
    /// How many hold the lock of a file, or [`EXCLUSIVE`].
    pub(super) locked: BTreeMap<NodeId, u64>,
    /// Whether paths are reported with a leading `/`: as the first one created was given.
    pub(super) absolute: Option<bool>,
    pub(super) op_count: u64,
    pub(super) power_cut_at: Option<u64>,
    pub(super) fault: Option<Fault>,
    pub(super) executed_faults: u64,
    pub(super) capacity_bytes: Option<u64>,
    /// Whether it says how much is free.
    pub(super) hides_room: bool,
    /// Whether room can be set aside for a file.
    pub(super) sets_aside: bool,
    /// Zeros go ahead of appends up to a multiple of this, in files that are created so.
    pub(super) zeros_step_bytes: Option<u64>,
    pub(super) rng: SplitMix64,
}

pub(super) fn error(kind: io::ErrorKind) -> io::Error {
    io::Error::from(kind)
}

/// What a failing device says.
pub(super) fn io_error() -> io::Error {
    rustix::io::Errno::IO.into()
}

/// The names that lead from the root to `path`.
fn steps(path: &Path) -> Vec<&str> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.extend(name.to_str()),
            Component::ParentDir => drop(names.pop()),
            _ => {}
        }
    }
    names
}

impl State {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            nodes: BTreeMap::from([(ROOT, Node::Dir(Arc::default()))]),
            next_node: ROOT + 1,
            unlinked: Vec::new(),
            locked: BTreeMap::new(),
            absolute: None,
            op_count: 0,
            power_cut_at: None,
            fault: None,
            executed_faults: 0,
            capacity_bytes: None,
            hides_room: false,
            sets_aside: true,
            zeros_step_bytes: None,
            rng: SplitMix64::new(seed),
        }
    }

    /// Counts an operation of `class` and lets it fail if it is to. `Ok(true)` for an append that
    /// must stop half way.
    pub(super) fn begin(&mut self, class: OpClass) -> io::Result<bool> {
        if self.power_cut_at.is_some_and(|op| self.op_count >= op) {
            return Err(io::Error::other("simulated power cut"));
        }
        let op = self.op_count;
        self.op_count += 1;
        let Some(fault) = self.fault else { return Ok(false) };
        if op < fault.at_op || !fault.applies_to(class) {
            return Ok(false);
        }
        if !fault.forever {
            self.fault = None;
        }
        self.executed_faults += 1;
        match fault.kind {
            FaultKind::Eintr => Ok(false),
            FaultKind::ShortWrite if class == OpClass::Append => Ok(true),
            FaultKind::Enospc => Err(error(io::ErrorKind::StorageFull)),
            FaultKind::NoDescriptors => Err(rustix::io::Errno::MFILE.into()),
            FaultKind::Eio | FaultKind::SyncFails | FaultKind::ShortWrite => Err(io_error()),
        }
    }

    pub(super) fn file(&self, id: NodeId) -> io::Result<&FileNode> {
        match self.nodes.get(&id) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(error(io::ErrorKind::IsADirectory)),
            None => Err(error(io::ErrorKind::NotFound)),
        }
    }

    pub(super) fn file_mut(&mut self, id: NodeId) -> io::Result<&mut FileNode> {
        match self.nodes.get_mut(&id) {
            Some(Node::File(file)) => Ok(Arc::make_mut(file)),
            Some(Node::Dir(_)) => Err(error(io::ErrorKind::IsADirectory)),
            None => Err(error(io::ErrorKind::NotFound)),
        }
    }

    pub(super) fn dir(&self, id: NodeId) -> io::Result<&DirNode> {
        match self.nodes.get(&id) {
            Some(Node::Dir(dir)) => Ok(dir),
            Some(Node::File(_)) => Err(error(io::ErrorKind::NotADirectory)),
            None => Err(error(io::ErrorKind::NotFound)),
        }
    }

    /// The names in a directory of what is `wanted`.
    pub(super) fn names(&self, dir: &Path, wanted: fn(&Node) -> bool) -> io::Result<Vec<String>> {
        let entries = &self.dir(self.find(dir)?)?.live;
        let is_wanted = |id| self.nodes.get(id).is_some_and(wanted);
        let entries = entries.iter().filter(|(_, id)| is_wanted(*id));
        Ok(entries.map(|(name, _)| name.to_string()).collect())
    }

    pub(super) fn dir_mut(&mut self, id: NodeId) -> io::Result<&mut DirNode> {
        match self.nodes.get_mut(&id) {
            Some(Node::Dir(dir)) => Ok(Arc::make_mut(dir)),
            Some(Node::File(_)) => Err(error(io::ErrorKind::NotADirectory)),
            None => Err(error(io::ErrorKind::NotFound)),
        }
    }

    fn walk(&self, names: &[&str]) -> io::Result<NodeId> {
        names.iter().try_fold(ROOT, |at, name| {
            self.dir(at)?.live.get(*name).copied().ok_or_else(|| error(io::ErrorKind::NotFound))
        })
    }

    /// The node that `path` names.
    pub(super) fn find(&self, path: &Path) -> io::Result<NodeId> {
        self.walk(&steps(path))
    }

    /// The directory in which `path` is or would be an entry, and the entry's name.
    fn entry(&self, path: &Path) -> io::Result<(NodeId, Name)> {
        let names = steps(path);
        let (last, parents) =
            names.split_last().ok_or_else(|| error(io::ErrorKind::InvalidInput))?;
        let parent = self.walk(parents)?;
        self.dir(parent)?;
        Ok((parent, Name::from(*last)))
    }

    fn note_form(&mut self, path: &Path) {
        self.absolute.get_or_insert(path.is_absolute());
    }

    fn add(&mut self, node: Node) -> NodeId {
        let id = self.next_node;
        self.next_node += 1;
        self.nodes.insert(id, node);
        id
    }

    pub(super) fn create_file(&mut self, path: &Path) -> io::Result<NodeId> {
        let (parent, name) = self.entry(path)?;
        if self.dir(parent)?.live.contains_key(&name) {
            return Err(error(io::ErrorKind::AlreadyExists));
        }
        self.note_form(path);
        let node = self.add(Node::File(Arc::new(FileNode { links: 1, ..FileNode::default() })));
        self.dir_mut(parent)?.change(DirOp::Put { name, node });
        Ok(node)
    }

    /// Creates what is missing on the way to the directory `path`, durably.
    pub(super) fn create_dirs(&mut self, path: &Path) -> io::Result<()> {
        self.note_form(path);
        let mut at = ROOT;
        for name in steps(path) {
            at = match self.dir(at)?.live.get(name) {
                Some(child) => *child,
                None => {
                    let node = self.add(Node::Dir(Arc::default()));
                    let dir = self.dir_mut(at)?;
                    dir.change(DirOp::Put { name: Name::from(name), node });
                    dir.sync();
                    node
                }
            };
        }
        self.dir(at).map(|_| ())
    }

    fn unlink(&mut self, id: NodeId) {
        if let Ok(file) = self.file_mut(id) {
            file.links -= 1;
        }
        self.unlinked.push(id);
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let (parent, name) = self.entry(path)?;
        let id = self.find(path)?;
        if self.dir(id).is_ok_and(|dir| !dir.live.is_empty()) {
            return Err(error(io::ErrorKind::DirectoryNotEmpty));
        }
        self.dir_mut(parent)?.change(DirOp::Remove { name });
        self.unlink(id);
        Ok(())
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.find(from)?;
        let (parent, name) = self.entry(to)?;
        if self.dir(parent)?.live.contains_key(&name) {
            return Err(error(io::ErrorKind::AlreadyExists));
        }
        self.file_mut(node)?.links += 1;
        self.dir_mut(parent)?.change(DirOp::Put { name, node });
        Ok(())
    }

    /// A rename between directories is durable at once: both are synced with it. Losing it would
    /// need both directories to agree on the loss, and nothing here renames that way.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let node = self.find(from)?;
        let (from_dir, from_name) = self.entry(from)?;
        let (to_dir, to_name) = self.entry(to)?;
        let replaced = self.dir(to_dir)?.live.get(&to_name).copied();
        if replaced == Some(node) {
            return Ok(());
        }
        if let Some(id) = replaced {
            // A directory may take the place of an empty one, and of nothing else.
            let fits = match (self.dir(node), self.dir(id)) {
                (Ok(_), Ok(other)) => other.live.is_empty(),
                (from, to) => from.is_err() && to.is_err(),
            };
            if !fits {
                return Err(error(io::ErrorKind::AlreadyExists));
            }
        }
        if from_dir == to_dir {
            let op = DirOp::Rename { from: from_name, to: to_name, node };
            self.dir_mut(from_dir)?.change(op);
        } else {
            let source = self.dir_mut(from_dir)?;
            source.change(DirOp::Remove { name: from_name });
            source.sync();
            let target = self.dir_mut(to_dir)?;
            target.change(DirOp::Put { name: to_name, node });
            target.sync();
        }
        if let Some(replaced) = replaced {
            self.unlink(replaced);
        }
        Ok(())
    }

    /// Drops the nodes that neither a name, a handle nor durable state refers to.
    pub(super) fn collect(&mut self) {
        if self.unlinked.is_empty() {
            return;
        }
        let mut named = BTreeSet::new();
        for node in self.nodes.values() {
            if let Node::Dir(dir) = node {
                named.extend(dir.live.values());
                named.extend(dir.durable.values());
                named.extend(dir.pending.iter().filter_map(|op| match op {
                    DirOp::Put { node, .. } | DirOp::Rename { node, .. } => Some(*node),
                    DirOp::Remove { .. } => None,
                }));
            }
        }
        let mut unlinked = std::mem::take(&mut self.unlinked);
        unlinked.retain(|id| {
            let open = self.file(*id).is_ok_and(|file| file.open > 0);
            if !open && !named.contains(id) {
                self.nodes.remove(id);
            }
            self.nodes.contains_key(id)
        });
        self.unlinked = unlinked;
    }

    /// Bytes that may still be written.
    pub(super) fn free_bytes(&self) -> u64 {
        let Some(capacity) = self.capacity_bytes else { return 1 << 40 };
        let used: u64 = self
            .nodes
            .values()
            .map(|node| match node {
                Node::File(file) if file.links > 0 || file.open > 0 => file.len(),
                _ => 0,
            })
            .sum();
        capacity.saturating_sub(used)
    }

    /// Every file below `dir` (whose path is `at`), in order of name.
    pub(super) fn collect_files(&self, dir: NodeId, at: &Path, out: &mut Vec<(PathBuf, u64)>) {
        let Ok(entries) = self.dir(dir) else { return };
        for (name, id) in &entries.live {
            let path = at.join(&**name);
            match self.nodes.get(id) {
                Some(Node::File(file)) => out.push((path, file.len())),
                Some(Node::Dir(_)) => self.collect_files(*id, &path, out),
                None => {}
            }
        }
    }
}
