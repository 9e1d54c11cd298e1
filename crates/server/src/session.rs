//! What a server knows of one client, and of all of them.

use crate::acl::User;
use crate::cluster::{AdminSlot, Unit};
use crate::round::Round;
use crate::settle::{Settling, UnderWay};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use terrace_cluster::ShardId;
use terrace_keyspace::Watch;
use terrace_resp::{OwnedCommand, Protocol};

/// What a client may queue and watch for a transaction, in bytes of memory.
pub(crate) const MAX_TRANSACTION_BYTES: usize = 64 << 20;

/// Who a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Caller {
    /// A client.
    #[default]
    Client,
    /// This node, in the name of one of its clients: a command that had to be routed again.
    Again,
    /// Another node, to whose mind this one owns the shards of the keys.
    Owner,
    /// The page, in the name of a user: a command that only reads.
    Page,
    /// An owner, to whose mind the keys are in this node's store: nothing is routed.
    Instance,
}

/// One client's state. It goes with a command that is executed on another thread, and comes back
/// with the reply.
#[derive(Clone)]
pub struct Session {
    /// Unique and growing.
    pub id: u64,
    /// What others may see of it.
    pub info: Arc<ClientInfo>,
    /// The selected database.
    pub db: u8,
    /// What replies are written in.
    pub protocol: Protocol,
    /// Who it is; `None` until it has authenticated.
    pub user: Option<Arc<User>>,
    /// The state of the users that `user` was seen in.
    pub generation: u64,
    /// The parser is to follow: it has authenticated, and the full limits hold from now on, or it has to once more.
    pub login_changed: bool,
    /// Queued since `MULTI`.
    pub queued: Option<Queued>,
    /// What it executes now was queued.
    pub is_in_exec: bool,
    /// The keys it watches.
    pub watched: Option<Arc<Watch>>,
    /// `CLIENT REPLY`.
    pub replies: Replies,
    /// Whether the connection ends after this reply.
    pub closes: bool,
    /// Who it is for, in a cluster.
    pub caller: Caller,
    /// Of a call: the shard that the current command is for as a whole.
    pub shard: Option<ShardId>,
    /// Of an owner's call: its keys are those of another store's shard, and were brought here.
    pub at_copy: bool,
    /// Of a call: something was not executed, since it belongs to another owner. Then nothing is that comes after it.
    pub has_moved: bool,
    /// Of a call: it may wait. Else what would have to is not executed.
    pub is_patient: bool,
    /// Of a call: bytes of all its requests.
    pub call_bytes: usize,
    /// Of a call: the keys for which something would have had to wait. Nothing on them is executed behind it.
    pub held_keys: HashSet<Vec<u8>>,
    /// In a cluster: what is on its way to others.
    pub round: Round,
    /// Its command waits for the cluster's answer, or has it.
    pub admin: Option<AdminSlot>,
    /// In the current batch it read or wrote keys that only the owner of their shard may.
    pub is_guarded: bool,
    /// It wrote in the current batch, or read an uncommitted write.
    pub is_bound: bool,
    /// How often it became another user, forgot who it is, watched more keys or no key any more, or discarded what was
    /// queued.
    pub changes: u32,
    /// Its last reply waits until this is over.
    settling: Option<Settling>,
}

/// What a client takes for granted of its session: to see whether that has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionMark {
    db: u8,
    protocol: Protocol,
    replies: Replies,
    /// See [`Session::changes`].
    changes: u32,
    /// How many commands are queued, and whether one could not be.
    queued: Option<(usize, bool)>,
}

/// Commands between `MULTI` and `EXEC`.
#[derive(Clone, Default)]
pub struct Queued {
    /// In the order of arrival.
    pub commands: Vec<OwnedCommand>,
    /// Bytes they take.
    pub bytes: usize,
    /// Whether one of them could not be queued, so that none is to be executed.
    pub is_spoilt: bool,
    /// In a cluster: where the keys of all of them are.
    pub unit: Option<Unit>,
    /// Of a transaction that another node executes: the replies to what this one has executed of it, by their places.
    pub aside: Option<Vec<(usize, Vec<u8>)>>,
}

/// Whether a client wants replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Replies {
    /// Yes.
    #[default]
    On,
    /// Not to this command, but to later ones.
    Skip,
    /// Not to the next command.
    SkipNext,
    /// No.
    Off,
}

impl Session {
    /// A client that has just connected.
    ///
    /// `user` is who it is without authentication, if that is allowed.
    pub fn of(info: Arc<ClientInfo>, user: Option<Arc<User>>) -> Self {
        if let Some(user) = &user {
            *info.user.lock() = user.name().into();
        }
        Self {
            id: info.id,
            info,
            db: 0,
            protocol: Protocol::Resp2,
            user,
            generation: 0,
            login_changed: false,
            queued: None,
            is_in_exec: false,
            watched: None,
            replies: Replies::On,
            closes: false,
            caller: Caller::Client,
            shard: None,
            at_copy: false,
            has_moved: false,
            is_patient: false,
            call_bytes: 0,
            held_keys: HashSet::new(),
            round: Round::default(),
            admin: None,
            is_guarded: false,
            is_bound: false,
            changes: 0,
            settling: None,
        }
    }

    /// How it is now.
    pub(crate) fn mark(&self) -> SessionMark {
        let queued = self.queued.as_ref();
        SessionMark {
            db: self.db,
            protocol: self.protocol,
            replies: self.replies,
            changes: self.changes,
            queued: queued.map(|queued| (queued.commands.len(), queued.is_spoilt)),
        }
    }

    /// Whether what its client sends now would not be executed as at `mark`. A transaction that has ended since is no
    /// change: it is over after an `EXEC` that fails too.
    pub(crate) fn has_left(&self, mark: SessionMark) -> bool {
        let now = self.mark();
        now.queued.is_some() && now.queued != mark.queued
            || SessionMark { queued: mark.queued, ..now } != mark
    }

    /// Back to how it was when it connected (`RESET`).
    pub fn reset(&mut self, user: Option<Arc<User>>) {
        self.info.user.lock().clear();
        let round = std::mem::take(&mut self.round);
        let (is_guarded, is_bound) = (self.is_guarded, self.is_bound);
        let changes = self.changes.wrapping_add(1);
        let settling = self.settling.take();
        // That the reply to this command is to be skipped was asked for before it.
        let replies = if self.replies == Replies::Skip { Replies::Skip } else { Replies::On };
        *self = Self::of(self.info.clone(), user);
        self.replies = replies;
        // What it sent before is still on its way, or not committed.
        (self.round, self.is_guarded, self.is_bound) = (round, is_guarded, is_bound);
        (self.changes, self.login_changed, self.settling) = (changes, true, settling);
        self.info.name.lock().clear();
        self.info.queued.store(NOT_IN_MULTI, Ordering::Relaxed);
        self.info.db.store(0, Ordering::Relaxed);
        self.info.protocol.store(2, Ordering::Relaxed);
    }

    /// Forgets what is queued and what is watched, and gives what was queued.
    pub fn end_transaction(&mut self) -> Option<Queued> {
        self.watched = None;
        self.info.queued.store(NOT_IN_MULTI, Ordering::Relaxed);
        self.queued.take()
    }

    /// Back to how it was before it did something that is done again elsewhere.
    pub fn restore(&mut self, before: Self) {
        let version = if before.protocol == Protocol::Resp3 { 3 } else { 2 };
        self.info.protocol.store(version, Ordering::Relaxed);
        self.info.db.store(before.db, Ordering::Relaxed);
        *self.info.user.lock() = before.user.as_ref().map_or("", |user| user.name()).into();
        // Others were asked to settle all the same.
        let settling = self.settling.take();
        *self = before;
        self.settling = settling;
    }

    /// Something may be under way of another client: as long as it is, the next reply does not leave, and nothing more is
    /// executed.
    pub(crate) fn begin_settling(&mut self) -> UnderWay {
        let settling = self.settling.take().filter(|known| !known.is_over());
        let settling = settling.unwrap_or_else(|| {
            let info = self.info.clone();
            Settling::new(move || info.origin.home.settled(info.origin.token, info.id))
        });
        let under_way = settling.begin();
        self.settling = Some(settling);
        under_way
    }

    /// Whether it waits for that.
    pub(crate) fn is_settling(&self) -> bool {
        self.settling.as_ref().is_some_and(|settling| !settling.is_over())
    }

    /// Whether a command on this key would overtake one that was not executed.
    pub fn is_behind(&self, key: &[u8]) -> bool {
        self.held_keys.contains(key)
    }

    /// Whether a command may wait for the cluster, and with it everything behind it.
    pub fn may_wait(&self) -> bool {
        self.caller == Caller::Client || self.is_patient
    }

    /// Selects a database.
    pub fn select(&mut self, db: u8) {
        self.db = db;
        self.info.db.store(db, Ordering::Relaxed);
    }

    /// The client is this user from now on.
    pub fn log_in(&mut self, user: Arc<User>) {
        *self.info.user.lock() = user.name().into();
        self.login_changed |= self.user.is_none();
        self.changes = self.changes.wrapping_add(1);
        // Looked up anew by the next command.
        self.generation = 0;
        self.user = Some(user);
    }
}

/// Where a connection comes from and who serves it.
pub struct Origin {
    /// The client's address.
    pub peer: SocketAddr,
    /// Ours.
    pub local: SocketAddr,
    /// Whether it is encrypted.
    pub is_tls: bool,
    /// Who serves it.
    pub home: Arc<dyn ConnectionCloser>,
    /// Its place there.
    pub token: usize,
}

/// Who serves connections.
pub trait ConnectionCloser: Send + Sync {
    /// Ends the connection at this place, if it is still this client's. `under_way` is dropped when nothing of it is
    /// executed any more, and nothing will be.
    fn end(&self, token: usize, id: u64, under_way: UnderWay);

    /// Drops `under_way` when what is executed of the client at this place now is committed.
    fn settle(&self, token: usize, id: u64, under_way: UnderWay);

    /// What the client at this place waited for is over.
    fn settled(&self, token: usize, id: u64);
}

/// What others may see of a client (`CLIENT LIST`).
pub struct ClientInfo {
    /// Unique and growing.
    pub id: u64,
    /// Where it comes from.
    pub origin: Origin,
    /// When it connected, in ms since 1970.
    pub connected_ms: u64,
    /// `CLIENT SETNAME`.
    pub name: Mutex<String>,
    /// Who it is; empty until it has authenticated.
    pub user: Mutex<String>,
    /// `CLIENT SETINFO`: library and its version.
    pub library: Mutex<(String, String)>,
    /// The selected database.
    pub db: AtomicU8,
    /// RESP's version.
    pub protocol: AtomicU8,
    /// The command it sent last, by the number that it is counted under, or `u16::MAX`.
    pub last_command: AtomicU16,
    /// When, in ms since 1970.
    pub last_used_ms: AtomicU64,
    /// Commands queued since `MULTI`, or [`NOT_IN_MULTI`].
    pub queued: AtomicU32,
    /// Nothing more of it is executed.
    is_ended: AtomicBool,
    work: Mutex<Work>,
}

/// What a thread that may wait does for a client.
#[derive(Default)]
struct Work {
    /// It executes a command whose locks it has, or has yet to commit it.
    is_under_way: bool,
    /// Dropped when it does no longer.
    waiting: Vec<UnderWay>,
}

/// For a client that queues nothing.
pub const NOT_IN_MULTI: u32 = u32::MAX;

impl ClientInfo {
    /// When the client sent something last, or took some of a reply, in ms since 1970.
    pub fn last_used_ms(&self) -> u64 {
        self.last_used_ms.load(Ordering::Relaxed)
    }

    /// Bytes come from the client now, or go to it; of a command that there is, with the number that it is
    /// counted under.
    pub fn note_use(&self, command: Option<u16>, now_ms: u64) {
        if let Some(number) = command {
            self.last_command.store(number, Ordering::Relaxed);
        }
        self.last_used_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Ends its connection; see [`ConnectionCloser::end`].
    pub(crate) fn kill(&self, under_way: UnderWay) {
        self.end();
        self.origin.home.end(self.origin.token, self.id, under_way);
    }

    /// Nothing more of it is executed, but for what is under way.
    pub(crate) fn end(&self) {
        // Release, as the lock of `work` that comes later: who finds nothing under way there has set this before.
        self.is_ended.store(true, Ordering::Release);
    }

    /// See [`ConnectionCloser::settle`].
    pub(crate) fn settle(&self, under_way: UnderWay) {
        self.origin.home.settle(self.origin.token, self.id, under_way);
    }

    /// Whether its connection was ended by another client, or that of whose call it is: nothing more of it is executed.
    #[inline]
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    /// A thread that may wait has the locks of a command of it, and executes that if nothing forbids it that is looked at
    /// from now on.
    pub(crate) fn begin_work(&self) {
        self.work.lock().is_under_way = true;
    }

    /// What that thread has executed is committed.
    pub(crate) fn end_work(&self) {
        let over = {
            let mut work = self.work.lock();
            work.is_under_way = false;
            std::mem::take(&mut work.waiting)
        };
        drop(over);
    }

    /// Keeps `under_way` until what a thread that may wait executes of it now is committed.
    pub(crate) fn await_work(&self, under_way: UnderWay) {
        let mut work = self.work.lock();
        if work.is_under_way {
            work.waiting.push(under_way);
        }
    }
}

/// All clients that are connected.
#[derive(Default)]
pub struct Clients {
    next_id: AtomicU64,
    connected: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
    total: AtomicU64,
}

impl Clients {
    /// A client connects.
    pub fn join(&self, origin: Origin, now_ms: u64) -> Arc<ClientInfo> {
        let info = self.describe(origin, now_ms);
        let mut connected = self.connected.lock();
        connected.insert(info.id, info.clone());
        self.total.fetch_add(1, Ordering::Relaxed);
        info
    }

    /// What is known of somebody who is no client, but has an id as if.
    pub fn describe(&self, origin: Origin, now_ms: u64) -> Arc<ClientInfo> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed) + 1;
        Arc::new(ClientInfo {
            id,
            origin,
            connected_ms: now_ms,
            name: Mutex::default(),
            user: Mutex::default(),
            library: Mutex::default(),
            db: AtomicU8::new(0),
            protocol: AtomicU8::new(2),
            last_command: AtomicU16::new(u16::MAX),
            last_used_ms: AtomicU64::new(now_ms),
            queued: AtomicU32::new(NOT_IN_MULTI),
            is_ended: AtomicBool::new(false),
            work: Mutex::default(),
        })
    }

    /// A client has gone.
    pub fn leave(&self, id: u64) {
        self.connected.lock().remove(&id);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.connected.lock().len()
    }

    /// Counts those who connect from 0 again.
    pub fn reset_total(&self) {
        self.total.store(0, Ordering::Relaxed);
    }

    /// How many have connected since the start, or the last reset.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// All of them, by id.
    pub fn list(&self) -> Vec<Arc<ClientInfo>> {
        self.connected.lock().values().cloned().collect()
    }

    /// One of them.
    pub fn find(&self, id: u64) -> Option<Arc<ClientInfo>> {
        self.connected.lock().get(&id).cloned()
    }
}
