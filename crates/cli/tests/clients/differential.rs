//! Random commands to Terrace and to Redis: the replies are the same.

use crate::connection::Connection;
use crate::generator::Generator;
use crate::process::Process;
use terrace_resp::Reply;

/// Commands in all.
const COMMANDS: usize = 200_000;

/// Commands that are sent at once.
const AT_ONCE: usize = 50;

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

fn compare(ours: &mut Connection, theirs: &mut Connection, seed: u64, count: usize) {
    let mut generator = Generator::new(seed);
    let mut compared = 0;
    let mut errors = 0;
    while compared < count {
        let requests: Vec<Vec<Vec<u8>>> = (0..AT_ONCE).map(|_| generator.next()).collect();
        ours.send(&requests);
        theirs.send(&requests);
        for request in &requests {
            let (our, their) = (ours.reply(), theirs.reply());
            errors += usize::from(matches!(their, Reply::Error(_)));
            let (our, their) = (normal(request, our), normal(request, their));
            assert_eq!(our, their, "ours and Redis's, to {} (seed {seed})", shown(request));
        }
        compared += requests.len();
    }
    println!("{compared} replies, of which {errors} were errors");
    assert!(
        errors > count / 100 && errors < count / 2,
        "{errors} errors in {count} are no good mix"
    );
}

fn shown(request: &[Vec<u8>]) -> String {
    let word = |word: &Vec<u8>| String::from_utf8_lossy(&word[..word.len().min(60)]).into_owned();
    request.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// A reply without what may differ: the order of what has none, and times that go on.
fn normal(request: &[Vec<u8>], reply: Reply<'static>) -> Reply<'static> {
    let name = String::from_utf8_lossy(&request[0]).to_uppercase();
    match (name.as_str(), reply) {
        ("EXEC", Reply::Array(replies)) => {
            // Which command a reply answers is not known here; only the unordered ones are sorted.
            Reply::Array(replies.into_iter().map(sorted_if_bulks).collect())
        }
        ("HGETALL", Reply::Array(flat)) => {
            let mut pairs: Vec<_> = flat.chunks(2).map(|pair| pair.to_vec()).collect();
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            Reply::Array(pairs.concat())
        }
        ("HGETALL", Reply::Map(mut pairs)) => {
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            Reply::Map(pairs)
        }
        ("SMEMBERS" | "KEYS" | "HKEYS" | "HVALS" | "SINTER" | "SUNION" | "SDIFF", reply) => {
            sorted_if_bulks(reply)
        }
        ("TTL", Reply::Integer(seconds)) if seconds > 0 => Reply::Integer((seconds + 5) / 10),
        ("PTTL", Reply::Integer(ms)) if ms > 0 => Reply::Integer((ms + 5000) / 10_000),
        (_, reply) => reply,
    }
}

fn sorted_if_bulks(reply: Reply<'static>) -> Reply<'static> {
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
