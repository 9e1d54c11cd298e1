//! What the parts of a node share.

use crate::config::NodeConfig;
use crate::directory::{Directory, Layout};
use crate::gate::{Gate, Token};
use crate::part::Part;
use crate::part_check::PartCheck;
use crate::passing::Passing;
use crate::rpc::{MoveMessage, Peer, ShardRecords, TopCounts};
use crate::stamp::LeaseStamp;
use crate::store::{InstanceStore, StoreError, StoreLoad};
use crate::too_far::TooFar;
use crate::vain_wait::VainWait;
use crate::view::View;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};
use terrace_cluster::{
    CommandExecutor, DbKey, Epoch, MoveAnswer, NodeId, Revision, ShardId, Site, Topology,
};
use terrace_keyspace::move_point;
use terrace_metadata::{LeaseId, Metadata};
use tokio::sync::{Notify, mpsc, watch};
use tonic::Status;

/// After a fence has failed, as on a full disk, calls begin no other one for this long.
const FENCE_AGAIN: Duration = Duration::from_millis(500);

/// By shard, what this node's instance knows of its owners.
pub(crate) type Epochs = HashMap<ShardId, Known>;

/// See [`Epochs`].
#[derive(Default)]
pub(crate) struct Known {
    epoch: Epoch,
    /// Since the epoch became known: closed when no call of an earlier owner is under way any more.
    drain: Option<watch::Receiver<()>>,
}

impl Known {
    fn is_draining(&self) -> bool {
        self.drain.as_ref().is_some_and(|drain| drain.has_changed().is_ok())
    }
}

/// What became of a fence.
enum Raised {
    /// Its epoch is known from now on.
    New,
    /// This is the latest epoch, and was before. With the drain that began then, if the fence is of the same one.
    Known(Epoch, Option<watch::Receiver<()>>),
}

/// Whether a call may use the store in the name of a shard.
pub(crate) enum Admission {
    /// While the token lives.
    Entered(Token),
    /// Not before a fence has made its epoch known, and has had the store remember its part.
    RaiseFirst,
    /// Not before the calls of earlier owners are gone: a fence waits for that.
    Draining,
    /// Never: a later epoch is known.
    Deposed,
    /// Not as long as the metadata give the store another part than it has.
    Refused,
}

pub(crate) struct Shared {
    pub me: NodeId,
    pub config: NodeConfig,
    pub rpc_address: String,
    pub layout: Layout,
    pub metadata: Arc<dyn Metadata>,
    pub store: Arc<dyn InstanceStore>,
    pub part_check: PartCheck,
    pub executor: Arc<dyn CommandExecutor>,
    pub stamp: LeaseStamp,
    /// The lease, once there is one; changes when it is lost.
    pub lease: watch::Sender<Option<LeaseId>>,
    pub gate: Gate,
    /// Calls to instances in the name of shards that this node owns, until they are answered.
    pub calls: Gate,
    pub view: ArcSwap<View>,
    /// Sent after every change of the view.
    pub view_changed: watch::Sender<()>,
    /// Of the latest topology: grows before the view follows it.
    pub revision: AtomicU64,
    /// The same, after the view has followed.
    pub published: watch::Sender<Revision>,
    pub vain_wait: VainWait,
    pub directory: watch::Sender<Option<Arc<Directory>>>,
    /// Why the cluster is not joined, once that is certain.
    pub refusal: watch::Sender<Option<String>>,
    /// Asks for a fresh snapshot of the metadata.
    pub refresh: Notify,
    /// Terms of this node in which an instance refused a call; and the later epoch that it knows, if it said that.
    pub deposed: mpsc::UnboundedSender<(ShardId, Epoch, Option<Epoch>)>,
    /// Whose turn it is to make revisions, see `epochs`.
    pub passing: Passing,
    /// Shards of which an instance knows an epoch that is too far away, for people.
    pub too_far: Mutex<BTreeMap<ShardId, TooFar>>,
    pub is_draining: watch::Sender<bool>,
    pub leads_partitioner: AtomicBool,
    pub moved_keys: AtomicU64,
    /// Where calls are run that come from threads of others.
    pub runtime: tokio::runtime::Handle,
    pub epochs: Mutex<Epochs>,
    /// Held while an epoch becomes known.
    pub raising: Mutex<()>,
    /// Shards for which a call has begun a fence that is not over, or has just failed; the latest epoch of these.
    pub fencing: Mutex<BTreeMap<ShardId, Epoch>>,
    pub peers: Mutex<HashMap<NodeId, (String, Arc<Peer>)>>,
}

/// Does work that waits for the device on a thread for that.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(StoreError("the node is ending".into())))
}

impl Shared {
    /// The latest topology.
    pub fn topology(&self) -> Option<Arc<Topology>> {
        self.view.load().topology.clone()
    }

    /// Another node; `None` if it is not known.
    pub fn peer(&self, node: NodeId) -> Option<Arc<Peer>> {
        let topology = self.topology()?;
        self.peer_at(node, &topology.nodes.get(&node)?.rpc_address)
    }

    /// Another node at its address; `None` if that is none.
    pub fn peer_at(&self, node: NodeId, address: &str) -> Option<Arc<Peer>> {
        let mut peers = self.peers.lock();
        match peers.get(&node) {
            Some((known, peer)) if known == address => Some(peer.clone()),
            _ => {
                // Opened within the runtime: its links are tasks.
                let _in_runtime = self.runtime.enter();
                let (secret, links) = (&self.config.secret, &self.config.links);
                let peer = Arc::new(Peer::new(node, address, secret, links)?);
                peers.insert(node, (address.to_string(), peer.clone()));
                Some(peer)
            }
        }
    }

    /// The latest epoch of a shard that this node's instance knows.
    fn known<'e>(&self, epochs: &'e mut Epochs, shard: ShardId) -> Result<&'e Known, StoreError> {
        Ok(match epochs.entry(shard) {
            Entry::Occupied(known) => known.into_mut(),
            // What an earlier process did has ended with it.
            Entry::Vacant(new) => {
                new.insert(Known { epoch: self.store.epoch(shard)?, drain: None })
            }
        })
    }

    /// Enters the store in the name of a shard.
    pub fn admit(&self, shard: ShardId, epoch: Epoch) -> Result<Admission, StoreError> {
        if self.part_check.is_refused() {
            return Ok(Admission::Refused);
        }
        // The token is taken before the look: a fence that is not seen by the look waits for it.
        let token = self.gate.enter();
        let mut epochs = self.epochs.lock();
        let known = self.known(&mut epochs, shard)?;
        Ok(match epoch.cmp(&known.epoch) {
            Ordering::Less => Admission::Deposed,
            Ordering::Equal if known.is_draining() => Admission::Draining,
            Ordering::Equal if self.part_check.is_unsettled() => Admission::RaiseFirst,
            Ordering::Equal => Admission::Entered(token),
            Ordering::Greater => Admission::RaiseFirst,
        })
    }

    /// As [`Self::admit`], but lets the epoch become known first, if it is not: `None` if a later one is.
    async fn enter(
        self: &Arc<Self>,
        shard: ShardId,
        epoch: Epoch,
    ) -> Result<Option<Token>, StoreError> {
        loop {
            match self.admit(shard, epoch)? {
                Admission::Entered(token) => return Ok(Some(token)),
                Admission::Deposed => return Ok(None),
                Admission::Refused => {
                    return Err(StoreError(self.part_check.refusal().unwrap_or_default()));
                }
                // The one that drains is joined.
                Admission::RaiseFirst | Admission::Draining => {
                    _ = self.fence(shard, epoch).await?;
                }
            }
        }
    }

    /// See [`Roles::fence`](crate::rpc::Roles::fence). Goes on if the caller gives it up.
    pub async fn fence(
        self: &Arc<Self>,
        shard: ShardId,
        epoch: Epoch,
    ) -> Result<Epoch, StoreError> {
        let this = self.clone();
        let fenced = self.runtime.spawn(async move { this.raise(shard, epoch).await });
        fenced.await.unwrap_or_else(|_| Err(StoreError("the node is ending".into())))
    }

    /// Begins a fence for a call that comes again, unless there is one of its shard and this epoch or a later one: many
    /// calls come, and often.
    pub fn begin_fence(self: &Arc<Self>, shard: ShardId, epoch: Epoch) {
        {
            let mut fencing = self.fencing.lock();
            if fencing.get(&shard).is_some_and(|begun| epoch <= *begun) {
                return;
            }
            fencing.insert(shard, epoch);
        }
        let this = self.clone();
        self.runtime.spawn(async move {
            if let Err(error) = this.fence(shard, epoch).await {
                tracing::warn!("epoch {epoch} of shard {shard} is not known here: {error}");
                tokio::time::sleep(FENCE_AGAIN).await;
            }
            let mut fencing = this.fencing.lock();
            if fencing.get(&shard) == Some(&epoch) {
                fencing.remove(&shard);
            }
        });
    }

    /// Makes an epoch known and drains the calls of earlier owners; if it is known already, waits for the drain that
    /// began then. A drain for each call that comes again would never end: calls of its own epoch enter the gate, too.
    async fn raise(self: &Arc<Self>, shard: ShardId, epoch: Epoch) -> Result<Epoch, StoreError> {
        let this = self.clone();
        let (drained, drain) = watch::channel(());
        let raised = blocking(move || {
            let _one_at_a_time = this.raising.lock();
            this.part_check.settle(|part| match this.store.stray_key(part)? {
                Some(stray) => Ok(Some(stray)),
                None => this.store.set_part(part).map(|()| None),
            })?;
            {
                let mut epochs = this.epochs.lock();
                let known = this.known(&mut epochs, shard)?;
                if epoch <= known.epoch {
                    let drain = known.drain.clone().filter(|_| epoch == known.epoch);
                    return Ok(Raised::Known(known.epoch, drain));
                }
            }
            // It may wait for a sync: calls of the earlier owner still enter meanwhile, and are drained below.
            this.store.set_epoch(shard, epoch)?;
            this.epochs.lock().insert(shard, Known { epoch, drain: Some(drain) });
            Ok(Raised::New)
        });
        match raised.await? {
            Raised::New => {
                // If this node served the shard in an earlier term, it does not any more.
                self.forget_shard(shard, |owned| owned < epoch);
                self.gate.drain().await;
                drop(drained);
                Ok(epoch)
            }
            Raised::Known(known, drain) => {
                if let Some(mut drain) = drain {
                    // Nothing is ever sent: it ends when the sender is gone.
                    while drain.changed().await.is_ok() {}
                }
                Ok(known)
            }
        }
    }

    /// Serves a shard no more, if its epoch is meant.
    pub fn forget_shard(&self, shard: ShardId, is_meant: impl Fn(Epoch) -> bool) {
        self.change_view(|view| {
            if view.owned.get(&shard).is_some_and(|owned| is_meant(owned.epoch)) {
                view.owned.remove(&shard);
            }
        });
    }

    /// Changes what routes are made of. `change` may be called several times.
    pub fn change_view(&self, change: impl Fn(&mut View)) {
        self.view.rcu(|view| {
            let mut view = View::clone(view);
            change(&mut view);
            view.note_vacant(self.me, Instant::now());
            view
        });
        self.view_changed.send_replace(());
    }

    /// Waits until commands on a shard do not wait for an owner any more.
    pub async fn wait_until_served(&self, shard: ShardId) {
        let mut changed = self.view_changed.subscribe();
        loop {
            let left = self.view.load().changes_for(shard, self.config.hand_over);
            let Some(left) = left else { return };
            let _either_way = tokio::time::timeout(left, changed.changed()).await;
        }
    }

    /// The shard's records, for its owner.
    pub async fn records(
        self: &Arc<Self>,
        shard: ShardId,
        epoch: Epoch,
    ) -> Result<ShardRecords, Status> {
        let internal = |error: StoreError| Status::internal(error.to_string());
        let token = self.enter(shard, epoch).await.map_err(internal)?;
        let deposed = || Status::failed_precondition("a later epoch is known");
        let (token, store) = (token.ok_or_else(deposed)?, self.store.clone());
        let topology = self.topology();
        let topology = topology.ok_or_else(|| Status::unavailable("there is no topology yet"))?;
        let records = blocking(move || {
            let records = store.records();
            drop(token);
            records
        });
        let mut records = records.await.map_err(internal)?;
        let is_of_shard = |key: &DbKey| topology.shard_of(&key.key) == shard;
        records.exceptions.retain(|(key, _)| is_of_shard(key));
        records.intents.retain(|(key, _)| is_of_shard(key));
        records.copies.retain(|(key, _)| is_of_shard(key));
        Ok(records)
    }

    /// Whether this node's instance is the one that does a step of a move; not if no topology is known. The instance
    /// of a shard never changes, so one that is known is right.
    fn is_for_me(&self, message: &MoveMessage) -> bool {
        let Some(topology) = self.topology() else { return false };
        let shard = match message.call.site(message.direction) {
            Site::Home => message.shard,
            Site::Other => message.other,
        };
        let is_mine = topology.shards.get(&shard).is_some_and(|shard| shard.instance == self.me);
        if !is_mine {
            let step = message.call.name();
            tracing::warn!("a {step} that the instance of shard {shard} is to do came to this one");
        }
        is_mine
    }

    /// A step of a move at this node's instance. A failure of the store is no answer, and a step that another
    /// instance is to do has none.
    pub async fn apply_move(
        self: &Arc<Self>,
        message: MoveMessage,
        epoch: Epoch,
    ) -> MoveAnswer<Vec<u8>> {
        if !self.is_for_me(&message) {
            return MoveAnswer::Unknown;
        }
        let answer = async {
            let Some(token) = self.enter(message.shard, epoch).await? else {
                return Ok(MoveAnswer::Deposed);
            };
            let store = self.store.clone();
            let applied = move || {
                move_point("instance", message.call.name(), "received");
                let answer = store.apply_move(&message);
                move_point("instance", message.call.name(), "applied");
                drop(token);
                answer
            };
            blocking(applied).await
        };
        answer.await.unwrap_or_else(|error: StoreError| {
            tracing::warn!("a step of a move failed: {error}");
            MoveAnswer::Unknown
        })
    }

    /// A key of this node's store that would not be found in a cluster in which it has this part. One that remembers its part
    /// has none: it was looked at before.
    pub async fn stray_key(self: &Arc<Self>, part: Part) -> Result<Option<DbKey>, StoreError> {
        if self.part_check.known().is_some() {
            return Ok(None);
        }
        let store = self.store.clone();
        blocking(move || store.stray_key(&part)).await
    }

    /// What this node's store did since it was opened.
    pub async fn load(self: &Arc<Self>) -> StoreLoad {
        let store = self.store.clone();
        blocking(move || Ok(store.load())).await.unwrap_or_default()
    }

    /// What this node's instance counted.
    pub async fn top_counts(self: &Arc<Self>, keys: usize) -> Result<TopCounts, StoreError> {
        let store = self.store.clone();
        blocking(move || store.top_counts(keys)).await
    }

    /// A fence at a shard's instance, this node's or another's.
    pub async fn fence_at(
        self: &Arc<Self>,
        instance: NodeId,
        shard: ShardId,
        epoch: Epoch,
    ) -> Result<Epoch, Status> {
        if instance == self.me {
            return self.fence(shard, epoch).await.map_err(|e| Status::internal(e.to_string()));
        }
        self.known_peer(instance)?.fence(shard, epoch).await
    }

    /// The records of a shard at its instance.
    pub async fn records_at(
        self: &Arc<Self>,
        instance: NodeId,
        shard: ShardId,
        epoch: Epoch,
    ) -> Result<ShardRecords, Status> {
        match instance == self.me {
            true => self.records(shard, epoch).await,
            false => self.known_peer(instance)?.records(shard, epoch).await,
        }
    }

    /// A step of a move at an instance.
    pub async fn apply_move_at(
        self: &Arc<Self>,
        instance: NodeId,
        message: MoveMessage,
        epoch: Epoch,
    ) -> MoveAnswer<Vec<u8>> {
        if instance == self.me {
            return self.apply_move(message, epoch).await;
        }
        match self.known_peer(instance) {
            Ok(peer) => peer.apply_move(message, epoch).await,
            Err(_) => MoveAnswer::Unknown,
        }
    }

    /// Why shards are not served; `None` if nothing is known that keeps them from it.
    pub fn refusal_for_people(&self) -> Option<String> {
        let too_far = || self.too_far.lock().values().next().map(|it| it.why.clone());
        self.part_check.refusal().or_else(too_far)
    }

    /// Another node, or an error that names it.
    pub fn known_peer(&self, node: NodeId) -> Result<Arc<Peer>, Status> {
        self.peer(node).ok_or_else(|| Status::unavailable(format!("node {node} is not known")))
    }

    /// Whether the partitioner is led by this node.
    pub fn leads(&self) -> bool {
        self.leads_partitioner.load(atomic::Ordering::Relaxed)
    }
}
