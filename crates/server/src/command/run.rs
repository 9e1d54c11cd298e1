//! Running a command's function: who may, and with which locks.

use super::client_line::client_line;
use super::help::help;
use super::presence;
use super::spec::{CommandSpec, Flags, Keys};
use super::{Call, Failure, Outcome};
use crate::acl::Denial;
use crate::server::Server;
use crate::session::{Caller, Session};
use terrace_keyspace::{CommandBatch, Mode, Wait};
use terrace_resp::Command;

/// A reply of more bytes than this is made where nobody else waits meanwhile: a key may be named, and so its value shown,
/// thousands of times.
pub(super) const LONG_REPLY_BYTES: usize = 4 << 20;

/// Runs a command's function with the locks that it needs. What it wrote is gone if it fails.
pub fn run(call: &mut Call<'_>, spec: &CommandSpec) -> Outcome {
    let flags = spec.flags;
    let is_asked = presence::is_asked(call);
    let (args, db) = (call.args, call.session.db);
    let keys = || presence::keys_of(spec, &args, db);
    if is_asked {
        presence::enter(call, keys())?;
    }
    spec.may_run_in(call.batch.mode())?;
    allow_arguments(&args, spec, call.batch)?;
    call.batch.next_command();
    if flags.has(Flags::LOCKS_ALL) {
        call.batch.try_lock_everything()?;
    } else if flags.has(Flags::WRITE) {
        match spec.keys.may_be_elsewhere() {
            false => call.batch.lock(call.session.db, spec.keys.of(&call.args))?,
            true => call.batch.lock_in(spec.keys.located(&call.args, call.session.db))?,
        }
    } else if is_asked && keys().any(|key| presence::needs_lock(call, key)) {
        call.batch.lock_in(keys().map(|(db, key, _)| (db, key)))?;
    }
    if call.server.cluster.is_some() {
        presence::check(call, keys())?;
    }
    if flags.has(Flags::WRITE) {
        look_for_a_pause(call, || true)?;
    }
    // A transaction begins when it has the locks of its commands.
    if flags.has(Flags::WRITE) || !(flags.has(Flags::READ) || spec.name == "exec") {
        begin_work(call)?;
    }
    run_locked(call, spec)
}

/// Refuses a command with many arguments, or with keys and long ones, where others wait meanwhile.
///
/// # Errors
/// [`Failure::Elsewhere`].
pub(crate) fn allow_arguments(
    args: &Command<'_>,
    spec: &CommandSpec,
    batch: &CommandBatch,
) -> Outcome {
    batch.allow_walk(args.count() as u64)?;
    if spec.keys != Keys::None {
        batch.allow_bytes(args.bytes())?;
    }
    Ok(())
}

/// The locks of a command are held. What a thread that may wait does from here on is under way, for those who wait until
/// it is over; if it had to wait for the locks, its client may have been ended since, or other rules may hold for it.
/// A loop does not wait between its look at both and the command.
///
/// # Errors
/// [`Failure::Elsewhere`]: the command is to be looked at again.
pub(super) fn begin_work(call: &Call<'_>) -> Outcome {
    let Call { batch, session, server, .. } = call;
    if batch.mode() == Mode::Memory {
        return Ok(());
    }
    session.info.begin_work();
    let is_client = session.caller == Caller::Client;
    let follows_rules = is_client && session.user.is_some();
    let are_same_rules = !follows_rules || session.generation == server.acl.generation();
    match are_same_rules && !session.info.is_ended() {
        true => Ok(()),
        false => Err(Failure::Elsewhere(Wait::Key)),
    }
}

/// Before a client's command writes, with the locks held: a `CLIENT PAUSE` that has not waited for these locks lets it
/// wait.
///
/// # Errors
/// [`Failure::Paused`].
pub(crate) fn look_for_a_pause(call: &Call<'_>, writes: impl FnOnce() -> bool) -> Outcome {
    let Call { session, server, .. } = call;
    let is_client = session.caller == Caller::Client;
    match is_client && server.pause.holds(writes, || server.space.now_ms()) {
        true => Err(Failure::Paused),
        false => Ok(()),
    }
}

/// Refuses what the store would not take now, before it shares a batch with other commands, which would fail with it.
///
/// # Errors
/// The reply.
pub(super) fn allow_write(spec: &CommandSpec, server: &Server) -> Outcome {
    if !spec.flags.has(Flags::WRITE) {
        return Ok(());
    }
    match server.space.db().check_writable() {
        Err(terrace::Error::DiskFull(_)) if spec.flags.has(Flags::REMOVES) => Ok(()),
        Err(terrace::Error::DiskFull(_)) => Err(Failure::DISK_FULL),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(()),
    }
}

/// Runs a command's function; the locks are held.
pub(crate) fn run_locked(call: &mut Call<'_>, spec: &CommandSpec) -> Outcome {
    // Of a transaction all commands were looked at together.
    if !call.session.is_in_exec {
        allow_write(spec, call.server)?;
    }
    if spec.flags.has(Flags::SUBCOMMANDS) && call.arg(1).eq_ignore_ascii_case(b"help") {
        help(call, spec);
        return Ok(());
    }
    if !spec.flags.has(Flags::READS_LATE) {
        let only_reads = spec.flags.has(Flags::READ) && !spec.flags.has(Flags::WRITE);
        let is_bounded = only_reads && call.reply.left_bytes() > LONG_REPLY_BYTES;
        return match call.batch.mode() {
            Mode::Memory if is_bounded => read_briefly(call, spec),
            _ => (spec.run)(call),
        };
    }
    let Call { args, batch, session, server, reply } = call;
    batch.attempt(|batch| {
        let reply = reply.reborrow();
        (spec.run)(&mut Call { args: *args, batch, session, server, reply })
    })
}

/// Runs the function of a command that only reads, as far as its reply is not long.
///
/// # Errors
/// [`Failure::Elsewhere`] if it is; those of the command.
fn read_briefly(call: &mut Call<'_>, spec: &CommandSpec) -> Outcome {
    let Call { args, batch, session, server, reply } = call;
    let most = reply.len_bytes().saturating_add(LONG_REPLY_BYTES);
    let within = reply.reborrow().within(most);
    let outcome = (spec.run)(&mut Call { args: *args, batch, session, server, reply: within });
    match reply.len_bytes() > most {
        true => Err(Failure::Elsewhere(Wait::Walk)),
        false => outcome,
    }
}

/// Whether the client's user may execute this; else the error. A refusal is logged.
pub(crate) fn permit(
    spec: &CommandSpec,
    number: u16,
    args: &Command<'_>,
    session: &Session,
    server: &Server,
) -> Result<(), String> {
    match denial(spec, number, args, session) {
        Some(denial) => Err(refuse(&denial, spec, args, session, server)),
        None => Ok(()),
    }
}

/// What keeps the client's user from executing this.
pub(super) fn denial(
    spec: &CommandSpec,
    number: u16,
    args: &Command<'_>,
    session: &Session,
) -> Option<Denial> {
    let user = session.user.as_ref().filter(|user| !user.may_do_everything())?;
    match spec.flags.has(Flags::NO_AUTH) {
        true => None,
        false => spec.check(number, args, user).err(),
    }
}

/// Logs what a client's user may not do, and gives the reply.
pub(super) fn refuse(
    denial: &Denial,
    spec: &CommandSpec,
    args: &Command<'_>,
    session: &Session,
    server: &Server,
) -> String {
    let name = spec.full_name(args);
    let (reason, object) = denial.logged(&name);
    let client = client_line(&session.info, server.space.now_ms(), Some(args));
    let user = session.user.as_ref().map_or("", |user| user.name());
    server.log_denial(session, reason, object, user, &client);
    match session.is_in_exec {
        true => denial.reply_in_exec(),
        false => denial.reply(&name),
    }
}
