//! Calls with one answer, their bounds, and the choice of a member.

use super::api::{self, kv_client::KvClient, lease_client::LeaseClient};
use super::convert::{
    MAX_MESSAGE_BYTES, api_transaction, entry_of, header_revision, number_of, of_status, range_end,
    range_start, ttl_of, with_leader,
};
use super::watch::EtcdWatch;
use crate::error::{Error, Result};
use crate::metadata::{Grant, LeaseId, Metadata, Snapshot, Transaction, Watch};
use async_trait::async_trait;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

/// Bounds of waiting.
#[derive(Debug, Clone, Copy)]
pub struct EtcdOptions {
    /// How long one member is waited for. Well below the time of the leases.
    pub call_timeout: Duration,
    /// How long a watch may be silent before it is asked for a sign of life; after as long again it
    /// has ended.
    pub watch_silence: Duration,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self { call_timeout: Duration::from_millis(700), watch_silence: Duration::from_secs(1) }
    }
}

/// A client of one etcd cluster; see the module.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Member>,
    /// The member that calls go to.
    current: AtomicUsize,
    options: EtcdOptions,
}

#[derive(Debug)]
struct Member {
    url: String,
    channel: Channel,
}

impl Etcd {
    /// A client for these members, `http://host:port` each. Connects when it is used, so etcd may be away
    /// now: the calls say so then. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// There is no URL, or one that is not of this form. Without TLS: `https` is refused.
    pub fn new<S: AsRef<str>>(urls: &[S], options: EtcdOptions) -> Result<Self> {
        let members = urls.iter().map(|url| Member::new(url.as_ref(), &options));
        let members = members.collect::<Result<Vec<_>>>()?;
        if members.is_empty() {
            return Err(Error::Refused("no URL of an etcd member".into()));
        }
        Ok(Self { members, current: AtomicUsize::new(0), options })
    }

    /// Calls the current member, and the others after it while one cannot be reached.
    async fn try_all<T, F, Fut>(&self, call: F) -> Result<T>
    where
        F: Fn(Channel) -> Fut,
        Fut: Future<Output = std::result::Result<T, Status>>,
    {
        let mut outcome = self.once(&call).await;
        for _ in 1..self.members.len() {
            if !matches!(outcome, Err(Error::Unavailable(_))) {
                break;
            }
            outcome = self.once(&call).await;
        }
        outcome
    }

    /// Calls the current member. If it cannot be reached, the next call goes to the next one.
    async fn once<T, F, Fut>(&self, call: &F) -> Result<T>
    where
        F: Fn(Channel) -> Fut,
        Fut: Future<Output = std::result::Result<T, Status>>,
    {
        let at = self.current.load(Ordering::Relaxed) % self.members.len();
        let member = &self.members[at];
        let answer = tokio::time::timeout(self.options.call_timeout, call(member.channel.clone()));
        let error = match answer.await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) => of_status(&status, &member.url),
            Err(_) => Error::Unavailable(format!("{} does not answer", member.url)),
        };
        if matches!(error, Error::Unavailable(_)) {
            let next = (at + 1) % self.members.len();
            // Another call may have gone on already; then this one leaves it.
            let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        Err(error)
    }
}

impl Member {
    fn new(url: &str, options: &EtcdOptions) -> Result<Self> {
        let refused = |why: &str| Error::Refused(format!("\"{url}\": {why}"));
        let rest = url.strip_prefix("http://").ok_or_else(|| refused("is not http://host:port"))?;
        let port =
            rest.trim_end_matches('/').rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        let _: u16 = port.ok_or_else(|| refused("is not http://host:port"))?;
        let endpoint = Endpoint::from_shared(url.to_string())
            .map_err(|_| refused("is not http://host:port"))?
            .connect_timeout(options.call_timeout)
            .tcp_nodelay(true);
        Ok(Self { url: url.to_string(), channel: endpoint.connect_lazy() })
    }
}

#[async_trait]
impl Metadata for Etcd {
    async fn snapshot(&self, prefix: &[u8]) -> Result<Snapshot> {
        let range = api::RangeRequest { key: range_start(prefix), range_end: range_end(prefix) };
        let answer = self.try_all(|channel| {
            let range = range.clone();
            async move {
                let mut kv = KvClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
                Ok(kv.range(with_leader(range)).await?.into_inner())
            }
        });
        let answer = answer.await?;
        let revision = header_revision(answer.header.as_ref());
        Ok(Snapshot { entries: answer.kvs.into_iter().map(entry_of).collect(), revision })
    }

    async fn commit(&self, transaction: Transaction) -> Result<Option<u64>> {
        let request = api_transaction(transaction);
        let call = |channel| {
            let request = request.clone();
            async move { KvClient::new(channel).txn(with_leader(request)).await }
        };
        let answer = self.once(&call).await?.into_inner();
        Ok(answer.succeeded.then(|| header_revision(answer.header.as_ref())))
    }

    async fn watch(&self, prefix: &[u8], from_revision: u64) -> Result<Box<dyn Watch>> {
        let silence = self.options.watch_silence;
        let watch = self.try_all(|channel| {
            let url =
                self.members[self.current.load(Ordering::Relaxed) % self.members.len()].url.clone();
            EtcdWatch::begin(channel, prefix, number_of(from_revision), url, silence)
        });
        Ok(Box::new(watch.await?))
    }

    async fn grant(&self, ttl: Duration) -> Result<Grant> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let request = api::LeaseGrantRequest { ttl: number_of(seconds.max(1)), id: 0 };
        let call = |channel| async move {
            LeaseClient::new(channel).lease_grant(with_leader(request)).await
        };
        let answer = self.try_all(call).await?.into_inner();
        match ttl_of(answer.ttl) {
            Some(ttl) if answer.error.is_empty() => Ok(Grant { lease: LeaseId(answer.id), ttl }),
            _ => Err(Error::Refused(format!("no lease was granted: {}", answer.error))),
        }
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<Grant> {
        let request = api::LeaseKeepAliveRequest { id: lease.0 };
        let call = |channel| async move {
            let one = with_leader(tokio_stream::once(request));
            let answers = LeaseClient::new(channel).lease_keep_alive(one).await?;
            let ended = || Status::unavailable("the stream of keep-alives ended");
            answers.into_inner().message().await?.ok_or_else(ended)
        };
        let answer = self.try_all(call).await?;
        match ttl_of(answer.ttl) {
            Some(ttl) => Ok(Grant { lease, ttl }),
            // Zero and below: etcd does not know the lease. It is no error there.
            None => Err(Error::LeaseGone),
        }
    }

    async fn revoke(&self, lease: LeaseId) -> Result<()> {
        let request = api::LeaseRevokeRequest { id: lease.0 };
        let call = |channel| async move {
            LeaseClient::new(channel).lease_revoke(with_leader(request)).await
        };
        self.once(&call).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn urls_that_are_none_are_refused() {
        for url in
            ["", "http://", "127.0.0.1:2379", "https://127.0.0.1:2379", "http://a:b", "http://h"]
        {
            let error = Etcd::new(&[url], EtcdOptions::default()).unwrap_err();
            assert!(matches!(error, Error::Refused(_)), "{url}: {error}");
        }
        assert!(Etcd::new(&[] as &[&str], EtcdOptions::default()).is_err());
        Etcd::new(&["http://127.0.0.1:2379", "http://[::1]:1/"], EtcdOptions::default()).unwrap();
    }
}
