//! A watch of etcd: one stream, ended by any error, by a member without a leader, and by silence.
//!
//! The revision in the answer to a progress request is not used: before etcd 3.4.25 it could be sent
//! ahead of changes of an earlier revision (etcd-io/etcd #15220). It is a sign of life only.

use super::api::{self, watch_client::WatchClient, watch_request::RequestUnion};
use super::convert::{
    MAX_MESSAGE_BYTES, entry_of, of_status, range_end, range_start, revision_of, with_leader,
};
use crate::error::{Error, Result};
use crate::metadata::{Change, Changes, Watch};
use async_trait::async_trait;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

pub(super) struct EtcdWatch {
    requests: mpsc::Sender<api::WatchRequest>,
    answers: Streaming<api::WatchResponse>,
    url: String,
    silence: Duration,
    heard_at: Instant,
    /// Whether a sign of life was asked for since.
    is_asked: bool,
}

impl EtcdWatch {
    /// Opens the stream; returns when the member says that the watch exists.
    pub(super) async fn begin(
        channel: Channel,
        prefix: &[u8],
        from_revision: i64,
        url: String,
        silence: Duration,
    ) -> std::result::Result<Self, Status> {
        let (requests, receiver) = mpsc::channel(4);
        let create = api::WatchCreateRequest {
            key: range_start(prefix),
            range_end: range_end(prefix),
            start_revision: from_revision,
        };
        let create = RequestUnion::CreateRequest(create);
        let sent = requests.try_send(api::WatchRequest { request_union: Some(create) });
        sent.map_err(|_| Status::internal("the queue of a watch is full at its start"))?;
        let mut client = WatchClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let answers = client.watch(with_leader(ReceiverStream::new(receiver))).await?.into_inner();
        let (heard_at, is_asked) = (Instant::now(), false);
        Ok(Self { requests, answers, url, silence, heard_at, is_asked })
    }

    /// The next answer, or that there is none in time.
    async fn answer(&mut self) -> Result<api::WatchResponse> {
        loop {
            let until = self.heard_at + self.silence * if self.is_asked { 2 } else { 1 };
            let gone = |why: &str| Error::Unavailable(format!("{}: {why}", self.url));
            match timeout_at(until, self.answers.message()).await {
                Ok(Ok(Some(answer))) => {
                    (self.heard_at, self.is_asked) = (Instant::now(), false);
                    return Ok(answer);
                }
                Ok(Ok(None)) => return Err(gone("the watch was ended")),
                Ok(Err(status)) => return Err(of_status(&status, &self.url)),
                Err(_) if self.is_asked => return Err(gone("the watch is silent")),
                Err(_) => {
                    let progress = RequestUnion::ProgressRequest(api::WatchProgressRequest {});
                    // A full queue means that nothing goes out: the silence will tell.
                    let request = api::WatchRequest { request_union: Some(progress) };
                    let _ = self.requests.try_send(request);
                    self.is_asked = true;
                    // The time until now may have been spent by a caller that did not poll.
                    self.heard_at = Instant::now() - self.silence;
                }
            }
        }
    }
}

#[async_trait]
impl Watch for EtcdWatch {
    async fn next(&mut self) -> Result<Changes> {
        loop {
            let answer = self.answer().await?;
            if answer.compact_revision > 0 {
                return Err(Error::Compacted(revision_of(answer.compact_revision)));
            }
            if answer.canceled {
                let why = format!("{}: the watch was ended: {}", self.url, answer.cancel_reason);
                return Err(Error::Unavailable(why));
            }
            let changes: Vec<Change> = answer.events.into_iter().filter_map(change_of).collect();
            if let Some(revision) = changes.iter().map(Change::mod_revision).max() {
                return Ok(Changes { revision, changes });
            }
        }
    }
}

fn change_of(event: api::Event) -> Option<Change> {
    let is_put = event.r#type() == api::event::EventType::Put;
    let kv = event.kv?;
    Some(match is_put {
        true => Change::Put(entry_of(kv)),
        false => Change::Deleted { mod_revision: revision_of(kv.mod_revision), key: kv.key },
    })
}
