//! `DEBUG`: what test suites and people who look for faults use; only if `enable-debug-command` allows it.

use super::help::help;
use super::interruption::Interruption;
use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};
use crate::config::DebugCommand;
use crate::server::Server;
use crate::session::Session;
use std::time::{Duration, Instant};
use terrace_keyspace::{Mode, PutOptions, When};

/// Keys that are made in one commit.
const POPULATED_AT_ONCE: u64 = 10_000;

/// Bytes of a value that is made.
const MAX_POPULATED_BYTES: u64 = 1 << 20;

/// Bytes of what the keys that are made begin with.
const MAX_PREFIX_BYTES: usize = 1 << 10;

/// After this long it is looked whether the server is to end, the client was ended, or a pause is over.
const NAP: Duration = Duration::from_millis(50);

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[SPEC];

const SPEC: CommandSpec = CommandSpec {
    name: "debug",
    arity: -2,
    flags: Flags::ADMIN.with(Flags::WAITS),
    keys: Keys::None,
    group: Group::Server,
    arguments: "SLEEP seconds | POPULATE count [prefix] [size] | RELOAD | LOG message | \
                SET-ACTIVE-EXPIRE 0|1 | QUICKLIST-PACKED-THRESHOLD size",
    summary: "Waits, makes keys, or writes a line of the log; only if enable-debug-command allows it.",
    complexity: "as long as asked for",
    since: "1.0.0",
    run: debug,
};

/// Why a client may not run DEBUG, if it may not.
pub(crate) fn debug_refusal(session: &Session, server: &Server) -> Option<&'static str> {
    let allowed = match server.config.settings().enable_debug_command {
        DebugCommand::No => false,
        DebugCommand::Local => session.info.origin.peer.ip().is_loopback(),
        DebugCommand::Yes => true,
    };
    (!allowed).then_some(
        "ERR DEBUG command not allowed. If the enable-debug-command option is set to \"local\", \
         you can run it from a local connection, otherwise you need to set this option in the \
         configuration file, and then restart the server.",
    )
}

fn debug(call: &mut Call<'_>) -> Outcome {
    // The option may have changed since it was queued.
    if let Some(refusal) = debug_refusal(call.session, call.server) {
        return Err(Failure::line(refusal));
    }
    match (&call.arg(1).to_ascii_lowercase()[..], call.count()) {
        (b"help", 2) => {
            help(call, &SPEC);
            return Ok(());
        }
        (b"sleep", 3) => {
            let text = std::str::from_utf8(call.arg(2)).ok();
            let seconds = text.and_then(|text| text.parse::<f64>().ok());
            let wait = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
            sleep(call, wait.ok_or(Failure::NOT_A_FLOAT)?)?;
        }
        (b"log", 3) => {
            let text = String::from_utf8_lossy(call.arg(2)).into_owned();
            tracing::warn!(client = call.session.id, "DEBUG LOG: {}", text.escape_debug());
        }
        (b"populate", 3..=5) => populate(call)?,
        // Everything is in the log: a restart would show the same.
        (b"reload", _) => call.server.space.db().sync()?,
        // What has expired is not seen in any case, and lists have one form.
        (b"set-active-expire" | b"quicklist-packed-threshold", 3) => {}
        _ => return Err(Failure::unknown_subcommand("DEBUG", call.arg(1))),
    }
    call.reply.ok();
    Ok(())
}

/// Waits, but not for longer than the server runs and the client is connected.
fn sleep(call: &Call<'_>, wait: Duration) -> Outcome {
    let start = Instant::now();
    loop {
        let left = wait.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        Interruption::of(call).check()?;
        std::thread::sleep(left.min(NAP));
    }
}

/// Whether a `CLIENT PAUSE` holds for writes.
fn is_paused(call: &Call<'_>) -> bool {
    call.server.pause.holds(|| true, || call.server.space.now_ms())
}

/// Makes keys that are not there, in commits of their own.
fn populate(call: &mut Call<'_>) -> Outcome {
    let count = call.positive(2)?;
    let prefix = if call.count() > 3 { call.arg(3) } else { b"key" };
    let size = if call.count() > 4 { call.positive(4)? } else { 0 };
    if size > MAX_POPULATED_BYTES || prefix.len() > MAX_PREFIX_BYTES {
        return Err(Failure::line("ERR value is out of range"));
    }
    if call.session.is_in_exec || call.server.cluster.is_some() {
        let text = "ERR DEBUG POPULATE is for a server without a cluster, outside of a transaction";
        return Err(Failure::line(text));
    }
    let options = PutOptions { when: When::Absent, ..PutOptions::default() };
    // As many bytes as fit in a commit that others can wait for.
    let at_once = POPULATED_AT_ONCE.min(((16 << 20) / size.max(1)).max(1));
    let mut batch = call.server.space.command_batch(Mode::Device);
    for start in (0..count).step_by(at_once as usize) {
        // A part of the keys is made then.
        Interruption::of(call).check()?;
        let numbers = start..count.min(start + at_once);
        let keys: Vec<Vec<u8>> = numbers
            .clone()
            .map(|number| [prefix, format!(":{number}").as_bytes()].concat())
            .collect();
        batch.lock(call.session.db, keys.iter().map(Vec::as_slice))?;
        while is_paused(call) {
            batch.abandon();
            sleep(call, NAP)?;
            batch.lock(call.session.db, keys.iter().map(Vec::as_slice))?;
        }
        for (number, key) in numbers.zip(&keys) {
            let mut value = format!("value:{number}").into_bytes();
            if size > 0 {
                value.resize(size as usize, 0);
            }
            batch.put(call.session.db, key, &value, &options)?;
        }
        batch.commit()?;
    }
    Ok(())
}
