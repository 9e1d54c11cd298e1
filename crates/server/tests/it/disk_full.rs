//! A full disk: what removes goes on, everything else is refused, and the server starts and serves.

use crate::client::{Client, array, bulk, error, ok, until};
use crate::gate::{Gated, GatedVfs};
use crate::served::Served;
use std::sync::Arc;
use tempfile::TempDir;
use terrace_resp::Reply;

fn served(dir: &Arc<TempDir>, vfs: &GatedVfs) -> Served {
    Served::start(dir.clone(), None, &[], &|options| {
        options.advanced.vfs = Arc::new(vfs.clone());
        options.memory_budget = 4 << 20;
        options.advanced.memtable_bytes = 64 << 10;
        options.advanced.reserve_bytes = 256 << 10;
    })
}

fn used_bytes(vfs: &GatedVfs) -> u64 {
    vfs.sim().files().into_iter().map(|(_, bytes)| bytes).sum()
}

fn is_misconf(reply: &Reply) -> bool {
    matches!(reply, Reply::Error(_)) && error(reply).starts_with("MISCONF")
}

/// Writes `value` under one key after the other, until the disk is full.
fn fill(vfs: &GatedVfs, client: &mut Client, value: &str) {
    vfs.sim().set_capacity_bytes(Some(used_bytes(vfs) + (3 << 20)));
    let mut there = 0;
    while client.call(&["SET", &format!("key {there}"), value]) == ok() {
        there += 1;
        assert!(there < 100_000, "the disk is never full");
    }
    assert!(is_misconf(&client.call(&["SET", "more", value])));
}

/// What it removes is to be written anew by what would be refused.
#[test]
fn a_transaction_that_does_more_than_remove_is_refused_as_a_whole() {
    let vfs = GatedVfs::new(Gated::LogSync);
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let served = served(&dir, &vfs);
    let mut client = served.client();
    assert_eq!(client.pipeline(&["SET before 1", "SET there 1"]), [ok(), ok()]);
    fill(&vfs, &mut client, &"v".repeat(4000));
    let replies = client.pipeline(&["MULTI", "DEL before", "SET there 2", "EXEC", "GET before"]);
    let refused = error(&replies[3]);
    assert!(refused.starts_with("EXECABORT") && refused.contains("MISCONF"), "{replies:?}");
    assert_eq!(replies[4], bulk("1"));
    assert_eq!(client.say("GET there"), bulk("1"));
    let done = array([bulk("1"), Reply::Integer(1)]);
    let remove = &["MULTI", "GET there", "DEL before", "EXEC"];
    until("a transaction that removes is refused", || client.pipeline(remove)[3] == done);
}

#[test]
fn a_full_disk_is_emptied_by_del_and_flushall_and_a_server_starts_on_it() {
    is_emptied_by("FLUSHALL");
}

#[test]
fn a_full_disk_is_emptied_by_flushdb() {
    is_emptied_by("FLUSHDB");
}

/// Beside `DEL`, of the database with all keys; another one is flushed as well, while that is full.
fn is_emptied_by(command: &str) {
    let vfs = GatedVfs::new(Gated::LogSync);
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let first = served(&dir, &vfs);
    let mut client = first.client();
    let replies = client.pipeline(&["SELECT 1", "MSET a 1 b 2", "RPUSH list x y", "SELECT 0"]);
    assert_eq!(replies, [ok(), ok(), Reply::Integer(2), ok()]);
    let value = "v".repeat(4000);
    fill(&vfs, &mut client, &value);
    assert_eq!(client.call(&["DEL", "key 0"]), Reply::Integer(1));
    let replies = client.pipeline(&["DEL absent", "SET new x", "UNLINK absent", "GET absent"]);
    assert!(is_misconf(&replies[1]), "{replies:?}");
    let gone = Reply::Integer(0);
    assert_eq!((&replies[0], &replies[2], &replies[3]), (&gone, &gone, &Reply::Null));
    assert_eq!(client.call(&["GET", "key 1"]), bulk(&value));
    assert_eq!(client.say("SELECT 1"), ok());
    until("FLUSHDB is refused", || client.say("FLUSHDB") == ok());
    assert_eq!(
        client.pipeline(&["DBSIZE", "GET a", "LLEN list"]),
        [gone.clone(), Reply::Null, gone]
    );
    assert_eq!(client.say("SELECT 0"), ok());
    assert_eq!(client.call(&["GET", "key 1"]), bulk(&value));
    drop(client);
    drop(first);
    // Not a byte of room, and no reserve.
    let image = GatedVfs::over(vfs.sim().kill_image(), Gated::LogSync);
    image.sim().truncate(dir.path().join("store/RESERVE"), 0);
    image.sim().set_capacity_bytes(Some(used_bytes(&image)));
    let second = served(&dir, &image);
    let mut client = second.client();
    assert_eq!(client.call(&["GET", "key 1"]), bulk(&value));
    assert!(is_misconf(&client.call(&["SET", "more", &value])));
    // Room for the log, none for values.
    image.sim().set_capacity_bytes(Some(used_bytes(&image) + (256 << 10)));
    until("it is refused", || client.call(&[command]) == ok());
    assert_eq!(client.say("DBSIZE"), Reply::Integer(0));
    assert_eq!(client.call(&["GET", "key 1"]), Reply::Null);
    until("there is never room", || client.call(&["SET", "after", &value]) == ok());
}
