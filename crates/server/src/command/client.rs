//! `CLIENT`: who is connected.

use super::connection::client_name;
use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome, table};
use crate::session::{ClientInfo, Replies};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "client",
    arity: -2,
    flags: Flags::NONE,
    keys: Keys::None,
    group: Group::Connection,
    arguments: "ID | GETNAME | SETNAME name | SETINFO LIB-NAME|LIB-VER text | INFO | LIST [ID id ...] | \
                KILL address | KILL ID id | REPLY ON|OFF|SKIP | NO-EVICT ON|OFF | NO-TOUCH ON|OFF",
    summary: "Tells about connections, names and ends them.",
    complexity: "O(N) for N connections, O(1) for those about the own one",
    since: "2.4.0",
    run: client,
}];

fn client(call: &mut Call<'_>) -> Outcome {
    let subcommand = call.arg(1).to_ascii_lowercase();
    let count = call.count();
    let expect = |counts: std::ops::RangeInclusive<usize>| match counts.contains(&count) {
        true => Ok(()),
        false => {
            let name = format!("client|{}", String::from_utf8_lossy(&subcommand));
            Err(Failure::wrong_count(&name))
        }
    };
    match &subcommand[..] {
        b"id" => {
            expect(2..=2)?;
            call.reply.integer(call.session.id as i64);
        }
        b"getname" => {
            expect(2..=2)?;
            let name = call.session.info.name.lock().clone();
            match name.is_empty() {
                true => call.reply.null(),
                false => call.reply.bulk(name),
            }
        }
        b"setname" => {
            expect(3..=3)?;
            *call.session.info.name.lock() = client_name(call.arg(2))?;
            call.reply.ok();
        }
        b"setinfo" => {
            expect(4..=4)?;
            set_info(call)?;
        }
        b"info" => {
            expect(2..=2)?;
            let line = describe(call, &call.session.info.clone());
            call.reply.verbatim(*b"txt", line);
        }
        b"list" => list(call)?,
        b"kill" => kill(call)?,
        b"reply" => {
            expect(3..=3)?;
            reply(call)?;
        }
        b"no-evict" | b"no-touch" => {
            expect(3..=3)?;
            on_or_off(call.arg(2))?;
            call.reply.ok();
        }
        b"tracking" if call.arg(2).eq_ignore_ascii_case(b"off") => call.reply.ok(),
        other => {
            let name = String::from_utf8_lossy(other);
            return Err(Failure::err(format!("unknown subcommand '{name}'. Try CLIENT HELP.")));
        }
    }
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
    let value = client_name(call.arg(3)).map_err(|_| {
        let attribute = String::from_utf8_lossy(call.arg(2)).to_lowercase();
        Failure::err(format!("{attribute} cannot contain spaces, newlines or special characters."))
    })?;
    let mut library = call.session.info.library.lock();
    if call.arg(2).eq_ignore_ascii_case(b"lib-name") {
        library.0 = value;
    } else if call.arg(2).eq_ignore_ascii_case(b"lib-ver") {
        library.1 = value;
    } else {
        let what = String::from_utf8_lossy(call.arg(2)).into_owned();
        return Err(Failure::err(format!("Unrecognized option '{what}'")));
    }
    drop(library);
    call.reply.ok();
    Ok(())
}

/// A line of `CLIENT LIST`.
fn describe(call: &Call<'_>, client: &ClientInfo) -> String {
    let now_ms = call.turn.now_ms();
    let mut line = String::new();
    let command =
        table().at(client.last_command.load(Ordering::Relaxed)).map_or("NULL", |s| s.name);
    let (library, version) = client.library.lock().clone();
    // Writing to a string does not fail.
    let _ = writeln!(
        line,
        "id={} addr={} laddr={} fd=0 name={} age={} idle={} flags=N db={} sub=0 psub=0 ssub=0 \
         multi=-1 cmd={command} user={} resp={} lib-name={library} lib-ver={version} tot-cmds={}",
        client.id,
        client.origin.peer,
        client.origin.local,
        client.name.lock(),
        now_ms.saturating_sub(client.connected_ms) / 1000,
        now_ms.saturating_sub(client.last_used_ms()) / 1000,
        client.db.load(Ordering::Relaxed),
        client.user.lock(),
        client.protocol.load(Ordering::Relaxed),
        client.commands.load(Ordering::Relaxed),
    );
    line
}

fn list(call: &mut Call<'_>) -> Outcome {
    let clients: Vec<Arc<ClientInfo>> = if call.count() == 2 {
        call.server.clients.list()
    } else if call.arg(2).eq_ignore_ascii_case(b"id") && call.count() > 3 {
        let mut clients = Vec::new();
        for at in 3..call.count() {
            let id = call.integer(at).ok().and_then(|id| u64::try_from(id).ok());
            let id = id.filter(|id| *id > 0).ok_or(Failure::line("ERR Invalid client ID"))?;
            clients.extend(call.server.clients.find(id));
        }
        clients
    } else if call.arg(2).eq_ignore_ascii_case(b"type") && call.count() == 4 {
        match call.arg(3).eq_ignore_ascii_case(b"normal") {
            true => call.server.clients.list(),
            // There are no replicas and no subscribers.
            false => Vec::new(),
        }
    } else {
        return Err(Failure::SYNTAX);
    };
    let lines: String = clients.iter().map(|client| describe(call, client)).collect();
    call.reply.verbatim(*b"txt", lines);
    Ok(())
}

/// Which clients are to be ended.
type Condition = Box<dyn Fn(&ClientInfo) -> bool>;

fn kill(call: &mut Call<'_>) -> Outcome {
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
    let mut wanted: Vec<Condition> = Vec::new();
    for at in (2..call.count()).step_by(2) {
        if at + 1 == call.count() {
            return Err(Failure::SYNTAX);
        }
        let word = String::from_utf8_lossy(call.arg(at + 1)).into_owned();
        match &call.arg(at).to_ascii_lowercase()[..] {
            b"id" => {
                let id: u64 = word
                    .parse()
                    .map_err(|_| Failure::line("ERR client-id should be greater than 0"))?;
                wanted.push(Box::new(move |client| client.id == id));
            }
            b"addr" => wanted.push(Box::new(move |c| c.origin.peer.to_string() == word)),
            b"laddr" => wanted.push(Box::new(move |c| c.origin.local.to_string() == word)),
            b"user" => wanted.push(Box::new(move |client| *client.user.lock() == word)),
            b"type" => wanted.push(Box::new(move |_| word.eq_ignore_ascii_case("normal"))),
            b"skipme" => skip_own = word.eq_ignore_ascii_case("yes"),
            _ => return Err(Failure::SYNTAX),
        }
    }
    let own = call.session.id;
    let mut count = 0;
    for client in call.server.clients.list() {
        if wanted.iter().all(|wanted| wanted(&client)) && !(skip_own && client.id == own) {
            end(call, &client);
            count += 1;
        }
    }
    call.reply.integer(count);
    Ok(())
}

/// Ends a connection; the own one after its reply.
fn end(call: &mut Call<'_>, client: &ClientInfo) {
    match client.id == call.session.id {
        true => call.session.closes = true,
        false => client.kill(),
    }
}

fn reply(call: &mut Call<'_>) -> Outcome {
    match &call.arg(2).to_ascii_lowercase()[..] {
        b"on" => {
            call.session.replies = Replies::On;
            call.reply.ok();
        }
        b"off" => call.session.replies = Replies::Off,
        b"skip" if call.session.replies == Replies::On => call.session.replies = Replies::SkipNext,
        b"skip" => {}
        _ => return Err(Failure::SYNTAX),
    }
    Ok(())
}
