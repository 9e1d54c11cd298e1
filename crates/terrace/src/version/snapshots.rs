//! Live snapshots: the sequence numbers at which reads may still come. A snapshot of a read-only
//! store also holds what it reads, since the writer knows nothing of it.

use crate::error::{Error, Result};
use crate::values::value_log::SegmentMap;
use crate::version::read_state::ReadState;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_base::sync::{Condvar, Mutex};
use terrace_base::{AtomicSeqNo, SeqNo};

/// The sequence numbers of live snapshots with their counts.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    live: Mutex<Live>,
    /// Signalled when a seal ends.
    unsealed: Condvar,
}

#[derive(Debug, Default)]
struct Live {
    counts: BTreeMap<SeqNo, usize>,
    /// Seals that are held: no snapshot is taken meanwhile.
    seals: usize,
}

/// Keeps snapshots from being taken until it is dropped.
pub(crate) struct Sealed<'a>(&'a Snapshots);

impl Drop for Sealed<'_> {
    fn drop(&mut self) {
        self.0.live.lock().seals -= 1;
        self.0.unsealed.notify_all();
    }
}

/// All families of a read-only store between two refreshes.
pub(crate) struct View {
    /// By id of the family.
    pub states: BTreeMap<u32, Arc<ReadState>>,
    /// What there is of a family that was created later: nothing.
    pub nothing: Option<Arc<ReadState>>,
    /// Where the separated values lie that the states refer to.
    pub segments: Arc<SegmentMap>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

impl Snapshots {
    /// Registers a snapshot of what is visible now. The number is read under the lock, so that a
    /// job that lists the snapshots either sees this one or started when everything it merges
    /// was already visible to it.
    pub fn take(self: &Arc<Self>, visible_seqno: &AtomicSeqNo) -> Snapshot {
        self.take_of(visible_seqno, None)
    }

    /// As [`Self::take`], of a read-only store that shows `view`.
    pub fn take_of(self: &Arc<Self>, visible_seqno: &AtomicSeqNo, view: Option<View>) -> Snapshot {
        let mut live = self.live.lock();
        while live.seals > 0 {
            self.unsealed.wait(&mut live);
        }
        // Acquire: pairs with the commit's Release, so that the writes up to it are readable.
        let seqno = visible_seqno.load(Ordering::Acquire);
        *live.counts.entry(seqno).or_default() += 1;
        Snapshot { held: Arc::new(Held { seqno, snapshots: self.clone(), view }) }
    }

    /// The snapshot, if there is one.
    ///
    /// # Errors
    /// `InvalidArgument` if it is a snapshot of another store.
    pub fn check<'a>(
        self: &Arc<Self>,
        snapshot: Option<&'a Snapshot>,
    ) -> Result<Option<&'a Snapshot>> {
        match snapshot {
            None => Ok(None),
            Some(snapshot) if snapshot.is_of(self) => Ok(Some(snapshot)),
            Some(_) => Err(Error::InvalidArgument("the snapshot is of another store".into())),
        }
    }

    /// The live sequence numbers, ascending.
    pub fn list(&self) -> Vec<SeqNo> {
        self.live.lock().counts.keys().copied().collect()
    }

    /// The oldest live sequence number.
    pub fn oldest(&self) -> Option<SeqNo> {
        self.live.lock().counts.keys().next().copied()
    }

    /// Lets no snapshot be taken until the seal is dropped, which must be soon; `None` if one lives that is not
    /// in `known`, an earlier [`Self::list`]. For a change of what reads see that is no write: of a snapshot that is
    /// taken before it, what is in `known` says which versions must stay, and one that is taken after it sees it.
    pub fn seal_unless_taken(&self, known: &[SeqNo]) -> Option<Sealed<'_>> {
        let mut live = self.live.lock();
        if live.counts.keys().any(|seqno| known.binary_search(seqno).is_err()) {
            return None;
        }
        live.seals += 1;
        Some(Sealed(self))
    }
}

#[derive(Debug)]
struct Held {
    seqno: SeqNo,
    snapshots: Arc<Snapshots>,
    view: Option<View>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut live = self.snapshots.live.lock();
        if let Some(count) = live.counts.get_mut(&self.seqno) {
            *count -= 1;
            if *count == 0 {
                live.counts.remove(&self.seqno);
            }
        }
    }
}

/// A consistent view of the whole store at one moment; reads at it see nothing written later.
/// Cheap to clone; released when the last clone is dropped. While it lives, compaction keeps the
/// versions it sees. One of a read-only store keeps the files it reads, whatever is refreshed.
///
/// ```
/// # fn main() -> terrace::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("terrace-doc-snap-{}", std::process::id()));
/// # let db = terrace::Db::open(&dir, terrace::Options::default())?;
/// db.put(b"k", b"old")?;
/// let before = db.snapshot();
/// db.put(b"k", b"new")?;
/// let options = terrace::ReadOptions { snapshot: Some(before), ..Default::default() };
/// assert_eq!(db.get_with(b"k", &options)?.as_deref(), Some(&b"old"[..]));
/// # db.close()?;
/// # std::fs::remove_dir_all(&dir).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Snapshot {
    held: Arc<Held>,
}

impl Snapshot {
    /// The sequence number of the last write that the snapshot sees. What came later is
    /// [`Db::updates_since`](crate::Db::updates_since) the number after it.
    pub fn sequence_number(&self) -> u64 {
        self.held.seqno.get()
    }

    /// The sequence number the snapshot reads at.
    pub(crate) fn seqno(&self) -> SeqNo {
        self.held.seqno
    }

    /// What reads of family `id` at the snapshot see, and where their values lie, if the snapshot
    /// holds that itself: in a read-only store.
    pub(crate) fn view_of(&self, id: u32) -> Option<(&Arc<ReadState>, &Arc<SegmentMap>)> {
        let view = self.held.view.as_ref()?;
        Some((view.states.get(&id).or(view.nothing.as_ref())?, &view.segments))
    }

    /// Whether it is a snapshot of the store with these `snapshots`.
    pub(crate) fn is_of(&self, snapshots: &Arc<Snapshots>) -> bool {
        Arc::ptr_eq(&self.held.snapshots, snapshots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_lives_as_long_as_its_last_clone() {
        let snapshots = Arc::new(Snapshots::default());
        let visible = AtomicSeqNo::new(SeqNo::new(5));
        let a = snapshots.take(&visible);
        let b = snapshots.take(&visible);
        visible.store(SeqNo::new(9), Ordering::Release);
        let c = snapshots.take(&visible);
        assert_eq!(snapshots.list(), [5, 9].map(SeqNo::new));
        let d = a.clone();
        drop((a, b));
        assert_eq!(snapshots.oldest(), Some(SeqNo::new(5)));
        drop(d);
        assert_eq!(snapshots.list(), [SeqNo::new(9)]);
        drop(c);
        assert_eq!(snapshots.oldest(), None);
    }

    #[test]
    fn no_snapshot_is_taken_while_they_are_sealed() {
        let snapshots = Arc::new(Snapshots::default());
        let visible = Arc::new(AtomicSeqNo::new(SeqNo::new(5)));
        let known = snapshots.take(&visible);
        let listed = snapshots.list();
        visible.store(SeqNo::new(6), Ordering::Release);
        let unknown = snapshots.take(&visible);
        assert!(snapshots.seal_unless_taken(&listed).is_none());
        drop(unknown);
        let sealed = snapshots.seal_unless_taken(&listed).unwrap();
        // Another job may seal beside it, and snapshots may go.
        drop(snapshots.seal_unless_taken(&listed).unwrap());
        drop(known);
        let (begun, begins) = std::sync::mpsc::channel();
        let taker = std::thread::spawn({
            let (snapshots, visible) = (snapshots.clone(), visible.clone());
            move || {
                begun.send(()).unwrap();
                snapshots.take(&visible).seqno()
            }
        });
        begins.recv().unwrap();
        assert!(snapshots.list().is_empty());
        visible.store(SeqNo::new(7), Ordering::Release);
        drop(sealed);
        assert_eq!(taker.join().unwrap(), SeqNo::new(7));
    }
}
