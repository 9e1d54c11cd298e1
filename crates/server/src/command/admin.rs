//! Running the server: its options, checkpoints, and its end.

use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};
use terrace_resp::Aggregate;

/// For administrators, and not before a thread may wait: files are written.
const ADMIN_WAITS: Flags = Flags::ADMIN.with(Flags::WAITS);

const fn row(
    name: &'static str,
    arity: i32,
    flags: Flags,
    (arguments, summary): (&'static str, &'static str),
    (complexity, since): (&'static str, &'static str),
    run: fn(&mut Call<'_>) -> Outcome,
) -> CommandSpec {
    let (keys, group) = (Keys::None, Group::Server);
    CommandSpec { name, arity, flags, keys, group, arguments, summary, complexity, since, run }
}

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    row(
        "config",
        -2,
        Flags::WAITS.with(Flags::SUBCOMMANDS),
        (
            "GET pattern [pattern ...] | SET name value [name value ...] | REWRITE | RESETSTAT",
            "Reads and changes options; several at once, or none of them.",
        ),
        ("O(N) for N options", "2.0.0"),
        config,
    ),
    row(
        "bgsave",
        -1,
        ADMIN_WAITS,
        ("[SCHEDULE]", "Makes a checkpoint beside the store, of hard links where possible."),
        ("O(files), a link each; in the background", "1.0.0"),
        bgsave,
    ),
    row(
        "save",
        1,
        ADMIN_WAITS.with(Flags::NO_MULTI),
        ("", "As BGSAVE, and answers when it is done."),
        ("O(files), a link each", "1.0.0"),
        save,
    ),
    row(
        "lastsave",
        1,
        Flags::FAST.with(Flags::DANGEROUS),
        ("", "Tells when the last checkpoint was finished."),
        ("O(1)", "1.0.0"),
        lastsave,
    ),
    row(
        "shutdown",
        -1,
        Flags::ADMIN.with(Flags::NO_MULTI),
        ("[NOSAVE | SAVE] [NOW] [FORCE]", "Answers what was begun, closes the store and ends."),
        ("one flush; with SAVE its cost, too", "1.0.0"),
        shutdown,
    ),
    row(
        "time",
        1,
        Flags::FAST,
        ("", "Tells the time in seconds and microseconds."),
        ("O(1)", "2.6.0"),
        time,
    ),
    CommandSpec {
        keys: Keys::AfterSubcommand,
        ..row(
            "memory",
            -2,
            Flags::READ.with(Flags::WAITS).with(Flags::SUBCOMMANDS),
            (
                "USAGE key [SAMPLES count] | STATS | DOCTOR | PURGE | MALLOC-STATS",
                "Tells what a key takes on disk, about, and where memory goes.",
            ),
            ("O(1)", "4.0.0"),
            memory,
        )
    },
];

fn config(call: &mut Call<'_>) -> Outcome {
    match &call.arg(1).to_ascii_lowercase()[..] {
        b"get" if call.count() > 2 => {
            let patterns: Vec<&[u8]> = call.args_from(2).collect();
            let pairs = call.server.config.get(&patterns);
            call.reply.aggregate(Aggregate::Map, pairs.len());
            for (name, value) in pairs {
                call.reply.bulk(name);
                call.reply.bulk(value);
            }
        }
        b"set" if call.count() > 3 && call.count().is_multiple_of(2) => {
            let text = |bytes: &[u8]| match std::str::from_utf8(bytes) {
                Ok(text) => Ok(text.to_string()),
                Err(_) => Err(Failure::line("ERR an option is no text")),
            };
            let words = call.args_from(2).map(text).collect::<Result<Vec<_>, _>>()?;
            let pairs: Vec<(&str, &str)> =
                words.chunks_exact(2).map(|pair| (&*pair[0], &*pair[1])).collect();
            let server = call.server;
            let set = server
                .config
                .set(&pairs, |before, after, names| server.carry_out(before, after, names));
            set.map_err(|error| Failure::Reply(error.reply().into()))?;
            call.reply.ok();
        }
        b"set" => return Err(Failure::SYNTAX),
        b"rewrite" if call.count() == 2 => {
            let rewritten = call.server.rewrite_config();
            rewritten.map_err(|error| Failure::Reply(error.reply().into()))?;
            call.reply.ok();
        }
        b"resetstat" if call.count() == 2 => {
            call.server.reset_stats();
            call.reply.ok();
        }
        _ => return Err(Failure::unknown_subcommand("CONFIG", call.arg(1))),
    }
    Ok(())
}

const SAVE_IN_PROGRESS: &str = "ERR Background save already in progress";

fn bgsave(call: &mut Call<'_>) -> Outcome {
    match call.count() {
        1 => {}
        2 if call.arg(1).eq_ignore_ascii_case(b"schedule") => {}
        _ => return Err(Failure::SYNTAX),
    }
    match call.server.checkpoints.begin(&call.server.space) {
        // As Redis, which begins it when the transaction is over.
        true if call.session.is_in_exec => call.reply.simple("Background saving scheduled"),
        true => call.reply.simple("Background saving started"),
        false => return Err(Failure::line(SAVE_IN_PROGRESS)),
    }
    Ok(())
}

fn save(call: &mut Call<'_>) -> Outcome {
    match call.server.checkpoints.make_unless_running(&call.server.space)? {
        true => call.reply.ok(),
        false => return Err(Failure::line(SAVE_IN_PROGRESS)),
    }
    Ok(())
}

fn lastsave(call: &mut Call<'_>) -> Outcome {
    call.reply.integer((call.server.checkpoints.last_ms() / 1000) as i64);
    Ok(())
}

fn shutdown(call: &mut Call<'_>) -> Outcome {
    let (mut saves, mut saves_nothing, mut hurries, mut aborts) = (false, false, false, false);
    let mut forces = false;
    for word in call.args_from(1) {
        match &word.to_ascii_lowercase()[..] {
            // The log is the state: nothing has to be saved, and nothing is lost without it.
            b"nosave" => saves_nothing = true,
            b"save" => saves = true,
            b"now" => hurries = true,
            b"force" => forces = true,
            b"abort" => aborts = true,
            _ => return Err(Failure::SYNTAX),
        }
    }
    if saves && saves_nothing || aborts && (saves || saves_nothing || hurries || forces) {
        return Err(Failure::SYNTAX);
    }
    if aborts {
        return Err(Failure::line("ERR No shutdown in progress."));
    }
    if saves {
        if call.batch.mode() == terrace_keyspace::Mode::Memory {
            return Err(Failure::Elsewhere(terrace_keyspace::Wait::Device));
        }
        match call.server.checkpoints.make(&call.server.space) {
            // The log of the server says why.
            Err(_) if forces => tracing::warn!("the server ends without the checkpoint"),
            made => made?,
        }
    }
    tracing::info!(client = call.session.id, "told to stop");
    // As in Redis, the end of the connection is the reply.
    call.session.closes = true;
    call.server.stop.request();
    Ok(())
}

fn time(call: &mut Call<'_>) -> Outcome {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.unwrap_or_default();
    call.reply.array(2);
    call.reply.bulk(now.as_secs().to_string());
    call.reply.bulk(now.subsec_micros().to_string());
    Ok(())
}

fn memory(call: &mut Call<'_>) -> Outcome {
    match &call.arg(1).to_ascii_lowercase()[..] {
        b"usage" => {
            for at in (3..call.count()).step_by(2) {
                if !call.arg(at).eq_ignore_ascii_case(b"samples") || at + 1 == call.count() {
                    return Err(Failure::SYNTAX);
                }
                if call.integer(at + 1)? < 0 {
                    return Err(Failure::SYNTAX);
                }
            }
            let bytes = call.batch.usage_bytes(call.session.db, call.arg(2))?;
            match bytes {
                Some(bytes) => call.reply.integer(bytes as i64),
                None => call.reply.null(),
            }
        }
        // Of the store's own memory there is nothing to give back.
        b"purge" => {
            call.server.purge_memory();
            call.reply.ok();
        }
        b"stats" if call.count() == 2 => {
            let shape = call.server.space.db().memory();
            call.reply.aggregate(Aggregate::Map, shape.pools.len() + 2);
            call.reply.bulk("budget");
            call.reply.integer(shape.budget_bytes as i64);
            call.reply.bulk("resident");
            call.reply.integer(crate::process::resident_bytes().unwrap_or(0) as i64);
            for pool in &shape.pools {
                call.reply.bulk(pool.name);
                call.reply.integer(pool.used_bytes as i64);
            }
        }
        b"doctor" if call.count() == 2 => {
            let text = call.server.memory_advice();
            call.reply.verbatim(*b"txt", text);
        }
        // That of the C library tells nothing.
        b"malloc-stats" => call.reply.bulk("Stats not supported for the current allocator"),
        _ => return Err(Failure::unknown_subcommand("MEMORY", call.arg(1))),
    }
    Ok(())
}
