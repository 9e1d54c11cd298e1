//! Functions and scripts, of which there are none: what programs for Redis ask before they do without is answered as by
//! a Redis that has none, and everything else is an error that says so.

use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};
use terrace_resp::Aggregate;

const NO_FUNCTIONS: Failure = Failure::line("ERR there are no functions");
const NO_SCRIPTS: Failure = Failure::line("ERR there are no scripts");
const NOT_BUSY: Failure = Failure::line("NOTBUSY No scripts in execution right now.");

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "function",
        arity: -2,
        flags: Flags::SUBCOMMANDS,
        keys: Keys::None,
        group: Group::Scripting,
        arguments: "FLUSH [ASYNC|SYNC] | LIST [LIBRARYNAME pattern] [WITHCODE] | STATS",
        summary: "Tells that there are no functions.",
        complexity: "O(1)",
        since: "7.0.0",
        run: function,
    },
    CommandSpec {
        name: "script",
        arity: -2,
        flags: Flags::SUBCOMMANDS,
        keys: Keys::None,
        group: Group::Scripting,
        arguments: "EXISTS sha1 [sha1 ...] | FLUSH [ASYNC|SYNC]",
        summary: "Tells that there are no scripts.",
        complexity: "O(N) for N scripts asked for",
        since: "2.6.0",
        run: script,
    },
];

fn is_flush_option(option: &[u8]) -> bool {
    option.eq_ignore_ascii_case(b"async") || option.eq_ignore_ascii_case(b"sync")
}

fn function(call: &mut Call<'_>) -> Outcome {
    match &call.arg(1).to_ascii_lowercase()[..] {
        b"flush" if call.count() > 3 => {
            return Err(Failure::unknown_subcommand("FUNCTION", call.arg(1)));
        }
        b"flush" if !call.args_from(2).all(is_flush_option) => {
            return Err(Failure::line("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
        }
        b"flush" => call.reply.ok(),
        b"list" => list(call)?,
        b"stats" => {
            call.reply.aggregate(Aggregate::Map, 2);
            call.reply.bulk("running_script");
            call.reply.null();
            call.reply.bulk("engines");
            call.reply.aggregate(Aggregate::Map, 0);
        }
        b"delete" => return Err(Failure::line("ERR Library not found")),
        b"kill" => return Err(NOT_BUSY),
        _ => return Err(NO_FUNCTIONS),
    }
    Ok(())
}

fn list(call: &mut Call<'_>) -> Outcome {
    let mut at = 2;
    while at < call.count() {
        let word = call.arg(at);
        if word.eq_ignore_ascii_case(b"withcode") {
            at += 1;
        } else if !word.eq_ignore_ascii_case(b"libraryname") {
            let word = String::from_utf8_lossy(word);
            return Err(Failure::err(format_args!("Unknown argument {word}")));
        } else if at + 1 == call.count() {
            return Err(Failure::line("ERR library name argument was not given"));
        } else {
            at += 2;
        }
    }
    call.reply.array(0);
    Ok(())
}

fn script(call: &mut Call<'_>) -> Outcome {
    match &call.arg(1).to_ascii_lowercase()[..] {
        b"exists" => {
            call.reply.array(call.count() - 2);
            call.args_from(2).for_each(|_| call.reply.integer(0));
        }
        b"flush" if call.count() > 3 || !call.args_from(2).all(is_flush_option) => {
            return Err(Failure::line("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
        }
        b"flush" => call.reply.ok(),
        b"kill" => return Err(NOT_BUSY),
        _ => return Err(NO_SCRIPTS),
    }
    Ok(())
}
