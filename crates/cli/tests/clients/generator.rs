//! Random commands over few keys, so that types meet, things expire, and errors happen.

mod about;
mod several;

use terrace_base::rng::{Rng, SplitMix64};

/// Keys of all types together.
const KEYS: u64 = 24;
const MEMBERS: u64 = 12;

pub struct Generator {
    rng: SplitMix64,
    in_multi: bool,
}

type Request = Vec<Vec<u8>>;

impl Generator {
    pub fn new(seed: u64) -> Self {
        Self { rng: SplitMix64::new(seed), in_multi: false }
    }

    pub fn next(&mut self) -> Request {
        if self.rng.below(60) == 0 {
            self.in_multi = !self.in_multi;
            let ends = if self.rng.below(6) == 0 { "DISCARD" } else { "EXEC" };
            return words(if self.in_multi { "MULTI" } else { ends });
        }
        match self.rng.below(15) {
            9 => self.names(),
            10 => self.transfers(),
            11 => self.combinations(),
            12 => self.bits(),
            13 => self.sorting(),
            14 => self.about(),
            0 => self.string(),
            1 => self.key_command(),
            2 => self.hash(),
            3 => self.set(),
            4 => self.sorted_set(),
            5 => self.list(),
            6 => self.unordered(),
            7 => self.by_place(),
            _ => self.connection(),
        }
    }

    fn of<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.rng.below(choices.len() as u64) as usize]
    }

    fn key(&mut self) -> String {
        // Most commands meet the type they are for.
        format!("key:{}", self.rng.below(KEYS))
    }

    /// A key that is of this kind, unless a stranger wrote it.
    fn key_of(&mut self, kind: &str) -> String {
        match self.rng.below(12) {
            0 => self.key(),
            _ => format!("{kind}:{}", self.rng.below(KEYS / 4)),
        }
    }

    fn member(&mut self) -> String {
        match self.rng.below(20) {
            0 => String::new(),
            1 => "m".repeat(self.rng.below(300) as usize),
            _ => format!("m{}", self.rng.below(MEMBERS)),
        }
    }

    fn integer(&mut self) -> String {
        match self.rng.below(14) {
            0 => i64::MAX.to_string(),
            1 => i64::MIN.to_string(),
            2 => "text".into(),
            3 => "007".into(),
            4 => "1e3".into(),
            5 => " 1".into(),
            _ => (self.rng.below(200) as i64 - 100).to_string(),
        }
    }

    fn small(&mut self) -> String {
        (self.rng.below(20) as i64 - 8).to_string()
    }

    fn score(&mut self) -> String {
        match self.rng.below(16) {
            0 => "inf".into(),
            1 => "-inf".into(),
            2 => "nan".into(),
            3 => "nonsense".into(),
            4 => self
                .of(&["1e300", "0.1", "-3.7e-9", "1e17", "0x1p4", "0x1.8", "0xg", "1e-7"])
                .into(),
            5 => format!("{}.5", self.rng.below(5)),
            _ => self.rng.below(10).to_string(),
        }
    }

    fn bound(&mut self) -> String {
        match self.rng.below(6) {
            0 => "-inf".into(),
            1 => "+inf".into(),
            2 => format!("({}", self.rng.below(10)),
            3 => self.of(&["bad", "0x3", "(0.1", " 2"]).into(),
            _ => self.rng.below(10).to_string(),
        }
    }

    fn value(&mut self) -> String {
        match self.rng.below(10) {
            0 => String::new(),
            1 => "v".repeat(self.rng.below(3000) as usize),
            2 => format!("{}.25", self.rng.below(50)),
            3..=6 => self.rng.below(1000).to_string(),
            _ => format!("value {}", self.rng.below(100)),
        }
    }

    fn string(&mut self) -> Request {
        let key = self.key_of("str");
        let (value, integer, small) = (self.value(), self.integer(), self.small());
        let other = self.key_of("str");
        match self.rng.below(24) {
            0 | 1 => request(&["SET", &key, &value]),
            2 => {
                let condition = self.of(&["NX", "XX", "GET", "KEEPTTL", "nx", "WRONG"]);
                request(&["SET", &key, &value, condition])
            }
            3 => request(&["SET", &key, &value, "EX", self.of(&["100", "1000", "0", "-5", "x"])]),
            4 => request(&["SETNX", &key, &value]),
            5 => request(&["SETEX", &key, self.of(&["100", "0", "x"]), &value]),
            6 => request(&["GETSET", &key, &value]),
            7 => request(&["GETDEL", &key]),
            8 => request(&["GETEX", &key, "PERSIST"]),
            9 => request(&["GETEX", &key, "EX", "500"]),
            10 => request(&["APPEND", &key, &value]),
            11 => request(&["STRLEN", &key]),
            12 => request(&["GETRANGE", &key, &small, &integer]),
            13 => request(&["SETRANGE", &key, &small, &value]),
            14 => request(&["INCR", &key]),
            15 => request(&["DECRBY", &key, &integer]),
            16 => request(&["INCRBY", &key, &integer]),
            17 => request(&[
                "INCRBYFLOAT",
                &key,
                self.of(&["0.1", "-3", "1e2", "x", "5.25", "0x1p-2", "0x10"]),
            ]),
            18 => request(&["MGET", &key, &other, "absent"]),
            19 => request(&["MSET", &key, &value, &other, "second"]),
            20 => request(&["MSETNX", &key, &value, &other, "second"]),
            21 => request(&["SET", &key]),
            22 => request(&["PSETEX", &key, "100000", &value]),
            _ => request(&["GET", &key]),
        }
    }

    fn key_command(&mut self) -> Request {
        let kind = self.of(&["str", "hash", "set", "zset", "list", "key"]);
        let (key, other) = (self.key_of(kind), self.key());
        match self.rng.below(16) {
            0 | 1 => request(&["DEL", &key, &other]),
            2 => request(&["UNLINK", &key]),
            3 => request(&["EXISTS", &key, &other, &key]),
            4 => request(&["TYPE", &key]),
            5 => request(&["EXPIRE", &key, self.of(&["100", "1000", "-1", "0", "x"])]),
            6 => {
                let condition = self.of(&["NX", "XX", "GT", "LT", "WRONG"]);
                // No two times are alike: which of two is later must not hang on a millisecond.
                let seconds = (2000 + self.rng.below(1_000_000)).to_string();
                request(&["EXPIRE", &key, &seconds, condition])
            }
            7 => request(&["PEXPIRE", &key, "1000000"]),
            8 => request(&["EXPIREAT", &key, self.of(&["4000000000", "1", "x"])]),
            9 | 10 => request(&["TTL", &key]),
            11 => request(&["PTTL", &key]),
            12 => request(&["PERSIST", &key]),
            13 => request(&["EXPIRETIME", "absent"]),
            14 => request(&["TOUCH", &key, &other]),
            _ => request(&["SELECT", self.of(&["0", "0", "0", "-1", "99", "x"])]),
        }
    }

    fn hash(&mut self) -> Request {
        let key = self.key_of("hash");
        let (field, second) = (self.member(), self.member());
        let (value, integer) = (self.value(), self.integer());
        match self.rng.below(14) {
            0..=2 => request(&["HSET", &key, &field, &value]),
            3 => request(&["HSET", &key, &field, &value, &second, "2"]),
            4 => request(&["HSETNX", &key, &field, &value]),
            5 => request(&["HGET", &key, &field]),
            6 => request(&["HMGET", &key, &field, &second, "absent"]),
            7 => request(&["HDEL", &key, &field, &second]),
            8 => request(&["HLEN", &key]),
            9 => request(&["HEXISTS", &key, &field]),
            10 => request(&["HSTRLEN", &key, &field]),
            11 => request(&["HINCRBY", &key, &field, &integer]),
            12 => request(&["HINCRBYFLOAT", &key, &field, self.of(&["0.5", "x", "-2", "1e3"])]),
            _ => request(&["HSET", &key, &field]),
        }
    }

    fn set(&mut self) -> Request {
        let key = self.key_of("set");
        let (member, second) = (self.member(), self.member());
        match self.rng.below(7) {
            0..=2 => request(&["SADD", &key, &member, &second]),
            3 => request(&["SREM", &key, &member, &second]),
            4 => request(&["SISMEMBER", &key, &member]),
            5 => request(&["SMISMEMBER", &key, &member, &second]),
            _ => request(&["SCARD", &key]),
        }
    }

    fn sorted_set(&mut self) -> Request {
        let key = self.key_of("zset");
        let (member, second, score) = (self.member(), self.member(), self.score());
        let (low, high) = (self.bound(), self.bound());
        let (from, to) = (self.small(), self.small());
        match self.rng.below(22) {
            0..=3 => request(&["ZADD", &key, &score, &member, "3", &second]),
            4 => {
                let condition = self.of(&["NX", "XX", "GT", "LT", "CH", "INCR"]);
                request(&["ZADD", &key, condition, &score, &member])
            }
            5 => request(&["ZADD", &key, "XX", "CH", &score, &member]),
            6 => request(&["ZREM", &key, &member, &second]),
            7 => request(&["ZSCORE", &key, &member]),
            8 => request(&["ZMSCORE", &key, &member, &second]),
            9 => request(&["ZCARD", &key]),
            10 => request(&["ZINCRBY", &key, &score, &member]),
            11 => request(&["ZRANK", &key, &member]),
            12 => request(&["ZREVRANK", &key, &member]),
            13 => request(&["ZCOUNT", &key, &low, &high]),
            14 => request(&["ZRANGE", &key, &from, &to]),
            15 => request(&["ZRANGE", &key, &from, &to, "WITHSCORES"]),
            16 => request(&["ZREVRANGE", &key, &from, &to]),
            17 => request(&["ZRANGEBYSCORE", &key, &low, &high, "WITHSCORES"]),
            18 => request(&["ZREVRANGEBYSCORE", &key, &high, &low, "LIMIT", "1", "3"]),
            19 => request(&["ZRANGE", &key, &low, &high, "BYSCORE", "LIMIT", "0", "2"]),
            20 => request(&[self.of(&["ZPOPMIN", "ZPOPMAX"]), &key]),
            _ => request(&["ZREMRANGEBYSCORE", &key, &low, &high]),
        }
    }

    fn list(&mut self) -> Request {
        let key = self.key_of("list");
        let (value, second) = (self.member(), self.member());
        let (from, to) = (self.small(), self.small());
        match self.rng.below(18) {
            0..=2 => request(&["RPUSH", &key, &value, &second]),
            3 | 4 => request(&["LPUSH", &key, &value, &second]),
            5 => request(&[self.of(&["LPUSHX", "RPUSHX"]), &key, &value]),
            6 => request(&["LPOP", &key]),
            7 => request(&["RPOP", &key]),
            8 => request(&["LPOP", &key, self.of(&["2", "0", "-1", "x"])]),
            9 => request(&["LLEN", &key]),
            10 => request(&["LRANGE", &key, &from, &to]),
            11 => request(&["LRANGE", &key, "0", "-1"]),
            12 => request(&["LINDEX", &key, &from]),
            13 => request(&["LSET", &key, &from, &value]),
            14 => request(&["LTRIM", &key, &from, &to]),
            15 => request(&["LREM", &key, self.of(&["0", "1", "-2"]), &value]),
            16 => {
                request(&["LINSERT", &key, self.of(&["BEFORE", "AFTER", "WRONG"]), &value, &second])
            }
            _ => request(&["LPUSH", &key]),
        }
    }

    fn unordered(&mut self) -> Request {
        let (hash, set, other) = (self.key_of("hash"), self.key_of("set"), self.key_of("set"));
        match self.rng.below(8) {
            0 => request(&["HGETALL", &hash]),
            1 => request(&["HKEYS", &hash]),
            2 => request(&["HVALS", &hash]),
            3 => {
                request(&["KEYS", self.of(&["*", "str:*", "h?sh:*", "[sk]*:1", "absent*", "\\*"])])
            }
            4 => request(&["SINTER", &set, &other]),
            5 => request(&["SUNION", &set, &other]),
            6 => request(&["SDIFF", &set, &other]),
            _ => request(&["SMEMBERS", &set]),
        }
    }

    fn lexical(&mut self) -> String {
        match self.rng.below(8) {
            0 => "-".into(),
            1 => "+".into(),
            2 => "bad".into(),
            3 | 4 => format!("({}", self.member()),
            _ => format!("[{}", self.member()),
        }
    }

    /// Sorted sets by the bytes of their members and by rank, and what walks over all there is.
    fn by_place(&mut self) -> Request {
        let key = self.key_of("zset");
        // All scores alike, or an order by bytes means nothing.
        let (even, member) = (format!("even:{}", self.rng.below(3)), self.member());
        let (low, high) = (self.lexical(), self.lexical());
        let (from, to) = (self.small(), self.small());
        let (hash, set, string) = (self.key_of("hash"), self.key_of("set"), self.key_of("str"));
        match self.rng.below(22) {
            0 => request(&["ZRANGEBYLEX", &even, &low, &high]),
            1 => request(&["ZREVRANGEBYLEX", &even, &high, &low, "LIMIT", "1", "4"]),
            2 => request(&["ZLEXCOUNT", &even, &low, &high]),
            3 => request(&["ZRANGE", &even, &low, &high, "BYLEX"]),
            18..=20 => request(&["ZADD", &even, "0", &member]),
            21 => request(&["ZREM", &even, &member]),
            4 => request(&["ZRANGE", &key, &from, &to, "REV", "WITHSCORES"]),
            5 => request(&["ZREMRANGEBYLEX", &even, "[m1", "(m11"]),
            6 => request(&["ZREMRANGEBYRANK", &key, &from, "2"]),
            7 => request(&["ZRANGE", &key, "(1", "+inf", "BYSCORE", "REV"]),
            8 => request(&["ZSCAN", &key, "0", "COUNT", "5000"]),
            9 => request(&["HSCAN", &hash, "0", "COUNT", "5000", "MATCH", self.of(&["*", "m1*"])]),
            10 => request(&["SSCAN", &set, "0", "COUNT", "5000"]),
            11 => request(&["SCAN", "0", "COUNT", "5000", "MATCH", self.of(&["*", "s*", "no*"])]),
            12 => {
                let kind = self.of(&["string", "hash", "set", "zset", "list", "nonsense"]);
                request(&["SCAN", "0", "COUNT", "5000", "TYPE", kind])
            }
            13 => request(&["SRANDMEMBER", &set, "1000"]),
            14 => request(&["SPOP", &set, self.of(&["1000", "0", "-1", "x"])]),
            15 => request(&["HMSET", &hash, "m1", &from, "m2", &to]),
            16 => request(&["DECR", &string]),
            _ => request(&["SUBSTR", &string, &from, &to]),
        }
    }

    fn connection(&mut self) -> Request {
        let kind = self.of(&["str", "hash", "set", "zset", "list", "key"]);
        let (key, other) = (self.key_of(kind), self.key());
        match self.rng.below(14) {
            0..=2 => request(&["WATCH", &key, &other]),
            3 => request(&["UNWATCH"]),
            4 => request(&["ECHO", &key]),
            5 => request(&["PING", &key]),
            6 => request(&["PEXPIREAT", &key, self.of(&["4000000000000", "1", "x", "-1"])]),
            7 => request(&["PEXPIRETIME", "absent"]),
            8 => request(&[self.of(&["NOSUCH", "GET", "ZADD", "WATCH", "MGET"])]),
            9 => request(&["HSCAN", &key, self.of(&["x", "0"]), "COUNT", self.of(&["0", "x"])]),
            10 if self.rng.below(20) == 0 => request(&[self.of(&["FLUSHDB", "FLUSHALL"])]),
            11 => request(&[self.of(&["EXEC", "DISCARD", "MULTI"])]),
            12 => request(&["GETEX", &key, "EX", self.of(&["0", "x", "-1"])]),
            _ => request(&["SET", &other, "1", "PX", self.of(&["0", "100000"]), "NX"]),
        }
    }
}

fn words(text: &str) -> Request {
    text.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

fn request(arguments: &[&str]) -> Request {
    arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect()
}
