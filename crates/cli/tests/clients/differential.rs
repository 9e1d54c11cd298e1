//! Random commands to Terrace and to Redis: the replies are the same.

use crate::generator::Generator;
use crate::servers::Process;
use std::collections::BTreeSet;
use terrace::Options;
use terrace_keyspace::{Keyspace, Placement};
use terrace_resp::Reply;
use terrace_resp::test_client::Client;

/// Commands in all.
const COMMANDS: usize = 200_000;

/// Commands that are sent at once.
const AT_ONCE: usize = 50;

/// A command may run so much later on one server than on the other: what is left of a key's time
/// then differs.
const LATE_MS: i64 = 30_000;

/// Differences that are shown.
const SHOWN: usize = 8;

#[test]
#[ignore = "needs redis-server: run `cargo xtask test`"]
fn random_commands_are_answered_as_redis_answers_them() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    // Small blocks of memory, so that commands go both ways: by the loop and by the pool.
    let flags = ["--server-threads", "2", "--maxmemory", "16mb"];
    let dir = tempfile::tempdir().unwrap();
    let slots =
        Keyspace::open_placed(dir.path().join("store"), Options::default(), Placement::Slots);
    slots.unwrap().close().unwrap();
    let (in_order, by_slot) = (Process::terrace(&flags), Process::terrace_in(dir.path(), &flags));
    let redis = Process::redis();
    for (terrace, protocol, seed, count) in [
        (&in_order, 2, seed, COMMANDS / 2),
        (&in_order, 3, seed + 1, COMMANDS / 2),
        (&by_slot, 2, seed + 2, COMMANDS / 2),
    ] {
        let (mut ours, mut theirs) = (terrace.connect(), redis.connect());
        for connection in [&mut ours, &mut theirs] {
            connection.say(&format!("HELLO {protocol}"));
            connection.say("FLUSHALL");
        }
        compare(&mut ours, &mut theirs, seed, count);
    }
}

/// Commands that are not sent: the first ends the connection, the others are Terrace's own.
const NOT_SENT: &[&str] = &["quit", "explain", "tscan"];

#[test]
fn every_command_of_the_table_is_among_the_random_ones() {
    let mut generator = Generator::new(1);
    let name = |request: Vec<Vec<u8>>| String::from_utf8_lossy(&request[0]).to_lowercase();
    let sent: BTreeSet<String> = (0..COMMANDS / 2).map(|_| name(generator.next())).collect();
    let all = terrace_server::command::table().all();
    let missing: Vec<&str> = all
        .iter()
        .map(|spec| spec.name)
        .filter(|name| !sent.contains(*name) && !NOT_SENT.contains(name))
        .collect();
    assert!(missing.is_empty(), "never sent: {missing:?}");
}

fn compare(ours: &mut Client, theirs: &mut Client, seed: u64, count: usize) {
    let mut generator = Generator::new(seed);
    let mut compared = 0;
    let mut errors = 0;
    let mut differences = Vec::new();
    let mut known = 0;
    // What was sent since the last WATCH, to tell why an EXEC differs.
    let mut since_watch: Vec<String> = Vec::new();
    // What EXEC will answer.
    let mut queued: Vec<Vec<Vec<u8>>> = Vec::new();
    while differences.len() < SHOWN && compared < count {
        let requests: Vec<Vec<Vec<u8>>> = (0..AT_ONCE).map(|_| generator.next()).collect();
        ours.send_all(&requests);
        theirs.send_all(&requests);
        for request in &requests {
            let (our, their) = (ours.reply(), theirs.reply());
            errors += usize::from(matches!(their, Reply::Error(_)));
            if request[0] == b"WATCH" {
                since_watch.clear();
            }
            since_watch.push(format!("{} -> {}", shown(request), told(&their)));
            match (our, their) {
                (Reply::Array(our), Reply::Array(their))
                    if request[0] == b"EXEC"
                        && our.len() == their.len()
                        && our.len() == queued.len() =>
                {
                    for (request, (our, their)) in queued.drain(..).zip(our.into_iter().zip(their))
                    {
                        differences.extend(difference(&request, our, their));
                    }
                }
                (our, their) => {
                    match &their {
                        Reply::Simple(text) if **text == *b"QUEUED" => queued.push(request.clone()),
                        _ if [&b"EXEC"[..], b"DISCARD", b"RESET"].contains(&&*request[0]) => {
                            queued.clear();
                        }
                        _ => {}
                    }
                    let found = difference(request, our, their);
                    let is_exec = request[0] == b"EXEC";
                    differences.extend(found.map(|told| match is_exec {
                        true => format!("{told}\nafter:\n{}", since_watch.join("\n")),
                        false => told,
                    }));
                }
            }
        }
        compared += requests.len();
        if differences.len() > known {
            // Both begin again, so that what follows from a difference is not one more.
            known += 1;
            differences.truncate(known);
            for connection in [&mut *ours, theirs] {
                connection.say("DISCARD");
                connection.say("UNWATCH");
                connection.say("FLUSHALL");
            }
            queued.clear();
        }
    }
    let differences = differences.join("\n");
    assert!(differences.is_empty(), "seed {seed}, of {compared} commands:\n{differences}");
    println!("{compared} replies, of which {errors} were errors");
    assert!(
        errors > count / 100 && errors < count / 2,
        "{errors} errors in {count} are no good mix"
    );
}

/// What to tell of two replies if they are not the same.
fn difference(request: &[Vec<u8>], our: Reply<'static>, their: Reply<'static>) -> Option<String> {
    let name = String::from_utf8_lossy(&request[0]).to_uppercase();
    let unit_ms = match name.as_str() {
        "TTL" => 1000,
        _ => 1,
    };
    if let (Reply::Integer(our), Reply::Integer(their)) = (&our, &their)
        && name.contains("TTL")
        && *our >= 0
        && *their >= 0
        && (our - their).abs() * unit_ms <= LATE_MS
    {
        return None;
    }
    let with_pairs = name.ends_with("RANDFIELD") || name == "ZRANDMEMBER";
    let form = if with_pairs && request.len() == 4 { "HGETALL" } else { &*name };
    let (our, their) = match (form, our, their) {
        // In RESP3 each pair is an array, and the pairs have no order.
        ("HGETALL", Reply::Array(our), Reply::Array(their))
            if our.iter().all(|one| matches!(one, Reply::Array(_))) =>
        {
            (sorted(Reply::Array(our)), sorted(Reply::Array(their)))
        }
        // What is not sorted may be a set, which has no order.
        ("SORT", our, their) if request.iter().any(|word| word == b"nosort") => {
            (sorted(our), sorted(their))
        }
        (form, our, their) => (normal(form, our), normal(form, their)),
    };
    (our != their).then(|| {
        format!("{}\n  ours    {}\n  Redis's {}", shown(request), told(&our), told(&their))
    })
}

fn shown(request: &[Vec<u8>]) -> String {
    let word = |word: &Vec<u8>| String::from_utf8_lossy(&word[..word.len().min(60)]).into_owned();
    request.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// A reply for people: text as text.
fn told(reply: &Reply<'_>) -> String {
    match reply {
        Reply::Simple(text) | Reply::Error(text) => String::from_utf8_lossy(text).into_owned(),
        Reply::Bulk(text) => format!("{:?}", String::from_utf8_lossy(&text[..text.len().min(60)])),
        Reply::Array(replies) => {
            format!("[{}]", replies.iter().map(told).collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

/// Scores of ZSCAN in one form: how Redis writes large ones hangs on how it holds the sorted set.
fn as_numbers(reply: Reply<'static>) -> Reply<'static> {
    match reply {
        Reply::Bulk(text) => {
            let number = std::str::from_utf8(&text).ok().and_then(|text| text.parse::<f64>().ok());
            Reply::Bulk(number.map_or(text, |number| format!("{number:e}").into_bytes().into()))
        }
        Reply::Array(replies) => Reply::Array(replies.into_iter().map(as_numbers).collect()),
        other => other,
    }
}

/// What is random, or a time.
fn some(reply: Reply<'static>) -> Reply<'static> {
    match reply {
        Reply::Bulk(_) => Reply::Bulk(b"some"[..].into()),
        Reply::Integer(number) => Reply::Integer(number.signum().min(0)),
        other => other,
    }
}

/// A reply without what may differ: the order of what has none.
fn normal(name: &str, reply: Reply<'static>) -> Reply<'static> {
    match (name, reply) {
        ("RANDOMKEY" | "OBJECT", reply) => some(reply),
        // Keys that have expired count until they are found.
        ("DBSIZE", reply) => some(reply),
        ("HGETALL", Reply::Array(flat)) => {
            let mut pairs: Vec<_> = flat.chunks(2).map(|pair| pair.to_vec()).collect();
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            Reply::Array(pairs.concat())
        }
        ("HGETALL", Reply::Map(mut pairs)) => {
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            Reply::Map(pairs)
        }
        ("SCAN" | "HSCAN" | "SSCAN" | "ZSCAN", Reply::Array(mut replies)) if replies.len() == 2 => {
            let all = replies.remove(1);
            let pairs = if name == "HSCAN" || name == "ZSCAN" { "HGETALL" } else { "SMEMBERS" };
            let all = if name == "ZSCAN" { as_numbers(all) } else { all };
            replies.push(normal(pairs, all));
            Reply::Array(replies)
        }
        (
            "SMEMBERS" | "SRANDMEMBER" | "SPOP" | "KEYS" | "HKEYS" | "HVALS" | "SINTER" | "SUNION"
            | "SDIFF" | "HRANDFIELD" | "ZRANDMEMBER",
            reply,
        ) => sorted(reply),
        (_, reply) => reply,
    }
}

fn sorted(reply: Reply<'static>) -> Reply<'static> {
    let sort = |mut replies: Vec<Reply<'static>>| {
        replies.sort_by_key(|reply| format!("{reply:?}"));
        replies
    };
    match reply {
        Reply::Array(replies) => Reply::Array(sort(replies)),
        Reply::Set(replies) => Reply::Set(sort(replies)),
        other => other,
    }
}
