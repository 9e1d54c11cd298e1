//! From a request to its reply: who may, what it needs, and what it cost.

mod checks;
#[cfg(test)]
mod tests;

use crate::cluster::Cluster;
use crate::command::{self, Call, CommandSpec, Failure, Flags, table};
use crate::place::{self, Await, Away, Place};
use crate::server::Server;
use crate::session::{Caller, Replies, Session};
use crate::unknown_command::{is_of_http, unknown};
use checks::{check, queue};
use std::sync::atomic::Ordering;
use std::time::Instant;
use terrace_cluster::CallTarget;
use terrace_keyspace::{CommandBatch, Mode, Wait};
use terrace_resp::{Command, OwnedCommand, ReplyWriter};

/// The commit of more bytes than this takes so long that no loop waits for it, and that a commit which waits behind it
/// does too. A batch to which small commands have written is less.
pub(crate) const LARGE_BATCH_BYTES: usize = (1 << 20) + (256 << 10);

/// What became of a command.
pub(crate) enum Executed {
    /// Its reply stands in the output.
    Replied,
    /// It has to wait, or to be executed by a thread that may. Nothing has happened yet.
    Elsewhere(Wait),
    /// It is executed elsewhere in the cluster, or later. Nothing has happened yet.
    Away(Away),
    /// As that, but it can be sent only from the loop, or when what is on its way has been answered. Nothing has
    /// happened yet.
    Back,
    /// As that, but first what its client wrote or read before it in the batch has to be committed.
    AfterCommit,
    /// A `CLIENT PAUSE` holds for it. Nothing has happened yet.
    Paused,
    /// Its reply stands in the output, and the connection ends.
    Close,
}

/// Executes one command. Its reply may be sent once `batch` is committed. `clock` is when the
/// command before it ended, and then when this one did.
pub(crate) fn execute(
    args: Command<'_>,
    batch: &mut CommandBatch,
    session: &mut Session,
    server: &Server,
    output: &mut Vec<u8>,
    clock: &mut Instant,
) -> Executed {
    let Some((number, spec)) = table().find(args.name()) else {
        session.info.note_use(None, batch.now_ms());
        return refuse_unknown(&args, session, server, output);
    };
    session.info.note_use(Some(table().counted_as(number, spec, &args)), batch.now_ms());
    // Whether its user may use them is asked for each of its keys, by each of their bytes. In a cluster only a loop sends them
    // on, and only a loop lets a client wait for the end of a pause.
    if server.cluster.is_none()
        && command::allow_arguments(&args, spec, batch).is_err()
        && !server.pause.holds(|| writes(spec, session), || server.space.now_ms())
    {
        return Executed::Elsewhere(Wait::Walk);
    }
    if let Some(done) = unexecuted(number, spec, &args, session, server, output) {
        return done;
    }
    if server.cluster.is_some()
        && let Some(done) = elsewhere(&args, spec, batch, session, server, output)
    {
        return done;
    }
    run(args, (number, spec), batch, session, server, output, clock)
}

/// What becomes of a command that is not executed: its client has no right to it, or waits, or is in a transaction.
fn unexecuted(
    number: u16,
    spec: &CommandSpec,
    args: &Command<'_>,
    session: &mut Session,
    server: &Server,
    output: &mut Vec<u8>,
) -> Option<Executed> {
    let is_client = session.caller == Caller::Client;
    if session.info.is_ended() {
        return Some(Executed::Close);
    }
    if is_client
        && let Some(user) = &mut session.user
        && !server.acl.refresh(user, &mut session.generation)
    {
        // The user is gone, or off.
        session.user = None;
        return Some(Executed::Close);
    }
    if let Err(refusal) = check(spec, number, args, session, server) {
        server.latency.note_rejected(table().counted_as(number, spec, args));
        let refusal = match spec.name {
            "exec" => refused_exec(session, refusal),
            _ => refusal,
        };
        server.errors.note(&refusal);
        // The cluster's answer to it, if it has waited for one, is not that to the next.
        session.admin = None;
        refuse(session, output, &refusal);
        return Some(Executed::Replied);
    }
    // An `EXEC` of which this node has done its part is not held: the pause may be its own.
    if is_client
        && !has_aside(session)
        && server.pause.holds(|| writes(spec, session), || server.space.now_ms())
    {
        return Some(Executed::Paused);
    }
    if let Some(queued) = &mut session.queued
        && (!spec.flags.has(Flags::NOT_QUEUED) || spec.name == "watch")
    {
        let queueing = queue(queued, session.watched.as_deref(), args, spec);
        session.info.queued.store(queued.commands.len() as u32, Ordering::Relaxed);
        answer_queueing(queueing, session, server, output);
        return Some(Executed::Replied);
    }
    None
}

/// Executes a command here. That may turn out to be wrong before anything has happened.
fn run(
    args: Command<'_>,
    (number, spec): (u16, &CommandSpec),
    batch: &mut CommandBatch,
    session: &mut Session,
    server: &Server,
    output: &mut Vec<u8>,
    clock: &mut Instant,
) -> Executed {
    let mark = output.len();
    let db = session.db;
    let (mode, is_bound) = (batch.mode(), session.is_bound || batch.is_taking_part());
    // What was written before in this turn has been held to it already.
    let limit_bytes = server.reply_limit(session.caller).saturating_add(mark);
    let reply = ReplyWriter::new(output, session.protocol).within(limit_bytes);
    batch.take_lookups();
    let mut call = Call { args, batch, session, server, reply };
    let outcome = command::run(&mut call, spec);
    let failed = match outcome {
        Ok(()) => false,
        Err(Failure::Elsewhere(wait)) => {
            output.truncate(mark);
            return Executed::Elsewhere(wait);
        }
        Err(Failure::Admin(request)) => {
            output.truncate(mark);
            let waits = Away::Wait(Await::Admin(request));
            // Only the loop lets a client wait for the cluster.
            return if mode == Mode::Device { Executed::Back } else { Executed::Away(waits) };
        }
        Err(Failure::Paused) => {
            output.truncate(mark);
            return Executed::Paused;
        }
        Err(Failure::Moved) => {
            output.truncate(mark);
            // What the command locked before it was refused is no part of the batch.
            return route_again(&args, spec, (batch, is_bound), session, server, output);
        }
        Err(Failure::Reply(text)) => {
            output.truncate(mark);
            server.errors.note(&text);
            ReplyWriter::new(output, session.protocol).error(&*text);
            command::close_if_stopping(session, &text);
            true
        }
    };
    let started = std::mem::replace(clock, Instant::now());
    let took = clock.duration_since(started);
    server.note(number, spec, &args, (session, db), took, failed);
    server.note_lookups(spec, batch);
    let is_over = output.len() > limit_bytes;
    if is_over {
        output.truncate(mark);
    }
    if is_over && gets_reply(session) {
        return over_limit(session, server, output);
    }
    hush(session, output, mark);
    if session.closes { Executed::Close } else { Executed::Replied }
}

/// Whether a command writes, or a transaction of which it is the end.
fn writes(spec: &CommandSpec, session: &Session) -> bool {
    let has_queued = || session.queued.as_ref().is_some_and(command::has_write);
    spec.flags.has(Flags::WRITE) || (spec.name == "exec" && has_queued())
}

/// Whether a command neither writes nor uses a key, nor does the transaction of which it is the end.
pub(crate) fn uses_no_key(args: &Command<'_>, session: &Session) -> bool {
    table().find(args.name()).is_some_and(|(_, spec)| {
        let watches = spec.name == "exec" && session.watched.is_some();
        !watches
            && !writes(spec, session)
            && place::keys_of(spec, args, session.queued.as_ref()).is_empty()
    })
}

/// What is said of an `EXEC` that is refused, also outside of a transaction, as by Redis.
fn refused_exec(session: &mut Session, refusal: String) -> String {
    session.end_transaction();
    let why = refusal.strip_prefix("ERR ").unwrap_or(&refusal);
    format!("EXECABORT Transaction discarded because of: {why}")
}

/// The reply to a command that was executed is longer than what may wait for its client: it is not sent, and the
/// connection ends, as that of a client that does not read. Another node gets an error instead.
fn over_limit(session: &mut Session, server: &Server, output: &mut Vec<u8>) -> Executed {
    if session.caller == Caller::Client {
        server.stats.output_limit_closed.add(1);
        tracing::warn!(client = session.id, "a reply over the output limit");
        return Executed::Close;
    }
    let text = "ERR the reply is over the output limit; the command was executed";
    refuse(session, output, text);
    Executed::Replied
}

fn refuse_unknown(
    args: &Command<'_>,
    session: &mut Session,
    server: &Server,
    output: &mut Vec<u8>,
) -> Executed {
    if is_of_http(args.name()) {
        server.stats.protocol_errors.add(1);
        tracing::warn!(
            client = session.id,
            peer = %session.info.origin.peer,
            "a request of HTTP: somebody may be sending it through a browser; the connection ends"
        );
        return Executed::Close;
    }
    let refusal = unknown(args);
    server.errors.note(&refusal);
    refuse(session, output, &refusal);
    server.stats.unknown_commands.add(1);
    Executed::Replied
}

/// In a cluster: what becomes of a command that is not simply executed here.
fn elsewhere(
    args: &Command<'_>,
    spec: &CommandSpec,
    batch: &mut CommandBatch,
    session: &mut Session,
    server: &Server,
    output: &mut Vec<u8>,
) -> Option<Executed> {
    let cluster = server.cluster.as_ref()?;
    let is_bound = session.is_bound || batch.is_taking_part();
    if session.round.is_open() && session.shard.is_none() && needs_order(spec, session) {
        return Some(Executed::Back);
    }
    match place::place(cluster, spec, args, session) {
        Place::Here(true) if session.round.comes_back() || has_aside(session) => {
            if batch.mode() == Mode::Device {
                return Some(Executed::Back);
            }
            let own = CallTarget::Owner(cluster.coordinator()?.me());
            return Some(send_to_own(args, spec, is_bound, session, server, output, own));
        }
        Place::Here(is_guarded) => {
            let is_on_its_way = |key: &&[u8]| session.round.has(key);
            if session.round.is_open()
                && place::keys_of(spec, args, session.queued.as_ref()).iter().any(is_on_its_way)
            {
                return Some(Executed::Back);
            }
            session.is_guarded |= is_guarded;
            return None;
        }
        Place::Away(away) => {
            if matches!(away, Away::Exec(_)) {
                if is_refused(session, server, output) {
                    return Some(Executed::Replied);
                }
                if let Some(done) = execute_aside(args, batch, session, server, output) {
                    return Some(done);
                }
            }
            // A thread that may wait holds no guard until what it sends is on its way.
            if batch.mode() == Mode::Device {
                return Some(Executed::Back);
            }
            let own = CallTarget::Owner(cluster.coordinator()?.me());
            return Some(send(away, args, spec, is_bound, session, own));
        }
        Place::Refused(text) => {
            if text == place::HELD {
                hold_back(args, session);
            }
            if spec.name == "exec" {
                session.end_transaction();
            }
            session.has_moved |= text.starts_with(place::MOVED);
            server.errors.note(&text);
            refuse(session, output, &text);
        }
        Place::Aborted => {
            session.end_transaction();
            let mark = output.len();
            ReplyWriter::new(output, session.protocol).null_array();
            hush(session, output, mark);
        }
    }
    Some(Executed::Replied)
}

/// A transaction is to be sent, to where its client is not known: whether the client may no longer execute some of what
/// it has queued, which is the reply then.
fn is_refused(session: &mut Session, server: &Server, output: &mut Vec<u8>) -> bool {
    let queued = session.queued.iter().flat_map(|queued| &queued.commands);
    let refusal = queued.map(OwnedCommand::as_command).find_map(|args| {
        let (number, spec) = table().find(args.name())?;
        command::permit(spec, number, &args, session, server).err()
    });
    let Some(refusal) = refusal else { return false };
    let refusal = format!("EXECABORT Transaction discarded because of: {refusal}");
    session.end_transaction();
    server.errors.note(&refusal);
    refuse(session, output, &refusal);
    true
}

/// Whether this node has executed what it does of a transaction that another one executes.
fn has_aside(session: &Session) -> bool {
    session.queued.as_ref().is_some_and(|queued| queued.aside.is_some())
}

/// Before a transaction is sent: a thread that may wait executes what this node does of it. `None` if that is nothing, or
/// nothing more.
fn execute_aside(
    args: &Command<'_>,
    batch: &mut CommandBatch,
    session: &mut Session,
    server: &Server,
    output: &mut Vec<u8>,
) -> Option<Executed> {
    let (places, queued) = place::aside_of(session)?;
    if batch.mode() == Mode::Memory {
        return Some(Executed::Elsewhere(Wait::Device));
    }
    let mut array = Vec::new();
    let limit_bytes = server.reply_limit(session.caller);
    let reply = ReplyWriter::new(&mut array, session.protocol).within(limit_bytes);
    let outcome =
        command::exec_aside(&mut Call { args: *args, batch, session, server, reply }, &queued);
    Some(match outcome {
        // What does not fit is missing in the array, so that the replies behind it would be taken for its elements.
        Ok(_) if array.len() > limit_bytes && gets_reply(session) => {
            session.end_transaction();
            over_limit(session, server, output)
        }
        Ok(replies) => {
            let own = places.into_iter().zip(replies);
            if let Some(queued) = &mut session.queued {
                queued.aside = Some(own.map(|(at, reply)| (at, array[reply].to_vec())).collect());
            }
            Executed::Back
        }
        Err(Failure::Elsewhere(wait)) => Executed::Elsewhere(wait),
        Err(Failure::Paused) => Executed::Paused,
        Err(Failure::Moved | Failure::Admin(_)) => Executed::Back,
        Err(Failure::Reply(text)) => {
            session.end_transaction();
            command::close_if_stopping(session, &text);
            server.errors.note(&text);
            refuse(session, output, &text);
            Executed::Replied
        }
    })
}

/// As [`send`], as a call of this node to itself.
fn send_to_own(
    args: &Command<'_>,
    spec: &CommandSpec,
    is_bound: bool,
    session: &mut Session,
    server: &Server,
    output: &mut Vec<u8>,
    own: CallTarget,
) -> Executed {
    let is_exec = spec.name == "exec";
    if is_exec && is_refused(session, server, output) {
        return Executed::Replied;
    }
    if is_exec && place::aside_of(session).is_some() {
        return Executed::Elsewhere(Wait::Device);
    }
    let away = if is_exec { Away::Exec(own) } else { Away::Send(own) };
    send(away, args, spec, is_bound, session, own)
}

/// A command goes to others (`own` is this node), if that keeps the order of the commands of its client on each key;
/// `is_bound`: its client wrote in the batch, or read an uncommitted write.
///
/// What comes back to this node is executed in a later batch, which sees nothing of this one before that
/// is committed. For what goes to another node the guard of the batch is enough: as long as it is held, a key that was
/// here is nowhere else.
fn send(
    away: Away,
    args: &Command<'_>,
    spec: &CommandSpec,
    is_bound: bool,
    session: &mut Session,
    own: CallTarget,
) -> Executed {
    if away.goes_to(own) && is_bound {
        return Executed::AfterCommit;
    }
    let mut keys = spec.keys.of(args);
    let is_sent = match (&away, keys.next(), keys.next()) {
        (Away::Send(target), Some(key), None) => {
            session.round.send_one(key, *target, session.protocol)
        }
        _ => {
            let ways = away.ways(&place::keys_of(spec, args, session.queued.as_ref()));
            session.round.send(&ways, session.protocol)
        }
    };
    match is_sent {
        true => Executed::Away(away),
        false => Executed::Back,
    }
}

/// Of a call: a command is not executed since it would have to wait, so nothing on its keys is behind it.
pub(crate) fn hold_back(args: &Command<'_>, session: &mut Session) {
    let Some((_, spec)) = table().find(args.name()) else { return };
    let keys = place::keys_of(spec, args, session.queued.as_ref());
    let keys: Vec<Vec<u8>> = keys.into_iter().map(<[u8]>::to_vec).collect();
    session.held_keys.extend(keys);
}

/// What becomes of a `WATCH` whose key the store does not have any more. It is not sent to this node itself, as others are:
/// what it watches is its client's. The routes are about to follow: until then writes of the key are held.
fn watch_again(
    args: &Command<'_>,
    spec: &CommandSpec,
    batch: &CommandBatch,
    session: &Session,
) -> Executed {
    let is_away = |key: &&[u8]| batch.check_home(session.db, key, false).is_err();
    match spec.keys.of(args).find(is_away).or_else(|| spec.keys.of(args).next()) {
        Some(key) if batch.mode() != Mode::Device => {
            Executed::Away(Away::Wait(Await::Release(key.to_vec())))
        }
        _ => Executed::Back,
    }
}

/// What becomes of a command that was to be executed here, and whose key the store does not have any more, or not
/// for long. Nothing has happened yet.
fn route_again(
    args: &Command<'_>,
    spec: &CommandSpec,
    (batch, is_bound): (&mut CommandBatch, bool),
    session: &mut Session,
    server: &Server,
    output: &mut Vec<u8>,
) -> Executed {
    if spec.name == "watch" && session.caller == Caller::Client {
        return watch_again(args, spec, batch, session);
    }
    let mode = batch.mode();
    let coordinator = server.cluster.as_ref().and_then(Cluster::coordinator);
    // What is for a whole shard is sent again by who sent it.
    let is_sent_again = session.caller == Caller::Again && session.shard.is_some();
    match (session.caller, coordinator) {
        (Caller::Client | Caller::Again, _) if mode == Mode::Device && !is_sent_again => {
            // It is alone in its batch, and what it executes aside takes locks of its own.
            batch.abandon();
            let aside = (spec.name == "exec")
                .then(|| execute_aside(args, batch, session, server, output))
                .flatten();
            aside.unwrap_or(Executed::Back)
        }
        (Caller::Client | Caller::Again, Some(coordinator)) if !is_sent_again => {
            // As a call to this node itself, which goes on as soon as the routes have followed.
            let own = CallTarget::Owner(coordinator.me());
            send_to_own(args, spec, is_bound, session, server, output, own)
        }
        (_, coordinator) => {
            if spec.name == "exec" {
                session.end_transaction();
            }
            session.has_moved = true;
            let text = coordinator.map(|one| place::moved_text(&**one)).unwrap_or_default();
            server.errors.note(&text);
            refuse(session, output, &text);
            Executed::Replied
        }
    }
}

/// Whether a command is executed only when nothing of its client is on its way: it sees all keys, or needs the
/// store of this node itself.
fn needs_order(spec: &CommandSpec, session: &Session) -> bool {
    place::is_for_all(spec.name)
        || spec.name == "watch"
        || spec.name == "exec" && session.watched.is_some()
}

/// Answers a command that is not executed.
pub(crate) fn refuse(session: &mut Session, output: &mut Vec<u8>, error: &str) {
    if let Some(queued) = &mut session.queued {
        queued.is_spoilt = true;
    }
    let mark = output.len();
    ReplyWriter::new(output, session.protocol).error(error);
    hush(session, output, mark);
}

/// The reply to a command that was queued, or could not be; that does not spoil the transaction.
fn answer_queueing(
    queueing: Result<(), String>,
    session: &mut Session,
    server: &Server,
    output: &mut Vec<u8>,
) {
    let mark = output.len();
    let mut writer = ReplyWriter::new(output, session.protocol);
    match queueing {
        Ok(()) => writer.simple("QUEUED"),
        Err(refusal) => {
            server.errors.note(&refusal);
            writer.error(refusal);
        }
    }
    hush(session, output, mark);
}

/// Takes a reply away that the client does not want.
fn hush(session: &mut Session, output: &mut Vec<u8>, mark: usize) {
    if !wants_reply(session) {
        output.truncate(mark);
    }
}

/// Whether the client gets the reply to the command that was just executed. Changes nothing: [`wants_reply`] comes after.
fn gets_reply(session: &Session) -> bool {
    matches!(session.replies, Replies::On | Replies::SkipNext)
}

/// Whether the client wants the reply to the command that it sent last. Once for each command: the next one may be another
/// matter.
pub(crate) fn wants_reply(session: &mut Session) -> bool {
    let is_wanted = gets_reply(session);
    session.replies = match session.replies {
        Replies::SkipNext => Replies::Skip,
        Replies::Skip => Replies::On,
        lasting @ (Replies::On | Replies::Off) => lasting,
    };
    is_wanted
}

/// Commits a batch. On an error, the text for the clients whose commands are in it.
pub(crate) fn commit(batch: &mut CommandBatch, server: &Server) -> Result<(), String> {
    let is_large = batch.size_bytes() > LARGE_BATCH_BYTES;
    let counted = u64::from(is_large);
    server.stats.large_commits.fetch_add(counted, Ordering::Relaxed);
    let outcome = batch.commit();
    server.stats.large_commits.fetch_sub(counted, Ordering::Relaxed);
    outcome.map_err(|error| {
        server.stats.failed_batches.add(1);
        match Failure::from(error) {
            Failure::Reply(text) => text.into_owned(),
            Failure::Elsewhere(_) | Failure::Moved | Failure::Paused | Failure::Admin(_) => {
                "ERR the commit had to wait".into()
            }
        }
    })
}
