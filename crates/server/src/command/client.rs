//! `CLIENT`: who is connected.

use super::client_line::client_line;
use super::connection::{MAX_NAME_BYTES, client_name};
use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};
use crate::session::{ClientInfo, Replies};
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_keyspace::{Mode, Wait};
use terrace_resp::Aggregate;

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "client",
    arity: -2,
    flags: Flags::SUBCOMMANDS,
    keys: Keys::None,
    group: Group::Connection,
    arguments: "ID | GETNAME | SETNAME name | SETINFO LIB-NAME|LIB-VER text | INFO | \
                LIST [TYPE type|ID id [id ...]] | KILL address | \
                KILL [ID id] [ADDR address] [LADDR address] [TYPE type] [USER name] [SKIPME yes|no] | \
                REPLY ON|OFF|SKIP | NO-EVICT ON|OFF | NO-TOUCH ON|OFF | TRACKING OFF | TRACKINGINFO | \
                GETREDIR | UNBLOCK id [TIMEOUT|ERROR] | PAUSE milliseconds [WRITE|ALL] | UNPAUSE",
    summary: "Tells about connections, names and ends them.",
    complexity: "O(N) for N connections, O(1) for those about the own one",
    since: "2.4.0",
    run: client,
}];

fn client(call: &mut Call<'_>) -> Outcome {
    match &call.arg(1).to_ascii_lowercase()[..] {
        b"id" => call.reply.integer(call.session.id as i64),
        b"getname" => {
            let name = call.session.info.name.lock().clone();
            call.bulk_or_null((!name.is_empty()).then_some(name));
        }
        b"setname" => {
            *call.session.info.name.lock() = client_name(call.arg(2))?;
            call.reply.ok();
        }
        b"setinfo" => set_info(call)?,
        b"info" => {
            let line = describe(call, &call.session.info.clone());
            call.reply.verbatim(*b"txt", line);
        }
        b"list" => list(call)?,
        b"kill" => kill(call)?,
        b"reply" => reply(call)?,
        b"no-evict" | b"no-touch" => {
            on_or_off(call.arg(2))?;
            call.reply.ok();
        }
        b"tracking" => tracking(call)?,
        // Nothing is tracked.
        b"getredir" => call.reply.integer(-1),
        b"trackinginfo" => tracking_info(call),
        b"caching" => {
            return Err(Failure::line(
                "ERR CLIENT CACHING can be called only when the client is in tracking mode with \
                 OPTIN or OPTOUT mode enabled",
            ));
        }
        b"unblock" => unblock(call)?,
        b"pause" => pause(call)?,
        b"unpause" => {
            call.server.pause.end();
            call.reply.ok();
        }
        _ => return Err(Failure::unknown_subcommand("CLIENT", call.arg(1))),
    }
    Ok(())
}

/// Commands of clients wait, or those that write.
fn pause(call: &mut Call<'_>) -> Outcome {
    let is_for_all = match &call.arg(3).to_ascii_lowercase()[..] {
        _ if call.count() > 4 => return Err(Failure::unknown_subcommand("CLIENT", call.arg(1))),
        b"" if call.count() == 3 => true,
        b"all" => true,
        b"write" => false,
        _ => return Err(Failure::line("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let for_ms = call
        .integer(2)
        .map_err(|_| Failure::line("ERR timeout is not an integer or out of range"))?;
    let for_ms = u64::try_from(for_ms).map_err(|_| Failure::line("ERR timeout is negative"))?;
    if call.batch.mode() == Mode::Memory {
        return Err(Failure::Elsewhere(Wait::Device));
    }
    // Writes that began before it are committed when it is answered; those that have yet to lock their keys see it
    // then. A transaction with it holds all locks already. A command that is refused a lock is run again, and would wait
    // for the pause if that had begun; one that waits for them begins it first, so that no others keep it waiting.
    let (locks, waits) = (!call.session.is_in_exec, call.batch.waits_for_keys());
    if locks && !waits {
        call.batch.try_lock_everything()?;
    }
    let now_ms = call.server.space.now_ms();
    call.server.pause.begin(now_ms, now_ms.saturating_add(for_ms), is_for_all);
    if locks && waits {
        call.batch.lock_everything();
    }
    call.reply.ok();
    Ok(())
}

/// Keys are not tracked: what makes sense is refused too, unless it is to be off.
fn tracking(call: &mut Call<'_>) -> Outcome {
    let (mut at, mut prefixes) = (3, 0);
    let (mut is_broadcast, mut is_opt_in, mut is_opt_out) = (false, false, false);
    while at < call.count() {
        let more = at + 1 < call.count();
        match &call.arg(at).to_ascii_lowercase()[..] {
            b"redirect" if more => {
                at += 1;
                let id = call.integer(at)?;
                if u64::try_from(id).ok().and_then(|id| call.server.clients.find(id)).is_none() {
                    let text = "ERR The client ID you want redirect to does not exist";
                    return Err(Failure::line(text));
                }
            }
            b"prefix" if more => (at, prefixes) = (at + 1, prefixes + 1),
            b"bcast" => is_broadcast = true,
            b"optin" => is_opt_in = true,
            b"optout" => is_opt_out = true,
            b"noloop" => {}
            _ => return Err(Failure::SYNTAX),
        }
        at += 1;
    }
    if !on_or_off(call.arg(2))? {
        call.reply.ok();
        return Ok(());
    }
    let text = if !is_broadcast && prefixes > 0 {
        "ERR PREFIX option requires BCAST mode to be enabled"
    } else if is_broadcast && (is_opt_in || is_opt_out) {
        "ERR OPTIN and OPTOUT are not compatible with BCAST"
    } else if is_opt_in && is_opt_out {
        "ERR You can't specify both OPTIN mode and OPTOUT mode"
    } else {
        "ERR there is no tracking of keys"
    };
    Err(Failure::line(text))
}

fn tracking_info(call: &mut Call<'_>) {
    call.reply.aggregate(Aggregate::Map, 3);
    call.reply.bulk("flags");
    call.reply.aggregate(Aggregate::Set, 1);
    call.reply.bulk("off");
    call.reply.bulk("redirect");
    call.reply.integer(-1);
    call.reply.bulk("prefixes");
    call.reply.array(0);
}

/// No command blocks: there is never one to end.
fn unblock(call: &mut Call<'_>) -> Outcome {
    let reason = call.arg(3).to_ascii_lowercase();
    match (call.count(), &reason[..]) {
        (3, _) | (4, b"timeout" | b"error") => {}
        (4, _) => {
            return Err(Failure::line("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
        _ => return Err(Failure::unknown_subcommand("CLIENT", call.arg(1))),
    }
    call.integer(2)?;
    call.reply.integer(0);
    Ok(())
}

fn on_or_off(word: &[u8]) -> Result<bool, Failure> {
    match word {
        _ if word.eq_ignore_ascii_case(b"on") => Ok(true),
        _ if word.eq_ignore_ascii_case(b"off") => Ok(false),
        _ => Err(Failure::SYNTAX),
    }
}

fn set_info(call: &mut Call<'_>) -> Outcome {
    let attribute = String::from_utf8_lossy(call.arg(2)).into_owned();
    let is_name = attribute.eq_ignore_ascii_case("lib-name");
    if !is_name && !attribute.eq_ignore_ascii_case("lib-ver") {
        return Err(Failure::err(format_args!("Unrecognized option '{attribute}'")));
    }
    let value = client_name(call.arg(3)).map_err(|_| match call.arg(3).len() > MAX_NAME_BYTES {
        true => {
            Failure::err(format_args!("{attribute} cannot be longer than {MAX_NAME_BYTES} bytes."))
        }
        false => Failure::err(format_args!(
            "{attribute} cannot contain spaces, newlines or special characters."
        )),
    })?;
    let mut library = call.session.info.library.lock();
    match is_name {
        true => library.0 = value,
        false => library.1 = value,
    }
    drop(library);
    call.reply.ok();
    Ok(())
}

/// A line of `CLIENT LIST`.
fn describe(call: &Call<'_>, client: &ClientInfo) -> String {
    let current = (client.id == call.session.id).then_some(&call.args);
    client_line(client, call.batch.now_ms(), current) + "\n"
}

/// Whether clients of a type are wanted that are there: all are normal, none replicas or subscribers.
fn is_normal(kind: &[u8]) -> Result<bool, Failure> {
    match &kind.to_ascii_lowercase()[..] {
        b"normal" => Ok(true),
        b"master" | b"slave" | b"replica" | b"pubsub" => Ok(false),
        _ => {
            let kind = String::from_utf8_lossy(kind);
            Err(Failure::err(format_args!("Unknown client type '{kind}'")))
        }
    }
}

/// Refuses to look at all clients this many times where others wait meanwhile, if there are many.
fn allow_all(call: &Call<'_>, times: usize) -> Outcome {
    let looks = call.server.clients.count().saturating_mul(times);
    call.batch.allow_walk(looks as u64)?;
    Ok(())
}

fn list(call: &mut Call<'_>) -> Outcome {
    let is_of_some = call.arg(2).eq_ignore_ascii_case(b"id");
    allow_all(call, usize::from(!is_of_some))?;
    let clients: Vec<Arc<ClientInfo>> = if call.count() == 2 {
        call.server.clients.list()
    } else if call.arg(2).eq_ignore_ascii_case(b"id") && call.count() > 3 {
        let mut clients = Vec::new();
        for at in 3..call.count() {
            let id = call.integer(at).map_err(|_| Failure::line("ERR Invalid client ID"))?;
            clients.extend(u64::try_from(id).ok().and_then(|id| call.server.clients.find(id)));
        }
        clients
    } else if call.arg(2).eq_ignore_ascii_case(b"type") && call.count() == 4 {
        match is_normal(call.arg(3))? {
            true => call.server.clients.list(),
            false => Vec::new(),
        }
    } else {
        return Err(Failure::SYNTAX);
    };
    let mut lines = String::new();
    for client in &clients {
        lines.push_str(&describe(call, client));
        if lines.len() > call.reply.left_bytes() {
            break;
        }
    }
    call.reply.verbatim(*b"txt", lines);
    Ok(())
}

/// Which clients are to be ended.
type Condition = Box<dyn Fn(&ClientInfo) -> bool>;

/// What one option of CLIENT KILL says; `None` for `SKIPME`.
fn condition(call: &Call<'_>, at: usize) -> Result<Option<Condition>, Failure> {
    let word = String::from_utf8_lossy(call.arg(at + 1)).into_owned();
    Ok(Some(match &call.arg(at).to_ascii_lowercase()[..] {
        b"id" => {
            let id = call.integer(at + 1).ok().and_then(|id| u64::try_from(id).ok());
            let id = id.filter(|id| *id > 0);
            let id = id.ok_or(Failure::line("ERR client-id should be greater than 0"))?;
            Box::new(move |client| client.id == id)
        }
        b"addr" => Box::new(move |client| client.origin.peer.to_string() == word),
        b"laddr" => Box::new(move |client| client.origin.local.to_string() == word),
        b"user" => {
            if call.server.acl.user(word.as_bytes()).is_none() {
                return Err(Failure::err(format_args!("No such user '{word}'")));
            }
            Box::new(move |client| *client.user.lock() == word)
        }
        b"type" => {
            let all = is_normal(call.arg(at + 1))?;
            Box::new(move |_| all)
        }
        b"skipme" if ["yes", "no"].contains(&&*word.to_lowercase()) => return Ok(None),
        _ => return Err(Failure::SYNTAX),
    }))
}

fn kill(call: &mut Call<'_>) -> Outcome {
    // Each may be asked for each condition.
    allow_all(call, call.count() / 2)?;
    if call.count() == 3 {
        let address = String::from_utf8_lossy(call.arg(2)).into_owned();
        let clients = call.server.clients.list();
        let Some(client) = clients.iter().find(|c| c.origin.peer.to_string() == address) else {
            return Err(Failure::line("ERR No such client"));
        };
        end(call, client);
        call.reply.ok();
        return Ok(());
    }
    let mut skip_own = true;
    // By their options: of one that comes again the last counts, as in Redis.
    let mut wanted: BTreeMap<Vec<u8>, Condition> = BTreeMap::new();
    for at in (2..call.count()).step_by(2) {
        if at + 1 == call.count() {
            return Err(Failure::SYNTAX);
        }
        match condition(call, at)? {
            Some(condition) => drop(wanted.insert(call.arg(at).to_ascii_lowercase(), condition)),
            None => skip_own = call.arg(at + 1).eq_ignore_ascii_case(b"yes"),
        }
    }
    let own = call.session.id;
    let mut count = 0;
    for client in call.server.clients.list() {
        if wanted.values().all(|wanted| wanted(&client)) && !(skip_own && client.id == own) {
            end(call, &client);
            count += 1;
        }
    }
    call.reply.integer(count);
    Ok(())
}

/// Ends a connection; the own one after its reply, which leaves when nothing is under way of the others any more.
fn end(call: &mut Call<'_>, client: &ClientInfo) {
    match client.id == call.session.id {
        true => call.session.closes = true,
        false => client.kill(call.session.begin_settling()),
    }
}

fn reply(call: &mut Call<'_>) -> Outcome {
    match &call.arg(2).to_ascii_lowercase()[..] {
        b"on" => {
            call.session.replies = Replies::On;
            call.reply.ok();
        }
        b"off" => call.session.replies = Replies::Off,
        b"skip" if call.session.replies == Replies::Off => {}
        b"skip" => call.session.replies = Replies::SkipNext,
        _ => return Err(Failure::SYNTAX),
    }
    Ok(())
}
