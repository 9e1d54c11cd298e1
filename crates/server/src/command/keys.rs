//! Keys of any type, and whole databases.

use super::arguments::{ScanOptions, show_page};
use super::expiry::{self, Unit};
use super::interruption::Interruption;
use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};
use crate::acl::Access;
use crate::glob;
use crate::session::Caller;
use terrace_cluster::FlushId;
use terrace_keyspace::{ExpireIf, InParts, KeyRange, KeyScan, Kind, Type};
use terrace_resp::{Aggregate, Protocol};

/// How many keys `TSCAN` shows if it is not told.
pub(crate) const TSCAN_LIMIT: u64 = 1000;

/// The words of the two rounds of a flush of all stores, each with the flush's number. Between nodes only.
pub(crate) const ANNOUNCE: &[u8] = b"ANNOUNCE";
pub(crate) const EXECUTE: &[u8] = b"EXECUTE";

/// To the flush of a store that was started again since it was announced, or was waited for too long.
const NOT_ANNOUNCED: &str =
    "TRYAGAIN a store did not wait for the flush; other stores may be flushed";

/// To a round that would be executed on whatever store it has come to.
const NO_SHARD: &str = "ERR a round of a flush must name its shard";

const READ: Flags = Flags::READ.with(Flags::FAST);
const WRITE: Flags = Flags::WRITE.with(Flags::FAST);
/// Looks at many keys, one after the other.
const WALK: Flags = Flags::READ.with(Flags::WAITS);
const FLUSH: Flags =
    Flags::WRITE.with(Flags::DANGEROUS).with(Flags::LOCKS_ALL).with(Flags::REMOVES);

/// What most rows have.
const ROW: CommandSpec = CommandSpec {
    name: "",
    arity: 2,
    flags: READ,
    keys: Keys::First,
    group: Group::Generic,
    arguments: "key",
    summary: "",
    complexity: "O(1)",
    since: "1.0.0",
    run: ttl,
};

/// What rows have of commands that let a key expire.
const EXPIRE: CommandSpec = CommandSpec {
    arity: -3,
    flags: WRITE,
    complexity: "O(length of the string), O(1) for other types",
    ..ROW
};

/// What rows have of commands on a database.
const WHOLE: CommandSpec = CommandSpec { keys: Keys::None, flags: WALK, ..ROW };

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "del",
        arity: -2,
        flags: Flags::WRITE.with(Flags::REMOVES),
        keys: Keys::All,
        arguments: "key [key ...]",
        summary: "Removes keys, and gives how many there were.",
        complexity: "O(keys); a collection costs no more than a string",
        run: del,
        ..ROW
    },
    CommandSpec {
        name: "unlink",
        arity: -2,
        flags: WRITE.with(Flags::REMOVES),
        keys: Keys::All,
        arguments: "key [key ...]",
        summary: "As DEL.",
        complexity: "O(keys)",
        since: "4.0.0",
        run: del,
        ..ROW
    },
    CommandSpec {
        name: "exists",
        arity: -2,
        keys: Keys::All,
        arguments: "key [key ...]",
        summary: "Gives how many of the keys there are.",
        complexity: "O(keys)",
        run: exists,
        ..ROW
    },
    CommandSpec {
        name: "touch",
        arity: -2,
        keys: Keys::All,
        arguments: "key [key ...]",
        summary: "As EXISTS: when a key was used is not noted.",
        complexity: "O(keys)",
        since: "3.2.1",
        run: exists,
        ..ROW
    },
    CommandSpec { name: "type", summary: "Tells what is under a key.", run: key_type, ..ROW },
    CommandSpec {
        name: "expire",
        arguments: "key seconds [NX | XX | GT | LT]",
        summary: "Lets a key expire after a time.",
        run: |call| expire(call, Unit::SECONDS, "expire"),
        ..EXPIRE
    },
    CommandSpec {
        name: "pexpire",
        arguments: "key milliseconds [NX | XX | GT | LT]",
        summary: "Lets a key expire after a time.",
        since: "2.6.0",
        run: |call| expire(call, Unit::MS, "pexpire"),
        ..EXPIRE
    },
    CommandSpec {
        name: "expireat",
        arguments: "key unix-seconds [NX | XX | GT | LT]",
        summary: "Lets a key expire at a time.",
        since: "1.2.0",
        run: |call| expire(call, Unit::SECONDS_AT, "expireat"),
        ..EXPIRE
    },
    CommandSpec {
        name: "pexpireat",
        arguments: "key unix-milliseconds [NX | XX | GT | LT]",
        summary: "Lets a key expire at a time.",
        since: "2.6.0",
        run: |call| expire(call, Unit::MS_AT, "pexpireat"),
        ..EXPIRE
    },
    CommandSpec {
        name: "ttl",
        summary: "Gives the seconds until a key expires; -1 never, -2 there is no such key.",
        run: |call| ttl_in(call, Unit::SECONDS),
        ..ROW
    },
    CommandSpec {
        name: "pttl",
        summary: "Gives the milliseconds until a key expires; -1 never, -2 there is no such key.",
        since: "2.6.0",
        run: ttl,
        ..ROW
    },
    CommandSpec {
        name: "expiretime",
        summary: "Gives when a key expires, in seconds since 1970; -1 never, -2 no such key.",
        since: "7.0.0",
        run: |call| ttl_in(call, Unit::SECONDS_AT),
        ..ROW
    },
    CommandSpec {
        name: "pexpiretime",
        summary: "Gives when a key expires, in milliseconds since 1970; -1 never, -2 no such key.",
        since: "7.0.0",
        run: |call| ttl_in(call, Unit::MS_AT),
        ..ROW
    },
    CommandSpec {
        name: "persist",
        flags: WRITE,
        summary: "Lets a key never expire.",
        complexity: EXPIRE.complexity,
        since: "2.2.0",
        run: persist,
        ..ROW
    },
    CommandSpec {
        name: "object",
        arity: -2,
        flags: Flags::READ.with(Flags::SUBCOMMANDS),
        arguments: "ENCODING key | FREQ key | IDLETIME key | REFCOUNT key",
        summary: "Tells how the value of a key is held, in Redis's words.",
        since: "2.2.3",
        run: object,
        keys: Keys::AfterSubcommand,
        ..ROW
    },
    CommandSpec {
        name: "scan",
        arity: -2,
        arguments: "cursor [MATCH pattern] [COUNT count] [TYPE type]",
        summary: "Gives some of the keys, and where to go on.",
        complexity: "O(COUNT); a literal start of the pattern narrows the whole walk",
        since: "2.8.0",
        run: scan,
        ..WHOLE
    },
    CommandSpec {
        name: "keys",
        flags: WALK.with(Flags::DANGEROUS),
        arguments: "pattern",
        summary: "Gives all keys that match a pattern, in order.",
        complexity: "O(keys that begin with the literal start of the pattern)",
        run: keys,
        ..WHOLE
    },
    CommandSpec {
        name: "tscan",
        arity: -3,
        arguments: "first end [LIMIT count] [KEYS]",
        summary: "Gives keys in order, from first on and below end, with their strings, null for \
                  other types: 1000 of them, or as many as LIMIT says; - and + are the ends of the \
                  database.",
        complexity: "O(LIMIT)",
        since: "terrace",
        flags: WALK.with(Flags::SHOWS_ALL).with(Flags::DANGEROUS),
        run: tscan,
        ..WHOLE
    },
    CommandSpec {
        name: "randomkey",
        arity: 1,
        arguments: "",
        summary: "Gives some key; not all are equally likely.",
        complexity: "O(log keys)",
        run: randomkey,
        ..WHOLE
    },
    CommandSpec {
        name: "dbsize",
        arity: 1,
        arguments: "",
        summary: "Gives how many keys there are: exact up to 100,000, above that an estimate that \
                  may count keys twice which changed lately.",
        complexity: "O(keys), of at most 100,000; with placement slots and several databases O(slots) more",
        flags: WALK.with(Flags::FAST),
        run: dbsize,
        ..WHOLE
    },
    CommandSpec {
        name: "flushdb",
        arity: -1,
        flags: FLUSH,
        arguments: "[ASYNC | SYNC]",
        summary: "Removes all keys of the database, by ranges.",
        run: |call| flush(call, false),
        ..WHOLE
    },
    CommandSpec {
        name: "flushall",
        arity: -1,
        flags: FLUSH,
        arguments: "[ASYNC | SYNC]",
        summary: "Removes all keys of all databases, by ranges.",
        run: |call| flush(call, true),
        ..WHOLE
    },
];

fn del(call: &mut Call<'_>) -> Outcome {
    let removed = call.batch.delete(call.session.db, call.args_from(1))?;
    call.reply.integer(removed as i64);
    Ok(())
}

fn exists(call: &mut Call<'_>) -> Outcome {
    let count = call.batch.exists(call.session.db, call.args_from(1))?;
    call.reply.integer(count as i64);
    Ok(())
}

fn key_type(call: &mut Call<'_>) -> Outcome {
    let kind = call.batch.key_type(call.session.db, call.arg(1))?;
    call.batch.note_lookup(kind.is_some());
    call.reply.simple(kind.map_or("none", Type::name));
    Ok(())
}

fn expire(call: &mut Call<'_>, unit: Unit, name: &str) -> Outcome {
    let mut condition = ExpireIf::default();
    for option in call.args_from(3) {
        match option.to_ascii_lowercase().as_slice() {
            b"nx" => condition.unlimited = true,
            b"xx" => condition.limited = true,
            b"gt" => condition.later = true,
            b"lt" => condition.earlier = true,
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(Failure::err(format_args!("Unsupported option {option}")));
            }
        }
    }
    if condition.unlimited && (condition.limited || condition.later || condition.earlier) {
        let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return Err(Failure::line(text));
    }
    if condition.later && condition.earlier {
        let text = "ERR GT and LT options at the same time are not compatible";
        return Err(Failure::line(text));
    }
    let until = unit.since_1970(call.integer(2)?, call.batch.now_ms());
    // Before 1970 is in the past as well.
    let until = until.ok_or_else(|| expiry::invalid(name))?.max(0).unsigned_abs();
    let done = call.batch.expire(call.session.db, call.arg(1), until, condition)?;
    call.reply.integer(i64::from(done));
    Ok(())
}

fn ttl(call: &mut Call<'_>) -> Outcome {
    ttl_in(call, Unit::MS)
}

fn ttl_in(call: &mut Call<'_>, unit: Unit) -> Outcome {
    let answer = match call.batch.expiry(call.session.db, call.arg(1))? {
        None => -2,
        Some(None) => -1,
        Some(Some(at_ms)) => {
            let base = if unit.relative { call.batch.now_ms() } else { 0 };
            unit.nearest(at_ms.saturating_sub(base) as i64)
        }
    };
    call.reply.integer(answer);
    Ok(())
}

fn persist(call: &mut Call<'_>) -> Outcome {
    let done = call.batch.persist(call.session.db, call.arg(1))?;
    call.reply.integer(i64::from(done));
    Ok(())
}

/// Longer strings are `raw`.
const LONGEST_EMBEDDED: usize = 44;

fn object(call: &mut Call<'_>) -> Outcome {
    let (subcommand, key) = (call.arg(1).to_ascii_lowercase(), call.arg(2));
    let db = call.session.db;
    // It is looked at more than once, and may become something else.
    call.batch.pin_now();
    let Some(kind) = call.batch.key_type(db, key)? else {
        call.reply.null();
        return Ok(());
    };
    match subcommand.as_slice() {
        b"refcount" => {
            let shared = match kind {
                Type::String if call.batch.string_len(db, key)? > LONGEST_EMBEDDED => false,
                Type::String => call.batch.get(db, key)?.is_some_and(|text| is_shared(&text)),
                Type::Collection(_) => false,
            };
            call.reply.integer(if shared { i64::from(i32::MAX) } else { 1 });
        }
        // When a key was used is not noted: it might have been now.
        b"idletime" => call.reply.integer(0),
        b"freq" => {
            // Redis's words, for clients that look at them.
            return Err(Failure::line(
                "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please \
                 note that when switching between policies at runtime LRU and LFU data will take \
                 some time to adjust.",
            ));
        }
        _ => {
            let encoding = match kind {
                // A long one is not read.
                Type::String if call.batch.string_len(db, key)? > LONGEST_EMBEDDED => "raw",
                Type::String => match call.batch.get(db, key)? {
                    Some(text) if terrace_resp::parse_integer(&text).is_some() => "int",
                    _ => "embstr",
                },
                Type::Collection(Kind::Hash | Kind::Set) => "hashtable",
                Type::Collection(Kind::SortedSet) => "skiplist",
                Type::Collection(Kind::List) => "quicklist",
            };
            call.reply.bulk(encoding);
        }
    }
    Ok(())
}

/// Whether Redis holds one value for all strings of this text.
fn is_shared(text: &[u8]) -> bool {
    terrace_resp::parse_integer(text).is_some_and(|number| (0..10_000).contains(&number))
}

/// The type of this name; nothing is of a type that does not exist.
fn type_of(name: &[u8]) -> Option<Type> {
    [Kind::Hash, Kind::Set, Kind::SortedSet, Kind::List]
        .into_iter()
        .map(Type::Collection)
        .chain([Type::String])
        .find(|kind| name.eq_ignore_ascii_case(kind.name().as_bytes()))
}

fn scan(call: &mut Call<'_>) -> Outcome {
    let cursor = call.cursor(1)?;
    let mut wanted = None;
    let options = ScanOptions::with(call, 2, |name, value| {
        let is_type = name.eq_ignore_ascii_case(b"type");
        if is_type {
            wanted = Some(type_of(value));
        }
        is_type
    })?;
    let prefix = options.pattern.map(glob::literal_prefix).unwrap_or_default();
    let scan = KeyScan { cursor, prefix: &prefix, kind: wanted.flatten(), count: options.count };
    let interruption = Interruption::of(call);
    let is_wanted = |key: &[u8]| wanted != Some(None) && options.shows(key, &interruption);
    let page = call.batch.scan_keys(call.session.db, &scan, is_wanted)?;
    // Some keys may be missing then.
    interruption.check()?;
    show_page(call, page.cursor, 1, page.items.iter(), |reply, key| reply.bulk(key));
    Ok(())
}

fn keys(call: &mut Call<'_>) -> Outcome {
    let (db, pattern) = (call.session.db, call.arg(1));
    if let Some(key) = glob::literal(pattern) {
        let is_shown = call.batch.is_shown(db, &key)?;
        call.reply.array(usize::from(is_shown));
        if is_shown {
            call.reply.bulk(&key);
        }
        return Ok(());
    }
    let prefix = glob::literal_prefix(pattern);
    let range = KeyRange { prefix: &prefix, ..KeyRange::default() };
    let (mut count, deferred) = (0, call.reply.begin(Aggregate::Array, 10));
    let (interruption, reply) = (Interruption::of(call), &mut call.reply);
    let goes_on = || !interruption.is_due();
    call.batch.walk_keys_while(db, range, false, InParts::of(&goes_on), |seen| {
        if glob::matches_while(pattern, seen.key, goes_on) {
            reply.bulk(seen.key);
            count += 1;
        }
        !reply.is_over() && goes_on()
    })?;
    interruption.check()?;
    call.reply.finish(deferred, count);
    Ok(())
}

fn tscan(call: &mut Call<'_>) -> Outcome {
    let (mut limit, mut keys_only, mut at) = (TSCAN_LIMIT, false, 3);
    while at < call.count() {
        let name = call.arg(at);
        if name.eq_ignore_ascii_case(b"limit") && at + 1 < call.count() {
            limit = call.positive(at + 1)?;
            at += 1;
        } else if name.eq_ignore_ascii_case(b"keys") {
            keys_only = true;
        } else {
            return Err(Failure::SYNTAX);
        }
        at += 1;
    }
    let start = if call.arg(1) == b"-" { b"" } else { call.arg(1) };
    let end = (call.arg(2) != b"+").then(|| call.arg(2));
    let range = KeyRange { start, end, prefix: b"" };
    let nested = call.reply.protocol() == Protocol::Resp3;
    let user = call.session.user.clone().filter(|user| !user.may_do_everything());
    let deferred = call.reply.begin(Aggregate::Array, 10);
    let interruption = Interruption::of(call);
    let (mut shown, reply) = (0, &mut call.reply);
    let may_see = |key: &[u8]| {
        let may_see = || user.as_ref().is_none_or(|user| user.may_access(key, Access::READ));
        (!interruption.is_due()).then(may_see)
    };
    if limit > 0 {
        let (db, limit) = (call.session.db, usize::try_from(limit).unwrap_or(usize::MAX));
        let most = (limit, reply.left_bytes());
        call.batch.walk_keys_in_order_within(db, range, !keys_only, most, may_see, |seen| {
            if nested && !keys_only {
                reply.array(2);
            }
            reply.bulk(seen.key);
            match seen.value {
                _ if keys_only => {}
                Some(value) => reply.bulk(value),
                None => reply.null(),
            }
            shown += 1;
            !reply.is_over()
        })?;
    }
    interruption.check()?;
    let elements = if nested || keys_only { shown } else { shown * 2 };
    call.reply.finish(deferred, elements as usize);
    Ok(())
}

fn randomkey(call: &mut Call<'_>) -> Outcome {
    let found = call.batch.random_key(call.session.db)?;
    call.bulk_or_null(found);
    Ok(())
}

fn dbsize(call: &mut Call<'_>) -> Outcome {
    let count = call.batch.count_keys(call.session.db)?;
    call.reply.integer(count as i64);
    Ok(())
}

/// Whether this is an option of `FLUSHALL` and `FLUSHDB`.
pub(crate) fn is_flush_option(option: &[u8]) -> bool {
    option.eq_ignore_ascii_case(b"async") || option.eq_ignore_ascii_case(b"sync")
}

fn flush(call: &mut Call<'_>, all: bool) -> Outcome {
    let db = call.session.db;
    if call.session.caller != Caller::Client && call.count() == 3 {
        return flush_in_rounds(call, (!all).then_some(db));
    }
    if call.count() > 2 || !call.args_from(1).all(is_flush_option) {
        return Err(Failure::SYNTAX);
    }
    match all {
        true => call.batch.flush_all()?,
        false => call.batch.flush(db)?,
    }
    call.reply.ok();
    Ok(())
}

/// For another node: a round of a flush of all stores.
fn flush_in_rounds(call: &mut Call<'_>, db: Option<u8>) -> Outcome {
    if call.session.caller != Caller::Instance && call.session.shard.is_none() {
        return Err(Failure::line(NO_SHARD));
    }
    let id = std::str::from_utf8(call.arg(2)).ok().and_then(|id| id.parse().ok());
    let id = FlushId(id.ok_or(Failure::SYNTAX)?);
    match call.arg(1) {
        // It comes again.
        ANNOUNCE if !call.batch.announce_flush(id)? => return Err(Failure::Moved),
        ANNOUNCE => {}
        EXECUTE if !call.batch.execute_flush(id, db)? => return Err(Failure::line(NOT_ANNOUNCED)),
        EXECUTE => {}
        _ => return Err(Failure::SYNTAX),
    }
    call.reply.ok();
    Ok(())
}
