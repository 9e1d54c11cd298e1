//! `MULTI` in a cluster: everything in one slot (or shard), executed as a whole where that is.
//!
//! Commands without keys are about the connection, or the node that was asked: of a transaction that goes to another node
//! they are executed by this one, *aside*, before the rest is sent; their replies come at their places.

use super::{Away, CROSS_SLOT, HELD, Place, Placing, STARTING, fan_out, refused};
use crate::cluster::{Cluster, unit_of};
use crate::command::{CommandSpec, Flags, NO_SELECT, table};
use crate::session::{Caller, Queued, Session};
use terrace_cluster::Route;
use terrace_resp::{Command, parse_integer, write_request};

/// What would make the replies before it and behind it those of two users, or in two protocols.
const NOT_IN_MULTI: [&str; 2] = ["auth", "hello"];

/// Subcommands of `ACL` of which another node, which executes what stands behind them, knows nothing.
const CHANGE_RIGHTS: [&str; 3] = ["setuser", "deluser", "load"];

/// Commands without keys that are the same at every node.
const ANYWHERE: [&str; 3] = ["ping", "echo", "time"];

/// Whether a command may be queued, and where its keys are.
///
/// # Errors
/// The reply.
pub(crate) fn check_queued(
    cluster: &Cluster,
    spec: &CommandSpec,
    args: &Command<'_>,
    session: &mut Session,
) -> Result<(), String> {
    if session.caller == Caller::Instance {
        return Ok(());
    }
    let Some(coordinator) = cluster.coordinator() else { return Err(STARTING.into()) };
    if fan_out::is_for_all(spec.name) {
        return Err(format!("ERR {} is not possible inside MULTI in cluster mode", spec.name));
    }
    let changes_rights = spec.name == "acl"
        && spec.subcommand(args).is_some_and(|one| CHANGE_RIGHTS.contains(&one.name));
    if NOT_IN_MULTI.contains(&spec.name) || changes_rights {
        let name = spec.full_name(args);
        return Err(format!("ERR {name} is not possible inside MULTI in cluster mode"));
    }
    // It would be refused by EXEC, and what is queued behind it executed where the client did not mean it.
    if spec.name == "select" && args.get(1).and_then(parse_integer) != Some(0) {
        return Err(NO_SELECT.into());
    }
    if spec.keys.may_be_elsewhere()
        && spec.keys.located(args, session.db).any(|(db, _)| db != session.db)
    {
        return Err("ERR another database is not allowed in cluster mode".into());
    }
    for key in spec.keys.of(args) {
        let unit = unit_of(&**coordinator, key);
        let Some(queued) = &mut session.queued else { break };
        if *queued.unit.get_or_insert(unit) != unit {
            return Err(CROSS_SLOT.into());
        }
    }
    let placing = Placing { cluster, coordinator: &**coordinator, session };
    if session.caller == Caller::Client
        && cluster.redirects()
        && let Some(key) = spec.keys.of(args).next()
        && let Route::Owner(node) = placing.route(key)
        && let Some(Place::Refused(text)) = placing.redirect(node, key)
    {
        return Err(text.into_owned());
    }
    Ok(())
}

/// Whether a command of a transaction that is sent to another node is executed by this one.
fn stays(args: &Command<'_>) -> bool {
    table().find(args.name()).is_some_and(|(_, spec)| {
        spec.keys.of(args).next().is_none() && !ANYWHERE.contains(&spec.name)
    })
}

/// What this node has to execute of its client's transaction before that is sent, and at which places it stands; `None` if that
/// is nothing, or nothing more.
pub(crate) fn aside_of(session: &Session) -> Option<(Vec<usize>, Queued)> {
    let queued = session.queued.as_ref().filter(|queued| queued.aside.is_none())?;
    if session.caller != Caller::Client {
        return None;
    }
    let mut aside = Queued::default();
    let mut places = Vec::new();
    for (place, command) in queued.commands.iter().enumerate() {
        if stays(&command.as_command()) {
            aside.bytes += command.held_bytes();
            aside.commands.push(command.clone());
            places.push(place);
        }
    }
    (!places.is_empty()).then_some((places, aside))
}

/// The requests of a transaction, and how many.
pub(crate) fn requests_of(queued: &Queued) -> (Vec<u8>, u32) {
    let mut requests = Vec::with_capacity(queued.bytes);
    let mut count = 2;
    write_request(&mut requests, &["MULTI"]);
    for command in &queued.commands {
        let args = command.as_command();
        if queued.aside.is_none() || !stays(&args) {
            args.append_request(&mut requests);
            count += 1;
        }
    }
    write_request(&mut requests, &["EXEC"]);
    (requests, count)
}

/// What is queued, with the specification of each command.
fn queued_commands(queued: &Queued) -> impl Iterator<Item = (&'static CommandSpec, Command<'_>)> {
    queued.commands.iter().filter_map(|command| {
        let args = command.as_command();
        table().find(args.name()).map(|(_, spec)| (spec, args))
    })
}

/// The keys of a command; of `EXEC` those of what is queued.
pub(crate) fn keys_of<'a>(
    spec: &CommandSpec,
    args: &Command<'a>,
    queued: Option<&'a Queued>,
) -> Vec<&'a [u8]> {
    match queued.filter(|_| spec.name == "exec") {
        Some(queued) => {
            queued_commands(queued).flat_map(|(spec, args)| spec.keys.of(&args)).collect()
        }
        None => spec.keys.of(args).collect(),
    }
}

impl Placing<'_> {
    /// Where a transaction is executed.
    pub(super) fn exec(&self) -> Place {
        let Some(queued) = self.session.queued.as_ref().filter(|queued| !queued.is_spoilt) else {
            return Place::Here(false);
        };
        let commands: Vec<_> = queued_commands(queued).collect();
        let writes = commands.iter().any(|(spec, _)| spec.flags.has(Flags::WRITE));
        let watched = self.session.watched.as_ref().map(|watched| watched.keys());
        let watched = watched.unwrap_or_default();
        let is_here = |key: &[u8]| matches!(self.route(key), Route::Local | Route::Held);
        if !watched.iter().all(|(_, key)| is_here(key)) {
            return Place::Aborted;
        }
        let keys: Vec<&[u8]> =
            commands.iter().flat_map(|(spec, args)| spec.keys.of(args)).collect();
        if keys.iter().any(|key| self.session.is_behind(key)) {
            return refused(HELD);
        }
        let routes: Vec<Route> = keys.iter().map(|key| self.route(key)).collect();
        if keys.is_empty() {
            return Place::Here(false);
        }
        match self.one_place(&keys, &routes, writes) {
            Some(Place::Away(Away::Send(_))) if !watched.is_empty() => Place::Aborted,
            Some(Place::Away(Away::Send(target))) => Away::Exec(target).into(),
            Some(place) => place,
            None => self.gather(&keys, &routes),
        }
    }
}
