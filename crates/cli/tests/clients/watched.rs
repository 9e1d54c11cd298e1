//! What counts as a write of a watched key, beside Redis.

use crate::servers::Process;
use terrace_resp::test_client::shown;

/// What makes the key `k`, and what another client does then.
const ROWS: &[(&str, &str)] = &[
    ("SET k v", "SETBIT k 0 0"),
    ("SET k v", "SETBIT k 1 1"),
    ("SET k v", "SETBIT k 0 1"),
    ("SET k v", "SETBIT k 100 0"),
    ("", "SETBIT k 5 0"),
    ("SET k v", "BITFIELD k SET u8 0 118"),
    ("SET k v", "BITFIELD k SET u8 0 119"),
    ("SET k v", "BITFIELD k INCRBY u8 0 0"),
    ("SET k v", "BITFIELD k GET u8 0"),
    ("SET k v", "BITFIELD k SET u8 100 0"),
    ("SET k v", "BITFIELD k OVERFLOW FAIL INCRBY u8 0 200"),
    ("SET k v", "SETRANGE k 0 v"),
    ("SET k v", "SET k v"),
    ("SET k v", "SET k v NX"),
    ("SET k v", "GETSET k v"),
    ("SET k v", "GETEX k"),
    ("SET k v", "GETEX k PERSIST"),
    ("SET k v", "PERSIST k"),
    ("SET k v", "EXPIRE k 100"),
    ("SET k v", "EXPIRE k 100 XX"),
    ("SET k 1", "INCRBY k 0"),
    ("SET k v", "COPY k o"),
    ("SET k v", "COPY o k REPLACE"),
    ("SET k v", "RENAME k k"),
    ("SET k v", "RENAMENX k k"),
    ("SET k v", "MOVE k 1"),
    ("SET k v", "TOUCH k"),
    ("SET k v", "MSETNX k w"),
    ("SADD k a", "SADD k a"),
    ("SADD k a", "SREM k b"),
    ("SADD k a", "SMOVE k k a"),
    ("SADD k a", "SMOVE k o b"),
    ("SADD k a", "SPOP k 0"),
    ("SADD k a", "SUNIONSTORE k k"),
    ("", "SUNIONSTORE k o"),
    ("", "SINTERSTORE k o o"),
    ("", "SDIFFSTORE k o"),
    ("", "ZUNIONSTORE k 1 o"),
    ("", "ZINTERSTORE k 1 o"),
    ("", "ZDIFFSTORE k 1 o"),
    ("", "ZRANGESTORE k o 0 -1"),
    ("", "SORT o STORE k"),
    ("", "BITOP NOT k o"),
    ("", "BITOP AND k o o"),
    ("SET k v", "BITOP NOT k o"),
    ("SADD k a", "SINTERSTORE k o o"),
    ("HSET k f v", "HSET k f v"),
    ("HSET k f v", "HSETNX k f w"),
    ("HSET k f v", "HDEL k g"),
    ("HSET k f 1", "HINCRBY k f 0"),
    ("HSET k f 1", "HINCRBYFLOAT k f 0"),
    ("ZADD k 1 a", "ZADD k 1 a"),
    ("ZADD k 1 a", "ZADD k NX 2 a"),
    ("ZADD k 1 a", "ZADD k GT 0 a"),
    ("ZADD k 1 a", "ZINCRBY k 0 a"),
    ("ZADD k 1 a", "ZADD k INCR 0 a"),
    ("ZADD k 1 a", "ZADD k XX 1 b"),
    ("ZADD k 1 a", "ZREM k b"),
    ("ZADD k 1 a", "ZREMRANGEBYRANK k 5 9"),
    ("ZADD k 1 a", "ZREMRANGEBYSCORE k 5 9"),
    ("ZADD k 1 a", "ZREMRANGEBYLEX k [x [y"),
    ("ZADD k 1 a", "ZPOPMIN k 0"),
    ("ZADD k 1 a", "ZMPOP 1 k MIN"),
    ("ZADD k 1 a", "ZUNIONSTORE k 1 k"),
    ("RPUSH k a", "LTRIM k 0 -1"),
    ("RPUSH k a", "LTRIM k 0 5"),
    ("RPUSH k a", "LREM k 0 b"),
    ("RPUSH k a", "LSET k 0 a"),
    ("RPUSH k a", "LINSERT k BEFORE x b"),
    ("RPUSH k a", "LPOP k 0"),
    ("RPUSH k a", "LMOVE k k LEFT LEFT"),
    ("RPUSH k a", "LMOVE k k LEFT RIGHT"),
    ("RPUSH k a b", "LMOVE k k LEFT LEFT"),
    ("RPUSH k a", "RPOPLPUSH k k"),
    ("RPUSH k a", "RPOPLPUSH o k"),
    ("RPUSH k a", "LPUSHX k b"),
    ("", "LPUSHX k b"),
    ("", "RPUSHX k b"),
    ("RPUSH k a", "SORT k STORE k"),
    ("", "DEL k"),
    ("", "UNLINK k"),
    ("", "GETDEL k"),
    ("", "LPOP k"),
    ("", "LTRIM k 0 1"),
    ("", "EXPIRE k 100"),
    ("", "PERSIST k"),
    ("", "RENAME o k"),
    ("SET k v", "EXPIRE k -1"),
    ("SET k v", "SET k v GET"),
    ("SET k v", "SET k v XX"),
    ("SET k v", "SETNX k w"),
    ("SET k v EX 100", "SET k v KEEPTTL"),
    ("SET k v EX 100", "GETEX k PERSIST"),
    ("SET k v EX 100", "EXPIRE k 100 NX"),
    ("SET k v EX 100", "EXPIRE k 50 GT"),
    ("SET k v EX 100", "PERSIST k"),
    ("SET k v EX 100", "FLUSHDB"),
    ("SADD o a", "SMOVE o k a"),
    ("SADD o a", "SUNIONSTORE k o"),
    ("SET k v", "INCRBYFLOAT k x"),
    ("SET k 1", "INCRBYFLOAT k 0"),
];

#[test]
#[ignore = "needs redis-server: run `cargo xtask test`"]
fn a_watched_key_is_written_by_what_writes_it_in_redis() {
    let servers = [Process::terrace(&[]), Process::redis()];
    let mut both = servers.each_ref().map(|server| (server.connect(), server.connect()));
    let mut differences = Vec::new();
    for (before, between) in ROWS {
        let [our, their] = both.each_mut().map(|(client, other)| {
            client.say("FLUSHALL");
            if !before.is_empty() {
                client.say(before);
            }
            client.say("WATCH k");
            other.say(between);
            client.say("MULTI");
            client.say("PING");
            shown(&client.say("EXEC"))
        });
        if our != their {
            differences.push(format!("{before}, {between}: ours {our:?}, Redis's {their:?}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
