//! Hashes: fields with values under one key.

use super::arguments::{Sample, ScanOptions, empty_page, show_page};
use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};
use terrace_keyspace::LongDouble;
use terrace_resp::{Aggregate, Protocol};

const READ: Flags = Flags::READ.with(Flags::FAST);
const WRITE: Flags = Flags::WRITE.with(Flags::FAST);
const PER_FIELD: &str = "O(fields named)";
const ALL: &str = "O(fields)";

/// What most rows have.
const ROW: CommandSpec = CommandSpec {
    name: "",
    arity: 3,
    flags: READ,
    keys: Keys::First,
    group: Group::Hash,
    arguments: "key field",
    summary: "",
    complexity: "O(1)",
    since: "2.0.0",
    run: hget,
};

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "hset",
        arity: -4,
        flags: WRITE,
        arguments: "key field value [field value ...]",
        summary: "Sets fields, and gives how many are new.",
        complexity: PER_FIELD,
        run: hset,
        ..ROW
    },
    CommandSpec {
        name: "hmset",
        arity: -4,
        flags: WRITE,
        arguments: "key field value [field value ...]",
        summary: "Sets fields.",
        complexity: PER_FIELD,
        run: hmset,
        ..ROW
    },
    CommandSpec {
        name: "hsetnx",
        arity: 4,
        flags: WRITE,
        arguments: "key field value",
        summary: "Sets a field that is not there.",
        run: hsetnx,
        ..ROW
    },
    CommandSpec { name: "hget", summary: "Gives the value of a field.", run: hget, ..ROW },
    CommandSpec {
        name: "hmget",
        arity: -3,
        arguments: "key field [field ...]",
        summary: "Gives the values of fields.",
        complexity: PER_FIELD,
        run: hmget,
        ..ROW
    },
    CommandSpec {
        name: "hgetall",
        arity: 2,
        flags: Flags::READ,
        arguments: "key",
        summary: "Gives all fields with their values.",
        complexity: ALL,
        run: hgetall,
        ..ROW
    },
    CommandSpec {
        name: "hdel",
        arity: -3,
        flags: WRITE,
        arguments: "key field [field ...]",
        summary: "Removes fields, and gives how many were there.",
        complexity: PER_FIELD,
        run: hdel,
        ..ROW
    },
    CommandSpec {
        name: "hlen",
        arity: 2,
        arguments: "key",
        summary: "Gives the number of fields.",
        run: hlen,
        ..ROW
    },
    CommandSpec { name: "hexists", summary: "Says whether a field is there.", run: hexists, ..ROW },
    CommandSpec {
        name: "hkeys",
        arity: 2,
        flags: Flags::READ,
        arguments: "key",
        summary: "Gives all fields.",
        complexity: ALL,
        run: hkeys,
        ..ROW
    },
    CommandSpec {
        name: "hvals",
        arity: 2,
        flags: Flags::READ,
        arguments: "key",
        summary: "Gives the values of all fields.",
        complexity: ALL,
        run: hvals,
        ..ROW
    },
    CommandSpec {
        name: "hstrlen",
        summary: "Gives the length of a field's value.",
        since: "3.2.0",
        run: hstrlen,
        ..ROW
    },
    CommandSpec {
        name: "hincrby",
        arity: 4,
        flags: WRITE,
        arguments: "key field increment",
        summary: "Adds to the integer in a field.",
        run: hincrby,
        ..ROW
    },
    CommandSpec {
        name: "hincrbyfloat",
        arity: 4,
        flags: WRITE,
        arguments: "key field increment",
        summary: "Adds to the number in a field.",
        since: "2.6.0",
        run: hincrbyfloat,
        ..ROW
    },
    CommandSpec {
        name: "hrandfield",
        arity: -2,
        flags: Flags::READ,
        arguments: "key [count [WITHVALUES]]",
        summary: "Gives random fields.",
        complexity: "O(fields asked for), or O(fields) if more than a third of them",
        since: "6.2.0",
        run: hrandfield,
        ..ROW
    },
    CommandSpec {
        name: "hscan",
        arity: -3,
        flags: Flags::READ,
        arguments: "key cursor [MATCH pattern] [COUNT count]",
        summary: "Gives some fields with their values, and the cursor of the next ones.",
        complexity: "O(fields looked at)",
        since: "2.8.0",
        run: hscan,
        ..ROW
    },
];

fn set_fields(call: &mut Call<'_>) -> Result<u64, Failure> {
    let args = call.args;
    let pairs = (2..args.count())
        .step_by(2)
        .map(move |at| (args.get(at).unwrap_or_default(), args.get(at + 1).unwrap_or_default()));
    let (db, key) = (call.db(), call.arg(1));
    Ok(call.batch.hash_set(db, key, pairs)?)
}

fn hset(call: &mut Call<'_>) -> Outcome {
    if call.count() % 2 == 1 {
        return Err(Failure::wrong_count("hset"));
    }
    let added = set_fields(call)?;
    call.reply.integer(added as i64);
    Ok(())
}

fn hmset(call: &mut Call<'_>) -> Outcome {
    if call.count() % 2 == 1 {
        return Err(Failure::wrong_count("hmset"));
    }
    set_fields(call)?;
    call.reply.ok();
    Ok(())
}

fn hsetnx(call: &mut Call<'_>) -> Outcome {
    let set = call.batch.hash_set_absent(call.session.db, call.arg(1), call.arg(2), call.arg(3))?;
    call.reply.integer(i64::from(set));
    Ok(())
}

fn hget(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    let value = match call.batch.hash(db, call.arg(1))? {
        Some(hash) => call.batch.hash_field(db, &hash, call.arg(2))?,
        None => None,
    };
    call.bulk_or_null(value);
    Ok(())
}

fn hmget(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    let hash = call.batch.hash(db, call.arg(1))?;
    let fields = call.args_from(2);
    call.reply.array(fields.len());
    for field in fields {
        let value = match &hash {
            Some(hash) => call.batch.hash_field(db, hash, field)?,
            None => None,
        };
        call.bulk_or_null(value);
        if call.reply.is_over() {
            break;
        }
    }
    Ok(())
}

/// Writes all values, with their fields or without.
fn everything(call: &mut Call<'_>, kind: Aggregate, fields: bool) -> Outcome {
    let db = call.db();
    let Some(hash) = call.batch.hash(db, call.arg(1))? else {
        call.reply.aggregate(kind, 0);
        return Ok(());
    };
    let reply = &mut call.reply;
    let begun = reply.begin(kind, hash.count as usize);
    let mut shown = 0;
    call.batch.hash_each(db, &hash, |field, value| {
        shown += 1;
        if fields {
            reply.bulk(field);
        }
        reply.bulk(value);
        Ok(!reply.is_over())
    })?;
    reply.finish(begun, shown);
    Ok(())
}

fn hgetall(call: &mut Call<'_>) -> Outcome {
    everything(call, Aggregate::Map, true)
}

fn hkeys(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    let Some(hash) = call.batch.hash(db, call.arg(1))? else {
        call.reply.array(0);
        return Ok(());
    };
    let reply = &mut call.reply;
    let begun = reply.begin(Aggregate::Array, hash.count as usize);
    let mut shown = 0;
    call.batch.hash_each_field(db, &hash, |field| {
        shown += 1;
        reply.bulk(field);
        Ok(!reply.is_over())
    })?;
    reply.finish(begun, shown);
    Ok(())
}

fn hvals(call: &mut Call<'_>) -> Outcome {
    everything(call, Aggregate::Array, false)
}

fn hdel(call: &mut Call<'_>) -> Outcome {
    let removed = call.batch.hash_remove(call.session.db, call.arg(1), call.args_from(2))?;
    call.reply.integer(removed as i64);
    Ok(())
}

fn hlen(call: &mut Call<'_>) -> Outcome {
    let hash = call.batch.hash(call.session.db, call.arg(1))?;
    call.reply.integer(hash.map_or(0, |hash| hash.count) as i64);
    Ok(())
}

fn hexists(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    let exists = match call.batch.hash(db, call.arg(1))? {
        Some(hash) => call.batch.hash_has(db, &hash, call.arg(2))?,
        None => false,
    };
    call.reply.integer(i64::from(exists));
    Ok(())
}

fn hstrlen(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    let length = match call.batch.hash(db, call.arg(1))? {
        Some(hash) => call.batch.hash_field_len(db, &hash, call.arg(2))?,
        None => None,
    };
    call.reply.integer(length.unwrap_or(0) as i64);
    Ok(())
}

fn hincrby(call: &mut Call<'_>) -> Outcome {
    let delta = call.integer(3)?;
    let sum = call.batch.hash_add(call.session.db, call.arg(1), call.arg(2), delta)?;
    call.reply.integer(sum);
    Ok(())
}

fn hincrbyfloat(call: &mut Call<'_>) -> Outcome {
    let delta = LongDouble::parse(call.arg(3)).ok_or(Failure::NOT_A_FLOAT)?;
    if !delta.is_finite() {
        return Err(Failure::line("ERR value is NaN or Infinity"));
    }
    let sum = call.batch.hash_add_float(call.session.db, call.arg(1), call.arg(2), delta)?;
    call.reply.bulk(sum);
    Ok(())
}

fn hrandfield(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    if call.count() == 2 {
        let mut found = None;
        if let Some(hash) = call.batch.hash(db, call.arg(1))? {
            call.batch.hash_random_fields(db, &hash, 1, |field| {
                found = Some(field.to_vec());
                Ok(true)
            })?;
        }
        call.bulk_or_null(found);
        return Ok(());
    }
    let sample = call.sample(2)?;
    let with_values = call.count() == 4 && call.arg(3).eq_ignore_ascii_case(b"withvalues");
    if call.count() > 3 && !with_values {
        return Err(Failure::SYNTAX);
    }
    sample.check_pairs(with_values)?;
    let Some(hash) = call.batch.hash(db, call.arg(1))? else {
        call.reply.array(0);
        return Ok(());
    };
    let reply = &mut call.reply;
    let nested = with_values && reply.protocol() == Protocol::Resp3;
    let per_field = if with_values && !nested { 2 } else { 1 };
    let begun = reply.begin(Aggregate::Array, 0);
    let mut shown = 0;
    let mut show = |field: &[u8], value: Option<&[u8]>| {
        shown += per_field;
        if nested {
            reply.array(2);
        }
        reply.bulk(field);
        if let Some(value) = value {
            reply.bulk(value);
        }
        Ok(!reply.is_over())
    };
    let batch = &call.batch;
    match (sample, with_values) {
        (Sample::Different(count), true) => {
            batch.hash_sample(db, &hash, count, |field, value| show(field, Some(value)))?;
        }
        (Sample::Different(count), false) => {
            batch.hash_sample_fields(db, &hash, count, |field| show(field, None))?;
        }
        (Sample::Repeated(times), true) => {
            batch.hash_random(db, &hash, times, |field, value| show(field, Some(value)))?;
        }
        (Sample::Repeated(times), false) => {
            batch.hash_random_fields(db, &hash, times, |field| show(field, None))?;
        }
    }
    call.reply.finish(begun, shown);
    Ok(())
}

fn hscan(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    let cursor = call.cursor(2)?;
    let Some(hash) = call.batch.hash(db, call.arg(1))? else {
        empty_page(call);
        return Ok(());
    };
    let options = ScanOptions::of(call, 3)?;
    let most_bytes = call.reply.left_bytes();
    let page = call.batch.hash_page(db, &hash, cursor, options.count, most_bytes)?;
    let shown = options.shown(call, &page.items, |(field, _)| &field[..])?;
    show_page(call, page.cursor, 2, shown.into_iter(), |reply, (field, value)| {
        reply.bulk(field);
        reply.bulk(value);
    });
    Ok(())
}
