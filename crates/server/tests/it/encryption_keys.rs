//! New keys for the store of a server that runs.

use crate::client::{bulk, error, ok};
use crate::served::Served;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use terrace::vfs::PosixVfs;
use terrace_encryption::used_keys;

const OPTION: &str = "encryption-key-file";

/// The line of a key file.
fn line(id: u32, digit: char) -> String {
    format!("{id} {}\n", format!("{digit}1{digit}2").repeat(16))
}

fn dir() -> (Arc<TempDir>, PathBuf) {
    let dir = Arc::new(tempfile::tempdir().unwrap());
    let keys = dir.path().join("terrace.keys");
    (dir, keys)
}

/// A server whose store has the keys in this file.
fn served(dir: &Arc<TempDir>, keys: &Path) -> Served {
    started(dir, None, &[(OPTION, keys.to_str().unwrap())])
}

/// A server that merges nothing because nobody writes: files that are written with one key would go while they are
/// looked at, and come again with another.
fn started(dir: &Arc<TempDir>, file: Option<&Path>, flags: &[(&str, &str)]) -> Served {
    let set = |options: &mut terrace::Options| options.advanced.compact_when_idle = false;
    Served::start(dir.clone(), file, flags, &set)
}

/// The numbers of the keys that the files of the store need, as `terrace keys used` tells them.
fn used(served: &Served) -> Vec<Option<u32>> {
    let store = served.server().space.db().path().to_path_buf();
    used_keys(&*PosixVfs::shared(), &store).unwrap().keys.into_keys().collect()
}

#[test]
fn a_new_key_is_taken_while_the_server_runs() {
    let (dir, keys) = dir();
    std::fs::write(&keys, line(1, 'a')).unwrap();
    let server = served(&dir, &keys);
    let mut client = server.client();
    assert_eq!(client.say("SET old 1"), ok());
    assert_eq!(client.say("SAVE"), ok());
    assert_eq!(used(&server), [Some(1)]);
    // The same path, whose file has another content.
    std::fs::write(&keys, line(1, 'a') + &line(2, 'b')).unwrap();
    let path = keys.to_str().unwrap();
    assert_eq!(client.call(&["CONFIG", "SET", OPTION, path]), ok());
    assert_eq!(client.say("SET new 2"), ok());
    assert_eq!(client.say("SAVE"), ok());
    assert_eq!(used(&server), [Some(1), Some(2)]);
    // Another path.
    let moved = dir.path().join("moved.keys");
    std::fs::write(&moved, line(1, 'a') + &line(2, 'b') + &line(3, 'c')).unwrap();
    let moved = moved.to_str().unwrap();
    assert_eq!(client.call(&["CONFIG", "SET", OPTION, moved]), ok());
    assert_eq!(client.option(OPTION), moved);
    assert_eq!(client.say("SET newest 3"), ok());
    assert_eq!(client.say("SAVE"), ok());
    assert_eq!(used(&server), [Some(1), Some(2), Some(3)]);
    drop(client);
    server.end();
    let server = served(&dir, Path::new(moved));
    let mut client = server.client();
    for (key, value) in [("old", "1"), ("new", "2"), ("newest", "3")] {
        assert_eq!(client.say(&format!("GET {key}")), bulk(value));
    }
}

#[test]
fn keys_that_would_lose_something_are_refused_and_change_nothing() {
    let (dir, keys) = dir();
    let both = line(1, 'a') + &line(2, 'b');
    std::fs::write(&keys, line(1, 'a')).unwrap();
    let server = served(&dir, &keys);
    let mut client = server.client();
    assert_eq!(client.say("SET a 1"), ok());
    assert_eq!(client.say("SAVE"), ok());
    let path = keys.to_str().unwrap();
    let other = dir.path().join("other.keys");
    let folder = dir.path().to_str().unwrap();
    let nowhere = "/nowhere/terrace.keys";
    let mut refused = |content: &str, path: &str, why: &str| {
        std::fs::write(&other, content).unwrap();
        let reply = error(&client.call(&["CONFIG", "SET", "timeout", "77", OPTION, path]));
        assert!(reply.starts_with("ERR CONFIG SET failed") && reply.contains(why), "{reply}");
        assert!(!reply.contains("c1c2c1c2") && !reply.contains("b1b2b1b2"), "{reply}");
        assert_eq!(
            (client.option(OPTION), client.option("timeout")),
            (keys.display().to_string(), "0".into())
        );
    };
    let other = other.to_str().unwrap().to_string();
    refused(&line(2, 'b'), &other, "key 1, which is not among the new keys");
    refused(&(line(1, 'c') + &line(2, 'b')), &other, "key 1, which is not among the new keys");
    refused("1 abc\n", &other, "line 1 of the keys: a key has 64 hexadecimal digits");
    refused("", &other, "there is no key");
    refused("", nowhere, "key file /nowhere/terrace.keys: ");
    refused("", folder, "is no regular file");
    refused("", "", "the store is encrypted and needs its keys");
    // A key that files were written with since then stays needed as well.
    std::fs::write(&keys, &both).unwrap();
    assert_eq!(client.call(&["CONFIG", "SET", OPTION, path]), ok());
    assert_eq!(client.say("SET b 2"), ok());
    assert_eq!(client.say("SAVE"), ok());
    std::fs::write(&keys, line(2, 'b')).unwrap();
    let reply = error(&client.call(&["CONFIG", "SET", OPTION, path]));
    assert!(reply.contains("key 1, which is not among the new keys"), "{reply}");
    assert_eq!(client.say("GET a"), bulk("1"));
    assert_eq!(client.say("SET c 3"), ok());
}

#[test]
fn a_store_that_is_not_encrypted_takes_no_keys() {
    let (dir, keys) = dir();
    std::fs::write(&keys, line(1, 'a')).unwrap();
    let server = Served::again(dir, &[]);
    let mut client = server.client();
    let reply = error(&client.call(&["CONFIG", "SET", OPTION, keys.to_str().unwrap()]));
    assert!(reply.contains("the store is not encrypted; encrypt it with"), "{reply}");
    let shown = client.option(OPTION);
    assert_eq!(shown, "");
    assert_eq!(client.call(&["CONFIG", "SET", OPTION, &shown, "timeout", "9"]), ok());
    assert_eq!((client.option(OPTION), client.option("timeout")), (shown, "9".into()));
    assert_eq!(used(&server), [None]);
}

#[test]
fn the_key_file_is_read_again_with_the_configuration() {
    let (dir, keys) = dir();
    let file = dir.path().join("terrace.toml");
    std::fs::write(&file, format!("{OPTION} = {:?}\ntimeout = 50\n", keys.display().to_string()))
        .unwrap();
    std::fs::write(&keys, line(1, 'a')).unwrap();
    let server = started(&dir, Some(&file), &[]);
    let mut client = server.client();
    let write = |client: &mut crate::client::Client| {
        assert_eq!(client.say("SET a 1"), ok());
        assert_eq!(client.say("SAVE"), ok());
    };
    // Keys that are refused, or are not there, do not keep the other options from changing.
    std::fs::remove_file(&keys).unwrap();
    std::fs::write(&file, format!("{OPTION} = {:?}\ntimeout = 60\n", keys.display().to_string()))
        .unwrap();
    server.server().reload();
    assert_eq!(client.option("timeout"), "60");
    write(&mut client);
    assert_eq!(used(&server), [Some(1)]);
    std::fs::write(&keys, line(1, 'a') + &line(2, 'b')).unwrap();
    server.server().reload();
    write(&mut client);
    assert_eq!(used(&server), [Some(1), Some(2)]);
}
