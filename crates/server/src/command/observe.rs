//! What takes how long: `SLOWLOG`, `LATENCY`, `EXPLAIN`.

use super::latency_graph;
use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome, table};
use std::collections::HashSet;
use terrace_resp::Aggregate;

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "slowlog",
        arity: -2,
        flags: Flags::SUBCOMMANDS,
        keys: Keys::None,
        group: Group::Server,
        arguments: "GET [count] | LEN | RESET",
        summary: "Tells which commands took long.",
        complexity: "O(N) for N entries",
        since: "2.2.12",
        run: slowlog,
    },
    CommandSpec {
        name: "latency",
        arity: -2,
        flags: Flags::SUBCOMMANDS,
        keys: Keys::None,
        group: Group::Server,
        arguments: "HISTORY event | LATEST | GRAPH event | RESET [event ...] | HISTOGRAM [command ...] | DOCTOR",
        summary: "Tells how long commands and events took.",
        complexity: "O(N) for N entries",
        since: "2.8.13",
        run: latency,
    },
    CommandSpec {
        name: "explain",
        arity: 2,
        flags: Flags::READ.with(Flags::WAITS).with(Flags::DANGEROUS),
        keys: Keys::First,
        group: Group::Server,
        arguments: "key",
        summary: "Looks a key up and tells every step: which files, filters, models, blocks and log \
                  segments were asked, and what each answered.",
        complexity: "O(log N), as a GET with a trace",
        since: "terrace",
        run: explain,
    },
];

fn slowlog(call: &mut Call<'_>) -> Outcome {
    let subcommand = call.arg(1).to_ascii_lowercase();
    match (&subcommand[..], call.count()) {
        (b"len", 2) => call.reply.integer(call.server.slow_log.len() as i64),
        (b"reset", 2) => {
            call.batch.allow_walk(call.server.slow_log.len() as u64)?;
            call.server.slow_log.clear();
            call.reply.ok();
        }
        (b"get", 2 | 3) => {
            let count = match call.count() {
                3 => match call.integer(2).map(usize::try_from) {
                    Ok(Ok(count)) => count,
                    _ if call.arg(2) == b"-1" => usize::MAX,
                    _ => {
                        let text = "ERR count should be greater than or equal to -1";
                        return Err(Failure::line(text));
                    }
                },
                _ => 10,
            };
            show_slow_commands(call, count)?;
        }
        _ => return Err(Failure::unknown_subcommand("SLOWLOG", call.arg(1))),
    }
    Ok(())
}

/// Shows the newest entries of the log; many of them where nobody else waits meanwhile.
fn show_slow_commands(call: &mut Call<'_>, count: usize) -> Outcome {
    /// Their arguments, cut as they are, are that many.
    const ARGUMENTS: u64 = 32;
    let log = &call.server.slow_log;
    let most = count.min(log.len());
    call.batch.allow_walk((most as u64).saturating_mul(ARGUMENTS))?;
    let reply = &mut call.reply;
    let (begun, mut shown) = (reply.begin(Aggregate::Array, most), 0);
    log.each(count, |entry| {
        reply.array(6);
        reply.integer(entry.id as i64);
        reply.integer((entry.at_ms / 1000) as i64);
        reply.integer(entry.took_us as i64);
        reply.array(entry.arguments.len());
        entry.arguments.iter().for_each(|argument| reply.bulk(argument));
        reply.bulk(&entry.peer);
        reply.bulk(&entry.client_name);
        shown += 1;
        !reply.is_over()
    });
    reply.finish(begun, shown);
    Ok(())
}

fn latency(call: &mut Call<'_>) -> Outcome {
    let subcommand = call.arg(1).to_ascii_lowercase();
    let latency = &call.server.latency;
    match (&subcommand[..], call.count()) {
        (b"latest", 2) => {
            let latest = latency.latest();
            call.reply.array(latest.len());
            for (name, last, most_ms) in latest {
                call.reply.array(4);
                call.reply.bulk(name);
                call.reply.integer(last.at_s as i64);
                call.reply.integer(last.took_ms as i64);
                call.reply.integer(most_ms as i64);
            }
        }
        (b"history", 3) => {
            let spikes = latency.history(&String::from_utf8_lossy(call.arg(2)));
            call.reply.array(spikes.len());
            for spike in spikes {
                call.reply.array(2);
                call.reply.integer(spike.at_s as i64);
                call.reply.integer(spike.took_ms as i64);
            }
        }
        (b"graph", 3) => {
            let name = String::from_utf8_lossy(call.arg(2)).into_owned();
            let latest = latency.latest().into_iter().find(|(one, ..)| *one == name);
            let Some((_, _, most_ms)) = latest else {
                return Err(Failure::err(format!("No samples available for event '{name}'")));
            };
            let now_s = call.batch.now_ms() / 1000;
            let page = latency_graph::draw(&name, &latency.history(&name), most_ms, now_s);
            call.reply.verbatim(*b"txt", page);
        }
        (b"reset", _) => {
            let names: Vec<String> =
                call.args_from(2).map(|name| String::from_utf8_lossy(name).into_owned()).collect();
            let count = latency.reset_events(&names);
            call.reply.integer(count as i64);
        }
        (b"doctor", 2) => {
            let text = match latency.latest().iter().max_by_key(|(_, _, most)| *most) {
                None => {
                    "No event took long. Set latency-monitor-threshold to watch for them.".into()
                }
                Some((name, _, most)) => format!(
                    "The longest event was a `{name}` of {most} ms. SLOWLOG GET has the commands, \
                     and the dashboard shows stalls with their cause."
                ),
            };
            call.reply.verbatim(*b"txt", text);
        }
        (b"histogram", _) => histogram(call),
        _ => return Err(Failure::unknown_subcommand("LATENCY", call.arg(1))),
    }
    Ok(())
}

/// Of every command that was executed: how many took at most this many microseconds, in powers of 2.
fn histogram(call: &mut Call<'_>) {
    // `client` is all its subcommands.
    let wanted: HashSet<Vec<u8>> = call.args_from(2).map(<[u8]>::to_ascii_lowercase).collect();
    let is_wanted = |name: &str| {
        let command = name.split('|').next().unwrap_or(name);
        wanted.contains(name.as_bytes()) || wanted.contains(command.as_bytes())
    };
    let all = call.count() == 2;
    let rows: Vec<_> = call
        .server
        .latency
        .commands()
        .into_iter()
        .filter(|(_, stats)| stats.calls > 0)
        .filter_map(|(number, stats)| Some((table().counted_name(number)?, stats)))
        .filter(|(name, _)| all || is_wanted(name))
        .collect();
    call.reply.aggregate(Aggregate::Map, rows.len());
    for (name, stats) in rows {
        call.reply.bulk(name);
        call.reply.aggregate(Aggregate::Map, 2);
        call.reply.bulk("calls");
        call.reply.integer(stats.calls as i64);
        call.reply.bulk("histogram_usec");
        let mut buckets = Vec::new();
        let mut bound_us = 1_u64;
        loop {
            let count = stats.durations.count_between(0, bound_us * 1000);
            if count > 0 && buckets.last().is_none_or(|(_, last)| *last < count) {
                buckets.push((bound_us, count));
            }
            if count >= stats.calls || bound_us > 1 << 40 {
                break;
            }
            bound_us *= 2;
        }
        call.reply.aggregate(Aggregate::Map, buckets.len());
        for (bound, count) in buckets {
            call.reply.integer(bound as i64);
            call.reply.integer(count as i64);
        }
    }
}

fn explain(call: &mut Call<'_>) -> Outcome {
    let (db, key) = (call.session.db, call.arg(1));
    let space = &call.server.space;
    let told = crate::http::explain(space.db(), space.layout(), db, key)?;
    let lines: Vec<String> = told
        .steps
        .iter()
        .map(|step| {
            let reads = match step.device_reads {
                0 => String::new(),
                1 => ", 1 device read".into(),
                n => format!(", {n} device reads"),
            };
            let (family, place) = (&step.family, &step.place);
            format!("{family}: {place}: {}: {} ({} ns{reads})", step.asked, step.answer, step.ns)
        })
        .collect();
    call.reply.array(lines.len() + 1 + usize::from(told.memory.is_some()));
    lines.iter().for_each(|line| call.reply.bulk(line));
    if let Some(memory) = &told.memory {
        call.reply.bulk(format!("memory: {memory}"));
    }
    let found = told.kind.map_or("there is no such key".into(), |kind| format!("found a {kind}"));
    let (ns, reads) = (told.total_ns, told.device_reads);
    call.reply.bulk(format!("{found} ({ns} ns, {reads} device reads)"));
    Ok(())
}
