//! Metadata in a store on disk: the tests of every kind, and what is left when the store is opened again.

use crate::conformance::{Compact, Subject, check};
use std::sync::Arc;
use std::time::Duration;
use terrace::{Db, Options};
use terrace_base::ManualClock;
use terrace_metadata::{Embedded, Metadata, Transaction};

struct ByWriting;

#[async_trait::async_trait(?Send)]
impl Compact for ByWriting {
    async fn compact(&self, metadata: &dyn Metadata, revision: u64) {
        let last = revision + 5000;
        while metadata.commit(Transaction::new().put("noise", "")).await.unwrap().unwrap() < last {}
    }
}

fn open(db: &Db) -> (Embedded, ManualClock) {
    let clock = ManualClock::at(0);
    (Embedded::open(db, Arc::new(clock.clone())).unwrap(), clock)
}

#[tokio::test]
async fn it_does_what_every_metadata_does() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let (metadata, clock) = open(&db);
    let advance = move |time: Duration| clock.advance(time.as_millis() as u64);
    let metadata = Arc::new(metadata);
    let advance: Option<Box<dyn Fn(Duration)>> = Some(Box::new(advance));
    check(&Subject { metadata, advance, compact: Box::new(ByWriting) }).await;
}

#[tokio::test]
async fn what_has_no_lease_survives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let (metadata, _) = open(&db);
    let grant = metadata.grant(Duration::from_secs(60)).await.unwrap();
    let write = Transaction::new().put("owner", "me").put("gone", "1").put("claim", "1");
    let first = metadata.commit(write).await.unwrap().unwrap();
    let write = Transaction::new().delete("gone").put_leased("claim", "2", grant.lease);
    let second = metadata.commit(write).await.unwrap().unwrap();
    let before = metadata.snapshot(b"").await.unwrap();
    assert_eq!((before.entries.len(), before.revision), (2, second));
    drop(metadata);
    db.close().unwrap();
    drop(db);

    let db = Db::open(dir.path(), Options::default()).unwrap();
    let (metadata, _) = open(&db);
    let after = metadata.snapshot(b"").await.unwrap();
    assert_eq!(after.revision, second, "revisions never go back");
    assert_eq!(after.entries.len(), 1, "the lease ended with the process");
    assert_eq!((&after.entries[0].key[..], after.entries[0].mod_revision), (&b"owner"[..], first));
    assert!(metadata.keep_alive(grant.lease).await.is_err());
    let next = Transaction::new().when("claim", 0).put("claim", "3");
    assert_eq!(metadata.commit(next).await.unwrap(), Some(second + 1));
}

#[tokio::test]
async fn a_family_with_something_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), Options::default()).unwrap();
    let family = db.create_column_family("metadata", Default::default()).unwrap();
    family.put(b"r", b"not a revision").unwrap();
    let opened = Embedded::open(&db, Arc::new(ManualClock::at(0)));
    assert!(opened.unwrap_err().to_string().contains("something else"));
    family.put(b"r", 7u64.to_le_bytes()).unwrap();
    family.put(b"kx", b"short").unwrap();
    assert!(Embedded::open(&db, Arc::new(ManualClock::at(0))).is_err());
}
