//! What a command has to pass before it is executed, and how it gets into a transaction. The dispatch calls this.

use crate::command::{self, CommandSpec, Flags};
use crate::place;
use crate::server::Server;
use crate::session::{Caller, MAX_TRANSACTION_BYTES, Queued, Session};
use terrace_keyspace::Watch;
use terrace_resp::{Command, OwnedCommand};

/// What a queued command takes beside its own buffers: its place in the queue, and what two allocations cost.
const QUEUED_COMMAND_BYTES: usize = size_of::<OwnedCommand>() + 32;

/// Whether the client may send this now; else the error.
pub(super) fn check(
    spec: &CommandSpec,
    number: u16,
    args: &Command<'_>,
    session: &mut Session,
    server: &Server,
) -> Result<(), String> {
    // As Redis, which tells also those who have yet to log in what is no command.
    spec.check_form(args)?;
    if session.user.is_none() && session.caller == Caller::Client {
        return match spec.flags.has(Flags::NO_AUTH) {
            true => Ok(()),
            false => Err("NOAUTH Authentication required.".into()),
        };
    }
    command::permit(spec, number, args, session, server)?;
    if spec.name == "debug"
        && let Some(refusal) = command::debug_refusal(session, server)
    {
        return Err(refusal.into());
    }
    if session.queued.is_none() {
        return Ok(());
    }
    let is_alone = |flags: Flags| flags.has(Flags::NO_MULTI);
    if is_alone(spec.flags) || spec.subcommand(args).is_some_and(|one| is_alone(one.flags)) {
        return Err("ERR Command not allowed inside a transaction".into());
    }
    match &server.cluster {
        Some(cluster) if !spec.flags.has(Flags::NOT_QUEUED) => {
            place::check_queued(cluster, spec, args, session)
        }
        _ => Ok(()),
    }
}

/// Queues a command beside what its client watches. `WATCH` is refused here, before it is asked where its keys are, and
/// spoils nothing.
pub(super) fn queue(
    queued: &mut Queued,
    watched: Option<&Watch>,
    args: &Command<'_>,
    spec: &CommandSpec,
) -> Result<(), String> {
    if spec.name == "watch" {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    let command = args.to_owned();
    let held_bytes = command.held_bytes() + QUEUED_COMMAND_BYTES;
    let watched_bytes = watched.map_or(0, Watch::held_bytes);
    if queued.bytes + watched_bytes + held_bytes > MAX_TRANSACTION_BYTES {
        queued.is_spoilt = true;
        return Err(format!("ERR {} does not fit into the transaction any more", spec.name));
    }
    queued.bytes += held_bytes;
    queued.commands.push(command);
    Ok(())
}
