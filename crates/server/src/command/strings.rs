//! Strings: values of bytes, read and written as one.

use super::expiry::{ExpiryOption, Unit};
use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};
use terrace_keyspace::{Error, Lifetime, LongDouble, PutOptions, When};

const READ: Flags = Flags::READ.with(Flags::FAST);
const WRITE: Flags = Flags::WRITE.with(Flags::FAST);
const PER_BYTE: &str = "O(length)";
const PER_KEY: &str = "O(keys)";

/// What most rows have.
const ROW: CommandSpec = CommandSpec {
    name: "",
    arity: 2,
    flags: WRITE,
    keys: Keys::First,
    group: Group::String,
    arguments: "key",
    summary: "",
    complexity: "O(1)",
    since: "1.0.0",
    run: get,
};

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec { name: "get", flags: READ, summary: "Gives a string.", run: get, ..ROW },
    CommandSpec {
        name: "set",
        flags: Flags::WRITE,
        arity: -3,
        arguments: "key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT unix-seconds | \
                    PXAT unix-milliseconds | KEEPTTL]",
        summary: "Sets a key to a string, whatever was there.",
        run: set,
        ..ROW
    },
    CommandSpec {
        name: "setex",
        flags: Flags::WRITE,
        arity: 4,
        arguments: "key seconds value",
        summary: "Sets a key to a string that expires.",
        since: "2.0.0",
        run: |call| set_until(call, Unit::SECONDS, "setex"),
        ..ROW
    },
    CommandSpec {
        name: "psetex",
        flags: Flags::WRITE,
        arity: 4,
        arguments: "key milliseconds value",
        summary: "Sets a key to a string that expires.",
        since: "2.6.0",
        run: |call| set_until(call, Unit::MS, "psetex"),
        ..ROW
    },
    CommandSpec {
        name: "setnx",
        arity: 3,
        arguments: "key value",
        summary: "Sets a key to a string if there is nothing under it.",
        run: setnx,
        ..ROW
    },
    CommandSpec {
        name: "getset",
        arity: 3,
        arguments: "key value",
        summary: "Sets a key to a string, and gives the one before.",
        run: getset,
        ..ROW
    },
    CommandSpec {
        name: "getdel",
        summary: "Gives a string and removes it.",
        since: "6.2.0",
        run: getdel,
        ..ROW
    },
    CommandSpec {
        name: "getex",
        arity: -2,
        arguments: "key [EX seconds | PX milliseconds | EXAT unix-seconds | \
                    PXAT unix-milliseconds | PERSIST]",
        summary: "Gives a string and changes when it expires.",
        since: "6.2.0",
        run: getex,
        ..ROW
    },
    CommandSpec {
        name: "mget",
        arity: -2,
        flags: READ,
        keys: Keys::All,
        arguments: "key [key ...]",
        summary: "Gives strings, all as of one moment.",
        complexity: PER_KEY,
        run: mget,
        ..ROW
    },
    CommandSpec {
        name: "mset",
        arity: -3,
        flags: Flags::WRITE,
        keys: Keys::EverySecond,
        arguments: "key value [key value ...]",
        summary: "Sets keys to strings, all at once.",
        complexity: PER_KEY,
        since: "1.0.1",
        run: mset,
        ..ROW
    },
    CommandSpec {
        name: "msetnx",
        arity: -3,
        flags: Flags::WRITE,
        keys: Keys::EverySecond,
        arguments: "key value [key value ...]",
        summary: "Sets keys to strings, all at once, if there is nothing under any of them.",
        complexity: PER_KEY,
        since: "1.0.1",
        run: msetnx,
        ..ROW
    },
    CommandSpec {
        name: "append",
        arity: 3,
        arguments: "key value",
        summary: "Appends to a string, and gives its length.",
        complexity: PER_BYTE,
        since: "2.0.0",
        run: append,
        ..ROW
    },
    CommandSpec {
        name: "strlen",
        flags: READ,
        summary: "Gives the length of a string.",
        since: "2.2.0",
        run: strlen,
        ..ROW
    },
    CommandSpec {
        name: "getrange",
        arity: 4,
        flags: Flags::READ,
        arguments: "key first last",
        summary: "Gives a part of a string.",
        complexity: PER_BYTE,
        since: "2.4.0",
        run: getrange,
        ..ROW
    },
    CommandSpec {
        name: "substr",
        arity: 4,
        flags: Flags::READ,
        arguments: "key first last",
        summary: "As GETRANGE.",
        complexity: PER_BYTE,
        run: getrange,
        ..ROW
    },
    CommandSpec {
        name: "setrange",
        arity: 4,
        flags: Flags::WRITE,
        arguments: "key offset value",
        summary: "Overwrites a part of a string, and gives its length.",
        complexity: PER_BYTE,
        since: "2.2.0",
        run: setrange,
        ..ROW
    },
    CommandSpec { name: "incr", summary: "Adds 1 to an integer.", run: |call| add(call, 1), ..ROW },
    CommandSpec {
        name: "decr",
        summary: "Takes 1 from an integer.",
        run: |call| add(call, -1),
        ..ROW
    },
    CommandSpec {
        name: "incrby",
        arity: 3,
        arguments: "key increment",
        summary: "Adds to an integer.",
        run: incrby,
        ..ROW
    },
    CommandSpec {
        name: "decrby",
        arity: 3,
        arguments: "key decrement",
        summary: "Takes from an integer.",
        run: decrby,
        ..ROW
    },
    CommandSpec {
        name: "incrbyfloat",
        arity: 3,
        arguments: "key increment",
        summary: "Adds to a number.",
        since: "2.6.0",
        run: incrbyfloat,
        ..ROW
    },
];

fn get(call: &mut Call<'_>) -> Outcome {
    let value = call.batch.get(call.session.db, call.arg(1))?;
    call.bulk_or_null(value);
    Ok(())
}

fn set(call: &mut Call<'_>) -> Outcome {
    let mut options = PutOptions::default();
    let mut expiry = ExpiryOption::NotGiven;
    let mut at = 3;
    while at < call.count() {
        let name = call.arg(at);
        let is = |option: &str| name.eq_ignore_ascii_case(option.as_bytes());
        if is("nx") && options.when != When::Present {
            options.when = When::Absent;
        } else if is("xx") && options.when != When::Absent {
            options.when = When::Present;
        } else if is("get") {
            options.get = true;
        } else {
            at = expiry.take(call, at, "keepttl")?;
        }
        at += 1;
    }
    options.lifetime = match expiry {
        ExpiryOption::NotGiven => Lifetime::Unlimited,
        ExpiryOption::Word => Lifetime::Kept,
        ExpiryOption::Time(at, unit) => Lifetime::Until(call.expiry(at, unit, "set")?),
    };
    let outcome = call.batch.put(call.session.db, call.arg(1), call.arg(2), &options)?;
    match outcome.before {
        Some(before) => call.reply.bulk(&before),
        None if outcome.is_set && !options.get => call.reply.ok(),
        None => call.reply.null(),
    }
    Ok(())
}

fn set_until(call: &mut Call<'_>, unit: Unit, name: &str) -> Outcome {
    let lifetime = Lifetime::Until(call.expiry(2, unit, name)?);
    let options = PutOptions { lifetime, ..PutOptions::default() };
    call.batch.put(call.session.db, call.arg(1), call.arg(3), &options)?;
    call.reply.ok();
    Ok(())
}

fn setnx(call: &mut Call<'_>) -> Outcome {
    let options = PutOptions { when: When::Absent, ..PutOptions::default() };
    let outcome = call.batch.put(call.session.db, call.arg(1), call.arg(2), &options)?;
    call.reply.integer(i64::from(outcome.is_set));
    Ok(())
}

fn getset(call: &mut Call<'_>) -> Outcome {
    let options = PutOptions { get: true, ..PutOptions::default() };
    let before = call.batch.put(call.session.db, call.arg(1), call.arg(2), &options)?.before;
    call.bulk_or_null(before);
    Ok(())
}

fn getdel(call: &mut Call<'_>) -> Outcome {
    let before = call.batch.take_string(call.session.db, call.arg(1))?;
    call.bulk_or_null(before);
    Ok(())
}

fn getex(call: &mut Call<'_>) -> Outcome {
    let (mut expiry, mut at) = (ExpiryOption::NotGiven, 2);
    while at < call.count() {
        at = expiry.take(call, at, "persist")? + 1;
    }
    let (db, key) = (call.session.db, call.arg(1));
    let lifetime = match expiry {
        ExpiryOption::NotGiven => Lifetime::Kept,
        ExpiryOption::Word => Lifetime::Unlimited,
        ExpiryOption::Time(at, unit) => match call.expiry(at, unit, "getex") {
            Ok(until) => Lifetime::Until(until),
            // The time is looked at only if there is something to expire.
            Err(failure) => match call.batch.get(db, key)? {
                Some(_) => return Err(failure),
                None => Lifetime::Kept,
            },
        },
    };
    let value = call.batch.get_and_expire(db, key, lifetime)?;
    call.bulk_or_null(value);
    Ok(())
}

fn mget(call: &mut Call<'_>) -> Outcome {
    /// Values that are held at a time, if they are large, and if they are not.
    const AT_ONCE: (usize, usize) = (8, 64);
    /// Values that are together shorter than this are not large.
    const SMALL_BYTES: usize = 256 << 10;
    let keys: Vec<&[u8]> = call.args_from(1).collect();
    call.reply.array(keys.len());
    if keys.len() > AT_ONCE.0 {
        // All as they are at one moment.
        call.batch.pin_now();
    }
    let (mut rest, mut at_once) = (&keys[..], AT_ONCE.0);
    while !rest.is_empty() && !call.reply.is_over() {
        let some = rest.split_off(..at_once.min(rest.len())).unwrap_or_default();
        let mark = call.reply.len_bytes();
        for value in call.batch.get_many(call.session.db, some)? {
            call.bulk_or_null(value);
        }
        let is_small = call.reply.len_bytes() - mark < SMALL_BYTES;
        at_once = if is_small { AT_ONCE.1.min(2 * at_once) } else { AT_ONCE.0 };
    }
    Ok(())
}

/// The keys and values of a command that has nothing else.
fn pairs<'a>(
    call: &Call<'a>,
    name: &str,
) -> Result<impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone + use<'a>, Failure> {
    if call.count().is_multiple_of(2) {
        return Err(Failure::wrong_count(name));
    }
    let (keys, values) = (call.args_from(1).step_by(2), call.args_from(2).step_by(2));
    Ok(keys.zip(values))
}

fn mset(call: &mut Call<'_>) -> Outcome {
    call.batch.put_many(call.session.db, pairs(call, "mset")?)?;
    call.reply.ok();
    Ok(())
}

fn msetnx(call: &mut Call<'_>) -> Outcome {
    let is_set = call.batch.put_many_absent(call.session.db, pairs(call, "msetnx")?)?;
    call.reply.integer(i64::from(is_set));
    Ok(())
}

fn append(call: &mut Call<'_>) -> Outcome {
    let len = call.batch.append(call.session.db, call.arg(1), call.arg(2))?;
    call.reply.integer(len as i64);
    Ok(())
}

fn strlen(call: &mut Call<'_>) -> Outcome {
    let len = call.batch.string_len(call.session.db, call.arg(1))?;
    call.reply.integer(len as i64);
    Ok(())
}

fn getrange(call: &mut Call<'_>) -> Outcome {
    let (first, last) = (call.integer(2)?, call.integer(3)?);
    match call.batch.get_range(call.session.db, call.arg(1), first, last)? {
        Some((value, range)) => call.reply.bulk(&value[range]),
        None => call.reply.bulk(b""),
    }
    Ok(())
}

fn setrange(call: &mut Call<'_>) -> Outcome {
    let Ok(offset) = u64::try_from(call.integer(2)?) else {
        return Err(Failure::line("ERR offset is out of range"));
    };
    let len = call.batch.put_range(call.session.db, call.arg(1), offset, call.arg(3))?;
    call.reply.integer(len as i64);
    Ok(())
}

fn add(call: &mut Call<'_>, delta: i64) -> Outcome {
    let sum = call.batch.add(call.session.db, call.arg(1), delta)?;
    call.reply.integer(sum);
    Ok(())
}

fn incrby(call: &mut Call<'_>) -> Outcome {
    let delta = call.integer(2)?;
    add(call, delta)
}

fn decrby(call: &mut Call<'_>) -> Outcome {
    let delta = call.integer(2)?.checked_neg();
    add(call, delta.ok_or(Failure::line("ERR decrement would overflow"))?)
}

fn incrbyfloat(call: &mut Call<'_>) -> Outcome {
    let (db, key) = (call.session.db, call.arg(1));
    let Some(delta) = LongDouble::parse(call.arg(2)) else {
        // A key of another type is the graver error.
        call.batch.get(db, key)?;
        return Err(Error::NotAFloat.into());
    };
    let sum = call.batch.add_float(db, key, delta)?;
    call.reply.bulk(&sum);
    Ok(())
}
