//! The connection: who it is, which protocol it speaks, which database it has selected.

use super::client_line::client_line;
use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome};
use crate::server::Server;
use std::sync::atomic::Ordering;
use terrace_keyspace::{Mode, Wait};
use terrace_resp::{Aggregate, Protocol};

/// The reply to `SELECT` of another database than the first, in a cluster.
pub(crate) const NO_SELECT: &str = "ERR SELECT is not allowed in cluster mode";

const PLAIN: Flags = Flags::FAST;
const LOGIN: Flags = Flags::FAST.with(Flags::NO_AUTH);
const FOR_GUESTS: Flags = LOGIN.with(Flags::NOT_QUEUED);

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "ping",
        arity: -1,
        flags: PLAIN,
        keys: Keys::None,
        group: Group::Connection,
        arguments: "[message]",
        summary: "Answers.",
        complexity: "O(1)",
        since: "1.0.0",
        run: ping,
    },
    CommandSpec {
        name: "echo",
        arity: 2,
        flags: PLAIN,
        keys: Keys::None,
        group: Group::Connection,
        arguments: "message",
        summary: "Answers with the message.",
        complexity: "O(1)",
        since: "1.0.0",
        run: echo,
    },
    CommandSpec {
        name: "select",
        arity: 2,
        flags: PLAIN,
        keys: Keys::None,
        group: Group::Connection,
        arguments: "index",
        summary: "Changes the database of this connection.",
        complexity: "O(1)",
        since: "1.0.0",
        run: select,
    },
    CommandSpec {
        name: "quit",
        arity: -1,
        flags: FOR_GUESTS,
        keys: Keys::None,
        group: Group::Connection,
        arguments: "",
        summary: "Ends the connection when everything is answered.",
        complexity: "O(1)",
        since: "1.0.0",
        run: quit,
    },
    CommandSpec {
        name: "auth",
        arity: -2,
        flags: LOGIN,
        keys: Keys::None,
        group: Group::Connection,
        arguments: "[username] password",
        summary: "Says who the client is.",
        complexity: "O(N) for N passwords of the user",
        since: "1.0.0",
        run: auth,
    },
    CommandSpec {
        name: "hello",
        arity: -1,
        flags: LOGIN,
        keys: Keys::None,
        group: Group::Connection,
        arguments: "[protover [AUTH username password] [SETNAME clientname]]",
        summary: "Changes the protocol, and tells about the server.",
        complexity: "O(1)",
        since: "6.0.0",
        run: hello,
    },
    CommandSpec {
        name: "reset",
        arity: 1,
        flags: FOR_GUESTS,
        keys: Keys::None,
        group: Group::Connection,
        arguments: "",
        summary: "Makes the connection as it was when it began.",
        complexity: "O(1)",
        since: "6.2.0",
        run: reset,
    },
];

fn ping(call: &mut Call<'_>) -> Outcome {
    match call.count() {
        1 => call.reply.simple("PONG"),
        2 => return echo(call),
        _ => return Err(Failure::wrong_count("ping")),
    }
    Ok(())
}

fn echo(call: &mut Call<'_>) -> Outcome {
    call.batch.allow_bytes(call.arg(1).len())?;
    call.reply.bulk(call.arg(1));
    Ok(())
}

fn select(call: &mut Call<'_>) -> Outcome {
    let index = database_number(call, 1)?;
    if index != 0 && call.server.cluster.is_some() {
        return Err(Failure::line(NO_SELECT));
    }
    match selectable(index, call.server) {
        Some(db) => call.session.select(db),
        None => return Err(Failure::line("ERR DB index is out of range")),
    }
    call.reply.ok();
    Ok(())
}

/// Argument number `at` as the number of a database, whether there is such a one or not: for Redis, 32 bits.
pub(super) fn database_number(call: &Call<'_>, at: usize) -> Result<i64, Failure> {
    let number = call.integer(at)?;
    match i32::try_from(number) {
        Ok(_) => Ok(number),
        Err(_) => Err(Failure::line(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        )),
    }
}

/// The database of this number, if there is one to select. In a cluster, the first is the only one.
pub(super) fn selectable(index: i64, server: &Server) -> Option<u8> {
    let count = if server.cluster.is_some() { 1 } else { server.databases() };
    u8::try_from(index).ok().filter(|db| usize::from(*db) < count)
}

fn quit(call: &mut Call<'_>) -> Outcome {
    call.session.closes = true;
    call.reply.ok();
    Ok(())
}

fn auth(call: &mut Call<'_>) -> Outcome {
    let (name, password) = match call.count() {
        2 => (&b"default"[..], call.arg(1)),
        3 => (call.arg(1), call.arg(2)),
        _ => return Err(Failure::SYNTAX),
    };
    if call.count() == 2 && call.server.acl.default_login().is_some() {
        return Err(Failure::line(
            "ERR AUTH <password> called without any password configured for the default user. Are \
             you sure your configuration is correct?",
        ));
    }
    log_in(call, name, password)?;
    call.reply.ok();
    Ok(())
}

fn log_in(call: &mut Call<'_>, name: &[u8], password: &[u8]) -> Outcome {
    // All of it is hashed; who has logged in already may send a long one.
    call.batch.allow_bytes(password.len())?;
    match call.server.authenticate(name, password) {
        Ok(user) => {
            call.session.log_in(user);
            Ok(())
        }
        // It is logged, which is not to be done again if a later command has to wait.
        Err(_) if call.session.is_in_exec && call.batch.mode() == Mode::Memory => {
            Err(Failure::Elsewhere(Wait::Device))
        }
        Err(refusal) => {
            let now_ms = call.batch.now_ms();
            let client = client_line(&call.session.info, now_ms, Some(&call.args));
            call.server.log_denied_login(call.session, call.arg(0), name, &client);
            Err(Failure::Reply(refusal.into()))
        }
    }
}

fn hello(call: &mut Call<'_>) -> Outcome {
    let mut protocol = call.session.protocol;
    if call.count() > 1 {
        protocol = match terrace_resp::parse_integer(call.arg(1)) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err(Failure::line("NOPROTO unsupported protocol version")),
            None => {
                let text = "ERR Protocol version is not an integer or out of range";
                return Err(Failure::line(text));
            }
        };
    }
    let mut at = 2;
    let (mut login, mut name) = (None, None);
    while at < call.count() {
        let left = call.count() - at - 1;
        if call.arg(at).eq_ignore_ascii_case(b"AUTH") && left >= 2 {
            login = Some((call.arg(at + 1), call.arg(at + 2)));
            at += 3;
        } else if call.arg(at).eq_ignore_ascii_case(b"SETNAME") && left >= 1 {
            name = Some(call.arg(at + 1));
            at += 2;
        } else {
            let option = String::from_utf8_lossy(call.arg(at)).into_owned();
            return Err(Failure::err(format!("Syntax error in HELLO option '{option}'")));
        }
    }
    let name = name.map(client_name).transpose()?;
    if let Some((user, password)) = login {
        log_in(call, user, password)?;
    }
    if call.session.user.is_none() {
        return Err(Failure::line(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO AUTH <user> <pass> option can be used to authenticate the client and select the \
             RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        *call.session.info.name.lock() = name;
    }
    call.session.protocol = protocol;
    let version = if protocol == Protocol::Resp3 { 3 } else { 2 };
    call.session.info.protocol.store(version, Ordering::Relaxed);
    call.reply.set_protocol(protocol);
    let reply = &mut call.reply;
    reply.aggregate(Aggregate::Map, 7);
    reply.bulk("server");
    // Clients look for this word.
    reply.bulk("redis");
    reply.bulk("version");
    reply.bulk(crate::REDIS_VERSION);
    reply.bulk("proto");
    reply.integer(i64::from(version));
    reply.bulk("id");
    reply.integer(call.session.id as i64);
    reply.bulk("mode");
    reply.bulk(if call.server.cluster.is_some() { "cluster" } else { "standalone" });
    reply.bulk("role");
    reply.bulk("master");
    reply.bulk("modules");
    reply.array(0);
    Ok(())
}

/// Bytes of a name that a client may have, or of its library.
pub(super) const MAX_NAME_BYTES: usize = 4096;

/// A name that a client may have.
pub(crate) fn client_name(bytes: &[u8]) -> Result<String, Failure> {
    if bytes.len() > MAX_NAME_BYTES {
        return Err(Failure::err(format_args!(
            "Client names cannot be longer than {MAX_NAME_BYTES} bytes."
        )));
    }
    match bytes.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        true => Ok(String::from_utf8_lossy(bytes).into_owned()),
        false => Err(Failure::line(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        )),
    }
}

fn reset(call: &mut Call<'_>) -> Outcome {
    let user = call.server.acl.default_login();
    call.session.reset(user);
    call.reply.set_protocol(call.session.protocol);
    call.reply.simple("RESET");
    Ok(())
}
