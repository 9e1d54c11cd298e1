//! Commands on several keys, on bits, and those that sort.

use super::{Generator, Request, request};
use terrace_base::rng::Rng;

impl Generator {
    /// Two or three keys of a kind, some of which may be the same.
    fn keys_of(&mut self, kind: &str) -> Vec<String> {
        (0..2 + self.rng.below(2)).map(|_| self.key_of(kind)).collect()
    }

    /// A command, how many keys follow, the keys, and more.
    fn counted(&mut self, before: &[&str], kind: &str, after: &[&str]) -> Request {
        let keys = self.keys_of(kind);
        let count = match self.rng.below(14) {
            0 => "0".into(),
            1 => "x".into(),
            2 => "9".into(),
            _ => keys.len().to_string(),
        };
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        request(&[before, &[&count], &keys, after].concat())
    }

    /// Names, copies, and moves between databases.
    pub(super) fn names(&mut self) -> Request {
        let kind = self.of(&["str", "hash", "set", "zset", "list", "key"]);
        let (key, other) = (self.key_of(kind), self.key_of(kind));
        match self.rng.below(12) {
            0 | 1 => request(&["RENAME", &key, &other]),
            2 | 3 => request(&["RENAMENX", &key, &other]),
            4 => request(&["COPY", &key, &other]),
            5 | 6 => request(&["COPY", &key, &other, "REPLACE"]),
            7 => request(&["COPY", &key, &other, "DB", self.of(&["0", "1", "99", "x"]), "replace"]),
            8 => request(&["COPY", &key, &other, self.of(&["DB", "WRONG"])]),
            9 => request(&["MOVE", &key, self.of(&["1", "0", "99", "x"])]),
            10 => request(&["SELECT", self.of(&["1", "0", "0"])]),
            _ => request(&[self.of(&["RENAME", "COPY", "MOVE"]), &key]),
        }
    }

    /// Sets into sets, lists into lists.
    pub(super) fn transfers(&mut self) -> Request {
        let (set, other, third) = (self.key_of("set"), self.key_of("set"), self.key_of("set"));
        let (list, to) = (self.key_of("list"), self.key_of("list"));
        let (member, small) = (self.member(), self.small());
        let end = |this: &mut Self| this.of(&["LEFT", "RIGHT", "left", "RIGHT", "WRONG"]);
        match self.rng.below(16) {
            0 | 1 => request(&["SMOVE", &set, &other, &member]),
            2 => request(&["SINTERSTORE", &set, &other, &third]),
            3 => request(&["SUNIONSTORE", &set, &other, &third]),
            4 => request(&["SDIFFSTORE", &set, &other, &third]),
            5 => self.counted(&["SINTERCARD"], "set", &[]),
            6 => {
                let limit = self.of(&["0", "1", "2", "-1", "x"]);
                self.counted(&["SINTERCARD"], "set", &["LIMIT", limit])
            }
            7 | 8 => {
                let (from, into) = (end(self), end(self));
                request(&["LMOVE", &list, &to, from, into])
            }
            9 => request(&["RPOPLPUSH", &list, &to]),
            10 => request(&["LPOS", &list, &member]),
            11 => request(&["LPOS", &list, &member, "RANK", &small]),
            12 => request(&["LPOS", &list, &member, "COUNT", &small, "RANK", "-1"]),
            13 => request(&["LPOS", &list, &member, "MAXLEN", "3", "COUNT", "0"]),
            14 => {
                let from = end(self);
                self.counted(&["LMPOP"], "list", &[from])
            }
            _ => {
                let (from, count) = (end(self), self.of(&["1", "2", "0", "x"]));
                self.counted(&["LMPOP"], "list", &[from, "COUNT", count])
            }
        }
    }

    /// Sorted sets and sets, combined.
    pub(super) fn combinations(&mut self) -> Request {
        let kind = self.of(&["zset", "zset", "set"]);
        let (key, other) = (self.key_of("zset"), self.key_of("zset"));
        let command = self.of(&["ZUNION", "ZINTER", "ZDIFF"]);
        let store = self.of(&["ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"]);
        let how = self.of(&["SUM", "MIN", "MAX", "max", "WRONG"]);
        let weight = self.score();
        let (low, high) = (self.bound(), self.bound());
        let (from, to) = (self.small(), self.small());
        match self.rng.below(14) {
            0 => self.counted(&[command], kind, &[]),
            1 | 2 => self.counted(&[command], kind, &["WITHSCORES"]),
            3 => self.counted(&[command], kind, &["AGGREGATE", how, "WITHSCORES"]),
            4 => self.counted(&[command], kind, &["WEIGHTS", "2", &weight, "WITHSCORES"]),
            5 => self.counted(&[store, &key], kind, &[]),
            6 => self.counted(&[store, &key], kind, &["WEIGHTS", "2", &weight, "AGGREGATE", how]),
            7 => self.counted(&["ZINTERCARD"], kind, &[]),
            8 => {
                let limit = self.of(&["0", "1", "-1", "x"]);
                self.counted(&["ZINTERCARD"], kind, &["LIMIT", limit])
            }
            9 => request(&["ZRANGESTORE", &key, &other, &from, &to]),
            10 => {
                request(&["ZRANGESTORE", &key, &other, &low, &high, "BYSCORE", "LIMIT", "0", "3"])
            }
            11 => request(&["ZRANGESTORE", &key, &other, &high, &low, "BYSCORE", "REV"]),
            12 => {
                let end = self.of(&["MIN", "MAX", "min", "WRONG"]);
                self.counted(&["ZMPOP"], "zset", &[end])
            }
            _ => {
                let count = self.of(&["1", "2", "0", "x"]);
                self.counted(&["ZMPOP"], "zset", &["MAX", "COUNT", count])
            }
        }
    }

    fn place(&mut self) -> String {
        match self.rng.below(12) {
            0 => "-1".into(),
            1 => "x".into(),
            2 => "4294967296".into(),
            _ => self.rng.below(200).to_string(),
        }
    }

    fn encoding(&mut self) -> String {
        match self.rng.below(12) {
            0 => self.of(&["u64", "i65", "u0", "x8", "i"]).into(),
            1 => "i64".into(),
            2 => "u63".into(),
            3 => "i1".into(),
            _ => format!("{}{}", self.of(&["i", "u"]), 1 + self.rng.below(33)),
        }
    }

    fn field(&mut self) -> String {
        match self.rng.below(4) {
            0 => format!("#{}", self.rng.below(9)),
            _ => self.place(),
        }
    }

    /// Bits of strings, and what two strings share.
    pub(super) fn bits(&mut self) -> Request {
        let (key, other, third) = (self.key_of("str"), self.key_of("str"), self.key_of("str"));
        let (place, field, second) = (self.place(), self.field(), self.field());
        let (encoding, wide, integer) = (self.encoding(), self.encoding(), self.integer());
        let bit = self.of(&["0", "1", "1", "2", "x"]);
        let (from, to) = (self.small(), self.small());
        let unit = self.of(&["BIT", "BYTE", "bit", "WRONG"]);
        match self.rng.below(26) {
            22 => request(&["LCS", &key, &other]),
            23 => request(&["LCS", &key, &other, self.of(&["LEN", "IDX", "len", "WRONG"])]),
            24 => request(&["LCS", &key, &other, "IDX", "WITHMATCHLEN", "MINMATCHLEN", &from]),
            25 => request(&["LCS", &key, &other, "IDX", self.of(&["LEN", "MINMATCHLEN", "x"])]),
            0..=2 => request(&["SETBIT", &key, &place, bit]),
            3 | 4 => request(&["GETBIT", &key, &place]),
            5 => request(&["BITCOUNT", &key]),
            6 => request(&["BITCOUNT", &key, &from, &to]),
            7 => request(&["BITCOUNT", &key, &from, &to, unit]),
            8 => request(&["BITCOUNT", &key, &from]),
            9 => request(&["BITPOS", &key, bit]),
            10 => request(&["BITPOS", &key, bit, &from]),
            11 => request(&["BITPOS", &key, bit, &from, &to]),
            12 => request(&["BITPOS", &key, bit, &from, &to, unit]),
            13 | 14 => {
                let operation = self.of(&["AND", "OR", "XOR", "or", "NOT", "WRONG"]);
                request(&["BITOP", operation, &key, &other, &third])
            }
            15 => request(&["BITOP", "NOT", &key, &other]),
            16 => request(&["BITFIELD", &key, "GET", &encoding, &field]),
            17 => request(&["BITFIELD", &key, "SET", &encoding, &field, &integer]),
            18 => {
                let overflow = self.of(&["WRAP", "SAT", "FAIL", "fail", "WRONG"]);
                let add = ["INCRBY", &*encoding, &*field, &*integer];
                let all = [
                    &["BITFIELD", &*key, "OVERFLOW", overflow][..],
                    &add,
                    &["GET", &*wide, &*second, "INCRBY", &*wide, &*second, "100"],
                ];
                request(&all.concat())
            }
            19 => request(&["BITFIELD", &key, self.of(&["GET", "SET", "WRONG", "OVERFLOW"]), "u8"]),
            20 => request(&["BITFIELD_RO", &key, "GET", &encoding, &field, "GET", "u8", "0"]),
            _ => request(&["BITFIELD_RO", &key, "SET", &encoding, &field, &integer]),
        }
    }

    /// What is sorted, by itself or by what other keys have.
    pub(super) fn sorting(&mut self) -> Request {
        let kind = self.of(&["list", "set", "zset", "str"]);
        let (key, to) = (self.key_of(kind), self.key_of("list"));
        let (from, count) = (self.small(), self.small());
        let order = self.of(&["ASC", "DESC", "desc"]);
        let weights = self.of(&["str:*", "w_*", "hash:*->m1", "none*"]);
        match self.rng.below(14) {
            0 => request(&["SORT", &key]),
            1 => request(&["SORT_RO", &key, "ALPHA", order]),
            2 => request(&["SORT", &key, "ALPHA", "LIMIT", &from, &count]),
            3 => request(&["SORT", &key, "BY", weights, order]),
            4 => {
                request(&["SORT_RO", &key, "ALPHA", "GET", "#", "GET", "w_*", "GET", "hash:*->m1"])
            }
            5 => request(&["SORT", &key, "ALPHA", "STORE", &to]),
            6 => request(&["SORT", &key, "ALPHA", "GET", "w_*", "LIMIT", "0", "5", "STORE", &to]),
            7 => request(&["SORT", &key, "BY", "nosort", "STORE", &to, "LIMIT", &from, &count]),
            8 => request(&["SORT", &self.key_of("list"), "BY", "nosort", order]),
            9 => request(&["SORT_RO", &key, self.of(&["BY", "GET", "LIMIT", "WRONG", "STORE"])]),
            10 => request(&["SET", &format!("w_m{}", self.rng.below(12)), &count]),
            // Elements that are numbers.
            11 => request(&["RPUSH", &to, &self.score(), &from, &count]),
            12 => request(&["SADD", &self.key_of("set"), &from, &count]),
            _ => request(&["SORT_RO", &key, "BY", "w_*", "GET", "#", "LIMIT", "0", "3"]),
        }
    }
}
