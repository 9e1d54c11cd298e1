//! Random commands to Terrace and to Redis: the replies are the same.

use crate::generator::Generator;
use crate::servers::Process;
use terrace_resp::Reply;
use terrace_resp::test_client::Client;

/// Commands in all.
const COMMANDS: usize = 200_000;

/// Commands that are sent at once.
const AT_ONCE: usize = 50;

/// A command may run so much later on one server than on the other: what is left of a key's time
/// then differs.
const LATE_MS: i64 = 30_000;

/// Differences that are shown. The later ones may follow from the first, if it left other data.
const SHOWN: usize = 8;

#[test]
#[ignore = "needs redis-server: run `cargo xtask test`"]
fn random_commands_are_answered_as_redis_answers_them() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    // Small blocks of memory, so that commands go both ways: by the loop and by the pool.
    let terrace = Process::terrace(&["--server-threads", "2", "--maxmemory", "16mb"]);
    let redis = Process::redis();
    for (protocol, seed, count) in [(2, seed, COMMANDS / 2), (3, seed + 1, COMMANDS / 2)] {
        let (mut ours, mut theirs) = (terrace.connect(), redis.connect());
        for connection in [&mut ours, &mut theirs] {
            connection.say(&format!("HELLO {protocol}"));
            connection.say("FLUSHALL");
        }
        compare(&mut ours, &mut theirs, seed, count);
    }
}

fn compare(ours: &mut Client, theirs: &mut Client, seed: u64, count: usize) {
    let mut generator = Generator::new(seed);
    let mut compared = 0;
    let mut errors = 0;
    let mut differences = Vec::new();
    // What EXEC will answer.
    let mut queued: Vec<Vec<Vec<u8>>> = Vec::new();
    while differences.is_empty() && compared < count {
        let requests: Vec<Vec<Vec<u8>>> = (0..AT_ONCE).map(|_| generator.next()).collect();
        ours.send_all(&requests);
        theirs.send_all(&requests);
        for request in &requests {
            let (our, their) = (ours.reply(), theirs.reply());
            errors += usize::from(matches!(their, Reply::Error(_)));
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
                        _ if [&b"EXEC"[..], b"DISCARD"].contains(&&*request[0]) => queued.clear(),
                        _ => {}
                    }
                    differences.extend(difference(request, our, their));
                }
            }
        }
        compared += requests.len();
    }
    differences.truncate(SHOWN);
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
    let (our, their) = (normal(&name, our), normal(&name, their));
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

/// Large numbers in one form: up to 7.0 Redis prints 17 digits, later the fewest that read back,
/// as Terrace does.
fn shortest(reply: Reply<'static>) -> Reply<'static> {
    match reply {
        Reply::Bulk(text) if text.windows(2).any(|pair| pair == b"e+") => {
            let number = std::str::from_utf8(&text).ok().and_then(|text| text.parse::<f64>().ok());
            Reply::Bulk(number.map_or(text, |number| format!("{number:e}").into_bytes().into()))
        }
        Reply::Array(replies) => Reply::Array(replies.into_iter().map(shortest).collect()),
        other => other,
    }
}

/// A reply without what may differ: the order of what has none.
fn normal(name: &str, reply: Reply<'static>) -> Reply<'static> {
    match (name, shortest(reply)) {
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
            replies.push(normal(pairs, all));
            Reply::Array(replies)
        }
        (
            "SMEMBERS" | "SRANDMEMBER" | "SPOP" | "KEYS" | "HKEYS" | "HVALS" | "SINTER" | "SUNION"
            | "SDIFF",
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
