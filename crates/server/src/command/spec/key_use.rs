//! What a command does with each of its keys, in the words of `COMMAND GETKEYSANDFLAGS`. The rights
//! that it needs follow from them, as in Redis.

use crate::acl::Access;
use terrace_resp::Command;

/// What a command does with one key.
#[derive(Debug, Clone, Copy)]
pub struct KeyUse {
    /// Whether it reads or writes the key, and then what it does with the value.
    pub flags: &'static [&'static str],
    /// What a user must be allowed to do with the key.
    pub access: Access,
}

const fn row(flags: &'static [&'static str], access: Access) -> KeyUse {
    KeyUse { flags, access }
}

/// Tells something that is not the value: allowed to every user who may do anything with the key.
const LOOK: KeyUse = row(&["RO"], Access::ANY);
const READ: KeyUse = row(&["RO", "access"], Access::READ);
const REPLACE: KeyUse = row(&["OW", "update"], Access::WRITE);
const CREATE: KeyUse = row(&["OW", "insert"], Access::WRITE);
const REMOVE: KeyUse = row(&["RM", "delete"], Access::WRITE);
const CHANGE: KeyUse = row(&["RW", "access", "update"], Access::READ_WRITE);
const TAKE: KeyUse = row(&["RW", "access", "delete"], Access::READ_WRITE);
const UPDATE: KeyUse = row(&["RW", "update"], Access::WRITE);
const INSERT: KeyUse = row(&["RW", "insert"], Access::WRITE);
const DELETE: KeyUse = row(&["RW", "delete"], Access::WRITE);

/// What a command does with its first key, and with the others.
pub(super) fn uses(name: &str, writes: bool, args: &Command<'_>) -> (KeyUse, KeyUse) {
    let all = |one| (one, one);
    let has =
        |skip: usize, word: &[u8]| args.iter().skip(skip).any(|arg| arg.eq_ignore_ascii_case(word));
    match name {
        "exists" | "touch" | "type" | "strlen" | "hlen" | "hexists" | "hstrlen" | "llen"
        | "scard" | "sismember" | "zcard" | "watch" | "object" | "memory" => all(LOOK),
        "set" if !has(3, b"get") => all(REPLACE),
        "bitfield" if !has(2, b"set") && !has(2, b"incrby") => all(READ),
        "mset" | "setex" | "psetex" => all(REPLACE),
        "msetnx" | "setnx" => all(CREATE),
        "del" | "unlink" => all(REMOVE),
        "append" | "hsetnx" | "linsert" | "lpush" | "lpushx" | "rpush" | "rpushx" | "sadd" => {
            all(INSERT)
        }
        "expire" | "expireat" | "pexpire" | "pexpireat" | "persist" | "hset" | "hmset" | "lset"
        | "setrange" | "zadd" => all(UPDATE),
        "hdel" | "lrem" | "ltrim" | "srem" | "zrem" | "zremrangebylex" | "zremrangebyrank"
        | "zremrangebyscore" => all(DELETE),
        "getdel" | "lpop" | "rpop" | "lmpop" | "spop" | "zpopmin" | "zpopmax" | "zmpop" => {
            all(TAKE)
        }
        "rename" => (TAKE, REPLACE),
        "renamenx" => (TAKE, CREATE),
        "smove" | "lmove" | "rpoplpush" => (TAKE, INSERT),
        "copy" | "sort" => (READ, REPLACE),
        "sinterstore" => (UPDATE, READ),
        "bitop" | "sunionstore" | "sdiffstore" | "zunionstore" | "zinterstore" | "zdiffstore"
        | "zrangestore" => (REPLACE, READ),
        _ if writes => all(CHANGE),
        _ => all(READ),
    }
}
