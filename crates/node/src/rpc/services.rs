//! The two services of a node, and another node's as this one calls them.

use super::api::{
    self,
    coordinator_client::CoordinatorClient,
    coordinator_server::{Coordinator, CoordinatorServer},
    instance_client::InstanceClient,
    instance_server::{Instance, InstanceServer},
};
use super::call_stream::{self, CallSink};
use super::convert::{
    MoveMessage, ShardRecords, TakenPlan, TopCounts, add_records, answer_of, api_answer, api_copy,
    api_exception, api_intent, api_move, api_plan, api_shard, key_of, move_of, plan_of, shard_of,
    top_counts_of,
};
use super::headers::Headers;
use super::limits::{MAX_MESSAGE_BYTES, STREAM_QUEUE};
use super::link::{Link, LinkOptions, Service};
use super::secret::Secret;
use crate::part::Part;
use std::sync::Arc;
use std::time::Duration;
use terrace_cluster::{
    Cancellation, DbKey, Epoch, MoveAnswer, NodeId, OutgoingCall, Plan, Reply, Revision, ShardCall,
    ShardId,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

/// How many records go into one message.
const RECORDS_PER_MESSAGE: usize = 256;

/// Keys that can be asked for at a time.
const MAX_TOP_KEYS: u32 = 100_000;

/// How long a step of a move may take: it may carry many bytes. A node that is gone is noticed earlier.
const MOVE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an instance may take to say what it counted, for which it reads what its log has since the last question, or
/// to look for a key that is not of its part.
const COUNT_TIMEOUT: Duration = Duration::from_secs(10);

/// What a node does for others.
#[tonic::async_trait]
pub trait Roles: CallSink {
    /// What the instance counted since the last question; at most `keys` keys.
    async fn top_counts(&self, keys: usize) -> Result<TopCounts, Status>;

    /// Lets the instance refuse epochs below `epoch`: the latest epoch that it knows. When it returns,
    /// no call of an earlier one is under way.
    async fn fence(&self, shard: ShardId, epoch: Epoch) -> Result<Epoch, Status>;

    /// What the instance keeps of a shard.
    async fn records(&self, shard: ShardId, epoch: Epoch) -> Result<ShardRecords, Status>;

    /// A step of a move at the instance.
    async fn apply_move(&self, message: MoveMessage, epoch: Epoch) -> MoveAnswer<Vec<u8>>;

    /// A key that would not be found in a cluster in which the instance has this part; none if it remembers its part.
    async fn stray_key(&self, part: Part) -> Result<Option<DbKey>, Status>;

    /// Takes the parts of a plan that are of this owner's shards.
    async fn repartition(&self, plan: Plan) -> Result<TakenPlan, Status>;

    /// Moves a key to a shard's instance, or home.
    async fn move_key(&self, key: DbKey, to: Option<ShardId>) -> Result<(), Status>;

    /// What the node does at the moment.
    async fn status(&self) -> api::StatusReply;

    /// Gives up all shards and takes none, or takes them again. Waits for a bounded time until all can see it.
    async fn drain(&self, is_over: bool) -> Result<(), Status>;
}

/// Both services of a node, for the server. Calls without the secret, or for another node, are refused.
pub fn routes(roles: Arc<dyn Roles>, secret: &Secret) -> Routes {
    let headers = Headers::new(roles.me(), secret.clone());
    let instance = InstanceServer::new(Served { roles: roles.clone() })
        .max_decoding_message_size(MAX_MESSAGE_BYTES);
    let coordinator =
        CoordinatorServer::new(Served { roles }).max_decoding_message_size(MAX_MESSAGE_BYTES);
    Routes::new(InterceptedService::new(instance, headers.clone()))
        .add_service(InterceptedService::new(coordinator, headers))
}

struct Served {
    roles: Arc<dyn Roles>,
}

type ReplyStream = ReceiverStream<Result<api::Replies, Status>>;

#[tonic::async_trait]
impl Instance for Served {
    type CallStream = ReplyStream;
    type LoadRecordsStream = ReceiverStream<Result<api::Records, Status>>;

    async fn call(
        &self,
        request: Request<Streaming<api::Calls>>,
    ) -> Result<Response<ReplyStream>, Status> {
        let sink: Arc<dyn CallSink> = self.roles.clone();
        Ok(Response::new(call_stream::serve(sink, request.into_inner(), Service::Instance)))
    }

    async fn get_top_k(
        &self,
        request: Request<api::TopKRequest>,
    ) -> Result<Response<api::TopKReply>, Status> {
        let keys = request.into_inner().keys.min(MAX_TOP_KEYS) as usize;
        Ok(Response::new(self.roles.top_counts(keys).await?.into()))
    }

    async fn fence(
        &self,
        request: Request<api::FenceRequest>,
    ) -> Result<Response<api::FenceReply>, Status> {
        let (shard, epoch) = shard_of(request.into_inner().shard)?;
        let epoch = self.roles.fence(shard, epoch).await?.0;
        Ok(Response::new(api::FenceReply { epoch }))
    }

    async fn load_records(
        &self,
        request: Request<api::LoadRequest>,
    ) -> Result<Response<Self::LoadRecordsStream>, Status> {
        let (shard, epoch) = shard_of(request.into_inner().shard)?;
        let ShardRecords { exceptions, intents, copies } = self.roles.records(shard, epoch).await?;
        let (out, stream) = mpsc::channel(STREAM_QUEUE);
        tokio::spawn(async move {
            let intents = intents.into_iter().map(api_intent).collect();
            let mut records = api::Records { intents, ..Default::default() };
            for exception in exceptions {
                records.exceptions.push(api_exception(exception));
                if records.exceptions.len() >= RECORDS_PER_MESSAGE
                    && out.send(Ok(std::mem::take(&mut records))).await.is_err()
                {
                    return;
                }
            }
            for copy in copies {
                records.copies.push(api_copy(copy));
                if records.copies.len() >= RECORDS_PER_MESSAGE
                    && out.send(Ok(std::mem::take(&mut records))).await.is_err()
                {
                    return;
                }
            }
            let _ = out.send(Ok(records)).await;
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn r#move(
        &self,
        request: Request<api::MoveRequest>,
    ) -> Result<Response<api::MoveReply>, Status> {
        let (message, epoch) = move_of(request.into_inner())?;
        Ok(Response::new(api_answer(self.roles.apply_move(message, epoch).await)))
    }

    async fn find_stray(
        &self,
        request: Request<api::StrayRequest>,
    ) -> Result<Response<api::StrayReply>, Status> {
        let part = request.into_inner().part.parse::<Part>();
        let part = part.map_err(|_| Status::invalid_argument("the message has no part"))?;
        let key = self.roles.stray_key(part).await?.map(Into::into);
        Ok(Response::new(api::StrayReply { key }))
    }
}

#[tonic::async_trait]
impl Coordinator for Served {
    type CallStream = ReplyStream;

    async fn call(
        &self,
        request: Request<Streaming<api::Calls>>,
    ) -> Result<Response<ReplyStream>, Status> {
        let sink: Arc<dyn CallSink> = self.roles.clone();
        Ok(Response::new(call_stream::serve(sink, request.into_inner(), Service::Coordinator)))
    }

    async fn repartition(
        &self,
        request: Request<api::RepartitionRequest>,
    ) -> Result<Response<api::RepartitionReply>, Status> {
        let taken = self.roles.repartition(plan_of(request.into_inner())?).await?;
        Ok(Response::new(taken.into()))
    }

    async fn move_key(
        &self,
        request: Request<api::MoveKeyRequest>,
    ) -> Result<Response<api::MoveKeyReply>, Status> {
        let request = request.into_inner();
        let (key, to) = (key_of(request.key)?, request.to.map(ShardId));
        self.roles.move_key(key, to).await?;
        Ok(Response::new(api::MoveKeyReply {}))
    }

    async fn status(
        &self,
        _: Request<api::StatusRequest>,
    ) -> Result<Response<api::StatusReply>, Status> {
        Ok(Response::new(self.roles.status().await))
    }

    async fn drain(
        &self,
        request: Request<api::DrainRequest>,
    ) -> Result<Response<api::DrainReply>, Status> {
        self.roles.drain(request.into_inner().is_over).await?;
        Ok(Response::new(api::DrainReply {}))
    }
}

/// Another node. Its connections are made when they are used.
pub struct Peer {
    id: NodeId,
    address: String,
    channel: Channel,
    headers: Headers,
    timeout: Duration,
    to_coordinator: Link,
    to_instance: Link,
}

impl Peer {
    /// The node `id` at `host:port`; `None` if that is no address. Within a tokio runtime.
    pub fn new(id: NodeId, address: &str, secret: &Secret, options: &LinkOptions) -> Option<Self> {
        // Calls have a connection of their own: fences and moves do not wait behind them.
        let (channel, for_calls) = (options.channel(address)?, options.channel(address)?);
        let headers = Headers::new(id, secret.clone());
        let link = |service| Link::open(id, for_calls.clone(), headers.clone(), service);
        Some(Self {
            id,
            address: address.to_string(),
            channel,
            timeout: options.timeout,
            to_coordinator: link(Service::Coordinator),
            to_instance: link(Service::Instance),
            headers,
        })
    }

    /// Sends a call to the node as coordinator.
    pub fn call_owner(
        &self,
        call: OutgoingCall,
        revision: Revision,
        done: Box<dyn FnOnce(Reply) + Send>,
    ) {
        self.call_owner_until(call, revision, Cancellation::default(), done);
    }

    /// As [`Self::call_owner`], for a call that may be cancelled.
    pub fn call_owner_until(
        &self,
        call: OutgoingCall,
        revision: Revision,
        cancellation: Cancellation,
        done: Box<dyn FnOnce(Reply) + Send>,
    ) {
        self.to_coordinator.push(call, (None, revision), cancellation, done);
    }

    /// Sends a call to the node's instance.
    pub fn call_instance(
        &self,
        call: OutgoingCall,
        shard: ShardCall,
        done: Box<dyn FnOnce(Reply) + Send>,
    ) {
        self.call_instance_until(call, shard, Cancellation::default(), done);
    }

    /// As [`Self::call_instance`], for a call that may be cancelled.
    pub fn call_instance_until(
        &self,
        call: OutgoingCall,
        shard: ShardCall,
        cancellation: Cancellation,
        done: Box<dyn FnOnce(Reply) + Send>,
    ) {
        self.to_instance.push(call, (Some(shard), Revision(0)), cancellation, done);
    }

    /// How many streams of calls were opened to the node.
    pub fn opened_streams(&self) -> u64 {
        self.to_coordinator.opened_streams() + self.to_instance.opened_streams()
    }

    fn instance(&self) -> InstanceClient<Channel> {
        InstanceClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn coordinator(&self) -> CoordinatorClient<Channel> {
        CoordinatorClient::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    async fn bounded<T>(
        &self,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        self.within(self.timeout, answer).await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        answer: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer.map_err(|status| self.named(status)),
            Err(_) => {
                let (id, address) = (self.id, &self.address);
                let why = format!("node {id} at {address} does not answer");
                Err(Status::deadline_exceeded(why))
            }
        }
    }

    /// What the node answered, as it is; what a connection failed of, with the node.
    fn named(&self, status: Status) -> Status {
        // Only what was made of an error of this process has a source.
        if std::error::Error::source(&status).is_none() {
            return status;
        }
        let (id, address, why) = (self.id, &self.address, status.message());
        Status::new(status.code(), format!("node {id} at {address} cannot be reached: {why}"))
    }

    /// See [`Roles::top_counts`].
    ///
    /// # Errors
    /// There was no answer in time, or a bad one. So for all methods here.
    pub async fn top_counts(&self, keys: usize) -> Result<TopCounts, Status> {
        let keys = u32::try_from(keys).unwrap_or(u32::MAX);
        let request = self.headers.sign(api::TopKRequest { keys });
        let mut client = self.instance();
        top_counts_of(self.within(COUNT_TIMEOUT, client.get_top_k(request)).await?.into_inner())
    }

    /// See [`Roles::fence`]. May wait for calls that are under way.
    ///
    /// # Errors
    /// As [`Self::top_counts`].
    pub async fn fence(&self, shard: ShardId, epoch: Epoch) -> Result<Epoch, Status> {
        let shard = api_shard(shard, epoch);
        let request = self.headers.sign(api::FenceRequest { shard });
        let mut client = self.instance();
        Ok(Epoch(self.bounded(client.fence(request)).await?.into_inner().epoch))
    }

    /// See [`Roles::records`].
    ///
    /// # Errors
    /// As [`Self::top_counts`].
    pub async fn records(&self, shard: ShardId, epoch: Epoch) -> Result<ShardRecords, Status> {
        let shard = api_shard(shard, epoch);
        let request = self.headers.sign(api::LoadRequest { shard });
        let mut client = self.instance();
        let mut stream = self.bounded(client.load_records(request)).await?.into_inner();
        let mut all = ShardRecords::default();
        while let Some(records) = self.bounded(stream.message()).await? {
            add_records(&mut all, records)?;
        }
        Ok(all)
    }

    /// See [`Roles::apply_move`]. No answer is `Unknown`.
    pub async fn apply_move(&self, message: MoveMessage, epoch: Epoch) -> MoveAnswer<Vec<u8>> {
        let request = self.headers.sign(api_move(message, epoch));
        let mut client = self.instance();
        match tokio::time::timeout(MOVE_TIMEOUT, client.r#move(request)).await {
            Ok(Ok(answer)) => answer_of(answer.into_inner()).unwrap_or(MoveAnswer::Unknown),
            Ok(Err(_)) | Err(_) => MoveAnswer::Unknown,
        }
    }

    /// See [`Roles::stray_key`].
    ///
    /// # Errors
    /// As [`Self::top_counts`].
    pub async fn stray_key(&self, part: &Part) -> Result<Option<DbKey>, Status> {
        let request = self.headers.sign(api::StrayRequest { part: part.to_string() });
        let mut client = self.instance();
        let reply = self.within(COUNT_TIMEOUT, client.find_stray(request)).await?.into_inner();
        reply.key.map(|key| key_of(Some(key))).transpose()
    }

    /// See [`Roles::repartition`].
    ///
    /// # Errors
    /// As [`Self::top_counts`].
    pub async fn repartition(&self, plan: Plan) -> Result<TakenPlan, Status> {
        let request = self.headers.sign(api_plan(plan));
        let mut client = self.coordinator();
        Ok(self.bounded(client.repartition(request)).await?.into_inner().into())
    }

    /// See [`Roles::move_key`]. Waits for the end of the move.
    ///
    /// # Errors
    /// As [`Self::top_counts`].
    pub async fn move_key(&self, key: DbKey, to: Option<ShardId>) -> Result<(), Status> {
        let (key, to) = (Some(key.into()), to.map(|shard| shard.0));
        let request = self.headers.sign(api::MoveKeyRequest { key, to });
        self.coordinator().move_key(request).await.map(|_| ()).map_err(|status| self.named(status))
    }

    /// See [`Roles::status`].
    ///
    /// # Errors
    /// As [`Self::top_counts`].
    pub async fn status(&self) -> Result<api::StatusReply, Status> {
        let request = self.headers.sign(api::StatusRequest {});
        let mut client = self.coordinator();
        Ok(self.bounded(client.status(request)).await?.into_inner())
    }

    /// See [`Roles::drain`]. Waits until the shards are given up.
    ///
    /// # Errors
    /// As [`Self::top_counts`].
    pub async fn drain(&self, is_over: bool) -> Result<(), Status> {
        let request = self.headers.sign(api::DrainRequest { is_over });
        self.coordinator().drain(request).await.map(|_| ()).map_err(|status| self.named(status))
    }
}
