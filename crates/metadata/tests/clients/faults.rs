//! etcd away, stopped, without a majority, without its leader: calls end in time and say so, watches end
//! instead of staying silent, and all goes on afterwards.

use crate::conformance::next;
use crate::servers::{EtcdCluster, continue_process, stop_process};
use std::time::{Duration, Instant};
use terrace_metadata::{Change, Error, Etcd, EtcdOptions, Metadata, Snapshot, Transaction, Watch};
use terrace_resp::test_client::free_port;

/// Waiting for longer than this is a hang.
const HANG: Duration = Duration::from_secs(600);

fn client(urls: &[String]) -> Etcd {
    Etcd::new(urls, EtcdOptions::default()).unwrap()
}

/// Tries until etcd answers: on a busy machine that may take it longer than a call waits.
async fn until_it_works<T>(call: impl AsyncFn() -> Result<T, Error>) -> T {
    let start = Instant::now();
    loop {
        match call().await {
            Ok(answer) => return answer,
            Err(Error::Unavailable(_)) => assert!(start.elapsed() < HANG, "etcd does not return"),
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn write_until_it_works(metadata: &Etcd, key: &str) -> u64 {
    let write = async || metadata.commit(Transaction::new().put(key, "")).await;
    until_it_works(write).await.unwrap()
}

/// The first changes from a revision on, by a watch, or by another one if that ends for want of an answer.
async fn changes_since(metadata: &Etcd, prefix: &[u8], revision: u64) -> Vec<Change> {
    until_it_works(async || next(&mut metadata.watch(prefix, revision).await?).await).await
}

/// The watch must end with `Unavailable`; changes before are let pass.
async fn ends(watch: &mut Box<dyn Watch>) -> String {
    loop {
        match next(watch).await {
            Ok(_) => {}
            Err(Error::Unavailable(why)) => return why,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
#[ignore = "needs etcd; run by cargo xtask test"]
async fn etcd_may_be_away_at_the_start() {
    let port = free_port();
    let away = client(&[format!("http://127.0.0.1:{port}")]);
    let error = away.snapshot(b"").await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error}");
    assert!(error.to_string().contains(&port.to_string()), "names who is away: {error}");
    let keep_alive = away.keep_alive(terrace_metadata::LeaseId(1)).await;
    assert!(matches!(keep_alive, Err(Error::Unavailable(_))), "{keep_alive:?}");

    let mut cluster = EtcdCluster::start(1);
    cluster.kill_member(0);
    let metadata = client(&cluster.urls());
    assert!(matches!(metadata.snapshot(b"").await, Err(Error::Unavailable(_))));
    cluster.start_member(0);
    write_until_it_works(&metadata, "a").await;
}

#[tokio::test]
#[ignore = "needs etcd; run by cargo xtask test"]
async fn a_stopped_etcd_ends_calls_and_watches() {
    let cluster = EtcdCluster::start(1);
    let metadata = client(&cluster.urls());
    let revision = write_until_it_works(&metadata, "a").await;
    let mut watch = until_it_works(async || metadata.watch(b"", revision + 1).await).await;
    let grant = until_it_works(async || metadata.grant(Duration::from_secs(60)).await).await;
    stop_process(cluster.process_id(0));
    // The connection stands, nothing answers: only an own time-out notices.
    let why = ends(&mut watch).await;
    assert!(why.contains("silent"), "{why}");
    assert!(matches!(metadata.keep_alive(grant.lease).await, Err(Error::Unavailable(_))));
    assert!(matches!(metadata.snapshot(b"").await, Err(Error::Unavailable(_))));
    continue_process(cluster.process_id(0));
    let second = write_until_it_works(&metadata, "b").await;
    let seen = changes_since(&metadata, b"b", revision + 1).await;
    assert!(seen[0].mod_revision() <= second, "{seen:?}");
}

#[tokio::test]
#[ignore = "needs etcd; run by cargo xtask test"]
async fn a_watch_that_has_nothing_to_say_lives() {
    let cluster = EtcdCluster::start(1);
    // Long enough for a sign of life on a busy machine.
    let options = EtcdOptions { call_timeout: HANG, watch_silence: Duration::from_secs(4) };
    // Several times the silence after which it asks for one.
    let silence = 4 * options.watch_silence;
    let metadata = Etcd::new(&cluster.urls(), options).unwrap();
    let revision = metadata.commit(Transaction::new().put("a", "1")).await.unwrap().unwrap();
    let mut watch = metadata.watch(b"", revision + 1).await.unwrap();
    let quiet = tokio::time::timeout(silence, watch.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    let second = metadata.commit(Transaction::new().put("a", "2")).await.unwrap().unwrap();
    let seen = next(&mut watch).await.unwrap();
    assert_eq!(seen.iter().map(Change::mod_revision).collect::<Vec<_>>(), [second]);
}

#[tokio::test]
#[ignore = "needs etcd; run by cargo xtask test"]
async fn without_a_majority_nothing_is_answered() {
    let mut cluster = EtcdCluster::start(3);
    // A client of the member that will be left alone.
    let alone = client(&[cluster.url(0)]);
    let revision = write_until_it_works(&alone, "a").await;
    let mut watch = until_it_works(async || alone.watch(b"", revision + 1).await).await;
    let grant = until_it_works(async || alone.grant(Duration::from_secs(60)).await).await;
    cluster.kill_member(1);
    cluster.kill_member(2);
    // The member lives and answers, but must not keep the watch: it would be silent for ever.
    ends(&mut watch).await;
    let write = alone.commit(Transaction::new().put("a", "2")).await;
    assert!(matches!(write, Err(Error::Unavailable(_))), "{write:?}");
    assert!(matches!(alone.keep_alive(grant.lease).await, Err(Error::Unavailable(_))));
    let read = alone.snapshot(b"").await;
    assert!(matches!(read, Err(Error::Unavailable(_))), "no stale read: {read:?}");
    cluster.start_member(1);
    write_until_it_works(&alone, "b").await;
    until_it_works(async || alone.keep_alive(grant.lease).await).await;
}

#[tokio::test]
#[ignore = "needs etcd; run by cargo xtask test"]
async fn the_leader_is_killed() {
    let mut cluster = EtcdCluster::start(3);
    let metadata = client(&cluster.urls());
    let ttl = Duration::from_secs(30);
    let grant = until_it_works(async || metadata.grant(ttl).await).await;
    let write = || Transaction::new().put_leased("leased", "", grant.lease).put("a", "1");
    let revision = until_it_works(async || metadata.commit(write()).await).await.unwrap();
    let leader = cluster.leader();
    cluster.kill_member(leader);
    let killed_at = Instant::now();
    let second = write_until_it_works(&metadata, "a").await;
    println!("writes work {} ms after the leader was killed", killed_at.elapsed().as_millis());
    assert!(second > revision);
    assert_ne!(cluster.leader(), leader);
    // The next leader begins the time of all leases again, so the lease lives, and ends later by itself.
    let leased = until_it_works(async || metadata.snapshot(b"leased").await).await;
    let Snapshot { entries, revision } = leased;
    assert_eq!(entries.len(), 1);
    let last_kept = Instant::now();
    let kept = until_it_works(async || metadata.keep_alive(grant.lease).await).await;
    assert_eq!(kept.ttl, ttl);
    let ended = changes_since(&metadata, b"leased", revision + 1).await;
    println!("a lease of 30 s ended after {} ms", last_kept.elapsed().as_millis());
    assert!(matches!(&ended[..], [Change::Deleted { .. }]), "{ended:?}");
    assert!(last_kept.elapsed() > ttl - Duration::from_millis(100), "not before its time");
}
