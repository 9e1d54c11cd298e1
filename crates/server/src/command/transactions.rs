//! `MULTI` and what goes with it: the engine's optimistic transactions.
//!
//! `EXEC` takes the locks of all keys that the client watches and, if one of its commands writes, of those that its
//! commands name: what it writes may come from what it reads. It asks the engine whether the watched ones are as they
//! were, and executes everything into one batch: all of it is committed, or nothing. A watched key that has expired is
//! not as it was.

use super::connection::selectable;
use super::presence::{self, KeyUsed};
use super::run;
use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome, close_if_stopping, table};
use crate::server::Server;
use crate::session::{Caller, MAX_TRANSACTION_BYTES, NOT_IN_MULTI, Queued, Session};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use terrace_keyspace::{Lookups, MAX_DATABASES, Mode, Wait};
use terrace_resp::{Command, OwnedCommand};

/// What the commands of a transaction may write together, in bytes: it is held in memory until it is committed.
const MAX_WRITTEN_BYTES: usize = 1 << 30;

/// The reply to `EXEC` of one that writes more.
const TOO_MUCH: &str = "EXECABORT Transaction discarded because it writes more than 1 GiB";

/// The reply to `WATCH` of more than [`MAX_TRANSACTION_BYTES`].
const TOO_MUCH_WATCHED: &str =
    "ERR the keys do not fit into the 64 MiB of what is watched and queued";

/// A transaction of more commands than this is executed by a thread that may take its time.
const MAX_COMMANDS_ON_LOOP: usize = 256;

const CONTROL: Flags = Flags::FAST.with(Flags::NOT_QUEUED);

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "multi",
        arity: 1,
        flags: CONTROL,
        keys: Keys::None,
        group: Group::Transactions,
        arguments: "",
        summary: "Queues what follows, to be executed as a whole by EXEC.",
        complexity: "O(1)",
        since: "1.2.0",
        run: multi,
    },
    CommandSpec {
        name: "exec",
        arity: 1,
        flags: Flags::NOT_QUEUED,
        keys: Keys::None,
        group: Group::Transactions,
        arguments: "",
        summary: "Executes what was queued, all at once, unless a watched key has changed.",
        complexity: "that of the commands; one commit",
        since: "1.2.0",
        run: exec,
    },
    CommandSpec {
        name: "discard",
        arity: 1,
        flags: CONTROL,
        keys: Keys::None,
        group: Group::Transactions,
        arguments: "",
        summary: "Forgets what was queued, and what is watched.",
        complexity: "O(N) for N queued commands",
        since: "2.0.0",
        run: discard,
    },
    CommandSpec {
        name: "watch",
        arity: -2,
        // What earlier commands wrote is no change: it is committed before.
        flags: Flags::FAST.with(Flags::WAITS).with(Flags::NOT_QUEUED),
        keys: Keys::All,
        group: Group::Transactions,
        arguments: "key [key ...]",
        summary: "Makes the next EXEC fail if one of the keys is written or expires by then.",
        complexity: "O(N) for N keys",
        since: "2.2.0",
        run: watch,
    },
    CommandSpec {
        name: "unwatch",
        arity: 1,
        flags: Flags::FAST,
        keys: Keys::None,
        group: Group::Transactions,
        arguments: "",
        summary: "Forgets what is watched.",
        complexity: "O(1)",
        since: "2.2.0",
        run: unwatch,
    },
];

fn multi(call: &mut Call<'_>) -> Outcome {
    if call.session.queued.is_some() {
        return Err(Failure::line("ERR MULTI calls can not be nested"));
    }
    call.session.queued = Some(Queued::default());
    call.session.info.queued.store(0, Ordering::Relaxed);
    call.reply.ok();
    Ok(())
}

fn discard(call: &mut Call<'_>) -> Outcome {
    if call.session.queued.is_none() {
        return Err(Failure::line("ERR DISCARD without MULTI"));
    }
    call.session.end_transaction();
    call.session.changes = call.session.changes.wrapping_add(1);
    call.reply.ok();
    Ok(())
}

fn watch(call: &mut Call<'_>) -> Outcome {
    let db = call.db();
    let keys = call.args_from(1).map(|key| (db, key));
    let before = call.session.watched.as_ref();
    let watched = call.server.space.watch_keys(before, keys, MAX_TRANSACTION_BYTES);
    let watched = watched.ok_or(Failure::line(TOO_MUCH_WATCHED))?;
    // They are watched by now: who changes when one expires writes it.
    for key in call.args_from(1) {
        if let Some(Some(at_ms)) = call.batch.expiry(db, key)? {
            watched.note_expiry(at_ms);
        }
    }
    call.session.watched = Some(watched);
    call.session.changes = call.session.changes.wrapping_add(1);
    call.reply.ok();
    Ok(())
}

fn unwatch(call: &mut Call<'_>) -> Outcome {
    if call.session.watched.take().is_some() {
        call.session.changes = call.session.changes.wrapping_add(1);
    }
    call.reply.ok();
    Ok(())
}

fn exec(call: &mut Call<'_>) -> Outcome {
    let Some(queued) = call.session.queued.take() else {
        return Err(Failure::line("ERR EXEC without MULTI"));
    };
    if queued.is_spoilt {
        call.session.end_transaction();
        let text = "EXECABORT Transaction discarded because of previous errors.";
        return Err(Failure::line(text));
    }
    let before = call.session.clone();
    let mut done = Done::default();
    call.session.is_in_exec = true;
    let outcome = exec_queued(call, &queued, &mut done);
    call.session.is_in_exec = false;
    match &outcome {
        // What SELECT, AUTH and others of the commands changed is done again by the thread that may wait.
        Err(Failure::Elsewhere(_) | Failure::Moved | Failure::Paused) => {
            call.session.restore(before);
            call.session.queued = Some(queued);
        }
        // Nothing of it has happened.
        Err(Failure::Reply(_)) => {
            call.session.restore(before);
            call.session.watched = None;
        }
        Err(_) => call.session.watched = None,
        Ok(()) => {
            call.session.watched = None;
            done.note(&queued, call.session, call.server);
        }
    }
    if call.session.queued.is_none() {
        call.session.info.queued.store(NOT_IN_MULTI, Ordering::Relaxed);
    }
    outcome
}

/// Executes what this node does of a transaction that another one executes; no command of it has keys. The reply is an
/// array; gives where in the output the replies to its commands are, of which those to `CLIENT REPLY` may be empty.
///
/// # Errors
/// As those of `EXEC`.
pub(crate) fn exec_aside(
    call: &mut Call<'_>,
    queued: &Queued,
) -> Result<Vec<Range<usize>>, Failure> {
    let mut done = Done::default();
    call.batch.next_command();
    call.session.is_in_exec = true;
    let outcome = exec_queued(call, queued, &mut done);
    call.session.is_in_exec = false;
    outcome?;
    done.note(queued, call.session, call.server);
    Ok(done.commands.into_iter().map(|one| one.reply).collect())
}

/// Whether a transaction writes.
pub(crate) fn has_write(queued: &Queued) -> bool {
    let spec_of = |command: &OwnedCommand| table().find(command.as_command().name());
    let mut specs = queued.commands.iter().filter_map(spec_of);
    specs.any(|(_, spec)| spec.flags.has(Flags::WRITE))
}

/// The commands of a transaction that were executed. They are counted when all of them are.
#[derive(Default)]
struct Done {
    commands: Vec<DoneCommand>,
    /// The errors that are part of the reply.
    errors: Vec<Cow<'static, str>>,
    lookups: Lookups,
    /// A command of the transaction has removed the client's user, or switched it off.
    is_user_gone: bool,
}

struct DoneCommand {
    /// Its place in the queue, and in the table of commands.
    place: usize,
    number: u16,
    db: u8,
    took: Duration,
    end: CommandEnd,
    /// Where in the output its reply is.
    reply: Range<usize>,
}

#[derive(PartialEq, Eq)]
enum CommandEnd {
    Executed,
    Failed,
    /// The user may not execute it any more.
    Rejected,
}

impl Done {
    fn note(&self, queued: &Queued, session: &Session, server: &Server) {
        for one in &self.commands {
            let Some(spec) = table().at(one.number) else { continue };
            let args = queued.commands[one.place].as_command();
            if one.end == CommandEnd::Rejected {
                server.latency.note_rejected(table().counted_as(one.number, spec, &args));
                continue;
            }
            let has_failed = one.end == CommandEnd::Failed;
            server.note(one.number, spec, &args, (session, one.db), one.took, has_failed);
        }
        self.errors.iter().for_each(|text| server.errors.note(text));
        server.stats.note_lookups(self.lookups);
    }
}

/// Executes what was queued; what is known of its commands goes to `done`.
fn exec_queued(call: &mut Call<'_>, queued: &Queued, done: &mut Done) -> Outcome {
    if call.batch.mode() == Mode::Memory && call.session.watched.is_some() {
        // What others wrote in this batch may be a change: it is committed before.
        return Err(Failure::Elsewhere(Wait::Device));
    }
    if call.batch.mode() == Mode::Memory && queued.commands.len() > MAX_COMMANDS_ON_LOOP {
        return Err(Failure::Elsewhere(Wait::Walk));
    }
    let commands = || queued.commands.iter().map(OwnedCommand::as_command);
    if call.batch.mode() == Mode::Memory && commands().any(|args| acts_outside(&args)) {
        // It would be done again if a later command has to wait.
        return Err(Failure::Elsewhere(Wait::Device));
    }
    call.batch.allow_walk(commands().map(|args| args.count() as u64).sum())?;
    call.batch.allow_bytes(queued.bytes)?;
    match lock(call, queued) {
        // It would not see elsewhere what is watched here.
        Err(Failure::Moved) if call.session.watched.is_some() => {
            call.reply.null_array();
            return Ok(());
        }
        locked => locked?,
    }
    run::look_for_a_pause(call, || has_write(queued))?;
    run::begin_work(call)?;
    allow_writes(queued, call.server)?;
    // What its commands read without a lock they see as it is at one moment.
    if queued.commands.len() > 1 {
        call.batch.pin_now();
    }
    if let Some(watched) = &call.session.watched
        && (watched.has_expired(call.batch.now_ms())
            || !watched.is_unchanged(call.server.space.db())?)
    {
        call.reply.null_array();
        return Ok(());
    }
    let Call { batch, session, server, reply, .. } = call;
    let (written_before, begin) = (batch.written_bytes(), reply.len_bytes());
    batch.attempt(|batch| {
        reply.array(queued.commands.len());
        for (place, command) in queued.commands.iter().enumerate() {
            // A loop executes no more than a few.
            if batch.mode() == Mode::Device && server.stop.is_requested() {
                return Err(Failure::EXEC_STOPPING);
            }
            let args = command.as_command();
            let inner = Call { args, batch, session, server, reply: reply.reborrow() };
            exec_one(inner, place, done)?;
            reply.set_protocol(session.protocol);
            if batch.written_bytes().saturating_sub(written_before) > MAX_WRITTEN_BYTES {
                return Err(Failure::line(TOO_MUCH));
            }
            let is_long = reply.len_bytes().saturating_sub(begin) > run::LONG_REPLY_BYTES;
            if is_long && batch.mode() == Mode::Memory {
                return Err(Failure::Elsewhere(Wait::Walk));
            }
        }
        Ok(())
    })
}

/// Refuses a transaction as a whole, as Redis does, of which the store would take a part now: on a full disk, what removes.
///
/// # Errors
/// The reply to `EXEC`.
fn allow_writes(queued: &Queued, server: &Server) -> Outcome {
    for command in &queued.commands {
        let Some((_, spec)) = table().find(command.as_command().name()) else { continue };
        run::allow_write(spec, server).map_err(|failure| match failure {
            Failure::Reply(why) => {
                Failure::Reply(format!("EXECABORT Transaction discarded because of: {why}").into())
            }
            other => other,
        })?;
    }
    Ok(())
}

/// Whether a command may change something that is neither in the store nor in its client's session, or end it.
fn acts_outside(args: &Command<'_>) -> bool {
    let found = table().find(args.name());
    found.is_some_and(|(_, spec)| spec.group == Group::Server || spec.name == "client")
}

/// Whether a command is `CLIENT PAUSE`, which waits for the writes that are under way.
fn is_pause(spec: &CommandSpec, args: &Command<'_>) -> bool {
    spec.name == "client" && spec.subcommand(args).is_some_and(|one| one.name == "pause")
}

/// What a user is answered who has removed itself within the transaction; the connection ends behind that.
const USER_IS_GONE: &str = "NOAUTH Authentication required.";

/// Whether a command is `ACL SETUSER` or `ACL DELUSER` of the client's own user.
fn changes_own_rights(spec: &CommandSpec, call: &Call<'_>) -> bool {
    if spec.name != "acl" || call.session.caller != Caller::Client {
        return false;
    }
    let Some(user) = &call.session.user else { return false };
    let is_own = |name: &[u8]| name == user.name().as_bytes();
    match spec.subcommand(&call.args).map(|one| one.name) {
        Some("setuser") => is_own(call.arg(2)),
        Some("deluser") => call.args_from(2).any(is_own),
        _ => false,
    }
}

/// Brings the client's user up to date; false if it is gone or off.
fn refresh_user(call: &mut Call<'_>) -> bool {
    let session = &mut *call.session;
    let user = session.user.as_mut();
    user.is_none_or(|user| call.server.acl.refresh(user, &mut session.generation))
}

/// Executes one command of a transaction, whose errors are replies.
///
/// What others change of the rights of its user meanwhile holds from the next command of the client on: a transaction
/// is executed by the rules that it began with, and those that it makes itself.
fn exec_one(mut call: Call<'_>, place: usize, done: &mut Done) -> Outcome {
    let Some((number, spec)) = table().find(call.args.name()) else { return Ok(()) };
    let (db, started) = (call.session.db, Instant::now());
    let mark = call.reply.len_bytes();
    // Rules may have changed since it was queued, also by a command before it.
    let denial = run::denial(spec, number, &call.args, call.session);
    let (error, end) = match denial {
        _ if done.is_user_gone => (Some(USER_IS_GONE.into()), CommandEnd::Rejected),
        // It is logged, which is not to be done again if a later command has to wait.
        Some(_) if call.batch.mode() == Mode::Memory => {
            return Err(Failure::Elsewhere(Wait::Device));
        }
        Some(denial) => {
            let refusal = run::refuse(&denial, spec, &call.args, call.session, call.server);
            (Some(refusal.into()), CommandEnd::Rejected)
        }
        None => {
            call.batch.take_lookups();
            match run::run_locked(&mut call, spec) {
                Ok(()) => {
                    if changes_own_rights(spec, &call) {
                        done.is_user_gone = !refresh_user(&mut call);
                    }
                    (None, CommandEnd::Executed)
                }
                Err(Failure::Reply(text)) => {
                    call.reply.truncate(mark);
                    close_if_stopping(call.session, &text);
                    (Some(text), CommandEnd::Failed)
                }
                // Refused when it was to be queued.
                Err(Failure::Admin(_)) => {
                    let text = "ERR Command not allowed inside a transaction";
                    (Some(text.into()), CommandEnd::Failed)
                }
                Err(elsewhere) => return Err(elsewhere),
            }
        }
    };
    if spec.counts_lookups() && end != CommandEnd::Rejected {
        done.lookups += call.batch.take_lookups();
    }
    if let Some(text) = error {
        call.reply.error(&*text);
        done.errors.push(text);
    }
    let (took, reply) = (started.elapsed(), mark..call.reply.len_bytes());
    done.commands.push(DoneCommand { place, number, db, took, end, reply });
    Ok(())
}

/// Which databases a transaction may be in at one of its commands: more than one behind a `SELECT` that is perhaps
/// refused.
struct Selected {
    /// As bits.
    databases: u128,
    /// Whether the client's user, as it is, as the transaction makes it, or one that it becomes on the way, may be
    /// forbidden to select.
    may_be_refused: bool,
}

impl Selected {
    fn by(call: &Call<'_>) -> Self {
        let is_limited = call.session.user.as_ref().is_some_and(|user| !user.may_do_everything());
        Self { databases: 1 << call.session.db, may_be_refused: is_limited }
    }

    fn each(&self) -> impl Iterator<Item = u8> + use<> {
        let databases = self.databases;
        (0..MAX_DATABASES as u8).filter(move |db| databases >> db & 1 == 1)
    }

    /// A command is before those that are asked about next.
    fn note(&mut self, spec: &CommandSpec, args: &Command<'_>, call: &Call<'_>) {
        match spec.name {
            "auth" | "hello" | "acl" => self.may_be_refused = true,
            // One that there is not is refused, and the commands after it stay where they were.
            "select" => {
                let index = args.get(1).and_then(terrace_resp::parse_integer);
                if let Some(db) = index.and_then(|index| selectable(index, call.server)) {
                    let before = if self.may_be_refused { self.databases } else { 0 };
                    self.databases = before | 1 << db;
                }
            }
            _ => {}
        }
    }
}

/// Takes the locks of all keys that are watched and, in a transaction that writes, of those that it reads or writes.
/// In a cluster, all keys are here afterwards.
fn lock(call: &mut Call<'_>, queued: &Queued) -> Outcome {
    let (is_node, is_asked) = (call.server.cluster.is_some(), presence::is_asked(call));
    // Two of which each reads what the other writes would not see one another.
    let writes = has_write(queued);
    let mut selected = Selected::by(call);
    let mut keys: Vec<(u8, &[u8])> = Vec::new();
    let mut used: Vec<KeyUsed<'_>> = Vec::new();
    let mut needs_all = false;
    for command in &queued.commands {
        let args = command.as_command();
        let Some((_, spec)) = table().find(args.name()) else { continue };
        needs_all |= spec.flags.has(Flags::LOCKS_ALL) || is_pause(spec, &args);
        if is_node {
            let first = used.len();
            used.extend(selected.each().flat_map(|db| presence::keys_of(spec, &args, db)));
            if is_asked {
                presence::enter(call, used[first..].iter().copied())?;
            }
        }
        spec.may_run_in(call.batch.mode())?;
        selected.note(spec, &args, call);
        if writes {
            keys.extend(selected.each().flat_map(|db| spec.keys.located(&args, db)));
        }
    }
    if needs_all {
        call.batch.try_lock_everything()?;
        return presence::check(call, used.into_iter());
    }
    if used.iter().any(|key| presence::needs_lock(call, *key)) {
        keys.extend(used.iter().map(|(db, key, _)| (*db, *key)));
    }
    let watched = call.session.watched.as_ref().map(|watched| watched.keys()).unwrap_or_default();
    keys.extend(watched.iter().map(|(db, key)| (*db, &key[..])));
    call.batch.lock_in(keys.into_iter())?;
    presence::check(call, used.into_iter())
}
