//! `ACL`: who may do what.

use super::{Call, CommandSpec, Failure, Flags, Group, Keys, Outcome, table};
use crate::acl::{AclError, Categories, generate};
use crate::session::ClientInfo;
use crate::settle::UnderWay;
use terrace_resp::{Aggregate, OwnedCommand};

/// The rows of this group.
pub const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "acl",
    arity: -2,
    flags: Flags::WAITS.with(Flags::SUBCOMMANDS),
    keys: Keys::None,
    group: Group::Server,
    arguments: "WHOAMI | USERS | LIST | GETUSER name | SETUSER name [rule ...] | DELUSER name [name ...] | \
                CAT [category] | GENPASS [bits] | DRYRUN name command [arg ...] | LOG [count|RESET] | SAVE | LOAD",
    summary: "Says who may do what, and changes it.",
    complexity: "O(N) for N users, rules or entries",
    since: "6.0.0",
    run: acl,
}];

impl From<AclError> for Failure {
    fn from(error: AclError) -> Self {
        Self::Reply(error.reply().into())
    }
}

fn acl(call: &mut Call<'_>) -> Outcome {
    let subcommand = call.arg(1).to_ascii_lowercase();
    match (&subcommand[..], call.count()) {
        (b"whoami", 2) => {
            let name = call.session.user.as_ref().map_or("", |user| user.name());
            call.reply.bulk(name);
        }
        (b"users", 2) => {
            let names = call.server.acl.names();
            call.reply.array(names.len());
            names.iter().for_each(|name| call.reply.bulk(name));
        }
        (b"list", 2) => {
            let lines = call.server.acl.list();
            call.reply.array(lines.len());
            lines.iter().for_each(|line| call.reply.bulk(line));
        }
        (b"getuser", 3) => get_user(call),
        (b"setuser", 3..) => {
            let rules: Vec<&[u8]> = call.args_from(3).collect();
            call.server.acl.set_user(call.arg(2), &rules)?;
            let name = call.arg(2);
            settle(call, &[name], ClientInfo::settle);
            call.reply.ok();
        }
        (b"deluser", 3..) => {
            let names: Vec<&[u8]> = call.args_from(2).collect();
            let count = call.server.acl.delete_users(&names)?;
            settle(call, &names, ClientInfo::kill);
            // The own connection ends behind the reply.
            let own = call.session.user.as_ref();
            let ends = own.is_some_and(|user| names.contains(&user.name().as_bytes()));
            call.session.closes |= ends;
            call.reply.integer(count as i64);
        }
        (b"cat", 2) => {
            let names: Vec<&str> = Categories::ALL.names().collect();
            call.reply.array(names.len());
            names.iter().for_each(|name| call.reply.bulk(name));
        }
        (b"cat", 3) => {
            let names = call.server.acl.commands_in(&String::from_utf8_lossy(call.arg(2)))?;
            call.reply.array(names.len());
            names.iter().for_each(|name| call.reply.bulk(name));
        }
        (b"genpass", 2 | 3) => {
            let bits = if call.count() == 3 { call.integer(2)? } else { 256 };
            call.reply.bulk(generate(bits)?);
        }
        (b"save" | b"load", 2) => {
            return Err(Failure::line(
                "ERR This Redis instance is not configured to use an ACL file. You may want to \
                 specify users via the ACL SETUSER command and then issue a CONFIG REWRITE \
                 (assuming you have a Redis configuration file set) in order to store users in the \
                 Redis configuration.",
            ));
        }
        (b"dryrun", 4..) => dry_run(call)?,
        (b"log", 2 | 3) => log(call)?,
        _ => return Err(Failure::unknown_subcommand("ACL", call.arg(1))),
    }
    Ok(())
}

/// Does this to the other clients of these users. The reply waits until nothing is under way of them that began before.
fn settle(call: &mut Call<'_>, names: &[&[u8]], act: impl Fn(&ClientInfo, UnderWay)) {
    for client in call.server.clients.list() {
        let is_theirs = names.contains(&client.user.lock().as_bytes());
        if is_theirs && client.id != call.session.id {
            act(&client, call.session.begin_settling());
        }
    }
}

fn get_user(call: &mut Call<'_>) {
    let Some(user) = call.server.acl.user(call.arg(2)) else {
        call.reply.null();
        return;
    };
    let reply = &mut call.reply;
    reply.aggregate(Aggregate::Map, 6);
    for (name, values) in [("flags", user.flags()), ("passwords", Vec::new())] {
        reply.bulk(name);
        if name == "passwords" {
            let hashes = user.password_hashes();
            reply.array(hashes.len());
            hashes.iter().for_each(|hash| reply.bulk(hash));
        } else {
            reply.aggregate(Aggregate::Set, values.len());
            values.iter().for_each(|flag| reply.bulk(flag));
        }
    }
    reply.bulk("commands");
    reply.bulk(user.command_rules(call.server.acl.catalog()));
    reply.bulk("keys");
    reply.bulk(user.key_rules());
    reply.bulk("channels");
    reply.bulk(user.channel_rules());
    reply.bulk("selectors");
    reply.array(0);
}

fn dry_run(call: &mut Call<'_>) -> Outcome {
    let name = String::from_utf8_lossy(call.arg(2)).into_owned();
    let user = call.server.acl.user(call.arg(2));
    let user = user.ok_or_else(|| Failure::err(format!("User '{name}' not found")))?;
    let arguments: Vec<&[u8]> = call.args_from(3).collect();
    let inner = OwnedCommand::of(&arguments);
    let inner = inner.as_command();
    let found = table().find(call.arg(3)).filter(|(_, spec)| spec.has_form(&inner));
    let Some((number, spec)) = found else {
        let command = String::from_utf8_lossy(call.arg(3));
        return Err(Failure::err(format!("Command '{command}' not found")));
    };
    spec.check_form(&inner).map_err(|refusal| Failure::Reply(refusal.into()))?;
    match spec.check(number, &inner, &user) {
        Ok(()) => call.reply.ok(),
        // As when it is executed.
        Err(_) if spec.flags.has(Flags::NO_AUTH) => call.reply.ok(),
        Err(denial) => call.reply.bulk(denial.dry_run(&spec.full_name(&inner))),
    }
    Ok(())
}

fn log(call: &mut Call<'_>) -> Outcome {
    if call.arg(2).eq_ignore_ascii_case(b"reset") {
        // Those whose refusals are logged do not wait until they are dropped.
        let gone = call.server.acl.log().lock().take_all();
        drop(gone);
        call.reply.ok();
        return Ok(());
    }
    let count = if call.count() == 3 { call.integer(2)? } else { 10 };
    let entries = call.server.acl.log().lock().shared(usize::try_from(count).unwrap_or(0));
    let now_ms = call.batch.now_ms();
    call.reply.array(entries.len());
    for entry in entries {
        let reply = &mut call.reply;
        if reply.is_over() {
            break;
        }
        reply.aggregate(Aggregate::Map, 10);
        reply.bulk("count");
        reply.integer(entry.count as i64);
        reply.bulk("reason");
        reply.bulk(entry.reason.name());
        reply.bulk("context");
        reply.bulk(entry.context);
        reply.bulk("object");
        reply.bulk(&entry.object);
        reply.bulk("username");
        reply.bulk(&entry.user);
        reply.bulk("age-seconds");
        reply.double(now_ms.saturating_sub(entry.updated_ms) as f64 / 1000.0);
        reply.bulk("client-info");
        reply.bulk(&entry.client);
        reply.bulk("entry-id");
        reply.integer(entry.id as i64);
        reply.bulk("timestamp-created");
        reply.integer(entry.created_ms as i64);
        reply.bulk("timestamp-last-updated");
        reply.integer(entry.updated_ms as i64);
    }
    Ok(())
}
