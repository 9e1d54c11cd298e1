//! What every [`Metadata`] does. Each case works below a prefix of its own, so that one store serves
//! them all.

use std::sync::Arc;
use std::time::Duration;
use terrace_metadata::{Change, Entry, Error, LeaseId, Metadata, Snapshot, Transaction, Watch};

/// A test that waits for longer than this hangs.
const HANG: Duration = Duration::from_secs(600);

/// A store under test.
pub struct Subject {
    pub metadata: Arc<dyn Metadata>,
    /// Lets time pass in the store; if there is none, time passes by itself.
    pub advance: Option<Box<dyn Fn(Duration)>>,
    /// Drops the changes up to a revision.
    pub compact: Box<dyn Compact>,
}

/// Drops changes, each store in its own way.
#[async_trait::async_trait(?Send)]
pub trait Compact {
    /// Afterwards, changes up to `revision` are not kept.
    async fn compact(&self, metadata: &dyn Metadata, revision: u64);
}

/// All cases, one after the other.
pub async fn check(subject: &Subject) {
    let metadata = &*subject.metadata;
    transactions_compare_revisions(metadata).await;
    of_rivals_one_wins(&subject.metadata).await;
    snapshots_are_of_one_prefix(metadata).await;
    watches_see_every_change_in_order(metadata).await;
    a_lease_that_ends_takes_its_entries(subject).await;
    a_lease_lives_while_it_is_kept(subject).await;
    a_revoked_lease_is_gone(metadata).await;
    unknown_leases_are_gone(metadata).await;
    bad_transactions_are_refused(metadata).await;
    dropped_changes_are_reported(subject).await;
}

/// Waits for the next changes, with a guard against hanging.
pub async fn next(watch: &mut Box<dyn Watch>) -> Result<Vec<Change>, Error> {
    let changes = tokio::time::timeout(HANG, watch.next()).await.expect("the watch hangs")?;
    assert_eq!(changes.changes.iter().map(Change::mod_revision).max(), Some(changes.revision));
    Ok(changes.changes)
}

fn entry(key: &str, value: &str, mod_revision: u64, lease: Option<LeaseId>) -> Entry {
    Entry { key: key.into(), value: value.into(), mod_revision, lease }
}

async fn entries(metadata: &dyn Metadata, prefix: &str) -> Vec<Entry> {
    metadata.snapshot(prefix.as_bytes()).await.unwrap().entries
}

async fn transactions_compare_revisions(metadata: &dyn Metadata) {
    let create = || Transaction::new().when("t/a", 0).put("t/a", "1");
    let first = metadata.commit(create()).await.unwrap().unwrap();
    assert_eq!(metadata.commit(create()).await.unwrap(), None, "it exists now");
    assert_eq!(entries(metadata, "t/").await, [entry("t/a", "1", first, None)]);
    let replace = || Transaction::new().when("t/a", first).put("t/a", "2").put("t/b", "3");
    let second = metadata.commit(replace()).await.unwrap().unwrap();
    assert!(second > first);
    assert_eq!(metadata.commit(replace()).await.unwrap(), None, "it has another revision now");
    let both = [entry("t/a", "2", second, None), entry("t/b", "3", second, None)];
    assert_eq!(entries(metadata, "t/").await, both);
    // All conditions must hold, and nothing of a refused transaction is done.
    let mixed = Transaction::new().when("t/a", second).when("t/b", first).delete("t/a");
    assert_eq!(metadata.commit(mixed).await.unwrap(), None);
    assert_eq!(entries(metadata, "t/").await, both);
    let third = Transaction::new().when("t/a", second).delete("t/a").put("t/c", "4");
    let third = metadata.commit(third).await.unwrap().unwrap();
    let left = [entry("t/b", "3", second, None), entry("t/c", "4", third, None)];
    assert_eq!(entries(metadata, "t/").await, left);
    // A deleted key is as one that never was.
    assert!(metadata.commit(create()).await.unwrap().is_some());
}

async fn of_rivals_one_wins(metadata: &Arc<dyn Metadata>) {
    let mut rivals = tokio::task::JoinSet::new();
    for rival in 0..16 {
        let metadata = metadata.clone();
        rivals.spawn(async move {
            let claim = Transaction::new().when("rivals/claim", 0);
            metadata.commit(claim.put("rivals/claim", format!("{rival}"))).await.unwrap().is_some()
        });
    }
    let won = rivals.join_all().await;
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
}

async fn snapshots_are_of_one_prefix(metadata: &dyn Metadata) {
    let write = Transaction::new().put("s", "0").put("s/", "1").put("s/x", "2").put("s0", "3");
    let revision = metadata.commit(write).await.unwrap().unwrap();
    let Snapshot { entries, revision: seen } = metadata.snapshot(b"s/").await.unwrap();
    assert_eq!(entries, [entry("s/", "1", revision, None), entry("s/x", "2", revision, None)]);
    assert!(seen >= revision);
    let all = metadata.snapshot(b"").await.unwrap().entries;
    assert!(all.iter().any(|entry| entry.key == b"s0"));
    assert!(all.is_sorted_by_key(|entry| entry.key.clone()));
    assert_eq!(metadata.snapshot(b"no such").await.unwrap().entries, []);
}

async fn watches_see_every_change_in_order(metadata: &dyn Metadata) {
    let start = metadata.snapshot(b"w/").await.unwrap().revision + 1;
    let mut early = metadata.watch(b"w/", start).await.unwrap();
    let mut revisions = Vec::new();
    for number in 0..50 {
        let write = Transaction::new().put("w/a", format!("{number}")).put("elsewhere", "0");
        // Deleted only where it exists.
        let write = if number % 7 == 3 { write.delete("w/b") } else { write.put("w/b", "-") };
        revisions.push(metadata.commit(write).await.unwrap().unwrap());
    }
    // A late watch sees from its revision on, the past too.
    let mut late = metadata.watch(b"w/", revisions[20]).await.unwrap();
    for (watch, from) in [(&mut early, 0), (&mut late, 20)] {
        let mut seen = Vec::new();
        while seen.len() < 2 * (50 - from) {
            seen.extend(next(watch).await.unwrap());
        }
        assert_eq!(seen.len(), 2 * (50 - from), "nothing twice, nothing of other prefixes");
        for (number, pair) in (from..50).zip(seen.chunks(2)) {
            let at = revisions[number];
            let b = match number % 7 == 3 {
                true => Change::Deleted { key: b"w/b".to_vec(), mod_revision: at },
                false => Change::Put(entry("w/b", "-", at, None)),
            };
            let a = Change::Put(entry("w/a", &number.to_string(), at, None));
            assert!(pair.contains(&a) && pair.contains(&b), "{number}: {pair:?}");
        }
    }
}

async fn a_lease_that_ends_takes_its_entries(subject: &Subject) {
    let metadata = &*subject.metadata;
    let grant = metadata.grant(Duration::from_millis(4500)).await.unwrap();
    assert!(grant.ttl >= Duration::from_secs(5), "rounded up");
    let write = Transaction::new().put_leased("l/a", "1", grant.lease).put("l/b", "2");
    let revision =
        metadata.commit(write.put_leased("l/c", "3", grant.lease)).await.unwrap().unwrap();
    assert_eq!(entries(metadata, "l/a").await, [entry("l/a", "1", revision, Some(grant.lease))]);
    // Written again without the lease, an entry is not bound to it any more.
    let rebind = Transaction::new().put("l/c", "4");
    let rebound = metadata.commit(rebind).await.unwrap().unwrap();
    let mut watch = metadata.watch(b"l/", rebound + 1).await.unwrap();
    if let Some(advance) = &subject.advance {
        advance(grant.ttl);
    }
    let ended = next(&mut watch).await.unwrap();
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert!(matches!(&ended[0], Change::Deleted { key, .. } if key == b"l/a"), "{ended:?}");
    let left = [entry("l/b", "2", revision, None), entry("l/c", "4", rebound, None)];
    assert_eq!(entries(metadata, "l/").await, left);
    // A keep-alive does not bring it back.
    assert!(matches!(metadata.keep_alive(grant.lease).await, Err(Error::LeaseGone)));
    let write = Transaction::new().put_leased("l/a", "1", grant.lease);
    assert!(matches!(metadata.commit(write).await, Err(Error::LeaseGone)));
}

async fn a_lease_lives_while_it_is_kept(subject: &Subject) {
    let metadata = &*subject.metadata;
    let kept = metadata.grant(Duration::from_secs(6)).await.unwrap();
    let write = Transaction::new().put_leased("k/kept", "", kept.lease);
    let revision = metadata.commit(write).await.unwrap().unwrap();
    // More than its time passes, in steps that are shorter than it.
    for _ in 0..5 {
        match &subject.advance {
            Some(advance) => advance(kept.ttl / 3),
            None => tokio::time::sleep(kept.ttl / 3).await,
        }
        let again = metadata.keep_alive(kept.lease).await.unwrap();
        assert_eq!(again, kept, "as long as at first");
    }
    let left = [entry("k/kept", "", revision, Some(kept.lease))];
    assert_eq!(entries(metadata, "k/").await, left);
    metadata.revoke(kept.lease).await.unwrap();
}

async fn a_revoked_lease_is_gone(metadata: &dyn Metadata) {
    let grant = metadata.grant(Duration::from_secs(600)).await.unwrap();
    let write = Transaction::new().put_leased("r/a", "1", grant.lease);
    let revision = metadata.commit(write).await.unwrap().unwrap();
    let mut watch = metadata.watch(b"r/", revision + 1).await.unwrap();
    metadata.revoke(grant.lease).await.unwrap();
    assert_eq!(entries(metadata, "r/").await, []);
    let seen = next(&mut watch).await.unwrap();
    assert!(matches!(&seen[..], [Change::Deleted { key, .. }] if key == b"r/a"), "{seen:?}");
    assert!(matches!(metadata.revoke(grant.lease).await, Err(Error::LeaseGone)));
    assert!(matches!(metadata.keep_alive(grant.lease).await, Err(Error::LeaseGone)));
}

async fn unknown_leases_are_gone(metadata: &dyn Metadata) {
    let lease = LeaseId(987_654_321);
    assert!(matches!(metadata.keep_alive(lease).await, Err(Error::LeaseGone)));
    assert!(matches!(metadata.revoke(lease).await, Err(Error::LeaseGone)));
    let write = Transaction::new().put_leased("u/a", "1", lease).put("u/b", "2");
    assert!(matches!(metadata.commit(write).await, Err(Error::LeaseGone)));
    assert_eq!(entries(metadata, "u/").await, [], "nothing of it was done");
}

async fn bad_transactions_are_refused(metadata: &dyn Metadata) {
    let twice = Transaction::new().put("x/a", "1").put("x/a", "2");
    let empty = Transaction::new().put("", "1");
    for bad in [twice, empty] {
        assert!(matches!(metadata.commit(bad).await, Err(Error::Refused(_))));
    }
    assert_eq!(entries(metadata, "x/").await, []);
    // Nothing to do, but the conditions are looked at.
    assert!(metadata.commit(Transaction::new()).await.unwrap().is_some());
    assert_eq!(metadata.commit(Transaction::new().when("x/a", 7)).await.unwrap(), None);
}

async fn dropped_changes_are_reported(subject: &Subject) {
    let metadata = &*subject.metadata;
    let first = metadata.commit(Transaction::new().put("c/a", "1")).await.unwrap().unwrap();
    let second = metadata.commit(Transaction::new().put("c/a", "2")).await.unwrap().unwrap();
    subject.compact.compact(metadata, second).await;
    let late = async {
        let mut watch = metadata.watch(b"c/", first).await?;
        next(&mut watch).await
    };
    let kept = match late.await {
        Err(Error::Compacted(kept)) => kept,
        other => panic!("{other:?}"),
    };
    assert!(kept >= second, "{kept}");
    // From a fresh snapshot on, all is well.
    let Snapshot { entries, revision } = metadata.snapshot(b"c/").await.unwrap();
    assert_eq!(entries, [entry("c/a", "2", second, None)]);
    let mut watch = metadata.watch(b"c/", revision + 1).await.unwrap();
    let third = metadata.commit(Transaction::new().delete("c/a")).await.unwrap().unwrap();
    let gone = Change::Deleted { key: b"c/a".to_vec(), mod_revision: third };
    assert_eq!(next(&mut watch).await.unwrap(), [gone]);
}
