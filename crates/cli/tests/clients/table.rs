//! The table of commands beside that of Redis: arguments, flags, keys, categories.

use crate::servers::Process;
use std::collections::{BTreeMap, BTreeSet};
use terrace_resp::Reply;
use terrace_resp::test_client::{Client, text};

/// What `COMMAND` tells of a command, as far as both have it.
#[derive(Debug, PartialEq)]
struct Row {
    arity: Reply<'static>,
    flags: BTreeSet<String>,
    positions: Vec<Reply<'static>>,
    categories: BTreeSet<String>,
    /// Of each key specification the flags, where the keys begin, and which they are.
    key_specs: Vec<(BTreeSet<String>, Reply<'static>, Reply<'static>)>,
}

/// Flags that mean the same on both: others are about scripts, replicas and loading.
const FLAGS: &[&str] =
    &["write", "readonly", "fast", "admin", "no_auth", "no_multi", "movablekeys"];

fn elements(reply: &Reply<'static>) -> Vec<Reply<'static>> {
    match reply {
        Reply::Array(elements) | Reply::Set(elements) => elements.clone(),
        other => panic!("{other:?}"),
    }
}

fn words(reply: &Reply<'static>) -> BTreeSet<String> {
    elements(reply).iter().map(text).collect()
}

fn add(rows: &mut BTreeMap<String, Row>, told: &Reply<'static>) {
    let told = elements(told);
    let mut flags = words(&told[2]);
    flags.retain(|flag| FLAGS.contains(&&**flag));
    let (arity, positions) = (told[1].clone(), told[3..6].to_vec());
    let name = text(&told[0]);
    // ZRANK has an option of a later version.
    let arity = if name.ends_with("rank") && name.starts_with('z') { Reply::Null } else { arity };
    let key_spec = |spec: &Reply<'static>| {
        let pairs = elements(spec);
        let of = |name: &str| {
            let pair = pairs.chunks_exact(2).find(|pair| text(&pair[0]) == name);
            pair.unwrap_or_else(|| panic!("no {name}: {spec:?}"))[1].clone()
        };
        (words(&of("flags")), of("begin_search"), of("find_keys"))
    };
    let key_specs = elements(&told[8]).iter().map(key_spec).collect();
    let row = Row { arity, flags, positions, categories: words(&told[6]), key_specs };
    rows.insert(name, row);
    elements(&told[9]).iter().for_each(|one| add(rows, one));
}

fn rows(client: &mut Client) -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::new();
    elements(&client.say("COMMAND")).iter().for_each(|told| add(&mut rows, told));
    rows
}

/// Commands of later versions of Redis, or Terrace's own.
const OTHERS: &[&str] = &[
    "client|no-touch",
    "client|setinfo",
    "cluster|create",
    "cluster|drain",
    "cluster|movekey",
    "cluster|repartition",
    "cluster|status",
    "explain",
    "tscan",
];

#[test]
#[ignore = "needs redis-server: run `cargo xtask test`"]
fn commands_have_the_arguments_the_keys_and_the_categories_that_they_have_in_redis() {
    let (terrace, redis) = (Process::terrace(&[]), Process::redis());
    let (mut ours, mut theirs) = (terrace.connect(), redis.connect());
    let (our_rows, their_rows) = (rows(&mut ours), rows(&mut theirs));
    let mut differences = Vec::new();
    for (name, our) in our_rows.iter().filter(|(name, _)| !OTHERS.contains(&&***name)) {
        match their_rows.get(name) {
            Some(their) if our == their => {}
            their => differences.push(format!("{name}\n  ours    {our:?}\n  Redis's {their:?}")),
        }
    }
    for category in elements(&theirs.say("ACL CAT")).iter().map(text) {
        let request = format!("ACL CAT {category}");
        let (mut our, mut their) = (words(&ours.say(&request)), words(&theirs.say(&request)));
        our.retain(|name| !OTHERS.contains(&&**name));
        their.retain(|name| our_rows.contains_key(name));
        if our != their {
            differences.push(format!("{request}\n  ours    {our:?}\n  Redis's {their:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    for own in ["EXPLAIN a", "TSCAN a b", "CLUSTER STATUS", "CLUSTER DRAIN a"] {
        assert_eq!(
            ours.say("ACL SETUSER own on nopass ~* +@all -@dangerous"),
            terrace_resp::test_client::ok()
        );
        let denied = text(&ours.say(&format!("ACL DRYRUN own {own}")));
        assert!(denied.contains("no permissions to run"), "{own}: {denied}");
    }
}

#[test]
#[ignore = "needs redis-server: run `cargo xtask test`"]
fn the_names_of_the_commands_of_redis_are_all() {
    let redis = Process::redis();
    let mut names = words(&redis.connect().say("COMMAND LIST"));
    names.retain(|name| !name.contains('|'));
    let known = terrace_server::command::REDIS_NAMES.iter().map(|name| name.to_string()).collect();
    assert_eq!(names, known);
}

/// Requests about a key `k`: who has which right to it may send them.
const ABOUT_A_KEY: &[&str] = &[
    "GET k",
    "SET k v",
    "SET k v GET",
    "EXISTS k",
    "TYPE k",
    "STRLEN k",
    "APPEND k v",
    "INCR k",
    "DEL k",
    "UNLINK k",
    "EXPIRE k 9",
    "PERSIST k",
    "TTL k",
    "GETDEL k",
    "GETEX k",
    "SETRANGE k 0 v",
    "GETRANGE k 0 1",
    "MSET k v",
    "MGET k",
    "HSET k f v",
    "HGET k f",
    "HDEL k f",
    "HLEN k",
    "HEXISTS k f",
    "HSTRLEN k f",
    "HINCRBY k f 1",
    "SADD k m",
    "SREM k m",
    "SPOP k",
    "SCARD k",
    "SISMEMBER k m",
    "SMISMEMBER k m",
    "SMEMBERS k",
    "ZADD k 1 m",
    "ZREM k m",
    "ZCARD k",
    "ZSCORE k m",
    "ZINCRBY k 1 m",
    "ZPOPMIN k",
    "ZREMRANGEBYRANK k 0 1",
    "LPUSH k v",
    "LPOP k",
    "LLEN k",
    "LSET k 0 v",
    "LTRIM k 0 1",
    "LREM k 0 v",
    "LINSERT k BEFORE a b",
    "LRANGE k 0 1",
    "OBJECT ENCODING k",
    "MEMORY USAGE k",
    "WATCH k",
    "TOUCH k",
    "SETBIT k 0 1",
    "GETBIT k 0",
    "BITCOUNT k",
    "BITFIELD k GET u8 0",
    "BITFIELD k SET u8 0 1",
    "BITFIELD_RO k GET u8 0",
    "BITOP NOT k o",
    "BITOP NOT o k",
    "RENAME k o",
    "RENAME o k",
    "RENAMENX o k",
    "COPY k o",
    "COPY o k",
    "MOVE k 1",
    "SMOVE k o m",
    "SMOVE o k m",
    "LMOVE k o LEFT LEFT",
    "LMOVE o k LEFT LEFT",
    "RPOPLPUSH k o",
    "RPOPLPUSH o k",
    "SUNIONSTORE k o",
    "SUNIONSTORE o k",
    "SDIFFSTORE o k",
    "ZUNIONSTORE k 1 o",
    "ZUNIONSTORE o 1 k",
    "ZINTERSTORE k 1 o",
    "ZRANGESTORE k o 0 1",
    "ZRANGESTORE o k 0 1",
    "ZUNION 1 k",
    "ZMPOP 1 k MIN",
    "LMPOP 1 k LEFT",
    "SINTERCARD 1 k",
    "ZINTERCARD 1 k",
    "SORT k",
    "SORT k STORE o",
    "SORT o STORE k",
    "SORT_RO k",
    "LPOS k v",
    "SETNX k v",
    "SETEX k 9 v",
    "PSETEX k 9 v",
    "HMSET k f v",
    "HSETNX k f v",
];

#[test]
#[ignore = "needs redis-server: run `cargo xtask test`"]
fn what_a_command_does_with_its_keys_is_told_as_in_redis() {
    let (terrace, redis) = (Process::terrace(&[]), Process::redis());
    for hello in ["HELLO 2", "HELLO 3"] {
        let mut both = [terrace.connect(), redis.connect()];
        both.iter_mut().for_each(|client| drop(client.say(hello)));
        let mut differences = Vec::new();
        for request in ABOUT_A_KEY {
            let request = format!("COMMAND GETKEYSANDFLAGS {request}");
            let [our, their] = both.each_mut().map(|client| client.say(&request));
            if our != their {
                let told = [our, their].map(|reply| terrace_resp::test_client::shown(&reply));
                differences.push(format!("{request}: ours {}, Redis's {}", told[0], told[1]));
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }
}

#[test]
#[ignore = "needs redis-server: run `cargo xtask test`"]
fn rights_to_read_and_to_write_keys_allow_what_they_allow_in_redis() {
    let (terrace, redis) = (Process::terrace(&[]), Process::redis());
    let mut both = [terrace.connect(), redis.connect()];
    let mut differences = Vec::new();
    for rights in ["%R~k", "%W~k", "~k", "~none"] {
        for client in &mut both {
            client.say(&format!("ACL SETUSER u reset on nopass +@all %RW~o {rights}"));
        }
        for request in ABOUT_A_KEY {
            let [our, their] = both.each_mut().map(|c| c.say(&format!("ACL DRYRUN u {request}")));
            if our != their {
                let told = [our, their].map(|reply| terrace_resp::test_client::shown(&reply));
                let told = format!("{rights} {request}: ours {}, Redis's {}", told[0], told[1]);
                differences.push(told);
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
